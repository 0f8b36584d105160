//! Forged objects, and hosts that ask for everything.

use signalbox_core::IfIndex;
use signalbox_gist::gateway::{Config, Input};
use signalbox_gist::wire::{ErrorCode, GistError, List, Message, MessageType, NatTraversal, Replaced};

use crate::rig::*;

/// Offset of the type and the C-flag in a datagram.
const TYPE: usize = 10;

/// A Query through the gateway, and the Response of the far node.
fn answered(rig: &mut Rig) -> (Packet, Vec<u8>) {
    rig.outward(&query(outbound(), HOST));
    let sent = rig.sent();
    let answer = encode(&response(&sent.message(), FAR));
    rig.opened();
    (sent, answer)
}

/// GISTNAT-D6.1-05, GISTNAT-X-06, GISTNAT-X-07: a Response with another session, cookie or application, from another link,
/// or with an entry of another gateway confirms nothing.
#[test]
fn forged_responses_make_no_bindings() {
    type Change = fn(&mut Message<'_>);
    let changes: [(Change, bool); 3] = [
        (|message| message.session = Some(signalbox_core::SessionId([1; 16])), false),
        (|message| message.query_cookie = Some(&[1; 8]), true),
        (|message| message.header.nslp = signalbox_core::NslpId::QOS, false),
    ];
    for (change, is_own) in changes {
        let mut rig = Rig::new();
        let (sent, _) = answered(&mut rig);
        let message = sent.message();
        let mut forged = response(&message, FAR);
        change(&mut forged);
        rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &encode(&forged));
        rig.quiet();
        assert!(rig.opened().is_empty());
        let counters = rig.counters();
        assert_eq!(
            (counters.foreign_cookie, counters.foreign_forged),
            (u64::from(is_own), u64::from(!is_own))
        );
    }
    let mut rig = Rig::new();
    let (_, answer) = answered(&mut rig);
    rig.packet(&Via::normal(INSIDE, at(SECOND, 270), at(FAR2, 4000)), &answer);
    rig.quiet();
    assert!(rig.opened().is_empty());
    assert_eq!(rig.counters().foreign_link, 1);
    // The same object at a gateway with other keys.
    let mut other = Rig::between(config(), [GATE, EXTERNAL], 9);
    other.packet(&Via::normal(OUTSIDE, at(FAR, 270), at(EXTERNAL, 20_000)), &answer);
    other.quiet();
    assert!(other.opened().is_empty());
}

/// GISTNAT-X-06: every changed octet of the entry makes it foreign.
#[test]
fn a_changed_entry_is_foreign() {
    let mut rig = Rig::new();
    let (sent, answer) = answered(&mut rig);
    // The entry begins behind magic number, header, object header, list and MRI.
    let start = 4 + 8 + 4 + 4 + 20 + 4 + 2;
    for at_octet in start..start + 22 {
        let mut forged = answer.clone();
        forged[at_octet] ^= 0x80;
        rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &forged);
        rig.quiet();
        assert!(rig.opened().is_empty(), "octet {at_octet}");
    }
    assert_eq!(rig.counters().foreign_forged, 22);
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &answer);
    rig.sent();
    assert_eq!(rig.counters().activated, 1);
}

/// A Response that is repeated makes nothing new.
#[test]
fn a_replayed_response_changes_nothing() {
    let mut rig = Rig::new();
    let (sent, answer) = answered(&mut rig);
    let via = Via::normal(OUTSIDE, at(FAR, 270), sent.src);
    rig.packet(&via, &answer);
    rig.sent();
    let size = rig.gateway.tables()[0].size;
    rig.opened();
    for _ in 0..100 {
        rig.packet(&via, &answer);
        rig.sent();
    }
    assert_eq!(rig.gateway.tables()[0].size, size);
    assert!(rig.opened().is_empty());
    // After the key has changed twice it is foreign.
    rig.until(1000);
    rig.packet(&via, &answer);
    rig.quiet();
    assert_eq!(rig.gateway.tables()[0].size, 0);
}

