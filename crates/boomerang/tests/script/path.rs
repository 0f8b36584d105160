//! A node on the path.

use signalbox_boomerang::engine::{Config, Input, Reason};
use signalbox_boomerang::wire::{Aggregation, Flags, Known, Pass, edit};
use signalbox_core::node::Prefix;

use crate::rig::*;

const REQUEST: Pass = Pass::Request;
const REPLY: Pass = Pass::Reply;

/// BOOM-2.3-01, BOOM-2.3-05, BOOM-1-01, BOOM-P-08, BOOM-3.2.3-03, BOOM-G8-01, BOOM-G8-03, BOOM-F6.1-01: the request
/// reserves the forward rate where it leaves, the reply the reverse rate where it leaves.
#[test]
fn each_pass_reserves_its_direction() {
    let mut rig = Rig::new();
    let both = |fields: Fields| Fields { rates: vec![rates(64_000, 32_000)], ..fields };
    let out = rig.pass(&both(request(1)));
    assert_eq!((out.octets, out.ttl, out.options), (both(request(1)).octets(), 63, vec![0x94, 4, 0, 0]));
    assert_eq!(rig.reserved(), [(REQUEST, 2, 64_000)]);
    rig.pass(&both(reply(1)));
    assert_eq!(rig.reserved(), [(REQUEST, 2, 64_000), (REPLY, 1, 32_000)]);
    let filters: Vec<String> = rig.node.flows().map(|flow| flow.filter.to_string()).collect();
    assert_eq!(filters[0], "192.0.2.1 port 1 > 198.51.100.2 port 5004 proto 17");
    assert_eq!(filters[1], "198.51.100.2 port 5004 > 192.0.2.1 port 1 proto 17");
    // 136 kbit/s are left where it would leave, 200 kbit/s where it came in.
    let large = Fields { rates: vec![rates(150_000, 0)], ..request(2) };
    assert!(rig.octets(3, &large, &large.octets())[0].message().is_refused());
}

/// BOOM-3.2.3-04, BOOM-F3.3.1-02: a rate of 0 reserves nothing; the directions have rates of their own.
#[test]
fn a_rate_of_0_reserves_nothing() {
    let mut rig = Rig::new();
    let both = |fields: Fields| Fields { rates: vec![rates(0, 100_000)], ..fields };
    rig.pass(&both(request(1)));
    assert_eq!(rig.reserved(), []);
    rig.pass(&both(reply(1)));
    assert_eq!(rig.reserved(), [(REPLY, 1, 100_000)]);
}

/// BOOM-P-01, BOOM-P-04, BOOM-P-05, BOOM-F3.1-01: the same message sets up, refreshes, changes and releases; a refresh
/// does not touch traffic control; this node has no session.
#[test]
fn one_message_does_everything() {
    let mut rig = Rig::new();
    rig.pass(&request(1));
    for _ in 0..10 {
        rig.wait(seconds(29.0));
        rig.pass(&request(1));
    }
    assert_eq!((rig.installs, rig.node.counters().refreshed, rig.node.session_count()), (1, 10, 0));
    rig.pass(&Fields { rates: vec![rates(128_000, 0)], ..request(1) });
    assert_eq!((rig.reserved(), rig.installs), (vec![(REQUEST, 2, 128_000)], 2));
    rig.pass(&Fields { rates: vec![rates(0, 0)], ..request(1) });
    assert_eq!((rig.reserved(), rig.resources.len()), (vec![], 0));
    let counted = rig.node.counters();
    assert_eq!((counted.created, counted.changed, counted.released), (1, 1, 1));
}

