//! Packets that pass by with a Router Alert are intercepted, all others are not, and nothing stays behind.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use etherparse::{IpNumber, Ipv4Header, Ipv4Options};
use signalbox_core::packet::{Transmit, router_alert_v4, router_alert_v6};
use signalbox_core::{AlertRule, Intercept, Match};
use signalbox_linux::capture::{Capture, CaptureConfig, Frame};
use signalbox_linux::netns::Namespace;
use signalbox_linux::{Batch, Io, IoConfig, Judged};

use crate::helper::helper;
use crate::network::{
    GIST, Got, Network, PATIENCE, config, datagram, families, footprint, gist, open, receive_one, send, tool,
    until,
};

fn index(namespace: &Namespace, interface: &str) -> u32 {
    let line = tool(namespace, &format!("ip -o link show dev {interface}"));
    line.split(':').next().unwrap().parse().unwrap()
}

/// A chain that gives packets the mark of their connection, as those of wg-quick and of iptables, is there when the daemon starts: of two
/// chains of one priority the later one comes first.
#[test]
fn marks_of_connections_that_others_restore_do_no_harm() {
    let net = Network::new("connmark");
    for family in ["ip", "ip6"] {
        for line in [
            format!("add table {family} others"),
            format!("add chain {family} others premangle {{ type filter hook prerouting priority -150 ; }}"),
            format!("add rule {family} others premangle meta l4proto udp meta mark set ct mark"),
        ] {
            tool(&net.r, &format!("nft {line}"));
        }
    }
    let (mut a, mut r) = (Network::host(&net.a), Network::node(&net.r));
    for family in families() {
        let (v4, v6) = (router_alert_v4(0), router_alert_v6(0));
        let options: &[u8] = if family.a.is_ipv4() { &v4 } else { &v6 };
        send(&mut a, &Transmit { options, ..datagram(family.a, family.b, GIST) });
        assert_eq!(receive_one(&mut r).dst.ip(), family.b);
    }
    net.r.run(|| r.close()).unwrap().unwrap();
}

/// GIST-C-01: packets are intercepted with any value of the Router Alert.
#[test]
fn passing_queries_are_taken_with_all_that_their_headers_say() {
    let net = Network::new("take");
    let (mut a, mut r, mut b) = (Network::host(&net.a), Network::node(&net.r), Network::host(&net.b));
    // The kernel itself knows IPv4's Router Alert of value 0 only.
    let values = families().into_iter().flat_map(|family| [0_u16, 5, 65].map(|value| (family, value)));
    for (family, value) in values {
        let (v4, v6) = (router_alert_v4(value), router_alert_v6(value));
        let options: &[u8] = if family.a.is_ipv4() { &v4 } else { &v6 };
        let query =
            Transmit { options, tos: 0xb8, dont_fragment: true, ..datagram(family.a, family.b, GIST) };
        send(&mut a, &query);
        let got = receive_one(&mut r);
        assert_eq!((got.src, got.dst), ((family.a, 270).into(), (family.b, 270).into()));
        assert_eq!((got.ttl, got.tos, got.ifindex), (20, 0xb8, index(&net.r, "ra")));
        assert_eq!((got.options.as_slice(), got.payload.as_slice()), (options, GIST));

        // Also in the opposite direction, and from another source port.
        let query = Transmit { src: (family.b, 4711).into(), ..datagram(family.b, family.a, GIST) };
        send(&mut b, &Transmit { options, ..query });
        let got = receive_one(&mut r);
        assert_eq!((got.src, got.dst), ((family.b, 4711).into(), (family.a, 270).into()));
        assert_eq!(got.ifindex, index(&net.r, "rb"));

        // The hosts received neither: the first datagram that they receive is sent after both.
        send(&mut a, &datagram(family.a, family.b, b"after"));
        assert_eq!(receive_one(&mut b).payload, b"after");
        send(&mut b, &datagram(family.b, family.a, b"after"));
        assert_eq!(receive_one(&mut a).payload, b"after");
    }
    net.r.run(|| r.close()).unwrap().unwrap();
}

#[test]
fn whatever_is_addressed_to_the_node_arrives_with_and_without_alert() {
    let net = Network::new("own");
    let (mut a, mut r) = (Network::host(&net.a), Network::node(&net.r));
    for (family, own) in families().into_iter().zip(["10.2.0.2", "fd02::2"]) {
        let own = own.parse().unwrap();
        let (v4, v6) = (router_alert_v4(0), router_alert_v6(0));
        let alert: &[u8] = if family.a.is_ipv4() { &v4 } else { &v6 };
        for options in [&[][..], alert] {
            send(&mut a, &Transmit { options, ..datagram(family.a, own, GIST) });
            let got = receive_one(&mut r);
            assert_eq!((got.src, got.dst), ((family.a, 270).into(), (own, 270).into()));
            assert_eq!((got.options.as_slice(), got.ttl), (options, 20));
        }
    }
}

