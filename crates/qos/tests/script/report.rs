//! The report to a former peer, where it is lost (RFC 5974 §5.2.5.3).

use std::time::Duration;

use signalbox_core::service::NetworkEvent;
use signalbox_core::{Direction, Time};
use signalbox_qos::engine::Config;
use signalbox_qos::wire::{Info, Message, MessageFlags, MessageType, Rsn};

use crate::relay::response;
use crate::reroute::{confirmed, moved, route_change};
use crate::rig::{BEFORE, BEHIND, OTHER, Rig, SESSION, Sent, flow, octets, qspec, query_qspec, reserve};

/// When reports were sent, in seconds from `start` on.
fn reports(sent: &[(Time, Sent)], start: Time) -> Vec<f64> {
    let reports = sent
        .iter()
        .filter(|(_, one)| one.message().kind == MessageType::NOTIFY && one.info() == Info::ROUTE_CHANGE);
    reports.map(|(at, _)| at.since(start).as_secs_f64().round()).collect()
}

fn later(rig: &mut Rig, seconds: u64) -> Vec<(Time, Sent)> {
    rig.until(rig.now + Duration::from_secs(seconds))
}

/// QOS-5.2.5.3-02: no message answers the report. The node that sends it sends it to the former peer again, until that branch has ended or
/// is the route again.
#[test]
fn a_report_to_a_former_peer_is_sent_again_while_it_may_be_needed() {
    let mut rig = moved();
    let start = rig.now;
    let sent = later(&mut rig, 100);
    assert_eq!(reports(&sent, start), [2.0, 6.0, 14.0]);
    for (_, one) in sent.iter().filter(|(_, one)| one.message().kind == MessageType::NOTIFY) {
        assert_eq!((one.sii, one.mri, one.session), (Some(BEFORE), flow().inverted(), SESSION));
    }
    let some = qspec(10_000);
    type Ends = fn(&mut Rig, &[u8]);
    let ends: [Ends; 3] = [
        |rig, _| {
            rig.receive(&Message { flags: MessageFlags::TEAR, ..reserve(4, &[]) });
        },
        |rig, some| {
            rig.receive(&Message {
                rsn: Some(Rsn { number: 0, epoch: 6 }),
                rii: Some(9),
                ..reserve(0, some)
            });
        },
        |rig, _| {
            let tear = Message { rsn: Some(Rsn { number: 10, epoch: 5 }), ..reserve(10, &[]) };
            let tear = octets(&Message { flags: MessageFlags::TEAR, ..tear });
            rig.receive_octets(OTHER, flow(), SESSION, &tear);
        },
    ];
    for end in ends {
        let mut rig = moved();
        later(&mut rig, 3);
        end(&mut rig, &some);
        let sent = later(&mut rig, 60);
        let copy = |one: &Sent| one.message().kind == MessageType::NOTIFY && one.sii == Some(BEFORE);
        assert!(!sent.iter().any(|(_, one)| copy(one)), "{sent:?}");
    }
}

/// The first report is lost. A copy has the same effect: the router that the route has left gives its part back within seconds.
#[test]
fn a_router_gives_its_part_back_after_the_copy_of_a_report_that_was_lost() {
    let mut rig = moved();
    let sent = later(&mut rig, 3);
    let copy = sent.iter().find(|(_, one)| one.message().kind == MessageType::NOTIFY);
    let (_, copy) = copy.unwrap();
    let mut former = confirmed();
    later(&mut former, 2);
    former.receive_octets(BEHIND, flow().inverted(), SESSION, &copy.octets);
    later(&mut former, 8);
    assert_eq!((former.held(), former.qos.sessions(), former.qos.counters().left), (0, 0, 1));
}

/// However often the route goes away and comes back: only the last report has copies.
#[test]
fn a_route_that_flaps_leaves_the_copies_of_one_report() {
    let mut rig = confirmed();
    for _ in 0..50 {
        assert_eq!(rig.network(flow().inverted(), NetworkEvent::Tentative).len(), 1);
        assert_eq!(rig.network(flow().inverted(), NetworkEvent::Good(BEFORE)), []);
    }
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Tentative).len(), 1);
    let start = rig.now;
    assert_eq!(reports(&later(&mut rig, 100), start), [2.0, 6.0, 14.0]);
}

/// The initiator has crashed. This relay waits for it and sends nothing, so that GIST at the next peer loses the route to this relay, and
/// that peer reports a change: that is no other way, and the state stays until it expires.
#[test]
fn a_report_about_the_own_silence_ends_nothing_before_its_time() {
    let mut rig = confirmed();
    let silent = rig.network(flow(), NetworkEvent::Bad);
    assert_eq!(silent.iter().map(Sent::info).collect::<Vec<_>>(), [Info::FULL_QSPEC_REQUIRED]);
    for _ in 0..4 {
        later(&mut rig, 10);
        rig.back(&route_change());
    }
    assert_eq!(rig.held(), 10_000);
    later(&mut rig, 100);
    assert_eq!(rig.held(), 10_000);
    later(&mut rig, 20);
    assert_eq!((rig.held(), rig.qos.counters().left), (0, 0), "it has expired");
}

