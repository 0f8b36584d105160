//! Nodes on the way.

use core::time::Duration;

use signalbox_core::service::{CheckId, SendError, StateHandle};
use signalbox_core::{IfIndex, SessionId, Time};
use signalbox_ping::engine::Config;
use signalbox_ping::wire::{Flags, Kind, List, Message, Record};

use crate::rig::{DST, Out, Rig, SESSION, WALL_US, addr, flow, octets, only_message, received};

const SENT_US: u64 = WALL_US + 900_000;

fn request() -> Vec<u8> {
    octets(&Message::request(3, 4, SENT_US), None)
}

fn reply() -> Vec<u8> {
    let end = Record { address: addr(DST), received_us: 1, held_us: 0, ip_distance: 1 };
    let message = Message { kind: Kind::REPLY, flags: Flags::END_REACHED, ..Message::request(3, 4, SENT_US) };
    octets(&message, Some((List::There, end)))
}

#[test]
fn a_request_goes_on_with_our_record() {
    let mut rig = Rig::new();
    let data = request();
    let sent = only_message(rig.receive(received(&data, flow(), SESSION)));
    assert_eq!((sent.session, sent.mri, sent.state), (SESSION, flow(), Some(StateHandle(99))));
    assert_eq!((sent.hops, sent.timeout), (Some(60), Some(Duration::from_secs(3))));
    let message = sent.message();
    let ours =
        Record { address: addr("10.0.1.2"), received_us: WALL_US + 1_000_000, held_us: 0, ip_distance: 2 };
    assert_eq!(message.there.iter().collect::<Vec<_>>(), [ours]);
    assert_eq!((message.kind, message.sequence, message.identifier), (Kind::REQUEST, 3, 4));
    assert_eq!((message.sent_us, message.back.count()), (SENT_US, 0));
    assert_eq!(rig.ping.watched(), 1);
    rig.sent(&sent);
    assert_eq!(rig.ping.watched(), 0);
    assert_eq!(rig.ping.next_deadline(), None, "nothing is kept for the session");
}

#[test]
fn a_reply_goes_on_upstream_and_is_not_watched() {
    let mut rig = Rig::new();
    let data = reply();
    let sent = only_message(rig.receive(received(&data, flow().inverted(), SESSION)));
    assert_eq!((sent.mri, sent.handle), (flow().inverted(), None));
    let message = sent.message();
    assert_eq!((message.there.count(), message.back.count()), (1, 1));
    assert_eq!(message.back.iter().next().unwrap().address, addr("10.0.1.2"));
    assert_eq!(rig.ping.counters().replies_relayed, 1);
}

#[test]
fn the_end_of_the_flow_turns_a_request_round() {
    let mut rig = Rig::new();
    let data = request();
    let end = signalbox_core::service::RecvMessage { at_flow_end: true, ..received(&data, flow(), SESSION) };
    let sent = only_message(rig.receive(end));
    assert_eq!((sent.mri, sent.state, sent.hops), (flow().inverted(), Some(StateHandle(99)), None));
    let message = sent.message();
    assert_eq!((message.kind, message.flags), (Kind::REPLY, Flags::END_REACHED));
    assert_eq!(message.there.iter().next().unwrap().address, addr(DST));
    let counters = rig.ping.counters();
    assert_eq!((counters.turned_at_end, counters.requests_received, counters.replies_received), (1, 1, 0));
}

#[test]
fn a_request_that_cannot_go_on_is_turned_round() {
    for (error, flag) in [
        (SendError::NoNextNode, Flags::NO_NEXT_NODE),
        (SendError::NoRoute, Flags::NOT_SENT),
        (SendError::Overload, Flags::NOT_SENT),
        (SendError::FlowEndsHere, Flags::END_REACHED),
    ] {
        let mut rig = Rig::new();
        let data = request();
        let sent = only_message(rig.receive(received(&data, flow(), SESSION)));
        rig.now = Time::from_secs(4);
        let back = only_message(rig.failed(&sent, error));
        assert_eq!((back.mri, back.session, back.state), (flow().inverted(), SESSION, sent.state));
        let message = back.message();
        assert_eq!((message.kind, message.flags), (Kind::REPLY, flag));
        assert_eq!((message.there.count(), message.back.count()), (1, 0));
        assert_eq!((rig.ping.watched(), rig.ping.counters().turned_early), (0, 1));
        assert_eq!(rig.failed(&sent, error), [], "once only");
    }
}

#[test]
fn a_status_of_another_session_changes_nothing() {
    let mut rig = Rig::new();
    let data = request();
    let sent = only_message(rig.receive(received(&data, flow(), SESSION)));
    let wrong = crate::rig::Sent { session: SessionId([8; 16]), ..sent.clone() };
    assert_eq!(rig.failed(&wrong, SendError::NoNextNode), []);
    assert_eq!(rig.ping.watched(), 1);
    rig.sent(&sent);
}

