//! Body of the fuzz target: no file makes the reader panic or continue after an error.

use crate::Reader;

/// Reads any octets as a recording of a node whose commands are text.
pub fn record_line(data: &[u8]) {
    let Ok(mut reader) = Reader::<_, String>::new(data) else { return };
    let faults = reader.by_ref().filter(Result::is_err).count();
    assert!(faults <= 1, "the first fault is the last item");
    assert!(reader.next().is_none(), "the end is the end");
}
