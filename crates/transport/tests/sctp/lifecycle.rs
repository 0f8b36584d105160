//! The setup and the end of associations.

use std::net::SocketAddr;

use core::time::Duration;

use signalbox_transport::sctp::{Config, ConnectError, Delivery, EventKind, LossReason, Sctp, SendError};

use crate::net::{Net, PORT, address, listening};

/// The opening end sends the INIT, to the given address and port.
/// [SCTP-3.3-01] It offers partial reliability. Four packets bring the association up.
#[test]
fn four_way_handshake() {
    let mut net = Net::new(&listening(), 1);
    let client = net.connect();
    net.run_until(|net| net.events.iter().all(|events| !events.is_empty()));
    net.drain();
    let kinds: Vec<_> = net.log.iter().map(|(_, from, octets)| (*from, octets[12])).collect();
    assert_eq!(kinds, [(0, 1), (1, 2), (0, 10), (1, 11)]);
    let init = &net.log[0].2;
    assert_eq!(init[2..4], PORT.to_be_bytes());
    assert!(init.windows(4).any(|window| window == [0xc0, 0, 0, 4]), "Forward-TSN-Supported");
    let Some(EventKind::Connected { remote, incoming, streams, partial_reliability, local }) = net.last(0)
    else {
        panic!()
    };
    assert_eq!((*remote, *incoming), (SocketAddr::new(address(2), PORT), false));
    assert_eq!((*streams, *partial_reliability), (64, true));
    let client_end = SocketAddr::new(address(1), local.port());
    assert!(
        matches!(net.last(1), Some(EventKind::Connected { remote, incoming: true, .. }) if *remote == client_end)
    );
    assert_eq!(net.events[0][0].association, client);
}

/// [SCTP-2-01] One association between two endpoints at a time.
#[test]
fn no_second_one_between_the_same_ports() {
    let mut net = Net::new(&listening(), 2);
    let ends = (SocketAddr::new(address(1), 5000), SocketAddr::new(address(2), PORT));
    let first = net.nodes[0].connect(net.now, ends.0, ends.1).unwrap();
    assert_eq!(net.nodes[0].connect(net.now, ends.0, ends.1), Err(ConnectError::Exists));
    net.run_until(|net| net.events.iter().all(|events| !events.is_empty()));
    assert_eq!(net.nodes[0].connect(net.now, ends.0, ends.1), Err(ConnectError::Exists));
    net.nodes[0].abort(first);
    assert!(net.nodes[0].connect(net.now, ends.0, ends.1).is_ok());
    let nowhere = SocketAddr::new(address(2), 0);
    assert_eq!(net.nodes[0].connect(net.now, ends.0, nowhere), Err(ConnectError::Address));
}

/// Two endpoints of a node share its packets: each has those to its port and of its associations, and no association has the
/// port of the other endpoint.
#[test]
fn endpoints_of_one_node_are_told_apart_by_port_and_association() {
    let mut net = Net::new(&listening(), 3);
    net.connected();
    let server = address(2);
    let to_port = net.log.iter().find(|(_, from, _)| *from == 0).unwrap().2.clone();
    let back = net.log.iter().find(|(_, from, _)| *from == 1).unwrap().2.clone();
    let other = Sctp::new(Config { port: Some(50_003), ..Config::default() }, [9; 32]);
    assert!(net.nodes[1].is_addressee(address(1), server, &to_port));
    assert!(net.nodes[0].is_addressee(server, address(1), &back), "an answer to the port that it chose");
    assert!(!net.nodes[0].is_addressee(server, address(9), &back), "another association");
    assert!(
        !other.is_addressee(address(1), server, &to_port) && !other.is_addressee(server, address(1), &back)
    );
    assert!(!net.nodes[1].is_addressee(address(1), server, &[0, 1, 1]), "too short");
    let odd: Vec<u16> = (49_152..=u16::MAX).filter(|port| port % 2 == 1).collect();
    net.nodes[0].reserve_ports(odd);
    while net.nodes[0].poll_transmit().is_some() {}
    for peer in 10..60 {
        let ends = (SocketAddr::new(address(1), 0), SocketAddr::new(address(peer), PORT));
        net.nodes[0].connect(net.now, ends.0, ends.1).unwrap();
        let packet = net.nodes[0].poll_transmit().unwrap();
        assert_eq!(packet.octets[1] % 2, 0, "a reserved port");
    }
}

