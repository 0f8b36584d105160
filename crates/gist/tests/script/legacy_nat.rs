//! A legacy NAT on the path (RFC 5971 §7.2.1).

use signalbox_core::Direction;
use signalbox_core::service::{NetworkEvent, TransferAttributes};
use signalbox_gist::engine::Config;
use signalbox_gist::wire::{GistError, MessageType, PORT};

use crate::nat::{NAT_PORT, inside, translation, value};
use crate::rig::*;

/// GISTNAT-X-23: the Query of a gateway crosses a NAT without GIST behind it. The Error goes to the source of the packet, from the
/// address that the packet was sent to, and begins with the object, so that the gateway can give it to the Querying node.
#[test]
fn a_legacy_nat_behind_a_gateway_is_noticed() {
    let original = value(&inside());
    let mut rig = Rig::new();
    let mut message = query(through(), &[1; 8]);
    message.header.s = true;
    message.nat_traversal = Some(translation(&original));
    let mut via = Via::intercepted("10.1.0.77", DST);
    via.src.set_port(NAT_PORT);
    rig.inject(&via, &message);
    let error = rig.sent().error_is(GistError::UNTRANSLATED_OBJECT);
    assert_eq!((error.src, error.dst), (at_port(DST), (ip("10.1.0.77"), NAT_PORT).into()));
    assert_eq!(error.message().nat_traversal, message.nat_traversal);
    rig.no_state();
}

/// GIST-7.2.1-05: a Query from outside a legacy NAT has no sign of the NAT: the Response is a usual one, S=1, to the
/// address in the NLI.
#[test]
fn the_querying_node_is_outside() {
    let mut rig = Rig::new();
    for s in [false, true] {
        let mut message = query(through(), &[1; 8]);
        message.header.s = s;
        rig.inject(&Via::intercepted(if s { UP } else { SRC }, DST), &message);
        let response = rig.sent().is(MessageType::RESPONSE);
        assert!(response.message().header.s);
        assert_eq!((response.dst, response.src.ip()), ((ip(UP), PORT).into(), response.nli().interface));
    }
}

/// GISTNAT-R7.2.1-01: a legacy NAT with a static rule forwards a Query to this node, so its packet has another destination than its
/// flow. The Response is a usual one with S=1, and the handshake completes.
#[test]
fn a_legacy_nat_forwards_a_query_inwards() {
    let mut rig = Rig::new();
    let mut message = query(through(), &[1; 8]);
    message.header.s = true;
    rig.inject(&Via { dst: at_port(LEFT), ..Via::intercepted(UP, DST) }, &message);
    let response = rig.sent().is(MessageType::RESPONSE);
    assert!(response.message().header.s);
    assert_eq!((response.src, response.dst), (at_port(LEFT), at_port(UP)));
    rig.confirm(&response);
    assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
}

/// GIST-7.2.1-08: with that configuration messages of an application use associations only: no message is sent as a
/// datagram.
#[test]
fn no_data_outside_associations_if_so_configured() {
    let mut config = Config::default();
    config.associations.tcp_port = Some(4000);
    config.associations.always = true;
    let mut rig = Rig::with(config);
    rig.send_with(b"data", own(), |m| m.attributes = TransferAttributes::default());
    let query = rig.sent().is(MessageType::QUERY);
    assert!(query.message().stack_proposal.is_some() && query.message().nslp_data.is_none());
    rig.until(30_000);
    while let Some((_, out)) = rig.out.pop_front() {
        let Out::Sent(packet) = out else { panic!("{out:?}") };
        assert!(packet.is(MessageType::QUERY).message().nslp_data.is_none());
    }
}
