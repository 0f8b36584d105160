//! Boomerang on a router whose administrator has rules of netfilter: what they drop neither reaches the node nor crosses it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use signalbox_api::v1::CheckConfigRequest;
use signalbox_api::v1::node_client::NodeClient;
use signalbox_core::node::Prefix;
use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::netns::Namespace;
use signalbox_linux::topology;

use crate::net::{Host, LONG};

/// How long nothing has to arrive.
const QUIET: Duration = Duration::from_millis(300);
const SETTINGS: &str = "node.protocols = [\"boomerang\"]\n[policy]\ndefault = \"deny\"\n";
const UNTRUSTED: &str = "[interfaces.left.boomerang]\ntrusted = false\n";
/// Drops what has Boomerang's magic number, at a hook with a priority.
const DROP: &str = "meta l4proto { icmp, ipv6-icmp } @th,64,32 0x47114711 drop";

/// Host `a`, a router with the daemon, and host `b`.
pub(crate) struct Net {
    a: Option<Namespace>,
    r: Host,
    b: Option<Namespace>,
    /// The link-layer addresses of `a` and of the router towards it.
    stations: [Vec<u8>; 2],
    sent: u32,
}

impl Drop for Net {
    fn drop(&mut self) {
        for space in [self.a.take(), self.b.take()].into_iter().flatten() {
            let _ = space.delete();
        }
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The addresses of `a`, of the router towards it, and of `b`.
pub(crate) fn families() -> [[IpAddr; 3]; 2] {
    [["10.77.0.1", "10.77.0.2", "10.78.0.2"], ["fd77::1", "fd77::2", "fd78::2"]].map(|all| all.map(ip))
}

impl Net {
    pub(crate) async fn new(test: &str, settings: &str) -> Self {
        let name = |node: &str| format!("sbxd-{}-{test}-{node}", std::process::id());
        let [a, r, b] =
            ["a", "r", "b"].map(|node| Namespace::create(&name(node)).expect("namespaces need root"));
        topology::create_veth(&a, "veth", &r, "left").unwrap();
        topology::create_veth(&r, "right", &b, "veth").unwrap();
        topology::set_forwarding(&r, true).unwrap();
        for key in ["net.ipv4.conf.all.rp_filter", "net.ipv4.conf.left.rp_filter"] {
            topology::set_sysctl(&r, key, "0").unwrap();
        }
        for (space, interface, addresses) in [
            (&a, "veth", ["10.77.0.1", "fd77::1"]),
            (&r, "left", ["10.77.0.2", "fd77::2"]),
            (&r, "right", ["10.78.0.1", "fd78::1"]),
            (&b, "veth", ["10.78.0.2", "fd78::2"]),
        ] {
            topology::add_address(space, interface, ip(addresses[0]), 24).unwrap();
            topology::add_address(space, interface, ip(addresses[1]), 64).unwrap();
            topology::set_up(space, interface, true).unwrap();
        }
        // The router has a route to every source, so that no filter of routes stops one.
        for (space, gateways) in
            [(&a, ["10.77.0.2", "fd77::2"]), (&r, ["10.77.0.1", "fd77::1"]), (&b, ["10.78.0.1", "fd78::1"])]
        {
            topology::set_up(space, "lo", true).unwrap();
            for gateway in gateways.map(ip) {
                topology::add_route(space, Prefix::all_like(gateway), Some(gateway), None).unwrap();
            }
            topology::settle(space, LONG).unwrap();
        }
        let stations = [station(&a, "veth"), station(&r, "left")];
        let directory = std::env::temp_dir().join(name("r"));
        let r = Host::start(r, Ipv4Addr::new(10, 77, 0, 2).into(), directory, settings);
        r.ready().await;
        r.runs().await;
        Self { a: Some(a), r, b: Some(b), stations, sent: 0 }
    }

    pub(crate) fn a(&self) -> &Namespace {
        self.a.as_ref().unwrap()
    }

    pub(crate) fn b(&self) -> &Namespace {
        self.b.as_ref().unwrap()
    }

    pub(crate) const fn host(&self) -> &Host {
        &self.r
    }

    pub(crate) const fn host_mut(&mut self) -> &mut Host {
        &mut self.r
    }

    pub(crate) fn router(&self) -> &Namespace {
        self.r.namespace()
    }

    /// Sends an Echo Request from `a`'s link, and expects that it arrives at `b`, and whether an answer comes back. A packet has
    /// to stay away for some time.
    fn echo(&mut self, what: &str, [src, dst]: [IpAddr; 2], arrives: bool, answered: bool) {
        let (mut at_a, mut at_b) = self.captures();
        let tag = self.send([src, dst]);
        if arrives {
            assert_eq!(arrivals(&mut at_b, &tag, 1), 1, "{what}: {src} to {dst} arrives");
        }
        if answered {
            assert_eq!(arrivals(&mut at_a, &tag, 1), 1, "{what}: {src} to {dst} is answered");
        }
        // Each packet comes once, and what is not expected does not come at all.
        assert_eq!(quiet(&mut at_b, &tag), 0, "{what}: {src} to {dst} arrives at the far end");
        assert_eq!(quiet(&mut at_a, &tag), 0, "{what}: {src} to {dst} is answered");
    }

    /// What arrives at both hosts from now on.
    fn captures(&self) -> (Capture, Capture) {
        let open = |space| Capture::open(space, "veth", CaptureConfig::default()).unwrap();
        (open(self.a()), open(self.b()))
    }

    /// Sends an Echo Request with Boomerang's magic number and 900 octets behind an unknown option. The result is at its end.
    fn send(&mut self, ends: [IpAddr; 2]) -> Vec<u8> {
        self.sent += 1;
        let tag = format!("sent {:08}", self.sent).into_bytes();
        self.put(&packet(ends, &message(ends, self.sent, &tag)));
        tag
    }

    /// Puts an IP packet on `a`'s link, for the router.
    pub(crate) fn put(&self, packet: &[u8]) {
        let [from, to] = &self.stations;
        put(self.a(), [from, to], packet);
    }

    /// Runs `work` while the router has these chains of its administrator.
    fn with_rules(&mut self, chains: &str, work: impl FnOnce(&mut Self)) {
        topology::nft(self.r.namespace(), &format!("table inet operator {{\n{chains}}}\n")).unwrap();
        work(self);
        topology::nft(self.r.namespace(), "delete table inet operator").unwrap();
    }

    /// The requests and replies of Boomerang that the daemon got.
    pub(crate) async fn counted(&self) -> u64 {
        self.r.counter("signalbox_datagrams_received", Some("icmp")).await
    }

    /// The packets that were passed to the daemon.
    fn queued(&self) -> u32 {
        let list = || std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").unwrap();
        let list = self.r.namespace().run(list).unwrap();
        list.lines().map(|line| line.split_whitespace().nth(7).unwrap().parse::<u32>().unwrap()).sum()
    }
}

/// Puts an IP packet on the link of a host, from one link-layer address to another.
pub(crate) fn put(host: &Namespace, [from, to]: [&[u8]; 2], packet: &[u8]) {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    let link = Capture::open(host, "veth", CaptureConfig::default()).unwrap();
    link.send(&[to, from, &kind, packet].concat()).unwrap();
}

/// The link-layer address of an interface.
pub(crate) fn station(space: &Namespace, interface: &str) -> Vec<u8> {
    let mut command = Command::new("ip");
    command.args(["-o", "link", "show", "dev", interface]);
    let shown = space.run(move || command.output()).unwrap().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
    let address = words.nth(1).unwrap();
    address.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect()
}

/// The Internet checksum.
pub(crate) fn checksum(octets: &[u8]) -> [u8; 2] {
    let words = octets.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}

/// A request of 64 kbit/s for UDP (docs/wire/boomerang.md), with an option that no node knows.
pub(crate) fn message([src, dst]: [IpAddr; 2], number: u32, tag: &[u8]) -> Vec<u8> {
    let n = number.to_be_bytes();
    let mut octets = vec![if src.is_ipv4() { 8 } else { 128 }, 0, 0, 0, 0x77, 0x77, n[2], n[3]];
    octets.extend_from_slice(&0x4711_4711_u32.to_be_bytes());
    octets.extend_from_slice(&n);
    octets.extend_from_slice(&[0x10, 0x12, 0, 0, 255, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    for end in [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 78, 0, 2)] {
        octets.extend_from_slice(&end.octets());
    }
    octets.extend_from_slice(&[0x13, 0x88, 0x13, 0x88, 17, 0xb8, 0, 0]);
    octets.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff]);
    octets.extend_from_slice(&[0, 0, 0xfa, 0, 0, 0, 0, 0]);
    octets.extend_from_slice(&[0x7f, 0x7f, 3, 0x94]);
    octets.resize(octets.len() + 900, 0x55);
    octets.extend_from_slice(tag);
    let pseudo = match (src, dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let length = u32::try_from(octets.len()).unwrap().to_be_bytes();
            [&src.octets()[..], &dst.octets(), &length, &[0, 0, 0, 58]].concat()
        }
        _ => Vec::new(),
    };
    let sum = checksum(&[pseudo, octets.clone()].concat());
    octets[2..4].copy_from_slice(&sum);
    octets
}

