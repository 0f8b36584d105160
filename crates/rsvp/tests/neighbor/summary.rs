//! Summary refresh (RFC 2961 §5).

use std::net::IpAddr;
use std::time::Duration;

use signalbox_rsvp::engine::neighbor::{Reduction, Upcall, Verdict};
use signalbox_rsvp::wire::{HeaderFlags, ListedId, MessageType, Writer};

use super::rig::{Got, Kind, Node, Packet, To, acquainted, addr, config, exchange, group, ms, prompt, took};

const PATH: MessageType = MessageType::PATH;
const SREFRESH: MessageType = MessageType::SREFRESH;

fn only(packets: &[Packet], kind: MessageType) -> Vec<Packet> {
    packets.iter().filter(|packet| packet.kind() == kind).cloned().collect()
}

/// Proves RSVPRR-2961-5-02, RSVPRR-2961-5.2-02, RSVPRR-2961-5.2-05, RSVPRR-2961-5.2-06, RSVPRR-2961-5.3-01 and
/// RSVPRR-2961-5.3-05: to the neighbor, from the address of the RSVP_HOP, without Router Alert; the states are
/// refreshed.
#[test]
fn states_are_refreshed_by_name() {
    let (mut a, mut b) = acquainted(5000..5003);
    a.resv(ms(10), Kind::Trigger, 6000, 2);
    exchange(ms(10), &mut a, &mut b);
    for port in [5000, 5001, 5002, 6000] {
        assert!(a.summarise(ms(1000), port, 2), "{port}");
    }
    let packets = a.until(ms(2000));
    assert_eq!(packets.len(), 1, "one packet for all, and no Path or Resv");
    let (time, packet) = &packets[0];
    assert_eq!((*time, packet.kind()), (ms(1050), SREFRESH));
    assert_eq!((packet.src, packet.dst, packet.router_alert), (addr(1), addr(2), false));
    assert_eq!(b.take(ms(1050), packet), [5000, 5001, 5002, 6000].map(Got::Refreshed));
    assert_eq!(b.until(ms(2000)).len(), 0);
    // From another address the identifiers are unknown.
    let elsewhere = Packet { src: addr(3), ..packet.clone() };
    assert_eq!(b.take(ms(1060), &elsewhere), []);
    assert_eq!(
        only(&b.packets_until(ms(1060)), MessageType::ACK)[0].message().acks().count(),
        4,
        "not known"
    );
}

/// Proves RSVPRR-2961-5.2-07 and RSVPRR-2961-5.3-02: as many identifiers as fit a packet.
#[test]
fn an_srefresh_has_as_many_identifiers_as_fit() {
    let (mut a, mut b) = acquainted(5000..6000);
    for port in 5000..6000 {
        assert!(a.summarise(ms(1000), port, 2));
    }
    let mut packets = a.drain();
    packets.extend(a.packets_until(ms(2000)));
    assert!(packets.iter().all(|packet| packet.kind() == SREFRESH && packet.payload.len() <= 1400));
    // 4 octets each, and headers.
    assert_eq!(packets.len(), 4);
    let refreshed: usize = packets.iter().map(|packet| b.take(ms(1050), packet).len()).sum();
    assert_eq!(refreshed, 1000);
    assert_eq!(b.layer.counters().states_refreshed, 1000);
}

