//! The Responding-SM (RFC 5971 §6.3) under its three policies.

use core::time::Duration;

use signalbox_core::service::{MessageStatus, NetworkEvent, SendError};
use signalbox_core::{Direction, IfIndex, SessionId};
use signalbox_gist::engine::{Config, Installation, Role, RoutingState, Validity};
use signalbox_gist::wire::{GistError, MessageType};

use crate::rig::*;

fn policy(installation: Installation) -> Rig {
    Rig::with(Config { installation, ..Config::default() })
}

/// GIST-6.1-02, GIST-6.3-01, GIST-4.4.1-01, GIST-4.4.1-03, GIST-4.4.1-13, GIST-5.1-11, GIST-5.1-12, GIST-5.3.1-05,
/// GIST-4.4.1-14, GIST-8.4-03, GIST-5.3.1-07, GIST-5.3.3-12: policy 3 answers at once, in normal mode to the NLI's
/// address, with an inverted MRI and the received cookie and session, and keeps no state.
#[test]
fn a_query_is_answered_without_state() {
    for length in [4, 16, 64] {
        let mut rig = Rig::new();
        let cookie = vec![9; length];
        rig.inject(&Via::intercepted(SRC, DST), &query(through(), &cookie));
        let (at, response) = rig.sent_at();
        assert_eq!(at, 0);
        let response = response.is(MessageType::RESPONSE);
        assert_eq!((response.src, response.dst), (at_port(LEFT), at_port(UP)));
        assert!(response.options.is_empty());
        let said = response.message();
        assert!(said.header.r && said.header.s && !said.header.c && !said.header.e);
        assert_eq!(said.mri.unwrap().mri, through().inverted());
        assert_eq!(said.query_cookie, Some(&cookie[..]));
        assert_eq!(said.session, Some(SESSION));
        assert!(said.responder_cookie.is_some());
        assert_eq!(said.nli.unwrap().interface, ip(LEFT));
        assert_eq!(said.nli.unwrap().peer_identity, b"node");
        rig.quiet();
        rig.no_state();
        assert_eq!(rig.gist.next_deadline(), None);
    }
}

/// GIST-5.3.1-06, GIST-D-02: the Response goes from GIST's port to the source port of the Query, and so do later
/// messages upstream.
#[test]
fn ports_are_those_of_the_query_swapped() {
    let mut rig = Rig::new();
    let mut via = Via::intercepted(SRC, DST);
    via.src.set_port(4711);
    rig.inject(&via, &query(through(), &[1; 8]));
    let response = rig.sent();
    assert_eq!((response.src.port(), response.dst.port()), (270, 4711));
    let confirm = peer(b"up", UP).confirm(&response.message());
    let mut via = Via::direct(UP, LEFT);
    via.src.set_port(4711);
    rig.inject(&via, &confirm);
    rig.notified();
    rig.send(b"back", through().inverted());
    let data = rig.sent();
    assert_eq!((data.src.port(), data.dst.port()), (270, 4711));
}

/// GIST-6.1-06, GIST-6.3-05, GIST-4.4.6-03, GIST-4.4.1-16, GIST-4.4.4-01: only the Confirm creates state, for 30 s; its
/// payload is delivered.
#[test]
fn rule_2_a_confirm_gives_birth() {
    let mut rig = Rig::new();
    rig.query(None);
    let response = rig.sent();
    rig.confirm_with(&response, |m| m.nslp_data = Some(b"with"));
    assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
    let up = rig.delivered();
    assert_eq!(up.data, b"with");
    assert!(up.validation.return_routable);
    rig.quiet();
    assert_eq!(rig.states(), (None, Some(RoutingState::Established)));
    let view = rig.session().upstream.unwrap();
    assert_eq!((view.role, view.validity), (Role::Responding, Validity::Good));
    assert_eq!(view.peer, Some(at_port(UP)));
    assert_eq!(view.expires_in, Some(Duration::from_secs(30)));
}

