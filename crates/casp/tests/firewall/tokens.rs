//! Authorization tokens, and requests whose scope ends at a border.

use std::time::Duration;

use ring::hmac;
use signalbox_casp::clients::natfw::{Config, NatfwEvent, NatfwRequest, NatfwTerms};
use signalbox_casp::wire::natfw::{
    HMAC, IdentityKind, NatfwFilter, NatfwIdentity, NatfwMessage, NatfwObject, NatfwStatus, NatfwToken,
    NatfwType, NatfwValue, TokenAlgorithm,
};
use signalbox_core::SessionId;
use signalbox_core::node::Prefix;
use signalbox_resources::config::{Action, Opening, RuleConfig};
use signalbox_resources::token::KeyConfig;

use super::rig::{Packet, Rig, filter, flow, wants_response};

const SECRET: &[u8; 20] = b"casp-token-test-key.";
/// Seconds from 1900 to 1970, and the time of the rig when it starts.
const NTP: u64 = 2_208_988_800;
const START: u64 = 1_700_000_000;

/// A firewall in the middle whose policy lets in what `pdp.b.example` signed.
fn rig(require_token: bool) -> Rig {
    let policy = |n| {
        let opens = vec![Opening::Inward];
        let token = vec!["pdp.b.example".to_owned()];
        let rule = RuleConfig { opens, token, ..RuleConfig::new("signed", Action::Allow) };
        let key = KeyConfig {
            entity: "pdp.b.example".to_owned(),
            id: 1,
            secret: SECRET.iter().map(|octet| format!("{octet:02x}")).collect(),
            length: 32,
            from: 0,
            until: None,
        };
        let rules = if n == 1 { vec![rule] } else { Vec::new() };
        let keys = if n == 1 { vec![key] } else { Vec::new() };
        signalbox_resources::Config { rules, keys, ..signalbox_resources::Config::default() }
    };
    // The inner side is that of the receiver: requests of the sender come from outside.
    let inside = || vec!["right".to_owned()];
    Rig::with(3, &policy, &|_, config| Config { require_token, inside: inside(), ..config })
}

fn named(name: &str) -> NatfwIdentity<'_> {
    NatfwIdentity { kind: IdentityKind::FQDN, value: name.as_bytes() }
}

/// A token for the packets of the rig's flow, made at `made` seconds since 1970.
fn token(made: u64) -> NatfwToken<'static> {
    NatfwToken {
        id: 42,
        creator: named("pdp.b.example"),
        requestor: NatfwIdentity::OMITTED,
        user: NatfwIdentity::OMITTED,
        src: NatfwIdentity::OMITTED,
        dst: NatfwIdentity::OMITTED,
        stamp: (made + NTP) << 32,
        algorithm: TokenAlgorithm::SHA256,
        hmac: [0; HMAC],
        filter: Some(filter(3)),
    }
}

fn signed(token: NatfwToken<'static>) -> NatfwToken<'static> {
    let algorithm = match token.algorithm {
        TokenAlgorithm::SHA1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        _ => hmac::HMAC_SHA256,
    };
    let tag = hmac::sign(&hmac::Key::new(algorithm, SECRET), &token.authenticated());
    NatfwToken { hmac: tag.as_ref()[..HMAC].try_into().unwrap(), ..token }
}

/// A token of whose HMAC only the first octets are right.
fn cut(length: usize) -> NatfwToken<'static> {
    let mut token = signed(token(START));
    token.hmac[length..].fill(0);
    token
}

