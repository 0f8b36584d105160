//! Drivers of several VRFs side by side, with the same addresses in each. With a kernel without VRFs the tests only print that they are
//! skipped.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::node::{RouteQuery, StreamKind};
use signalbox_core::packet::{Transmit, router_alert_v4, router_alert_v6};
use signalbox_linux::netns::Namespace;
use signalbox_linux::traffic::{Enforcer, LinkConfig, TrafficConfig};
use signalbox_linux::{Io, IoConfig, Judged, Scope, kernel_speaks_sctp, kernel_version, topology};

use crate::echo::{self, MAGIC};
use crate::helped::Helped;
use crate::network::{
    Addresses, GIST, Network, PATIENCE, config, datagram, families, footprint, has_owned_tables, ip, open,
    receive_one, send, tool, until,
};
use crate::stream_end::{End, connect, drive};

/// A router with two VRFs, and the hosts of each. Those of both have the same addresses, and so has the router in both.
struct Pair {
    red: Network,
    blue: Network,
}

/// The interfaces of the router in each VRF.
const LINKS: [(&str, [&str; 2]); 2] = [("red", ["ra", "rb"]), ("blue", ["rc", "rd"])];
const ADDRESSES: [[&str; 2]; 2] = [["10.1.0.2", "fd01::2"], ["10.2.0.2", "fd02::2"]];

fn in_vrf(name: &str) -> IoConfig {
    IoConfig { scope: Scope::of(Some(name.to_owned())), ..config() }
}

/// `None`: the kernel has no VRFs.
fn pair(label: &str) -> Option<Pair> {
    let red = Network::new(&format!("{label}-red"));
    let made = red.r.run(|| {
        std::process::Command::new("ip").args(["link", "add", "red", "type", "vrf", "table", "10"]).status()
    });
    if !made.is_ok_and(|status| status.is_ok_and(|status| status.success())) {
        eprintln!("skipped: this kernel has no VRF");
        return None;
    }
    let blue = Network::new(&format!("{label}-blue"));
    let router = &red.r;
    tool(router, "ip link add blue type vrf table 20");
    for (old, new) in [("ra", "rc"), ("rb", "rd")] {
        tool(&blue.r, &format!("ip link set {old} down"));
        tool(&blue.r, &format!("ip link set {old} netns {} name {new}", router.name()));
    }
    for (vrf, links) in LINKS {
        tool(router, &format!("ip link set {vrf} up"));
        for (link, addresses) in links.into_iter().zip(ADDRESSES) {
            tool(router, &format!("ip address flush dev {link} scope global"));
            tool(router, &format!("ip link set {link} master {vrf}"));
            topology::set_up(router, link, true).unwrap();
            for (address, len) in addresses.into_iter().zip([24, 64]) {
                topology::add_address(router, link, ip(address), len).unwrap();
            }
            topology::disable_offload(router, link).unwrap();
        }
    }
    until("the links have their link-local addresses", || {
        let listed = tool(router, "ip -6 -o address show scope link");
        LINKS.iter().flat_map(|(_, links)| links).all(|link| listed.contains(&format!(" {link} ")))
            && !listed.contains("tentative")
    });
    Some(Pair { red, blue })
}

/// A Query of one host to the other, with a text behind.
fn query(from: &mut Io, src: IpAddr, dst: IpAddr, text: &[u8]) {
    let (v4, v6) = (router_alert_v4(0), router_alert_v6(0));
    let options: &[u8] = if src.is_ipv4() { &v4 } else { &v6 };
    send(from, &Transmit { options, ..datagram(src, dst, &[GIST, text].concat()) });
}

fn index(namespace: &Namespace, interface: &str) -> u32 {
    let line = tool(namespace, &format!("ip -o link show dev {interface}"));
    line.split(':').next().unwrap().parse().unwrap()
}

