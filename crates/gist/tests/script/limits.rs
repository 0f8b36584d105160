//! Limits of tables and rates: the resources that peers and applications can use are bounded and counted.

use core::time::Duration;

use signalbox_core::service::{MessageStatus, SendError};
use signalbox_core::{IfIndex, SessionId};
use signalbox_gist::engine::{Config, Input, Installation, Output};
use signalbox_gist::wire::MessageType;

use crate::rig::*;

fn number(n: u16) -> SessionId {
    let mut session = [7; 16];
    session[..2].copy_from_slice(&n.to_be_bytes());
    SessionId(session)
}

/// The table of sessions is full: a request of the application fails, and a peer's Query installs no state.
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
    // The table has a free entry again.
    rig.lifetime(own(), Some(number(0)), Duration::ZERO);
    rig.out.clear();
    rig.query(None);
    rig.sent().is(MessageType::RESPONSE);
}

/// The table of peers is full: no state is created, not even a part of it.
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
/// Queries wait and leave a part to peers, Data fails with an error to the application.
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
    // A Query leaves a quarter of the burst to peers.
    assert!((200..=310).contains(&at), "{at}");
    query.is(MessageType::QUERY);
}

/// GIST-5.3.3-25: after the burst, messages of the largest size take at most 5 % of the slowest interface.
#[test]
fn the_mean_rate_is_a_small_part_of_the_slowest_interface() {
    let slowest_link = 125_000; // 1 Mbit/s
    let mut rig = Rig::with(Config { slowest_link, dmode_burst: 1, ..Config::default() });
    let mut octets = 0;
    for n in 0..100 {
        rig.send_with(b"data", own(), |m| (m.session, m.handle) = (number(n), None));
    }
    rig.until(10_000);
    let mut messages = 0;
    while let Some((_, out)) = rig.out.pop_front() {
        if let Out::Sent(packet) = out {
            messages += 1;
            octets += packet.payload.len() as u64 + 28;
        }
    }
    assert!((90..=110).contains(&messages), "{messages}");
    assert!(octets <= slowest_link * 10 / 20 + 600, "{octets}");
}

/// GIST-5.3.3-25: the rate follows the slowest interface when the node learns its speed, down and up.
#[test]
fn the_mean_rate_follows_the_speed_of_a_link() {
    let mut rig =
        Rig::with(Config { dmode_by_link: true, dmode_rate: 20, dmode_burst: 1, ..Config::default() });
    let mut number_of_session = 0;
    let mut messages_in_ten_seconds = |rig: &mut Rig| {
        for _ in 0..2000 {
            number_of_session += 1;
            rig.send_with(b"data", own(), |m| (m.session, m.handle) = (number(number_of_session), None));
        }
        rig.until(rig.now.as_micros() / 1000 + 10_000);
        rig.out.drain(..).filter(|(_, out)| matches!(out, Out::Sent(_))).count()
    };
    let unknown = messages_in_ten_seconds(&mut rig);
    assert!((190..=210).contains(&unknown), "{unknown}");
    rig.0.gist.slowest_link(rig.0.now, 125_000);
    let slow = messages_in_ten_seconds(&mut rig);
    assert!((100..=120).contains(&slow), "{slow}");
    rig.0.gist.slowest_link(rig.0.now, 1_250_000);
    let fast = messages_in_ten_seconds(&mut rig);
    assert!((1000..=1200).contains(&fast), "{fast}");
}

/// GIST-5.3.2.3-08, GIST-5.3.2.3-09, GIST-8.4-02: candidate Q-mode packets beyond the limit are discarded; messages to
/// the node itself are not candidates.
#[test]
fn interception_is_limited() {
    let mut rig = Rig::with(Config { intercept_rate: 40, ..Config::default() });
    rig.responding();
    for _ in 0..30 {
        rig.query(None);
    }
    assert_eq!(rig.gist.counters().intercept_limited, 22);
    rig.out.clear();
    rig.data_down(b"data");
    rig.delivered();
    rig.until(1000);
    rig.query(None);
    assert!(rig.out.iter().any(|(_, out)| matches!(out, Out::Sent(_))));
}

/// GIST-4.4.4-04: if the Queries of all states would take more than half of the rate, the validity time is increased to
/// 2·states/rate.
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

/// GIST-4.4.4-02: configured validity times.
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

