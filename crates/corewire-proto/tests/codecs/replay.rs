//! The fuzz targets over their committed corpus and a fixed sequence of random inputs.

use std::path::Path;

use corewire_testkit::fuzz::{TARGETS, Target, replay};

const ROUNDS: u64 = 3_000;

fn run(name: &str) {
    let (_, target): (_, Target) = TARGETS.into_iter().find(|(target, _)| *target == name).unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    replay(&corpus, target, ROUNDS);
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_replayed() {
            let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

replays!(raw standard length_field varint32 line delimiter fixed_length json_lines call_table);
