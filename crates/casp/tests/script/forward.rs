//! The procedure for a received message.

use signalbox_casp::engine::{Config, Transport};
use signalbox_casp::wire::Class;
use signalbox_casp::wire::{Body, ClientType, ErrorCode, Flags, FlowId, Object, Objects, Proof, Signaling};

use crate::rig::*;

/// CASP-4.4-16, CASP-4.4-20, CASP-4.4-21, CASP-3-05, CASP-3-08, CASP-3-09, CASP-5.1-02, CASP-4.2-06, CASP-4.5-06: the first
/// message makes state with its sender as previous hop; the next hop is discovered, recorded, and gets the message.
#[test]
fn the_first_message_sets_up_a_hop() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let outputs = rig.say(up, &message());
    assert_eq!(scouts(&outputs).len(), 1);
    let state = rig.state();
    assert_eq!((state.session, state.flow, state.timeout), (session(1), flow(), 90));
    assert_eq!(state.previous.iter().map(|one| (one.peer, one.id)).collect::<Vec<_>>(), [(Some(ip(UP)), 0)]);
    assert_eq!(state.next.iter().map(|one| (one.peer, one.id)).collect::<Vec<_>>(), [(Some(ip(DOWN)), 0)]);
    assert!(state.refresh_at.is_some());
    let (_, transport, _, peer) = rig.opened[0];
    assert_eq!((transport, peer.to_string()), (Transport::Tcp, format!("{DOWN}:50003")));
    assert_eq!(only(&outputs, rig.stream_to(DOWN)).message().session, session(1));
}

/// CASP-4.2-12, CASP-4.2-14, CASP-4.2-19, CASP-4.4-05: TTD and hop count change, the cookie of the next hop is in the first
/// message only, all else stays. CASP-G-14, CASP-11-04: so do objects of unknown classes.
#[test]
fn a_message_goes_on_as_the_draft_says() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let extra = hex_object();
    let first = Signaling { ttd: 64, hops: 0, objects: Objects::of(&extra), ..data(UNKNOWN) };
    let outputs = rig.say(up, &first);
    let down = rig.stream_to(DOWN);
    let sent = only(&outputs, down);
    let message = sent.message();
    assert_eq!((message.ttd, message.hops, message.session, message.flow), (63, 1, session(1), flow()));
    assert_eq!((message.timeout, message.body), (Some(90), first.body));
    assert_eq!(message.proof, Some(Proof::Cookie(COOKIE)));
    assert_eq!(
        message.kept().map(|object| (object.class, object.contents)).collect::<Vec<_>>(),
        [(Class(99), &b"12345"[..])]
    );
    for _ in 0..2 {
        let outputs = rig.say(up, &first);
        assert_eq!(cookie_of(&only(&outputs, down)), None);
    }
}

/// An object of an unknown class.
fn hex_object() -> Vec<u8> {
    let mut octets = Vec::new();
    let object = Object { offset: 0, class: Class(99), c_type: 1, contents: b"12345" };
    object.encode(&mut signalbox_wire::Writer::new(&mut octets)).unwrap();
    octets
}

/// CASP-3-07, CASP-4.4-12, CASP-4.4-04, CASP-A.3-03, CASP-9.2-09: the node has no such client.
#[test]
fn data_of_an_unknown_client_pass_unchanged() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    for client in [ClientType(2), UNKNOWN, ClientType(200)] {
        for contents in [&b""[..], b"x", &[0xff; 300]] {
            let sent = Signaling { body: Body::Client { client, data: contents }, ..message() };
            let outputs = rig.say(up, &sent);
            assert_eq!(only(&outputs, down).message().body, sent.body);
        }
    }
    assert!(rig.indicated.is_empty());
}

/// CASP-4.2-13, CASP-G-11: TTD 0 is discarded; TTD 1 is processed and not sent on; the hop count ends at 255.
#[test]
fn ttd_and_hop_count_have_ends() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    assert!(rig.say(up, &Signaling { ttd: 0, ..message() }).is_empty());
    assert_eq!(rig.node.session_count(), 0);
    let outputs = rig.say(up, &Signaling { ttd: 1, ..data(CLIENT) });
    assert!(outputs.is_empty());
    assert_eq!((rig.node.session_count(), rig.indicated.len()), (1, 1));
    let outputs = rig.say(up, &Signaling { ttd: 2, hops: 255, ..message() });
    let sent = only(&outputs, rig.stream_to(DOWN));
    assert_eq!((sent.message().ttd, sent.message().hops), (1, 255));
}

/// CASP-4.4-15, CASP-4.4-19, CASP-G-17, CASP-G-13: R, T and errors without state make none, and nothing answers.
#[test]
fn without_state_only_a_set_up_counts() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let error = Signaling { body: Body::Error(ErrorCode::UNKNOWN), ..message() };
    for sent in [
        flags(message(), Flags::REVERSE),
        flags(message(), Flags::TEAR_DOWN),
        flags(message(), Flags::TEAR_DOWN.with(Flags::REVERSE)),
        error,
        flags(error, Flags::REVERSE),
    ] {
        assert!(rig.say(up, &sent).is_empty());
    }
    assert_eq!((rig.node.session_count(), rig.lookups), (0, 0));
    assert_eq!((rig.node.counters().no_state, rig.node.counters().errors_received), (5, 2));
}

