//! What the lab reads of the QoS NSLP in a GIST message: the type, and the octets of the QSPEC (RFC 5974 section 5.1).

use super::fields::object;

/// The type is the first octet of the common header.
const COMMON_HEADER: usize = 4;
const QSPEC: u16 = 0x00b;
const OBJECT_HEADER: usize = 4;
const RESERVE: u8 = 1;

/// Returns the type of a message; a RESERVE without QSPEC refreshes, or ends, what is there.
pub(super) fn kind(nslp: &[u8]) -> Option<&'static str> {
    match *nslp.first()? {
        RESERVE if qspec(nslp) == 0 => Some("refresh"),
        RESERVE => Some("reserve"),
        2 => Some("query"),
        3 => Some("response"),
        4 => Some("notify"),
        _ => None,
    }
}

/// Returns the octets of the QSPEC, with the header of its object.
pub(super) fn qspec(nslp: &[u8]) -> usize {
    let value = nslp.get(COMMON_HEADER..).and_then(|objects| object(objects, QSPEC));
    value.map_or(0, |value| OBJECT_HEADER + value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An RSN of two words, and a QSPEC of one.
    const RESERVED: &[u8] = &[1, 1, 0, 0, 0, 2, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0x40, 0x0b, 0, 1, 9, 9, 9, 9];

    #[test]
    fn a_reserve_without_a_qspec_is_a_refresh() {
        assert_eq!((kind(RESERVED), qspec(RESERVED)), (Some("reserve"), 8));
        assert_eq!((kind(&RESERVED[..16]), qspec(&RESERVED[..16])), (Some("refresh"), 0));
        assert_eq!((kind(&[3, 0, 0, 0]), kind(&[9, 0, 0, 0]), kind(&[])), (Some("response"), None, None));
        // A QSPEC that is longer than the message is none.
        assert_eq!(qspec(&RESERVED[..20]), 0);
    }
}
