//! Messages over associations: read from streams, queued, delayed, refused (RFC 5971 §4.1, §4.3, §5.4).

use signalbox_core::Direction;
use signalbox_core::service::{MessageStatus, NetworkEvent, SendError};
use signalbox_gist::engine::{AssociationState, Config, Input, Transport};
use signalbox_gist::wire::{Encapsulation, GistError, Message, MessageType, Nli};

use super::kit::*;
use crate::rig::*;

/// The largest payload: 12 bits of words.
const MOST: usize = 16_380;

fn back(data: &[u8]) -> Vec<u8> {
    bare_data(own().inverted(), SESSION, data)
}

/// GIST-4.3.1-01, GIST-5.4-01: messages arrive complete and in order for any division of the stream.
#[test]
fn messages_are_cut_out_of_the_stream() {
    let stream: Vec<u8> = [back(b"one1"), back(b"two2two2"), hello(0, false), back(b"")].concat();
    for size in [1, 2, 3, 5, 7, 8, 9, 64, 65, 1000] {
        let mut rig = Rig::with(tcp_only());
        let channel = rig.associated();
        for piece in stream.chunks(size) {
            rig.octets(channel, piece);
        }
        for expected in [&b"one1"[..], b"two2two2", b""] {
            assert_eq!(rig.delivered().data, expected);
        }
        rig.quiet();
        assert_eq!(rig.gist.counters().hellos_received, 1);
    }
}

/// The length of a message of an unsupported version has no meaning: an Error is sent and the association is closed.
/// GIST-5.6-08.
#[test]
fn a_bad_header_ends_the_association() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    let mut bad = back(b"data");
    bad[0] = 2;
    rig.octets(channel, &[back(b"good"), bad, back(b"late")].concat());
    assert_eq!(rig.delivered().data, b"good");
    rig.over().error_is(GistError::UNKNOWN_VERSION);
    assert_eq!(rig.closed(), (channel, false));
    assert_eq!(rig.notified().1, NetworkEvent::CommunicationFailure);
    assert_eq!(rig.gist.associations().count(), 0);
}

/// GIST-5.6-08, GIST-4.3.4-03, GIST-4.3.1-08: an Error about one message is sent over the association, and the next
/// message is read.
#[test]
fn a_bad_message_is_refused_over_its_association() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    let good = back(b"data");
    let with = |at: usize, value: u8| {
        let mut octets = good.clone();
        octets[at] = value;
        octets
    };
    for (octets, error) in [
        (with(6, 77), GistError::UNKNOWN_TYPE),
        (with(1, 0), GistError::HOP_LIMIT_EXCEEDED),
        (with(4, 99), GistError::UNKNOWN_NSLPID),
        (with(7, 0xa0 | 0x40), GistError::INVALID_R_FLAG),
        (with(8, 0xc0), GistError::INVALID_EXTENSIBILITY_FLAGS),
    ] {
        rig.octets(channel, &octets);
        let over = rig.over();
        assert_eq!(over.channel, channel);
        let said = over.error_is(error);
        assert!(said.message().nli.is_none() && !said.message().error.unwrap().d_mode);
        rig.quiet();
    }
    rig.octets(channel, &good);
    assert_eq!(rig.delivered().data, b"data");
}

/// GIST-4.3.2-11, GIST-4.3.2-13, GIST-A.4.4.4-01: Data of a session that does not use the association; E=1 is checked first.
/// GIST-4.4.6-06: Data without a session, as after a restart of this node, is answered with "No Routing State", so that the
/// peer queries again.
#[test]
fn messages_belong_to_their_association() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.octets(channel, &bare_data(own().inverted(), session(9), b"data"));
    rig.over().error_is(GistError::NO_ROUTING_STATE);
    // A session of this node in datagram mode.
    rig.send_with(b"data", own(), |m| m.session = session(2));
    let query = rig.sent();
    rig.respond(&query);
    rig.out.clear();
    rig.octets(channel, &bare_data(own().inverted(), session(2), b"data"));
    rig.over().error_is(GistError::INCORRECTLY_DELIVERED);
    let mut explicit = bare_data(own().inverted(), session(2), b"data");
    explicit[7] |= 0x20;
    rig.octets(channel, &explicit);
    let up = rig.delivered();
    assert!(up.validation.unchecked_route && up.attributes.reliable);
    rig.quiet();
    assert_eq!(rig.gist.counters().data_misdelivered, 1);
    assert_eq!(rig.gist.counters().data_without_state, 1);
}

