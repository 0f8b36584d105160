//! Local repair (RFC 5971 §7.1): links, addresses and routes that disappear and return, for one session and for many.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::node::{Interface, NoRoute, Prefix, Route};
use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_core::{Direction, IfIndex, SessionId};
use signalbox_gist::engine::{Config, Input, Validity};
use signalbox_gist::wire::{MessageType, Nli};

use crate::rig::*;

/// The node on its third interface.
const THIRD: &str = "10.3.0.1";

fn third() -> Route {
    Route { ifindex: IfIndex(3), src: ip(THIRD), gateway: Some(ip("10.3.0.2")), ..ROUTE }
}

fn three() -> Vec<Interface> {
    [interfaces(), vec![interface(3, &[THIRD])]].concat()
}

/// The interfaces with one link down.
fn without(ifindex: u32) -> Vec<Interface> {
    let mut list = three();
    for interface in &mut list {
        interface.up = interface.ifindex != IfIndex(ifindex);
    }
    list
}

fn at_third(config: Config) -> Rig {
    let mut rig = Rig::with(config);
    rig.handle(Input::Interfaces(&three()));
    rig
}

fn changed(rig: &mut Rig, addr: &str, len: u8) {
    rig.handle(Input::RouteChanged(Prefix { addr: ip(addr), len }));
}

fn queries(rig: &Rig) -> Vec<SessionId> {
    let sessions = rig.out.iter().filter_map(|(_, out)| match out {
        Out::Sent(packet) if packet.message().header.kind == MessageType::QUERY => packet.message().session,
        _ => None,
    });
    let mut sessions: Vec<_> = sessions.collect();
    sessions.sort_unstable();
    sessions.dedup();
    sessions
}

/// Sessions of a thousand flows each by the second and by the first interface.
fn two_thousand(rig: &mut Rig) {
    for number in 0..2000_u16 {
        let mut session = [0; 16];
        session[..2].copy_from_slice(&number.to_be_bytes());
        let left = number % 2 == 1;
        let from = if left { LEFT } else { RIGHT };
        let route = if left { Route { ifindex: IfIndex(1), src: ip(LEFT), ..ROUTE } } else { ROUTE };
        rig.route = Some(Ok(route));
        let mri = flow(from, &format!("10.9.{}.{}", number >> 8, number & 0xff));
        rig.send_with(b"", mri, |m| (m.session, m.handle) = (SessionId(session), None));
        let query = rig.sent().is(MessageType::QUERY);
        rig.respond_with(&query, |m| {
            m.header.r = false;
            m.responder_cookie = None;
            m.nli = Some(Nli { validity_ms: 100_000, ..nli(b"down", DOWN) });
        });
        rig.out.clear();
        rig.until(u64::from(number) + 1);
    }
}

/// GIST-7.1.2-05, GIST-7.1.3-12: a link goes down under two thousand sessions, of which it carries half. Only these are
/// processed, and with the default configuration the Queries of all of them leave in the same instant.
#[test]
fn a_link_loss_repairs_those_that_used_it_at_once() {
    let mut rig = at_third(Config::default());
    two_thousand(&mut rig);
    assert_eq!(rig.gist.sessions().count(), 2000);
    let (before, checks) = (rig.now, rig.gist.counters().route_checks);
    rig.route = Some(Ok(third()));
    rig.handle(Input::Interfaces(&without(2)));
    assert_eq!(rig.now, before);
    let asked = queries(&rig);
    assert_eq!(asked.len(), 1000);
    assert!(asked.iter().all(|session| session.0[1] % 2 == 0));
    let counters = rig.gist.counters();
    assert_eq!((counters.route_checks - checks, counters.dmode_limited), (1000, 0));
    assert_eq!((counters.routes_followed, counters.routes_held), (1000, 0));
    // GIST-5.3.3-24: the lookup answers are processed as they arrive; no other session is processed afterwards.
    rig.out.clear();
    rig.until(before.as_micros() / 1000 + 100);
    rig.quiet();
}

