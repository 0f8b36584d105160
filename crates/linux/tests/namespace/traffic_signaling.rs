//! The share of signaling at a link: its own share, and no more.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use signalbox_core::node::{StreamId, StreamKind};
use signalbox_core::packet::{Transmit, router_alert_v4, router_alert_v6};
use signalbox_linux::stream::{StreamBuffer, StreamEvent};
use signalbox_linux::traffic::{LinkConfig, TrafficConfig};
use signalbox_linux::{Io, IoConfig};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::network::config as gist_config;
use crate::network::{
    GIST, Network, PATIENCE, datagram, families, ip, open, receive_until, send, tool, until,
};
use crate::traffic::{RATE, config, kernel_state};
use crate::traffic_flows::{close, enforcer, socket, with_flood};

const OWN: &str = "3";
const PASSING: &str = "4";

/// The packets and octets that a class at `r` has sent.
fn sent(net: &Network, class: &str) -> (u64, u64) {
    let text = tool(&net.r, &format!("tc -s class show dev rb classid 5342:{class}"));
    let mut words = text.split_once("Sent ").unwrap().1.split(' ').filter_map(|word| word.parse().ok());
    let octets = words.next().unwrap();
    (words.next().unwrap(), octets)
}

/// A datagram with an alert, like that of a Query.
fn alerted<'a>(src: IpAddr, dst: IpAddr, options: &'a [u8]) -> Transmit<'a> {
    Transmit { options, ..datagram(src, dst, GIST) }
}