/// The driver takes what passes by in its VRF, and nothing else.
fn takes(io: &mut Io, from: &mut Io, router: &Namespace, link: &str, text: &str) {
    for family in families() {
        query(from, family.a, family.b, text.as_bytes());
        let got = receive_one(io);
        assert_eq!((got.src.ip(), got.dst.ip(), got.ttl), (family.a, family.b, 20));
        assert_eq!(got.ifindex, index(router, link), "{text}");
        assert_eq!(got.payload, [GIST, text.as_bytes()].concat());
    }
}

#[test]
fn without_its_vrf_a_driver_does_not_open() {
    let net = Network::new("novrf");
    let error = net.r.run(|| Io::open(&in_vrf("red")).err()).unwrap().unwrap();
    assert_eq!(error.id, "no-vrf");
    tool(&net.r, "ip link add red type veth peer name other");
    let error = net.r.run(|| Io::open(&in_vrf("red")).err()).unwrap().unwrap();
    assert_eq!(error.id, "no-vrf", "another device has the name");
}

#[test]
fn each_takes_what_passes_in_its_own() {
    let Some(Pair { red, blue }) = pair("take") else { return };
    let router = &red.r;
    let before = footprint(router);
    let (mut a, mut c) = (Network::host(&red.a), Network::host(&blue.a));
    let mut in_red = open(router, &in_vrf("red"));
    let mut in_blue = open(router, &in_vrf("blue"));
    // What comes to one of them first is what it gets first: nothing of the other one came before.
    takes(&mut in_blue, &mut c, router, "rc", "blue");
    takes(&mut in_red, &mut a, router, "ra", "red");
    for io in [&mut in_red, &mut in_blue] {
        assert_eq!(io.judge_interception().unwrap().unwrap().faults, Vec::<String>::new());
    }
    // What each sends from the address of another node reaches the host of its VRF.
    for family in families() {
        send(&mut in_blue, &datagram(family.b, family.a, b"of blue"));
        assert_eq!(receive_one(&mut c).payload, b"of blue");
        send(&mut in_red, &datagram(family.b, family.a, b"of red"));
        assert_eq!(receive_one(&mut a).payload, b"of red");
    }
    // Unicast to the router itself.
    for own in ADDRESSES[0] {
        let src = if own.contains(':') { families()[1].a } else { families()[0].a };
        send(&mut a, &datagram(src, ip(own), GIST));
        assert_eq!(receive_one(&mut in_red).dst.ip(), ip(own));
    }
    router.run(|| in_red.close()).unwrap().unwrap();
    takes(&mut in_blue, &mut c, router, "rc", "blue alone");
    router.run(|| in_blue.close()).unwrap().unwrap();
    assert_eq!(footprint(router), before);
}

#[test]
fn one_of_no_vrf_is_beside_them_and_a_second_one_of_a_vrf_is_not() {
    let Some(Pair { red, blue: _blue }) = pair("beside") else { return };
    let router = &red.r;
    let mut a = Network::host(&red.a);
    for first in [true, false] {
        let before = first.then(|| open(router, &config()));
        let mut in_red = open(router, &in_vrf("red"));
        let mut other = before.unwrap_or_else(|| open(router, &config()));
        takes(&mut in_red, &mut a, router, "ra", "red beside another one");
        for scope in [Scope::default(), Scope::of(Some("red".to_owned()))] {
            let second = IoConfig { scope, intercept: false, ..config() };
            let error = router.run(|| Io::open(&second).err()).unwrap().unwrap();
            assert_eq!(error.id, "port-in-use");
        }
        // The other one got nothing meanwhile, and can be reached.
        let own = ip("127.0.0.1");
        send(&mut other, &datagram(own, own, b"to itself"));
        assert_eq!(receive_one(&mut other).payload, b"to itself");
        for io in [in_red, other] {
            router.run(|| io.close()).unwrap().unwrap();
        }
    }
}

