//! Segments of the path with LOCAL objects: their source, the nodes inside, and their sink.

use std::sync::Arc;
use std::time::Duration;

use signalbox_casp::clients::qos::{Config, QosEvent, QosRequest, Range, Segment};
use signalbox_casp::wire::Objects;
use signalbox_casp::wire::qos::{QosFlags, QosMessage, QosType};
use signalbox_core::SessionId;
use signalbox_core::node::Prefix;
use signalbox_core::security::{Fingerprint, Identity};

use crate::rig::{ETH, Packet, Rig, at, flow, mbit, with_rate};

const SESSION: SessionId = SessionId([7; 16]);

/// A segment of these nodes, as node `n` has it in its configuration.
fn segment(scope: u8, members: std::ops::RangeInclusive<usize>, n: usize) -> Option<Segment> {
    let neighbors = [n.checked_sub(1), Some(n + 1)];
    let nodes = neighbors.into_iter().flatten().filter(|one| members.contains(one));
    let leads = [("eth0", Some(n + 1)), ("eth1", n.checked_sub(1))];
    let leads = leads.into_iter().filter(|(_, to)| to.is_some_and(|to| members.contains(&to)));
    let interfaces = leads.map(|(name, _)| name.to_owned()).collect();
    members.contains(&n).then(|| Segment {
        scope,
        interfaces,
        nodes: nodes.map(|one| Prefix::host(at(one))).collect(),
        dscp: Some(34),
        map: Vec::new(),
        outside: 1,
    })
}

fn identity() -> Option<Arc<Identity>> {
    Some(Arc::new(Identity::of_key(Fingerprint([1; 32]))))
}

/// A source 0, the nodes 1 to 3 of a segment with scope 5, and a destination 4; TLS proves the nodes.
fn one_segment() -> Rig {
    let config = |n| Config { segments: segment(5, 1..=3, n).into_iter().collect(), ..Config::default() };
    let mut rig = Rig::with_each(5, config);
    rig.identity = identity();
    rig
}

fn stands(rig: &mut Rig, by_receiver: bool) {
    let request = QosRequest { by_receiver, ..rig.request(Range::only(mbit(2.0))) };
    rig.reserve(0, 1, &request);
    assert!(rig.events(0).contains(&QosEvent::Committed { amount: mbit(2.0) }), "{:?}", rig.events(0));
}

/// Scope and contents of the DSCPs in a message.
fn local(packet: &Packet) -> Vec<(u8, Vec<u8>)> {
    packet.message().local().map(|one| (one.scope, one.data.to_vec())).collect()
}

/// A Reserve of node 0 to node 1 with these octets at its end.
fn reserve(rig: &Rig, to: usize, objects: &[u8]) -> Packet {
    let mut reserve = QosMessage::new(QosType::RESERVE, flow(rig.nodes.len()));
    (reserve.sequence, reserve.age, reserve.objects) = (Some(1), Some(5), Objects::of(objects));
    with_rate(&mut reserve, 2.0);
    rig.packet(to, to - 1, SESSION, &reserve)
}

/// A LOCAL object of one octet.
fn object(kind: u8, scope: u8, data: u8) -> [u8; 12] {
    [0, 9, 9, 1, 0, 7, kind, scope, data, 0, 0, 0]
}

/// CASPQOS-6-01, CASPQOS-6-02: LOCAL is in the requests between source and sink of the segment and nowhere else, and
/// its DSCP is that of the packets inside.
#[test]
fn local_is_present_in_its_segment_only() {
    let mut rig = one_segment();
    stands(&mut rig, false);
    for kind in [QosType::RESERVE, QosType::COMMIT] {
        for (to, there) in [(1, false), (2, true), (3, true), (4, false)] {
            let expected = if there { vec![(5, vec![34])] } else { Vec::new() };
            assert_eq!(local(&rig.last(to, kind)), expected, "{kind} to {to}");
        }
    }
    assert_eq!([0, 1, 2, 3].map(|n| rig.mark(n)), [None, Some(34), Some(34), Some(1)]);
    // Refreshes keep it.
    rig.seen.clear();
    rig.wait(Duration::from_secs(60));
    assert_eq!(local(&rig.last(3, QosType::RESERVE)), [(5, vec![34])]);
    assert_eq!([1, 2, 3].map(|n| rig.mark(n)), [Some(34), Some(34), Some(1)]);
    rig.release(0, 1);
    assert_eq!(rig.events(0).last(), Some(&QosEvent::Released { confirmed: true }));
}

