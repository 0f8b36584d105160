//! The octets on the wire, read by an independent parser.

use std::time::{Duration, Instant};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use signalbox_core::metrics::Subsystem;
use signalbox_core::node::TransmitError;
use signalbox_core::packet::{Transmit, router_alert_v4, router_alert_v6};
use signalbox_core::{Entry, EntryRequest, IfIndex};
use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::{Batch, Io, IoConfig, topology};

use crate::network::{
    GIST, Got, Network, PATIENCE, counter, datagram, failures, families, gist, ip, open, receive_one,
    receive_until, send, until,
};

/// The first captured frame that holds a UDP datagram with `payload`.
fn frame_with(capture: &mut Capture, payload: &[u8]) -> Vec<u8> {
    let deadline = Instant::now() + PATIENCE;
    let mut found = None;
    while found.is_none() {
        assert!(Instant::now() < deadline, "no frame with {payload:?}");
        let each = |frame: signalbox_linux::capture::Frame<'_>| {
            assert!(frame.timestamp > Duration::from_secs(1_600_000_000));
            if frame.octets.ends_with(payload) {
                found.get_or_insert_with(|| frame.octets.to_vec());
            }
        };
        capture.read(Duration::from_millis(100), each).unwrap();
    }
    found.unwrap()
}

/// Asserts that the frame has the fields of `sent`, with correct checksums.
fn assert_on_wire(octets: &[u8], sent: &Transmit<'_>) {
    let parsed = SlicedPacket::from_ethernet(octets).unwrap();
    let Some(TransportSlice::Udp(udp)) = &parsed.transport else { panic!("no UDP: {octets:02x?}") };
    let ports = (udp.source_port(), udp.destination_port());
    assert_eq!(ports, (sent.src.port(), sent.dst.port()));
    assert_eq!(udp.payload(), sent.payload);
    match &parsed.net {
        Some(NetSlice::Ipv4(v4)) => {
            let header = v4.header();
            assert_eq!((header.source_addr(), header.destination_addr()).0, sent.src.ip());
            assert_eq!(header.destination_addr(), sent.dst.ip());
            assert_eq!(header.ttl(), sent.ttl);
            assert_eq!((header.dcp().value() << 2) | header.ecn().value(), sent.tos);
            assert_eq!((header.options(), header.dont_fragment()), (sent.options, sent.dont_fragment));
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            let right = udp.to_header().calc_checksum_ipv4(&header.to_header(), sent.payload).unwrap();
            assert_eq!(udp.checksum(), right);
        }
        Some(NetSlice::Ipv6(v6)) => {
            let header = v6.header();
            assert_eq!(header.source_addr(), sent.src.ip());
            assert_eq!(header.destination_addr(), sent.dst.ip());
            assert_eq!((header.hop_limit(), header.traffic_class()), (sent.ttl, sent.tos));
            let label = header.flow_label().value();
            assert!(sent.flow_label == 0 || label == sent.flow_label, "{label:x}");
            let extensions = v6.extensions().slice();
            assert_eq!(extensions, sent.options);
            let right = udp.to_header().calc_checksum_ipv6(&header.to_header(), sent.payload).unwrap();
            assert_eq!(udp.checksum(), right);
        }
        other => panic!("no IP: {other:?}"),
    }
}

