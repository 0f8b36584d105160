//! What the lab builds networks of.

use std::process::Command;
use std::time::Duration;

use signalbox_linux::netns::{self, Namespace};
use signalbox_linux::process::Identity;
use signalbox_linux::topology;

use crate::network::{Network, datagram, families, receive_until, send, tool, until};

#[test]
fn loss_drops_its_share_and_no_neighbour_discovery() {
    let net = Network::new("loss");
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    for family in families() {
        topology::set_loss(&net.b, "b0", 40.0).unwrap();
        let before = b.counters().received;
        for _ in 0..1000 {
            send(&mut a, &datagram(family.a, family.b, b"maybe"));
        }
        topology::set_loss(&net.b, "b0", 0.0).unwrap();
        // The sentinel is sent until it is through: everything before it has arrived or is lost.
        send(&mut a, &datagram(family.a, family.b, b"last"));
        receive_until(&mut b, |got| got.iter().any(|got| got.payload == b"last"));
        let arrived = b.counters().received - before - 1;
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
