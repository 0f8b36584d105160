//! O09: a user keeps the sessions of a reservation over a crash or a stop of the own daemon, and asks again with them.

use core::time::Duration;

use signalbox_core::SessionId;
use signalbox_node::Config;
use signalbox_node::qos::{QosEvent, ReserveRequest, ReverseDirection};

use super::net::{MODES, Mode, Net, SECOND, config};

const RATE: u64 = 125_000;

/// How a reservation is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Sender,
    Receiver,
    Both,
    /// The far end asks for the reverse direction.
    Asked,
}

const WAYS: [Way; 4] = [Way::Sender, Way::Receiver, Way::Both, Way::Asked];

impl Way {
    fn request(self, net: &Net, rate: u64) -> ReserveRequest {
        ReserveRequest {
            session: Some(SessionId([7; 16])),
            receiver_initiated: self == Self::Receiver,
            bidirectional: self.is_both(),
            ..net.request(rate)
        }
    }

    const fn is_both(self) -> bool {
        matches!(self, Self::Both | Self::Asked)
    }

    fn config(self, mode: Mode) -> Config {
        let mut config = config(mode);
        if let Some(qos) = config.qos.as_mut().filter(|_| self == Self::Asked) {
            qos.way_back = ReverseDirection::Ask;
        }
        config
    }

    /// What the nodes of the chain hold.
    fn whole(self, rate: u64) -> [u64; 4] {
        if self.is_both() { [rate, 2 * rate, 2 * rate, rate] } else { [rate, rate, rate, 0] }
    }
}

fn reserved(way: Way, seed: u64, mode: Mode) -> Net {
    let mut net = Net::row(seed, vec![way.config(mode); 4]);
    net.reserve(1, way.request(&net, RATE));
    net.granted(1, 5);
    net.expect_held(2, &way.whole(RATE));
    net.run(20);
    net
}

/// The next daemon of the first node starts after a while, and the user asks again for `rate`.
fn again(net: &mut Net, way: Way, without: Duration, rate: u64, what: &str) {
    let (node, whole) = (net.nodes[0], way.whole(rate));
    net.sim.crash(node);
    net.sim.run_for(without);
    net.sim.restart(node);
    net.reserve(2, way.request(net, rate));
    let start = net.sim.now();
    let granted = net.granted(2, 5);
    assert_eq!(granted.quality.rate, Some(rate), "{what}");
    net.expect_held(5, &whole);
    assert!(net.sim.now().since(start) <= SECOND * 5, "{what}");
    for _ in 0..20 {
        net.run(10);
        assert_eq!(net.held(), whole, "{what} at {}", net.sim.now());
    }
    assert!(!net.events_of(2).iter().any(|event| matches!(event, QosEvent::Lost(_))), "{what}");
    net.release(2);
    net.expect_nothing(5);
}

#[test]
fn a_holder_has_its_reservation_back_after_a_crash_of_its_daemon() {
    for mode in MODES {
        for way in WAYS {
            for rate in [RATE, 2 * RATE, RATE / 2] {
                for without in [0, 1, 8, 40] {
                    let what = format!("{mode:?} {way:?} {rate} {without}");
                    let mut net = reserved(way, without, mode);
                    again(&mut net, way, Duration::from_secs(without), rate, &what);
                }
            }
        }
    }
}

/// A daemon that stops as planned releases what its users hold. The next one starts after the release has gone along the path.
#[test]
fn a_holder_has_its_reservation_back_after_a_stop_of_its_daemon() {
    for mode in MODES {
        for way in [Way::Sender, Way::Receiver, Way::Both] {
            for without in [1, 8, 40] {
                let what = format!("{mode:?} {way:?} {without}");
                let mut net = reserved(way, without, mode);
                net.release(1);
                net.sim.run_for(Duration::from_millis(1));
                again(&mut net, way, Duration::from_secs(without), RATE, &what);
            }
        }
    }
}

/// The node at the other end has its part again without a request of the user, whose reservation stands.
#[test]
fn a_reservation_survives_a_crash_of_the_daemon_at_the_other_end() {
    for mode in MODES {
        for way in WAYS {
            let what = format!("{mode:?} {way:?}");
            let mut net = reserved(way, 3, mode);
            let node = net.last();
            net.sim.crash(node);
            net.run(2);
            net.sim.restart(node);
            net.expect_held(60, &way.whole(RATE));
            for _ in 0..40 {
                net.run(10);
                assert_eq!(net.held(), way.whole(RATE), "{what} at {}", net.sim.now());
            }
            assert!(!net.events_of(1).iter().any(|event| matches!(event, QosEvent::Lost(_))), "{what}");
            net.release(1);
            net.expect_nothing(5);
        }
    }
}