/// Proves RSVPRR-2961-5.3-06, RSVPRR-2961-5.4-01 and RSVPRR-2961-5.4-02: a neighbor that lost state sends a NACK, and
/// gets the whole message; NACKs for unknown identifiers are ignored.
#[test]
fn lost_state_is_restored() {
    let (mut a, b) = acquainted(5000..5002);
    drop(b);
    let mut restarted = Node::seeded(2, config(prompt()), 77);
    assert!(a.summarise(ms(1000), 5000, 2) && a.summarise(ms(1000), 5001, 2));
    let packets = a.packets_until(ms(1050));
    assert_eq!(restarted.take(ms(1050), &packets[0]), []);
    let nacks = restarted.packets_until(ms(1050));
    assert_eq!((nacks.len(), nacks[0].kind(), nacks[0].dst), (1, MessageType::ACK, addr(1)));
    let listed: Vec<_> =
        packets[0].message().lists().flat_map(|list| list.ids().map(move |id| (list.epoch, id.id))).collect();
    let refused: Vec<_> =
        nacks[0].message().acks().map(|(name, negative)| (negative, (name.epoch, name.id))).collect();
    assert_eq!(refused, listed.iter().map(|name| (true, *name)).collect::<Vec<_>>());
    assert_eq!(a.take(ms(1050), &nacks[0]), []);
    a.drain();
    assert_eq!(a.upcalls, [Upcall::SendWhole { tag: 5000 }, Upcall::SendWhole { tag: 5001 }]);
    // Until then the state is sent as a whole message.
    assert!(!a.summarise(ms(1060), 5000, 2));
    a.path(ms(1060), Kind::Refresh, 5000, To::Next(2));
    exchange(ms(1160), &mut a, &mut restarted);
    a.packets_until(ms(1200)).iter().for_each(|packet| _ = restarted.take(ms(1200), packet));
    restarted.packets_until(ms(1200)).iter().for_each(|packet| _ = a.take(ms(1200), packet));
    assert!(restarted.states[&5000].is_some());
    assert!(a.summarise(ms(2000), 5000, 2));
    // A state that ended.
    a.layer.remove_sent(a.handles[&5001]);
    a.upcalls.clear();
    assert_eq!(a.take(ms(2000), &nacks[0]), []);
    a.drain();
    assert_eq!(a.upcalls, [Upcall::SendWhole { tag: 5000 }]);
}

/// Proves RSVPRR-2961-5-01 and RSVPRR-2961-5.3-03: state that is new, was never acknowledged, or by another node, is sent
/// as a whole message; no refresh waits longer than configured.
#[test]
fn what_is_not_summarised() {
    let (mut a, mut b) = (Node::plain(1), Node::plain(2));
    a.path(ms(0), Kind::Trigger, 5000, To::Next(2));
    a.drain();
    assert!(!a.summarise(ms(1), 5000, 2), "no message came yet");
    b.resv(ms(2), Kind::Trigger, 6000, 1);
    b.drain().iter().for_each(|packet| _ = a.take(ms(2), packet));
    assert!(!a.summarise(ms(3), 5000, 2), "known to do it, but not to have this state");
    let (mut a, mut b) = acquainted(5000..5001);
    let mut c = Node::plain(3);
    c.resv(ms(2), Kind::Trigger, 6000, 1);
    c.drain().iter().for_each(|packet| _ = a.take(ms(2), packet));
    assert!(!a.summarise(ms(3), 5000, 3), "another neighbor has it");
    assert!(!a.summarise(ms(3), 5000, 77), "no RSVP neighbor");
    a.path(ms(4), Kind::Trigger, 5000, To::Next(2));
    assert!(!a.summarise(ms(5), 5000, 2), "a trigger message was not acknowledged");
    exchange(ms(6), &mut a, &mut b);
    assert!(a.summarise(ms(7), 5000, 2));
    let default = Reduction::default();
    assert!(
        default.summary_delay <= Duration::from_secs(1) && default.bundle_delay <= Duration::from_secs(1)
    );
}

/// Proves RSVPRR-2961-5.5-01 and RSVPRR-2961-5.5-02: now and then a state is sent as a whole message, without an
/// Srefresh beside it.
#[test]
fn whole_now_and_then() {
    let (mut a, mut b) = acquainted(5000..5001);
    let mut summaries = Vec::new();
    for period in 1..=44_u64 {
        let now = ms(period * 30_000);
        if a.summarise(now, 5000, 2) {
            summaries.push(period);
        } else {
            a.path(now, Kind::Refresh, 5000, To::Next(2));
        }
        let got: Vec<Got> = a
            .packets_until(now + Duration::from_secs(1))
            .iter()
            .flat_map(|packet| b.take(now, packet))
            .collect();
        assert_eq!(got.len(), 1, "period {period}");
    }
    let whole: Vec<u64> = (1..=44).filter(|period| !summaries.contains(period)).collect();
    assert_eq!(whole, [21, 42]);
}

