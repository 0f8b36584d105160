//! Rules for every packet in every situation.

use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::Direction;
use signalbox_core::packet::{router_alert_v4, router_alert_v6};
use signalbox_gist::wire::{Encapsulation, MessageType};
use signalbox_sim::{Family, Impairment, LinkConfig, NodeId};

use crate::net::Role::{Full, Router};
use crate::net::{Net, assert_clean_wire, header, message};

/// A row of nodes with all kinds of messages: handshakes, retransmissions, refreshes, errors, for both IP versions.
fn busy(seed: u64) -> Net {
    let mut net = Net::chain(seed, 4, &LinkConfig::impaired(Impairment::lossy(0.1)));
    net.sim.capture_all();
    net.ping(1, Family::V4, None);
    net.ping(2, Family::V6, None);
    for node in [1, 2, 1] {
        net.sim.run_for(Duration::from_secs(40));
        net.sim.restart(net.nodes[node]);
    }
    net.sim.run_for(Duration::from_secs(40));
    for kind in [
        MessageType::QUERY,
        MessageType::RESPONSE,
        MessageType::CONFIRM,
        MessageType::DATA,
        MessageType::ERROR,
    ] {
        assert!(net.sim.captured().any(|c| header(c).kind == kind), "no {kind} to be seen");
    }
    net
}

/// GIST-5.1-08: each Query has R=1. GIST-5.3.2.1-02, GIST-5.3.2.1-05, GIST-5.3.2.1-07, GIST-5.3.2.2-02,
/// GIST-5.3.2.2-05: and Router Alert, in these octets. GIST-5.1-10: a Response never travels in Q-mode.
#[test]
fn flags_and_options_are_those_of_the_type() {
    let net = busy(1);
    assert_clean_wire(&net.sim);
    for captured in net.sim.captured() {
        let (header, packet) = (header(captured), &captured.packet);
        if header.kind == MessageType::QUERY {
            assert!(header.r && header.c && !header.e);
            let expected: &[u8] =
                if packet.dst.is_ipv4() { &router_alert_v4(0) } else { &router_alert_v6(0) };
            assert_eq!(packet.options, expected);
        } else {
            assert!(!header.c && packet.options.is_empty(), "{header:?}");
            assert!(header.kind == MessageType::RESPONSE || !header.r, "{header:?}");
        }
    }
}

/// GIST-5.1-16, GIST-5.1-19: every message identifies its sender. GIST-5.2.1-02, GIST-5.2.2-02: S=1 if and only if the
/// IP source is the sender's address. GIST-5.2.2-03: which is that of the interface that the message leaves by.
/// GIST-5.2.2-05: downstream the NLI holds the TTL. GIST-5.6-07: in an Error the NLI is that of its sender.
#[test]
fn the_network_layer_information_is_that_of_the_sender() {
    let net = busy(2);
    for captured in net.sim.captured() {
        let (header, packet) = (header(captured), &captured.packet);
        let message = message(captured);
        let nli = message.nli.unwrap();
        let family = if packet.dst.is_ipv4() { Family::V4 } else { Family::V6 };
        assert_eq!(nli.interface, net.sim.address_on(captured.from, captured.link, family));
        assert_eq!(header.s, packet.src.ip() == nli.interface);
        if header.kind != MessageType::ERROR && message.mri.unwrap().mri.direction() == Direction::Downstream
        {
            assert_eq!(nli.ip_ttl, packet.ttl, "{header:?}");
        }
    }
}

/// GIST-4.4.3-01: a node has one identity on all its links, and no other node has it. GIST-4.4.3-02: it changes at a
/// restart.
#[test]
fn an_identity_is_that_of_one_node() {
    let mut net = Net::chain(3, 5, &LinkConfig::default());
    net.sim.capture_all();
    net.ping(1, Family::V4, Some(60));
    net.ping(2, Family::V6, Some(60));
    net.done(1, Duration::from_secs(100));
    let mut identities: BTreeMap<Vec<u8>, NodeId> = BTreeMap::new();
    for captured in net.sim.captured() {
        let identity = message(captured).nli.unwrap().peer_identity.to_vec();
        assert!(identity.len() >= 16);
        assert_eq!(*identities.entry(identity).or_insert(captured.from), captured.from);
    }
    assert_eq!(identities.len(), 5);
}

/// GIST-5.2.2-08: the distance to the downstream peer is computed from its upstream messages.
#[test]
fn both_ends_know_how_far_apart_they_are() {
    for family in [Family::V4, Family::V6] {
        let mut net = Net::row(4, &[Full, Router, Router, Full], &LinkConfig::default());
        net.ping(1, family, None);
        net.sim.run_for(Duration::from_secs(3));
        let distance = |node: usize| {
            let view = net.sim.engine(net.nodes[node]).unwrap().sessions().next().unwrap();
            view.upstream.or(view.downstream).unwrap().ip_distance
        };
        assert_eq!((distance(0), distance(3)), (Some(2), Some(2)));
    }
}

/// GIST-4.3.1-02: each datagram contains one message, and a second one after it makes it malformed.
#[test]
fn a_datagram_is_one_message() {
    let net = busy(5);
    for captured in net.sim.captured() {
        let header = header(captured);
        let octets = &captured.packet.payload[4..];
        assert_eq!(header.message_octets(), octets.len());
        let twice = [octets, octets].concat();
        let encapsulation = Encapsulation::of(&header, true);
        assert!(signalbox_gist::wire::Message::parse(&twice, encapsulation).is_err());
    }
}
