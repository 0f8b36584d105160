//! Reservations that move with the route (RFC 5974 §3.2.12, §5.2.5): two routes from one router to another, over the
//! real GIST.

use core::time::Duration;

use signalbox_node::qos::{self, Flow, QosEvent, QosRequest, ReserveRequest};
use signalbox_node::{Command, Config};
use signalbox_sim::{Family, LinkConfig, LinkId, NodeId, Sim};

use super::net::{Host, MODES, Mode, SECOND, config, events_of, qos_sessions};

pub(super) const RATE: u64 = 125_000;
/// A cost that makes the route over r2 the longer one.
const DEAR: u32 = 10;

/// A node, and its egress link.
pub(super) type Place = (NodeId, LinkId);

/// `h1 – r1 – (r2 | r3) – r4 – h2`: by r2 at first.
pub(super) struct Diamond {
    pub(super) sim: Sim<Host>,
    pub(super) nodes: [NodeId; 6],
    /// The link from r1 to r2, whose cost decides the route.
    pub(super) decides: LinkId,
    /// The link behind r2.
    pub(super) behind: LinkId,
    pub(super) by_r2: [Place; 2],
    pub(super) by_r3: [Place; 2],
    pub(super) common: [Place; 2],
}

pub(super) fn held(sim: &Sim<Host>, (node, link): Place) -> u64 {
    let ifindex = sim.ifindex(node, link);
    sim.reservations(node).filter(|(_, r)| r.ifindex == ifindex).map(|(_, r)| r.traffic.rate).sum()
}

pub(super) fn all(sim: &Sim<Host>, places: [Place; 2], rate: u64) -> bool {
    places.iter().all(|place| held(sim, *place) == rate)
}

impl Diamond {
    fn new(seed: u64, config: &Config) -> Self {
        let mut sim = Sim::new(seed);
        let nodes = ["h1", "r1", "r2", "r3", "r4", "h2"].map(|name| {
            let config = config.clone();
            sim.add_engine(name, move |boot| Host::new(boot, config.clone()))
        });
        let [h1, r1, r2, r3, r4, h2] = nodes;
        let cheap = LinkConfig::default();
        let dear = LinkConfig { cost: 3, ..cheap };
        let first = sim.link(h1, r1, &cheap);
        let decides = sim.link(r1, r2, &cheap);
        let behind = sim.link(r2, r4, &cheap);
        let to_r3 = sim.link(r1, r3, &dear);
        let from_r3 = sim.link(r3, r4, &cheap);
        let last = sim.link(r4, h2, &cheap);
        Self {
            sim,
            nodes,
            decides,
            behind,
            by_r2: [(r1, decides), (r2, behind)],
            by_r3: [(r1, to_r3), (r3, from_r3)],
            common: [(h1, first), (r4, last)],
        }
    }

    fn reserved(seed: u64, mode: Mode, receiver_initiated: bool) -> Self {
        Self::asked(seed, mode, receiver_initiated, false)
    }

    /// A network with the default timers, or with those of a short lifetime.
    pub(super) fn with_timers(seed: u64, mode: Mode, receiver_initiated: bool, short: bool) -> Self {
        let mut config = config(mode);
        if let Some(qos) = config.qos.as_mut().filter(|_| short) {
            qos.refresh = SECOND * 3;
        }
        Self::of(seed, &config, receiver_initiated, false)
    }

    /// A network whose user may request the confirmation of the tear from the far end (`confirm_release`).
    fn asked(seed: u64, mode: Mode, receiver_initiated: bool, confirm_release: bool) -> Self {
        Self::of(seed, &config(mode), receiver_initiated, confirm_release)
    }

    fn of(seed: u64, config: &Config, receiver_initiated: bool, confirm_release: bool) -> Self {
        let mut net = Self::new(seed, config);
        let dst = net.sim.address(net.nodes[5], Family::V4);
        let flow = Flow { protocol: Some(17), dst_port: Some(5004), ..Flow::to(dst) };
        let request = ReserveRequest {
            receiver_initiated,
            confirm_release,
            ..ReserveRequest::new(flow, QosRequest::rate(RATE))
        };
        net.command(qos::Command::Reserve(Box::new(request)));
        let (by_r2, common) = (net.by_r2, net.common);
        net.sim.expect("a reservation by r2", SECOND * 10, |sim| {
            all(sim, by_r2, RATE) && all(sim, common, RATE)
        });
        net.sim.run_for(SECOND * 2);
        net
    }