/// Datagrams to addresses that no node has wait for a link-layer address. If they go to somebody who has proved nothing, or
/// are Queries to the end of a flow, they fill no buffer that others need.
#[test]
fn datagrams_to_missing_hosts_delay_no_others() {
    let net = Network::new("missing");
    net.wait_for_missing_hosts();
    let mut r = Network::node(&net.r);
    let mut b = Network::host(&net.b);
    for (family, own) in families().into_iter().zip(["10.2.0.2", "fd02::2"]) {
        let missing = |number: u32| match family.b {
            std::net::IpAddr::V4(b) => {
                std::net::IpAddr::V4((b.to_bits() & !0xff | (3 + number % 250)).into())
            }
            std::net::IpAddr::V6(b) => {
                std::net::IpAddr::V6((b.to_bits() & !0xffff | u128::from(256 + number % 250)).into())
            }
        };
        let (v4, v6) = (router_alert_v4(0), router_alert_v6(0));
        let alert: &[u8] = if family.b.is_ipv4() { &v4 } else { &v6 };
        for (unproved, options) in [(true, &[][..]), (false, alert)] {
            let before = counter(&r, "send_overflow");
            for round in 0..30_u8 {
                for number in 0..1000 {
                    r.send(&Transmit { unproved, options, ..datagram(ip(own), missing(number), GIST) });
                }
                let payload = [GIST, &[round]].concat();
                r.send(&datagram(ip(own), family.b, &payload));
                r.flush();
                assert_eq!(receive_one(&mut b).payload, payload);
            }
            assert!(counter(&r, "send_overflow") > before, "the buffer was not full");
        }
    }
}

/// GIST-5.3.2.1-07, GIST-5.3.2.1-08, GIST-5.3.2.2-02, GIST-5.8.1.2-03, GIST-5.8.1.2-05: the octets on the wire are the
/// requested ones, DSCP and flow label of the flow included.
#[test]
fn queries_leave_with_their_flows_source_alert_and_whole_checksum() {
    let net = Network::new("wire");
    let mut r = Network::node(&net.r);
    let mut capture = Capture::open(&net.r, "rb", CaptureConfig::default()).unwrap();
    let (v4, v6) = (router_alert_v4(2), router_alert_v6(2));
    let cases = families().into_iter().flat_map(|family| {
        let options: &[u8] = if family.a.is_ipv4() { &v4 } else { &v6 };
        // Packets as GIST originates them, forwarded packets of another implementation, and plain ones.
        [
            (270, true, options),
            (4711, true, options),
            (270, false, options),
            (270, false, &[]),
            (9, false, &[]),
        ]
        .into_iter()
        .flat_map(move |case| [false, true].map(|unproved| (family, case, unproved)))
    });
    for (number, (family, (port, dont_fragment, options), unproved)) in (1_u8..).zip(cases) {
        let payload = [GIST, &[number]].concat(); // also of odd length
        let query = Transmit {
            src: (family.a, port).into(), // a's address, not ours
            ttl: 10 + number,
            tos: 0x28,
            dont_fragment,
            flow_label: if dont_fragment { 0xa_bcde } else { 0 },
            unproved,
            options,
            ..datagram(family.a, family.b, &payload)
        };
        send(&mut r, &query);
        assert_on_wire(&frame_with(&mut capture, &payload), &query);
    }
}

#[test]
fn the_kernel_chooses_the_source_where_none_is_given() {
    let net = Network::new("src");
    let (mut r, mut b) = (Network::node(&net.r), Network::host(&net.b));
    for (family, (unspecified, own)) in
        families().into_iter().zip([("0.0.0.0", "10.2.0.2"), ("::", "fd02::2")])
    {
        for port in [270, 4711] {
            let unspecified =
                Transmit { src: (ip(unspecified), port).into(), ..datagram(family.a, family.b, b"whose?") };
            send(&mut r, &unspecified);
            assert_eq!(receive_one(&mut b).src, (ip(own), port).into());
        }
    }
}

#[test]
fn an_interface_that_is_given_is_taken_against_the_routing_table() {
    let net = Network::new("oif");
    let mut r = Network::node(&net.r);
    let mut capture = Capture::open(&net.r, "ra", CaptureConfig::default()).unwrap();
    let ra = r.interfaces().iter().find(|i| i.name == "ra").unwrap().ifindex;
    // The neighbor must be resolved, or the packet never leaves: the far end is a's own address.
    for (family, far) in families().into_iter().zip(["10.1.0.1", "fd01::1"]) {
        for (port, payload) in [(270, b"udp socket"), (99, b"raw socket")] {
            let out = Transmit {
                src: (family.b, port).into(),
                ifindex: Some(ra),
                ..datagram(family.b, ip(far), payload)
            };
            send(&mut r, &out);
            assert_on_wire(&frame_with(&mut capture, payload), &out);
        }
        let nowhere = Transmit { ifindex: Some(IfIndex(9999)), ..datagram(family.b, ip(far), b"x") };
        r.send(&nowhere);
        let failures = r.flush();
        assert_eq!(failures.first().map(|f| f.dst), Some(ip(far)), "{failures:?}");
    }
}

