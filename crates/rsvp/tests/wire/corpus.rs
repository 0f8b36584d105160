//! The corpus of the fuzz targets, with their findings, is run with the tests.

use std::fs;
use std::path::Path;

fn replay(target: &str, body: impl Fn(&[u8]), at_least: usize) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        body(&fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files >= at_least, "{files} files in {}", corpus.display());
}

#[test]
fn the_corpus_is_survived() {
    replay("rsvp_message", signalbox_rsvp::fuzz::rsvp_message, 8);
    replay("rsvp_adspec", signalbox_rsvp::fuzz::rsvp_adspec, 3);
}
