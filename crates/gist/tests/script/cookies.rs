//! Cookies (RFC 5971 §8.5).

use core::time::Duration;
use std::collections::HashSet;

use signalbox_core::SessionId;
use signalbox_gist::engine::{Config, Installation, PeeringPolicy, RoutingState};
use signalbox_gist::wire::{
    GistError, List, MaOptions, MaProtocolId, MessageType, Profile, StackConfiguration, StackProposal,
};

use crate::rig::*;

/// GIST-8.5-01, GIST-8.5-02: every Query has another cookie, over retransmissions, sessions and nodes, and no
/// two differ in a number only.
#[test]
fn query_cookies_are_unique() {
    let mut seen = HashSet::new();
    let mut tails = HashSet::new();
    for seed in 1..5 {
        let mut rig = Rig::seeded(Config::default(), PeeringPolicy::Always, seed);
        for number in 0..50 {
            rig.send_with(b"data", own(), |m| m.session = SessionId([number; 16]));
        }
        rig.until(3500);
        while let Some((_, out)) = rig.out.pop_front() {
            if let Out::Sent(packet) = out {
                let cookie = packet.cookie();
                assert!(cookie.len() >= 8);
                tails.insert(cookie[4..].to_vec());
                seen.insert(cookie);
            }
        }
    }
    assert_eq!((seen.len(), tails.len()), (4 * 50 * 4, 4 * 50 * 4));
}

/// GIST-8.5-01, GIST-5.3.3-18: the cookie of an earlier handshake of the session is not valid.
#[test]
fn query_cookies_do_not_outlive_the_handshake() {
    let mut rig = Rig::new();
    let (query, _) = rig.established();
    rig.lifetime(own(), Some(SESSION), Duration::ZERO);
    rig.send(b"data", own());
    rig.out.clear();
    rig.respond(&query);
    rig.quiet();
    assert_eq!(rig.states().0, Some(RoutingState::AwaitingResponse));
    assert_eq!(rig.gist.counters().cookies_invalid, 1);
}

/// GIST-8.5-03, GIST-8.5-04, GIST-8.5-06, GIST-8.5-09, GIST-5.7.1-15, GIST-4.4.6-03: the Responder-Cookie is bound to
/// peer identity, address, flow, application and session, and to the secret. If any of them or any octet of the cookie
/// changes, there is neither an answer nor state.
#[test]
fn responder_cookies_are_bound() {
    let mut rig = Rig::new();
    rig.query(None);
    let response = rig.sent();
    let cookie = response.message().responder_cookie.unwrap().to_vec();
    rig.confirm_with(&response, |m| m.nli = Some(nli(b"uq", UP)));
    rig.inject(&Via::direct("10.1.0.3", LEFT), &peer(b"up", "10.1.0.3").confirm(&response.message()));
    rig.confirm_with(&response, |m| m.mri = Some(flow(SRC, "10.9.0.10").into()));
    rig.confirm_with(&response, |m| m.mri = Some(through().inverted().into()));
    rig.confirm_with(&response, |m| m.session = Some(SessionId([1; 16])));
    for at in 0..cookie.len() {
        let mut bent = cookie.clone();
        bent[at] ^= 1;
        rig.confirm_with(&response, |m| {
            m.responder_cookie = Some(Box::leak(bent.into_boxed_slice()));
        });
    }
    rig.confirm_with(&response, |m| m.responder_cookie = Some(&[]));
    rig.quiet();
    rig.no_state();
    let bad = u64::try_from(cookie.len()).unwrap() + 6;
    assert_eq!(rig.gist.counters().cookies_invalid, bad);
    let mut stranger = Rig::seeded(Config::default(), PeeringPolicy::Always, 2);
    stranger.confirm(&response);
    stranger.quiet();
    stranger.no_state();
    rig.confirm(&response);
    assert_eq!(rig.states(), (None, Some(RoutingState::Established)));
}

/// GIST-8.5-05: a cookie is valid for one period of the secret at least and for two at most.
#[test]
fn responder_cookies_age() {
    for (asked, confirmed, good) in [
        (10_000, 10_100, true),
        (59_000, 61_000, true),
        (59_000, 119_000, true),
        (59_000, 120_000, false),
        (61_000, 240_000, false),
    ] {
        let mut rig = Rig::new();
        rig.until(asked);
        rig.query(None);
        let response = rig.sent();
        rig.until(confirmed);
        rig.confirm(&response);
        assert_eq!(rig.gist.sessions().count() == 1, good, "{asked} {confirmed}");
    }
}

