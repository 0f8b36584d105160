//! What fuzzing starts from, and what it found, is tried each time the tests run.

use std::fs;
use std::path::Path;

fn survived(name: &str, target: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        target(&fs::read(entry.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 4, "{files} files in {}", corpus.display());
}

#[test]
fn the_corpora_are_survived() {
    survived("pcp_message", signalbox_mapping::fuzz::pcp_message);
    survived("nat_pmp_message", signalbox_mapping::fuzz::nat_pmp_message);
}

#[cfg(feature = "engine")]
#[test]
fn the_corpus_of_the_engine_is_survived() {
    survived("pcp_engine", signalbox_mapping::fuzz::pcp_engine);
}
