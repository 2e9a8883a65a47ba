//! Once buffers have grown, a conversation allocates nothing.

use bytes::Bytes;
use corewire_proto::kcp::{Config, Kcp};

/// One round: 40 messages of mixed sizes each way, with every ninth datagram lost and delivered again later.
fn round(a: &mut Kcp, b: &mut Kcp, now: u64, scratch: &mut Scratch) {
    let Scratch { payload, shared, out, message } = scratch;
    for at in 0..40 {
        let len = [10, 1376, 3000, 200][at % 4];
        a.send(&payload[..len]).expect("the queue was drained in the last round");
        b.send_bytes(shared.slice(..len)).expect("the queue was drained in the last round");
    }
    let mut now = now;
    let mut count = 0;
    while a.waiting_send() + b.waiting_send() > 0 {
        for _ in 0..2 {
            while let Some(transmit) = a.poll_transmit(now, out, 64) {
                for datagram in out.chunks(transmit.segment_size) {
                    count += 1;
                    if count % 9 != 0 {
                        b.receive(now, datagram).expect("it is well formed");
                    }
                }
                out.clear();
            }
            std::mem::swap(a, b);
        }
        for end in [&mut *a, &mut *b] {
            while end.recv_into(message).is_some() {
                message.clear();
            }
        }
        now += 10;
    }
}

struct Scratch {
    payload: Vec<u8>,
    shared: Bytes,
    out: Vec<u8>,
    message: Vec<u8>,
}

#[test]
fn a_lossy_exchange_in_both_directions_allocates_nothing_once_warm() {
    let make = || Kcp::new(1, Config::turbo()).expect("the settings are valid");
    let (mut a, mut b) = (make(), make());
    let mut scratch = Scratch {
        payload: vec![1; 4096],
        shared: Bytes::from(vec![2; 4096]),
        out: Vec::with_capacity(64 * 1400),
        message: Vec::with_capacity(4096),
    };
    for warm in 0..200 {
        round(&mut a, &mut b, warm * 100_000, &mut scratch);
    }
    let info = allocation_counter::measure(|| {
        for warm in 200..210 {
            round(&mut a, &mut b, warm * 100_000, &mut scratch);
        }
    });
    assert!(a.stats().segments_sent > 10_000 && a.stats().timeout_resends + a.stats().fast_resends > 100);
    assert_eq!(info.count_total, 0, "{} bytes were allocated", info.bytes_total);
}