/// GIST-8.5-05: the liveness data changes with the secret and does not count up.
#[test]
fn liveness_data_is_not_a_counter() {
    let mut rig = Rig::new();
    let mut seen = Vec::new();
    for minute in 0..20 {
        rig.until(minute * 60_000);
        rig.query(None);
        let response = rig.sent();
        let cookie = response.message().responder_cookie.unwrap();
        seen.push(u32::from_be_bytes([cookie[0], cookie[1], cookie[2], cookie[3]]));
    }
    for pair in seen.windows(2) {
        assert!(pair[1].wrapping_sub(pair[0]) > 1000 && pair[0].wrapping_sub(pair[1]) > 1000);
    }
}

/// GIST-A.4.4.10-06, GIST-8.5-07, GIST-8.5-09: with the option for debugging, and only with it, bad cookies are answered.
#[test]
fn cookie_errors_are_an_option() {
    let mut rig = Rig::with(Config { cookie_errors: true, ..Config::default() });
    rig.query(None);
    let response = rig.sent();
    rig.confirm_with(&response, |m| m.responder_cookie = Some(&[1; 24]));
    rig.sent().error_is(GistError::INVALID_COOKIE);
    rig.send(b"data", own());
    let query = rig.sent();
    rig.respond_with(&query, |m| m.query_cookie = Some(&[1; 16]));
    rig.sent().error_is(GistError::INVALID_COOKIE);
}

/// GIST-5.7.1-16: a Confirm with an invalid cookie in Awaiting Confirm removes the state.
#[test]
fn a_bad_confirm_removes_the_state() {
    for established in [false, true] {
        let mut rig = Rig::with(Config { installation: Installation::Confirmed, ..Config::default() });
        let response = if established {
            rig.responding();
            rig.query_numbered(2, None);
            rig.sent()
        } else {
            rig.query(None);
            rig.sent()
        };
        rig.confirm_with(&response, |m| m.responder_cookie = Some(&[1; 24]));
        rig.no_state();
    }
}

/// Octets of an IPv4 packet with this UDP payload.
const fn packet(payload: usize) -> usize {
    20 + 8 + payload
}

/// GIST-8.4-01: a peer without a verified address gets one Response to a Query, at most 1.5 times as large, even for
/// the smallest possible Query and the node offers all transports.
#[test]
fn responses_do_not_amplify() {
    let mut worst = 0.0_f64;
    for all in [false, true] {
        let mut config = Config { identity: vec![7; 16], ..Config::default() };
        if all {
            config.associations.tcp_port = Some(270);
            config.associations.tls_port = Some(271);
            config.associations.sctp_port = Some(270);
        }
        let mut rig = Rig::with(config);
        for asks in [false, true] {
            let mut message = query(through(), &[1; 4]);
            message.nli = Some(nli(b"1234", UP));
            let profiles = [Profile(&[1])];
            let mut tools = None;
            if asks {
                message.stack_proposal = Some(StackProposal { profiles: List::of(&profiles) });
                let tcp = MaOptions { protocol: MaProtocolId(1), profile: 0, disabled: false, data: &[] };
                let options = List::of(core::slice::from_ref(tools.insert(tcp)));
                message.stack_configuration = Some(StackConfiguration { hold_time_ms: 30_000, options });
            }
            let received = packet(4 + encode(&message).len()); // and the Router Alert
            rig.inject(&Via::intercepted(SRC, DST), &message);
            let sent = packet(rig.sent().is(MessageType::RESPONSE).payload.len());
            #[expect(clippy::cast_precision_loss, reason = "a few hundred octets")]
            let factor = sent as f64 / received as f64;
            worst = worst.max(factor);
            rig.until(rig.now.as_micros() / 1000 + 60_000);
            rig.quiet(); // nothing is sent again
        }
    }
    assert!(worst <= 1.5, "{worst}");
    rig_with_errors();
}

/// Errors in answer to a peer without a verified address: at most 2.5 times the size of its packet, and one hundred a
/// second at most (with a burst of a quarter of that).
fn rig_with_errors() {
    let mut rig = Rig::with(Config { identity: vec![7; 16], ..Config::default() });
    let mut worst = 0.0_f64;
    for n in 0..10_000_u64 {
        rig.until(n / 10);
        let mut message = data(through(), nli(b"1234", UP), b"");
        message.nslp_data = Some(b"data");
        let mut octets = encode(&message);
        match n % 4 {
            0 => {}
            1 => octets.truncate(12), // a header that announces more octets than there are
            2 => octets[5] = 0,       // no hops left
            _ => octets[4] = 9,       // another version
        }
        rig.packet(&Via::direct(UP, LEFT), &octets);
        while let Some((_, out)) = rig.out.pop_front() {
            let Out::Sent(error) = out else { continue };
            #[expect(clippy::cast_precision_loss, reason = "a few hundred octets")]
            let factor = packet(error.payload.len()) as f64 / packet(octets.len()) as f64;
            worst = worst.max(factor);
        }
    }
    let sent = rig.gist.counters().errors_sent;
    assert!((100..=126).contains(&sent), "{sent}");
    assert!(worst <= 2.5, "{worst}");
}
