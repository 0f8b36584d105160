//! MESSAGE_ID and its acknowledgment, and messages without (RFC 2961 §4, §6).

use std::time::Duration;

use signalbox_rsvp::engine::neighbor::{Reduction, Upcall, Verdict};
use signalbox_rsvp::wire::{MessageId, MessageType};

use super::rig::{ETH, Got, Kind, Node, Packet, To, acquainted, addr, config, exchange, ms, prompt, took};

const PATH: MessageType = MessageType::PATH;

fn one(packets: Vec<Packet>) -> Packet {
    let [packet] = &packets[..] else { panic!("{packets:?}") };
    packet.clone()
}

/// Proves RSVPRR-2961-6-01, RSVPRR-2961-6-02, RSVPRR-2961-4.5-05, RSVPRR-2961-6-03 and RSVPRR-2961-6-04: transmissions
/// at 0, 0.5 and 1.5 s, all equal.
#[test]
fn unacknowledged_triggers_are_repeated() {
    let mut node = Node::plain(1);
    node.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    let first = one(node.drain());
    assert!(first.message_id().ack_desired);
    assert_eq!(first.message().refresh_period, Some(30_000), "R, not the interval of repetition");
    let repeated = node.until(ms(10_000));
    assert_eq!(repeated.iter().map(|(time, _)| *time).collect::<Vec<_>>(), [ms(500), ms(1500)]);
    assert!(repeated.iter().all(|(_, packet)| *packet == first));
    assert_eq!(node.layer.counters().unacknowledged, 1);
    assert_eq!(node.layer.counters().retransmissions, 2);
}

/// Proves RSVPRR-2961-6-01: all three values are settings.
#[test]
fn repetition_as_configured() {
    let reduction = Reduction { first: Duration::from_millis(100), limit: 5, delta: 0.5, ..prompt() };
    let mut node = Node::new(1, config(reduction));
    node.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    node.drain();
    let times: Vec<_> = node.until(ms(10_000)).iter().map(|(time, _)| time.as_micros() / 1000).collect();
    assert_eq!(times, [100, 250, 475, 813], "100, 150, 225 and 337.5 ms apart, rounded up to ticks");
    let mut once = Node::new(1, config(Reduction { limit: 1, ..prompt() }));
    once.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    assert_eq!(once.drain().len(), 1);
    assert_eq!(once.until(ms(10_000)).len(), 0);
}

/// Proves RSVPRR-2961-6-02 and RSVPRR-2961-4.5-04: an acknowledgment ends the retransmission.
#[test]
fn an_acknowledgment_ends_the_repetition() {
    let (mut a, mut b) = (Node::plain(1), Node::plain(2));
    a.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    let got = exchange(ms(0), &mut a, &mut b);
    assert_eq!(got, [took(PATH, 5000, Verdict::Process)]);
    assert_eq!((a.layer.counters().acks_received, b.layer.counters().acks_sent), (1, 1));
    assert_eq!(a.until(ms(10_000)).len(), 0);
    // An acknowledgment after the first retransmission ends it as well.
    a.path(ms(10_000), Kind::Trigger, 5000, To::Unknown);
    a.drain();
    let again = one(a.packets_until(ms(10_500)));
    b.take(ms(10_500), &again);
    let ack = one(b.packets_until(ms(10_600)));
    a.take(ms(10_600), &ack);
    assert_eq!(a.until(ms(20_000)).len(), 0);
}

