//! Reservations in the simulated kernels.

use signalbox_core::node::Prefix;
use signalbox_core::traffic::{
    Excess, FlowFilter, Reservation, ReservationId, ReserveError, TrafficSpec, Treatment,
};
use signalbox_core::{IfIndex, Time};
use signalbox_sim::{Happened, LinkConfig};

use crate::toy::{Command, Event};
use crate::{SECOND, chain};

const ID: ReservationId = ReservationId(7);

fn reservation(rate: u64) -> Reservation {
    let all = Prefix::all_like([0, 0, 0, 0].into());
    Reservation {
        ifindex: IfIndex(2),
        filters: vec![FlowFilter::between(all, all)],
        traffic: TrafficSpec { rate, burst: 3000, peak: None, min_policed: 0, max_packet: 1500 },
        served: None,
        treatment: Treatment::OwnQueue,
        mark_dscp: None,
        excess: Excess::Drop,
    }
}

#[test]
fn a_kernel_does_what_it_is_asked_and_answers() {
    let (mut sim, nodes, _) = chain(1, 1, &LinkConfig::default());
    let node = nodes[0];
    let now = sim.now();
    let rates = |sim: &signalbox_sim::Sim<crate::toy::Toy>| {
        sim.reservations(node).map(|(id, r)| (id, r.traffic.rate)).collect::<Vec<_>>()
    };
    sim.command(node, Command::Reserve(ID, reservation(1000)));
    assert_eq!(rates(&sim), [(ID, 1000)]);
    assert!(sim.events().is_empty(), "answered within the same input");
    sim.run_until(now);
    let reported = |at: Time, result| Happened { at, node, event: Event::Reserved(ID, result) };
    assert_eq!(sim.take_events(), [reported(now, Ok(()))]);

    sim.set_reserve_result(node, Err(ReserveError::Full));
    sim.command(node, Command::Reserve(ID, reservation(2000)));
    sim.run_until(now);
    assert_eq!(sim.take_events(), [reported(now, Err(ReserveError::Full))]);
    assert_eq!(rates(&sim), [(ID, 1000)], "a change that was refused leaves what stood");

    sim.command(node, Command::Release(ID));
    sim.run_for(SECOND);
    assert_eq!((rates(&sim), sim.take_events()), (vec![], vec![]));
}

#[test]
fn what_is_installed_outlives_a_crash_but_not_the_next_start() {
    let (mut sim, nodes, _) = chain(1, 1, &LinkConfig::default());
    sim.command(nodes[0], Command::Reserve(ID, reservation(1000)));
    sim.crash(nodes[0]);
    sim.run_for(SECOND);
    assert_eq!(sim.reservations(nodes[0]).count(), 1);
    assert!(
        !sim.events().iter().any(|h| matches!(h.event, Event::Reserved(..))),
        "reported to a daemon that has ended"
    );
    sim.restart(nodes[0]);
    assert_eq!(sim.reservations(nodes[0]).count(), 0);
}
