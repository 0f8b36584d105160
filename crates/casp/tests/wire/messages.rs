//! Order and number of the objects, and what a node ignores or discards.

use signalbox_casp::wire::{
    Body, Class, ClientType, DecodeError, EncodeError, ErrorCode, Flags, FlowError, FlowId, Message, Proof,
    Signaling,
};

use crate::support::*;

fn permutations(items: &[&'static str]) -> Vec<Vec<&'static str>> {
    if items.len() < 2 {
        return vec![items.to_vec()];
    }
    let mut all = Vec::new();
    for at in 0..items.len() {
        let mut rest = items.to_vec();
        let first = rest.remove(at);
        all.extend(permutations(&rest).into_iter().map(|tail| [vec![first], tail].concat()));
    }
    all
}

/// CASP-4-04: all orders of V3's objects read the same. CASP-4-03, CASP-4.4-01: they are sent in the order of the grammar.
#[test]
fn objects_are_read_in_any_order_and_sent_in_one() {
    let orders = permutations(&[FLOW, TIMEOUT, PROOF, DATA]);
    assert_eq!(orders.len(), 24);
    for order in orders {
        assert_eq!(composed(&signaling(&with_objects(&order))), body(V3), "{order:?}");
    }
}

/// CASP-4.4-01: every combination of the grammar is composed and read again.
#[test]
fn every_combination_of_objects_is_a_message() {
    let bodies =
        [Body::Empty, Body::Error(ErrorCode(7)), Body::Client { client: ClientType(77), data: b"abc" }];
    for timeout in [None, Some(0), Some(u32::MAX)] {
        for proof in [None, Some(Proof::Cookie([9; 8]))] {
            for body in bodies {
                let sent = Signaling { timeout, proof, body, ..Signaling::new(session(), flow()) };
                let octets = composed(&sent);
                let read = signaling(&octets);
                assert_eq!((read.timeout, read.proof, read.body), (timeout, proof, body));
            }
        }
    }
}

/// CASP-4-02: the Common Header comes first.
#[test]
fn a_message_that_begins_with_an_object_is_discarded() {
    let octets = [hex(FLOW), hex(V3)].concat();
    assert!(Message::parse(&octets).is_err());
}

/// CASP-4.2-03: unused flag bits are ignored. CASP-A-01: they are sent as zero.
#[test]
fn unused_bits_of_the_flags_are_ignored() {
    let mut octets = hex(V6);
    octets[0] |= 0x0f;
    assert_eq!(composed(&signaling(&octets)), hex(V6));
}

/// CASP-A-02, CASP-A-01, CASP-G-01: unused bits of flows are ignored, and sent as zero.
#[test]
fn unused_bits_of_flows_are_ignored() {
    let ports = with_objects(&["00140101 c0000201 c6336407 138c138e 11ffffff"]);
    assert_eq!(composed(&signaling(&ports))[20..], hex(FLOW));
    let spi = with_objects(&["00140102 c0000201 c6336407 0000c0de 32ffffff"]);
    assert_eq!(composed(&signaling(&spi))[20..], hex(V8));
    let mut label = body(V7);
    let at = label.len() - 4;
    label[at] = 0xff;
    label[at + 1] |= 0xf0;
    assert_eq!(signaling(&label).flow, signaling(&body(V7)).flow);
}

/// CASP-4.2-15: all other types are discarded.
#[test]
fn other_types_are_discarded() {
    for kind in (0..=255u8).filter(|kind| !(1..=3).contains(kind)) {
        let mut octets = hex(V6);
        octets[3] = kind;
        assert!(matches!(error(&octets), DecodeError::Type(found) if found.0 == kind));
    }
}

/// CASP-4.5-05, CASP-4.6-04: other fields of scout messages are not processed.
#[test]
fn scout_messages_use_only_their_type_and_cookies() {
    for (vector, kind) in [(V1, 2), (V2, 3)] {
        let plain = hex(vector);
        let mut octets = plain.clone();
        octets[..20].fill(0xff);
        octets[3] = kind;
        assert_eq!(Message::parse(&octets), Message::parse(&plain));
    }
}

/// CASP-G-03: a scout message without its cookies is discarded; other objects in it are ignored.
#[test]
fn scout_messages_need_their_cookies() {
    let mut request = hex(V1);
    request.truncate(20);
    assert_eq!(error(&request), DecodeError::Missing(Class::SCOUT_COOKIE_I));
    let mut response = hex(V2);
    response.truncate(32);
    assert_eq!(error(&response), DecodeError::Missing(Class::SCOUT_COOKIE_R));
    let more = [hex(V1), hex(FLOW), hex(DATA), hex("00056301 01000000")].concat();
    assert_eq!(Message::parse(&more), Message::parse(&hex(V1)));
}

/// CASP-4.4-13: no FLOW_ID.
#[test]
fn a_signaling_message_without_flow_is_discarded() {
    assert_eq!(error(&with_objects(&[TIMEOUT, DATA])), DecodeError::Missing(Class::FLOW_ID));
}

/// CASP-G-03, CASP-G-04: duplicates, CLIENT_DATA with ERROR, R with D.
#[test]
fn contradictions_are_discarded() {
    for object in [FLOW, TIMEOUT, PROOF, DATA, ERROR, COOKIE_I] {
        let octets = with_objects(&[FLOW, object, object]);
        assert!(matches!(error(&octets), DecodeError::Duplicate { .. }), "{object}");
    }
    assert_eq!(error(&with_objects(&[FLOW, DATA, ERROR])), DecodeError::DataAndError);
    let mut octets = hex(V6);
    octets[0] = 0xa0;
    assert_eq!(error(&octets), DecodeError::ReverseDiscovery);
}

/// CASP-G-03: a SCOUT_COOKIE_I in a signaling message is ignored, and not sent on.
#[test]
fn a_cookie_of_the_initiator_is_ignored_in_signaling() {
    let octets = with_objects(&[FLOW, COOKIE_I, TIMEOUT]);
    assert_eq!(composed(&signaling(&octets))[20..], hex(&format!("{FLOW}{TIMEOUT}")));
}

/// CASP-G-03: objects that are too short, too long, or of a wrong size.
#[test]
fn wrong_lengths_are_discarded() {
    for (object, at) in [
        ("00030363 00000000", 40),
        ("00000000", 40),
        ("00090363 00000000", 44),
        ("ffff0363 00000000", 44),
        ("00070201 00000000", 40),
        ("000c0201 00000000 00000000", 40),
        ("000c0401 00000000 00000000", 40),
        ("00080601 00000000", 40),
    ] {
        assert_eq!(error(&with_objects(&[FLOW, object])).offset(), at, "{object}");
    }
    let short = "00100101 c0000201 c6336407 138c138e";
    assert!(matches!(error(&with_objects(&[short])), DecodeError::Size { wanted: 16, .. }));
}

/// CASP-G-15: objects of known classes and unknown C-Type.
#[test]
fn unknown_c_types_have_their_rules() {
    let octets = with_objects(&[FLOW, "0008034d 01020304"]);
    let data = signaling(&octets);
    assert_eq!(data.body, Body::Client { client: ClientType(77), data: &[1, 2, 3, 4] });
    assert_eq!(composed(&data), octets);
    let octets = with_objects(&[FLOW, "000c0409 00000001 00000002"]);
    assert_eq!(signaling(&octets).body, Body::Error(ErrorCode::UNKNOWN));
    let octets = with_objects(&[FLOW, "00080609 00000001"]);
    assert_eq!(signaling(&octets).proof, Some(Proof::Unknown));
    let octets = with_objects(&[FLOW, "00080209 00000001", DATA]);
    let timeout = signaling(&octets);
    assert_eq!(timeout.timeout, None);
    assert_eq!(composed(&timeout)[40..], hex(&format!("{DATA} 00080209 00000001")));
    assert_eq!(
        error(&with_objects(&["0008017f 00000001"])),
        DecodeError::FlowForm { c_type: 127, offset: 20 }
    );
}

/// CASP-G-14, CASP-11-04: unknown classes are kept, in their order, behind the known ones.
#[test]
fn unknown_classes_are_sent_on_behind_the_known() {
    let (first, second) = ("00096301 01020304 05000000", "0004ff02");
    let octets = with_objects(&[first, FLOW, second, DATA]);
    let sent = composed(&signaling(&octets));
    assert_eq!(sent[20..], hex(&format!("{FLOW}{DATA}{first}{second}")));
}

/// CASP-4.2-09: R and D are not composed together. CASP-A.1-06: nor an SPI with UDP.
#[test]
fn a_sender_refuses_what_the_draft_forbids() {
    let message = Signaling::new(session(), flow());
    let both = Signaling { flags: Flags::REVERSE.with(Flags::DISCOVER), ..message };
    let mut octets = vec![7];
    assert_eq!(both.encode(&mut octets), Err(EncodeError::ReverseDiscovery));
    let (src, dst) = ("192.0.2.1".parse().unwrap(), "198.51.100.7".parse().unwrap());
    let udp = Signaling { flow: FlowId::V4Spi { src, dst, spi: 1, protocol: 17 }, ..message };
    assert_eq!(udp.encode(&mut octets), Err(EncodeError::Flow(FlowError::NotIpsec(17))));
    assert_eq!(octets, [7]);
}
