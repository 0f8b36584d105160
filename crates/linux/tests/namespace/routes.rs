//! Routes, interfaces and their changes.

use std::time::{Duration, Instant};

use signalbox_core::IfIndex;
use signalbox_core::node::{NoRoute, Route, RouteQuery};
use signalbox_linux::{Change, Io, topology};

use crate::network::{Network, PATIENCE, families, ip, prefix, tool};

fn index(io: &Io, name: &str) -> IfIndex {
    io.interfaces().iter().find(|interface| interface.name == name).unwrap().ifindex
}

/// Collects changes until `enough` is true.
fn changes_until(io: &mut Io, enough: impl Fn(&[Change]) -> bool) -> Vec<Change> {
    let deadline = Instant::now() + PATIENCE;
    let mut changes = io.changes();
    while !enough(&changes) {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "only {changes:?}");
        io.wait(Some(left)).unwrap();
        changes.extend(io.changes());
    }
    changes
}

/// Looks a route up as the daemon does, which takes the kernel's reports first.
fn look_up(io: &mut Io, query: &RouteQuery) -> Result<Route, NoRoute> {
    io.changes();
    io.route(query)
}

#[test]
fn lookups_answer_as_the_tables_stand() {
    let net = Network::new("look");
    let mut r = Network::node(&net.r);
    let (ra, rb) = (index(&r, "ra"), index(&r, "rb"));
    for (family, (own, far, next)) in families()
        .into_iter()
        .zip([("10.2.0.2", "192.0.2.0/24", "10.2.0.1"), ("fd02::2", "2001:db8::/32", "fd02::1")])
    {
        let direct = look_up(&mut r, &RouteQuery::to(family.b)).unwrap();
        assert_eq!((direct.ifindex, direct.src, direct.gateway), (rb, ip(own), None));
        assert_eq!((direct.mtu, direct.local), (1500, false));
        let local = look_up(&mut r, &RouteQuery::to(ip(own))).unwrap();
        assert!(local.local);

        let far = prefix(far);
        assert_eq!(look_up(&mut r, &RouteQuery::to(far.addr)), Err(NoRoute::Unreachable));
        topology::add_route(&net.r, far, Some(ip(next)), None).unwrap();
        for src in [None, Some(family.a), Some(ip(own))] {
            let query = RouteQuery {
                src,
                protocol: Some(17),
                src_port: Some(5000),
                dst_port: Some(5001),
                tos: 0xb9,
                ..RouteQuery::to(far.addr)
            };
            let route = look_up(&mut r, &query).unwrap();
            assert_eq!((route.ifindex, route.gateway), (rb, Some(ip(next))), "{src:?}");
            assert_eq!((route.src, route.mtu), (ip(own), 1500), "{src:?}");
        }
        let kind = if family.a.is_ipv4() { "-4" } else { "-6" };
        let dst = format!("{}/{}", far.addr, far.len);
        tool(&net.r, &format!("ip {kind} route replace {dst} via {next} mtu 1400"));
        assert_eq!(look_up(&mut r, &RouteQuery::to(far.addr)).unwrap().mtu, 1400);
        tool(&net.r, &format!("ip {kind} route delete {dst}"));
        for (refusal, why) in [
            ("prohibit", NoRoute::Prohibited),
            ("blackhole", NoRoute::Prohibited),
            ("unreachable", NoRoute::Unreachable),
        ] {
            tool(&net.r, &format!("ip {kind} route add {refusal} {dst}"));
            assert_eq!(look_up(&mut r, &RouteQuery::to(far.addr)), Err(why), "{refusal}");
            tool(&net.r, &format!("ip {kind} route delete {refusal} {dst}"));
        }
        topology::add_route(&net.r, far, Some(ip(next)), None).unwrap();

        // A rule on the source of a forwarded flow.
        let back = if family.a.is_ipv4() { "10.1.0.1" } else { "fd01::1" };
        tool(&net.r, &format!("ip {kind} route add {dst} via {back} table 77"));
        tool(&net.r, &format!("ip {kind} rule add from {} lookup 77", family.b));
        let from_b = RouteQuery { src: Some(family.b), ..RouteQuery::to(far.addr) };
        let route = look_up(&mut r, &from_b).unwrap();
        assert_eq!((route.ifindex, route.gateway), (ra, Some(ip(back))));
        let from_a = RouteQuery { src: Some(family.a), ..RouteQuery::to(far.addr) };
        assert_eq!(look_up(&mut r, &from_a).unwrap().ifindex, rb);
    }
    let other = RouteQuery { src: Some(ip("fd01::1")), ..RouteQuery::to(ip("10.2.0.1")) };
    assert_eq!(look_up(&mut r, &other).unwrap().ifindex, rb);
}