    pub(super) fn command(&mut self, command: qos::Command) {
        self.sim.command(self.nodes[0], Command::Qos { id: 1, command });
    }

    /// Checks a route change. The old branch holds the reservation until the new branch holds it, then the new one
    /// holds it without a break. The links that both branches share hold it once, all the time. Waits until the old
    /// branch holds no reservation.
    fn moves(&mut self, what: &str, from: [Place; 2], to: [Place; 2], limit: u32) {
        let common = self.common;
        let mut stands = false;
        let since = self.sim.now();
        let mut wrong = None;
        let moved = self.sim.wait(SECOND * limit, |sim| {
            stands |= all(sim, to, RATE);
            let kept = if stands { all(sim, to, RATE) } else { all(sim, from, RATE) };
            if !kept || !all(sim, common, RATE) {
                wrong.get_or_insert(sim.now());
            }
            stands && all(sim, from, 0)
        });
        assert_eq!(wrong, None, "{what}: without reservation; the route changed at {since}");
        assert!(moved, "{what}: stands: {stands}, {:?}", self.state());
    }

    pub(super) fn state(&self) -> Vec<(String, Vec<(u32, u64)>)> {
        let reserved_at = |node: &NodeId| {
            let at = self.sim.reservations(*node).map(|(_, r)| (r.ifindex.0, r.traffic.rate));
            (self.sim.name(*node).to_owned(), at.collect())
        };
        self.nodes.iter().map(reserved_at).collect()
    }

    /// A counter of the application at one node.
    fn count(&self, node: usize, name: &str) -> u64 {
        self.sim.engine(self.nodes[node]).unwrap().node.counter("qos", name)
    }

    fn expired(&self) -> u64 {
        (0..6).map(|node| self.count(node, "expired")).sum()
    }

    /// Checks that the reservation stays on its path for some minutes, long enough for any action of an old branch.
    fn stays(&mut self, at: [Place; 2], not_at: [Place; 2]) {
        let common = self.common;
        let end = self.sim.now() + SECOND * 400;
        let strays = self
            .sim
            .wait(SECOND * 400, |sim| !(all(sim, at, RATE) && all(sim, common, RATE) && all(sim, not_at, 0)));
        assert!(!strays, "{:?} at {}, not until {end}", self.state(), self.sim.now());
    }

    /// The user releases the reservation, and no state is left.
    fn ends(mut self) {
        self.command(qos::Command::Release);
        let nodes = self.nodes;
        let nothing = |sim: &Sim<Host>| nodes.iter().all(|node| sim.reservations(*node).next().is_none());
        self.sim.expect("a tear along the whole path", SECOND * 3, nothing);
        let known = |sim: &Sim<Host>| nodes.iter().map(|node| qos_sessions(sim, *node)).sum::<usize>();
        self.sim.expect("no session", SECOND * 300, |sim| known(sim) == 0);
    }

    fn last_event(&self) -> Option<&QosEvent> {
        events_of(&self.sim, self.nodes[0], 1).last().copied()
    }
}

/// The route changes, changes back, and changes again; the old branch is torn down each time within seconds.
fn moves_with_the_route_and_back(seed: u64, receiver_initiated: bool) {
    for mode in MODES {
        let mut net = Diamond::reserved(seed, mode, receiver_initiated);
        let (by_r2, by_r3) = (net.by_r2, net.by_r3);
        for turn in 0..3 {
            net.sim.set_cost(net.decides, DEAR);
            net.moves(&format!("{mode:?} {turn}: to r3"), by_r2, by_r3, 10);
            assert_eq!(net.count(2, "torn_down"), turn + 1);
            net.sim.run_for(SECOND * 7);
            net.sim.set_cost(net.decides, 1);
            net.moves(&format!("{mode:?} {turn}: to r2"), by_r3, by_r2, 10);
            assert_eq!(net.count(3, "torn_down"), turn + 1);
            net.sim.run_for(SECOND * 7);
        }
        assert_eq!(net.expired(), 0);
        net.stays(by_r2, by_r3);
        net.ends();
    }
}

#[test]
fn a_reservation_moves_with_the_route_and_back() {
    moves_with_the_route_and_back(1, false);
}

