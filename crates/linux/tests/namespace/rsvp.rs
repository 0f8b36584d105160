//! RSVP packets through raw sockets: packets that pass by with a Router Alert are intercepted, and packets are sent
//! from a flow's own address.

use std::io::{IoSlice, Read as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use signalbox_core::metrics::Subsystem;
use signalbox_core::packet::{
    ROUTER_ALERT_RSVP_V6, Received, Transmit, router_alert, router_alert_v4, router_alert_v6,
    router_alert_v6_before,
};
use signalbox_core::{AlertRule, Entry, EntryRequest, IfIndex, Intercept};
use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::multicast::MulticastRouter;
use signalbox_linux::netns::Namespace;
use signalbox_linux::{Batch, Change, Io, IoConfig, MulticastRoute, topology};
use socket2::{Domain, MsgHdr, Protocol, Socket, Type};

use crate::helper::helper;
use crate::network::{
    Addresses, Network, PATIENCE, families, footprint, gist, has_owned_tables, ip, open, tool, until,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) ifindex: IfIndex,
    pub(crate) ttl: u8,
    tos: u8,
    pub(crate) alert: bool,
    pub(crate) payload: Vec<u8>,
}

impl From<Received<'_>> for Got {
    fn from(p: Received<'_>) -> Self {
        let Received { src, dst, ifindex, ttl, tos, options, payload, .. } = p;
        let alert = router_alert(options, dst.is_ipv6()).is_some();
        Self { src: src.ip(), dst: dst.ip(), ifindex, ttl, tos, alert, payload: payload.to_vec() }
    }
}

/// RSVP's port of entry: packets that pass by with its Router Alert are intercepted.
pub(crate) fn rsvp() -> EntryRequest {
    let alert = AlertRule::Value { ipv4: 0, ipv6: ROUTER_ALERT_RSVP_V6 };
    EntryRequest::local(Entry::Ip(46), Subsystem::protocol("rsvp"))
        .with_intercept(Intercept::passing(alert, Vec::new()))
}

pub(crate) fn end(namespace: &Namespace, intercept: bool) -> Io {
    open(namespace, &IoConfig { entries: vec![gist(), rsvp()], intercept, ..IoConfig::default() })
}

fn receive(io: &mut Io, count: usize) -> Vec<Got> {
    let (mut batch, mut got) = (Batch::new(), Vec::<Got>::new());
    let deadline = Instant::now() + PATIENCE;
    while got.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "received only {got:?}");
        if io.wait(Some(left)).unwrap().packets {
            io.receive(&mut batch).unwrap();
            got.extend(batch.iter().map(Got::from));
        }
        io.changes();
    }
    got
}

pub(crate) fn receive_one(io: &mut Io) -> Got {
    receive(io, 1).remove(0)
}

/// Whether a packet waits, or comes within a second.
fn arrives(io: &mut Io) -> bool {
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || io.wait(Some(left)).unwrap().packets {
            return !left.is_zero();
        }
        io.changes();
    }
}

/// Sends a packet, for example to a group, again each second until it arrives. A child that another test has forked keeps the sockets of this
/// process until it executes, and the kernel gives them the packets that it would forward.
fn send_until_it_arrives(from: &mut Io, to: &mut Io, packet: &Transmit<'_>) -> Got {
    let deadline = Instant::now() + PATIENCE;
    send(from, packet);
    while !arrives(to) && Instant::now() < deadline {
        send(from, packet);
    }
    receive_one(to)
}

/// An RSVP packet to `dst`: with a Router Alert, as a Path has it (RFC 2205 §3.3, RFC 2711 §2.1).
fn path<'a>(src: IpAddr, dst: IpAddr, payload: &'a [u8]) -> Transmit<'a> {
    const V4: [u8; 4] = router_alert_v4(0);
    const V6: [u8; 8] = router_alert_v6_before(46, ROUTER_ALERT_RSVP_V6);
    Transmit {
        entry: Entry::Ip(46),
        src: SocketAddr::new(src, 0),
        dst: SocketAddr::new(dst, 0),
        ifindex: None,
        gateway: None,
        ttl: 63,
        tos: 0xc0,
        dont_fragment: false,
        flow_label: 0,
        unproved: false,
        options: if dst.is_ipv4() { &V4 } else { &V6 },
        payload,
    }
}

