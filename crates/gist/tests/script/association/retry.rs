//! The retry delay after an association that failed before a message of the peer was received.

use signalbox_core::Direction;
use signalbox_core::service::{MessageStatus, NetworkEvent, SendError};
use signalbox_gist::apd::{Apd, Verdict};
use signalbox_gist::engine::{ChannelClosed, ChannelId, Config, RoutingState, Transport};
use signalbox_gist::wire::MessageType;

use super::kit::*;
use crate::rig::*;

/// Settings without refreshes during the test.
fn lasting() -> Config {
    let mut config = Config { inactivity: seconds(40_000), ..tcp_and_tls() };
    config.associations.always = true;
    config
}

/// Fails an association as a TLS 1.3 client sees it whose server refuses it: connected, and then closed.
fn refused(rig: &mut Rig, query: &Packet) -> ChannelId {
    rig.propose(query, peer_tls());
    let (channel, ..) = rig.opened();
    rig.out.clear();
    rig.connected_as(channel, "down");
    rig.over().is(MessageType::CONFIRM);
    rig.out.clear();
    rig.lost(channel, ChannelClosed::Security, true);
    channel
}

/// The next Query, and the time at which it is sent.
fn next_query(rig: &mut Rig) -> (u64, Packet) {
    while rig.out.is_empty() {
        rig.until(rig.ms() + 20);
        assert!(rig.ms() < 1_000_000);
    }
    let (at, query) = rig.sent_at();
    rig.quiet();
    (at, query.is(MessageType::QUERY))
}

/// The attempts of one session: each delay is twice the one before, plus a random part of up to a quarter.
#[test]
fn each_refusal_doubles_the_wait() {
    let mut rig = Rig::with(lasting());
    rig.send(b"data", own());
    let mut query = rig.sent().is(MessageType::QUERY);
    let mut at = rig.ms();
    for wait in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
        refused(&mut rig, &query);
        rig.out.clear(); // the status of the lost messages
        let next;
        (next, query) = next_query(&mut rig);
        assert!((wait..=wait * 5 / 4 + 20).contains(&(next - at)), "{} after {wait}", next - at);
        // The rig may be slightly late, and the next attempt begins now.
        at = rig.ms();
    }
    let counters = rig.gist.counters();
    assert_eq!((counters.associations_opened, counters.associations_failed), (8, 8));
    assert_eq!(counters.associations_waiting, 8);
}

/// Messages during the delay fail at once, without a Query.
#[test]
fn messages_fail_while_their_peer_waits() {
    let mut rig = Rig::with(lasting());
    rig.send(b"data", own());
    let query = rig.sent();
    refused(&mut rig, &query);
    rig.out.clear();
    rig.reliably(b"more", own());
    assert!(matches!(rig.failed(), SendError::Unreached(_)));
    rig.send(b"more", own());
    assert!(matches!(rig.failed(), SendError::Unreached(_)));
    rig.quiet();
}

/// Another session detects its peer by its Query, and opens no association; a session that requests no association
/// continues.
#[test]
fn other_sessions_with_the_peer_wait_too_unless_a_datagram_will_do() {
    let mut rig = Rig::with(tcp_and_tls());
    rig.reliably(b"data", own());
    let query = rig.sent();
    refused(&mut rig, &query);
    rig.out.clear();

    rig.reliably_in(session(2), b"more", own());
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tls());
    assert!(matches!(rig.failed(), SendError::Unreached(_)));
    rig.quiet();
    assert_eq!(rig.gist.associations().count(), 0);

    rig.send_with(b"data", own(), |m| m.session = session(3));
    let query = rig.sent().is(MessageType::QUERY);
    assert!(query.message().stack_proposal.is_none());
    rig.respond(&query);
    rig.sent().is(MessageType::CONFIRM);
    rig.sent().is(MessageType::DATA);
}

/// A refused connection counts as a failure, and so does a peer that the database refuses.
#[test]
fn all_attempts_that_come_to_nothing_count() {
    for not_authorised in [false, true] {
        let mut config = tcp_and_tls();
        config.associations.authorised = Apd::new(8, Verdict::Deny);
        let mut rig = Rig::with(config);
        for opens in [true, false] {
            rig.reliably(b"data", own());
            let query = rig.sent().is(MessageType::QUERY);
            rig.propose(&query, peer_tls());
            assert_eq!(rig.gist.associations().count(), usize::from(opens));
            if opens {
                let (channel, ..) = rig.opened();
                if not_authorised {
                    rig.connected_as(channel, "down");
                } else {
                    rig.lost(channel, ChannelClosed::Refused, false);
                }
            }
            rig.no_state();
            rig.out.clear();
        }
        // With another database all peers are authorised again.
        rig.handle(signalbox_gist::engine::Input::AuthorisedPeers(&Apd::new(8, Verdict::Allow)));
        rig.reliably(b"data", own());
        let query = rig.sent();
        rig.propose(&query, peer_tls());
        rig.opened();
    }
}

