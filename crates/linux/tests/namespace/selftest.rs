//! O02: a node tries by packets of its own whether the interception works, and says what is in the way.

use std::time::{Duration, Instant};

use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::{Batch, Change, Io, IoConfig, topology};

use crate::network::{
    Network, PATIENCE, config, counter, datagram, families, footprint, gist, has_owned_tables, open,
    receive_one, send, tool, until,
};
use crate::rsvp::rsvp;

/// How long packets that do not arrive are waited for. Those that arrive do so in less than a millisecond on an idle machine.
const SHORT: Duration = Duration::from_millis(100);

/// Receives for some time, or until the packets have arrived. No packet is for the node.
fn try_packets(io: &mut Io, patience: Duration) -> Vec<String> {
    assert_eq!(io.begin_self_test(), Vec::<String>::new(), "all are tried");
    receive(io, patience);
    io.self_test_faults()
}

/// Receives until all packets of the test have arrived.
pub(crate) fn await_packets(io: &mut Io) {
    receive(io, PATIENCE);
    assert!(io.is_self_test_complete());
}

fn receive(io: &mut Io, patience: Duration) {
    let (mut batch, deadline) = (Batch::new(), Instant::now() + patience);
    while !io.is_self_test_complete() && Instant::now() < deadline {
        io.wait(Some(Duration::from_millis(10))).unwrap();
        io.receive(&mut batch).unwrap();
        assert_eq!(batch.iter().count(), 0, "a packet of the test came to the node");
    }
}

/// Waits for a report that rules of other programs have changed.
fn rules_changed(io: &mut Io) {
    let deadline = Instant::now() + PATIENCE;
    while !io.changes().contains(&Change::Rules) {
        assert!(Instant::now() < deadline, "no report of changed rules");
        io.wait(Some(Duration::from_millis(100))).unwrap();
    }
}

#[test]
fn packets_of_the_test_arrive_and_are_not_for_the_node() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("selftest");
    let before = footprint(&net.r);
    for (entries, loose) in [(vec![gist(), rsvp()], false), (vec![rsvp()], false), (vec![gist()], true)] {
        let mut r = open(&net.r, &IoConfig { entries, own_tables: !loose, ..IoConfig::default() });
        for _ in 0..3 {
            let tried = net.r.run(|| try_packets(&mut r, PATIENCE)).unwrap();
            assert_eq!(tried, Vec::<String>::new());
        }
        let received = ["gist", "rsvp"].map(|entry| r.counter(entry, "received").unwrap_or(0));
        assert_eq!(received, [0, 0], "they are not counted");
        assert!(!net.r.run(|| r.restore()).unwrap().unwrap(), "nothing is missing");
        net.r.run(|| r.close()).unwrap().unwrap();
        assert_eq!(footprint(&net.r), before);
    }
}

/// A node that intercepts no packets sends none.
#[test]
fn a_host_tries_nothing() {
    let net = Network::new("selftesthost");
    let mut a = Network::host(&net.a);
    assert_eq!(net.a.run(|| a.begin_self_test()).unwrap(), Vec::<String>::new());
    assert!(a.is_self_test_complete());
    assert_eq!(counter(&a, "received"), 0);
}