/// BOOM-P-02, BOOM-G12-02: a rate of 0 in one direction releases that direction only. BOOM-G12-04: a release without state
/// is not refused.
#[test]
fn a_release_is_never_refused() {
    let mut rig = Rig::new();
    rig.pass(&request(1));
    rig.pass(&reply(1));
    let release = Fields { rates: vec![rates(0, 64_000)], ..request(1) };
    for _ in 0..2 {
        assert!(!rig.pass(&release).message().is_refused());
        assert_eq!(rig.reserved(), [(REPLY, 1, 64_000)]);
    }
    rig.pass(&Fields { rates: vec![rates(0, 64_000)], ..reply(1) });
    assert_eq!(rig.reserved(), [(REPLY, 1, 64_000)]);
}

/// BOOM-2.3-04, BOOM-F4.2-03, BOOM-F4.2-04, BOOM-F4.2-05, BOOM-3.2.3-05, BOOM-F3.3.2-01: a refusal sets NACK and KEY 0,
/// and writes what is available and the longest interval. BOOM-F5.7.2-01, BOOM-F4.2-07, BOOM-2.3-06: it goes on
/// towards the far end, and nothing else is sent.
#[test]
fn a_refusal_travels_on() {
    let mut rig = Rig::new();
    rig.pass(&Fields { rates: vec![rates(152_000, 0)], ..request(1) });
    let out = rig.pass(&Fields { refresh: 255, ..request(2) });
    let message = out.message();
    assert_eq!((message.flags, message.key, message.refresh), (Flags::NACK, 0, 60));
    assert_eq!((out.rates(), out.ends.dst), (rates(48_000, 64_000), ip(FEN)));
    let by = message.body.unwrap().options.refusal().unwrap();
    assert_eq!((by.address, Reason::of(by.cause)), (ip("198.51.100.1"), Reason::Resources));
    assert_eq!(rig.reserved(), [(REQUEST, 2, 152_000)]);
}

/// BOOM-F4.2-06, BOOM-F5.7.2-02, BOOM-G18-01, BOOM-G17-01: with NACK or KEY 0 nothing is reserved, released or refreshed,
/// and the rate is lowered. BOOM-G19-01: it is never raised.
#[test]
fn a_refused_message_is_a_query() {
    let mut rig = Rig::new();
    rig.pass(&request(1));
    let expires = rig.expires();
    rig.wait(seconds(5.0));
    for (flags, key) in [(1, 0), (1, 1), (0, 0)] {
        let query = |rate| Fields { flags, key, rates: vec![rates(rate, 7)], ..request(2) };
        let out = rig.pass(&query(200_000));
        assert_eq!(out.rates(), rates(136_000, 7), "{flags} {key}");
        assert_eq!((out.message().flags.0, out.message().key), (flags, key), "they stay as they are");
        assert_eq!(rig.pass(&query(1000)).rates(), rates(1000, 7));
        rig.pass(&Fields { flags, key, ..request(1) });
        rig.pass(&Fields { flags, key, rates: vec![rates(0, 0)], ..request(1) });
    }
    assert_eq!((rig.reserved(), rig.expires()), (vec![(REQUEST, 2, 64_000)], expires));
}

/// BOOM-G17-01: a refused change leaves the reservation and its timer. BOOM-G19-02: what it holds counts as available.
#[test]
fn a_refused_change_changes_nothing() {
    let mut rig = Rig::new();
    rig.pass(&request(1));
    let expires = rig.expires();
    rig.wait(seconds(5.0));
    let out = rig.pass(&Fields { rates: vec![rates(300_000, 0)], ..request(1) });
    assert_eq!((out.message().is_refused(), out.rates().forward), (true, 200_000));
    assert_eq!((rig.reserved(), rig.expires()), (vec![(REQUEST, 2, 64_000)], expires));
    let out = rig.pass(&Fields { rates: vec![rates(200_000, 0)], ..request(1) });
    assert!(!out.message().is_refused());
    assert_eq!(rig.reserved(), [(REQUEST, 2, 200_000)]);
}

