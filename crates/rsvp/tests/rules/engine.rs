//! A node stays within its limits whatever its neighbors send: the body of the fuzz target, with its corpus and at
//! random.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use signalbox_rsvp::fuzz::rsvp_engine;

#[test]
fn the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rsvp_engine");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        rsvp_engine(&fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files >= 7, "{files} files in {}", corpus.display());
}

/// Each octet of each message is changed, at a node with state.
#[test]
fn any_octet_of_any_message() {
    for number in 0..31 {
        for at in 0..104 {
            for (value, setup) in [(0, 0), (0xff, 1), (at ^ 0x55, 3), (1, 13)] {
                rsvp_engine(&[setup, number << 3 | number & 1, 1, at, value, 4, 9]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_octets(octets in proptest::collection::vec(any::<u8>(), 0..700)) {
        rsvp_engine(&octets);
    }
}
