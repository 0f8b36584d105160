//! CREATE and EXTERNAL through a NAT.

use signalbox_core::{LooseEnd, Mri, PathCoupled, SessionId};
use signalbox_natfw::engine::{Config, Mapping, Middlebox};
use signalbox_natfw::wire::{
    Bindings, DataTerminal, ExternalAddress, FlowInfo, Info, Message, Ports, TerminalPorts,
};

use crate::rig::{
    BEFORE, EDGE, FAR, HOST, INSIDE, Kernel, OTHER, OUTSIDE, Rig, addr, boxed, create, error, external, flow,
    loose, only, success, udp,
};

/// Another session, of a sender outside.
const CALL: SessionId = SessionId([8; 16]);
const TOWARDS: &str = "198.51.100.1";

fn path(mri: Mri) -> PathCoupled {
    let Mri::PathCoupled(flow) = mri else { panic!("{mri}") };
    flow
}

/// Reserves port 20230 of the host, and returns the external port.
fn reserved(rig: &mut Rig, message: &Message<'_>) -> u16 {
    let answer = only(rig.by_inside(loose(HOST, TOWARDS), message));
    let external = answer.message().external.unwrap();
    assert_eq!(external.address.to_string(), EDGE);
    external.port.unwrap()
}

/// NATFW-3.7.1-05, NATFW-3.7.1-11
#[test]
fn a_flow_from_the_inside_gets_an_external_port() {
    let mut rig = Rig::edge_nat();
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    let onward = path(sent.mri);
    let port = onward.src_port.unwrap();
    assert_eq!((onward.src, onward.dst, onward.dst_port), (addr(EDGE), addr(FAR), Some(6000)));
    assert!((32768..=60999).contains(&port), "{port}");
    assert_eq!(rig.kernel, [], "allocated, not active");
    let answer = only(rig.answer(&sent, &success(7, 100)));
    assert_eq!(answer.mri, flow().inverted(), "the host sees its own flow");
    let rule = format!("allow 10.0.1.2 port 5000 > 203.0.113.9 port 6000 proto 17 from {EDGE} port {port}");
    assert_eq!(rig.kernel, [Kernel::Open(rule, 100)]);
    // The same port for a further flow of the same source (RFC 4787 REQ-1).
    let mri = Mri::PathCoupled(udp(HOST, 5000, "203.0.113.10", 6000));
    let second = only(rig.in_session(CALL, BEFORE, INSIDE, mri, &create(1, 100)));
    assert_eq!(path(second.mri).src_port, Some(port));
}

/// NATFW-3.7.1-03
#[test]
fn a_flow_from_the_outside_needs_a_reservation() {
    let mut rig = Rig::edge_nat();
    rig.end = true;
    for mri in [udp(FAR, 6000, EDGE, 45000), udp(FAR, 6000, HOST, 5000)] {
        let answer = only(rig.by_outside(Mri::PathCoupled(mri), &create(7, 100)));
        assert_eq!(answer.message(), error(7, Info::NO_RESERVATION));
    }
    assert_eq!(rig.natfw.session_count(), 0);
}

/// NATFW-3.7.2-13, NATFW-3.7.2-16, NATFW-3.7.2-27, NATFW-3.7.2-28, NATFW-3.7.1-04, NATFW-3.8-01, NATFW-3.8-02,
/// NATFW-D.3-01
#[test]
fn a_reserved_port_is_reached_by_later_creates() {
    let mut rig = Rig::edge_nat();
    let port = reserved(&mut rig, &external(1, 1000, 20230));
    assert_eq!(rig.kernel, [], "a reservation opens nothing");
    rig.end = true;
    for (number, session) in [(1, CALL), (2, SessionId([9; 16]))] {
        let mri = Mri::PathCoupled(udp(FAR, 6000 + number, EDGE, port));
        let sent = only(rig.in_session(session, OTHER, OUTSIDE, mri, &create(7, 100)));
        assert_eq!(path(sent.mri), udp(FAR, 6000 + number, HOST, 20230));
        let answer = only(rig.answer(&sent, &success(7, 100)));
        assert_eq!((answer.mri, answer.session), (mri.inverted(), session));
        let rule = format!(
            "allow 203.0.113.9 port {} > {EDGE} port {port} proto 17 to {HOST} port 20230",
            6000 + number
        );
        assert_eq!(rig.holes.last().unwrap().1.to_string(), rule);
    }
    // The sessions do not depend on the reservation (§3.7.2), and the port stays theirs.
    rig.end = false;
    assert_eq!(rig.by_inside(loose(HOST, TOWARDS), &external(2, 0, 20230)), []);
    assert_eq!((rig.holes.len(), rig.natfw.tables()[1].size), (2, 1));
    rig.pass_secs(100);
    assert_eq!((rig.holes.len(), rig.natfw.tables()[1].size, rig.natfw.session_count()), (0, 0, 0));
}

