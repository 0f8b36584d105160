//! A planned restart of a router: it informs its peers, and its part of the reservations is there again at once.

use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::node::Input;
use signalbox_node::qos::ReserveRequest;

use super::net::{Host, MODES, Mode, Net, SECOND};

const RATE: u64 = 250_000;
/// The delay of a link is 1 ms. A neighbor is two of them away, there and back.
const ROUND_TRIP: Duration = Duration::from_millis(2);

fn reserved(seed: u64, mode: Mode, receiver_initiated: bool) -> Net {
    let mut net = Net::chain(seed, mode);
    net.reserve(1, ReserveRequest { receiver_initiated, ..net.request(RATE) });
    net.expect_held(10, &[RATE, RATE, RATE, 0]);
    net.run(20);
    net
}

/// Ends a router as planned and starts it again after a while. Returns when it started.
fn restart(net: &mut Net, router: usize, without: Duration) -> Time {
    let node = net.nodes[router];
    let left = net.sim.engine(node).unwrap().node.hand_over(net.sim.now());
    net.sim.crash(node);
    net.sim.run_for(without);
    net.sim.restart(node);
    net.sim.run_for(Duration::ZERO);
    net.sim.input(node, Input::Handover(&left));
    net.sim.now()
}

/// How long after `start` the kernels of all nodes hold the reservation again, as long as they keep it for a minute.
fn back_after(net: &mut Net, start: Time, what: &str) -> Duration {
    let nodes = net.nodes.clone();
    let whole = |sim: &signalbox_sim::Sim<Host>| super::net::held(sim, &nodes) == [RATE, RATE, RATE, 0];
    net.sim.expect(what, SECOND * 2, whole);
    let after = net.sim.now().since(start);
    let lost = net.sim.wait(SECOND * 60, |sim| !whole(sim));
    assert!(!lost, "{what}: it was lost again: {:?}", super::net::held(&net.sim, &nodes));
    after
}

/// The reservation is whole again after a few round trips to a neighbor: the Error, the handshake of GIST and the RESERVE, and
/// the handshake of TCP where it is used. If the receiver reserves, the QUERY goes to it first.
#[test]
fn a_reservation_is_back_after_round_trips_and_not_after_a_refresh() {
    for mode in MODES {
        for receiver_initiated in [false, true] {
            for router in [1, 2] {
                for seed in 0..5 {
                    let what = format!("{mode:?} {receiver_initiated} {router} {seed}");
                    let mut net = reserved(seed, mode, receiver_initiated);
                    let start = restart(&mut net, router, SECOND);
                    let after = back_after(&mut net, start, &what);
                    let most = match (mode, receiver_initiated) {
                        (Mode::Datagrams, false) => 3,
                        (Mode::Datagrams, true) | (Mode::Tcp, false) => 4,
                        (Mode::Tcp, true) => 9,
                    };
                    assert!(after <= ROUND_TRIP * most, "{what}: {after:?}");
                    net.release(1);
                    net.expect_nothing(10);
                }
            }
        }
    }
}
