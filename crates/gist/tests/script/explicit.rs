//! Reactions of applications to changed and parallel routes (RFC 5971 §7.1.4, §7.1.5): the script is the application.

use core::time::Duration;

use signalbox_core::node::{Prefix, Route};
use signalbox_core::service::{InvalidStatus, NetworkEvent, Request, SiiHandle};
use signalbox_core::{Direction, Mri};
use signalbox_gist::engine::{Config, Input};
use signalbox_gist::wire::MessageType;

use crate::rig::*;

const PEERS: [(&[u8], &str); 2] = [(b"down", DOWN), (b"other", "10.2.0.3")];

impl Rig {
    /// Repeats the discovery of the route, and lets one of the peers answer. Returns the SII handle of the present
    /// peer.
    fn rerouted(&mut self, mri: Mri, peer: usize) -> SiiHandle {
        let (status, data) = (InvalidStatus::Tentative, &[][..]);
        let nslp = Some(NSLP);
        let request = Request::InvalidateRoutingState { nslp, mri, status, data, urgent: true };
        self.handle(Input::Request(request));
        let query = self.sent().is(MessageType::QUERY);
        let (identity, address) = PEERS[peer];
        self.respond_with(&query, |m| {
            m.header.s = false;
            m.nli = Some(nli(identity, address));
        });
        self.sent().is(MessageType::CONFIRM);
        let (Direction::Downstream, NetworkEvent::Good(sii)) = self.notified() else { panic!() };
        sii
    }
}

/// GIST-7.1.4-01: each change of an unstable route is reported, with a peer that is good and one that is off the path;
/// each peer has the same SII handle every time, so the application can distinguish them.
#[test]
fn a_flapping_route_is_shown() {
    let mut rig = Rig::new();
    rig.established();
    let mut names = Vec::new();
    for flap in 0..6 {
        let new = rig.rerouted(own(), (flap + 1) % 2);
        let (Direction::Downstream, NetworkEvent::RouteDeleted(old)) = rig.notified() else { panic!() };
        names.push((new, old));
        rig.quiet();
    }
    assert!(names.windows(2).all(|pair| pair[0] == (pair[1].1, pair[1].0)));
    assert_eq!(rig.gist.counters().peer_changed, 6);
}

/// GIST-7.1.5-01, GIST-7.1.5-02: notified of another peer, the application repairs at once, or first informs the
/// upstream peer. It tears down the state off the path, by that peer's SII handle.
#[test]
fn local_repair() {
    for upstream_first in [false, true] {
        let mut rig = Rig::new();
        rig.responding();
        rig.established_for(through());
        rig.rerouted(through(), 1);
        let (_, NetworkEvent::RouteDeleted(old)) = rig.notified() else { panic!() };
        if upstream_first {
            rig.send(b"note", through().inverted());
            assert_eq!(rig.sent().is(MessageType::DATA).dst, at_port(UP));
            rig.status();
        }
        rig.send(b"resv", through());
        let repair = rig.sent().is(MessageType::DATA);
        assert_eq!((repair.dst, repair.message().header.e), (at_port("10.2.0.3"), false));
        rig.status();
        rig.send_with(b"tear", through(), |m| m.sii = Some(old));
        let teardown = rig.sent().is(MessageType::DATA);
        assert_eq!((teardown.dst, teardown.message().header.e), (at_port(DOWN), true));
        rig.status();
        rig.quiet();
    }
}

/// GIST-7.1.5-03: explicitly routed Data informs a node that it is off the path. Its application detects this, and that
/// this node has state of its own. It releases the state, and no Query refreshes it any more.
#[test]
fn a_node_off_the_path_lets_go() {
    let mut rig = Rig::new();
    rig.responding();
    rig.established_for(through());
    let mut message = data(through(), nli(b"up", UP), b"tear");
    message.header.e = true;
    rig.inject(&Via::direct(UP, LEFT), &message);
    let delivered = rig.delivered();
    assert!(delivered.validation.unchecked_route);
    rig.lifetime(delivered.mri, Some(delivered.session), Duration::ZERO);
    rig.lifetime(delivered.mri.inverted(), Some(delivered.session), Duration::ZERO);
    rig.no_state();
    rig.until(200_000);
    rig.quiet();
    // Without the release the refreshes would have continued.
    let mut rig = Rig::new();
    rig.responding();
    rig.established_for(through());
    rig.until(20_000);
    rig.query_numbered(2, None);
    let response = rig.sent().is(MessageType::RESPONSE);
    rig.confirm(&response);
    rig.sent().is(MessageType::QUERY);
}

/// GIST-7.1.4-01: of two parallel routes the choice of the kernel counts, and a change between them by the local
/// forwarding table is reported as any other.
#[test]
fn a_change_between_parallel_ways() {
    let mut rig = Rig::with(Config { hold_down: Duration::ZERO, ..Config::default() });
    rig.established();
    for hop in [3, 2, 3] {
        let gateway = Some(core::net::IpAddr::from([10, 2, 0, hop]));
        rig.route = Some(Ok(Route { gateway, ..ROUTE }));
        rig.handle(Input::RouteChanged(Prefix { addr: ip(DST), len: 32 }));
        assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::Tentative));
        let query = rig.sent().is(MessageType::QUERY);
        let (identity, address) = PEERS[usize::from(hop == 3)];
        rig.respond_with(&query, |m| {
            m.header.s = false;
            m.nli = Some(nli(identity, address));
        });
        rig.sent().is(MessageType::CONFIRM);
        assert!(matches!(rig.notified().1, NetworkEvent::Good(_)));
        assert!(matches!(rig.notified().1, NetworkEvent::RouteDeleted(_)));
    }
}