/// NATFW-3.8-03, NATFW-3.7.1-03
#[test]
fn a_create_is_matched_by_protocol_sender_and_port() {
    let ports = Ports { receiver: Some(20230), sender: Some(6000) };
    let terminal = DataTerminal {
        transport: Some((17, Some(TerminalPorts::Ports(ports)))),
        sender: ([203, 0, 113, 0].into(), 24),
    };
    let mut rig = Rig::edge_nat();
    let port = reserved(&mut rig, &Message { terminal: Some(terminal), ..external(1, 1000, 20230) });
    rig.end = true;
    let good = udp(FAR, 6000, EDGE, port);
    let wrong = [
        PathCoupled { protocol: Some(6), ..good },
        PathCoupled { protocol: None, src_port: None, dst_port: None, ..good },
        PathCoupled { src: addr("198.51.100.9"), ..good },
        PathCoupled { src_prefix: 16, ..good },
        PathCoupled { src_port: Some(6001), ..good },
        PathCoupled { src_port: None, ..good },
        PathCoupled { dst_port: Some(port ^ 1), ..good },
    ];
    for flow in wrong {
        let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, Mri::PathCoupled(flow), &create(7, 100)));
        assert_eq!(sent.info(), Info::NO_RESERVATION, "{flow:?}");
    }
    let second = Message { efi: Some(FlowInfo { sub_ports: 1, ..FlowInfo::ALLOW }), ..create(7, 100) };
    let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, Mri::PathCoupled(good), &second));
    assert_eq!(sent.info(), Info::NO_RESERVATION, "one port is reserved");
    let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, Mri::PathCoupled(good), &create(7, 100)));
    assert_eq!(path(sent.mri).dst, addr(HOST));
}

/// NATFW-3.7.2-11, NATFW-3.7.2-12
#[test]
fn an_external_from_the_wrong_side_or_that_blocks_is_refused() {
    let mut rig = Rig::edge_nat();
    let answer = only(rig.by_outside(loose(FAR, HOST), &external(1, 100, 20230)));
    assert_eq!(answer.message(), error(1, Info::EXTERNAL_SIDE));
    // So is one for a host inside.
    let answer = only(rig.by_outside(loose(HOST, HOST), &external(1, 100, 20230)));
    assert_eq!(answer.message(), error(1, Info::EXTERNAL_SIDE));
    let deny = Message { efi: Some(FlowInfo::DENY), ..external(1, 100, 20230) };
    let answer = only(rig.by_inside(loose(HOST, TOWARDS), &deny));
    assert_eq!(answer.info(), Info::ACTION_NOT_APPLICABLE);
    assert_eq!((rig.natfw.session_count(), rig.natfw.tables()[1].size), (0, 0));
}

