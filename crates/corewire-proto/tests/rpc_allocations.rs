//! Calls and messages cost no heap bytes once as many have been in flight as ever will be.
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use corewire_proto::rpc::{
    Advance, Begin, Connection, Event, MethodPath, Mode, Options, Reassembly, Settings, Version,
};

struct Pair {
    client: Connection,
    server: Connection,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    path: MethodPath,
}

impl Pair {
    fn new(version: Version) -> Self {
        Self {
            client: Connection::client(version, Settings::default()),
            server: Connection::server(Settings::default()),
            to_server: Vec::with_capacity(1 << 20),
            to_client: Vec::with_capacity(1 << 20),
            path: MethodPath::new("BenchEchoService", "echo").unwrap(),
        }
    }

    /// Delivers both ways; the server echoes every message. How many came back.
    fn exchange(&mut self) -> usize {
        let Self { client, server, to_server, to_client, .. } = self;
        let mut input = &to_server[..];
        while let Some(event) = server.receive(&mut input, Duration::ZERO, to_client).unwrap() {
            match event {
                Event::Request { call, request } => {
                    let payload = request.payload.unwrap_or_default();
                    server.send(call, payload, request.end, to_client).unwrap();
                    server.release(call, payload.len(), to_client);
                }
                Event::StreamOpened { call, .. } => server.accept(call, to_client).unwrap(),
                Event::Message { call, payload, end, .. } => {
                    server.send(call, payload, end, to_client).unwrap();
                    server.release(call, payload.len(), to_client);
                }
                Event::Ended { call, .. } => server.finish(call, to_client).unwrap(),
                _ => {}
            }
        }
        to_server.clear();
        let (mut input, mut count) = (&to_client[..], 0);
        while let Some(event) = client.receive(&mut input, Duration::ZERO, to_server).unwrap() {
            if let Event::Message { call, payload, .. } = event {
                client.release(call, payload.len(), to_server);
                count += 1;
            }
        }
        to_client.clear();
        count
    }
}

#[test]
fn a_unary_call_allocates_nothing_on_either_side() {
    for version in [Version::V1, Version::V2] {
        let mut pair = Pair::new(version);
        let mut round = || {
            for _ in 0..64 {
                pair.client.unary(&pair.path, &[7; 47], &mut pair.to_server).unwrap();
            }
            assert_eq!(pair.exchange(), 64);
        };
        round();
        let info = measure(|| (0..1_000).for_each(|_| round()));
        assert_eq!((info.count_total, info.bytes_total), (0, 0), "{version:?}");
    }
}

#[test]
fn a_bidi_call_and_a_stream_allocate_nothing_on_either_side() {
    for version in [Version::V1, Version::V2] {
        let mut pair = Pair::new(version);
        let mut round = || {
            let path = pair.path.clone();
            let begin = Begin { path: &path, mode: Mode::Bidi, end: false, options: Options::default() };
            let call = pair.client.begin(&begin, Some(b"x"), &mut pair.to_server).unwrap();
            let stream = pair.client.open_stream(&path, &Options::default(), &mut pair.to_server).unwrap();
            assert_eq!(pair.exchange(), 1);
            for _ in 0..16 {
                for key in [call, stream] {
                    pair.client.send(key, &[7; 128], false, &mut pair.to_server).unwrap();
                }
                assert_eq!(pair.exchange(), 2);
            }
            for key in [call, stream] {
                pair.client.send(key, b"last", true, &mut pair.to_server).unwrap();
            }
            assert_eq!(pair.exchange(), 2);
            assert!(pair.client.is_idle() && pair.server.is_idle());
        };
        round();
        let info = measure(|| (0..100).for_each(|_| round()));
        assert_eq!((info.count_total, info.bytes_total), (0, 0), "{version:?}");
    }
}

#[test]
fn a_long_frame_in_many_chunks_is_put_together_without_allocation_unless_it_is_held() {
    const LEN: usize = 64 * 1024;
    // Whole, and cut in four with an end that falls inside the next header.
    let chunks: Vec<Bytes> =
        [vec![1; 16_384], vec![2; 16_384], vec![3; 16_384], vec![4; 16_384 - 5], vec![5; 5]]
            .map(Bytes::from)
            .into();
    let mut reassembly = Reassembly::new();
    let mut held = Vec::with_capacity(1_000);
    let mut round = |hold: bool| {
        for chunk in &chunks {
            let step = |input: &[u8], origin: corewire_proto::rpc::Origin<'_>| {
                if input.len() < LEN {
                    let total = if input.len() < 16 { 16 } else { LEN };
                    return Ok::<_, ()>(Advance::Needs { consumed: 0, total });
                }
                assert_eq!((input[0], input[LEN - 1]), (1, 5));
                if hold {
                    held.push(origin.to_bytes(&input[10..LEN]));
                }
                Ok(Advance::Consumed(LEN))
            };
            reassembly.drive(chunk, step).unwrap();
        }
        assert!(reassembly.is_empty());
    };
    (0..3).for_each(|_| round(false));
    let info = measure(|| (0..100).for_each(|_| round(false)));
    assert_eq!(info.count_total, 0);
    round(true);
    round(true);
    assert!(
        held.iter()
            .all(|bytes| bytes.len() == LEN - 10 && bytes.ends_with(&[5; 5]) && bytes.starts_with(&[1]))
    );
}
