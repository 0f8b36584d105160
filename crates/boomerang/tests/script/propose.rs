//! A node that proposes aggregates.

use signalbox_boomerang::engine::{Aggregation as Settings, Config};
use signalbox_boomerang::wire::{Aggregation, Known, OF_REPLY, Pass, edit};

use crate::rig::*;

/// What a node proposes that has `change` in its settings, from two flows on.
pub(crate) fn settings(change: impl FnOnce(&mut Settings)) -> Config {
    let mut aggregates = Settings { propose: true, members: 2, ..Settings::default() };
    change(&mut aggregates);
    Config { aggregates, max_refresh: 255, ..Config::default() }
}

fn proposer() -> Rig {
    Rig::with(settings(|_| {}))
}

/// The flags and the bodies of the options of a message.
pub(crate) fn options(sent: &Sent) -> Vec<(u16, Aggregation)> {
    let options = sent.message().body.unwrap().options;
    options.aggregations().map(|(placed, option)| (placed.flags, option)).collect()
}

/// Rates of the options of a message.
fn sums(sent: &Sent) -> Vec<u32> {
    options(sent).iter().map(|(_, option)| option.rate).collect()
}

fn release(port: u16) -> Fields {
    Fields { rates: vec![rates(0, 0)], ..request(port) }
}

fn with_option(fields: Fields, flags: u16, option: Aggregation) -> Fields {
    let mut message = fields.octets();
    let length = message.len();
    edit::append_with(&mut message, flags, &Known::Aggregation(option));
    Fields { options: message.split_off(length), ..fields }
}

/// A node that is not configured for it proposes nothing.
#[test]
fn no_aggregate_is_proposed_without_the_setting() {
    let mut rig = Rig::new();
    for port in 1..4 {
        assert_eq!(rig.pass(&request(port)).octets, request(port).octets());
    }
}

/// BOOM-F5.1.1-01
#[test]
fn an_aggregate_is_proposed_from_the_third_flow_on() {
    let mut rig = Rig::with(settings(|own| own.members = 3));
    let passed = [1, 2, 3, 1].map(|port| sums(&rig.pass(&request(port))).len());
    assert_eq!(passed, [0, 0, 1, 1]);
}

/// BOOM-F5.1.1-02
#[test]
fn each_message_of_a_member_has_the_option() {
    let mut rig = proposer();
    (1..4).for_each(|port| drop(rig.pass(&request(port))));
    for round in 0..3 {
        rig.wait(seconds(20.0));
        for port in 1..4 {
            assert_eq!(sums(&rig.pass(&request(port))).len(), 1, "{round} {port}");
        }
    }
}

/// BOOM-1-05
#[test]
fn the_option_is_the_end_of_the_message() {
    let mut rig = proposer();
    rig.pass(&request(1));
    let out = rig.pass(&request(2));
    let plain = request(2).octets();
    assert_eq!(out.octets.len(), plain.len() + 48);
    assert_eq!(
        (&out.octets[4..plain.len()], &out.octets[plain.len()..][..4]),
        (&plain[4..], &[0, 2, 0, 0][..])
    );
}

/// BOOM-F5.1.1-03
#[test]
fn the_option_has_class_protocol_and_subnets() {
    let mut rig = proposer();
    rig.pass(&request(1));
    let (_, option) = options(&rig.pass(&request(2))).remove(0);
    let (flow, mask) = (option.flow.classifier, option.flow.mask);
    assert_eq!((flow.src, mask.src), (ip("192.0.2.0"), ip("0.0.0.255")));
    assert_eq!((flow.dst, mask.dst), (ip("198.51.100.0"), ip("0.0.0.255")));
    assert_eq!((flow.protocol, mask.protocol, flow.tos, mask.tos), (17, 0, 0xb8, 0));
    assert_eq!((mask.src_port, mask.dst_port, mask.flags), (u16::MAX, u16::MAX, u16::MAX));
}

/// BOOM-3.3.2-02
#[test]
fn the_option_names_the_node() {
    let mut rig = proposer();
    rig.pass(&request(1));
    assert_eq!(options(&rig.pass(&request(2)))[0].1.address, ip("198.51.100.1"));
}