/// QOS-3.2.12-03
#[test]
fn a_receivers_reservation_moves_with_the_route_and_back() {
    moves_with_the_route_and_back(2, true);
}

#[test]
fn a_moved_reservation_stays_where_it_is() {
    for mode in MODES {
        for receiver_initiated in [false, true] {
            for seed in 10..14 {
                let mut net = Diamond::reserved(seed, mode, receiver_initiated);
                let (by_r2, by_r3) = (net.by_r2, net.by_r3);
                net.sim.run_for(SECOND * 10 * u32::try_from(seed - 10).unwrap());
                net.sim.set_cost(net.decides, DEAR);
                net.moves(&format!("{mode:?} {receiver_initiated} {seed}"), by_r2, by_r3, 10);
                net.stays(by_r3, by_r2);
                let last = net.last_event();
                assert!(matches!(last, Some(QosEvent::Granted(_))), "{last:?}");
                assert_eq!(net.expired(), 0);
                net.ends();
            }
        }
    }
}

/// The link behind the router of the old branch is lost: the tear reaches that router and is not forwarded.
#[test]
fn a_link_lost_behind_the_old_branch_is_got_round() {
    for mode in MODES {
        for receiver_initiated in [false, true] {
            let mut net = Diamond::reserved(3, mode, receiver_initiated);
            let (by_r2, by_r3, common) = (net.by_r2, net.by_r3, net.common);
            net.sim.set_link_up(net.behind, false);
            net.sim.expect("the other way", SECOND * 40, |sim| {
                all(sim, by_r3, RATE) && all(sim, common, RATE) && held(sim, by_r2[0]) == 0
            });
            net.sim.expect("nothing by r2", SECOND * 10, |sim| all(sim, by_r2, 0));
            net.stays(by_r3, by_r2);
            net.ends();
        }
    }
}

/// The link to the old branch is lost. The reservation there ends within seconds, by a tear on another route or since the node
/// where the branches meet reports the change, and messages of its router have no effect elsewhere. When the link returns, the
/// reservation moves back.
#[test]
fn a_link_lost_before_the_old_branch_is_got_round() {
    for mode in MODES {
        for receiver_initiated in [false, true] {
            let mut net = Diamond::reserved(4, mode, receiver_initiated);
            let (by_r2, by_r3, common) = (net.by_r2, net.by_r3, net.common);
            net.sim.set_link_up(net.decides, false);
            let new = |sim: &Sim<Host>| all(sim, by_r3, RATE) && all(sim, common, RATE);
            net.sim.expect("the other way", SECOND * 40, new);
            let mut broken = None;
            let gone = net.sim.wait(SECOND * 10, |sim| {
                if !new(sim) {
                    broken.get_or_insert(sim.now());
                }
                all(sim, by_r2, 0)
            });
            assert!(gone && broken.is_none(), "{mode:?} {receiver_initiated}: {broken:?}, {:?}", net.state());
            net.stays(by_r3, by_r2);
            net.sim.set_link_up(net.decides, true);
            net.moves("back", by_r3, by_r2, 40);
            net.stays(by_r2, by_r3);
            net.ends();
        }
    }
}

/// The route changes faster than reservations can move; in the end the reservation is stable.
#[test]
fn a_route_that_flaps_leaves_one_reservation() {
    for mode in MODES {
        for receiver_initiated in [false, true] {
            for pause in [1, 3, 5, 7, 9, 12, 40] {
                let mut net = Diamond::reserved(pause, mode, receiver_initiated);
                let (by_r2, by_r3, common) = (net.by_r2, net.by_r3, net.common);
                for turn in 0..9 {
                    net.sim.set_cost(net.decides, if turn % 2 == 0 { DEAR } else { 1 });
                    net.sim.run_for(SECOND * u32::try_from(pause).unwrap() / 1000);
                    assert!(all(&net.sim, common, RATE));
                }
                let settled = net.sim.wait(SECOND * 60, |sim| {
                    all(sim, by_r3, RATE) && all(sim, by_r2, 0) && all(sim, common, RATE)
                });
                assert!(settled, "{mode:?} {receiver_initiated} {pause}: {:?}", net.state());
                net.stays(by_r3, by_r2);
                net.ends();
            }
        }
    }
}

