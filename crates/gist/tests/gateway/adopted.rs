//! Flows that the kernel translates already when their signaling begins.

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::Translation;
use signalbox_core::traffic::FlowFilter;
use signalbox_gist::gateway::{BindingView, Purpose, State};
use signalbox_gist::wire::MessageType;

use crate::rig::*;

/// The kernel translates the flow from `src` to `dst` to `source` and `destination`.
fn track(rig: &mut Rig, [src, dst]: [(&str, u16); 2], [source, destination]: [(&str, u16); 2]) {
    let packets = FlowFilter {
        protocol: Some(17),
        src_port: Some(src.1),
        dst_port: Some(dst.1),
        ..FlowFilter::between(Prefix::host(ip(src.0)), Prefix::host(ip(dst.0)))
    };
    let translation = Translation {
        source: at(source.0, source.1),
        destination: at(destination.0, destination.1),
        by_pinhole: false,
    };
    rig.translation = Box::new(move |found| (*found == packets).then_some(translation));
}

/// The kernel translates the flow of the host inside to this external port.
fn leaving(rig: &mut Rig, port: u16) {
    track(rig, [(HOST, 5000), (FAR, 6000)], [(EXTERNAL, port), (FAR, 6000)]);
}

fn flows(rig: &Rig) -> Vec<BindingView> {
    let mut all = Vec::new();
    let _ = rig.gateway.bindings(0, |binding| {
        all.push(binding);
        true
    });
    all.into_iter().filter(|binding| binding.purpose == Purpose::Flow).collect()
}

/// A Query of the host inside with its Response; returns the external port of the flow.
pub(crate) fn handshake(rig: &mut Rig) -> u16 {
    rig.outward(&query(outbound(), HOST));
    let sent = rig.sent();
    let answer = encode(&response(&sent.message(), FAR));
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &answer);
    assert_eq!(rig.sent().message().header.kind, MessageType::RESPONSE);
    sent.mri().src_port.unwrap()
}

fn flow_in_kernel(rig: &Rig) -> Option<&Open> {
    rig.binding(17, Some((HOST, Some(5000))), (FAR, 6000))
}

/// GISTNAT-D6.1-03: data flow already. The MRI has the port that they have, and the kernel is asked for no binding of the
/// flow, neither by Query nor by Response nor by refreshes.
#[test]
fn the_port_of_a_flow_that_stands_is_used() {
    let mut rig = Rig::new();
    leaving(&mut rig, 1025);
    for turn in 0..3 {
        rig.until(turn * 20);
        assert_eq!(handshake(&mut rig), 1025);
        assert!(flow_in_kernel(&rig).is_none());
    }
    assert_eq!((rig.counters().adopted, rig.questions), (1, 3));
    let flows = flows(&rig);
    assert_eq!((flows.len(), flows[0].state), (1, State::Adopted));
    assert!(rig.standing.iter().all(|open| open.pinhole.packets.dst_port != Some(6000)));
    rig.until(1000);
    assert_eq!(rig.gateway.tables().map(|table| table.size), [0, 0]);
}

/// GISTNAT-D6.1-03: the kernel ends its translation by its own rules. The next Query makes a binding with the same port; if
/// the flow has gone on with another port, the MRI has that.
#[test]
fn a_flow_that_has_ended_keeps_its_port() {
    let mut rig = Rig::new();
    leaving(&mut rig, 1025);
    handshake(&mut rig);
    leaving(&mut rig, 1026);
    assert_eq!(handshake(&mut rig), 1026);
    rig.translation = Box::new(|_| None);
    assert_eq!(handshake(&mut rig), 1026);
    assert_eq!(flow_in_kernel(&rig).unwrap().pinhole.source, endpoint(EXTERNAL, 1026));
    let questions = rig.questions;
    handshake(&mut rig);
    assert_eq!(rig.questions, questions, "the kernel is not asked about a binding that it was asked for");
    assert_eq!(rig.counters().adopted, 1);
}

/// A flow that a binding of a former process let in ends with that binding: it gets a new one, with the same port.
#[test]
fn the_port_of_a_former_binding_is_bound_again() {
    let mut rig = Rig::new();
    leaving(&mut rig, 20_123);
    let flow = core::mem::replace(&mut rig.translation, Box::new(|_| None));
    rig.translation = Box::new(move |found| Some(Translation { by_pinhole: true, ..flow(found)? }));
    assert_eq!(handshake(&mut rig), 20_123);
    assert_eq!(flow_in_kernel(&rig).unwrap().pinhole.source, endpoint(EXTERNAL, 20_123));
    assert_eq!(rig.counters().adopted, 0);
}