/// GIST-6.3-03, GIST-6.3-27, GIST-6.3-10, GIST-5.3.3-16, GIST-5.3.3-17, GIST-6.3-11: policy 2
/// keeps state in Awaiting Confirm, repeats the Response as Queries are repeated, and gives up.
#[test]
fn rule_1_and_9_the_response_is_repeated_until_given_up() {
    let mut rig = policy(Installation::Confirmed);
    rig.query(None);
    assert_eq!(rig.states(), (None, Some(RoutingState::AwaitingConfirm)));
    assert_eq!(rig.session().upstream.unwrap().validity, Validity::Bad);
    rig.until(200_000);
    let first = rig.sent().is(MessageType::RESPONSE);
    assert!(first.message().header.r);
    for expected in [500, 1500, 3500, 7500, 15_500, 31_500] {
        let (at, again) = rig.sent_at();
        assert_eq!(at, expected);
        assert_eq!((again.payload, again.dst), (first.payload.clone(), first.dst));
    }
    rig.quiet();
    rig.no_state();
    assert_eq!(rig.gist.counters().no_confirm, 1);
}

/// GIST-6.3-06: another Query is answered, and `No_Confirm` starts at its initial value.
#[test]
fn rule_1_another_query_in_awaiting_confirm() {
    let mut rig = policy(Installation::Confirmed);
    rig.query(None);
    rig.until(1400);
    rig.out.clear();
    rig.query_numbered(2, None);
    assert_eq!(rig.sent().message().query_cookie, Some(&[2; 8][..]));
    rig.until(1890);
    rig.quiet();
    rig.until(1900);
    assert_eq!(rig.sent().is(MessageType::RESPONSE).message().query_cookie, Some(&[2; 8][..]));
    assert_eq!(rig.states(), (None, Some(RoutingState::AwaitingConfirm)));
}

/// GIST-6.3-07, GIST-6.3-09: messages wait for the Confirm; then its payload is delivered, they are sent in order,
/// `No_Confirm` stops and `Expire_RNode` starts.
#[test]
fn rule_7_and_8_stored_data_leaves_with_the_confirm() {
    let mut rig = policy(Installation::Confirmed);
    rig.query(None);
    let response = rig.sent();
    rig.send(b"one.", through().inverted());
    rig.send(b"two.", through().inverted());
    rig.quiet();
    rig.until(100);
    rig.confirm_with(&response, |m| m.nslp_data = Some(b"with"));
    rig.notified();
    assert_eq!(rig.delivered().data, b"with");
    for expected in [b"one.", b"two."] {
        let data = rig.sent().is(MessageType::DATA);
        assert_eq!(data.dst, at_port(UP));
        assert_eq!(data.message().nslp_data, Some(&expected[..]));
        assert!(matches!(rig.status().2, MessageStatus::Sent(_)));
    }
    rig.quiet();
    assert_eq!(rig.states(), (None, Some(RoutingState::Established)));
    rig.until(30_000);
    rig.quiet();
    rig.until(30_110);
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Bad));
    rig.no_state();
}

/// GIST-6.3-11: messages fail if they wait for a Confirm that does not arrive.
#[test]
fn stored_data_fails_with_the_machine() {
    let mut rig = policy(Installation::Confirmed);
    rig.query(None);
    rig.sent();
    rig.send(b"one.", through().inverted());
    rig.until(200_000);
    rig.out.retain(|(_, out)| !matches!(out, Out::Sent(_)));
    assert_eq!(rig.failed(), SendError::NoNextNode);
}

/// GIST-6.3-08, GIST-4.4.6-06, GIST-A.4.4.5-01: Data before the Confirm is dropped and refused.
#[test]
fn rule_6_data_before_the_confirm() {
    let mut rig = policy(Installation::Confirmed);
    rig.query(None);
    rig.sent();
    rig.data_down(b"soon");
    rig.sent().error_is(GistError::NO_ROUTING_STATE);
    rig.quiet();
    assert_eq!(rig.states(), (None, Some(RoutingState::AwaitingConfirm)));
}

