//! Requests of applications and their status (RFC 5971 §4.3.3, Appendix B).

use signalbox_core::service::{
    InvalidStatus, MessageHandle, MessageStatus, NetworkEvent, Request, Security, SendError, SiiHandle,
    StateHandle, TransferAttributes,
};
use signalbox_core::{Mri, NslpId, SessionId};
use signalbox_gist::engine::{Config, Input, RoutingState, Validity};
use signalbox_gist::wire::MessageType;

use crate::rig::*;

/// GIST-4.3.3-02, GIST-B.1-01, GIST-B.1-06: a request that cannot be satisfied is refused at once, and creates no
/// state.
#[test]
fn impossible_requests() {
    let reliable = TransferAttributes { reliable: true, ..TransferAttributes::default() };
    let secure = TransferAttributes { security: Security::Channel, ..TransferAttributes::default() };
    for established in [false, true] {
        let mut rig = Rig::new();
        if established {
            rig.established();
        }
        rig.send_with(b"data", own(), |m| m.hops = Some(0));
        rig.send_with(b"data", own(), |m| m.ip_ttl = Some(0));
        rig.send_with(b"data", own(), |m| m.attributes = reliable);
        rig.send_with(b"data", own(), |m| m.attributes = secure);
        rig.send_with(b"odd", own(), |_| {});
        rig.send_with(b"data", own(), |m| m.nslp = OTHER);
        for _ in 0..6 {
            assert_eq!(rig.failed(), SendError::Refused);
        }
        rig.send_with(b"data", own(), |m| m.sii = Some(SiiHandle(77)));
        assert_eq!(rig.failed(), SendError::NoNextNode);
        rig.quiet();
        assert_eq!(rig.gist.sessions().count(), usize::from(established));
        assert_eq!(rig.gist.counters().requests_refused, 7);
    }
}

/// GIST-4.3.3-07: 512 octets from the common header on are accepted, and one word more is refused, before a handshake
/// as well as after.
#[test]
fn a_datagram_has_its_limit() {
    let mut rig = Rig::new();
    rig.send_with(&[0; 512], own(), |_| {});
    let SendError::TooLarge { max } = rig.failed() else { panic!() };
    rig.no_state();
    let large = vec![0; max];
    rig.send(&large, own());
    let query = rig.sent();
    rig.respond(&query);
    rig.sent().is(MessageType::CONFIRM);
    assert_eq!(rig.sent().octets().len(), 512);
    rig.status();
    rig.notified();
    rig.send(&vec![0; max + 4], own());
    assert_eq!(rig.failed(), SendError::TooLarge { max });
    rig.quiet();
}

/// GIST-4.3.3-06, GIST-4.3.3-07: a first hop with a smaller MTU lowers the limit, one with a larger MTU does not raise
/// it; 64 octets are left for the headers.
#[test]
fn the_first_hop_counts() {
    for (mtu, max_datagram, largest) in [(300, 512, 236), (9000, 512, 512), (1000, 1472, 936)] {
        let mut rig = Rig::with(Config { max_datagram, ..Config::default() });
        rig.route = Some(Ok(signalbox_core::node::Route { mtu, ..ROUTE }));
        rig.established();
        rig.send(&[0; 1472], own());
        let SendError::TooLarge { max } = rig.failed() else { panic!() };
        rig.send(&vec![0; max], own());
        assert_eq!(rig.sent().octets().len(), largest);
        rig.status();
        rig.send(&vec![0; max + 4], own());
        assert_eq!(rig.failed(), SendError::TooLarge { max });
    }
}

/// GIST-5.8.1.1-02, GIST-5.8.1.1-03: the ends of a flow must be valid addresses, also with a prefix.
#[test]
fn flows_have_real_ends() {
    let masked = |src: &str, src_prefix| {
        let mut p = signalbox_core::PathCoupled::between(ip(src), ip(DST));
        p.src_prefix = src_prefix;
        Mri::PathCoupled(p)
    };
    for mri in [masked("10.8.0.0", 16), masked("0.0.0.0", 32), masked("224.0.0.1", 32), masked(SRC, 0xff)] {
        let mut rig = Rig::new();
        rig.send(b"data", mri);
        assert_eq!(rig.failed(), SendError::Refused);
    }
    let mut rig = Rig::new();
    rig.send(b"data", masked(SRC, 16));
    rig.sent().is(MessageType::QUERY);
}