/// The first message of the peer clears its failures: a later loss of its association is repaired at once.
#[test]
fn a_peer_that_speaks_does_not_wait() {
    let mut rig = Rig::with(tcp_only());
    rig.reliably(b"data", own());
    let query = rig.sent();
    rig.propose(&query, peer_tcp());
    let (channel, ..) = rig.opened();
    rig.lost(channel, ChannelClosed::Refused, false);
    rig.out.clear();
    rig.until(1_100);
    let channel = rig.associated();
    rig.octets(channel, &hello(0, false));
    rig.lost(channel, ChannelClosed::Reset, false);
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::CommunicationFailure));
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tcp());
    rig.opened();
    assert_eq!(rig.gist.counters().associations_waiting, 0);
}

/// An association that lasted longer than its retry delay was not refused.
#[test]
fn what_stood_for_a_while_is_asked_for_at_once() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.until(3_000);
    rig.out.clear();
    rig.lost(channel, ChannelClosed::Reset, false);
    rig.notified();
    rig.sent().is(MessageType::QUERY);
}

/// Without a retry delay, or with a full table, an attempt is made at once; the latter is counted.
#[test]
fn the_waits_are_bounded_and_can_be_off() {
    for (first, max, uncounted) in [(0, 8, 0), (1, 0, 1)] {
        let mut config = tcp_only();
        config.associations.retry_min = seconds(first);
        config.associations.max_waits = max;
        let mut rig = Rig::with(config);
        let channel = rig.associated();
        rig.lost(channel, ChannelClosed::Reset, false);
        rig.notified();
        rig.sent().is(MessageType::QUERY);
        assert_eq!(rig.gist.counters().waits_full, uncounted);
    }
}

/// P02: a port that is filtered, or closed: the next profile that the peer offers is used, with the messages that waited.
/// GIST-5.7.1-05.
#[test]
fn the_next_profile_is_used_when_one_fails() {
    for (closed, wait) in [(ChannelClosed::Refused, 0), (ChannelClosed::TimedOut, 5_000)] {
        let mut rig = Rig::with(tcp_and_tls());
        rig.reliably(b"data", own());
        let query = rig.sent().is(MessageType::QUERY);
        rig.propose(&query, peer_both());
        let (channel, transport, ..) = rig.opened();
        assert_eq!(transport, Transport::TlsTcp);
        rig.notified();
        rig.reliably(b"more", own());
        rig.until(wait);
        rig.lost(channel, closed, false);
        let query = rig.sent().is(MessageType::QUERY);
        rig.quiet();
        rig.propose(&query, peer_both());
        let (channel, transport, ..) = rig.opened();
        assert_eq!(transport, Transport::Tcp);
        rig.notified();
        rig.connected(channel);
        rig.over().is(MessageType::CONFIRM);
        for data in [b"data", b"more"] {
            assert_eq!(rig.over().is(MessageType::DATA).message().nslp_data, Some(&data[..]));
            assert!(matches!(rig.status().2, MessageStatus::Sent(_)));
        }
        rig.quiet();
    }
}

/// P02: no transport of the peer can be reached. Messages that only prefer an association are sent as datagrams, and so are
/// those of later sessions at once; messages that need one fail.
#[test]
fn datagrams_are_used_when_no_transport_works() {
    let mut config = tcp_only();
    config.associations.always = true;
    let mut rig = Rig::with(config);
    rig.send(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tcp());
    let (channel, ..) = rig.opened();
    rig.notified();
    rig.until(5_000);
    rig.lost(channel, ChannelClosed::TimedOut, false);
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tcp());
    let confirm = rig.sent().is(MessageType::CONFIRM);
    assert!(confirm.message().stack_proposal.is_none());
    assert_eq!(rig.sent().is(MessageType::DATA).message().nslp_data, Some(&b"data"[..]));
    rig.out.clear();

    rig.until(30_000);
    rig.send_with(b"next", own(), |m| m.session = session(2));
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tcp());
    rig.sent().is(MessageType::CONFIRM);
    rig.sent().is(MessageType::DATA);
    rig.out.clear();
    // A message that needs an association is worth an attempt.
    rig.reliably_in(session(3), b"firm", own());
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tcp());
    rig.opened();
}

