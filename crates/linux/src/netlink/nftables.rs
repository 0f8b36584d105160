//! The parts that all requests to nftables have in common.

use super::Batch;

const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10; // NFNL_SUBSYS_NFTABLES
/// The attribute that holds a value, within another.
pub(crate) const NFTA_DATA_VALUE: u16 = 1;
/// The attribute that is one element of a list.
pub(crate) const NFTA_LIST_ELEM: u16 = 1;

/// The message type of a request.
pub(crate) const fn message(kind: u16) -> u16 {
    SUBSYSTEM << 8 | kind
}

/// The `struct nfgenmsg` of a request about tables of a family.
pub(crate) const fn about(family: u8) -> [u8; 4] {
    [family, 0, 0, 0]
}

/// Begins a transaction.
pub(crate) fn begin(requests: &mut Batch) {
    requests.begin(NFNL_MSG_BATCH_BEGIN, 0, &frame());
}

/// Ends a transaction.
pub(crate) fn end(requests: &mut Batch) {
    requests.begin(NFNL_MSG_BATCH_END, 0, &frame());
}

/// A name as a string that ends with a zero octet, as the kernel requires.
pub(crate) fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

fn frame() -> [u8; 4] {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    [0, 0, high, low]
}
