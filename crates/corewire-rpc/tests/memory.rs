//! What a call costs its caller in memory once everything is warm: nothing. (`corewire bench rpc` counts both sides.)
#![allow(clippy::unwrap_used)]

mod support;

use allocation_counter::measure;
use corewire_rpc::{Bytes, Channel, MethodPath, Version};
use support::{VERSIONS, server};

/// What the calling thread, as the channel's worker, allocates for this many calls.
fn allocated(uri: &str, version: Version, calls: usize) -> u64 {
    let uri = uri.to_owned();
    let counted = measure(move || {
        corewire::block_on(async move {
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
