//! A branch that lost its link to the node before it: its router still holds the session, and still reaches the node
//! where the branches meet. That node belongs to the new branch (RFC 5974 §5.2.5.4).

use core::time::Duration;

use signalbox_node::qos;
use signalbox_sim::Sim;

use super::net::{Host, MODES, SECOND};
use super::reroute::{Diamond, RATE, all, held};

/// The link to the old branch is lost, and the user releases the reservation after a while: the tear ends it at every node
/// that the new path has, at once. Only the router of the old branch waits for its lifetime.
#[test]
fn a_release_after_a_lost_link_ends_the_whole_path() {
    for mode in MODES {
        for receiver_initiated in [false, true] {
            for short in [false, true] {
                for after in [200, 1_000, 2_000, 4_000, 6_000, 10_000, 20_000, 40_000, 100_000] {
                    for seed in 0..3 {
                        let what = format!("{mode:?} {receiver_initiated} {short} {after} {seed}");
                        let mut net = Diamond::with_timers(seed, mode, receiver_initiated, short);
                        let (by_r3, common) = (net.by_r3, net.common);
                        net.sim.set_link_up(net.decides, false);
                        net.sim.expect(&what, SECOND * 10, |sim| {
                            all(sim, by_r3, RATE) && all(sim, common, RATE)
                        });
                        net.sim.run_for(Duration::from_millis(after));
                        net.command(qos::Command::Release);
                        let gone = |sim: &Sim<Host>| all(sim, by_r3, 0) && all(sim, common, 0);
                        let ended = net.sim.wait(SECOND * 5, gone);
                        assert!(ended, "{what}: {:?}", net.state());
                        // And it does not come back.
                        let back = net.sim.wait(SECOND * 300, |sim| !gone(sim));
                        assert!(!back, "{what}: {:?}", net.state());
                        assert_eq!(held(&net.sim, net.by_r2[1]), 0, "{what}: the old branch has expired");
                    }
                }
            }
        }
    }
}
