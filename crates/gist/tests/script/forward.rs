//! Messages that a node passes on, forwards, or refuses because they are not for it (RFC 5971 §4.3.1, §4.3.4).

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::{IfIndex, Mri, PathCoupled, SessionId};
use signalbox_gist::engine::Config;
use signalbox_gist::wire::{GistError, Info, MAGIC, Message, MessageType, find_object};

use crate::rig::*;

fn foreign() -> Message<'static> {
    let mut message = query(through(), &[1; 8]);
    message.header.nslp = OTHER;
    message
}

/// GIST-3.6-01, GIST-5.3.2.3-06, GIST-5.3.2.3-07, GIST-4.3.1-03, GIST-4.3.4-01, GIST-4.3.4-05: an intercepted packet
/// that is not in Q-mode is forwarded unchanged with one less TTL: without magic number, truncated, without Router
/// Alert.
#[test]
fn what_is_not_ours_is_passed_on() {
    let message = encode(&query(through(), &[1; 8]));
    let mut other_magic = message.clone();
    other_magic[3] ^= 1;
    let mut rao = Via::intercepted(SRC, DST);
    rao.src.set_port(53);
    let mut record_route = rao.clone();
    record_route.options = vec![7, 7, 4, 0, 0, 0, 0, 0];
    for (via, payload) in [
        (&rao, &b"a query of another kind"[..]),
        (&rao, &[]),
        (&rao, &MAGIC),
        (&rao, &message[..11]),
        (&rao, &other_magic),
        (&record_route, &message[..]),
    ] {
        let mut rig = Rig::new();
        rig.packet(via, payload);
        let packet = rig.sent();
        assert_eq!((packet.src, packet.dst, packet.ttl), (via.src, via.dst, 63));
        assert_eq!((packet.options, packet.payload), (via.options.clone(), payload.to_vec()));
        rig.quiet();
        assert_eq!(rig.gist.counters().passed_on, 1);
    }
}

/// GIST-4.3.4-05: a packet whose TTL has expired is discarded, with any contents.
#[test]
fn ttl_runs_out() {
    for ttl in [0, 1] {
        let mut rig = Rig::new();
        rig.packet(&Via::intercepted(SRC, DST).ttl(ttl), b"something");
        rig.inject(&Via::intercepted(SRC, DST).ttl(ttl), &foreign());
        rig.quiet();
        assert_eq!(rig.gist.counters().ttl_expired, 2);
    }
}

/// GIST-5.3.1-04: a packet without the magic number is not answered.
#[test]
fn no_magic_is_dropped_silently() {
    let mut rig = Rig::new();
    rig.packet(&Via::direct(UP, LEFT), b"what is this?...");
    rig.packet(&Via::direct(UP, LEFT), &[]);
    rig.quiet();
    assert_eq!(rig.gist.counters().no_magic, 2);
}

/// GIST-4.3.4-02, GIST-4.3.4-05, GIST-4.3.4-06, GIST-4.3.4-08, GIST-4.3.4-16, GIST-4.3.4-17, GIST-4.3.4-18,
/// GIST-3.7-01, GIST-4.3.1-04, GIST-4.3.1-07, GIST-5.3.2.4-02: a message for a missing application is forwarded octet
/// by octet except for hop count and TTL, unknown and malformed objects included, with all IP options.
#[test]
fn a_foreign_query_is_forwarded() {
    let mut rig = Rig::new();
    let mut octets = encode(&foreign());
    // The message ends with two malformed objects and an unknown one; the length field is correct.
    octets.extend([0x8f, 0xff, 0, 1, 1, 2, 3, 4]);
    octets.extend([0, 2, 0, 0, 0xff, 0xff, 0x0f, 0xff]);
    octets[4 + 3] += 4;
    let mut via = Via::intercepted(SRC, DST).ttl(17);
    via.options = vec![7, 7, 4, 0, 0, 0, 0, 1, 0x94, 4, 0, 99];
    rig.packet(&via, &octets);
    let packet = rig.sent();
    octets[4 + 1] = 63;
    assert_eq!(packet.payload, octets);
    assert_eq!((packet.src, packet.dst, packet.ttl), (via.src, via.dst, 16));
    assert_eq!(packet.options, via.options);
    assert!(packet.dont_fragment);
    rig.quiet();
    rig.no_state();
}

/// GIST-4.3.4-07: the route lookup uses the complete MRI.
#[test]
fn forwarding_follows_the_mri() {
    let mut rig = Rig::new();
    rig.route = None;
    let mut p = PathCoupled::between(ip(SRC), ip(DST));
    (p.protocol, p.src_port, p.dst_port, p.dscp) = (Some(6), Some(1), Some(443), Some(10));
    let mut message = foreign();
    message.mri = Some(Mri::PathCoupled(p).into());
    rig.inject(&Via::intercepted(SRC, DST), &message);
    let (_, Out::Lookup(id, query)) = rig.next() else { panic!() };
    assert_eq!((query.src, query.dst, query.tos), (Some(ip(SRC)), ip(DST), 40));
    assert_eq!((query.protocol, query.src_port, query.dst_port), (Some(6), Some(1), Some(443)));
    let route = Route { ifindex: IfIndex(9), ..ROUTE };
    rig.handle(signalbox_gist::engine::Input::Route { id, result: Ok(route) });
    assert_eq!(rig.sent().ifindex, Some(IfIndex(9)));
    // A second answer to the same lookup has no effect; without a route no packet is sent.
    rig.handle(signalbox_gist::engine::Input::Route { id, result: Ok(route) });
    rig.quiet();
    rig.route = Some(Err(NoRoute::Unreachable));
    rig.inject(&Via::intercepted(SRC, DST), &message);
    rig.quiet();
}