/// Proves RSVPRR-2961-4.4-03: an acknowledgment of a Path goes to its RSVP_HOP, of a PathErr to its IP source.
#[test]
fn whom_an_acknowledgment_is_for() {
    let (mut a, mut b) = (Node::plain(1), Node::plain(2));
    a.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    let path = one(a.drain());
    assert_ne!(path.src, a.addr, "the sender's address");
    b.take(ms(0), &path);
    let ack = one(b.packets_until(ms(0)));
    assert_eq!((ack.kind(), ack.src, ack.dst, ack.router_alert), (MessageType::ACK, addr(2), addr(1), false));
    let name = path.message_id();
    let copied = MessageId { ack_desired: false, ..name };
    assert_eq!(ack.message().acks().collect::<Vec<_>>(), [(copied, false)]);

    // ConfErr and PathErr have no RSVP_HOP.
    let session = [0, 12, 1, 1, 10, 0, 9, 9, 17, 0, 0x13, 0x88];
    let error = [0, 12, 6, 1, 10, 0, 1, 9, 0, 7, 0, 0];
    let sender = [0, 12, 11, 1, 10, 0, 0, 1, 0, 0, 0, 0];
    let named = [0, 12, 23, 1, 1, 0, 0, 9, 0, 0, 0, 1];
    let payload = [&[0x11, 3, 0, 0, 255, 0, 0, 56][..], &named, &session, &error, &sender].concat();
    let error = Packet { src: addr(7), dst: addr(2), ttl: 255, router_alert: false, payload };
    assert_eq!(b.take(ms(1), &error), [took(MessageType::PATH_ERR, 5000, Verdict::Process)]);
    assert_eq!(one(b.packets_until(ms(1))).dst, addr(7));
}

/// Proves RSVPRR-2961-4.6-01 and RSVPRR-2961-4.5-14: messages of each type are acknowledged if desired, and not
/// otherwise.
#[test]
fn acknowledged_if_desired() {
    let (mut a, mut b) = acquainted(5000..5001);
    let before = b.layer.counters().acks_sent;
    a.path(ms(100), Kind::Refresh, 5000, To::Unknown);
    let refresh = one(a.drain());
    assert!(!refresh.message_id().ack_desired);
    assert_eq!(b.take(ms(100), &refresh), [took(PATH, 5000, Verdict::Refresh)]);
    assert_eq!(b.until(ms(1000)).len(), 0);
    let kinds = [
        MessageType::PATH,
        MessageType::RESV,
        MessageType::PATH_ERR,
        MessageType::RESV_ERR,
        MessageType::PATH_TEAR,
        MessageType::RESV_TEAR,
        MessageType::RESV_CONF,
    ];
    for (count, kind) in kinds.into_iter().enumerate() {
        let what =
            if matches!(kind, MessageType::PATH | MessageType::RESV) { Kind::Trigger } else { Kind::Once };
        a.say(ms(2000), kind, what, 6000, To::Next(2));
        exchange(ms(2000), &mut a, &mut b);
        assert_eq!(b.layer.counters().acks_sent, before + 1 + count as u64, "{kind}");
    }
    // An Srefresh is acknowledged as a whole.
    let desired = [0, 12, 23, 1, 1, 0, 0, 9, 0, 0, 0, 1];
    let list = [0, 12, 25, 1, 0, 0, 0, 9, 0, 0, 0, 7];
    let payload = [&[0x11, 15, 0, 0, 255, 0, 0, 32][..], &desired, &list].concat();
    let srefresh = Packet { src: addr(7), dst: addr(2), ttl: 255, router_alert: false, payload };
    b.take(ms(2000), &srefresh);
    let ack = one(b.packets_until(ms(2100)));
    assert!(ack.message().acks().any(|(name, negative)| name.id == 1 && !negative));
}

/// Proves RSVPRR-2961-4.5-15: a malformed message is not acknowledged.
#[test]
fn errors_are_not_acknowledged() {
    let (mut a, mut b) = (Node::plain(1), Node::plain(2));
    a.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    let mut path = one(a.drain());
    // An object that ends beyond the message; no checksum.
    let last = path.payload.len() - 36;
    path.payload[last + 1] = 40;
    path.payload[2..4].copy_from_slice(&[0, 0]);
    assert_eq!(b.take(ms(0), &path), [Got::Malformed]);
    assert_eq!(b.until(ms(1000)).len(), 0);
}