/// BOOM-3.3.2-05
#[test]
fn the_rate_is_the_sum_of_the_members() {
    let mut rig = proposer();
    rig.pass(&request(1));
    assert_eq!(sums(&rig.pass(&request(2))), [128_000]);
    assert_eq!(sums(&rig.pass(&request(3))), [192_000]);
    let less = Fields { rates: vec![rates(10_000, 0)], ..request(2) };
    assert_eq!(sums(&rig.pass(&less)), [138_000]);
    assert_eq!(sums(&rig.pass(&request(1))), [138_000]);
}

fn of_class(port: u16, tos: u8, far_end: &str) -> Fields {
    let mut fields = Fields { rates: vec![rates(8000, 0)], ..request(port) };
    fields.flow.classifier.tos = tos;
    fields.flow.classifier.dst = ip(far_end);
    fields
}

/// BOOM-3.3.2-03
#[test]
fn aggregates_of_a_node_have_different_numbers() {
    let mut rig = proposer();
    let mut numbers = Vec::new();
    for far_end in ["198.51.100.2", "203.0.113.2"] {
        rig.pass(&of_class(1, 0xb8, far_end));
        numbers.push(options(&rig.pass(&of_class(2, 0xb8, far_end)))[0].1.transaction);
    }
    assert_ne!(numbers[0], numbers[1]);
}

/// A restarted node gives its aggregates the same numbers, so that later nodes keep what they hold.
#[test]
fn numbers_are_those_of_before_after_a_start() {
    let number = || {
        let mut rig = proposer();
        rig.pass(&request(1));
        options(&rig.pass(&request(2)))[0].1.transaction
    };
    assert_eq!(number(), number());
}

/// BOOM-F6.2-09
#[test]
fn two_phbs_are_two_aggregates() {
    let mut rig = proposer();
    for tos in [0xb8, 0x28] {
        rig.pass(&of_class(1 + u16::from(tos), tos, FEN));
        let option = options(&rig.pass(&of_class(2 + u16::from(tos), tos, FEN))).remove(0).1;
        assert_eq!((option.flow.classifier.tos, option.rate), (tos, 16_000));
    }
}

/// BOOM-1-06: without subnets an aggregate is a PHB and an outgoing interface.
#[test]
fn aggregates_follow_the_phb_and_the_interface() {
    let mut rig = Rig::with(settings(|own| own.ipv4_prefix = 0));
    rig.routes.insert(ip("203.0.113.7"), 3);
    let mut all = Vec::new();
    for tos in [0xb8, 0x28] {
        for far_end in [FEN, "203.0.113.7"] {
            for port in [1, 2] {
                let mut fields = of_class(port + u16::from(tos), tos, far_end);
                fields.ends.dst = ip(far_end);
                let found = options(&rig.pass(&fields));
                all.extend(found.into_iter().map(|(_, option)| (option.transaction, option.rate)));
            }
        }
    }
    let numbers: std::collections::BTreeSet<u32> = all.iter().map(|(number, _)| *number).collect();
    assert_eq!((all.len(), numbers.len()), (4, 4), "{all:?}");
    assert!(all.iter().all(|(_, rate)| *rate == 16_000), "{all:?}");
}

/// BOOM-3.3.2-06: flows of other subnets belong to the aggregate of a PHB, and not to that of two subnets.
#[test]
fn aggregates_follow_subnets_or_not() {
    for (prefix, expected) in [(24, 0), (0, 1)] {
        let mut rig = Rig::with(settings(|own| own.ipv4_prefix = prefix));
        rig.pass(&of_class(1, 0xb8, FEN));
        let other = of_class(1, 0xb8, "203.0.113.2");
        assert_eq!(options(&rig.pass(&other)).len(), expected, "/{prefix}");
    }
}

/// BOOM-F6.2-02
#[test]
fn every_member_keeps_its_reservation() {
    let mut rig = proposer();
    (1..4).for_each(|port| drop(rig.pass(&request(port))));
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000); 3]);
    assert!(rig.node.flows().all(|flow| flow.aggregate.is_some_and(|aggregate| !aggregate.adopted)));
}

