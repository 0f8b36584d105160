//! Damaged QSPECs, and inputs that fuzzing found.

use std::fs;
use std::path::Path;

use signalbox_qos::fuzz;

/// Every octet of the corpus with each bit changed and with some values, and every length.
#[test]
fn the_corpus_and_its_neighbors() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/qspec_rules");
    let mut files = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        let mut octets = fs::read(&path).unwrap();
        fuzz::qspec_rules(&octets);
        for at in 0..octets.len() {
            let was = octets[at];
            for value in (0..8).map(|bit| was ^ 1 << bit).chain([0, 0x7f, 0xff]) {
                octets[at] = value;
                fuzz::qspec_rules(&octets);
            }
            octets[at] = was;
            fuzz::qspec_rules(&octets[..at]);
        }
        files += 1;
    }
    assert!(files >= 8, "{files} files in {}", corpus.display());
}