/// BOOM-F3.5-01, BOOM-F3.5-02, BOOM-G13-01: without refresh a reservation ends after 3.5 intervals, without a message.
/// BOOM-G13-02: it survives the loss of two refreshes.
#[test]
fn a_reservation_expires() {
    let mut rig = Rig::new();
    rig.pass(&Fields { refresh: 2, ..request(1) });
    rig.wait(seconds(6.9));
    rig.pass(&Fields { refresh: 2, ..request(1) });
    assert_eq!(rig.wait(seconds(6.99)), []);
    assert_eq!(rig.node.flow_count(), 1);
    assert_eq!(rig.wait(seconds(0.5)), []);
    assert_eq!((rig.node.flow_count(), rig.resources.len(), rig.node.counters().expired), (0, 0, 1));
}

/// BOOM-G13-01, BOOM-A4.1.1-01: the factor is a setting. BOOM-G15-01: the longest interval is 60 s by default.
/// BOOM-3.2.1-05, BOOM-3.2.1-06, BOOM-G14-01: the interval is lowered on every message and never raised.
#[test]
fn the_interval_is_shortened_only() {
    let mut rig = Rig::with(Config { hold: 2.0, ..Config::default() });
    for (asked, left) in [(255, 60), (61, 60), (60, 60), (5, 5), (1, 1)] {
        for fields in [request(1), reply(1)] {
            assert_eq!(rig.pass(&Fields { refresh: asked, ..fields }).message().refresh, left);
        }
    }
    rig.wait(seconds(2.1));
    assert_eq!(rig.node.flow_count(), 0);
    let mut rig = Rig::with(Config { max_refresh: 20, ..Config::default() });
    assert_eq!(rig.pass(&request(1)).message().refresh, 20);
}

/// BOOM-G14-02: an interval of 0 is refused, and the longest is written.
#[test]
fn an_interval_of_0_is_refused() {
    let mut rig = Rig::new();
    let out = rig.pass(&Fields { refresh: 0, ..request(1) });
    assert_eq!((out.message().is_refused(), out.message().refresh), (true, 60));
    assert_eq!(rig.reserved(), []);
}

/// BOOM-F4.1.2-01, BOOM-G35-01: each part of the 5-tuple distinguishes flows; source address of the message, transaction,
/// tos and flags do not. BOOM-G7-03: another tos is a change. BOOM-3.1-04: the transaction is not changed.
#[test]
fn flows_are_distinguished_by_direction_and_5_tuple() {
    let mut rig = Rig::new();
    let small = |fields: Fields| Fields { rates: vec![rates(8000, 8000)], ..fields };
    rig.pass(&small(request(1)));
    let mut same = small(request(1));
    same.transaction = 77;
    same.ends.src = ip("192.0.2.9");
    same.flow.classifier.flags = 3;
    same.flow.classifier.tos = 0xa0;
    assert_eq!(rig.pass(&same).message().transaction, 77);
    assert_eq!((rig.node.flow_count(), rig.node.counters().changed), (1, 1));
    assert_eq!(rig.node.flows().next().unwrap().dscp, 0x28);
    let mut others = vec![small(request(2)); 4];
    others[1].flow.classifier.protocol = 6;
    others[2].flow.classifier.dst_port = 1;
    others[3].flow.classifier.dst = ip("198.51.100.3");
    others.iter().for_each(|other| drop(rig.pass(other)));
    assert_eq!(rig.node.flow_count(), 5);
    assert_eq!(rig.resources.len(), 5);
}

/// BOOM-3.2.1-17, BOOM-F4.2-01: nothing correlates request and reply.
#[test]
fn a_reply_needs_no_request() {
    let mut rig = Rig::new();
    rig.pass(&reply(1));
    assert_eq!(rig.reserved(), [(REPLY, 1, 64_000)]);
}