#[test]
fn each_knows_the_routes_and_interfaces_of_its_own() {
    let Some(Pair { red, blue: _blue }) = pair("look") else { return };
    let router = &red.r;
    for (vrf, [near, far]) in LINKS {
        let mut io = open(router, &in_vrf(vrf));
        let names: Vec<&str> = io.interfaces().iter().map(|one| one.name.as_str()).collect();
        let mut wanted = vec![vrf, near, far];
        wanted.sort_by_key(|name| index(router, name));
        assert_eq!(names, wanted);
        for (place, family) in families().into_iter().enumerate() {
            let own = ip(ADDRESSES[1][place]);
            let plain = io.route(&RouteQuery::to(family.b)).unwrap();
            assert_eq!((plain.ifindex.0, plain.src, plain.local), (index(router, far), own, false));
            let iif = Some(signalbox_core::IfIndex(index(router, near)));
            for iif in [None, iif] {
                let passing = RouteQuery { src: Some(family.a), iif, ..RouteQuery::to(family.b) };
                assert_eq!(io.route(&passing).unwrap().ifindex.0, index(router, far));
            }
            assert!(io.route(&RouteQuery::to(own)).unwrap().local);
        }
        router.run(|| io.close()).unwrap().unwrap();
    }
}

#[test]
fn the_end_of_the_vrf_is_noticed() {
    let Some(Pair { red, blue: _blue }) = pair("gone") else { return };
    let router = &red.r;
    let (mut in_red, mut in_blue) = (open(router, &in_vrf("red")), open(router, &in_vrf("blue")));
    assert_eq!((in_red.lost_vrf(), in_blue.lost_vrf()), (None, None));
    tool(router, "ip link delete red");
    until("the report is there", || {
        in_red.changes();
        in_blue.changes();
        in_red.lost_vrf() == Some("red")
    });
    assert_eq!(in_blue.lost_vrf(), None);
}

#[test]
fn the_queues_of_another_vrf_stay() {
    let Some(Pair { red, blue: _blue }) = pair("queues") else { return };
    let router = &red.r;
    let queued = || {
        let listed = tool(router, "tc qdisc show");
        ["ra", "rb", "rc", "rd"]
            .into_iter()
            .filter(|link| listed.contains(&format!("5342: dev {link} root")))
            .collect::<Vec<_>>()
    };
    let config = |vrf: Option<&str>, ebpf| TrafficConfig {
        scope: Scope::of(vrf.map(str::to_owned)),
        links: ["rb", "rd"].map(|link| LinkConfig { classes: 4, ..LinkConfig::new(link, 1_250_000) }).into(),
        ebpf,
        ..TrafficConfig::default()
    };
    for ebpf in [true, false] {
        router
            .run(|| {
                let in_red = Enforcer::open(&config(Some("red"), ebpf)).unwrap();
                assert_eq!(queued(), ["rb"]);
                let in_blue = Enforcer::open(&config(Some("blue"), ebpf)).unwrap();
                assert_eq!(queued(), ["rb", "rd"]);
                // One without a VRF leaves the interfaces of VRFs alone, unless it is for them.
                let links = Vec::new();
                let other = Enforcer::open(&TrafficConfig { links, ..config(None, ebpf) }).unwrap();
                assert_eq!(queued(), ["rb", "rd"]);
                other.close().unwrap();
                in_red.close().unwrap();
                assert_eq!(queued(), ["rd"]);
                let tables = tool(router, "nft list tables");
                assert_eq!(tables.contains("signalbox_traffic_vrf_blue"), !ebpf, "{tables}");
                assert!(!tables.contains("red"), "{tables}");
                in_blue.close().unwrap();
                assert_eq!(queued(), Vec::<&str>::new());
            })
            .unwrap();
    }
}

