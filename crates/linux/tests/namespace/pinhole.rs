//! Pinholes beside a ruleset of the operator that drops by default: what passes, what does not, and until when.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{OpenerId, Pinhole, PinholeError, Verdict};
use signalbox_core::traffic::FlowFilter;
use signalbox_linux::netns::Namespace;
use signalbox_linux::pinhole::{PinholeConfig, Pinholes};
use signalbox_linux::topology;

use crate::network::{
    Addresses, Network, PATIENCE, bind, families, ip, prefix, tool, until, without_comments,
};

pub(crate) const UDP: u8 = 17;
/// A port that the operator's ruleset lets pass. A packet to it shows that earlier packets have been handled.
pub(crate) const CONTROL: u16 = 9;
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A ruleset of the operator as the tutorials of nftables have it, with one line for pinholes.
pub(crate) const DEFAULT_DROP: &str = "table inet filter {
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state established,related accept
        ct mark and 0x10000000 == 0x10000000 accept
        udp dport 9 accept
    }
}
";

/// The enforcer at `r`, or `None` on a kernel that lacks a part.
pub(crate) fn enforcer(net: &Network, config: &PinholeConfig) -> Option<Pinholes> {
    match net.r.run(|| Pinholes::open(config)).unwrap() {
        Ok(pinholes) => Some(pinholes),
        Err(error) if error.id == "pinholes-unsupported" => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A network whose router drops by default, and its enforcer.
fn firewall(label: &str) -> Option<(Network, Pinholes)> {
    let net = Network::new(label);
    topology::nft(&net.r, DEFAULT_DROP).unwrap();
    let pinholes = enforcer(&net, &PinholeConfig::default())?;
    Some((net, pinholes))
}

/// The filter of a flow's packets.
pub(crate) fn flow(protocol: u8, src: SocketAddr, dst: SocketAddr) -> FlowFilter {
    FlowFilter {
        protocol: Some(protocol),
        src_port: Some(src.port()),
        dst_port: Some(dst.port()),
        ..FlowFilter::between(Prefix::host(src.ip()), Prefix::host(dst.ip()))
    }
}

/// Carries out what is queued, and expects success.
pub(crate) fn flush(pinholes: &mut Pinholes) {
    let results = pinholes.flush();
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
}

pub(crate) fn open(pinholes: &mut Pinholes, id: u64, pinhole: Pinhole, lifetime: Duration) {
    pinholes.request(OpenerId::NATFW.pinhole(id), pinhole, lifetime);
    flush(pinholes);
}

pub(crate) fn close(pinholes: &mut Pinholes, id: u64) {
    pinholes.release(OpenerId::NATFW.pinhole(id));
    assert_eq!(pinholes.flush(), []);
    let deadline = Instant::now() + PATIENCE;
    // Flows that have to be searched for end a moment later, at most a second.
    while let Some(wait) = pinholes.wait_time().filter(|wait| *wait <= Duration::from_secs(1)) {
        assert!(Instant::now() < deadline, "flows are not ended");
        std::thread::sleep(wait);
        assert_eq!(pinholes.flush(), []);
    }
}

/// One attempt to send a datagram from an address of one namespace to an address of another.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) from: &'a Namespace,
    pub(crate) to: &'a Namespace,
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
}

impl Attempt<'_> {
    /// Whether a datagram arrives within this time.
    fn arrives(&self, patience: Duration) -> bool {
        let (sender, receiver) = (bind(self.from, self.src), bind(self.to, self.dst));
        sender.send_to(b"probe", self.dst).unwrap();
        received(&receiver, patience).is_some()
    }

    /// It arrives.
    pub(crate) fn passes(&self) {
        assert!(self.arrives(PATIENCE), "{} > {} did not pass", self.src, self.dst);
    }

    /// It does not arrive, although a later one to another port does.
    pub(crate) fn is_blocked(&self) {
        assert!(!self.passes_before_control(), "{} > {} passed", self.src, self.dst);
    }

    /// Whether it arrives before a later one to the control port does.
    pub(crate) fn passes_before_control(&self) -> bool {
        let (sender, receiver) = (bind(self.from, self.src), bind(self.to, self.dst));
        let control = bind(self.to, (self.dst.ip(), CONTROL).into());
        sender.send_to(b"probe", self.dst).unwrap();
        sender.send_to(b"control", (self.dst.ip(), CONTROL)).unwrap();
        assert!(received(&control, PATIENCE).is_some(), "the control packet did not pass");
        received(&receiver, Duration::from_millis(20)).is_some()
    }
}

