//! Mechanisms of discovery, and messages that wait for it.

use signalbox_casp::engine::{Config, Input, Mechanism, Request, SendRequest};
use signalbox_casp::wire::{Body, Cookie, Flags, Signaling};
use signalbox_core::node::{NoRoute, Prefix};

use crate::rig::*;

/// CASP-5.1-05, CASP-P-17, CASP-3-03: a static next hop needs no Scout Request, and gets the same octets without cookie.
#[test]
fn a_static_next_hop_needs_no_scout() {
    let scouted = {
        let mut rig = Rig::new();
        let up = rig.accept(UP);
        let outputs = rig.say(up, &data(UNKNOWN));
        only(&outputs, rig.stream_to(DOWN))
    };
    let prefix = Prefix { addr: ip("10.8.0.0"), len: 16 };
    let mut rig =
        Rig::with(Config { discovery: vec![(prefix, vec![Mechanism::Static(ip(DOWN))])], ..config() });
    let up = rig.accept(UP);
    let outputs = rig.say(up, &data(UNKNOWN));
    assert_eq!((scouts(&outputs).len(), rig.lookups), (0, 0));
    let sent = only(&outputs, rig.stream_to(DOWN));
    let mut plain = Vec::new();
    Signaling { proof: None, ..scouted.message() }.encode(&mut plain).unwrap();
    assert_eq!(sent.octets, plain);
    // Another prefix uses the default.
    let outputs = rig.say(up, &Signaling { flow: flow_to("10.1.0.1", 1), ..message() });
    assert_eq!(scouts(&outputs).len(), 1);
}

/// CASP-5.1-06, CASP-5.2-09, CASP-10-01: the routing table comes before scout, if its next hop is a known neighbor.
#[test]
fn the_routing_table_comes_before_scout() {
    let mut rig = Rig::with(Config { neighbors: [ip("10.0.1.254")].into(), ..config() });
    let up = rig.accept(UP);
    let outputs = rig.say(up, &message());
    assert_eq!(scouts(&outputs).len(), 0);
    assert_eq!(rig.state().next[0].peer, Some(ip("10.0.1.254")));
    rig.gateway = Ok(Some(ip("10.0.1.253")));
    let outputs = rig.say(up, &Signaling { session: session(2), ..message() });
    assert_eq!(scouts(&outputs).len(), 1);
}

/// CASP-3-03, CASP-P-14: a mechanism outside of the engine is asked by its number, and the next one tried if it finds no node.
#[test]
fn mechanisms_may_be_outside_of_the_engine() {
    let mechanisms = vec![Mechanism::External(9), Mechanism::Scout];
    let mut rig = Rig::with(Config { mechanisms, ..config() });
    let up = rig.accept(UP);
    assert!(rig.say(up, &message()).is_empty());
    let (id, mechanism, dst) = rig.discovers[0];
    assert_eq!((mechanism, dst), (9, ip(DST)));
    rig.input(Input::Discovered { id, address: Some(ip(DOWN2)) });
    assert_eq!(rig.state().next[0].peer, Some(ip(DOWN2)));
    rig.say(up, &Signaling { session: session(2), ..message() });
    let (id, ..) = rig.discovers[1];
    rig.sent.clear();
    rig.input(Input::Discovered { id, address: None });
    assert_eq!(scouts(&rig.sent).len(), 1);
    // Without an answer in time the next one is tried as well.
    rig.say(up, &Signaling { session: session(3), ..message() });
    assert_eq!(scouts(&rig.wait(seconds(5.1))).len(), 1);
}

/// CASP-5.1-03: the message leaves after the answer, when the state has its next hop.
#[test]
fn messages_wait_for_the_next_hop() {
    let mut rig = Rig::new();
    rig.answering.clear();
    let up = rig.accept(UP);
    let outputs = rig.say(up, &data(UNKNOWN));
    assert!(signaling(&outputs).is_empty() && rig.state().next.is_empty());
    assert_eq!(rig.state().waiting, 1);
    let cookie = outputs[0].octets[24..32].try_into().unwrap();
    rig.wait(seconds(0.3));
    rig.response(cookie, COOKIE, ip(DOWN), ip(FAR), 50004);
    rig.sent.clear();
    rig.input(Input::Timer);
    assert_eq!(only(&rig.sent, rig.stream_to(DOWN)).message().body, data(UNKNOWN).body);
    assert_eq!((rig.state().next.len(), rig.state().waiting), (1, 0));
}

