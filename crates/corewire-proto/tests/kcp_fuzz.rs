//! Random input into the KCP machine: no panic, and memory within its bound.

use corewire_testkit::kcp_fuzz;
use corewire_testkit::rng::Rng;

#[test]
fn random_input_breaks_no_promise() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut input = vec![0; 1 + rng.below(8_000) as usize];
        rng.fill(&mut input);
        kcp_fuzz::kcp(&input);
    }
}
