//! A node stays within its limits whatever peers, GIST and users do: the body of the fuzz target, with its corpus and at
//! random.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use signalbox_qos::fuzz::qos_engine;

#[test]
fn the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/qos_engine");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        qos_engine(&fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files >= 5, "{files} files in {}", corpus.display());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_octets(octets in proptest::collection::vec(any::<u8>(), 0..700)) {
        qos_engine(&octets);
    }
}
