//! Bodies of fuzz targets for what a node reads besides the messages of its protocols.

use crate::protocols::casp::dns::message;

/// An answer of a resolver, for the discovery of CASP by DNS. A record has at least twelve octets besides its name.
///
/// # Panics
/// More records were read than the octets can have.
pub fn casp_dns(data: &[u8]) {
    let count = message::records(data);
    assert!(count * 12 <= data.len() * 3, "{count} records in {} octets", data.len());
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_corpus_of_dns_is_survived() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/casp_dns");
        let files = fs::read_dir(&corpus).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
        let files: Vec<Vec<u8>> = files.collect();
        files.iter().for_each(|octets| super::casp_dns(octets));
        assert!(files.len() >= 4, "{} files in {}", files.len(), corpus.display());
        let records: usize = files.iter().map(|octets| super::message::records(octets)).sum();
        assert!(records >= 4, "{records} records");
    }

    /// A chain of pointers costs no more than a name with few of them.
    #[test]
    fn a_name_of_many_pointers_is_refused() {
        let rest = [0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1];
        let record = |pointers: usize| {
            // An answer with one question, for an address of "a", and two records.
            let mut message = vec![0, 1, 0x80, 0, 0, 1, 0, 2, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
            let pointer =
                |to: usize| [0xc0 | u8::try_from(to >> 8).unwrap(), u8::try_from(to & 0xff).unwrap()];
            // The pointers are the content of a record of another type: the first leads to the question, each further one to
            // the one before it.
            message.extend([0, 0, 99, 0, 1, 0, 0, 0, 60, 0, u8::try_from(2 * pointers).unwrap()]);
            let base = message.len();
            for nth in 0..pointers {
                message.extend(pointer(if nth == 0 { 12 } else { base + 2 * (nth - 1) }));
            }
            message.extend(pointer(base + 2 * (pointers - 1)));
            message.extend(rest);
            message
        };
        assert_eq!(super::message::records(&record(10)), 1);
        assert_eq!(super::message::records(&record(30)), 0);
    }
}