/// CASP-4.4-13, CASP-G-03, CASP-3-01: what is malformed is counted and discarded, and the stream goes on.
#[test]
fn malformed_messages_are_silent_and_do_not_end_the_stream() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let mut good = Vec::new();
    message().encode(&mut good).unwrap();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut octets = good.clone();
        change(&mut octets);
        [u32::try_from(octets.len() + 4).unwrap().to_be_bytes().to_vec(), octets].concat()
    };
    let cases: Vec<Vec<u8>> = vec![
        with(&|octets| octets[3] = 0),
        with(&|octets| octets[3] = 4),
        with(&|octets| octets[0] = 0xa0),
        with(&|octets| octets[21] = 3),
        with(&|octets| octets[23] = 9),
        with(&|octets| octets.truncate(20)),
        with(&|octets| {
            let copy = octets[20..40].to_vec();
            octets.extend(copy);
        }),
        with(&|octets| octets[22] = 99),
    ];
    let count = cases.len();
    for octets in cases {
        assert!(rig.octets(up, &octets).is_empty());
    }
    assert_eq!(rig.node.counters().malformed, u64::try_from(count).unwrap());
    assert_eq!((rig.node.session_count(), rig.closed.len()), (0, 0));
    rig.say(up, &message());
    assert_eq!(rig.node.session_count(), 1);
}

/// CASP-4.4-14, CASP-G-01, CASP-6.2-02, CASP-4.3-07: state is one of session and flow, and each field of the flow counts.
#[test]
fn state_is_found_by_session_and_flow() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let (src, dst) = ("10.9.0.1".parse().unwrap(), DST.parse().unwrap());
    let flows = [
        flow(),
        FlowId::V4Ports { src, dst, src_port: 5005, dst_port: 5006, protocol: 17 },
        FlowId::V4Ports { src, dst, src_port: 5004, dst_port: 5007, protocol: 17 },
        FlowId::V4Ports { src, dst, src_port: 5004, dst_port: 5006, protocol: 6 },
        FlowId::V4Spi { src, dst, spi: 1, protocol: 50 },
        FlowId::V4Spi { src, dst, spi: 2, protocol: 50 },
    ];
    for flow in flows {
        rig.say(up, &Signaling { flow, ..message() });
        rig.say(up, &Signaling { flow, ..message() });
    }
    assert_eq!(rig.node.session_count(), 6);
    rig.say(up, &Signaling { session: session(2), ..message() });
    assert_eq!(rig.node.session_count(), 7);
}

/// CASP-G-05: the destination, or one of a proxy prefix, is the end of the chain.
#[test]
fn the_responder_sends_nothing_on() {
    let prefix = signalbox_core::node::Prefix { addr: ip("10.7.0.0"), len: 16 };
    let mut rig = Rig::with(Config { proxy: vec![prefix], ..config() });
    let up = rig.accept(UP);
    for dst in [NEAR, FAR, "10.7.1.2"] {
        let outputs = rig.say(up, &Signaling { flow: flow_to(dst, 1), ..data(CLIENT) });
        assert!(outputs.is_empty() && rig.lookups == 0, "{dst}");
    }
    let last = rig
        .take_indicated()
        .into_iter()
        .all(|indicated| matches!(indicated, Indicated::Received(arrival, _) if arrival.last));
    assert!(last);
    assert_eq!(rig.node.session_count(), 3);
}

/// CASP-4.2-04, CASP-4.4-18, CASP-P-11: R goes to the previous hop, over a new connection if the old one is gone.
#[test]
fn messages_against_the_flow_go_to_the_previous_hop() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    let answer = flags(data(UNKNOWN), Flags::REVERSE);
    let outputs = rig.say(down, &answer);
    assert_eq!(only(&outputs, up).message().body, answer.body);
    rig.input(signalbox_casp::engine::Input::Closed { stream: up });
    let outputs = rig.say(down, &answer);
    let (stream, _, _, peer) = *rig.opened.last().unwrap();
    assert_eq!(peer.to_string(), format!("{UP}:50003"));
    assert_eq!(only(&outputs, stream).message().body, answer.body);
    assert_eq!(scouts(&outputs).len(), 0);
}

/// CASP-G-26: a node that is no next hop sends nothing against the flow.
#[test]
fn strangers_do_not_send_against_the_flow() {
    let mut rig = Rig::new();
    let (up, _) = rig.chain();
    let stranger = rig.accept("10.0.1.66");
    for stream in [stranger, up] {
        assert!(rig.say(stream, &flags(data(CLIENT), Flags::REVERSE)).is_empty());
    }
    assert_eq!((rig.node.counters().strangers, rig.indicated.len()), (2, 0));
}

