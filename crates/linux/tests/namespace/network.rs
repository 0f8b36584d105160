//! The network that every test here makes for itself: `a` – `r` – `b`, with `r` forwarding.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use signalbox_core::metrics::Subsystem;
use signalbox_core::node::Prefix;
use signalbox_core::node::TransmitError;
use signalbox_core::packet::{Received, Transmit};
use signalbox_core::{AlertRule, Entry, EntryRequest, Intercept, Match};
use signalbox_linux::netns::{self, Namespace};
use signalbox_linux::topology;
use signalbox_linux::{Batch, Io, IoConfig};

/// Time that a condition may take. A busy machine needs part of it; on an idle one most conditions hold at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The magic number and the beginning of a message.
pub(crate) const GIST: &[u8] = &[0x4e, 0x04, 0xbd, 0xa5, 1, 30, 0, 4, 0x7f, 0xc0, 0, 0];

pub(crate) struct Network {
    pub(crate) a: Namespace,
    pub(crate) r: Namespace,
    pub(crate) b: Namespace,
    names: Vec<String>,
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            // In a failing test the first failure matters. The names have our prefix.
            let _ = netns::delete(name);
        }
    }
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn prefix(text: &str) -> Prefix {
    let (addr, len) = text.split_once('/').unwrap();
    Prefix { addr: ip(addr), len: len.parse().unwrap() }
}

/// The hosts' addresses in one family.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) a: IpAddr,
    pub(crate) b: IpAddr,
}

pub(crate) fn families() -> [Addresses; 2] {
    [("10.1.0.1", "10.2.0.1"), ("fd01::1", "fd02::1")].map(|(a, b)| Addresses { a: ip(a), b: ip(b) })
}

impl Network {
    pub(crate) fn new(label: &str) -> Self {
        let names = ["a", "r", "b"].map(|end| format!("sbxt-{}-{label}-{end}", std::process::id()));
        let [a, r, b] = names.each_ref().map(|name| Namespace::create(name).unwrap());
        let network = Self { a, r, b, names: names.into() };
        let Self { a, r, b, .. } = &network;
        topology::create_veth(a, "a0", r, "ra").unwrap();
        topology::create_veth(r, "rb", b, "b0").unwrap();
        let links = [(a, "a0"), (r, "ra"), (r, "rb"), (b, "b0")];
        let addresses = ["10.1.0.1 fd01::1", "10.1.0.2 fd01::2", "10.2.0.2 fd02::2", "10.2.0.1 fd02::1"];
        for ((namespace, interface), addresses) in links.into_iter().zip(addresses) {
            let (v4, v6) = addresses.split_once(' ').unwrap();
            topology::add_address(namespace, interface, ip(v4), 24).unwrap();
            topology::add_address(namespace, interface, ip(v6), 64).unwrap();
            topology::set_up(namespace, interface, true).unwrap();
            topology::disable_offload(namespace, interface).unwrap();
        }
        topology::set_forwarding(r, true).unwrap();
        // Link-local addresses appear with the carrier. Tests compare the state before and after.
        let settled = |namespace: &Namespace, links: usize| {
            topology::settle(namespace, PATIENCE).unwrap();
            tool(namespace, "ip -6 -o address show scope link").lines().count() == links
        };
        until("the links work", || settled(a, 1) && settled(r, 2) && settled(b, 1));
        for (namespace, gateways) in [(a, ["10.1.0.2", "fd01::2"]), (b, ["10.2.0.2", "fd02::2"])] {
            for (dst, gateway) in ["0.0.0.0/0", "::/0"].into_iter().zip(gateways) {
                topology::add_route(namespace, prefix(dst), Some(ip(gateway)), None).unwrap();
            }
        }
        network
    }

    /// Makes one more namespace, which is removed with the others.
    pub(crate) fn namespace(&mut self, label: &str) -> Namespace {
        let name = format!("{}-{label}", self.names[0]);
        let namespace = Namespace::create(&name).unwrap();
        self.names.push(name);
        namespace
    }

    /// Lets packets from the router to missing hosts wait for their link-layer addresses longer than any test runs. Otherwise the
    /// kernel gives up after some seconds, and a slow machine never has as many of them waiting as a fast one.
    pub(crate) fn wait_for_missing_hosts(&self) {
        for family in ["ipv4", "ipv6"] {
            let key = format!("net.{family}.neigh.rb.retrans_time_ms");
            topology::set_sysctl(&self.r, &key, "600000").unwrap();
        }
    }

    /// A driver of a host: it sends and receives, and intercepts no packets.
    pub(crate) fn host(namespace: &Namespace) -> Io {
        open(namespace, &IoConfig { intercept: false, ..config() })
    }

    /// A driver of a node on the path.
    pub(crate) fn node(namespace: &Namespace) -> Io {
        open(namespace, &config())
    }
}