#[test]
fn runs_to_one_peer_arrive_as_datagrams() {
    let net = Network::new("runs");
    let (mut r, mut b) = (Network::node(&net.r), Network::host(&net.b));
    let payloads: Vec<Vec<u8>> = (0..200_u8)
        .map(|n| vec![n; if n == 199 { 40 } else { 150 }])
        .chain((0..5_u8).map(|n| vec![n; 100 + usize::from(n)]))
        .collect();
    for (family, own) in families().into_iter().zip(["10.2.0.2", "fd02::2"]) {
        let counters = |r: &Io| ["sent", "sent_segmented", "send_calls"].map(|name| counter(r, name));
        let before = counters(&r);
        for payload in &payloads {
            r.send(&datagram(ip(own), family.b, payload));
        }
        assert_eq!(r.flush(), []);
        let got = receive_until(&mut b, |got| got.len() == payloads.len());
        let arrived: Vec<_> = got.iter().map(|got| got.payload.clone()).collect();
        assert_eq!(arrived, payloads);
        assert!(got.iter().all(|got| got.ttl == 20 && got.src == (ip(own), 270).into()));
        let after = counters(&r);
        assert_eq!(after[0] - before[0], payloads.len() as u64);
        assert!(after[1] - before[1] >= 200);
        assert!(after[2] - before[2] < 5, "{after:?}");
    }
}

#[test]
fn what_cannot_be_sent_is_reported_and_the_rest_goes() {
    let net = Network::new("fail");
    let (mut r, mut b) = (Network::node(&net.r), Network::host(&net.b));
    let large = vec![7; 1600];
    let families = families();
    topology::nft(
        &net.r,
        "table ip sbxt { chain out { type filter hook output priority 0; ip daddr 10.2.0.9 drop\n}\n}\n",
    )
    .unwrap();
    for family in families {
        let too_big = Transmit { dont_fragment: true, ..datagram(family.a, family.b, &large) };
        r.send(&too_big);
        r.send(&Transmit { payload: &large[..1590], ..too_big });
        r.send(&Transmit { src: (family.a, 9).into(), ..too_big });
        r.send(&datagram(family.a, family.b, b"small"));
        assert_eq!(failures(&mut r), [(family.b, TransmitError::TooBig(Some(1500))); 3]);
        assert_eq!(receive_one(&mut b).payload, b"small");
        // Without DF it leaves in fragments, and alone, although it was queued in a run.
        for _ in 0..3 {
            r.send(&datagram(family.a, family.b, &large));
        }
        assert_eq!(r.flush(), []);
        let got = receive_until(&mut b, |got| got.len() == 3);
        assert!(got.iter().all(|got| got.payload == large));
    }
    for unreachable in ["192.0.2.1", "2001:db8::1"] {
        let src = if unreachable.contains(':') { families[1].a } else { families[0].a };
        r.send(&datagram(src, ip(unreachable), b"x"));
        assert_eq!(failures(&mut r), [(ip(unreachable), TransmitError::Unreachable)]);
    }
    r.send(&datagram(families[0].a, ip("10.2.0.9"), b"x"));
    assert_eq!(failures(&mut r), [(ip("10.2.0.9"), TransmitError::Other)]);
    r.send(&datagram(families[0].a, families[1].b, b"two families"));
    assert_eq!(failures(&mut r), [(families[1].b, TransmitError::Other)]);
    assert_eq!(counter(&r, "send_overflow"), 0);
}

