//! Settings of neighbors and keys by the names of interfaces.

use std::time::Duration;

use signalbox_rsvp::engine::neighbor::{Algorithm, HelloConfig, IntegrityConfig, Interface, KeyUse};
use signalbox_rsvp::engine::{Config, IntegrityKey, InterfaceConfig, Secret};
use signalbox_rsvp::wire::{ErrorCode, ErrorFlags, ErrorSpec, Message, MessageType, Style};

use crate::reduction::Pair;
use crate::rig::{B, Rig, addr, all, at, compose, load, sender, session};

fn key(id: u64, interface: &str, secret: &[u8]) -> IntegrityKey {
    IntegrityKey {
        id,
        algorithm: Algorithm::HmacSha256,
        secret: Secret::new(secret),
        usage: KeyUse::Both,
        interface: Some(interface.to_owned()),
        neighbor: None,
        from: 0,
        until: None,
    }
}

/// Messages are signed and verified at this interface, and nowhere else.
fn secured(interface: &str, keys: Vec<IntegrityKey>) -> Config {
    let integrity = IntegrityConfig { sending: true, receiving: true, ..IntegrityConfig::default() };
    let hello = Some(HelloConfig { interval: Duration::from_secs(1), ..HelloConfig::default() });
    let neighbors = Some(Interface { integrity, hello, ..Interface::default() });
    let own = InterfaceConfig { neighbors, ..InterfaceConfig::default() };
    Config { interfaces: [(interface.to_owned(), own)].into(), keys, ..Config::default() }
}

fn hellos(rig: &Rig) -> u64 {
    rig.rsvp.neighbors().counters().hellos_sent
}

/// A handshake and Hello with keys of two interfaces. The timers of the neighbor layer run as timers of the node.
#[test]
fn an_interface_has_keys_and_settings_of_its_own() {
    let up = vec![key(1, "eth2", b"between the two"), key(1, "eth3", b"another")];
    let mut pair = Pair::with(secured("eth2", up), secured("eth1", vec![key(1, "eth1", b"between the two")]));
    pair.path();
    pair.wait(Duration::from_secs(3));
    pair.resv();
    pair.wait(Duration::from_secs(3));
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (1, 1));
    for one in all(&pair.crossed, MessageType::PATH) {
        assert_eq!(Message::parse(&one.octets).unwrap().integrity.unwrap().key_id, 1);
    }
    for rig in [&pair.up, &pair.down] {
        let counters = rig.rsvp.neighbors().counters();
        assert_eq!((counters.challenges_sent, counters.responses_taken, counters.no_key), (1, 1, 0));
    }
    let before = (hellos(&pair.up), hellos(&pair.down));
    pair.wait(Duration::from_secs(30));
    assert!(hellos(&pair.up) + hellos(&pair.down) >= before.0 + before.1 + 20);
}

