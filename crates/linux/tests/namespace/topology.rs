//! The module from which the lab builds networks.

use std::process::Command;
use std::time::{Duration, Instant};

use signalbox_linux::netns::{self, Namespace};
use signalbox_linux::process::Identity;
use signalbox_linux::relay::{Relay, RelayConfig};
use signalbox_linux::{Batch, topology};

use crate::network::{Network, PATIENCE, counter, datagram, families, ip, receive_until, send, tool, until};

#[test]
fn loss_drops_its_share_and_no_neighbor_discovery() {
    let net = Network::new("loss");
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    for family in families() {
        topology::set_loss(&net.b, "b0", 40.0).unwrap();
        let before = counter(&b, "received");
        for _ in 0..1000 {
            send(&mut a, &datagram(family.a, family.b, b"maybe"));
        }
        topology::set_loss(&net.b, "b0", 0.0).unwrap();
        // The last packet is sent until it arrives: everything before it has then arrived or is lost.
        send(&mut a, &datagram(family.a, family.b, b"last"));
        receive_until(&mut b, |got| got.iter().any(|got| got.payload == b"last"));
        let arrived = counter(&b, "received") - before - 1;
        assert!((450..750).contains(&arrived), "{arrived} of 1000 at 40 % loss");

        topology::set_loss(&net.b, "b0", 100.0).unwrap();
        send(&mut a, &datagram(family.a, family.b, b"lost"));
        tool(&net.b, "ip neigh flush dev b0");
        topology::set_loss(&net.b, "b0", 0.0).unwrap();
        send(&mut a, &datagram(family.a, family.b, b"last"));
        let got = receive_until(&mut b, |got| got.iter().any(|got| got.payload == b"last"));
        assert_eq!(got.len(), 1);
    }
    assert!(!tool(&net.b, "nft list ruleset").contains("drop"));
}

#[test]
fn rate_alias_and_blocking() {
    let net = Network::new("rate");
    topology::set_rate(&net.a, "a0", 1_000_000).unwrap();
    assert!(tool(&net.a, "tc qdisc show dev a0").contains("tbf"));
    topology::set_alias(&net.a, "a0", "made by a test").unwrap();
    assert!(tool(&net.a, "ip link show dev a0").contains("alias made by a test"));
    topology::set_blocked(&net.b, "b0", 270, true).unwrap();
    assert!(tool(&net.b, "nft list ruleset").contains("udp dport 270 drop"));
    topology::set_blocked(&net.b, "b0", 270, false).unwrap();
    assert!(!tool(&net.b, "nft list ruleset").contains("270"));
    topology::delete_link(&net.a, "a0").unwrap();
    let gone = topology::set_up(&net.r, "ra", true).unwrap_err();
    assert!(gone.to_string().contains("ra"), "{gone}");
}

#[test]
fn namespaces_are_listed_entered_and_removed_with_their_processes() {
    let name = format!("sbxt-{}-ns", std::process::id());
    let namespace = Namespace::create(&name).unwrap();
    assert_eq!(netns::list(&name).unwrap(), [name.as_str()]);
    assert!(Namespace::create(&name).is_err() && Namespace::create("../x").is_err());
    let mut child = namespace.spawn(Command::new("sleep").arg("60")).unwrap();
    let identity = Identity::of(child.id()).unwrap();
    until("the process is in the namespace", || namespace.processes().unwrap() == [identity]);
    identity.terminate(Duration::from_secs(5)).unwrap();
    child.wait().unwrap();
    assert_eq!(namespace.processes().unwrap(), []);
    namespace.delete().unwrap();
    assert_eq!(netns::list(&name).unwrap(), Vec::<String>::new());
    netns::delete(&name).unwrap();
    assert!(netns::is_permitted());
}

#[test]
fn a_relay_delays_and_loses() {
    let mut net = Network::new("relay");
    // A second link a1 – x, y – b1 with a relay in a namespace between them.
    let wire = net.namespace("wire");
    for (host, near, far, address) in [(&net.a, "a1", "x", "10.3.0.1"), (&net.b, "b1", "y", "10.3.0.2")] {
        topology::create_veth(host, near, &wire, far).unwrap();
        topology::add_address(host, near, ip(address), 24).unwrap();
        for (namespace, interface) in [(host, near), (&wire, far)] {
            topology::disable_offload(namespace, interface).unwrap();
            topology::set_up(namespace, interface, true).unwrap();
        }
    }
    let delay = Duration::from_millis(20);
    let config = RelayConfig { delay, loss_percent: 0.0, seed: 1 };
    let relay = Relay::start(&wire, "x", "y", config).unwrap();
    topology::settle(&wire, PATIENCE).unwrap();
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    let (from, to) = (ip("10.3.0.1"), ip("10.3.0.2"));
    send(&mut a, &datagram(from, to, b"finds the neighbor"));
    receive_until(&mut b, |got| !got.is_empty());

    let start = Instant::now();
    send(&mut a, &datagram(from, to, b"there"));
    receive_until(&mut b, |got| !got.is_empty());
    send(&mut b, &datagram(to, from, b"and back"));
    receive_until(&mut a, |got| !got.is_empty());
    assert!(start.elapsed() >= 2 * delay, "{:?}", start.elapsed());

    let payloads: Vec<[u8; 2]> = (0..500_u16).map(u16::to_be_bytes).collect();
    for payload in &payloads {
        a.send(&datagram(from, to, payload));
    }
    assert_eq!(a.flush(), []);
    let got = receive_until(&mut b, |got| got.len() == payloads.len());
    assert!(got.iter().map(|got| &got.payload).eq(payloads.iter().map(|p| p.as_slice())));
    let counters = relay.stop();
    assert!(counters.passed >= 503 && counters.lost == 0 && counters.dropped == 0, "{counters:?}");

    let config = RelayConfig { delay: Duration::ZERO, loss_percent: 30.0, seed: 1 };
    let relay = Relay::start(&wire, "x", "y", config).unwrap();
    let before = counter(&b, "received");
    for payload in &payloads {
        a.send(&datagram(from, to, payload));
    }
    assert_eq!(a.flush(), []);
    until("the last that is not lost has arrived", || {
        send(&mut a, &datagram(from, to, b"end"));
        b.wait(Some(Duration::from_millis(20))).unwrap();
        let mut batch = Batch::new();
        b.receive(&mut batch).unwrap();
        batch.iter().any(|got| got.payload == b"end")
    });
    let arrived = counter(&b, "received") - before;
    assert!((280..430).contains(&arrived), "{arrived} of 500 at 30 % loss");
    assert!(relay.stop().lost > 0);
}