/// Objects nested 255 deep: a Query with more than 16 entries is refused, and an answer with 255 foreign ones is dropped.
#[test]
fn deep_nesting_is_bounded() {
    let mut rig = Rig::new();
    let mri = [0; 24];
    let entries = vec![Replaced(&[1; 30]); 255];
    for (depth, refused) in [(15, false), (16, true), (255, true)] {
        let nat = NatTraversal {
            octets: &[],
            original_mri: &mri,
            translated: List::EMPTY,
            replaced: List::of(&entries[..depth]),
        };
        let mut message = query(outbound(), HOST);
        message.nat_traversal = Some(nat);
        rig.outward(&message);
        if refused {
            let sent = rig.sent();
            assert_eq!(sent.error(), GistError::VALUE_NOT_SUPPORTED);
        } else {
            assert_eq!(rig.sent().nats(), depth + 1);
        }
        let mut forged = response(&message, FAR);
        forged.nat_traversal = Some(nat);
        rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), at(EXTERNAL, 9)), &encode(&forged));
        rig.quiet();
    }
    assert_eq!((rig.counters().too_deep, rig.counters().foreign_forged), (2, 3));
}

/// What this gateway cannot verify is never sent on by it: the operator's rules for forwarded packets would not judge it. It is
/// dropped and counted, from either side, to any port, of every type, whatever bindings there are.
#[test]
fn what_cannot_be_verified_is_not_sent_on() {
    let mut rig = Rig::new();
    rig.outward(&query(outbound(), HOST));
    let sent = rig.sent();
    let leased = sent.src;
    let true_answer = response(&sent.message(), FAR);
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), leased), &encode(&true_answer));
    rig.sent();
    rig.opened();
    // The object of another gateway, with data of the attacker in its entry.
    let mri = [0; 24];
    let entry = [Replaced(&[0x5a; 254])];
    let nat =
        NatTraversal { octets: &[], original_mri: &mri, translated: List::EMPTY, replaced: List::of(&entry) };
    let mut asked = query(outbound(), FAR);
    asked.nat_traversal = Some(nat);
    let of = |kind: MessageType, c_flag: u8| {
        let mut octets = encode(&response(&asked, FAR));
        octets[TYPE] = kind.0 | c_flag;
        octets
    };
    let kinds = [MessageType::RESPONSE, MessageType::CONFIRM, MessageType::DATA, MessageType::ERROR];
    let mut forged: Vec<Vec<u8>> = kinds.map(|kind| of(kind, 0)).into();
    let mut of_another_query = response(&sent.message(), FAR);
    of_another_query.query_cookie = Some(&[1; 8]);
    forged.push(encode(&of_another_query));
    forged.push(encode(&error(&query(inbound(), FAR), FAR, GistError::ENDPOINT_FOUND)));
    let ends = [
        (OUTSIDE, FAR, at(HOST, 270)),
        (OUTSIDE, FAR, at(HOST, 4711)),
        (OUTSIDE, FAR, leased),
        (OUTSIDE, FAR, at(EXTERNAL, 7000)),
        (OUTSIDE, FAR, at(EXTERNAL, 9)),
        (OUTSIDE, FAR2, at(FAR, 270)),
        (OUTSIDE, HOST, at(SECOND, 270)),
        (INSIDE, SECOND, at(HOST, 4711)),
        (INSIDE, SECOND, at(FAR, 4711)),
        (INSIDE, SECOND, leased),
        (IfIndex(3), FAR, at(HOST, 270)),
    ];
    for (ifindex, src, dst) in ends {
        for octets in &forged {
            rig.packet(&Via::normal(ifindex, at(src, 270), dst), octets);
            rig.quiet();
        }
        // With a Router Alert too.
        rig.packet(&Via { dst, ..q_mode(ifindex, at(src, 270), FAR) }, &forged[0]);
        rig.quiet();
        // Without an object: the kernel does not redirect it, but it may be addressed to this node.
        let mut plain = encode(&response(&query(outbound(), FAR), FAR));
        plain[TYPE] = MessageType::DATA.0;
        rig.packet(&Via::normal(ifindex, at(src, 270), dst), &plain);
        rig.quiet();
        rig.packet(&Via::normal(ifindex, at(src, 270), dst), b"no GIST");
        rig.quiet();
    }
    // Queries and Data in Q-mode from outside to hosts inside, past the external address.
    for octets in [encode(&query(udp((FAR, 6000), (HOST, 5000)), FAR)), of(MessageType::DATA, 0x80)] {
        for dst in [HOST, SECOND, FAR2] {
            rig.packet(&q_mode(OUTSIDE, at(FAR, 270), dst), &octets);
            rig.packet(&q_mode(IfIndex(3), at(FAR, 270), dst), &octets);
            rig.quiet();
        }
    }
    assert!(rig.opened().is_empty());
    let counters = rig.counters();
    assert!(counters.foreign_forged > 50 && counters.foreign_cookie > 0, "{counters:?}");
    // The true answer still passes.
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), leased), &encode(&true_answer));
    assert_eq!(rig.sent().dst, at(HOST, 270));
}

