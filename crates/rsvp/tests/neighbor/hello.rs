//! Hello (RFC 3209 §5) between two nodes.

use std::time::Duration;

use signalbox_rsvp::engine::IpReceived;
use signalbox_rsvp::engine::neighbor::{HelloConfig, HelloState, Incoming, Upcall};
use signalbox_rsvp::wire::MessageType;

use signalbox_core::IfIndex;

use super::rig::{ETH, Kind, Node, To, addr, config, exchange, ms, prompt};

fn with_hello(last: u8, seed: u64) -> Node {
    let mut config = config(prompt());
    config.interface.hello =
        Some(HelloConfig { interval: Duration::from_millis(5), ..HelloConfig::default() });
    Node::seeded(last, config, seed)
}

/// Runs both nodes from `from` to `to`; their packets arrive without delay.
fn live(from: u64, to: u64, a: &mut Node, b: &mut Node) {
    for now in (from..=to).map(ms) {
        a.layer.advance(now);
        a.layer.tick(u32::MAX);
        b.layer.advance(now);
        b.layer.tick(u32::MAX);
        exchange(now, a, b);
    }
}

/// Proves RSVPX-3209-5.1-01 and RSVPX-3209-5.3-03: from address to address with TTL 1; each request is answered.
#[test]
fn requests_are_answered() {
    let (mut a, mut b) = (with_hello(1, 1), with_hello(2, 2));
    b.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    b.drain().iter().for_each(|packet| _ = a.take(ms(0), packet));
    a.layer.advance(ms(1));
    a.layer.tick(u32::MAX);
    let sent = a.drain();
    let hello = sent.iter().find(|packet| packet.kind() == MessageType::HELLO).unwrap().clone();
    // The acknowledgment of its Path makes the neighbor known.
    let others = sent.iter().filter(|packet| packet.kind() != MessageType::HELLO);
    others.for_each(|packet| _ = b.take(ms(1), packet));
    assert_eq!((hello.src, hello.dst, hello.ttl, hello.router_alert), (addr(1), addr(2), 1, false));
    let request = hello.message().hello.unwrap();
    assert!(!request.ack && request.src_instance != 0 && request.dst_instance == 0);
    b.take(ms(1), &hello);
    let answer = b.drain().into_iter().find(|packet| packet.kind() == MessageType::HELLO).unwrap();
    let ack = answer.message().hello.unwrap();
    assert!(ack.ack && ack.dst_instance == request.src_instance && ack.src_instance != 0);
    assert_eq!((answer.dst, answer.ttl), (addr(1), 1));
    live(1, 100, &mut a, &mut b);
    assert!(a.upcalls.is_empty() && b.upcalls.is_empty());
    assert!(a.layer.counters().hellos_sent >= 19 && b.layer.counters().hellos_sent >= 19);
}

/// Proves RSVPX-3209-5.4-02 for this layer: a neighbor that restarted or is silent is reported once, and comes back;
/// nothing else changes.
#[test]
fn a_restarted_or_silent_neighbor_is_reported_once() {
    let (mut a, mut b) = (with_hello(1, 1), with_hello(2, 2));
    b.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    live(0, 50, &mut a, &mut b);
    assert!(a.upcalls.is_empty());
    let mut again = with_hello(2, 3);
    live(51, 100, &mut a, &mut again);
    assert!(again.layer.counters().hellos_refused > 0, "it does not know the neighbor yet");
    again.path(ms(100), Kind::Trigger, 5000, To::Unknown);
    let lost = Upcall::Lost { neighbor: addr(2), ifindex: ETH };
    assert_eq!(a.upcalls, [lost]);
    live(101, 200, &mut a, &mut again);
    assert_eq!(a.upcalls, [lost], "it is up again");
    for now in (201..300).map(ms) {
        a.layer.advance(now);
        a.layer.tick(u32::MAX);
        a.drain();
    }
    assert_eq!(a.upcalls, [lost, lost], "silence");
    assert_eq!(a.layer.counters().neighbors_lost, 2);
}