fn packet(ends: [IpAddr; 2], message: &[u8]) -> Vec<u8> {
    let length = |more: usize| u16::try_from(message.len() + more).unwrap().to_be_bytes();
    match ends {
        [IpAddr::V4(src), IpAddr::V4(dst)] => {
            let [l0, l1] = length(20);
            let mut head = vec![0x45, 0, l0, l1, 0, 0, 0, 0, 64, 1, 0, 0];
            head.extend_from_slice(&src.octets());
            head.extend_from_slice(&dst.octets());
            let sum = checksum(&head);
            head[10..12].copy_from_slice(&sum);
            [&head, message].concat()
        }
        [IpAddr::V6(src), IpAddr::V6(dst)] => {
            let [l0, l1] = length(0);
            [&[0x60, 0, 0, 0, l0, l1, 58, 64][..], &src.octets(), &dst.octets(), message].concat()
        }
        _ => panic!("one family"),
    }
}

/// Counts the frames with this tag that come in, until there are `wanted`.
fn arrivals(capture: &mut Capture, tag: &[u8], wanted: usize) -> usize {
    count(capture, tag, wanted, LONG)
}

/// Counts those that come in for some time.
fn quiet(capture: &mut Capture, tag: &[u8]) -> usize {
    count(capture, tag, usize::MAX, QUIET)
}