/// GISTNAT-X-24, GISTNAT-D7.1-01: a host that takes all bindings leaves their share to others, and what it took ends soon.
#[test]
fn one_host_cannot_take_all_bindings() {
    let mut rig = Rig::with(Config { max_bindings: 1024, queries_of_source: 0, ..config() });
    for port in 1..=2000 {
        rig.outward(&query(udp((HOST, port), (FAR, 6000)), HOST));
    }
    let [bindings, _] = rig.gateway.tables();
    assert_eq!(bindings.size, 768, "three quarters");
    assert!(rig.counters().bindings_of_host > 0);
    while rig.gateway.has_output() {
        rig.gateway.poll();
    }
    let before = rig.counters().queries;
    rig.outward(&query(udp((SECOND, 5000), (FAR, 6000)), SECOND));
    assert_eq!(rig.counters().queries, before + 1, "another host gets its share");
    rig.until(31);
    assert_eq!(rig.gateway.tables().map(|table| table.size), [0, 0]);
}

/// What ends at one time ends in parts, so that messages have their turn in between.
#[test]
fn many_bindings_end_in_parts() {
    let mut rig = Rig::with(Config { queries_of_source: 0, ..config() });
    for port in 1..=600 {
        rig.outward(&query(udp((HOST, port), (FAR, 6000)), HOST));
    }
    rig.now = rig.now + core::time::Duration::from_secs(3600);
    let mut left = || {
        rig.0.gateway.handle(rig.0.now, Input::Timer);
        (rig.gateway.tables()[0].size, rig.gateway.next_deadline().is_some_and(|at| at <= rig.now))
    };
    // One binding is for the messages of the host.
    assert_eq!([left(), left(), left()], [(345, true), (89, true), (0, false)]);
}

/// Bindings that lead to this host.
fn ways_to(rig: &Rig, host: &str) -> Vec<Open> {
    let leads = |open: &&Open| open.pinhole.destination.is_some_and(|end| end.address == ip(host));
    rig.standing.iter().filter(leads).cloned().collect()
}

/// A Query from the address and port of one host, with the flow of that host, that names another host in its NLI (S=0).
fn naming(rig: &mut Rig, from: (&str, u16), host: &str) {
    let mut message = query(udp((from.0, 5000), (FAR, 6000)), host);
    message.header.s = false;
    rig.packet(&q_mode(INSIDE, at(from.0, from.1), FAR), &encode(&message));
}

/// GISTNAT-D7.1-01: a Query whose NLI names another host opens no port of that host, neither when it passes nor when its
/// Response does. When the host asks by itself, it gets the port that was reserved for it.
#[test]
fn a_query_opens_no_port_of_the_host_that_it_names() {
    let mut rig = Rig::new();
    naming(&mut rig, (SECOND, 53), HOST);
    rig.quiet();
    naming(&mut rig, (SECOND, 270), HOST);
    let sent = rig.sent();
    let answer = encode(&response(&with_tls(sent.message()), FAR));
    rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &answer);
    assert_eq!(rig.sent().dst, at(HOST, 270));
    assert!(ways_to(&rig, HOST).is_empty(), "{:?}", rig.standing);
    assert!(rig.binding(17, Some((SECOND, Some(5000))), (FAR, 6000)).is_some(), "its own flow");
    assert_eq!(rig.counters().other_host, 2);
    rig.outward(&query(outbound(), HOST));
    assert_eq!(rig.sent().src, sent.src);
    assert_eq!(ways_to(&rig, HOST).len(), 1);
}

/// GISTNAT-D7.1-01: Queries of another host do not let the ports of a host stay open.
#[test]
fn a_query_keeps_no_port_of_the_host_that_it_names() {
    let mut rig = Rig::new();
    rig.outward(&query(outbound(), HOST));
    rig.sent();
    assert_eq!(ways_to(&rig, HOST).len(), 1);
    for time in [20, 40] {
        rig.until(time);
        naming(&mut rig, (SECOND, 270), HOST);
        let sent = rig.sent();
        let answer = encode(&response(&sent.message(), FAR));
        rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &answer);
        rig.sent();
        assert_eq!(ways_to(&rig, HOST).is_empty(), time == 40);
    }
}

