//! Nodes on the path that lack the application, or run no engine at all.

use core::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_gist::wire::{GistError, MessageType};
use signalbox_node::Event;
use signalbox_node::ping::{LostReason, PingEvent};
use signalbox_sim::{Captured, Family, LinkConfig, Sim, topology};

use crate::net::Role::{Full, Router, WithoutPing};
use crate::net::{
    FAMILIES, Net, assert_clean_wire, config, gist, header, make, message, path, replies, total,
};

const LIMIT: Duration = Duration::from_secs(60);

fn queries(net: &Net, link: usize) -> Vec<&Captured> {
    let link = net.links[link];
    net.sim.captured().filter(|c| c.link == link && header(c).kind == MessageType::QUERY).collect()
}

/// GIST-4.3.4-02: a node without the application forwards the Query and keeps no state. GIST-4.3.4-05, GIST-4.3.4-06:
/// the IP TTL and the GIST hop count are one less. GIST-4.3.2-06, GIST-4.3.4-17, GIST-3.7-01: every other octet is
/// unchanged.
#[test]
fn a_node_without_the_application_lets_signaling_pass() {
    for family in FAMILIES {
        let mut net = Net::row(1, &[Full, WithoutPing, Full], &LinkConfig::default());
        net.sim.capture_all();
        net.ping(7, family, Some(3));
        assert_eq!(net.done(7, LIMIT), (3, 3));
        for (_, reply) in replies(&net.sim, 7) {
            assert_eq!(path(reply), [net.towards_first(2, family)]);
            assert_eq!(reply.hops[0].ip_distance, 1);
        }
        assert_eq!((net.sessions(0), net.sessions(1), net.sessions(2)), (1, 0, 1));
        let (before, after) = (queries(&net, 0), queries(&net, 1));
        assert_eq!((before.len(), after.len()), (1, 1));
        let (before, after) = (&before[0].packet, &after[0].packet);
        assert_eq!(after.ttl, before.ttl - 1);
        assert_eq!((after.src, after.dst, after.tos), (before.src, before.dst, before.tos));
        assert_eq!((after.dont_fragment, &after.options), (before.dont_fragment, &before.options));
        // The magic number and the version come before the hop count.
        let mut expected = before.payload.clone();
        expected[5] -= 1;
        assert_eq!(after.payload, expected);
        assert_eq!(total(&net.sim, "gist", "forwarded"), 1);
        assert_clean_wire(&net.sim);
    }
}

#[test]
fn a_router_without_engine_lets_signaling_pass() {
    for family in FAMILIES {
        let mut net = Net::row(2, &[Full, Router, Full], &LinkConfig::default());
        net.ping(7, family, Some(3));
        assert_eq!(net.done(7, LIMIT), (3, 3));
        for (_, reply) in replies(&net.sim, 7) {
            assert_eq!(path(reply), [net.towards_first(2, family)]);
            assert_eq!(reply.hops[0].ip_distance, 1);
        }
    }
}

#[test]
fn all_kinds_of_nodes_on_one_path() {
    let roles = [Full, Router, WithoutPing, Full, WithoutPing, Router, Router, Full, Full];
    for family in FAMILIES {
        let mut net = Net::row(3, &roles, &LinkConfig::default());
        net.ping(7, family, Some(3));
        assert_eq!(net.done(7, LIMIT), (3, 3));
        for (_, reply) in replies(&net.sim, 7) {
            let full = [3, 7, 8].map(|n| net.towards_first(n, family));
            assert_eq!(path(reply), full);
            assert_eq!(reply.hops.iter().map(|hop| hop.ip_distance).collect::<Vec<_>>(), [2, 3, 0]);
            let back = [7, 3].map(|n| net.towards_last(n, family));
            assert_eq!(reply.back.iter().map(|hop| hop.address).collect::<Vec<_>>(), back);
        }
        assert_eq!([2, 4].map(|n| net.sessions(n)), [0, 0]);
    }
}

/// GIST-4.3.4-04: a destination without the application answers with an Error, and the last node with the application
/// is the end of the signaling.
#[test]
fn a_destination_without_the_application_ends_the_search() {
    let mut net = Net::row(4, &[Full, Full, WithoutPing], &LinkConfig::default());
    net.sim.capture_all();
    net.ping(7, Family::V4, Some(1));
    assert_eq!(net.done(7, LIMIT), (1, 0));
    let replies = replies(&net.sim, 7);
    let (_, reply) = replies[0];
    assert!(!reply.reached_end);
    assert_eq!(path(reply), [net.towards_first(1, Family::V4)]);
    assert!(reply.rtt < Duration::from_millis(500), "no timeout was needed: {:?}", reply.rtt);
    let error = net.sim.captured().find(|c| header(c).kind == MessageType::ERROR).unwrap();
    assert_eq!((error.from, error.link), (net.last(), net.links[1]));
    assert_eq!(message(error).error.unwrap().error, GistError::ENDPOINT_FOUND);
    assert_eq!(net.sessions(2), 0);
}

#[test]
fn a_destination_without_engine_is_found_out_by_time() {
    let mut net = Net::row(5, &[Full, Full, Router], &LinkConfig::default());
    net.ping(7, Family::V4, Some(1));
    assert_eq!(net.done(7, LIMIT), (1, 0));
    let replies = replies(&net.sim, 7);
    let (_, reply) = replies[0];
    assert!(!reply.reached_end);
    assert_eq!(path(reply), [net.towards_first(1, Family::V4)]);
    assert!(reply.rtt >= Duration::from_secs(1), "{:?}", reply.rtt);
}

/// GIST-5.3.3-08: the application is informed in time that no peer answers.
#[test]
fn an_application_without_a_peer_is_informed_in_time() {
    for family in FAMILIES {
        let mut net = Net::row(6, &[Full, Router, Router], &LinkConfig::default());
        net.ping(7, family, Some(1));
        assert_eq!(net.done(7, LIMIT), (1, 0));
        let lost = PingEvent::Lost { seq: 0, reason: LostReason::NoNextNode };
        assert!(net.sim.events().iter().any(|h| h.event == Event::Ping { id: 7, event: lost.clone() }));
    }
}

/// P04, GIST-5.3.2.1-03: Queries without Router Alert pass a router unless it takes packets by port, magic number and C-flag.
/// It then takes Queries and leaves all other messages that pass, such as Data between nodes behind it.
#[test]
fn queries_without_router_alert_are_taken_where_configured() {
    for (takes, visited) in [(false, vec![2]), (true, vec![1, 2])] {
        let mut sim = Sim::new(4);
        let nodes = ["n0", "n1", "n2"].map(|name| {
            sim.add_engine(name, move |boot| {
                let mut config = config();
                let gist = gist(&mut config);
                gist.without_router_alert = vec![Prefix { addr: [0, 0, 0, 0].into(), len: 0 }];
                gist.intercept_without_alert = takes;
                make(boot, config)
            })
        });
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
        let mut net = Net { sim, nodes: nodes.to_vec(), links };
        net.sim.capture_all();
        net.ping(7, Family::V4, Some(3));
        assert_eq!(net.done(7, LIMIT), (3, 3));
        let expected: Vec<_> = visited.iter().map(|n| net.towards_first(*n, Family::V4)).collect();
        for (_, reply) in replies(&net.sim, 7) {
            assert_eq!(path(reply), expected);
        }
        assert!(queries(&net, 0).iter().all(|query| query.packet.options.is_empty()));
        assert_eq!(total(&net.sim, "gist", "passed_on"), 0);
    }
}
