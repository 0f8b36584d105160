//! Querying node outside, Responding node inside.

use signalbox_core::{IfIndex, Mri};
use signalbox_gist::gateway::Config;
use signalbox_gist::wire::{GistError, MessageType};

use crate::rig::*;

/// GISTNAT-R5.3.2-02, GISTNAT-D6.2-02: destination of packet and MRI become those of the host inside; the source stays.
#[test]
fn a_query_reaches_the_host_inside() {
    let mut rig = Rig::new();
    rig.inward(&query(inbound(), FAR));
    let sent = rig.sent();
    assert_eq!((sent.src, sent.dst, sent.ttl), (at(FAR, 270), at(HOST, 270), 63));
    assert_eq!((sent.mri().dst, sent.mri().dst_port), (ip(HOST), Some(5000)));
    assert_eq!((sent.mri().src, sent.mri().src_port), (ip(FAR), Some(6000)));
    let message = sent.message();
    assert_eq!((message.nli.unwrap().interface, message.header.s), (ip(FAR), true));
    assert_eq!(message.nat_traversal.unwrap().mri(), Some(Mri::PathCoupled(inbound())));
    assert!(rig.standing.is_empty(), "a Query alone opens nothing inwards");
}

/// GISTNAT-R7.2.3-08, GISTNAT-D6.2-05, GISTNAT-D6.2-06, GISTNAT-X-07, GISTNAT-X-11, GIST-7.2.3-06: the Response has the external
/// address
/// and an external port; with it the ways inwards open for the Querying node, and for no other.
#[test]
fn a_response_opens_the_way_inside() {
    let mut rig = Rig::new();
    rig.inward(&with_tls(query(inbound(), FAR)));
    let inside = rig.sent();
    let answer = response(&inside.message(), HOST);
    rig.packet(&Via::normal(INSIDE, at(HOST, 270), at(FAR, 270)), &encode(&answer));
    let outside = rig.sent();
    assert_eq!((outside.src, outside.dst), (at(EXTERNAL, 270), at(FAR, 270)));
    let found = outside.message();
    assert_eq!((found.nli.unwrap().interface, found.header.s), (ip(EXTERNAL), true));
    assert_eq!(found.nli.unwrap().peer_identity, b"responder");
    assert_eq!(offered(&found), Some(6123), "the port was free");
    assert_eq!(found.mri.unwrap().mri, answer.mri.unwrap().mri);
    assert_eq!(outside.nats(), 0);
    let to = |protocol, src, dst| rig.binding(protocol, src, dst).map(|open| open.pinhole.destination);
    assert_eq!(to(17, Some((FAR, Some(6000))), (EXTERNAL, 7000)), Some(endpoint(HOST, 5000)), "data");
    assert_eq!(to(17, Some((FAR, Some(270))), (EXTERNAL, 270)), Some(endpoint(HOST, 270)), "Confirm");
    assert_eq!(to(6, Some((FAR, None)), (EXTERNAL, 6123)), Some(endpoint(HOST, 6123)), "association");
    let back = rig.binding(17, Some((HOST, Some(270))), (FAR, 270)).unwrap();
    assert_eq!(back.pinhole.source, endpoint(EXTERNAL, 270));
    assert_eq!(rig.standing.len(), 4);
    rig.until(121);
    assert!(rig.standing.is_empty());
}

