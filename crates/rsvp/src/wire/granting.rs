//! The list of the nodes that granted a reservation, in an object of our own ([`signalbox_wire::hops`]).
//!
//! The class is one of those for private use that nodes of other makes pass on unread (RFC 3936 §2.4). A Path with an empty list asks
//! for it. Each node of the suite adds itself to the list of the Resv that it sends, so the last node is the first of the list.

use signalbox_wire::hops::{Hop, Hops};

use super::object::{OBJECT_HEADER_OCTETS, Objects, RawObject};

const CLASS: u8 = 252;
const C_TYPE: u8 = 1;
/// The enterprise number that documents and private networks may use (RFC 5612).
const ENTERPRISE: [u8; 4] = 32_473_u32.to_be_bytes();
/// Octets before the entries.
const HEAD: usize = OBJECT_HEADER_OCTETS + ENTERPRISE.len();

/// The list in an object; `None`: it is another object, or malformed.
#[must_use]
pub fn list<'a>(object: &RawObject<'a>) -> Option<Hops<'a>> {
    if object.kind.class.0 != CLASS || object.kind.c_type != C_TYPE {
        return None;
    }
    let entries = object.octets.get(OBJECT_HEADER_OCTETS..)?.strip_prefix(&ENTERPRISE)?;
    Hops::from_octets(entries)
}

/// Whether the objects of a Path ask for the list.
#[must_use]
pub fn asks(objects: &[u8]) -> bool {
    Objects::at(objects, 0).map_while(Result::ok).any(|object| list(&object).is_some())
}

/// The object that asks for the list.
#[must_use]
pub fn asking() -> Vec<u8> {
    object(&[])
}

/// The object with a list, and with another node at its end if there is room.
#[must_use]
pub fn with(list: Hops<'_>, node: &Hop) -> Vec<u8> {
    let mut entries = list.octets().to_vec();
    node.append(&mut entries);
    object(&entries)
}

fn object(entries: &[u8]) -> Vec<u8> {
    let length = u16::try_from(HEAD + entries.len()).unwrap_or(u16::MAX);
    let mut octets = Vec::with_capacity(length.into());
    octets.extend_from_slice(&length.to_be_bytes());
    octets.extend_from_slice(&[CLASS, C_TYPE]);
    octets.extend_from_slice(&ENTERPRISE);
    octets.extend_from_slice(entries);
    octets
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use signalbox_wire::hops::Part;

    use super::*;

    fn lists(objects: &[u8]) -> Vec<Vec<Hop>> {
        let objects = Objects::at(objects, 0).map_while(Result::ok);
        objects.filter_map(|object| list(&object)).map(|list| list.iter().collect()).collect()
    }

    #[test]
    fn each_node_adds_itself() {
        assert_eq!(asking(), [0, 8, 252, 1, 0, 0, 0x7e, 0xd9]);
        assert!(asks(&asking()));
        let end = Hop { answered: true, ..Hop::new(IpAddr::from([192, 0, 2, 9]), Part::End) };
        let router = Hop::new(IpAddr::from([192, 0, 2, 1]), Part::Rate(125_000));
        let first = with(Hops::EMPTY, &end);
        let [known] = &lists(&first)[..] else { panic!("{first:?}") };
        assert_eq!(known, &[end]);
        let object = Objects::at(&first, 0).next().unwrap().unwrap();
        let second = with(list(&object).unwrap(), &router);
        assert_eq!(lists(&second), [vec![end, router]]);
    }

    /// An object of another enterprise, and one that is no list, are not ours.
    #[test]
    fn other_private_objects_are_left_alone() {
        let mut other = asking();
        other[7] += 1;
        assert!(!asks(&other));
        assert!(!asks(&object(&[4, 0, 0, 9, 192, 0, 2, 1])));
        let mut class = asking();
        class[2] = 253;
        assert!(!asks(&class));
    }
}
