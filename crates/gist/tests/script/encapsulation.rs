//! The packets of Queries and normal messages (RFC 5971 §5.1–§5.3, §5.8.1).

use core::net::IpAddr;

use signalbox_core::node::{Prefix, Route};
use signalbox_core::packet::{router_alert_v4, router_alert_v6};
use signalbox_core::service::{SendError, TransferAttributes};
use signalbox_core::{IfIndex, Mri, PathCoupled, SessionId};
use signalbox_gist::engine::{Config, Input, OwnAddress, RoutingState};
use signalbox_gist::wire::{MAGIC, MessageType};

use crate::rig::*;

/// GIST-5.1-08, GIST-5.2.1-01, GIST-5.3.1-03, GIST-5.3.2-01, GIST-5.3.2.1-02, GIST-5.3.2.1-05, GIST-5.3.2.1-07,
/// GIST-5.3.2.1-08, GIST-5.3.2.3-05, GIST-5.8.1.2-01, GIST-5.8.1.2-02, GIST-5.8.1.2-03, GIST-5.8.1.2-05,
/// GIST-4.3.1-06, GIST-5.2.1-02, GIST-5.2.2-01, GIST-5.2.2-03, GIST-5.2.2-05, GIST-4.3.3-03: a Query of a
/// node in the middle of the path.
#[test]
fn a_query_looks_like_its_flow() {
    let mut rig = Rig::new();
    let mut p = PathCoupled::between(ip(SRC), ip(DST));
    (p.protocol, p.dscp, p.dst_port) = (Some(17), Some(46), Some(5000));
    rig.send(b"data", Mri::PathCoupled(p));
    let packet = rig.sent().is(MessageType::QUERY);
    assert_eq!((packet.src, packet.dst), (at_port(SRC), at_port(DST)));
    assert_eq!((packet.ttl, packet.tos, packet.dont_fragment), (64, 46 << 2, true));
    assert_eq!(packet.ifindex, Some(IfIndex(2)));
    assert_eq!(packet.options, router_alert_v4(ALERT));
    assert!(packet.payload.starts_with(&MAGIC));
    let said = packet.message();
    assert!(said.header.c && said.header.r && !said.header.s && !said.header.e);
    assert_eq!(said.header.hops, 64);
    assert_eq!(said.mri.unwrap().mri, Mri::PathCoupled(p));
    assert_eq!(said.session, Some(SESSION));
    let nli = said.nli.unwrap();
    assert_eq!((nli.interface, nli.ip_ttl, nli.validity_ms), (ip(RIGHT), 64, 30_000));
    assert_eq!(nli.peer_identity, b"node");
    assert!(said.stack_proposal.is_none() && said.nslp_data.is_none());
}

/// GIST-5.2.1-02, GIST-5.2.2-02: where the flow begins at the signaling address, S=1 and the NLI has that address.
#[test]
fn at_the_source_of_the_flow_s_is_1() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let packet = rig.sent();
    assert!(packet.message().header.s);
    assert_eq!(packet.src.ip(), packet.nli().interface);
}

/// GIST-5.2.2-03: the NLI of a host has the address of the flow, if it is on the outgoing interface.
#[test]
fn the_flow_chooses_among_the_addresses() {
    let mut rig = Rig::new();
    rig.handle(Input::Interfaces(&[interface(2, &[RIGHT, "10.2.0.77"])]));
    rig.send(b"data", flow("10.2.0.77", DST));
    assert_eq!(rig.sent().nli().interface, ip("10.2.0.77"));
}

/// GIST-5.8.1.2-04: each third retransmission has the signaling source and S=1; with 0 no retransmission has it.
#[test]
fn some_retransmissions_carry_the_signaling_source() {
    for (every, expected) in [(3, [false, false, false, true, false, false, true]), (0, [false; 7])] {
        let mut rig = Rig::with(Config { signaling_source_every: every, ..Config::default() });
        rig.send(b"data", through());
        rig.until(60_000);
        for own_source in expected {
            let packet = rig.sent();
            assert_eq!(packet.message().header.s, own_source);
            assert_eq!(packet.src, at_port(if own_source { RIGHT } else { SRC }));
            assert_eq!(packet.nli().interface, ip(RIGHT));
        }
    }
}

const ROUTE_V6: Route =
    Route { src: IpAddr::V6(core::net::Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1)), ..ROUTE };

