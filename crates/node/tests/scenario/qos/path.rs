//! A path without route changes.

use signalbox_node::Config;
use signalbox_node::qos::{Command, Priority, QosEvent, QosRequest, QueryRequest, ReserveRequest};
use signalbox_node::resources::config::{Action, RuleConfig};
use signalbox_node::resources::{Config as Resources, Rate};
use signalbox_sim::Family;

use super::net::{CAPACITY, MODES, Mode, Net, SECOND, config};

const RATE: u64 = 125_000;

/// With the periods of the RFCs, for ten minutes: neither the state of GIST nor that of the application expires.
#[test]
fn a_reservation_stands_at_every_node_until_it_is_torn_down() {
    for mode in MODES {
        let mut net = Net::chain(1, mode);
        net.reserve(1, net.request(RATE));
        let granted = net.granted(1, 5);
        assert_eq!(granted.quality.rate, Some(RATE));
        assert_eq!(granted.hops.iter().map(|hop| hop.rate).collect::<Vec<_>>(), [RATE, RATE, RATE, 0]);
        let met: Vec<_> = granted.hops[1..].iter().map(|hop| hop.address).collect();
        let expected: Vec<_> =
            (1..4).map(|n| net.sim.address_on(net.nodes[n], net.links[n - 1], Family::V4)).collect();
        assert_eq!(met, expected);
        assert!(!granted.gaps);
        net.expect_held(1, &[RATE, RATE, RATE, 0]);
        for _ in 0..60 {
            net.run(10);
            assert_eq!(net.held(), [RATE, RATE, RATE, 0], "{mode:?} at {}", net.sim.now());
        }
        assert!(net.total("reduced_refreshes_sent") > 40, "{}", net.total("reduced_refreshes_sent"));
        assert_eq!(net.total("expired"), 0);
        net.release(1);
        net.expect_nothing(2);
        assert!(matches!(
            net.events_of(1)[..],
            [QosEvent::Started { .. }, QosEvent::Granted(_), QosEvent::Released]
        ));
    }
}

#[test]
fn a_receiver_reserves_for_its_sender() {
    for mode in MODES {
        let mut net = Net::chain(2, mode);
        net.reserve(1, ReserveRequest { receiver_initiated: true, ..net.request(RATE) });
        let granted = net.granted(1, 5);
        // The hops are in the order of the flow, whichever end made the request.
        assert_eq!(granted.hops.iter().map(|hop| hop.rate).collect::<Vec<_>>(), [RATE, RATE, RATE, 0]);
        net.expect_held(2, &[RATE, RATE, RATE, 0]);
        for _ in 0..30 {
            net.run(10);
            assert_eq!(net.held(), [RATE, RATE, RATE, 0], "{mode:?} at {}", net.sim.now());
        }
        net.release(1);
        net.expect_nothing(2);
    }
}

#[test]
fn both_directions_stand_and_go_together() {
    for mode in MODES {
        let mut net = Net::chain(3, mode);
        net.reserve(1, ReserveRequest { bidirectional: true, ..net.request(RATE) });
        let granted = net.granted(1, 5);
        assert!(granted.back.is_some());
        // Routers reserve in both directions, ends towards the other end.
        net.expect_held(2, &[RATE, 2 * RATE, 2 * RATE, RATE]);
        for _ in 0..30 {
            net.run(10);
            assert_eq!(net.held(), [RATE, 2 * RATE, 2 * RATE, RATE], "{mode:?} at {}", net.sim.now());
        }
        net.release(1);
        net.expect_nothing(3);
    }
}

#[test]
fn a_refusal_names_the_node_and_the_rule() {
    for mode in MODES {
        let small = Config { resources: Resources::of_link("*", "1mbit".parse().unwrap()), ..config(mode) };
        let mut net = Net::row(4, vec![config(mode), config(mode), small, config(mode)]);
        net.reserve(1, net.request(RATE));
        net.run(5);
        let events = net.events_of(1);
        let [QosEvent::Started { .. }, QosEvent::Failed(failure)] = events[..] else { panic!("{events:?}") };
        assert_eq!((failure.class, failure.code), (4, 0x07));
        let node = net.sim.address_on(net.nodes[2], net.links[1], Family::V4);
        assert_eq!(failure.node, Some(node.to_string()));
        assert!(failure.rule.as_deref().is_some_and(|rule| rule.contains("share")), "{failure:?}");
        net.expect_nothing(2);
    }
}

