//! Querying node inside, Responding node outside.

use signalbox_core::Direction;
use signalbox_core::pinhole::PinholeError;
use signalbox_core::{LooseEnd, Mri};
use signalbox_gist::gateway::{Config, Forward, Gateway};
use signalbox_gist::wire::{GistError, Message, MessageType, ObjectType};

use crate::rig::*;

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// GISTNAT-R5.1-01, GISTNAT-R5.1-02, GISTNAT-R7.2.3-02, GISTNAT-R7.2.3-03, GISTNAT-R7.2.3-04, GIST-7.2.2-05: the worked
/// example, with hashes, generation and number of the binding left out.
#[test]
fn the_worked_example_is_reproduced() {
    let inside = octets(
        "0110001b 7fc080c0 00000005 000048c0 c0a8000a c6336414 20201100 13881770
         00010004 10111213 14151617 18191a1b 1c1d1e1f 00020005 08404000 00007530
         6e6f6465 2d696e31 c0a8000a 00050002 a1a2a3a4 a5a6a7a8 00030002 01000000
         01010000 00040003 01000000 00007530 01000000",
    );
    let outside = octets(
        "010f002b 7fc080c0
         0007000f 05020100 000048c0 c0a8000a c6336414 20201100 13881770 00020004
           001e0100 00018000 00000000 c0a8000a 00000000 00000000 00000000 00000000
         00000005 000048c0 cb007101 c6336414 20201100 9c401770
         00010004 10111213 14151617 18191a1b 1c1d1e1f
         00020005 08404000 00007530 6e6f6465 2d696e31 cb007101
         00050002 a1a2a3a4 a5a6a7a8 00030002 01000000 01010000
         00040003 01000000 00007530 01000000",
    );
    // The flow's port 5000 becomes 40000, as in the example.
    let forward = Forward {
        protocol: 17,
        first_port: 40000,
        last_port: 40000,
        address: v4("192.168.0.10"),
        port: 5000,
    };
    let mut rig = Rig::with(Config { forwards: vec![forward], ..config() });
    let via = q_mode(INSIDE, at("192.168.0.10", 32768), "198.51.100.20");
    let magic = [0x4e, 0x04, 0xbd, 0xa5];
    rig.packet(&via, &[&magic[..], &inside].concat());
    let sent = rig.sent();
    let mut found = sent.octets().to_vec();
    found[43] = 0; // generation of the key
    found[48..52].fill(0); // binding
    found[56..72].fill(0); // hashes
    assert_eq!(found, outside);
    assert_eq!((sent.src.ip(), sent.dst), (ip(EXTERNAL), at(FAR, 270)));
}

/// GISTNAT-R4.3.4-01, GISTNAT-R4.3.4-02, GISTNAT-R5.3.2-01, GISTNAT-R5.8.1.2-01, GISTNAT-P5.3-02: the packet keeps its
/// Router Alert, DSCP and DF; TTL and hop count go down by one.
#[test]
fn a_query_leaves_in_q_mode() {
    let mut rig = Rig::new();
    rig.outward(&query(outbound(), HOST));
    let sent = rig.sent();
    assert_eq!((sent.ttl, sent.tos, sent.dont_fragment, sent.dst), (63, 0xb8, true, at(FAR, 270)));
    assert_eq!(sent.options, [0x94, 4, 0, 7]);
    let message = sent.message();
    assert_eq!((message.header.hops, message.header.c, message.header.r), (15, true, true));
    assert_eq!(message.nli.unwrap().ip_ttl, 64);
}

/// GISTNAT-R7.2.3-01, GISTNAT-D6.1-01: MRI and kernel say the same of the flow.
#[test]
fn the_mri_is_what_the_kernel_does() {
    let mut rig = Rig::new();
    rig.outward(&query(outbound(), HOST));
    let sent = rig.sent();
    let binding = rig.binding(17, Some((HOST, Some(5000))), (FAR, 6000)).unwrap();
    assert_eq!(binding.pinhole.source, endpoint(EXTERNAL, sent.mri().src_port.unwrap()));
    assert_eq!(binding.pinhole.destination, None);
    assert_eq!((sent.mri().src, sent.mri().dst, sent.mri().dst_port), (ip(EXTERNAL), ip(FAR), Some(6000)));
}