/// With `src_valid_mark` the kernel looks up the source of an intercepted packet with its mark, in the VRF too. The rules that leave this
/// lookup to others stand around that of each daemon, and no daemon removes those of the other one.
#[test]
fn packets_are_taken_while_their_source_is_looked_up_with_their_mark() {
    let Some(Pair { red, blue }) = pair("vrfmark") else { return };
    let router = &red.r;
    let before = footprint(router);
    let (mut a, mut c) = (Network::host(&red.a), Network::host(&blue.a));
    let mut in_red = open(router, &in_vrf("red"));
    let mut in_blue = open(router, &IoConfig { rule_preference: 260, ..in_vrf("blue") });
    let set = |key: &str, value| {
        topology::set_sysctl(router, &format!("net.ipv4.conf.all.{key}"), value).unwrap();
    };
    if kernel_version().is_some_and(|version| version < (5, 18)) {
        set("src_valid_mark", "1");
        let judged = router.run(|| in_red.judge_interception()).unwrap().unwrap().unwrap();
        let wanted = "IPv4: the kernel drops intercepted packets, because net.ipv4.conf.all.src_valid_mark is 1: write 0 \
                      (before Linux 5.18 no rule prevents that in a VRF)";
        assert_eq!(judged.faults, [wanted]);
        set("src_valid_mark", "0");
        let judged = router.run(|| in_red.judge_interception()).unwrap().unwrap();
        assert_eq!(judged, Some(Judged::default()));
        return takes(&mut in_red, &mut a, router, "ra", "red without the setting");
    }
    for filter in ["0", "1", "2"] {
        set("rp_filter", filter);
        set("src_valid_mark", "1");
        // Each looks at what the other one did.
        for _ in 0..2 {
            for io in [&mut in_red, &mut in_blue] {
                let judged = router.run(|| io.judge_interception()).unwrap().unwrap();
                assert_eq!(judged, Some(Judged::default()), "rp_filter = {filter}");
            }
        }
        assert_eq!(tool(router, "ip rule").matches("iif lo").count(), 2);
        takes(&mut in_red, &mut a, router, "ra", &format!("red, rp_filter = {filter}"));
        takes(&mut in_blue, &mut c, router, "rc", &format!("blue, rp_filter = {filter}"));
    }
    router.run(|| in_red.close()).unwrap().unwrap();
    takes(&mut in_blue, &mut c, router, "rc", "blue alone");
    router.run(|| in_blue.close()).unwrap().unwrap();
    assert_eq!(footprint(router), before);
}

/// Before preference 0 there is no place for such a rule, and in a VRF no self-test shows that the packets are dropped.
#[test]
fn a_setting_of_the_kernel_that_stops_the_packets_is_named() {
    let Some(Pair { red, blue: _blue }) = pair("vrfzero") else { return };
    let router = &red.r;
    let mut in_red = open(router, &IoConfig { rule_preference: 0, ..in_vrf("red") });
    for (value, faults) in [("1", 1), ("0", 0)] {
        topology::set_sysctl(router, "net.ipv4.conf.all.src_valid_mark", value).unwrap();
        let judged = router.run(|| in_red.judge_interception()).unwrap().unwrap().unwrap();
        assert_eq!(judged.faults.len(), faults, "{judged:?}");
        assert!(
            judged.faults.iter().all(|fault| fault.contains("src_valid_mark is 1: write 0")),
            "{judged:?}"
        );
    }
}

/// A daemon without privileges: the helper is one of its VRF, too.
#[test]
fn a_helper_serves_a_daemon_of_its_vrf() {
    let Some(Pair { red, blue }) = pair("vrfhelp") else { return };
    let helped = Helped::of(red, "vrfhelp", Some("red"));
    let router = &helped.net.r;
    let (mut a, mut c) = (Network::host(&helped.net.a), Network::host(&blue.a));
    let mut in_red = open(router, &IoConfig { helper: Some(helped.path.clone()), ..in_vrf("red") });
    let mut in_blue = open(router, &in_vrf("blue"));
    takes(&mut in_blue, &mut c, router, "rc", "blue");
    takes(&mut in_red, &mut a, router, "ra", "red");
    // What the helper sends by its raw sockets leaves by the VRF.
    for family in families() {
        query(&mut in_red, family.b, family.a, b"passed on");
        assert_eq!(receive_one(&mut a).payload, [GIST, b"passed on"].concat());
    }
    drop(in_red);
    until("the interception of red is removed", || !tool(router, "nft list tables").contains("vrf_red"));
    takes(&mut in_blue, &mut c, router, "rc", "blue alone");
}