/// The sender of a datagram that arrives within this time.
pub(crate) fn received(socket: &UdpSocket, patience: Duration) -> Option<SocketAddr> {
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.recv_from(&mut [0; 64]).ok().map(|(_, from)| from)
}

pub(crate) fn at(address: IpAddr, port: u16) -> SocketAddr {
    (address, port).into()
}

/// The flows that the router tracks, as text.
pub(crate) fn tracked(net: &Network) -> String {
    tool(&net.r, "cat /proc/self/net/nf_conntrack")
}

/// NATFW-3.1-02, NATFW-3.7.4-02: the flow passes with its answers. Another port, address, protocol or direction does not;
/// nothing passes before the pinhole is open and after it is closed, and the kernel removes the flow.
#[test]
fn exactly_this_flow_passes() {
    let Some((net, mut pinholes)) = firewall("hole") else { return };
    topology::add_address(&net.a, "a0", ip("10.1.0.3"), 24).unwrap();
    topology::add_address(&net.a, "a0", ip("fd01::3"), 64).unwrap();
    topology::add_address(&net.b, "b0", ip("10.2.0.3"), 24).unwrap();
    topology::add_address(&net.b, "b0", ip("fd02::3"), 64).unwrap();
    let others = [("10.1.0.3", "10.2.0.3"), ("fd01::3", "fd02::3")].map(|(a, b)| (ip(a), ip(b)));
    for (id, (Addresses { a, b }, (other_a, other_b))) in families().into_iter().zip(others).enumerate() {
        let (src, dst) = (at(a, 4000), at(b, 5004));
        let attempt = Attempt { from: &net.a, to: &net.b, src, dst };
        let back = Attempt { from: &net.b, to: &net.a, src: dst, dst: src };
        attempt.is_blocked();
        open(&mut pinholes, id as u64, Pinhole::allow(flow(UDP, src, dst)), LONG);
        // The other direction first: no packet of the flow has passed yet.
        back.is_blocked();
        for other in [
            Attempt { src: at(a, 4001), ..attempt },
            Attempt { dst: at(b, 5005), ..attempt },
            Attempt { src: at(other_a, 4000), ..attempt },
            Attempt { dst: at(other_b, 5004), ..attempt },
        ] {
            other.is_blocked();
        }
        assert!(!connects(&net, src, dst), "TCP passed");
        attempt.passes();
        back.passes();
        assert!(tracked(&net).contains("sport=4000 dport=5004"));
        close(&mut pinholes, id as u64);
        assert!(!tracked(&net).contains("sport=4000 dport=5004"), "{}", tracked(&net));
        attempt.is_blocked();
        back.is_blocked();
    }
    assert_eq!(pinholes.counters().flows_ended, 2);
}

/// Whether a TCP connection from `src` in `a` to `dst` in `b` is made.
pub(crate) fn connects(net: &Network, src: SocketAddr, dst: SocketAddr) -> bool {
    let listener = net.b.run(|| TcpListener::bind(dst)).unwrap().unwrap();
    let connected = connect(&net.a, src, dst);
    drop(listener);
    connected.is_some()
}

/// A TCP connection from a given port.
pub(crate) fn connect(namespace: &Namespace, src: SocketAddr, dst: SocketAddr) -> Option<TcpStream> {
    let domain = socket2::Domain::for_address(dst);
    let socket =
        namespace.run(|| socket2::Socket::new(domain, socket2::Type::STREAM, None)).unwrap().unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&src.into()).unwrap();
    socket.connect_timeout(&dst.into(), Duration::from_millis(500)).ok()?;
    Some(socket.into())
}

/// A pinhole for UDP with wildcards.
fn wide(src: &str, dst: IpAddr, dst_port: Option<u16>) -> Pinhole {
    let packets = FlowFilter::between(prefix(src), Prefix::host(dst));
    Pinhole::allow(FlowFilter { protocol: Some(UDP), dst_port, ..packets })
}