#[test]
fn what_has_a_lower_priority_gives_way() {
    for mode in MODES {
        let mut net = Net::chain(5, mode);
        let priority = |n| Some(Priority { preemption: n, defending: n });
        net.reserve(1, ReserveRequest { priority: priority(1), ..net.request(600_000) });
        net.granted(1, 5);
        let mut flow = net.flow();
        flow.dst_port = Some(6000);
        // Equal priorities do not preempt.
        let request =
            ReserveRequest { priority: priority(1), ..ReserveRequest::new(flow, QosRequest::rate(500_000)) };
        net.reserve(2, request.clone());
        net.run(3);
        assert!(
            matches!(net.events_of(2)[..], [QosEvent::Started { .. }, QosEvent::Failed(_)]),
            "{:?}",
            net.events_of(2)
        );
        net.expect_held(1, &[600_000, 600_000, 600_000, 0]);
        net.reserve(3, ReserveRequest { priority: priority(2), ..request });
        net.granted(3, 5);
        net.expect_held(3, &[500_000, 500_000, 500_000, 0]);
        assert!(
            matches!(net.events_of(1)[..], [_, QosEvent::Granted(_), QosEvent::Lost(_)]),
            "{:?}",
            net.events_of(1)
        );
        net.release(3);
        net.expect_nothing(2);
    }
}

/// A flow that crosses the path preempts the reservation in the middle. The QNI is notified, and the rest of the
/// reservation ends.
#[test]
fn a_preemption_in_the_middle_is_reported_to_the_initiator() {
    for mode in MODES {
        let mut net = Net::chain(6, mode);
        let priority = |n| Some(Priority { preemption: n, defending: n });
        net.reserve(1, ReserveRequest { priority: priority(1), ..net.request(600_000) });
        net.granted(1, 5);
        let request = ReserveRequest { priority: priority(2), ..net.request(500_000) };
        net.command(net.nodes[2], 7, Command::Reserve(Box::new(request)));
        net.expect_held(5, &[0, 0, 500_000, 0]);
        let events = net.events_of(1);
        let [_, QosEvent::Granted(_), QosEvent::Lost(failure)] = events[..] else { panic!("{events:?}") };
        assert!(failure.meaning.contains("preempted"), "{failure:?}");
        net.command(net.nodes[2], 7, Command::Release);
        net.expect_nothing(2);
    }
}

#[test]
fn a_query_returns_what_the_path_could_give_and_holds_nothing() {
    for mode in MODES {
        let small = Config { resources: Resources::of_link("*", "4mbit".parse().unwrap()), ..config(mode) };
        let mut net = Net::row(7, vec![config(mode), config(mode), small, config(mode)]);
        let query = QueryRequest::new(net.flow(), QosRequest::rate(1_000_000));
        net.command(net.nodes[0], 1, Command::Query(Box::new(query)));
        net.run(5);
        let events = net.events_of(1);
        let [QosEvent::Started { .. }, QosEvent::Answer(answer)] = events[..] else { panic!("{events:?}") };
        assert_eq!(answer.available.rate, Some(375_000), "three quarters of 4 Mbit/s");
        assert_eq!(answer.hops.len(), 4);
        net.expect_nothing(1);
    }
}

#[test]
fn a_node_without_the_application_is_a_gap() {
    for mode in MODES {
        let without = Config { qos: None, ..config(mode) };
        let mut net = Net::row(8, vec![config(mode), without, config(mode), config(mode)]);
        net.reserve(1, net.request(RATE));
        let granted = net.granted(1, 5);
        // The distance to the peer is not visible over an association; the next Query carries it.
        if mode == Mode::Datagrams {
            assert!(granted.gaps);
            let after_gap: Vec<_> = granted.hops.iter().map(|hop| hop.after_gap).collect();
            assert_eq!(after_gap, [false, true, false]);
        }
        net.expect_held(1, &[RATE, 0, RATE, 0]);
        net.run(120);
        assert_eq!(net.held(), [RATE, 0, RATE, 0]);
        net.release(1);
        net.expect_nothing(2);
    }
}

#[test]
fn the_last_node_with_the_application_answers_for_the_path() {
    for mode in MODES {
        let without = Config { qos: None, ..config(mode) };
        let mut net = Net::row(9, vec![config(mode), config(mode), without.clone(), without]);
        net.reserve(1, net.request(RATE));
        let granted = net.granted(1, 40);
        assert_eq!(granted.hops.len(), 2);
        net.expect_held(1, &[RATE, RATE, 0, 0]);
        net.run(120);
        assert_eq!(net.held(), [RATE, RATE, 0, 0]);
        net.release(1);
        net.expect_nothing(2);
    }
}