/// GIST-3.6-01, GIST-4.3.1-03, GIST-4.3.4-01, for UDP.
#[test]
fn everything_else_is_forwarded_unchanged() {
    let net = Network::new("pass");
    let (mut a, r, mut b) = (Network::host(&net.a), Network::node(&net.r), Network::host(&net.b));
    for family in families() {
        let (v4, v6) = (router_alert_v4(0), router_alert_v6(0));
        let options: &[u8] = if family.a.is_ipv4() { &v4 } else { &v6 };
        let plain = datagram(family.a, family.b, GIST);
        let no_magic = Transmit { options, payload: b"not GIST at all", ..plain };
        let short = Transmit { options, payload: &[0x4e, 0x04, 0xbd], ..plain };
        for passing in [plain, no_magic, short] {
            send(&mut a, &passing);
            let got = receive_one(&mut b);
            assert_eq!((got.src, got.dst, got.ttl), (passing.src, passing.dst, passing.ttl - 1));
            assert_eq!((got.options.as_slice(), got.payload.as_slice()), (passing.options, passing.payload));
        }
        // To another port: only a socket there can show the packet.
        let socket = net.b.run(|| std::net::UdpSocket::bind((family.b, 271))).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        send(&mut a, &Transmit { dst: (family.b, 271).into(), options, ..plain });
        let mut buffer = [0; 64];
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (GIST, (family.a, 270).into()));
    }
    drop(net.r.run(|| r.close()));
}

/// GIST-4.3.1-03, GIST-4.3.4-01, GIST-5.3.2.3-01, GIST-5.3.2.3-02: packets that look like GIST and have a Router Alert,
/// but are a tunnelled packet, TCP, ESP or AH, are not intercepted.
#[test]
fn other_protocols_with_an_alert_are_forwarded_unchanged() {
    let net = Network::new("proto");
    let r = Network::node(&net.r);
    let mac = |namespace: &Namespace, interface: &str| -> Vec<u8> {
        let link = tool(namespace, &format!("ip -o link show dev {interface}"));
        let mac = link.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
        mac.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect()
    };
    // The router must have resolved the far end's address before: frames are sent once.
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    let end = Capture::open(&net.a, "a0", CaptureConfig::default()).unwrap();
    let mut far =
        Capture::open(&net.b, "b0", CaptureConfig { outgoing: false, ..CaptureConfig::default() }).unwrap();
    let (v4, v6) = (router_alert_v4(0), router_alert_v6(0));
    let like_udp = [&[1, 14, 1, 14, 0, 20, 0, 0], GIST].concat(); // ports 270, length, no checksum
    let [family4, family6] = families();
    let protocols = [4, 6, 50, 51];
    for (family, protocol) in [family4, family6].into_iter().flat_map(|family| protocols.map(|p| (family, p)))
    {
        send(&mut a, &datagram(family.a, family.b, b"first"));
        receive_one(&mut b);
        let (kind, header) = match (family.a, family.b) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header =
                    Ipv4Header::new(20, 9, IpNumber(protocol), src.octets(), dst.octets()).unwrap();
                header.options = Ipv4Options::from(v4);
                header.set_payload_len(like_udp.len()).unwrap();
                header.header_checksum = header.calc_header_checksum();
                (0x0800_u16, header.to_bytes().to_vec())
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let fixed = [0x60, 0, 0, 0, 0, 28, 0, 9];
                let mut header = [&fixed[..], &src.octets(), &dst.octets(), &v6].concat();
                header[40] = protocol;
                (0x86dd, header)
            }
            _ => unreachable!(),
        };
        let packet = [&header[..], &like_udp].concat();
        let frame = [&mac(&net.r, "ra")[..], &mac(&net.a, "a0"), &kind.to_be_bytes(), &packet].concat();
        end.send(&frame).unwrap();
        let mut arrived = None;
        until("the packet is on the other side", || {
            let each = |frame: Frame<'_>| {
                if frame.octets.ends_with(&like_udp) && !frame.octets.ends_with(b"first") {
                    arrived = Some(frame.octets[14..].to_vec());
                }
            };
            far.read(Duration::from_millis(50), each).unwrap();
            arrived.is_some()
        });
        let mut expected = packet.clone();
        if kind == 0x0800 {
            let mut header = Ipv4Header::from_slice(&packet).unwrap().0;
            header.time_to_live -= 1;
            header.header_checksum = header.calc_header_checksum();
            expected[..24].copy_from_slice(&header.to_bytes());
        } else {
            expected[7] -= 1;
        }
        assert_eq!(arrived.unwrap(), expected, "protocol {protocol}: nothing but the TTL changes");
    }
    net.r.run(|| r.close()).unwrap().unwrap();
}

