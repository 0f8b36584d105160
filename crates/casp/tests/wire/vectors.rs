//! The vectors of `docs/wire/casp.md`, field by field, and composed again.

use signalbox_casp::wire::route::Routing;
use signalbox_casp::wire::{
    Body, Class, ClientType, ErrorCode, Flags, FlowForm, FlowId, Message, MessageType, Proof, Signaling,
    framed,
};

use crate::support::*;

fn whole(message: &Message<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(&mut octets).unwrap();
    octets
}

/// CASP-4.5-01, CASP-4.5-02, CASP-4.5-03, CASP-4.5-04, CASP-A.5-01, CASP-00-03: 32 octets, type 2, all else zero.
#[test]
fn v1_is_a_scout_request() {
    let octets = hex(V1);
    let cookie = [0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8];
    assert_eq!(octets.len(), 32);
    assert_eq!(Message::parse(&octets), Ok(Message::ScoutRequest(cookie)));
    assert_eq!(whole(&Message::ScoutRequest(cookie)), octets);
}

/// CASP-4.6-01, CASP-4.6-02, CASP-4.6-03, CASP-A.6-01, CASP-00-03: 44 octets, type 3, both cookies.
#[test]
fn v2_is_a_scout_response() {
    let octets = hex(V2);
    let initiator = [0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8];
    let responder = [0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8];
    let response = Message::ScoutResponse { initiator, responder };
    assert_eq!(octets.len(), 44);
    assert_eq!(Message::parse(&octets), Ok(response));
    assert_eq!(whole(&response), octets);
}

/// CASP-4-01, CASP-4.1-03, CASP-4.2-01, CASP-4.2-16, CASP-4.3-01, CASP-4.3-02, CASP-4.4-01, CASP-4.4-02, CASP-A.1-01,
/// CASP-A.1-02, CASP-A.2-01, CASP-A.3-02, CASP-4.3-05: each field of V3.
#[test]
fn v3_is_the_first_message_of_a_session() {
    let octets = hex(V3);
    assert_eq!((octets.len(), octets[..4].to_vec()), (76, vec![0, 0, 0, 0x4c]));
    let behind = body(V3);
    let message = signaling(&behind);
    assert_eq!((message.flags, message.ttd, message.hops), (Flags::UNSECURE, 64, 0));
    assert_eq!((message.session, message.flow), (session(), flow()));
    assert_eq!(message.timeout, Some(90));
    assert_eq!(message.proof, Some(Proof::Cookie([0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8])));
    assert_eq!(message.body, Body::Client { client: ClientType::QOS, data: b"hello" });
    let mut again = Vec::new();
    framed(&mut again, |octets| message.encode(octets)).unwrap();
    assert_eq!(again, octets);
    let object = message.objects.iter().next().unwrap();
    assert_eq!(
        (object.offset, object.class, object.c_type, object.contents.len()),
        (20, Class::FLOW_ID, 1, 16)
    );
}

/// What the next node sends on.
#[test]
fn v4_follows_from_v3() {
    let received = body(V3);
    let message = signaling(&received);
    let sent = Signaling { ttd: message.ttd - 1, hops: message.hops + 1, proof: None, ..message };
    assert_eq!(composed(&sent), body(V4));
}

/// CASP-A.4-01, CASP-A.4-02, CASP-4.3-05: an error, and both codes.
#[test]
fn v5_is_a_cookie_error() {
    let octets = hex(V5);
    let message = signaling(&octets);
    assert_eq!(message.flags, Flags::REVERSE.with(Flags::UNSECURE));
    assert_eq!(message.body, Body::Error(ErrorCode::COOKIE_ERROR));
    assert_eq!(composed(&message), octets);
    let unknown = composed(&Signaling { body: Body::Error(ErrorCode::UNKNOWN), ..message });
    assert_eq!(unknown[40..], hex("00080401 00000000"));
}

/// CASP-4.4-10: a message may have no CASP_TIMEOUT.
#[test]
fn v6_is_a_tear_down() {
    let octets = hex(V6);
    let message = signaling(&octets);
    assert_eq!(message.flags, Flags::TEAR_DOWN.with(Flags::UNSECURE));
    assert_eq!((message.timeout, message.body), (None, Body::Empty));
    assert_eq!(composed(&message), octets);
}

/// CASP-A.1-04: a refresh with D, and the IPv6 form.
#[test]
fn v7_is_a_refresh_of_an_ipv6_flow() {
    let octets = body(V7);
    let message = signaling(&octets);
    assert_eq!(message.flags, Flags::DISCOVER);
    let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8:1::7".parse().unwrap());
    assert_eq!(message.flow, FlowId::V6Label { src, dst, label: 0x12345 });
    assert_eq!(composed(&message), octets);
}

/// CASP-A.1-03: the form with an SPI.
#[test]
fn v8_is_a_flow_of_ipsec() {
    let octets = with_objects(&[V8]);
    let message = signaling(&octets);
    let (src, dst) = ("192.0.2.1".parse().unwrap(), "198.51.100.7".parse().unwrap());
    assert_eq!(message.flow, FlowId::V4Spi { src, dst, spi: 0xc0de, protocol: 50 });
    assert_eq!(composed(&message)[20..], hex(V8));
}