/// The route without an interface is the one that would be used if that interface had none: the longest prefix and then
/// the least metric count among the others.
#[test]
fn the_next_best_route_is_known() {
    let net = Network::new("next");
    let mut r = Network::node(&net.r);
    let (ra, rb) = (index(&r, "ra"), index(&r, "rb"));
    for (family, (far, wide, over_a, over_b)) in families().into_iter().zip([
        ("192.0.2.0/24", "192.0.0.0/16", "10.1.0.1", "10.2.0.1"),
        ("2001:db8::/32", "2001::/16", "fd01::1", "fd02::1"),
    ]) {
        let kind = if family.a.is_ipv4() { "-4" } else { "-6" };
        let dst = prefix(far).addr;
        let without = |ifindex| RouteQuery { without: Some(ifindex), ..RouteQuery::to(dst) };
        tool(&net.r, &format!("ip {kind} route add {far} via {over_b}"));
        assert_eq!(look_up(&mut r, &without(rb)), Err(NoRoute::Unreachable));
        assert_eq!(look_up(&mut r, &without(ra)).unwrap().ifindex, rb);
        // A shorter prefix will do, and a longer one of a higher metric is better.
        tool(&net.r, &format!("ip {kind} route add {wide} via {over_a}"));
        let next = look_up(&mut r, &without(rb)).unwrap();
        assert_eq!((next.ifindex, next.gateway, next.local), (ra, Some(ip(over_a)), false));
        tool(&net.r, &format!("ip {kind} route add {far} via {over_a} metric 2000"));
        assert_eq!(look_up(&mut r, &without(rb)).unwrap().ifindex, ra);
        assert_eq!(look_up(&mut r, &RouteQuery::to(dst)).unwrap().ifindex, rb);
    }
}

