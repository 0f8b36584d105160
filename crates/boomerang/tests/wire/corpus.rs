//! What fuzzing starts from, and what it found, is tried each time the tests run.

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/boomerang_message");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        signalbox_boomerang::fuzz::message(&fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files >= 6, "{files} files in {}", corpus.display());
}

#[cfg(feature = "kit")]
#[test]
fn the_corpus_of_the_engine_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/boomerang_engine");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        signalbox_boomerang::fuzz::boomerang_engine(&fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files >= 7, "{files} files in {}", corpus.display());
}