/// CASP-G-33: a message without state, the same from the next node, and the answer. A node that removes or appends an entry changes
/// nothing else.
#[test]
fn v9_to_v11_are_delivered_without_state() {
    let [first, second, answer] = [V9, V10, V11].map(body);
    let record = signaling(&first);
    let entry = hex("0406c353 c0000201");
    assert_eq!((record.flags, record.ttd, record.timeout), (Flags::UNSECURE, 64, None));
    assert_eq!(record.body, Body::Client { client: ClientType::QOS, data: b"hello" });
    assert_eq!((record.route, record.kept().count()), (Some(Routing::Record(&entry)), 0));
    assert_eq!(composed(&record), first);
    let both = hex("0406c353 c0000201 0406c353 c00002fe");
    let route = Some(Routing::Record(&both));
    assert_eq!(composed(&Signaling { ttd: 63, hops: 1, route, ..record }), second);
    let two = signaling(&answer);
    assert_eq!((two.flags, two.route), (Flags::REVERSE.with(Flags::UNSECURE), Some(Routing::Route(&both))));
    assert_eq!(composed(&two), answer);
    // A second record, and one of another C-Type, are objects of an unknown class.
    let octets = [&first[..], &hex("0004f101 0004f002")].concat();
    let message = signaling(&octets);
    assert!(message.has_second_route() && !record.has_second_route());
    assert_eq!((message.route, message.kept().count()), (Some(Routing::Record(&entry)), 2));
    assert_eq!(composed(&message), octets);
}

/// CASP-8-01, CASP-4.2-15, CASP-4.2-02, CASP-A.3-01: the numbers of the draft and of this suite.
#[test]
fn code_points_are_those_of_the_specification() {
    let types = [MessageType::SIGNALING, MessageType::SCOUT_REQUEST, MessageType::SCOUT_RESPONSE];
    assert_eq!(types.map(|one| one.0), [1, 2, 3]);
    let classes = [
        Class::FLOW_ID,
        Class::CASP_TIMEOUT,
        Class::CLIENT_DATA,
        Class::ERROR,
        Class::SCOUT_COOKIE_I,
        Class::SCOUT_COOKIE_R,
        Class::RECORD_ROUTE,
        Class::ROUTE,
    ];
    assert_eq!(classes.map(|one| one.0), [1, 2, 3, 4, 5, 6, 240, 241]);
    assert_eq!([ClientType::QOS, ClientType::NATFW, ClientType::PING].map(|one| one.0), [1, 2, 254]);
    let forms = [FlowForm::IPV4_PORTS, FlowForm::IPV4_SPI, FlowForm::IPV6_LABEL];
    assert_eq!(forms.map(|one| one.0), [1, 2, 3]);
    assert_eq!([FlowForm::IPV6_PORTS, FlowForm::IPV6_SPI].map(|one| one.0), [129, 130]);
    let flags = [Flags::REVERSE, Flags::TEAR_DOWN, Flags::DISCOVER, Flags::UNSECURE];
    assert_eq!(flags.map(Flags::octet), [0x80, 0x40, 0x20, 0x10]);
    assert_eq!([ErrorCode::UNKNOWN, ErrorCode::COOKIE_ERROR].map(|one| one.0), [0, 1]);
    assert!(!ErrorCode::COOKIE_ERROR.is_private() && ErrorCode::NO_NEXT_PEER.is_private());
}

/// CASP-4.2-02: each flag alone.
#[test]
fn each_flag_stands_at_its_bit() {
    for (bit, flag) in
        [(0x80, Flags::REVERSE), (0x40, Flags::TEAR_DOWN), (0x20, Flags::DISCOVER), (0x10, Flags::UNSECURE)]
    {
        let mut octets = hex(V6);
        octets[0] = bit;
        let message = signaling(&octets);
        assert_eq!(message.flags, flag);
        assert_eq!(composed(&message)[0], bit);
    }
}

/// CASP-G-32: the private forms of IPv6 flows.
#[test]
fn ipv6_flows_with_ports_and_with_spi_have_44_octets() {
    let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8:1::7".parse().unwrap());
    let ports = FlowId::V6Ports { src, dst, src_port: 5004, dst_port: 5006, protocol: 17 };
    let spi = FlowId::V6Spi { src, dst, spi: 0xc0de, protocol: 50 };
    let addresses = "20010db8 00000000 00000000 00000001 20010db8 00010000 00000000 00000007";
    for (flow, form, rest) in [(ports, "81", "138c138e 11000000"), (spi, "82", "0000c0de 32000000")] {
        let octets = composed(&Signaling::new(session(), flow));
        assert_eq!(octets[20..], hex(&format!("002c01{form} {addresses} {rest}")));
        assert_eq!(signaling(&octets).flow, flow);
        assert!(flow.is_private());
    }
}
