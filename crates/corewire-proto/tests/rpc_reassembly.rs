//! Chunks, cut anywhere, are shown as whole frames.
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

use bytes::Bytes;
use corewire_proto::rpc::{Advance, Reassembly};
use corewire_testkit::random_bytes;

/// Frames of a two-byte length and as many bytes.
fn step(input: &[u8]) -> Result<&[u8], usize> {
    let Some((len, _)) = input.split_first_chunk::<2>() else { return Err(2) };
    let total = 2 + usize::from(u16::from_be_bytes(*len));
    input.get(..total).ok_or(total)
}

#[test]
fn frames_are_the_same_however_chunks_end_and_wherever_a_step_stops() {
    for seed in 0..200 {
        let random = random_bytes(seed, 4_000);
        let frames: Vec<Vec<u8>> = random
            .chunks(40)
            .map(|bytes| {
                // Mostly short ones, and some that are longer than any chunk.
                let len = u16::from(bytes[0]) * if bytes[1] < 40 { 9 } else { 1 };
                let body = bytes.iter().copied().cycle().take(usize::from(len));
                len.to_be_bytes().into_iter().chain(body).collect()
            })
            .collect();
        let stream = frames.concat();
        let (mut at, mut turn, mut seen, mut held) = (0, 0, Vec::new(), Vec::new());
        let mut reassembly = Reassembly::new();
        while at < stream.len() || !reassembly.is_empty() {
            turn += 1;
            let size = usize::from(random[turn % random.len()]) * 4;
            let chunk = Bytes::copy_from_slice(&stream[at..stream.len().min(at + size)]);
            at += chunk.len();
            let mut steps = 0;
            let shown = reassembly.drive(&chunk, |input, origin| {
                steps += 1;
                if (turn + steps) % 7 == 0 {
                    return Ok::<_, ()>(Advance::Stop(0));
                }
                Ok(match step(input) {
                    Ok(frame) => {
                        seen.push(frame.to_vec());
                        held.push(origin.to_bytes(frame));
                        Advance::Consumed(frame.len())
                    }
                    Err(total) => Advance::Needs { consumed: 0, total },
                })
            });
            shown.unwrap();
        }
        assert_eq!(seen, frames, "seed {seed}");
        assert!(
            held.iter().zip(&frames).all(|(held, frame)| held == frame),
            "seed {seed}: a held payload changed"
        );
    }
}

#[test]
fn an_error_of_a_step_is_handed_on() {
    let mut reassembly = Reassembly::new();
    assert_eq!(
        reassembly.drive(&Bytes::from_static(b"x"), |_, _| Err::<Advance, _>("broken")),
        Err("broken")
    );
}
