//! Floods, forgeries and broken packets.

use std::net::{IpAddr, SocketAddr};

use core::time::Duration;

use signalbox_core::{IfIndex, Random, Time};
use signalbox_transport::sctp::{
    Arrival, Config, ConnectError, Delivery, Event, EventKind, LossReason, Sctp,
};

use crate::net::{Net, PORT, address, arrival, listening};

/// An INIT from a different address for each number.
fn forged(inits: &mut Net, number: u32) -> (IpAddr, Vec<u8>) {
    let _ = inits.nodes[0].poll_event();
    let local = SocketAddr::new(address(1), 0);
    let remote = SocketAddr::new(address(2), PORT);
    let id = inits.nodes[0].connect(inits.now, local, remote).unwrap();
    let packet = inits.nodes[0].poll_transmit().unwrap();
    inits.nodes[0].abort(id);
    (IpAddr::from((0x0a00_0000 + number).to_be_bytes()), packet.octets)
}

/// A flood of INITs from forged addresses creates no state. The answers are limited to the configured rate and have at most
/// one and a half times the octets, and a real peer can still connect.
#[test]
fn a_flood_of_inits_makes_no_state() {
    let config = Config { init_rate: 100, init_burst: 50, ..listening() };
    let mut forger = Net::new(&listening(), 1);
    let mut net = Net::new(&config, 2);
    let (mut received, mut answered) = (0, 0);
    for number in 0..20_000 {
        let now = net.now + Duration::from_micros(u64::from(number) * 100);
        let (source, octets) = forged(&mut forger, number);
        net.nodes[1].receive(now, arrival(source, address(2)), &octets, &|_| false);
        received += octets.len();
        while let Some(packet) = net.nodes[1].poll_transmit() {
            answered += 1;
            assert_eq!((packet.dst, packet.octets[12]), (source, 2));
            assert!(is_small(&packet.octets, &octets), "{} {}", packet.octets.len(), octets.len());
        }
    }
    assert!(received > 0 && net.nodes[1].is_empty() && net.nodes[1].poll_event().is_none());
    // The number of answers for 2 s at 100 a second, and the burst without the part for other interfaces.
    assert!((230..=250).contains(&answered), "{answered}");
    assert_eq!(net.nodes[1].counters().inits_limited, 20_000 - answered);
    net.now = net.now + Duration::from_secs(3);
    net.connected();
}

/// An honest node that opens an association beside a flood.
struct Honest {
    sctp: Sctp,
    address: IpAddr,
    /// The interface of the listener to which it is attached.
    ifindex: IfIndex,
    since: Time,
    /// How long the association took.
    took: Option<Duration>,
}

impl Honest {
    fn opens(now: Time, number: u8, ifindex: u32) -> Self {
        let (mut sctp, address) = (Sctp::new(Config::default(), [number; 32]), address(number));
        let (local, remote) = (SocketAddr::new(address, 0), SocketAddr::new(crate::net::address(2), PORT));
        sctp.connect(now, local, remote).unwrap();
        Self { sctp, address, ifindex: IfIndex(ifindex), since: now, took: None }
    }
}

/// (T17) INITs of forged sources, ten times as many as are answered in a second. Meanwhile nodes open associations: those behind
/// another interface, and a node on the same link of which the listener has state, get theirs at once.
#[test]
fn forged_inits_leave_associations_to_honest_nodes() {
    let mut net = Net::new(&listening(), 2);
    let (_, octets) = forged(&mut Net::new(&listening(), 1), 0);
    let (begin, known) = (net.now, address(99));
    let mut nodes = Vec::new();
    for number in 0..50_000u32 {
        let now = begin + Duration::from_micros(u64::from(number) * 100);
        if number % 10_000 == 5_000 {
            let last = 10 + u8::try_from(nodes.len()).unwrap();
            nodes.push(Honest::opens(now, last, 2));
        }
        if number == 25_000 {
            nodes.push(Honest::opens(now, 99, 1));
        }
        let source = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        net.nodes[1].receive(now, arrival(source, address(2)), &octets, &|address| address == known);
        for node in &mut nodes {
            if node.sctp.next_deadline().is_some_and(|due| due <= now) {
                node.sctp.handle_timer(now);
            }
            while let Some(packet) = node.sctp.poll_transmit() {
                let arrival = Arrival { src: packet.src, dst: packet.dst, ifindex: node.ifindex };
                net.nodes[1].receive(now, arrival, &packet.octets, &|address| address == known);
            }
        }
        while let Some(packet) = net.nodes[1].poll_transmit() {
            if let Some(node) = nodes.iter_mut().find(|node| node.address == packet.dst) {
                node.sctp.receive(now, arrival(packet.src, packet.dst), &packet.octets, &|_| false);
                if let Some(Event { kind: EventKind::Connected { .. }, .. }) = node.sctp.poll_event() {
                    node.took = Some(now.since(node.since));
                }
            }
        }
    }
    let took: Vec<_> = nodes.iter().map(|node| node.took).collect();
    assert_eq!(took.len(), 6);
    assert!(took.iter().all(|took| took.is_some_and(|took| took < Duration::from_millis(10))), "{took:?}");
    assert!(net.nodes[1].counters().inits_limited > 40_000);
}