/// Data of this node is refused as not of the association: the peer lost the session, so the handshake starts again.
#[test]
fn a_misdelivered_message_of_ours_starts_the_handshake_again() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.reliably(b"more", own());
    let data = rig.over();
    rig.status();
    let error = GistError::INCORRECTLY_DELIVERED;
    let message = peer(b"down", DOWN).error(error, &data.octets, Encapsulation::Association);
    rig.octets(channel, &bare(&Message { nli: None, ..message }));
    assert_eq!(rig.notified().1, NetworkEvent::Bad);
    assert!(rig.sent().is(MessageType::QUERY).message().stack_proposal.is_some());
}

/// GIST-4.3.3-05, GIST-4.1.1-04: a message that is too large for a datagram requests an association; the largest
/// payload arrives complete; a larger one is refused.
#[test]
fn large_messages_go_over_an_association() {
    let mut rig = Rig::with(tcp_only());
    let large: Vec<u8> = (0..=250).cycle().take(MOST).collect();
    rig.send(&large, own());
    let query = rig.sent();
    assert!(query.message().stack_proposal.is_some() && query.message().nslp_data.is_none());
    let channel = rig.connected_to(&query);
    let data = rig.over();
    assert_eq!(data.message().nslp_data, Some(&large[..]));
    rig.status();
    for piece in back(&large).chunks(1448) {
        rig.octets(channel, piece);
    }
    assert_eq!(rig.delivered().data, large);
    rig.send(&vec![0; MOST + 4], own());
    assert_eq!(rig.failed(), SendError::TooLarge { max: MOST });
}

/// GIST-5972-03, GIST-4.3.3-12: an established session in datagram mode gets an association when it needs one; other
/// messages are sent by datagram meanwhile.
#[test]
fn a_session_moves_up_when_it_must() {
    for large in [false, true] {
        let mut rig = Rig::with(tcp_only());
        let (first, _) = rig.established();
        assert!(first.message().stack_proposal.is_none());
        let payload = vec![1; if large { 1000 } else { 4 }];
        if large {
            rig.send(&payload, own())
        } else {
            rig.reliably(&payload, own())
        }
        let query = rig.sent().is(MessageType::QUERY);
        assert!(query.message().stack_proposal.is_some());
        rig.quiet();
        rig.send(b"fast", own());
        if !large {
            // No message overtakes a reliable message.
            rig.quiet();
        } else {
            rig.sent().is(MessageType::DATA);
            rig.status();
        }
        rig.propose(&query, peer_tcp());
        let (channel, ..) = rig.opened();
        rig.connected(channel);
        rig.over().is(MessageType::CONFIRM);
        assert_eq!(rig.over().message().nslp_data, Some(&payload[..]));
        assert!(matches!(rig.status().2, MessageStatus::Sent(_)));
        if !large {
            assert_eq!(rig.over().message().nslp_data, Some(&b"fast"[..]));
        }
    }
}

/// A Responding node cannot open an association: messages that need one fail if there is no association.
#[test]
fn a_responding_node_in_datagram_mode_cannot_move_up() {
    let mut rig = Rig::with(tcp_only());
    rig.responding();
    rig.reliably(b"back", through().inverted());
    assert_eq!(rig.failed(), SendError::Refused);
    rig.send(&[0; 1000], through().inverted());
    assert!(matches!(rig.failed(), SendError::TooLarge { .. }));
}

