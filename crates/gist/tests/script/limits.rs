//! Caps and rates: what peers and applications can grow is bounded and counted.

use core::time::Duration;

use signalbox_core::SessionId;
use signalbox_core::service::SendError;
use signalbox_gist::engine::{Config, Installation};
use signalbox_gist::wire::MessageType;

use crate::rig::*;

fn number(n: u16) -> SessionId {
    let mut session = [7; 16];
    session[..2].copy_from_slice(&n.to_be_bytes());
    SessionId(session)
}

/// The table of sessions is full: the application hears it, a peer's state is not made.
#[test]
fn sessions() {
    let config =
        Config { max_sessions: 3, installation: Installation::Confirmed, dmode_rate: 0, ..Config::default() };
    let mut rig = Rig::with(config);
    for n in 0..3 {
        rig.send_with(b"data", own(), |m| m.session = number(n));
        rig.sent();
    }
    rig.send_with(b"data", own(), |m| m.session = number(3));
    assert_eq!(rig.failed(), SendError::Overload);
    rig.query(None);
    rig.quiet();
    assert_eq!((rig.gist.sessions().count(), rig.gist.counters().sessions_full), (3, 2));
    // room again
    rig.lifetime(own(), Some(number(0)), Duration::ZERO);
    rig.out.clear();
    rig.query(None);
    rig.sent().is(MessageType::RESPONSE);
}

/// The table of peers is full: no state, no half of one.
#[test]
fn peers() {
    let mut rig = Rig::with(Config { max_peers: 1, ..Config::default() });
    rig.responding();
    rig.send(b"data", own());
    assert_eq!(rig.failed(), SendError::Overload);
    assert_eq!(rig.gist.counters().peers_full, 1);
    assert_eq!(rig.gist.sessions().count(), 1);
}

/// Queues are bounded for a session and in total, in number and octets.
#[test]
fn queues() {
    let mut rig = Rig::with(Config { max_queued_session: 2, max_queued: 24, ..Config::default() });
    rig.send_with(b"8 octets", own(), |m| m.session = number(1));
    rig.sent();
    rig.send_with(b"8 octets", own(), |m| m.session = number(1));
    rig.send_with(b"8 octets", own(), |m| m.session = number(1));
    assert_eq!(rig.failed(), SendError::Overload);
    rig.send_with(b"12 octets...", own(), |m| m.session = number(2));
    assert_eq!(rig.failed(), SendError::Overload);
    rig.quiet();
    assert_eq!((rig.gist.sessions().count(), rig.gist.counters().queue_full), (1, 2));
    rig.until(100_000);
    rig.out.clear();
    rig.no_state();
    rig.send_with(b"8 octets", own(), |m| m.session = number(2));
    rig.sent().is(MessageType::QUERY);
}

/// GIST-5.3.3-19, GIST-5.3.3-22, GIST-5.3.3-23: one token bucket for Queries, Responses, Data and Errors:
/// Queries wait, Data fails with an error to the application.
#[test]
fn one_limit_for_all_our_messages() {
    let mut rig = Rig::with(Config { dmode_rate: 10, dmode_burst: 6, ..Config::default() });
    rig.established(); // Query, Confirm, Data
    rig.data_down(b"none"); // Error
    rig.sent().is(MessageType::ERROR);
    rig.query(None); // Response
    rig.sent().is(MessageType::RESPONSE);
    rig.send(b"data", own());
    rig.sent().is(MessageType::DATA);
    rig.status();
    rig.send(b"data", own());
    assert_eq!(rig.failed(), SendError::Overload);
    rig.query(None);
    rig.data_down(b"none");
    rig.send_with(b"data", own(), |m| m.session = number(1));
    rig.quiet();
    assert_eq!(rig.gist.counters().dmode_limited, 4);
    rig.until(1000);
    let (at, query) = rig.sent_at();
    assert!((100..=210).contains(&at), "{at}");
    query.is(MessageType::QUERY);
}

/// GIST-5.3.2.3-08, GIST-5.3.2.3-09, GIST-8.4-02: candidate Q-mode packets beyond the limit are discarded; messages to the
/// node itself are not candidates.
#[test]
fn interception_is_limited() {
    let mut rig = Rig::with(Config { intercept_rate: 40, ..Config::default() });
    rig.responding();
    for _ in 0..30 {
        rig.query(None);
    }
    assert_eq!(rig.gist.counters().intercept_limited, 21);
    rig.out.clear();
    rig.data_down(b"data");
    rig.delivered();
    rig.until(1000);
    rig.query(None);
    assert!(rig.out.iter().any(|(_, out)| matches!(out, Out::Sent(_))));
}

/// GIST-4.4.4-04: so many states that their Queries would take more than half of the rate: the time is
/// lengthened to 2·states/rate.
#[test]
fn validity_grows_with_the_number_of_states() {
    let mut rig =
        Rig::with(Config { dmode_rate: 10, dmode_burst: 10_000, max_sessions: 10_000, ..Config::default() });
    for n in 0..1000 {
        rig.send_with(b"", own(), |m| (m.session, m.handle) = (number(n), None));
    }
    let Some((_, Out::Sent(last))) = rig.out.pop_back() else { panic!() };
    assert_eq!(last.nli().validity_ms, 200_000);
    rig.out.clear();
    rig.query(None);
    assert_eq!(rig.sent().nli().validity_ms, 200_000);
}

/// GIST-4.4.4-02: other validity times by configuration.
#[test]
fn validity_is_configurable() {
    for seconds in [5, 300] {
        let mut rig = Rig::with(Config { validity: Duration::from_secs(seconds), ..Config::default() });
        rig.responding();
        rig.until(seconds * 1000 - 10);
        rig.session();
        rig.until(seconds * 1000 + 10);
        rig.no_state();
    }
}
