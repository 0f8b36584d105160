//! The objects of diagnostics (RFC 2745 §3), octet by octet, parsed and composed.

use std::net::IpAddr;

use signalbox_rsvp::wire::{
    Class, DiagErrors, DiagResponse, Diagnostic, Fault, Filter, Message, MessageType, ObjectType, Selector,
    Session, SessionKind,
};

use super::support::{
    CONTROLLED, FF, FILTER, HOP, INTEGRITY, SESSION, TEMPLATE, TIME, TSPEC, accepts, fault, hex, message,
    unsummed, written,
};

const DIAGNOSTIC: &str = "002c1e01 0a020000 deadbeef 05dc0000 0a000102 000c0b01 0a000001 00000fa0 \
                          000c0a01 0a000109 0000c350";
const SELECT: &str = "000c2101 09000c02 08010000";
const ROUTE: &str = "00101f01 00000002 0a000301 0a000201";
const BARE: &str = "00182001 00018000 00000000 00000000 00000000 00100000";
const V6: &str = "20010db8 00000000 00000000 000000aa";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A DIAG_RESPONSE with these objects.
fn response(objects: &[&str]) -> String {
    let inside = objects.concat();
    let octets = 24 + hex(&inside).len();
    format!("{octets:04x}2001 00018000 0a000101 0a000202 0a000001 03a3001e {inside}")
}

fn asked() -> Diagnostic {
    Diagnostic {
        max_hops: 10,
        hops: 2,
        more: false,
        request_id: 0xdead_beef,
        path_mtu: 1500,
        offset: 0,
        last_hop: ip("10.0.1.2"),
        sender: Filter { src: ip("10.0.0.1"), selector: Selector::Port(4000) },
        requester: "10.0.1.9:50000".parse().unwrap(),
    }
}

fn found(objects: &[u8]) -> DiagResponse<'_> {
    DiagResponse {
        arrival: 0x0001_8000,
        incoming: ip("10.0.1.1"),
        outgoing: ip("10.0.2.2"),
        previous: ip("10.0.0.1"),
        d_ttl: 3,
        merged: true,
        errors: DiagErrors::TOO_BIG,
        cleanup: 3,
        refresh: 30,
        objects,
    }
}

/// Proves RSVPX-2745-3-02: 44 octets of IPv4, 80 of IPv6, each field at its place.
#[test]
fn diagnostic() {
    let octets = message(8, &[SESSION, HOP, DIAGNOSTIC]);
    assert_eq!(Message::parse(&octets).unwrap().diagnostic(), Some(asked()));
    let ours = written(MessageType::DREQ, |w| _ = w.diagnostic(&asked()));
    assert_eq!(ours[8..], hex(DIAGNOSTIC));
    assert_eq!(ours.len(), 8 + 44);

    let part = Diagnostic { more: true, offset: 0x0102, max_hops: 0, ..asked() };
    let octets =
        "002c1e01 00020001 deadbeef 05dc0102 0a000102 000c0b01 0a000001 00000fa0 000c0a01 0a000109 0000c350";
    let read = message(9, &[SESSION, HOP, octets]);
    assert_eq!(Message::parse(&read).unwrap().diagnostic(), Some(part));
    assert_eq!(written(MessageType::DREP, |w| _ = w.diagnostic(&part))[8..], hex(octets));
    // The bits before MF are reserved.
    let reserved = octets.replacen("00020001", "0002fffe", 1);
    let read = message(9, &[SESSION, HOP, &reserved]);
    assert!(!Message::parse(&read).unwrap().diagnostic().unwrap().more);

    let six =
        format!("00501e02 0a020000 deadbeef 05dc0000 {V6} 00180b02 {V6} 00000fa0 00180a02 {V6} 0000c350");
    let asked = Diagnostic {
        last_hop: ip("2001:db8::aa"),
        sender: Filter { src: ip("2001:db8::aa"), selector: Selector::Port(4000) },
        requester: "[2001:db8::aa]:50000".parse().unwrap(),
        ..asked()
    };
    let (session, hop) = (format!("00180102 {V6} 11001388"), format!("00180302 {V6} 00000001"));
    let octets = message(8, &[&session, &hop, &six]);
    assert_eq!(Message::parse(&octets).unwrap().diagnostic(), Some(asked));
    let ours = written(MessageType::DREQ, |w| _ = w.diagnostic(&asked));
    assert_eq!((&ours[8..], ours.len()), (&hex(&six)[..], 8 + 80));
}

