//! The cost of many pinholes: to open them, and for each packet.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use signalbox_core::pinhole::{OpenerId, Pinhole};
use signalbox_linux::pinhole::{PinholeConfig, Pinholes};
use signalbox_linux::topology;

use crate::network::{Network, ip};
use crate::pinhole::{DEFAULT_DROP, LONG, UDP, at, enforcer, flow};

const FEW: u16 = 10;
const MANY: u16 = 50_000;
/// The first port of the flows.
const PORT: u16 = 10_000;
/// Number of packets of one measurement: so few that it may have the processor to itself.
const PACKETS: u16 = 1000;
const REPEATS: u16 = 100;

/// Opens the pinholes of these ports, in portions as a busy daemon does.
fn fill(pinholes: &mut Pinholes, ports: std::ops::Range<u16>) -> Duration {
    let start = Instant::now();
    for first in ports.clone().step_by(100) {
        for port in first..ports.end.min(first + 100) {
            let packets = flow(UDP, at(ip("10.1.0.1"), 4000), at(ip("10.2.0.1"), PORT + port));
            pinholes.request(OpenerId::NATFW.pinhole(port.into()), Pinhole::allow(packets), LONG);
        }
        let results = pinholes.flush();
        assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    }
    start.elapsed()
}

/// The time of a packet's whole path from host to host, of some flows in turn: the best of many runs.
fn way(socket: &UdpSocket, flows: u16) -> Duration {
    let packet = [0; 122];
    let run = |first: u16| {
        let start = Instant::now();
        for number in 0..PACKETS {
            let port = PORT + (u32::from(first) * u32::from(PACKETS) + u32::from(number)) as u16 % flows;
            socket.send_to(&packet, (ip("10.2.0.1"), port)).unwrap();
        }
        start.elapsed()
    };
    (0..REPEATS).map(run).min().unwrap() / PACKETS.into()
}

/// A packet passes 50,000 pinholes without a walk over them, which would take a hundred times as long. Other programs may use the machine
/// meanwhile; the scenario `natfw-many` compares the times more closely.
#[test]
fn many_pinholes_cost_a_packet_little_more() {
    let net = Network::new("many");
    topology::nft(&net.r, DEFAULT_DROP).unwrap();
    // The far end drops the packets before its kernel answers that the port is closed.
    let rules = "table ip away {\n chain in {\n type filter hook prerouting priority raw\n udp dport 10000-65535 drop\n }\n}\n";
    topology::nft(&net.b, rules).unwrap();
    let Some(mut pinholes) = enforcer(&net, &PinholeConfig::default()) else { return };
    // On a busy machine flows without answer would reach their timeout of 30 s before their pinholes are closed.
    let timeout = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout";
    net.r.run(|| std::fs::write(timeout, "600")).unwrap().unwrap();
    let socket = net.a.run(|| UdpSocket::bind(("0.0.0.0", 4000))).unwrap().unwrap();
    fill(&mut pinholes, 0..FEW);
    let few = way(&socket, FEW);
    let took = fill(&mut pinholes, FEW..MANY) / (MANY - FEW).into();
    let again = fill(&mut pinholes, 0..MANY) / MANY.into();
    let many = way(&socket, FEW);
    let spread = way(&socket, MANY);
    let view = pinholes.read(&[OpenerId::NATFW.pinhole(0), OpenerId::NATFW.pinhole(u64::from(MANY) - 1)]);
    assert!(view.iter().flatten().all(|view| view.packets > 0), "{view:?}");
    let start = Instant::now();
    (0..MANY).for_each(|port| pinholes.release(OpenerId::NATFW.pinhole(port.into())));
    pinholes.flush();
    let closing = start.elapsed() / MANY.into();
    assert_eq!(pinholes.counters().flows_ended, u64::from(MANY));
    eprintln!(
        "a packet: {few:?} with {FEW} pinholes, {many:?} with {MANY}, {spread:?} if {MANY} flows take turns; a pinhole: \
         {took:?} to open, {again:?} to prolong, {closing:?} to close with its flow"
    );
    assert!(many <= few * 10, "{many:?} instead of {few:?}");
}