/// Whether an answer has at most one and a half times the octets of its cause, as packets of IPv4.
fn is_small(answer: &[u8], cause: &[u8]) -> bool {
    (answer.len() + 20) * 2 <= (cause.len() + 20) * 3
}

/// What a sender that has proved nothing can make a listener send: an answer to the shortest INIT, and to packets of no
/// association.
#[test]
fn answers_to_unproved_senders_are_small() {
    let mut net = Net::new(&listening(), 1);
    let mut answers = 0;
    for kind in [0, 1, 3, 4, 7, 8, 10] {
        let port = PORT.to_be_bytes();
        let mut octets = [&[0x13, 0x88][..], &port, &[0; 8]].concat();
        if kind == 1 {
            // Tag, window, streams in both directions, TSN; no parameter.
            octets.extend([1, 0, 0, 20, 0, 0, 0, 9, 0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 7]);
        } else {
            octets.extend([kind, 0, 0, 4]);
            octets[7] = 9;
        }
        reseal(&mut octets);
        net.nodes[1].receive(net.now, arrival(address(3), address(2)), &octets, &|_| false);
        while let Some(packet) = net.nodes[1].poll_transmit() {
            answers += 1;
            assert!(is_small(&packet.octets, &octets), "{kind}: {} {}", packet.octets.len(), octets.len());
        }
    }
    assert!(answers >= 4, "{answers}");
}

/// The number of associations is bounded, and so is the number of handshakes in progress.
#[test]
fn associations_are_bounded() {
    let config = Config { max_associations: 3, max_opening: 2, ..listening() };
    let mut net = Net::new(&config, 3);
    net.connect();
    net.connect();
    let (local, remote) = (SocketAddr::new(address(1), 0), SocketAddr::new(address(2), PORT));
    assert_eq!(net.nodes[0].connect(net.now, local, remote), Err(ConnectError::Full));
    net.run_until(|net| net.events[0].len() == 2);
    net.connect();
    net.run_until(|net| net.events[0].len() == 3);
    assert_eq!(net.nodes[0].connect(net.now, local, remote), Err(ConnectError::Full));
    // The other end refuses the fourth, from another address.
    let mut other = Sctp::new(Config::default(), [9; 32]);
    let from = SocketAddr::new(address(7), 0);
    let id = other.connect(net.now, from, remote).unwrap();
    for _ in 0..4 {
        while let Some(packet) = other.poll_transmit() {
            net.nodes[1].receive(net.now, arrival(packet.src, packet.dst), &packet.octets, &|_| false);
        }
        while let Some(packet) = net.nodes[1].poll_transmit() {
            other.receive(net.now, arrival(packet.src, packet.dst), &packet.octets, &|_| false);
        }
    }
    let event = other.poll_event().unwrap();
    assert_eq!(
        (event.association, event.kind),
        (id, EventKind::Lost { reason: LossReason::Aborted, unsent: 0 })
    );
    assert_eq!((net.nodes[1].len(), net.nodes[1].counters().refused), (3, 1));
}

