//! NOTIFY, route changes, and aggregated messages.

use signalbox_core::service::{AddressValidation, NetworkEvent, RecvMessage, SiiHandle};
use signalbox_core::{Mri, PathCoupled, SessionId};
use signalbox_natfw::engine::State;
use signalbox_natfw::wire::Info;

use crate::rig::{
    BEFORE, BEHIND, FAR, HOST, INSIDE, Kernel, OTHER, OUTSIDE, Rig, SESSION, Sent, addr, create, error, flow,
    notify, octets, only, success, udp,
};

fn state(rig: &Rig) -> Option<State> {
    rig.natfw.view_of(rig.now, SESSION).map(|view| view.state)
}

/// From the next peer: inbound.
fn inbound(rig: &mut Rig, info: Info) -> Vec<Sent> {
    rig.receive(BEHIND, OUTSIDE, flow().inverted(), &notify(info))
}

/// NATFW-3.2.8-05, NATFW-3.7.5-01, NATFW-3.7.5-03, NATFW-3.7.5-14, NATFW-4.3.4-02
#[test]
fn a_session_is_held_for_30_seconds_after_a_notify() {
    let mut rig = Rig::firewall();
    rig.established(1000);
    let sent = only(inbound(&mut rig, Info::ROUTE_CHANGE));
    assert_eq!((sent.message(), sent.mri), (notify(Info::ROUTE_CHANGE), flow().inverted()));
    assert!(sent.attributes.reliable);
    assert_eq!(state(&rig), Some(State::Transitory));
    assert_eq!(inbound(&mut rig, Info::ROUTE_CHANGE), [], "it is Transitory already");
    assert_eq!(rig.pass_secs(29), []);
    assert_eq!(rig.holes.len(), 1);
    rig.pass_secs(1);
    assert_eq!((state(&rig), rig.holes.len()), (None, 0));
}

/// A request in time makes the session Established again.
#[test]
fn a_request_ends_the_hold() {
    let mut rig = Rig::firewall();
    rig.established(1000);
    inbound(&mut rig, Info::ROUTE_CHANGE);
    rig.pass_secs(20);
    let sent = only(rig.by_inside(flow(), &create(2, 1000)));
    only(rig.answer(&sent, &success(2, 1000)));
    rig.pass_secs(900);
    assert_eq!((state(&rig), rig.holes.len()), (Some(State::Established), 1));
}

/// NATFW-3.7.5-07, NATFW-3.7.5-09, NATFW-3.7.5-14
#[test]
fn a_session_ends_when_a_peer_says_so() {
    for info in [Info::EXPIRED, Info::TERMINATED] {
        for outbound in [false, true] {
            let mut rig = Rig::firewall();
            rig.established(1000);
            let (from, ifindex, mri) =
                if outbound { (BEFORE, INSIDE, flow()) } else { (BEHIND, OUTSIDE, flow().inverted()) };
            let sent = only(rig.receive(from, ifindex, mri, &notify(info)));
            assert_eq!((sent.message(), sent.mri), (notify(info), mri));
            assert_eq!((state(&rig), rig.kernel.as_slice()), (None, &[Kernel::Close][..]));
        }
    }
}

/// NATFW-3.7.5-05, NATFW-3.7.5-15
#[test]
fn a_request_for_authentication_travels_inbound_only() {
    let mut rig = Rig::firewall();
    rig.established(1000);
    assert_eq!(rig.receive(BEFORE, INSIDE, flow(), &notify(Info::REAUTHENTICATE)), []);
    assert_eq!((state(&rig), rig.natfw.counters().stray_notifies), (Some(State::Established), 1));
    assert_eq!(only(inbound(&mut rig, Info::REAUTHENTICATE)).info(), Info::REAUTHENTICATE);
}

/// NATFW-3.7.5-11, NATFW-3.2.7-01
#[test]
fn a_notify_is_accepted_of_peers_over_associations_only() {
    let mut rig = Rig::firewall();
    rig.established(1000);
    rig.reliable = false;
    assert_eq!(inbound(&mut rig, Info::TERMINATED), []);
    rig.reliable = true;
    assert_eq!(rig.receive(OTHER, OUTSIDE, flow().inverted(), &notify(Info::TERMINATED)), []);
    // A class that is not for NOTIFY.
    assert_eq!(inbound(&mut rig, Info::AUTHORIZATION), []);
    assert_eq!((state(&rig), rig.natfw.counters().stray_notifies), (Some(State::Established), 3));
}