/// GIST-5.3.2.2-01, GIST-5.3.2.2-02, GIST-5.3.2.2-05, GIST-5.2.2-04, GIST-7.4-01: IPv6: a hop-by-hop header with Router
/// Alert, followed by UDP, and addresses of the flow's IP version.
#[test]
fn a_query_over_ipv6() {
    let mut rig = Rig::with(Config {
        without_router_alert: vec![Prefix { addr: ip("::"), len: 0 }],
        ..Config::default()
    });
    rig.route = Some(Ok(ROUTE_V6));
    rig.send(b"data", flow("2001:db8:8::8", "2001:db8:9::9"));
    let packet = rig.sent().is(MessageType::QUERY);
    assert_eq!((packet.src, packet.dst), (at_port("2001:db8:8::8"), at_port("2001:db8:9::9")));
    assert_eq!(packet.options, router_alert_v6(ALERT));
    assert_eq!(packet.options[..4], [17, 0, 5, 2]);
    assert!(!packet.dont_fragment);
    assert_eq!(packet.nli().interface, ip("2001:db8:2::1"));
}

/// GIST-5.8.1.2-05: over IPv6 the packet has the flow label of the MRI: in Queries, Q-mode Data and forwarded packets,
/// and in no packet to a peer's own address.
#[test]
fn q_mode_packets_have_the_label_of_their_flow() {
    let mut rig = Rig::new();
    rig.route = Some(Ok(ROUTE_V6));
    let (src, dst) = ("2001:db8:8::8", "2001:db8:9::9");
    let mut p = PathCoupled::between(ip(src), ip(dst));
    (p.flow_label, p.dscp) = (Some(0xa_bcde), Some(46));
    let mri = Mri::PathCoupled(p);
    rig.send(b"data", mri);
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!((query.flow_label, query.tos), (0xa_bcde, 46 << 2));
    let stateless = TransferAttributes { stateless: true, ..TransferAttributes::default() };
    rig.send_with(b"data", mri, |m| m.attributes = stateless);
    assert_eq!(rig.sent().is(MessageType::DATA).flow_label, 0xa_bcde);
    rig.status();
    let mut passing = crate::rig::query(mri, &[1; 8]);
    passing.header.nslp = OTHER;
    passing.nli = Some(nli(b"up", "2001:db8:1::2"));
    rig.inject(&Via::intercepted(src, dst), &passing);
    assert_eq!(rig.sent().flow_label, 0xa_bcde);
    rig.respond_with(&query, |m| {
        m.header.s = false;
        m.nli = Some(nli(b"down", "2001:db8:2::2"));
    });
    assert_eq!(rig.sent().is(MessageType::CONFIRM).flow_label, 0);
    assert_eq!(rig.sent().is(MessageType::DATA).flow_label, 0);
    rig.out.clear();
    // Without a label in the MRI the packet has no label.
    rig.send(b"data", flow(src, dst));
    assert_eq!(rig.sent().is(MessageType::QUERY).flow_label, 0);
}

/// GIST-5.2.2-04, GIST-7.4-02: a whole handshake over IPv6, from both ends.
#[test]
fn a_handshake_over_ipv6() {
    let mut rig = Rig::new();
    rig.route = Some(Ok(ROUTE_V6));
    let mri = flow("2001:db8:8::8", "2001:db8:9::9");
    let up = peer(b"up", "2001:db8:1::2");
    rig.inject(&Via::intercepted("2001:db8:8::8", "2001:db8:9::9"), &up.query(mri, SESSION, &[1; 8]));
    let response = rig.sent().is(MessageType::RESPONSE);
    assert_eq!((response.src, response.dst), (at_port("2001:db8:1::1"), at_port("2001:db8:1::2")));
    rig.inject(&Via::direct("2001:db8:1::2", "2001:db8:1::1"), &up.confirm(&response.message()));
    rig.notified();
    rig.send(b"on..", mri);
    let query = rig.sent().is(MessageType::QUERY);
    rig.respond_with(&query, |m| {
        m.header.s = false;
        m.nli = Some(nli(b"down", "2001:db8:2::2"));
    });
    assert_eq!(rig.sent().is(MessageType::CONFIRM).dst, at_port("2001:db8:2::2"));
    assert_eq!(rig.sent().is(MessageType::DATA).dst, at_port("2001:db8:2::2"));
    assert_eq!(rig.states(), (Some(RoutingState::Established), Some(RoutingState::Established)));
}

/// Signaling has the configured DSCP, and so have its route lookups. Only Q-mode packets of a flow whose MRI contains a
/// DSCP have that one (GIST-5.8.1.2-05).
#[test]
fn signaling_is_marked() {
    let mut rig = Rig::with(Config { dscp: 48, ..Config::default() });
    let (query, data) = rig.established();
    assert_eq!((query.tos, data.tos), (192, 192));
    rig.query(None);
    let response = rig.sent();
    assert_eq!(response.tos, 192);
    rig.inject(&Via::direct(UP, LEFT), &data_of(own()));
    assert_eq!(rig.sent().is(MessageType::ERROR).tos, 192);
    let marked = |dscp| {
        let Mri::PathCoupled(p) = through() else { panic!() };
        Mri::PathCoupled(PathCoupled { dscp: Some(dscp), ..p })
    };
    rig.send(b"data", marked(46));
    let query = rig.sent();
    assert_eq!(query.tos, 46 << 2);
    rig.respond(&query);
    assert_eq!(rig.sent().is(MessageType::CONFIRM).tos, 192);
    rig.out.clear();
    rig.route = None;
    for (mri, tos) in [(own(), 192), (marked(8), 32)] {
        rig.send_with(b"data", mri, |m| m.session = SessionId([1; 16]));
        let (_, Out::Lookup(_, asked)) = rig.next() else { panic!() };
        assert_eq!(asked.tos, tos);
    }
}

