//! State that is not needed ends by itself.

use core::time::Duration;

use signalbox_core::Time;
use signalbox_gist::wire::MessageType;
use signalbox_node::Node;
use signalbox_sim::{Family, LinkConfig, Sim};

use crate::net::{FAMILIES, Net, QUIET, all_sessions, header};

fn assert_empty(sim: &Sim<Node>) {
    assert_eq!(all_sessions(sim), 0);
    for node in sim.nodes() {
        let Some(engine) = sim.engine(node) else { continue };
        assert_eq!(engine.peers().filter(|peer| peer.sessions > 0).count(), 0);
        assert_eq!(engine.pings(), 0);
        assert_eq!(engine.counter("gist", "installed"), engine.counter("gist", "removed"));
    }
}

/// GIST-4.2.1-02, GIST-4.4.4-08, GIST-6.2-19, GIST-6.3-18: after the last message the state is not refreshed and
/// expires, and then no message is sent.
#[test]
fn a_ping_that_ended_leaves_nothing() {
    for family in FAMILIES {
        let mut net = Net::chain(1, 5, &LinkConfig::default());
        net.ping(1, family, Some(3));
        assert_eq!(net.done(1, Duration::from_secs(30)), (3, 3));
        assert_eq!(all_sessions(&net.sim), 5);
        net.sim.expect("no state", QUIET, |sim| all_sessions(sim) == 0);
        assert_empty(&net.sim);
        net.sim.capture_all();
        net.sim.run_for(Duration::from_secs(600));
        assert_eq!(net.sim.captured().count(), 0);
    }
}

/// GIST-4.4.4-06: the state of an initiator that fails without a message expires as well.
#[test]
fn an_initiator_that_died_leaves_nothing() {
    let mut net = Net::chain(2, 5, &LinkConfig::default());
    net.ping(1, Family::V4, None);
    net.sim.run_for(Duration::from_secs(20));
    assert_eq!(all_sessions(&net.sim), 5);
    net.sim.crash(net.first());
    net.sim.expect("no state", QUIET, |sim| all_sessions(sim) == 0);
}

/// GIST-4.4.4-01, GIST-4.4.4-05, GIST-4.4.4-10, GIST-7.1.2-01: a session in use is refreshed on each link 15 to 22.5 s
/// after its last refresh.
#[test]
fn a_session_in_use_is_refreshed_in_time() {
    let mut net = Net::chain(3, 4, &LinkConfig::default());
    net.sim.capture_all();
    net.ping(1, Family::V4, Some(300));
    assert_eq!(net.done(1, Duration::from_secs(400)), (300, 300));
    for link in &net.links {
        let times: Vec<Time> = net
            .sim
            .captured()
            .filter(|c| c.link == *link && header(c).kind == MessageType::QUERY)
            .map(|c| c.at)
            .collect();
        assert!(times.len() >= 13, "{times:?}");
        for pair in times.windows(2) {
            let gap = pair[1].since(pair[0]);
            let range = Duration::from_millis(15_000)..=Duration::from_millis(22_600);
            assert!(range.contains(&gap), "{gap:?}");
        }
    }
}

/// GIST-3.7-03: the end of one session does not end another session on the same path.
#[test]
fn one_session_goes_the_other_stays() {
    let mut net = Net::chain(4, 3, &LinkConfig::default());
    net.ping(1, Family::V4, Some(1));
    net.ping(2, Family::V4, Some(100));
    net.done(1, Duration::from_secs(10));
    net.sim.expect("one session left", QUIET, |sim| all_sessions(sim) == 3);
    assert_eq!(net.done(2, Duration::from_secs(200)), (100, 100));
}
