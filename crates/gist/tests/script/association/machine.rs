//! The Messaging-Association-SM (RFC 5971 §6.4), rule by rule.

use signalbox_core::Direction;
use signalbox_core::service::{MessageStatus, NetworkEvent, SendError};
use signalbox_gist::engine::{
    AssociationConfig, AssociationState, ChannelClosed, ChannelId, Config, Input, Transport,
};
use signalbox_gist::wire::{GistError, MessageType, Nli};

use super::kit::*;
use crate::rig::*;

/// No application sends in the session again: only the association is tested.
fn lasting(associations: AssociationConfig) -> Config {
    Config { validity: seconds(40_000), inactivity: seconds(40_000), associations, ..tcp_only() }
}

fn quiet_peers() -> Config {
    lasting(AssociationConfig { probe: false, ..tcp_only().associations })
}

/// Removes the session; the association stays.
fn leave(rig: &mut Rig) {
    rig.lifetime(own(), Some(SESSION), seconds(0));
}

/// An Idle association without other timers, and the time at which it became idle.
fn idle(rig: &mut Rig) -> (ChannelId, u64) {
    let channel = rig.associated();
    leave(rig);
    rig.quiet();
    assert_eq!(rig.state_of(channel), Some(AssociationState::Connected));
    rig.until(rig.ms() + 5_100);
    rig.quiet();
    assert_eq!(rig.state_of(channel), Some(AssociationState::Idle));
    (channel, rig.ms() - 100)
}

/// GIST-6.4-02, GIST-6.4-03, GIST-4.2.2-01: rules 5 and 6. Messages wait for the connection, in order.
#[test]
fn rules_5_and_6_messages_wait_for_the_connection() {
    let mut rig = Rig::with(quiet_peers());
    rig.reliably(b"one1", own());
    let query = rig.sent();
    rig.propose(&query, peer_tcp());
    let (channel, ..) = rig.opened();
    rig.notified();
    for number in 2..5_u8 {
        rig.numbered(number.into(), &[number; 4], own());
    }
    rig.quiet();
    let view = rig.held(channel).unwrap();
    assert_eq!((view.state, view.queued, view.hello_in), (AssociationState::AwaitingConnection, 5, None));
    assert!(view.queued_octets > 0 && view.closes_in.is_some());
    rig.connected(channel);
    rig.over().is(MessageType::CONFIRM);
    assert_eq!(rig.over().message().nslp_data, Some(&b"one1"[..]));
    rig.status();
    for number in 2..5_u8 {
        assert_eq!(rig.over().message().nslp_data, Some(&[number; 4][..]));
        assert_eq!(rig.status().1.0, u64::from(number));
    }
    rig.quiet();
    let view = rig.held(channel).unwrap();
    assert_eq!((view.state, view.queued, view.queued_octets), (AssociationState::Connected, 0, 0));
    assert!(view.hello_in.is_some() && view.closes_in.is_none());
}

