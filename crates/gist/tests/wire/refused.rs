//! Values that the encoder refuses.

use signalbox_core::{Direction, Mri, NslpId, PathCoupled};
use signalbox_gist::wire::{
    EncodeError, List, MaOptions, MaProtocolId, Message, MessageType, Nli, ObjectType, Profile,
    StackConfiguration, StackProposal, mri_encode,
};
use signalbox_wire::Writer;

use crate::support::*;

fn field(message: &Message<'_>) -> &'static str {
    match encode(message).unwrap_err() {
        EncodeError::Forbidden { field, .. } => field,
        EncodeError::Length(_) => "length",
    }
}

/// GIST-A.3.1.1-08 GIST-A.3.1.1-09 GIST-A.3.1.1-10: flow label with IPv4; SPI or port without protocol.
#[test]
fn mri_flags() {
    let base = PathCoupled::between([192, 0, 2, 1].into(), [198, 51, 100, 7].into());
    for (p, expected) in [
        (PathCoupled { flow_label: Some(1), ..base }, "Flow Label"),
        (PathCoupled { spi: Some(1), ..base }, "S-flag"),
        (PathCoupled { src_port: Some(1), ..base }, "A-flag"),
        (PathCoupled { dst_port: Some(1), ..base }, "B-flag"),
        (PathCoupled { dscp: Some(64), ..base }, "DS-field"),
        (PathCoupled { src_prefix: 33, ..base }, "Source Prefix"),
        (PathCoupled { dst_prefix: 33, ..base }, "Dest Prefix"),
        (PathCoupled { dst: "::1".parse().unwrap(), ..base }, "IP-Ver"),
    ] {
        let result = mri_encode(&Mri::PathCoupled(p), &mut Writer::new(&mut Vec::new()));
        assert_eq!(result, Err(EncodeError::Forbidden { object: Some(ObjectType::MRI), field: expected }));
    }
}

/// GIST-A.3.3-02 GIST-A.3.5-03: a validity or hold time of zero.
#[test]
fn zero_times() {
    let mut m = composed(MessageType::QUERY, Direction::Downstream);
    m.nli = Some(Nli { validity_ms: 0, ..nli() });
    assert_eq!(field(&m), "Routing State Validity Time");
    m.nli = Some(nli());
    m.stack_configuration = Some(StackConfiguration { hold_time_ms: 0, ..configuration() });
    assert_eq!(field(&m), "MA-Hold-Time");
}

/// GIST-A.3.4-02 GIST-A.3.4-03: an empty proposal, an empty profile, a protocol 0.
#[test]
fn empty_proposals() {
    let mut m = composed(MessageType::QUERY, Direction::Downstream);
    for (profiles, expected) in
        [(&[][..], "Prof-Count"), (&[Profile(&[1]), Profile(&[])], "Profile"), (&[Profile(&[0])], "Profile")]
    {
        m.stack_proposal = Some(StackProposal { profiles: List::of(profiles) });
        assert_eq!(field(&m), expected);
    }
}

/// GIST-A.1-05 GIST-A.1-06 GIST-5.2.1-01: flags that the type must not have, and those of a new message.
#[test]
fn flags() {
    for kind in (0..=5).map(MessageType) {
        let m = Message::new(kind, NslpId::PING, 30);
        encode(&m).unwrap();
        assert_eq!((m.header.c, m.header.r), (kind == MessageType::QUERY, kind == MessageType::QUERY));
        assert!(!m.header.e);
        let mut r = m;
        r.header.r = !m.header.r;
        let r_free = kind == MessageType::RESPONSE || kind == MessageType::MA_HELLO;
        assert_eq!(encode(&r).is_ok(), r_free, "{kind}");
        let mut e = m;
        e.header.e = true;
        assert_eq!(encode(&e).is_ok(), kind == MessageType::DATA, "{kind}");
        let mut c = m;
        c.header.c = !m.header.c;
        assert_eq!(encode(&c).is_ok(), kind == MessageType::DATA, "{kind}");
    }
    assert_eq!(field(&Message::new(MessageType(6), NslpId::PING, 30)), "Type");
    let mut cookie = Message::new(MessageType::RESPONSE, NslpId::PING, 30);
    cookie.responder_cookie = Some(&[0; 8]);
    assert_eq!(field(&cookie), "R-flag");
}

/// GIST-A.3.10-01 GIST-A.2-03: application data and cookies are whole words, at most 4095 of them.
#[test]
fn whole_words() {
    let big = vec![0; 4096 * 4];
    let mut m = composed(MessageType::DATA, Direction::Downstream);
    for length in [1, 2, 3, 5] {
        m.nslp_data = Some(&big[..length]);
        assert_eq!(field(&m), "Length");
    }
    m.nslp_data = Some(&big);
    assert_eq!(field(&m), "length");
    m.nslp_data = Some(&big[4..]);
    encode(&m).unwrap();
    m.query_cookie = Some(&[1, 2, 3]);
    assert_eq!(field(&m), "Length");
}

/// Lengths beyond their fields are errors, not truncations.
#[test]
fn overflows() {
    let long = [1; 256];
    let mut m = composed(MessageType::QUERY, Direction::Downstream);
    m.nli = Some(Nli { peer_identity: &long, ..nli() });
    assert_eq!(field(&m), "length");
    m.nli = Some(nli());
    let profiles = [Profile(&long)];
    m.stack_proposal = Some(StackProposal { profiles: List::of(&profiles) });
    assert_eq!(field(&m), "length");
    m.stack_proposal = Some(StackProposal { profiles: List::of(&[Profile(&[1]); 256]) });
    assert_eq!(field(&m), "length");
    m.stack_proposal = None;
    let options = [MaOptions { protocol: MaProtocolId(120), profile: 0, disabled: false, data: &long }];
    m.stack_configuration = Some(StackConfiguration { hold_time_ms: 1, options: List::of(&options) });
    assert_eq!(field(&m), "length");
}