/// GISTNAT-D7.1-01: a host gets no way to another host for a flow. A flow of another host that leaves passes, as one that a
/// router with an application signals for; its port does not lead from outside to that host.
#[test]
fn a_query_opens_no_way_for_the_flow_of_another_host() {
    let mut rig = Rig::new();
    rig.outward(&query(upstream(udp((FAR, 6000), (HOST, 22))), SECOND));
    rig.quiet();
    assert_eq!(rig.counters().other_host, 1);
    let flow = udp((HOST, 4000), (FAR, 6000));
    rig.outward(&query(flow, SECOND));
    let port = rig.sent().mri().src_port.unwrap();
    assert!(rig.binding(17, Some((HOST, Some(4000))), (FAR, 6000)).is_some());
    let towards = udp((FAR2, 6000), (EXTERNAL, port));
    rig.inward(&query(towards, FAR2));
    assert_eq!(rig.sent().error(), GistError::ENDPOINT_FOUND);
    assert!(ways_to(&rig, HOST).is_empty());
    // When the host has asked for the port by itself, its signaling can be reached there.
    rig.outward(&query(flow, HOST));
    rig.sent();
    rig.inward(&query(towards, FAR2));
    assert_eq!(rig.sent().dst, at(HOST, 270));
}

/// GISTNAT-X-07, GISTNAT-D7.1-01: a Response of a host inside that names another host opens no port of that host, neither for datagrams
/// nor for associations.
#[test]
fn a_response_opens_no_port_of_the_host_that_it_names() {
    let mut rig = Rig::new();
    rig.inward(&with_tls(query(inbound(), FAR)));
    let inside = rig.sent();
    let answer = encode(&response(&inside.message(), SECOND));
    rig.packet(&Via::normal(INSIDE, at(HOST, 270), at(FAR, 270)), &answer);
    assert_eq!(rig.sent().message().nli.unwrap().interface, ip(EXTERNAL));
    assert!(ways_to(&rig, SECOND).is_empty(), "{:?}", rig.standing);
    assert_eq!(ways_to(&rig, HOST).len(), 1, "the flow, which is the host's own");
    assert_eq!(rig.counters().other_host, 1);
}

/// GISTNAT-X-24: ports that are used up are counted.
#[test]
fn used_up_ports_are_counted() {
    let mut rig = Rig::with(Config { first_port: 20_000, last_port: 20_003, ..config() });
    let served = (1..=10).filter(|port| is_served(&mut rig, (INSIDE, HOST, *port))).count();
    assert!((2..=4).contains(&served), "{served}");
    assert!(rig.counters().ports_full > 0);
}

/// GISTNAT-D7.1-01: the rate of Queries of one source is limited, that of others is not.
#[test]
fn the_rate_of_a_source_is_limited() {
    let mut rig = Rig::with(Config { queries_of_source: 8, ..config() });
    for _ in 0..100 {
        rig.outward(&query(outbound(), HOST));
    }
    let counters = rig.counters();
    assert_eq!((counters.queries, counters.queries_limited), (2, 98));
    rig.outward(&query(udp((SECOND, 5000), (FAR, 6000)), SECOND));
    assert_eq!(rig.counters().queries, 3);
}

/// Who forges the address of a host inside from outside takes nothing of its rate.
#[test]
fn a_forged_source_leaves_the_rate_to_the_host_inside() {
    let mut rig = Rig::with(Config { queries_of_source: 8, ..config() });
    let forged = q_mode(OUTSIDE, at(HOST, 270), EXTERNAL);
    for _ in 0..100 {
        rig.packet(&forged, &encode(&query(outbound(), HOST)));
    }
    assert_eq!(rig.counters().queries_limited, 98);
    rig.outward(&query(outbound(), HOST));
    assert_eq!(rig.counters().queries_limited, 98);
}

