//! Pinholes beside the rulesets that other programs make, and what happens when these are loaded again.

use std::time::Duration;

use signalbox_core::pinhole::{OpenerId, Pinhole};
use signalbox_linux::pinhole::{Chain, PinholeConfig, Pinholes};
use signalbox_linux::topology;

use crate::helper::helper;
use crate::network::{Addresses, Network, families, footprint, tool, until};
use crate::pinhole::{Attempt, DEFAULT_DROP, LONG, UDP, at, close, enforcer, flow, open, tracked};

/// The ruleset as firewalld makes it: one chain of the hook, what is left is rejected. No line of it matches a mark.
const FIREWALLD: &str = "table inet firewalld {
    chain filter_PREROUTING {
        type filter hook prerouting priority filter + 10; policy accept;
    }
    chain filter_FORWARD_ZONES {
        ct mark 7 accept
    }
    chain filter_FORWARD {
        type filter hook forward priority filter + 10; policy accept;
        ct state { established, related } accept
        ct status dnat accept
        iifname \"lo\" accept
        ct state invalid drop
        udp dport 9 accept
        jump filter_FORWARD_ZONES
        reject with icmpx admin-prohibited
    }
}
";

/// The ruleset as ufw makes it with iptables-nft; the line of the mark is one of /etc/ufw/before.rules.
const UFW: &str = "table FAMILY filter {
    chain ufw-before-forward {
        ct state related,established counter accept
        ct mark and 0x10000000 == 0x10000000 counter accept
    }
    chain ufw-user-forward {
        udp dport 9 counter accept
    }
    chain ufw-reject-forward {
    }
    chain FORWARD {
        type filter hook forward priority filter; policy drop;
        counter jump ufw-before-forward
        counter jump ufw-user-forward
        counter jump ufw-reject-forward
    }
}
";

/// The ruleset as docker makes it; the line of the mark is in DOCKER-USER, the chain that docker leaves to its users.
const DOCKER: &str = "table FAMILY filter {
    chain DOCKER-USER {
        ct mark and 0x10000000 == 0x10000000 counter accept
        udp dport 9 counter accept
        counter return
    }
    chain DOCKER-ISOLATION {
        counter return
    }
    chain FORWARD {
        type filter hook forward priority filter; policy drop;
        counter jump DOCKER-USER
        counter jump DOCKER-ISOLATION
        oifname \"docker0\" ct state related,established counter accept
        iifname \"docker0\" oifname != \"docker0\" counter accept
    }
}
table FAMILY nat {
    chain POSTROUTING {
        type nat hook postrouting priority srcnat; policy accept;
        oifname != \"docker0\" iifname \"docker0\" counter masquerade
    }
}
";

/// The chain at whose head the rule stands that firewalld cannot be given.
fn accepting(chain: &str) -> PinholeConfig {
    let accept_in: Vec<Chain> = vec![chain.parse().unwrap()];
    PinholeConfig { accept_in, ..PinholeConfig::default() }
}

/// One pinhole opens, and closes again.
fn opens_and_closes(net: &Network, pinholes: &mut Pinholes) {
    for (id, Addresses { a, b }) in families().into_iter().enumerate() {
        let attempt = Attempt { from: &net.a, to: &net.b, src: at(a, 4000), dst: at(b, 5004) };
        attempt.is_blocked();
        open(pinholes, id as u64, Pinhole::allow(flow(UDP, attempt.src, attempt.dst)), LONG);
        attempt.passes();
        Attempt { from: &net.b, to: &net.a, src: attempt.dst, dst: attempt.src }.passes();
        Attempt { src: at(a, 4001), ..attempt }.is_blocked();
        close(pinholes, id as u64);
        attempt.is_blocked();
    }
}

