//! Associations with a peer behind a GIST-aware NAT (RFC 5971 §7.2.3).

use signalbox_core::service::NetworkEvent;
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