/// The same packet without a Router Alert, as a Resv has it on IPv4.
fn without_alert(packet: Transmit<'_>) -> Transmit<'_> {
    Transmit { options: &[], ..packet }
}

fn send(io: &mut Io, packet: &Transmit<'_>) {
    let before = io.counter("rsvp", "sent").unwrap();
    io.send(packet);
    assert_eq!(io.flush(), []);
    assert_eq!(io.counter("rsvp", "sent"), Some(before + 1), "{packet:?}");
}

fn index(namespace: &Namespace, interface: &str) -> IfIndex {
    let line = tool(namespace, &format!("ip -o link show dev {interface}"));
    IfIndex(line.split(':').next().unwrap().parse().unwrap())
}

/// RSVP-3.3-01, RSVP-3.3-02: sent packets are of protocol 46, and their alert is the option of RFC 2113; a packet
/// without a requested alert has no alert.
#[test]
fn packets_have_their_protocol_and_their_alert() {
    let net = Network::new("rsvpwire");
    let mut a = end(&net.a, false);
    let Addresses { a: from, b: to } = families()[0];
    // A raw socket receives the packets of its protocol, with their headers.
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(46)));
    let mut raw = net.b.run(open).unwrap().unwrap();
    raw.set_read_timeout(Some(PATIENCE)).unwrap();
    for options in [&[0x94, 4, 0, 0][..], &[]] {
        let payload = b"on the wire";
        send(&mut a, &Transmit { options, ..path(from, to, payload) });
        let mut octets = [0; 2048];
        let length = raw.read(&mut octets).unwrap();
        let header = 20 + options.len();
        assert_eq!((usize::from(octets[0]), octets[9]), (0x40 | (header / 4), 46));
        assert_eq!(&octets[20..header], options);
        assert_eq!(&octets[header..length], payload);
    }
}

/// A rule on ports can lead a flow to a next hop to which no other packet for its destination goes. The Path of the flow
/// takes the same way, and so does a Query of GIST (`send.rs`).
#[test]
fn a_path_goes_to_the_next_hop_of_its_flow() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("nexthop");
    let (mut r, mut b) = (end(&net.r, true), end(&net.b, false));
    // The next hop answers for its own addresses on the link only, not for those behind it.
    topology::set_sysctl(&net.b, "net.ipv4.conf.all.arp_ignore", "1").unwrap();
    for (Addresses { a: from, b: next }, far) in families().into_iter().zip(["192.0.2.5", "2001:db8::5"]) {
        let (far, length) = (ip(far), if from.is_ipv4() { 32 } else { 128 });
        topology::add_address(&net.b, "lo", far, length).unwrap();
        for options in [path(from, far, b"").options, &[]] {
            let ifindex = Some(index(&net.r, "rb"));
            let packet =
                Transmit { ifindex, gateway: Some(next), ttl: 40, options, ..path(from, far, b"by port") };
            // A packet can be lost while the link-layer address of the next hop is not known.
            let got = send_until_it_arrives(&mut r, &mut b, &packet);
            assert_eq!((got.src, got.dst, got.ttl, got.tos), (from, far, 40, 0xc0));
            assert_eq!((got.alert, &got.payload[..]), (!options.is_empty(), &b"by port"[..]));
        }
    }
}