/// BOOM-3.2.3-08, BOOM-G20-01: of a list the first element that fits overwrites those before it, in its own direction.
#[test]
fn the_first_element_that_fits_is_granted() {
    let mut rig = Rig::new();
    rig.pass(&Fields { rates: vec![rates(130_000, 0)], ..request(1) });
    let list = vec![rates(128_000, 9000), rates(64_000, 9000), rates(32_000, 9000)];
    let out = rig.pass(&Fields { rates: list, ..request(2) });
    let message = out.message();
    let Some(signalbox_boomerang::wire::Qos::Downgrade(list)) = message.body.map(|body| body.qos) else {
        panic!("{message:?}")
    };
    assert!(list.pairs().eq([rates(64_000, 9000), rates(64_000, 9000), rates(32_000, 9000)]));
    assert!(!message.is_refused());
    assert_eq!(rig.reserved(), [(REQUEST, 2, 64_000), (REQUEST, 2, 130_000)]);
}

/// BOOM-G20-02: if no element fits, all are lowered to what is available.
#[test]
fn a_list_of_which_nothing_fits_is_refused() {
    let mut rig = Rig::new();
    rig.pass(&Fields { rates: vec![rates(180_000, 0)], ..request(1) });
    let list = vec![rates(128_000, 9000), rates(64_000, 9000)];
    let out = rig.pass(&Fields { rates: list, ..request(2) });
    let Some(signalbox_boomerang::wire::Qos::Downgrade(list)) = out.message().body.map(|body| body.qos)
    else {
        panic!()
    };
    assert!(out.message().is_refused() && list.pairs().eq([rates(20_000, 9000); 2]));
}

/// BOOM-G30-01, BOOM-G22-01, BOOM-G40-01, BOOM-3.1-09, BOOM-G3-02: what is not understood is forwarded unchanged.
#[test]
fn what_is_not_understood_passes_unchanged() {
    let mut rig = Rig::new();
    for (at, value) in [(8 + 8, 0x20), (8 + 13, 2), (8 + 41, 1), (2, 0xff)] {
        let mut octets = request(1).octets();
        octets[at] ^= value;
        if at > 2 {
            edit::set_checksum(&mut octets, &request(1).ends);
        }
        if at == 8 + 41 {
            octets.truncate(60); // no whole flow specification
            edit::set_checksum(&mut octets, &request(1).ends);
        }
        let sent = rig.octets(1, &request(1), &octets);
        assert_eq!((sent.len(), &sent[0].octets, sent[0].ttl), (1, &octets, 63), "{at}");
    }
    assert_eq!(rig.reserved(), []);
}

/// BOOM-G30-02: an unknown QoS format is refused. BOOM-G29-04: so is a flow of another family than the carrier.
#[test]
fn a_format_that_is_not_supported_is_refused() {
    let mut rig = Rig::new();
    let out = rig.pass(&Fields { format: Some(0x42), ..request(1) });
    assert!(out.message().is_refused());
    assert_eq!(out.octets[32..], request(1).octets()[32..]);
    let mut v6 = request(1);
    (v6.flow.classifier.src, v6.flow.classifier.dst) = (ip("2001:db8::1"), ip("2001:db8::2"));
    (v6.flow.mask.src, v6.flow.mask.dst) = (ip("::"), ip("::"));
    assert!(rig.pass(&v6).message().is_refused());
    assert_eq!(rig.reserved(), []);
}

/// BOOM-G23-02, BOOM-3.2.1-08: unknown flags and the padding pass.
#[test]
fn unknown_flags_survive() {
    let mut rig = Rig::new();
    let fields = Fields { flags: 0xfffc, ..request(1) };
    let mut octets = fields.octets();
    octets[22..24].copy_from_slice(&[0xab, 0xcd]);
    edit::set_checksum(&mut octets, &fields.ends);
    let out = rig.octets(1, &fields, &octets).remove(0);
    assert_eq!((out.message().flags.0, out.message().padding, rig.node.flow_count()), (0xfffc, 0xabcd, 1));
}

