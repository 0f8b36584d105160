//! What fuzzing starts from, and what it found, is tried each time the tests run.

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ping_message");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        let octets = fs::read(&path).unwrap();
        eprintln!("{}", path.display());
        signalbox_ping::fuzz::message(&octets);
        files += 1;
    }
    assert!(files >= 11, "{files} files in {}", corpus.display());
}