/// GIST-4.1.1-03, GIST-3.7-04: a channel with a full buffer stops its association, and no other; the queue is bounded,
/// its end reported; the order is kept.
#[test]
fn back_pressure_stops_one_association() {
    let mut config = tcp_only();
    config.associations.max_queued = 2048;
    let mut rig = Rig::with(config);
    let channel = rig.associated();
    let other = rig.responding_associated();
    rig.handle(Input::ChannelDrained { channel, unsent: 300_000 });
    let payload = [5; 400];
    let mut stored = 0;
    let error = loop {
        rig.numbered(100 + stored, &payload, own());
        match rig.out.pop_front() {
            None => stored += 1,
            Some((_, Out::Status(_, MessageStatus::Failed(error)))) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((error, stored), (SendError::Overload, 4));
    let view = rig.held(channel).unwrap();
    assert_eq!((view.queued, view.unsent), (4, 300_000));
    rig.reliably(b"free", through().inverted());
    assert_eq!(rig.over().channel, other);
    rig.status();
    rig.handle(Input::ChannelDrained { channel, unsent: 260_000 + 10_000 });
    rig.quiet();
    rig.handle(Input::ChannelDrained { channel, unsent: 1_000 });
    for number in 0..4 {
        rig.over().is(MessageType::DATA);
        assert_eq!(rig.status().1.0, 100 + number);
    }
    rig.quiet();
    assert_eq!(rig.held(channel).unwrap().queued_octets, 0);
}

/// GIST-4.1.1-03: flow control counts each write, not only reports of the channel: a peer that stands still
/// gets no more than the channel may buffer, and what was not given to the channel is not reported as sent.
#[test]
fn what_is_written_counts_before_the_channel_reports() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    let (mut given, mut sent, mut refused) = (0, 0, 0);
    for number in 0..2_000 {
        rig.numbered(number, &[5; 15_000], own());
        while let Some((_, out)) = rig.out.pop_front() {
            match out {
                Out::Over(over) => given += over.octets.len(),
                Out::Status(_, MessageStatus::Sent(_)) => sent += 1,
                Out::Status(_, MessageStatus::Failed(SendError::Overload)) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    let config = tcp_only().associations;
    assert!((config.max_unsent..config.max_unsent + 16_000).contains(&given), "{given} octets");
    assert_eq!(sent, given / 15_000, "the others are not sent");
    let view = rig.held(channel).unwrap();
    assert_eq!(view.queued + sent + refused, 2_000);
    // The peer reads again: a report lets the next messages follow, and no more than the channel may buffer.
    let queued = view.queued;
    let mut followed = 0;
    while followed < queued {
        rig.handle(Input::ChannelDrained { channel, unsent: 0 });
        let mut octets = 0;
        while let Some((_, out)) = rig.out.pop_front() {
            match out {
                Out::Over(over) => octets += over.octets.len(),
                Out::Status(_, MessageStatus::Sent(_)) => followed += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(octets < config.max_unsent + 16_000);
    }
    assert_eq!(rig.held(channel).unwrap().queued, 0);
}

/// GIST-5.1-24: a peer that requests MA-Hellos and does not read gets one reply when it reads again, to its last request.
#[test]
fn a_peer_that_asks_without_reading_gets_one_reply() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.handle(Input::ChannelDrained { channel, unsent: 300_000 });
    for id in 1..=1_000 {
        rig.octets(channel, &hello(id, true));
    }
    rig.quiet();
    rig.handle(Input::ChannelDrained { channel, unsent: 290_000 });
    rig.quiet();
    rig.handle(Input::ChannelDrained { channel, unsent: 0 });
    let reply = rig.over().is(MessageType::MA_HELLO);
    assert_eq!((reply.message().hello_id, reply.message().header.r), (Some(1_000), false));
    rig.quiet();
}

/// GIST-B.1-04: a message waits no longer than its application allows.
#[test]
fn messages_in_the_queue_have_their_time() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.handle(Input::ChannelDrained { channel, unsent: 300_000 });
    rig.send_with(b"data", own(), |m| (m.attributes, m.timeout) = (RELIABLE, Some(seconds(2))));
    rig.until(1_900);
    rig.quiet();
    rig.until(2_050);
    assert!(matches!(rig.failed(), SendError::Connecting(_)));
    rig.handle(Input::ChannelDrained { channel, unsent: 0 });
    rig.quiet();
}

/// GIST-4.1.1-01, GIST-4.1.1-02, GIST-4.1.1-03: an application accepts no messages: its association is not read, others
/// are; no reliable message is lost; datagrams are.
#[test]
fn a_blocked_application_stops_its_senders() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.handle(Input::Blocked { nslp: NSLP, blocked: true });
    let stream = [hello(0, false), back(b"one1"), back(b"two2")].concat();
    rig.octets(channel, &stream[..stream.len() - 3]);
    assert!(matches!(rig.next().1, Out::Read(c, false) if c == channel));
    assert_eq!(rig.gist.counters().hellos_received, 1);
    rig.octets(channel, &stream[stream.len() - 3..]);
    rig.quiet();
    rig.data_up(own(), b"lost");
    rig.quiet();
    assert_eq!(rig.gist.counters().data_blocked, 1);
    rig.handle(Input::Blocked { nslp: NSLP, blocked: false });
    assert_eq!(rig.delivered().data, b"one1");
    assert_eq!(rig.delivered().data, b"two2");
    assert!(matches!(rig.next().1, Out::Read(c, true) if c == channel));
    rig.octets(channel, &back(b"more"));
    assert_eq!(rig.delivered().data, b"more");
}

/// While an application accepts no messages, the hellos of the peer are not read. This is not a failure of the peer.
#[test]
fn an_association_that_is_not_read_is_not_given_up() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.handle(Input::Blocked { nslp: NSLP, blocked: true });
    rig.octets(channel, &back(b"one1"));
    rig.next();
    for round in 1..10 {
        rig.reliably(b"data", own());
        rig.until(round * 25_000);
    }
    assert_eq!(rig.state_of(channel), Some(AssociationState::Connected));
    rig.out.clear();
    rig.handle(Input::Blocked { nslp: NSLP, blocked: false });
    assert_eq!(rig.delivered().data, b"one1");
}

/// GIST-4.1.2-01: messages that a peer sent before it closed the association are delivered, although the application
/// accepts none meanwhile.
#[test]
fn the_end_of_a_blocked_association_loses_nothing() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.handle(Input::Blocked { nslp: NSLP, blocked: true });
    rig.octets(channel, &back(b"one1"));
    rig.next();
    rig.lost(channel, signalbox_gist::engine::ChannelClosed::Orderly, false);
    assert_eq!(rig.delivered().data, b"one1");
}

/// GIST-4.4.5-07, GIST-4.3.3-10, GIST-4.3.3-11, GIST-4.4.5-08, GIST-4.4.3-08: a session that needs properties that its
/// association lacks moves to another; its messages wait until the peer has answered after the old ones.
#[test]
fn a_session_moves_when_its_old_association_is_drained() {
    let mut rig = Rig::with(tcp_and_tls());
    let old = rig.associated();
    rig.send_with(b"safe", own(), |m| m.attributes = SECURE);
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tls());
    let (new, transport, ..) = rig.opened();
    assert_eq!(transport, Transport::TlsTcp);
    let question = rig.over().is(MessageType::MA_HELLO);
    assert_eq!(question.channel, old);
    assert!(question.message().header.r);
    rig.connected_as(new, "down.example");
    let confirm = rig.over().is(MessageType::CONFIRM);
    assert_eq!(confirm.channel, new);
    rig.reliably(b"next", own());
    rig.quiet();
    // Messages that the peer sent before the move still belong to this session.
    rig.octets(old, &back(b"late"));
    assert_eq!(rig.delivered().data, b"late");
    rig.octets(old, &hello(question.message().hello_id.unwrap(), false));
    for expected in [b"safe", b"next"] {
        let data = rig.over().is(MessageType::DATA);
        assert_eq!((data.channel, data.message().nslp_data), (new, Some(&expected[..])));
        rig.status();
    }
    rig.quiet();
    assert_eq!(rig.held(old).unwrap().sessions, 0);
}