/// A router that takes over the address of another one (VRRP) gets a whole message now and then. It acknowledges it, and the
/// Srefreshes go to it from then on, not to the former router, which may still take them.
#[test]
fn who_takes_a_whole_refresh_gets_the_next_srefreshes() {
    let (mut a, mut b) = acquainted(5000..5001);
    let mut c = Node::new(3, config(prompt()));
    let mut period = 1;
    while a.summarise(ms(period * 30_000), 5000, 2) {
        let packets = a.packets_until(ms(period * 30_000 + 1000));
        packets
            .iter()
            .for_each(|packet| assert_eq!(b.take(ms(period * 30_000), packet), [Got::Refreshed(5000)]));
        period += 1;
    }
    let now = ms(period * 30_000);
    a.path(now, Kind::Refresh, 5000, To::Next(2));
    for packet in a.packets_until(now + Duration::from_secs(1)) {
        c.take(now, &packet);
    }
    let acks = c.packets_until(now + Duration::from_secs(1));
    acks.iter().for_each(|packet| _ = a.take(now, packet));
    assert!(!a.summarise(now, 5000, 2), "the former router");
    assert!(a.summarise(now, 5000, 3), "the one that took it");
}

/// Proves RSVPRR-2961-5.2-03, RSVPRR-2961-5.2-04, RSVPRR-2961-5.2-06 and RSVPRR-2961-5.3-08: to a group by SRC_LIST, with
/// Router Alert, and only where all nodes support it.
#[test]
fn a_group_gets_source_lists_where_all_nodes_support_them() {
    let mut a = Node::new(1, config(Reduction { all_nodes_capable: true, ..prompt() }));
    let (mut b, mut c) = (Node::plain(2), Node::plain(3));
    a.path(ms(0), Kind::Trigger, 5000, To::Group);
    let path = a.drain();
    b.take(ms(0), &path[0]);
    assert!(!a.summarise_group(ms(1), 5000), "no neighbor has it yet");
    b.packets_until(ms(400)).iter().for_each(|packet| _ = a.take(ms(400), packet));
    assert!(a.summarise_group(ms(1000), 5000));
    let packets = a.packets_until(ms(1050));
    let srefresh = &packets[0];
    assert_eq!(
        (srefresh.src, srefresh.dst, srefresh.router_alert, srefresh.ttl),
        (addr(1), group(), true, 63)
    );
    let list = srefresh.message().lists().next().unwrap();
    assert!(list.is_source_list());
    assert_eq!(list.ids().next().unwrap().source, Some(IpAddr::from([10, 0, 0, 1])));
    assert_eq!(b.take(ms(1050), srefresh), [Got::Refreshed(5000)]);

    // Another node on the link that is not on the tree sends nothing.
    assert_eq!(c.take(ms(1050), srefresh), [Got::Unknown]);
    assert_eq!(c.until(ms(2000)).len(), 0);

    let (mut careful, mut b) = (Node::plain(1), Node::plain(2));
    careful.path(ms(0), Kind::Trigger, 5000, To::Group);
    careful.drain().iter().for_each(|packet| _ = b.take(ms(0), packet));
    b.packets_until(ms(400)).iter().for_each(|packet| _ = careful.take(ms(400), packet));
    assert!(!careful.summarise_group(ms(1000), 5000));
}

/// Proves RSVPRR-2961-5.3-07: an unknown multicast MESSAGE_ID is answered only by nodes on the tree.
#[test]
fn multicast_names_that_are_not_known() {
    let source = IpAddr::from([10, 0, 0, 1]);
    for shared in [Some(group()), None] {
        let mut payload = Vec::new();
        let mut w = Writer::new(&mut payload, SREFRESH, HeaderFlags::REFRESH_REDUCTION, 63);
        w.id_list(9, &[ListedId { id: 5, source: Some(source), group: shared }]);
        w.finish().unwrap();
        let dst = if shared.is_some() { addr(2) } else { group() };
        let packet = Packet { src: addr(1), dst, ttl: 63, router_alert: shared.is_none(), payload };
        for on_tree in [true, false] {
            let mut node = Node::plain(2);
            node.on_tree = on_tree;
            assert_eq!(node.take(ms(0), &packet), [Got::Unknown]);
            let packets = node.packets_until(ms(1000));
            assert_eq!(packets.len(), usize::from(on_tree));
            for nack in &packets {
                let acks: Vec<_> =
                    nack.message().acks().map(|(name, no)| (name.epoch, name.id, no)).collect();
                assert_eq!((nack.dst, acks), (addr(1), vec![(9, 5, true)]));
            }
        }
    }
}

