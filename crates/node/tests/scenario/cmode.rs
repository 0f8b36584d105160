//! Messaging associations between whole nodes: over TCP, TLS and SCTP.

use core::net::IpAddr;
use core::time::Duration;

use rcgen::KeyPair;
use signalbox_core::Time;
use signalbox_gist::apd::{Apd, Verdict};
use signalbox_gist::engine::{AssociationConfig, Transport};
use signalbox_gist::wire::MessageType;
use signalbox_node::ping::{self, PingRequest};
use signalbox_node::transport::Versions;
use signalbox_node::{ChannelConfig, Command, Config, Credentials, Node, Tls};
use signalbox_sim::{Family, Impairment, LinkConfig, NodeId, Sim, topology};

use crate::net::{FAMILIES, Net, config, gist, header, make, path, replies};

const SECOND: Duration = Duration::from_secs(1);

/// Settings that use associations of one kind for all messages.
pub(crate) fn over(transport: Transport) -> Config {
    let mut config = config();
    let port = |of| (transport == of).then_some(270);
    gist(&mut config).associations = AssociationConfig {
        tcp_port: port(Transport::Tcp),
        tls_port: port(Transport::TlsTcp),
        sctp_port: port(Transport::Sctp),
        always: true,
        authorised: Apd::new(4096, Verdict::Allow),
        ..AssociationConfig::default()
    };
    config
}

/// Keys for nodes that trust each other's keys.
pub(crate) fn keyring(count: usize) -> Vec<ChannelConfig> {
    let keys: Vec<_> = (0..count).map(|_| KeyPair::generate().unwrap()).collect();
    let peers: String = keys.iter().map(KeyPair::public_key_pem).collect();
    keys.iter().map(|key| tls(key, &peers)).collect()
}

fn tls(key: &KeyPair, peers: &str) -> ChannelConfig {
    let credentials = Credentials::RawKeys { key: key.serialize_pem(), peers: peers.to_owned() };
    let tls = Tls { versions: Versions::Only13, ..Tls::new(credentials) };
    ChannelConfig { tls: Some(tls), ..ChannelConfig::default() }
}

/// Nodes in a row, one for each of `channels`.
fn row(seed: u64, transport: Transport, channels: Vec<ChannelConfig>, link: &LinkConfig) -> Net {
    let mut sim = Sim::new(seed);
    let nodes: Vec<_> = channels
        .into_iter()
        .enumerate()
        .map(|(n, channels)| {
            let mut config = over(transport);
            config.gist.as_mut().unwrap().channels = channels;
            sim.add_engine(format!("n{n}"), move |boot| make(boot, config.clone()))
        })
        .collect();
    let links = topology::chain(&mut sim, &nodes, link);
    Net { sim, nodes, links }
}

fn chain(seed: u64, transport: Transport, length: usize, link: &LinkConfig) -> Net {
    let channels = match transport {
        Transport::TlsTcp => keyring(length),
        Transport::Tcp | Transport::Sctp => vec![ChannelConfig::default(); length],
    };
    row(seed, transport, channels, link)
}

/// Associations of a node that are up.
fn associations(sim: &Sim<Node>, node: NodeId) -> usize {
    sim.engine(node).map_or(0, |node| node.associations().filter(|a| a.opened || a.sessions > 0).count())
}

/// Whether the end answered with a reply that was sent after `since`.
fn answered(sim: &Sim<Node>, id: u64, since: Time) -> bool {
    replies(sim, id).iter().any(|(at, reply)| *at - reply.rtt > since && reply.reached_end)
}

/// GIST-4.1.2-10, GIST-5.7.2-01, GIST-5.7.3-01: sessions are set up over UDP. All their other messages, although they
/// need not be reliable, are sent over one association for each pair of peers.
#[test]
fn a_chain_is_signalled_over_associations() {
    for transport in [Transport::Tcp, Transport::TlsTcp, Transport::Sctp] {
        for family in FAMILIES {
            let mut net = chain(1, transport, 4, &LinkConfig::default());
            net.sim.capture_all();
            net.ping(1, family, Some(5));
            assert_eq!(net.done(1, 30 * SECOND), (5, 5), "{transport:?}");
            let expected: Vec<_> = (1..4).map(|n| net.towards_first(n, family)).collect();
            assert!(replies(&net.sim, 1).iter().all(|(_, reply)| path(reply) == expected));
            let datagrams: Vec<_> = net.sim.captured().filter(|c| c.packet.protocol == 17).collect();
            assert!(!datagrams.is_empty());
            assert!(datagrams.iter().all(|c| header(c).kind != MessageType::DATA), "{transport:?}");
            let counts: Vec<_> = net.nodes.iter().map(|node| associations(&net.sim, *node)).collect();
            assert_eq!(counts, [1, 2, 2, 1], "{transport:?}");
        }
    }
}

