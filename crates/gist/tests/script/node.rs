//! Node-SM (RFC 5971 §6.1), delivery checks and peering decisions (§4.3.2).

use signalbox_core::service::{CheckId, Peering, Request, SendError};
use signalbox_core::{Direction, Mri};
use signalbox_gist::engine::{Config, Input, Installation, PeeringPolicy, Role, RoutingState};
use signalbox_gist::wire::{GistError, Message, MessageType, Nli};

use crate::rig::*;

impl Rig {
    fn decide(&mut self, check: Option<CheckId>, decision: Peering<'_>) {
        let check = check.expect("a decision is asked for");
        self.handle(Input::Request(Request::Peering { check, decision }));
    }
}

fn asking() -> Rig {
    Rig::asking(Config::default(), PeeringPolicy::Ask)
}

/// GIST-6.1-03, GIST-4.3.2-04, GIST-4.3.2-06, GIST-4.3.2-07: a declined Query is forwarded, octet by octet except for
/// hop count and TTL, and is not answered.
#[test]
fn rule_1_a_declined_query_is_forwarded() {
    let mut rig = asking();
    rig.query(Some(b"data"));
    let asked = rig.delivered();
    assert_eq!(asked.data, b"data");
    rig.quiet();
    rig.decide(asked.check, Peering::Decline(None));
    let forwarded = rig.sent();
    rig.quiet();
    let mut message = query(through(), &[1; 8]);
    message.nslp_data = Some(b"data");
    message.header.hops = 63;
    assert_eq!(forwarded.payload, encode(&message));
    assert_eq!((forwarded.src, forwarded.dst), (at_port(SRC), at_port(DST)));
    assert_eq!(forwarded.ttl, 63);
    assert_eq!(forwarded.options, Via::intercepted(SRC, DST).options);
    rig.no_state();
    assert_eq!(rig.gist.counters().forwarded, 1);
}

/// GIST-4.3.2-05, GIST-B.2-02: the application's payload replaces that of the Query, with a longer or shorter one, or
/// where the Query had no payload.
#[test]
fn a_declining_application_may_replace_the_payload() {
    for (old, new) in [(Some(&b"data"[..]), &b"eight oc"[..]), (Some(b"eight oc"), b"four"), (None, b"four")]
    {
        let mut rig = asking();
        rig.query(old);
        let asked = rig.delivered();
        rig.decide(asked.check, Peering::Decline(Some(new)));
        let mut message = query(through(), &[1; 8]);
        message.nslp_data = Some(new);
        message.header.hops = 63;
        assert_eq!(rig.sent().payload, encode(&message));
    }
}

/// GIST-4.3.2-02, GIST-4.3.2-03, GIST-4.3.2-08, GIST-B.2-01, GIST-B.2-02: the application decides about a Query without
/// payload too. After acceptance a Response follows, with the application's payload.
#[test]
fn rule_1_an_accepted_query_is_answered() {
    for payload in [None, Some(&b"answer.."[..])] {
        let mut rig = asking();
        rig.query(None);
        let asked = rig.delivered();
        assert!(asked.data.is_empty() && asked.state.is_none());
        rig.decide(asked.check, Peering::Accept(payload));
        let response = rig.sent().is(MessageType::RESPONSE);
        assert_eq!(response.message().nslp_data, payload);
        rig.quiet();
        rig.no_state();
    }
}

/// GIST-4.3.2-01: a node peers when a Query is addressed to it, also if its application declines.
#[test]
fn the_destination_always_peers() {
    let mut rig = asking();
    let via = Via { dst: at_port(RIGHT), ..Via::intercepted(SRC, RIGHT) };
    rig.inject(&via, &query(flow(SRC, RIGHT), &[1; 8]));
    let asked = rig.delivered();
    assert!(asked.at_flow_end);
    rig.decide(asked.check, Peering::Decline(None));
    rig.sent().is(MessageType::RESPONSE);
}

/// A missing decision counts as a refusal; a second decision is counted.
#[test]
fn decisions_have_their_time() {
    let mut rig = asking();
    rig.query(None);
    let asked = rig.delivered();
    rig.until(1000);
    let forwarded = rig.sent();
    assert_eq!(forwarded.dst, at_port(DST));
    rig.decide(asked.check, Peering::Accept(None));
    rig.quiet();
    assert_eq!(rig.gist.counters().checks_stale, 1);
}