/// GIST-6.1-01, GIST-6.3-04, GIST-6.3-12, GIST-6.3-26, GIST-5.1-12: policy 1 needs no Confirm: R=0, no cookie, state at
/// once, prolonged by each Query.
#[test]
fn rule_5_state_without_confirm() {
    let mut rig = policy(Installation::Immediate);
    rig.query(None);
    let response = rig.sent().is(MessageType::RESPONSE);
    assert!(!response.message().header.r);
    assert_eq!(response.message().responder_cookie, None);
    assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
    assert_eq!(rig.states(), (None, Some(RoutingState::Established)));
    rig.data_down(b"data");
    assert!(!rig.delivered().validation.return_routable);
    rig.until(20_000);
    rig.query_numbered(2, None);
    rig.sent().is(MessageType::RESPONSE);
    rig.quiet();
    rig.until(49_990);
    rig.session();
    rig.until(50_010);
    assert_eq!(rig.notified().1, NetworkEvent::Bad);
    rig.no_state();
}

/// GIST-6.3-13, GIST-6.3-20, GIST-6.3-21, GIST-6.3-19, GIST-6.3-22, GIST-6.3-23: a refresh: Awaiting Refresh,
/// Data flows both ways, the Response is repeated, another Query starts the timer again, the Confirm
/// ends it. Under policies 2 and 3. GIST-5972-11: the state is not deleted first.
#[test]
fn a_refresh_needs_its_confirm() {
    for installation in [Installation::Confirmed, Installation::Delayed] {
        let mut rig = policy(installation);
        rig.responding();
        rig.until(20_000);
        rig.query_numbered(2, None);
        let response = rig.sent().is(MessageType::RESPONSE);
        assert!(response.message().header.r);
        assert_eq!(rig.states(), (None, Some(RoutingState::AwaitingRefresh)));
        rig.data_down(b"down");
        assert_eq!(rig.delivered().data, b"down");
        rig.send(b"up..", through().inverted());
        rig.sent().is(MessageType::DATA);
        rig.status();
        rig.until(20_500);
        assert_eq!(rig.sent().payload, response.payload);
        rig.until(20_600);
        rig.query_numbered(3, None);
        let third = rig.sent().is(MessageType::RESPONSE);
        rig.until(21_090);
        rig.quiet();
        rig.until(21_100);
        assert_eq!(rig.sent().payload, third.payload);
        rig.confirm(&third);
        rig.quiet();
        assert_eq!(rig.states(), (None, Some(RoutingState::Established)));
        rig.until(51_090);
        rig.session();
        rig.until(51_120);
        assert_eq!(rig.notified().1, NetworkEvent::Bad);
        rig.no_state();
    }
}

/// GIST-6.3-24, GIST-6.3-25: Awaiting Refresh ends without a Confirm when the Response was repeated often
/// enough, and in any case when `Expire_RNode` fires.
#[test]
fn a_refresh_that_is_not_confirmed_ends() {
    let mut rig = Rig::with(Config { attempts: 2, ..Config::default() });
    rig.responding();
    rig.until(5_000);
    rig.query_numbered(2, None);
    rig.until(6_480);
    rig.session();
    rig.until(6_510);
    rig.no_state();
    let mut rig = Rig::new();
    rig.responding();
    rig.until(29_000);
    rig.query_numbered(2, None);
    rig.out.clear();
    rig.until(30_010);
    rig.no_state();
}

/// GIST-6.3-14: a second Confirm is ignored without an answer.
#[test]
fn rule_10_a_duplicate_confirm() {
    let mut rig = Rig::new();
    let response = rig.responding();
    rig.until(10_000);
    rig.confirm(&response);
    rig.quiet();
    assert_eq!(rig.gist.counters().confirms_duplicate, 1);
    rig.until(30_010);
    rig.no_state();
}