/// Both ends have the authenticated identity of the peer.
#[test]
fn tls_gives_the_identity_of_the_peer() {
    let mut net = chain(2, Transport::TlsTcp, 3, &LinkConfig::default());
    net.ping(1, Family::V4, Some(2));
    assert_eq!(net.done(1, 30 * SECOND), (2, 2));
    for node in &net.nodes {
        let node = net.sim.engine(*node).unwrap();
        assert!(node.associations().all(|a| a.authenticated.is_some() && a.transport == Transport::TlsTcp));
    }
}

/// A peer that cannot prove a trusted key gets no association, and no message of an application.
#[test]
fn a_stranger_gets_no_association() {
    let mut channels = keyring(2);
    let stranger = KeyPair::generate().unwrap();
    let known = KeyPair::generate().unwrap();
    channels[1] = tls(&stranger, &known.public_key_pem());
    let mut net = row(3, Transport::TlsTcp, channels, &LinkConfig::default());
    net.ping(1, Family::V4, Some(3));
    net.sim.run_for(60 * SECOND);
    assert!(!answered(&net.sim, 1, Time::ZERO));
    assert!(net.sim.events().iter().all(|h| h.node == net.first()));
    for node in &net.nodes {
        let node = net.sim.engine(*node).unwrap();
        assert!(node.associations().all(|a| a.authenticated.is_none()));
    }
}

/// GIST-4.4.3-04: all sessions between the same peers share one association.
#[test]
fn sessions_share_an_association() {
    const SESSIONS: u64 = 300;
    for transport in [Transport::Tcp, Transport::Sctp] {
        let mut net = chain(4, transport, 3, &LinkConfig::default());
        let (src, dst) = (net.sim.address(net.first(), Family::V4), net.sim.address(net.last(), Family::V4));
        for id in 0..SESSIONS {
            let port = u16::try_from(1000 + id).unwrap();
            let (protocol, dst_port) = (Some(17), Some(port));
            let request = PingRequest { src: Some(src), protocol, dst_port, ..PingRequest::to(dst) };
            net.sim.command(net.first(), Command::Ping { id, command: ping::Command::Start(request) });
            net.sim.run_for(Duration::from_millis(5));
        }
        let since = net.sim.now();
        net.sim.expect("a reply of every session", 60 * SECOND, |sim| {
            (0..SESSIONS).all(|id| answered(sim, id, since))
        });
        let counts: Vec<_> = net.nodes.iter().map(|node| associations(&net.sim, *node)).collect();
        assert_eq!(counts, [1, 2, 1], "{transport:?}");
    }
}

/// An association ends with the address of the node at its end, and the sessions have another one at once: nothing waits
/// until TCP gives up.
#[test]
fn an_association_ends_with_its_address() {
    for transport in [Transport::Tcp, Transport::TlsTcp, Transport::Sctp] {
        let mut net = chain(8, transport, 3, &LinkConfig::default());
        net.ping(1, Family::V4, None);
        net.sim.run_for(5 * SECOND);
        assert!(answered(&net.sim, 1, Time::ZERO), "{transport:?}");
        let (router, link) = (net.nodes[1], net.links[1]);
        let locals = |sim: &Sim<Node>, ends: IpAddr| {
            sim.engine(router).unwrap().associations().filter(|one| one.local == ends).count()
        };
        let [former, new] = ["10.99.0.1", "10.99.0.2"].map(|text| text.parse().unwrap());
        net.sim.set_address_on(router, link, former);
        net.sim.run_for(20 * SECOND);
        assert!(locals(&net.sim, former) > 0, "{transport:?}");
        net.sim.set_address_on(router, link, new);
        net.sim.run_for(SECOND / 10);
        assert_eq!(locals(&net.sim, former), 0, "{transport:?}");
        let since = net.sim.now();
        net.sim.expect("replies after the change", 20 * SECOND, |sim| answered(sim, 1, since));
        assert!(locals(&net.sim, new) > 0, "{transport:?}");
    }
}