/// BOOM-F6.2-03
#[test]
fn members_keep_their_intervals() {
    let mut rig = proposer();
    for (port, refresh) in [(1, 10), (2, 30)] {
        let out = rig.pass(&Fields { refresh, ..request(port) });
        assert_eq!(out.message().refresh, refresh);
    }
    rig.wait(seconds(36.0));
    let ports: Vec<_> = rig.node.flows().map(|flow| flow.filter.src_port).collect();
    assert_eq!(ports, [Some(2)]);
}

/// BOOM-F6.2-06
#[test]
fn a_member_that_expires_is_taken_off_the_sum() {
    let mut rig = Rig::with(settings(|own| own.members = 3));
    rig.pass(&Fields { refresh: 2, ..request(1) });
    (2..4).for_each(|port| drop(rig.pass(&request(port))));
    rig.wait(seconds(8.0));
    assert_eq!(sums(&rig.pass(&request(2))), [128_000], "two are left of three");
}

/// BOOM-F6.2-07
#[test]
fn the_option_ends_with_the_aggregate() {
    let mut rig = proposer();
    (1..3).for_each(|port| drop(rig.pass(&request(port))));
    assert_eq!(sums(&rig.pass(&request(1))), [128_000]);
    // A release is the last message of a member.
    assert_eq!(options(&rig.pass(&release(2))).len(), 1);
    assert!(options(&rig.pass(&request(1))).is_empty());
}

/// BOOM-G27-04: a sum beyond 32 bits is not proposed.
#[test]
fn a_sum_that_is_too_large_is_not_proposed() {
    let mut links = signalbox_resources::Config::of_link("*", "100gbit".parse().unwrap());
    links.default = signalbox_resources::config::Action::Allow;
    let mut rig = Rig::of(settings(|_| {}), links);
    let large = |port, rate| Fields { rates: vec![rates(rate, 0)], ..request(port) };
    rig.pass(&large(1, 4_000_000_000));
    assert_eq!(sums(&rig.pass(&large(2, 294_967_295))), [u32::MAX]);
    assert!(options(&rig.pass(&large(3, 8))).is_empty());
    rig.pass(&release(3));
    assert_eq!(sums(&rig.pass(&large(2, 294_967_295))), [u32::MAX]);
}

/// BOOM-G26-01
#[test]
fn the_option_of_a_reply_has_a_flag() {
    let mut rig = proposer();
    rig.pass(&reply(1));
    let flags = |sent: &Sent| options(sent).iter().map(|(flags, _)| *flags).collect::<Vec<_>>();
    assert_eq!(flags(&rig.pass(&reply(2))), [OF_REPLY]);
    rig.pass(&request(1));
    assert_eq!(flags(&rig.pass(&request(2))), [0]);
}

/// BOOM-G26-03: on a symmetric path the option of the request does not go back to the initiating node.
#[test]
fn the_own_option_ends_here_on_the_way_back() {
    let mut rig = proposer();
    let no_reverse = |fields: Fields| Fields { rates: vec![rates(64_000, 0)], ..fields };
    rig.pass(&no_reverse(request(1)));
    let out = rig.pass(&no_reverse(request(2)));
    let (flags, option) = options(&out).remove(0);
    let back = with_option(no_reverse(reply(2)), flags, option);
    assert_eq!(rig.pass(&back).octets, no_reverse(reply(2)).octets());
    assert_eq!(rig.node.counters().options_removed, 1);
}

/// Options of strangers end at the border of the domain; those of the domain pass.
#[test]
fn options_of_strangers_are_taken_out() {
    let (address, flow) = (ip("203.0.113.9"), flow(1));
    let option = Aggregation { address, transaction: 7, flow, rate: 64_000 };
    let fields = with_option(request(1), 0, option);
    assert!(options(&proposer().pass(&fields)).is_empty());
    let mut rig = Rig::with(settings(|own| own.from = [("eth1".to_owned(), true)].into()));
    assert_eq!(rig.pass(&fields).octets, fields.octets());
    // Only this node may use its address.
    let forged = with_option(request(2), 0, Aggregation { address: ip(NODE), ..option });
    assert_eq!(sums(&rig.pass(&forged)), [128_000]);
}

