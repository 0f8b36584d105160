//! Reservations of TCP: their packets wait for their time in a bounded queue of their own, and no policer drops them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use signalbox_core::traffic::{Excess, FlowFilter, Reservation, ReservationId};
use signalbox_linux::traffic::Enforcer;

use crate::network::{Network, prefix, tool};
use crate::traffic::{RATE, config, ifindex, reservation};
use crate::traffic_flows::{close, enforcer};

/// A reservation of half the link for the packets of this protocol from `r` to `b`, which has a small bucket.
fn from_router(protocol: u8) -> Reservation {
    let mut reservation = reservation(ifindex("rb"), 270);
    let flow = FlowFilter::between(prefix("10.2.0.2/32"), prefix("10.2.0.1/32"));
    reservation.filters = vec![FlowFilter { protocol: Some(protocol), ..flow }];
    (reservation.traffic.rate, reservation.traffic.burst) = (RATE / 2, 5000);
    reservation
}

fn reserve(net: &Network, enforcer: &mut Enforcer, reservation: impl FnOnce() -> Reservation + Send) {
    let results = net.r.run(|| {
        enforcer.reserve(ReservationId(1), &reservation());
        enforcer.flush()
    });
    assert_eq!(results.unwrap(), [(ReservationId(1), Ok(()))]);
}

fn queues(net: &Network) -> (String, bool) {
    let class = tool(&net.r, "tc class show dev rb classid 5342:100");
    (class, tool(&net.r, "tc qdisc show dev rb").contains("bfifo 6000:"))
}

/// The bucket of 5,000 octets holds four segments: a policer would drop most of the first windows.
#[test]
fn tcp_is_not_policed() {
    const OCTETS: usize = 400_000;
    let net = Network::new("shaped");
    let mut enforcer = enforcer(&net, &config(), |enforcer| {
        enforcer.reserve(ReservationId(1), &from_router(6));
    });
    let listener = net.b.run(|| TcpListener::bind("10.2.0.1:5004").unwrap()).unwrap();
    let mut sender = net.r.run(|| TcpStream::connect("10.2.0.1:5004").unwrap()).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.write_all(&vec![7; OCTETS]).unwrap());
        receiver.read_exact(&mut vec![0; OCTETS]).unwrap();
    });
    let now = enforcer.statistics(ReservationId(1)).unwrap().unwrap();
    assert!(now.packets > 270 && now.policed_packets == 0, "{now:?}");
    // The same reservation for another protocol is policed, and has no bound.
    reserve(&net, &mut enforcer, || from_router(17));
    let (class, bounded) = queues(&net);
    assert!(class.contains("ceil 10Mbit") && !bounded, "{class}");
    close(&net, enforcer);
}

/// The queue is served at the rate. What exceeds it takes what others leave, unless it is to be dropped or has a code point.
#[test]
fn the_queue_of_tcp_has_the_rate_and_a_bound() {
    let net = Network::new("ceiling");
    let mut enforcer = enforcer(&net, &config(), |_| {});
    for (excess, mark_dscp, ceiling, priority) in [
        (Excess::Drop, None, "ceil 5Mbit", "prio 1"),
        (Excess::BestEffort, Some(46), "ceil 5Mbit", "prio 1"),
        (Excess::BestEffort, None, "ceil 10Mbit", "prio 7"),
    ] {
        reserve(&net, &mut enforcer, || Reservation { excess, mark_dscp, ..from_router(6) });
        let (class, bounded) = queues(&net);
        assert!(
            class.contains("rate 5Mbit") && class.contains(ceiling) && class.contains(priority),
            "{class}"
        );
        assert!(bounded, "{class}");
    }
    // The bound comes back with the queues, and goes with the reservation.
    tool(&net.r, "tc qdisc del dev rb root");
    let links = net.r.run(|| enforcer.restore()).unwrap();
    assert_eq!(links, [("rb".to_owned(), Ok(()))]);
    assert!(queues(&net).1);
    net.r
        .run(|| {
            enforcer.release(ReservationId(1));
            assert_eq!(enforcer.flush(), []);
        })
        .unwrap();
    assert!(!queues(&net).1);
    close(&net, enforcer);
}

/// Where a queue is served faster than the tokens come, as for guaranteed service, the bucket still decides.
#[test]
fn tcp_with_guaranteed_service_is_policed() {
    let net = Network::new("served");
    let enforcer = enforcer(&net, &config(), |enforcer| {
        let reservation = Reservation { served: Some(RATE / 4 * 3), ..from_router(6) };
        enforcer.reserve(ReservationId(1), &reservation);
    });
    let (class, bounded) = queues(&net);
    assert!(class.contains("rate 7500Kbit") && class.contains("ceil 10Mbit") && !bounded, "{class}");
    close(&net, enforcer);
}