/// The same for one that is larger than the MTU of the link: it leaves in fragments, of which each has the alert, and the next hop
/// reads one packet. A capture has what is on the link.
#[test]
fn a_large_path_goes_to_the_next_hop_of_its_flow_in_fragments() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("nexthopl");
    let (mut r, mut b) = (end(&net.r, true), end(&net.b, false));
    topology::set_sysctl(&net.b, "net.ipv4.conf.all.arp_ignore", "1").unwrap();
    topology::set_mtu(&net.r, "rb", 1400).unwrap();
    until("the driver knows the MTU", || {
        r.wait(Some(Duration::from_millis(10))).unwrap();
        r.changes();
        r.interfaces().iter().any(|interface| interface.name == "rb" && interface.mtu == 1400)
    });
    let large: Vec<u8> = (0..4000).map(|n| (n % 251) as u8).collect();
    let ifindex = Some(index(&net.r, "rb"));
    for (Addresses { a: from, b: next }, far) in families().into_iter().zip(["192.0.2.5", "2001:db8::5"]) {
        let (far, length) = (ip(far), if from.is_ipv4() { 32 } else { 128 });
        topology::add_address(&net.b, "lo", far, length).unwrap();
        let by = |packet| Transmit { ifindex, gateway: Some(next), ttl: 40, ..packet };
        // The link-layer address of the next hop is known from now on.
        send_until_it_arrives(&mut r, &mut b, &by(path(from, far, b"small")));
        while arrives(&mut b) {
            receive_one(&mut b);
        }
        let mut capture = Capture::open(&net.b, "b0", CaptureConfig::default()).unwrap();
        let before = r.counter("rsvp", "sent").unwrap();
        r.send(&by(path(from, far, &large)));
        assert_eq!(r.flush(), []);
        let got = receive_one(&mut b);
        assert_eq!((got.src, got.dst, got.ttl, got.alert), (from, far, 40, true));
        assert!(got.payload == large, "{} octets", got.payload.len());
        let mut frames = Vec::new();
        let fragment = |frame: &[u8]| match (far.is_ipv4(), &frame[12..14]) {
            (true, [0x08, 0x00]) => frame[14 + 9] == 46,
            // Fragment headers behind hop-by-hop options.
            (false, [0x86, 0xdd]) => (frame[14 + 6], frame[14 + 40]) == (0, 44),
            _ => false,
        };
        until("the fragments were captured", || {
            capture
                .read(Duration::from_millis(10), |frame| {
                    if fragment(frame.octets) {
                        frames.push(frame.octets[14..].to_vec());
                    }
                })
                .unwrap();
            frames.len() >= 3
        });
        assert_eq!(frames.len(), 3);
        assert_eq!(r.counter("rsvp", "sent"), Some(before + 3));
        assert!(frames.iter().all(|packet| packet.len() <= 1400));
        for packet in &frames {
            let options = if far.is_ipv4() { &packet[20..24] } else { &packet[42..46] };
            let alert = if far.is_ipv4() { [0x94, 4, 0, 0] } else { [5, 2, 0, ROUTER_ALERT_RSVP_V6 as u8] };
            assert_eq!(options, alert);
        }
    }
}

/// RSVP-3.11.5-01, RSVP-3.11.5-02: a Path is intercepted, not forwarded, with its interface, source and TTL.
/// RSVP-3.3-08: a packet larger than the MTU is one packet again at the next node.
#[test]
fn a_passing_alert_is_taken_and_sent_on_from_the_same_source() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("rsvp");
    let (mut a, mut r, mut b) = (end(&net.a, false), end(&net.r, true), end(&net.b, false));
    for Addresses { a: from, b: to } in families() {
        let small = path(from, to, b"a Path from a to b");
        send(&mut a, &small);
        let got = receive_one(&mut r);
        assert_eq!((got.src, got.dst, got.payload.as_slice()), (from, to, small.payload));
        assert_eq!((got.ifindex, got.ttl, got.tos, got.alert), (index(&net.r, "ra"), 63, 0xc0, true));
        // Larger than the MTU: the kernel makes fragments, and the next node reassembles them into one packet.
        let large = vec![7; 9000];
        send(&mut a, &path(from, to, &large));
        assert_eq!(receive_one(&mut r).payload, large);
        // The node's own Path has the flow's source, and leaves by the given interface.
        let ifindex = Some(index(&net.r, "rb"));
        send(&mut r, &Transmit { ifindex, ttl: 40, ..small });
        // A packet that the kernel had forwarded would arrive here first, with another TTL.
        let got = receive_one(&mut b);
        assert_eq!((got.src, got.dst, got.ttl, got.alert), (from, to, 40, true));
        send(&mut r, &Transmit { ifindex, ..path(from, to, &large) });
        assert_eq!(receive_one(&mut b).payload, large);
        // A packet without an alert passes: a Resv goes hop by hop to the address of the next node.
        send(&mut b, &without_alert(path(to, from, b"no alert")));
        let got = receive_one(&mut a);
        assert_eq!((got.ttl, got.alert, got.payload.as_slice()), (62, false, &b"no alert"[..]));
    }
    // Packets to the node itself are received with any content.
    for (Addresses { a: from, .. }, to) in families().into_iter().zip(["10.2.0.2", "fd02::2"]) {
        let alert = path(from, ip(to), b"to r");
        for (packet, with_alert) in [(without_alert(alert), false), (alert, true)] {
            send(&mut a, &packet);
            let got = receive_one(&mut r);
            assert_eq!((got.dst, got.alert), (ip(to), with_alert));
        }
    }
    a.send(&path(families()[0].a, families()[1].b, b"two families"));
    a.flush();
    assert_eq!(a.counter("rsvp", "unsent"), Some(1));
}