/// Invalid DIAGNOSTICs: addresses that no node has, other objects inside, mixed families.
#[test]
fn diagnostics_that_cannot_be() {
    let wrong = |from: &str, to: &str| fault(8, &[SESSION, HOP, &DIAGNOSTIC.replacen(from, to, 1)]);
    assert_eq!(wrong("0a000102", "e0000001"), Fault::Value, "the LAST-HOP is a group");
    assert_eq!(wrong("0a000109", "ffffffff"), Fault::Value, "so would be the replies' way");
    assert_eq!(wrong("0a000001 00000fa0", "00000000 00000fa0"), Fault::Value);
    assert_eq!(wrong("000c0b01", "000c0a01"), Fault::Value);
    assert_eq!(wrong("000c0a01", "000c0a04"), Fault::MixedTypes, "a requester has a port, no SPI");
    assert_eq!(wrong("000c0b01", "000c0b04"), Fault::MixedTypes, "the session has ports");
    assert_eq!(wrong("000c0b01", "00080b01"), Fault::ObjectLength);
    assert_eq!(fault(8, &[SESSION, HOP, "00101e01 00000000 00000001 05dc0000"]), Fault::ObjectLength);
    assert_eq!(
        fault(8, &[SESSION, HOP, &format!("00301e01{} 00000000", &DIAGNOSTIC[8..])]),
        Fault::ObjectLength
    );
    let six = format!("000c1e02 0a020000 deadbeef {V6}");
    assert_eq!(fault(8, &[SESSION, HOP, &six]), Fault::ObjectLength);
    assert_eq!(fault(8, &[SESSION, HOP, &DIAGNOSTIC.replacen("1e01", "1e03", 1)]), Fault::UnknownCType);
    assert_eq!(fault(8, &[SESSION, HOP, DIAGNOSTIC, &format!("00181f02 00000001 {V6}")]), Fault::MixedTypes);
    // A session of SPIs has a sender with an SPI.
    let spi = "000c0103 0a00000a 32001388";
    assert!(accepts(8, &[spi, HOP, &DIAGNOSTIC.replacen("000c0b01", "000c0b04", 1)]));
    assert_eq!(fault(8, &[spi, HOP, DIAGNOSTIC]), Fault::MixedTypes);
    assert_eq!(fault(8, &["000c0101 0a00000a 11000000", HOP, DIAGNOSTIC]), Fault::SourcePort);
}

/// Proves RSVPX-2745-3-05: pairs, a C-Type of 0 for any, two zero octets after an odd number.
#[test]
fn diag_select() {
    let kinds = [
        ObjectType::new(Class::FLOWSPEC, 0),
        ObjectType::new(Class::SENDER_TSPEC, 2),
        ObjectType::new(Class::STYLE, 1),
    ];
    let octets = message(8, &[SESSION, HOP, DIAGNOSTIC, SELECT]);
    let select = Message::parse(&octets).unwrap().select().unwrap();
    assert!(select.kinds().eq(kinds));
    assert!(select.selects(ObjectType::new(Class::FLOWSPEC, 2)), "any C-Type");
    assert!(select.selects(ObjectType::new(Class::SENDER_TSPEC, 2)));
    assert!(!select.selects(ObjectType::new(Class::SENDER_TSPEC, 1)), "that C-Type alone");
    assert!(!select.selects(ObjectType::new(Class::NULL, 0)), "padding asks for nothing");
    assert_eq!(written(MessageType::DREQ, |w| _ = w.diag_select(kinds.into_iter()))[8..], hex(SELECT));
    let even = "000c2101 09000c02 08010d00";
    let octets = message(8, &[SESSION, HOP, DIAGNOSTIC, even]);
    let select = Message::parse(&octets).unwrap().select().unwrap();
    assert_eq!(select.kinds().count(), 4);
    assert_eq!(written(MessageType::DREQ, |w| _ = w.diag_select(select.kinds()))[8..], hex(even));
    assert_eq!(fault(8, &[SESSION, HOP, DIAGNOSTIC, "00082102 09000c02"]), Fault::UnknownCType);
}

