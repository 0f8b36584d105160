//! What a flood leaves to others.

use signalbox_casp::engine::{Config, Request, SendRequest};
use signalbox_casp::wire::{Body, Signaling};

use crate::rig::*;

#[test]
fn a_node_that_floods_leaves_sessions_to_others() {
    let mut rig = Rig::with(Config { max_sessions: 64, ..config() });
    let (up, other) = (rig.accept(UP), rig.accept(OTHER));
    for port in 0..100 {
        rig.say(up, &Signaling { flow: flow_to(DST, port), ..message() });
    }
    assert_eq!((rig.node.session_count(), rig.node.counters().sessions_full), (48, 52));
    rig.say(other, &Signaling { session: session(9), ..message() });
    assert_eq!(rig.node.session_count(), 49);
    let send = SendRequest::new(None, flow(), b"x");
    rig.request(CLIENT, Request::Send(send));
    assert_eq!(rig.node.session_count(), 50);
}

#[test]
fn a_node_that_floods_leaves_discoveries_to_others() {
    let mut rig = Rig::with(Config { max_searches: 64, ..config() });
    rig.answering.clear();
    let (up, other) = (rig.accept(UP), rig.accept(OTHER));
    for n in 1..=100 {
        rig.say(up, &Signaling { flow: flow_to(&format!("10.8.1.{n}"), 1), ..message() });
    }
    assert_eq!(rig.node.counters().searches_full, 52);
    let said = rig.say(other, &Signaling { flow: flow_to("10.8.2.1", 1), ..message() });
    assert_eq!(scouts(&said).len(), 1);
    rig.wait(seconds(200.0));
    assert_eq!(rig.node.tables()[2].size, 0);
}

#[test]
fn a_node_that_floods_leaves_octets_to_others() {
    let mut rig = Rig::with(Config { max_waiting: 100_000, ..config() });
    rig.answering.clear();
    let (up, other) = (rig.accept(UP), rig.accept(OTHER));
    let large = vec![1; 5000];
    for port in 0..100 {
        let body = Body::Client { client: UNKNOWN, data: &large };
        rig.say(up, &Signaling { flow: flow_to(DST, port), body, ..message() });
    }
    assert!(rig.node.tables()[4].size <= 75_000);
    rig.say(other, &Signaling { session: session(9), ..message() });
    let waits = rig.node.sessions().find(|one| one.session == session(9)).unwrap().waiting;
    assert_eq!(waits, 1);
    rig.wait(seconds(200.0));
    assert_eq!((rig.node.tables()[4].size, rig.node.session_count()), (0, 0));
}

#[test]
fn a_node_that_connects_too_often_is_refused() {
    let mut rig = Rig::new();
    for _ in 0..20 {
        rig.accept(UP);
    }
    assert_eq!((rig.closed.len(), rig.node.counters().connections_full), (12, 12));
    rig.accept(OTHER);
    assert_eq!(rig.closed.len(), 12);
}

/// CASP-G-42: datagrams of one source are limited, those of another are not.
#[test]
fn datagrams_of_a_source_are_limited() {
    let mut rig = Rig::with(Config { rate: 40, ..config() });
    for _ in 0..100 {
        rig.datagram(UP, NEAR, &message());
    }
    assert_eq!((rig.node.counters().rate_limited, rig.node.counters().unproved), (90, 10));
    rig.datagram(OTHER, NEAR, &message());
    assert_eq!(rig.node.counters().unproved, 11);
}

/// CASP-6.1-02: a session has no more than four branches on a side, and its own stay.
#[test]
fn branches_are_bounded() {
    let mut rig = Rig::new();
    rig.chain();
    for n in 10..30 {
        let stream = rig.accept(&format!("10.0.0.{n}"));
        rig.say(stream, &message());
    }
    let previous = rig.state().previous;
    assert_eq!((previous.len(), rig.node.counters().branches_full), (4, 17));
    assert!(previous.iter().any(|one| one.peer == Some(ip(UP))));
}

/// Nothing is left when everything ended, however often.
#[test]
fn nothing_is_left_when_all_has_ended() {
    let mut rig = Rig::with(Config { max_sessions: 64, ..config() });
    for _ in 0..3 {
        let up = rig.accept(UP);
        for port in 0..40 {
            rig.say(up, &Signaling { flow: flow_to(DST, port), ..data(CLIENT) });
        }
        assert_eq!(rig.node.session_count(), 40);
        rig.wait(seconds(1000.0));
        assert_eq!((rig.node.session_count(), rig.node.peer_count()), (0, 0));
        assert!(rig.node.tables().iter().all(|table| table.size == 0), "{:?}", rig.node.tables());
    }
}