/// A changed route leads to another peer: messages to it do not wait for the former one, which may be unreachable.
#[test]
fn another_peer_does_not_wait_for_the_former_one() {
    let mut rig = Rig::with(tcp_only());
    let old = rig.associated();
    let gateway = Some(ip("10.2.0.3"));
    rig.route = Some(Ok(signalbox_core::node::Route { gateway, ..ROUTE }));
    rig.handle(Input::RouteChanged(signalbox_core::node::Prefix { addr: ip(DST), len: 32 }));
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Tentative));
    let query = rig.sent().is(MessageType::QUERY);
    rig.respond_with(&query, |m| {
        m.header.s = false; // it comes from `DOWN` nevertheless
        let (proposal, configuration) = peer_tcp();
        m.nli = Some(Nli { validity_ms: 40_000_000, ..nli(b"new", "10.2.0.3") });
        (m.stack_proposal, m.stack_configuration) = (Some(proposal), Some(configuration));
    });
    let new = core::iter::repeat_with(|| rig.next()).find_map(|(_, out)| match out {
        Out::Opened(channel, ..) => Some(channel),
        _ => None,
    });
    let new = new.unwrap();
    rig.out.clear();
    rig.reliably(b"next", own());
    rig.connected(new);
    let over =
        rig.out.drain(..).filter_map(|(_, out)| if let Out::Over(over) = out { Some(over) } else { None });
    let sent: Vec<_> = over.filter(|over| over.channel == new).collect();
    let kinds: Vec<_> = sent.iter().map(|over| over.message().header.kind).collect();
    assert_eq!(kinds, [MessageType::CONFIRM, MessageType::DATA]);
    assert_eq!(sent[1].message().nslp_data, Some(&b"next"[..]));
    assert_eq!(rig.held(old).unwrap().sessions, 0);
}

