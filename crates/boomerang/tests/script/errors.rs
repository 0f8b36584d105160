//! ICMP errors: those of a node on the path, and those about requests of the initiating node.

use signalbox_boomerang::engine::{BoomerangEvent as Event, Command, Unreachable};
use signalbox_boomerang::wire::{Dropped, Ends, Pass, icmp_error};
use signalbox_core::node::NoRoute;
use signalbox_core::packet::Received;

use crate::rig::*;

/// The ICMP error of a router at `from` about a request that was sent.
fn error_about(from: &str, sent: &Sent, dropped: Dropped) -> (Fields, Vec<u8>) {
    let mut octets = Vec::new();
    let packet = Received { ttl: 7, options: &sent.options, ..kit::packet(sent.ends, 9, &sent.octets) };
    icmp_error::compose(dropped, &packet, &mut octets);
    let fields = Fields { ends: Ends { src: ip(from), dst: sent.ends.src }, ..reply(0) };
    signalbox_boomerang::wire::edit::set_checksum(&mut octets, &fields.ends);
    (fields, octets)
}

/// RFC 1812 §4.3.3: a message whose TTL is used up is dropped, and its sender gets a Time Exceeded that quotes it. It
/// reserves nothing.
#[test]
fn a_message_without_ttl_is_reported() {
    let mut rig = Rig::new();
    let last = Fields { ttl: 1, ..request(1) };
    let sent = rig.pass(&last);
    assert_eq!((sent.ends.dst, sent.octets[0], sent.octets[1]), (ip(IN), 11, 0));
    assert!(sent.ends.src.is_unspecified(), "the kernel chooses its source");
    assert_eq!((rig.node.flow_count(), rig.node.counters().hops_exceeded), (0, 1));
    let quoted = &sent.octets[8 + 24..];
    assert_eq!(quoted, &last.octets()[..quoted.len()]);
    assert!(sent.octets.len() + 20 <= last.octets().len() + 24, "no longer than the message");
    // A version that this node does not interpret is forwarded like any packet.
    let mut unknown = last.octets();
    unknown[21] = 9;
    signalbox_boomerang::wire::edit::set_checksum(&mut unknown, &last.ends);
    assert_eq!(rig.octets(1, &last, &unknown)[0].octets[0], 11);
    let group = Fields { ends: Ends { src: ip("224.0.0.1"), dst: ip(FEN) }, ..last };
    assert_eq!(rig.octets(1, &group, &group.octets()), []);
}

/// RFC 1812 §4.3.3.1: a message without a route is dropped, and its sender gets a Destination Unreachable.
#[test]
fn a_message_without_route_is_reported() {
    let mut rig = Rig::new();
    rig.routes.insert(ip(FEN), 0);
    let sent = rig.pass(&request(1));
    assert_eq!((sent.ends.dst, sent.octets[0], sent.octets[1]), (ip(IN), 3, 0));
    rig.no_route = NoRoute::Prohibited;
    assert_eq!(rig.pass(&request(1)).octets[..2], [3, 13]);
    rig.no_route = NoRoute::Failed;
    assert_eq!(rig.octets(1, &request(1), &request(1).octets()), []);
    assert_eq!((rig.node.flow_count(), rig.node.counters().no_route), (0, 3));
}

/// A source gets a limited number of errors in a second.
#[test]
fn errors_are_limited() {
    let mut rig = Rig::new();
    let last = Fields { ttl: 1, ..request(1) };
    let sent = (0..2000).filter(|_| !rig.octets(1, &last, &last.octets()).is_empty()).count();
    assert!((1..=1500).contains(&sent), "{sent}");
    assert!(rig.node.counters().errors_limited > 0);
}

