//! What a flood leaves to others.

use signalbox_casp::engine::{Config, Input, Request, SendRequest};
use signalbox_casp::wire::{Body, Flags, Signaling, framed};

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

/// A client of this node that opens sessions without end, beside another client and a node.
#[test]
fn a_client_that_floods_leaves_sessions_to_other_clients() {
    let mut rig = Rig::with(Config { max_sessions: 256, ..config() });
    let open = |rig: &mut Rig, client, port| {
        let flow = flow_to(DST, port);
        rig.request(client, Request::Send(SendRequest { hold: true, ..SendRequest::new(None, flow, b"x") }));
        rig.node.session_count()
    };
    assert_eq!((0..300).map(|port| open(&mut rig, CLIENT, port)).max(), Some(192));
    assert_eq!(open(&mut rig, UNKNOWN, 400), 193);
    let other = rig.accept(OTHER);
    rig.say(other, &Signaling { session: session(9), ..message() });
    assert_eq!(rig.node.session_count(), 194);
    // What ended is free again for the client that had it.
    let ids: Vec<_> = rig.node.sessions().map(|one| (one.session, one.flow)).take(10).collect();
    for (id, flow) in &ids {
        let tear = SendRequest { tear_down: true, ..SendRequest::new(Some(*id), *flow, b"x") };
        rig.request(CLIENT, Request::Send(tear));
    }
    rig.wait(seconds(1.0));
    let left = rig.node.session_count();
    assert!(left <= 185, "{left}");
    assert_eq!((500..520).map(|port| open(&mut rig, CLIENT, port)).max(), Some(192));
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
    let outputs = rig.say(other, &Signaling { flow: flow_to("10.8.2.1", 1), ..message() });
    assert_eq!(scouts(&outputs).len(), 1);
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

/// Messages that begin and do not end: the source that has most of them loses connections, another one finishes its message.
#[test]
fn a_node_with_incomplete_messages_leaves_octets_to_others() {
    let mut rig = Rig::with(Config { max_incomplete: 400_000, ..config() });
    let large = vec![1; 62_000];
    let sent = Signaling { body: Body::Client { client: UNKNOWN, data: &large }, ..message() };
    let mut octets = Vec::new();
    framed(&mut octets, |octets| sent.encode(octets)).unwrap();
    let other = rig.accept(OTHER);
    for _ in 0..8 {
        let stream = rig.accept(UP);
        rig.octets(stream, &octets[..60_000]);
    }
    assert_eq!((rig.node.tables()[5].size, rig.node.counters().incomplete), (300_000, 3));
    assert_eq!(rig.closed.len(), 3);
    rig.octets(other, &octets[..1500]);
    rig.octets(other, &octets[1500..]);
    assert_eq!((rig.node.session_count(), rig.node.tables()[5].size), (1, 300_000));
    // What is over is given back.
    rig.wait(seconds(2000.0));
    assert_eq!(rig.node.tables()[5].size, 0);
}

/// Nodes that do not read hold octets. One of them with several connections leaves octets to others, whatever each connection
/// may hold.
#[test]
fn a_node_that_does_not_read_leaves_octets_to_others() {
    let mut rig = Rig::with(Config { max_unsent: 100_000, max_unsent_total: 100_000, ..config() });
    let (up, other) = (rig.accept(UP), rig.accept(OTHER));
    let large = vec![1; 5000];
    let to = |dst: &str, n: u8| Signaling {
        session: session(n),
        flow: flow_to(dst, 1),
        body: Body::Client { client: UNKNOWN, data: &large },
        ..message()
    };
    rig.say(up, &to(DST, 1));
    rig.say(other, &to(DST, 2));
    let down = rig.stream_to(DOWN);
    rig.reading = false;
    let sent = (0..100).filter(|_| !rig.say(up, &to(DST, 1)).is_empty()).count();
    assert_eq!((sent, rig.node.counters().peer_blocked), (14, 86), "three quarters of all octets");
    // Whole steps of 4,096 octets are counted.
    assert!((69_000..=75_000).contains(&rig.node.tables()[6].size), "{:?}", rig.node.tables()[6]);
    // Messages against the flow, to a node that reads.
    let little = Signaling { body: Body::Client { client: UNKNOWN, data: b"x" }, ..to(DST, 2) };
    let back = rig.say(down, &flags(little, Flags::REVERSE));
    assert_eq!(back.len(), 1, "{back:?}");
    rig.input(Input::Drained { stream: down, unsent: 0 });
    rig.input(Input::Drained { stream: other, unsent: 0 });
    rig.input(Input::Drained { stream: up, unsent: 0 });
    assert_eq!(rig.node.tables()[6].size, 0);
    assert_eq!(rig.say(up, &to(DST, 1)).len(), 1);
    rig.input(Input::Closed { stream: down });
    assert_eq!(rig.node.tables()[6].size, 0);
}

/// Other limits while the node runs: what stands stays, and what is new finds the limits of its time.
#[test]
fn limits_change_while_the_node_runs() {
    let mut rig = Rig::with(Config { max_sessions: 20, ..config() });
    let up = rig.accept(UP);
    let say = |rig: &mut Rig, port| {
        rig.say(up, &Signaling { flow: flow_to(DST, port), ..message() });
        rig.node.session_count()
    };
    (0..10).for_each(|port| assert_eq!(say(&mut rig, port), u32::from(port) + 1));
    let limit = |rig: &mut Rig, config: Config| rig.node.set_limits(rig.now, &config).unwrap();
    limit(&mut rig, Config { max_sessions: 5, ..config() });
    assert_eq!((say(&mut rig, 10), rig.node.counters().sessions_full), (10, 1));
    limit(&mut rig, Config { max_sessions: 200, ..config() });
    assert_eq!(say(&mut rig, 11), 11);
    let wrong = Config { max_timeout: 0, ..config() };
    assert!(rig.node.set_limits(rig.now, &wrong).is_err());
}

/// A reload gives no source its burst once more.
#[test]
fn a_reload_gives_back_no_rate_that_was_used() {
    let mut rig = Rig::with(Config { rate: 40, ..config() });
    let taken = |rig: &mut Rig| {
        let before = rig.node.counters().unproved;
        (0..30).for_each(|_| drop(rig.datagram(UP, NEAR, &message())));
        rig.node.counters().unproved - before
    };
    assert_eq!(taken(&mut rig), 10);
    for rate in [40, 80, 400, 40] {
        rig.node.set_limits(rig.now, &Config { rate, ..config() }).unwrap();
        assert_eq!(taken(&mut rig), 0, "{rate}");
    }
}