/// NATFW-4.2.8-06, NATFW-4.2.4-05: what is not given matches all packets, a prefix its addresses, and the second port is
/// the next one; nothing else passes.
#[test]
fn wildcards_match_what_they_leave_open() {
    let Some((net, mut pinholes)) = firewall("wide") else { return };
    topology::add_address(&net.a, "a0", ip("10.1.0.3"), 24).unwrap();
    topology::add_address(&net.a, "a0", ip("fd01::3"), 64).unwrap();
    for (Addresses { a, b }, other, all, some) in [
        (families()[0], ip("10.1.0.3"), "0.0.0.0/0", "10.1.0.2/31"),
        (families()[1], ip("fd01::3"), "::/0", "fd01::2/127"),
    ] {
        let host = if a.is_ipv4() { format!("{a}/32") } else { format!("{a}/128") };
        let to = |src, dst_port| Attempt { from: &net.a, to: &net.b, src, dst: at(b, dst_port) };
        // Any source port of one sender.
        open(&mut pinholes, 1, wide(&host, b, Some(5004)), LONG);
        to(at(a, 4001), 5004).passes();
        to(at(a, 4002), 5004).passes();
        to(at(a, 4003), 5005).is_blocked();
        to(at(other, 4001), 5004).is_blocked();
        // Any sender, with a second port; the former pinhole of that id ends.
        open(&mut pinholes, 1, Pinhole { second_port: true, ..wide(all, b, Some(6000)) }, LONG);
        to(at(other, 4001), 6000).passes();
        to(at(a, 4001), 6001).passes();
        to(at(a, 4001), 6002).is_blocked();
        to(at(a, 4001), 5004).is_blocked();
        // A prefix, and any port.
        open(&mut pinholes, 1, wide(some, b, None), LONG);
        to(at(other, 4001), 7000).passes();
        to(at(a, 4001), 7000).is_blocked();
        to(at(a, 4001), 6000).is_blocked();
        close(&mut pinholes, 1);
        to(at(other, 4001), 7000).is_blocked();
        let left = tracked(&net).lines().filter(|line| !line.contains(&format!("dport={CONTROL}"))).count();
        assert_eq!(left, 0, "{}", tracked(&net));
    }
}

