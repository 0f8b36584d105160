//! What fuzzing starts from, and what it found, is tried each time the tests run.

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/casp_message");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        signalbox_casp::fuzz::message(&fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files >= 8, "{files} files in {}", corpus.display());
}

#[test]
fn the_corpus_of_the_qos_client_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/casp_qos");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        signalbox_casp::fuzz::qos(&fs::read(entry.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 6, "{files} files in {}", corpus.display());
}

#[test]
fn the_corpus_of_the_firewall_client_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/casp_natfw");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        signalbox_casp::fuzz::natfw(&fs::read(entry.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 12, "{files} files in {}", corpus.display());
}

#[cfg(feature = "kit")]
#[test]
fn the_corpus_of_the_engine_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/casp_engine");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        signalbox_casp::fuzz::casp_engine(&fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files >= 12, "{files} files in {}", corpus.display());
}

#[cfg(feature = "kit")]
#[test]
fn the_corpus_of_the_qos_clients_sequences_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/casp_qos_client");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        signalbox_casp::fuzz::casp_qos_client(&fs::read(entry.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 8, "{files} files in {}", corpus.display());
}

#[cfg(feature = "kit")]
#[test]
fn the_corpus_of_the_firewall_clients_sequences_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/casp_natfw_client");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        signalbox_casp::fuzz::casp_natfw_client(&fs::read(entry.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 12, "{files} files in {}", corpus.display());
}