/// Sends a packet whose Router Alert has another value.
fn send_alert(namespace: &Namespace, to: IpAddr, protocol: i32, value: u16, payload: &[u8]) {
    let (domain, level, kind, option) = if to.is_ipv4() {
        (Domain::IPV4, 0, 7, router_alert_v4(value).to_vec()) // IP_RETOPTS
    } else {
        (Domain::IPV6, 41, 54, router_alert_v6(value).to_vec()) // IPV6_HOPOPTS
    };
    let mut control = (size_of::<usize>() + 8 + option.len()).to_ne_bytes().to_vec();
    control.extend([i32::to_ne_bytes(level), i32::to_ne_bytes(kind)].concat());
    control.extend(option);
    control.resize(control.len().next_multiple_of(size_of::<usize>()), 0);
    let sent = namespace.run(|| {
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(protocol)))?;
        let (name, octets) = (SocketAddr::new(to, 0).into(), [IoSlice::new(payload)]);
        socket.sendmsg(&MsgHdr::new().with_addr(&name).with_buffers(&octets).with_control(&control), 0)
    });
    assert_eq!(sent.unwrap().unwrap(), payload.len());
}

/// RSVP-RAO-02, RSVP-RAO-05: a packet with an alert of an unknown value is forwarded as if it had no alert, and the
/// destination of a packet ignores its alert.
#[test]
fn an_alert_of_another_value_is_none() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("rsvpvalue");
    let (mut a, mut r, mut b) = (end(&net.a, false), end(&net.r, true), end(&net.b, false));
    for (Addresses { a: from, b: to }, router) in families().into_iter().zip(["10.2.0.2", "fd02::2"]) {
        send_alert(&net.a, to, 46, 99, b"not RSVP's");
        let got = receive_one(&mut b);
        assert_eq!((got.src, got.alert, got.payload.as_slice()), (from, true, &b"not RSVP's"[..]));
        send_alert(&net.a, ip(router), 46, 99, b"to r");
        // The first packet that r receives.
        assert_eq!(receive_one(&mut r).payload, b"to r");
        send(&mut a, &path(from, to, b"RSVP's"));
        assert_eq!(receive_one(&mut r).payload, b"RSVP's");
    }
}

/// RSVP-RAO-06: alerts are ignored where the switch requires it: a Path passes as any packet, and packets to the node
/// itself are received. Where alerts are evaluated, those of other protocols stay with the kernel all the same.
#[test]
fn alerts_can_be_ignored_and_those_of_others_always_are() {
    if !has_owned_tables() {
        return;
    }
    /// A protocol number for experiments (RFC 3692).
    const OTHER: i32 = 253;
    let net = Network::new("rsvpignore");
    let (mut a, mut b) = (end(&net.a, false), end(&net.b, false));
    let before = footprint(&net.r);
    let ignoring = EntryRequest::local(Entry::Ip(46), Subsystem::protocol("rsvp"));
    let ignoring = IoConfig { entries: vec![gist(), ignoring], ..IoConfig::default() };
    let mut r = open(&net.r, &ignoring);
    assert!(!footprint(&net.r).contains("signalbox_ip46"));
    for (Addresses { a: from, b: to }, router) in families().into_iter().zip(["10.2.0.2", "fd02::2"]) {
        send(&mut a, &path(from, to, b"a Path from a to b"));
        let got = receive_one(&mut b);
        assert_eq!((got.src, got.ttl, got.alert), (from, 62, true));
        send(&mut a, &path(from, ip(router), b"to r"));
        // The first packet that r receives.
        assert_eq!(receive_one(&mut r).payload, b"to r");
    }
    net.r.run(|| r.close()).unwrap().unwrap();
    assert_eq!(footprint(&net.r), before);
    let mut r = end(&net.r, true);
    for Addresses { a: from, b: to } in families() {
        let domain = Domain::for_address(SocketAddr::new(to, 0));
        let open = || Socket::new(domain, Type::RAW, Some(Protocol::from(OTHER)));
        let mut other = net.b.run(open).unwrap().unwrap();
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        let value = u16::from(to.is_ipv6()); // the value of RSVP
        send_alert(&net.a, to, OTHER, value, b"not RSVP");
        let mut octets = [0; 2048];
        let length = other.read(&mut octets).unwrap();
        assert!(octets[..length].ends_with(b"not RSVP"));
        send(&mut a, &path(from, to, b"RSVP"));
        // The first packet that r receives.
        assert_eq!(receive_one(&mut r).payload, b"RSVP");
    }
}