/// GIST-6.4-05, GIST-5.4-02: rule 1 in Connected, immediately. GIST-6.4-08, GIST-6.4-18, GIST-4.4.5-02, GIST-4.4.5-10,
/// GIST-5.1-22, GIST-5.1-25, GIST-5.2.2-10, GIST-4.4.5-09: rule 4. The peer's hold time is 20 s.
#[test]
fn rules_1_and_4_hellos_fill_the_silence() {
    let mut gaps = Vec::new();
    for seed in 0..20 {
        let mut rig = Rig::seeded(quiet_peers(), Default::default(), seed);
        let channel = rig.associated();
        let mut last = rig.ms();
        for _ in 0..5 {
            rig.until(last + 15_100);
            let (at, out) = rig.next();
            let Out::Over(over) = out else { panic!("{out:?}") };
            let said = over.is(MessageType::MA_HELLO);
            let header = said.message().header;
            assert!(!header.r && header.nslp.0 == 0 && header.s);
            assert_eq!((said.channel, said.message().hello_id), (channel, Some(0)));
            rig.quiet();
            gaps.push(at - last);
            last = at;
        }
        // Data restarts the timer as well.
        rig.until(last + 9_000);
        rig.reliably(b"data", own());
        rig.over().is(MessageType::DATA);
        rig.status();
        rig.until(last + 9_000 + 9_900);
        rig.quiet();
    }
    assert!(gaps.iter().all(|gap| (10_000..=15_020).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().min() < Some(&11_000) && gaps.iter().max() > Some(&14_000), "{gaps:?}");
}

/// GIST-6.4-07, GIST-5.1-24, GIST-5.2.2-11: rule 3. A hello that requests an answer is answered with its own Hello-ID.
#[test]
fn rule_3_a_hello_that_asks_is_answered() {
    let mut rig = Rig::with(quiet_peers());
    let channel = rig.associated();
    rig.octets(channel, &hello(0, false));
    rig.octets(channel, &hello(9, false));
    rig.quiet();
    rig.until(9_000);
    rig.octets(channel, &hello(7, true));
    let reply = rig.over().is(MessageType::MA_HELLO);
    assert_eq!(reply.message().hello_id, Some(7));
    assert!(!reply.message().header.r);
    rig.until(9_000 + 9_900);
    rig.quiet(); // SendHello started again
    let mut bad = hello(1, true);
    *bad.last_mut().unwrap() = 0;
    rig.octets(channel, &bad);
    rig.over().error_is(GistError::VALUE_NOT_SUPPORTED);
}

/// GIST-6.4-09, GIST-6.4-19, GIST-6.4-13, GIST-4.4.5-01, GIST-5972-08: rules 7 and 8. No session uses the association:
/// hellos stop, and after the hold time of this node without a hello of the peer it is closed in order.
#[test]
fn rules_7_and_8_an_unused_association_is_left_and_closed() {
    let mut rig = Rig::with(quiet_peers());
    let (channel, since) = idle(&mut rig);
    assert_eq!(rig.held(channel).unwrap().hello_in, None);
    rig.until(since + 29_900);
    rig.quiet();
    rig.until(since + 30_100);
    assert_eq!(rig.closed(), (channel, false));
    rig.quiet();
    assert!(rig.held(channel).is_none());
}

/// GIST-6.4-12, GIST-4.2.2-02: rule 9. Hellos of the peer keep the association open, and are answered on request.
#[test]
fn rule_9_the_peer_keeps_what_it_wants() {
    let mut rig = Rig::with(quiet_peers());
    let (channel, since) = idle(&mut rig);
    for round in 1..6 {
        rig.until(since + round * 29_000);
        rig.octets(channel, &hello(0, false));
    }
    rig.quiet();
    rig.octets(channel, &hello(3, true));
    assert_eq!(rig.over().message().hello_id, Some(3));
    assert_eq!(rig.state_of(channel), Some(AssociationState::Idle));
    rig.until(since + 5 * 29_000 + 29_900);
    rig.quiet();
    rig.until(since + 5 * 29_000 + 30_100);
    assert_eq!(rig.closed(), (channel, false));
}

/// GIST-6.4-10: rule 1 in Idle. A new session uses the association: Connected, `NoHello` stops, hellos are sent.
#[test]
fn rule_1_traffic_of_ours_revives_an_idle_association() {
    let mut rig = Rig::with(quiet_peers());
    let (channel, _) = idle(&mut rig);
    rig.reliably_in(session(2), b"back", own());
    let query = rig.sent();
    rig.propose(&query, peer_tcp());
    rig.over().is(MessageType::CONFIRM);
    rig.over().is(MessageType::DATA);
    rig.status();
    rig.notified();
    let view = rig.held(channel).unwrap();
    assert_eq!((view.state, view.closes_in), (AssociationState::Connected, None));
    assert!(view.hello_in.is_some());
    rig.until(rig.ms() + 60_000);
    assert_eq!(rig.state_of(channel), Some(AssociationState::Connected));
}

/// GIST-6.4-11: rule 2 in Idle. Any message but a hello revives it, and hellos resume, although rule 2 does not contain
/// that.
#[test]
fn rule_2_traffic_of_the_peer_revives_an_idle_association() {
    let mut rig = Rig::with(quiet_peers());
    let (channel, _) = idle(&mut rig);
    // Explicitly routed Data needs no session, and causes no message of this node.
    let mut explicit = bare_data(own().inverted(), SESSION, b"data");
    explicit[7] |= 0x20;
    rig.octets(channel, &explicit);
    assert_eq!(rig.delivered().data, b"data");
    rig.quiet();
    let view = rig.held(channel).unwrap();
    assert_eq!((view.state, view.closes_in), (AssociationState::Connected, None));
    assert!(view.hello_in.is_some());
    // No session of this node uses it, so it becomes Idle again.
    rig.until(rig.ms() + 5_100);
    assert_eq!(rig.state_of(channel), Some(AssociationState::Idle));
}

/// GIST-6.4-06, GIST-5.5-03: rule 2 in Connected. Each type is processed by its state machine; Data as from a datagram.
#[test]
fn rule_2_data_is_delivered() {
    let mut rig = Rig::with(quiet_peers());
    let channel = rig.associated();
    rig.octets(channel, &bare_data(own().inverted(), SESSION, b"back"));
    let up = rig.delivered();
    assert_eq!((up.data.as_slice(), up.attributes, up.hops), (&b"back"[..], RELIABLE, 63));
    assert!(up.state.is_some() && up.sii.is_some() && !up.validation.unchecked_route);
}

/// GIST-6.4-04, GIST-4.3.3-13, GIST-5972-05, GIST-5.7.1-05, GIST-5.7.1-06: rule 8, `er_MAConnect`. The peer does not
/// accept connections: queued messages fail, the state is removed.
#[test]
fn rule_8_a_connection_that_fails_takes_its_session_along() {
    for reason in [ChannelClosed::Refused, ChannelClosed::TimedOut, ChannelClosed::Security] {
        let mut rig = Rig::with(quiet_peers());
        rig.reliably(b"data", own());
        let query = rig.sent();
        rig.propose(&query, peer_tcp());
        let (channel, ..) = rig.opened();
        rig.notified();
        rig.lost(channel, reason, false);
        assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Bad));
        assert!(matches!(rig.failed(), SendError::Unreached(_)));
        rig.quiet();
        rig.no_state();
        assert_eq!(rig.gist.associations().count(), 0);
        assert_eq!(rig.gist.counters().associations_not_connected, 1);
        // The configuration of the peer is removed: the next message requests it again.
        rig.reliably(b"data", own());
        assert!(rig.sent().is(MessageType::QUERY).message().stack_proposal.is_some());
    }
}

