//! The loose-end routing method (RFC 5971 §5.8.2): discovery of a node towards the edge of the network.

use signalbox_core::packet::{router_alert_v4, router_alert_v6};
use signalbox_core::service::{NetworkEvent, SendError, TransferAttributes};
use signalbox_core::{Direction, LooseEnd, Mri};
use signalbox_gist::engine::{Config, IngressFilter};
use signalbox_gist::wire::MessageType;

use crate::rig::*;

/// A loose-end flow from the node itself towards the edge.
fn loose(src: &str, dst: &str) -> Mri {
    Mri::LooseEnd(LooseEnd { src: ip(src), dst: ip(dst), direction: Direction::Downstream })
}

/// GIST-5.8.2-01, GIST-5.8.2-02, GIST-5.8.2-03, GIST-5.8.2-04: a Query is sent to the address beyond the wanted node,
/// from the source address of the MRI, with the application's Router Alert; its MRI has only these two addresses.
#[test]
fn a_loose_end_query_in_its_packet() {
    let mut rig = Rig::new();
    rig.send(b"data", loose(SRC, DST));
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!((query.src, query.dst), (at_port(SRC), at_port(DST)));
    assert_eq!(query.options, router_alert_v4(ALERT));
    assert_eq!((query.ttl, query.tos), (64, 0));
    let said = query.message();
    assert!(said.header.c && !said.header.s);
    let mri = said.mri.unwrap();
    assert_eq!(mri.mri, loose(SRC, DST));
    assert_eq!(mri.octets, [1, 0, 0x40, 0, 10, 8, 0, 8, 10, 9, 0, 9]);
    assert_eq!(said.nli.unwrap().interface, ip(RIGHT));
    // Some retransmissions carry the signaling source.
    rig.until(4_000);
    let third = (0..3).map(|_| rig.sent()).last().unwrap();
    assert!(third.message().header.s);
    assert_eq!((third.src, third.dst), (at_port(RIGHT), at_port(DST)));
}

/// GIST-5.8.2-02, GIST-5.8.2-04: the same over IPv6.
#[test]
fn a_loose_end_query_over_ipv6() {
    let mut rig = Rig::new();
    let route = signalbox_core::node::Route { src: ip("2001:db8:2::1"), ..ROUTE };
    rig.route = Some(Ok(route));
    rig.send(b"data", loose("2001:db8:8::8", "2001:db8:9::9"));
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!((query.src, query.dst), (at_port("2001:db8:8::8"), at_port("2001:db8:9::9")));
    assert_eq!(query.options, router_alert_v6(ALERT));
    assert_eq!(query.message().mri.unwrap().octets.len(), 36);
}

/// GIST-5.8-01, GIST-5.8-02, GIST-A.3.1.2-02: both routing methods carry a session, each with its own state:
/// Query and Data D=0 towards the edge, Response and Data D=1 from it.
#[test]
fn the_querying_node() {
    let mut rig = Rig::new();
    rig.established_for(own());
    let mri = loose(RIGHT, DST);
    rig.send(b"look", mri);
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!(query.message().mri.unwrap().mri, mri);
    rig.respond(&query);
    let confirm = rig.sent().is(MessageType::CONFIRM);
    assert_eq!((confirm.dst, confirm.message().mri.unwrap().mri), (at_port(DOWN), mri));
    let data = rig.sent().is(MessageType::DATA);
    assert_eq!(data.message().mri.unwrap().mri.direction(), Direction::Downstream);
    rig.status();
    assert!(matches!(rig.notified(), (Direction::Downstream, NetworkEvent::Good(_))));
    assert_eq!(rig.gist.sessions().count(), 2);
    rig.data_up(mri, b"here");
    let back = rig.delivered();
    assert_eq!((back.data.as_slice(), back.mri), (&b"here"[..], mri.inverted()));
    assert!(back.state.is_some());
}

/// GIST-5.8-02, GIST-5.8.2-05, GIST-A.3.1.2-02: the discovered node answers a Query with any interface and TTL, and
/// reaches the Querying node from then on.
#[test]
fn the_responding_node() {
    let prefix = signalbox_core::node::Prefix { addr: ip("10.7.0.0"), len: 16 };
    let mut rig = Rig::with(Config {
        ingress_filters: vec![IngressFilter { interface: "eth1".to_owned(), prefix }],
        ..Config::default()
    });
    let mri = loose(SRC, DST);
    rig.inject(&Via::intercepted(SRC, DST).ttl(3), &query(mri, &[1; 8]));
    let response = rig.sent().is(MessageType::RESPONSE);
    assert_eq!(response.message().mri.unwrap().mri, mri.inverted());
    rig.confirm(&response);
    assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
    rig.send(b"back", mri.inverted());
    let data = rig.sent().is(MessageType::DATA);
    assert_eq!((data.dst, data.message().mri.unwrap().mri), (at_port(UP), mri.inverted()));
    rig.status();
    // On towards the edge this node sends its own Query.
    rig.send(b"on..", mri);
    let onward = rig.sent().is(MessageType::QUERY);
    assert_eq!((onward.src, onward.dst), (at_port(SRC), at_port(DST)));
}

/// GIST-5.8.2-06: no message can be sent from the edge without state, with a handshake or without. The edge cannot be
/// this node, nor an address that a node cannot have.
#[test]
fn impossible_loose_ends() {
    let stateless = TransferAttributes { stateless: true, ..TransferAttributes::default() };
    let mut rig = Rig::with(Config { upstream_queries: true, ..Config::default() });
    rig.send(b"data", loose(SRC, DST).inverted());
    assert_eq!(rig.failed(), SendError::NoStateUpstream);
    rig.send_with(b"data", loose(SRC, DST).inverted(), |m| m.attributes = stateless);
    assert_eq!(rig.failed(), SendError::NoStateUpstream);
    rig.send(b"data", loose(SRC, LEFT));
    assert_eq!(rig.failed(), SendError::FlowEndsHere);
    for (src, dst) in [("0.0.0.0", DST), (SRC, "0.0.0.0"), (SRC, "224.0.0.1"), (SRC, "2001:db8::1")] {
        rig.send(b"data", loose(src, dst));
        assert_eq!(rig.failed(), SendError::Refused);
    }
    rig.quiet();
    rig.no_state();
}

/// GIST-5.8-01: Q-mode Data of the loose-end method, sent and received.
#[test]
fn loose_end_data_without_state() {
    let stateless = TransferAttributes { stateless: true, ..TransferAttributes::default() };
    let mut rig = Rig::new();
    rig.send_with(b"data", loose(SRC, DST), |m| m.attributes = stateless);
    let sent = rig.sent().is(MessageType::DATA);
    assert_eq!((sent.src, sent.dst), (at_port(SRC), at_port(DST)));
    rig.status();
    let mut message = data(loose(SRC, DST), nli(b"up", UP), b"data");
    (message.header.c, message.header.s) = (true, false);
    rig.inject(&Via::intercepted(SRC, DST), &message);
    assert!(rig.delivered().validation.unchecked_route);
    rig.no_state();
}