/// Proves RSVPRR-2961-4.5-02, RSVPRR-2961-4.5-03, RSVPRR-2961-4.2-04, RSVPRR-2961-4.2-03, RSVPRR-2961-4-01 and
/// RSVPRR-2961-1.1-02: refreshes repeat the MESSAGE_ID and all else, trigger messages get greater ones, from one
/// counter.
#[test]
fn refreshes_repeat_the_message_id_and_triggers_get_a_greater_one() {
    let mut a = Node::plain(1);
    let mut last: Option<MessageId> = None;
    let mut greater = |packet: &Packet| {
        let name = packet.message_id();
        let newer =
            last.is_none_or(|last| name.epoch == last.epoch && MessageId::is_before(last.id, name.id));
        assert!(newer, "{name:?} after {last:?}");
        last = Some(name);
    };
    for port in 5000..5010 {
        a.path(ms(0), Kind::Trigger, port, To::Unknown);
        greater(&one(a.drain()));
        a.resv(ms(0), Kind::Trigger, port + 100, 2);
        greater(&one(a.drain()));
        a.say(ms(0), MessageType::PATH_TEAR, Kind::Once, port, To::Unknown);
        greater(&one(a.drain()));
    }
    a.path(ms(1), Kind::Trigger, 5000, To::Unknown);
    let trigger = one(a.drain());
    greater(&trigger);
    a.path(ms(30_000), Kind::Refresh, 5000, To::Unknown);
    let refreshes = [one(a.drain()), {
        a.path(ms(60_000), Kind::Refresh, 5000, To::Unknown);
        one(a.drain())
    }];
    assert_eq!(refreshes[0], refreshes[1], "refreshes are alike");
    assert_eq!(
        (refreshes[0].message_id().id, refreshes[0].message_id().epoch),
        (trigger.message_id().id, trigger.message_id().epoch)
    );
}

/// Proves RSVPRR-2961-4.2-02: another epoch at each start.
#[test]
fn each_start_has_another_epoch() {
    let epoch = |seed| {
        let mut node = Node::seeded(1, config(prompt()), seed);
        node.path(ms(0), Kind::Trigger, 5000, To::Unknown);
        one(node.drain()).message_id().epoch
    };
    let epochs: std::collections::BTreeSet<u32> = (0..50).map(epoch).collect();
    assert_eq!(epochs.len(), 50);
    assert!(epochs.iter().all(|epoch| *epoch > 0 && *epoch <= MessageId::MAX_EPOCH));
}

/// Proves RSVPRR-2961-4.5-06 and RSVPRR-2961-4.5-08: a Path that was overtaken by its PathTear, and one overtaken by a
/// newer Path; messages about other state do not matter.
#[test]
fn overtaken_messages_change_nothing() {
    let (mut a, mut b) = acquainted(5000..5001);
    let mut old = Vec::new();
    for port in [5000, 5001] {
        a.path(ms(10), Kind::Trigger, port, To::Unknown);
        old.push(one(a.drain()));
    }
    a.path(ms(20), Kind::Trigger, 5000, To::Unknown);
    let new = one(a.drain());
    assert_eq!(b.take(ms(20), &new), [took(PATH, 5000, Verdict::Process)]);
    b.packets_until(ms(20));
    assert_eq!(b.take(ms(21), &old[0]), [took(PATH, 5000, Verdict::OutOfOrder)]);
    assert_eq!(b.packets_until(ms(100)).len(), 0, "no message leaves");
    assert_eq!(b.take(ms(22), &old[1]), [took(PATH, 5001, Verdict::Process)], "another state");
    assert_eq!(b.layer.counters().out_of_order, 1);
}