fn data_of(mri: Mri) -> signalbox_gist::wire::Message<'static> {
    data(mri, nli(b"up", UP), b"data")
}

/// A node with several interfaces: each flow's Query leaves by the interface of its route and has the address of this
/// node there, and so do the messages that follow. GIST-5.2.2-02.
#[test]
fn each_flow_has_the_interface_of_its_route() {
    let mut rig = Rig::new();
    for (ifindex, address, mri) in [
        (1, LEFT, flow(SRC, "10.9.0.1")),
        (2, RIGHT, flow(SRC, "10.9.0.2")),
        (2, RIGHT, flow(LEFT, "10.9.0.3")),
    ] {
        rig.route = Some(Ok(Route { ifindex: IfIndex(ifindex), src: ip(address), ..ROUTE }));
        let (query, data) = rig.established_for(mri);
        assert_eq!((query.ifindex, query.nli().interface), (Some(IfIndex(ifindex)), ip(address)));
        assert_eq!((data.src.ip(), data.nli().interface), (ip(address), ip(address)));
    }
}

/// GIST-5.3.2.1-02, GIST-5.3.2.1-04, GIST-C-02: Router Alert can be omitted towards some IPv4 destinations; packets to
/// others have it.
#[test]
fn router_alert_can_be_switched_off() {
    let prefix = |addr, len| Prefix { addr: ip(addr), len };
    for (without, none) in [(prefix("10.9.0.0", 16), true), (prefix("10.7.0.0", 16), false)] {
        let mut rig = Rig::with(Config { without_router_alert: vec![without], ..Config::default() });
        rig.send(b"data", own());
        assert_eq!(rig.sent().options.is_empty(), none);
    }
}

/// GIST-5.2.2-02: the configured address is in the NLI, and is the source of datagrams, while it belongs to this node; that
/// of the interface precedes that of all interfaces.
#[test]
fn the_node_has_the_address_that_is_configured() {
    let own_address =
        |interface: &str, address: &str| OwnAddress { interface: interface.to_owned(), address: ip(address) };
    const STABLE: &str = "192.0.2.1";
    for (configured, expected) in [
        (vec![own_address("*", STABLE)], STABLE),
        (vec![own_address("*", STABLE), own_address("eth2", RIGHT)], RIGHT),
        (vec![own_address("*", "192.0.2.77")], RIGHT),
        (vec![own_address("eth1", STABLE)], RIGHT),
    ] {
        let mut rig = Rig::with(Config { own_addresses: configured, ..Config::default() });
        let mut list = interfaces();
        list.push(interface(3, &[STABLE]));
        rig.handle(Input::Interfaces(&list));
        let (query, data) = rig.established_for(through());
        assert_eq!(query.nli().interface, ip(expected));
        assert_eq!((data.src, data.nli().interface), (at_port(expected), ip(expected)));
        // A message to that address is for this node.
        rig.inject(&Via { dst: at_port(STABLE), ..Via::direct(DOWN, RIGHT) }, &data_of_down());
        assert_eq!(rig.delivered().data, b"back");
    }
    // A Response has it too.
    let mut rig = Rig::with(Config { own_addresses: vec![own_address("*", RIGHT)], ..Config::default() });
    rig.query(None);
    let response = rig.sent().is(MessageType::RESPONSE);
    assert_eq!((response.src, response.nli().interface), (at_port(RIGHT), ip(RIGHT)));
}

/// Data upstream of the peer downstream.
fn data_of_down() -> signalbox_gist::wire::Message<'static> {
    data(through().inverted(), signalbox_gist::wire::Nli { ip_ttl: 3, ..nli(b"down", DOWN) }, b"back")
}

/// GIST-5.1-16, GIST-5.2.1-01, GIST-5.3.1-07, GIST-5.5-02, GIST-5.2.2-02: Data along state: normal mode, C=0,
/// S=1, an NLI with the address that the packet has.
#[test]
fn data_in_normal_mode() {
    let mut rig = Rig::new();
    let (_, data) = rig.established_for(through());
    let said = data.message();
    assert!(!said.header.c && said.header.s && !said.header.r && !said.header.e);
    assert_eq!(said.nli.unwrap().interface, data.src.ip());
    assert_eq!((data.src, data.dst), (at_port(RIGHT), at_port(DOWN)));
    assert!(data.options.is_empty());
    assert_eq!((data.ttl, said.nli.unwrap().ip_ttl), (64, 64));
}

