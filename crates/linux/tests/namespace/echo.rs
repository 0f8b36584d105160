//! ICMP Echo messages with a magic number: those that pass by are intercepted, all others are the kernel's.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use signalbox_core::metrics::Subsystem;
use signalbox_core::packet::{Transmit, router_alert_v4, router_alert_v6_before};
use signalbox_core::{AlertRule, Entry, EntryRequest, Intercept, Match};
use signalbox_linux::netns::Namespace;
use signalbox_linux::{Batch, Io, IoConfig, topology};

use crate::network::{Addresses, Network, PATIENCE, families, has_owned_tables, open, tool};
use crate::rsvp::Got;

pub(crate) const MAGIC: u32 = 0x4711_4711;

pub(crate) fn end(namespace: &Namespace, intercept: bool) -> Io {
    of_magic(namespace, MAGIC, intercept)
}

fn of_magic(namespace: &Namespace, magic: u32, intercept: bool) -> Io {
    open(namespace, &IoConfig { entries: vec![entry(magic)], intercept, ..IoConfig::default() })
}

/// Messages of version 1 with this magic number that pass by are intercepted.
pub(crate) fn entry(magic: u32) -> EntryRequest {
    let version = Match { offset: 12, mask: 0xff00_0000, value: 0x0100_0000 };
    let rule = Intercept::passing(AlertRule::NotRequired, vec![version]);
    EntryRequest::local(Entry::IcmpEcho(magic), Subsystem::protocol("echo")).with_intercept(rule)
}

/// An Echo message with this magic number and version, without checksum.
pub(crate) fn echo(ipv6: bool, reply: bool, magic: u32, version: u8) -> Vec<u8> {
    let kind = match (ipv6, reply) {
        (false, false) => 8,
        (false, true) => 0,
        (true, false) => 128,
        (true, true) => 129,
    };
    let mut octets = [&[kind, 0, 0, 0, 0, 1, 0, 1][..], &magic.to_be_bytes(), &[version, 0, 0, 0]].concat();
    if !ipv6 {
        let sum: u32 = octets.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        octets[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    octets
}

pub(crate) fn send(io: &mut Io, ends: [IpAddr; 2], options: &[u8], payload: &[u8]) {
    io.send(&transmit(ends, options, payload));
    assert_eq!(io.flush(), []);
}

fn transmit<'a>(ends: [IpAddr; 2], options: &'a [u8], payload: &'a [u8]) -> Transmit<'a> {
    let magic = u32::from_be_bytes(*payload[8..].first_chunk().unwrap());
    Transmit {
        entry: Entry::IcmpEcho(magic),
        src: SocketAddr::new(ends[0], 0),
        dst: SocketAddr::new(ends[1], 0),
        ifindex: None,
        gateway: None,
        ttl: 63,
        tos: 0x20,
        dont_fragment: false,
        flow_label: 0,
        unproved: false,
        options,
        payload,
    }
}

/// What arrives within `patience`; it ends with the first packet.
pub(crate) fn received(io: &mut Io, patience: Duration) -> Vec<Got> {
    let (mut batch, mut got) = (Batch::new(), Vec::new());
    let deadline = std::time::Instant::now() + patience;
    while got.is_empty() {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            break;
        }
        if io.wait(Some(left)).unwrap().packets {
            io.receive(&mut batch).unwrap();
            got.extend(batch.iter().map(Got::from));
        }
        io.changes();
    }
    got
}

fn alert(dst: IpAddr) -> Vec<u8> {
    if dst.is_ipv4() { router_alert_v4(0).to_vec() } else { router_alert_v6_before(58, 0).to_vec() }
}

/// BOOM-G4-01: requests and replies that pass by are intercepted, with a Router Alert and without; the kernel does not
/// forward them. Another version passes.
#[test]
fn messages_with_the_magic_number_are_intercepted() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("echo");
    let (mut a, mut r, mut b) = (end(&net.a, false), end(&net.r, true), end(&net.b, true));
    for Addresses { a: from, b: to } in families() {
        for options in [Vec::new(), alert(to)] {
            for reply in [false, true] {
                let payload = echo(to.is_ipv6(), reply, MAGIC, 1);
                send(&mut a, [from, to], &options, &payload);
                let got = received(&mut r, PATIENCE);
                assert_eq!(got.len(), 1, "{to} {reply} {options:?}");
                assert_eq!((got[0].src, got[0].dst, got[0].ttl), (from, to, 63));
                assert_eq!(got[0].alert, !options.is_empty());
                assert_eq!((&got[0].payload[..2], &got[0].payload[4..]), (&payload[..2], &payload[4..]));
                // This node sends it on, from its own address.
                send(&mut r, [from, to], &options, &got[0].payload);
                let got = received(&mut b, PATIENCE);
                assert_eq!((got.len(), got[0].src, got[0].dst), (1, from, to));
                // The kernel's copy goes now; what waits for longer than a moment is the kernel's to answer.
                assert_eq!(b.flush(), []);
                assert_eq!(received(&mut a, Duration::from_millis(50)), [], "no node has answered");
            }
        }
        // Version 2 passes the router; the host's kernel answers it, and the router does not take the answer.
        send(&mut a, [from, to], &[], &echo(to.is_ipv6(), false, MAGIC, 2));
        let got = received(&mut a, PATIENCE);
        assert_eq!((got.len(), got[0].src), (1, to));
    }
    assert_eq!(received(&mut r, Duration::from_millis(50)), []);
    assert_eq!(received(&mut b, Duration::from_millis(50)), []);
}

