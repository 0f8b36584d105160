//! Bodies of the fuzz targets: properties that hold for all octets.

use core::net::{IpAddr, Ipv6Addr};

use signalbox_wire::Writer;

use crate::wire::{Flags, List, MAX_OCTETS, Message, PADDING_HEADER_OCTETS, Record};

/// Reads `octets` as a message. What can be read composes to the same octets, and takes records on the way
/// back until it says that it is full, without growing over its limit, padding not counted.
///
/// # Panics
/// If one of these properties does not hold.
pub fn message(octets: &[u8]) {
    let Ok(message) = Message::parse(octets) else { return };
    let mut buf = Vec::new();
    message.encode(None, &mut Writer::new(&mut buf));
    assert_eq!(buf, octets, "composed again");
    assert_eq!(message.there.iter().count(), usize::from(message.there.count()));
    assert_eq!(message.back.iter().count(), usize::from(message.back.count()));

    let limit = MAX_OCTETS + message.padding.map_or(0, |padding| PADDING_HEADER_OCTETS + padding.len());
    let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let record = Record { address, received_us: 1, held_us: 2, ip_distance: 3 };
    for _ in 0..=MAX_OCTETS / record.octets() {
        let Ok(message) = Message::parse(&buf) else { panic!("our own message is not understood") };
        let mut next = Vec::new();
        message.encode(Some((List::Back, record)), &mut Writer::new(&mut next));
        assert!(next.len() <= buf.len().max(limit), "grew over the limit");
        buf = next;
    }
    let full = Message::parse(&buf).map(|m| m.flags.contains(Flags::BACK_TRUNCATED));
    assert_eq!(full, Ok(true), "a full message says so");
}