fn count(capture: &mut Capture, tag: &[u8], wanted: usize, time: Duration) -> usize {
    let (deadline, mut found) = (Instant::now() + time, 0);
    while found < wanted {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        capture
            .read(left, |frame| {
                let tagged = frame.octets.windows(tag.len()).any(|part| part == tag);
                found += usize::from(tagged && !frame.outgoing);
            })
            .unwrap();
    }
    found
}

pub(crate) fn chain(hook: &str, priority: &str, rules: &str) -> String {
    format!("chain {hook} {{\n type filter hook {hook} priority {priority}\n {rules}\n }}\n")
}

/// (T24) Nothing crosses the router that its administrator drops in any chain on its way, and nothing is answered that the rules
/// of the way to the node, or of what it sends, drop; with IPv4 and IPv6. Without rules both happen once.
#[tokio::test]
async fn rules_of_the_administrator_stop_messages() {
    let mut net = Net::new("rules", SETTINGS).await;
    for [a, r, b] in families() {
        net.echo("no rule, through", [a, b], true, true);
        net.echo("no rule, to the node", [a, r], false, true);
        for (hook, priority) in [
            ("prerouting", "raw"),
            ("prerouting", "mangle"),
            ("forward", "filter"),
            ("forward", "security"),
            ("postrouting", "filter"),
        ] {
            net.with_rules(&chain(hook, priority, DROP), |net| {
                net.echo(&format!("{hook} {priority}, through"), [a, b], false, false);
            });
        }
        for (hook, priority) in [
            ("prerouting", "raw"),
            ("prerouting", "mangle"),
            ("input", "filter"),
            ("input", "security"),
            ("output", "filter"),
            ("postrouting", "filter"),
        ] {
            net.with_rules(&chain(hook, priority, DROP), |net| {
                net.echo(&format!("{hook} {priority}, to the node"), [a, r], false, false);
            });
        }
    }
}

/// (T24) The case of the list: policy deny, an interface without trust, and rules that drop all that comes in by it. Without the rules
/// the kernel forwards its messages, and the daemon gets none of them.
#[tokio::test]
async fn an_interface_without_trust_is_as_without_the_daemon() {
    let mut net = Net::new("untrusted", &format!("{SETTINGS}{UNTRUSTED}")).await;
    let rules = [
        chain("prerouting", "raw", "iifname \"left\" drop"),
        chain("input", "filter", "policy drop"),
        chain("forward", "filter", "policy drop"),
    ]
    .concat();
    for [a, r, b] in families() {
        net.echo("no rule, through", [a, b], true, true);
        net.echo("no rule, to the node", [a, r], false, true);
        net.with_rules(&rules, |net| {
            net.echo("all dropped, through", [a, b], false, false);
            net.echo("all dropped, to the node", [a, r], false, false);
        });
    }
    // The answers of the far end came in by the other interface.
    assert_eq!(net.queued(), 2);
}

/// (T24) Messages from addresses that no host has are neither forwarded nor answered, by no address of the router either.
#[tokio::test]
async fn messages_from_no_host_go_nowhere() {
    let mut net = Net::new("martians", SETTINGS).await;
    let [[_, r, b], [_, r6, b6]] = families();
    for src in ["0.0.0.0", "240.0.0.1", "169.254.1.1", "127.0.0.1", "224.0.0.5"].map(ip) {
        net.echo("no host, through", [src, b], false, false);
        net.echo("no host, to the node", [src, r], false, false);
    }
    for src in ["::", "::1", "ff02::5"].map(ip) {
        net.echo("no host, through", [src, b6], false, false);
        net.echo("no host, to the node", [src, r6], false, false);
    }
}