/// GIST-8.4-04: no source has more state than its limit: neither Queries nor Confirms create more, with any identity;
/// other sources are served, and released entries are used again.
#[test]
fn sessions_of_one_source() {
    for installation in [Installation::Immediate, Installation::Confirmed, Installation::Delayed] {
        let mut rig = Rig::with(Config { max_sessions_per_source: 2, installation, ..Config::default() });
        let ask = |rig: &mut Rig, n: u16, identity: &[u8], from: &str| {
            let query = peer(identity, from).query(through(), number(n), &[7; 8]);
            rig.inject(&Via::intercepted(SRC, DST), &query);
        };
        let confirm = |rig: &mut Rig, identity: &'static [u8]| {
            let response = rig.sent().is(MessageType::RESPONSE);
            if response.message().header.r {
                rig.confirm_with(&response, |m| m.nli = Some(nli(identity, UP)));
            }
            rig.out.clear();
        };
        ask(&mut rig, 0, b"one", UP);
        confirm(&mut rig, b"one");
        // Two Queries are answered before either installs state, where a Query creates none; one of them may install
        // it.
        ask(&mut rig, 1, b"two", UP);
        let delayed = installation == Installation::Delayed;
        let first = rig.sent().is(MessageType::RESPONSE);
        ask(&mut rig, 2, b"three", UP);
        let second = delayed.then(|| rig.sent().is(MessageType::RESPONSE));
        rig.confirm_with(&first, |m| m.nli = Some(nli(b"two", UP)));
        rig.out.clear();
        if let Some(second) = second {
            rig.confirm_with(&second, |m| m.nli = Some(nli(b"three", UP)));
        }
        rig.quiet();
        assert_eq!((rig.gist.sessions().count(), rig.gist.counters().source_full), (2, 1));
        ask(&mut rig, 3, b"four", UP);
        rig.quiet();
        assert_eq!(rig.gist.counters().source_full, 2);
        // Existing states are refreshed.
        ask(&mut rig, 0, b"one", UP);
        rig.sent().is(MessageType::RESPONSE);
        rig.out.clear();
        ask(&mut rig, 4, b"other", "192.0.2.7");
        rig.sent().is(MessageType::RESPONSE);
        rig.out.clear();
        rig.until(200_000);
        rig.out.clear();
        ask(&mut rig, 5, b"five", UP);
        rig.sent().is(MessageType::RESPONSE);
    }
}

/// GIST-8.4-02: the rate of Queries with the same address for the Response is limited, from any sender; others are not
/// limited.
#[test]
fn queries_of_one_source() {
    let mut rig = Rig::with(Config { query_rate_per_source: 8, ..Config::default() });
    let ask_by = |rig: &mut Rig, from: &str, ifindex: u32| {
        let query = peer(b"up", from).query(through(), SESSION, &[7; 8]);
        rig.inject(&Via { ifindex: IfIndex(ifindex), ..Via::intercepted(SRC, DST) }, &query);
        rig.out.drain(..).count()
    };
    let ask = |rig: &mut Rig, from: &str| ask_by(rig, from, 1);
    let answered = (0..10).filter(|_| ask(&mut rig, UP) == 1).count();
    assert_eq!((answered, rig.gist.counters().queries_limited), (2, 8));
    assert_eq!(ask(&mut rig, "192.0.2.7"), 1);
    assert_eq!(
        ask_by(&mut rig, UP, 2),
        1,
        "who names an address behind another interface takes nothing of its rate"
    );
    rig.until(rig.ms() + 1_000);
    assert_eq!((0..10).filter(|_| ask(&mut rig, UP) == 1).count(), 2);
    assert_eq!(rig.gist.counters().queries_received, 6);
}

/// Forged Queries cannot use the whole rate: messages to peers pass.
#[test]
fn a_flood_of_queries_leaves_half_of_the_rate_to_peers() {
    let mut rig = Rig::with(Config { dmode_rate: 100, dmode_burst: 100, ..Config::default() });
    rig.established();
    for n in 0..1000u16 {
        let mut message = query(through(), &[7; 8]);
        message.session = Some(number(n + 100));
        rig.inject(&Via::intercepted(SRC, DST), &message);
    }
    let answers = rig.out.iter().filter(|(_, out)| matches!(out, Out::Sent(_))).count();
    assert!((1..=51).contains(&answers), "{answers}");
    rig.out.clear();
    // A quarter of the burst is for peers behind other interfaces.
    for _ in 0..20 {
        rig.send(b"data", own());
        rig.sent().is(MessageType::DATA);
        rig.status();
    }
}

/// Invented identities of one source leave places in the table of peers to other sources.
#[test]
fn peers_of_one_source() {
    let mut rig = Rig::with(Config {
        max_peers: 64,
        installation: Installation::Immediate,
        max_sessions_per_source: 0,
        dmode_rate: 0,
        ..Config::default()
    });
    let ask = |rig: &mut Rig, n: u16, from: &str| {
        let identity = n.to_be_bytes();
        let query = peer(&identity, from).query(through(), number(n), &[7; 8]);
        rig.inject(&Via::intercepted(SRC, DST), &query);
        rig.out.clear();
    };
    for n in 0..1000 {
        ask(&mut rig, n, UP);
    }
    assert_eq!(rig.gist.sessions().count(), 48, "a flood takes three quarters");
    for n in 0..16 {
        ask(&mut rig, 2000 + n, &format!("198.51.100.{}", n + 10));
    }
    assert_eq!(rig.gist.sessions().count(), 64, "each other source gets its place");
}