/// Proves RSVPX-2745-3-06 for the format: three reserved octets, the R-pointer, addresses.
#[test]
fn route() {
    let octets = message(8, &[SESSION, HOP, DIAGNOSTIC, ROUTE]);
    let route = Message::parse(&octets).unwrap().route().unwrap();
    let nodes = [ip("10.0.3.1"), ip("10.0.2.1")];
    assert_eq!((route.pointer, route.len(), route.is_empty()), (2, 2, false));
    assert!(route.nodes().eq(nodes));
    assert_eq!(written(MessageType::DREQ, |w| _ = w.route(false, 2, nodes.into_iter()))[8..], hex(ROUTE));
    let none = written(MessageType::DREQ, |w| _ = w.route(false, 0, std::iter::empty()));
    assert_eq!(none[8..], hex("00081f01 00000000"), "an empty one");
    let six = format!("00181f02 00000001 {V6}");
    let octets = written(MessageType::DREQ, |w| _ = w.route(true, 1, [ip("2001:db8::aa")].into_iter()));
    assert_eq!(octets[8..], hex(&six));
    assert_eq!(fault(8, &[SESSION, HOP, DIAGNOSTIC, "00041f01"]), Fault::ObjectLength);
    let session = format!("00180102 {V6} 11001388");
    let hop = format!("00180302 {V6} 00000001");
    let asked =
        format!("00501e02 0a020000 deadbeef 05dc0000 {V6} 00180b02 {V6} 00000fa0 00180a02 {V6} 0000c350");
    let odd = "000c1f02 00000001 0a000001";
    assert_eq!(fault(8, &[&session, &hop, &asked, odd]), Fault::ObjectLength);
}

/// Proves RSVPX-2745-3-07 and RSVPX-2745-3-08: each field at its place, error bits alone and together.
#[test]
fn diag_response() {
    let octets = response(&[TSPEC, FF, CONTROLLED, FILTER]);
    let read = message(9, &[SESSION, HOP, DIAGNOSTIC, &octets, BARE]);
    let read = Message::parse(&read).unwrap();
    let objects = hex(&[TSPEC, FF, CONTROLLED, FILTER].concat());
    let responses: Vec<_> = read.responses().collect();
    assert_eq!(responses[0], found(&objects));
    let classes: Vec<_> = responses[0].objects().map(|object| object.kind.class).collect();
    assert_eq!(classes, [Class::SENDER_TSPEC, Class::STYLE, Class::FLOWSPEC, Class::FILTER_SPEC]);
    assert_eq!(written(MessageType::DREP, |w| _ = w.diag_response(&found(&objects)))[8..], hex(&octets));
    let zero = ip("0.0.0.0");
    assert_eq!((responses[1].incoming, responses[1].outgoing, responses[1].previous), (zero, zero, zero));
    assert_eq!((responses[1].errors, responses[1].merged), (DiagErrors::NO_PATH, false));

    for (flags, errors) in [(0x00, 0), (0x10, 1), (0x20, 2), (0x40, 4), (0x30, 3), (0x60, 6), (0x70, 7)] {
        let octets = BARE.replace("00100000", &format!("00{flags:02x}0000"));
        let read = message(9, &[SESSION, HOP, DIAGNOSTIC, &octets]);
        let read = Message::parse(&read).unwrap().responses().next().unwrap();
        assert_eq!((read.errors, read.merged, read.cleanup), (DiagErrors(errors), false, 0), "{flags:#x}");
        assert_eq!(written(MessageType::DREP, |w| _ = w.diag_response(&read))[8..], hex(&octets));
    }
    let six = format!("003c2002 00018000 {V6} {V6} {V6} 03a3001e");
    let ours = DiagResponse {
        incoming: ip("2001:db8::aa"),
        outgoing: ip("2001:db8::aa"),
        previous: ip("2001:db8::aa"),
        ..found(&[])
    };
    assert_eq!(written(MessageType::DREP, |w| _ = w.diag_response(&ours))[8..], hex(&six));
    assert_eq!((DiagResponse::octets(false), DiagResponse::octets(true)), (24, 60));

    let wrong = |object: &str| fault(9, &[SESSION, HOP, DIAGNOSTIC, object]);
    assert_eq!(wrong("00142001 00018000 0a000101 0a000202 0a000001"), Fault::ObjectLength);
    assert_eq!(wrong(&response(&["00100c02 00000000"])), Fault::ObjectLength, "beyond the object around it");
}

