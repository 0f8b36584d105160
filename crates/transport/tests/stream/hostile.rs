//! Octets that are truncated, changed or invented in transit.

use signalbox_core::Time;
use signalbox_transport::Channel;
use signalbox_transport::stream::{Event, Limits};

use crate::pair::{Ca, PEER, Pair, config, failure, take};

/// Every octet of an application record is changed: changed data are never delivered, the receiver fails, and the peer
/// receives an alert.
#[test]
fn a_changed_octet_is_noticed() {
    let mut checked = 0;
    let mut at = 0;
    loop {
        let mut pair = Pair::ready();
        pair.client.send(b"forty-two").unwrap();
        let mut octets = pair.client_says();
        let Some(octet) = octets.get_mut(at) else { break };
        *octet ^= 0x40;
        let _ = pair.server.receive(pair.now, &octets);
        if at == 1 || at == 2 {
            // The record's version, which TLS 1.3 ignores (RFC 8446 §5.1): harmless.
            assert!([&b"forty-two"[..], b""].contains(&pair.server.received()));
            at += 1;
            continue;
        }
        assert!(pair.server.received().is_empty(), "octet {at}");
        // A longer length in the header makes the receiver wait for octets that never come.
        if failure(&mut pair.server).is_some() {
            checked += 1;
            pair.run();
            assert!(failure(&mut pair.client).is_some(), "informed by an alert, octet {at}");
        } else {
            pair.server.end();
            assert!(failure(&mut pair.server).is_some(), "octet {at}");
        }
        at += 1;
    }
    assert!(checked > 20, "{checked}");
}

/// Every octet of both first flights changed, and every truncation: there is no panic, and no channel is connected to a
/// forged peer.
#[test]
fn handshakes_with_changed_or_missing_octets() {
    let ca = Ca::new();
    let config = config(&ca.issue(&["a.example"]), &ca);
    let mut hello = Vec::new();
    let mut client = Channel::client(&config, PEER, Limits::default(), Time::ZERO).unwrap();
    client.poll_transmit(&mut hello);
    for at in 0..hello.len() {
        let mut server = Channel::server(&config, Limits::default(), Time::ZERO).unwrap();
        let _ = server.receive(Time::ZERO, &hello[..at]);
        server.end();
        assert!(failure(&mut server).is_some(), "cut at {at}");
    }
    for at in (0..hello.len()).step_by(3) {
        let mut pair = Pair::tls(&config, &config);
        let mut octets = pair.client_says();
        octets[at] ^= 0xff;
        let _ = pair.server.receive(pair.now, &octets);
        pair.run();
        assert!(!matches!(pair.server.poll_event(), Some(Event::Connected { .. })), "octet {at}");
    }
}

/// Octets that a peer sends after the channel has failed or closed are ignored.
#[test]
fn a_dead_channel_stays_dead() {
    let mut pair = Pair::ready();
    let _ = pair.server.receive(pair.now, b"GET / HTTP/1.1\r\n\r\n");
    assert!(failure(&mut pair.server).is_some());
    pair.client.send(b"good octets").unwrap();
    let octets = pair.client_says();
    assert_eq!(pair.server.receive(pair.now, &octets), Ok(()));
    assert!(take(&mut pair.server).is_empty());
    assert_eq!(pair.server.poll_event(), None);
    let mut alert = Vec::new();
    assert!(pair.server.poll_transmit(&mut alert) && !pair.server.poll_transmit(&mut alert));
    assert!(pair.server.is_flushed());
}