#[test]
fn a_dead_daemon_lets_paths_pass_and_an_ended_one_leaves_nothing() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("rsvpdead");
    let (mut a, mut b) = (end(&net.a, false), end(&net.b, false));
    let before = footprint(&net.r);
    let mut victim = net.r.spawn(&mut helper("rsvp-daemon")).unwrap();
    let laid = || {
        let footprint = footprint(&net.r);
        ["ip", "ip6"].map(|family| footprint.contains(&format!("table {family} signalbox_ip46")))
    };
    until("the rules are laid", || laid() == [true; 2]);
    victim.kill().unwrap();
    victim.wait().unwrap();
    until("the kernel has removed the tables of the closed sockets", || laid() == [false; 2]);
    for Addresses { a: from, b: to } in families() {
        send(&mut a, &path(from, to, b"Path"));
        let got = receive_one(&mut b);
        assert_eq!((got.src, got.ttl, got.alert), (from, 62, true));
    }
    let mut r = end(&net.r, true);
    for Addresses { a: from, b: to } in families() {
        send(&mut a, &path(from, to, b"Path"));
        assert_eq!(receive_one(&mut r).src, from);
    }
    net.r.run(|| r.close()).unwrap().unwrap();
    assert_eq!(footprint(&net.r), before);
    // Without GIST's interception there is only that of RSVP, and it works alone.
    let r = end(&net.r, true);
    net.r.run(|| drop(r)).unwrap();
    assert_eq!(footprint(&net.r), before);
}

/// A node that requests only RSVP's entry binds no UDP port and installs no rule for one.
#[test]
fn an_rsvp_only_node_has_nothing_of_gist() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("rsvponly");
    let (mut a, before) = (end(&net.a, false), footprint(&net.r));
    let mut r = open(&net.r, &IoConfig { entries: vec![rsvp()], ..IoConfig::default() });
    assert_eq!(tool(&net.r, "ss -Hlun"), "");
    let rules = tool(&net.r, "nft list ruleset");
    assert!(rules.contains("table ip6 signalbox_ip46"), "{rules}");
    assert!(!rules.contains("signalbox {") && !rules.contains("udp"), "{rules}");
    for Addresses { a: from, b: to } in families() {
        send(&mut a, &path(from, to, b"a Path from a to b"));
        assert_eq!(receive_one(&mut r).src, from);
    }
    net.r.run(|| r.close()).unwrap().unwrap();
    assert_eq!(footprint(&net.r), before);
}

/// Makes the router forward packets from `a` to the group.
fn multicast(net: &Network, group: IpAddr, source: IpAddr) -> MulticastRouter {
    let mut router = MulticastRouter::default();
    router.set_route(&net.r, group, source, "ra", &["rb".to_owned()]).unwrap();
    router
}