fn numbered(n: u8) -> [u8; 1] {
    [n]
}

/// CASP-G-35: 16 messages wait in their order; more are refused.
#[test]
fn sixteen_messages_wait_in_order() {
    let mut rig = Rig::new();
    rig.answering.clear();
    let first = SendRequest::new(None, flow(), &[0]);
    let outputs = rig.request(CLIENT, Request::Send(first));
    let Indicated::Opened(_, id) = rig.take_indicated()[0] else { panic!() };
    for n in 1..20 {
        let contents = numbered(n);
        rig.request(CLIENT, Request::Send(SendRequest::new(Some(id), flow(), &contents)));
    }
    assert_eq!(rig.take_indicated(), vec![Indicated::Undelivered(flow()); 4]);
    let cookie = outputs[0].octets[24..32].try_into().unwrap();
    rig.response(cookie, COOKIE, ip(DOWN), ip(FAR), 50004);
    rig.sent.clear();
    rig.input(Input::Timer);
    let order: Vec<u8> = signaling(&rig.sent)
        .iter()
        .map(|one| match one.message().body {
            Body::Client { data: &[n], .. } => n,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(order, (0..16).collect::<Vec<u8>>());
}

/// CASP-G-35: 64 KiB wait at most, and a refresh gives way.
#[test]
fn waiting_octets_are_bounded_and_refreshes_give_way() {
    let mut rig = Rig::new();
    rig.answering.clear();
    let up = rig.accept(UP);
    let large = vec![1; 30_000];
    let sent = Signaling { body: Body::Client { client: UNKNOWN, data: &large }, ..message() };
    for _ in 0..4 {
        rig.say(up, &sent);
    }
    assert_eq!((rig.state().waiting, rig.node.counters().waiting_full), (2, 2));
    let mut rig = Rig::new();
    rig.answering.clear();
    let up = rig.accept(UP);
    let cookie = rig.say(up, &message())[0].octets[24..32].try_into().unwrap();
    for _ in 0..15 {
        rig.say(up, &message());
    }
    for _ in 0..8 {
        rig.say(up, &data(UNKNOWN));
    }
    assert_eq!((rig.state().waiting, rig.node.counters().waiting_full), (16, 0));
    rig.response(cookie, COOKIE, ip(DOWN), ip(FAR), 50004);
    rig.input(Input::Timer);
    let down = rig.stream_to(DOWN);
    rig.say(down, &flags(message(), Flags::REVERSE));
    assert_eq!(rig.node.tables()[4].size, 0, "what gave way takes no octets");
}

/// CASP-G-06: if no node is found this is the last one: the state stays without next hop, and a new try comes with the next
/// refresh.
#[test]
fn the_last_node_keeps_its_state() {
    let mut rig = Rig::new();
    rig.gateway = Err(NoRoute::Unreachable);
    let up = rig.accept(UP);
    rig.say(up, &data(CLIENT));
    assert!(rig.take_indicated().contains(&Indicated::Undelivered(flow())));
    assert_eq!((rig.state().next.len(), rig.lookups), (0, 1));
    for _ in 0..5 {
        rig.say(up, &data(CLIENT));
    }
    assert_eq!(rig.lookups, 1);
    rig.wait(seconds(31.0));
    let before = rig.lookups;
    rig.say(up, &data(CLIENT));
    assert!(rig.lookups <= 3 && before <= 2, "{before} {}", rig.lookups);
    rig.gateway = Ok(None);
    rig.wait(seconds(60.0));
    assert_eq!(rig.state().next[0].peer, Some(ip(DOWN)));
}

/// CASP-G-25: the first answer wins; one other node is kept, and used if the first one cannot be connected to.
#[test]
fn a_second_answer_is_a_substitute() {
    let mut rig = Rig::new();
    rig.answering = vec![ip(DOWN2), ip(DOWN), ip("10.0.1.4")];
    rig.accepting = false;
    let up = rig.accept(UP);
    rig.say(up, &data(UNKNOWN));
    let first = rig.stream_to(DOWN2);
    rig.accepting = true;
    rig.sent.clear();
    rig.input(Input::Closed { stream: first });
    assert_eq!(only(&rig.sent, rig.stream_to(DOWN)).message().body, data(UNKNOWN).body);
    assert_eq!(rig.state().next.iter().map(|one| one.peer).collect::<Vec<_>>(), [Some(ip(DOWN))]);
}

/// CASP-5.1-04: two sessions to one destination each get their own answer.
#[test]
fn each_new_session_discovers() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    rig.say(up, &message());
    rig.answering = vec![ip(DOWN2)];
    rig.say(up, &Signaling { session: session(2), ..message() });
    let mut next: Vec<_> = rig.node.sessions().map(|one| (one.session, one.next[0].peer)).collect();
    next.sort_unstable();
    assert_eq!(next, [(session(1), Some(ip(DOWN))), (session(2), Some(ip(DOWN2)))]);
}

/// CASP-9.1-02: addresses that no node has are not taken as next hop.
#[test]
fn answers_with_impossible_addresses_are_ignored() {
    let mut rig = Rig::new();
    rig.answering = ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", NEAR, FAR].map(ip).to_vec();
    let up = rig.accept(UP);
    rig.say(up, &message());
    assert!(rig.opened.is_empty() && rig.state().next.is_empty());
}

/// CASP-G-06: a session of this node whose first discovery finds no node is tried again, as long as its client holds it.
#[test]
fn a_held_session_without_a_first_node_is_tried_again() {
    let mut rig = Rig::new();
    rig.answering.clear();
    rig.open(true);
    rig.wait(seconds(20.0));
    assert!(rig.state().next.is_empty(), "no node answered");
    rig.answering.push(ip(DOWN));
    rig.wait(seconds(80.0));
    assert_eq!(rig.state().next.first().and_then(|branch| branch.peer), Some(ip(DOWN)));
}

/// CASP-G-45: a cookie is good for the address of its request. If messages to the node that answers leave from another address,
/// this node asks once more from there, and the message has the cookie of that answer.
#[test]
fn a_cookie_is_asked_for_by_the_address_that_sends() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    // The connection has the address of the request: FAR.
    let outputs = rig.say(up, &Signaling { session: session(2), ..message() });
    assert_eq!((scouts(&outputs).len(), cookie_of(&only(&outputs, down))), (1, Some(COOKIE)));
    // A connection that the next hop opened to another address of this node.
    let mut rig = Rig::new();
    rig.answering.clear();
    let stream = rig.accept_at(DOWN, NEAR);
    let up = rig.accept(UP);
    let cookie = |one: &Sent| -> Cookie { one.octets[24..32].try_into().unwrap() };
    let asked = rig.say(up, &message());
    rig.sent.clear();
    rig.response(cookie(&asked[0]), [1; 8], ip(DOWN), ip(FAR), 50004);
    rig.input(Input::Timer);
    let again = rig.sent.clone();
    assert_eq!(again.len(), 1, "{again:?}");
    assert_eq!(again[0].src.unwrap().to_string(), format!("{NEAR}:50004"));
    assert_ne!(cookie(&again[0]), cookie(&asked[0]));
    // The first answer, once more, says nothing about the second request.
    rig.sent.clear();
    rig.response(cookie(&asked[0]), [1; 8], ip(DOWN), ip(FAR), 50004);
    rig.input(Input::Timer);
    assert_eq!(rig.sent, []);
    rig.response(cookie(&again[0]), COOKIE, ip(DOWN), ip(NEAR), 50004);
    rig.input(Input::Timer);
    assert_eq!(cookie_of(&only(&rig.sent.clone(), stream)), Some(COOKIE));
}
