//! Routes that form a circle of three routers, so that the previous hops of a session form one too, beside a session whose
//! route is straight.
//!
//! ```text
//! sender --- r1 ======= r2 --- other
//!              \\      //
//!               \\    //
//!                 r3 --- receiver
//! ```

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_node::qos::{self, Flow, QosRequest, ReserveRequest};
use signalbox_node::{Command, Config};
use signalbox_sim::{Family, Impairment, LinkConfig, LinkId, NextHop, NodeId, Sim};

use super::net::{Host, MS, SECOND, config};
use crate::one_hop::OneHop;

/// After this time nothing is left of a session of the QoS NSLP whose route is a circle.
const REST: Duration = Duration::from_secs(600);
/// The most messages that the three routers send in ten seconds because of such a session and the other one.
const MOST: u64 = 120;
/// The most messages of the other session in 100 seconds.
const QUIET: u64 = 100;
/// The port of the session in the circle.
pub(super) const ROUND: u16 = 5004;
/// The port of the other session.
const STRAIGHT: u16 = 5005;

pub(super) struct Ring {
    pub(super) sim: Sim<Host>,
    pub(super) sender: NodeId,
    pub(super) routers: [NodeId; 3],
    pub(super) receiver: NodeId,
    other: NodeId,
    /// From each router to the next one.
    pub(super) links: [LinkId; 3],
}

impl Ring {
    pub(super) fn new(seed: u64, config: &Config, delay: Duration) -> Self {
        Self::with(seed, config, delay, None)
    }

    /// One of the routers preserves no GIST hop count.
    fn with(seed: u64, config: &Config, delay: Duration, one_hop: Option<usize>) -> Self {
        let mut sim = Sim::new(seed);
        let [sender, r1, r2, r3, receiver, other] =
            ["sender", "r1", "r2", "r3", "receiver", "other"].map(|name| {
                let config = config.clone();
                let counts = one_hop.is_none_or(|number| name != format!("r{}", number + 1));
                sim.add_engine(name, move |boot| {
                    let mut host = Host::new(&config, boot.seed);
                    host.one_hop = (!counts).then(OneHop::default);
                    host
                })
            });
        let near = LinkConfig::default();
        let far = LinkConfig::impaired(Impairment { delay, ..Impairment::default() });
        for (host, router) in [(sender, r1), (receiver, r3), (other, r2)] {
            sim.link(host, router, &near);
        }
        let links = [(r1, r2), (r2, r3), (r3, r1)].map(|(a, b)| sim.link(a, b, &far));
        sim.capture_all();
        sim.run_for(Duration::ZERO);
        Self { sim, sender, routers: [r1, r2, r3], receiver, other, links }
    }

    pub(super) fn address(&self, node: NodeId) -> IpAddr {
        self.sim.address(node, Family::V4)
    }

    /// Packets to the receiver go round.
    pub(super) fn close(&mut self) {
        let prefix = Prefix::host(self.address(self.receiver));
        for (node, link) in self.routers.into_iter().zip(self.links) {
            self.sim.set_route(node, prefix, NextHop::Link(link));
        }
    }

    /// Packets to the receiver arrive again.
    fn open(&mut self) {
        let prefix = Prefix::host(self.address(self.receiver));
        self.routers.into_iter().for_each(|node| self.sim.remove_route(node, prefix));
    }

    pub(super) fn reserve(&mut self, to: NodeId, port: u16, receiver_initiated: bool) {
        let flow = Flow { protocol: Some(17), dst_port: Some(port), ..Flow::to(self.address(to)) };
        let request =
            ReserveRequest { receiver_initiated, ..ReserveRequest::new(flow, QosRequest::rate(12_500)) };
        let command = qos::Command::Reserve(Box::new(request));
        self.sim.command(self.sender, Command::Qos { id: port.into(), command });
    }

    /// The number of reservations for this port at all nodes.
    fn held(&self, port: u16) -> usize {
        held(&self.sim, port)
    }

    /// The messages that the routers have sent so far.
    pub(super) fn sent(&self) -> u64 {
        let count = |node: NodeId| {
            let node = &self.sim.engine(node).unwrap().node;
            let gist = ["queries_sent", "responses_sent", "confirms_sent", "data_sent", "errors_sent"];
            gist.into_iter().map(|name| node.counter("gist", name)).sum::<u64>()
        };
        self.routers.into_iter().map(count).sum()
    }
}