/// NATFW-3.1-02: pinholes take effect beside the rulesets of nftables, firewalld, ufw and docker. All that was there
/// before is there afterwards, and nothing else.
#[test]
fn pinholes_open_beside_typical_rulesets() {
    let both = |text: &str| ["ip", "ip6"].map(|family| text.replace("FAMILY", family)).concat();
    for (label, ruleset, config) in [
        ("nftables", DEFAULT_DROP.to_owned(), PinholeConfig::default()),
        ("firewalld", FIREWALLD.to_owned(), accepting("inet firewalld filter_FORWARD")),
        ("ufw", both(UFW), PinholeConfig::default()),
        ("docker", both(DOCKER), PinholeConfig::default()),
        ("all", FIREWALLD.to_owned() + &both(UFW), accepting("inet firewalld filter_FORWARD")),
    ] {
        let net = Network::new(label);
        topology::nft(&net.r, &ruleset).unwrap();
        let before = without_counters(&footprint(&net.r));
        let Some(mut pinholes) = enforcer(&net, &config) else { return };
        opens_and_closes(&net, &mut pinholes);
        pinholes.close().unwrap();
        assert_eq!(without_counters(&footprint(&net.r)), before, "{label}");
    }
}

fn without_counters(footprint: &str) -> String {
    let words: Vec<&str> = footprint.split(' ').collect();
    let counted = |at: usize| at > 0 && (words[at - 1] == "packets" || words[at - 1] == "bytes");
    (0..words.len()).filter(|at| !counted(*at)).map(|at| words[at]).collect::<Vec<_>>().join(" ")
}

/// Without the line in the operator's ruleset a pinhole has no effect: an `accept` in our table does not override a `drop`
/// in a later one.
#[test]
fn the_operator_decides() {
    let net = Network::new("later");
    topology::nft(&net.r, FIREWALLD).unwrap();
    let Some(mut pinholes) = enforcer(&net, &PinholeConfig::default()) else { return };
    let Addresses { a, b } = families()[0];
    let attempt = Attempt { from: &net.a, to: &net.b, src: at(a, 4000), dst: at(b, 5004) };
    open(&mut pinholes, 1, Pinhole::allow(flow(UDP, attempt.src, attempt.dst)), LONG);
    attempt.is_blocked();
}

/// CASPMID-13-01: ports that the operator's ruleset drops stay blocked, although pinholes are open for a range that has some of
/// them.
#[test]
fn a_port_that_the_operator_denies_stays_blocked() {
    let net = Network::new("denied");
    let deny = "udp dport 5000-5010 drop\n        ct mark and";
    topology::nft(&net.r, &DEFAULT_DROP.replace("ct mark and", deny)).unwrap();
    let Some(mut pinholes) = enforcer(&net, &PinholeConfig::default()) else { return };
    let Addresses { a, b } = families()[0];
    for (id, port) in (1..).zip(5009..=5012) {
        let attempt = Attempt { from: &net.a, to: &net.b, src: at(a, 4000), dst: at(b, port) };
        open(&mut pinholes, id, Pinhole::allow(flow(UDP, attempt.src, attempt.dst)), LONG);
        if port <= 5010 { attempt.is_blocked() } else { attempt.passes() }
    }
}

/// A reload of the operator's ruleset does not remove our table where the kernel can protect it, and its rule comes back.
/// Where the kernel cannot, table and pinholes come back.
#[test]
fn pinholes_survive_a_reload() {
    for own_table in [true, false] {
        let net = Network::new("reload");
        topology::nft(&net.r, FIREWALLD).unwrap();
        let config = PinholeConfig { own_table, ..accepting("inet firewalld filter_FORWARD") };
        let Some(mut pinholes) = enforcer(&net, &config) else { return };
        let Addresses { a, b } = families()[0];
        let attempt = Attempt { from: &net.a, to: &net.b, src: at(a, 4000), dst: at(b, 5004) };
        open(&mut pinholes, 1, Pinhole::allow(flow(UDP, attempt.src, attempt.dst)), LONG);
        attempt.passes();
        tool(&net.r, "nft flush ruleset");
        assert_eq!(tool(&net.r, "nft list tables").contains("signalbox_pinholes"), own_table);
        topology::nft(&net.r, FIREWALLD).unwrap();
        until("the pinhole is back", || {
            assert_eq!(pinholes.flush(), []);
            attempt.passes_before_control()
        });
        assert_eq!(pinholes.counters().restored, u64::from(!own_table));
        close(&mut pinholes, 1);
        attempt.is_blocked();
    }
}

