//! Drivers of several VRFs side by side, with the same addresses in each. With a kernel without VRFs the tests only print that they are
//! skipped.

use std::net::IpAddr;

use signalbox_core::node::RouteQuery;
use signalbox_core::packet::{Transmit, router_alert_v4, router_alert_v6};
use signalbox_linux::netns::Namespace;
use signalbox_linux::traffic::{Enforcer, LinkConfig, TrafficConfig};
use signalbox_linux::{Io, IoConfig, Scope, topology};

use crate::network::{
    GIST, Network, config, datagram, families, footprint, ip, open, receive_one, send, tool, until,
};

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
