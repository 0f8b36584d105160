//! The cost of enforcement, for docs/performance.md:
//! `cargo test -p signalbox-linux --features namespace-tests --test namespace -- --ignored --nocapture cost_of`

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use signalbox_core::traffic::{ReservationId, ReserveError, TrafficSpec};
use signalbox_linux::topology;
use signalbox_linux::traffic::{Enforcer, LinkConfig, TrafficConfig};

use crate::network::{Network, ip};
use crate::traffic::{ifindex, reservation};

/// The first port of the flows.
const PORT: u16 = 10_000;
/// Number of packets of one measurement: so few that it may have the processor to itself.
const PACKETS: u32 = 2000;
const REPEATS: u32 = 150;

/// A configuration with a link so fast that no packet waits.
fn config(ebpf: bool, classes: u16) -> TrafficConfig {
    let link = LinkConfig { classes, ..LinkConfig::new("rb", 10_000_000_000) };
    TrafficConfig { links: vec![link], ebpf, ..TrafficConfig::default() }
}

fn ask(enforcer: &mut Enforcer, interface: signalbox_core::IfIndex, number: u16) {
    let mut reservation = reservation(interface, PORT + number);
    reservation.filters[0].src_port = Some(4000);
    reservation.traffic =
        TrafficSpec { rate: 100_000_000, burst: 1_000_000, peak: None, min_policed: 64, max_packet: 1500 };
    enforcer.reserve(ReservationId(number.into()), &reservation);
}

fn flush(enforcer: &mut Enforcer) -> Vec<(ReservationId, Result<(), ReserveError>)> {
    let results = enforcer.flush();
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    results
}

fn fill(enforcer: &mut Enforcer, interface: signalbox_core::IfIndex, number: u16) -> Duration {
    (0..number).for_each(|number| ask(enforcer, interface, number));
    let start = Instant::now();
    assert_eq!(flush(enforcer).len(), number.into());
    start.elapsed()
}

fn micros(time: Duration, count: u32) -> f64 {
    (time / count).as_nanos() as f64 / 1000.0
}

#[test]
#[ignore = "a measurement"]
fn cost_of_reserving() {
    let net = Network::new("reserve");
    eprintln!("reservations, queues: µs to reserve, change, release one at a time | 100 at a time");
    for (number, classes) in [(10, 1000), (1000, 1000), (1000, 2000), (10_000, 1000)] {
        let line = net.r.run(|| {
            let mut enforcer = Enforcer::open(&config(true, classes)).unwrap();
            let interface = ifindex("rb");
            fill(&mut enforcer, interface, number);
            let mut costs = Vec::new();
            for at_once in [1, 100] {
                // Reserve, change, release more. The result is the median, because the machine does other work as well.
                let mut times = [const { Vec::new() }; 3];
                for round in 0..100 {
                    for (step, times) in times.iter_mut().enumerate() {
                        for more in 0..at_once {
                            let id = number + (round * at_once + more) % 500;
                            if step == 2 {
                                enforcer.release(ReservationId(id.into()));
                            } else {
                                ask(&mut enforcer, interface, id);
                            }
                        }
                        let start = Instant::now();
                        flush(&mut enforcer);
                        times.push(start.elapsed());
                    }
                }
                let median = |mut times: Vec<Duration>| {
                    times.sort();
                    format!("{:.1}", micros(times[times.len() / 2], at_once.into()))
                };
                costs.push(times.map(median).join(", "));
            }
            enforcer.close().unwrap();
            costs.join(" | ")
        });
        eprintln!("{number}, {classes}: {}", line.unwrap());
    }
}

/// Time of a packet's whole path from host to host, the best of many runs: sending, forwarding, queueing, receiving.
fn way(socket: &UdpSocket, flows: u16) -> f64 {
    let to = ip("10.2.0.1");
    let packet = [0; 122];
    let run = |first: u32| {
        let start = Instant::now();
        for number in first..first + PACKETS {
            let port = PORT + (number % u32::from(flows)) as u16;
            socket.send_to(&packet, (to, port)).unwrap();
        }
        start.elapsed()
    };
    (0..REPEATS).map(|repeat| micros(run(repeat * PACKETS), PACKETS)).fold(f64::MAX, f64::min)
}

#[test]
#[ignore = "a measurement"]
fn cost_of_a_packet() {
    let net = Network::new("packet");
    // The far end drops the packets before its kernel answers that the port is closed.
    let rules = "table ip away {\n chain in {\n type filter hook prerouting priority -300\n udp dport 10000-20000 drop\n }\n}\n";
    topology::nft(&net.b, rules).unwrap();
    let socket = net.a.run(|| UdpSocket::bind(("0.0.0.0", 4000))).unwrap().unwrap();
    eprintln!("reservations: µs a packet of 150 octets, without | with (of which reserved, conforming)");
    for (ebpf, classes, reservations) in
        [(true, 1000, 10), (true, 1000, 1000), (true, 1000, 10_000), (false, 1000, 10), (false, 1000, 1000)]
    {
        let without = way(&socket, reservations);
        let mut enforcer = net.r.run(|| Enforcer::open(&config(ebpf, classes)).unwrap()).unwrap();
        let time = net.r.run(|| fill(&mut enforcer, ifindex("rb"), reservations)).unwrap();
        let with = way(&socket, reservations);
        let seen: u64 = (0..reservations)
            .map(|id| enforcer.statistics(ReservationId(id.into())).unwrap().unwrap().packets)
            .sum();
        eprintln!(
            "{} {reservations}: {without:.2} | {with:.2} ({seen} of {}); set up in {:.1} ms",
            if ebpf { "eBPF" } else { "nftables" },
            PACKETS * REPEATS,
            time.as_secs_f64() * 1000.0
        );
        net.r.run(|| enforcer.close()).unwrap().unwrap();
    }
}
