//! Receiver-initiated and bidirectional reservations, queries, proxies, preemption.

use std::time::Duration;

use signalbox_core::{Direction, SessionId};
use signalbox_qos::engine::{
    Command, Config, Priority, QosEvent, QosRequest, QueryRequest, ReserveRequest, ReverseDirection,
};
use signalbox_qos::wire::{GenericFlags, Info, MessageFlags, MessageType};

use crate::net::{Net, addr, flow, request};

fn receiver_initiated(to: usize, rate: u64) -> ReserveRequest {
    ReserveRequest { receiver_initiated: true, ..request(to, rate) }
}

/// QOS-4.3-01, QOS-4.3-02, QOS-4.3-03, QOS-5.4.2-01, QOS-5.4.2-04, QOS-5.4.2-06, QOS-5.4.1-02, QOS-5.4.1-33,
/// QOS-5.1.2.1-03
#[test]
fn a_receiver_reserves_back_along_the_way_of_the_query() {
    let mut net = Net::chain(4);
    net.reserve(0, 1, receiver_initiated(3, 125_000));
    net.seconds(1);
    let kinds: Vec<_> =
        net.log.iter().map(|l| (l.from, l.message().kind, l.mri.direction())).take(9).collect();
    let (down, up) = (Direction::Downstream, Direction::Upstream);
    assert_eq!(
        kinds,
        [
            (0, MessageType::QUERY, down),
            (1, MessageType::QUERY, down),
            (2, MessageType::QUERY, down),
            (3, MessageType::RESERVE, up),
            (2, MessageType::RESERVE, up),
            (1, MessageType::RESERVE, up),
            (0, MessageType::RESPONSE, down),
            (1, MessageType::RESPONSE, down),
            (2, MessageType::RESPONSE, down),
        ]
    );
    let query = net.log[0].message();
    assert!(query.is_reserve_init() && query.rii.is_none() && query.qspec.is_some());
    assert_eq!(net.all_held(), [125_000, 125_000, 125_000, 0]);
    let events = net.events(0);
    let [QosEvent::Started { .. }, QosEvent::Granted(granted)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(granted.quality.rate, Some(125_000));
    net.seconds(600);
    assert_eq!(net.all_held(), [125_000, 125_000, 125_000, 0]);
    net.command(0, 1, Command::Release);
    net.seconds(1);
    assert_eq!(net.events(0), [QosEvent::Released]);
    assert_eq!(net.all_held(), [0; 4]);
}

/// O04: a request without a size of packets is for what the path carries, whoever reserves. One with a size that does not fit is refused
/// with the MTU.
#[test]
fn the_request_of_a_receiver_follows_the_path() {
    for (small, fixed_packet, minimum) in [
        (0, false, false),
        (1, false, false),
        (2, false, false),
        (1, false, true),
        (0, true, false),
        (1, true, false),
    ] {
        let mut net = Net::chain(4);
        net.mtus.insert(small, 1420);
        let mut wanted = receiver_initiated(3, 125_000);
        wanted.qos.fixed_packet = fixed_packet;
        wanted.qos.minimum = minimum.then_some(100_000);
        net.reserve(0, 1, wanted);
        net.seconds(5);
        let events = net.events(0);
        let which = format!("{small} {fixed_packet} {minimum}: {events:?}");
        if fixed_packet {
            let [QosEvent::Started { .. }, QosEvent::Failed(failure)] = events.as_slice() else {
                panic!("{which}")
            };
            assert!(failure.rule.as_deref().is_some_and(|note| note.contains(" an MTU of 1420 ")), "{which}");
            assert_eq!(net.all_held(), [0; 4], "{which}");
        } else {
            let [QosEvent::Started { .. }, QosEvent::Granted(granted)] = events.as_slice() else {
                panic!("{which}")
            };
            assert_eq!(granted.quality.max_packet, Some(1420), "{which}");
            assert_eq!(net.all_held(), [125_000, 125_000, 125_000, 0], "{which}");
        }
    }
}

/// QOS-5.4.2-02
#[test]
fn a_node_that_expects_no_such_thing_refuses_to_reserve_for_a_sender() {
    let mut configs = vec![Config::default(); 3];
    configs[2].accept_reserve_init = false;
    let mut net = Net::with(configs, "10mbit");
    net.reserve(0, 1, receiver_initiated(2, 125_000));
    net.seconds(31);
    assert!(net.log.iter().any(|l| l.from == 2
        && l.message().kind == MessageType::RESPONSE
        && l.message().info.unwrap().info == Info::AUTHORISATION));
    assert!(matches!(net.events(0).last(), Some(QosEvent::Failed(_))));
    assert_eq!(net.all_held(), [0; 3]);
}

/// QOS-4.4-01, QOS-5.3.5-07, QOS-5.1.2.1-09
#[test]
fn both_directions_stand_or_none() {
    for way_back in [ReverseDirection::Reserve, ReverseDirection::Ask] {
        let mut net = Net::with(vec![Config { way_back, ..Config::default() }; 3], "10mbit");
        net.reserve(0, 1, ReserveRequest { bidirectional: true, ..request(2, 100_000) });
        net.seconds(2);
        let events = net.events(0);
        let [QosEvent::Started { .. }, QosEvent::Granted(granted)] = events.as_slice() else {
            panic!("{way_back:?} {events:?}")
        };
        assert!(granted.back.is_some());
        assert_eq!(net.all_held(), [100_000, 200_000, 100_000], "{way_back:?}");
        net.seconds(400);
        assert_eq!(net.all_held(), [100_000, 200_000, 100_000], "{way_back:?}");
        net.command(0, 1, Command::Release);
        net.seconds(2);
        assert_eq!(net.all_held(), [0; 3], "{way_back:?}");
        assert!(matches!(net.events(0).last(), Some(QosEvent::Released)), "{way_back:?} {:?}", net.events(0));
    }
}

/// The end of one direction ends the other. A user who waits for the confirmation of the tear gets no report of a
/// loss.
#[test]
fn a_release_of_both_directions_is_confirmed() {
    for way_back in [ReverseDirection::Reserve, ReverseDirection::Ask] {
        let mut net = Net::with(vec![Config { way_back, ..Config::default() }; 3], "10mbit");
        let both = ReserveRequest { bidirectional: true, confirm_release: true, ..request(2, 100_000) };
        net.reserve(0, 1, both);
        net.seconds(2);
        net.command(0, 1, Command::Release);
        net.seconds(2);
        let events = net.events(0);
        assert!(
            matches!(events.as_slice(), [QosEvent::Started { .. }, QosEvent::Granted(_), QosEvent::Released]),
            "{way_back:?} {events:?}"
        );
        assert_eq!(net.all_held(), [0; 3], "{way_back:?}");
    }
}

/// O09: the daemon of the initiator crashes, and its user asks again with the same session. Both directions stand within 5 s, also for
/// another rate, and where the far end asks for the way back, which only the node next to the initiator has to notice.
#[test]
fn an_initiator_that_crashed_has_both_directions_again() {
    for way_back in [ReverseDirection::Reserve, ReverseDirection::Ask] {
        for (nodes, rate) in [(2, 100_000), (3, 100_000), (4, 100_000), (4, 200_000), (4, 50_000)] {
            let what = format!("{way_back:?} {nodes} {rate}");
            let whole =
                |rate: u64| (0..nodes).map(move |n| if n % (nodes - 1) == 0 { rate } else { 2 * rate });
            let both = |rate| {
                let session = Some(SessionId([7; 16]));
                ReserveRequest { session, bidirectional: true, ..request(nodes - 1, rate) }
            };
            let mut net = Net::with(vec![Config { way_back, ..Config::default() }; nodes], "10mbit");
            net.reserve(0, 1, both(100_000));
            net.seconds(20);
            assert!(net.all_held().into_iter().eq(whole(100_000)), "{what}");
            net.restart(0, "10mbit");
            net.reserve(0, 2, both(rate));
            let (mut events, until) = (Vec::new(), net.now + Duration::from_secs(5));
            while net.now < until && !matches!(events.last(), Some(QosEvent::Granted(_))) {
                net.run(Duration::from_millis(1));
                events.extend(net.events(0));
            }
            assert!(
                matches!(events.as_slice(), [QosEvent::Started { .. }, QosEvent::Granted(_)]),
                "{what} {events:?}"
            );
            // Not for what an earlier request has left of the way back.
            assert!(net.all_held().into_iter().eq(whole(rate)), "{what} {:?}", net.all_held());
            net.seconds(400);
            assert!(net.all_held().into_iter().eq(whole(rate)), "{what} {:?}", net.all_held());
            net.command(0, 2, Command::Release);
            net.seconds(2);
            assert_eq!(net.all_held(), vec![0; nodes], "{what}");
        }
    }
}

#[test]
fn a_way_back_that_is_refused_ends_both_directions() {
    let mut net = Net::chain(3);
    net.nodes[2].resources = crate::net::resources("100kbit");
    net.reserve(0, 1, ReserveRequest { bidirectional: true, ..request(2, 100_000) });
    net.seconds(2);
    let events = net.events(0);
    assert!(matches!(events.as_slice(), [QosEvent::Started { .. }, QosEvent::Failed(_)]), "{events:?}");
    assert_eq!(net.all_held(), [0; 3]);
}

/// The initiator crashes, and its user asks again for more than the way back can have. The user learns at once what refused it, also
/// where the far end only asks for the way back, and what stood of it ends.
#[test]
fn another_rate_of_the_way_back_that_is_refused_reaches_the_user() {
    for way_back in [ReverseDirection::Reserve, ReverseDirection::Ask] {
        let both = |rate| {
            let session = Some(SessionId([7; 16]));
            ReserveRequest { session, bidirectional: true, ..request(3, rate) }
        };
        let mut net = Net::with(vec![Config { way_back, ..Config::default() }; 4], "10mbit");
        net.nodes[3].resources = crate::net::resources("1mbit");
        net.reserve(0, 1, both(80_000));
        net.seconds(20);
        assert_eq!(net.all_held(), [80_000, 160_000, 160_000, 80_000], "{way_back:?}");
        net.restart(0, "10mbit");
        net.reserve(0, 2, both(200_000));
        net.seconds(5);
        let events = net.events(0);
        let [QosEvent::Started { .. }, QosEvent::Failed(failure)] = events.as_slice() else {
            panic!("{way_back:?} {events:?}")
        };
        assert!(
            failure.rule.as_deref().is_some_and(|rule| rule.contains("share")),
            "{way_back:?} {failure:?}"
        );
        assert_eq!(net.all_held(), [0; 4], "{way_back:?}");
    }
}

/// QOS-5.1.2.2-04, QOS-5.4.2-05
#[test]
fn a_query_collects_what_the_path_can_give() {
    let mut net = Net::chain(4);
    net.nodes[1].resources = crate::net::resources("2mbit");
    net.command(
        0,
        1,
        Command::Query(Box::new(QueryRequest::new(flow(addr(3)), QosRequest::rate(1_000_000)))),
    );
    net.seconds(1);
    let events = net.events(0);
    let [QosEvent::Started { .. }, QosEvent::Answer(answer)] = events.as_slice() else {
        panic!("{events:?}")
    };
    // Three quarters of two megabits, in octets.
    assert_eq!(answer.available.rate, Some(187_500));
    assert_eq!(answer.hops.len(), 4);
    assert_eq!(net.all_held(), [0; 4]);
    let riis: Vec<_> = net.log.iter().map(|l| l.message().rii).collect();
    assert!(riis[0].is_some() && riis.iter().all(|rii| *rii == riis[0]), "one RII all along");
    net.seconds(60);
    assert_eq!(net.nodes.iter().map(|n| n.qos.sessions()).sum::<u32>(), 0);
}

/// QOS-4.8-01, QOS-4.8-02
#[test]
fn a_proxy_ends_what_is_meant_for_it() {
    let mut configs = vec![Config::default(); 4];
    configs[2].proxy = true;
    let mut net = Net::with(configs, "10mbit");
    net.reserve(0, 1, ReserveRequest { proxy: true, ..request(3, 100_000) });
    net.seconds(100);
    assert!(matches!(net.events(0).last(), Some(QosEvent::Granted(_))));
    assert_eq!(net.all_held(), [100_000, 100_000, 100_000, 0]);
    assert!(net.log.iter().all(|l| l.message().generic.contains(GenericFlags::PROXY)));
    assert!(net.log.iter().all(|l| l.to != Some(3)));
}

/// QOS-5.4.1-31
#[test]
fn a_scoped_reservation_ends_at_the_next_node() {
    let mut net = Net::chain(4);
    net.reserve(0, 1, ReserveRequest { next_node_only: true, ..request(3, 100_000) });
    net.seconds(1);
    assert!(matches!(net.events(0).last(), Some(QosEvent::Granted(_))));
    assert_eq!(net.all_held(), [100_000, 100_000, 0, 0]);
}

/// QOS-5.4.4-02, QOS-5.3.5-14, QOS-5.1.3.6-28, QSPEC-4.3.5-01
#[test]
fn the_stronger_reservation_takes_the_place_of_the_weaker() {
    let mut net = Net::chain(4);
    let with = |preemption, defending| {
        let mut one = request(3, 600_000);
        one.flow.src_port = Some(preemption);
        one.flow.dst_port = Some(1000 + preemption);
        ReserveRequest { priority: Some(Priority { preemption, defending }), ..one }
    };
    net.reserve(0, 1, with(1, 1));
    net.seconds(1);
    net.events(0);
    net.reserve(1, 2, with(5, 5));
    net.seconds(2);
    let events = net.events(0);
    let [QosEvent::Lost(failure)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((failure.class, failure.code), (4, 0x06));
    assert!(net.log.iter().any(|l| l.from == 1
        && l.message().kind == MessageType::NOTIFY
        && l.message().info.unwrap().info == Info::PREEMPTED));
    assert_eq!(net.all_held(), [0, 600_000, 600_000, 0]);
}

/// QOS-5.4.1-09, QOS-5.1.3.6-08
#[test]
fn a_tear_is_confirmed_if_somebody_wants_it() {
    let mut net = Net::chain(4);
    net.reserve(0, 1, ReserveRequest { confirm_release: true, ..request(3, 100_000) });
    net.seconds(1);
    net.events(0);
    net.command(0, 1, Command::Release);
    assert_eq!(net.events(0), [], "not yet");
    net.seconds(1);
    assert_eq!(net.events(0), [QosEvent::Released]);
    assert_eq!(net.all_held(), [0; 4]);
    assert!(net.nodes[2].qos.sessions() == 1, "operation state stays a while");
    let infos: Vec<Info> = net.log.iter().filter_map(|l| Some(l.message().info?.info)).collect();
    assert_eq!(infos, [[Info::RESERVED; 3], [Info::TORN_DOWN; 3]].concat());
    let tears = net.log.iter().filter(|l| l.message().flags.contains(MessageFlags::TEAR));
    assert_eq!(tears.count(), 3);
    net.seconds(31);
    assert_eq!(net.nodes.iter().map(|n| n.qos.sessions()).sum::<u32>(), 0);
}

/// If any message of a tear is lost, the repeated tear ends the reservation, also across nodes that have released it
/// already. QOS-5.4.1-13, QOS-5.4.1-09
#[test]
fn a_lost_tear_is_made_good() {
    for lost in 0..6 {
        let mut net = Net::chain(4);
        net.reserve(0, 1, request(3, 100_000));
        net.seconds(1);
        net.log.clear();
        // Three tears and three RESPONSEs; one of them is lost.
        let until = |net: &mut Net, count: usize| {
            while net.log.len() < count {
                net.run(Duration::from_millis(1));
            }
        };
        net.loss = if lost == 0 { 1.0 } else { 0.0 };
        net.command(0, 1, Command::Release);
        until(&mut net, lost);
        net.loss = 1.0;
        until(&mut net, lost + 1);
        net.loss = 0.0;
        net.seconds(4);
        assert_eq!(net.all_held(), [0; 4], "message {lost} was lost");
        assert_eq!(net.nodes[0].qos.sessions(), 0, "and its confirmation has come");
        assert_eq!(net.nodes[0].qos.counters().retransmissions, 1);
        net.seconds(31);
        assert_eq!(net.nodes.iter().map(|n| n.qos.sessions()).sum::<u32>(), 0);
    }
}

/// QOS-5.4.1-27, QOS-5.4.1-28, QOS-5.4.1-29, QOS-5.4.1-30, QOS-3.3-03
#[test]
fn a_gap_on_the_path_is_seen_by_all_behind_it_and_reported_back() {
    for (ignore_gaps, informed) in [(false, true), (true, false)] {
        let mut net = Net::with(vec![Config { ignore_gaps, ..Config::default() }; 4], "10mbit");
        net.gaps.insert(2, 1);
        net.reserve(0, 1, request(3, 100_000));
        net.seconds(1);
        let broken: Vec<_> =
            net.log.iter().map(|l| l.message().generic.contains(GenericFlags::BREAK)).collect();
        let expected = if informed { vec![false, false, true, true, true, true] } else { vec![false; 6] };
        assert_eq!(broken, expected);
        let events = net.events(0);
        assert!(matches!(events.last(), Some(QosEvent::Granted(granted)) if granted.gaps == informed));
    }
}

/// QOS-5.4.2-03
#[test]
fn a_query_is_answered_where_it_ends() {
    for (proxy, next_node_only, nodes) in [(false, false, 4), (true, false, 3), (false, true, 2)] {
        let mut configs = vec![Config::default(); 4];
        configs[2].proxy = true;
        let mut net = Net::with(configs, "10mbit");
        let query = QueryRequest {
            proxy,
            next_node_only,
            ..QueryRequest::new(flow(addr(3)), QosRequest::rate(1000))
        };
        net.command(0, 1, Command::Query(Box::new(query)));
        net.seconds(1);
        let events = net.events(0);
        let Some(QosEvent::Answer(answer)) = events.last() else { panic!("{events:?}") };
        assert_eq!(answer.hops.len(), nodes, "{proxy} {next_node_only}");
    }
}

/// Issue 30: the errors of a RESERVE go to the receiver that sent it. It tells the sender which node refused, and why, so that the
/// sender does not wait until its QUERY is given up.
#[test]
fn the_sender_learns_why_its_receiver_could_not_reserve() {
    for refusing in 0..3 {
        let mut net = Net::chain(4);
        net.reserve(0, 1, receiver_initiated(3, 125_000));
        // The link is filled after the QUERY has passed.
        net.run(Duration::from_millis(12));
        net.nodes[refusing].resources = crate::net::resources("1mbit");
        net.seconds(2);
        let events = net.events(0);
        let [QosEvent::Started { .. }, QosEvent::Failed(failure)] = events.as_slice() else {
            panic!("{refusing}: {events:?}")
        };
        assert_eq!((failure.class, failure.code), (4, 0x07), "{failure:?}");
        let node = failure.node.as_deref().unwrap_or_default();
        assert!(node.starts_with(&format!("10.{refusing}.")), "{failure:?}");
        assert!(failure.rule.as_deref().is_some_and(|rule| rule.contains("share")), "{failure:?}");
        net.seconds(60);
        assert_eq!(net.all_held(), [0; 4]);
        assert_eq!(net.nodes.iter().map(|n| n.qos.sessions()).sum::<u32>(), 0);
    }
}