/// Both ends of a chain start at the same moment, so that peers open associations to each other at once. All sessions
/// work, over one association or over one from each side.
#[test]
fn associations_opened_from_both_sides_at_once_serve_all() {
    for transport in [Transport::Tcp, Transport::TlsTcp, Transport::Sctp] {
        let mut net = chain(9, transport, 2, &LinkConfig::default());
        let ends = [net.first(), net.last()];
        let addresses = ends.map(|node| net.sim.address(node, Family::V4));
        for (id, at) in [(0u64, 0), (1, 1), (2, 0), (3, 1)] {
            let (dst_port, src) = (Some(1000 + u16::try_from(id).unwrap()), Some(addresses[at]));
            let request =
                PingRequest { src, protocol: Some(17), dst_port, ..PingRequest::to(addresses[1 - at]) };
            net.sim.command(ends[at], Command::Ping { id, command: ping::Command::Start(request) });
        }
        let all = |sim: &Sim<Node>| (0..4).all(|id| answered(sim, id, Time::ZERO));
        net.sim.expect("a reply of every session", 30 * SECOND, all);
        net.sim.run_for(60 * SECOND);
        let since = net.sim.now();
        net.sim.expect("replies on and on", 5 * SECOND, |sim| (0..4).all(|id| answered(sim, id, since)));
        for node in ends {
            let count = net.sim.engine(node).unwrap().associations().count();
            assert!((1..=2).contains(&count), "{transport:?}: {count}");
        }
    }
}

/// A middle node is killed under many sessions, and all sessions are restored within one refresh.
#[test]
fn many_sessions_outlive_a_restart() {
    const SESSIONS: u64 = 200;
    for transport in [Transport::Tcp, Transport::Sctp] {
        let mut net = chain(10, transport, 3, &LinkConfig::default());
        let (src, dst) = (net.sim.address(net.first(), Family::V4), net.sim.address(net.last(), Family::V4));
        for id in 0..SESSIONS {
            let dst_port = Some(1000 + u16::try_from(id).unwrap());
            let request =
                PingRequest { src: Some(src), protocol: Some(17), dst_port, ..PingRequest::to(dst) };
            net.sim.command(net.first(), Command::Ping { id, command: ping::Command::Start(request) });
            net.sim.run_for(Duration::from_millis(5));
        }
        net.sim.run_for(10 * SECOND);
        net.sim.restart(net.nodes[1]);
        let since = net.sim.now();
        net.sim.expect("every session through the new node", 30 * SECOND, |sim| {
            sim.engine(NodeId(1)).is_some_and(|node| node.session_count() == 200)
                && (0..SESSIONS).all(|id| answered(sim, id, since))
        });
    }
}

/// A peer that is silent is detected after the hold time, although no message is sent to it.
#[test]
fn a_silent_peer_is_given_up() {
    for transport in [Transport::Tcp, Transport::TlsTcp, Transport::Sctp] {
        let mut net = chain(11, transport, 2, &LinkConfig::default());
        net.ping(1, Family::V4, Some(3));
        assert_eq!(net.done(1, 30 * SECOND), (3, 3));
        assert_eq!(associations(&net.sim, net.last()), 1);
        net.sim.power_off(net.first());
        let last = net.last();
        let alone = |sim: &Sim<Node>| sim.engine(last).is_some_and(|node| node.channel_count() == 0);
        net.sim.expect("no channel to the silent peer", 150 * SECOND, alone);
    }
}

/// Loss delays the messages of associations, and no message is lost. Over SCTP a message is given up if its lifetime ends
/// before it is sent again (RFC 6084 §3.2, RFC 3758). While the associations come up, a node in the middle may give up
/// waiting for the next one and answer in its place.
#[test]
fn nothing_is_lost_over_bad_links() {
    let bad = Impairment { loss: 0.05, jitter: Duration::from_millis(10), ..Impairment::default() };
    for transport in [Transport::Tcp, Transport::Sctp] {
        let mut net = chain(5, transport, 4, &LinkConfig::impaired(bad));
        let dst = net.sim.address(net.last(), Family::V6);
        let timeout = 60 * SECOND;
        let request = PingRequest { count: Some(20), timeout, ..PingRequest::to(dst) };
        net.sim.command(net.first(), Command::Ping { id: 1, command: ping::Command::Start(request) });
        net.done(1, 200 * SECOND);
        let replies = replies(&net.sim, 1);
        let least = if transport == Transport::Sctp { 17 } else { 20 };
        assert!((least..=20).contains(&replies.len()), "{transport:?}: {}", replies.len());
        assert!(replies.iter().filter(|(_, reply)| reply.seq >= 5).all(|(_, reply)| reply.reached_end));
    }
}