/// [SCTP-8-01] A DATA packet played again is discarded. A forged ABORT without the tag does nothing.
#[test]
fn replays_and_blind_forgeries() {
    let mut net = Net::new(&listening(), 4);
    let [client, _] = net.connected();
    let before = net.log.len();
    net.nodes[0].send(net.now, client, 0, b"once".to_vec(), Delivery::default()).unwrap();
    net.run_until(|net| !net.events[1].is_empty());
    let (_, _, data) =
        net.log[before..].iter().find(|(_, from, octets)| *from == 0 && octets[12] == 0).unwrap();
    let data = data.clone();
    assert_eq!(data[24..28], [0; 4], "payload protocol identifier");
    for _ in 0..5 {
        net.nodes[1].receive(net.now, arrival(address(1), address(2)), &data, &|_| false);
    }
    // From another address it belongs to no association.
    net.nodes[1].receive(net.now, arrival(address(9), address(2)), &data, &|_| false);
    net.run_for(Duration::from_secs(1));
    assert_eq!(net.messages(1).len(), 1);
    assert!(net.nodes[1].counters().out_of_the_blue > 0);
    for tag in [0u32, 1, 0xffff_ffff] {
        let mut abort = data[..12].to_vec();
        abort[4..8].copy_from_slice(&tag.to_be_bytes());
        abort.extend([6, 0, 0, 4]);
        reseal(&mut abort);
        net.nodes[1].receive(net.now, arrival(address(1), address(2)), &abort, &|_| false);
    }
    assert_eq!((net.nodes[1].len(), net.nodes[1].counters().bad_tags), (1, 3));
}

/// Sets the checksum with an algorithm that differs from the code under test: bit by bit.
fn reseal(octets: &mut [u8]) {
    octets[8..12].fill(0);
    let mut sum = u32::MAX;
    for octet in octets.iter() {
        sum ^= u32::from(*octet);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
        }
    }
    octets[8..12].copy_from_slice(&(!sum).to_le_bytes());
}

/// Every packet of a short association, with each octet changed under a correct checksum, or truncated: there is no
/// panic, and state stays bounded.
#[test]
fn changed_and_cut_packets() {
    let mut net = Net::new(&listening(), 5);
    let [client, server] = net.connected();
    for number in 0..4 {
        net.nodes[0].send(net.now, client, number, vec![5; 2000], Delivery::default()).unwrap();
        net.nodes[1].send(net.now, server, number, vec![6; 200], Delivery::default()).unwrap();
    }
    net.run_for(Duration::from_secs(2));
    net.nodes[0].close(net.now, client);
    net.run_for(Duration::from_secs(5));
    let log = core::mem::take(&mut net.log);
    let mut rng = Random::from_number(6);
    let mut net = Net::new(&listening(), 5);
    net.connected();
    for (_, from, octets) in &log {
        let to = 1 - from;
        let (src, dst) = (address(u8::try_from(from + 1).unwrap()), address(u8::try_from(to + 1).unwrap()));
        for at in 0..octets.len().min(140) {
            let mut changed = octets.clone();
            changed[at] = rng.array::<1>()[0];
            if at % 5 == 0 {
                changed.truncate(at);
            }
            if changed.len() >= 12 {
                reseal(&mut changed);
            }
            net.nodes[to].receive(net.now, arrival(src, dst), &changed, &|_| false);
            net.now = net.now + Duration::from_micros(50);
        }
        net.drain();
    }
    net.run_for(Duration::from_secs(5));
    assert!(net.nodes.iter().all(|node| node.len() < 20));
}

/// Random octets with a correct checksum, for a listener and for an established association.
#[test]
fn noise() {
    let mut rng = Random::from_number(7);
    let mut net = Net::new(&listening(), 8);
    net.connected();
    let header = net.log.iter().rev().find(|(_, from, _)| *from == 0).unwrap().2[..12].to_vec();
    for round in 0..20_000u64 {
        let mut octets = header.clone();
        let chunks = rng.range(1..4);
        for _ in 0..chunks {
            let kinds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 64, 130, 192, 194, 255];
            let kind = kinds[usize::try_from(rng.range(0..18)).unwrap()];
            // An ABORT with the correct tag would end it: this happens rarely.
            let kind = if kind == 6 && round % 50 != 0 { 3 } else { kind };
            let length = rng.range(0..40);
            let mut value = vec![0; usize::try_from(length).unwrap()];
            rng.fill(&mut value);
            octets.extend([kind, rng.array::<1>()[0] & 7]);
            octets.extend(u16::try_from(length + 4).unwrap().to_be_bytes());
            octets.extend(value);
            octets.resize(octets.len().next_multiple_of(4), 0);
        }
        reseal(&mut octets);
        net.nodes[1].receive(net.now, arrival(address(1), address(2)), &octets, &|_| false);
        net.now = net.now + Duration::from_micros(100);
        net.nodes[1].handle_timer(net.now);
        while net.nodes[1].poll_transmit().is_some() || net.nodes[1].poll_event().is_some() {}
        if net.nodes[1].is_empty() {
            net = Net::new(&listening(), 8 + round);
            net.connected();
        }
    }
}
