//! Requests that wait for a route: they die with their session, and leave places to others.

use signalbox_core::service::{RecvMessage, SiiHandle};
use signalbox_core::{Mri, SessionId};
use signalbox_natfw::engine::{Command, Config, Middlebox};
use signalbox_natfw::wire::{DataTerminal, Info, Message};

use crate::rig::{
    BEFORE, FAR, HOST, INSIDE, OTHER, Rig, SESSION, addr, boxed, create, error, external, flow, loose,
    octets, only, udp,
};

/// Nothing is left of a session, and nothing was sent or opened for it.
fn nothing(rig: &mut Rig) {
    assert_eq!(rig.routed(), []);
    assert_eq!((rig.natfw.session_count(), rig.holes.len(), rig.resources.passage_count()), (0, 0, 0));
}

/// O18: the deletion arrives while the request waits for its route. Neither that request nor a copy of it opens the passage.
#[test]
fn a_deletion_ends_a_request_that_waits() {
    let sender = (FAR.parse().unwrap(), 32);
    let terminal = DataTerminal { sender, ..DataTerminal::receiver(17, 5000) };
    let proxied = Message { proxy: true, nonce: Some(1), terminal: Some(terminal), ..external(1, 100, 5000) };
    for (mut rig, mri, request) in [
        (Rig::firewall(), flow(), create(1, 100)),
        (Rig::nat(), flow(), create(1, 100)),
        (Rig::edge_firewall(), loose(HOST, FAR), proxied),
    ] {
        rig.slow_routes = true;
        assert_eq!(rig.by_inside(mri, &request), []);
        assert_eq!(rig.lookups.len(), 1, "it waits");
        let deletion = Message { msn: Some(2), lifetime: Some(0), ..request };
        assert_eq!(rig.by_inside(mri, &deletion), []);
        nothing(&mut rig);
        assert_eq!(rig.by_inside(mri, &request), [], "a copy that the network delays");
        nothing(&mut rig);
        assert_eq!((rig.natfw.counters().deleted, rig.natfw.counters().old_msn), (1, 1));
    }
}

/// A deletion that overtakes its request on the way.
#[test]
fn a_request_that_its_deletion_overtook_opens_nothing() {
    let mut rig = Rig::firewall();
    assert_eq!(rig.by_inside(flow(), &create(2, 0)), []);
    assert_eq!(rig.by_inside(flow(), &create(1, 100)), []);
    // An old deletion does not lower the number that is kept.
    assert_eq!(rig.by_inside(flow(), &create(1, 0)), []);
    assert_eq!(rig.by_inside(flow(), &create(2, 100)), []);
    nothing(&mut rig);
    only(rig.by_inside(flow(), &create(3, 100)));
}

/// Another peer's deletion ends nothing, and an old one neither.
#[test]
fn only_the_peer_of_a_request_that_waits_deletes_it() {
    let mut rig = Rig::firewall();
    rig.slow_routes = true;
    rig.by_inside(flow(), &create(5, 100));
    assert_eq!(rig.by_inside(flow(), &create(4, 0)), []);
    let data = octets(&create(6, 100));
    rig.indicate(rig.received(BEFORE, INSIDE, flow(), &data));
    assert_eq!(only(rig.routed()).message(), create(6, 100));
    let mut rig = Rig::firewall();
    rig.slow_routes = true;
    rig.by_inside(flow(), &create(5, 100));
    assert_eq!(rig.receive(OTHER, INSIDE, flow(), &create(4, 0)), []);
    assert_eq!(only(rig.routed()).message(), create(5, 100));
}

/// A request to change a session waits when the session ends: by its initiator, by an administrator, by time.
#[test]
fn a_change_that_waits_dies_with_its_session() {
    let other = Mri::PathCoupled(udp(HOST, 5000, "203.0.113.10", 6000));
    for from in [BEFORE, OTHER] {
        let mri = if from == BEFORE { other } else { flow() };
        let ends: [fn(&mut Rig); 3] = [
            |rig| assert_eq!(only(rig.by_inside(flow(), &create(4, 0))).message(), create(4, 0)),
            |rig| drop(rig.command(Command::Delete(SESSION))),
            |rig| drop(rig.pass_secs(200)),
        ];
        for end in ends {
            let mut rig = Rig::firewall();
            rig.established(100);
            rig.slow_routes = true;
            assert_eq!(rig.receive(from, INSIDE, mri, &create(3, 100)), []);
            assert_eq!(rig.lookups.len(), 1, "it waits");
            end(&mut rig);
            nothing(&mut rig);
        }
    }
}

/// An administrator ends a session that is not there yet: its initiator gets a refusal.
#[test]
fn an_administrator_ends_a_request_that_waits() {
    let mut rig = Rig::firewall();
    rig.slow_routes = true;
    rig.by_inside(flow(), &create(1, 100));
    assert_eq!(only(rig.command(Command::Delete(SESSION))).message(), error(1, Info::AUTHORIZATION));
    nothing(&mut rig);
}

