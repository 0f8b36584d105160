//! Messages that the gateway refuses, and the Errors it sends.

use signalbox_core::mri::PathCoupled;
use signalbox_gist::gateway::Config;
use signalbox_gist::wire::{ErrorCode, GistError, Info, ObjectType};

use crate::rig::*;

/// GISTNAT-R4.3.4-02: a message received with hop count 1 is not forwarded.
#[test]
fn a_used_up_hop_count_is_refused() {
    let mut rig = Rig::new();
    let mut message = query(outbound(), HOST);
    message.header.hops = 1;
    rig.outward(&message);
    let sent = rig.sent();
    assert_eq!((sent.error(), sent.dst), (GistError::HOP_LIMIT_EXCEEDED, at(HOST, 270)));
    assert_eq!(sent.message().nli.unwrap().interface, ip(GATE));
}

/// GISTNAT-R4.3.4-03: a message that is too large after the translation is refused, with what the sender may use.
#[test]
fn a_message_that_has_grown_too_large_is_refused() {
    let mut rig = Rig::new();
    let message = query(outbound(), HOST);
    let size = u32::try_from(encode(&message).len()).unwrap() + 28 + 4;
    let (own, entry) = (12 + 20, 32);
    rig.mtu(size + own + entry);
    rig.outward(&message);
    assert_eq!(rig.sent().dst, at(FAR, 270), "it fits");
    rig.mtu(size + own + entry - 1);
    rig.outward(&message);
    let sent = rig.sent();
    assert_eq!(sent.error(), GistError::MESSAGE_TOO_LARGE);
    let info = sent.message().error.unwrap().infos.iter().next();
    assert!(matches!(info, Some(Info::Mtu(mtu)) if u32::from(mtu) == size - 1), "{info:?}");
}

/// GISTNAT-X-15: what cannot be translated exactly draws 9/4 about the MRI.
#[test]
fn an_mri_that_cannot_be_translated_is_refused() {
    let flow = outbound();
    let cases = [
        PathCoupled { src_port: None, ..flow },
        PathCoupled { src_port: Some(0), ..flow },
        PathCoupled { src_prefix: 24, ..flow },
        PathCoupled { protocol: Some(50), src_port: None, dst_port: None, spi: Some(1), ..flow },
        PathCoupled { protocol: None, src_port: None, dst_port: None, ..flow },
    ];
    for flow in cases {
        let mut rig = Rig::new();
        rig.outward(&query(flow, HOST));
        let sent = rig.sent();
        assert_eq!(sent.error(), GistError::UNTRANSLATED_OBJECT, "{flow:?}");
        let info = sent.message().error.unwrap().infos.iter().next();
        assert_eq!(info, Some(Info::ObjectType(ObjectType::MRI)));
        assert_eq!(rig.gateway.tables()[0].size, 0);
    }
}

/// GISTNAT-X-25: a private routing method with N=1 passes with its MRI. GIST-7.2.2-03: with N=0 it draws 9/4.
#[test]
fn an_unknown_routing_method_passes_if_it_allows() {
    for (flag, passes) in [(0x80, true), (0, false)] {
        let mut rig = Rig::new();
        let mut payload = encode(&query(outbound(), HOST));
        payload[16..18].copy_from_slice(&[120, flag]);
        rig.packet(&q_mode(INSIDE, at(HOST, 270), FAR), &payload);
        let sent = rig.sent();
        if !passes {
            assert_eq!(sent.error(), GistError::UNTRANSLATED_OBJECT);
            continue;
        }
        let octets = sent.octets();
        let original = &payload[16..36];
        assert_eq!(&octets[16..36], original, "in the object");
        let start = 8 + 4 + usize::from(octets[11]) * 4;
        assert_eq!(&octets[start + 4..start + 24], original, "and where it was");
        assert_eq!(sent.src.ip(), ip(EXTERNAL));
    }
}

/// GISTNAT-X-17: malformed MRIs and NAT-Traversal objects draw their errors, and nothing is forwarded.
#[test]
fn malformed_objects_are_refused() {
    let mut rig = Rig::new();
    let good = encode(&query(outbound(), HOST));
    for (at_octet, value, code) in [
        (18, 0x78, (ErrorCode::OBJECT_VALUE, 1)), // IP version 7
        (19, 0x40, (ErrorCode::OBJECT_VALUE, 2)), // B without P
        (28, 33, (ErrorCode::OBJECT_VALUE, 1)),   // a prefix of 33
    ] {
        let mut payload = good.clone();
        payload[at_octet] = value;
        if at_octet == 19 {
            payload[18] = 0x40;
        }
        rig.packet(&q_mode(INSIDE, at(HOST, 270), FAR), &payload);
        let error = rig.sent().error();
        assert_eq!((error.code, error.subcode), code, "octet {at_octet}");
    }
    // An object whose entries are longer than itself.
    rig.outward(&query(outbound(), HOST));
    let mut payload = rig.sent().payload;
    payload[18] = 9;
    rig.packet(&q_mode(INSIDE, at(SECOND, 270), FAR), &payload);
    assert_eq!(rig.sent().error(), GistError::INCORRECT_LENGTH);
}

/// A node that has the application answers itself: the messages are for GIST on this node. GISTNAT-D5.3-01.
#[test]
fn messages_of_an_own_application_are_not_taken() {
    let mut rig = Rig::with(Config { hosted: vec![NSLP], ..config() });
    let via = q_mode(INSIDE, at(HOST, 270), FAR);
    let payload = encode(&query(outbound(), HOST));
    rig.packet(&via, &payload);
    rig.quiet();
    assert_eq!((rig.counters().queries, rig.counters().not_for_gateway), (0, 1));
}

/// A Query from inside whose IP source is not what it names has crossed a NAT that is not GIST-aware. The gateway does not
/// hide this: the handshake ends there. GISTNAT-P3-01, GISTNAT-D7.1-01.
#[test]
fn a_legacy_nat_inside_is_not_hidden() {
    for s in [true, false] {
        let mut rig = Rig::new();
        let mut message = query(outbound(), HOST);
        message.header.s = s;
        rig.packet(&q_mode(INSIDE, at(SECOND, 40_000), FAR), &encode(&message));
        let sent = rig.sent();
        assert_eq!((sent.error(), sent.dst), (GistError::UNTRANSLATED_OBJECT, at(SECOND, 40_000)));
        assert_eq!(sent.src, at(FAR, 270));
        assert_eq!(rig.counters().untranslated, 1);
    }
}
