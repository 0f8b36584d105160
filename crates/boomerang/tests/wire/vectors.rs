//! The vectors, composed and read.

use signalbox_boomerang::wire::{
    Aggregation, Body, Classifier, DecodeError, Flags, FlowSpec, Format, Known, Message, Options, Pass, Qos,
    Rates, UserId, checksum_is_valid, edit,
};

use crate::support::*;

fn flow() -> FlowSpec {
    FlowSpec::exact(Classifier {
        src: "192.0.2.1".parse().unwrap(),
        dst: "198.51.100.2".parse().unwrap(),
        src_port: 5004,
        dst_port: 5004,
        protocol: 17,
        tos: 0xb8,
        flags: 0,
    })
}

fn request() -> Message<'static> {
    Message {
        pass: Pass::Request,
        identifier: 0x1234,
        sequence: 1,
        transaction: 1,
        format: Format(0x12),
        flags: Flags(0),
        refresh: 30,
        padding: 0,
        key: 1,
        body: Some(Body {
            flow: flow(),
            qos: Qos::BitRate(Rates { forward: 64_000, reverse: 64_000 }),
            options: Options::none(),
        }),
    }
}

/// BOOM-3-01, BOOM-3-02, BOOM-3.1-01, BOOM-3.1-05, BOOM-3.2-01, BOOM-3.2.1-01, BOOM-3.2.1-07, BOOM-3.2.2-01,
/// BOOM-3.2.2-02, BOOM-3.2.3-02, BOOM-G1-01, BOOM-G2-01, BOOM-F4.1.4-01, BOOM-F4.1.3-01: each field of the request stands
/// where the draft has it. BOOM-3.2.2-06: the tos octet is that of EF.
#[test]
fn a_request_is_the_vector() {
    assert_eq!(composed(&request(), &there()), hex(REQUEST));
    let octets = hex(REQUEST);
    let read = parse(&octets);
    assert_eq!(Message { body: None, ..read }, Message { body: None, ..request() });
    let body = read.body.unwrap();
    assert_eq!((body.flow, body.qos), (flow(), request().body.unwrap().qos));
    assert!(checksum_is_valid(&there(), &octets) && !read.is_refused());
    let rates = Rates { forward: 1, reverse: 2 };
    let other = Message { body: Some(Body { qos: Qos::BitRate(rates), ..body }), ..request() };
    let octets = composed(&other, &there());
    assert_eq!(octets[64..], [0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(parse(&octets).body.unwrap().qos.rates(), Some(rates));
}

/// BOOM-F4.1.4-01: the reply differs in type and checksum only.
#[test]
fn a_far_end_changes_the_type_only() {
    let mut octets = hex(REQUEST);
    edit::turn_round(&mut octets, false);
    edit::set_checksum(&mut octets, &back());
    assert_eq!(octets[..4], [0, 0, 0x17, 0x8a]);
    assert_eq!(octets[4..], hex(REQUEST)[4..]);
    assert_eq!(parse(&octets).pass, Pass::Reply);
}

/// BOOM-3.1-10, BOOM-3.2.1-12, BOOM-G9-01: a refusal sets NACK and KEY 0, and lowers the rate of its direction and the
/// interval. BOOM-G3-01: with the checksum of the changed message.
#[test]
fn a_refusal_is_the_vector() {
    let mut octets = hex(REQUEST);
    let read = parse(&octets);
    let (flags, family) = (read.flags, read.format.family());
    edit::refuse(&mut octets, flags);
    edit::set_refresh(&mut octets, 20);
    edit::set_rate(&mut octets, family, None, Pass::Request, 48_000);
    edit::turn_round(&mut octets, false);
    edit::set_checksum(&mut octets, &back());
    assert_eq!(octets, hex(REFUSED));
    let read = parse(&octets);
    assert_eq!(read.body.unwrap().qos.rates(), Some(Rates { forward: 48_000, reverse: 64_000 }));
    assert!(read.is_refused());
}

/// BOOM-G9-02: either sign counts as refusal.
#[test]
fn one_sign_of_refusal_is_enough() {
    for (at, value) in [(19, 0), (31, 1)] {
        let mut octets = hex(REFUSED);
        octets[at] = value;
        assert!(parse(&octets).is_refused(), "{at}");
    }
}

/// BOOM-3.2.1-11: KEY is a number of 64 bits.
#[test]
fn a_locked_reply_is_the_vector() {
    let mut octets = hex(REQUEST);
    edit::turn_round(&mut octets, false);
    edit::set_key(&mut octets, (1 << 30) + 3);
    edit::set_checksum(&mut octets, &back());
    assert_eq!(octets, hex(LOCKED));
    assert_eq!(parse(&octets).key, 0x4000_0003);
}

/// BOOM-G12-01: a release has both rates 0 and is no refusal.
#[test]
fn a_release_is_the_vector() {
    let body = Body { qos: Qos::BitRate(Rates::default()), ..request().body.unwrap() };
    let tear = Message { transaction: 2, body: Some(body), ..request() };
    assert_eq!(composed(&tear, &there()), hex(TEAR));
    assert!(!parse(&hex(TEAR)).is_refused());
}

/// BOOM-3.2.2-03, BOOM-G29-01, BOOM-G29-02: ICMPv6 with the pseudo-header, classifier of 40 octets, QoS at 104.
#[test]
fn an_ipv6_request_has_its_own_layout() {
    let ends = ends("2001:db8::1", "2001:db8:1::2");
    let flow = FlowSpec::exact(Classifier { src: ends.src, dst: ends.dst, ..flow().classifier });
    let body = Body { flow, ..request().body.unwrap() };
    let octets = composed(&Message { format: Format(0x1a), body: Some(body), ..request() }, &ends);
    let mut expected = hex(REQUEST_6);
    edit::set_checksum(&mut expected, &ends);
    assert_eq!((octets.len(), &octets), (8 + 112, &expected));
    assert_eq!(octets[8 + 104..8 + 108], [0, 0, 0xfa, 0]);
    let read = Message::parse(&octets, true).unwrap();
    assert_eq!(read.body.unwrap().flow, flow);
    assert!(checksum_is_valid(&ends, &octets) && !checksum_is_valid(&there(), &octets));
    let mut changed = octets.clone();
    edit::set_rate(&mut changed, read.format.family(), None, Pass::Reply, 7);
    assert_eq!(changed[8 + 108..], [0, 0, 0, 7]);
}

/// BOOM-G39-01, BOOM-3-03, BOOM-4-01, BOOM-3.3.1-01, BOOM-G29-03: sizes of messages and options, all whole words.
#[test]
fn sizes_are_those_of_the_table() {
    let with = |options: &[Known]| {
        let mut octets = composed(&request(), &there());
        options.iter().for_each(|option| edit::append(&mut octets, option));
        octets
    };
    let alice = Known::UserId(UserId { user: *b"alice\0\0\0", credential: [7; 8] });
    let aggregation = Known::Aggregation(Aggregation {
        address: "203.0.113.9".parse().unwrap(),
        transaction: 7,
        flow: flow(),
        rate: 192_000,
    });
    assert_eq!(with(&[]).len(), 8 + 64);
    assert_eq!(with(&[aggregation]).len(), 8 + 112);
    // With IPv6 the body has 104 octets behind the header of the option.
    let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let v6 = FlowSpec::exact(Classifier { src, dst, ..flow().classifier });
    let aggregation = Aggregation { address: src, transaction: 7, flow: v6, rate: 192_000 };
    assert_eq!(with(&[Known::Aggregation(aggregation)]).len(), 8 + 64 + 4 + 104);
    let octets = with(&[alice]);
    assert_eq!((octets.len(), &octets[72..76]), (8 + 84, &[0, 1, 0, 0][..]));
    assert_eq!((&octets[76..84], &octets[84..]), (&b"alice\0\0\0"[..], &[7; 8][..]));
    assert_eq!(parse(&octets).body.unwrap().options.user().unwrap().name(), Some("alice"));
    let pairs = [[0; 8]; 5];
    let list =
        Message { body: Some(Body { qos: Qos::list(&pairs), ..request().body.unwrap() }), ..request() };
    assert_eq!(composed(&list, &there()).len(), 8 + 60 + 8 * 5);
    let mut odd = octets;
    odd.push(0);
    assert_eq!(error(&odd), DecodeError::Unaligned { octets: 93 });
}