/// NATFW-3.4-01: the pinholes of a daemon that was killed stay until their time and close by themselves. The next daemon
/// takes them over: one that is wanted again goes on with its flow, and can be closed.
#[test]
fn a_dead_daemon_leaves_pinholes_until_their_time() {
    let net = Network::new("crashed");
    topology::nft(&net.r, DEFAULT_DROP).unwrap();
    let before = footprint(&net.r);
    let Some(pinholes) = enforcer(&net, &PinholeConfig::default()) else { return };
    pinholes.close().unwrap();
    let Addresses { a, b } = families()[0];
    let short = Attempt { from: &net.a, to: &net.b, src: at(a, 4000), dst: at(b, 5004) };
    let long = Attempt { src: at(a, 4001), ..short };
    let other = Attempt { src: at(a, 4002), ..short };
    let mut daemon = net.r.spawn(helper("pinhole-daemon").stderr(std::process::Stdio::null())).unwrap();
    until("pinholes are open", || long.passes_before_control());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    long.passes();
    until("the pinhole closes by itself", || !short.passes_before_control());
    long.passes();
    other.passes();
    let flows =
        |net: &Network| tracked(net).lines().filter(|line| line.contains("sport=4001 dport=5004")).count();
    let mut pinholes = enforcer(&net, &PinholeConfig::default()).unwrap();
    long.passes();
    open(&mut pinholes, 77, Pinhole::allow(flow(UDP, long.src, long.dst)), LONG);
    long.passes();
    let seen = pinholes.read(&[OpenerId::NATFW.pinhole(77)])[0].unwrap();
    assert!(seen.packets > 1 && seen.time_left > Duration::from_secs(300), "{seen:?}");
    assert_eq!(flows(&net), 1);
    close(&mut pinholes, 77);
    assert_eq!(flows(&net), 0);
    long.is_blocked();
    // A binding now has the packets that a former pinhole let pass.
    other.passes();
    let inside = signalbox_core::pinhole::Endpoint { address: b, port: Some(5005) };
    let moved = Pinhole { destination: Some(inside), ..Pinhole::allow(flow(UDP, other.src, other.dst)) };
    open(&mut pinholes, 78, moved, LONG);
    close(&mut pinholes, 78);
    other.is_blocked();
    pinholes.close().unwrap();
    assert_eq!(footprint(&net.r), before);
}

/// The part of the daemon that is killed: one pinhole for some seconds, two for longer.
pub(crate) fn daemon() {
    let mut pinholes = Pinholes::open(&PinholeConfig::default()).unwrap();
    let Addresses { a, b } = families()[0];
    for (port, time) in [(4000, Duration::from_secs(4)), (4001, Duration::from_secs(120)), (4002, LONG)] {
        let pinhole = Pinhole::allow(flow(UDP, at(a, port), at(b, 5004)));
        open(&mut pinholes, port.into(), pinhole, time);
    }
    std::thread::sleep(Duration::from_secs(60));
}

/// What other programs track stays: a flow of the operator, with a mark of its own, is not ended, although a pinhole for the
/// same packets was closed.
#[test]
fn flows_of_others_stay() {
    let net = Network::new("others");
    topology::nft(&net.r, DEFAULT_DROP).unwrap();
    let marks =
        "table ip mine {\n chain c {\n type filter hook prerouting priority mangle\n ct mark set 7\n }\n}\n";
    topology::nft(&net.r, marks).unwrap();
    let Some(mut pinholes) = enforcer(&net, &PinholeConfig::default()) else { return };
    let Addresses { a, b } = families()[0];
    let control = Attempt { from: &net.a, to: &net.b, src: at(a, 4000), dst: at(b, crate::pinhole::CONTROL) };
    control.passes();
    Attempt { from: &net.b, to: &net.a, src: control.dst, dst: control.src }.passes();
    open(&mut pinholes, 1, Pinhole::allow(flow(UDP, control.src, control.dst)), LONG);
    control.passes();
    close(&mut pinholes, 1);
    assert!(tracked(&net).contains("mark=7 "), "{}", tracked(&net));
    pinholes.close().unwrap();
    assert!(tracked(&net).contains("mark=7 "), "{}", tracked(&net));
    control.passes();
}
