//! Nodes that fail, kernels that refuse.

use signalbox_core::traffic::ReserveError;
use signalbox_node::qos::{QosEvent, ReserveRequest};

use super::net::{MODES, Mode, Net, SECOND, held};

const RATE: u64 = 125_000;

fn reserved(seed: u64, mode: Mode, receiver_initiated: bool) -> Net {
    let mut net = Net::chain(seed, mode);
    net.reserve(1, ReserveRequest { receiver_initiated, ..net.request(RATE) });
    net.granted(1, 5);
    net.expect_held(1, &[RATE, RATE, RATE, 0]);
    net
}

/// The state expires (3 + 0.5) · 1.5 · 30 s after the last refresh of each node, one after the other at worst. Over
/// datagrams GIST loses the upstream route as well, and nodes that may be off the path send no tear.
#[test]
fn what_a_crashed_initiator_reserved_expires() {
    for mode in MODES {
        let mut net = reserved(1, mode, false);
        net.run(60);
        net.sim.crash(net.nodes[0]);
        net.run(60);
        assert_eq!(net.held()[1..], [RATE, RATE, 0]);
        let nodes = net.nodes[1..].to_vec();
        let gone = net.sim.wait(SECOND * 3 * 160, |sim| held(sim, &nodes) == [0, 0, 0]);
        assert!(gone, "{:?}", net.held());
    }
}

/// If the receiver made the reservation, the sender's user is notified as soon as the state next to the failed node has
/// expired.
#[test]
fn what_a_crashed_receiver_reserved_is_torn_down_by_the_first_to_know() {
    for mode in MODES {
        let mut net = reserved(1, mode, true);
        net.run(60);
        net.sim.power_off(net.nodes[3]);
        net.run(60);
        assert_eq!(net.held()[..3], [RATE, RATE, RATE]);
        let nodes = net.nodes[..3].to_vec();
        let gone = net.sim.wait(SECOND * 100, |sim| held(sim, &nodes) == [0, 0, 0]);
        assert!(gone, "{:?}", net.held());
        assert_eq!(net.total("expired"), 1);
        let last = net.events_of(1).last().copied();
        assert!(matches!(last, Some(QosEvent::Lost(_))), "{last:?}");
    }
}

/// A router that restarts restores its part of the reservation within one refresh (45 s at most). The users are not
/// notified.
#[test]
fn a_router_that_starts_anew_has_its_reservations_back_within_one_refresh() {
    for mode in MODES {
        for router in [1, 2] {
            for receiver_initiated in [false, true] {
                let mut net = reserved(2, mode, receiver_initiated);
                net.run(40);
                net.sim.restart(net.nodes[router]);
                assert_eq!(net.held()[router], 0);
                net.expect_held(46, &[RATE, RATE, RATE, 0]);
                for _ in 0..40 {
                    net.run(10);
                    assert_eq!(net.held(), [RATE, RATE, RATE, 0], "{mode:?} {router} at {}", net.sim.now());
                }
                let last = net.events_of(1).last().copied();
                assert!(matches!(last, Some(QosEvent::Granted(_) | QosEvent::Rerouted(_))), "{last:?}");
                net.release(1);
                net.expect_nothing(2);
            }
        }
    }
}

/// A reservation that the kernel refuses is not granted: the QNI is notified, and no node keeps state.
#[test]
fn a_kernel_that_refuses_ends_the_reservation() {
    for mode in MODES {
        let mut net = Net::chain(3, mode);
        net.sim.set_reserve_result(net.nodes[2], Err(ReserveError::Failed));
        net.reserve(1, net.request(RATE));
        net.run(5);
        let last = net.events_of(1).last().copied();
        assert!(matches!(last, Some(QosEvent::Lost(_) | QosEvent::Failed(_))), "{last:?}");
        net.expect_nothing(5);
    }
}