/// GISTNAT-D6.2-04: the same port of a second responder gets another external port, and both work.
/// GISTNAT-X-09: datagrams of one Querying node stay with the first responder, and the conflict is counted.
#[test]
fn two_responders_have_two_external_ports() {
    let mut config = config();
    let second = signalbox_gist::gateway::Forward {
        first_port: 7100,
        last_port: 7100,
        address: v4(SECOND),
        ..config.forwards[0]
    };
    config.forwards.push(second);
    let mut rig = Rig::with(config);
    let mut ports = Vec::new();
    for (host, port) in [(HOST, 7000), (SECOND, 7100)] {
        rig.inward(&with_tls(query(udp((FAR, 6000), (EXTERNAL, port)), FAR)));
        let inside = rig.sent();
        let answer = response(&inside.message(), host);
        rig.packet(&Via::normal(INSIDE, at(host, 270), at(FAR, 270)), &encode(&answer));
        ports.push(offered(&rig.sent().message()).unwrap());
        let open = rig.binding(6, Some((FAR, None)), (EXTERNAL, *ports.last().unwrap())).unwrap();
        assert_eq!(open.pinhole.destination, endpoint(host, 6123));
    }
    assert_eq!(ports[0], 6123);
    assert!((16_384..=32_767).contains(&ports[1]), "{ports:?}");
    let datagrams = rig.binding(17, Some((FAR, Some(270))), (EXTERNAL, 270)).unwrap();
    assert_eq!(datagrams.pinhole.destination, endpoint(HOST, 270));
    assert!(rig.counters().conflicts > 0);
}

/// The Response leaves when the kernel has all bindings: the Querying node sends its Confirm or opens its association at once.
#[test]
fn a_response_waits_for_the_kernel() {
    let mut rig = Rig::new();
    rig.inward(&with_tls(query(inbound(), FAR)));
    let inside = rig.sent();
    rig.slow = true;
    let answer = response(&inside.message(), HOST);
    rig.packet(&Via::normal(INSIDE, at(HOST, 270), at(FAR, 270)), &encode(&answer));
    for _ in 0..4 {
        rig.quiet();
        assert!(rig.answer());
    }
    assert!(!rig.answer());
    assert_eq!(rig.sent().message().header.kind, MessageType::RESPONSE);
    assert_eq!((rig.counters().responses, rig.counters().activated), (1, 1));
}

/// A Response to a Query of a further flow passes over the association that the two nodes have, where the gateway cannot read
/// it: the Query is enough for a flow to a port that is forwarded. It is not for other nodes.
#[test]
fn a_further_flow_of_associated_nodes_needs_no_response() {
    let mut rig = Rig::new();
    rig.inward(&with_tls(query(inbound(), FAR)));
    let inside = rig.sent();
    rig.packet(
        &Via::normal(INSIDE, at(HOST, 270), at(FAR, 270)),
        &encode(&response(&inside.message(), HOST)),
    );
    rig.sent();
    let further = |far| udp((far, 6000), (EXTERNAL, 7001));
    rig.inward(&query(further(FAR2), FAR2));
    rig.sent();
    assert!(rig.binding(17, Some((FAR2, Some(6000))), (EXTERNAL, 7001)).is_none());
    rig.inward(&query(further(FAR), FAR));
    rig.sent();
    let open = rig.binding(17, Some((FAR, Some(6000))), (EXTERNAL, 7001)).unwrap();
    assert_eq!(open.pinhole.destination, endpoint(HOST, 5001));
    // When the association's binding has ended, a Query is not enough again.
    rig.until(500);
    rig.inward(&query(further(FAR), FAR));
    rig.sent();
    assert!(rig.standing.is_empty());
}

/// GISTNAT-R7.2.3-06: an Error returns with its MRI and the MRI in its Error object unchanged, and makes no bindings.
#[test]
fn an_error_returns_and_opens_nothing() {
    let mut rig = Rig::new();
    rig.inward(&query(inbound(), FAR));
    let inside = rig.sent();
    let message = error(&inside.message(), HOST, GistError::ENDPOINT_FOUND);
    rig.packet(&Via::normal(INSIDE, at(HOST, 270), at(FAR, 270)), &encode(&message));
    let outside = rig.sent();
    assert_eq!((outside.src, outside.dst), (at(EXTERNAL, 270), at(FAR, 270)));
    let found = outside.message();
    assert_eq!(found.error, message.error);
    assert_eq!((found.nli.unwrap().interface, outside.nats()), (ip(EXTERNAL), 0));
    assert!(rig.standing.is_empty());
    assert_eq!(rig.counters().errors, 1);
}

