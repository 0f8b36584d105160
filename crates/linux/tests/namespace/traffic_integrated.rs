//! The requirements of integrated services on queues (RFC 2211, 2212).

use std::net::UdpSocket;

use signalbox_core::traffic::{Excess, Reservation, ReservationId, ServiceClass, Treatment};
use signalbox_linux::topology;
use signalbox_linux::traffic::{Enforcer, Statistics};

use crate::network::{Network, PATIENCE, ip, tool, until};
use crate::traffic::{config, ifindex, reservation};
use crate::traffic_flows::{PACKETS, arrivals, close, enforcer, protected, socket, with_flood};

const PORT: u16 = 5010;

fn counted(enforcer: &mut Enforcer) -> Statistics {
    enforcer.statistics(ReservationId(1)).unwrap().unwrap()
}

/// Sends one datagram, an IP packet of `octets` octets, and asserts that it arrives.
fn passes(from: &UdpSocket, to: &UdpSocket, octets: usize) {
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    from.send_to(&vec![5; octets - 28], (ip("10.2.0.1"), PORT)).unwrap();
    assert_eq!(to.recv(&mut [0; 4096]).unwrap(), octets - 28);
}

/// RSVPIS-2212-DataHandling-01: the queue is guaranteed R, while the token bucket has the rate r only.
#[test]
fn a_queue_is_served_at_the_service_rate_and_policed_at_the_token_rate() {
    let net = Network::new("served");
    let mut enforcer = enforcer(&net, &config(), |enforcer| {
        let own = Reservation { served: Some(40_000), ..reservation(ifindex("rb"), PORT) };
        enforcer.reserve(ReservationId(1), &own);
        let treatment = Treatment::Aggregate(ServiceClass::Guaranteed);
        let mut shared =
            Reservation { treatment, served: Some(50_000), ..reservation(ifindex("rb"), PORT + 1) };
        shared.traffic.rate = 30_000;
        enforcer.reserve(ReservationId(2), &shared);
    });
    let class = |minor: &str| tool(&net.r, &format!("tc class show dev rb classid 5342:{minor}"));
    assert!(class("100").contains("rate 320Kbit"), "{}", class("100"));
    assert!(class("10").contains("rate 400Kbit"), "{}", class("10"));
    // 10 kB/s and 5000 octets at once, of packets of 1000.
    let (from, _to) = (socket(&net.a, 4000), socket(&net.b, PORT));
    let start = std::time::Instant::now();
    for _ in 0..60 {
        from.send_to(&[0; 972], (ip("10.2.0.1"), PORT)).unwrap();
    }
    until("all packets are counted", || {
        let now = counted(&mut enforcer);
        now.packets + now.policed_packets == 60
    });
    let most = 5000.0 + 10_000.0 * start.elapsed().as_secs_f64();
    assert!(counted(&mut enforcer).octets as f64 <= most);
    close(&net, enforcer);
}

/// RSVPIS-2211-4-03, RSVPIS-2211-7-05: a burst leaves long before its own rate would have sent it, and a burst that is
/// somewhat too large passes where there is spare bandwidth.
#[test]
fn a_burst_may_borrow() {
    let net = Network::new("borrow");
    let mut enforcer = enforcer(&net, &config(), |enforcer| {
        let mut slow = Reservation { excess: Excess::BestEffort, ..reservation(ifindex("rb"), PORT) };
        // At its own rate the burst would take half a day.
        (slow.traffic.rate, slow.traffic.burst) = (1, 50_000);
        enforcer.reserve(ReservationId(1), &slow);
    });
    let (from, to) = (socket(&net.a, 4000), socket(&net.b, PORT));
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    for number in 0..60 {
        from.send_to(&[number; 972], (ip("10.2.0.1"), PORT)).unwrap();
        // No more packets at once than the buffer of a receiver that is not scheduled holds.
        to.recv(&mut [0; 2048]).unwrap();
    }
    let counted = counted(&mut enforcer);
    assert_eq!((counted.packets, counted.policed_packets), (50, 10));
    close(&net, enforcer);
}

/// RSVPIS-2211-7-02, RSVPIS-2211-7-04: a flow that sends far more than it reserved is served as best effort, and does
/// not reduce the service of the other flow in its queue, although no node has policed it before.
#[test]
fn the_excess_of_one_flow_does_not_harm_another() {
    let net = Network::new("excess");
    let shared = Treatment::Aggregate(ServiceClass::ControlledLoad);
    let mut enforcer = enforcer(&net, &config(), |enforcer| {
        let greedy = Reservation {
            treatment: shared,
            excess: Excess::BestEffort,
            // The flow of `with_flood`.
            ..reservation(ifindex("rb"), 9)
        };
        enforcer.reserve(ReservationId(2), &greedy);
        protected(shared)(enforcer);
    });
    assert_eq!(with_flood(&net, |on| arrivals(&net, on)), PACKETS);
    let greedy = enforcer.statistics(ReservationId(2)).unwrap().unwrap();
    assert!(greedy.policed_packets > greedy.packets);
    close(&net, enforcer);
}

/// RSVPIS-2211-7-03: a flow that sends far more than it reserved, and more than the link carries, does not reduce the
/// service of best effort, and uses the bandwidth that best effort leaves.
#[test]
fn excess_stands_behind_best_effort() {
    let net = Network::new("behind");
    let enforcer = enforcer(&net, &config(), |enforcer| {
        // The flow of `with_flood`.
        let greedy = Reservation { excess: Excess::BestEffort, ..reservation(ifindex("rb"), 9) };
        enforcer.reserve(ReservationId(2), &greedy);
    });
    assert_eq!(with_flood(&net, |on| arrivals(&net, on)), PACKETS);
    let excess = tool(&net.r, "tc -s class show dev rb classid 5342:5");
    let sent = excess.split_once("Sent ").unwrap().1.split_whitespace().nth(2).unwrap();
    assert!(sent.parse::<u64>().unwrap() > PACKETS as u64, "{excess}");
    close(&net, enforcer);
}

/// RSVPIS-2210-2.3.2-06, RSVPIS-2211-4-04, RSVPIS-2212-DataHandling-02: a packet larger than the reservation's packets,
/// or than the link's, does not belong to the reservation: it is best effort, whole or in fragments.
#[test]
fn packets_that_are_too_large_are_best_effort() {
    let net = Network::new("large");
    // The hosts allow routers to fragment their packets.
    topology::set_sysctl(&net.a, "net.ipv4.ip_no_pmtu_disc", "1").unwrap();
    let mut enforcer = enforcer(&net, &config(), |enforcer| {
        let mut small = Reservation { excess: Excess::BestEffort, ..reservation(ifindex("rb"), PORT) };
        (small.traffic.max_packet, small.traffic.burst) = (1000, 50_000);
        enforcer.reserve(ReservationId(1), &small);
    });
    let (from, to) = (socket(&net.a, 4000), socket(&net.b, PORT));
    passes(&from, &to, 1000);
    assert_eq!(counted(&mut enforcer).packets, 1);
    passes(&from, &to, 1400);
    let now = counted(&mut enforcer);
    assert_eq!((now.packets, now.policed_packets, now.policed_octets), (1, 1, Some(1400)));
    // In fragments of the sender, then in those of the router: no fragment conforms.
    passes(&from, &to, 2028);
    tool(&net.r, "ip link set rb mtu 900");
    passes(&from, &to, 1000);
    let now = counted(&mut enforcer);
    assert_eq!((now.packets, now.policed_packets), (1, 1));
    close(&net, enforcer);
}