/// A change of a prefix affects the flows to it.
#[test]
fn a_route_change_looks_at_its_destinations_only() {
    let mut rig = at_third(Config { hold_down: Duration::ZERO, ..Config::default() });
    two_thousand(&mut rig);
    for (addr, len, expected) in
        [("10.9.1.0", 24, 256), ("10.9.1.7", 32, 1), ("10.8.0.0", 16, 0), ("0.0.0.0", 0, 2000), ("::", 0, 0)]
    {
        let before = rig.gist.counters().route_checks;
        changed(&mut rig, addr, len);
        rig.until(rig.now.as_micros() / 1000);
        assert_eq!(rig.gist.counters().route_checks - before, expected, "{addr}/{len}");
    }
}

/// The address that peers use for this node is removed, though the interface stays.
#[test]
fn an_address_that_goes_is_replaced() {
    let mut rig = at_third(Config::default());
    rig.established_for(through());
    rig.route = Some(Ok(Route { src: ip("10.2.0.9"), ..ROUTE }));
    let mut list = three();
    list[1] = interface(2, &["10.2.0.9"]);
    rig.handle(Input::Interfaces(&list));
    assert_eq!(rig.notified().1, NetworkEvent::Tentative);
    assert_eq!(rig.sent().is(MessageType::QUERY).nli().interface, ip("10.2.0.9"));
    rig.quiet();
}

/// The flow's destination becomes an address of this node.
#[test]
fn a_destination_that_comes_here_ends_the_state() {
    let mut rig = at_third(Config::default());
    rig.established_for(through());
    rig.route = Some(Ok(Route { local: true, ..ROUTE }));
    let list = [three(), vec![interface(4, &[DST])]].concat();
    rig.handle(Input::Interfaces(&list));
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Bad));
    rig.no_state();
}

/// A change of the MTU is not a route change: it applies to the next message, and there is no repair.
#[test]
fn another_mtu_is_no_other_route() {
    let mut rig = at_third(Config { max_datagram: 1000, ..Config::default() });
    rig.established();
    rig.route = Some(Ok(Route { mtu: 300, ..ROUTE }));
    changed(&mut rig, DST, 32);
    rig.quiet();
    rig.send(&[0; 300], own());
    assert!(matches!(rig.failed(), SendError::TooLarge { .. }));
}

/// GIST-7.1.3-02, GIST-7.1.3-10: without any route state is Bad and messages wait. When the route returns, here by
/// another interface, a Query is sent at once, and after the Response messages are sent again.
#[test]
fn a_route_that_is_lost_and_found() {
    let mut rig = at_third(Config::default());
    rig.established();
    rig.route = Some(Err(NoRoute::Unreachable));
    changed(&mut rig, "0.0.0.0", 0);
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Bad));
    assert_eq!(rig.session().downstream.unwrap().validity, Validity::Bad);
    rig.send(b"wait", own());
    rig.quiet();
    rig.until(1000);
    changed(&mut rig, "0.0.0.0", 0);
    rig.quiet();
    rig.route = Some(Ok(third()));
    changed(&mut rig, "0.0.0.0", 0);
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!(query.ifindex, Some(IfIndex(3)));
    rig.respond(&query);
    rig.sent().is(MessageType::CONFIRM);
    assert_eq!(rig.sent().message().nslp_data, Some(&b"wait"[..]));
    rig.status();
    assert!(matches!(rig.notified().1, NetworkEvent::Good(_)));
    // The peer is reported together with the interface towards it.
    assert!(matches!(rig.notified().1, NetworkEvent::RouteDeleted(_)));
    rig.quiet();
}

/// The same route returns: the peer gets a Query nevertheless, since it may have changed meanwhile.
#[test]
fn the_old_route_comes_back() {
    let mut rig = Rig::new();
    rig.established();
    rig.route = Some(Err(NoRoute::Unreachable));
    changed(&mut rig, DST, 32);
    rig.notified();
    rig.route = Some(Ok(ROUTE));
    changed(&mut rig, DST, 32);
    rig.sent().is(MessageType::QUERY);
}

/// A route that does not return ends the state, and waiting messages fail.
#[test]
fn a_route_that_stays_away() {
    let mut rig = Rig::new();
    rig.established();
    rig.route = Some(Err(NoRoute::Unreachable));
    changed(&mut rig, "0.0.0.0", 0);
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Bad));
    rig.send(b"wait", own());
    rig.until(1990);
    rig.quiet();
    rig.until(2010);
    assert_eq!(rig.failed(), SendError::NoRoute);
    rig.no_state();
}