/// RFC 5973 §3.7.4: an aggregated deletion ends what waits, too, but only the requests of that initiator.
#[test]
fn an_aggregated_deletion_ends_requests_that_wait() {
    let mut rig = Rig::firewall();
    rig.slow_routes = true;
    rig.by_inside(flow(), &create(1, 100));
    let call = SessionId([8; 16]);
    let behind = Mri::PathCoupled(udp("10.0.1.3", 5000, FAR, 6000));
    rig.in_session(call, BEFORE, INSIDE, behind, &create(1, 100));
    assert_eq!(rig.in_session(SessionId([0; 16]), BEFORE, INSIDE, flow(), &create(9, 0)), []);
    let sent = only(rig.routed());
    assert_eq!((sent.session, rig.natfw.session_count()), (call, 1));
}

/// The last request of a session waits in the place of the others. If it has another flow, its route is asked for.
#[test]
fn a_later_request_takes_the_place_of_an_earlier_one() {
    let mut rig = Rig::firewall();
    rig.slow_routes = true;
    rig.by_inside(flow(), &create(1, 100));
    rig.by_inside(flow(), &create(2, 100));
    rig.by_inside(flow(), &create(1, 100));
    assert_eq!((rig.lookups.len(), rig.natfw.counters().old_msn), (1, 1));
    assert_eq!(only(rig.routed()).message(), create(2, 100));

    let mut rig = Rig::with_rules(boxed(Middlebox::Firewall), |_| {});
    rig.slow_routes = true;
    rig.by_inside(flow(), &create(1, 100));
    // To the inside, which no rule allows.
    let inside = Mri::PathCoupled(udp(HOST, 5000, "10.0.9.9", 6000));
    rig.by_inside(inside, &create(2, 100));
    assert_eq!(rig.lookups.len(), 1);
    assert_eq!(only(rig.routed()).message(), error(2, Info::AUTHORIZATION));
    assert_eq!(rig.natfw.session_count(), 0);
}

/// A request of a host behind another peer needs the routes to both ends. They are asked for at once, and answered in any order.
#[test]
fn both_routes_of_a_request_are_asked_for_at_once() {
    let behind = Mri::PathCoupled(udp("10.0.1.3", 5000, FAR, 6000));
    for last_first in [false, true] {
        let mut rig = Rig::nat();
        rig.slow_routes = true;
        assert_eq!(rig.by_inside(behind, &create(1, 100)), []);
        let mut ends: Vec<_> = rig.lookups.iter().map(|(_, dst)| dst.to_string()).collect();
        ends.sort();
        assert_eq!(ends, ["10.0.1.3", FAR]);
        if last_first {
            rig.lookups.reverse();
        }
        let second = rig.lookups.split_off(1);
        let sent = rig.routed();
        assert_eq!((sent, rig.lookups.len(), rig.holes.len()), (vec![], 0, 0), "it waits for the other one");
        // The next copy waits in the place of the first, and needs the same routes.
        rig.slow_routes = true;
        assert_eq!(rig.by_inside(behind, &create(2, 100)), []);
        assert_eq!(rig.lookups.len(), 0);
        rig.lookups = second;
        assert_eq!(only(rig.routed()).message().msn, Some(2));
        assert_eq!(rig.lookups.len(), 0);
    }
}

/// A later request needs other routes than the two that were asked for.
#[test]
fn two_routes_that_are_needed_no_more_are_asked_for_again_once() {
    let behind = |host| Mri::PathCoupled(udp(host, 5000, FAR, 6000));
    let mut rig = Rig::nat();
    rig.slow_routes = true;
    rig.by_inside(behind("10.0.1.3"), &create(1, 100));
    rig.by_inside(behind("10.0.1.4"), &create(2, 100));
    assert_eq!(rig.lookups.len(), 2);
    let sent = only(rig.routed());
    assert_eq!((sent.message().msn, rig.natfw.session_count()), (Some(2), 1));
}

/// A host that asks for many passages leaves places to others while the routes are awaited.
#[test]
fn requests_that_wait_are_shared_by_source() {
    let mut rig = Rig::with(Config { max_sessions: 100_000, ..boxed(Middlebox::Firewall) });
    rig.slow_routes = true;
    let ask = |rig: &mut Rig, number: u32, last: u8| {
        let mut session = [0; 16];
        session[..4].copy_from_slice(&number.to_be_bytes());
        let data = octets(&create(1, 100));
        let received = rig.received(SiiHandle(last.into()), INSIDE, flow(), &data);
        let from = Some(addr(&format!("10.0.1.{last}")));
        let sent = rig.indicate(RecvMessage { session: SessionId(session), peer_address: from, ..received });
        sent.first().map(|sent| sent.info())
    };
    let refused = (0..2000).filter(|n| ask(&mut rig, *n, 66).is_some()).count();
    assert_eq!(refused, 2000 - 768, "three quarters");
    for n in 0..4 {
        assert_eq!(ask(&mut rig, 5000 + n, 2), None, "an honest host finds its places");
    }
    assert_eq!(ask(&mut rig, 6000, 2), Some(Info::NO_RESOURCES));
    // Those of the first peer are for another host: the routes to both ends are asked for.
    assert_eq!(rig.lookups.len(), 2 * 768 + 4);
    rig.routed();
    assert_eq!(rig.natfw.session_count(), 772);
    // The places are free again.
    rig.slow_routes = true;
    assert_eq!((0..2000).filter(|n| ask(&mut rig, 9000 + *n, 66).is_none()).count(), 768);
}
