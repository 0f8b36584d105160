//! A planned restart: what a node leaves, and what the next one does with it.

use signalbox_core::Direction;
use signalbox_core::handover::Entries;
use signalbox_core::service::NetworkEvent;
use signalbox_gist::engine::{Config, Input, RoutingState};
use signalbox_gist::wire::{GistError, MessageType};

use crate::rig::{DOWN, LEFT, NSLP, OTHER, RIGHT, Rig, SESSION, UP, Via, Ways, at_port, own, query, through};

fn left(rig: &Rig) -> Entries {
    let mut entries = Entries::default();
    rig.gist.hand_over(&mut entries);
    entries
}

/// GIST-4.4.6-06, GIST-A.4.4.5-01: the next node sends "No Routing State" for each session that a peer queries, as it would
/// after the peer's next message. The peer starts its handshake again, and the session is there.
#[test]
fn the_peers_of_the_node_before_are_informed() {
    let mut rig = Rig::new();
    rig.responding();
    let entries = left(&rig);

    let mut rig = Rig::new();
    rig.handle(Input::Handover(entries));
    let error = rig.sent().error_is(GistError::NO_ROUTING_STATE);
    assert_eq!((error.src, error.dst), (at_port(LEFT), at_port(UP)));
    let about = error.message().error.unwrap();
    assert_eq!((about.session, about.mri()), (Some(SESSION), Some(through())));
    let header = about.original().unwrap();
    assert_eq!((header.kind, header.nslp), (MessageType::DATA, NSLP));
    rig.quiet();
    rig.no_state();
    assert_eq!(rig.gist.counters().peers_informed, 1);

    rig.until(60_000);
    rig.quiet();
    rig.responding();
    assert_eq!(rig.states().1, Some(RoutingState::Established));
}

/// A peer that this node queries is not informed: this node sends the Query itself. Nor is a peer that no Confirm proved.
#[test]
fn only_proved_querying_nodes_are_informed() {
    let mut rig = Rig::new();
    rig.established();
    assert!(left(&rig).is_empty());
    let mut rig = Rig::new();
    rig.inject(&Via::intercepted(crate::rig::SRC, crate::rig::DST), &query(through(), &[1; 8]));
    assert!(left(&rig).is_empty());
}

/// No Error leaves for a session that is there again, for an application that does not run any more, or from an address
/// that the node does not have any more; damaged entries are left out.
#[test]
fn what_does_not_hold_any_more_is_left_out() {
    let mut rig = Rig::new();
    rig.responding();
    let entries = left(&rig);
    rig.handle(Input::Handover(entries.clone()));
    rig.quiet();

    let mut other = entries.clone().take().unwrap().to_vec();
    other[..2].copy_from_slice(&OTHER.0.to_be_bytes());
    let mut others = Entries::default();
    assert!(others.push(&other));
    let mut rig = Rig::new();
    rig.handle(Input::Handover(others));
    rig.quiet();

    let mut rig = Rig::new();
    rig.handle(Input::Interfaces(&[]));
    rig.out.clear();
    rig.handle(Input::Handover(entries.clone()));
    rig.quiet();

    let whole = entries.clone().take().unwrap().to_vec();
    let mut damaged = Entries::default();
    for end in 0..whole.len() {
        assert!(damaged.push(&whole[..end]));
    }
    let mut rig = Rig::new();
    rig.handle(Input::Handover(damaged));
    rig.until(10_000);
    rig.quiet();
}

/// GIST-5.6-04: the Errors are subject to the rate limit of D-mode messages, and leave in parts.
#[test]
fn many_sessions_are_reported_at_the_rate_of_messages() {
    let mut rig = Rig::new();
    rig.responding();
    let one = left(&rig).take().unwrap().to_vec();
    let mut many = Entries::default();
    for number in 0..1000_u16 {
        let mut entry = one.clone();
        // The first octets of the session.
        entry[2..4].copy_from_slice(&number.to_be_bytes());
        assert!(many.push(&entry));
    }
    let config = Config { dmode_rate: 100, dmode_burst: 40, ..Config::default() };
    let mut rig = Rig::with(config);
    rig.handle(Input::Handover(many));
    assert!(rig.out.len() <= 40, "{}", rig.out.len());
    rig.until(5_000);
    assert!((450..=540).contains(&rig.out.len()), "{}", rig.out.len());
    rig.until(12_000);
    assert_eq!(rig.out.len(), 1000);
    assert_eq!(rig.gist.next_deadline(), None);
}

/// While a router restarts, Queries pass it, and the node behind it becomes the peer. "No Routing State" of a node that is or was a
/// peer makes this node query again; the state stays until the Response.
#[test]
fn a_former_peer_is_looked_for_again() {
    let mut rig = Rig::new();
    let (_, data) = rig.established();
    rig.responding();
    rig.error(UP, GistError::NO_ROUTING_STATE, &data);
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!(query.message().mri.unwrap().mri, own());
    rig.quiet();
    rig.error(UP, GistError::NO_ROUTING_STATE, &data);
    rig.quiet();
}

/// "No Routing State" is accepted from the peer only: an Error of another address does not end a session.
#[test]
fn a_forged_error_changes_nothing() {
    let mut rig = Rig::new();
    let (_, data) = rig.established();
    rig.error(UP, GistError::NO_ROUTING_STATE, &data);
    rig.quiet();
    assert_eq!(rig.states().0, Some(RoutingState::Established));
    assert_eq!(rig.gist.counters().errors_stray, 1);
    rig.error(DOWN, GistError::NO_ROUTING_STATE, &data);
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Bad));
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!((query.src, query.message().mri.unwrap().mri), (at_port(RIGHT), own()));
}

/// No other Error of another address does either, whatever message it names; one about a Query that was answered changes nothing.
#[test]
fn no_error_of_a_stranger_ends_a_session() {
    let errors = [GistError::INCORRECTLY_DELIVERED, GistError::ENDPOINT_FOUND, GistError::HOP_LIMIT_EXCEEDED];
    for error in errors {
        let mut rig = Rig::new();
        let (query, data) = rig.established();
        for (from, about) in [(UP, &data), (UP, &query), (DOWN, &query)] {
            rig.error(from, error, about);
            rig.quiet();
        }
        assert_eq!(rig.states().0, Some(RoutingState::Established));
        assert_eq!(rig.gist.counters().errors_stray, 3);
        let mut rig = Rig::new();
        let response = rig.responding();
        rig.error(DOWN, error, &response);
        rig.quiet();
        assert_eq!(rig.states().1, Some(RoutingState::Established));
    }
}