/// With too many pending lookups, the kernel routes the packet; lookups without an answer are removed.
#[test]
fn lookups_are_bounded() {
    let mut rig = Rig::with(Config { max_lookups: 1, ..Config::default() });
    rig.route = None;
    rig.inject(&Via::intercepted(SRC, DST), &foreign());
    assert!(matches!(rig.next().1, Out::Lookup(..)));
    rig.inject(&Via::intercepted(SRC, DST), &foreign());
    assert_eq!(rig.sent().ifindex, None);
    rig.until(2000);
    rig.quiet();
    assert_eq!(rig.gist.next_deadline(), None);
    assert_eq!((rig.gist.counters().lookups_full, rig.gist.counters().transmit_failed), (1, 1));
}

/// GIST-4.3.1-08, GIST-4.3.4-11, GIST-A.4.4.2-01, GIST-4.3.1-09, GIST-A.1-04: hop count 0 is refused everywhere; 1 is
/// accepted by this node, and not forwarded.
#[test]
fn hop_counts() {
    for (nslp, hops, to) in [(NSLP, 0, DST), (OTHER, 0, DST), (OTHER, 1, DST), (NSLP, 0, LEFT)] {
        let mut rig = Rig::new();
        let mut octets = encode(&query(through(), &[1; 8]));
        octets[5] = hops;
        octets[8..10].copy_from_slice(&nslp.0.to_be_bytes());
        rig.packet(&Via::intercepted(SRC, to), &octets);
        let error = rig.sent().error_is(GistError::HOP_LIMIT_EXCEEDED);
        assert_eq!(error.dst, at_port(UP));
        assert!(error.message().error.unwrap().infos.is_empty());
        rig.quiet();
    }
    let mut rig = Rig::new();
    let mut message = data(through(), nli(b"up", UP), b"data");
    message.header.hops = 1;
    let mut octets = encode(&message);
    octets[5] = 0;
    rig.packet(&Via::direct(UP, LEFT), &octets);
    rig.sent().error_is(GistError::HOP_LIMIT_EXCEEDED);
    let mut message = query(through(), &[1; 8]);
    message.header.hops = 1;
    rig.inject(&Via::intercepted(SRC, DST), &message);
    rig.sent().is(MessageType::RESPONSE);
}

/// GIST-4.3.1-10: no message with hop count 0 is sent.
#[test]
fn nothing_leaves_without_hops() {
    let mut rig = Rig::with(Config { hops: 1, ..Config::default() });
    rig.query(None);
    let response = rig.sent();
    rig.confirm(&response);
    rig.send(b"data", own());
    rig.inject(&Via::intercepted(SRC, DST), &foreign());
    rig.data_up(flow(DST, SRC), b"data");
    let mut packets = vec![response];
    packets.extend(rig.out.drain(..).filter_map(|(_, out)| match out {
        Out::Sent(packet) => Some(packet),
        _ => None,
    }));
    assert_eq!(packets.len(), 4);
    assert!(packets.iter().all(|p| p.message().header.hops > 0));
    assert!(Config { hops: 0, ..Config::default() }.validated().is_err());
}

/// GIST-4.3.4-03, GIST-A.4.4.6-01: a message to this node for a missing application is refused; a Response is not
/// answered even then.
#[test]
fn unknown_applications_are_refused_to_the_sender() {
    let mut rig = Rig::new();
    let mut message = data(through(), nli(b"up", UP), b"data");
    message.header.nslp = OTHER;
    rig.inject(&Via::direct(UP, LEFT), &message);
    let error = rig.sent().error_is(GistError::UNKNOWN_NSLPID);
    assert_eq!(error.dst, at_port(UP));
    let mut response = Message::new(MessageType::RESPONSE, OTHER, 64);
    response.mri = message.mri;
    (response.session, response.nli) = (message.session, message.nli);
    response.query_cookie = Some(&[1; 8]);
    rig.inject(&Via::direct(UP, LEFT), &response);
    rig.quiet();
}

