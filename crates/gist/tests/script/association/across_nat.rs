//! Associations with a peer behind a GIST-aware NAT (RFC 5971 §7.2.3).

use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_core::{Direction, Mri};
use signalbox_gist::engine::{Installation, Transport};
use signalbox_gist::wire::MessageType;

use super::kit::*;
use crate::nat::{translation, value};
use crate::rig::*;

fn inside() -> Mri {
    flow("192.168.0.8", DST)
}

/// GIST-7.2.2-06, GIST-7.2.3-09: over an association Confirm and Data have the Querying node's MRI as well, and a
/// second session finds the association by the address of the NAT.
#[test]
fn an_association_across_a_nat() {
    for policy in [Installation::Immediate, Installation::Confirmed, Installation::Delayed] {
        let mut rig = Rig::with(installing(policy));
        let original = value(&inside());
        let (proposal, configuration) = asks_tcp();
        let asks = |rig: &mut Rig, number: u8| {
            let cookie = [7; 8];
            let mut message = query(through(), &cookie);
            message.session = Some(session(number));
            message.nat_traversal = Some(translation(&original));
            (message.stack_proposal, message.stack_configuration) = (Some(proposal), Some(configuration));
            rig.inject(&Via::intercepted(SRC, DST), &message);
        };
        asks(&mut rig, 1);
        let response = rig.sent().is(MessageType::RESPONSE);
        assert!(response.message().nat_traversal.is_some());
        let channel = rig.accepted(2, Transport::Tcp);
        let confirm = first_confirm(&response, |m| {
            m.mri = Some(inside().into());
            m.nli = Some(nli(b"up", "192.168.0.2"));
        });
        rig.octets(channel, &confirm);
        assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
        rig.octets(channel, &bare_data(inside(), session(1), b"data"));
        let delivered = rig.delivered();
        assert_eq!((delivered.data.as_slice(), delivered.mri), (&b"data"[..], through()));
        rig.reliably_in(session(1), b"back", through().inverted());
        let back = rig.over().is(MessageType::DATA);
        assert_eq!(back.message().mri.unwrap().mri, inside().inverted());
        rig.status();
        asks(&mut rig, 2);
        let response = rig.over().is(MessageType::RESPONSE);
        assert_eq!(response.channel, channel);
        assert_eq!(response.message().mri.unwrap().mri, through().inverted());
    }
}

/// GISTNAT-R7.2.1-02: a Response with S=1 whose IP source is not the address of its NLI crossed a legacy NAT. The handshake ends
/// without a Confirm and without a connection, and the application is informed.
#[test]
fn a_legacy_nat_ends_the_handshake_before_a_connection() {
    let mut rig = Rig::with(tcp_only());
    rig.reliably(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    let (proposal, configuration) = peer_tcp();
    rig.respond_with(&query, |m| {
        m.nli = Some(nli(b"down", "10.2.0.77"));
        (m.stack_proposal, m.stack_configuration) = (Some(proposal), Some(configuration));
    });
    assert_eq!(rig.failed(), SendError::Peer { code: 9, subcode: 4 });
    rig.quiet();
    rig.no_state();
}

/// GISTNAT-X-14: a Response over an association did not pass the gateway, so that its NLI has the peer's inside address. The association
/// stays, and so does the address of the peer.
#[test]
fn a_response_over_an_association_does_not_move_the_peer() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    let original = value(&own());
    for number in [2, 3] {
        rig.reliably_in(session(number), b"more", own());
        let query = rig.sent().is(MessageType::QUERY);
        let far = peer(b"down", "172.16.0.2");
        let mut response = far.response_with(&query.message(), b"over there......");
        response.mri = Some(flow(RIGHT, "172.16.0.9").inverted().into());
        response.nat_traversal = Some(translation(&original));
        rig.octets(channel, &bare(&response));
        let confirm = rig.over().is(MessageType::CONFIRM);
        assert_eq!((confirm.channel, confirm.message().mri.unwrap().mri), (channel, own()));
        assert_eq!(rig.over().is(MessageType::DATA).channel, channel);
        while rig.out.pop_front().is_some() {}
    }
    assert_eq!(rig.gist.associations().count(), 1);
    assert_eq!(rig.held(channel).unwrap().sessions, 3);
    let counters = rig.gist.counters();
    assert_eq!((counters.peer_changed, counters.untranslated), (0, 0));
}