/// GIST-8.4-04: sessions of a few sources, each within its own limit, leave places to others.
#[test]
fn a_few_sources_leave_sessions_to_others() {
    let mut rig = Rig::with(Config {
        max_sessions: 64,
        max_sessions_per_source: 32,
        installation: Installation::Immediate,
        dmode_rate: 0,
        ..Config::default()
    });
    let ask = |rig: &mut Rig, n: u16, from: &str| {
        let query = peer(b"up", from).query(through(), number(n), &[7; 8]);
        rig.inject(&Via::intercepted(SRC, DST), &query);
        rig.out.clear();
        rig.gist.sessions().count()
    };
    for n in 0..99 {
        ask(&mut rig, n, UP);
    }
    for n in 100..199 {
        ask(&mut rig, n, "192.0.2.7");
    }
    assert_eq!(ask(&mut rig, 200, "192.0.2.7"), 48, "two sources take three quarters");
    for n in 0..16 {
        let count = ask(&mut rig, 300 + n, &format!("198.51.100.{}", n + 10));
        assert_eq!(count, 49 + usize::from(n), "each other source gets its place");
    }
}

/// A peer has many sessions to nodes that do not answer. The messages of others find room while theirs wait for a handshake.
#[test]
fn a_peer_whose_messages_wait_leaves_room_to_others() {
    let mut rig = Rig::with(Config {
        max_queued: 64 * 256,
        installation: Installation::Immediate,
        dmode_rate: 0,
        ..Config::default()
    });
    let forward = |rig: &mut Rig, n: u16, from: &str| {
        let query = peer(b"up", from).query(through(), number(n), &[7; 8]);
        rig.inject(&Via::intercepted(SRC, DST), &query);
        rig.out.clear();
        rig.send_with(&[5; 64], through(), |m| m.session = number(n));
        !rig.out.drain(..).any(|(_, out)| matches!(out, Out::Status(_, MessageStatus::Failed(_))))
    };
    assert_eq!((0..300).filter(|n| forward(&mut rig, *n, UP)).count(), 192, "three quarters of the octets");
    assert_eq!(rig.gist.counters().queue_full, 108);
    assert!(forward(&mut rig, 400, "198.51.100.9"));
    assert!(!forward(&mut rig, 401, "198.51.100.9"), "a source has its part");
    // Messages of this node have the limit alone.
    for n in 500..510 {
        rig.send_with(&[5; 64], own(), |m| m.session = number(n));
        rig.sent().is(MessageType::QUERY);
    }
    // What has waited long enough gives its room back.
    rig.until(200_000);
    rig.out.clear();
    assert_eq!((600..900).filter(|n| forward(&mut rig, *n, UP)).count(), 192);
}

/// Other limits while the node runs: what stands stays, and what is new finds the limits of its time.
#[test]
fn limits_change_while_the_node_runs() {
    let config = Config {
        max_sessions: 20,
        max_sessions_per_source: 0,
        installation: Installation::Immediate,
        dmode_rate: 0,
        ..Config::default()
    };
    let mut rig = Rig::with(config.clone());
    let ask = |rig: &mut Rig, n: u16| {
        let mut message = query(through(), &[7; 8]);
        message.session = Some(number(n));
        rig.inject(&Via::intercepted(SRC, DST), &message);
        let answers = rig.out.drain(..).filter(|(_, out)| matches!(out, Out::Sent(_))).count();
        (rig.gist.sessions().count(), answers)
    };
    (0..20).for_each(|n| assert_eq!(ask(&mut rig, n), (usize::from(n) + 1, 1)));
    let limit = |rig: &mut Rig, config: &Config| rig.0.gist.set_limits(rig.0.now, config).unwrap();
    limit(&mut rig, &Config { max_sessions: 10, ..config.clone() });
    assert_eq!(ask(&mut rig, 20).0, 20, "no session is dropped, and no session is new");
    limit(&mut rig, &Config { max_sessions: 22, ..config.clone() });
    assert_eq!((21..30).map(|n| ask(&mut rig, n).0).max(), Some(22));
    limit(&mut rig, &Config { max_sessions: 100, dmode_rate: 1, dmode_burst: 8, ..config.clone() });
    let answers: usize = (30..60).map(|n| ask(&mut rig, n).1).sum();
    assert_eq!(answers, 4, "half of the burst is for answers to strangers");
    limit(&mut rig, &Config { max_sessions: 100, dmode_rate: 0, ..config.clone() });
    assert_eq!((60..80).map(|n| ask(&mut rig, n).1).sum::<usize>(), 20);
    let wrong = Config { max_sessions: 0, ..config };
    assert!(rig.0.gist.set_limits(rig.0.now, &wrong).is_err());
    assert_eq!(rig.gist.config().max_sessions, 100);
}

