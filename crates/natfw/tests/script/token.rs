//! Authorization tokens (RFC 5981) in requests.

use ring::hmac;
use signalbox_core::Time;
use signalbox_natfw::engine::{Command, Middlebox, NatfwEvent, OpenRequest, Options, Refusal};
use signalbox_natfw::wire::{Forwarded, Info, Message, session_auth};
use signalbox_resources::config::{Action, Opening, RuleConfig};
use signalbox_resources::token::KeyConfig;

use crate::rig::{
    FAR, HOST, Kernel, OTHER, OUTSIDE, Rig, Sent, addr, boxed, create, error, inward, only, success,
};

/// The attributes of a token for packets to an address, signed with a key of these octets.
fn token(destination: [u8; 4], secret: u8) -> Vec<u8> {
    named(destination, secret, b"")
}

/// The same with a SESSION_ID.
fn named(destination: [u8; 4], secret: u8, session: &[u8]) -> Vec<u8> {
    with(destination, secret, (2, 0, session))
}

/// The same with one attribute more, if it is not empty.
fn with(destination: [u8; 4], secret: u8, (kind, sub, value): (u8, u8, &[u8])) -> Vec<u8> {
    let mut attributes = Vec::new();
    let mut put = |kind: u8, sub: u8, value: &[u8]| {
        attributes.extend(u16::try_from(4 + value.len()).unwrap().to_be_bytes());
        attributes.extend([kind, sub]);
        attributes.extend(value);
    };
    put(1, 3, b"auth.example");
    put(4, 1, &destination);
    if !value.is_empty() {
        put(kind, sub, value);
    }
    let signed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[secret; 32]), &attributes);
    attributes.extend([0, 40, 8, 0]);
    attributes.extend(1u32.to_be_bytes());
    attributes.extend(signed.as_ref());
    attributes
}

/// A firewall that lets flows in by a token only.
fn gate() -> Rig {
    Rig::with_rules(boxed(Middlebox::Firewall), |rules| {
        rules.keys = vec![KeyConfig {
            entity: "auth.example".to_owned(),
            id: 1,
            secret: "0b".repeat(32),
            length: 32,
            from: 0,
            until: None,
        }];
        rules.rules = vec![RuleConfig {
            opens: vec![Opening::Inward],
            token: vec!["auth.example".to_owned()],
            ..RuleConfig::new("by token", Action::Allow)
        }];
    })
}

fn asks(rig: &mut Rig, token: &[u8]) -> Sent {
    let object = session_auth(token).unwrap();
    only(rig.by_outside(inward(), &Message { forwarded: Forwarded::among(&object), ..create(7, 100) }))
}

const RECEIVER: [u8; 4] = [10, 0, 1, 2];

/// RFC 5981: a token that a key of this node signed, and that covers the packets, is what a rule asks for. The object goes on.
#[test]
fn a_rule_asks_for_a_token() {
    let mut rig = gate();
    assert_eq!(addr(HOST).to_string(), "10.0.1.2");
    let refused = only(rig.by_outside(inward(), &create(7, 100)));
    assert_eq!(refused.message(), error(7, Info::AUTHORIZATION), "without one");
    let sent = asks(&mut rig, &token(RECEIVER, 0x0b));
    let object = session_auth(&token(RECEIVER, 0x0b)).unwrap();
    assert_eq!(sent.message(), Message { forwarded: Forwarded::among(&object), ..create(7, 100) });
}

/// NATFW-3.6-02: failed credentials are 5/0x01, what they do not cover is 5/0x02. Nothing is remembered.
#[test]
fn a_token_that_does_not_fit_is_refused() {
    for (token, info) in [
        (token(RECEIVER, 0x0c), Info::AUTHENTICATION),
        (token([10, 0, 1, 3], 0x0b), Info::AUTHORIZATION),
        (b"no attributes".to_vec(), Info::AUTHORIZATION),
    ] {
        let mut rig = gate();
        assert_eq!(asks(&mut rig, &token).message(), error(7, info));
        assert_eq!((rig.natfw.session_count(), rig.resources.passage_count()), (0, 0));
    }
}