/// BOOM-G24-01: a message with an unknown option is interpreted, and its option is kept.
#[test]
fn an_unknown_option_is_passed_on() {
    let mut rig = Rig::new();
    let options = vec![0x77, 0x77, 0, 0, 1, 2, 3, 4];
    let out = rig.pass(&Fields { options: options.clone(), ..request(1) });
    assert_eq!((&out.octets[72..], rig.node.flow_count()), (&options[..], 1));
    let out = rig.pass(&Fields { options, rates: vec![rates(999_999, 0)], ..request(2) });
    assert_eq!((out.message().is_refused(), out.octets.len()), (true, 80), "no option is added behind it");
}

/// BOOM-F4.2-01: the interface is the one by which routing sends the message. BOOM-F3.5-03: after a change of
/// routes the next message moves the reservation.
#[test]
fn a_reservation_follows_the_route() {
    let mut rig = Rig::new();
    rig.pass(&request(1));
    rig.pass(&request(1));
    assert_eq!(rig.lookups, 1, "the route is kept");
    rig.routes.insert(ip(FEN), 3);
    rig.input(Input::RouteChanged(Prefix::host(ip(FEN))));
    rig.pass(&request(1));
    assert_eq!((rig.reserved(), rig.resources.len()), (vec![(REQUEST, 3, 64_000)], 1));
}

#[test]
fn messages_wait_for_their_route_in_order_and_within_a_limit() {
    let mut rig = Rig::with(Config { max_waiting: 3, ..Config::default() });
    rig.answer_lookups = false;
    for port in 1..=5 {
        assert_eq!(rig.octets(1, &request(port), &request(port).octets()), []);
    }
    assert_eq!((rig.lookups, rig.node.counters().waiting_full), (1, 2));
    let (id, dst) = rig.open.remove(0);
    rig.answer(id, dst);
    rig.drain();
    assert_eq!(rig.node.flow_count(), 3);
}

/// BOOM-2.2-01, BOOM-2.2-02, BOOM-G36-01, BOOM-F3.6.4-01: a node that is addressed turns the message round, and reserves at
/// its own link.
#[test]
fn an_addressed_node_is_the_far_end() {
    let mut rig = Rig::new();
    let mut to_node = request(1);
    to_node.ends.dst = ip(NODE);
    let out = rig.pass(&to_node);
    assert_eq!((out.ends.src, out.ends.dst, out.message().pass), (ip(NODE), ip(IN), REPLY));
    assert_eq!(rig.reserved(), [(REPLY, 1, 64_000)]);
    let mut too_much = Fields { rates: vec![rates(0, 999_000)], ..request(2) };
    too_much.ends.dst = ip(NODE);
    assert!(rig.pass(&too_much).message().is_refused());
    // A message that is not understood is answered as by any host.
    let mut octets = to_node.octets();
    octets[16] = 0x20;
    edit::set_checksum(&mut octets, &to_node.ends);
    let sent = rig.octets(1, &to_node, &octets);
    assert_eq!((sent[0].octets[0], &sent[0].octets[4..]), (0, &octets[4..]));
}

/// BOOM-G29-01, BOOM-3.2.2-03: the same in ICMPv6.
#[test]
fn a_node_reserves_for_ipv6() {
    let mut rig = Rig::new();
    let (src, dst) = (ip("2001:db8::1"), ip("2001:db8:1::2"));
    let mut v6 = request(1);
    (v6.ends.src, v6.ends.dst) = (src, dst);
    (v6.flow.classifier.src, v6.flow.classifier.dst) = (src, dst);
    (v6.flow.mask.src, v6.flow.mask.dst) = (ip("::"), ip("::"));
    let out = rig.pass(&v6);
    assert_eq!((out.octets[0], out.message().pass), (128, REQUEST));
    let filter = rig.node.flows().next().unwrap().filter.to_string();
    assert_eq!(filter, "2001:db8::1 port 1 > 2001:db8:1::2 port 5004 proto 17");
    let out = rig.pass(&Fields { rates: vec![rates(999_000, 0)], ..v6 });
    assert_eq!(out.message().body.unwrap().options.refusal().unwrap().address, ip("2001:db8:1::1"));
}