/// GIST-6.3-15, GIST-6.3-18, GIST-4.4.4-06, GIST-5972-12: Data is delivered and does not prolong the state.
#[test]
fn rule_4_and_11_data_does_not_refresh() {
    let mut rig = Rig::new();
    rig.responding();
    for ms in [10_000, 20_000, 29_000] {
        rig.until(ms);
        rig.data_down(b"data");
        assert_eq!(rig.delivered().data, b"data");
    }
    rig.until(29_990);
    rig.session();
    rig.until(30_010);
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Bad));
    rig.quiet();
    rig.no_state();
}

/// GIST-6.3-16, GIST-5.2.2-07: Data is sent to the peer at once, and its NLI has the measured distance.
#[test]
fn rule_3_data_upstream() {
    let mut rig = Rig::new();
    rig.inject(&Via::intercepted(SRC, DST).ttl(61), &query(through(), &[1; 8]));
    let response = rig.sent();
    assert_eq!(response.nli().ip_ttl, 3);
    let confirm = peer(b"up", UP).confirm(&response.message());
    rig.inject(&Via::direct(UP, LEFT).ttl(61), &confirm);
    rig.notified();
    assert_eq!(rig.session().upstream.unwrap().ip_distance, Some(3));
    rig.send(b"back", through().inverted());
    let data = rig.sent().is(MessageType::DATA);
    assert_eq!((data.dst, data.src), (at_port(UP), at_port(LEFT)));
    assert_eq!(data.nli().ip_ttl, 3);
    assert_eq!(data.message().mri.unwrap().mri, through().inverted());
}

/// GIST-6.3-17, GIST-4.4.6-09, GIST-4.4.6-10: the upstream peer has no state: the state is removed and the
/// application is notified.
#[test]
fn rule_11_no_routing_state_upstream() {
    let mut rig = Rig::new();
    rig.responding();
    rig.send(b"back", through().inverted());
    let data = rig.sent();
    rig.status();
    rig.error(UP, GistError::NO_ROUTING_STATE, &data);
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Bad));
    rig.quiet();
    rig.no_state();
    // GIST-6.3-25: the same in Awaiting Refresh.
    let mut rig = Rig::new();
    rig.responding();
    rig.query_numbered(2, None);
    rig.out.clear();
    rig.error(UP, GistError::NO_ROUTING_STATE, &data);
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Bad));
    rig.no_state();
}

/// GIST-7.1.2-04, GIST-B.2-03, GIST-B.4-03: the refresh is from another node: Data is sent there after the Confirm, and
/// the application is notified of both peers.
#[test]
fn another_upstream_peer() {
    for installation in [Installation::Immediate, Installation::Confirmed, Installation::Delayed] {
        let mut rig = policy(installation);
        rig.responding();
        rig.data_down(b"data");
        let old = rig.delivered().sii;
        rig.until(5000);
        let new_peer = peer(b"new", "10.1.0.3");
        rig.inject(&Via::intercepted(SRC, DST), &new_peer.query(through(), SESSION, &[2; 8]));
        let mut response = None;
        let mut events = Vec::new();
        let mut drain = |rig: &mut Rig| {
            for (_, out) in rig.out.drain(..) {
                match out {
                    Out::Sent(packet) => response = Some(packet),
                    Out::Notified(_, event) => events.push(event),
                    other => panic!("{other:?}"),
                }
            }
            response.clone().unwrap()
        };
        let response = drain(&mut rig);
        assert_eq!(response.dst, at_port("10.1.0.3"));
        if installation != Installation::Immediate {
            let confirm = new_peer.confirm(&response.message());
            rig.inject(&Via::direct("10.1.0.3", LEFT), &confirm);
            drain(&mut rig);
        }
        if installation != Installation::Immediate {
            assert_eq!(events.remove(0), NetworkEvent::Tentative); // from the Query to the Confirm
        }
        let [NetworkEvent::Good(new), NetworkEvent::RouteDeleted(gone)] = events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(Some(gone), old);
        assert_ne!(Some(new), old);
        rig.send(b"back", through().inverted());
        assert_eq!(rig.sent().dst, at_port("10.1.0.3"));
        assert_eq!(rig.gist.counters().peer_changed, 1);
    }
}