#[test]
fn the_kernels_multicast_routes_are_read_and_watched() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("mroute");
    let mut r = end(&net.r, true);
    let (ra, rb) = (index(&net.r, "ra"), index(&net.r, "rb"));
    for (Addresses { a: source, .. }, group) in families().into_iter().zip(["232.1.1.1", "ff3e::1:1"]) {
        let group = ip(group);
        let changed = |io: &mut Io| {
            until("the kernel reports the change", || {
                io.changes().contains(&Change::Multicast { group, source })
            });
            net.r.run(|| io.multicast_route(group, source)).unwrap()
        };
        assert_eq!(r.multicast_route(group, source), MulticastRoute::default());
        let mut router = multicast(&net, group, source);
        let there = MulticastRoute { iif: ra, oifs: vec![rb] };
        assert_eq!(changed(&mut r), there);
        router.set_route(&net.r, group, source, "ra", &[]).unwrap();
        assert_eq!(changed(&mut r), MulticastRoute { iif: ra, oifs: vec![] });
        router.remove_route(group, source).unwrap();
        assert_eq!(changed(&mut r), MulticastRoute::default());
        // A route of any source.
        let any = if group.is_ipv4() { ip("0.0.0.0") } else { ip("::") };
        router.set_route(&net.r, group, any, "ra", &["rb".to_owned()]).unwrap();
        assert_eq!(changed(&mut r), there);
        // The kernel deletes the routes with the socket that holds the table.
        drop(router);
        assert_eq!(changed(&mut r), MulticastRoute::default());
        // A sender sends by its route to the group, although it forwards no packets.
        let mut a = end(&net.a, false);
        let own = MulticastRoute { iif: IfIndex::NONE, oifs: vec![index(&net.a, "a0")] };
        assert_eq!(a.multicast_route(group, source), own);
    }
}

/// The number of raw sockets of RSVP in a namespace. A program that another test starts has the descriptors of this process
/// until it executes. For so long the kernel gives a socket that was closed here the packets with a Router Alert, and
/// forwards none of them.
fn raw_sockets(namespace: &Namespace) -> usize {
    let sockets = tool(namespace, "cat /proc/net/raw /proc/net/raw6");
    sockets.lines().filter(|line| line.trim_start().starts_with("46:")).count()
}

/// A socket that is a member of the group at an interface until it is dropped.
fn join(namespace: &Namespace, group: IpAddr, interface: &str) -> UdpSocket {
    let index = index(namespace, interface);
    let joined = namespace.run(|| match group {
        IpAddr::V4(group) => {
            let socket = UdpSocket::bind(("0.0.0.0", 0))?;
            let at = socket2::InterfaceIndexOrAddress::Index(index.0);
            socket2::SockRef::from(&socket).join_multicast_v4_n(&group, &at).map(|()| socket)
        }
        IpAddr::V6(group) => {
            let socket = UdpSocket::bind(("::", 0))?;
            socket.join_multicast_v6(&group, index.0).map(|()| socket)
        }
    });
    joined.unwrap().unwrap()
}

/// RSVP-3.11.5-01: multicast packets are intercepted, too. RSVP-3.11.5-03: packets leave by the given interface,
/// whatever the routes are, from another node's address, with a TTL and an alert.
#[test]
fn a_path_to_a_group_is_intercepted_and_without_a_node_reaches_members() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("rsvpgroup");
    let (ra, rb) = (index(&net.r, "ra"), index(&net.r, "rb"));
    let (mut a, mut b) = (end(&net.a, false), end(&net.b, false));
    for (Addresses { a: source, .. }, group) in families().into_iter().zip(["232.1.1.1", "ff3e::1:1"]) {
        let group = ip(group);
        let _router = multicast(&net, group, source);
        let _member = join(&net.b, group, "b0");
        let out = Transmit { ifindex: Some(index(&net.a, "a0")), ..path(source, group, b"Path") };
        let passes = |a: &mut Io, b: &mut Io| {
            let got = send_until_it_arrives(a, b, &out);
            assert_eq!((got.src, got.dst, got.ttl), (source, group, 62));
        };
        // Without a daemon the router forwards it.
        passes(&mut a, &mut b);
        let mut r = end(&net.r, true);
        let taken = |r: &mut Io, a: &mut Io, payload: &[u8]| {
            let got = send_until_it_arrives(a, r, &Transmit { payload, ..out });
            let Got { src, dst, ifindex, ttl, tos, alert, .. } = got;
            assert_eq!((src, dst, ifindex, ttl, tos, alert), (source, group, ra, 63, 0xc0, true));
            assert_eq!(got.payload, payload);
        };
        taken(&mut r, &mut a, b"Path");
        taken(&mut r, &mut a, &[7; 9000]);
        // The node receives each packet once, also with a local member, and no other node receives it.
        let here = join(&net.r, group, "ra");
        taken(&mut r, &mut a, b"to a member");
        taken(&mut r, &mut a, b"and the next");
        drop(here);
        // One packet for each branch, from the flow's source; it is the first that b receives.
        send(&mut r, &Transmit { ifindex: Some(rb), ttl: 40, ..out });
        let got = receive_one(&mut b);
        assert_eq!((got.src, got.dst, got.ttl), (source, group, 40));
        // Each branch has its own packet, also where the kernel has no route, and from a source in an unrelated
        // network.
        let foreign = path(ip(if group.is_ipv4() { "10.9.9.9" } else { "fd09::9" }), group, b"");
        let _at_a = join(&net.a, group, "a0");
        for (interface, ttl, payload) in [(ra, 41, b"by ra"), (rb, 42, b"by rb")] {
            send(&mut r, &Transmit { ifindex: Some(interface), ttl, payload, ..foreign });
        }
        for (io, ttl, payload) in [(&mut a, 41, b"by ra"), (&mut b, 42, b"by rb")] {
            let got = receive_one(io);
            assert_eq!((got.src, got.ttl, got.alert), (foreign.src.ip(), ttl, true));
            assert_eq!(got.payload, payload);
        }
        net.r.run(|| r.close()).unwrap().unwrap();
        until("no process has the sockets of the node", || raw_sockets(&net.r) == 0);
        passes(&mut a, &mut b);
    }
}