/// GIST-5.3.2.1-03: where the configuration requests it, the rule tests the C-flag instead of the alert.
#[test]
fn without_alert_only_q_mode_is_taken() {
    let net = Network::new("bare");
    // The C-flag stands in the seventh octet of the common header, behind the magic number.
    let q_mode = Match { offset: 8, mask: 0x8000, value: 0x8000 };
    let matches = vec![Match::word(0, 0x4e04_bda5), q_mode];
    let without_alert = Intercept::passing(AlertRule::NotRequired, matches);
    let config = IoConfig { entries: vec![gist().with_intercept(without_alert)], ..IoConfig::default() };
    let mut r = open(&net.r, &config);
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    let mut q_mode = GIST.to_vec();
    q_mode[10] |= 0x80;
    for family in families() {
        send(&mut a, &datagram(family.a, family.b, &q_mode));
        let got = receive_one(&mut r);
        assert_eq!((got.dst, got.payload.as_slice()), ((family.b, 270).into(), q_mode.as_slice()));
        send(&mut a, &datagram(family.a, family.b, GIST));
        assert_eq!(receive_one(&mut b).payload, GIST);
    }
    net.r.run(|| r.close()).unwrap().unwrap();
}

#[test]
fn closing_leaves_the_namespace_as_it_was() {
    let net = Network::new("clean");
    let before = footprint(&net.r);
    let io = Network::node(&net.r);
    assert_ne!(footprint(&net.r), before);
    net.r.run(|| io.close()).unwrap().unwrap();
    assert_eq!(footprint(&net.r), before);

    let io = Network::node(&net.r);
    net.r.run(|| drop(io)).unwrap();
    assert_eq!(footprint(&net.r), before);

    // A start that fails leaves nothing behind either.
    let first = Network::node(&net.r);
    let during = footprint(&net.r);
    let second = net.r.run(|| Io::open(&config()).map(drop)).unwrap();
    assert_eq!(second.unwrap_err().id, "port-in-use");
    assert_eq!(footprint(&net.r), during);
    net.r.run(|| first.close()).unwrap().unwrap();
}

/// No packet is lost at a start: the kernel forwards it, or the node receives it.
#[test]
fn nothing_is_lost_while_a_node_starts() {
    let net = Network::new("start");
    for _ in 0..3 {
        let r = start_under_way(&net);
        net.r.run(|| r.close()).unwrap().unwrap();
    }
    // The rules of a node that has crashed redirect as soon as there is a socket.
    let mut victim = net.r.spawn(&mut helper("daemon")).unwrap();
    until("the rules are laid", || footprint(&net.r).contains("table ip6 signalbox"));
    victim.kill().unwrap();
    victim.wait().unwrap();
    net.r.run(|| start_under_way(&net).close()).unwrap().unwrap();
}

/// Number of Queries under way at a time: fewer than any queue of the kernel holds, however long a busy machine delays
/// its readers.
const UNDER_WAY: usize = 64;

/// Starts a node while Queries pass it, and asserts that each of them arrives at the node or at the far end.
fn start_under_way(net: &Network) -> Io {
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    let alerts = (router_alert_v4(0), router_alert_v6(0));
    let (stop, seen) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()));
    // Receives what has arrived. Returns the number received anywhere, and the number received here in this call.
    let see = |io: &mut Io| {
        let mut batch = Batch::new();
        io.receive(&mut batch).unwrap();
        let numbers =
            batch.iter().map(|got| u32::from_be_bytes(*Got::from(got).payload.last_chunk().unwrap()));
        let (mut seen, before) = (seen.lock().unwrap(), batch.len());
        seen.extend(numbers);
        (seen.len(), before)
    };
    let (mut r, sent) = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut number = 0_u32;
            // If the other threads fail, the stop signal never comes.
            let last = Instant::now() + 3 * PATIENCE;
            while !stop.load(Ordering::Relaxed) && Instant::now() < last {
                if seen.lock().unwrap().len() + UNDER_WAY > number as usize {
                    for family in families() {
                        let options: &[u8] = if family.a.is_ipv4() { &alerts.0 } else { &alerts.1 };
                        let payload = [GIST, &number.to_be_bytes()].concat();
                        send(&mut a, &Transmit { options, ..datagram(family.a, family.b, &payload) });
                        number += 1;
                    }
                }
                thread::sleep(Duration::from_micros(200));
            }
            number as usize
        });
        until("the host gets them", || see(&mut b).0 > 10);
        let reader = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                b.wait(Some(Duration::from_millis(20))).unwrap();
                see(&mut b);
            }
        });
        let mut r = Network::node(&net.r);
        let mut taken = 0;
        until("the node takes them", || {
            taken += see(&mut r).1;
            taken > 10
        });
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        (r, sender.join().unwrap())
    });
    let deadline = Instant::now() + PATIENCE;
    while see(&mut b).0.max(see(&mut r).0) < sent {
        let missing = || (0..sent as u32).filter(|n| !seen.lock().unwrap().contains(n)).collect::<Vec<_>>();
        assert!(Instant::now() < deadline, "of {sent} Queries these have not arrived: {:?}", missing());
        thread::sleep(Duration::from_millis(5));
    }
    r
}

