//! The Querying-SM (RFC 5971 §6.2).

use core::time::Duration;

use signalbox_core::node::Route;
use signalbox_core::service::{MessageHandle, MessageStatus, NetworkEvent, SendError, TransferAttributes};
use signalbox_core::{Direction, IfIndex};
use signalbox_gist::engine::{Config, RoutingState};
use signalbox_gist::wire::{GistError, MessageType, Nli};

use crate::rig::*;

const SENT: MessageStatus = MessageStatus::Sent(TransferAttributes {
    reliable: false,
    stateless: false,
    security: signalbox_core::service::Security::None,
});

/// GIST-3.5-02, GIST-6.1-12, GIST-6.2-01: no message is sent until an application sends; then a Query is sent at once,
/// the message waits, and `No_Response` runs for T1.
#[test]
fn a_message_without_state_gives_birth_to_a_querying_sm() {
    let mut rig = Rig::new();
    rig.until(100_000);
    rig.quiet();
    rig.send(b"data", own());
    let (at, _) = rig.sent_at();
    assert_eq!(at, 100_000);
    rig.quiet();
    assert_eq!(rig.states(), (Some(RoutingState::AwaitingResponse), None));
    assert_eq!(rig.session().downstream.unwrap().ip_distance, None, "not known yet");
    assert_eq!(rig.session().queued, 1);
    rig.until(100_499);
    rig.quiet();
    rig.until(100_500);
    rig.sent().is(MessageType::QUERY);
}

/// GIST-6.2-04: two messages before the Response are both sent after it, in order.
#[test]
fn rule_1_messages_wait_for_the_response() {
    let mut rig = Rig::new();
    rig.send_with(b"one.", own(), |m| m.handle = Some(MessageHandle(1)));
    rig.send_with(b"two.", own(), |m| m.handle = Some(MessageHandle(2)));
    let query = rig.sent().is(MessageType::QUERY);
    rig.quiet();
    rig.respond(&query);
    rig.sent().is(MessageType::CONFIRM);
    assert_eq!(rig.sent().message().nslp_data, Some(&b"one."[..]));
    assert_eq!(rig.status(), (0, MessageHandle(1), SENT));
    assert_eq!(rig.sent().message().nslp_data, Some(&b"two."[..]));
    assert_eq!(rig.status(), (0, MessageHandle(2), SENT));
}

/// GIST-6.2-05, GIST-6.2-06, GIST-6.2-22, GIST-5.3.3-01, GIST-5.3.3-02, GIST-5.3.3-03, GIST-5.3.3-09, GIST-B.3-01:
/// Queries at 0, 0.5, 1.5, 3.5 … seconds, each with its own cookie; then all queued messages fail and no state is left.
#[test]
fn rule_2_queries_are_repeated_and_given_up() {
    let mut rig = Rig::new();
    rig.send_with(b"one.", own(), |m| m.handle = Some(MessageHandle(1)));
    rig.send_with(b"two.", own(), |m| m.handle = Some(MessageHandle(2)));
    rig.until(200_000);
    let mut cookies = Vec::new();
    for expected in [0, 500, 1500, 3500, 7500, 15_500, 31_500] {
        let (at, query) = rig.sent_at();
        assert_eq!(at, expected);
        cookies.push(query.is(MessageType::QUERY).cookie());
    }
    let failed = MessageStatus::Failed(SendError::NoNextNode);
    assert_eq!(rig.status(), (63_500, MessageHandle(1), failed));
    assert_eq!(rig.status(), (63_500, MessageHandle(2), failed));
    rig.quiet();
    rig.no_state();
    assert_eq!(rig.gist.counters().no_response, 1);
    cookies.sort();
    cookies.dedup();
    assert_eq!(cookies.len(), 7);
    assert!(cookies.iter().all(|c| c.len() >= 8));
}

