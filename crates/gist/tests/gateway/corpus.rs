//! Replays the fuzz corpus of the gateway, and random sequences of operations.

use std::fs;
use std::path::Path;

use signalbox_core::Random;
use signalbox_gist::fuzz::gist_gateway;

#[test]
fn the_corpus_holds() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gist_gateway");
    let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        eprintln!("{}", file.display());
        gist_gateway(&fs::read(&file).unwrap());
    }
}

/// GISTNAT-X-24: whatever comes, the tables keep their limits, and all is given back.
#[test]
fn random_operations_hold() {
    for seed in 0..500 {
        let mut octets = [0; 400];
        Random::from_number(seed).fill(&mut octets);
        gist_gateway(&octets);
    }
}
