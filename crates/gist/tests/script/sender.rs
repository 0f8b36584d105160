//! The sender of a message: former peers, peers without routing state, and forged senders.

use core::time::Duration;

use signalbox_core::service::{NetworkEvent, SiiHandle};
use signalbox_core::{Direction, IfIndex};
use signalbox_gist::engine::Config;
use signalbox_gist::wire::{MessageType, Nli};

use crate::rig::*;

const NEW: &str = "10.1.0.3";

/// A Query from the new upstream peer and its Confirm.
fn taken_over(rig: &mut Rig, number: u8) -> (SiiHandle, SiiHandle) {
    let new = peer(b"new", NEW);
    rig.inject(&Via::intercepted(SRC, DST), &new.query(through(), SESSION, &[number; 8]));
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Tentative));
    let response = rig.sent().is(MessageType::RESPONSE);
    rig.inject(&Via::direct(NEW, LEFT), &new.confirm(&response.message()));
    let (_, NetworkEvent::Good(new)) = rig.notified() else { panic!() };
    let (_, NetworkEvent::RouteDeleted(old)) = rig.notified() else { panic!() };
    rig.quiet();
    (new, old)
}

impl Rig {
    /// The SII handle that Data of this sender is delivered with.
    fn named(&mut self, from: Nli<'_>, via: &Via, explicit: bool) -> Option<SiiHandle> {
        let mut message = data(through(), from, b"data");
        message.header.e = explicit;
        message.header.s = via.src.ip() == from.interface;
        let peers = self.gist.peers().count();
        self.inject(via, &message);
        let delivered = self.delivered();
        self.quiet();
        assert_eq!(self.gist.peers().count(), peers, "a message makes no peer");
        assert_eq!(delivered.validation.unchecked_route, explicit);
        delivered.sii
    }
}

/// GIST-B.2-03, GIST-7.1.4-02: after a change of the upstream peer each message has the SII handle of its own sender;
/// that of the former peer is unchanged. This holds for routing by GIST and for explicit routing.
#[test]
fn each_message_has_the_name_of_its_sender() {
    let config = Config { sii_retention: Duration::from_secs(60), ..Config::default() };
    let mut rig = Rig::with(config);
    rig.responding();
    let (up, at_up) = (nli(b"up", UP), Via::direct(UP, LEFT));
    let first = rig.named(up, &at_up, false);
    assert!(first.is_some());
    let (new, old) = taken_over(&mut rig, 2);
    assert_eq!(first, Some(old));
    for explicit in [false, true] {
        assert_eq!(rig.named(up, &at_up, explicit), Some(old));
        assert_eq!(rig.named(nli(b"new", NEW), &Via::direct(NEW, LEFT), explicit), Some(new));
    }
    // The handle routes a message to the same peer.
    rig.send_with(b"data", through().inverted(), |m| m.sii = Some(old));
    assert_eq!(rig.sent().is(MessageType::DATA).dst, at_port(UP));
    rig.status();
    // A handle is removed some time after its last state.
    rig.until(20_000);
    rig.query_from(3, "new", NEW);
    rig.until(45_000);
    rig.query_from(4, "new", NEW);
    rig.until(61_000);
    rig.out.clear();
    assert_eq!(rig.named(up, &at_up, true), None);
    assert_eq!(rig.named(nli(b"new", NEW), &Via::direct(NEW, LEFT), true), Some(new));
}

impl Rig {
    /// A refresh by an upstream peer, with its Confirm.
    fn query_from(&mut self, number: u8, identity: &str, address: &str) {
        let peer = peer(identity.as_bytes(), address);
        self.inject(&Via::intercepted(SRC, DST), &peer.query(through(), SESSION, &[number; 8]));
        let response = self.sent().is(MessageType::RESPONSE);
        self.inject(&Via::direct(address, LEFT), &peer.confirm(&response.message()));
    }
}

/// GIST-B.2-03: a sender with another address in the packet, another interface or another identity than the peer has no SII
/// handle. Properties of the peer are not reported for it, and it does not change them.
#[test]
fn a_name_is_not_for_the_asking() {
    let mut rig = Rig::new();
    rig.responding();
    let distance = rig.session().upstream.unwrap().ip_distance;
    let up = nli(b"up", UP);
    let elsewhere = Via { ifindex: IfIndex(2), ..Via::direct(UP, LEFT) };
    for explicit in [false, true] {
        assert_eq!(rig.named(up, &Via::direct("10.1.0.9", LEFT), explicit), None);
        assert_eq!(rig.named(nli(b"other", UP), &Via::direct(UP, LEFT).ttl(9), explicit), None);
        assert_eq!(rig.named(nli(b"up", NEW), &Via::direct(NEW, LEFT), explicit), None);
    }
    assert_eq!(rig.session().upstream.unwrap().ip_distance, distance);
    // The session's own peer may use another route than its Queries.
    assert!(rig.named(up, &elsewhere, true).is_some());
    // A former peer may not.
    taken_over(&mut rig, 2);
    assert_eq!(rig.named(up, &elsewhere, true), None);
    assert!(rig.named(up, &Via::direct(UP, LEFT), true).is_some());
}

/// Messages to a peer have the source address of the handshake, also if the interface has other addresses.
#[test]
fn the_sender_calls_itself_the_same_every_time() {
    let mut rig = Rig::new();
    let list = [interface(1, &[LEFT]), interface(2, &["10.2.0.77", RIGHT])];
    rig.handle(signalbox_gist::engine::Input::Interfaces(&list));
    rig.established();
    rig.data_up(own(), b"data");
    let sii = rig.delivered().sii;
    rig.send_with(b"tear", own(), |m| m.sii = sii);
    let packet = rig.sent().is(MessageType::DATA);
    assert_eq!((packet.src, packet.nli().interface), (at_port(RIGHT), ip(RIGHT)));
    // Until that address is removed.
    rig.status();
    rig.out.clear();
    let list = [interface(1, &[LEFT]), interface(2, &["10.2.0.77"])];
    rig.handle(signalbox_gist::engine::Input::Interfaces(&list));
    rig.out.clear();
    rig.send_with(b"tear", own(), |m| m.sii = sii);
    assert_eq!(rig.sent().is(MessageType::DATA).nli().interface, ip("10.2.0.77"));
}
