//! Errors that a node sends, and errors that it receives (RFC 5971 §5.6, §7.2.1, A.4).

use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_core::{Direction, LooseEnd, Mri};
use signalbox_gist::engine::{Config, IngressFilter, RoutingState};
use signalbox_gist::wire::{
    Encapsulation, ErrorClass, GistError, Info, Message, MessageType, Nli, ObjectType,
};

use crate::rig::*;

/// Injects a Query whose octets are changed before.
fn bent(rig: &mut Rig, bend: impl FnOnce(&mut Vec<u8>)) {
    let mut octets = encode(&query(through(), &[1; 8]));
    bend(&mut octets);
    rig.packet(&Via::intercepted(SRC, DST), &octets);
}

/// Appends an object that is to be ignored: a short message gets no Error, because that would be larger.
pub(crate) fn longer(octets: &mut Vec<u8>) {
    octets.extend([0x40, 0x99, 0, 12]);
    octets.extend([0; 48]);
    let words = u16::try_from((octets.len() - 12) / 4).unwrap();
    octets[6..8].copy_from_slice(&words.to_be_bytes());
}

/// GIST-5.6-05, GIST-5.6-07, GIST-5.1-19, GIST-A.4.4.1-03, GIST-A.4.4.1-04, GIST-A.4.4.1-05, GIST-A.4.4.1-07,
/// GIST-A.4.4.1-08, GIST-A.4.4.1-02, GIST-A.4.1-07, GIST-A.4.4.1-06, GIST-A.4.1-05, GIST-5.6-02: a malformed message
/// is answered in normal mode to the address in its NLI, by an Error that identifies its sender, with NSLPID 0. The Error
/// creates no state.
#[test]
fn malformed_messages_are_refused() {
    type Bend = fn(&mut Vec<u8>);
    let cases: [(Bend, GistError); 6] = [
        (|o| o[4] = 2, GistError::UNKNOWN_VERSION),
        (|o| o[10] = 0x80 | 6, GistError::UNKNOWN_TYPE),
        (|o| o[11] &= !0x40, GistError::INVALID_R_FLAG),
        (|o| o[11] |= 0x20, GistError::INVALID_E_FLAG),
        (|o| o[10] &= 0x7f, GistError::INVALID_C_FLAG),
        (|o| o[7] += 1, GistError::INCORRECT_MESSAGE_LENGTH),
    ];
    for (bend, expected) in cases {
        let mut rig = Rig::new();
        bent(&mut rig, bend);
        let error = rig.sent().is(MessageType::ERROR).error_is(expected);
        assert_eq!((error.src, error.dst), (at_port(LEFT), at_port(UP)));
        assert!(error.options.is_empty());
        let said = error.message();
        assert_eq!((said.header.nslp.0, said.header.s), (0, true));
        assert_eq!(said.nli.unwrap().peer_identity, b"node");
        assert_eq!(said.nli.unwrap().interface, ip(LEFT));
        let object = said.error.unwrap();
        assert_eq!((object.session, object.mri_octets), (None, None));
        // GIST-A.4.1-07: only an incorrect length has additional information.
        let info = (expected == GistError::INCORRECT_MESSAGE_LENGTH).then_some(Info::MessageLength(18));
        assert_eq!(object.infos.iter().next(), info);
        rig.quiet();
        rig.no_state();
        assert_eq!((rig.gist.counters().malformed, rig.gist.counters().errors_sent), (1, 1));
    }
}

/// GIST-5.1-04, GIST-A.2.1-01, GIST-A.2.1-02, GIST-A.4.4.9-03, GIST-A.4.1-06, GIST-A.4.4-01: unknown
/// objects are processed by their flags; the Error has the flow, the session and the unknown type.
#[test]
fn unknown_objects() {
    let add = |flags: u8| {
        move |o: &mut Vec<u8>| {
            o.extend([flags | 1, 0xf4, 0, 0]);
            o[7] += 1;
        }
    };
    let mut rig = Rig::new();
    bent(&mut rig, add(0x40));
    rig.sent().is(MessageType::RESPONSE);
    bent(&mut rig, add(0x80));
    rig.sent().is(MessageType::RESPONSE);
    bent(&mut rig, add(0));
    let error = rig.sent().error_is(GistError::UNRECOGNISED_OBJECT);
    let object = error.message().error.unwrap();
    assert_eq!((object.session, object.mri()), (Some(SESSION), Some(through())));
    assert_eq!(object.infos.iter().next(), Some(Info::ObjectType(ObjectType(500))));
    bent(&mut rig, add(0xc0));
    rig.sent().error_is(GistError::INVALID_EXTENSIBILITY_FLAGS);
}