/// Packets to addresses that no node has wait for a link-layer address. Those that go to nodes that have proved nothing do
/// not fill the buffer that others need, and their sockets receive nothing.
#[test]
fn packets_to_missing_hosts_delay_no_others() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("rsvpnobody");
    net.wait_for_missing_hosts();
    let (mut r, mut b) = (end(&net.r, true), end(&net.b, false));
    for (Addresses { b: to, .. }, own) in families().into_iter().zip(["10.2.0.2", "fd02::2"]) {
        let missing = |number: u32| match to {
            IpAddr::V4(to) => IpAddr::V4((to.to_bits() & !0xff | (3 + number % 250)).into()),
            IpAddr::V6(to) => IpAddr::V6((to.to_bits() & !0xffff | u128::from(256 + number % 250)).into()),
        };
        let before = r.counter("rsvp", "unsent").unwrap();
        for round in 0..30_u8 {
            for number in 0..1000 {
                let lost = without_alert(path(ip(own), missing(number), b"to missing"));
                r.send(&Transmit { unproved: true, ..lost });
            }
            let payload = [b'n', round];
            r.send(&without_alert(path(ip(own), to, &payload)));
            r.flush();
            assert_eq!(receive_one(&mut b).payload, payload);
        }
        assert!(r.counter("rsvp", "unsent").unwrap() > before, "the buffer was not full");
        // One packet arrives once, although each family has two sockets.
        let back = without_alert(path(to, ip(own), b"once"));
        send(&mut b, &back);
        assert_eq!(receive_one(&mut r).payload, back.payload);
        assert!(!r.wait(Some(Duration::from_millis(50))).unwrap().packets);
    }
}

/// O05: IPv6 that the kernel has switched off is left out, and IPv4 works. Nothing stays behind.
#[test]
fn a_family_that_is_switched_off_is_left_out() {
    let net = Network::new("switchedoff");
    let before = footprint(&net.r);
    for namespace in [&net.a, &net.r] {
        topology::set_sysctl(namespace, "net.ipv6.conf.all.disable_ipv6", "1").unwrap();
    }
    let (mut a, mut r) = (end(&net.a, false), end(&net.r, true));
    let Addresses { a: from, b: to } = families()[0];
    let got = send_until_it_arrives(&mut a, &mut r, &path(from, to, b"IPv4"));
    assert_eq!((got.src, got.dst, got.alert), (from, to, true));
    assert!(net.r.run(|| r.judge_interception()).unwrap().unwrap().unwrap().faults.is_empty());
    assert!(!tool(&net.r, "nft list ruleset").contains("table ip6 "), "no table of IPv6");
    net.r.run(|| r.close()).unwrap().unwrap();
    for kind in ["ip rule", "nft list ruleset"] {
        let left = tool(&net.r, kind);
        assert!(!left.contains("270") && !left.contains("signalbox"), "{left}");
    }
    assert!(!before.contains("signalbox"));
}
