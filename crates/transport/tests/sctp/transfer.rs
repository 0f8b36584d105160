//! Messages arrive complete, once, and in the order of their stream.

use core::time::Duration;

use signalbox_transport::sctp::{Config, Delivery, EventKind, SendError};

use crate::net::{Net, listening};

fn message(number: usize, size: usize) -> Vec<u8> {
    let mut octets = number.to_be_bytes().to_vec();
    octets.extend((0..size).map(|at| u8::try_from((at * 31 + number) % 251).unwrap()));
    octets
}

/// [SCTP-1-01] User messages are fragmented: 60 kB and the largest GIST message arrive complete. [SCTP-3.1.2-07] They
/// arrive in order, although the network loses, duplicates and reorders packets. The answer uses the same stream.
#[test]
fn large_and_small_over_a_bad_network() {
    for seed in 0..6 {
        let mut net = Net::new(&listening(), seed);
        (net.loss, net.doubling, net.jitter) = (0.1, 0.1, Duration::from_millis(3));
        let [client, server] = net.connected();
        let sizes = [60_000, 3, 262_140, 0, 1173, 5000, 1, 40_000];
        for (number, size) in sizes.into_iter().enumerate() {
            let octets = message(number, size);
            net.nodes[0].send(net.now, client, 7, octets, Delivery::default()).unwrap();
        }
        net.run_until(|net| net.events[1].len() >= sizes.len());
        let expected: Vec<_> = sizes.iter().enumerate().map(|(n, size)| message(n, *size)).collect();
        assert!(
            net.messages(1).iter().map(|(_, octets)| *octets).eq(expected.iter().map(|o| &o[..])),
            "{seed}"
        );
        assert!(net.messages(1).iter().all(|(stream, _)| *stream == 7));
        net.nodes[1].send(net.now, server, 7, b"answer".to_vec(), Delivery::default()).unwrap();
        net.run_until(|net| !net.events[0].is_empty());
        assert_eq!(net.messages(0), [(7, &b"answer"[..])]);
        // No octets wait, and no packet is sent for ever.
        net.run_until(|net| net.log.len() < usize::MAX);
        net.run_for(Duration::from_secs(60));
        assert_eq!((net.nodes[0].buffered(client), net.nodes[1].buffered(server)), (0, 0));
        assert_eq!(net.events[1].len(), sizes.len(), "once each");
    }
}

/// A stream keeps its order; [SCTP-5.2-01] a loss in one does not hold up the others.
#[test]
fn streams_are_independent() {
    let mut net = Net::new(&listening(), 42);
    let [client, _] = net.connected();
    net.loss = 1.0;
    net.nodes[0].send(net.now, client, 0, message(0, 10), Delivery::default()).unwrap();
    net.drain();
    net.loss = 0.0;
    for number in 1..4 {
        net.nodes[0].send(net.now, client, 0, message(number, 10), Delivery::default()).unwrap();
        net.nodes[0].send(net.now, client, 1, message(10 + number, 10), Delivery::default()).unwrap();
    }
    let unordered = Delivery { ordered: false, lifetime: None };
    net.nodes[0].send(net.now, client, 0, message(99, 10), unordered).unwrap();
    net.run_until(|net| net.events[1].len() == 8);
    let order: Vec<_> = net.messages(1).iter().map(|(stream, octets)| (*stream, octets[7])).collect();
    let received_of =
        |stream| order.iter().filter(|(s, n)| *s == stream && *n != 99).map(|(_, n)| *n).collect::<Vec<_>>();
    assert_eq!((received_of(0), received_of(1)), (vec![0, 1, 2, 3], vec![11, 12, 13]));
    let place = |wanted| order.iter().position(|entry| *entry == wanted).unwrap();
    assert!(place((1, 13)) < place((0, 0)), "{order:?}");
    assert!(place((0, 99)) < place((0, 0)), "unordered does not wait: {order:?}");
}

/// [SCTP-3.3-01] Partial reliability is offered and used; [SCTP-3.3-03] an expired message is abandoned, and later ones
/// arrive.
#[test]
fn late_messages_are_given_up() {
    let mut net = Net::new(&listening(), 43);
    let [client, _] = net.connected();
    net.loss = 1.0;
    let short = Delivery { ordered: true, lifetime: Some(Duration::from_millis(500)) };
    net.nodes[0].send(net.now, client, 3, message(1, 2000), short).unwrap();
    net.run_for(Duration::from_millis(700));
    net.loss = 0.0;
    net.nodes[0].send(net.now, client, 3, message(2, 10), Delivery::default()).unwrap();
    net.run_until(|net| !net.events[1].is_empty());
    net.run_for(Duration::from_secs(20));
    let numbers: Vec<_> = net.messages(1).iter().map(|(_, octets)| octets[7]).collect();
    assert_eq!(numbers, [2]);
    assert_eq!(net.nodes[0].buffered(client), 0);
}

/// Flow control at both ends: the sender refuses at its limit; a receiver that reads no data stops the sender at the
/// window, and no data is lost when it continues.
#[test]
fn buffers_are_bounded() {
    let config = Config { max_buffered: 100_000, window: 300_000, ..listening() };
    let mut net = Net::new(&config, 44);
    let [client, _] = net.connected();
    let mut sent = 0;
    while net.nodes[0].send(net.now, client, 0, message(sent, 9_992), Delivery::default()).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 10);
    let again = net.nodes[0].send(net.now, client, 0, message(sent, 9_992), Delivery::default());
    assert_eq!(again, Err(SendError::Full));
    net.run_until(|net| net.events[1].len() == sent);
    net.run_for(Duration::from_secs(1));
    assert!(net.nodes[0].send(net.now, client, 0, message(sent, 9_992), Delivery::default()).is_ok());
    assert_eq!(
        net.nodes[0].send(net.now, client, 64, message(0, 1), Delivery::default()),
        Err(SendError::Stream)
    );
    assert_eq!(net.nodes[0].send(net.now, client, 0, Vec::new(), Delivery::default()), Err(SendError::Size));
    let huge = vec![0; config.max_message + 1];
    assert_eq!(net.nodes[0].send(net.now, client, 0, huge, Delivery::default()), Err(SendError::Size));
}

/// The same seed gives the same packets at the same times, independent of the wall clock.
#[test]
fn the_same_inputs_give_the_same_packets() {
    let run = || {
        let mut net = Net::new(&listening(), 45);
        (net.loss, net.doubling, net.jitter) = (0.2, 0.1, Duration::from_millis(5));
        let [client, _] = net.connected();
        for number in 0..50 {
            let stream = u16::try_from(number % 5).unwrap();
            net.nodes[0].send(net.now, client, stream, message(number, 3000), Delivery::default()).unwrap();
        }
        net.run_until(|net| net.events[1].len() == 50);
        net.nodes[0].close(net.now, client);
        net.run_until(|net| net.last(0) == Some(&EventKind::Closed));
        net.log
    };
    let (once, again) = (run(), run());
    assert_eq!(once.len(), again.len());
    assert!(once == again);
}
