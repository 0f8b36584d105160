//! The effect of enforcement on packets.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signalbox_core::packet::Transmit;
use signalbox_core::traffic::{Excess, FlowFilter, Reservation, ReservationId, Treatment};
use signalbox_linux::Io;
use signalbox_linux::netns::Namespace;
use signalbox_linux::topology;
use signalbox_linux::traffic::{Enforcer, TrafficConfig};

use crate::network::{
    Network, PATIENCE, bind, datagram, families, ip, prefix, receive_until, send, tool, until,
};
use crate::traffic::{config, ifindex, kernel_state, reservation};

const PORT: u16 = 5004;
/// Number of packets of a flow: so few that the buffer of a receiver that is not scheduled holds them all.
pub(crate) const PACKETS: usize = 150;
/// Octets of an IP packet of the flow.
const SIZE: usize = 528;

/// Opens an enforcer at `r` with the reservations that `reserve` makes.
pub(crate) fn enforcer(
    net: &Network,
    config: &TrafficConfig,
    reserve: impl FnOnce(&mut Enforcer) + Send,
) -> Enforcer {
    net.r
        .run(|| {
            let mut enforcer = Enforcer::open(config).unwrap_or_else(|error| panic!("{error}"));
            reserve(&mut enforcer);
            assert!(enforcer.flush().iter().all(|(_, result)| result.is_ok()));
            enforcer
        })
        .unwrap()
}

pub(crate) fn close(net: &Network, enforcer: Enforcer) {
    net.r.run(|| enforcer.close()).unwrap().unwrap();
}

/// A configuration in which port 270 belongs to an ordinary flow, not to signaling.
fn unsignaled() -> TrafficConfig {
    let mut config = config();
    config.links[0].signaling = 0;
    config
}

pub(crate) fn socket(namespace: &Namespace, port: u16) -> UdpSocket {
    bind(namespace, (Ipv4Addr::UNSPECIFIED, port).into())
}

/// The number of packets that arrive of a numbered flow, sent every 5 ms while `flood` sends as much as it can.
pub(crate) fn arrivals(net: &Network, flood: &AtomicBool) -> usize {
    let (from, to) = (socket(&net.a, 4000), socket(&net.b, PORT));
    to.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let sent = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..PACKETS {
                let mut packet = [0; SIZE - 28];
                packet[0] = number as u8;
                // A packet that is not sent does not arrive either.
                let _ = from.send_to(&packet, (ip("10.2.0.1"), PORT));
                std::thread::sleep(Duration::from_millis(5));
            }
            // The queue of best effort holds a tenth of a second. It empties without the flood.
            flood.store(false, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(500));
            sent.store(true, Ordering::Relaxed);
        });
        let (mut seen, mut buffer) = ([false; PACKETS], [0; 2048]);
        loop {
            match to.recv(&mut buffer) {
                Ok(_) => seen[usize::from(buffer[0])] = true,
                Err(_) if sent.load(Ordering::Relaxed) => {
                    return seen.into_iter().filter(|seen| *seen).count();
                }
                Err(_) => {}
            }
        }
    })
}

/// Packets dropped so far in the queues of best effort and of excess.
fn flood_dropped(net: &Network) -> u64 {
    let queues = tool(&net.r, "tc -s qdisc show dev rb");
    let dropped = |queue: &str| -> u64 {
        let (_, leaf) = queues.split_once(queue).unwrap();
        leaf.split_once("dropped ").unwrap().1.split(',').next().unwrap().parse().unwrap()
    };
    dropped("bfifo 5343:") + dropped("bfifo 5344:")
}

/// A guard that ends the flood, also when a test fails meanwhile.
struct Off<'a>(&'a AtomicBool);