#[test]
fn another_thread_ends_the_wait() {
    let net = Network::new("wake");
    let mut r = Network::node(&net.r);
    let waker = r.waker();
    let thread = std::thread::spawn(move || waker.wake());
    // Addresses that become usable may end the wait before.
    while !r.wait(Some(PATIENCE)).unwrap().woken {
        r.changes();
    }
    thread.join().unwrap();
    assert!(!r.wait(Some(Duration::ZERO)).unwrap().woken);
}

/// What ICMP reports about a datagram that left by a raw socket, with a Router Alert, comes back with the datagram's payload. An
/// entry that does not ask for reports has none.
#[test]
fn reports_of_undeliverable_datagrams_arrive() {
    const PORT: u16 = 50004;
    let net = Network::new("reports");
    let entry = EntryRequest::local(Entry::Udp(PORT), Subsystem::protocol("scout"));
    let asks = EntryRequest { reports: true, ..entry };
    let mut a = open(&net.a, &IoConfig { entries: vec![asks, gist()], ..IoConfig::default() });
    let (v4, v6) = (router_alert_v4(0), router_alert_v6(0));
    for family in families() {
        let options: &[u8] = if family.a.is_ipv4() { &v4 } else { &v6 };
        let port = |address| std::net::SocketAddr::new(address, PORT);
        let payload = b"the payload of a request, which a report quotes";
        let (src, dst) = (port(family.a), port(family.b));
        let request = Transmit { entry: Entry::Udp(PORT), src, dst, ..datagram(family.a, family.b, payload) };
        // b has no socket at the port.
        send(&mut a, &datagram(family.a, family.b, GIST));
        send(&mut a, &Transmit { unproved: true, options, ..request });
        let (mut batch, mut reports) = (Batch::new(), Vec::new());
        let deadline = Instant::now() + PATIENCE;
        while reports.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no report: {}", family.b);
            a.wait(Some(left)).unwrap();
            a.receive(&mut batch).unwrap();
            reports = a.take_undeliverable();
        }
        let [report] = &reports[..] else { panic!("{reports:?}") };
        assert_eq!((report.entry, report.dst), (Entry::Udp(PORT), family.b));
        assert_eq!(report.quoted, payload);
    }
}

/// A Query goes to the next hop of its flow, which a rule on ports may have chosen.
#[test]
fn a_query_goes_to_the_next_hop_of_its_flow() {
    let net = Network::new("bygate");
    queries_go_to_the_next_hop(&net, &mut Network::node(&net.r));
}

/// The driver sends Queries from the router to destinations behind `b`, to which the router has no route.
pub(crate) fn queries_go_to_the_next_hop(net: &Network, r: &mut Io) {
    let mut b = Network::host(&net.b);
    topology::set_sysctl(&net.b, "net.ipv4.conf.all.arp_ignore", "1").unwrap();
    let rb = r.interfaces().iter().find(|interface| interface.name == "rb").unwrap().ifindex;
    for (family, prefix) in families().into_iter().zip(["192.0.2.", "2001:db8::"]) {
        let (length, options): (_, &[u8]) =
            if family.a.is_ipv4() { (32, &router_alert_v4(0)) } else { (128, &router_alert_v6(0)) };
        let (ifindex, gateway) = (Some(rb), Some(family.b));
        for (nth, (options, unproved)) in
            [(options, false), (options, true), (&[], false)].into_iter().enumerate()
        {
            // Each has a destination of its own: copies of the one before may arrive late.
            let far = ip(&format!("{prefix}{}", 5 + nth));
            topology::add_address(&net.b, "lo", far, length).unwrap();
            let query = Transmit { ifindex, gateway, options, unproved, ..datagram(family.a, far, GIST) };
            let mut got = Vec::new();
            // A packet can be lost while the link-layer address of the next hop is not known.
            until("the Query arrives", || {
                send(r, &query);
                b.wait(Some(Duration::from_secs(1))).unwrap();
                let mut batch = Batch::new();
                b.receive(&mut batch).unwrap();
                got.extend(batch.iter().map(Got::from).filter(|got| got.dst.ip() == far));
                !got.is_empty()
            });
            for got in got {
                assert_eq!((got.src.ip(), &got.payload[..]), (family.a, GIST));
            }
        }
    }
}