/// GISTNAT-R7.2.3-05, GISTNAT-X-11, GISTNAT-X-08: with S=0 and with S=1 the Query leaves from the external address with one
/// port, and S=1; so do the sender's later datagrams.
#[test]
fn queries_with_either_source_leave_from_one_port() {
    let mut rig = Rig::new();
    rig.outward(&query(outbound(), HOST));
    let first = rig.sent();
    // A flow of a third host, with its address as the source.
    let mut message = query(udp((SECOND, 5000), (FAR, 6000)), HOST);
    message.header.s = false;
    rig.packet(&q_mode(INSIDE, at(SECOND, 270), FAR), &encode(&message));
    let second = rig.sent();
    for sent in [&first, &second] {
        assert!(sent.message().header.s);
        assert_eq!(sent.src.ip(), ip(EXTERNAL));
        assert_eq!(sent.message().nli.unwrap().interface, ip(EXTERNAL));
    }
    assert_eq!(first.src, second.src);
    assert_ne!(first.mri().src_port, second.mri().src_port, "two hosts have two ports");
    // The Confirm is the kernel's: from the host's GIST port to the responder.
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), first.src), &encode(&response(&first.message(), FAR)));
    rig.sent();
    let confirm = rig.binding(17, Some((HOST, Some(270))), (FAR, 270)).unwrap();
    assert_eq!(confirm.pinhole.source, endpoint(EXTERNAL, first.src.port()));
}

/// GISTNAT-R7.2.3-07, GISTNAT-R7.2.3-06, GISTNAT-R7.2.3-09, GISTNAT-D6.1-07, GISTNAT-X-03: the Response goes to address and
/// port of the Query; only the entry of the gateway is missing in it.
#[test]
fn a_response_returns_to_the_sender_of_the_query() {
    let mut rig = Rig::new();
    let message = with_tls(query(outbound(), HOST));
    rig.packet(&q_mode(INSIDE, at(HOST, 32768), FAR), &encode(&message));
    let outside = rig.sent();
    let answer = response(&outside.message(), FAR);
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), outside.src), &encode(&answer));
    let inside = rig.sent();
    assert_eq!((inside.src, inside.dst, inside.ttl), (at(FAR, 270), at(HOST, 32768), 63));
    assert_eq!(inside.ifindex, Some(INSIDE));
    let found = inside.message();
    let nat = found.nat_traversal.unwrap();
    assert_eq!((nat.replaced.len(), nat.translated.len()), (0, 2));
    assert_eq!(nat.mri(), Some(Mri::PathCoupled(outbound())));
    let expected = Message { nat_traversal: found.nat_traversal, header: found.header, ..answer };
    assert_eq!(found, expected);
    assert_eq!(found.header.hops, 15);
    assert_eq!(inside.octets().len(), found.header.message_octets());
}

/// GISTNAT-X-23: behind the gateway is a NAT without GIST, of which the peer informs by an Error to where the packet came from. It
/// comes back through that NAT, and the gateway gives it to the Querying node, with the object.
#[test]
fn an_error_about_a_legacy_nat_beyond_comes_back() {
    let mut rig = Rig::new();
    rig.packet(&q_mode(INSIDE, at(HOST, 32768), FAR), &encode(&query(outbound(), HOST)));
    let sent = rig.sent();
    rig.opened();
    let answer = encode(&error(&sent.message(), FAR, GistError::UNTRANSLATED_OBJECT));
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &answer);
    let inside = rig.sent();
    assert_eq!((inside.dst, inside.error()), (at(HOST, 32768), GistError::UNTRANSLATED_OBJECT));
    let object = inside.message().nat_traversal.unwrap();
    assert_eq!((object.replaced.len(), object.mri()), (0, Some(Mri::PathCoupled(outbound()))));
    assert!(rig.opened().is_empty(), "an Error confirms no binding");
}

/// GISTNAT-D6.1-02, GISTNAT-D6.1-04, GISTNAT-X-10: a reservation ends soon; a Response prolongs it, and refreshes keep it.
#[test]
fn bindings_live_as_long_as_the_handshakes() {
    let mut rig = Rig::new();
    rig.outward(&query(outbound(), HOST));
    rig.sent();
    assert!(rig.opened().iter().all(|open| open.lifetime.as_secs() == 30));
    rig.until(31);
    assert_eq!(rig.standing.len(), 0, "no Response came");
    rig.outward(&query(outbound(), HOST));
    let again = rig.sent();
    let mut answer = response(&again.message(), FAR);
    answer.nli.as_mut().unwrap().validity_ms = 600_000;
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), again.src), &encode(&answer));
    rig.sent();
    rig.until(31 + 500);
    assert!(rig.binding(17, None, (EXTERNAL, again.src.port())).is_some());
    assert!(rig.binding(17, Some((HOST, Some(5000))), (FAR, 6000)).is_some());
    // A refresh whose Response passes over an association prolongs all of it.
    let mut refresh = query(outbound(), HOST);
    refresh.nli.as_mut().unwrap().validity_ms = 600_000;
    rig.outward(&refresh);
    let refreshed = rig.sent();
    assert_eq!((refreshed.src, refreshed.mri()), (again.src, again.mri()));
    rig.until(31 + 500 + 599);
    assert!(rig.binding(17, Some((HOST, Some(270))), (FAR, 270)).is_some());
    rig.until(31 + 500 + 602);
    assert_eq!(rig.standing.len(), 0);
    assert_eq!(rig.gateway.tables().map(|table| table.size), [0, 0]);
}