/// GIST-7.1.2-04, GIST-8.5-04: the interface that counts is the Query's, which the cookie contains; a Query of the same
/// peer by another interface is a change.
#[test]
fn another_arrival_interface() {
    let mut rig = Rig::new();
    let mut events = Vec::new();
    for (number, ifindex) in [(1, 1), (2, 1), (3, 2)] {
        let via = Via { ifindex: IfIndex(ifindex), ..Via::intercepted(SRC, DST) };
        let cookie = [number; 8];
        rig.inject(&via, &query(through(), &cookie));
        if ifindex == 2 {
            assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Tentative));
        }
        let response = rig.sent().is(MessageType::RESPONSE);
        let confirm = peer(b"up", UP).confirm(&response.message());
        rig.inject(&Via { ifindex: IfIndex(3), ..Via::direct(UP, LEFT) }, &confirm);
        events.extend(rig.out.drain(..));
        assert_eq!(rig.session().upstream.unwrap().ifindex, IfIndex(ifindex));
        assert_eq!(rig.session().upstream.unwrap().peer, Some(at_port(UP)));
    }
    assert_eq!(events.len(), 3, "{events:?}"); // Good; Good and RouteDeleted
    assert_eq!(rig.gist.counters().peer_changed, 1);
}

/// The address of the node changes: from the next refresh on, messages to the same peer have the new address.
#[test]
fn another_own_address() {
    let mut rig = Rig::new();
    rig.responding();
    let renumbered = [interface(1, &["10.1.0.11"]), interface(2, &[RIGHT])];
    rig.handle(signalbox_gist::engine::Input::Interfaces(&renumbered));
    rig.query_numbered(2, None);
    let response = rig.sent().is(MessageType::RESPONSE);
    assert_eq!(response.nli().interface, ip("10.1.0.11"));
    let confirm = peer(b"up", UP).confirm(&response.message());
    rig.inject(&Via::direct(UP, "10.1.0.11"), &confirm);
    rig.quiet();
    rig.send(b"back", through().inverted());
    assert_eq!(rig.sent().src, at_port("10.1.0.11"));
    assert_eq!(rig.gist.counters().peer_changed, 0);
}

/// GIST-7.1.3-07, GIST-4.4.4-07: a Responding node sends no Query of its own, and a Query refreshes its direction only.
#[test]
fn a_responding_node_only_reacts() {
    let mut rig = Rig::new();
    rig.responding();
    rig.until(29_000);
    rig.quiet();
    assert_eq!(rig.gist.counters().queries_sent, 0);
    assert_eq!(rig.session().downstream, None);
}

/// GIST-3.7-03, GIST-3.7-05: sessions of one flow are separate; any session identifier is accepted.
#[test]
fn sessions_are_independent() {
    let mut rig = Rig::new();
    rig.responding();
    let zero = SessionId([0; 16]);
    rig.until(10_000);
    let mut other = query(through(), &[2; 8]);
    other.session = Some(zero);
    rig.inject(&Via::intercepted(SRC, DST), &other);
    let response = rig.sent().is(MessageType::RESPONSE);
    rig.confirm(&response);
    rig.notified();
    assert_eq!(rig.gist.sessions().count(), 2);
    rig.until(30_010);
    assert_eq!(rig.session().session, zero);
}

/// GIST-4.4.4-08: when the upstream state has ended, the downstream state is not refreshed and ends with its validity
/// time.
#[test]
fn downstream_is_not_refreshed_once_upstream_is_gone() {
    let mut rig = Rig::new();
    rig.responding();
    rig.until(29_000);
    rig.established_for(through());
    assert_eq!(rig.states(), (Some(RoutingState::Established), Some(RoutingState::Established)));
    rig.until(100_000);
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Bad));
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Bad));
    rig.quiet();
    rig.no_state();
}