#[test]
fn answers_follow_what_the_kernel_reports_and_ports_where_they_matter() {
    let net = Network::new("kept");
    let mut r = Network::node(&net.r);
    let (ra, rb) = (index(&r, "ra"), index(&r, "rb"));
    for (family, (far, over_a, over_b)) in families()
        .into_iter()
        .zip([("192.0.2.0/24", "10.1.0.1", "10.2.0.1"), ("2001:db8::/32", "fd01::1", "fd02::1")])
    {
        let (dst, kind) = (prefix(far).addr, if family.a.is_ipv4() { "-4" } else { "-6" });
        let to_port = |port| RouteQuery {
            src: Some(family.a),
            protocol: Some(17),
            src_port: Some(5000),
            dst_port: Some(port),
            ..RouteQuery::to(dst)
        };
        tool(&net.r, &format!("ip {kind} route add {far} via {over_b}"));
        for port in [5001, 5002] {
            assert_eq!(look_up(&mut r, &to_port(port)).unwrap().ifindex, rb);
        }
        tool(&net.r, &format!("ip {kind} route replace {far} via {over_a}"));
        assert_eq!(look_up(&mut r, &to_port(5001)).unwrap().ifindex, ra, "the former answer");

        tool(&net.r, &format!("ip {kind} route add {far} via {over_b} table 78"));
        tool(&net.r, &format!("ip {kind} rule add ipproto udp dport 5002 lookup 78"));
        assert_eq!(look_up(&mut r, &to_port(5001)).unwrap().ifindex, ra);
        assert_eq!(look_up(&mut r, &to_port(5002)).unwrap().ifindex, rb, "the answer for another port");
        tool(&net.r, &format!("ip {kind} rule delete ipproto udp dport 5002 lookup 78"));

        // The kernel does not report that flows are split by ports from now on.
        tool(&net.r, &format!("ip {kind} route delete {far}"));
        tool(&net.r, &format!("ip {kind} route add {far} nexthop via {over_a} nexthop via {over_b}"));
        let family = if family.a.is_ipv4() { "ipv4" } else { "ipv6" };
        topology::set_sysctl(&net.r, &format!("net.{family}.fib_multipath_hash_policy"), "1").unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ways: Vec<_> =
                (6000..6064).map(|port| look_up(&mut r, &to_port(port)).unwrap().ifindex).collect();
            if ways.contains(&ra) && ways.contains(&rb) {
                break;
            }
            assert!(Instant::now() < deadline, "all flows go one way");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Routes that name nexthop objects, as routing daemons install them: the kernel changes them without a report about the routes.
#[test]
fn changes_of_nexthop_objects_are_seen_and_followed() {
    let net = Network::new("objects");
    let r = &net.r;
    topology::set_sysctl(r, "net.ipv4.nexthop_compat_mode", "0").unwrap();
    for (id, via, dev) in [(1, "10.1.0.1", "ra"), (2, "10.2.0.1", "rb"), (3, "10.1.0.1", "ra")] {
        tool(r, &format!("ip nexthop add id {id} via {via} dev {dev}"));
    }
    for (id, via, dev) in [(61, "fd01::1", "ra"), (62, "fd02::1", "rb"), (63, "fd01::1", "ra")] {
        tool(r, &format!("ip nexthop add id {id} via {via} dev {dev}"));
    }
    let mut io = Network::node(r);
    let (ra, rb) = (index(&io, "ra"), index(&io, "rb"));
    for (far, everything, [first, second, single], via) in [
        ("192.0.2.0/24", "0.0.0.0/0", [1, 2, 3], "10.2.0.1"),
        ("2001:db8::/32", "::/0", [61, 62, 63], "fd02::1"),
    ] {
        let query = RouteQuery::to(prefix(far).addr);
        let everything = Change::Route(prefix(everything));
        let family = if query.dst.is_ipv4() { "-4" } else { "-6" };
        tool(r, &format!("ip {family} route add {far} nhid {single}"));
        assert_eq!(look_up(&mut io, &query).unwrap().ifindex, ra);
        tool(r, &format!("ip nexthop replace id {single} via {via} dev rb"));
        changes_until(&mut io, |changes| changes.contains(&everything));
        let route = io.route(&query).unwrap();
        assert_eq!((route.ifindex, route.gateway), (rb, Some(ip(via))), "the object was replaced");

        for kind in ["", " type resilient buckets 8 idle_timer 1"] {
            let group = first + 100;
            tool(r, &format!("ip nexthop add id {group} group {first}/{second}{kind}"));
            tool(r, &format!("ip {family} route replace {far} nhid {group}"));
            io.changes();
            // Of IPv6 the kernel names the member that it would take, whatever interface is asked for.
            if query.dst.is_ipv4() {
                let other = io.route(&RouteQuery { without: Some(ra), ..query }).unwrap();
                assert_eq!((other.ifindex, other.gateway), (rb, Some(ip(via))), "one of several");
            }
            for (members, oif) in [(first, ra), (second, rb)] {
                tool(r, &format!("ip nexthop replace id {group} group {members}{kind}"));
                changes_until(&mut io, |changes| changes.contains(&everything));
                assert_eq!(io.route(&query).unwrap().ifindex, oif, "the group has this member:{kind}");
            }
            tool(r, &format!("ip {family} route replace {far} nhid {single}"));
            tool(r, &format!("ip nexthop delete id {group}"));
        }
        // The kernel takes a deleted member out of its groups.
        tool(r, &format!("ip nexthop add id 9 group {first}/{second}"));
        tool(r, &format!("ip {family} route replace {far} nhid 9"));
        io.changes();
        tool(r, &format!("ip nexthop delete id {second}"));
        changes_until(&mut io, |changes| changes.contains(&everything));
        assert_eq!(io.route(&query).unwrap().ifindex, ra, "a member was deleted");
        tool(r, "ip nexthop delete id 9");
    }
}

/// The interface by which a flow comes in decides, where a rule names it.
#[test]
fn a_rule_on_the_incoming_interface_counts() {
    let net = Network::new("incoming");
    let mut r = Network::node(&net.r);
    let (ra, rb) = (index(&r, "ra"), index(&r, "rb"));
    // The source is behind both links.
    for (far, src, over_a, over_b) in [
        ("192.0.2.0/24", "198.51.100.1", "10.1.0.1", "10.2.0.1"),
        ("2001:db8::/32", "2001:dc8::1", "fd01::1", "fd02::1"),
    ] {
        let kind = if ip(src).is_ipv4() { "-4" } else { "-6" };
        topology::set_sysctl(&net.r, "net.ipv4.conf.all.rp_filter", "0").unwrap();
        tool(&net.r, &format!("ip {kind} route add {src} via {over_a}"));
        tool(&net.r, &format!("ip {kind} route add {far} via {over_b}"));
        tool(&net.r, &format!("ip {kind} route add {far} via {over_a} table 79"));
        tool(&net.r, &format!("ip {kind} rule add iif rb lookup 79"));
        let from = |iif| RouteQuery { src: Some(ip(src)), iif, ..RouteQuery::to(prefix(far).addr) };
        assert_eq!(look_up(&mut r, &from(None)).unwrap().ifindex, rb);
        assert_eq!(look_up(&mut r, &from(Some(ra))).unwrap().ifindex, rb);
        let by_rb = look_up(&mut r, &from(Some(rb))).unwrap();
        assert_eq!((by_rb.ifindex, by_rb.gateway), (ra, Some(ip(over_a))));
    }
}

#[test]
fn a_host_finds_its_routes_for_foreign_sources_too() {
    let net = Network::new("host");
    let mut a = Network::host(&net.a);
    for (family, foreign) in families().into_iter().zip(["198.51.100.7", "2001:db8::7"]) {
        let query = RouteQuery { src: Some(ip(foreign)), ..RouteQuery::to(family.b) };
        let route = a.route(&query).unwrap();
        assert_eq!((route.src, route.local), (family.a, false));
    }
}

#[test]
fn interfaces_come_with_their_addresses() {
    let net = Network::new("face");
    let r = Network::node(&net.r);
    let ra = r.interfaces().iter().find(|interface| interface.name == "ra").unwrap();
    assert!(ra.up && ra.mtu == 1500, "{ra:?}");
    for address in ["10.1.0.2", "fd01::2"] {
        assert!(ra.addresses.contains(&ip(address)), "{ra:?}");
    }
    let lo = r.interfaces().iter().find(|interface| interface.name == "lo").unwrap();
    assert!(lo.up && lo.addresses.contains(&ip("127.0.0.1")) && lo.addresses.contains(&ip("::1")), "{lo:?}");
}

#[test]
fn changes_are_seen_and_our_own_are_not() {
    let net = Network::new("news");
    let r = &net.r;
    let mut io = Network::node(r);
    io.changes();

    for (dst, gateway) in [("192.0.2.0/24", "10.2.0.1"), ("2001:db8::/32", "fd02::1")] {
        let change = Change::Route(prefix(dst));
        topology::add_route(r, prefix(dst), Some(ip(gateway)), None).unwrap();
        let seen = changes_until(&mut io, |changes| changes.contains(&change));
        assert!(seen.iter().all(|seen| *seen == change), "{seen:?}");
        topology::delete_route(r, prefix(dst)).unwrap();
        changes_until(&mut io, |changes| changes.contains(&change));
    }

    topology::add_address(r, "ra", ip("10.9.0.1"), 24).unwrap();
    changes_until(&mut io, |changes| changes.contains(&Change::Interfaces));
    assert!(io.interfaces().iter().any(|i| i.name == "ra" && i.addresses.contains(&ip("10.9.0.1"))));

    // The kernel does not report the routes that disappear with a link's carrier; the change of the link is reported
    // instead. It does not report the routes that return with the carrier either, but the driver does.
    topology::set_up(&net.b, "b0", false).unwrap();
    changes_until(&mut io, |changes| changes.contains(&Change::Interfaces));
    assert!(io.interfaces().iter().any(|i| i.name == "rb" && !i.up));
    topology::set_up(&net.b, "b0", true).unwrap();
    let back = Change::Route(prefix("10.2.0.0/24"));
    changes_until(&mut io, |changes| changes.contains(&Change::Interfaces) && changes.contains(&back));
    assert!(io.interfaces().iter().any(|i| i.name == "rb" && i.up));

    let everything = Change::Route(prefix("0.0.0.0/0"));
    tool(r, "ip rule add from 10.9.9.9 lookup 78");
    changes_until(&mut io, |changes| changes.contains(&everything));

    topology::set_mtu(r, "ra", 1400).unwrap();
    changes_until(&mut io, |changes| changes.contains(&Change::Interfaces));
    assert_eq!(io.interfaces().iter().find(|i| i.name == "ra").unwrap().mtu, 1400);
}

/// Two routers share the address of a gateway (VRRP): the other one takes it over, no route changes, and only the kernel's entry of the
/// neighbor says so. What the neighbor itself does, or its entry that goes and returns, is no such change.
#[test]
fn a_neighbor_with_another_link_layer_address_is_seen() {
    let net = Network::new("moved");
    let mut io = Network::node(&net.r);
    let (ra, rb) = (index(&io, "ra"), index(&io, "rb"));
    let moved = |ifindex, address| Change::Neighbor { ifindex, address: ip(address) };
    let end = |io: &mut Io| {
        // What comes before the end of the link is taken by then.
        topology::add_address(&net.r, "rb", ip("10.9.9.9"), 32).unwrap();
        let seen = changes_until(io, |changes| changes.contains(&Change::Interfaces));
        tool(&net.r, "ip address delete 10.9.9.9/32 dev rb");
        changes_until(io, |changes| changes.contains(&Change::Interfaces));
        seen.into_iter().filter(|one| matches!(one, Change::Neighbor { .. })).collect::<Vec<_>>()
    };
    for (dev, ifindex, address) in [("ra", ra, "10.1.0.1"), ("ra", ra, "fd01::1"), ("rb", rb, "fe80::99")] {
        let entry = |place: &str| {
            tool(&net.r, &format!("ip neighbor replace {address} lladdr {place} dev {dev} nud reachable"));
        };
        entry("00:00:5e:00:01:01");
        end(&mut io);
        entry("00:00:5e:00:01:01");
        tool(&net.r, &format!("ip neighbor delete {address} dev {dev}"));
        entry("00:00:5e:00:01:01");
        assert_eq!(end(&mut io), [], "{address}");
        entry("00:00:5e:00:01:02");
        let seen = changes_until(&mut io, |changes| changes.contains(&moved(ifindex, address)));
        assert_eq!(seen.len(), 1, "{seen:?}");
    }
    // The neighbor itself says so (gratuitous ARP). The kernel keeps an entry for a second, by default.
    topology::set_sysctl(&net.r, "net.ipv4.neigh.rb.locktime", "0").unwrap();
    topology::set_sysctl(&net.b, "net.ipv4.conf.b0.arp_notify", "1").unwrap();
    tool(&net.r, "ip neighbor replace 10.2.0.1 lladdr 00:00:5e:00:01:01 dev rb nud stale");
    end(&mut io);
    tool(&net.b, "ip link set b0 address 02:00:00:00:00:77");
    changes_until(&mut io, |changes| changes.contains(&moved(rb, "10.2.0.1")));
}
