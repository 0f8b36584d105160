//! Nodes that crash and paths that change.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::Time;
use signalbox_gist::wire::{GistError, MessageType};
use signalbox_node::ping::{self, PingRequest};
use signalbox_node::{Config, Node};
use signalbox_sim::{Boot, Family, LinkConfig, LinkId, NodeId, Sim};

use crate::net::{FAMILIES, Net, WALL_US, full, header, make, message, path, replies, sessions};

/// Whether the end answered along `expected` with a reply that was sent after `since`.
fn answered(sim: &Sim<Node>, since: Time, expected: &[IpAddr]) -> bool {
    let replies = replies(sim, 1);
    replies.iter().any(|(at, reply)| *at - reply.rtt > since && reply.reached_end && path(reply) == expected)
}

/// GIST-4.4.6-06, GIST-4.4.6-08: a restarted node informs its neighbor that it has no state of the session, and the
/// neighbor restores the state by a handshake.
#[test]
fn a_restarted_node_is_back_on_the_path() {
    for family in FAMILIES {
        let mut net = Net::chain(1, 4, &LinkConfig::default());
        net.sim.capture_all();
        net.ping(1, family, None);
        net.sim.run_for(Duration::from_secs(5));
        let expected: Vec<_> = (1..4).map(|n| net.towards_first(n, family)).collect();
        assert!(answered(&net.sim, Time::ZERO, &expected));
        net.sim.crash(net.nodes[1]);
        net.sim.run_for(Duration::from_secs(1));
        net.sim.restart(net.nodes[1]);
        let since = net.sim.now();
        net.sim.expect("a reply along the whole path", Duration::from_secs(10), |sim| {
            answered(sim, since, &expected)
        });
        let error = net.sim.captured().find(|c| header(c).kind == MessageType::ERROR).unwrap();
        assert_eq!((error.from, error.to), (net.nodes[1], net.nodes[0]));
        assert_eq!(message(error).error.unwrap().error, GistError::NO_ROUTING_STATE);
    }
}

/// GIST-7.1.2-01, GIST-7.1.2-03: refreshes detect that a node has failed, and which node answers instead.
#[test]
fn a_dead_node_is_passed_by() {
    for family in FAMILIES {
        let mut net = Net::chain(2, 4, &LinkConfig::default());
        net.ping(1, family, None);
        net.sim.run_for(Duration::from_secs(5));
        net.sim.crash(net.nodes[1]);
        let since = net.sim.now();
        let expected: Vec<_> = (2..4).map(|n| net.towards_first(n, family)).collect();
        net.sim.expect("a reply past the node that has crashed", Duration::from_secs(30), |sim| {
            answered(sim, since, &expected)
        });
    }
}

/// After its own restart the initiator starts again, with a new session.
#[test]
fn a_restarted_initiator_starts_anew() {
    let mut net = Net::chain(3, 3, &LinkConfig::default());
    net.ping(1, Family::V4, None);
    net.sim.run_for(Duration::from_secs(3));
    let before = net.sim.engine(net.nodes[1]).unwrap().sessions().next().unwrap().session;
    net.sim.restart(net.first());
    net.ping(2, Family::V4, Some(3));
    assert_eq!(net.done(2, Duration::from_secs(30)), (3, 3));
    assert!(net.sim.engine(net.nodes[1]).unwrap().sessions().any(|view| view.session != before));
}

/// The two routes from `a` to `d`: over `b` at first, over `c` if the cost of the first link rises.
struct Diamond {
    sim: Sim<Node>,
    a: NodeId,
    b: NodeId,
    d: NodeId,
    first: LinkId,
    /// Addresses of b, c and d that the message enters by.
    over_b: Vec<IpAddr>,
    over_c: Vec<IpAddr>,
}

fn diamond(seed: u64, family: Family) -> Diamond {
    diamond_of(seed, family, full)
}

fn diamond_of(seed: u64, family: Family, factory: fn(Boot) -> Node) -> Diamond {
    let mut sim = Sim::new(seed);
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| sim.add_engine(name, factory));
    // The address of d is that of its first link, on any route.
    let leaf = sim.add_router("leaf");
    sim.link(d, leaf, &LinkConfig::default());
    let dear = LinkConfig { cost: 3, ..LinkConfig::default() };
    let ab = sim.link(a, b, &LinkConfig::default());
    sim.link(b, d, &LinkConfig::default());
    let ac = sim.link(a, c, &dear);
    sim.link(c, d, &LinkConfig::default());
    let end = sim.address(d, family);
    let over_b = vec![sim.address_on(b, ab, family), end];
    let over_c = vec![sim.address_on(c, ac, family), end];
    let request = PingRequest { src: Some(sim.address(a, family)), ..PingRequest::to(end) };
    sim.command(a, signalbox_node::Command::Ping { id: 1, command: ping::Command::Start(request) });
    sim.run_for(Duration::from_secs(5));
    Diamond { sim, a, b, d, first: ab, over_b, over_c }
}

/// GIST-7.1.2-05: after a route change at the node itself, the next message takes the new path at once, long before the
/// next refresh.
#[test]
fn a_changed_route_is_followed() {
    for family in FAMILIES {
        let mut net = diamond(4, family);
        assert!(answered(&net.sim, Time::ZERO, &net.over_b));
        net.sim.set_cost(net.first, 10);
        let since = net.sim.now();
        net.sim.expect("a reply along the new path", Duration::from_secs(5), |sim| {
            answered(sim, since, &net.over_c)
        });
        // The old path is not refreshed.
        net.sim.expect("no state off the path", Duration::from_secs(120), |sim| sessions(sim, net.b) == 0);
        assert_eq!(sessions(&net.sim, net.a), 1);
    }
}

/// A node that keeps unused state for as long as it is refreshed.
fn patient(boot: Boot) -> Node {
    make(boot, Config { wall_clock_us: WALL_US, ..Config::default() })
}

/// GIST-4.4.4-08: whenever the path leaves a branch, the branch does not take the node back where it meets the new one,
/// which changes its upstream peer once. That node was restarted before, so that the branch's clocks are not in step:
/// state was refreshed early downstream and late upstream. The remaining state expires one validity time after its last
/// refresh.
#[test]
fn the_branch_that_was_left_is_silent() {
    for seed in 0..40 {
        let mut net = diamond_of(seed, Family::V4, patient);
        net.sim.run_until(Time::from_millis(12_000));
        net.sim.restart(net.d);
        net.sim.run_until(Time::from_millis(23_000 + seed * 150));
        net.sim.set_cost(net.first, 10);
        let changes = |sim: &Sim<Node>| sim.engine(net.d).unwrap().counter("gist", "peer_changed");
        net.sim.expect("the new branch", Duration::from_secs(5), |sim| changes(sim) == 1);
        net.sim.expect("no state off the path", Duration::from_secs(31), |sim| sessions(sim, net.b) == 0);
        net.sim.run_for(Duration::from_secs(30));
        assert_eq!(changes(&net.sim), 1, "{seed}");
    }
}

#[test]
fn a_link_that_goes_down_is_got_round() {
    let mut net = diamond(5, Family::V6);
    net.sim.set_link_up(net.first, false);
    let since = net.sim.now();
    net.sim.expect("a reply along the new path", Duration::from_secs(5), |sim| {
        answered(sim, since, &net.over_c)
    });
    net.sim.set_link_up(net.first, true);
    let since = net.sim.now();
    net.sim.expect("a reply along the old path", Duration::from_secs(5), |sim| {
        answered(sim, since, &net.over_b)
    });
}