/// Proves RSVPRR-2961-4.5-07, RSVPRR-2961-4.5-09 and RSVPRR-2961-4.5-11: low identifiers of a restarted neighbor, and
/// old ones about unknown state.
#[test]
fn not_out_of_order() {
    let (mut a, mut b) = acquainted(5000..5020);
    let mut restarted = Node::seeded(1, config(prompt()), 99);
    restarted.path(ms(10), Kind::Trigger, 5010, To::Unknown);
    let path = one(restarted.drain());
    assert!(path.message_id().id < 10);
    assert_eq!(b.take(ms(10), &path), [took(PATH, 5010, Verdict::Process)]);
    // The first node's next message is of another epoch again.
    a.path(ms(20), Kind::Refresh, 5010, To::Unknown);
    assert_eq!(b.take(ms(20), &one(a.drain())), [took(PATH, 5010, Verdict::Process)]);
    // An old identifier about state that ended.
    a.path(ms(30), Kind::Trigger, 7000, To::Unknown);
    let old = one(a.drain());
    a.path(ms(30), Kind::Trigger, 7001, To::Unknown);
    b.take(ms(30), &one(a.drain()));
    assert_eq!(b.take(ms(31), &old), [took(PATH, 7000, Verdict::Process)]);
}

/// Proves RSVPRR-2961-4.5-12, RSVPRR-2961-4.5-13 and RSVPRR-2961-6-03: the same MESSAGE_ID is a refresh, a greater one
/// is not; a copy is acknowledged again.
#[test]
fn an_equal_message_id_is_a_refresh_and_a_greater_one_is_not() {
    let (mut a, mut b) = (Node::plain(1), Node::plain(2));
    a.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    let path = one(a.drain());
    assert_eq!(b.take(ms(0), &path), [took(PATH, 5000, Verdict::Process)]);
    assert_eq!(b.packets_until(ms(0)).len(), 1);
    assert_eq!(b.take(ms(500), &path), [took(PATH, 5000, Verdict::Refresh)]);
    assert_eq!(b.packets_until(ms(500)).len(), 1, "the acknowledgment was lost");
    a.path(ms(600), Kind::Trigger, 5000, To::Unknown);
    assert_eq!(b.take(ms(600), &one(a.drain())), [took(PATH, 5000, Verdict::Process)]);
    a.path(ms(700), Kind::Refresh, 5000, To::Unknown);
    assert_eq!(
        b.take(ms(700), &one(a.drain())),
        [took(PATH, 5000, Verdict::Refresh)],
        "the new name was stored"
    );
}

/// Proves RSVPRR-2961-4.5-16: an error message is an acknowledgment.
#[test]
fn an_error_message_is_an_acknowledgment() {
    let mut a = Node::plain(1);
    a.resv(ms(0), Kind::Trigger, 5000, 2);
    a.layer.implicitly_acknowledged(a.handles[&5000]);
    a.drain();
    assert_eq!(a.until(ms(10_000)).len(), 0);
}

/// Proves RSVPRR-2961-4.6-02 and RSVPRR-2961-4.6-03: acknowledgments leave in other messages to the same node, not in
/// Paths; alone they leave after a short time.
#[test]
fn acknowledgments_leave_in_other_messages() {
    let patient = Reduction { ack_delay: Duration::from_millis(10), summary: false, ..prompt() };
    let (mut a, mut b) = (Node::plain(1), Node::new(2, config(patient)));
    a.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    a.path(ms(0), Kind::Trigger, 5001, To::Unknown);
    a.drain().iter().for_each(|packet| _ = b.take(ms(0), packet));
    b.path(ms(1), Kind::Trigger, 5000, To::Next(1));
    assert_eq!(one(b.drain()).message().acks().count(), 0, "a Path is not addressed to it");
    b.resv(ms(2), Kind::Trigger, 6000, 1);
    let resv = one(b.drain());
    assert_eq!((resv.dst, resv.message().acks().count()), (addr(1), 2));
    a.take(ms(2), &resv);
    assert_eq!(a.layer.counters().acks_received, 2);
    a.path(ms(20), Kind::Trigger, 5000, To::Unknown);
    b.take(ms(20), &one(a.drain()));
    let alone = b.until(ms(100));
    assert_eq!((alone[0].0, alone[0].1.kind()), (ms(30), MessageType::ACK));
}