/// Every node grants a change of the rate, or the old reservation stays.
#[test]
fn a_reservation_grows_or_stays_as_it_is() {
    for mode in MODES {
        let small = Config { resources: Resources::of_link("*", "4mbit".parse().unwrap()), ..config(mode) };
        let mut net = Net::row(10, vec![config(mode), config(mode), small, config(mode)]);
        net.reserve(1, net.request(RATE));
        net.granted(1, 5);
        net.reserve(1, net.request(2 * RATE));
        net.expect_held(5, &[2 * RATE, 2 * RATE, 2 * RATE, 0]);
        net.run(1);
        net.reserve(1, net.request(4 * RATE));
        net.run(5);
        let events = net.events_of(1);
        // The old reservation is granted again.
        let [.., QosEvent::Failed(_), QosEvent::Granted(granted)] = events[..] else { panic!("{events:?}") };
        assert_eq!(granted.quality.rate, Some(2 * RATE));
        net.expect_held(5, &[2 * RATE, 2 * RATE, 2 * RATE, 0]);
        net.run(200);
        assert_eq!(net.held(), [2 * RATE, 2 * RATE, 2 * RATE, 0]);
        net.release(1);
        net.expect_nothing(2);
    }
}

/// The other tests need links with this capacity.
#[test]
fn the_share_is_three_quarters() {
    let net = Net::chain(11, Mode::Datagrams);
    let mut net = net;
    net.run(1);
    let host = net.sim.engine(net.nodes[1]).unwrap();
    let shares: Vec<_> =
        host.node.resources().links().filter(|l| l.capacity.is_some()).map(|l| l.share).collect();
    assert!(
        shares.iter().filter(|share| **share == super::net::SHARE).count() >= 2,
        "{shares:?} of {CAPACITY}"
    );
}

/// Routers that provide no QoS are reported while they are on the path, and no longer: a router without its daemon is one.
#[test]
fn a_gap_ends_with_the_return_of_a_router() {
    let gaps = |net: &Net| {
        let host = net.sim.engine(net.nodes[0]).unwrap();
        host.node.qos_sessions().next().map(|session| session.gaps)
    };
    for (away, receiver_initiated) in [(1, false), (2, false), (1, true), (2, true)] {
        let mut net = Net::chain(12, Mode::Datagrams);
        let away = net.nodes[away];
        net.sim.crash(away);
        net.reserve(1, ReserveRequest { receiver_initiated, ..net.request(RATE) });
        assert!(net.granted(1, 5).gaps);
        assert_eq!(gaps(&net), Some(true), "{away:?} {receiver_initiated}");
        net.run(5);
        net.sim.restart(away);
        net.expect_held(60, &[RATE, RATE, RATE, 0]);
        let gone = net.sim.wait(SECOND * 60, |sim| {
            let mut sessions = sim.engine(net.nodes[0]).unwrap().node.qos_sessions();
            sessions.all(|session| !session.gaps)
        });
        assert!(gone, "{away:?} {receiver_initiated}");
        // It goes again, and the initiator learns of it.
        net.sim.crash(away);
        let node = net.nodes[0];
        let again = net.sim.wait(SECOND * 200, |sim| {
            sim.engine(node).unwrap().node.qos_sessions().any(|session| session.gaps)
        });
        assert!(again, "{away:?} {receiver_initiated}");
    }
}

/// A QUERY reports what a RESERVE of the same requester would get: the rules of each node apply.
#[test]
fn a_query_meets_the_rules_on_the_path() {
    let limited = || RuleConfig { max_rate: Some(Rate(250_000)), ..RuleConfig::new("small", Action::Allow) };
    let total = || RuleConfig { max_total: Some(Rate(100_000)), ..RuleConfig::new("total", Action::Allow) };
    let denied = || RuleConfig::new("nothing", Action::Deny);
    for (rules, expected) in
        [(vec![limited()], Ok(250_000)), (vec![total()], Ok(100_000)), (vec![denied()], Err("nothing"))]
    {
        let ruled = Resources { rules, ..Resources::of_link("*", CAPACITY.parse().unwrap()) };
        let ruled = Config { resources: ruled, ..config(Mode::Datagrams) };
        let plain = || config(Mode::Datagrams);
        let mut net = Net::row(13, vec![plain(), plain(), ruled, plain()]);
        let query = QueryRequest::new(net.flow(), QosRequest::rate(600_000));
        net.command(net.nodes[0], 1, Command::Query(Box::new(query)));
        net.run(5);
        let events = net.events_of(1);
        match (&events[..], expected) {
            ([QosEvent::Started { .. }, QosEvent::Answer(answer)], Ok(rate)) => {
                assert_eq!(answer.available.rate, Some(rate));
            }
            ([QosEvent::Started { .. }, QosEvent::Failed(failure)], Err(rule)) => {
                assert!(failure.rule.as_deref().is_some_and(|text| text.contains(rule)), "{failure:?}");
            }
            _ => panic!("{events:?} and not {expected:?}"),
        }
    }
}