/// A handshake restarts on the new route if the route changes meanwhile.
#[test]
fn a_handshake_follows_its_route() {
    let mut rig = at_third(Config::default());
    rig.send(b"data", own());
    let first = rig.sent().is(MessageType::QUERY);
    rig.route = Some(Ok(third()));
    changed(&mut rig, DST, 32);
    let second = rig.sent().is(MessageType::QUERY);
    assert_eq!((first.ifindex, second.ifindex), (Some(IfIndex(2)), Some(IfIndex(3))));
    assert_ne!(first.cookie(), second.cookie());
}

/// GIST-7.1.4-01: a route that changes ten times a second is followed at once, then after 1 s, 2 s, 4 s: the hold-down
/// doubles. The application is notified of each change that is followed. The route at the end of a hold-down is
/// followed then, so that the last change is not lost.
#[test]
fn a_flapping_route_is_followed_slowly() {
    let mut rig = at_third(Config::default());
    rig.established();
    let mut moved = Vec::new();
    let elsewhere = |n: u64| if n.is_multiple_of(2) { third() } else { ROUTE };
    // At the end of each hold-down the route differs from that of the session.
    for n in 0..75_u64 {
        rig.until(n * 100);
        let on_third = moved.len() % 2 == 1;
        rig.route = Some(Ok(elsewhere(n)));
        changed(&mut rig, DST, 32);
        rig.route = Some(Ok(elsewhere(u64::from(on_third))));
        changed(&mut rig, DST, 32);
        while let Some((at, out)) = rig.out.pop_front() {
            if let Out::Sent(query) = out {
                let at = at.as_micros() / 1000;
                // A retransmission, not a change.
                if moved.last().is_none_or(|(_, before)| *before != query.ifindex) {
                    moved.push((at, query.ifindex));
                }
            }
        }
    }
    let times: Vec<u64> = moved.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 1000, 3000, 7000]);
    assert!(rig.gist.counters().routes_held > 100);
}

/// Hold-down does not apply to a link that is down.
#[test]
fn a_dead_link_has_no_hold_down() {
    let mut rig = at_third(Config::default());
    rig.established();
    rig.route = Some(Ok(third()));
    changed(&mut rig, DST, 32);
    rig.notified();
    let query = rig.sent();
    rig.respond(&query);
    rig.out.clear();
    rig.until(100);
    rig.route = Some(Ok(ROUTE));
    changed(&mut rig, DST, 32);
    rig.quiet();
    rig.handle(Input::Interfaces(&without(3)));
    assert_eq!(rig.notified().1, NetworkEvent::Tentative);
    assert_eq!(rig.sent().is(MessageType::QUERY).ifindex, Some(IfIndex(2)));
}

/// Hold-down can be switched off, and the number of sessions in it is bounded.
#[test]
fn hold_down_is_configured() {
    for config in [
        Config { hold_down: Duration::ZERO, ..Config::default() },
        Config { max_holds: 0, ..Config::default() },
    ] {
        let full = config.max_holds == 0;
        let mut rig = at_third(config);
        rig.established();
        for n in 0..6 {
            rig.route = Some(Ok(if n % 2 == 0 { third() } else { ROUTE }));
            changed(&mut rig, DST, 32);
            assert_eq!(queries(&rig).len(), 1);
            rig.out.clear();
        }
        assert_eq!(rig.gist.counters().holds_full, if full { 6 } else { 0 });
    }
}

/// GIST-7.1.3-04, GIST-7.1.3-13: if configured, a change downstream makes upstream state Tentative too, and the repair
/// waits a little.
#[test]
fn doubt_spreads_upstream_if_configured() {
    for (upstream_tentative, expected) in [(false, Validity::Good), (true, Validity::Tentative)] {
        let mut rig = at_third(Config { upstream_tentative, ..Config::default() });
        rig.responding();
        rig.established_for(through());
        rig.route = Some(Ok(third()));
        changed(&mut rig, DST, 32);
        assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Tentative));
        assert_eq!(rig.session().upstream.unwrap().validity, expected);
        if upstream_tentative {
            assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Tentative));
            rig.quiet();
            rig.until(490);
            rig.quiet();
            rig.until(1010);
        }
        rig.sent().is(MessageType::QUERY);
    }
    // The upstream peer's Query shows that the node is on the path: no need to wait longer.
    let mut rig = at_third(Config { upstream_tentative: true, ..Config::default() });
    rig.responding();
    rig.established_for(through());
    rig.route = Some(Ok(third()));
    changed(&mut rig, DST, 32);
    rig.out.clear();
    rig.query_numbered(2, None);
    let response = rig.sent().is(MessageType::RESPONSE);
    rig.confirm(&response);
    assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
    assert_eq!(rig.sent().is(MessageType::QUERY).ifindex, Some(IfIndex(3)));
    rig.quiet();
}