#[test]
fn a_dead_daemon_leaves_traffic_to_the_kernel() {
    let net = Network::new("crashed");
    let before = footprint(&net.r);
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    let mut victim = net.r.spawn(&mut helper("daemon")).unwrap();
    until("the rules are laid", || {
        let laid = footprint(&net.r);
        laid.contains("table ip6 signalbox") && laid.matches("lookup 270").count() == 2
    });
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(footprint(&net.r).contains("tproxy"), "a killed daemon cannot clean up");

    let alerts = (router_alert_v4(0), router_alert_v6(0));
    let options = |v4: bool| -> &[u8] { if v4 { &alerts.0 } else { &alerts.1 } };
    for family in families() {
        let query = Transmit { options: options(family.a.is_ipv4()), ..datagram(family.a, family.b, GIST) };
        send(&mut a, &query);
        let got = receive_one(&mut b);
        assert_eq!((got.dst, got.ttl), ((family.b, 270).into(), 19), "forwarded without a daemon");
    }

    // A node without interception removes the rules.
    let io = Network::host(&net.r);
    assert_eq!(footprint(&net.r), before);
    drop(io);
    let mut victim = net.r.spawn(&mut helper("daemon")).unwrap();
    until("the rules are laid", || footprint(&net.r).matches("lookup 270").count() == 2);
    victim.kill().unwrap();
    victim.wait().unwrap();

    // The next node replaces what is left and removes it at its end.
    let mut r = Network::node(&net.r);
    for family in families() {
        let query = Transmit { options: options(family.a.is_ipv4()), ..datagram(family.a, family.b, GIST) };
        send(&mut a, &query);
        assert_eq!(receive_one(&mut r).ttl, 20);
    }
    net.r.run(|| r.close()).unwrap().unwrap();
    assert_eq!(footprint(&net.r), before);
}

/// O02: a rule without a preference stands before that of the interception until the daemon has seen it.
#[test]
fn the_policy_rule_is_put_before_those_of_others() {
    let net = Network::new("rank");
    let mut r = Network::node(&net.r);
    let judge = |r: &mut Io| net.r.run(|| r.judge_interception()).unwrap().unwrap();
    assert_eq!(judge(&mut r), Some(Judged::default()));
    for kind in ["-4", "-6"] {
        tool(&net.r, &format!("ip {kind} route add default dev rb table 77"));
        tool(&net.r, &format!("ip {kind} rule add not fwmark 77 lookup 77"));
    }
    let judged = judge(&mut r).unwrap();
    assert_eq!((judged.raised, judged.faults), (vec![("IPv4", 268), ("IPv6", 268)], vec![]));
    assert_eq!(judge(&mut r), Some(Judged::default()), "once");
    assert!(!tool(&net.r, "ip rule").contains("270:"), "the former rule is gone");
    net.r.run(|| r.close()).unwrap().unwrap();
    assert!(!tool(&net.r, "ip rule").contains("lookup 270"));

    // One that may not be the first says what is in the way.
    let config = IoConfig { keep_rule_first: false, rule_preference: 500, ..config() };
    let mut r = open(&net.r, &config);
    let faults = judge(&mut r).unwrap().faults;
    assert_eq!(faults.len(), 4, "{faults:?}");
    assert!(faults[0].contains("preference 269, not, fwmark 0x4d"), "{faults:?}");
    assert!(faults[1].contains("not led to this node"), "{faults:?}");
    for kind in ["-4", "-6"] {
        tool(&net.r, &format!("ip {kind} rule delete lookup 77"));
    }
    assert_eq!(judge(&mut r), Some(Judged::default()));
}