impl Drop for Off<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Runs `work` under a flood of several times the link's rate, in bursts that the kernel's own queues hold.
pub(crate) fn with_flood<T>(net: &Network, work: impl FnOnce(&AtomicBool) -> T) -> T {
    let (from, _to) = (socket(&net.a, 4001), socket(&net.b, 9));
    let on = AtomicBool::new(true);
    let off = Off(&on);
    let before = flood_dropped(net);
    std::thread::scope(|scope| {
        let (off, on) = (off, &on);
        scope.spawn(|| {
            let packet = [0; 1400];
            while on.load(Ordering::Relaxed) {
                for _ in 0..40 {
                    // A full buffer of the sender does not matter.
                    let _ = from.send_to(&packet, (ip("10.2.0.1"), 9));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let deadline = Instant::now() + PATIENCE;
        while flood_dropped(net) == before && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let result = work(on);
        drop(off);
        assert!(flood_dropped(net) > before, "the flood did not fill the link");
        result
    })
}

pub(crate) fn protected(treatment: Treatment) -> impl FnOnce(&mut Enforcer) + Send {
    move |enforcer| {
        let mut reservation = Reservation { treatment, ..reservation(ifindex("rb"), PORT) };
        // Twice the rate that the flow needs, so that a delayed sender may catch up.
        reservation.traffic.rate = 220_000;
        reservation.traffic.burst = 50_000;
        enforcer.reserve(ReservationId(1), &reservation);
    }
}

/// RSVPIS-2211-4-02, RSVP-1.2-02: packets that match no filter are forwarded as best effort, and no reservation counts
/// them.
#[test]
fn a_reserved_flow_loses_nothing_under_a_flood() {
    let net = Network::new("flood");
    let before = kernel_state(&net.r);
    for ebpf in [true, false] {
        let mut enforcer =
            enforcer(&net, &TrafficConfig { ebpf, ..config() }, protected(Treatment::OwnQueue));
        assert_eq!(with_flood(&net, |on| arrivals(&net, on)), PACKETS, "eBPF {ebpf}");
        let statistics = enforcer.statistics(ReservationId(1)).unwrap().unwrap();
        assert_eq!((statistics.packets, statistics.policed_packets), (PACKETS as u64, 0));
        assert_eq!(statistics.octets, (PACKETS * SIZE) as u64);
        enforcer.release(ReservationId(1));
        enforcer.flush();
        let lossy = (0..5).any(|_| with_flood(&net, |on| arrivals(&net, on)) < PACKETS);
        assert!(lossy, "nothing was lost without a reservation: the flood proves nothing");
        close(&net, enforcer);
    }
    assert_eq!(kernel_state(&net.r), before);
}

#[test]
fn a_shared_class_protects_as_well() {
    let net = Network::new("shared");
    let shared = Treatment::Aggregate(signalbox_core::traffic::ServiceClass::ControlledLoad);
    let enforcer = enforcer(&net, &config(), protected(shared));
    assert_eq!(with_flood(&net, |on| arrivals(&net, on)), PACKETS);
    close(&net, enforcer);
}

/// The classifier passes of a burst far beyond the bucket never more than b + r·t, and never less than b; with a peak
/// rate never more than MPS + p·t either (QSPEC-3.3.1-08). Packets smaller than m count as m (QSPEC-3.3.1-09). All
/// packets beyond that are dropped (QSPEC-5.2.11-02, QSPEC-5.2.11-03). RSVPIS-2211-7-01, RSVPIS-2212-Policing-02,
/// RSVPIS-2215-3.6-04.
#[test]
fn excess_is_dropped_to_the_octet() {
    let net = Network::new("police");
    let mut enforcer = enforcer(&net, &config(), |enforcer| {
        enforcer.reserve(ReservationId(1), &reservation(ifindex("rb"), PORT));
        // Another reservation has a peak rate: one packet of the largest size at once, then 20 kB/s.
        let mut peak = reservation(ifindex("rb"), PORT + 1);
        peak.traffic.peak = Some(20_000);
        enforcer.reserve(ReservationId(2), &peak);
        // Small packets count as 400 octets; large ones never conform.
        let mut sizes = reservation(ifindex("rb"), PORT + 2);
        (sizes.traffic.min_policed, sizes.traffic.max_packet) = (400, 527);
        enforcer.reserve(ReservationId(3), &sizes);
    });
    let from = socket(&net.a, 4000);
    let to = [0, 1, 2].map(|more| socket(&net.b, PORT + more));
    for (id, port, length, counted) in
        [(1, PORT, SIZE, SIZE), (2, PORT + 1, SIZE, SIZE), (3, PORT + 2, SIZE, SIZE), (3, PORT + 2, 128, 400)]
    {
        let id = ReservationId(id);
        let before = enforcer.statistics(id).unwrap().unwrap();
        let start = Instant::now();
        for _ in 0..100 {
            from.send_to(&[0; 1500][..length - 28], (ip("10.2.0.1"), port)).unwrap();
        }
        let mut now = before;
        until("all packets are counted", || {
            now = enforcer.statistics(id).unwrap().unwrap();
            now.packets + now.policed_packets == before.packets + before.policed_packets + 100
        });
        let elapsed = start.elapsed().as_secs_f64();
        let (passed, octets) = (now.packets - before.packets, now.octets - before.octets);
        assert_eq!(octets, passed * length as u64);
        let policed = now.policed_octets.unwrap() - before.policed_octets.unwrap();
        assert_eq!(policed, (100 - passed) * length as u64);
        if (id.0, length) == (3, SIZE) {
            assert_eq!(passed, 0, "larger than the largest");
            continue;
        }
        let most = 5000.0 + 10_000.0 * elapsed;
        assert!((passed * counted as u64) as f64 <= most, "{passed} packets in {elapsed} s");
        if id.0 == 2 {
            let most = 1500.0 + 20_000.0 * elapsed;
            assert!(octets as f64 <= most, "{octets} octets in {elapsed} s");
            assert!(passed >= 2);
        } else {
            assert!(passed as usize >= 5000 / counted, "{passed} packets are less than the bucket");
        }
    }
    // The packets that were not dropped have arrived.
    to[0].set_read_timeout(Some(PATIENCE)).unwrap();
    let passed = enforcer.statistics(ReservationId(1)).unwrap().unwrap().packets;
    for _ in 0..passed {
        to[0].recv(&mut [0; 2048]).unwrap();
    }
    to[0].set_nonblocking(true).unwrap();
    assert!(to[0].recv(&mut [0; 2048]).is_err(), "more arrived than conformed");
    close(&net, enforcer);
}

/// Conforming packets are marked and keep their congestion bits. Where the configuration allows the others to pass,
/// they are not marked (RSVPIS-2212-Policing-02).
#[test]
fn what_conforms_is_marked_and_excess_is_best_effort() {
    let net = Network::new("mark");
    let mut enforcer = enforcer(&net, &unsignaled(), |enforcer| {
        for (number, family) in (1..).zip(families()) {
            let filter = FlowFilter {
                protocol: Some(17),
                src_port: Some(270),
                dst_port: Some(270),
                ..FlowFilter::between(
                    signalbox_core::node::Prefix::host(family.a),
                    signalbox_core::node::Prefix::host(family.b),
                )
            };
            let mut reservation = reservation(ifindex("rb"), 270);
            reservation.filters = vec![filter];
            reservation.mark_dscp = Some(46);
            reservation.excess = Excess::BestEffort;
            // Five packets conform, and no more within the day.
            (reservation.traffic.rate, reservation.traffic.burst) = (1, 5 * 128);
            reservation.traffic.min_policed = 128;
            enforcer.reserve(ReservationId(number), &reservation);
        }
    });
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    for (number, family) in (1..).zip(families()) {
        let headers = if family.a.is_ipv4() { 28 } else { 48 };
        let payload = vec![7; 128 - headers];
        for _ in 0..20 {
            send(&mut a, &Transmit { tos: 0b0010_1001, ..datagram(family.a, family.b, &payload) });
        }
        let got = receive_until(&mut b, |got| got.len() >= 20);
        let mut by_tos: BTreeMap<u8, usize> = BTreeMap::new();
        got.iter().for_each(|got| *by_tos.entry(got.tos).or_default() += 1);
        assert!(by_tos.into_iter().eq([(0b0010_1001, 15), (46 << 2 | 1, 5)]), "IPv4 {}", family.a.is_ipv4());
        assert!(got.iter().all(|got| got.payload == payload));
        let statistics = enforcer.statistics(ReservationId(number)).unwrap().unwrap();
        assert_eq!((statistics.packets, statistics.policed_packets), (5, 15));
        assert_eq!((statistics.octets, statistics.policed_octets), (5 * 128, Some(15 * 128)));
    }
    close(&net, enforcer);
}

/// Without eBPF, the kernel gives the packets of a reservation its code point too, and no others. They keep their congestion bits.
#[test]
fn without_ebpf_packets_are_marked() {
    let net = Network::new("nftmark");
    let before = kernel_state(&net.r);
    let config = TrafficConfig { ebpf: false, ..unsignaled() };
    let marked = |number: u64, dscp| {
        let family = &families()[usize::try_from(number).unwrap()];
        let mut reservation = reservation(ifindex("rb"), 270);
        reservation.filters = vec![FlowFilter {
            protocol: Some(17),
            dst_port: Some(270),
            ..FlowFilter::between(
                signalbox_core::node::Prefix::host(family.a),
                signalbox_core::node::Prefix::host(family.b),
            )
        }];
        reservation.mark_dscp = dscp;
        (ReservationId(number), reservation)
    };
    let mut enforcer = enforcer(&net, &config, |enforcer| {
        for number in [0, 1] {
            let (id, reservation) = marked(number, Some(46));
            enforcer.reserve(id, &reservation);
        }
    });
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    let packets = families().map(|family| datagram(family.a, family.b, b"packet"));
    let mut tos = |index: usize| tos_of(&mut a, &mut b, &Transmit { tos: 0b0010_1001, ..packets[index] });
    assert_eq!([tos(0), tos(1)], [46 << 2 | 1, 46 << 2 | 1]);
    // Another code point, then none, then no reservation.
    for dscp in [Some(10), None] {
        net.r
            .run(|| {
                let (id, reservation) = marked(0, dscp);
                enforcer.reserve(id, &reservation);
                assert_eq!(enforcer.flush(), [(id, Ok(()))]);
            })
            .unwrap();
        assert_eq!([tos(0), tos(1)], [dscp.map_or(0b0010_1001, |dscp| dscp << 2 | 1), 46 << 2 | 1]);
    }
    enforcer.release(ReservationId(1));
    enforcer.flush();
    assert_eq!(tos(1), 0b0010_1001);
    close(&net, enforcer);
    assert_eq!(kernel_state(&net.r), before);
}

fn tos_of(a: &mut Io, b: &mut Io, transmit: &Transmit<'_>) -> u8 {
    send(a, transmit);
    receive_until(b, |got| !got.is_empty())[0].tos
}

/// The mark shows which filter matched a packet.
#[test]
fn the_most_specific_filter_has_the_packet() {
    let net = Network::new("wild");
    // Hosts give their packets flow labels by default; here the packets have no label.
    topology::set_sysctl(&net.a, "net.ipv6.auto_flowlabels", "0").unwrap();
    let marked = |dscp, filter: FlowFilter| {
        let mut reservation = reservation(ifindex("rb"), 270);
        reservation.filters = vec![filter];
        reservation.mark_dscp = Some(dscp);
        reservation
    };
    let between = |src: &str, dst: &str| FlowFilter::between(prefix(src), prefix(dst));
    let mut enforcer = enforcer(&net, &unsignaled(), |enforcer| {
        let wanted = [
            marked(10, between("0.0.0.0/0", "10.2.0.0/16")),
            marked(11, FlowFilter { protocol: Some(17), ..between("10.1.0.0/24", "10.2.0.0/16") }),
            marked(
                12,
                FlowFilter { dscp: Some(8), protocol: Some(17), ..between("10.1.0.0/24", "10.2.0.0/16") },
            ),
            marked(
                13,
                FlowFilter {
                    dst_port: Some(270),
                    protocol: Some(17),
                    ..between("10.1.0.1/32", "10.2.0.1/32")
                },
            ),
            marked(14, between("fd01::/64", "::/0")),
            marked(15, FlowFilter { flow_label: Some(0), ..between("fd01::/64", "fd02::/64") }),
            // Filters that do not match the packets: another protocol, another port, another prefix.
            marked(20, FlowFilter { protocol: Some(6), ..between("10.1.0.1/32", "10.2.0.1/32") }),
            marked(
                21,
                FlowFilter {
                    dst_port: Some(271),
                    protocol: Some(17),
                    ..between("10.1.0.1/32", "10.2.0.1/32")
                },
            ),
            marked(22, between("10.1.0.128/25", "10.2.0.1/32")),
        ];
        for (number, reservation) in (0..).zip(&wanted) {
            enforcer.reserve(ReservationId(number), reservation);
        }
    });
    let (mut a, mut b) = (Network::host(&net.a), Network::host(&net.b));
    let [v4, v6] = families().map(|family| datagram(family.a, family.b, b"packet"));
    let steps: [(Option<u64>, u8, u8); 5] =
        [(None, 8, 13), (Some(3), 8, 12), (None, 0, 11), (Some(1), 0, 10), (Some(0), 0, 0)];
    for (released, dscp, mark) in steps {
        if let Some(released) = released {
            enforcer.release(ReservationId(released));
            enforcer.flush();
        }
        let tos = tos_of(&mut a, &mut b, &Transmit { tos: dscp << 2, ..v4 });
        assert_eq!(tos >> 2, mark, "after {released:?}, from DSCP {dscp}");
    }
    let mut seen = vec![tos_of(&mut a, &mut b, &v6) >> 2];
    enforcer.release(ReservationId(5));
    enforcer.flush();
    seen.push(tos_of(&mut a, &mut b, &v6) >> 2);
    // The classifier finds the ports behind a hop-by-hop header, too.
    let mut port = marked_v6(&net);
    port.mark_dscp = Some(16);
    enforcer.reserve(ReservationId(30), &port);
    enforcer.flush();
    let options = signalbox_core::packet::router_alert_v6(0);
    seen.push(tos_of(&mut a, &mut b, &Transmit { options: &options, ..v6 }) >> 2);
    // Two reservations have the same filter: the later one gets the packets, then the earlier one again.
    enforcer.reserve(ReservationId(31), &Reservation { mark_dscp: Some(17), ..port });
    enforcer.flush();
    seen.push(tos_of(&mut a, &mut b, &v6) >> 2);
    enforcer.release(ReservationId(31));
    enforcer.flush();
    seen.push(tos_of(&mut a, &mut b, &v6) >> 2);
    enforcer.release(ReservationId(30));
    enforcer.release(ReservationId(4));
    enforcer.flush();
    seen.push(tos_of(&mut a, &mut b, &v6) >> 2);
    assert_eq!(seen, [15, 14, 16, 17, 16, 0]);
    close(&net, enforcer);
}

fn marked_v6(net: &Network) -> Reservation {
    let mut reservation = reservation(net.r.run(|| ifindex("rb")).unwrap(), 270);
    reservation.filters = vec![FlowFilter {
        protocol: Some(17),
        dst_port: Some(270),
        ..FlowFilter::between(prefix("fd01::1/128"), prefix("fd02::1/128"))
    }];
    reservation
}

/// A change keeps the tokens that the flow has used, and several filters share one bucket.
#[test]
fn a_change_takes_effect_at_once_and_filters_share() {
    let net = Network::new("change");
    let slow = |filters: u16, rate, burst| {
        let mut reservation = reservation(ifindex("rb"), PORT);
        let base = reservation.filters[0];
        reservation.filters =
            (0..filters).map(|more| FlowFilter { dst_port: Some(PORT + more), ..base }).collect();
        (reservation.traffic.rate, reservation.traffic.burst) = (rate, burst);
        reservation
    };
    let id = ReservationId(1);
    let mut enforcer =
        enforcer(&net, &config(), |enforcer| enforcer.reserve(id, &slow(2, 1, 10 * SIZE as u32)));
    let from = socket(&net.a, 4000);
    let _to = [0, 1].map(|more| socket(&net.b, PORT + more));
    let mut sent = 0;
    let mut passed = |enforcer: &mut Enforcer, port, packets| {
        let before = enforcer.statistics(id).unwrap().unwrap();
        for _ in 0..packets {
            from.send_to(&[0; SIZE - 28], (ip("10.2.0.1"), port)).unwrap();
        }
        sent += packets;
        let mut now = before;
        until("all packets are counted", || {
            now = enforcer.statistics(id).unwrap().unwrap();
            now.packets + now.policed_packets == sent
        });
        now.packets - before.packets
    };
    assert_eq!(passed(&mut enforcer, PORT, 7), 7);
    assert_eq!(passed(&mut enforcer, PORT + 1, 7), 3);
    // A deeper bucket is not a full one; another filter uses the same bucket.
    let change = |enforcer: &mut Enforcer, filters, rate| {
        let reservation = net.r.run(|| slow(filters, rate, 100_000)).unwrap();
        enforcer.reserve(id, &reservation);
        assert_eq!(enforcer.flush(), [(id, Ok(()))]);
    };
    change(&mut enforcer, 1, 1);
    assert_eq!(passed(&mut enforcer, PORT, 5), 0);
    change(&mut enforcer, 1, 100_000_000);
    assert_eq!(passed(&mut enforcer, PORT, 5), 5);
    close(&net, enforcer);
}

/// Datagrams that leave as one bundle of segments count as the packets that they become on the wire.
#[test]
fn segments_count_as_packets() {
    let net = Network::new("segments");
    let mut enforcer = enforcer(&net, &unsignaled(), |enforcer| {
        let mut reservation = reservation(ifindex("rb"), 270);
        reservation.filters = [("10.2.0.2/32", "10.2.0.1/32"), ("fd02::2/128", "fd02::1/128")]
            .map(|(src, dst)| FlowFilter::between(prefix(src), prefix(dst)))
            .to_vec();
        for filter in &mut reservation.filters {
            filter.protocol = Some(17);
        }
        (reservation.traffic.rate, reservation.traffic.burst) = (1_000_000, 1_000_000);
        enforcer.reserve(ReservationId(1), &reservation);
    });
    let (mut r, mut b) = (Network::host(&net.r), Network::host(&net.b));
    let payload = [7; 1000];
    let mut expected = (0, 0);
    for (src, dst, size) in [("10.2.0.2", "10.2.0.1", 1028), ("fd02::2", "fd02::1", 1048)] {
        for _ in 0..20 {
            r.send(&datagram(ip(src), ip(dst), &payload));
        }
        assert_eq!(r.flush(), []);
        let got = receive_until(&mut b, |got| got.len() >= 20);
        assert!(got.iter().all(|got| got.payload == payload));
        expected = (expected.0 + 20, expected.1 + 20 * size);
        let now = enforcer.statistics(ReservationId(1)).unwrap().unwrap();
        assert_eq!((now.packets, now.octets, now.policed_packets), (expected.0, expected.1, 0));
    }
    close(&net, enforcer);
}
