//! Applications that register and leave while the node runs, and applications that never peer.

use signalbox_core::service::{MessageStatus, Peering, Request, SendError, TransferAttributes};
use signalbox_gist::engine::{Config, Input, PeeringPolicy, Registration, RoutingState};
use signalbox_gist::wire::{GistError, MessageType};

use crate::rig::*;

impl Rig {
    fn unregister(&mut self) {
        self.0.gist.unregister(self.0.now, NSLP);
        self.handle(Input::Timer);
    }
}

/// GIST-4.3.2-04: the Query is forwarded without a decision, with its payload.
#[test]
fn an_application_that_never_peers_lets_queries_pass() {
    let mut rig = Rig::asking(Config::default(), PeeringPolicy::Never);
    rig.query(Some(b"data"));
    let passed = rig.sent().is(MessageType::QUERY);
    assert_eq!((passed.dst, passed.message().nslp_data), (at_port(DST), Some(&b"data"[..])));
    rig.quiet();
    rig.no_state();
}

/// GIST-4.3.2-01: a node peers when a Query is addressed to it, under any policy of its application.
#[test]
fn an_application_that_never_peers_does_so_where_the_flow_ends() {
    let mut rig = Rig::asking(Config::default(), PeeringPolicy::Never);
    let via = Via { dst: at_port(RIGHT), ..Via::intercepted(SRC, RIGHT) };
    rig.inject(&via, &query(flow(SRC, RIGHT), &[1; 8]));
    rig.sent().is(MessageType::RESPONSE);
    rig.quiet();
}

#[test]
fn an_application_that_leaves_takes_its_state_with_it() {
    let mut rig = Rig::new();
    rig.responding();
    rig.send(b"data", through());
    let waiting = rig.sent().is(MessageType::QUERY);
    rig.unregister();
    // The last status is reported, but no notification of the removal that the application caused.
    assert_eq!(rig.failed(), SendError::Refused);
    rig.quiet();
    rig.no_state();
    rig.respond(&waiting);
    rig.error_free_silence();
    rig.send(b"data", own());
    assert_eq!(rig.failed(), SendError::Refused);
    // From now on the node forwards its signaling.
    rig.query(None);
    assert_eq!(rig.sent().is(MessageType::QUERY).dst, at_port(DST));
    rig.unregister();
    rig.quiet();
}

impl Rig {
    /// A Response without state is not answered either by a node that lacks the application.
    fn error_free_silence(&mut self) {
        self.quiet();
        assert_eq!(self.gist.counters().unknown_nslp, 1);
    }
}

#[test]
fn queries_that_wait_for_a_decision_pass_when_the_application_leaves() {
    let mut rig = Rig::asking(Config::default(), PeeringPolicy::Ask);
    rig.query(None);
    let asked = rig.delivered();
    let via = Via { dst: at_port(RIGHT), ..Via::intercepted(SRC, RIGHT) };
    rig.inject(&via, &query(flow(SRC, RIGHT), &[2; 8]));
    rig.delivered();
    rig.unregister();
    rig.sent().error_is(GistError::ENDPOINT_FOUND);
    // The Query is sent after the route lookup.
    assert_eq!(rig.sent().is(MessageType::QUERY).dst, at_port(DST));
    rig.quiet();
    rig.handle(Input::Request(Request::Peering {
        check: asked.check.unwrap(),
        decision: Peering::Accept(None),
    }));
    rig.quiet();
    assert_eq!(rig.gist.counters().checks_stale, 1);
}

#[test]
fn the_next_application_of_the_number_finds_nothing_of_the_last() {
    let mut rig = Rig::new();
    rig.established();
    rig.0.gist.unregister(rig.0.now, NSLP);
    rig.gist.register(
        NSLP,
        Registration { policy: PeeringPolicy::Always, router_alert: ALERT, router_alert_v6: None },
    );
    rig.no_state();
    let (query, _) = rig.established();
    assert_eq!(query.message().session, Some(SESSION));
    rig.until(1_000);
    assert_eq!(
        rig.states().0,
        Some(RoutingState::Established),
        "what the last one left is not removed twice"
    );
    rig.send(b"more", own());
    rig.sent().is(MessageType::DATA);
    assert_eq!(rig.status().2, MessageStatus::Sent(TransferAttributes::default()));
}
