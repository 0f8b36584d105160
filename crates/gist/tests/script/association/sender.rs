//! The sender of a message over an association, which has no NLI: the node at the other end.

use signalbox_core::service::{NetworkEvent, SiiHandle};
use signalbox_gist::engine::{ChannelId, Input, Transport};
use signalbox_gist::wire::{Encapsulation, Message, MessageType};

use super::kit::*;
use crate::rig::*;

const NEW: &str = "10.1.0.3";

impl Rig {
    fn named_over(&mut self, channel: ChannelId, number: u8, explicit: bool) -> Option<SiiHandle> {
        let octets = bare_data(through(), session(number), b"data");
        let mut message = Message::parse(&octets, Encapsulation::Association).unwrap();
        message.header.e = explicit;
        self.octets(channel, &bare(&message));
        let delivered = self.delivered();
        self.quiet();
        assert_eq!(delivered.validation.unchecked_route, explicit);
        delivered.sii
    }
}

/// GIST-B.2-03, GIST-7.1.4-02: messages over the association of a former peer have the SII handle that the application
/// has for that peer, in this session and in another, explicitly routed or not. The same holds for its datagrams.
#[test]
fn an_association_names_its_end() {
    let mut rig = Rig::with(tcp_only());
    rig.asked(session(0xa5), asks_tcp());
    let response = rig.sent().is(MessageType::RESPONSE);
    let first = rig.accepted(2, Transport::Tcp);
    rig.octets(first, &first_confirm(&response, |_| {}));
    let (_, NetworkEvent::Good(up)) = rig.notified() else { panic!() };
    assert_eq!(rig.named_over(first, 0xa5, false), Some(up));
    assert_eq!(rig.named_over(first, 0xa5, true), Some(up));
    // Another peer becomes the peer of the session.
    let cookie = [8; 8];
    let mut again = query(through(), &cookie);
    (again.session, again.nli) = (Some(session(0xa5)), Some(nli(b"new", NEW)));
    let (proposal, configuration) = asks_tcp();
    (again.stack_proposal, again.stack_configuration) = (Some(proposal), Some(configuration));
    rig.inject(&Via::intercepted(SRC, DST), &again);
    assert_eq!(rig.notified().1, NetworkEvent::Tentative);
    let response = rig.sent().is(MessageType::RESPONSE);
    let second = ChannelId(4);
    let (local, peer) = ((ip(LEFT), TCP).into(), (ip(NEW), 33_000).into());
    let transport = Transport::Tcp;
    rig.handle(Input::ChannelAccepted { channel: second, transport, local, peer, identity: None });
    rig.octets(second, &first_confirm(&response, |m| m.nli = Some(nli(b"new", NEW))));
    let (_, NetworkEvent::Good(new)) = rig.notified() else { panic!() };
    assert_eq!(rig.notified().1, NetworkEvent::RouteDeleted(up));
    rig.quiet();
    for explicit in [false, true] {
        assert_eq!(rig.named_over(first, 0xa5, explicit), Some(up));
        assert_eq!(rig.named_over(second, 0xa5, explicit), Some(new));
    }
    assert_eq!(rig.named_over(first, 9, true), Some(up), "of a session that there is no more");
    let mut datagram = data(through(), nli(b"up", UP), b"data");
    datagram.header.e = true;
    rig.inject(&Via::direct(UP, LEFT), &datagram);
    assert_eq!(rig.delivered().sii, Some(up));
}

/// A peer that opened a channel without a Confirm has no SII handle as a sender.
#[test]
fn a_channel_without_tls_proves_no_identity() {
    let mut rig = Rig::with(tcp_only());
    rig.responding_associated();
    let other = ChannelId(4);
    let (local, peer) = ((ip(LEFT), TCP).into(), (ip(UP), 33_001).into());
    let transport = Transport::Tcp;
    rig.handle(Input::ChannelAccepted { channel: other, transport, local, peer, identity: None });
    assert_eq!(rig.named_over(other, 0xa5, true), None);
}