#[test]
fn the_table_of_watched_messages_is_bounded() {
    let mut rig = Rig::with(Config { max_watched: 2, ..Config::default() });
    let data = request();
    let sent: Vec<_> = (0..4).map(|_| only_message(rig.receive(received(&data, flow(), SESSION)))).collect();
    assert_eq!(sent.iter().map(|s| s.handle.is_some()).collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!((rig.ping.watched(), rig.ping.counters().unwatched), (2, 2));
    rig.sent(&sent[0]);
    assert!(only_message(rig.receive(received(&data, flow(), SESSION))).handle.is_some());
}

#[test]
fn a_full_message_goes_on_without_our_record() {
    let mut rig = Rig::new();
    let mut data = request();
    for _ in 0..22 {
        let sent = only_message(rig.receive(received(&data, flow(), SESSION)));
        rig.sent(&sent);
        data = sent.data;
    }
    let sent = only_message(rig.receive(received(&data, flow(), SESSION)));
    assert_eq!(sent.message().flags, Flags::THERE_TRUNCATED);
    assert_eq!(sent.message().there.count(), 22);
}

#[test]
fn an_interface_without_address_is_stamped_as_unknown() {
    let mut rig = Rig::new();
    let data = request();
    let other =
        signalbox_core::service::RecvMessage { ifindex: IfIndex(77), ..received(&data, flow(), SESSION) };
    let sent = only_message(rig.receive(other));
    assert_eq!(sent.message().there.iter().next().unwrap().address, addr("0.0.0.0"));
}

#[test]
fn what_is_wrong_is_dropped_and_counted() {
    let mut rig = Rig::new();
    let (request, reply) = (request(), reply());
    assert_eq!(rig.receive(received(&request[..20], flow(), SESSION)), []);
    assert_eq!(rig.ping.counters().malformed, 1);
    assert_eq!(rig.receive(received(&request, flow().inverted(), SESSION)), []);
    assert_eq!(rig.receive(received(&reply, flow(), SESSION)), []);
    assert_eq!(rig.ping.counters().misdirected, 2);
    let stray = signalbox_core::service::RecvMessage {
        at_flow_end: true,
        ..received(&reply, flow().inverted(), SESSION)
    };
    assert_eq!(rig.receive(stray), []);
    assert_eq!(rig.ping.counters().unexpected_replies, 1);
    assert_eq!(rig.ping.watched(), 0);
}

#[test]
fn it_peers_with_everybody_who_asks() {
    let mut rig = Rig::new();
    let query = signalbox_core::service::RecvMessage {
        check: Some(CheckId(1)),
        state: None,
        ..received(&[], flow(), SESSION)
    };
    assert_eq!(rig.receive(query), [Out::Peering]);
}

/// A peer may send each message with hop count 1, so that this node has nothing to preserve: the message goes on with a count
/// of this node. In a circle it comes back with an address of this node, and is returned to its initiator.
#[test]
fn a_message_without_a_preserved_hop_count_goes_on_once() {
    let mut rig = Rig::new();
    let data = request();
    let spent = |data| signalbox_core::service::RecvMessage { hops: 0, ..received(data, flow(), SESSION) };
    let sent = only_message(rig.receive(spent(&data)));
    assert_eq!((sent.mri, sent.hops), (flow(), None));
    rig.sent(&sent);
    let octets = sent.data.clone();
    let back = only_message(rig.receive(spent(&octets)));
    assert_eq!((back.mri, back.message().kind), (flow().inverted(), Kind::REPLY));
    assert!(back.message().flags.contains(Flags::NOT_SENT));
    assert_eq!(rig.ping.counters().hop_limit, 1);
}

/// A count that is used up is preserved by the nodes before: the request is returned to its initiator, a reply is dropped.
#[test]
fn a_message_whose_hop_count_is_used_up_is_returned() {
    let mut rig = Rig::new();
    let (request, reply) = (request(), reply());
    let worn = signalbox_core::service::RecvMessage { hops: 1, ..received(&request, flow(), SESSION) };
    let back = only_message(rig.receive(worn));
    assert_eq!((back.mri, back.message().kind), (flow().inverted(), Kind::REPLY));
    assert!(back.message().flags.contains(Flags::NOT_SENT));
    let worn =
        signalbox_core::service::RecvMessage { hops: 1, ..received(&reply, flow().inverted(), SESSION) };
    assert_eq!(rig.receive(worn), []);
    assert_eq!(rig.ping.counters().hop_limit, 2);
}
