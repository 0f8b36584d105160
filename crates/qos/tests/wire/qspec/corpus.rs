//! The fuzz corpus, replayed in each run of the tests.

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/qspec");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        signalbox_qos::fuzz::qspec(&fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files >= 8, "{files} files in {}", corpus.display());
}
