//! Composed by hand from the drawing in `docs/wire/ping.md`, which shows the same octets.

use core::net::IpAddr;

use signalbox_ping::wire::{Flags, Kind, List, MAX_OCTETS, MAX_PADDING, Message, Record};
use signalbox_wire::{Writer, parse_hex};

/// Vector 1: a request as the initiator sends it.
pub(crate) const REQUEST: &str = "11000000 00000007 0123456789abcdef 000644c1b7b3e240";

/// Vector 2: the same after one IPv4 node, behind 3 routers, that held it for 25 µs.
pub(crate) const ONE_HOP: &str = "11000100 00000007 0123456789abcdef 000644c1b7b3e240
    403644c1b7b3e628 00000019 0a000102";

/// Vector 3: a reply that was turned round before the end, with an IPv6 record there and back.
pub(crate) const REPLY: &str = "12400101 00000007 0123456789abcdef 000644c1b7b3e240
    601644c1b7b3e628 00000000 20010db8000100000000000000000002
    602644c1b7b3ea10 ffffffff 20010db8000000000000000000000001";

/// Vector 4: vector 2 with eight octets of padding.
pub(crate) const PADDED: &str = "11100100 00000007 0123456789abcdef 000644c1b7b3e240
    403644c1b7b3e628 00000019 0a000102
    00000008 fedcba98 76543210";

const SENT: u64 = 0x0006_44c1_b7b3_e240;

fn octets(text: &str) -> Vec<u8> {
    parse_hex(text).unwrap()
}

fn record(address: &str, received_us: u64, held_us: u32, ip_distance: u8) -> Record {
    Record { address: address.parse().unwrap(), received_us, held_us, ip_distance }
}

fn compose(message: &Message<'_>, add: Option<(List, Record)>) -> Vec<u8> {
    let mut buf = Vec::new();
    message.encode(add, &mut Writer::new(&mut buf));
    buf
}

#[test]
fn a_request_is_24_octets() {
    let message = Message::request(7, 0x0123_4567_89ab_cdef, SENT);
    assert_eq!(compose(&message, None), octets(REQUEST));
    assert_eq!(Message::parse(&octets(REQUEST)), Ok(message));
}

#[test]
fn a_router_appends_its_record() {
    let octets_in = octets(REQUEST);
    let request = Message::parse(&octets_in).unwrap();
    let hop = record("10.0.1.2", SENT + 1000, 25, 3);
    let out = compose(&request, Some((List::There, hop)));
    assert_eq!(out, octets(ONE_HOP));
    let message = Message::parse(&out).unwrap();
    assert_eq!(message.there.iter().collect::<Vec<_>>(), [hop]);
    assert_eq!(message.back.count(), 0);
    assert_eq!(hop.sent_us(), SENT + 1025);
}

#[test]
fn a_reply_has_both_lists() {
    let octets = octets(REPLY);
    let reply = Message::parse(&octets).unwrap();
    assert_eq!(reply.kind, Kind::REPLY);
    assert_eq!(reply.flags, Flags::NO_NEXT_NODE);
    assert_eq!(reply.there.iter().collect::<Vec<_>>(), [record("2001:db8:1::2", SENT + 1000, 0, 1)]);
    assert_eq!(reply.back.iter().collect::<Vec<_>>(), [record("2001:db8::1", SENT + 2000, u32::MAX, 2)]);
    assert_eq!(compose(&reply, None), octets);
}

#[test]
fn records_of_the_way_there_go_before_those_of_the_way_back() {
    let octets_in = octets(REPLY);
    let reply = Message::parse(&octets_in).unwrap();
    let hop = record("192.0.2.1", 5, 6, 7);
    let out = compose(&reply, Some((List::There, hop)));
    let message = Message::parse(&out).unwrap();
    assert_eq!(message.there.iter().last(), Some(hop));
    assert_eq!(message.back, reply.back);
}

#[test]
fn padding_stays_behind_the_records() {
    let octets_in = octets(PADDED);
    let padded = Message::parse(&octets_in).unwrap();
    assert_eq!(padded.padding, Some(&octets("fedcba9876543210")[..]));
    assert_eq!(compose(&padded, None), octets_in);
    let out = compose(&padded, Some((List::Back, record("192.0.2.1", 5, 6, 7))));
    let message = Message::parse(&out).unwrap();
    assert_eq!((message.there.count(), message.back.count()), (1, 1));
    assert_eq!(message.padding, padded.padding);
}

/// With all the padding there may be, and all records, a message fills GIST's largest object exactly.
#[test]
fn the_largest_message_fits_into_4095_words() {
    let padding = vec![7; MAX_PADDING];
    let request = Message { padding: Some(&padding), ..Message::request(7, 8, 9) };
    let mut buf = compose(&request, None);
    let hop = record("192.0.2.1", 1, 2, 3);
    while !Message::parse(&buf).unwrap().flags.contains(Flags::THERE_TRUNCATED) {
        buf = compose(&Message::parse(&buf).unwrap(), Some((List::There, hop)));
    }
    assert_eq!(Message::parse(&buf).unwrap().there.count(), 22);
    assert_eq!(buf.len(), 4095 * 4);
    assert_eq!(Message::parse(&buf).unwrap().padding, Some(&padding[..]));
}

/// What `docs/wire/ping.md` promises of the 512 octets.
#[test]
fn room_for_22_ipv4_or_12_ipv6_records() {
    for (address, room) in [("192.0.2.1", 22), ("2001:db8::1", 12)] {
        let hop = record(address, 1, 2, 3);
        let mut buf = octets(REQUEST);
        for list in [List::There, List::Back] {
            let end = if list == List::There { room / 2 } else { room };
            while Message::parse(&buf).map(|m| m.there.count() + m.back.count()).unwrap() < end {
                buf = compose(&Message::parse(&buf).unwrap(), Some((list, hop)));
            }
        }
        assert_eq!(Message::parse(&buf).unwrap().flags, Flags::default());
        for (list, flag) in [(List::There, Flags::THERE_TRUNCATED), (List::Back, Flags::BACK_TRUNCATED)] {
            let full = compose(&Message::parse(&buf).unwrap(), Some((list, hop)));
            let message = Message::parse(&full).unwrap();
            assert_eq!(message.flags, flag);
            assert_eq!(message.there.count() + message.back.count(), room);
            assert!(full.len() <= MAX_OCTETS);
        }
    }
}

#[test]
fn unknown_flags_and_kinds_are_carried_along() {
    let mut octets = octets(ONE_HOP);
    octets[0] = 0x1f;
    octets[1] = 0x0c;
    let message = Message::parse(&octets).unwrap();
    assert_eq!(message.kind, Kind(15));
    assert_eq!(compose(&message, None), octets);
}

#[test]
fn times_beyond_2112_are_clamped() {
    let request = Message::request(0, 0, 0);
    let out = compose(&request, Some((List::There, record("::1", u64::MAX, 0, 255))));
    let message = Message::parse(&out).unwrap();
    let hop = message.there.iter().next().unwrap();
    assert_eq!((hop.received_us, hop.ip_distance), ((1 << 52) - 1, 255));
    assert_eq!(hop.address, "::1".parse::<IpAddr>().unwrap());
}