/// The handle of an earlier delivery finds the state; a stale or foreign handle is harmless.
#[test]
fn state_handles() {
    let mut rig = Rig::new();
    rig.responding();
    rig.data_down(b"data");
    let state = rig.delivered().state;
    for state in [state, None, Some(StateHandle(0)), Some(StateHandle(u64::MAX)), Some(StateHandle(1 << 32))]
    {
        rig.send_with(b"back", through().inverted(), |m| m.state = state);
        assert_eq!(rig.sent().dst, at_port(UP));
        rig.status();
    }
    rig.send_with(b"back", through().inverted(), |m| {
        (m.state, m.session) = (state, SessionId([1; 16]));
    });
    assert_eq!(rig.failed(), SendError::NoStateUpstream);
}

/// GIST-7.1.4-03, GIST-7.1.4-04, GIST-7.1.4-05, GIST-B.1-02, GIST-7.1.5-02: Data with the SII handle of a peer is sent
/// there with E=1, also when the peer is off the path already, for as long as handles are kept; no other message has
/// E=1.
#[test]
fn explicit_routing() {
    let mut rig = Rig::new();
    let response = rig.responding();
    assert!(!response.message().header.e);
    rig.data_down(b"data");
    let sii = rig.delivered().sii;
    let mri = through().inverted();
    rig.send_with(b"tear", mri, |m| m.sii = sii);
    let packet = rig.sent().is(MessageType::DATA);
    assert!(packet.message().header.e);
    assert_eq!((packet.dst, packet.src), (at_port(UP), at_port(LEFT)));
    rig.status();
    rig.until(60_000);
    rig.notified();
    rig.no_state();
    rig.send_with(b"tear", mri, |m| m.sii = sii);
    assert!(rig.sent().message().header.e);
    rig.status();
    rig.until(100_000);
    rig.send_with(b"tear", mri, |m| m.sii = sii);
    assert_eq!(rig.failed(), SendError::NoNextNode);
    assert_eq!(rig.gist.peers().count(), 0);
}

/// GIST-7.1.4-02, GIST-B.2-03: sessions with one peer have one SII handle for it.
#[test]
fn one_name_a_peer() {
    let mut rig = Rig::new();
    rig.responding();
    rig.data_down(b"data");
    let first = rig.delivered().sii;
    let session = SessionId([1; 16]);
    let mut again = query(through(), &[2; 8]);
    again.session = Some(session);
    rig.inject(&Via::intercepted(SRC, DST), &again);
    let response = rig.sent();
    rig.confirm(&response);
    rig.notified();
    let mut message = data(through(), nli(b"up", UP), b"data");
    message.session = Some(session);
    rig.inject(&Via::direct(UP, LEFT), &message);
    assert_eq!(rig.delivered().sii, first);
    let peers: Vec<_> = rig.gist.peers().collect();
    assert_eq!((peers.len(), peers[0].sessions, peers[0].address), (1, 2, at_port(UP)));
}

/// A message without a handle has no status.
#[test]
fn statuses_are_sent_to_those_who_ask() {
    let mut rig = Rig::new();
    rig.send_with(b"data", through().inverted(), |m| m.handle = None);
    rig.quiet();
    rig.established();
    rig.send_with(b"data", own(), |m| m.handle = None);
    rig.sent();
    rig.quiet();
    rig.send_with(b"data", own(), |m| m.handle = Some(MessageHandle(77)));
    rig.sent();
    let (_, handle, status) = rig.status();
    assert_eq!((handle, status), (MessageHandle(77), MessageStatus::Sent(TransferAttributes::default())));
}

