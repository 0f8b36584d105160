//! Every node of the path has the application.

use core::net::SocketAddr;
use core::time::Duration;

use signalbox_core::packet::router_alert;
use signalbox_gist::wire::MessageType;
use signalbox_node::ping::{self, LostReason, PingEvent, PingRequest, Refusal};
use signalbox_node::{Command, Event};
use signalbox_sim::{Family, LinkConfig};

use crate::net::{FAMILIES, Net, WALL_US, all_sessions, assert_clean_wire, header, message, path, replies};

const LIMIT: Duration = Duration::from_secs(60);

/// A message visits each node of the path once, in order, in both directions (GIST-5.8.1.2-01).
#[test]
fn a_ping_meets_every_node_there_and_back() {
    for family in FAMILIES {
        for length in 2..8 {
            let mut net = Net::chain(1, length, &LinkConfig::default());
            net.sim.capture_all();
            net.ping(7, family, Some(3));
            assert_eq!(net.done(7, LIMIT), (3, 3), "{family:?} {length} nodes");
            let there: Vec<_> = (1..length).map(|n| net.towards_first(n, family)).collect();
            let back: Vec<_> = (1..length - 1).rev().map(|n| net.towards_last(n, family)).collect();
            for (seq, (at, reply)) in replies(&net.sim, 7).into_iter().enumerate() {
                assert_eq!(u32::try_from(seq), Ok(reply.seq));
                assert_eq!(path(reply), there);
                assert_eq!(reply.back.iter().map(|hop| hop.address).collect::<Vec<_>>(), back);
                assert!(reply.reached_end && !reply.truncated);
                // Times increase along the path, because all nodes share a clock here.
                let times = reply.hops.iter().chain(&reply.back).map(|hop| hop.received_us);
                assert!(times.clone().is_sorted() && times.clone().all(|t| t > reply.sent_us));
                assert_eq!(
                    reply.sent_us + u64::try_from(reply.rtt.as_micros()).unwrap(),
                    WALL_US + at.as_micros()
                );
            }
            assert_clean_wire(&net.sim);
        }
    }
}

/// GIST-6.2-01: the first Query leaves at once. With routing state in place a message needs one packet per
/// link and direction: 1 ms each here.
#[test]
fn the_second_message_needs_no_handshake() {
    let mut net = Net::chain(2, 4, &LinkConfig::default());
    net.ping(7, Family::V4, Some(2));
    assert_eq!(net.done(7, LIMIT), (2, 2));
    let rtts: Vec<_> = replies(&net.sim, 7).iter().map(|(_, reply)| reply.rtt).collect();
    assert_eq!(rtts[1], Duration::from_millis(6));
    // Three handshakes of two packets precede the first message: Query, Response, then Confirm and Data.
    assert_eq!(rtts[0], Duration::from_millis(12));
}

/// GIST-6.1-12: a message without state starts a handshake. GIST-5.3.1-01, GIST-5.3.1-06: the messages after the Query
/// are sent directly to the peer, with its ports. GIST-4.3.3-14: Data too.
#[test]
fn the_handshake_on_each_link() {
    let mut net = Net::chain(3, 3, &LinkConfig::default());
    net.sim.capture_all();
    net.ping(7, Family::V4, Some(1));
    net.done(7, LIMIT);
    for link in 0..2 {
        assert_eq!(
            net.sent_on(link, link),
            [MessageType::QUERY, MessageType::CONFIRM, MessageType::DATA],
            "link {link}"
        );
        assert_eq!(net.sent_on(link, link + 1), [MessageType::RESPONSE, MessageType::DATA], "link {link}");
        let gist = |address| SocketAddr::new(address, 270);
        let near = gist(net.towards_last(link, Family::V4));
        let far = gist(net.towards_first(link + 1, Family::V4));
        for captured in net.sim.captured().filter(|c| c.link == net.links[link]) {
            let ends = (captured.packet.src, captured.packet.dst);
            match header(captured).kind {
                MessageType::QUERY => assert_eq!(ends.0.port(), 270),
                _ if captured.from == net.nodes[link] => assert_eq!(ends, (near, far)),
                _ => assert_eq!(ends, (far, near)),
            }
        }
    }
}

/// GIST-5.8.1.2-02, GIST-5.8.1.2-03: a Query goes from the flow's source to its destination, at each sending node.
/// GIST-4.3.1-06, GIST-5.3.2.2-01: with Router Alert.
#[test]
fn every_query_looks_like_a_packet_of_its_flow() {
    for family in FAMILIES {
        let mut net = Net::chain(4, 4, &LinkConfig::default());
        net.sim.capture_all();
        net.ping(7, family, Some(1));
        net.done(7, LIMIT);
        let (src, dst) = (net.sim.address(net.first(), family), net.sim.address(net.last(), family));
        let queries: Vec<_> = net.sim.captured().filter(|c| header(c).kind == MessageType::QUERY).collect();
        assert_eq!(queries.len(), 3);
        for query in queries {
            assert_eq!((query.packet.src.ip(), query.packet.dst.ip()), (src, dst));
            assert!(router_alert(&query.packet.options, family == Family::V6).is_some());
            // S=0, except for the first node, whose own address is the flow's.
            assert_eq!(header(query).s, query.from == net.first());
            assert!(header(query).c);
            let mri = message(query).mri.unwrap().mri;
            assert_eq!((mri.src(), mri.dst()), (src, dst));
        }
    }
}