/// Too many pending decisions: the node forwards the Query (RFC 5971 §8.4).
#[test]
fn too_many_decisions_pending() {
    let mut rig = Rig::asking(Config { max_checks: 1, ..Config::default() }, PeeringPolicy::Ask);
    rig.query(None);
    rig.delivered();
    rig.query_numbered(2, None);
    assert_eq!(rig.sent().dst, at_port(DST));
    assert_eq!(rig.gist.counters().checks_full, 1);
}

/// GIST-8.4-02: while an application is slow, Queries of one source, and forged ones of one interface, leave places among those
/// that wait for its decision.
#[test]
fn a_flood_leaves_pending_decisions_to_others() {
    let asked = |rig: &mut Rig, from: &str, via: &Via| {
        rig.inject(via, &peer(b"up", from).query(through(), SESSION, &[7; 8]));
        rig.out.drain(..).any(|(_, out)| matches!(out, Out::Delivered(_)))
    };
    let near = Via::intercepted(SRC, DST);
    let far = Via { ifindex: signalbox_core::IfIndex(2), ..Via::intercepted(SRC, DST) };
    for forged in [false, true] {
        let mut rig = Rig::asking(Config { max_checks: 64, ..Config::default() }, PeeringPolicy::Ask);
        let name = |n: u8| if forged { format!("192.0.2.{n}") } else { UP.to_owned() };
        let flood = (0..200).filter(|n| asked(&mut rig, &name(*n), &near)).count();
        assert_eq!((flood, rig.gist.counters().checks_full), (48, 152), "{forged}");
        assert!(asked(&mut rig, "198.51.100.1", &far), "{forged}");
        // Their time is over: all places are free.
        rig.until(rig.ms() + 1500);
        rig.out.clear();
        assert!(asked(&mut rig, &name(1), &near));
    }
}

/// GIST-3.7-02, GIST-4.1.2-06, GIST-5.3.3-10: the payload of a Query is delivered each time it arrives, marked as from
/// an address without verification.
#[test]
fn the_payload_of_a_query_is_delivered() {
    let mut rig = Rig::new();
    for _ in 0..2 {
        rig.query(Some(b"data"));
        let up = rig.delivered();
        assert_eq!((up.data.as_slice(), up.session), (&b"data"[..], SESSION));
        assert!(!up.validation.return_routable && up.state.is_none());
        rig.sent().is(MessageType::RESPONSE);
    }
}

/// GIST-6.1-04, GIST-4.4.6-01, GIST-5.3.3-18, GIST-8.5-06: Responses without a Query are ignored: without a session,
/// with a wrong cookie, with the cookie of another handshake.
#[test]
fn rule_2_stray_responses() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let first = rig.sent();
    let mut other = Rig::seeded(Config::default(), PeeringPolicy::Always, 2);
    other.respond(&first);
    other.quiet();
    other.no_state();
    assert_eq!(other.gist.counters().responses_stray, 1);
    for cookie in [&[1; 16][..], &[1; 4], &[]] {
        rig.respond_with(&first, |m| m.query_cookie = Some(cookie));
        rig.quiet();
    }
    let mut bent = first.cookie();
    bent[15] ^= 1;
    rig.respond_with(&first, |m| m.query_cookie = Some(&bent));
    rig.quiet();
    assert_eq!(rig.gist.counters().cookies_invalid, 4);
    assert_eq!(rig.states(), (Some(RoutingState::AwaitingResponse), None));
}

/// GIST-6.1-05, GIST-4.4.6-06: an unexpected Confirm is refused under policies 1 and 2, and without a cookie under
/// policy 3.
#[test]
fn rule_3_a_confirm_without_state() {
    let installations = [Installation::Immediate, Installation::Confirmed, Installation::Delayed];
    for installation in installations {
        let mut rig = Rig::new();
        rig.query(None);
        let response = rig.sent();
        let mut rig = Rig::with(Config { installation, ..Config::default() });
        rig.confirm_with(&response, |m| {
            if installation == Installation::Delayed {
                m.responder_cookie = None;
            }
        });
        let error = rig.sent().error_is(GistError::NO_ROUTING_STATE);
        assert_eq!((error.dst, error.src), (at_port(UP), at_port(LEFT)));
        rig.quiet();
        rig.no_state();
    }
}

