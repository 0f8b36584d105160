//! Octets arrive complete and in order; an orderly end differs from an abrupt one; buffers are bounded.

use std::time::Duration;

use signalbox_core::{Random, Time};
use signalbox_transport::Channel;
use signalbox_transport::stream::{ChannelError, Event, Limits, SendError};

use crate::pair::{Ca, Pair, config, failure, take};

fn noise(count: usize) -> Vec<u8> {
    let mut octets = vec![0; count];
    Random::from_number(3).fill(&mut octets);
    octets
}

/// Transfers of 60 kB and 1 MB, in pieces of odd sizes, in both directions at once.
#[test]
fn large_transfers_in_odd_pieces() {
    for make in [Pair::plain, Pair::ready] {
        for (count, chunks) in
            [(60_000, vec![1, 2, 7]), (1_000_000, vec![1, 999, 16_401, 5]), (60_000, vec![1460])]
        {
            let mut pair = make();
            pair.chunks = chunks;
            let (there, back) = (noise(count), noise(count + 1));
            pair.client.send(&there).unwrap();
            pair.server.send(&back).unwrap();
            pair.run();
            assert!(take(&mut pair.server) == there && take(&mut pair.client) == back, "{count}");
        }
    }
}

/// Data that is sent between two polls shares records: 100 messages of 150 octets cost one record's overhead.
#[test]
fn writes_are_coalesced() {
    let mut pair = Pair::ready();
    for _ in 0..100 {
        pair.client.send(&[9; 150]).unwrap();
    }
    let octets = pair.client_says();
    assert!(octets.len() < 15_000 + 40, "{}", octets.len());
    pair.server.receive(pair.now, &octets).unwrap();
    assert_eq!(take(&mut pair.server).len(), 15_000);
}

/// Flow control: sending stops at the limit and no message is accepted in part; reading stops if no octets are
/// consumed.
#[test]
fn buffers_are_bounded() {
    let limits = Limits { send: 1000, receive: 1500, ..Limits::default() };
    let mut pair = Pair::of(Channel::plain(limits), Channel::plain(limits));
    pair.client.send(&[1; 900]).unwrap();
    assert_eq!(pair.client.send(&[2; 101]), Err(SendError::Full { room: 100 }));
    pair.client.send(&[3; 100]).unwrap();
    assert_eq!(pair.client.send_room(), 0);
    pair.run();
    assert_eq!((pair.client.send_room(), pair.server.received().len()), (1000, 1000));
    assert!(pair.server.wants_octets());
    pair.client.send(&[4; 1000]).unwrap();
    pair.run();
    assert!(!pair.server.wants_octets());
    pair.server.consume(999);
    assert!(pair.server.wants_octets());
    assert_eq!(pair.server.received()[..2], [3, 4]);
    pair.server.consume(usize::MAX);
    assert!(pair.server.received().is_empty());
}

/// Consuming in small steps keeps the rest in order.
#[test]
fn consuming_step_by_step() {
    let mut channel = Channel::plain(Limits::default());
    let octets = noise(10_000);
    let mut got = Vec::new();
    for piece in octets.chunks(333) {
        channel.receive(Time::ZERO, piece).unwrap();
        let step = channel.received().len().min(257);
        got.extend_from_slice(&channel.received()[..step]);
        channel.consume(step);
    }
    got.extend(take(&mut channel));
    assert!(got == octets);
}

/// An orderly end: data sent before is transmitted first, then close_notify, and the event of the peer is `Closed`.
#[test]
fn orderly_end() {
    for make in [Pair::plain, Pair::ready] {
        let mut pair = make();
        while pair.client.poll_event().is_some() || pair.server.poll_event().is_some() {}
        pair.client.send(b"last words").unwrap();
        pair.client.close();
        assert_eq!(pair.client.send(b"more"), Err(SendError::Closed));
        assert!(!pair.client.is_flushed());
        let octets = pair.client_says();
        assert!(pair.client.is_flushed());
        pair.server.receive(pair.now, &octets).unwrap();
        pair.server.end();
        assert_eq!(pair.server.poll_event(), Some(Event::Closed { unsent: 0 }));
        assert_eq!(pair.server.poll_event(), None);
        assert_eq!(take(&mut pair.server), b"last words");
        assert_eq!(pair.server.send(b"x"), Err(SendError::Closed));
        // The same in the other direction.
        pair.run();
        pair.client.end();
        assert_eq!(pair.client.poll_event(), Some(Event::Closed { unsent: 0 }));
        assert!(pair.server.is_flushed());
    }
}

/// A TLS stream that ends without close_notify was truncated; a reset is a loss. Both events have the number of octets
/// that were not sent.
#[test]
fn abrupt_ends() {
    let mut pair = Pair::ready();
    pair.server.send(b"unread!").unwrap();
    pair.server.end();
    assert_eq!(pair.server.poll_event(), Some(Event::Failed { error: ChannelError::Truncated, unsent: 7 }));
    for mut pair in [Pair::plain(), Pair::ready()] {
        while pair.client.poll_event().is_some() {}
        pair.client.lost("Connection reset by peer");
        pair.client.lost("once only");
        pair.client.end();
        let error = ChannelError::Lost("Connection reset by peer".to_owned());
        assert_eq!(pair.client.poll_event(), Some(Event::Failed { error, unsent: 0 }));
        assert_eq!(pair.client.poll_event(), None);
        assert!(!pair.client.wants_octets());
    }
}

/// A peer that connects without a handshake is disconnected; an answer in time stops the timer.
#[test]
fn handshakes_end_in_time() {
    let ca = Ca::new();
    let config = config(&ca.issue(&["a.example"]), &ca);
    let mut server = Channel::server(&config, Limits::default(), Time::from_secs(5)).unwrap();
    let deadline = server.next_deadline().unwrap();
    assert_eq!(deadline, Time::from_secs(15));
    server.handle_timer(Time::from_millis(14_999));
    assert_eq!(server.poll_event(), None);
    server.handle_timer(deadline);
    assert_eq!(failure(&mut server), Some(ChannelError::HandshakeTimeout));
    assert_eq!(server.next_deadline(), None);
    let mut pair = Pair::ready();
    assert_eq!(
        pair.server.next_deadline(),
        Some(pair.now + Duration::from_secs(3600)),
        "the peer is judged again"
    );
    pair.server.handle_timer(Time::from_secs(1000));
    assert_eq!(pair.server.poll_event(), None);
}