/// A host inside has a session: its Query passes, and the Response returns and confirms its bindings.
fn is_served(rig: &mut Rig, (ifindex, host, port): (IfIndex, &str, u16)) -> bool {
    rig.unwatched();
    let message = query(udp((host, port), (FAR2, 6000)), host);
    rig.packet(&q_mode(ifindex, at(host, 270), FAR2), &encode(&message));
    let Some(sent) = rig.last() else { return false };
    if sent.message().header.kind != MessageType::QUERY {
        return false;
    }
    let answer = encode(&response(&sent.message(), FAR2));
    rig.packet(&Via::normal(OUTSIDE, at(FAR2, 270), sent.src), &answer);
    let is_back = rig.last().is_some_and(|sent| sent.dst == at(host, 270));
    is_back && rig.binding(17, Some((host, Some(port))), (FAR2, 6000)).is_some()
}

/// Forged Queries from outside, each for a flow of its own to a port that is forwarded, leave bindings to hosts inside, and to
/// those whose handshake comes to its end; also if the hosts inside answer each.
#[test]
fn forged_queries_from_outside_leave_bindings_to_hosts_inside() {
    for answered in [false, true] {
        let mut rig = Rig::with(Config { queries_of_source: 0, max_bindings: 1024, ..config() });
        assert!(is_served(&mut rig, (INSIDE, HOST, 4000)));
        for number in 0..if answered { 3000 } else { 100_000_u32 } {
            let far = std::net::Ipv4Addr::from(0x0b00_0000 + number).to_string();
            rig.inward(&query(udp((&far, 6000), (EXTERNAL, 7000)), &far));
            if answered && let Some(inside) = rig.last().filter(|sent| sent.dst == at(HOST, 270)) {
                let answer = encode(&response(&inside.message(), HOST));
                rig.packet(&Via::normal(INSIDE, at(HOST, 270), inside.src), &answer);
            }
            rig.unwatched();
        }
        for port in 5000..5002 {
            assert!(is_served(&mut rig, (INSIDE, SECOND, port)), "{port} {answered} {:?}", rig.counters());
        }
        assert!(is_served(&mut rig, (INSIDE, HOST, 4000)), "a session that stands goes on");
    }
}

/// Forged Queries of hosts inside leave bindings and ports to hosts behind another interface, and to those behind the same one.
#[test]
fn forged_queries_from_inside_leave_bindings_and_ports_to_others() {
    const OTHER: IfIndex = IfIndex(4);
    for (max_bindings, last_port) in [(1024, 32_767), (16_384, 17_407)] {
        let inside = vec!["eth1".to_owned(), "eth4".to_owned()];
        let settings = Config { queries_of_source: 0, max_bindings, last_port, inside, ..config() };
        let mut rig = Rig::with(settings);
        let all = [
            interface(INSIDE, GATE, 1500),
            interface(OUTSIDE, EXTERNAL, 1500),
            interface(OTHER, "10.4.0.1", 1500),
        ];
        rig.0.gateway.handle(rig.0.now, Input::Interfaces(&all));
        assert!(is_served(&mut rig, (INSIDE, HOST, 4000)));
        for number in 0..16_000_u32 {
            let host = std::net::Ipv4Addr::from(0x0a10_0000 + number).to_string();
            rig.outward(&query(udp((&host, 5000), (FAR, 6000)), &host));
            rig.unwatched();
        }
        for host in 2..12 {
            let other = format!("10.4.0.{host}");
            assert!(is_served(&mut rig, (OTHER, &other, 5000)), "{other} {:?}", rig.counters());
            let honest = format!("10.0.0.{host}");
            assert!(is_served(&mut rig, (INSIDE, &honest, 5001)), "{honest} {:?}", rig.counters());
        }
        assert!(is_served(&mut rig, (INSIDE, HOST, 4000)), "a session that stands goes on");
        assert!(
            rig.standing.len() <= rig.gateway.tables()[0].size as usize,
            "what ends is closed in the kernel"
        );
    }
}

/// Forged malformed Queries on one link use up the rate of Errors; a host on the other link gets its Error all the same.
#[test]
fn errors_about_forged_queries_leave_some_to_other_interfaces() {
    let mut rig = Rig::new();
    let mut payload = encode(&query(outbound(), HOST));
    payload[18] = 0x78; // IP version 7
    for number in 0..1000_u32 {
        let host = std::net::Ipv4Addr::from(0x0a00_0100 + number).to_string();
        rig.packet(&q_mode(INSIDE, at(&host, 270), FAR), &payload);
        rig.last();
    }
    assert!(rig.counters().errors_suppressed > 0);
    rig.packet(&q_mode(OUTSIDE, at(FAR, 270), EXTERNAL), &payload);
    assert_eq!(rig.sent().error().code, ErrorCode::OBJECT_VALUE);
}