/// An administrator has one node forget the other: neither takes the other for restarted, and Hellos go on.
#[test]
fn a_neighbor_that_is_forgotten_does_not_lose_this_node() {
    let (mut a, mut b) = (with_hello(1, 1), with_hello(2, 2));
    b.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    live(0, 50, &mut a, &mut b);
    let shown = |a: &Node| a.layer.view(ms(50)).first().and_then(|row| row.hello);
    assert_eq!(shown(&a), Some(HelloState::Up));
    assert_eq!(a.layer.forget(addr(2), None), [ETH]);
    assert_eq!(shown(&a), Some(HelloState::Never));
    live(51, 100, &mut a, &mut b);
    assert_eq!(shown(&a), Some(HelloState::Up));
    assert!(a.upcalls.is_empty() && b.upcalls.is_empty(), "{:?} {:?}", a.upcalls, b.upcalls);
}

/// Hellos are answered where Hello is configured, to neighbors that are known by other messages.
#[test]
fn hellos_of_strangers_are_not_answered() {
    let (mut a, mut b) = (with_hello(1, 1), with_hello(2, 2));
    b.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    b.drain().iter().for_each(|packet| _ = a.take(ms(0), packet));
    a.layer.advance(ms(1));
    a.layer.tick(u32::MAX);
    let hello = a.drain().into_iter().find(|packet| packet.kind() == MessageType::HELLO).unwrap();
    for node in [&mut with_hello(2, 2), &mut Node::plain(2)] {
        node.take(ms(1), &hello);
        assert_eq!((node.drain().len(), node.layer.counters().hellos_refused), (0, 1));
    }
}

/// A node without Hello configured sends no request.
#[test]
fn off_by_default() {
    let (mut a, mut b) = (Node::plain(1), Node::plain(2));
    b.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    live(0, 100, &mut a, &mut b);
    assert_eq!(a.layer.counters().hellos_sent + b.layer.counters().hellos_sent, 0);
}

/// Proves RSVPX-3209-5.3-01: a neighbor that never answered was never up, so it is not lost.
#[test]
fn a_neighbor_that_never_answered_is_not_lost() {
    let (mut a, mut b) = (with_hello(1, 1), Node::plain(2));
    b.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    b.drain().iter().for_each(|packet| _ = a.take(ms(0), packet));
    for now in (0..500).map(ms) {
        a.layer.advance(now);
        a.layer.tick(u32::MAX);
        a.drain();
    }
    assert!(a.layer.counters().hellos_sent >= 99);
    assert!(a.upcalls.is_empty());
}

/// Proves RSVPX-3209-5.4-01: on numbered parallel links each address has its own Hellos and is lost by itself.
#[test]
fn parallel_links_have_hellos_of_their_own() {
    let (mut a, mut b) = (with_hello(1, 1), Node::plain(2));
    let other = IfIndex(3);
    a.layer.set_addresses(other, Some(addr(101)), None);
    b.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    let path = b.drain().remove(0);
    a.take(ms(0), &path);
    // The same node's address on the other link.
    let mut second = Node::plain(102);
    second.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    let path = second.drain().remove(0);
    let packet = IpReceived {
        src: path.src,
        dst: path.dst,
        ifindex: other,
        ttl: path.ttl,
        tos: 0,
        router_alert: true,
        payload: &path.payload,
    };
    let mut incoming = Incoming::none(packet);
    let mut arrivals = a.layer.receive(&mut incoming);
    a.layer.advance(ms(0));
    while a.layer.next(&mut arrivals).is_some() {}
    a.layer.advance(ms(1));
    a.layer.tick(u32::MAX);
    let mut asked = Vec::new();
    while let Some(out) = a.layer.poll() {
        let message = signalbox_rsvp::wire::Message::parse(out.payload).unwrap();
        if let Some(hello) = message.hello {
            asked.push((out.ifindex.unwrap(), out.src, out.dst, hello.src_instance));
        }
    }
    asked.sort_unstable_by_key(|(ifindex, ..)| *ifindex);
    assert_eq!(asked.len(), 2);
    assert_eq!((asked[0].0, asked[0].1, asked[0].2), (ETH, addr(1), addr(2)));
    assert_eq!((asked[1].0, asked[1].1, asked[1].2), (other, addr(101), addr(102)));
    assert_ne!(asked[0].3, asked[1].3, "an instance for each");
}