/// A peer that does not answer after the old messages delays the new ones for a limited time.
#[test]
fn an_old_association_that_is_not_drained_is_given_up() {
    let mut rig = Rig::with(tcp_and_tls());
    let old = rig.associated();
    rig.send_with(b"safe", own(), |m| m.attributes = SECURE);
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, peer_tls());
    let (new, ..) = rig.opened();
    let first = rig.over().is(MessageType::MA_HELLO);
    rig.connected_as(new, "down.example");
    rig.over().is(MessageType::CONFIRM);
    for second in 1..30 {
        rig.until(second * 1000);
        rig.octets(old, &hello(0, false));
        rig.octets(old, &hello(first.message().hello_id.unwrap().wrapping_add(1), false));
    }
    rig.out.retain(|(_, out)| !matches!(out, Out::Over(over) if over.message().hello_id.is_some()));
    rig.quiet();
    rig.until(30_500);
    rig.out.retain(|(_, out)| !matches!(out, Out::Over(over) if over.message().hello_id.is_some()));
    assert_eq!(rig.closed(), (old, true));
    // GIST-4.1.2-03: the session does not use the association any more, but its reliable messages may be lost with it.
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::CommunicationFailure));
    assert_eq!(rig.over().message().nslp_data, Some(&b"safe"[..]));
}

/// GIST-4.3.4-10: a Query whose payload is too large for the path: a small Query without it requests an association.
#[test]
fn a_query_that_is_too_large_asks_for_an_association() {
    let mut rig = Rig::with(Config { piggyback: true, ..tcp_only() });
    rig.send(&[1; 200], own());
    let query = rig.sent();
    assert!(query.message().nslp_data.is_some());
    rig.error(DOWN, GistError::MESSAGE_TOO_LARGE, &query);
    let query = rig.sent().is(MessageType::QUERY);
    assert!(query.message().nslp_data.is_none() && query.message().stack_proposal.is_some());
    rig.connected_to(&query);
    assert_eq!(rig.over().message().nslp_data, Some(&[1; 200][..]));
}

/// SCTP preserves message boundaries: each message arrives complete, otherwise it is malformed (RFC 6084 §3).
#[test]
fn sctp_gives_whole_messages() {
    let mut config = tcp_only();
    config.associations.sctp_port = Some(4002);
    let mut rig = Rig::with(config);
    let channel = rig.accepted(2, Transport::Sctp);
    rig.octets(channel, &hello(5, true));
    assert_eq!(rig.over().message().hello_id, Some(5));
    rig.octets(channel, &hello(5, true)[..10]);
    rig.over().error_is(GistError::INCORRECT_MESSAGE_LENGTH);
    rig.octets(channel, &hello(6, true));
    assert_eq!(rig.over().message().hello_id, Some(6));
}

