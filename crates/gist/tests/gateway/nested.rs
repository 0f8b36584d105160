//! Several gateways in a row.

use signalbox_gist::gateway::Config;
use signalbox_gist::wire::{GistError, Message};

use crate::rig::*;

/// Addresses of the second gateway: its inside is the network of the first one's outside.
const MIDDLE: &str = "203.0.113.254";
const SECOND_EXTERNAL: &str = "192.0.2.1";

fn two() -> [Rig; 2] {
    let plain = || Config { forwards: Vec::new(), ..config() };
    [Rig::new(), Rig::between(plain(), [MIDDLE, SECOND_EXTERNAL], 8)]
}

/// A Query from the host through both gateways.
fn through([first, second]: &mut [Rig; 2], message: &Message<'_>) -> [Packet; 2] {
    first.outward(message);
    let between = first.sent();
    second.packet(&Via { src: between.src, ..q_mode(INSIDE, between.src, FAR) }, &between.payload);
    [between, second.sent()]
}

/// GISTNAT-D6.1-06, GISTNAT-D6.1-07, GISTNAT-X-03: each gateway adds an entry and finds its own; the counts on the way back
/// are 2, 1, 0, and the responder sees the outer addresses only. GIST-7.2.3-01, GIST-A.3.9-04: the second one extends the object of
/// the first one and leaves its MRI.
#[test]
fn two_gateways_unwind_in_turn() {
    let mut gateways = two();
    let [between, outside] = through(&mut gateways, &with_tls(query(outbound(), HOST)));
    assert_eq!((between.nats(), outside.nats()), (1, 2));
    assert_eq!((outside.mri().src, outside.src.ip()), (ip(SECOND_EXTERNAL), ip(SECOND_EXTERNAL)));
    assert_eq!(outside.message().header.hops, 14);
    let [first, second] = &mut gateways;
    let answer = response(&outside.message(), FAR);
    assert_eq!(answer.nat_traversal.unwrap().replaced.len(), 2);
    second.packet(&Via::normal(OUTSIDE, at(FAR, 270), outside.src), &encode(&answer));
    let back = second.sent();
    assert_eq!((back.nats(), back.dst), (1, between.src));
    first.packet(&Via::normal(OUTSIDE, back.src, back.dst), &back.payload);
    let inside = first.sent();
    assert_eq!((inside.nats(), inside.dst, inside.src), (0, at(HOST, 270), at(FAR, 270)));
    assert_eq!(inside.message().nat_traversal.unwrap().mri().unwrap(), outbound_mri());
    assert!(first.standing.len() >= 4 && second.standing.len() >= 4);
}

fn outbound_mri() -> signalbox_core::Mri {
    signalbox_core::Mri::PathCoupled(outbound())
}

/// GISTNAT-X-02, GISTNAT-X-05: neighbors that lower the count and leave their entry, or leave both, do no harm.
#[test]
fn every_variant_of_a_neighbor_is_understood() {
    // Offsets from the magic number: the object's value begins at 4 + 8 + 4; its third octet is the count.
    const COUNT: usize = 18;
    for lowered in [true, false] {
        let mut gateways = two();
        let [_, outside] = through(&mut gateways, &query(outbound(), HOST));
        let [first, _] = &mut gateways;
        let mut payload = encode(&response(&outside.message(), FAR));
        assert_eq!(payload[COUNT], 2);
        payload[COUNT] -= u8::from(lowered);
        first.packet(&Via::normal(OUTSIDE, at(FAR, 270), at(EXTERNAL, 20_000)), &payload);
        let inside = first.sent();
        assert_eq!((inside.dst, inside.payload[COUNT]), (at(HOST, 270), 1 - u8::from(lowered)));
    }
}

/// GISTNAT-X-18, GISTNAT-R4.3.4-02: an Error of the second gateway reaches the Querying node through the first one.
#[test]
fn an_error_of_the_second_gateway_returns_through_the_first() {
    let [mut first, mut second] = two();
    let mut message = query(outbound(), HOST);
    message.header.hops = 2;
    first.outward(&message);
    let between = first.sent();
    second.packet(&Via { src: between.src, ..q_mode(INSIDE, between.src, FAR) }, &between.payload);
    let error = second.sent();
    assert_eq!((error.error(), error.dst, error.nats()), (GistError::HOP_LIMIT_EXCEEDED, between.src, 1));
    assert_eq!(error.message().nli.unwrap().interface, ip(MIDDLE));
    first.packet(&Via::normal(OUTSIDE, error.src, error.dst), &error.payload);
    let inside = first.sent();
    assert_eq!(
        (inside.error(), inside.dst, inside.nats()),
        (GistError::HOP_LIMIT_EXCEEDED, at(HOST, 270), 0)
    );
}