/// The route leads to the same node by another link: directly, or across routers without the application.
#[test]
fn a_route_that_changes_links_takes_the_reservation_along() {
    for mode in MODES {
        for receiver_initiated in [false, true] {
            for routers_between in [false, true] {
                let mut sim = Sim::new(5);
                let [h1, r1, r4, h2] = ["h1", "r1", "r4", "h2"]
                    .map(|name| sim.add_engine(name, move |boot| Host::new(boot, config(mode))));
                let cheap = LinkConfig::default();
                let dear = LinkConfig { cost: 3, ..cheap };
                let first = sim.link(h1, r1, &cheap);
                let way = |sim: &mut Sim<Host>, name: &str, config: &LinkConfig| {
                    if routers_between {
                        let router = sim.add_router(name);
                        sim.link(router, r4, &cheap);
                        sim.link(r1, router, config)
                    } else {
                        sim.link(r1, r4, config)
                    }
                };
                let (one, other) = (way(&mut sim, "p1", &cheap), way(&mut sim, "p2", &dear));
                let last = sim.link(r4, h2, &cheap);
                let flow = Flow {
                    protocol: Some(17),
                    dst_port: Some(5004),
                    ..Flow::to(sim.address(h2, Family::V4))
                };
                let request = ReserveRequest {
                    receiver_initiated,
                    ..ReserveRequest::new(flow, QosRequest::rate(RATE))
                };
                let command = qos::Command::Reserve(Box::new(request));
                sim.command(h1, Command::Qos { id: 1, command });
                let what = format!("{mode:?} {receiver_initiated} {routers_between}");
                let common = [(h1, first), (r4, last)];
                let at = |sim: &Sim<Host>, link, rate| held(sim, (r1, link)) == rate;
                sim.expect(&what, SECOND * 10, |sim| at(sim, one, RATE) && all(sim, common, RATE));
                for (cost, to, from) in [(DEAR, other, one), (1, one, other)] {
                    sim.run_for(SECOND * 7);
                    sim.set_cost(one, cost);
                    let mut broken = None;
                    let moved = sim.wait(SECOND * 10, |sim| {
                        if !all(sim, common, RATE) {
                            broken.get_or_insert(sim.now());
                        }
                        at(sim, to, RATE) && at(sim, from, 0)
                    });
                    assert!(moved && broken.is_none(), "{what}: {moved} {broken:?}");
                    let strays = sim.wait(SECOND * 200, |sim| {
                        !(at(sim, to, RATE) && at(sim, from, 0) && all(sim, common, RATE))
                    });
                    assert!(!strays, "{what}: it does not stay, at {}", sim.now());
                }
            }
        }
    }
}

/// The user releases the reservation around the time of a route change, to the other branch or back to the first. No
/// branch keeps a reservation for longer than two transmissions take, and the user is notified.
#[test]
fn a_release_while_the_route_changes_leaves_nothing() {
    for mode in MODES {
        for (receiver_initiated, confirm) in [(false, false), (false, true), (true, false)] {
            for back in [false, true] {
                // Each step is a quarter of the delay of a link.
                for step in -24..96_i64 {
                    let what = format!("{mode:?} {receiver_initiated} {confirm} {back} {step}");
                    let mut net = Diamond::asked(step.unsigned_abs(), mode, receiver_initiated, confirm);
                    if back {
                        let (by_r2, by_r3) = (net.by_r2, net.by_r3);
                        net.sim.set_cost(net.decides, DEAR);
                        net.moves(&what, by_r2, by_r3, 10);
                        net.sim.run_for(SECOND * 7);
                    }
                    let cost = if back { 1 } else { DEAR };
                    let apart = Duration::from_micros(250 * step.unsigned_abs());
                    if step < 0 {
                        net.command(qos::Command::Release);
                        net.sim.run_for(apart);
                        net.sim.set_cost(net.decides, cost);
                    } else {
                        net.sim.set_cost(net.decides, cost);
                        net.sim.run_for(apart);
                        net.command(qos::Command::Release);
                    }
                    let nodes = net.nodes;
                    let over = net.sim.wait(SECOND * 5, |sim| {
                        nodes.iter().all(|node| sim.reservations(*node).next().is_none())
                            && matches!(events_of(sim, nodes[0], 1).last(), Some(QosEvent::Released))
                    });
                    assert!(over, "{what}: {:?}, {:?}", net.state(), net.last_event());
                    assert_eq!(net.expired(), 0, "{what}");
                }
            }
        }
    }
}