/// BOOM-F3.6.4-01, BOOM-2.2-01: a host without a daemon answers. BOOM-3.1-02: messages with another magic number are never
/// intercepted; without the daemon of the router, everything passes.
#[test]
fn a_host_without_daemon_answers_and_pings_are_untouched() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("echohost");
    let (mut a, r) = (end(&net.a, false), end(&net.r, true));
    // Another magic number is any ping.
    let mut other = of_magic(&net.a, MAGIC + 1, false);
    for Addresses { a: from, b: to } in families() {
        let payload = echo(to.is_ipv6(), false, MAGIC + 1, 1);
        send(&mut other, [from, to], &[], &payload);
        let got = received(&mut other, PATIENCE);
        assert_eq!((got.len(), got[0].src, &got[0].payload[4..]), (1, to, &payload[4..]));
    }
    r.close().unwrap();
    for Addresses { a: from, b: to } in families() {
        let payload = echo(to.is_ipv6(), false, MAGIC, 1);
        send(&mut a, [from, to], &[], &payload);
        let got = received(&mut a, PATIENCE);
        assert_eq!((got.len(), got[0].src, &got[0].payload[4..]), (1, to, &payload[4..]));
    }
    assert_eq!(tool(&net.r, "nft list tables").trim(), "");
}

/// BOOM-G31-02: fragments, and packets with other IP options, are left to the kernel.
#[test]
fn fragments_are_left_to_the_kernel() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("echofrag");
    let (mut a, mut r) = (end(&net.a, false), end(&net.r, true));
    let Addresses { a: from, b: to } = families()[0];
    let mut payload = echo(false, false, MAGIC, 1);
    payload.resize(3000, 0);
    send(&mut a, [from, to], &[], &payload);
    let got = received(&mut a, PATIENCE);
    assert_eq!((got.len(), got[0].src, got[0].payload.len()), (1, to, 3000), "the far end answered");
    assert_eq!(received(&mut r, Duration::from_millis(50)), []);
}

/// A Destination Unreachable about a message of this host is received, with interception and without.
#[test]
fn errors_about_own_messages_are_received() {
    if !has_owned_tables() {
        return;
    }
    for (intercept, label) in [(false, "echoerr"), (true, "echoerri")] {
        // The kernel of the router limits the rate of its errors: each run has a router of its own.
        let net = Network::new(label);
        let mut a = end(&net.a, intercept);
        for (Addresses { a: from, .. }, nowhere) in families().into_iter().zip(["10.9.0.1", "fd09::1"]) {
            let nowhere: IpAddr = nowhere.parse().unwrap();
            for options in [Vec::new(), alert(nowhere)] {
                let payload = echo(nowhere.is_ipv6(), false, MAGIC, 1);
                send(&mut a, [from, nowhere], &options, &payload);
                let got = received(&mut a, PATIENCE);
                assert_eq!(got.len(), 1, "{nowhere} {options:?}");
                assert_eq!((got[0].dst, got[0].payload[0]), (from, if nowhere.is_ipv6() { 1 } else { 3 }));
                assert!(got[0].payload.windows(4).any(|word| word == MAGIC.to_be_bytes()));
            }
        }
        a.close().unwrap();
    }
}

/// (T24) Rules of other programs come first: what they drop at prerouting or forward is neither received nor sent on. What they do not drop is
/// received once. Other programs can remove neither the rules of this one nor its table. The mark of a packet stays.
#[test]
fn rules_of_others_come_first() {
    if !has_owned_tables() {
        return;
    }
    let net = Network::new("echorules");
    let (mut a, mut r, mut b) = (end(&net.a, false), end(&net.r, true), end(&net.b, false));
    let rules = |script: &str| topology::nft(&net.r, script).unwrap();
    let rule = "meta l4proto { icmp, ipv6-icmp } @th,64,32 0x47114711";
    let whole = tool(&net.r, "nft list tables");
    let chain = |hook: &str, priority: &str, verdict: &str| {
        rules(&format!(
            "table inet other {{ chain c {{ type filter hook {hook} priority {priority}; {rule} {verdict}; }}\n}}"
        ));
    };
    for Addresses { a: from, b: to } in families() {
        let payload = echo(to.is_ipv6(), true, MAGIC, 1);
        for (hook, priority) in [("prerouting", "raw"), ("forward", "filter"), ("forward", "security")] {
            chain(hook, priority, "drop");
            send(&mut a, [from, to], &[], &payload);
            assert_eq!(received(&mut r, Duration::from_millis(100)), [], "{hook} {priority}");
            assert_eq!(received(&mut b, Duration::from_millis(50)), [], "{hook} {priority}");
            // It leaves the rules of this program.
            rules("flush ruleset");
        }
        chain("prerouting", "raw", "meta mark set 7");
        rules(&format!(
            "table inet after {{ chain c {{ type filter hook postrouting priority filter; {rule} meta mark != 7 drop; }}\n}}"
        ));
        send(&mut a, [from, to], &[], &payload);
        let got = received(&mut r, PATIENCE);
        assert_eq!(got.len(), 1);
        // What is not of the packet that waits, from an address of another node, is not sent.
        let mut other = got[0].payload.clone();
        other[7] ^= 1;
        r.send(&transmit([from, to], &[], &other));
        r.send(&transmit([from, to], &[], &got[0].payload));
        assert_eq!(r.flush().len(), 1);
        let got = received(&mut b, PATIENCE);
        assert_eq!((got.len(), got[0].payload[7]), (1, payload[7]));
        assert_eq!(received(&mut b, Duration::from_millis(50)), []);
        rules("flush ruleset");
    }
    assert_eq!(tool(&net.r, "nft list tables"), whole);
    r.close().unwrap();
}