/// GIST-5.3.3-06, GIST-5.3.3-07, GIST-5.3.3-04, GIST-5.3.3-05: T2 bounds the interval, T1 starts it; both can
/// be configured.
#[test]
fn the_backoff_stops_growing_at_t2() {
    let ms = Duration::from_millis;
    let mut rig = Rig::with(Config { t1: ms(100), t2: ms(300), attempts: 5, ..Config::default() });
    rig.send(b"data", own());
    rig.until(10_000);
    for expected in [0, 100, 300, 600, 900] {
        assert_eq!(rig.sent_at().0, expected);
    }
    assert_eq!(rig.status().0, 1200);
}

/// GIST-6.2-07, GIST-4.4.1-07, GIST-4.4.1-08, GIST-4.4.1-09, GIST-4.4.1-12, GIST-5.1-14, GIST-5.3.1-01,
/// GIST-7.1.3-02, GIST-4.3.3-14, GIST-4.2.1-01: the Confirm first, with the received cookie and the Query's MRI, then
/// the stored Data, both directly to the peer; then the payload of the Response is delivered, and the state is Good.
#[test]
fn rule_4_a_response_establishes() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent();
    assert_eq!(rig.session().downstream.unwrap().peer, None);
    rig.until(50);
    rig.respond_with(&query, |m| m.query_cookie = Some(b"not that of the Query..."));
    rig.quiet();
    assert_eq!(rig.session().downstream.unwrap().peer, None, "the cookie is verified first");
    rig.respond_with(&query, |m| m.nslp_data = Some(b"hi!!"));
    let confirm = rig.sent().is(MessageType::CONFIRM);
    assert_eq!(confirm.dst, at_port(DOWN));
    assert!(confirm.options.is_empty());
    let said = confirm.message();
    assert_eq!(said.responder_cookie, Some(&b"downstream peer."[..]));
    assert_eq!(said.mri.unwrap().mri, own());
    assert_eq!(said.session, Some(SESSION));
    assert!(said.header.s && !said.header.r && !said.header.c);
    assert_eq!(confirm.nli().interface, ip(RIGHT));
    assert_eq!(confirm.nli().interface, confirm.src.ip());
    let data = rig.sent().is(MessageType::DATA);
    assert_eq!((data.dst, data.options.len()), (at_port(DOWN), 0));
    rig.status();
    let (direction, event) = rig.notified();
    assert_eq!(direction, Direction::Downstream);
    assert!(matches!(event, NetworkEvent::Good(_)));
    let up = rig.delivered();
    assert_eq!(up.data, b"hi!!");
    assert_eq!(up.mri, own().inverted());
    rig.quiet();
    let view = rig.session().downstream.unwrap();
    assert_eq!(
        (view.state, view.peer, view.identity),
        (RoutingState::Established, Some(at_port(DOWN)), &b"down"[..])
    );
    rig.until(10_000);
    rig.quiet();
}

/// GIST-4.4.1-07: no Confirm for a Response with R=0.
#[test]
fn a_response_that_wants_no_confirm_gets_none() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent();
    rig.respond_with(&query, |m| {
        m.header.r = false;
        m.responder_cookie = None;
    });
    rig.sent().is(MessageType::DATA);
    assert_eq!(rig.gist.counters().confirms_sent, 0);
}

/// GIST-6.2-09, GIST-5.3.3-15, GIST-5.3.3-14: a second Response, after a lost Confirm, is confirmed again. The Response
/// ended the retransmission of Queries.
#[test]
fn rule_4_a_response_when_established_is_confirmed_again() {
    let mut rig = Rig::new();
    let (query, _) = rig.established();
    rig.until(400);
    rig.respond(&query);
    rig.sent().is(MessageType::CONFIRM);
    rig.quiet();
    assert_eq!(rig.states(), (Some(RoutingState::Established), None));
    // The Query is not retransmitted any more.
    rig.until(5_000);
    rig.quiet();
}

/// GIST-5.3.3-13: the answer to the first Query counts after the third was sent.
#[test]
fn any_of_the_queries_may_be_answered() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let first = rig.sent();
    rig.until(1500);
    rig.sent();
    rig.sent();
    rig.respond(&first);
    rig.sent().is(MessageType::CONFIRM);
}