/// GIST-6.1-07, GIST-4.3.2-14, GIST-3.5-01, GIST-4.4.6-06: Data without state is refused, in both directions, and
/// creates no state; the same holds for an Error.
#[test]
fn rule_4_data_without_state() {
    let mut rig = Rig::new();
    rig.data_down(b"data");
    let error = rig.sent().error_is(GistError::NO_ROUTING_STATE);
    let object = error.message().error.unwrap();
    assert_eq!((object.session, object.mri()), (Some(SESSION), Some(through())));
    rig.data_up(own(), b"data");
    let error = rig.sent().error_is(GistError::NO_ROUTING_STATE);
    assert_eq!(error.dst, at_port(DOWN));
    rig.error(
        UP,
        GistError::ENDPOINT_FOUND,
        &Packet { payload: encode(&query(through(), &[1; 8])), ..error },
    );
    rig.quiet();
    rig.no_state();
    // GIST-4.3.2-14: state in one direction is not state in the other.
    rig.responding();
    rig.data_up(through(), b"data");
    rig.sent().error_is(GistError::NO_ROUTING_STATE);
}

fn q_mode_data() -> Message<'static> {
    let mut message = data(through(), nli(b"up", UP), b"data");
    message.header.c = true;
    message.header.s = false;
    message
}

/// GIST-6.1-08, GIST-4.3.2-12, GIST-4.1.2-04: Q-mode Data is delivered without state and marked; a duplicate is
/// delivered again.
#[test]
fn rule_4_stateless_data() {
    let mut rig = Rig::new();
    for _ in 0..2 {
        rig.inject(&Via::intercepted(SRC, DST), &q_mode_data());
        let up = rig.delivered();
        assert!(up.validation.unchecked_route && up.attributes.stateless && up.state.is_none());
        rig.quiet();
    }
    rig.no_state();
    let mut rig = Rig::with(Config { stateless_data: false, ..Config::default() });
    rig.inject(&Via::intercepted(SRC, DST), &q_mode_data());
    rig.sent().error_is(GistError::NO_ROUTING_STATE);
}

/// GIST-4.3.2-11, GIST-4.3.2-12, GIST-7.1.4-06, GIST-B.2-04: explicitly routed Data is delivered before all checks.
#[test]
fn explicitly_routed_data_is_not_checked() {
    let mut rig = Rig::new();
    let mut message = data(through(), nli(b"up", UP), b"data");
    message.header.e = true;
    rig.inject(&Via::direct(UP, LEFT), &message);
    assert!(rig.delivered().validation.unchecked_route);
    rig.quiet();
    rig.responding();
    rig.inject(&Via::direct(DOWN, RIGHT), &Message { nli: Some(nli(b"down", DOWN)), ..message });
    assert!(rig.delivered().validation.unchecked_route);
}

/// GIST-6.1-09, GIST-4.4.6-04, GIST-4.4.6-07: "No Routing State" for an unknown session is ignored.
#[test]
fn an_error_for_nothing() {
    let mut rig = Rig::new();
    let mut other = Rig::seeded(Config::default(), PeeringPolicy::Always, 2);
    let (_, data) = other.established();
    rig.error(DOWN, GistError::NO_ROUTING_STATE, &data);
    rig.quiet();
    rig.no_state();
    assert_eq!(rig.gist.counters().errors_stray, 1);
}

/// GIST-6.1-10, GIST-4.3.3-16, GIST-4.2.1-03, GIST-4.3.3-01: a message upstream without state is refused, and so is a
/// message beyond the ends of the flow.
#[test]
fn rule_5_no_way() {
    let mut rig = Rig::new();
    for (mri, error) in [
        (through().inverted(), SendError::NoStateUpstream),
        (own().inverted(), SendError::FlowEndsHere),
        (flow(SRC, LEFT), SendError::FlowEndsHere),
    ] {
        rig.send(b"data", mri);
        assert_eq!(rig.failed(), error);
        rig.quiet();
        rig.no_state();
    }
}

/// GIST-4.3.2-09, GIST-4.3.2-10, GIST-4.3.3-04, GIST-4.3.1-09, GIST-5.2.2-06, GIST-5.2.2-09, GIST-B.2-05,
/// GIST-4.2.1-04: a delivered message is complete, with all properties of its packet.
#[test]
fn a_delivery_has_all_properties_of_its_packet() {
    let mut rig = Rig::new();
    rig.responding();
    let payload: Vec<u8> = (0..=255).collect();
    let mut message = data(through(), nli(b"up", UP), &payload);
    message.header.hops = 1;
    rig.inject(&Via::direct(UP, LEFT).ttl(60), &message);
    let up = rig.delivered();
    assert_eq!(up.data, payload);
    assert_eq!((up.session, up.mri), (SESSION, through()));
    assert_eq!((up.ip_ttl, up.ip_distance, up.hops), (60, 4, 0));
    assert_eq!(up.ifindex, signalbox_core::IfIndex(1));
    assert!(!up.at_flow_end && up.state.is_some() && up.sii.is_some() && up.check.is_none());
    assert!(up.validation.return_routable && !up.validation.first_or_last_hop);
    // GIST-5.2.2-06: a zero is not a distance, so the stored distance is kept.
    rig.inject(&Via::direct(UP, LEFT).ttl(9), &data(through(), Nli { ip_ttl: 0, ..nli(b"up", UP) }, b"data"));
    assert_eq!(rig.delivered().ip_distance, 4);
    assert_eq!(rig.gist.sessions().next().unwrap().downstream, None);
}

