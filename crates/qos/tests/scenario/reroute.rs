//! Routes that change, nodes that fail.

use signalbox_core::service::NetworkEvent;
use signalbox_core::{Mri, SessionId};
use signalbox_qos::engine::{QosEvent, ReserveRequest};
use signalbox_qos::wire::{Info, MessageType};

use crate::net::{Net, addr, request, sii};
use crate::sender::reserved;

/// A diamond: 0 to 4 by 1 and 3, which become 2 and 3.
fn diamond(receiver_initiated: bool) -> (Net, SessionId, Mri) {
    let mut net = Net::chain(5);
    net.paths.insert((addr(0), addr(4)), vec![0, 1, 3, 4]);
    net.reserve(0, 1, ReserveRequest { receiver_initiated, ..request(4, 125_000) });
    net.seconds(1);
    assert!(matches!(net.events(0).last(), Some(QosEvent::Granted(_))));
    assert_eq!(net.all_held(), [125_000, 125_000, 0, 125_000, 0]);
    let (session, mri) = (net.log[0].session, net.log[0].mri);
    net.seconds(1);
    net.log.clear();
    net.paths.insert((addr(0), addr(4)), vec![0, 2, 3, 4]);
    (net, session, mri)
}

/// QOS-5.2.5.2-02, QOS-5.2.5.2-03, QOS-5.2.5.2-05, QOS-3.2.12-01, QOS-5.4.1-15, QOS-5.2.5.2-01, QOS-5.2.5.2-04,
/// QOS-3.2.12-04, QOS-5.3.1-03
#[test]
fn a_reservation_moves_with_the_route_and_the_old_branch_goes() {
    let (mut net, session, mri) = diamond(false);
    net.notify(0, session, mri, NetworkEvent::Good(sii(2)));
    net.seconds(1);
    let reserves: Vec<_> = net.log.iter().filter(|l| l.message().kind == MessageType::RESERVE).collect();
    let first = reserves[0].message();
    assert_eq!((reserves[0].from, reserves[0].to, reserves[0].explicit), (0, Some(2), false));
    assert!(first.qspec.is_some() && first.rii.is_some());
    assert_eq!(first.rsn.unwrap().number, 2, "0 + 2");
    let tear = reserves.iter().find(|l| l.message().is_tear()).unwrap();
    assert_eq!((tear.from, tear.to, tear.explicit), (0, Some(1), true));
    assert_eq!(tear.message().rsn.unwrap().number, 1, "the current one less 1");
    assert_eq!(net.all_held(), [125_000, 0, 125_000, 125_000, 0]);
    // The old branch's tear reached node 3 as well, which has another peer by now.
    assert!(net.nodes[3].qos.counters().old_peer > 0);
    let events = net.events(0);
    let [QosEvent::Rerouted(moved)] = events.as_slice() else { panic!("{events:?}") };
    // An address of a node has its number in the second octet.
    let path: Vec<_> = moved.hops.iter().map(|hop| hop.address.to_string()).collect();
    assert_eq!(path, ["10.0.2.1", "10.2.0.1", "10.3.2.1", "10.4.3.1"], "the user sees the new path");
    net.seconds(600);
    assert_eq!(net.all_held(), [125_000, 0, 125_000, 125_000, 0]);
}

#[test]
fn a_spurious_change_leaves_the_reservation_alone() {
    let mut net = reserved(4);
    let (session, mri) = (net.log[0].session, net.log[0].mri);
    net.log.clear();
    net.notify(0, session, mri, NetworkEvent::Bad);
    net.seconds(1);
    assert_eq!(net.all_held(), [125_000, 125_000, 125_000, 0]);
    assert!(net.log.iter().all(|l| !l.message().is_tear()));
    assert!(net.log.iter().any(|l| l.message().info.is_some_and(|i| i.info == Info::REFRESHED)));
}

/// QOS-3.2.12-03
#[test]
fn a_receivers_reservation_is_repaired_where_the_paths_meet_again() {
    let (mut net, session, mri) = diamond(true);
    net.notify(0, session, mri, NetworkEvent::Good(sii(2)));
    net.seconds(1);
    let kinds: Vec<_> = net.log.iter().map(|l| (l.from, l.message().kind)).collect();
    assert_eq!(
        kinds[..4],
        [
            (0, MessageType::QUERY),
            (2, MessageType::QUERY),
            (3, MessageType::RESERVE),
            (2, MessageType::RESERVE),
        ]
    );
    assert_eq!(
        net.log.iter().filter(|l| l.message().kind == MessageType::QUERY).count(),
        2,
        "it goes no further"
    );
    assert!(net.log.iter().all(|l| l.to != Some(4)), "nor does what follows from it");
    net.seconds(1);
    assert_eq!(net.all_held(), [125_000, 0, 125_000, 125_000, 0]);
    net.seconds(600);
    assert_eq!(net.all_held(), [125_000, 0, 125_000, 125_000, 0]);
}

/// QOS-5.2.5.3-01, QOS-5.2.5.3-02, QOS-5.2.5.3-03, QOS-5.1.3.6-04
#[test]
fn the_old_peer_is_informed_of_a_route_that_changed_before_a_node() {
    let mut net = reserved(4);
    let (session, mri) = (net.log[0].session, net.log[0].mri);
    net.log.clear();
    net.notify(2, session, mri.inverted(), NetworkEvent::Tentative);
    net.seconds(1);
    let informed: Vec<_> = net.log.iter().map(|l| (l.from, l.to, l.explicit)).collect();
    assert_eq!(
        informed,
        [(2, Some(1), true), (1, Some(0), false)],
        "by explicit routing, then on to the QNI"
    );
    assert!(net.log.iter().all(|l| l.message().info.unwrap().info == Info::ROUTE_CHANGE));
    assert_eq!(net.all_held(), [125_000, 125_000, 125_000, 0]);
}

/// QOS-5.2.5.1-01, QOS-5.2.5.1-02, QOS-5.3.2-07
#[test]
fn the_last_node_answers_and_goes_on_looking() {
    let mut net = Net::chain(4);
    net.nodes[3].down = true;
    net.nodes[2].down = true;
    net.reserve(0, 1, request(3, 100_000));
    net.seconds(3);
    assert!(matches!(net.events(0).last(), Some(QosEvent::Granted(_))));
    assert_eq!(net.all_held(), [100_000, 100_000, 0, 0]);
    // The node works again: the next refresh finds it.
    net.nodes[2].down = false;
    net.nodes[3].down = false;
    net.seconds(60);
    assert_eq!(net.all_held(), [100_000, 100_000, 100_000, 0]);
}

/// QOS-3.2.12-02, QOS-5.4.1-21, QOS-5.4.1-22, QOS-5.1.3.6-26
#[test]
fn a_node_that_starts_anew_gets_the_reservation_back_with_the_next_refresh() {
    let mut net = reserved(4);
    net.restart(1, "10mbit");
    assert_eq!(net.held(1), 0);
    net.seconds(46);
    assert_eq!(net.all_held(), [125_000, 125_000, 125_000, 0]);
    assert!(
        net.log
            .iter()
            .any(|l| l.from == 1 && l.message().info.is_some_and(|i| i.info == Info::FULL_QSPEC_REQUIRED))
    );
    net.seconds(600);
    assert_eq!(net.all_held(), [125_000, 125_000, 125_000, 0]);
    assert_eq!(
        net.events(0)
            .iter()
            .filter(|e| !matches!(e, QosEvent::Started { .. } | QosEvent::Granted(_)))
            .count(),
        0
    );
}
