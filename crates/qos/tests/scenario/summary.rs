//! Many sessions with few messages.

use signalbox_qos::engine::{Command, Config, QosEvent};
use signalbox_qos::wire::{Info, MessageType};

use crate::net::{Net, addr, request};

fn many(sessions: u16) -> Net {
    with(sessions, Config { summary: 16, ..Config::default() })
}

fn with(sessions: u16, config: Config) -> Net {
    let mut net = Net::with(vec![config; 3], "10mbit");
    for n in 0..sessions {
        let mut one = request(2, 10_000);
        one.flow.dst_port = Some(7000 + n);
        net.reserve(0, n.into(), one);
    }
    net.seconds(1);
    net.events(0);
    net
}

/// QOS-5.3.7-01
#[test]
fn one_refresh_serves_many_sessions_of_a_peer() {
    let mut net = many(20);
    net.seconds(600);
    assert_eq!(net.all_held(), [200_000, 200_000, 0]);
    let refreshes = net.nodes[0].qos.counters().reduced_refreshes_sent;
    let summarised = net.nodes[0].qos.counters().summarised;
    assert!(summarised > refreshes, "{refreshes} {summarised}");
    for listed in net.log.iter().filter(|l| l.message().session_ids.is_some()) {
        let message = listed.message();
        assert_eq!(message.session_ids.unwrap().len(), message.rsns.unwrap().len());
    }
}

/// QOS-5.3.6-03
#[test]
fn one_tear_ends_many_sessions() {
    let mut net = with(10, Config { summary: 16, repeat_tear: false, ..Config::default() });
    net.log.clear();
    net.command(0, 99, Command::ReleaseMany((0..10).collect()));
    net.seconds(1);
    assert_eq!(net.all_held(), [0; 3]);
    assert_eq!(net.events(0), vec![QosEvent::Released; 10]);
    assert_eq!(net.log.len(), 2, "one message a hop");
    assert!(net.log.iter().all(|l| l.message().is_tear()));
    assert_eq!(net.nodes.iter().map(|n| n.qos.sessions()).sum::<u32>(), 0);
}

/// A user names reservations twice. They stayed at the nodes further on, and the node could crash.
#[test]
fn a_reservation_that_is_named_twice_is_released_once() {
    let mut net = with(4, Config { summary: 16, repeat_tear: false, ..Config::default() });
    net.command(0, 99, Command::ReleaseMany(vec![0, 1, 2, 1, 2, 3, 0]));
    net.seconds(1);
    assert_eq!(net.all_held(), [0; 3]);
    assert_eq!(net.events(0), vec![QosEvent::Released; 4]);
    assert_eq!(net.nodes.iter().map(|n| n.qos.sessions()).sum::<u32>(), 0);
}

/// If tears are to be confirmed, each session has its own.
#[test]
fn each_tear_that_is_to_be_confirmed_goes_by_itself() {
    let mut net = many(10);
    net.log.clear();
    net.command(0, 99, Command::ReleaseMany((0..10).collect()));
    net.seconds(60);
    assert_eq!(net.all_held(), [0; 3]);
    assert_eq!(net.events(0), vec![QosEvent::Released; 10]);
    let tears: Vec<_> = net.log.iter().filter(|l| l.from == 0 && l.message().is_tear()).collect();
    assert_eq!(tears.len(), 10, "and none is repeated, for nothing got lost");
    assert!(tears.iter().all(|l| l.message().rii.is_some() && l.message().session_ids.is_none()));
    assert_eq!(net.nodes.iter().map(|n| n.qos.sessions()).sum::<u32>(), 0);
}

/// QOS-5.3.6-02
#[test]
fn sessions_that_a_restarted_node_does_not_know_come_back() {
    let mut net = many(10);
    net.restart(1, "10mbit");
    net.seconds(120);
    assert_eq!(net.all_held(), [100_000, 100_000, 0]);
    let informed = net.log.iter().any(|l| {
        l.message().kind == MessageType::RESPONSE
            && l.message().info.is_some_and(|i| {
                i.info == Info::UNKNOWN_LISTED_SESSION || i.info == Info::FULL_QSPEC_REQUIRED
            })
    });
    assert!(informed);
}

/// QOS-3.2.6-01
#[test]
fn sessions_of_different_peers_are_never_in_one_message() {
    let mut net = Net::with(vec![Config { summary: 16, ..Config::default() }; 3], "10mbit");
    net.paths.insert((addr(0), addr(1)), vec![0, 1]);
    net.paths.insert((addr(0), addr(2)), vec![0, 2]);
    for n in 0..20u16 {
        let mut one = request(1 + usize::from(n % 2), 10_000);
        one.flow.dst_port = Some(7000 + n);
        net.reserve(0, n.into(), one);
    }
    net.seconds(600);
    let peers: std::collections::BTreeMap<_, _> = net.log.iter().rev().map(|l| (l.session, l.to)).collect();
    let mut listed = 0;
    for message in net.log.iter().filter(|l| l.from == 0) {
        for session in message.message().session_ids.iter().flat_map(|ids| ids.iter()) {
            assert_eq!(peers[&session], message.to);
            listed += 1;
        }
    }
    assert!(listed > 50, "{listed}");
}