/// GIST-7.1.2-04, GIST-B.4-02: the upstream peer's Query passed another number of hops. State is Tentative from then
/// on, the Confirm makes it Good, and an unchanged Query causes no notification.
#[test]
fn a_query_that_came_another_way() {
    let mut rig = Rig::new();
    rig.responding();
    rig.until(1000);
    rig.inject(&Via::intercepted(SRC, DST).ttl(60), &query(through(), &[2; 8]));
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Tentative));
    let response = rig.sent().is(MessageType::RESPONSE);
    assert_eq!(rig.session().upstream.unwrap().validity, Validity::Tentative);
    rig.confirm(&response);
    assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
    rig.quiet();
    rig.until(2000);
    // The Confirm passed no hop, and its distance counts now.
    rig.query_numbered(3, None);
    rig.sent().is(MessageType::RESPONSE);
    rig.quiet();
}

/// A late answer applies to the present state of the session.
#[test]
fn late_answers_do_no_harm() {
    let mut rig = Rig::new();
    rig.established();
    rig.route = None;
    changed(&mut rig, DST, 32);
    let (_, Out::Lookup(id, _)) = rig.next() else { panic!() };
    rig.lifetime(own(), Some(SESSION), Duration::ZERO);
    rig.no_state();
    rig.handle(Input::Route {
        id,
        result: Ok(Route { gateway: Some(IpAddr::from([10, 2, 0, 9])), ..ROUTE }),
    });
    rig.quiet();
    changed(&mut rig, "0.0.0.0", 0);
    rig.quiet();
}

fn moved(rig: &mut Rig, ifindex: u32, address: &str) {
    rig.handle(Input::NeighborMoved { ifindex: IfIndex(ifindex), address: ip(address) });
}

/// The gateway's address moves to another router, and no route changes (VRRP). A Query asks who is there; until the Response, state
/// stays as it is. Anybody on the link can forge that change, so it must not cost more.
#[test]
fn a_gateway_whose_place_another_router_has_is_asked_at_once() {
    const GATEWAY: &str = "10.2.0.254";
    let mut rig = Rig::new();
    rig.route = Some(Ok(Route { gateway: Some(ip(GATEWAY)), ..ROUTE }));
    rig.established();
    for (ifindex, address) in [(2, "10.2.0.253"), (1, GATEWAY), (2, DST), (2, "fe80::1")] {
        moved(&mut rig, ifindex, address);
        rig.quiet();
    }
    moved(&mut rig, 2, GATEWAY);
    let query = rig.sent().is(MessageType::QUERY);
    rig.quiet();
    assert_eq!(rig.session().downstream.unwrap().validity, Validity::Good);
    rig.respond_with(&query, |m| (m.header.s, m.nli) = (false, Some(nli(b"other", "10.2.0.3"))));
    let _confirm = rig.sent().is(MessageType::CONFIRM);
    assert!(matches!(rig.notified(), (Direction::Downstream, NetworkEvent::Good(_))));
    assert!(matches!(rig.notified(), (Direction::Downstream, NetworkEvent::RouteDeleted(_))));
    assert_eq!(rig.gist.counters().peer_changed, 1);
    assert_eq!(rig.gist.counters().neighbors_followed, 1);
}

/// The destination itself moves to another host of the link. If the same peer answers, nothing changes.
#[test]
fn a_destination_on_the_link_that_moves_is_asked_at_once() {
    let mut rig = Rig::new();
    rig.established();
    moved(&mut rig, 1, DST);
    rig.quiet();
    moved(&mut rig, 2, DST);
    let query = rig.sent().is(MessageType::QUERY);
    rig.respond_with(&query, |m| (m.header.r, m.responder_cookie) = (false, None));
    rig.quiet();
    assert_eq!(rig.gist.counters().peer_changed, 0);
}