/// BOOM-G38-02, BOOM-F5.5-01: messages from an untrusted interface pass unchanged.
#[test]
fn an_untrusted_interface_reserves_nothing() {
    let mut rig = Rig::with(Config { trusted: [("eth1".to_owned(), false)].into(), ..Config::default() });
    assert_eq!(rig.pass(&request(1)).octets, request(1).octets());
    assert_eq!(rig.node.flow_count(), 0);
    rig.pass(&reply(1));
    assert_eq!(rig.node.flow_count(), 1);
}

/// (T24, SEC-T24-01) A router forwards nothing from addresses that no host has, or that have a meaning on one link only, and does not answer it.
#[test]
fn messages_from_no_host_are_dropped() {
    let mut rig = Rig::new();
    let sources =
        ["0.0.0.0", "0.1.2.3", "127.0.0.1", "169.254.1.1", "224.0.0.5", "240.0.0.1", "255.255.255.255"];
    let sources6 = ["::", "::1", "fe80::1", "ff02::1"];
    let there = ["198.51.100.2", "192.0.2.254", "232.1.1.1"].map(ip);
    let there6 = ["2001:db8:1::2", "2001:db8:1::1"].map(ip);
    let mut dropped = 0;
    for (sources, there) in [(&sources[..], &there[..]), (&sources6, &there6)] {
        for (source, to) in sources.iter().flat_map(|source| there.iter().map(move |to| (source, to))) {
            let mut fields = request(1);
            (fields.ends.src, fields.ends.dst) = (ip(source), *to);
            let octets = fields.octets();
            assert!(rig.octets(1, &fields, &octets).is_empty(), "{source} to {to}");
            dropped += 1;
            assert_eq!(rig.node.counters().bad_source, dropped, "{source} to {to}");
        }
    }
    assert_eq!(rig.node.flow_count(), 0);
}

/// BOOM-G38-01: an access node may demand that the flow begins at the initiating node.
#[test]
fn a_flow_of_somebody_else_is_refused_where_that_is_configured() {
    let mut rig = Rig::with(Config { same_source: true, ..Config::default() });
    assert!(!rig.pass(&request(1)).message().is_refused());
    let mut forged = request(2);
    forged.ends.src = ip("192.0.2.9");
    assert!(rig.pass(&forged).message().is_refused());
    let mut wide = request(3);
    wide.flow.mask.src = ip("0.0.0.255");
    assert!(rig.pass(&wide).message().is_refused());
}

/// An aggregation option of another node for all flows between two subnets.
fn aggregation() -> Vec<u8> {
    let mut flow = flow(0);
    (flow.mask.src_port, flow.mask.dst_port) = (u16::MAX, u16::MAX);
    let (address, transaction) = (ip("192.0.2.77"), 5);
    let mut message = request(1).octets();
    let length = message.len();
    edit::append(
        &mut message,
        &Known::Aggregation(Aggregation { address, transaction, flow, rate: 192_000 }),
    );
    message.split_off(length)
}

/// BOOM-F6.2-05, BOOM-F6.2-01: a node ignores the option of an aggregate, reserves for the flow, and passes it on in both
/// passes, so that no node has to take it off.
#[test]
fn an_aggregation_option_passes_and_the_flow_gets_a_reservation() {
    let mut rig = Rig::new();
    let options = aggregation();
    for fields in [request(1), reply(1)] {
        let with = Fields { options: options.clone(), ..fields };
        let out = rig.pass(&with);
        assert!(!out.message().is_refused());
        assert_eq!(out.octets, with.octets());
    }
    assert_eq!(rig.reserved(), [(REQUEST, 2, 64_000), (REPLY, 1, 64_000)]);
}