/// Both ends open at once between the same ports: the result is one association.
#[test]
fn simultaneous_opening() {
    for seed in 0..20 {
        let mut net = Net::new(&listening(), seed);
        net.jitter = Duration::from_millis(4);
        let ends = [SocketAddr::new(address(1), PORT), SocketAddr::new(address(2), PORT)];
        let one = net.nodes[0].connect(net.now, ends[0], ends[1]).unwrap();
        let two = net.nodes[1].connect(net.now, ends[1], ends[0]).unwrap();
        net.run_until(|net| net.events.iter().all(|events| !events.is_empty()));
        net.nodes[0].send(net.now, one, 0, b"one".to_vec(), Delivery::default()).unwrap();
        net.nodes[1].send(net.now, two, 0, b"two".to_vec(), Delivery::default()).unwrap();
        net.run_until(|net| net.events.iter().all(|events| events.len() >= 2));
        net.run_for(Duration::from_secs(30));
        assert_eq!(
            (net.messages(0), net.messages(1)),
            (vec![(0, &b"two"[..])], vec![(0, &b"one"[..])]),
            "{seed}"
        );
        assert_eq!((net.nodes[0].len(), net.nodes[1].len()), (1, 1), "{seed}");
    }
}

/// Handshakes survive loss, and a shutdown waits for unacknowledged data, at either end, over a bad network.
#[test]
fn orderly_end() {
    for seed in 0..10 {
        let mut net = Net::new(&listening(), seed);
        (net.loss, net.doubling, net.jitter) = (0.15, 0.1, Duration::from_millis(3));
        let [client, server] = net.connected();
        let ids = [client, server];
        let closer = usize::try_from(seed % 2).unwrap();
        net.nodes[closer].send(net.now, ids[closer], 0, vec![1; 100_000], Delivery::default()).unwrap();
        net.nodes[closer].close(net.now, ids[closer]);
        let late = net.nodes[closer].send(net.now, ids[closer], 0, vec![1], Delivery::default());
        assert_eq!(late, Err(SendError::NotUp));
        net.run_until(|net| {
            (0..2).all(|n| matches!(net.last(n), Some(EventKind::Closed | EventKind::Lost { .. })))
        });
        assert_eq!(net.messages(1 - closer).len(), 1, "{seed}");
        assert_eq!(net.last(closer), Some(&EventKind::Closed), "{seed}");
        assert_eq!(net.last(1 - closer), Some(&EventKind::Closed), "{seed}");
        assert!(net.nodes.iter().all(Sctp::is_empty));
        assert_eq!(net.nodes.iter().filter_map(|node| node.next_deadline()).count(), 0);
    }
}

/// An ABORT with data in flight is reported with the octets that may be lost; it differs from a shutdown.
#[test]
fn abrupt_ends() {
    let mut net = Net::new(&listening(), 4);
    let [client, server] = net.connected();
    net.loss = 1.0;
    net.nodes[0].send(net.now, client, 0, vec![1; 5000], Delivery::default()).unwrap();
    net.drain();
    net.loss = 0.0;
    net.nodes[1].abort(server);
    net.run_until(|net| !net.events[0].is_empty());
    assert_eq!(net.last(0), Some(&EventKind::Lost { reason: LossReason::Aborted, unsent: 5000 }));
    net.drain();
    assert_eq!(net.last(1), Some(&EventKind::Lost { reason: LossReason::Local, unsent: 0 }));
}