/// GIST-A.3.3-02: the validity time 0 is reserved. The Error names the field, and goes to the address in the NLI, although the
/// first Query has S=0.
#[test]
fn a_validity_time_of_zero_is_answered() {
    let mut rig = Rig::new();
    let mut message = query(through(), &[1; 8]);
    message.header.s = false;
    let mut octets = encode(&message);
    let at = octets.windows(4).position(|w| w == [0, 2, 0, 4]).expect("the NLI's TLV header");
    octets[at + 8..at + 12].fill(0);
    rig.packet(&Via::intercepted(SRC, DST), &octets);
    let error = rig.sent().error_is(GistError::VALUE_NOT_SUPPORTED);
    assert_eq!(error.dst, at_port(UP));
    let infos = error.message().error.unwrap().infos;
    let Some(Info::ObjectValue { offset: 8, object }) = infos.iter().next() else { panic!("{infos:?}") };
    assert_eq!(object, &octets[at..at + 20]);
    rig.no_state();
}

/// GIST-5.6-06, GIST-4.4.1-15, GIST-A.4.4.10-01: without a valid NLI the Error is sent to the IP source if S=1, and is
/// not sent if S=0.
#[test]
fn errors_without_an_nli() {
    for s in [true, false] {
        let mut rig = Rig::new();
        let mut message = query(through(), &[1; 8]);
        message.header.s = s;
        let mut octets = encode(&message);
        let at = octets.windows(4).position(|w| w == [0, 2, 0, 4]).expect("the NLI's TLV header");
        octets[at + 6] = 0x50; // IP version 5
        rig.packet(&Via::intercepted(UP, DST), &octets);
        if s {
            let error = rig.sent().error_is(GistError::VALUE_NOT_SUPPORTED);
            assert_eq!(error.dst, at_port(UP));
            let infos = error.message().error.unwrap().infos;
            let Some(Info::ObjectValue { offset: 6, object }) = infos.iter().next() else { panic!() };
            assert_eq!(object, &octets[at..at + 20]);
        } else {
            assert_eq!(rig.gist.counters().errors_unsendable, 1);
        }
        rig.quiet();
    }
}

/// GIST-5.6-01: an Error is not answered with an Error, however malformed it is, and creates no state.
#[test]
fn errors_are_not_answered() {
    let mut rig = Rig::new();
    let about = encode(&query(through(), &[1; 8]));
    let error = GistError::HOP_LIMIT_EXCEEDED;
    let whole = encode(&peer(b"up", UP).error(error, &about[4..], Encapsulation::QMode));
    for bend in 0..whole.len() - 4 {
        let mut octets = whole.clone();
        octets[4 + bend] ^= 0xff;
        if octets[10] & 0x7f != MessageType::ERROR.0 {
            continue;
        }
        for via in [Via::direct(UP, LEFT), Via::intercepted(SRC, LEFT)] {
            rig.packet(&via, &octets);
            rig.quiet();
        }
    }
    for length in 4..whole.len() {
        rig.packet(&Via::direct(UP, LEFT), &whole[..length]);
        rig.quiet();
    }
    rig.no_state();
}

/// GIST-5.6-03, GIST-5.6-04: Errors are not repeated, and their rate is bounded.
#[test]
fn errors_are_limited() {
    let mut rig = Rig::with(Config { error_rate: 8, ..Config::default() });
    for _ in 0..100 {
        rig.data_down(b"data");
    }
    assert_eq!(rig.out.len(), 2);
    assert_eq!(rig.gist.counters().errors_suppressed, 98);
    rig.until(100_000);
    assert_eq!(rig.out.len(), 2);
}

/// GIST-5.5-01, GIST-A.4.4.3-01, GIST-5.1-21: message types in encapsulations that are not allowed for them.
#[test]
fn wrong_encapsulations() {
    let mut rig = Rig::new();
    let mut hello = Message::new(MessageType::MA_HELLO, signalbox_core::NslpId::NONE, 64);
    (hello.hello_id, hello.header.s) = (Some(0), true);
    // So short a message gets no Error: that is larger, and the sender may be forged.
    rig.inject(&Via::direct(UP, LEFT), &hello);
    rig.quiet();
    let mut octets = encode(&hello);
    longer(&mut octets);
    rig.packet(&Via::direct(UP, LEFT), &octets);
    let error = rig.sent().error_is(GistError::INCORRECT_ENCAPSULATION);
    assert_eq!(error.dst, at_port(UP));
    let mut confirm = Message::new(MessageType::CONFIRM, NSLP, 64);
    (confirm.mri, confirm.session) = (Some(through().into()), Some(SESSION));
    confirm.nli = Some(nli(b"up", UP));
    rig.inject(&Via::intercepted(UP, DST), &confirm);
    rig.sent().error_is(GistError::INCORRECT_ENCAPSULATION);
    rig.quiet();
}