/// GISTNAT-D6.1-01: a Query does not wait for the kernel. Its Response waits for it: when the handshake goes on, packets of the flow
/// are translated as the MRI says. Those of several sessions wait, but not more than 16.
#[test]
fn responses_wait_for_the_kernel() {
    let mut rig = Rig::new();
    rig.slow = true;
    for number in 0..20 {
        let mut message = query(outbound(), HOST);
        message.session = Some(signalbox_core::SessionId([number; 16]));
        rig.outward(&message);
        let sent = rig.sent();
        let answer = encode(&response(&sent.message(), FAR));
        rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &answer);
    }
    rig.quiet();
    while rig.answer() {}
    assert_eq!((rig.counters().responses, rig.counters().waiting_full), (16, 4));
}

/// GISTNAT-D6.1-01: the kernel refuses the binding that the MRI of a Query has. The Response to this Query does not come through, so that
/// no handshake completes for a flow that is not translated.
#[test]
fn a_response_without_its_binding_does_not_pass() {
    let mut rig = Rig::new();
    rig.refusal = Some(PinholeError::Conflict);
    rig.outward(&query(outbound(), HOST));
    let sent = rig.sent();
    rig.refusal = None;
    let answer = encode(&response(&sent.message(), FAR));
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &answer);
    rig.quiet();
    assert_eq!((rig.counters().refused, rig.counters().binding_gone), (2, 1));
}

/// The kernel keeps the binding of a flow as long as its Queries come, without a Response too.
#[test]
fn queries_keep_an_unconfirmed_binding_in_the_kernel() {
    let mut rig = Rig::new();
    for time in [0, 20, 40, 60] {
        rig.until(time);
        rig.outward(&query(outbound(), HOST));
        rig.sent();
    }
    let lasts = |open: &Open| open.pinhole.packets.src_port == Some(5000);
    assert_eq!(rig.opened().iter().filter(|open| lasts(open)).count(), 4);
    rig.until(91);
    assert!(rig.standing.is_empty());
}

/// GISTNAT-R7.2.3-10: a refresh is translated as the first Query was.
#[test]
fn a_refresh_is_translated_like_the_first_query() {
    let mut rig = Rig::new();
    rig.outward(&query(outbound(), HOST));
    let first = rig.sent();
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), first.src), &encode(&response(&first.message(), FAR)));
    rig.sent();
    for refresh in 1..=3 {
        rig.until(refresh * 60);
        rig.outward(&query(outbound(), HOST));
        let sent = rig.sent();
        assert_eq!((sent.src, sent.mri(), sent.message().nli), (first.src, first.mri(), first.message().nli));
    }
}

/// GISTNAT-D6.1-10, GISTNAT-X-22: datagrams to the external port of a host reach it; an Error without NAT-Traversal object
/// is such a datagram.
#[test]
fn datagrams_to_the_external_port_reach_the_host() {
    let mut rig = Rig::new();
    rig.outward(&query(outbound(), HOST));
    let sent = rig.sent();
    let binding = rig.binding(17, None, (EXTERNAL, sent.src.port())).unwrap();
    assert_eq!(binding.pinhole.destination, endpoint(HOST, 270));
    // The kernel does it, and no rule takes the datagram from it. The gateway itself sends nothing on to the host.
    let mut message = error(&sent.message(), FAR, GistError::UNKNOWN_VERSION);
    message.nat_traversal = None;
    let payload = encode(&message);
    let rules = Gateway::entry(&config()).intercept;
    assert!(!rules.iter().any(|rule| rule.takes(false, &[], &payload)));
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &payload);
    rig.quiet();
}

/// GISTNAT-R7.2.3-04, GIST-7.2.2-04: without an offer of associations the list has the NLI only, and padding.
#[test]
fn the_list_has_what_is_there() {
    let mut rig = Rig::new();
    rig.outward(&query(outbound(), HOST));
    let sent = rig.sent();
    let types: Vec<_> = sent.message().nat_traversal.unwrap().translated.iter().map(|t| t.kind()).collect();
    assert_eq!(types, [ObjectType::NLI]);
    rig.outward(&with_tls(query(outbound(), HOST)));
    let sent = rig.sent();
    let types: Vec<_> = sent.message().nat_traversal.unwrap().translated.iter().map(|t| t.kind()).collect();
    assert_eq!(types, [ObjectType::NLI, ObjectType::STACK_CONFIGURATION]);
}