/// GIST-6.2-10: Data is sent at once, and `Inactive_QNode` restarts.
#[test]
fn rule_5_data_when_established() {
    let mut rig = Rig::with(Config { inactivity: Duration::from_secs(10), ..Config::default() });
    rig.established();
    rig.until(9_000);
    rig.send(b"more", own());
    assert_eq!(rig.sent().message().nslp_data, Some(&b"more"[..]));
    assert_eq!(rig.status().2, SENT);
    rig.until(14_000);
    assert_eq!(rig.states().0, Some(RoutingState::Established));
}

/// GIST-6.2-19, GIST-6.2-23: without traffic the machine ends when `Inactive_QNode` does, not earlier.
#[test]
fn rule_6_inactivity_ends_it() {
    let mut rig = Rig::with(Config { inactivity: Duration::from_secs(10), ..Config::default() });
    rig.established();
    rig.until(9_990);
    rig.session();
    rig.until(10_010);
    rig.no_state();
    rig.until(100_000);
    rig.quiet();
}

/// GIST-6.2-11, GIST-6.2-23: Data from the peer is delivered and counts as activity.
#[test]
fn rule_7_data_from_the_peer() {
    let mut rig = Rig::with(Config { inactivity: Duration::from_secs(10), ..Config::default() });
    rig.established();
    rig.until(8_000);
    rig.data_up(own(), b"back");
    let up = rig.delivered();
    assert_eq!((up.data.as_slice(), up.ip_distance), (&b"back"[..], 3));
    assert!(!up.validation.unchecked_route);
    rig.until(14_000);
    assert_eq!(rig.states().0, Some(RoutingState::Established));
}

/// T31: who answers a Query names any address. It has answered there if the Query was sent to this address, or through it as the next
/// hop. Otherwise the route to the address shows whether it is on that side at all.
#[test]
fn the_address_of_who_answers_counts_as_far_as_it_is_shown() {
    for (gateway, interface, address, answered) in
        [(Some(ip(DOWN)), 2, true, true), (None, 2, true, false), (None, 1, false, false)]
    {
        let mut rig = Rig::new();
        rig.route = Some(Ok(Route { gateway, ..ROUTE }));
        rig.send(b"data", own());
        let query = rig.sent().is(MessageType::QUERY);
        rig.route = Some(Ok(Route { ifindex: IfIndex(interface), ..ROUTE }));
        rig.respond(&query);
        rig.out.clear();
        rig.data_up(own(), b"back");
        let up = rig.delivered();
        assert_eq!(up.peer_address, address.then_some(ip(DOWN)), "{gateway:?} {interface}");
        assert_eq!(up.validation.return_routable, answered, "{gateway:?} {interface}");
    }
}

/// GIST-6.2-12, GIST-6.2-17, GIST-6.2-21, GIST-5.1-05, GIST-7.1.2-01, GIST-4.4.4-07, GIST-4.4.4-09, GIST-5.3.2-01: a
/// Query is sent in Q-mode between 1/2 and 3/4 of the validity time; the Response makes it Established again, round
/// after round.
#[test]
fn rule_8_refresh() {
    let mut rig = Rig::with(Config { inactivity: Duration::from_secs(1000), ..Config::default() });
    rig.established();
    let mut last = 0;
    for _ in 0..5 {
        while rig.out.is_empty() {
            let next = rig.ms() + 100;
            rig.until(next);
        }
        let (at, query) = rig.sent_at();
        let query = query.is(MessageType::QUERY);
        assert!((15_000..=22_510).contains(&(at - last)), "{}", at - last);
        assert_eq!(query.dst, at_port(DST));
        assert!(!query.options.is_empty());
        assert_eq!(rig.states().0, Some(RoutingState::AwaitingRefresh));
        rig.respond(&query);
        last = rig.ms();
        rig.sent().is(MessageType::CONFIRM);
        rig.quiet();
        assert_eq!(rig.states().0, Some(RoutingState::Established));
    }
}