/// The process that releases what a daemon leaves in its queue looks so often, at the most, until it does (`sys::watch`; its
/// unit tests say how long that is).
const LOOKS: u64 = 5;

/// The looks of the process beside the router's daemon. It sleeps once before each.
fn looks(router: &Namespace) -> u64 {
    let namespace_of = |path: PathBuf| std::fs::read_link(path.join("ns/net")).ok();
    let space = router.run(|| namespace_of("/proc/thread-self".into())).unwrap();
    let watcher = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).find(|path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "signalbox-watch\n")
            && namespace_of(path.clone()) == space
    });
    let status = std::fs::read_to_string(watcher.expect("the process runs").join("status")).unwrap();
    let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    slept.trim().parse().unwrap()
}

/// (T24) A message waits for a daemon that hangs until the process beside it has looked a few times. A busy machine can only delay the test,
/// so that it counts more looks than there were: one message of some shows the number.
#[tokio::test]
async fn a_message_waits_for_a_hung_daemon_for_a_second_at_most() {
    let mut net = Net::new("second", SETTINGS).await;
    let [a, _, b] = families()[0];
    net.r.signal("STOP");
    let mut counts = Vec::new();
    while !counts.iter().any(|count| *count <= LOOKS) {
        assert!(counts.len() < 20, "looks until each message passed: {counts:?}");
        let (_, mut at_b) = net.captures();
        let before = looks(net.router());
        let through = net.send([a, b]);
        assert_eq!(arrivals(&mut at_b, &through, 1), 1, "it arrives");
        counts.push(looks(net.router()) - before);
    }
    net.r.signal("CONT");
}

/// Who checks a configuration by a daemon that has given up its privileges learns what is open on its machine, and what netfilter does
/// not judge there.
#[tokio::test]
async fn a_check_by_the_daemon_knows_its_machine() {
    let net = Net::new("check", SETTINGS).await;
    let toml = "version = 1\nnode.protocols = [\"gist\", \"qos\", \"rsvp\"]\n[interfaces.left]\ncapacity = \"10mbit\"\n";
    let mut client = NodeClient::new(net.host().connect().await.unwrap());
    let mut lines = async || {
        let request = CheckConfigRequest { toml: toml.to_owned() };
        let problems = client.check_config(request).await.unwrap().into_inner().problems;
        problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>()
    };
    let unfiltered = |lines: &[String]| {
        let all = lines.iter().filter_map(|line| line.split_once("no filter of forged sources at "));
        all.map(|(_, rest)| rest.split_once(": ").unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    let before = lines().await;
    let [open] = &unfiltered(&before)[..] else { panic!("{before:?}") };
    assert!(open.split(", ").any(|name| name == "left"), "{open}");
    let unjudged = before.iter().filter(|line| line.starts_with("not judged by the hook forward")).count();
    assert_eq!(unjudged, 2, "GIST and RSVP: {before:?}");
    for interface in ["left", "right"] {
        topology::set_sysctl(net.router(), &format!("net.ipv4.conf.{interface}.rp_filter"), "1").unwrap();
    }
    let after = lines().await;
    assert_eq!(unfiltered(&after), Vec::<String>::new(), "{after:?}");
}

/// (T24) Messages pass while the daemon hangs, and it does not send them twice; after its death all pass at once.
#[tokio::test]
async fn a_daemon_that_hangs_or_dies_lets_messages_pass() {
    let mut net = Net::new("hung", SETTINGS).await;
    for [a, r, b] in families() {
        net.r.signal("STOP");
        let (mut at_a, mut at_b) = net.captures();
        let (through, to) = (net.send([a, b]), net.send([a, r]));
        assert_eq!(arrivals(&mut at_b, &through, 1), 1, "it arrives");
        assert_eq!(arrivals(&mut at_a, &to, 1), 1, "the kernel answers what is for the router");
        net.r.signal("CONT");
        net.r.runs().await;
        assert_eq!(quiet(&mut at_b, &through), 0, "it arrives once");
        net.echo("the daemon goes on", [a, b], true, true);
    }
    net.r.signal("KILL");
    net.r.eventually("the queue is gone", async || net.queued_is_gone()).await;
    for [a, r, b] in families() {
        net.echo("after its death, through", [a, b], true, true);
        net.echo("after its death, to the router", [a, r], false, true);
    }
}

impl Net {
    fn queued_is_gone(&self) -> bool {
        let list = || std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").unwrap();
        self.r.namespace().run(list).unwrap().is_empty()
    }
}