/// Proves RSVPX-2745-3-01: the objects in their one order, in messages of types 8 and 9.
#[test]
fn one_order() {
    let response = response(&[TSPEC]);
    let all = [SESSION, HOP, DIAGNOSTIC, SELECT, ROUTE, &response, BARE];
    for (kind, named) in [(8, MessageType::DREQ), (9, MessageType::DREP)] {
        let octets = message(kind, &all);
        let read = Message::parse(&octets).unwrap();
        assert_eq!((read.kind, read.responses().count()), (named, 2));
        assert_eq!(read.session.unwrap().dest, ip("10.0.0.10"));
        let ours = written(named, |w| {
            let session =
                Session { dest: ip("10.0.0.10"), protocol: 17, kind: SessionKind::Ports, port: 5000 };
            w.session(&session, false).hop(&read.hop.unwrap()).diagnostic(&asked());
            w.diag_select(read.select().unwrap().kinds());
            w.route(false, 2, read.route().unwrap().nodes());
            read.responses().for_each(|one| _ = w.diag_response(&one));
        });
        assert_eq!(unsummed(ours), octets);
        let mut again = Vec::new();
        read.compose(&mut again).unwrap();
        assert_eq!(unsummed(again), octets);
        for at in 1..6 {
            let mut swapped = all;
            swapped.swap(at - 1, at);
            assert_eq!(fault(kind, &swapped), Fault::Order, "{at}");
        }
        // The grammar decides what is optional; only DIAG_RESPONSE may be repeated.
        assert!(accepts(kind, &[SESSION, HOP, DIAGNOSTIC]));
        assert!(accepts(kind, &[INTEGRITY, SESSION, HOP, DIAGNOSTIC, "00040000", ROUTE]));
        for at in 0..3 {
            let mut fewer = all.to_vec();
            fewer.remove(at);
            assert_eq!(fault(kind, &fewer), Fault::Missing);
        }
        for at in 0..5 {
            let mut more = all.to_vec();
            more.insert(at, all[at]);
            assert_eq!(fault(kind, &more), Fault::Duplicate);
        }
        for strange in [TIME, TEMPLATE, TSPEC, FF] {
            assert_eq!(fault(kind, &[&all[..], &[strange]].concat()), Fault::NotAllowed);
        }
    }
    for object in [DIAGNOSTIC, SELECT, ROUTE, BARE] {
        assert_eq!(fault(5, &[SESSION, HOP, TEMPLATE, object]), Fault::NotAllowed);
    }
}
