//! A node stays within its limits whatever peers, strangers, applications and channels do: the body of the fuzz target,
//! with its corpus and at random.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use signalbox_gist::fuzz::gist_engine;

#[test]
fn the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gist_engine");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        gist_engine(&fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files >= 5, "{files} files in {}", corpus.display());
}

/// Each octet of a Query, of a Confirm and of Data is changed, at a node with state and without.
#[test]
fn any_octet_of_any_message() {
    for settings in [0, 8, 2] {
        for at in 0..120 {
            for value in [0, 0xff, at ^ 0x55, 1] {
                gist_engine(&[settings, 0, 0, 1, at, value, 2, 0, 0]);
                gist_engine(&[settings, 0, 0, 0, 2, 0, 1, at, value, 3, 0, 0]);
                gist_engine(&[settings, 0, 0, 0, 2, 0, 0, 3, 0, 1, at, value]);
                gist_engine(&[settings, 4, 0x37, 9, 1, 1, at, value, 3, 0x80, 0]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_octets(octets in proptest::collection::vec(any::<u8>(), 0..700)) {
        gist_engine(&octets);
    }
}