/// GIST-4.3.4-04, GIST-A.4.4.7-01: the flow ends at this node, which lacks the application: the Error has the flow and
/// session of the message.
#[test]
fn the_end_of_the_flow_without_the_application() {
    let mut rig = Rig::new();
    let mut message = query(flow(SRC, RIGHT), &[1; 8]);
    message.header.nslp = OTHER;
    rig.inject(&Via::intercepted(SRC, RIGHT), &message);
    let error = rig.sent().error_is(GistError::ENDPOINT_FOUND);
    assert_eq!((error.dst, error.src), (at_port(UP), at_port(RIGHT)));
    let octets = encode(&message);
    let object = error.message().error.unwrap();
    assert_eq!(object.session, Some(SESSION));
    let mri = find_object(&octets[4..], signalbox_gist::wire::ObjectType::MRI).unwrap();
    assert_eq!(object.mri_octets, Some(mri.value));
    assert_eq!(object.header, octets[4..12]);
    assert!(object.d_mode && object.q_mode);
}

/// GIST-4.3.4-09, GIST-A.4.4.8-01: a message that is too large for the next link is refused with its MTU, not
/// truncated.
#[test]
fn too_large_for_the_next_link() {
    let mut rig = Rig::new();
    rig.route = Some(Ok(Route { mtu: 500, ..ROUTE }));
    let payload = [0; 400];
    let mut message = foreign();
    message.nslp_data = Some(&payload);
    rig.inject(&Via::intercepted(SRC, DST), &message);
    let error = rig.sent().error_is(GistError::MESSAGE_TOO_LARGE);
    assert_eq!(error.dst, at_port(UP));
    assert_eq!(error.message().error.unwrap().infos.iter().next(), Some(Info::Mtu(500)));
    rig.quiet();
    let payload = [0; 300];
    message.nslp_data = Some(&payload);
    rig.inject(&Via::intercepted(SRC, DST), &message);
    assert_eq!(rig.sent().dst, at_port(DST));
}

/// GIST-4.3.4-13, GIST-A.4.4.12-01, GIST-A.4.4.12-02: a flow is too general for one path; the limit is configured.
/// GIST-5.8.1.1-03: wildcards in the source are allowed.
#[test]
fn too_wild() {
    let mut p = PathCoupled::between(ip("10.8.0.0"), ip("10.9.0.0"));
    (p.src_prefix, p.dst_prefix) = (24, 24);
    let mut message = foreign();
    message.mri = Some(Mri::PathCoupled(p).into());
    let via = Via::intercepted("10.8.0.0", "10.9.0.0");
    let mut rig = Rig::new();
    rig.inject(&via, &message);
    let error = rig.sent().error_is(GistError::MRI_TOO_WILD);
    let infos = error.message().error.unwrap().infos;
    let Some(Info::ObjectValue { offset, object }) = infos.iter().next() else { panic!() };
    assert_eq!(object[usize::from(offset)], 24);
    assert_eq!(object[..2], [0, 0]);
    let mut rig = Rig::with(Config { min_dst_prefix_v4: 24, ..Config::default() });
    rig.inject(&via, &message);
    assert_eq!(rig.sent().dst, via.dst);
}

/// GIST-4.3.4-15: the node does not check an MRI that it cannot read.
#[test]
fn an_unknown_routing_method_is_forwarded() {
    let mut rig = Rig::new();
    let mut octets = encode(&foreign());
    octets[16] = 100; // MRM-ID
    rig.packet(&Via::intercepted(SRC, DST), &octets);
    assert_eq!(rig.sent().dst, at_port(DST));
}

/// GIST-4.3.1-05, GIST-4.3.1-07: the NSLPID decides, not the Router Alert value.
#[test]
fn any_router_alert_value_will_do() {
    for alert in [0, ALERT, 65_535] {
        let mut rig = Rig::new();
        let mut via = Via::intercepted(SRC, DST);
        via.options = signalbox_core::packet::router_alert_v4(alert).to_vec();
        rig.inject(&via, &query(through(), &[1; 8]));
        rig.sent().is(MessageType::RESPONSE);
    }
}

/// GIST-5.3.2.1-03, GIST-5.3.2.2-03: interception without Router Alert, by configuration only; over IPv6 too.
#[test]
fn interception_without_router_alert() {
    let v6 = ("2001:db8:8::8", "2001:db8:9::9", "2001:db8:1::2");
    for (src, dst, up) in [(SRC, DST, UP), v6] {
        for (intercept_without_alert, kind) in [(false, MessageType::QUERY), (true, MessageType::RESPONSE)] {
            let mut rig = Rig::with(Config { intercept_without_alert, ..Config::default() });
            let mut via = Via::intercepted(src, dst);
            via.options.clear();
            rig.inject(&via, &peer(b"up", up).query(flow(src, dst), SESSION, &[1; 8]));
            rig.sent().is(kind);
        }
    }
}

/// GIST-5.3.3-21: forwarded messages do not count for the limit on own messages.
#[test]
fn forwarding_is_not_limited() {
    let mut rig = Rig::with(Config { dmode_rate: 1, dmode_burst: 1, ..Config::default() });
    for number in 0..50 {
        let mut message = foreign();
        message.session = Some(SessionId([number; 16]));
        rig.inject(&Via::intercepted(SRC, DST), &message);
        assert_eq!(rig.sent().dst, at_port(DST));
    }
    assert_eq!(rig.gist.counters().forwarded, 50);
}