/// NATFW-3.7.5-02, NATFW-3.7.5-04, NATFW-3.9-01, NATFW-3.7.5-13
#[test]
fn a_changed_route_is_reported_in_both_directions() {
    for event in [NetworkEvent::Good(SiiHandle(77)), NetworkEvent::Bad, NetworkEvent::RouteDeleted(BEHIND)] {
        let mut rig = Rig::firewall();
        rig.established(1000);
        assert_eq!(rig.network(flow(), NetworkEvent::Good(BEHIND)), [], "the same peer");
        let sent = rig.network(flow(), event);
        let [inbound, outbound] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!((inbound.message(), inbound.mri), (notify(Info::ROUTE_CHANGE), flow().inverted()));
        assert_eq!((outbound.message(), outbound.mri), (notify(Info::ROUTE_CHANGE), flow()));
        assert_eq!((inbound.sii, outbound.sii), (None, Some(BEHIND)), "to the old peer");
        assert_eq!(state(&rig), Some(State::Transitory));
        assert_eq!(rig.network(flow(), NetworkEvent::Bad), [], "once");
    }
}

/// A message of an initiator for all its sessions, explicitly routed.
fn aggregate<'a>(rig: &Rig, from: SiiHandle, data: &'a [u8]) -> RecvMessage<'a> {
    let mri =
        Mri::PathCoupled(PathCoupled { dst_prefix: 0, ..PathCoupled::between(addr(HOST), addr("0.0.0.0")) });
    let validation = AddressValidation { unchecked_route: true, ..AddressValidation::default() };
    let received = rig.received(from, INSIDE, mri, data);
    RecvMessage { session: SessionId([0; 16]), validation, state: None, ..received }
}

fn three_sessions(rig: &mut Rig) {
    for n in 1..=3u8 {
        let mri = Mri::PathCoupled(udp(HOST, n.into(), FAR, 6000));
        let sent = only(rig.in_session(SessionId([n; 16]), BEFORE, INSIDE, mri, &create(7, 1000)));
        only(rig.answer(&sent, &success(7, 1000)));
    }
    assert_eq!(rig.holes.len(), 3);
}

/// NATFW-3.7.4-06, NATFW-3.7.4-07, NATFW-3.7.4-08
#[test]
fn an_initiator_deletes_all_its_sessions_at_once() {
    let mut rig = Rig::firewall();
    three_sessions(&mut rig);
    let data = octets(&create(1, 0));
    let message = aggregate(&rig, BEFORE, &data);
    let mut sent = rig.indicate(message);
    sent.extend(rig.pass_secs(0));
    assert_eq!((rig.holes.len(), rig.natfw.session_count()), (0, 0));
    assert!(sent.iter().all(|sent| sent.session != SessionId([0; 16])), "it is not sent on");
    assert_eq!(sent.len(), 3, "but the nodes beyond learn of the end");
}

/// NATFW-3.6-02, NATFW-3.7.4-05, NATFW-3.7.4-06
#[test]
fn an_aggregated_deletion_of_others_is_refused() {
    let mut rig = Rig::firewall();
    three_sessions(&mut rig);
    let data = octets(&create(1, 0));
    // Another peer: nothing of it is here. One that is not the initiator: refused.
    let message = aggregate(&rig, OTHER, &data);
    assert_eq!(rig.indicate(message), []);
    let message = RecvMessage { peer_address: Some(addr("10.0.1.9")), ..aggregate(&rig, BEFORE, &data) };
    assert_eq!(only(rig.indicate(message)).message(), error(1, Info::AUTHORIZATION));
    let data = octets(&create(1, 100));
    let message = aggregate(&rig, BEFORE, &data);
    assert_eq!(only(rig.indicate(message)).info(), Info::AUTHORIZATION);
    // Without an association it is not taken at all.
    let data = octets(&create(1, 0));
    rig.reliable = false;
    let message = aggregate(&rig, BEFORE, &data);
    assert_eq!(rig.indicate(message), []);
    rig.pass_secs(0);
    assert_eq!(rig.holes.len(), 3);
}

/// NATFW-3.7.5-17
#[test]
fn a_peer_that_goes_down_ends_all_sessions_through_it() {
    let mut rig = Rig::firewall();
    three_sessions(&mut rig);
    let data = octets(&notify(Info::TERMINATED));
    let message = aggregate(&rig, OTHER, &data);
    assert_eq!(rig.indicate(message), []);
    let message = aggregate(&rig, BEHIND, &data);
    let mut sent = rig.indicate(message);
    sent.extend(rig.pass_secs(0));
    assert_eq!((sent.len(), rig.holes.len()), (3, 0));
    assert!(sent.iter().all(|sent| sent.message() == notify(Info::TERMINATED)));
}