/// O18: the application ended the session in one direction while its message waited for the connection. When the connection fails, the
/// message is not kept for a later one of that session.
#[test]
fn what_waits_for_a_connection_ends_with_its_session() {
    let mut rig = Rig::with(quiet_peers());
    // The other direction keeps the record.
    rig.responding();
    rig.reliably(b"data", through());
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tcp());
    let (channel, ..) = rig.opened();
    rig.out.clear();
    rig.lifetime(through(), Some(SESSION), seconds(0));
    rig.out.clear();
    rig.lost(channel, ChannelClosed::Refused, false);
    assert!(matches!(rig.failed(), SendError::Unreached(_)));
    rig.quiet();
    rig.send(b"next", through());
    let query = rig.sent().is(MessageType::QUERY);
    rig.respond(&query);
    let out = core::mem::take(&mut rig.out);
    let data: Vec<_> = out
        .iter()
        .filter_map(|(_, out)| match out {
            Out::Sent(packet) => packet.message().nslp_data.map(<[u8]>::to_vec),
            _ => None,
        })
        .collect();
    assert_eq!(data, [b"next"]);
}

/// GIST-5.7.1-07, GIST-6.4-04: a connection that is not set up in 30 s is given up.
#[test]
fn rule_8_a_connection_has_its_time() {
    let mut rig = Rig::with(quiet_peers());
    rig.reliably(b"data", own());
    let query = rig.sent();
    rig.propose(&query, peer_tcp());
    let (channel, ..) = rig.opened();
    rig.notified();
    rig.until(29_900);
    rig.quiet();
    rig.until(30_100);
    assert_eq!(rig.closed(), (channel, true));
    assert_eq!(rig.notified().1, NetworkEvent::Bad);
    assert!(matches!(rig.failed(), SendError::Unreached(_)));
    rig.connected(channel); // too late
    rig.lost(channel, ChannelClosed::Reset, false);
    rig.no_state();
}

/// The session ends before the connection is set up, and the association ends too.
#[test]
fn a_connection_that_no_session_needs_ends() {
    let mut rig = Rig::with(quiet_peers());
    rig.reliably(b"data", own());
    let query = rig.sent();
    rig.propose(&query, peer_tcp());
    let (channel, ..) = rig.opened();
    rig.notified();
    leave(&mut rig);
    rig.until(5_100);
    assert_eq!(rig.closed(), (channel, true));
    assert_eq!(rig.failed(), SendError::NoNextNode);
    assert_eq!(rig.gist.associations().count(), 0);
}

