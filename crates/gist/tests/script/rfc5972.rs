//! Where the state machines of RFC 5972 differ from those of RFC 5971, the latter apply; the node works with peers of
//! either kind.

use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_core::{Direction, SessionId};
use signalbox_gist::engine::{Config, Installation, RoutingState};
use signalbox_gist::wire::{GistError, MessageType, Nli};

use crate::rig::*;

/// GIST-5972-01: only messages that match a waiting cookie, or the flow, session and application of an entry, are
/// processed by the state machine of that entry; all others leave it unchanged.
#[test]
fn strangers_reach_no_machine() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    rig.respond_with(&query, |m| m.query_cookie = Some(b"not the cookie.."));
    rig.respond_with(&query, |m| m.mri = Some(flow(RIGHT, SRC).inverted().into()));
    rig.respond_with(&query, |m| m.session = Some(SessionId([1; 16])));
    rig.quiet();
    assert_eq!(rig.states().0, Some(RoutingState::AwaitingResponse));
    rig.respond(&query);
    rig.sent().is(MessageType::CONFIRM);
    rig.out.clear();
    let sender = Nli { ip_ttl: 0, ..nli(b"down", DOWN) };
    let mut strange = data(own().inverted(), sender, b"data");
    strange.session = Some(SessionId([1; 16]));
    rig.inject(&Via::direct(DOWN, RIGHT), &strange);
    rig.inject(&Via::direct(DOWN, RIGHT), &data(flow(RIGHT, SRC).inverted(), sender, b"data"));
    for _ in 0..2 {
        rig.sent().error_is(GistError::NO_ROUTING_STATE);
    }
    rig.quiet();
    assert_eq!(rig.states(), (Some(RoutingState::Established), None));
}

/// GIST-5972-09: an error that ends a handshake also ends the state, at either end; the application is notified.
#[test]
fn a_general_error_ends_the_state() {
    let mut rig = Rig::new();
    rig.established();
    while rig.out.is_empty() {
        let next = rig.ms() + 100;
        rig.until(next);
    }
    let query = rig.sent().is(MessageType::QUERY);
    rig.send(b"more", own());
    rig.sent().is(MessageType::DATA);
    rig.status();
    rig.error(DOWN, GistError::HOP_LIMIT_EXCEEDED, &query);
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Bad));
    rig.quiet();
    rig.no_state();

    let mut rig = Rig::new();
    let response = rig.responding();
    rig.error(UP, GistError::VALUE_NOT_SUPPORTED, &response);
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Bad));
    rig.no_state();

    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent();
    rig.error(DOWN, GistError::INGRESS_FILTER_FAILURE, &query);
    assert!(matches!(rig.failed(), SendError::Peer { code: 12, .. }));
    rig.no_state();
}

/// GIST-5972-10: a peer that never repeats a Response gets the Query of this node again; one that repeats its Query and
/// waits for no repeated Response gets its state as well.
#[test]
fn peers_that_repeat_otherwise() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let _lost = rig.sent().is(MessageType::QUERY);
    rig.until(500);
    let second = rig.sent().is(MessageType::QUERY);
    rig.respond(&second);
    rig.sent().is(MessageType::CONFIRM);
    assert_eq!(rig.states().0, Some(RoutingState::Established));

    let mut rig = Rig::with(Config { installation: Installation::Confirmed, ..Config::default() });
    rig.query_numbered(1, None);
    let _lost = rig.sent().is(MessageType::RESPONSE);
    rig.until(400);
    rig.query_numbered(2, None);
    let second = rig.sent().is(MessageType::RESPONSE);
    rig.confirm(&second);
    assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
    rig.until(5_000);
    rig.quiet();
    assert_eq!(rig.states().1, Some(RoutingState::Established));
}
