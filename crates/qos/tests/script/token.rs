//! Authorization tokens (RFC 5981) in requests.

use ring::hmac;
use signalbox_core::SessionId;
use signalbox_core::mri::{Mri, PathCoupled};
use signalbox_qos::engine::Config;
use signalbox_qos::wire::{Carried, Info, Message, MessageType, write_auth};
use signalbox_resources::token::KeyConfig;
use signalbox_wire::Writer;

use crate::rig::{BEFORE, Rig, addr, octets, qspec, reserve};

/// A SESSION_AUTH object with this SESSION_ID; empty: none.
fn token(session: &[u8]) -> Vec<u8> {
    let mut attributes = Vec::new();
    let mut put = |kind: u8, sub: u8, value: &[u8]| {
        attributes.extend(u16::try_from(4 + value.len()).unwrap().to_be_bytes());
        attributes.extend([kind, sub]);
        attributes.extend(value);
    };
    put(1, 3, b"auth.example");
    if !session.is_empty() {
        put(2, 0, session);
    }
    let signed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[0x0b; 32]), &attributes);
    attributes.extend([0, 40, 8, 0]);
    attributes.extend(1u32.to_be_bytes());
    attributes.extend(signed.as_ref());
    let mut object = Vec::new();
    write_auth(&attributes, &mut Writer::new(&mut object));
    object
}

/// T38 (SEC-T38-01): a token with a SESSION_ID is good for the session that used it first, and for the opposite direction of its flow. Who sends it
/// again in another session gets nothing for it. A token without one is good for any.
#[test]
fn a_token_that_names_its_session_is_not_used_in_another_one() {
    let (some, other, back) = (qspec(1_000), SessionId([8; 16]), SessionId([9; 16]));
    let udp = |src: &str, dst: &str| {
        let flow = PathCoupled::between(addr(src), addr(dst));
        Mri::PathCoupled(PathCoupled { protocol: Some(17), dst_port: Some(5005), ..flow })
    };
    let (beside, opposite) = (udp("192.0.2.1", "203.0.113.9"), udp("203.0.113.9", "192.0.2.1"));
    for (name, again) in [(&b"call"[..], false), (&b""[..], true)] {
        let mut rig = Rig::with_rules(Config::default(), |rules| {
            rules.keys = vec![KeyConfig {
                entity: "auth.example".to_owned(),
                id: 1,
                secret: "0b".repeat(32),
                length: 32,
                from: 0,
                until: None,
            }];
        });
        let object = token(name);
        let request = |rsn| Message { rii: Some(1), auth: Carried::auth(&object), ..reserve(rsn, &some) };
        assert_eq!(rig.receive(&request(0)).len(), 1);
        assert_eq!(rig.receive(&request(1))[0].message().kind, MessageType::RESERVE, "a change");
        let sent = rig.receive_octets(BEFORE, beside, other, &octets(&request(0)));
        assert_eq!(sent[0].message().kind == MessageType::RESERVE, again);
        if !again {
            assert_eq!(sent[0].info(), Info::AUTHORISATION);
        }
        let sent = rig.receive_octets(BEFORE, opposite, back, &octets(&request(0)));
        assert_eq!(sent[0].message().kind, MessageType::RESERVE);
    }
}