fn create(msg_id: u64, tokens: &[NatfwToken<'static>]) -> Vec<NatfwValue<'static>> {
    let tokens = tokens.iter().cloned().map(NatfwValue::Token);
    [NatfwValue::MsgId(msg_id), NatfwValue::Age(1), wants_response()].into_iter().chain(tokens).collect()
}

/// CASPMID-10.5-02: a token alone opens the firewall; without it the policy refuses.
#[test]
fn a_token_opens_what_policy_refuses_otherwise() {
    let mut rig = rig(false);
    rig.inject(0, 1, NatfwType::CREATE, &create(5, &[]));
    assert_eq!((rig.status(0), rig.passes(1).len()), (NatfwStatus::POLICY, 0));
    rig.inject(0, 1, NatfwType::CREATE, &create(6, &[signed(token(START))]));
    assert_eq!((rig.status(0), rig.passes(1).len()), (NatfwStatus::DONE, 1));
    let sha1 = NatfwToken { algorithm: TokenAlgorithm::SHA1, ..token(START) };
    let mut rig = self::rig(false);
    rig.inject(0, 1, NatfwType::CREATE, &create(7, &[signed(sha1)]));
    assert_eq!(rig.passes(1).len(), 1);
}

/// CASPMID-4.4-08: a host sends its token, names its application and the time from which its packets shall pass; refreshes say the same.
#[test]
fn a_host_sends_its_token() {
    let mut rig = rig(false);
    let mut tokens = Vec::new();
    NatfwValue::Token(signed(token(START))).encode(&mut tokens).unwrap();
    let start_us = (START + 30) * 1_000_000;
    let application = Some("video".to_owned());
    let terms = NatfwTerms { tokens, application, start_us: Some(start_us), ..NatfwTerms::default() };
    let request = NatfwRequest { terms, ..rig.request(false) };
    let now = rig.now;
    rig.nodes[0].client.open(now, 1, &request);
    rig.run();
    assert!(matches!(rig.events(0).last(), Some(NatfwEvent::Opened { .. })), "{:?}", rig.events(0));
    assert_eq!(rig.passes(1).len(), 0, "it begins later");
    rig.wait(Duration::from_secs(400));
    assert_eq!(
        (rig.passes(1).len(), rig.events(0).len()),
        (1, 2),
        "refreshes keep it beyond the time of the token"
    );
    let create = rig.last(1, NatfwType::CREATE);
    assert!(create.values().contains(&NatfwValue::ApplicationId(b"video")));
    assert!(create.values().contains(&NatfwValue::Time((START + 30 + NTP) << 32)));
}

/// CASPMID-10.5-01: the token does not leave the network that verified it; that of another network does.
#[test]
fn a_verified_token_is_taken_out() {
    let mut rig = rig(false);
    let foreign = NatfwToken { creator: named("pdp.c.example"), ..token(START) };
    rig.inject(0, 1, NatfwType::CREATE, &create(5, &[foreign.clone(), signed(token(START))]));
    let sent = rig.last(2, NatfwType::CREATE);
    let tokens = sent.values().into_iter().filter(|value| value.kind() == NatfwObject::AUTH_TOKEN);
    assert_eq!(tokens.collect::<Vec<_>>(), [NatfwValue::Token(foreign)]);
}

/// CASPMID-4.4-10: a token lives for 300 s from its stamp.
#[test]
fn an_old_token_is_refused() {
    for (made, status) in [
        (START - 295, NatfwStatus::DONE),
        (START - 305, NatfwStatus::TOKEN),
        (START + 600, NatfwStatus::TOKEN),
    ] {
        let mut rig = rig(false);
        // The rig starts ten seconds after the beginning of its time.
        rig.inject(0, 1, NatfwType::CREATE, &create(5, &[signed(token(made + 10))]));
        assert_eq!(rig.status(0), status, "{made}");
    }
}

/// CASPMID-4.4-12: a token for another destination, for fewer packets, with another signature, or of another session is
/// refused.
#[test]
fn a_token_for_something_else_is_refused() {
    let other = "192.0.2.9".parse().unwrap();
    let narrow = NatfwFilter { dst_ports: vec![(601, 601)], ..filter(3) };
    let elsewhere = NatfwFilter { dst: Prefix::host(other), ..filter(3) };
    let bound = NatfwIdentity { kind: IdentityKind::IPV4, value: &[192, 0, 2, 9] };
    for wrong in [
        signed(NatfwToken { filter: Some(narrow), ..token(START) }),
        signed(NatfwToken { filter: Some(elsewhere), ..token(START) }),
        signed(NatfwToken { dst: bound, ..token(START) }),
        NatfwToken { id: 43, ..signed(token(START)) },
        NatfwToken { algorithm: TokenAlgorithm::MD5, ..signed(token(START)) },
        cut(16),
        cut(0),
    ] {
        let mut rig = rig(false);
        rig.inject(0, 1, NatfwType::CREATE, &create(5, std::slice::from_ref(&wrong)));
        assert_eq!((rig.status(0), rig.passes(1).len()), (NatfwStatus::TOKEN, 0), "{wrong:?}");
    }
}

/// (T38) A token that was seen on its way opens nothing in another session, while its time runs and after it.
#[test]
fn a_replayed_token_opens_nothing() {
    let mut rig = rig(false);
    rig.inject(0, 1, NatfwType::CREATE, &create(5, &[signed(token(START))]));
    assert_eq!((rig.status(0), rig.passes(1).len()), (NatfwStatus::DONE, 1));
    let mut data = Vec::new();
    NatfwMessage::compose(NatfwType::CREATE, &create(6, &[signed(token(START))]), &mut data).unwrap();
    for (n, later) in [(0x71, 0), (0x72, 200), (0x73, 300)] {
        rig.wait(Duration::from_secs(later));
        let (session, flow) = (SessionId([n; 16]), flow(3));
        let before = rig.passes(1).len();
        rig.carry(Packet { session, flow, reverse: false, to: 1, from: 0, hops: 1, data: data.clone() });
        assert_eq!(rig.status(0), NatfwStatus::TOKEN, "after {later} s");
        assert!(rig.passes(1).len() <= before, "after {later} s");
    }
}

/// CASPMID-9.4-02: where the configuration demands a token, a request from outside without one is refused by code 7.
#[test]
fn a_missing_token_is_named() {
    let mut rig = rig(true);
    rig.inject(0, 1, NatfwType::CREATE, &create(5, &[]));
    assert_eq!((rig.status(0), rig.passes(1).len()), (NatfwStatus::TOKEN_REQUIRED, 0));
    rig.inject(0, 1, NatfwType::CREATE, &create(6, &[signed(token(START))]));
    assert_eq!(rig.status(0), NatfwStatus::DONE);
}

/// CASPMID-10.6-01, CASPMID-4.4-06: at the border of its scope a request is carried out and answered, and nothing leaves the network.
#[test]
fn a_request_ends_at_the_border_of_its_scope() {
    let border = |n, config| Config { border: n == 1, domain: "b.example".to_owned(), ..config };
    for scope in [NatfwValue::Scope(1, b""), NatfwValue::Scope(2, b"b.example")] {
        let mut rig = Rig::with(3, &|_| signalbox_resources::Config::default(), &border);
        let values = [NatfwValue::MsgId(5), NatfwValue::Age(1), scope, wants_response()];
        rig.inject(0, 1, NatfwType::CREATE, &values);
        assert_eq!((rig.status(0), rig.passes(1).len()), (NatfwStatus::DONE, 1));
        assert!(rig.kinds(2).is_empty(), "nothing leaves");
    }
}

/// CASPMID-10.6-05: only a node that is configured as the border is one, and only for requests from inside.
#[test]
fn only_a_configured_border_ends_a_scope() {
    let values = [NatfwValue::MsgId(5), NatfwValue::Age(1), NatfwValue::Scope(1, b""), wants_response()];
    for (border, inside) in [(false, "left"), (true, "right")] {
        let set = |_, config| Config { border, inside: vec![inside.to_owned()], ..config };
        let mut rig = Rig::with(3, &|_| super::rig::open_policy(), &set);
        rig.inject(0, 1, NatfwType::CREATE, &values);
        assert_eq!(rig.kinds(2), [NatfwType::CREATE], "it goes on");
        assert_eq!(rig.status(0), NatfwStatus::SCOPE);
    }
}

/// When refreshes fail until the rules have expired, the user loses the passage.
#[test]
fn refreshes_that_fail_end_the_passage() {
    let mut rig = Rig::standing(3, false);
    rig.deaf = Some(1);
    rig.wait(Duration::from_secs(400));
    assert_eq!(
        rig.events(0).last(),
        Some(&NatfwEvent::Lost { status: NatfwStatus::NOT_DELIVERED, node: None })
    );
}