/// Limits: associations, their rate, and octets of incomplete messages. GIST-8.4-04.
#[test]
fn what_peers_can_make_grow_is_bounded() {
    let mut config = tcp_only();
    (config.associations.max, config.associations.accept_rate) = (2, 48);
    let mut rig = Rig::with(config);
    for number in 1..=4 {
        rig.accepted(2 * number, Transport::Tcp);
    }
    assert_eq!(rig.closed().0.0, 6);
    assert_eq!(rig.closed().0.0, 8);
    let counters = rig.gist.counters();
    assert_eq!((counters.associations_full, counters.associations_limited), (1, 1));

    let mut config = tcp_only();
    config.associations.max_buffered = 1 << 19;
    let mut rig = Rig::with(config);
    let channels = [rig.accepted(2, Transport::Tcp), rig.accepted(4, Transport::Tcp)];
    let mut huge = back(b"data");
    huge[2..4].fill(0xff);
    huge.resize(200_000, 0);
    rig.octets(channels[0], &huge);
    rig.quiet();
    rig.octets(channels[1], &huge);
    assert_eq!(rig.closed(), (channels[1], true));
    assert_eq!(rig.gist.counters().associations_overrun, 1);
}

/// GIST-4.1.2-10, GIST-5.5-02: a message without requirements is sent over the association of its session.
#[test]
fn a_session_with_an_association_uses_it_for_all() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.send(b"data", own());
    assert_eq!(rig.over().channel, channel);
    assert!(matches!(rig.status().2, MessageStatus::Sent(attributes) if attributes == RELIABLE));
}

/// GIST-5.6-09: Errors for a peer that sends but does not read are dropped at a limit, and counted.
#[test]
fn errors_do_not_pile_up() {
    let mut config = tcp_only();
    (config.associations.max_queued, config.error_rate) = (1024, 1000);
    let mut rig = Rig::with(config);
    let channel = rig.associated();
    rig.handle(Input::ChannelDrained { channel, unsent: 300_000 });
    for _ in 0..100 {
        rig.octets(channel, &bare_data(own().inverted(), session(9), b"data"));
    }
    rig.quiet();
    assert!(rig.held(channel).unwrap().queued_octets <= 2048);
    assert!(rig.gist.counters().errors_unsendable > 50);
}

/// A reliable message that is explicitly routed is sent over an association with that peer.
#[test]
fn explicit_routing_uses_an_association() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.octets(channel, &back(b"data"));
    let sii = rig.delivered().sii;
    rig.send_with(b"data", own(), |m| (m.attributes, m.sii) = (RELIABLE, sii));
    let over = rig.over();
    assert!(over.channel == channel && over.message().header.e);
}

/// RFC 5971 §4.1.2: reliable messages that were explicitly routed may be lost with their association, although no routing
/// state uses it. Their application is notified for each session once.
#[test]
fn the_loss_of_explicitly_routed_messages_is_notified() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.octets(channel, &back(b"data"));
    let sii = rig.delivered().sii;
    let others = [7, 8].map(|number| signalbox_core::SessionId([number; 16]));
    for (session, attributes) in [
        (others[0], RELIABLE),
        (others[0], RELIABLE),
        (others[1], signalbox_core::service::TransferAttributes::default()),
    ] {
        rig.send_with(b"data", own(), |m| (m.session, m.attributes, m.sii) = (session, attributes, sii));
    }
    rig.out.clear();
    rig.lost(channel, signalbox_gist::engine::ChannelClosed::Reset, true);
    let failures =
        rig.out.iter().filter(|(_, out)| matches!(out, Out::Notified(_, NetworkEvent::CommunicationFailure)));
    assert_eq!(failures.count(), 2, "the session of the association, and the other one");
}

/// Random octets over channels cause neither a panic nor state.
#[test]
fn nonsense_does_no_harm() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    let good = back(b"data");
    for at in 8..good.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut octets = good.clone();
            octets[at] = value;
            rig.octets(channel, &octets);
        }
    }
    rig.lost(signalbox_gist::engine::ChannelId(99), signalbox_gist::engine::ChannelClosed::Reset, true);
    rig.octets(signalbox_gist::engine::ChannelId(99), &good);
    rig.handle(Input::ChannelDrained { channel: signalbox_gist::engine::ChannelId(99), unsent: 1 });
    rig.out.clear();
    assert_eq!(rig.gist.sessions().count(), 1);
    rig.octets(channel, &good);
    assert_eq!(rig.delivered().data, b"data");
}
