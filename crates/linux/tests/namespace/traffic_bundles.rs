//! Bundles of segments, which the kernel divides behind the queues: generic segmentation (GSO) of UDP and TCP.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use signalbox_core::packet::Transmit;
use signalbox_core::traffic::{FlowFilter, ReservationId};
use signalbox_linux::Io;
use signalbox_linux::topology;
use signalbox_linux::traffic::{Enforcer, LinkConfig, TrafficConfig};

use crate::network::{Network, datagram, ip, prefix, receive_until, tool};
use crate::traffic::{RATE, config, ifindex, reservation};
use crate::traffic_flows::{close, enforcer};

/// The octets of IPv4 and UDP.
const HEADERS: u32 = 28;

/// A reservation of the flow from `r` to `b`, of packets of this length at most.
fn reserve(enforcer: &mut Enforcer, rate: u64, burst: u32, max_packet: u32) {
    let mut reservation = reservation(ifindex("rb"), 270);
    reservation.filters = vec![FlowFilter {
        protocol: Some(17),
        ..FlowFilter::between(prefix("10.2.0.2/32"), prefix("10.2.0.1/32"))
    }];
    (reservation.traffic.rate, reservation.traffic.burst) = (rate, burst);
    reservation.traffic.max_packet = max_packet;
    enforcer.reserve(ReservationId(1), &reservation);
}

fn unsignaled(rate: u64) -> TrafficConfig {
    let link = LinkConfig { classes: 50, signaling: 0, ..LinkConfig::new("rb", rate) };
    TrafficConfig { links: vec![link], ..config() }
}

/// Sends datagrams of these lengths at once: all but the last one are equally long, so they leave as one bundle.
fn bundle(r: &mut Io, lengths: &[usize]) {
    let payload = [7; 1400];
    for length in lengths {
        let transmit: Transmit<'_> = datagram(ip("10.2.0.2"), ip("10.2.0.1"), &payload[..*length]);
        r.send(&transmit);
    }
    assert_eq!(r.flush(), []);
}

fn counted(enforcer: &mut Enforcer) -> (u64, u64) {
    let now = enforcer.statistics(ReservationId(1)).unwrap().unwrap();
    (now.packets, now.policed_packets)
}

/// A bundle is longer than the MTU, than the longest packet of the reservation and than its bucket. It conforms if its packets do and the bucket
/// is full; what it takes too much the following ones lack.
#[test]
fn a_bundle_conforms_as_its_packets_do() {
    let net = Network::new("bundle");
    let mut enforcer =
        enforcer(&net, &unsignaled(RATE), |enforcer| reserve(enforcer, 1, 5000, 1000 + HEADERS));
    let (mut r, mut b) = (Network::host(&net.r), Network::host(&net.b));
    bundle(&mut r, &[1000; 20]);
    assert_eq!(receive_until(&mut b, |got| got.len() >= 20).len(), 20);
    assert_eq!(counted(&mut enforcer), (20, 0));
    bundle(&mut r, &[1000; 20]);
    assert_eq!(counted(&mut enforcer), (20, 20));
    close(&net, enforcer);
}

/// The longest packet of a bundle counts, not the mean of all.
#[test]
fn a_bundle_of_packets_that_are_too_long_does_not_conform() {
    let net = Network::new("longest");
    let mut enforcer =
        enforcer(&net, &unsignaled(RATE), |enforcer| reserve(enforcer, 1, 1_000_000, 999 + HEADERS));
    let mut r = Network::host(&net.r);
    bundle(&mut r, &[1000, 1000, 10]);
    assert_eq!(counted(&mut enforcer), (0, 3));
    bundle(&mut r, &[999, 999, 10]);
    assert_eq!(counted(&mut enforcer), (3, 3));
    close(&net, enforcer);
}

/// The queue of best effort of a slow link has room for a whole bundle.
#[test]
fn a_slow_link_passes_a_bundle() {
    let net = Network::new("slow");
    let enforcer = enforcer(&net, &unsignaled(125_000), |_| {});
    let (mut r, mut b) = (Network::host(&net.r), Network::host(&net.b));
    bundle(&mut r, &[1000; 45]);
    assert_eq!(receive_until(&mut b, |got| got.len() >= 45).len(), 45);
    close(&net, enforcer);
}

/// A number of `ss -ti`.
fn of_socket(shown: &str, name: &str) -> u64 {
    let (_, rest) = shown.split_once(name).unwrap_or_else(|| panic!("{name} in {shown}"));
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// The segments of TCP count with all their headers, which have options.
#[test]
fn segments_of_tcp_count_as_on_the_wire() {
    const OCTETS: usize = 400_000;
    let net = Network::new("tcp");
    // Unlike the links of the network this one bundles segments.
    topology::create_veth(&net.r, "rc", &net.b, "b1").unwrap();
    for (namespace, name, address) in [(&net.r, "rc", "10.3.0.2"), (&net.b, "b1", "10.3.0.1")] {
        topology::add_address(namespace, name, ip(address), 24).unwrap();
        topology::set_up(namespace, name, true).unwrap();
    }
    let link = LinkConfig { classes: 50, ..LinkConfig::new("rc", RATE) };
    let mut enforcer = enforcer(&net, &TrafficConfig { links: vec![link], ..config() }, |enforcer| {
        let mut reservation = reservation(ifindex("rc"), 270);
        let flow = FlowFilter::between(prefix("10.3.0.2/32"), prefix("10.3.0.1/32"));
        reservation.filters = vec![FlowFilter { protocol: Some(6), ..flow }];
        (reservation.traffic.rate, reservation.traffic.burst) = (RATE / 2, 1_000_000);
        enforcer.reserve(ReservationId(1), &reservation);
    });
    let listener = net.b.run(|| TcpListener::bind("10.3.0.1:5004").unwrap()).unwrap();
    let mut sender = net.r.run(|| TcpStream::connect("10.3.0.1:5004").unwrap()).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.write_all(&vec![7; OCTETS]).unwrap());
        receiver.read_exact(&mut vec![0; OCTETS]).unwrap();
    });
    let shown = tool(&net.r, "ss -Htin dst 10.3.0.1");
    let (segments, sent) = (of_socket(&shown, "segs_out:"), of_socket(&shown, "bytes_sent:"));
    let now = enforcer.statistics(ReservationId(1)).unwrap().unwrap();
    // The first segment has 20 octets of options, the others have 12.
    assert_eq!((now.packets, now.policed_packets), (segments, 0));
    assert_eq!(now.octets, sent + 52 * segments + 8);
    close(&net, enforcer);
}
