//! SESSION_ATTRIBUTE (RFC 3209 §4.7.1), as far as the protection of a reservation needs it.
//!
//! The class is one that nodes without it pass on, so the object is read where it is carried, as octets.

use super::object::{OBJECT_HEADER_OCTETS, Objects};

const CLASS: u8 = 207;
/// The format without resource affinities.
const C_TYPE: u8 = 7;
/// Place of the flags in the object.
const FLAGS: usize = OBJECT_HEADER_OCTETS + 2;
/// Flag "local protection desired".
const PROTECT: u8 = 1;
/// The lowest of the priorities: those of this object are not used.
const LOWEST: u8 = 7;

/// The object of a sender that desires local protection.
#[must_use]
pub const fn protecting() -> [u8; 8] {
    [0, 8, CLASS, C_TYPE, LOWEST, LOWEST, PROTECT, 0]
}

/// Whether the objects have a SESSION_ATTRIBUTE, and whether it desires local protection. Only the first such object
/// counts (RFC 3209 §4.7.3).
#[must_use]
pub fn protection(objects: &[u8]) -> Option<bool> {
    objects.get(flags_in(objects)?).map(|flags| flags & PROTECT != 0)
}

/// The same objects without the desire for local protection.
#[must_use]
pub fn unprotected(objects: &[u8]) -> Vec<u8> {
    let mut copy = objects.to_vec();
    if let Some(flags) = flags_in(objects).and_then(|at| copy.get_mut(at)) {
        *flags &= !PROTECT;
    }
    copy
}

/// Place of the flags of the first SESSION_ATTRIBUTE.
fn flags_in(objects: &[u8]) -> Option<usize> {
    let mut at = 0;
    for object in Objects::at(objects, 0).map_while(Result::ok) {
        if object.kind.class.0 == CLASS && object.kind.c_type == C_TYPE && object.octets.len() > FLAGS {
            return Some(at + FLAGS);
        }
        at += object.octets.len();
    }
    None
}