/// The receiver reserves. The peer that RESERVEs went to has one by another way, and GIST has lost the route to it already.
#[test]
fn a_report_of_the_last_next_peer_is_taken_where_reserves_go_upstream() {
    for (from, held) in [(BEFORE, 0), (OTHER, 10_000)] {
        let mut rig = reserved_upstream();
        rig.network(flow().inverted(), NetworkEvent::Bad);
        let report = octets(&route_change());
        rig.receive_octets(from, flow(), SESSION, &report);
        later(&mut rig, 9);
        assert_eq!((rig.held(), rig.qos.counters().left), (held, u64::from(held == 0)), "{from:?}");
    }
}

/// A reservation by the receiver that the previous hop of the flow has confirmed.
fn reserved_upstream() -> Rig {
    let mut rig = Rig::new();
    let (init, some) = (query_qspec(10_000), qspec(10_000));
    let query =
        Message { flags: MessageFlags::RESERVE_INIT, qspec: Some(&init), ..Message::new(MessageType::QUERY) };
    assert_eq!(rig.receive(&query).len(), 1);
    rig.network(flow(), NetworkEvent::Good(BEHIND));
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    let [onward] = <[Sent; 1]>::try_from(rig.back(&Message { rii: Some(60), ..reserve(3, &some) })).unwrap();
    rig.sent(&onward);
    rig.receive(&Message { rii: Some(60), ..response(Info::RESERVED) });
    assert_eq!(rig.held(), 10_000);
    rig
}

/// GIST reported a change that has not taken place.
#[test]
fn a_report_of_a_change_that_was_none_is_not_sent_again() {
    let mut rig = confirmed();
    let start = rig.now;
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Tentative).len(), 1);
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    assert_eq!(reports(&later(&mut rig, 20), start), []);
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Tentative).len(), 1);
    rig.receive(&reserve(3, &[]));
    assert_eq!(reports(&later(&mut rig, 20), start), [], "its peer refreshes it");
}

/// The former peer is the new one, which has started again: it has nothing to give back.
#[test]
fn a_report_to_a_peer_that_started_again_is_not_sent_again() {
    let some = qspec(10_000);
    for (address, copies) in [("10.0.1.2", 0), ("10.0.1.3", 3)] {
        let mut rig = Rig::new();
        rig.peer_address = Some("10.0.1.2".parse().unwrap());
        rig.reserved(3, 10_000);
        rig.peer_address = Some(address.parse().unwrap());
        assert_eq!(rig.network(flow().inverted(), NetworkEvent::Good(OTHER)).len(), 1);
        let new = Message { rsn: Some(Rsn { number: 9, epoch: 5 }), rii: Some(1), ..reserve(9, &some) };
        rig.receive_octets(OTHER, flow(), SESSION, &octets(&new));
        let start = rig.now;
        assert_eq!(reports(&later(&mut rig, 20), start).len(), copies);
    }
}

#[test]
fn a_report_over_reliable_transport_is_sent_once() {
    let mut rig = Rig::with(Config { reliable: true, ..Config::default() });
    let onward = rig.reserved(3, 10_000);
    rig.back(&Message { rii: onward.message().rii, ..response(Info::RESERVED) });
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Good(OTHER)).len(), 1);
    let start = rig.now;
    assert_eq!(reports(&later(&mut rig, 20), start), []);
}

/// QOS-5.2.5.3-03: what a relay passes on may be lost, too. It passes on copies while it does not know whether it is on the path.
#[test]
fn a_relay_passes_a_report_on_again() {
    let mut rig = confirmed();
    let start = rig.now;
    let first = rig.back(&route_change());
    assert_eq!(first.iter().map(|one| one.hops).collect::<Vec<_>>(), [Some(rig.hops)]);
    let sent = later(&mut rig, 6);
    assert_eq!(reports(&sent, start), [1.0, 3.0, 5.0]);
    for (_, one) in sent.iter().filter(|(_, one)| one.message().kind == MessageType::NOTIFY) {
        assert_eq!((one.mri.direction(), one.hops), (Direction::Upstream, Some(rig.hops)));
    }
}

/// Copies cause no further reports of a node that has taken one, also if it knows by now that it is on the path.
#[test]
fn a_copy_of_a_report_is_not_passed_on() {
    let mut rig = confirmed();
    assert_eq!(rig.back(&route_change()).len(), 1);
    assert_eq!(rig.back(&route_change()), []);
    rig.receive(&reserve(3, &[]));
    for _ in 0..3 {
        assert_eq!(rig.back(&route_change()), []);
        assert_eq!(reports(&later(&mut rig, 2), rig.now), []);
    }
    later(&mut rig, 3);
    assert_eq!(rig.back(&route_change()).len(), 1, "another one");
}