/// NATFW-3.7.2-14, NATFW-3.7.2-15, NATFW-3.7.2-25
#[test]
fn an_inner_nat_translates_and_sends_on() {
    let mut rig = Rig::nat();
    let before = [172, 16, 0, 1];
    let bindings = Some(Bindings::of(Some(9), &before));
    let request = Message { bindings, ..external(1, 100, 20230) };
    let sent = only(rig.by_inside(loose(HOST, TOWARDS), &request));
    let Mri::LooseEnd(LooseEnd { src, dst, .. }) = sent.mri else { panic!("{}", sent.mri) };
    assert_eq!((src, dst), (addr(EDGE), addr(TOWARDS)));
    let message = sent.message();
    let port = message.terminal.unwrap().ports().receiver.unwrap();
    assert_ne!(port, 20230);
    let added = message.bindings.unwrap();
    assert_eq!((added.port, added.iter().count()), (Some(port), 2));
    assert_eq!(added.iter().last().unwrap().to_string(), EDGE);
    // The answer of the edge reaches the host as it is.
    let outer = ExternalAddress { address: [198, 51, 100, 77].into(), port: Some(40000) };
    let response = Message { external: Some(outer), bindings: message.bindings, ..success(1, 60) };
    let answer = only(rig.answer(&sent, &response));
    assert_eq!((answer.message(), answer.mri), (response, loose(HOST, TOWARDS).inverted()));
    // A CREATE that the edge sends on reaches the host through this port.
    rig.end = true;
    let mri = Mri::PathCoupled(udp(FAR, 6000, EDGE, port));
    let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, mri, &create(7, 50)));
    assert_eq!(path(sent.mri), udp(FAR, 6000, HOST, 20230));
}

/// NATFW-3.7.2-25: an error ends the session and its port.
#[test]
fn an_error_response_to_an_external_ends_the_reservation() {
    let mut rig = Rig::nat();
    let sent = only(rig.by_inside(loose(HOST, TOWARDS), &external(1, 100, 20230)));
    only(rig.answer(&sent, &error(1, Info::NO_EDGE)));
    assert_eq!((rig.natfw.session_count(), rig.natfw.tables()[1].size), (0, 0));
}

/// NATFW-3.7.2-17
#[test]
fn the_edge_nat_copies_the_addresses_of_the_other_nats() {
    let mut rig = Rig::edge_nat();
    let before = [172, 16, 0, 1];
    let bindings = Some(Bindings::of(Some(9), &before));
    let answer = only(rig.by_inside(loose(HOST, TOWARDS), &Message { bindings, ..external(1, 100, 20230) }));
    assert_eq!(answer.message().bindings, bindings);
}

/// NATFW-3.7.2-18, NATFW-4.2.5-13
#[test]
fn an_external_that_a_nat_cannot_serve_is_refused() {
    let transport = |transport| DataTerminal { transport, sender: ([0, 0, 0, 0].into(), 0) };
    let ports = |receiver| Some(TerminalPorts::Ports(Ports { receiver, sender: None }));
    for (terminal, info) in [
        (transport(None), Info::PLAIN_IP),
        (transport(Some((17, ports(None)))), Info::DESTINATION_PORTS),
        (transport(Some((17, None))), Info::DESTINATION_PORTS),
        (transport(Some((50, Some(TerminalPorts::Spi(7))))), Info::PROTOCOL_NOT_SUPPORTED),
        (transport(Some((89, None))), Info::PROTOCOL_NOT_SUPPORTED),
    ] {
        let mut rig = Rig::edge_nat();
        let request = Message { terminal: Some(terminal), ..external(1, 100, 1) };
        assert_eq!(only(rig.by_inside(loose(HOST, TOWARDS), &request)).info(), info, "{terminal:?}");
        assert_eq!(rig.natfw.session_count(), 0);
    }
}

/// NATFW-4.2.5-15: the source of a flow must be one port of one host, because one port is given for it.
#[test]
fn a_flow_from_the_inside_needs_its_source_port() {
    for (change, info) in [
        (PathCoupled { src_port: None, ..udp(HOST, 1, FAR, 2) }, Info::SOURCE_PORTS),
        (PathCoupled { src_port: Some(0), ..udp(HOST, 1, FAR, 2) }, Info::SOURCE_PORTS),
        (PathCoupled { src_prefix: 24, ..udp(HOST, 1, FAR, 2) }, Info::SOURCE_RANGE),
    ] {
        let mut rig = Rig::edge_nat();
        assert_eq!(only(rig.by_inside(Mri::PathCoupled(change), &create(1, 100))).info(), info);
        assert_eq!(rig.natfw.tables()[1].size, 0);
    }
}