/// GIST-6.1-11, GIST-4.3.3-15, GIST-5.3.2-02, GIST-4.1.2-07, GIST-5.5-02, GIST-5.2.1-01: Data without a request for
/// state is sent in Q-mode with C=1 and creates no state, even if state exists.
#[test]
fn data_in_q_mode() {
    let stateless = TransferAttributes { stateless: true, ..TransferAttributes::default() };
    let mut rig = Rig::new();
    rig.send_with(b"data", through(), |m| m.attributes = stateless);
    let packet = rig.sent().is(MessageType::DATA);
    assert_eq!((packet.src, packet.dst), (at_port(SRC), at_port(DST)));
    assert_eq!(packet.options, router_alert_v4(ALERT));
    assert!(packet.dont_fragment);
    let said = packet.message();
    assert!(said.header.c && !said.header.s && !said.header.r);
    assert_eq!(said.nli.unwrap().interface, ip(RIGHT));
    rig.status();
    rig.no_state();
    rig.established_for(through());
    rig.send_with(b"data", through(), |m| m.attributes = stateless);
    assert!(rig.sent().message().header.c);
    rig.status();
    // Q-mode is downstream only.
    rig.send_with(b"data", through().inverted(), |m| m.attributes = stateless);
    assert_eq!(rig.failed(), SendError::NoStateUpstream);
}

/// GIST-6.2-02, GIST-5.1-06: with that configuration every Query of the handshake carries the message, and the Response
/// confirms it as sent.
#[test]
fn a_message_may_ride_in_the_query() {
    let mut rig = Rig::with(Config { piggyback: true, ..Config::default() });
    rig.send(b"data", own());
    rig.send(b"next", own());
    for next in [500, 1500] {
        assert_eq!(rig.sent().message().nslp_data, Some(&b"data"[..]));
        rig.quiet();
        rig.until(next);
    }
    let query = rig.sent();
    rig.respond(&query);
    rig.sent().is(MessageType::CONFIRM);
    rig.status();
    assert_eq!(rig.sent().is(MessageType::DATA).message().nslp_data, Some(&b"next"[..]));
    rig.status();
    rig.notified();
    rig.quiet();
}

/// GIST-5.2.2-05, GIST-B.1-05, GIST-4.3.3-03, GIST-B.1-06: the application sets TTL and hop count.
#[test]
fn the_application_may_choose_ttl_and_hops() {
    let mut rig = Rig::new();
    rig.established();
    rig.send_with(b"data", own(), |m| (m.ip_ttl, m.hops) = (Some(9), Some(3)));
    let packet = rig.sent();
    assert_eq!((packet.ttl, packet.nli().ip_ttl, packet.message().header.hops), (9, 9, 3));
}

/// GIST-5.2.2-08, GIST-5.2.2-09: the Response has the distance downstream, and Data of the same peer another one.
#[test]
fn distances_downstream_are_those_that_the_peer_reports() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent();
    rig.respond_with(&query, |m| {
        m.nli = Some(signalbox_gist::wire::Nli { ip_ttl: 3, ..nli(b"down", DOWN) });
    });
    assert_eq!(rig.session().downstream.unwrap().ip_distance, Some(3));
    rig.out.clear();
    let answer =
        data(own().inverted(), signalbox_gist::wire::Nli { ip_ttl: 5, ..nli(b"down", DOWN) }, b"data");
    rig.inject(&Via::direct(DOWN, RIGHT), &answer);
    assert_eq!(rig.delivered().ip_distance, 5);
    assert_eq!(rig.session().downstream.unwrap().ip_distance, Some(5));
}

/// GIST-4.4.3-01, GIST-4.4.3-02, GIST-4.4.3-03: identities differ from node to node, are the same on all
/// interfaces and over time, and can be configured.
#[test]
fn peer_identities() {
    let made =
        |seed| signalbox_gist::engine::Gist::new(Config::default(), [seed; 32]).unwrap().identity().to_vec();
    assert_ne!(made(1), made(2));
    assert_eq!(made(1).len(), 16);
    let mut rig = Rig::new();
    rig.query(None);
    rig.send(b"data", own());
    let (left, right) = (rig.sent(), rig.sent());
    assert_eq!((left.nli().peer_identity, right.nli().peer_identity), (&b"node"[..], &b"node"[..]));
    rig.until(10_000);
    rig.out.clear();
    rig.query(None);
    assert_eq!(rig.sent().nli().peer_identity, b"node");
}
