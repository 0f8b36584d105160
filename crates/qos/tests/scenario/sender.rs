//! Sender-initiated reservations along four nodes.

use signalbox_qos::engine::{Command, Counters, QosEvent};
use signalbox_qos::wire::{Info, MessageType};

use crate::net::{Net, addr, request};

/// A chain with a reservation of 125,000 octets a second from the first node to the last.
pub(crate) fn reserved(nodes: usize) -> Net {
    let mut net = Net::chain(nodes);
    net.reserve(0, 1, request(nodes - 1, 125_000));
    net.seconds(1);
    net
}

/// QOS-3.1-02, QOS-5.2.1-01, QOS-5.3.5-03, QOS-5.3.5-06, QOS-5.4.3-01, QOS-5.4.3-03
/// QOS-5.4.1-01
#[test]
fn a_reservation_is_granted_hop_by_hop_and_torn_down() {
    let mut net = reserved(4);
    let events = net.events(0);
    let [QosEvent::Started { .. }, QosEvent::Granted(granted)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(granted.quality.rate, Some(125_000));
    assert_eq!(granted.hops.iter().map(|hop| hop.rate).collect::<Vec<_>>(), [125_000, 125_000, 125_000, 0]);
    assert_eq!(net.all_held(), [125_000, 125_000, 125_000, 0]);
    // Each node sends a RESERVE of its own, in its own epoch.
    let reserves = net.log.iter().filter(|l| l.message().kind == MessageType::RESERVE);
    let epochs: std::collections::BTreeSet<_> =
        reserves.map(|l| (l.from, l.message().rsn.unwrap().epoch)).collect();
    let distinct: std::collections::BTreeSet<_> = epochs.iter().map(|(_, epoch)| *epoch).collect();
    assert_eq!((epochs.len(), distinct.len()), (3, 3));

    // Every node refreshes to its next one; nothing expires.
    net.seconds(600);
    assert_eq!(net.all_held(), [125_000, 125_000, 125_000, 0]);
    assert!(net.nodes.iter().take(3).all(|n| n.qos.counters().reduced_refreshes_sent > 15));
    assert_eq!(net.events(0), []);

    net.command(0, 1, Command::Release);
    net.seconds(1);
    assert_eq!(net.events(0), [QosEvent::Released]);
    assert_eq!(net.all_held(), [0; 4]);
    net.seconds(31); // for repetitions of the tear
    // Whatever was sent was received, by type.
    let total = |of: fn(&Counters) -> u64| net.nodes.iter().map(|n| of(n.qos.counters())).sum::<u64>();
    assert_eq!(total(|c| c.reserves_received), total(|c| c.reserves_sent + c.full_refreshes_sent));
    assert_eq!(total(|c| c.reduced_refreshes_received), total(|c| c.reduced_refreshes_sent));
    assert_eq!(total(|c| c.tears_received), total(|c| c.tears_sent));
    assert_eq!(total(|c| c.responses_received), total(|c| c.responses_sent));
    assert!(total(|c| c.tears_received) >= 3 && total(|c| c.reduced_refreshes_received) > 45);
    assert!(net.nodes.iter().all(|n| n.qos.sessions() == 0 && n.qos.next_deadline().is_none()));
}

#[test]
fn a_refusal_names_the_node_and_its_rule_and_leaves_nothing() {
    let mut net = Net::chain(4);
    net.nodes[2].resources = crate::net::resources("1mbit");
    net.reserve(0, 1, request(3, 125_000));
    net.seconds(1);
    let events = net.events(0);
    let [QosEvent::Started { .. }, QosEvent::Failed(failure)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((failure.class, failure.code), (4, 0x07));
    assert_eq!(failure.node.as_deref(), Some("10.2.1.1"));
    assert!(failure.rule.as_deref().is_some_and(|rule| rule.contains("share")), "{failure:?}");
    assert_eq!(failure.hops.len(), 2, "the nodes before it had granted");
    net.seconds(1);
    assert_eq!(net.all_held(), [0; 4]);
    assert_eq!(net.nodes.iter().map(|n| n.qos.sessions()).sum::<u32>(), 0);
}

#[test]
fn what_a_silent_initiator_reserved_expires_along_the_path() {
    let mut net = reserved(4);
    net.nodes[0].down = true;
    net.seconds(150);
    assert_eq!(net.all_held()[1..], [125_000, 125_000, 0]);
    // The first node that detects the loss notifies the others.
    net.seconds(9);
    assert_eq!(net.all_held()[1..], [0, 0, 0]);
}

#[test]
fn a_path_without_responder_ends_at_the_last_node() {
    let mut net = Net::chain(3);
    let beyond = "203.0.113.9".parse().unwrap();
    net.reserve(
        0,
        1,
        signalbox_qos::engine::ReserveRequest::new(
            crate::net::flow(beyond),
            signalbox_qos::engine::QosRequest::rate(100_000),
        ),
    );
    net.seconds(2);
    let events = net.events(0);
    assert!(matches!(events.as_slice(), [QosEvent::Started { .. }, QosEvent::Granted(_)]), "{events:?}");
    assert_eq!(net.all_held(), [100_000; 3]);
}

#[test]
fn a_change_that_is_refused_leaves_what_stood() {
    let mut net = reserved(4);
    net.events(0);
    net.nodes[3].events.clear();
    net.reserve(0, 1, request(3, 250_000));
    net.seconds(1);
    let events = net.events(0);
    assert!(
        matches!(events.as_slice(), [QosEvent::Granted(granted)] if granted.quality.rate == Some(250_000))
    );
    assert_eq!(net.all_held(), [250_000, 250_000, 250_000, 0]);
    // Half of ten megabits is taken at the third node: 900 kB/s fit before it, and not there.
    net.reserve(2, 9, request(3, 500_000));
    net.seconds(1);
    net.reserve(0, 1, request(3, 600_000));
    net.seconds(1);
    let events = net.events(0);
    assert!(matches!(events.as_slice(), [QosEvent::Failed(_), QosEvent::Granted(_)]), "{events:?}");
    assert_eq!(net.all_held(), [250_000, 250_000, 750_000, 0]);
}

#[test]
fn lost_messages_are_made_good_by_retransmission() {
    for seed in 0..4 {
        let mut net = Net::chain(4);
        net.loss = 0.1;
        net.seconds(seed);
        net.reserve(0, 1, request(3, 100_000));
        net.seconds(31);
        let granted = net.events(0).iter().any(|event| matches!(event, QosEvent::Granted(_)));
        assert!(granted, "{seed}");
    }
}

#[test]
fn the_far_end_answers_with_success() {
    let net = reserved(4);
    let answers: Vec<_> = net.log.iter().filter(|l| l.message().kind == MessageType::RESPONSE).collect();
    assert_eq!(answers.iter().map(|l| l.from).collect::<Vec<_>>(), [3, 2, 1]);
    assert!(answers.iter().all(|l| l.message().info.unwrap().info == Info::RESERVED));
    assert!(answers.iter().all(|l| l.mri.dst() == addr(3)));
}

/// QOS-5.3.4-01, QOS-3.2.5-03
#[test]
fn refreshes_are_spread_and_short() {
    let mut net = reserved(2);
    net.seconds(20_000);
    let sent: Vec<_> = net.log.iter().filter(|l| l.message().kind == MessageType::RESERVE).skip(1).collect();
    assert!(sent.len() > 500);
    assert!(sent.iter().all(|l| l.message().qspec.is_none() && l.message().classifier.is_none()));
    let (mut sum, mut short, mut long) = (0.0, 0, 0);
    for pair in sent.windows(2) {
        let apart = pair[1].at.since(pair[0].at).as_secs_f64();
        assert!((15.0..=45.01).contains(&apart), "{apart}");
        sum += apart;
        short += u32::from(apart < 20.0);
        long += u32::from(apart > 40.0);
    }
    assert!(short > 20 && long > 20, "{short} {long}");
    #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
    let mean = sum / (sent.len() - 1) as f64;
    assert!((28.0..32.0).contains(&mean), "{mean}");
}
