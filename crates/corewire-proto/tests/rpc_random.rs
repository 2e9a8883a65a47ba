//! The fuzz bodies over seeded bytes. To replay a failure, run the body on the seed that the message names.

use std::path::Path;

use corewire_testkit::fuzz::replay;
use corewire_testkit::random_bytes;
use corewire_testkit::rpc_fuzz::{TARGETS, rpc_frames, rpc_input, rpc_machines};

/// Runs `body` on bytes of each seed; a failure names its seed.
fn for_seeds(seeds: u64, len: usize, body: fn(&[u8])) {
    for seed in 0..seeds {
        // Lengths vary, since they decide how a simulation ends.
        let bytes = random_bytes(seed, len + (seed % 8) as usize);
        if std::panic::catch_unwind(|| body(&bytes)).is_err() {
            panic!("fails for seed {seed}, length {}", bytes.len());
        }
    }
}

#[test]
fn every_target_passes_over_its_committed_corpus_and_what_is_near_to_it() {
    for (name, target) in TARGETS {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        replay(&corpus, target, 3_000);
    }
}

#[test]
fn joined_machines_agree_with_the_model_under_random_delivery() {
    for_seeds(1_500, 1_500, rpc_machines);
}

#[test]
fn joined_machines_agree_with_the_model_over_a_long_run() {
    for_seeds(4, 200_000, rpc_machines);
}

#[test]
fn random_bytes_are_read_without_harm() {
    for_seeds(5_000, 300, rpc_input);
    for_seeds(5_000, 300, rpc_frames);
}

/// Random bytes hardly ever have a header; these do, and random flags, ids, lengths and bodies.
#[test]
fn random_frames_are_read_the_same_in_any_chunks() {
    for_seeds(20_000, 200, |bytes| {
        let mut input = bytes[..2].to_vec();
        let version = bytes[2] % 2 + 1;
        if version == 2 {
            input.extend_from_slice(b"GRPC\x02\x21\0\0\0\0\0\0\0\0\0\0");
        }
        for piece in bytes[3..].chunks_exact(16) {
            let kinds = [1, 1, 1, 2, 2, 3, 4, 16, 17, 18, 18, 19, 20, 32, 34, 33];
            let kind = kinds[usize::from(piece[0] % 16)];
            let flags = if piece[1] < 40 { 0 } else { piece[1] & 0x3f };
            let flags = match (kind, version) {
                (1 | 2, 1) => flags & 0x07,
                (1, 2) => flags,
                (2, 2) => flags & 0x2f,
                (3 | 34, 2) => flags & 1,
                (4 | 16, 2) => flags & 8,
                _ => 0,
            };
            let len = piece[3] % 13;
            // Mostly names for one call; else whatever number and names there are.
            let is_named = version == 2 && matches!(kind, 1 | 16) && flags & 0x10 == 0 && piece[1] % 8 > 0;
            let (flags, number) =
                if is_named { (flags | 0x40, &[0, piece[1] % 2][..]) } else { (flags, &[][..]) };
            input.extend_from_slice(&[b'G', b'R', b'P', b'C', version, kind, flags, 0]);
            input.extend_from_slice(&[0, 0, 0, piece[2] % 6, 0, 0, 0, len + number.len() as u8]);
            input.extend_from_slice(number);
            // Short lengths inside the body are the ones that fit.
            input.extend(piece[4..].iter().cycle().take(usize::from(len)).map(|byte| byte % 5));
        }
        rpc_input(&input);
        rpc_frames(&input[2..]);
    });
}
