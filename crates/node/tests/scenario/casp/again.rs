//! A host that has lost its reservation, in a crash of its daemon, asks again in the session that the routers have.

use signalbox_core::SessionId;
use signalbox_node::casp::{Command as CaspCommand, QosConfig, ReserveRequest};
use signalbox_sim::{Family, LinkConfig, Sim, topology};

use super::reserve::{SECOND, add, casp, granted, held, reserve, to};

/// The routers have no room for both, and know the flow: they refuse another session. With the one that they have, the new request replaces
/// the former one, and ends with the user.
#[test]
fn the_next_request_replaces_what_a_crash_left() {
    for (receiver_initiated, bidirectional) in [(false, false), (true, false), (false, true)] {
        let mut sim = Sim::new(11);
        let nodes = ["s", "r1", "r2", "d"].map(|name| add(&mut sim, name, Some(QosConfig::default())));
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
        let dst = sim.address(nodes[3], Family::V4);
        let session = Some(SessionId([7; 16]));
        let request =
            |rate| ReserveRequest { session, receiver_initiated, bidirectional, ..to(dst, 1, rate) };
        reserve(&mut sim, nodes[0], 1, request(60_000));
        sim.run_for(SECOND * 5);
        let all = |sim: &Sim<_>| [0, 1, 2].map(|n| held(sim, nodes[n], links[n]));
        for (id, rate) in [(3, 60_000), (5, 40_000), (7, 70_000)] {
            sim.restart(nodes[0]);
            sim.run_for(SECOND);
            // The router notices by its first answer that the connection of before is dead.
            casp(&mut sim, nodes[0], id - 1, CaspCommand::Query(Box::new(to(dst, 9, 1000))));
            sim.run_for(SECOND);
            casp(&mut sim, nodes[0], id - 1, CaspCommand::Close);
            sim.run_for(SECOND);
            casp(&mut sim, nodes[0], id, CaspCommand::Reserve(Box::new(request(rate))));
            sim.expect("it is granted at once", SECOND * 2, |sim| granted(sim, id) == 1);
            // What the crash left would have expired by now.
            sim.run_for(SECOND * 300);
            assert_eq!(all(&sim), [rate; 3]);
        }
        casp(&mut sim, nodes[0], 7, CaspCommand::Close);
        sim.run_for(SECOND * 5);
        assert_eq!(all(&sim), [0; 3]);
    }
}