/// P13: a peer that answers, but whose port is filtered: messages fail with the transports that were tried. A message makes
/// the next attempt, two seconds after one that ended, and instead of one that has had no answer for seven seconds.
#[test]
fn a_new_message_soon_makes_a_new_attempt() {
    let filtered = SendError::Unreached(Transport::Tcp.into());
    let mut rig = Rig::with(tcp_only());
    let ask = |rig: &mut Rig, number| {
        rig.out.clear();
        rig.reliably_in(session(number), b"data", own());
        let query = rig.sent().is(MessageType::QUERY);
        rig.propose(&query, peer_tcp());
    };
    ask(&mut rig, 2);
    let (first, ..) = rig.opened();
    rig.until(6_900);
    ask(&mut rig, 3);
    assert_eq!(rig.gist.associations().next().unwrap().channel, first, "it shares the attempt");
    rig.until(7_100);
    ask(&mut rig, 4);
    assert_eq!(rig.gist.associations().count(), 1);
    let second = rig.gist.associations().next().unwrap().channel;
    assert_ne!(second, first);
    rig.out.clear();
    rig.lost(second, ChannelClosed::TimedOut, false);
    rig.notified();
    assert_eq!(rig.failed(), filtered);
    let shown: Vec<_> = rig.gist.peers().map(|peer| peer.unreached.to_string()).collect();
    assert!(shown.iter().all(|by| by == "tcp"), "{shown:?}");
    rig.until(9_000);
    ask(&mut rig, 5);
    assert_eq!(rig.failed(), filtered, "less than two seconds later");
    rig.until(9_200);
    ask(&mut rig, 6);
    let (third, ..) = rig.opened();
    rig.notified();
    rig.connected(third);
    rig.over().is(MessageType::CONFIRM);
    rig.over().is(MessageType::DATA);
}

/// P02: messages that need no association do not wait for a filtered port each minute: the attempts become rarer. A message
/// that needs one causes an attempt after a minute.
#[test]
fn a_filtered_port_is_tried_more_and_more_seldom() {
    let mut config = Config { inactivity: seconds(40_000), ..tcp_only() };
    config.associations.always = true;
    let mut rig = Rig::with(config);
    let mut attempts = Vec::new();
    for minute in 0..130_u64 {
        rig.until(minute * 60_000 + 1000 * minute);
        rig.out.clear();
        let number = u8::try_from(minute).unwrap();
        rig.send_with(b"data", own(), |m| m.session = session(number));
        let query = rig.sent().is(MessageType::QUERY);
        rig.propose(&query, peer_tcp());
        if let Some((_, Out::Opened(channel, ..))) = rig.out.pop_front() {
            attempts.push(minute);
            rig.until(rig.ms() + 5_000);
            rig.lost(channel, ChannelClosed::TimedOut, false);
        }
    }
    assert_eq!(attempts, [0, 2, 5, 10, 18, 34, 66]);
    rig.out.clear();
    rig.reliably_in(session(200), b"firm", own());
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tcp());
    rig.opened();
}

/// P13 at a relay: a peer that has no Confirm repeats its Response, and the attempt to reach its port has had no answer for
/// seven seconds. The state ends with the attempt, and this Response does not install it again.
#[test]
fn a_repeated_response_does_not_bring_back_state_that_ended() {
    let mut rig = Rig::with(tcp_only());
    rig.responding();
    rig.reliably(b"data", through());
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tcp());
    let (channel, ..) = rig.opened();
    rig.notified();
    rig.until(7_100);
    rig.quiet();
    rig.propose(&query, peer_tcp());
    assert_eq!(rig.closed(), (channel, true));
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Bad));
    assert_eq!(rig.failed(), SendError::Unreached(Transport::Tcp.into()));
    rig.quiet();
    assert_eq!(rig.states(), (None, Some(RoutingState::Established)));
}

/// A session moves to a port that does not answer. When its former association is drained, its first message ends the session,
/// and those behind it are reported too.
#[test]
fn messages_behind_one_that_ends_its_session_fail_with_it() {
    let mut rig = Rig::with(tcp_and_tls());
    let old = rig.associated();
    rig.send_with(b"safe", own(), |m| m.attributes = SECURE);
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tls());
    let (new, ..) = rig.opened();
    let question = rig.over().is(MessageType::MA_HELLO);
    rig.reliably(b"next", own());
    rig.until(7_100);
    rig.out.clear();
    rig.octets(old, &hello(question.message().hello_id.unwrap(), false));
    assert_eq!(rig.closed(), (new, true));
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Bad));
    for _ in [b"safe", b"next"] {
        assert_eq!(rig.failed(), SendError::Unreached(Transport::TlsTcp.into()));
    }
    rig.quiet();
    rig.no_state();
}