/// A silent peer is detected when data waits, and so is a peer that never answers; a closed port refuses.
#[test]
fn silence_and_refusal() {
    let mut net = Net::new(&listening(), 5);
    let [client, _] = net.connected();
    net.loss = 1.0;
    net.nodes[0].send(net.now, client, 0, vec![1; 50], Delivery::default()).unwrap();
    let sent = net.now;
    net.run_until(|net| !net.events[0].is_empty());
    assert_eq!(net.last(0), Some(&EventKind::Lost { reason: LossReason::TimedOut, unsent: 50 }));
    assert!(net.now.since(sent) < Duration::from_secs(31));
    net.connect();
    net.run_until(|net| net.events[0].len() == 2);
    assert_eq!(net.last(0), Some(&EventKind::Lost { reason: LossReason::NoAnswer, unsent: 0 }));

    let mut net = Net::new(&Config::default(), 6);
    net.connect();
    net.run_until(|net| !net.events[0].is_empty());
    assert_eq!(net.last(0), Some(&EventKind::Lost { reason: LossReason::Aborted, unsent: 0 }));
}

/// A peer that restarts and opens another association between the same ports replaces the old one; a peer without the
/// association answers data with ABORT.
#[test]
fn restarts() {
    let mut net = Net::new(&listening(), 7);
    let ends = (SocketAddr::new(address(1), 5000), SocketAddr::new(address(2), PORT));
    net.nodes[0].connect(net.now, ends.0, ends.1).unwrap();
    net.run_until(|net| net.events.iter().all(|events| !events.is_empty()));
    let fresh = Net::new(&listening(), 8).nodes;
    let [fresh, _] = fresh;
    net.nodes[0] = fresh;
    net.nodes[0].connect(net.now, ends.0, ends.1).unwrap();
    net.run_until(|net| net.events[1].len() >= 3);
    assert!(matches!(net.events[1][1].kind, EventKind::Lost { reason: LossReason::Restarted, .. }));
    assert!(matches!(net.events[1][2].kind, EventKind::Connected { incoming: true, .. }));
    assert_eq!(net.nodes[1].len(), 1);

    let [gone, _] = Net::new(&listening(), 9).nodes;
    net.nodes[0] = gone;
    let server = net.events[1][2].association;
    net.nodes[1].send(net.now, server, 0, vec![1], Delivery::default()).unwrap();
    net.run_until(|net| net.events[1].len() >= 4);
    assert!(matches!(net.last(1), Some(EventKind::Lost { reason: LossReason::Aborted, .. })));
}

/// A SHUTDOWN acknowledges the data that its sender received (RFC 9260 §3.3.8), not the data that the peer
/// acknowledged.
#[test]
fn a_shutdown_acknowledges() {
    let mut net = Net::new(&listening(), 10);
    let [client, server] = net.connected();
    net.nodes[1].send(net.now, server, 0, b"seen".to_vec(), Delivery::default()).unwrap();
    net.run_for(Duration::from_secs(1));
    let chunk = |net: &Net, from: usize, kind: u8| {
        let found = net.log.iter().rev().find(|(_, by, octets)| *by == from && octets[12] == kind);
        found.map(|(_, _, octets)| octets[16..20].to_vec())
    };
    let tsn = chunk(&net, 1, 0).unwrap();
    net.nodes[0].close(net.now, client);
    net.run_until(|net| matches!(net.last(0), Some(EventKind::Closed)));
    assert_eq!(chunk(&net, 0, 7), Some(tsn));
    net.run_until(|net| matches!(net.last(1), Some(EventKind::Closed)));
}

/// Messages that the peer's SHUTDOWN overtakes are not all sent. The user learns how much was lost.
#[test]
fn messages_that_a_shutdown_overtakes_are_reported() {
    let mut net = Net::new(&listening(), 11);
    let [client, server] = net.connected();
    for _ in 0..100 {
        net.nodes[1].send(net.now, server, 0, vec![7; 1000], Delivery::default()).unwrap();
    }
    net.nodes[0].close(net.now, client);
    net.run_until(|net| net.last(1).is_some() && matches!(net.last(0), Some(EventKind::Closed)));
    let arrived = net.messages(0).len();
    let Some(EventKind::Lost { reason: LossReason::Aborted, unsent }) = net.last(1) else {
        panic!("{:?}", net.last(1))
    };
    assert!(arrived < 100 && *unsent >= (100 - arrived) * 1000, "{arrived} arrived, {unsent} octets unsent");
}