/// A restarted node is found again: the associations of its peers with it end, and new ones are opened.
#[test]
fn a_restarted_node_is_back() {
    for transport in [Transport::Tcp, Transport::TlsTcp, Transport::Sctp] {
        let mut net = chain(6, transport, 4, &LinkConfig::default());
        net.ping(1, Family::V4, None);
        net.sim.run_for(5 * SECOND);
        assert!(answered(&net.sim, 1, Time::ZERO));
        net.sim.restart(net.nodes[1]);
        let since = net.sim.now();
        let expected: Vec<_> = (1..4).map(|n| net.towards_first(n, Family::V4)).collect();
        net.sim.expect("a reply along the whole path", 90 * SECOND, |sim| {
            let new = |(at, reply): &(Time, &ping::Reply)| *at - reply.rtt > since && path(reply) == expected;
            replies(sim, 1).iter().any(new)
        });
        assert_eq!(associations(&net.sim, net.nodes[1]), 2);
    }
}

/// A route change moves the sessions to associations with the new peers.
#[test]
fn a_changed_route_is_followed() {
    for transport in [Transport::Tcp, Transport::Sctp] {
        for down in [false, true] {
            let mut sim = Sim::new(7);
            let nodes = ["a", "b", "c", "d"]
                .map(|name| sim.add_engine(name, move |boot| make(boot, over(transport))));
            let [a, b, c, d] = nodes;
            // The address of d is that of its first link, on any route.
            let leaf = sim.add_router("leaf");
            sim.link(d, leaf, &LinkConfig::default());
            let dear = LinkConfig { cost: 3, ..LinkConfig::default() };
            let first = sim.link(a, b, &LinkConfig::default());
            sim.link(b, d, &LinkConfig::default());
            let other = sim.link(a, c, &dear);
            sim.link(c, d, &LinkConfig::default());
            let leaf = sim.address(leaf, Family::V4);
            let end = sim.address(d, Family::V4);
            assert_ne!(leaf, end);
            let src = Some(sim.address_on(a, other, Family::V4));
            let request = PingRequest { src, ..PingRequest::to(end) };
            sim.command(a, Command::Ping { id: 1, command: ping::Command::Start(request) });
            sim.run_for(5 * SECOND);
            assert!(answered(&sim, 1, Time::ZERO));
            if down {
                sim.set_link_up(first, false);
            } else {
                sim.set_cost(first, 10);
            }
            let since = sim.now();
            let expected: [IpAddr; 2] = [sim.address_on(c, other, Family::V4), end];
            sim.expect("a reply along the new path", 10 * SECOND, |sim| {
                let along =
                    |(at, reply): &(Time, &ping::Reply)| *at - reply.rtt > since && path(reply) == expected;
                replies(sim, 1).iter().any(along)
            });
            sim.expect("no association off the path", 200 * SECOND, |sim| associations(sim, b) == 0);
        }
    }
}

/// Both ends close an association that no session uses, and its channel.
#[test]
fn unused_associations_go() {
    for transport in [Transport::Tcp, Transport::TlsTcp, Transport::Sctp] {
        let mut net = chain(8, transport, 3, &LinkConfig::default());
        net.ping(1, Family::V4, Some(3));
        assert_eq!(net.done(1, 30 * SECOND), (3, 3));
        let idle = |sim: &Sim<Node>| {
            let mut engines = sim.nodes().filter_map(|node| sim.engine(node));
            engines.all(|node| node.associations().count() == 0 && node.channel_count() == 0)
        };
        assert!(!idle(&net.sim));
        net.sim.expect("no association and no channel", 300 * SECOND, idle);
        net.sim.expect("no connection", 60 * SECOND, |sim| sim.streams() == 0);
    }
}