/// Associations of the kernel's SCTP, to a router's address in a VRF and from there. The kernel knows VRFs there from Linux 6.2 on.
#[test]
fn associations_of_the_kernel_come_up_in_a_vrf() {
    if !kernel_speaks_sctp() || kernel_version().is_some_and(|version| version < (6, 2)) {
        return eprintln!("skipped: this kernel has no SCTP, or one that does not know VRFs");
    }
    let Some(Pair { red, blue }) = pair("vrfsctp") else { return };
    let sctp = |namespace, vrf: Option<&str>| {
        let scope = Scope::of(vrf.map(str::to_owned));
        let mut end = End::with(namespace, IoConfig { scope, intercept: false, ..config() });
        end.kind = StreamKind::Sctp;
        end.listen(7000).unwrap();
        end
    };
    let (mut in_red, mut in_blue) = (sctp(&red.r, Some("red")), sctp(&red.r, Some("blue")));
    let (mut a, mut c) = (sctp(&red.a, None), sctp(&blue.a, None));
    for (router, host, text) in [(&mut in_red, &mut a, "red"), (&mut in_blue, &mut c, "blue")] {
        for (family, own) in families().into_iter().zip(ADDRESSES[0].map(ip)) {
            for from_host in [true, false] {
                let (opens, accepts, ends) = if from_host {
                    (&mut *host, &mut *router, [family.a, own])
                } else {
                    (&mut *router, &mut *host, [own, family.a])
                };
                let (here, there) = connect(opens, accepts, ends[0], (ends[1], 7000));
                assert_eq!(accepts.seen(there).local.unwrap().ip(), ends[1], "{text}");
                opens.streams().message(here, (0, None), text.as_bytes());
                drive("a message", opens, accepts, |_, there_end| {
                    there_end.seen(there).octets == text.as_bytes()
                });
            }
        }
    }
}

/// Echo messages with the magic number that pass in a VRF are known by their interface. They go on without a mark of their wait; those that
/// somebody has marked are the kernel's.
#[test]
fn echo_messages_are_taken_in_each() {
    if !has_owned_tables() {
        return;
    }
    let Some(Pair { red, blue }) = pair("vrfecho") else { return };
    let router = &red.r;
    let before = footprint(router);
    let of = |vrf: &str| open(router, &IoConfig { entries: vec![echo::entry(MAGIC)], ..in_vrf(vrf) });
    let (mut in_red, mut in_blue) = (of("red"), of("blue"));
    let short = Duration::from_millis(50);
    for (io, net, [near, _]) in [(&mut in_red, &red, LINKS[0].1), (&mut in_blue, &blue, LINKS[1].1)] {
        let (mut a, mut b) = (echo::end(&net.a, false), echo::end(&net.b, true));
        for (Addresses { a: from, b: to }, own) in families().into_iter().zip(ADDRESSES[0].map(ip)) {
            for dst in [to, own] {
                let payload = echo::echo(to.is_ipv6(), false, MAGIC, 1);
                echo::send(&mut a, [from, dst], &[], &payload);
                let got = echo::received(io, PATIENCE);
                let [got] = &got[..] else { panic!("{from} {dst}: {got:?}") };
                assert_eq!((got.src, got.dst, got.ifindex.0), (from, dst, index(router, near)), "{near}");
                if dst == to {
                    echo::send(io, [from, to], &[], &got.payload);
                    assert_eq!(echo::received(&mut b, PATIENCE).len(), 1);
                }
                assert_eq!(echo::received(&mut a, short), [], "no kernel has answered");
            }
        }
    }
    for io in [in_red, in_blue] {
        router.run(|| io.close()).unwrap().unwrap();
    }
    assert_eq!(footprint(router), before);
}