/// GIST-5.8.1.1-01: the MRI describes the flow.
#[test]
fn a_flow_with_ports_is_signaled_as_such() {
    let mut net = Net::chain(12, 3, &LinkConfig::default());
    net.sim.capture_all();
    let request = PingRequest {
        protocol: Some(17),
        src_port: Some(4000),
        dst_port: Some(53),
        count: Some(1),
        ..PingRequest::to(net.sim.address(net.last(), Family::V6))
    };
    net.sim.command(net.first(), Command::Ping { id: 1, command: ping::Command::Start(request) });
    assert_eq!(net.done(1, LIMIT), (1, 1));
    for captured in net.sim.captured() {
        let text = message(captured).mri.unwrap().mri.to_string();
        assert!(text.ends_with(" port 4000 > fd00:0:0:1::2 port 53 proto 17"), "{text}");
    }
}

/// GIST-3.5-02: no message is sent before an application sends one.
#[test]
fn nodes_without_users_are_silent() {
    let mut net = Net::chain(5, 4, &LinkConfig::default());
    net.sim.capture_all();
    net.sim.run_for(Duration::from_secs(300));
    assert_eq!(net.sim.captured().count(), 0);
    assert_eq!(all_sessions(&net.sim), 0);
}

/// GIST-4.2.1-01: each node has its neighbors on the path as peers; the end nodes have one peer only.
#[test]
fn routing_state_points_at_the_neighbors() {
    let mut net = Net::chain(6, 4, &LinkConfig::default());
    net.ping(7, Family::V4, None);
    net.sim.run_for(Duration::from_secs(5));
    for n in 0..4 {
        let engine = net.sim.engine(net.nodes[n]).unwrap();
        let views: Vec<_> = engine.sessions().collect();
        assert_eq!(views.len(), 1);
        let upstream = views[0].upstream.and_then(|d| d.peer).map(|p| p.ip());
        let downstream = views[0].downstream.and_then(|d| d.peer).map(|p| p.ip());
        assert_eq!(upstream, (n > 0).then(|| net.towards_last(n - 1, Family::V4)), "node {n}");
        assert_eq!(downstream, (n < 3).then(|| net.towards_first(n + 1, Family::V4)), "node {n}");
    }
}

/// GIST-3.7-03: sessions over the same path do not disturb each other.
#[test]
fn two_pings_over_one_path_are_two_sessions() {
    let mut net = Net::chain(7, 3, &LinkConfig::default());
    net.ping(1, Family::V4, Some(1));
    net.ping(2, Family::V4, Some(10));
    assert_eq!(net.done(1, LIMIT), (1, 1));
    assert_eq!(net.sessions(1), 2);
    assert_eq!(net.done(2, LIMIT), (10, 10));
}

#[test]
fn a_path_longer_than_the_message_has_room_for_is_truncated_not_broken() {
    let mut net = Net::chain(8, 16, &LinkConfig::default());
    net.sim.capture_all();
    for (id, family, room) in [(1, Family::V4, 22), (2, Family::V6, 12)] {
        net.ping(id, family, Some(2));
        assert_eq!(net.done(id, LIMIT), (2, 2));
        let replies = replies(&net.sim, id);
        let (_, reply) = replies[0];
        assert!(reply.truncated && reply.reached_end);
        assert_eq!(reply.hops.len() + reply.back.len(), room);
    }
    assert_clean_wire(&net.sim);
}

fn events(net: &Net) -> Vec<PingEvent> {
    let event = |h: &signalbox_sim::Happened<Event>| {
        if let Event::Ping { event, .. } = &h.event { Some(event.clone()) } else { None }
    };
    net.sim.events().iter().filter_map(event).collect()
}

#[test]
fn a_destination_without_route_is_refused() {
    let mut net = Net::chain(9, 2, &LinkConfig::default());
    let request = PingRequest::to("192.0.2.99".parse().unwrap());
    net.sim.command(net.first(), Command::Ping { id: 1, command: ping::Command::Start(request) });
    net.sim.run_for(Duration::from_secs(1));
    assert_eq!(events(&net), [PingEvent::Refused(Refusal::NoRoute)]);
}

/// A node does not signal to itself.
#[test]
fn a_ping_to_oneself_is_answered_without_signaling() {
    let mut net = Net::chain(10, 2, &LinkConfig::default());
    let request = PingRequest { count: Some(1), ..PingRequest::to(net.sim.address(net.first(), Family::V4)) };
    net.sim.command(net.first(), Command::Ping { id: 1, command: ping::Command::Start(request) });
    net.sim.run_for(Duration::from_secs(1));
    let lost = PingEvent::Lost { seq: 0, reason: LostReason::FlowEndsHere };
    assert_eq!(events(&net)[1..], [lost, PingEvent::Done { sent: 1, received: 0 }]);
}

#[test]
fn a_ping_is_stopped_before_and_after_its_route_is_known() {
    let mut net = Net::chain(11, 3, &LinkConfig::default());
    net.sim.set_lookup_delay(Duration::from_millis(10));
    net.ping(1, Family::V4, None);
    net.sim.command(net.first(), Command::Ping { id: 1, command: ping::Command::Stop });
    assert_eq!(events(&net), [PingEvent::Done { sent: 0, received: 0 }]);
    net.ping(2, Family::V4, None);
    net.sim.run_for(Duration::from_millis(3_500));
    net.sim.command(net.first(), Command::Ping { id: 2, command: ping::Command::Stop });
    assert_eq!(net.done(2, LIMIT), (4, 4));
}