/// BOOM-G42-02: a Destination Unreachable about the first request ends the wait for its reply; what was reserved on the way
/// is released.
#[test]
fn an_unreachable_far_end_is_reported_at_once() {
    let mut rig = Rig::new();
    let first = rig.command(1, Command::Open(wish())).remove(0);
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000)]);
    let (fields, error) = error_about("203.0.113.9", &first, Dropped::NoRoute);
    let release = rig.octets(2, &fields, &error);
    let report = Unreachable { node: ip("203.0.113.9"), code: 0 };
    assert_eq!(rig.events, [(1, Event::Unreachable(report))]);
    assert_eq!(report.to_string(), "network unreachable");
    assert!(release[0].rates().is_zero());
    assert_eq!(rig.reserved(), []);
    let (fields, error) = error_about("203.0.113.9", &release[0], Dropped::NoRoute);
    assert_eq!(rig.octets(2, &fields, &error), []);
    assert_eq!(rig.node.session_count(), 0, "the release is not repeated");
}

/// BOOM-G42-02: an error must be about a request of this node. A session that the path has granted survives it.
#[test]
fn other_errors_end_no_session() {
    let mut rig = Rig::new();
    let first = rig.command(1, Command::Open(wish())).remove(0);
    let mut wrong = Vec::new();
    for at in [4, 15] {
        let mut other = first.clone();
        other.octets[at] ^= 1;
        wrong.push(other);
    }
    let mut elsewhere = first.clone();
    elsewhere.ends.dst = ip("198.51.100.9");
    wrong.push(elsewhere);
    for other in &wrong {
        let (fields, error) = error_about("203.0.113.9", other, Dropped::NoRoute);
        assert_eq!(rig.octets(2, &fields, &error), []);
    }
    let (fields, error) = error_about("203.0.113.9", &first, Dropped::TimeExceeded);
    rig.octets(2, &fields, &error);
    let (fields, mut error) = error_about("203.0.113.9", &first, Dropped::NoRoute);
    error[2] ^= 1;
    rig.octets(2, &fields, &error);
    assert_eq!(rig.events, []);
    rig.echo(&first, |_| {});
    let refresh = (0..300).find_map(|_| rig.wait(seconds(0.1)).pop()).unwrap();
    let (fields, error) = error_about("203.0.113.9", &refresh, Dropped::NoRoute);
    assert_eq!(rig.octets(2, &fields, &error), []);
    assert_eq!((rig.events.len(), rig.node.session_count()), (1, 1));
    assert_eq!(rig.wait(seconds(1.1)).len(), 1, "the request is repeated");
}

/// A session that the path had granted names the router that reported its requests, if no reply comes at all.
#[test]
fn a_lost_path_names_the_router_that_lost_it() {
    for reported in [true, false] {
        let mut rig = Rig::new();
        let first = rig.command(1, Command::Open(wish())).remove(0);
        rig.echo(&first, |_| {});
        let refresh = (0..300).find_map(|_| rig.wait(seconds(0.1)).pop()).unwrap();
        if reported {
            let (fields, error) = error_about("203.0.113.9", &refresh, Dropped::NoRoute);
            rig.octets(2, &fields, &error);
        }
        rig.wait(seconds(7.1));
        let report = Unreachable { node: ip("203.0.113.9"), code: 0 };
        let event = if reported { Event::Unreachable(report) } else { Event::Unanswered };
        assert_eq!(*rig.last_event(), event);
    }
}

/// BOOM-G42-01: an error about a message of another node has no effect.
#[test]
fn errors_about_others_have_no_effect() {
    let mut rig = Rig::new();
    rig.pass(&request(1));
    let passed = Sent {
        ends: request(1).ends,
        ttl: 64,
        tos: 0,
        dont_fragment: false,
        options: Vec::new(),
        octets: request(1).octets(),
        by: None,
    };
    let expires = rig.expires();
    for dropped in [Dropped::NoRoute, Dropped::TimeExceeded] {
        for to in [IN, NODE] {
            let (mut fields, mut error) = error_about("203.0.113.9", &passed, dropped);
            fields.ends.dst = ip(to);
            signalbox_boomerang::wire::edit::set_checksum(&mut error, &fields.ends);
            rig.octets(2, &fields, &error);
        }
    }
    assert_eq!((rig.reserved(), rig.expires()), (vec![(Pass::Request, 2, 64_000)], expires));
}