/// Proves RSVPRR-2961-4.7-01 and RSVPRR-2961-4.7-02: acknowledgments of multicast messages are spread over time; the
/// first one is enough.
#[test]
fn acknowledgments_of_multicast_messages_are_spread_over_time() {
    let mut a = Node::plain(1);
    a.path(ms(0), Kind::Trigger, 5000, To::Group);
    let path = one(a.drain());
    let mut times = Vec::new();
    for last in 2..32 {
        let mut node = Node::plain(last);
        node.take(ms(0), &path);
        let packets = node.until(ms(400));
        assert_eq!((packets.len(), packets[0].1.kind(), packets[0].1.dst), (1, MessageType::ACK, addr(1)));
        times.push(packets[0].0);
        if last == 2 {
            a.take(packets[0].0, &packets[0].1);
        }
    }
    times.sort_unstable();
    times.dedup();
    assert!(
        times.len() > 15 && times[0] < ms(60) && times.last().is_some_and(|last| *last > ms(140)),
        "{times:?}"
    );
    assert_eq!(a.until(ms(10_000)).len(), 0);
}

/// Proves RSVPRR-2961-4.8-01: a node without reduction refuses the objects of all three classes with error 13.
#[test]
fn nodes_without_reduction_refuse_its_objects() {
    let mut legacy = Node::new(2, config(Reduction { reliable: false, ..prompt() }));
    let mut a = Node::plain(1);
    a.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    assert_eq!(legacy.take(ms(0), &one(a.drain())), [Got::Refused(0x1701)]);
    assert_eq!(legacy.until(ms(1000)).len(), 0, "no acknowledgment");
    for (value, object) in [
        (0x1701, [0, 12, 23, 1, 1, 0, 0, 9, 0, 0, 0, 1]),
        (0x1801, [0, 12, 24, 1, 0, 0, 0, 9, 0, 0, 0, 1]),
        (0x1802, [0, 12, 24, 2, 0, 0, 0, 9, 0, 0, 0, 1]),
        (0x1901, [0, 12, 25, 1, 0, 0, 0, 9, 0, 0, 0, 1]),
    ] {
        for kind in [PATH, MessageType::RESV] {
            let mut plain = Node::new(1, config(Reduction { reliable: false, ..prompt() }));
            plain.say(ms(0), kind, Kind::Trigger, 5000, To::Next(2));
            let mut packet = one(plain.drain());
            packet.payload.splice(8..8, object);
            let length = u16::try_from(packet.payload.len()).unwrap().to_be_bytes();
            packet.payload[6..8].copy_from_slice(&length);
            packet.payload[2..4].fill(0);
            assert_eq!(legacy.take(ms(500), &packet), [Got::Refused(value)], "{kind}");
        }
    }
    assert_eq!(legacy.until(ms(1000)).len(), 0, "no acknowledgment");
    legacy.path(ms(1000), Kind::Trigger, 5001, To::Unknown);
    let path = one(legacy.drain());
    assert_eq!((path.payload[0], path.message().message_id), (0x10, None));
    assert_eq!(legacy.until(ms(10_000)).len(), 0, "nothing is repeated");
}

/// Proves RSVPRR-2961-4.8-02: the message and its refreshes are then sent without a MESSAGE_ID.
#[test]
fn without_a_name_for_those_who_know_none() {
    let mut a = Node::plain(1);
    a.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    let named = one(a.drain());
    a.layer.advance(ms(1));
    a.layer.refused(ETH, 0);
    assert!(a.layer.repeat_without(a.handles[&5000]));
    let plain = one(a.drain());
    assert_eq!(plain.message().message_id, None);
    assert_eq!(plain.payload.len(), named.payload.len() - 12);
    assert_eq!(a.until(ms(10_000)).len(), 0);
    a.path(ms(30_000), Kind::Refresh, 5000, To::Unknown);
    assert_eq!(one(a.drain()).message().message_id, None);
    a.path(ms(31_000), Kind::Trigger, 5000, To::Unknown);
    assert_eq!(one(a.drain()).message().message_id, None);
    a.layer.advance(ms(31_000));
    assert!(!a.layer.repeat_without(a.handles[&5000]), "nothing waits: the engine sends it");
}