/// CASP-4.2-11, CASP-G-30: U is set on an unprotected hop, assumed on one, and never cleared.
#[test]
fn u_is_set_on_unprotected_hops_and_never_cleared() {
    let tls = |dst: &str| (signalbox_core::node::Prefix::host(ip(dst)), Transport::Tls);
    // TLS to TLS: clear stays clear, set stays set.
    let mut rig = Rig::with(Config { transports: vec![tls(DOWN)], ..config() });
    let up = rig.accept_by(UP, Transport::Tls, identity(1));
    let outputs = rig.say(up, &message());
    let down = rig.stream_to(DOWN);
    assert_eq!(only(&outputs, down).message().flags, Flags::NONE);
    let outputs = rig.say(up, &flags(message(), Flags::UNSECURE));
    assert_eq!(only(&outputs, down).message().flags, Flags::UNSECURE);
    // TCP to TLS: what a peer on TCP leaves clear is set.
    let plain = rig.accept(OTHER);
    let outputs = rig.say(plain, &Signaling { session: session(2), ..message() });
    assert_eq!(only(&outputs, down).message().flags, Flags::UNSECURE);
    // TLS to TCP: the sender sets it.
    let mut rig = Rig::new();
    let up = rig.accept_by(UP, Transport::Tls, identity(1));
    let outputs = rig.say(up, &message());
    assert_eq!(only(&outputs, rig.stream_to(DOWN)).message().flags, Flags::UNSECURE);
}

/// CASP-9.2-02: a prefix whose packets IPsec protects counts as secure.
#[test]
fn ipsec_counts_as_channel_security() {
    let all = signalbox_core::node::Prefix { addr: ip("10.0.0.0"), len: 8 };
    let mut rig = Rig::with(Config { protected: vec![all], ..config() });
    let up = rig.accept(UP);
    let outputs = rig.say(up, &message());
    assert_eq!(only(&outputs, rig.stream_to(DOWN)).message().flags, Flags::NONE);
}

/// CASP-10-03: source-specific multicast is not defined.
#[test]
fn multicast_destinations_are_refused() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    assert!(rig.say(up, &Signaling { flow: flow_to("232.1.1.1", 1), ..message() }).is_empty());
    assert_eq!((rig.node.session_count(), rig.node.counters().multicast), (0, 1));
}

/// CASP-G-31: private forms of flows are not accepted unless they are switched on.
#[test]
fn private_flows_need_their_switch() {
    let (src, dst) = ("2001:db8:9::1".parse().unwrap(), "2001:db8:8::1".parse().unwrap());
    let private = FlowId::V6Ports { src, dst, src_port: 1, dst_port: 2, protocol: 17 };
    let sent = Signaling { flow: private, ..message() };
    for (on, sessions) in [(false, 0), (true, 1)] {
        let mut rig = Rig::with(Config { private_flows: on, ..config() });
        let up = rig.accept(UP);
        rig.say(up, &sent);
        assert_eq!(rig.node.session_count(), sessions);
    }
}

/// CASP-P-18: the session record does not depend on the IP version: an IPv6 flow over IPv4 hops.
#[test]
fn a_session_may_cross_both_ip_versions() {
    let mut rig = Rig::new();
    let (src, dst) = ("2001:db8:9::1".parse().unwrap(), "2001:db8:8::1".parse().unwrap());
    let flow = FlowId::V6Label { src, dst, label: 7 };
    let up = rig.accept("2001:db8::2");
    let outputs = rig.say(up, &Signaling { flow, ..data(UNKNOWN) });
    let down = rig.stream_to(DOWN);
    assert_eq!(only(&outputs, down).message().flow, flow);
    let outputs = rig.say(down, &Signaling { flow, ..flags(data(UNKNOWN), Flags::REVERSE) });
    assert_eq!(only(&outputs, up).message().flow, flow);
}

/// CASP-11-03: a message may be larger than the MTU.
#[test]
fn large_messages_pass() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    let contents = vec![3; 60_000];
    let sent = Signaling { body: Body::Client { client: UNKNOWN, data: &contents }, ..message() };
    let outputs = rig.say(up, &sent);
    assert_eq!(only(&outputs, down).message().body, sent.body);
}

/// CASP-G-03: a message that came back to a node that sent it is a loop. It ends, and the next hop is discovered again.
#[test]
fn loops_end_at_once() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    assert!(rig.say(down, &message()).is_empty());
    assert_eq!((rig.node.counters().loops, rig.state().previous.len()), (1, 1));
    rig.wait(seconds(6.0));
    assert_eq!(scouts(&rig.say(up, &message())).len(), 1);
    // The initiator gets its own message back.
    let mut rig = Rig::new();
    let id = rig.open(true);
    let from = rig.accept(OTHER);
    assert!(rig.say(from, &Signaling { session: id, ..message() }).is_empty());
    assert_eq!(rig.node.counters().loops, 1);
}
