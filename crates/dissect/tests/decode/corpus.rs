//! Replays the fuzz corpus, and cuts and changes a capture everywhere.

use std::fs;
use std::path::Path;

use signalbox_dissect::fuzz;

use crate::packets::ethernet_v4;
use crate::support::*;

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
fn capture() {
    replay("capture", fuzz::capture);
}

#[test]
fn decode() {
    replay("decode", fuzz::decode_any);
}

#[test]
fn every_length_of_a_capture_and_every_octet_changed() {
    let file = pcap(1, &[ethernet_v4(&octets(QUERY), 270)]);
    for length in 0..file.len() {
        fuzz::capture(&file[..length]);
    }
    let mut file = file;
    for at in 0..file.len() {
        for flip in [1, 0x80, 0xff] {
            file[at] ^= flip;
            fuzz::capture(&file);
            file[at] ^= flip;
        }
    }
}