/// A message may be empty.
#[test]
fn empty_messages_are_messages() {
    let mut rig = Rig::new();
    rig.send(b"", own());
    let query = rig.sent();
    rig.respond(&query);
    rig.sent().is(MessageType::CONFIRM);
    rig.sent().is(MessageType::DATA);
}

fn invalidate(rig: &mut Rig, nslp: Option<NslpId>, mri: Mri, status: InvalidStatus, data: &[u8]) {
    rig.handle(Input::Request(Request::InvalidateRoutingState { nslp, mri, status, data, urgent: true }));
}

/// GIST-7.1.3-06, GIST-7.1.3-08, GIST-7.1.3-11, GIST-7.1.3-01, GIST-B.6-01, GIST-B.6-02: in Tentative a Query is sent
/// at once, with the payload and without a lookup in the routing table; Data is sent meanwhile; the application is not
/// notified of its own request.
#[test]
fn tentative_state_is_checked() {
    for nslp in [Some(NSLP), None] {
        let mut rig = Rig::new();
        rig.established();
        rig.route = None;
        invalidate(&mut rig, nslp, own(), InvalidStatus::Tentative, b"look");
        let query = rig.sent().is(MessageType::QUERY);
        assert_eq!(query.message().nslp_data, Some(&b"look"[..]));
        rig.quiet();
        assert_eq!(rig.session().downstream.unwrap().validity, Validity::Tentative);
        assert_eq!(rig.states().0, Some(RoutingState::AwaitingRefresh));
        rig.send(b"data", own());
        rig.sent().is(MessageType::DATA);
        rig.status();
        rig.respond(&query);
        rig.sent().is(MessageType::CONFIRM);
        assert!(matches!(rig.notified().1, NetworkEvent::Good(_)));
        assert_eq!(rig.session().downstream.unwrap().validity, Validity::Good);
    }
}

/// GIST-7.1.3-10, GIST-B.6-01: in Bad, Data is queued until the handshake is complete.
#[test]
fn bad_state_is_not_used() {
    let mut rig = Rig::new();
    rig.established();
    invalidate(&mut rig, Some(NSLP), own(), InvalidStatus::Bad, b"");
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!(rig.session().downstream.unwrap().validity, Validity::Bad);
    rig.send(b"wait", own());
    rig.quiet();
    rig.respond(&query);
    rig.sent().is(MessageType::CONFIRM);
    rig.sent().is(MessageType::DATA);
}

/// GIST-7.1.3-05, GIST-7.1.3-07: a request of an application for one direction changes that direction only; a Responding
/// node repairs nothing.
#[test]
fn invalidation_has_a_direction() {
    let mut rig = Rig::new();
    rig.responding();
    rig.established_for(through());
    invalidate(&mut rig, None, through().inverted(), InvalidStatus::Tentative, b"");
    rig.quiet();
    assert_eq!(rig.session().upstream.unwrap().validity, Validity::Tentative);
    assert_eq!(rig.session().downstream.unwrap().validity, Validity::Good);
    invalidate(&mut rig, None, through().inverted(), InvalidStatus::Bad, b"");
    rig.quiet();
    assert_eq!(rig.states(), (Some(RoutingState::Established), None));
    let mut rig = Rig::new();
    rig.responding();
    rig.established_for(through());
    invalidate(&mut rig, None, through(), InvalidStatus::Bad, b"");
    assert_eq!(rig.session().upstream.unwrap().validity, Validity::Good);
    // A request of another application has no effect.
    let mut rig = Rig::new();
    rig.established();
    invalidate(&mut rig, Some(OTHER), own(), InvalidStatus::Bad, b"");
    rig.quiet();
}

/// A Query's payload as large as a datagram allows is taken into account.
#[test]
fn piggybacked_messages_are_smaller() {
    let mut rig = Rig::with(Config { piggyback: true, ..Config::default() });
    rig.send(&[0; 512], own());
    let SendError::TooLarge { max } = rig.failed() else { panic!() };
    rig.send(&vec![0; max], own());
    assert_eq!(rig.sent().octets().len(), 512);
}