/// GIST-4.4.5-04: a configured hold time is the advertised one, and the time for which an idle association is kept.
#[test]
fn the_hold_time_is_configurable() {
    let mut config = quiet_peers();
    config.associations.hold_time = seconds(300);
    let mut rig = Rig::with(config);
    rig.asked(SESSION, asks_tcp());
    assert_eq!(rig.sent().message().stack_configuration.unwrap().hold_time_ms, 300_000);
    let (channel, since) = idle(&mut rig);
    rig.until(since + 299_000);
    rig.quiet();
    rig.until(since + 300_100);
    assert_eq!(rig.closed(), (channel, false));
}

/// GIST-6.4-14, GIST-6.4-16, GIST-6.4-17, GIST-4.1.2-03, GIST-5.7.2-08, GIST-B.4-05, GIST-5972-03: rule 8,
/// `er_MAFailure` with three sessions, two of which sent reliably. These two are notified that messages may be lost; all
/// three send a Query.
#[test]
fn rule_8_a_lost_association_is_reported_to_all_its_sessions() {
    let mut rig = Rig::with(quiet_peers());
    let channel = rig.associated();
    for number in [2, 3] {
        let attributes = if number == 2 { RELIABLE } else { Default::default() };
        rig.send_with(b"data", own(), |m| (m.session, m.attributes) = (session(number), attributes));
        let query = rig.sent();
        rig.respond_with(&query, |m| {
            (m.stack_proposal, m.stack_configuration) = (Some(peer_tcp().0), Some(peer_tcp().1));
        });
        rig.out.clear();
    }
    assert_eq!(rig.held(channel).unwrap().sessions, 3);
    rig.octets(channel, &hello(0, false)); // no refusal
    rig.lost(channel, ChannelClosed::Reset, true);
    let (mut failures, mut queries) = (0, 0);
    while let Some((_, out)) = rig.out.pop_front() {
        match out {
            Out::Notified(Direction::Downstream, NetworkEvent::CommunicationFailure) => failures += 1,
            Out::Sent(query) => {
                assert!(query.is(MessageType::QUERY).message().stack_proposal.is_some());
                queries += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((failures, queries), (2, 3));
    assert!(rig.gist.sessions().all(|s| s.downstream.unwrap().association.is_none()));
    assert_eq!(rig.gist.counters().associations_failed, 1);
}

/// GIST-4.4.5-06: an orderly end with everything delivered is not a loss. The session requests a new association.
#[test]
fn an_orderly_end_loses_nothing() {
    let mut rig = Rig::with(quiet_peers());
    let channel = rig.associated();
    rig.octets(channel, &hello(0, false)); // no refusal
    rig.lost(channel, ChannelClosed::Orderly, false);
    let query = rig.sent().is(MessageType::QUERY);
    assert!(query.message().stack_proposal.is_some());
    rig.quiet();
    assert_eq!(rig.gist.counters().associations_closed, 1);
    rig.propose(&query, peer_tcp());
    assert_ne!(rig.opened().0, channel);
}

/// GIST-4.4.5-06, GIST-4.1.2-03: an orderly end with undelivered octets is a loss.
#[test]
fn an_orderly_end_with_unacknowledged_octets_is_a_loss() {
    let mut rig = Rig::with(quiet_peers());
    let channel = rig.associated();
    rig.lost(channel, ChannelClosed::Orderly, true);
    assert_eq!(rig.notified().1, NetworkEvent::CommunicationFailure);
}

/// GIST-6.4-15, GIST-5.1-23, GIST-4.4.5-08: a peer that is silent for the hold time of this node gets a request with a
/// Hello-ID that is not 0. The association is closed without an answer within the hold time.
#[test]
fn a_silent_peer_is_asked_and_given_up() {
    let mut rig = Rig::with(lasting(tcp_only().associations));
    let channel = rig.associated();
    let mut asked = None;
    rig.until(30_100);
    while let Some((at, out)) = rig.out.pop_front() {
        let Out::Over(over) = out else { panic!("{out:?}") };
        let over = over.is(MessageType::MA_HELLO);
        if over.message().header.r {
            asked = Some((at, over.message().hello_id.unwrap()));
        }
    }
    let (_, id) = asked.expect("a question");
    assert_ne!(id, 0);
    rig.octets(channel, &hello(id, false));
    rig.until(60_000);
    assert_eq!(rig.state_of(channel), Some(AssociationState::Connected));
    rig.out.clear();
    rig.until(90_500);
    rig.out.retain(|(_, out)| !matches!(out, Out::Over(_)));
    assert_eq!(rig.closed(), (channel, true));
    assert_eq!(rig.notified().1, NetworkEvent::CommunicationFailure);
    assert_eq!(rig.gist.counters().associations_failed, 1);
}

/// GIST-6.4-01, GIST-5.7.1-03: a channel that a peer opens waits for its Confirm for a limited time.
#[test]
fn an_accepted_channel_without_confirm_is_closed() {
    let mut rig = Rig::with(quiet_peers());
    let channel = rig.accepted(4, Transport::Tcp);
    rig.quiet();
    rig.until(29_900);
    rig.quiet();
    rig.until(30_100);
    assert_eq!(rig.closed(), (channel, true));
    assert_eq!(rig.gist.associations().count(), 0);
}

/// GIST-6.4-17, GIST-4.1.2-03: a Response over a channel that a peer opened makes a session use it, and
/// the session sends over it. Only the first Confirm names the peer: without it the channel is closed when its time is over, and what
/// was sent may be lost.
#[test]
fn a_response_does_not_replace_the_first_confirm() {
    for is_confirmed in [true, false] {
        let mut rig = Rig::with(quiet_peers());
        rig.asked(session(2), asks_tcp());
        let answer = rig.sent().is(MessageType::RESPONSE);
        let channel = rig.accepted(2, Transport::Tcp);
        rig.reliably(b"data", own());
        let query = rig.sent().is(MessageType::QUERY);
        let peer = Nli { validity_ms: 40_000_000, ..nli(b"up", UP) };
        rig.octets(channel, &response_over(&query, peer));
        rig.over().is(MessageType::CONFIRM);
        rig.over().is(MessageType::DATA);
        rig.status();
        assert!(matches!(rig.notified().1, NetworkEvent::Good(_)));
        let view = rig.held(channel).unwrap();
        assert_eq!((view.sessions, view.peer), (1, &b""[..]));
        if is_confirmed {
            let octets = first_confirm(&answer, |_| {});
            rig.octets(channel, &octets);
            assert!(matches!(rig.notified().1, NetworkEvent::Good(_)));
            let view = rig.held(channel).unwrap();
            assert_eq!((view.sessions, view.peer), (2, &b"up"[..]));
        }
        rig.until(30_100);
        rig.out.retain(|(_, out)| !matches!(out, Out::Over(over) if over.message().hello_id.is_some()));
        if is_confirmed {
            rig.quiet();
            continue;
        }
        assert_eq!(rig.closed(), (channel, true));
        assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::CommunicationFailure));
        assert!(rig.sent().is(MessageType::QUERY).message().stack_proposal.is_some());
        rig.quiet();
        assert_eq!(rig.gist.associations().count(), 0);
    }
}

/// GIST-6.4-15, GIST-4.4.5-07: an Idle association whose channel is full has messages of a session in its queue when the session moves
/// to another one. It asks its peer behind them and is Connected, so that the wait for the reply ends in any case.
#[test]
fn an_idle_association_that_asks_its_peer_is_connected() {
    for replies in [true, false] {
        let mut config = lasting(tcp_and_tls().associations);
        config.associations.probe = false;
        let mut rig = Rig::with(config);
        let (old, _) = idle(&mut rig);
        rig.handle(Input::ChannelDrained { channel: old, unsent: 300_000 });
        rig.reliably_in(session(2), b"wait", own());
        let query = rig.sent().is(MessageType::QUERY);
        rig.propose(&query, peer_tcp());
        rig.out.clear();
        assert_eq!(rig.state_of(old), Some(AssociationState::Idle));
        rig.send_with(b"safe", own(), |m| (m.attributes, m.session) = (SECURE, session(2)));
        let query = rig.sent().is(MessageType::QUERY);
        rig.propose(&query, peer_tls());
        let (new, ..) = rig.opened();
        rig.quiet();
        let view = rig.held(old).unwrap();
        assert_eq!((view.state, view.queued), (AssociationState::Connected, 3));
        rig.connected_as(new, "down.example");
        assert_eq!(rig.over().is(MessageType::CONFIRM).channel, new);
        rig.handle(Input::ChannelDrained { channel: old, unsent: 0 });
        rig.over().is(MessageType::CONFIRM);
        assert_eq!(rig.over().message().nslp_data, Some(&b"wait"[..]));
        rig.status();
        let question = rig.over().is(MessageType::MA_HELLO);
        assert!(question.message().header.r);
        rig.quiet();
        if replies {
            rig.octets(old, &hello(question.message().hello_id.unwrap(), false));
        } else {
            rig.until(rig.ms() + 30_100);
            rig.out.retain(|(_, out)| !matches!(out, Out::Over(over) if over.message().hello_id.is_some()));
            assert_eq!(rig.closed(), (old, true));
            assert_eq!(rig.notified().1, NetworkEvent::CommunicationFailure);
        }
        let data = rig.over().is(MessageType::DATA);
        assert_eq!((data.channel, data.message().nslp_data), (new, Some(&b"safe"[..])));
    }
}

/// GIST-4.2.2-02: the reply to the MA-Hello that a session waits for after it moved is a message of the peer like others. Without
/// diagnostic MA-Hellos no other one follows, and with them the next one follows a hold time later.
#[test]
fn the_reply_that_ends_a_wait_defers_the_next_question() {
    for probe in [false, true] {
        let mut rig = Rig::with(lasting(AssociationConfig { probe, ..tcp_and_tls().associations }));
        let old = rig.associated();
        // Another session keeps it in use.
        rig.reliably_in(session(2), b"data", own());
        let query = rig.sent().is(MessageType::QUERY);
        rig.propose(&query, peer_tcp());
        rig.out.clear();
        rig.send_with(b"safe", own(), |m| m.attributes = SECURE);
        let query = rig.sent().is(MessageType::QUERY);
        rig.propose(&query, peer_tls());
        let (new, ..) = rig.opened();
        let question = rig.over().is(MessageType::MA_HELLO);
        rig.connected_as(new, "down.example");
        rig.until(20_000);
        rig.octets(old, &hello(question.message().hello_id.unwrap(), false));
        let asks = |rig: &mut Rig| {
            let out = core::mem::take(&mut rig.out);
            out.iter().any(
                |(_, out)| matches!(out, Out::Over(over) if over.channel == old && over.message().header.r),
            )
        };
        rig.out.clear();
        rig.until(49_900);
        assert!(!asks(&mut rig));
        rig.until(50_100);
        assert_eq!(asks(&mut rig), probe);
    }
}

/// GIST-6.4-16, GIST-4.1.2-03: at the Responding node the state stays; messages that need an association wait for
/// the next one, others go by datagram.
#[test]
fn a_responding_node_waits_for_the_next_association() {
    let mut rig = Rig::with(quiet_peers());
    let channel = rig.responding_associated();
    rig.reliably(b"back", through().inverted());
    rig.over().is(MessageType::DATA);
    rig.status();
    rig.lost(channel, ChannelClosed::Reset, false);
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::CommunicationFailure));
    rig.quiet();
    rig.reliably(b"wait", through().inverted());
    rig.quiet();
    rig.asked(SESSION, asks_tcp());
    let response = rig.sent().is(MessageType::RESPONSE);
    let again = rig.accepted(6, Transport::Tcp);
    let octets = first_confirm(&response, |_| {});
    rig.octets(again, &octets);
    let data = rig.over().is(MessageType::DATA);
    assert_eq!((data.channel, data.message().nslp_data), (again, Some(&b"wait"[..])));
    assert!(matches!(rig.status().2, MessageStatus::Sent(_)));
}

/// Those who watch see an association when it is opened, connected, idle and gone.
#[test]
fn changes_of_an_association_are_seen_by_those_who_watch() {
    let mut rig = Rig::with(quiet_peers());
    rig.gist.association_changes().watch(true);
    let channel = rig.associated();
    let seen = |rig: &mut Rig| {
        let mut channels = Vec::new();
        while let Some(channel) = rig.gist.association_changes().take() {
            channels.push(channel);
        }
        channels
    };
    let first = seen(&mut rig);
    assert!(!first.is_empty() && first.iter().all(|one| *one == channel), "{first:?}");
    assert_eq!(rig.gist.association(channel).map(|row| row.state), Some(AssociationState::Connected));
    leave(&mut rig);
    rig.until(rig.ms() + 5_100);
    assert_eq!(seen(&mut rig), [channel], "it is idle");
    rig.lost(channel, ChannelClosed::Reset, false);
    assert_eq!((seen(&mut rig), rig.gist.association(channel).is_none()), (vec![channel], true));
}
