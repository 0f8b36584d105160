//! Routes that are missing, and routes that change (RFC 5971 §7.1).

use core::net::IpAddr;

use signalbox_core::node::{NoRoute, Prefix, Route};
use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_core::{Direction, SessionId};
use signalbox_gist::engine::{Config, Input, Validity};
use signalbox_gist::wire::MessageType;

use crate::rig::*;

/// The first Query waits for its route; without one the message fails.
#[test]
fn no_route() {
    for (route, error) in [
        (Err(NoRoute::Unreachable), SendError::NoRoute),
        (Err(NoRoute::Prohibited), SendError::NoRoute),
        (Ok(Route { local: true, ..ROUTE }), SendError::FlowEndsHere),
    ] {
        let mut rig = Rig::new();
        rig.route = Some(route);
        rig.send(b"data", own());
        assert_eq!(rig.failed(), error);
        rig.quiet();
        rig.no_state();
    }
    let mut rig = Rig::new();
    rig.route = None;
    rig.send(b"data", own());
    let (_, Out::Lookup(id, query)) = rig.next() else { panic!() };
    assert_eq!((query.src, query.dst), (Some(ip(RIGHT)), ip(DST)));
    rig.until(1000);
    rig.quiet();
    rig.until(2010);
    assert_eq!(rig.failed(), SendError::NoRoute);
    rig.handle(Input::Route { id, result: Ok(ROUTE) });
    rig.quiet();
    rig.no_state();
}

const ELSEWHERE: Route = Route { gateway: Some(IpAddr::V4(core::net::Ipv4Addr::new(10, 2, 0, 3))), ..ROUTE };

fn changed(rig: &mut Rig, prefix: &str, len: u8) {
    rig.handle(Input::RouteChanged(Prefix { addr: ip(prefix), len }));
}

/// GIST-7.1.2-05, GIST-7.1.2-02, GIST-7.1.3-09, GIST-7.1.3-06, GIST-7.1.3-12: a route to the flow's destination
/// changes: it is looked up again; with another next hop the state is Tentative and a Query is sent at once; an answer
/// of the old peer makes it Good, that of another peer is a change of peer (GIST-7.1.2-03, GIST-7.1.3-03, GIST-B.4-03,
/// GIST-7.1.4-07).
#[test]
fn a_new_next_hop() {
    let mut rig = Rig::new();
    rig.responding();
    rig.established_for(through());
    changed(&mut rig, "10.9.0.0", 16);
    rig.quiet();
    assert_eq!(rig.gist.counters().route_checks, 1);
    changed(&mut rig, "10.7.0.0", 16);
    assert_eq!(rig.gist.counters().route_checks, 1);
    rig.route = Some(Ok(ELSEWHERE));
    changed(&mut rig, "10.9.0.0", 16);
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Tentative));
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!(rig.session().downstream.unwrap().validity, Validity::Tentative);
    rig.send(b"data", through());
    assert_eq!(rig.sent().dst, at_port(DOWN));
    rig.status();
    rig.respond_with(&query, |m| {
        m.header.s = false; // it comes from `DOWN` nevertheless
        m.nli = Some(nli(b"new", "10.2.0.3"));
    });
    rig.sent().is(MessageType::CONFIRM);
    let (_, NetworkEvent::Good(new)) = rig.notified() else { panic!() };
    let (_, NetworkEvent::RouteDeleted(old)) = rig.notified() else { panic!() };
    assert_ne!(new, old);
    assert_eq!(rig.session().downstream.unwrap().identity, b"new");
    rig.send(b"data", through());
    assert_eq!(rig.sent().dst, at_port("10.2.0.3"));
    rig.status();
    rig.quiet();
}

/// GIST-5.3.3-24: a change that touches very many sessions is processed in bounded steps, and its Queries stay within
/// the rate; no Query is lost (GIST-5.3.3-22).
#[test]
fn a_change_for_many_sessions() {
    let config = Config {
        dmode_rate: 1000,
        dmode_burst: 100,
        inactivity: core::time::Duration::from_secs(100_000),
        ..Config::default()
    };
    let mut rig = Rig::with(Config { dmode_rate: 0, ..config.clone() });
    assert!(rig.gist.sessions().next().is_none());
    rig = Rig::with(config);
    let sessions: u16 = 5000;
    let mut ms = 0;
    for number in 0..sessions {
        let mut session = [0; 16];
        session[..2].copy_from_slice(&number.to_be_bytes());
        rig.send_with(b"", own(), |m| (m.session, m.handle) = (SessionId(session), None));
        while rig.out.is_empty() {
            ms += 1;
            rig.until(ms);
        }
        let query = rig.sent().is(MessageType::QUERY);
        rig.respond_with(&query, |m| {
            m.header.r = false;
            m.responder_cookie = None;
            m.nli = Some(signalbox_gist::wire::Nli { validity_ms: 1_000_000, ..nli(b"down", DOWN) });
        });
        ms += 5;
        rig.until(ms);
        rig.out.clear();
    }
    rig.route = Some(Ok(ELSEWHERE));
    changed(&mut rig, "0.0.0.0", 0);
    let first = rig.out.len();
    assert!(first < 2 * usize::from(sessions), "{first}");
    rig.until(ms + 1000);
    let queries = |rig: &Rig| rig.out.iter().filter(|(_, o)| matches!(o, Out::Sent(_))).count();
    assert!(queries(&rig) <= 1100 + 1, "{}", queries(&rig));
    rig.until(ms + 30_000);
    let mut asked: Vec<SessionId> = Vec::new();
    for (_, out) in &rig.out {
        if let Out::Sent(packet) = out {
            asked.extend(packet.message().session);
        }
    }
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked.len(), usize::from(sessions));
}