/// GIST's port of entry: packets that pass by with a Router Alert and the magic number are intercepted.
pub(crate) fn gist() -> EntryRequest {
    let intercept = Intercept::passing(AlertRule::Any, vec![Match::word(0, 0x4e04_bda5)]);
    EntryRequest::local(Entry::Udp(270), Subsystem::protocol("gist")).with_intercept(intercept)
}

/// Whether the kernel has tables of nftables with an owner, by which it passes Boomerang's messages to a queue, and leads RSVP's over IPv6 to
/// this node.
pub(crate) fn has_owned_tables() -> bool {
    let has = signalbox_linux::kernel_version().is_none_or(|version| version >= (5, 12));
    if !has {
        eprintln!("skipped: Linux 5.12 has the first tables with an owner");
    }
    has
}

/// The configuration of a driver for GIST.
pub(crate) fn config() -> IoConfig {
    IoConfig { entries: vec![gist()], ..IoConfig::default() }
}

/// A counter of GIST's entry.
pub(crate) fn counter(io: &Io, name: &str) -> u64 {
    io.counter("gist", name).unwrap()
}

/// The packets that could not be sent.
pub(crate) fn failures(io: &mut Io) -> Vec<(IpAddr, TransmitError)> {
    io.flush().into_iter().map(|failure| (failure.dst, failure.error)).collect()
}

/// Opens a driver in a namespace.
pub(crate) fn open(namespace: &Namespace, config: &IoConfig) -> Io {
    namespace.run(|| open_here(config)).unwrap()
}

/// Opens a driver in the namespace of this thread.
///
/// A program that another test starts has the descriptors of this process until it executes. For so long it can
/// hold the port of a driver that ended.
pub(crate) fn open_here(config: &IoConfig) -> Io {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Io::open(config) {
            Err(error) if error.id == "port-in-use" && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => break opened.unwrap_or_else(|error| panic!("{error}")),
        }
    }
}

/// An owned copy of a received packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) ifindex: u32,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl From<Received<'_>> for Got {
    fn from(r: Received<'_>) -> Self {
        Self {
            src: r.src,
            dst: r.dst,
            ifindex: r.ifindex.0,
            ttl: r.ttl,
            tos: r.tos,
            options: r.options.to_vec(),
            payload: r.payload.to_vec(),
        }
    }
}

/// Receives until `enough` is true.
pub(crate) fn receive_until(io: &mut Io, mut enough: impl FnMut(&[Got]) -> bool) -> Vec<Got> {
    let (mut batch, mut got) = (Batch::new(), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    while !enough(&got) {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "received only {} datagrams: {:?}", got.len(), got.last());
        io.wait(Some(left)).unwrap();
        io.receive(&mut batch).unwrap();
        got.extend(batch.iter().map(Got::from));
    }
    got
}

pub(crate) fn receive_one(io: &mut Io) -> Got {
    receive_until(io, |got| !got.is_empty()).remove(0)
}

/// A datagram between two addresses, port 270 at both ends.
pub(crate) fn datagram<'a>(src: IpAddr, dst: IpAddr, payload: &'a [u8]) -> Transmit<'a> {
    Transmit {
        entry: Entry::Udp(270),
        src: (src, 270).into(),
        dst: (dst, 270).into(),
        ifindex: None,
        gateway: None,
        ttl: 20,
        tos: 0,
        dont_fragment: false,
        flow_label: 0,
        unproved: false,
        options: &[],
        payload,
    }
}

pub(crate) fn send(io: &mut Io, transmit: &Transmit<'_>) {
    io.send(transmit);
    assert_eq!(io.flush(), []);
}

/// The output of a tool that runs inside a namespace.
pub(crate) fn tool(namespace: &Namespace, line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let output = namespace.run(|| command.args(words).output()).unwrap().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a tool lists of the kernel's state, without comments and counts. Comments of nft name the thread that held a table's socket
/// when it looked, or `<unknown>`: they are no state. Nor is how many packets, such as the kernel's own, met a queue before its filter.
pub(crate) fn without_comments(listed: &str) -> String {
    let bare = |line: &str| match line.rfind('#').or_else(|| line.find(" direct_packets_stat ")) {
        Some(at) if !line[at..].contains('"') => line[..at].trim_end().to_owned(),
        _ => line.to_owned(),
    };
    listed.lines().map(|line| bare(line) + "\n").collect()
}

/// The state of the kernel that a node could leave behind in a namespace.
pub(crate) fn footprint(namespace: &Namespace) -> String {
    ["nft list ruleset", "ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all"]
        .map(|line| without_comments(&tool(namespace, line)))
        .join("--\n")
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "in vain waited for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A socket of a namespace. A tool that another test starts may hold the former socket of this address for a moment.
pub(crate) fn bind(namespace: &Namespace, at: SocketAddr) -> UdpSocket {
    let mut socket = None;
    until(&format!("{at} is free"), || {
        socket = namespace.run(|| UdpSocket::bind(at)).unwrap().ok();
        socket.is_some()
    });
    socket.unwrap()
}