/// Under a flood that fills the link, the node's own messages arrive, and signaling that passes by as well.
#[test]
fn signaling_gets_through_a_flood() {
    let net = Network::new("signaling");
    let before = kernel_state(&net.r);
    let here = families().map(|family| if family.a.is_ipv4() { ip("10.2.0.2") } else { ip("fd02::2") });
    let (v4, v6) = (router_alert_v4(0), router_alert_v6(0));
    for ebpf in [true, false] {
        let enforcer = enforcer(&net, &TrafficConfig { ebpf, ..config() }, |_| {});
        let (mut a, mut r, mut b) = (Network::host(&net.a), Network::host(&net.r), Network::host(&net.b));
        // The neighbors resolve each other's addresses before the flood.
        for (family, here) in families().into_iter().zip(here) {
            send(&mut r, &datagram(here, family.b, GIST));
            send(&mut a, &datagram(family.a, family.b, GIST));
        }
        receive_until(&mut b, |got| got.len() >= 4);
        let (own, passing) = (sent(&net, OWN).0, sent(&net, PASSING).0);
        with_flood(&net, |_| {
            for ((family, here), alert) in families().into_iter().zip(here).zip([&v4[..], &v6]) {
                for _ in 0..10 {
                    send(&mut r, &datagram(here, family.b, GIST));
                    send(&mut r, &alerted(family.a, family.b, alert));
                    send(&mut a, &datagram(family.a, family.b, GIST));
                    send(&mut a, &alerted(family.a, family.b, alert));
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            let got = receive_until(&mut b, |got| got.len() >= 80);
            assert_eq!(got.len(), 80, "eBPF {ebpf}");
        });
        // The kernel may have sent neighbor discovery besides.
        assert_eq!(sent(&net, OWN).0, own + 40, "eBPF {ebpf}");
        assert!(sent(&net, PASSING).0 >= passing + 40, "eBPF {ebpf}");
        close(&net, enforcer);
    }
    assert_eq!(kernel_state(&net.r), before);
}

/// A flood to the signaling port gets the bucket of signaling that passes by, and not the share of the node itself.
#[test]
fn the_port_is_no_way_around_best_effort() {
    let net = Network::new("liar");
    for ebpf in [true, false] {
        let enforcer = enforcer(&net, &TrafficConfig { ebpf, ..config() }, |_| {});
        let (liar, _to) = (socket(&net.a, 4003), socket(&net.b, 9));
        let (mut r, mut b) = (Network::host(&net.r), Network::host(&net.b));
        let (_, octets) = sent(&net, PASSING);
        let start = Instant::now();
        for _ in 0..100 {
            liar.send_to(&[0; 1000], (ip("10.2.0.1"), 270)).unwrap();
        }
        for _ in 0..20 {
            send(&mut r, &datagram(ip("10.2.0.2"), ip("10.2.0.1"), GIST));
        }
        // The node's own packets come first, whatever number of the others waits.
        let ours = |src: IpAddr| src == ip("10.2.0.2");
        receive_until(&mut b, |got| got.iter().filter(|got| ours(got.src.ip())).count() == 20);
        let passed = || sent(&net, PASSING).1 - octets;
        until("the bucket has passed", || passed() >= 15_000);
        let passed = passed();
        // A quarter of 2 %, and 16,000 octets at first; neighbors have the same.
        let most = 2.0 * (16_000.0 + start.elapsed().as_secs_f64() * RATE as f64 / 200.0);
        assert!((passed as f64) < most, "eBPF {ebpf}: {passed} octets");
        close(&net, enforcer);
    }
}

/// Associations have the mark, the accepted ones, too. RSVP that passes by goes in the class of passing signaling,
/// which has a share of its own (RSVP-2.3-08). Without a share there is no class.
#[test]
fn associations_and_rsvp_are_signaling() {
    let net = Network::new("kinds");
    let running = enforcer(&net, &config(), |_| {});
    let plain = || IoConfig { intercept: false, ..gist_config() };
    let (mut r, mut b) = (open(&net.r, &plain()), open(&net.b, &plain()));
    let (before, _) = sent(&net, OWN);
    for (namespace, io) in [(&net.r, &mut r), (&net.b, &mut b)] {
        namespace.run(|| io.streams().listen(StreamKind::Tcp, 7000)).unwrap().unwrap();
    }
    for (namespace, io, from, to) in
        [(&net.r, &mut r, "10.2.0.2", "10.2.0.1"), (&net.b, &mut b, "10.2.0.1", "10.2.0.2")]
    {
        namespace
            .run(|| io.streams().open(StreamId(1), StreamKind::Tcp, ip(from), (ip(to), 7000).into()))
            .unwrap();
    }
    let mut buffer = StreamBuffer::new();
    let (mut ends, deadline) = (0, Instant::now() + PATIENCE);
    let mut turn = |io: &mut Io| {
        io.wait(Some(Duration::from_millis(5))).unwrap();
        let mut fresh = 0;
        while let Some(event) = io.streams().next_event(&mut buffer).unwrap() {
            fresh +=
                usize::from(matches!(event, StreamEvent::Accepted { .. } | StreamEvent::Connected { .. }));
        }
        fresh
    };
    while ends < 4 {
        assert!(Instant::now() < deadline, "{ends} of 4 ends of associations stand");
        ends += turn(&mut r) + turn(&mut b);
    }
    // SYN and the last packet of the handshake of the one, SYN and ACK of the other.
    until("the handshakes are counted", || sent(&net, OWN).0 >= before + 3);

    let raw = net.a.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(46)))).unwrap().unwrap();
    let to = SockAddr::from(std::net::SocketAddr::new(ip("10.2.0.1"), 0));
    let (before, _) = sent(&net, PASSING);
    for _ in 0..10 {
        raw.send_to(&[0x10; 64], &to).unwrap();
    }
    until("RSVP has passed", || sent(&net, PASSING).0 >= before + 10);
    close(&net, running);

    let none = LinkConfig { signaling: 0, ..config().links.remove(0) };
    let running = enforcer(&net, &TrafficConfig { links: vec![none], ..config() }, |_| {});
    send(&mut r, &datagram(ip("10.2.0.2"), ip("10.2.0.1"), GIST));
    receive_until(&mut b, |got| !got.is_empty());
    assert_eq!((sent(&net, OWN).0, sent(&net, PASSING).0), (0, 0));
    close(&net, running);
}

/// A next hop whose address is not resolved is found while a flood fills the link.
#[test]
fn neighbors_are_found_in_a_flood() {
    let net = Network::new("neighbors");
    let enforcer = enforcer(&net, &config(), |_| {});
    let (mut r, mut b) = (Network::host(&net.r), Network::host(&net.b));
    with_flood(&net, |_| {
        for (src, dst) in [("10.2.0.2", "10.2.0.1"), ("fd02::2", "fd02::1")] {
            let (before, _) = sent(&net, PASSING);
            // The flood needs the same next hop.
            tool(&net.r, &format!("ip neighbor replace {dst} dev rb nud none"));
            send(&mut r, &datagram(ip(src), ip(dst), GIST));
            receive_until(&mut b, |got| !got.is_empty());
            assert!(sent(&net, PASSING).0 > before, "{dst} was not looked for");
        }
    });
    close(&net, enforcer);
}
