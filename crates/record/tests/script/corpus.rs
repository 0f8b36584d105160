//! Replay of the fuzz corpus through the body of the fuzz target.

use std::fs;
use std::path::Path;

use signalbox_record::{ReadError, Reader, fuzz};

#[test]
fn record_line() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/record_line");
    let mut files: Vec<_> = fs::read_dir(&directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    for file in files {
        eprintln!("{}", file.display());
        fuzz::record_line(&fs::read(&file).unwrap());
    }
}

/// The corpus contains valid recordings; otherwise the test above would prove little.
#[test]
fn the_corpus_is_of_this_version() {
    let read = |name: &str| {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/record_line");
        let octets = fs::read(directory.join(name)).unwrap();
        Reader::<_, String>::new(&octets[..]).unwrap().collect::<Result<Vec<_>, _>>()
    };
    assert_eq!(read("datagram_and_timer").unwrap().len(), 2);
    assert!(matches!(read("backwards"), Err(ReadError::Backwards { line: 3, .. })));
}