/// GIST-7.2.1-01, GIST-7.2.1-02, GIST-7.2.1-03, GIST-5.3.2.1-01, GIST-A.4.4.9-06: S=1 and an NLI that is not the IP
/// source: a NAT without GIST. The Error is sent back along the route of the Query.
#[test]
fn a_legacy_nat_is_found() {
    let mut rig = Rig::new();
    let mut message = query(through(), &[1; 8]);
    message.header.s = true;
    rig.inject(&Via::intercepted("192.0.2.99", DST), &message);
    let error = rig.sent().error_is(GistError::UNTRANSLATED_OBJECT);
    assert_eq!((error.src, error.dst), (at_port(DST), at_port("192.0.2.99")));
    let object = error.message().error.unwrap();
    assert_eq!(object.infos.iter().next(), Some(Info::ObjectType(ObjectType::MRI)));
    rig.quiet();
    rig.no_state();
    // With S=0 the message is valid.
    message.header.s = false;
    rig.inject(&Via::intercepted(SRC, DST), &message);
    rig.sent().is(MessageType::RESPONSE);
}

/// GIST-7.2.1-06, GIST-5.3.1-08: a Response from another address than that of its NLI ends the handshake.
#[test]
fn a_nat_on_the_way_back_ends_the_handshake() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent();
    rig.respond_with(&query, |m| m.nli = Some(nli(b"down", "10.2.0.77")));
    assert_eq!(rig.failed(), SendError::Peer { code: 9, subcode: 4 });
    rig.quiet();
    rig.no_state();
    // Data and Confirms with such an NLI are dropped.
    rig.inject(&Via::direct("192.0.2.99", LEFT), &data(through(), nli(b"up", UP), b"data"));
    rig.quiet();
    assert_eq!(rig.gist.counters().untranslated, 2);
}

/// GIST-A.4.4.12-03, GIST-A.4.4.12-04, GIST-5.8.1.2-06, GIST-5.8.1.2-07, GIST-8.3-01, GIST-A.4.4.12-01: flows that
/// cannot arrive here: of the other IP version, from an address of this node, against the filters.
#[test]
fn flows_that_cannot_be() {
    let filter = IngressFilter {
        interface: "eth1".to_owned(),
        prefix: signalbox_core::node::Prefix { addr: ip("10.8.0.0"), len: 16 },
    };
    let config = || Config { ingress_filters: vec![filter.clone()], ..Config::default() };
    for (mri, error) in [
        (flow("2001:db8::1", "2001:db8::2"), Some(GistError::IP_VERSION_MISMATCH)),
        (flow(RIGHT, DST), Some(GistError::INGRESS_FILTER_FAILURE)),
        (flow("10.7.0.7", DST), Some(GistError::INGRESS_FILTER_FAILURE)),
        (flow(SRC, DST), None),
    ] {
        let mut rig = Rig::with(config());
        rig.inject(&Via::intercepted(SRC, DST), &query(mri, &[1; 8]));
        match error {
            None => drop(rig.sent().is(MessageType::RESPONSE)),
            Some(expected) => {
                let error = rig.sent().error_is(expected);
                let infos = error.message().error.unwrap().infos;
                assert!(matches!(infos.iter().next(), Some(Info::ObjectValue { .. })));
            }
        }
        rig.quiet();
        rig.no_state();
    }
    // A flow from an address of this node on an interface that is down is refused, too.
    let mut rig = Rig::with(Config::default());
    let mut list = interfaces();
    list[1].up = false;
    rig.handle(signalbox_gist::engine::Input::Interfaces(&list));
    rig.inject(&Via::intercepted(SRC, DST), &query(own(), &[1; 8]));
    rig.sent().error_is(GistError::INGRESS_FILTER_FAILURE);
    // GIST-A.4.4.12-04: the whole source prefix has to be inside.
    let mut rig = Rig::with(config());
    let mut p = signalbox_core::PathCoupled::between(ip("10.0.0.0"), ip(DST));
    p.src_prefix = 8;
    rig.inject(&Via::intercepted(SRC, DST), &query(Mri::PathCoupled(p), &[1; 8]));
    rig.sent().error_is(GistError::INGRESS_FILTER_FAILURE);
}