/// BOOM-F5.1.1-05
#[test]
fn a_later_node_adds_its_own() {
    let mut first = proposer();
    let mut second = Rig::behind(settings(|own| own.from_elsewhere = true));
    let mut last = Vec::new();
    for port in [1, 2] {
        let out = first.pass(&request(port));
        let sent = second.octets(1, &Fields { ttl: out.ttl, ..request(port) }, &out.octets);
        last = options(&sent[0]);
    }
    assert_eq!(last.len(), 2, "{last:?}");
    assert_eq!((last[0].1.address, last[1].1.rate), (ip("198.51.100.1"), 128_000));
}

/// BOOM-G28-02: IntServ flows are no members, and of a list the granted rate counts.
#[test]
fn lists_count_with_what_was_granted() {
    let mut rig = proposer();
    let list = Fields { rates: vec![rates(300_000, 0), rates(60_000, 0)], ..request(1) };
    rig.pass(&list);
    let small = |port| Fields { rates: vec![rates(8000, 0)], ..request(port) };
    let out = rig.octets(1, &small(2), &crate::intserv::controlled_load(&small(2), 1000.0));
    assert!(!out[0].message().is_refused() && options(&out[0]).is_empty());
    assert_eq!(sums(&rig.pass(&small(3))), [68_000]);
}

/// BOOM-G31-01
#[test]
fn no_option_makes_a_packet_too_long() {
    for (mtu, expected) in [(144, 1), (143, 0)] {
        let mut rig = proposer();
        rig.mtu(2, mtu);
        let small = |port| Fields { rates: vec![rates(8000, 0)], ..request(port) };
        rig.pass(&small(1));
        assert_eq!(options(&rig.pass(&small(2))).len(), expected, "{mtu}");
    }
}

/// Without a proof of return a message grows to one and a half of its length at most; with it the MTU is the limit.
#[test]
fn a_message_that_proves_nothing_grows_little() {
    let mut rig = proposer();
    let flows: Vec<Vec<u8>> = (1..3).map(|port| request(port).octets()).collect();
    rig.octets_with(1, &request(1), &flows[0], &[]);
    // 92 octets came, and 140 would leave.
    assert!(options(&rig.octets_with(1, &request(2), &flows[1], &[])[0]).is_empty());
    let mut rig = Rig::with(Config { prove: true, ..settings(|_| {}) });
    let proved = |rig: &mut Rig, port| {
        let key = rig.pass(&request(port)).message().key;
        let fields = Fields { key, ..request(port) };
        rig.octets_with(1, &fields, &fields.octets(), &[]).remove(0)
    };
    proved(&mut rig, 1);
    assert_eq!(options(&proved(&mut rig, 2)).len(), 1);
}

/// The option of a node that an unknown option closes is left out.
#[test]
fn nothing_is_added_behind_an_unknown_option() {
    let mut rig = proposer();
    rig.pass(&request(1));
    let unknown = Fields { options: vec![0x70, 0, 0, 0, 1, 2, 3, 4], ..request(2) };
    assert_eq!(rig.pass(&unknown).octets, unknown.octets());
    assert_eq!(rig.node.counters().options_left_out, 1);
}

/// With IPv6 the option has the fields of IPv6.
#[test]
fn an_aggregate_of_ipv6_has_108_octets() {
    let mut rig = Rig::with(Config { prove: true, ..settings(|_| {}) });
    let v6 = |port| {
        let mut fields = request(port);
        let (src, dst) = (ip("2001:db8::1"), ip("2001:db8:1::2"));
        (fields.ends.src, fields.ends.dst) = (src, dst);
        (fields.flow.classifier.src, fields.flow.classifier.dst) = (src, dst);
        fields.flow = signalbox_boomerang::wire::FlowSpec::exact(fields.flow.classifier);
        fields
    };
    let mut out = Vec::new();
    for port in [1, 2] {
        let key = rig.octets_with(1, &v6(port), &v6(port).octets(), &[])[0].message().key;
        let proved = Fields { key, ..v6(port) };
        out = rig.octets_with(1, &proved, &proved.octets(), &[]);
    }
    assert_eq!(out[0].octets.len(), v6(2).octets().len() + 108);
    let (_, option) = options(&out[0]).remove(0);
    assert_eq!(
        (option.flow.classifier.dst, option.flow.mask.dst),
        (ip("2001:db8:1::"), ip("::ffff:ffff:ffff:ffff"))
    );
}