/// GISTNAT-D6.1-03: the receiver inside signals upstream for a flow that stands.
#[test]
fn an_upstream_query_finds_the_flow_too() {
    let mut rig = Rig::new();
    track(&mut rig, [(HOST, 9000), (FAR, 6000)], [(EXTERNAL, 1025), (FAR, 6000)]);
    for _ in 0..2 {
        rig.outward(&query(upstream(udp((FAR, 6000), (HOST, 9000))), HOST));
        assert_eq!((rig.sent().mri().dst_port, flows(&rig).len()), (Some(1025), 1));
    }
    assert!(rig.binding(17, Some((FAR, Some(6000))), (EXTERNAL, 1025)).is_none());
}

/// GISTNAT-D6.1-03: two hosts whose flows the kernel translates to the same port, towards two ends, are not confused.
#[test]
fn two_flows_may_have_one_external_port() {
    let mut rig = Rig::new();
    leaving(&mut rig, 1025);
    handshake(&mut rig);
    track(&mut rig, [(SECOND, 5000), (FAR2, 6000)], [(EXTERNAL, 1025), (FAR2, 6000)]);
    rig.outward(&query(udp((SECOND, 5000), (FAR2, 6000)), SECOND));
    assert_eq!(rig.sent().mri().src_port, Some(1025));
    rig.inward(&query(udp((FAR, 7), (EXTERNAL, 1025)), FAR));
    assert_eq!(rig.sent().dst, at(HOST, 270));
}

/// GISTNAT-D6.2-02: a flow that stands has its host inside, without a forward in the configuration. The kernel is asked for no
/// binding of it, also after the Response.
#[test]
fn a_flow_from_outside_that_stands_has_its_host() {
    let mut rig = Rig::new();
    track(&mut rig, [(FAR, 6000), (EXTERNAL, 7777)], [(FAR, 6000), (SECOND, 9)]);
    rig.inward(&query(udp((FAR, 6000), (EXTERNAL, 7777)), FAR));
    let inside = rig.sent();
    assert_eq!((inside.dst, inside.mri().dst_port), (at(SECOND, 270), Some(9)));
    let answer = encode(&response(&inside.message(), SECOND));
    rig.packet(&Via::normal(INSIDE, at(SECOND, 270), at(FAR, 270)), &answer);
    rig.sent();
    assert!(rig.binding(17, Some((FAR, Some(6000))), (EXTERNAL, 7777)).is_none());
    assert_eq!((rig.counters().adopted, rig.counters().contradictions), (1, 0));
    // Another sender has no flow there.
    rig.inward(&query(udp((FAR2, 6000), (EXTERNAL, 7777)), FAR2));
    rig.sent();
    assert_eq!(rig.counters().no_forward, 1);
}

/// GISTNAT-D6.2-03: the kernel translates a flow to another host than the configuration says. The Query follows the flow, and the
/// contradiction is counted once for the flow. If both agree, nothing is counted.
#[test]
fn a_contradicting_configuration_is_counted() {
    for (host, port, contradictions) in [(SECOND, 9, 1), (HOST, 9, 1), (HOST, 5000, 0)] {
        let mut rig = Rig::new();
        track(&mut rig, [(FAR, 6000), (EXTERNAL, 7000)], [(FAR, 6000), (host, port)]);
        for _ in 0..2 {
            rig.inward(&query(inbound(), FAR));
            let inside = rig.sent();
            assert_eq!((inside.dst, inside.mri().dst_port), (at(host, 270), Some(port)));
        }
        assert_eq!((rig.counters().contradictions, flows(&rig).len()), (contradictions, 1));
        assert_eq!(flows(&rig)[0].state, State::Adopted);
    }
}

/// Queries with forged sources from outside make the gateway ask the kernel at a bounded rate. An adopted flow keeps its host
/// meanwhile.
#[test]
fn a_flood_from_outside_asks_the_kernel_seldom() {
    let mut rig = Rig::new();
    track(&mut rig, [(FAR, 6000), (EXTERNAL, 7777)], [(FAR, 6000), (SECOND, 9)]);
    rig.inward(&query(udp((FAR, 6000), (EXTERNAL, 7777)), FAR));
    rig.sent();
    let before = rig.questions;
    for number in 0..1000 {
        let source = format!("192.0.{}.{}", 100 + number / 250, 1 + number % 250);
        rig.inward(&query(udp((&source, 6000), (EXTERNAL, 7778)), &source));
        rig.unwatched();
    }
    assert!(rig.questions - before < 125, "{} questions", rig.questions - before);
    rig.inward(&query(udp((FAR, 6000), (EXTERNAL, 7777)), FAR));
    assert_eq!(rig.sent().dst, at(SECOND, 270));
    assert_eq!((flows(&rig).len(), flows(&rig)[0].state), (1, State::Adopted));
}