/// CASPQOS-6-01, CASPQOS-6-02: the requests of a receiver enter the segment at its other end.
#[test]
fn requests_against_the_data_have_it_too() {
    let mut rig = one_segment();
    stands(&mut rig, true);
    for (to, there) in [(3, false), (2, true), (1, true), (0, false)] {
        let expected = if there { vec![(5, vec![34])] } else { Vec::new() };
        assert_eq!(local(&rig.last(to, QosType::COMMIT)), expected, "to {to}");
    }
    assert_eq!([1, 2, 3].map(|n| rig.mark(n)), [Some(34), Some(34), Some(1)]);
}

/// A request for both directions, and that of a receiver for the opposite flow: the packets of each direction have the DSCP of the segment
/// inside of it, and that of the border where they leave it.
#[test]
fn packets_of_both_directions_are_marked() {
    for both in [true, false] {
        let config = |n| Config {
            segments: segment(5, 1..=3, n).map(|one| Segment { outside: 8, ..one }).into_iter().collect(),
            reserve_opposite: !both,
            ..Config::default()
        };
        let mut rig = Rig::with_each(5, config);
        rig.identity = identity();
        let request = QosRequest { both, ..rig.request(Range::only(mbit(2.0))) };
        rig.reserve(0, 1, &request);
        assert!(rig.events(0).contains(&QosEvent::Committed { amount: mbit(2.0) }), "{:?}", rig.events(0));
        let inside = Some(34);
        let expected = [[None, None], [inside, Some(8)], [inside, inside], [Some(8), inside], [None, None]];
        let marks = |rig: &Rig| [0, 1, 2, 3, 4].map(|n| rig.marks(n));
        assert_eq!(marks(&rig), expected, "both: {both}");
        rig.wait(Duration::from_secs(200));
        assert_eq!(marks(&rig), expected, "both: {both}");
    }
}

/// CASPQOS-6-03: without authentication the nodes inside ignore LOCAL and send it to no other node. A node that IPsec
/// protects counts as authenticated.
#[test]
fn local_of_strangers_is_not_trusted() {
    let mut rig = one_segment();
    rig.identity = None;
    stands(&mut rig, false);
    assert_eq!(local(&rig.last(2, QosType::RESERVE)).len(), 1);
    assert_eq!(local(&rig.last(3, QosType::RESERVE)), []);
    assert_eq!((rig.mark(2), rig.mark(3)), (None, None));
    assert_eq!(rig.nodes[2].client.counters().local_untrusted, 2);
    let config = |n| {
        let protected = vec![Prefix::host(at(1)), Prefix::host(at(2))];
        Config { segments: segment(5, 1..=3, n).into_iter().collect(), protected, ..Config::default() }
    };
    let mut rig = Rig::with_each(5, config);
    stands(&mut rig, false);
    assert_eq!((rig.mark(2), rig.mark(3)), (Some(34), Some(1)));
}

/// CASPQOS-6-02: what comes from outside with the scope of the segment is taken out at the border, from an authenticated
/// node too. An object of another kind stays inside, and its octets are not changed.
#[test]
fn the_border_takes_out_what_is_of_its_scope() {
    let mut rig = one_segment();
    let packet = reserve(&rig, 1, &object(2, 5, 46));
    rig.inject(packet);
    assert_eq!(local(&rig.last(2, QosType::RESERVE)), [(5, vec![34])]);
    assert_eq!(rig.nodes[1].client.counters().local_untrusted, 1);
    let mut rig = one_segment();
    let packet = reserve(&rig, 2, &object(6, 5, 99));
    rig.inject(packet);
    assert_eq!(local(&rig.last(3, QosType::RESERVE)), [(5, vec![99])]);
    assert_eq!(local(&rig.last(4, QosType::RESERVE)), []);
}