/// An interface without filters of its own has those of all interfaces.
#[test]
fn filters_of_all_interfaces_and_of_one() {
    let filter = |interface: &str, addr: &str| IngressFilter {
        interface: interface.to_owned(),
        prefix: signalbox_core::node::Prefix { addr: ip(addr), len: 16 },
    };
    for (filters, passes) in [
        (vec![filter("*", "10.8.0.0")], true),
        (vec![filter("*", "10.7.0.0")], false),
        (vec![filter("*", "10.7.0.0"), filter("eth1", "10.8.0.0")], true),
        (vec![filter("*", "10.8.0.0"), filter("eth1", "10.7.0.0")], false),
        (vec![filter("eth2", "10.7.0.0")], true),
    ] {
        let mut rig = Rig::with(Config { ingress_filters: filters, ..Config::default() });
        rig.query(None);
        let answer = rig.sent();
        if passes {
            answer.is(MessageType::RESPONSE);
        } else {
            answer.error_is(GistError::INGRESS_FILTER_FAILURE);
        }
    }
}

/// GIST-5.8.2-05, GIST-5.8.2-06: the loose-end method in Q-mode: towards the edge only, and without the checks
/// of the path-coupled one.
#[test]
fn loose_end_queries() {
    let loose = |direction| Mri::LooseEnd(LooseEnd { src: ip(SRC), dst: ip(DST), direction });
    let mut rig = Rig::with(Config {
        ingress_filters: vec![IngressFilter {
            interface: "eth1".to_owned(),
            prefix: signalbox_core::node::Prefix { addr: ip("10.7.0.0"), len: 16 },
        }],
        ..Config::default()
    });
    rig.inject(&Via::intercepted(SRC, DST), &query(loose(Direction::Downstream), &[1; 8]));
    rig.sent().is(MessageType::RESPONSE);
    let mut octets = encode(&query(loose(Direction::Downstream), &[1; 8]));
    octets[18] |= 0x08;
    rig.packet(&Via::intercepted(SRC, DST), &octets);
    rig.sent().error_is(GistError::VALUE_NOT_SUPPORTED);
    rig.no_state();
}

/// Some senders never get an answer: this node, the unspecified address, multicast addresses.
#[test]
fn impossible_senders() {
    for sender in [LEFT, RIGHT, "0.0.0.0", "127.0.0.1", "224.0.0.1"] {
        let mut rig = Rig::new();
        let mut message = query(through(), &[1; 8]);
        message.nli = Some(Nli { interface: ip(sender), ..nli(b"up", UP) });
        rig.inject(&Via::intercepted(SRC, DST), &message);
        message.header.hops = 1;
        message.header.nslp = OTHER;
        rig.inject(&Via::intercepted(SRC, DST), &message);
        rig.quiet();
        rig.no_state();
    }
}

/// GIST-B.4-01, GIST-A.4.4.7-01, GIST-5.6-10: the flow's end lacks the application: this is the last node with the
/// application.
#[test]
fn endpoint_found() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent();
    rig.error(DOWN, GistError::ENDPOINT_FOUND, &query);
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::LastNode));
    assert_eq!(rig.failed(), SendError::NoNextNode);
    rig.no_state();
    rig.until(100_000);
    rig.quiet();
}

/// GIST-7.2.1-04, GIST-A.4.3-02: a Query that is refused ends its handshake, for any class in the Error object.
#[test]
fn refused_queries_are_not_repeated() {
    for error in [
        GistError::UNTRANSLATED_OBJECT,
        GistError::HOP_LIMIT_EXCEEDED,
        GistError::MRI_TOO_WILD,
        GistError::MESSAGE_TOO_LARGE,
    ] {
        for class in [error.class, ErrorClass::INFORMATIONAL] {
            let mut rig = Rig::new();
            rig.send(b"data", own());
            let query = rig.sent();
            rig.error(DOWN, GistError { class, ..error }, &query);
            assert_eq!(rig.failed(), SendError::Peer { code: error.code.0, subcode: error.subcode });
            rig.no_state();
            rig.until(100_000);
            rig.quiet();
        }
    }
}

/// Data that the peer refuses is reported; the state stays.
#[test]
fn refused_data_is_reported() {
    let mut rig = Rig::new();
    let (_, data) = rig.established();
    rig.error(DOWN, GistError::UNKNOWN_NSLPID, &data);
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::CommunicationFailure));
    assert_eq!(rig.states().0, Some(RoutingState::Established));
}