/// GISTNAT-R7.2.2-02, GIST-7.2.2-02: Data in Q-mode are translated like a Query, and make no bindings for associations.
#[test]
fn data_in_q_mode_are_translated() {
    let mut rig = Rig::new();
    let mut message = node(HOST).data(Mri::PathCoupled(outbound()), SESSION, b"data");
    message.header.c = true;
    rig.outward(&message);
    let sent = rig.sent();
    let found = sent.message();
    assert_eq!(
        (found.header.kind, found.header.c, found.nslp_data),
        (MessageType::DATA, true, Some(&b"data"[..]))
    );
    assert_eq!((sent.mri().src, found.nli.unwrap().interface), (ip(EXTERNAL), ip(EXTERNAL)));
    assert_eq!(sent.nats(), 1);
    assert!(rig.standing.iter().all(|open| open.pinhole.packets.protocol == Some(17)));
    assert_eq!((rig.counters().data, rig.counters().queries), (1, 0));
}

/// GISTNAT-R5.3.2-02: an upstream Query of the receiver inside translates the destination of the flow. Packets of the flow
/// pass when the Response has come, not before (GISTNAT-D6.1-02).
#[test]
fn an_upstream_query_translates_the_destination() {
    let mut rig = Rig::new();
    let flow = udp((FAR, 6000), (HOST, 9000));
    rig.outward(&query(upstream(flow), HOST));
    let sent = rig.sent();
    let port = sent.mri().dst_port.unwrap();
    assert_eq!((sent.mri().dst, sent.mri().src, sent.dst), (ip(EXTERNAL), ip(FAR), at(FAR, 270)));
    assert!(rig.binding(17, Some((FAR, Some(6000))), (EXTERNAL, port)).is_none());
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &encode(&response(&sent.message(), FAR)));
    rig.sent();
    let binding = rig.binding(17, Some((FAR, Some(6000))), (EXTERNAL, port)).unwrap();
    assert_eq!(binding.pinhole.destination, endpoint(HOST, 9000));
}

/// GISTNAT-X-26: a loose-end Query has the external address as its source.
#[test]
fn a_loose_end_is_translated() {
    let mut rig = Rig::new();
    let end = LooseEnd { src: ip(HOST), dst: ip(FAR), direction: Direction::Downstream };
    let mut message = query(outbound(), HOST);
    message.mri = Some(Mri::LooseEnd(end).into());
    rig.outward(&message);
    let sent = rig.sent();
    let translated = LooseEnd { src: ip(EXTERNAL), ..end };
    assert_eq!(sent.message().mri.unwrap().mri, Mri::LooseEnd(translated));
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &encode(&response(&sent.message(), FAR)));
    assert_eq!(rig.sent().dst, at(HOST, 270));
}

/// GISTNAT-D3-01, GISTNAT-D3-02: a Query that offers TLS gets the object; the transport's own packets leave by the external
/// address.
#[test]
fn tls_passes_by_the_object() {
    let mut rig = Rig::new();
    rig.outward(&with_tls(query(outbound(), HOST)));
    let sent = rig.sent();
    assert_eq!(sent.nats(), 1);
    let answer = response(&sent.message(), FAR);
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &encode(&answer));
    assert_eq!(offered(&rig.sent().message()), Some(6123), "the responder's port stays");
    let connection = rig.binding(6, Some((HOST, None)), (FAR, 6123)).unwrap();
    assert_eq!(
        connection.pinhole.source.map(|source| (source.address, source.port)),
        Some((ip(EXTERNAL), None))
    );
}

/// GISTNAT-R7.2-01: what is no Query and has no NAT-Traversal object is left to the kernel, whatever its port.
/// GISTNAT-R7.2.2-01, GIST-7.2.2-01: so its octets stay. GISTNAT-P5.3-01: another magic number is not GIST.
#[test]
fn other_messages_are_left_to_the_kernel() {
    let mut rig = Rig::new();
    let answer = node(FAR).response_with(&query(outbound(), HOST), &[1; 16]);
    let confirm = encode(&node(HOST).confirm(&answer));
    let mut other = encode(&query(outbound(), HOST));
    other[0] ^= 1;
    let rules = Gateway::entry(&config()).intercept;
    for (payload, is_taken) in [(&confirm, false), (&other, false), (&encode(&query(outbound(), HOST)), true)]
    {
        assert_eq!(rules.iter().any(|rule| rule.takes(false, &[], payload)), is_taken);
    }
    for payload in [confirm, other] {
        rig.packet(&Via::normal(INSIDE, at(HOST, 270), at(FAR, 270)), &payload);
        rig.quiet();
    }
    assert_eq!(rig.counters().not_for_gateway, 2);
}
