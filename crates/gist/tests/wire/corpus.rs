//! Replays the fuzz corpus through the bodies of the targets.

use std::fs;
use std::path::Path;

use signalbox_gist::fuzz;

fn replay(target: &str, body: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    for file in files {
        eprintln!("{}", file.display());
        body(&fs::read(&file).unwrap());
    }
}

#[test]
fn gist_message() {
    replay("gist_message", fuzz::gist_message);
}

#[test]
fn gist_error_object() {
    replay("gist_error_object", fuzz::gist_error_object);
}

#[test]
fn gist_mri() {
    replay("gist_mri", fuzz::gist_mri);
}