fn held(sim: &Sim<Host>, port: u16) -> usize {
    let reservations_of = |node| sim.reservations(node);
    let all = sim.nodes().flat_map(reservations_of);
    all.filter(|(_, one)| one.filters.iter().any(|filter| filter.dst_port == Some(port))).count()
}

/// What happens to a session in the circle.
struct Course {
    config: Config,
    delay: Duration,
    /// The session stands when the circle closes; otherwise it is asked for afterwards.
    stands: bool,
    receiver_initiated: bool,
    /// The router that preserves no GIST hop count.
    one_hop: Option<usize>,
}

impl Course {
    fn says(&self, what: &str) -> String {
        let always = self.config.gist.as_ref().unwrap().engine.associations.always;
        let Self { delay, stands, receiver_initiated, one_hop, .. } = self;
        format!(
            "{what}: delay {delay:?}, always {always}, stands {stands}, receiver-initiated {receiver_initiated}, \
             one hop {one_hop:?}"
        )
    }

    fn run(&self) {
        let mut ring = Ring::with(7, &self.config, self.delay, self.one_hop);
        ring.reserve(ring.other, STRAIGHT, false);
        if self.stands {
            ring.reserve(ring.receiver, ROUND, self.receiver_initiated);
        }
        // At the sender and at two routers.
        let whole = 3;
        let ready = ring.sim.wait(60 * SECOND, |sim| held(sim, STRAIGHT) == whole);
        assert!(ready, "{}", self.says("not set up"));
        ring.sim.run_for(15 * SECOND);
        ring.close();
        if !self.stands {
            ring.reserve(ring.receiver, ROUND, self.receiver_initiated);
        }
        for part in 0..REST.as_secs() / 10 {
            let before = ring.sent();
            if part == 30 {
                let command = Command::Qos { id: ROUND.into(), command: qos::Command::Release };
                ring.sim.command(ring.sender, command);
            }
            let strays = ring.sim.wait(10 * SECOND, |sim| held(sim, STRAIGHT) != whole);
            assert!(!strays, "{}", self.says("the other session is harmed"));
            let sent = ring.sent() - before;
            assert!(sent <= MOST, "{}", self.says(&format!("{sent} messages in ten seconds")));
        }
        let before = ring.sent();
        ring.sim.run_for(100 * SECOND);
        let (sent, left) = (ring.sent() - before, ring.held(ROUND));
        let rests = left == 0 && sent <= QUIET;
        assert!(rests, "{}", self.says(&format!("{sent} messages, {left} reservations")));
        ring.open();
        ring.reserve(ring.receiver, ROUND + 2, self.receiver_initiated);
        let made = ring.sim.wait(60 * SECOND, |sim| held(sim, ROUND + 2) == 3);
        assert!(made, "{}", self.says("no new session"));
    }
}

fn associations(always: bool) -> Config {
    let mut config = config();
    crate::net::gist(&mut config).associations.always = always;
    crate::net::gist(&mut config).associations.sctp_port = None;
    config.qos.as_mut().unwrap().reliable = always;
    config
}

/// No node keeps a session by itself: messages have a hop count that refreshes do not renew, those that come back are
/// refused, and handshakes that follow one another soon become less frequent.
#[test]
fn a_session_in_a_circle_comes_to_rest() {
    for delay in [1, 250, 1500] {
        for always in [false, true] {
            for (stands, receiver_initiated) in [(false, false), (false, true), (true, false), (true, true)] {
                let config = associations(always);
                Course { config, delay: delay * MS, stands, receiver_initiated, one_hop: None }.run();
            }
        }
    }
}

/// The same where one of the routers sends each message with hop count 1, so that its neighbors cannot preserve a count:
/// what came back is known by its RII, and a refresh that comes back ends the reservation.
#[test]
fn a_session_in_a_circle_comes_to_rest_without_a_hop_count() {
    for router in 0..3 {
        for (delay, always) in [(1, false), (1, true), (250, false), (1500, true)] {
            for (stands, receiver_initiated) in [(false, false), (false, true), (true, false), (true, true)] {
                let (config, one_hop) = (associations(always), Some(router));
                Course { config, delay: delay * MS, stands, receiver_initiated, one_hop }.run();
            }
        }
    }
}