/// GIST-4.4.4-10: the moment is random over the whole of [1/2, 3/4].
#[test]
fn refreshes_are_spread_over_their_interval() {
    let mut quarters = [0; 4];
    for seed in 0..120 {
        let mut rig = Rig::seeded(Config::default(), signalbox_gist::engine::PeeringPolicy::Always, seed);
        rig.established();
        rig.until(30_000);
        let at = rig.sent_at().0;
        assert!((15_000..=22_510).contains(&at), "{at}");
        quarters[usize::try_from((at - 15_000) / 1900).unwrap().min(3)] += 1;
    }
    assert!(quarters.iter().all(|n| *n > 12), "{quarters:?}");
}

/// GIST-4.4.4-03, GIST-6.2-21: the validity time of the Response is used, not the proposed one.
#[test]
fn the_responder_sets_the_validity_time() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent();
    assert_eq!(query.nli().validity_ms, 30_000);
    rig.respond_with(&query, |m| m.nli = Some(Nli { validity_ms: 10_000, ..nli(b"down", DOWN) }));
    rig.out.clear();
    rig.until(7_510);
    let (at, _) = rig.sent_at();
    assert!((5_000..=7_510).contains(&at), "{at}");
}

/// Leads to Awaiting Refresh, and returns the Query.
fn refreshing(rig: &mut Rig) -> Packet {
    rig.established();
    while rig.out.is_empty() {
        let next = rig.ms() + 10;
        rig.until(next);
    }
    rig.sent().is(MessageType::QUERY)
}

/// GIST-6.2-13, GIST-6.2-14: Data is sent and delivered while the refresh runs, and restarts Inactive_QNode.
#[test]
fn data_flows_in_awaiting_refresh() {
    for sends in [true, false] {
        let mut rig = Rig::with(Config { inactivity: Duration::from_secs(29), ..Config::default() });
        let query = refreshing(&mut rig);
        if sends {
            rig.send(b"more", own());
            assert_eq!(rig.sent().message().nslp_data, Some(&b"more"[..]));
            rig.status();
        } else {
            rig.data_up(own(), b"back");
            assert_eq!(rig.delivered().data, b"back");
        }
        assert_eq!(rig.states().0, Some(RoutingState::AwaitingRefresh));
        rig.respond(&query);
        assert!(rig.ms() < 29_000);
        rig.until(30_000);
        assert!(rig.states().0.is_some(), "the state is in use");
    }
}

/// GIST-6.2-15, GIST-6.2-16, GIST-5.3.3-11: the refresh is repeated as the first Query was; in the end the
/// application is notified that the state was removed.
#[test]
fn rule_2_in_awaiting_refresh() {
    let mut rig = Rig::with(Config { attempts: 3, ..Config::default() });
    let first = refreshing(&mut rig);
    let start = rig.ms();
    rig.until(start + 490);
    rig.quiet();
    rig.until(start + 5_000);
    let (a, second) = rig.sent_at();
    let (b, _) = rig.sent_at();
    assert!((490..=520).contains(&(a - start)) && (990..=1010).contains(&(b - a)), "{start} {a} {b}");
    assert_ne!(first.cookie(), second.cookie());
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Bad));
    rig.quiet();
    rig.no_state();
}

/// GIST-4.2.1-02: state without refreshes ends when its time is over, even if Queries could still be sent.
#[test]
fn state_does_not_outlive_its_validity() {
    let mut rig = Rig::new();
    refreshing(&mut rig);
    rig.until(29_990);
    rig.session();
    rig.until(30_010);
    rig.no_state();
}