/// RSVP-3.1.9-02: a ResvConf is intercepted at each node on its path to the receiver, verified, and signed again.
#[test]
fn a_confirmation_is_signed_hop_by_hop() {
    let keys = || vec![key(1, "eth2", b"between the two"), key(2, "eth1", b"farther up")];
    let no_handshake = |mut config: Config| {
        for own in config.interfaces.values_mut().filter_map(|one| one.neighbors.as_mut()) {
            own.integrity.handshake = false;
            own.integrity.without_handshake = true;
            own.hello = None;
        }
        config
    };
    let up = no_handshake(secured("eth2", keys()));
    let down = no_handshake(secured("eth1", vec![key(1, "eth1", b"between the two")]));
    let mut pair = Pair::with(up, down);
    pair.path();
    pair.resv();
    pair.wait(Duration::from_secs(1));
    pair.crossed.clear();
    let receiver = addr("10.9.0.1");
    let octets = compose(MessageType::RESV_CONF, 60, |w| {
        let (node, flags) = (addr("10.7.7.7"), ErrorFlags::default());
        w.session(&session(), false);
        w.error_spec(&ErrorSpec { node, flags, code: ErrorCode::CONFIRMATION, value: 0 });
        w.resv_confirm(receiver).style(Style::Ff).flowspec(&load(B)).filter_spec(&sender(1));
    });
    let sent = pair.up.packet(1, at(1, 9), receiver, 60, &octets);
    pair.carry(sent, Vec::new());
    let crossed = all(&pair.crossed, MessageType::RESV_CONF);
    assert_eq!(crossed.len(), 1);
    assert_eq!((crossed[0].dst, crossed[0].router_alert), (receiver, true));
    assert_eq!(crossed[0].message().integrity.unwrap().key_id, 1);
    let counters = pair.down.rsvp.counters();
    assert_eq!((counters.confirmations_sent, counters.passed_on), (1, 0), "verified, and sent on by itself");
    // An altered ResvConf is dropped.
    let mut altered = crossed[0].octets.clone();
    let end = altered.len() - 1;
    altered[end] ^= 1;
    altered[2..4].fill(0);
    assert_eq!(pair.down.packet(1, at(2, 1), receiver, 59, &altered), []);
    assert_eq!(pair.down.rsvp.neighbors().counters().digest_wrong, 1);
}

/// Two neighbors get another key while they run. Their reservation stays, and messages have the new key.
#[test]
fn keys_change_while_the_node_runs() {
    let up = secured("eth2", vec![key(1, "eth2", b"between the two")]);
    let mut pair = Pair::with(up, secured("eth1", vec![key(1, "eth1", b"between the two")]));
    pair.path();
    pair.wait(Duration::from_secs(3));
    pair.resv();
    pair.wait(Duration::from_secs(3));
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (1, 1));
    let wrong = pair.up.rsvp.set_keys(vec![key(1 << 48, "eth2", b"too long")]).unwrap_err();
    assert_eq!(wrong.field, "keys.0");
    for (rig, interface) in [(&mut pair.up, "eth2"), (&mut pair.down, "eth1")] {
        rig.rsvp.set_keys(vec![key(2, interface, b"another one")]).unwrap();
    }
    pair.crossed.clear();
    for _ in 0..5 {
        pair.path();
        pair.resv();
        pair.wait(Duration::from_secs(50));
    }
    assert_eq!((pair.up.reservations(), pair.down.reservations()), (1, 1));
    // Challenges are not signed.
    let keys = pair.crossed.iter().filter_map(|one| Some(one.message().integrity?.key_id));
    let keys: Vec<u64> = keys.collect();
    assert!(keys.len() > 5 && keys.iter().all(|id| *id == 2), "{keys:?}");
}

#[test]
fn a_neighbor_with_another_secret_is_not_accepted() {
    let up = secured("eth2", vec![key(1, "eth2", b"between the two")]);
    let mut pair = Pair::with(up, secured("eth1", vec![key(1, "eth1", b"between others")]));
    pair.path();
    pair.wait(Duration::from_secs(30));
    assert_eq!((pair.up.rsvp.sessions(), pair.down.rsvp.sessions()), (1, 0));
    assert!(pair.down.rsvp.neighbors().counters().digest_wrong > 0);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |config: &Config| config.validated().unwrap_err().to_string();
    let config = Config { keys: vec![key(1, "a", b"x"), key(1, "a", b"y")], ..Config::default() };
    assert!(refused(&config).starts_with("keys.1: id: there is another"), "{}", refused(&config));
    let mut config = secured("eth1", Vec::new());
    if let Some(own) = config.interfaces.get_mut("eth1").and_then(|one| one.neighbors.as_mut()) {
        own.integrity.window = 65;
    }
    assert_eq!(refused(&config), "interfaces.eth1.integrity.window: not from 1 to 64");
    let mut config = Config::default();
    config.neighbors.interface.reduction.ack_delay = Duration::from_secs(1);
    assert!(refused(&config).starts_with("neighbors.reduction.ack_delay: not below"), "{}", refused(&config));
}