/// CASPQOS-6-02: answers leave the segment without LOCAL of its scope. CASPQOS-6-05: that of others passes.
#[test]
fn answers_leave_the_segment_without_it() {
    let mut rig = one_segment();
    stands(&mut rig, false);
    let (own, other) = (object(6, 5, 1), object(6, 9, 2));
    let objects = [&own[..], &other].concat();
    let mut success = QosMessage::new(QosType::SUCCESS, flow(5));
    (success.echo, success.objects) = (Some(77), Objects::of(&objects));
    success.version = Some(signalbox_casp::wire::qos::QosVersion::BANDWIDTH);
    rig.seen.clear();
    let packet = rig.packet(2, 3, SessionId([2; 16]), &success);
    rig.inject(packet);
    assert_eq!(local(&rig.last(1, QosType::SUCCESS)), [(5, vec![1]), (9, vec![2])]);
    assert_eq!(local(&rig.last(0, QosType::SUCCESS)), [(9, vec![2])]);
}

/// CASPQOS-6-08, CASPQOS-6-01: the node between two networks takes the DSCP of the one out, and adds that of the other.
#[test]
fn a_dscp_is_mapped_at_the_border() {
    let config = |n| {
        let second =
            segment(6, 2..=4, n).map(|one| Segment { map: vec![(8, 9), (34, 12)], dscp: Some(20), ..one });
        let segments = segment(5, 0..=2, n).into_iter().chain(second).collect();
        Config { segments, ..Config::default() }
    };
    let mut rig = Rig::with_each(5, config);
    rig.identity = identity();
    stands(&mut rig, false);
    let seen = [1, 2, 3, 4].map(|n| local(&rig.last(n, QosType::COMMIT)));
    assert_eq!(seen, [vec![(5, vec![34])], vec![(5, vec![34])], vec![(6, vec![12])], vec![(6, vec![12])]]);
    assert_eq!([0, 1, 2, 3].map(|n| rig.mark(n)), [Some(34), Some(34), Some(12), Some(12)]);
}

/// CASPQOS-6-06, CASPQOS-6-07, CASPQOS-6-05: a segment inside of another one. The objects of the outer one pass it untouched, and the
/// packets have the DSCP of the inner one inside.
#[test]
fn segments_nest() {
    let config = |n| {
        let inner = segment(9, 2..=3, n).map(|one| Segment { map: vec![(34, 10)], ..one });
        let segments = inner.into_iter().chain(segment(5, 1..=4, n)).collect();
        Config { segments, ..Config::default() }
    };
    let mut rig = Rig::with_each(6, config);
    rig.identity = identity();
    stands(&mut rig, false);
    let outer = (5, vec![34]);
    let seen = [1, 2, 3, 4, 5].map(|n| local(&rig.last(n, QosType::RESERVE)));
    let expected = [vec![], vec![outer.clone()], vec![outer.clone(), (9, vec![10])], vec![outer], vec![]];
    assert_eq!(seen, expected);
    assert_eq!([1, 2, 3, 4].map(|n| rig.mark(n)), [Some(34), Some(10), Some(34), Some(1)]);
}

/// If the border changes the DSCP of a flow, the packets get the new one. A value that is no DSCP is ignored.
#[test]
fn a_changed_dscp_changes_the_packets() {
    let mut rig = one_segment();
    stands(&mut rig, false);
    let mut refresh = rig.last(2, QosType::COMMIT);
    let last = refresh.data.len() - 4;
    refresh.data[last] = 12;
    rig.inject(refresh.clone());
    assert_eq!((rig.mark(2), rig.mark(3)), (Some(12), Some(1)));
    refresh.data[last] = 64;
    rig.inject(refresh);
    assert_eq!((rig.mark(2), rig.mark(3)), (None, None));
}

/// CASPQOS-6-01: what a node sends to a new next hop by itself has LOCAL too.
#[test]
fn a_new_branch_gets_local() {
    let mut rig = one_segment();
    stands(&mut rig, false);
    rig.seen.clear();
    let indication = signalbox_casp::engine::Indication::Branch {
        session: SessionId([2; 16]),
        flow: flow(5),
        previous: false,
        id: 1,
        ended: false,
    };
    rig.indicate(2, &indication);
    let sent = rig.last(3, QosType::COMMIT);
    assert!(sent.message().flags.contains(QosFlags::BRANCH));
    assert_eq!(local(&sent), [(5, vec![34])]);
    assert_eq!(rig.mark(2), Some(34));
    assert!(rig.nodes[2].resources.reservations().all(|one| one.ifindex == ETH));
}
