//! What a call costs its caller in memory once everything is warm: nothing. (`corewire bench rpc` counts both sides.)
#![allow(clippy::unwrap_used)]

mod support;

use allocation_counter::measure;
use corewire_rpc::discover::registry::{Endpoint, LocalRegistry};
use corewire_rpc::{Bytes, Channel, MethodPath, Version};
use support::{VERSIONS, server};

/// What the calling thread, as the channel's worker, allocates for this many calls.
fn allocated(uri: &str, version: Version, calls: usize) -> u64 {
    let uri = uri.to_owned();
    let counted = measure(move || {
        corewire::run(async move {
            let channel = Channel::to(uri).protocol(version).build().unwrap();
            let path = MethodPath::new("EchoService", "echo").unwrap();
            for _ in 0..calls {
                channel.unary(&path, Bytes::from_static(&[7; 47])).await.unwrap();
            }
        })
        .unwrap();
    });
    counted.count_total
}

/// The same for streams, of 16 messages each.
fn allocated_by_streams(uri: &str, version: Version, streams: usize) -> u64 {
    let uri = uri.to_owned();
    let counted = measure(move || {
        corewire::run(async move {
            let channel = Channel::to(uri).protocol(version).build().unwrap();
            let path = MethodPath::new("StreamBenchService", "echo").unwrap();
            for _ in 0..streams {
                let (mut sink, mut replies) = channel.stream(&path).await.unwrap();
                for _ in 0..16 {
                    sink.send(Bytes::from_static(&[7; 128])).await.unwrap();
                }
                for _ in 0..16 {
                    assert_eq!(replies.next().await.unwrap().unwrap().len(), 128);
                }
                sink.finish().await.unwrap();
                assert!(replies.next().await.is_none());
            }
        })
        .unwrap();
    });
    counted.count_total
}

#[test]
fn streams_and_their_messages_allocate_nothing_at_their_caller() {
    let server = server(|server| server);
    for version in VERSIONS {
        allocated_by_streams(server.uri(), version, 20);
        let few = allocated_by_streams(server.uri(), version, 100);
        let many = allocated_by_streams(server.uri(), version, 600);
        assert!(many < few + 20, "{version:?}: {few} allocations for 100 streams, {many} for 600");
    }
}

/// The same by a channel that balances.
fn allocated_balanced(uri: &str, calls: usize) -> u64 {
    let address = uri.trim_start_matches("tcp://").to_owned();
    let counted = measure(move || {
        corewire::run(async move {
            let registry = LocalRegistry::new();
            let endpoint = |n: usize| Endpoint::new("EchoService", n.to_string(), &*address).unwrap();
            let _leases: Vec<_> = (0..8).map(|n| registry.register(endpoint(n)).unwrap()).collect();
            let channel = Channel::discover(&registry, "EchoService").build().await.unwrap();
            let path = MethodPath::new("EchoService", "echo").unwrap();
            for _ in 0..calls {
                channel.unary(&path, Bytes::from_static(&[7; 47])).await.unwrap();
            }
        })
        .unwrap();
    });
    counted.count_total
}

#[test]
fn a_call_that_is_balanced_allocates_nothing_either() {
    let server = server(|server| server);
    allocated_balanced(server.uri(), 1_000);
    let few = allocated_balanced(server.uri(), 1_000);
    let many = allocated_balanced(server.uri(), 3_000);
    assert!(many < few + 40, "{few} allocations for 1,000 calls, {many} for 3,000");
}

#[test]
fn a_unary_call_of_raw_bytes_allocates_nothing_at_its_caller() {
    let server = server(|server| server);
    for version in VERSIONS {
        // The first run pays for what is made once a process.
        allocated(server.uri(), version, 100);
        let few = allocated(server.uri(), version, 1_000);
        let many = allocated(server.uri(), version, 3_000);
        // The event loop rereads its clock and may grow a list once: that does not count by calls.
        assert!(many < few + 20, "{version:?}: {few} allocations for 1,000 calls, {many} for 3,000");
    }
}