/// GIST-6.2-18, GIST-4.4.6-08: "No Routing State" restarts the handshake in every state, with a new cookie;
/// Data waits until it is done.
#[test]
fn rule_3_the_handshake_starts_again() {
    let mut rig = Rig::new();
    let (query, data) = rig.established();
    rig.error(DOWN, GistError::NO_ROUTING_STATE, &data);
    assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Bad));
    let again = rig.sent().is(MessageType::QUERY);
    assert_ne!(again.cookie(), query.cookie());
    assert_eq!(rig.states().0, Some(RoutingState::AwaitingResponse));
    rig.send(b"wait", own());
    rig.quiet();
    // The same in Awaiting Response.
    rig.error(DOWN, GistError::NO_ROUTING_STATE, &data);
    let third = rig.sent().is(MessageType::QUERY);
    rig.quiet();
    rig.respond(&third);
    rig.sent().is(MessageType::CONFIRM);
    assert_eq!(rig.sent().message().nslp_data, Some(&b"wait"[..]));
    // The same in Awaiting Refresh.
    let mut rig = Rig::new();
    let query = refreshing(&mut rig);
    rig.error(DOWN, GistError::NO_ROUTING_STATE, &data);
    assert_eq!(rig.notified().1, NetworkEvent::Bad);
    assert_ne!(rig.sent().is(MessageType::QUERY).cookie(), query.cookie());
    assert_eq!(rig.states().0, Some(RoutingState::AwaitingResponse));
}

/// GIST-6.2-20: events that a state does not list change nothing: Confirms, Responses without a Query, errors about
/// messages that were not sent, and Data before the Response (GIST-6.2-08 allows to ignore it).
#[test]
fn other_events_are_ignored() {
    fn disturb(rig: &mut Rig, query: &Packet) {
        let before = (format!("{:?}", rig.session()), rig.gist.next_deadline());
        rig.respond_with(query, |m| m.query_cookie = Some(&[1; 16]));
        rig.respond_with(query, |m| m.mri = Some(own().into()));
        rig.confirm_with(query, |m| m.responder_cookie = Some(&[1; 24]));
        rig.confirm_with(query, |m| m.mri = Some(own().inverted().into()));
        let about =
            Packet { payload: encode(&data(own().inverted(), nli(b"x", UP), b"data")), ..query.clone() };
        rig.error(UP, GistError::NO_ROUTING_STATE, &about);
        for (_, out) in rig.out.drain(..) {
            let Out::Sent(packet) = out else { panic!("{out:?}") };
            packet.error_is(GistError::NO_ROUTING_STATE);
        }
        assert_eq!((format!("{:?}", rig.session()), rig.gist.next_deadline()), before);
    }
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent();
    rig.data_up(own(), b"soon");
    rig.quiet();
    assert_eq!(rig.gist.counters().data_early, 1);
    disturb(&mut rig, &query);
    rig.respond(&query);
    rig.out.clear();
    disturb(&mut rig, &query);
    let mut rig = Rig::new();
    let query = refreshing(&mut rig);
    disturb(&mut rig, &query);
}

/// GIST-6.2-24, GIST-B.5-01: the application's lifetime replaces the period, and starts it now.
#[test]
fn the_application_sets_the_lifetime() {
    let mut rig = Rig::new();
    rig.established();
    rig.until(5_000);
    rig.lifetime(own(), Some(SESSION), Duration::from_secs(3));
    rig.until(7_990);
    rig.session();
    rig.until(8_020);
    rig.no_state();
    // A session that does not exist.
    let mut rig = Rig::new();
    rig.established();
    rig.lifetime(own(), None, Duration::from_secs(3));
    rig.until(3_020);
    rig.no_state();
}

/// GIST-4.4.4-08: without interest of an application no refresh is sent.
#[test]
fn lifetime_zero_ends_it() {
    let mut rig = Rig::new();
    rig.established();
    rig.lifetime(own(), Some(SESSION), Duration::ZERO);
    rig.until(100_000);
    rig.quiet();
    rig.no_state();
}

/// GIST-5.3.3-08, GIST-B.1-04: the time limit of an application bounds the handshake: no message is sent after it.
#[test]
fn a_timeout_bounds_the_handshake() {
    let mut rig = Rig::new();
    rig.send_with(b"data", own(), |m| m.timeout = Some(Duration::from_secs(3)));
    rig.until(100_000);
    for expected in [0, 500, 1500] {
        assert_eq!(rig.sent_at().0, expected);
    }
    assert_eq!(rig.status(), (3000, MessageHandle(1), MessageStatus::Failed(SendError::NoNextNode)));
    rig.quiet();
    rig.no_state();
}