/// Whether an Echo request is answered.
fn ping(from: &Namespace, to: IpAddr) -> bool {
    let (domain, protocol, request, reply) = match to {
        IpAddr::V4(_) => (socket2::Domain::IPV4, socket2::Protocol::ICMPV4, 8, 0),
        IpAddr::V6(_) => (socket2::Domain::IPV6, socket2::Protocol::ICMPV6, 128, 129),
    };
    let socket =
        from.run(|| socket2::Socket::new(domain, socket2::Type::RAW, Some(protocol))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    // Identifier and number are such that the checksum of IPv4 is simple; the kernel writes that of IPv6.
    let sum = !(u16::from(request) << 8 | 0x0102);
    let [high, low] = sum.to_be_bytes();
    socket.send_to(&[request, 0, high, low, 1, 2, 0, 0], &at(to, 0).into()).unwrap();
    let deadline = Instant::now() + Duration::from_millis(500);
    let mut socket = socket;
    while Instant::now() < deadline {
        let mut packet = [0; 128];
        let Ok(length) = std::io::Read::read(&mut socket, &mut packet) else { continue };
        let message = if to.is_ipv4() { &packet[20..length] } else { &packet[..length] };
        if message[0] == reply && message[4..6] == [1, 2] {
            return true;
        }
    }
    false
}

/// NATFW-4.2.8-06: ICMP passes by type, in the direction of the pinhole.
#[test]
fn icmp_passes_by_type() {
    let Some((net, mut pinholes)) = firewall("icmp") else { return };
    for (Addresses { a, b }, protocol, echo) in [(families()[0], 1, 8), (families()[1], 58, 128)] {
        assert!(!ping(&net.a, b));
        let packets =
            FlowFilter { protocol: Some(protocol), ..FlowFilter::between(Prefix::host(a), Prefix::host(b)) };
        let pinhole = Pinhole { icmp_types: vec![echo], ..Pinhole::allow(packets) };
        open(&mut pinholes, 1, pinhole.clone(), LONG);
        until("echo passes", || ping(&net.a, b));
        assert!(tracked(&net).contains("type="));
        assert!(!ping(&net.b, a));
        // Another type that begins an exchange.
        let other = if protocol == 1 { 13 } else { 139 };
        open(&mut pinholes, 1, Pinhole { icmp_types: vec![other], ..pinhole }, LONG);
        assert!(!ping(&net.a, b));
        close(&mut pinholes, 1);
    }
}

/// NATFW-3.1-02: a rule that denies also drops packets of a flow that stands, and wins over one that allows.
#[test]
fn deny_wins_over_allow() {
    let Some((net, mut pinholes)) = firewall("deny") else { return };
    let Addresses { a, b } = families()[0];
    let attempt = Attempt { from: &net.a, to: &net.b, src: at(a, 4000), dst: at(b, 5004) };
    let control = Attempt { dst: at(b, CONTROL), ..attempt };
    open(&mut pinholes, 1, Pinhole::allow(flow(UDP, attempt.src, attempt.dst)), LONG);
    attempt.passes();
    control.passes();
    let deny = |pinhole| Pinhole { verdict: Verdict::Deny, ..pinhole };
    open(&mut pinholes, 2, deny(wide("10.1.0.0/24", b, Some(5004))), LONG);
    attempt.is_blocked();
    // The operator's ruleset allows this flow, and it stands.
    open(&mut pinholes, 3, deny(Pinhole::allow(flow(UDP, control.src, control.dst))), LONG);
    assert!(!control.arrives(Duration::from_millis(200)));
    close(&mut pinholes, 3);
    control.passes();
    close(&mut pinholes, 2);
    attempt.passes();
}

/// NATFW-3.4-01: at its time a pinhole closes by itself, also for a flow that goes on. Prolonged, it stays, with its flow
/// and its counters.
#[test]
fn a_pinhole_closes_at_its_time() {
    let net = Network::new("time");
    topology::nft(&net.r, DEFAULT_DROP).unwrap();
    for own_table in [true, false] {
        let Some(mut pinholes) = enforcer(&net, &PinholeConfig { own_table, ..PinholeConfig::default() })
        else {
            return;
        };
        let Addresses { a, b } = families()[0];
        let attempt = Attempt { from: &net.a, to: &net.b, src: at(a, 4000), dst: at(b, 5004) };
        let pinhole = Pinhole::allow(flow(UDP, attempt.src, attempt.dst));
        open(&mut pinholes, 1, pinhole.clone(), LONG);
        attempt.passes();
        attempt.passes();
        let view = |pinholes: &mut Pinholes| pinholes.read(&[OpenerId::NATFW.pinhole(1)])[0];
        let seen = view(&mut pinholes).unwrap();
        assert_eq!((seen.packets, seen.octets), (2, 2 * (28 + 5)));
        assert!(seen.time_left <= LONG && seen.time_left > LONG - PATIENCE, "{seen:?}");
        // A longer time, then a shorter one.
        open(&mut pinholes, 1, pinhole.clone(), 2 * LONG);
        let seen = view(&mut pinholes).unwrap();
        assert!(seen.time_left > LONG, "{seen:?}");
        open(&mut pinholes, 1, pinhole, Duration::from_secs(3));
        until("the pinhole closes", || !attempt.passes_before_control());
        assert_eq!(view(&mut pinholes), None);
        // The operator's ruleset accepts flows that stand, and this one does.
        assert!(tracked(&net).contains("sport=4000 dport=5004"));
        close(&mut pinholes, 1);
        assert!(!tracked(&net).contains("sport=4000 dport=5004"));
        pinholes.close().unwrap();
    }
}

/// Two pinholes for the same packets share what the kernel has; what cannot be shared, or is too much, is refused, and
/// changes nothing.
#[test]
fn pinholes_for_the_same_packets() {
    let net = Network::new("same");
    topology::nft(&net.r, DEFAULT_DROP).unwrap();
    let Some(mut pinholes) = enforcer(&net, &PinholeConfig { max: 3, ..PinholeConfig::default() }) else {
        return;
    };
    let Addresses { a, b } = families()[0];
    let attempt = Attempt { from: &net.a, to: &net.b, src: at(a, 4000), dst: at(b, 5004) };
    let pinhole = Pinhole::allow(flow(UDP, attempt.src, attempt.dst));
    for id in [1, 2] {
        open(&mut pinholes, id, pinhole.clone(), LONG);
    }
    close(&mut pinholes, 1);
    attempt.passes();
    let refused = |pinholes: &mut Pinholes, id, pinhole: &Pinhole, error| {
        let before = tool(&net.r, "nft list table inet signalbox_pinholes");
        let without_times = |text: String| -> String {
            let text = without_comments(&text);
            text.lines().map(|line| line.split(" expires").next().unwrap().to_owned() + "\n").collect()
        };
        pinholes.request(OpenerId::NATFW.pinhole(id), pinhole.clone(), LONG);
        assert_eq!(pinholes.flush(), [(OpenerId::NATFW.pinhole(id), Err(error))]);
        let after = tool(&net.r, "nft list table inet signalbox_pinholes");
        assert_eq!(without_times(before), without_times(after));
    };
    let deny = Pinhole { verdict: Verdict::Deny, ..pinhole.clone() };
    refused(&mut pinholes, 3, &deny, PinholeError::Conflict);
    let unsupported = Pinhole::allow(FlowFilter { dscp: Some(46), ..pinhole.packets });
    refused(&mut pinholes, 2, &unsupported, PinholeError::Unsupported);
    open(&mut pinholes, 3, wide("10.0.0.0/8", b, Some(7)), LONG);
    // The kernel's set of ranges holds no two that overlap.
    refused(&mut pinholes, 4, &wide("10.1.0.0/16", b, Some(7)), PinholeError::Conflict);
    open(&mut pinholes, 4, wide("0.0.0.0/0", b, Some(8)), LONG);
    refused(&mut pinholes, 5, &wide("0.0.0.0/0", b, Some(9)), PinholeError::Full);
    attempt.passes();
    close(&mut pinholes, 2);
    attempt.is_blocked();
    // Many requests for one pinhole at once have one result each, and the last one counts.
    pinholes.request(OpenerId::NATFW.pinhole(2), pinhole, LONG);
    pinholes.release(OpenerId::NATFW.pinhole(2));
    pinholes.request(OpenerId::NATFW.pinhole(2), deny, LONG);
    pinholes.release(OpenerId::NATFW.pinhole(9));
    assert_eq!(
        pinholes.flush(),
        [(OpenerId::NATFW.pinhole(2), Ok(())), (OpenerId::NATFW.pinhole(2), Ok(()))]
    );
    attempt.is_blocked();
}

/// A refresh does not end the count of packets. Linux before 6.12 replaces the element.
#[test]
fn a_pinhole_that_is_prolonged_goes_on_counting() {
    let Some((net, mut pinholes)) = firewall("counts") else { return };
    let Addresses { a, b } = families()[0];
    let [first, other] = [1, 2].map(|id| OpenerId::NATFW.pinhole(id));
    let wanted = Pinhole::allow(flow(UDP, at(a, 4000), at(b, 5000)));
    for count in 1..=3 {
        open(&mut pinholes, 1, wanted.clone(), LONG);
        Attempt { from: &net.a, to: &net.b, src: at(a, 4000), dst: at(b, 5000) }.passes();
        let view = pinholes.read(&[first])[0].expect("it is open");
        assert_eq!((view.packets, view.octets), (count, count * 33));
    }
    // One more pinhole for the same packets, and its end.
    open(&mut pinholes, 2, wanted.clone(), LONG);
    assert_eq!(pinholes.read(&[other])[0].map(|view| view.packets), Some(3));
    close(&mut pinholes, 2);
    assert_eq!(pinholes.read(&[first])[0].map(|view| view.packets), Some(3));
    close(&mut pinholes, 1);
    open(&mut pinholes, 1, wanted, LONG);
    assert_eq!(
        pinholes.read(&[first])[0].map(|view| view.packets),
        Some(0),
        "what is opened anew counts from 0"
    );
}

/// NATFW-3.7.4-02: the end of a pinhole whose time has passed in the kernel does not end another one for some of the same
/// packets.
#[test]
fn an_expired_range_ends_no_other() {
    let Some((net, mut pinholes)) = firewall("expired") else { return };
    let Addresses { a, b } = families()[0];
    open(&mut pinholes, 1, wide("10.1.0.0/16", b, Some(5004)), Duration::from_secs(1));
    until("the range expires", || pinholes.read(&[OpenerId::NATFW.pinhole(1)]) == [None]);
    open(&mut pinholes, 2, wide("10.0.0.0/8", b, Some(5004)), LONG);
    close(&mut pinholes, 1);
    Attempt { from: &net.a, to: &net.b, src: at(a, 4000), dst: at(b, 5004) }.passes();
    // A closed one can be opened again at once, and prolonged after its time.
    close(&mut pinholes, 2);
    open(&mut pinholes, 3, wide("10.1.0.0/16", b, Some(5004)), Duration::from_secs(1));
    until("the range expires", || pinholes.read(&[OpenerId::NATFW.pinhole(3)]) == [None]);
    open(&mut pinholes, 3, wide("10.1.0.0/16", b, Some(5004)), LONG);
    Attempt { from: &net.a, to: &net.b, src: at(a, 4001), dst: at(b, 5004) }.passes();
}