/// A reload gives no source its burst once more.
#[test]
fn a_reload_gives_back_no_rate_that_was_used() {
    let config = Config { query_rate_per_source: 40, ..Config::default() };
    let mut rig = Rig::with(config.clone());
    let answered = |rig: &mut Rig| {
        let ask = |_: &u16| {
            rig.inject(&Via::intercepted(SRC, DST), &query(through(), &[7; 8]));
            rig.out.drain(..).count() == 1
        };
        (0..30).filter(ask).count()
    };
    assert_eq!(answered(&mut rig), 10);
    for rate in [40, 80, 400, 40] {
        let new = Config { query_rate_per_source: rate, ..config.clone() };
        rig.0.gist.set_limits(rig.0.now, &new).unwrap();
        assert_eq!(answered(&mut rig), 0, "{rate}");
    }
}

/// Forged messages by one interface use up the rates of answers, of Errors and of interception. What comes in by another interface has
/// its part, and so have Errors to a peer on the same link, which learns by them that this node has lost its state.
#[test]
fn forged_messages_leave_answers_to_other_interfaces_and_peers() {
    let by = |ifindex: u32, via: Via| Via { ifindex: IfIndex(ifindex), ..via };
    let mut rig = Rig::with(Config { dmode_rate: 100, dmode_burst: 100, ..Config::default() });
    let ask = |rig: &mut Rig, n: u16, ifindex: u32| {
        let mut message = query(through(), &[7; 8]);
        message.session = Some(number(n));
        rig.out.clear();
        rig.inject(&by(ifindex, Via::intercepted(SRC, DST)), &message);
        rig.out.iter().any(|(_, out)| matches!(out, Out::Sent(_)))
    };
    let answered = (0..1000).filter(|n| ask(&mut rig, *n, 1)).count();
    assert!((36..=40).contains(&answered), "{answered}");
    assert!(ask(&mut rig, 2000, 2) && !ask(&mut rig, 2001, 1));

    let mut rig = Rig::with(Config { intercept_rate: 40, ..Config::default() });
    let taken = (0..100).filter(|n| ask(&mut rig, *n, 1)).count();
    assert_eq!((taken, rig.gist.counters().intercept_limited), (9, 91));
    assert!(ask(&mut rig, 2000, 2) && !ask(&mut rig, 2001, 1));

    let mut rig = Rig::new();
    rig.responding();
    let stray = |rig: &mut Rig, n: u16, from: &str, ifindex: u32| {
        let mut message = data(through(), nli(b"any", from), b"data");
        message.session = Some(number(n));
        rig.out.clear();
        rig.inject(&by(ifindex, Via::direct(from, LEFT)), &message);
        rig.out.iter().any(|(_, out)| matches!(out, Out::Sent(_)))
    };
    let answered = (0..200).filter(|n| stray(&mut rig, *n, &format!("198.51.100.{n}"), 1)).count();
    assert!((18..=20).contains(&answered), "{answered}");
    assert!(!stray(&mut rig, 300, "198.51.100.222", 1), "another stranger on the link");
    assert!(stray(&mut rig, 301, UP, 1), "a peer on the link");
    assert!(stray(&mut rig, 302, "198.51.100.223", 2), "a stranger behind another interface");
}

/// Many sessions have their timers at one moment. A timer input handles a part of them, another input fewer, and the rest stays due.
#[test]
fn timers_that_are_due_together_are_handled_in_parts() {
    const SESSIONS: u16 = 1000;
    let mut rig = Rig::with(Config { dmode_rate: 0, ..Config::default() });
    for n in 0..SESSIONS {
        rig.send_with(b"data", own(), |m| (m.session, m.handle) = (number(n), None));
    }
    rig.out.clear();
    let later = rig.now + Duration::from_secs(1);
    let mut sent_because_of = |input: Input<'_>| {
        rig.gist.handle(later, input);
        let mut sent = 0;
        while let Some(output) = rig.gist.poll() {
            sent += usize::from(matches!(output, Output::Transmit(_)));
        }
        (sent, rig.gist.next_deadline().is_some_and(|next| next <= later))
    };
    let (sent, more) = sent_because_of(Input::Blocked { nslp: NSLP, blocked: false });
    assert!((1..=16).contains(&sent) && more, "{sent} Queries beside another input");
    let mut all = sent;
    for turn in 0.. {
        let (sent, more) = sent_because_of(Input::Timer);
        assert!(sent <= 256, "{sent} Queries in turn {turn}");
        all += sent;
        if !more {
            break;
        }
    }
    assert_eq!(all, usize::from(SESSIONS));
}
