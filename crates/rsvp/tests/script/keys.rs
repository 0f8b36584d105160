//! Settings of neighbours and keys by the names of interfaces.

use std::time::Duration;

use signalbox_rsvp::engine::neighbour::{Algorithm, HelloConfig, IntegrityConfig, Interface, KeyUse};
use signalbox_rsvp::engine::{Config, IntegrityKey, InterfaceConfig, Secret};
use signalbox_rsvp::wire::{Message, MessageType};

use crate::reduction::Pair;
use crate::rig::{Rig, all};

fn key(id: u64, interface: &str, secret: &[u8]) -> IntegrityKey {
    IntegrityKey {
        id,
        algorithm: Algorithm::HmacSha256,
        secret: Secret::new(secret),
        usage: KeyUse::Both,
        interface: Some(interface.to_owned()),
        neighbour: None,
        from: 0,
        until: None,
    }
}

/// Messages are signed and verified at this interface, and nowhere else.
fn secured(interface: &str, keys: Vec<IntegrityKey>) -> Config {
    let integrity = IntegrityConfig { sending: true, receiving: true, ..IntegrityConfig::default() };
    let hello = Some(HelloConfig { interval: Duration::from_secs(1), ..HelloConfig::default() });
    let neighbours = Some(Interface { integrity, hello, ..Interface::default() });
    let own = InterfaceConfig { neighbours, ..InterfaceConfig::default() };
    Config { interfaces: [(interface.to_owned(), own)].into(), keys, ..Config::default() }
}

fn hellos(rig: &Rig) -> u64 {
    rig.rsvp.neighbours().counters().hellos_sent
}

/// Nothing but the timers of the neighbour layer is due in a challenge's way: they are timers of the node.
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
        let counters = rig.rsvp.neighbours().counters();
        assert_eq!((counters.challenges_sent, counters.responses_taken, counters.no_key), (1, 1, 0));
    }
    let before = (hellos(&pair.up), hellos(&pair.down));
    pair.wait(Duration::from_secs(30));
    assert!(hellos(&pair.up) + hellos(&pair.down) >= before.0 + before.1 + 20);
}

#[test]
fn a_neighbour_with_another_secret_is_not_heard() {
    let up = secured("eth2", vec![key(1, "eth2", b"between the two")]);
    let mut pair = Pair::with(up, secured("eth1", vec![key(1, "eth1", b"between others")]));
    pair.path();
    pair.wait(Duration::from_secs(30));
    assert_eq!((pair.up.rsvp.sessions(), pair.down.rsvp.sessions()), (1, 0));
    assert!(pair.down.rsvp.neighbours().counters().digest_wrong > 0);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |config: &Config| config.validated().unwrap_err().to_string();
    let config = Config { keys: vec![key(1, "a", b"x"), key(1, "a", b"y")], ..Config::default() };
    assert!(refused(&config).starts_with("keys.1: id: there is another"), "{}", refused(&config));
    let mut config = secured("eth1", Vec::new());
    if let Some(own) = config.interfaces.get_mut("eth1").and_then(|one| one.neighbours.as_mut()) {
        own.integrity.window = 65;
    }
    assert_eq!(refused(&config), "interfaces.eth1.integrity.window: not from 1 to 64");
    let mut config = Config::default();
    config.neighbours.interface.reduction.ack_delay = Duration::from_secs(1);
    assert!(
        refused(&config).starts_with("neighbours.reduction.ack_delay: not below"),
        "{}",
        refused(&config)
    );
}