/// The initiator puts the token of its user into each request.
#[test]
fn requests_have_the_token_of_their_user() {
    let open = |token: Vec<u8>| {
        Command::Open(OpenRequest {
            src: Some(addr(HOST)),
            dst: addr(FAR),
            protocol: Some(17),
            src_port: Some(5000),
            dst_port: Some(6000),
            options: Options { token: Some(token), ..Options::default() },
        })
    };
    let mut rig = Rig::host();
    let sent = only(rig.command(open(token(RECEIVER, 0x0b))));
    let tokens = |sent: &Sent| sent.message().forwarded.tokens().map(<[u8]>::to_vec).collect::<Vec<_>>();
    assert_eq!(tokens(&sent), [token(RECEIVER, 0x0b)]);
    let again = only(rig.pass_secs(3));
    assert_eq!(tokens(&again), [token(RECEIVER, 0x0b)], "also when it is repeated");
    for wrong in [Vec::new(), vec![0; 16_381]] {
        let mut rig = Rig::host();
        assert_eq!(rig.command(open(wrong)), []);
        assert!(matches!(rig.events.as_slice(), [NatfwEvent::Refused(Refusal::Token)]));
    }
}

/// T38: a passage does not stand longer than the token that it was opened for, whatever lifetime is asked for and however often it is
/// refreshed.
#[test]
fn a_passage_ends_with_its_token() {
    const NTP_TO_UNIX: u32 = 2_208_988_800;
    let end = [(NTP_TO_UNIX + 60).to_be_bytes(), [0; 4]].concat();
    let mut rig = gate();
    let sent = asks(&mut rig, &with(RECEIVER, 0x0b, (6, 1, &end)));
    only(rig.answer(&sent, &success(7, 50)));
    let open = |rig: &Rig| rig.kernel.last().cloned();
    assert!(matches!(open(&rig), Some(Kernel::Open(_, 50))), "{:?}", rig.kernel);
    rig.now = Time::from_secs(40);
    let sent = only(rig.by_outside(inward(), &create(8, 100)));
    only(rig.answer(&sent, &success(8, 20)));
    assert!(matches!(open(&rig), Some(Kernel::Open(_, 20))), "{:?}", rig.kernel);
    rig.now = Time::from_secs(60);
    rig.by_outside(inward(), &create(9, 100));
    assert_eq!((rig.holes.len(), rig.resources.passage_count()), (0, 0));
}

/// T38: a token that limits the packets by something that this node cannot judge is for none of them.
#[test]
fn a_token_that_is_not_understood_opens_nothing() {
    for kind in [3, 4] {
        let mut rig = gate();
        let token = with(RECEIVER, 0x0b, (kind, 5, &[0, 0, 1, 0]));
        assert_eq!(asks(&mut rig, &token).message(), error(7, Info::AUTHORIZATION), "{kind}");
    }
}

/// T38 (SEC-T38-01): a token with a SESSION_ID is good for the session that used it first, which may refresh and change. Who sends it again in
/// another session gets nothing for it, also after the end of that session. A token without one is good for any.
#[test]
fn a_token_that_names_its_session_is_not_used_in_another_one() {
    let other = signalbox_core::SessionId([8; 16]);
    for (name, again) in [(&b"call"[..], false), (&b""[..], true)] {
        let mut rig = gate();
        let token = named(RECEIVER, 0x0b, name);
        let object = session_auth(&token).unwrap();
        let request = |msn| Message { forwarded: Forwarded::among(&object), ..create(msn, 100) };
        assert_eq!(asks(&mut rig, &token).message(), request(7));
        let moved = signalbox_core::Mri::PathCoupled(crate::rig::udp(FAR, 6000, HOST, 5002));
        assert_eq!(only(rig.by_outside(moved, &request(8))).message(), request(8), "a change");
        let answer = only(rig.in_session(other, OTHER, OUTSIDE, inward(), &request(1)));
        let expected = if again { request(1) } else { error(1, Info::AUTHENTICATION) };
        assert_eq!(answer.message(), expected);
        rig.by_outside(moved, &create(9, 0));
        let answer = only(rig.in_session(other, OTHER, OUTSIDE, inward(), &request(2)));
        assert_eq!(answer.info_of() == Some(Info::AUTHENTICATION), !again);
    }
}

/// A token is not kept: a session that one allowed is asked for anew after a restart.
#[test]
fn a_session_with_a_token_is_not_left_to_the_next_node() {
    let mut rig = gate();
    let sent = asks(&mut rig, &token(RECEIVER, 0x0b));
    only(rig.answer(&sent, &success(7, 100)));
    let mut entries = signalbox_core::handover::Entries::default();
    rig.natfw.hand_over(rig.now, &mut entries);
    assert!(entries.is_empty() && !rig.natfw.leaves(rig.holes[0].0));
}