/// Proves RSVPRR-2961-5.1-04: identifiers of another epoch are unknown.
#[test]
fn identifiers_of_another_epoch_are_unknown() {
    let (mut a, mut b) = acquainted(5000..5001);
    assert!(a.summarise(ms(1000), 5000, 2));
    let right = &a.packets_until(ms(1050))[0];
    let list = right.message().lists().next().unwrap();
    let ids: Vec<ListedId> = list.ids().collect();
    let mut payload = Vec::new();
    let mut w = Writer::new(&mut payload, SREFRESH, HeaderFlags::REFRESH_REDUCTION, 255);
    w.id_list(list.epoch ^ 1, &ids).id_list(list.epoch, &ids);
    w.finish().unwrap();
    let both = Packet { payload, ..right.clone() };
    assert_eq!(b.take(ms(1050), &both), [Got::Refreshed(5000)]);
    assert_eq!(b.layer.counters().names_unknown, 1);
}

/// Proves RSVPRR-2961-5.3-05 and RSVPRR-2961-5.3-06: of one list the known states are refreshed, in its order, and each unknown
/// identifier gets a NACK, however they are mixed.
#[test]
fn known_and_unknown_identifiers_of_one_list() {
    let (mut a, mut b) = acquainted(5000..5040);
    for port in 5000..5040 {
        assert!(a.summarise(ms(1000), port, 2));
    }
    let right = &a.packets_until(ms(1050))[0];
    let list = right.message().lists().next().unwrap();
    let unknown = |listed: ListedId| ListedId { id: listed.id + 1_000_000, ..listed };
    let known: Vec<ListedId> = list.ids().collect();
    let mixed =
        known.chunks(7).flat_map(|some| some.iter().copied().chain(some.first().copied().map(unknown)));
    let mut payload = Vec::new();
    let mut w = Writer::new(&mut payload, SREFRESH, HeaderFlags::REFRESH_REDUCTION, 255);
    w.id_list(list.epoch, &mixed.collect::<Vec<_>>());
    w.finish().unwrap();
    let got = b.take(ms(1050), &Packet { payload, ..right.clone() });
    assert_eq!(got, (5000..5040).map(Got::Refreshed).collect::<Vec<_>>());
    assert_eq!((b.layer.counters().states_refreshed, b.layer.counters().names_unknown), (40, 6));
    let packets = b.packets_until(ms(1100));
    let nacks: Vec<u32> = packets
        .iter()
        .flat_map(|packet| packet.message().acks().map(|(name, _)| name.id).collect::<Vec<_>>())
        .collect();
    let expected: Vec<u32> = known.chunks(7).map(|some| unknown(some[0]).id).collect();
    assert_eq!(nacks, expected);
}

/// State that ended is not refreshed by its MESSAGE_ID any more.
#[test]
fn state_that_ended_is_not_refreshed() {
    let (mut a, mut b) = acquainted(5000..5001);
    assert!(a.summarise(ms(1000), 5000, 2));
    let srefresh = &a.packets_until(ms(1050))[0];
    a.say(ms(1060), MessageType::PATH_TEAR, Kind::Once, 5000, To::Next(2));
    let tear = &a.drain()[0];
    assert_eq!(b.take(ms(1060), tear), [took(MessageType::PATH_TEAR, 5000, Verdict::Process)]);
    assert_eq!(b.take(ms(1070), srefresh), []);
    assert_eq!(
        b.take(ms(1080), tear),
        [took(MessageType::PATH_TEAR, 5000, Verdict::Process)],
        "nothing is known of it"
    );
    assert_eq!(only(std::slice::from_ref(tear), PATH).len(), 0);
}