/// NATFW-4.2.4-05: two ports in a row.
#[test]
fn a_second_port_is_reserved_with_the_first() {
    let mut rig = Rig::edge_nat();
    let efi = Some(FlowInfo { sub_ports: 1, ..FlowInfo::ALLOW });
    let port = reserved(&mut rig, &Message { efi, ..external(1, 1000, 20230) });
    assert_eq!(port % 2, 0);
    rig.end = true;
    let mri = Mri::PathCoupled(udp(FAR, 6000, EDGE, port));
    let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, mri, &Message { efi, ..create(7, 100) }));
    only(rig.answer(&sent, &success(7, 100)));
    let rule =
        format!("allow {FAR} port 6000 > {EDGE} port {port} proto 17 and next port to {HOST} port 20230");
    assert_eq!(rig.holes[0].1.to_string(), rule);
}

/// A host that takes ports leaves other hosts their share, and all come back.
#[test]
fn one_host_does_not_take_all_ports() {
    let mut rig =
        Rig::with(Config { first_port: 40000, last_port: 40063, edge: true, ..boxed(Middlebox::Nat) });
    let session = |n: u8| SessionId([n; 16]);
    let mut refused = 0;
    for n in 1..=64 {
        let mri = loose(HOST, TOWARDS);
        let sent = only(rig.in_session(session(n), BEFORE, INSIDE, mri, &external(1, 100, n.into())));
        refused += u32::from(sent.info() == Info::NO_RESOURCES);
    }
    assert_eq!((refused, rig.natfw.counters().ports_full), (16, 16), "three quarters of 64");
    let sent =
        only(rig.in_session(session(99), BEFORE, INSIDE, loose("10.0.1.3", TOWARDS), &external(1, 100, 1)));
    assert_eq!(sent.info(), Info::PROCESSED);
    rig.pass_secs(100);
    assert_eq!(rig.natfw.tables()[1].size, 0);
}

/// From the inside to an external port of the same NAT both ends are translated (RFC 4787 REQ-9).
#[test]
fn a_hairpin_translates_both_ends() {
    let mut rig = Rig::edge_nat();
    let port = reserved(&mut rig, &external(1, 1000, 20230));
    rig.end = true;
    let mri = Mri::PathCoupled(udp("10.0.1.3", 6000, EDGE, port));
    let sent = only(rig.in_session(CALL, OTHER, INSIDE, mri, &create(7, 100)));
    assert_eq!(path(sent.mri), udp(EDGE, 6000, HOST, 20230));
    only(rig.answer(&sent, &success(7, 100)));
    let rule = format!(
        "allow 10.0.1.3 port 6000 > {EDGE} port {port} proto 17 from {EDGE} port 6000 to {HOST} port 20230"
    );
    assert_eq!(rig.holes[0].1.to_string(), rule);
}

/// NATFW-2.5-01, NATFW-D.4-02
#[test]
fn a_twice_nat_changes_messages_and_nothing_else() {
    let mappings = vec![
        Mapping { inside: addr(HOST), outside: addr("198.51.100.2") },
        Mapping { inside: addr("10.9.9.9"), outside: addr(FAR) },
    ];
    let mut rig = Rig::with(Config { mappings, ..boxed(Middlebox::TwiceNat) });
    let inside = udp(HOST, 5000, "10.9.9.9", 6000);
    let outside = udp("198.51.100.2", 5000, FAR, 6000);
    let sent = only(rig.by_inside(Mri::PathCoupled(inside), &create(7, 100)));
    assert_eq!(path(sent.mri), outside);
    assert_eq!(only(rig.answer(&sent, &success(7, 100))).mri, Mri::PathCoupled(inside).inverted());
    assert_eq!((rig.kernel.len(), rig.natfw.tables()[1].size), (0, 0));
    let back = |flow: PathCoupled| PathCoupled {
        src: flow.dst,
        dst: flow.src,
        src_port: flow.dst_port,
        dst_port: flow.src_port,
        ..flow
    };
    let sent = only(rig.in_session(CALL, OTHER, OUTSIDE, Mri::PathCoupled(back(outside)), &create(7, 100)));
    assert_eq!(path(sent.mri), back(inside));
    let unknown = Mri::PathCoupled(udp("10.0.1.77", 1, FAR, 2));
    let sent = only(rig.in_session(SessionId([4; 16]), BEFORE, INSIDE, unknown, &create(7, 100)));
    assert_eq!((sent.session, sent.info()), (SessionId([4; 16]), Info::POLICY_CONFLICT));
}
