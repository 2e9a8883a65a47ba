//! The KCP fuzz targets over their committed corpora and random input.

use std::path::Path;

use corewire_testkit::fuzz::replay;
use corewire_testkit::kcp_fuzz::TARGETS;
use corewire_testkit::random_bytes;

#[test]
fn every_target_passes_over_its_committed_corpus_and_what_is_near_to_it() {
    for (name, target) in TARGETS {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        replay(&corpus, target, 300);
    }
}

#[test]
fn random_input_breaks_no_promise() {
    for (name, target) in TARGETS {
        for seed in 0..250 {
            let input = random_bytes(seed, 1 + (seed as usize * 37) % 4_000);
            if std::panic::catch_unwind(|| target(&input)).is_err() {
                panic!("{name} fails for seed {seed}, length {}", input.len());
            }
        }
    }
}