#[test]
fn rules_of_others_that_take_the_packets_are_seen_and_named() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("obstacle");
    let config = IoConfig { entries: vec![gist(), rsvp()], ..config() };
    let mut r = open(&net.r, &config);
    // What loses its mark could leave by this route.
    for (kind, via) in [("-4", "10.2.0.1"), ("-6", "fd02::1")] {
        tool(&net.r, &format!("ip {kind} route add default via {via}"));
    }
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    let mut far = Capture::open(&net.b, "b0", CaptureConfig::default()).unwrap();
    let both = "GIST, RSVP";
    // With IPv4, the kernel itself gives the socket of RSVP what it would forward.
    let cases = [
        ("ip", "-140", "meta mark set 0", Some("GIST")),
        ("ip6", "-140", "meta mark set 0", Some(both)),
        // As wg-quick restores marks. Of two chains of one priority, the later one comes first.
        ("ip", "-149", "meta l4proto udp meta mark set ct mark", None),
        ("ip", "-148", "meta l4proto udp meta mark set ct mark", Some("GIST")),
        ("ip6", "-148", "meta l4proto udp meta mark set ct mark", Some("GIST")),
        ("ip", "-300", "ip option ra exists drop", Some(both)),
        ("ip6", "-300", "exthdr hbh exists drop", Some(both)),
        ("inet", "-300", "udp dport 270 drop", Some("GIST")),
        ("inet", "-300", "udp dport 271 drop", None),
    ];
    for (family, priority, rule, names) in cases {
        tool(&net.r, &format!("nft add table {family} others"));
        tool(
            &net.r,
            &format!(
                "nft add chain {family} others late {{ type filter hook prerouting priority {priority} ; }}"
            ),
        );
        tool(&net.r, &format!("nft add rule {family} others late {rule}"));
        rules_changed(&mut r);
        // The lookup of a route does not show it.
        assert!(net.r.run(|| r.judge_interception()).unwrap().unwrap().unwrap().faults.is_empty());
        let faults = net.r.run(|| try_packets(&mut r, SHORT)).unwrap();
        let versions = [("ip6", "IPv4"), ("ip", "IPv6")].into_iter();
        let concerned: Vec<_> =
            versions.filter(|(other, _)| *other != family).map(|(_, words)| words).collect();
        match names {
            Some(names) => {
                assert_eq!(faults.len(), concerned.len(), "{rule}: {faults:?}");
                for (fault, words) in faults.iter().zip(concerned) {
                    let start = format!("{words}: packets of {names} do not arrive: a chain of prerouting");
                    assert!(fault.starts_with(&start), "{rule}: {fault}");
                    let chain = format!("{family} others late at prerouting {priority}");
                    assert!(fault.contains(&chain), "{fault}");
                }
            }
            None => assert!(faults.is_empty(), "{rule}: {faults:?}"),
        }
        tool(&net.r, &format!("nft delete table {family} others"));
        rules_changed(&mut r);
        assert_eq!(net.r.run(|| try_packets(&mut r, PATIENCE)).unwrap(), Vec::<String>::new(), "{rule}");
    }
    // None of them left: a datagram after them is the first one between these addresses.
    let family = families()[0];
    send(&mut a, &datagram(family.a, family.b, b"after all"));
    assert_eq!(receive_one(&mut b).payload, b"after all");
    let mut seen = false;
    until("the datagram is captured", || {
        far.read(Duration::from_millis(50), |frame| {
            seen |= frame.octets.ends_with(b"after all");
            for address in [&[192, 0, 2, 91][..], &[192, 0, 2, 92], &[0x20, 1, 0xd, 0xb8]] {
                let left = frame.octets.windows(address.len()).any(|octets| octets == address);
                assert!(!left, "it left this machine: {:x?}", frame.octets);
            }
        })
        .unwrap();
        seen
    });
    net.r.run(|| r.close()).unwrap().unwrap();
}

/// The kernel drops intercepted packets of IPv4 whose source it looks up with their mark, unless a rule before the daemon's prevents it.
/// Before preference 0 there is no place for one. A lookup of the route does not show it.
#[test]
fn a_setting_of_the_kernel_that_stops_the_packets_is_named() {
    let net = Network::new("validmark");
    let mut r = open(&net.r, &IoConfig { rule_preference: 0, ..config() });
    for (value, works) in [("1", false), ("0", true)] {
        topology::set_sysctl(&net.r, "net.ipv4.conf.all.src_valid_mark", value).unwrap();
        assert!(net.r.run(|| r.judge_interception()).unwrap().unwrap().unwrap().faults.is_empty());
        let patience = if works { PATIENCE } else { SHORT };
        let faults = net.r.run(|| try_packets(&mut r, patience)).unwrap();
        let wanted = "IPv4: packets of GIST do not arrive: the kernel drops them, because \
                      net.ipv4.conf.all.src_valid_mark is 1: write 0, or let kernel.rule_preference be more than 0";
        assert_eq!(faults, if works { vec![] } else { vec![wanted.to_owned()] });
    }
}

/// A filter of sources at the loopback interface drops packets of the test alone: then none is tried, and it says so.
#[test]
fn packets_that_a_filter_of_sources_would_drop_are_not_sent() {
    let net = Network::new("sources");
    let mut r = Network::node(&net.r);
    let set = |value| topology::set_sysctl(&net.r, "net.ipv4.conf.all.rp_filter", value).unwrap();
    // A loose one demands a route to the source: that of a neighbor is there.
    set("2");
    assert_eq!(net.r.run(|| try_packets(&mut r, PATIENCE)).unwrap(), Vec::<String>::new());
    set("1");
    let untried = net.r.run(|| r.begin_self_test()).unwrap();
    assert_eq!(untried, ["IPv4: net.ipv4.conf.lo.rp_filter or that of all is 1"]);
    tool(&net.r, "ip link set lo down");
    set("0");
    let untried = net.r.run(|| r.begin_self_test()).unwrap();
    assert_eq!(untried.len(), 2, "{untried:?}");
    assert!(untried[0].contains("down") && r.is_self_test_complete(), "{untried:?}");
}
