//! Bodies of the fuzz targets: properties that hold for all octets.

use core::net::{IpAddr, Ipv6Addr};

use signalbox_wire::Writer;

use crate::wire::nsis::{self, Stamp};
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

/// Reads `octets` as a message of the NSIS Ping tool. What can be read composes to the same octets, padding excepted, and
/// takes records until it is full, without growing over its limit.
///
/// # Panics
/// If one of these properties does not hold.
pub fn nsis_message(octets: &[u8]) {
    let Ok(message) = nsis::Message::parse(octets) else { return };
    let mut buf = Vec::new();
    message.encode(None, &mut Writer::new(&mut buf));
    assert!(buf.len().is_multiple_of(4) && buf.len() - message.octets() < 4, "whole words");
    assert_eq!(buf.get(..message.octets()), octets.get(..message.octets()), "composed again");
    assert_eq!(message.records().count(), message.count());

    let stamp = Stamp { address: IpAddr::V6(Ipv6Addr::LOCALHOST), time_us: 1 };
    for _ in 0..nsis::MAX_OCTETS {
        let Ok(message) = nsis::Message::parse(&buf) else { panic!("our own message is not understood") };
        let records = message.count();
        let grows = message.has_room() && message.objects().any(|object| object.octets > 0);
        let mut next = Vec::new();
        message.encode(Some(stamp), &mut Writer::new(&mut next));
        assert!(next.len() <= nsis::MAX_OCTETS.next_multiple_of(4), "grew over the limit");
        let count = nsis::Message::parse(&next).map(|message| message.count());
        assert_eq!(count, Ok(records + usize::from(grows)));
        buf = next;
    }
}