/// Proves RSVPRR-2961-6-05 for MESSAGE_IDs: without an acknowledgment they stay, and refreshes go on.
#[test]
fn after_the_last_repetition() {
    let mut a = Node::plain(1);
    a.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    a.drain();
    a.until(ms(10_000));
    a.path(ms(30_000), Kind::Refresh, 5000, To::Unknown);
    let refresh = one(a.drain());
    assert!(refresh.message_id().ack_desired, "it was never acknowledged");
    assert_eq!(a.until(ms(60_000)).len(), 0);
    // Now a neighbor acknowledges.
    let mut b = Node::plain(2);
    b.take(ms(60_000), &refresh);
    b.packets_until(ms(60_000)).iter().for_each(|packet| _ = a.take(ms(60_000), packet));
    a.path(ms(90_000), Kind::Refresh, 5000, To::Unknown);
    assert!(!one(a.drain()).message_id().ack_desired);
}

/// Proves RSVPRR-2961-4-03: MESSAGE_IDs are of one hop.
#[test]
fn names_are_of_one_hop() {
    let (mut a, mut b, mut c) = (Node::plain(1), Node::plain(2), Node::plain(3));
    a.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    let from_a = one(a.drain());
    b.take(ms(0), &from_a);
    b.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    let from_b = b.drain();
    let from_b = from_b.iter().find(|packet| packet.kind() == PATH).unwrap();
    assert_ne!(from_b.message_id().epoch, from_a.message_id().epoch);
    c.take(ms(0), from_b);
    assert_eq!(one(c.packets_until(ms(0))).dst, addr(2));
}

/// A full table costs reliability, never the message; state that ended is not retransmitted.
#[test]
fn a_full_table_costs_reliability_and_no_message() {
    let mut small = config(prompt());
    small.max_unacknowledged = 2;
    small.max_names = 3;
    small.max_neighbors = 1;
    let mut a = Node::new(1, small);
    for port in 5000..5010 {
        a.path(ms(0), Kind::Trigger, port, To::Unknown);
    }
    let sent = a.drain();
    assert_eq!(sent.len(), 10);
    let asks = sent.iter().filter(|packet| packet.message().message_id.is_some_and(|name| name.ack_desired));
    assert_eq!(asks.count(), 2);
    assert_eq!(a.until(ms(600)).len(), 2);
    a.layer.remove_sent(a.handles[&5000]);
    assert_eq!(a.until(ms(10_000)).len(), 1, "the other one");
    assert!(a.layer.counters().overload >= 8);
    let (mut b, mut c) = (Node::plain(2), Node::plain(3));
    for node in [&mut b, &mut c] {
        node.path(ms(0), Kind::Trigger, 5000, To::Unknown);
        let got = a.take(ms(10_000), &one(node.drain()));
        assert_eq!(got, [took(PATH, 5000, Verdict::Process)]);
    }
    let no_upcall: &[Upcall] = &[];
    assert_eq!(a.upcalls, no_upcall);
}

/// A neighbor that acknowledges nothing: its messages are repeated in parts, and the rest stays due.
#[test]
fn repetitions_that_are_due_together_are_sent_in_parts() {
    const MESSAGES: usize = 1000;
    let mut node = Node::plain(1);
    for port in (5000..).take(MESSAGES) {
        node.path(ms(0), Kind::Trigger, port, To::Unknown);
    }
    assert_eq!(node.drain().len(), MESSAGES);
    let repeated = |node: &Node| usize::try_from(node.layer.counters().retransmissions).unwrap();
    node.layer.advance(ms(600));
    while node.layer.next_deadline().is_some_and(|due| due <= ms(600)) {
        let before = repeated(&node);
        node.layer.tick(256);
        node.drain();
        assert!(repeated(&node) <= before + 256);
    }
    assert_eq!(repeated(&node), MESSAGES);
}