/// GISTNAT-D6.2-02, GISTNAT-X-16, GISTNAT-D7.2-01: without a host inside the Query is not forwarded. Its sender gets
/// Endpoint Found, or nothing.
#[test]
fn a_query_for_no_host_is_refused() {
    let flow = udp((FAR, 6000), (EXTERNAL, 7777));
    let mut rig = Rig::new();
    rig.inward(&query(flow, FAR));
    let sent = rig.sent();
    assert_eq!((sent.error(), sent.dst), (GistError::ENDPOINT_FOUND, at(FAR, 270)));
    let mut rig = Rig::with(Config { silent: true, ..config() });
    rig.inward(&query(flow, FAR));
    rig.quiet();
    assert_eq!(rig.counters().no_forward, 1);
}

/// GISTNAT-D6.2-01: a Query to the external address from a link that is on no side is not taken.
#[test]
fn a_query_from_a_third_link_is_not_taken() {
    let mut rig = Rig::new();
    rig.packet(&q_mode(IfIndex(3), at(FAR, 270), EXTERNAL), &encode(&query(inbound(), FAR)));
    rig.quiet();
    assert_eq!(rig.counters().not_for_gateway, 1);
}

/// GISTNAT-X-12: a hop count of 1 in a Response stays 1.
#[test]
fn the_hop_count_of_a_response_does_not_become_0() {
    let mut rig = Rig::new();
    rig.inward(&query(inbound(), FAR));
    let inside = rig.sent();
    let mut answer = response(&inside.message(), HOST);
    answer.header.hops = 1;
    rig.packet(&Via::normal(INSIDE, at(HOST, 270), at(FAR, 270)), &encode(&answer));
    assert_eq!(rig.sent().message().header.hops, 1);
}

/// An upstream Query from outside finds the host inside by the binding of its flow.
#[test]
fn an_upstream_query_finds_the_sender_inside() {
    let mut rig = Rig::new();
    rig.outward(&query(outbound(), HOST));
    let flow = rig.sent().mri();
    rig.inward(&query(upstream(flow), FAR));
    let sent = rig.sent();
    assert_eq!((sent.dst, sent.mri().src, sent.mri().src_port), (at(HOST, 270), ip(HOST), Some(5000)));
    assert_eq!(sent.message().header.kind, MessageType::QUERY);
}

/// GISTNAT-X-20, GISTNAT-X-21: with both ends inside, a Query to the external address changes source and destination, with
/// one entry. The answer returns through the gateway.
#[test]
fn both_ends_inside_meet_through_the_gateway() {
    let mut rig = Rig::new();
    let flow = udp((SECOND, 4000), (EXTERNAL, 7000));
    rig.packet(&q_mode(INSIDE, at(SECOND, 270), EXTERNAL), &encode(&query(flow, SECOND)));
    let sent = rig.sent();
    assert_eq!((sent.src.ip(), sent.dst), (ip(EXTERNAL), at(HOST, 270)));
    assert_eq!((sent.mri().src, sent.mri().dst, sent.mri().dst_port), (ip(EXTERNAL), ip(HOST), Some(5000)));
    assert_eq!((sent.message().nli.unwrap().interface, sent.nats()), (ip(EXTERNAL), 1));
    rig.packet(&Via::normal(INSIDE, at(HOST, 270), sent.src), &encode(&response(&sent.message(), HOST)));
    let answer = rig.sent();
    assert_eq!((answer.src, answer.dst), (at(EXTERNAL, 270), at(SECOND, 270)));
    assert_eq!(answer.message().nli.unwrap().interface, ip(EXTERNAL));
    let data = rig.binding(17, Some((SECOND, Some(4000))), (EXTERNAL, 7000)).unwrap();
    assert_eq!(data.pinhole.destination, endpoint(HOST, 5000));
    assert_eq!(data.pinhole.source, endpoint(EXTERNAL, sent.mri().src_port.unwrap()));
}
