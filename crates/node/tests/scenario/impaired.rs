//! Links that lose, duplicate and reorder packets.

use core::time::Duration;

use signalbox_sim::{Family, Impairment, LinkConfig};

use crate::net::{FAMILIES, Net, assert_clean_wire, replies, sessions, total};

/// With 20 % loss on each link every session is set up in the end.
#[test]
fn every_session_is_set_up_in_spite_of_loss() {
    for seed in 0..20 {
        for family in FAMILIES {
            let mut net = Net::chain(seed, 5, &LinkConfig::impaired(Impairment::lossy(0.2)));
            net.ping(1, family, None);
            net.sim.expect("a reply from the end", Duration::from_secs(120), |sim| {
                replies(sim, 1).iter().any(|(_, reply)| reply.reached_end)
            });
            for n in 0..5 {
                assert_eq!(net.sessions(n), 1, "node {n}, seed {seed}");
            }
        }
    }
}

#[test]
fn once_loss_stops_every_probe_is_answered() {
    for seed in 0..10 {
        let mut net = Net::chain(seed, 4, &LinkConfig::impaired(Impairment::lossy(0.3)));
        net.ping(1, Family::V4, Some(60));
        net.sim.run_for(Duration::from_secs(30));
        for link in net.links.clone() {
            net.sim.set_impairment(link, Impairment::default());
        }
        net.done(1, Duration::from_secs(60));
        let late =
            replies(&net.sim, 1).iter().filter(|(_, reply)| reply.seq >= 40 && reply.reached_end).count();
        assert_eq!(late, 20, "seed {seed}");
    }
}

/// A reply counts once, even if it arrives several times, and duplicated handshakes create no second session.
#[test]
fn doubled_packets_change_nothing() {
    for seed in 0..10 {
        let doubled = Impairment { duplication: 0.5, ..Impairment::default() };
        let mut net = Net::chain(seed, 4, &LinkConfig::impaired(doubled));
        net.sim.capture_all();
        net.ping(1, Family::V6, Some(20));
        assert_eq!(net.done(1, Duration::from_secs(60)), (20, 20));
        assert_eq!(replies(&net.sim, 1).len(), 20);
        for node in net.nodes.clone() {
            assert_eq!(sessions(&net.sim, node), 1);
        }
        assert!(total(&net.sim, "ping", "unexpected_replies") > 0, "seed {seed}");
        assert_clean_wire(&net.sim);
    }
}

/// The session is set up first: Data that overtakes the first Confirm is refused (RFC 5971 §4.4.6).
#[test]
fn reordered_packets_change_nothing() {
    for seed in 0..10 {
        let jitter = Impairment { jitter: Duration::from_millis(60), ..Impairment::default() };
        let mut net = Net::chain(seed, 4, &LinkConfig::default());
        let dst = net.sim.address(net.last(), Family::V4);
        let request = signalbox_node::ping::PingRequest {
            count: Some(100),
            interval: Duration::from_millis(20),
            ..signalbox_node::ping::PingRequest::to(dst)
        };
        net.sim.command(
            net.first(),
            signalbox_node::Command::Ping { id: 1, command: signalbox_node::ping::Command::Start(request) },
        );
        net.sim.run_for(Duration::from_millis(100));
        for link in net.links.clone() {
            net.sim.set_impairment(link, jitter);
        }
        assert_eq!(net.done(1, Duration::from_secs(60)), (100, 100), "seed {seed}");
        let order: Vec<_> = replies(&net.sim, 1).iter().map(|(_, reply)| reply.seq).collect();
        assert!(!order.is_sorted(), "nothing was reordered, seed {seed}");
    }
}