/// GIST-4.3.1-02: a second message in a datagram is ignored.
#[test]
fn one_message_a_datagram() {
    let mut rig = Rig::new();
    rig.responding();
    let message = data(through(), nli(b"up", UP), b"data");
    let mut payload = encode(&message);
    payload.extend(encode(&message));
    rig.packet(&Via::direct(UP, LEFT), &payload);
    rig.sent().error_is(GistError::INCORRECT_MESSAGE_LENGTH);
    rig.quiet();
}

/// GIST-B.2-04: the first hop is identified by its address.
#[test]
fn the_ends_of_the_flow_are_recognised() {
    let mut rig = Rig::new();
    let mri = flow(UP, RIGHT);
    let mut message = query(mri, &[1; 8]);
    message.header.s = true;
    message.nslp_data = Some(b"data");
    rig.inject(&Via::intercepted(UP, RIGHT), &message);
    let up = rig.delivered();
    assert!(up.validation.first_or_last_hop && up.at_flow_end);
}

/// GIST-5.8.1.3-02, GIST-5.8.1.3-11, GIST-5.8.1.3-12, GIST-A.4.4.11-01: upstream Queries are answered if they
/// come from a neighbor, and refused if not; the state then is that for messages downstream.
#[test]
fn upstream_queries() {
    for (ttl, neighbor) in [(255, true), (254, true), (253, false), (64, false)] {
        let mut rig = Rig::new();
        let mri = through().with_direction(Direction::Upstream);
        let mut message = query(mri, &[1; 8]);
        message.header.s = true;
        message.nli = Some(Nli { ip_ttl: 0, ..nli(b"down", DOWN) });
        let via = Via { ifindex: signalbox_core::IfIndex(2), ..Via::intercepted(DOWN, SRC).ttl(ttl) };
        rig.inject(&via, &message);
        if !neighbor {
            rig.sent().error_is(GistError::INVALID_IP_TTL);
            rig.quiet();
            continue;
        }
        let response = rig.sent().is(MessageType::RESPONSE);
        assert_eq!(response.message().mri.unwrap().mri.direction(), Direction::Downstream);
        assert_eq!((response.dst, response.nli().ip_ttl), (at_port(DOWN), 64));
        rig.inject(&Via::direct(DOWN, RIGHT), &peer(b"down", DOWN).confirm(&response.message()));
        assert_eq!(rig.notified().0, Direction::Downstream);
        assert_eq!(rig.states(), (Some(RoutingState::Established), None));
        rig.send(b"data", through());
        assert_eq!(rig.sent().dst, at_port(DOWN));
    }
}

/// GIST-5.8.1.3-03, GIST-5.8.1.3-04: an upstream Query does not replace state that this node's own downstream Query
/// installed in the same session; other sessions are separate.
#[test]
fn the_downstream_exchange_wins() {
    let mut rig = Rig::new();
    rig.established_for(through());
    let mri: Mri = through().with_direction(Direction::Upstream);
    let other_peer = peer(b"else", "10.2.0.3");
    let mut message = other_peer.query(mri, SESSION, &[1; 8]);
    message.header.s = true;
    let via = Via { ifindex: signalbox_core::IfIndex(2), ..Via::intercepted("10.2.0.3", SRC).ttl(255) };
    rig.inject(&via, &message);
    let response = rig.sent().is(MessageType::RESPONSE);
    rig.inject(&Via::direct("10.2.0.3", RIGHT), &other_peer.confirm(&response.message()));
    rig.quiet();
    let view = rig.session().downstream.unwrap();
    assert_eq!((view.role, view.peer), (Role::Querying, Some(at_port(DOWN))));
    // Another session.
    let other = signalbox_core::SessionId([9; 16]);
    message.session = Some(other);
    rig.inject(&via, &message);
    let response = rig.sent();
    rig.inject(&Via::direct("10.2.0.3", RIGHT), &other_peer.confirm(&response.message()));
    rig.notified();
    rig.until(31_000);
    let left: Vec<_> = rig.gist.sessions().map(|s| s.session).collect();
    assert!(!left.contains(&other), "it expired alone: {left:?}");
}
