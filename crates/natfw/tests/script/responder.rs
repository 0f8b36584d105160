//! The end of a flow.

use signalbox_natfw::engine::{Config, Role};
use signalbox_natfw::wire::{Info, Information, Message, ObjectType};

use crate::rig::{Rig, SESSION, create, error, flow, only, success};

fn responder() -> Rig {
    let mut rig = Rig::host();
    rig.end = true;
    rig
}

/// NATFW-3.7.1-09, NATFW-3.4-14, NATFW-3.2.7-02, NATFW-3.2.7-03, NATFW-3.5-07
#[test]
fn the_responder_answers_with_the_lifetime_that_it_grants() {
    let mut rig = responder();
    let answer = only(rig.by_outside(flow(), &create(7, 100)));
    assert_eq!((answer.message(), answer.mri), (success(7, 100), flow().inverted()));
    let answer = only(rig.by_outside(flow(), &create(8, 100_000)));
    assert_eq!(answer.message(), success(8, 3600));
    assert_eq!(rig.natfw.view_of(rig.now, SESSION).unwrap().role, Role::Responder);
    assert_eq!(rig.kernel, []);
}

/// NATFW-3.7.3-02, NATFW-3.4-02, NATFW-3.4-01
#[test]
fn each_refresh_is_answered_and_without_one_the_session_ends() {
    let mut rig = responder();
    for msn in 1..5 {
        assert_eq!(only(rig.by_outside(flow(), &create(msn, 100))).message(), success(msn, 100));
        assert_eq!(rig.pass_secs(90), []);
    }
    assert_eq!(rig.pass_secs(10), []);
    assert_eq!(rig.natfw.session_count(), 0);
}

/// NATFW-3.7.1-10
#[test]
fn what_the_responder_does_not_accept_it_refuses() {
    let mut rig = responder();
    let refusal = only(rig.by_outside(flow(), &create(7, 1)));
    let info = Information { info: Info::LIFETIME_TOO_SMALL, object: Some(ObjectType::LT) };
    let expected = Message { lifetime: Some(10), info: Some(info), ..error(7, info.info) };
    assert_eq!(refusal.message(), expected);
}

/// NATFW-3.7.1-14, NATFW-3.7.2-26
#[test]
fn the_responder_drops_responses() {
    let mut rig = responder();
    only(rig.by_outside(flow(), &create(7, 100)));
    assert_eq!(rig.by_outside(flow().inverted(), &success(7, 100)), []);
    assert_eq!(rig.by_outside(flow(), &error(7, Info::INTERNAL)), []);
    assert_eq!((rig.natfw.session_count(), rig.natfw.counters().stray_responses), (1, 2));
}

/// NATFW-3.7.4-02, NATFW-3.7.4-03
#[test]
fn a_deletion_is_not_answered() {
    let mut rig = responder();
    only(rig.by_outside(flow(), &create(7, 100)));
    assert_eq!(rig.by_outside(flow(), &create(8, 0)), []);
    assert_eq!(rig.natfw.session_count(), 0);
}

/// NATFW-3.7.6.1-09: a CREATE with a nonce is accepted, whatever was requested before.
#[test]
fn a_create_of_an_edge_is_accepted_at_once() {
    let mut rig = responder();
    let request = Message { nonce: Some(5), ..create(7, 100) };
    assert_eq!(only(rig.by_outside(flow(), &request)).message(), success(7, 100));
}

/// A node without rules sends requests on.
#[test]
fn a_router_sends_requests_on() {
    let mut rig = Rig::with(Config::default());
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    assert_eq!((sent.message(), sent.mri), (create(7, 100), flow()));
    assert_eq!(only(rig.answer(&sent, &success(7, 100))).message(), success(7, 100));
    assert_eq!(rig.kernel, []);
}
