//! A node that keeps one reservation for an aggregate that a node in front of it proposes.

use signalbox_boomerang::engine::{Aggregation as Settings, Config};
use signalbox_boomerang::wire::{Aggregation, FlowSpec, Known, OF_REPLY, edit};

use crate::propose::settings;
use crate::rig::*;

fn adopting(change: impl FnOnce(&mut Config)) -> Config {
    let aggregates = Settings { adopt: true, from_elsewhere: true, ..Settings::default() };
    let mut config = Config { aggregates, max_refresh: 255, ..Config::default() };
    change(&mut config);
    config
}

pub(crate) fn adopter() -> Rig {
    Rig::with(adopting(|_| {}))
}

/// All flows of UDP between the subnets of the two ends.
fn subnets() -> FlowSpec {
    let mut flow = flow(0);
    flow.classifier.src = ip("192.0.2.0");
    flow.classifier.dst = ip("198.51.100.0");
    (flow.mask.src, flow.mask.dst) = (ip("0.0.0.255"), ip("0.0.0.255"));
    (flow.mask.src_port, flow.mask.dst_port, flow.mask.tos) = (u16::MAX, u16::MAX, 0);
    flow
}

/// What the node 203.0.113.9 proposes as its number 7.
fn proposal(rate: u32) -> Aggregation {
    Aggregation { address: ip("203.0.113.9"), transaction: 7, flow: subnets(), rate }
}

fn with(fields: Fields, flags: u16, options: &[Aggregation]) -> Fields {
    let mut message = fields.octets();
    let length = message.len();
    for option in options {
        edit::append_with(&mut message, flags, &Known::Aggregation(*option));
    }
    Fields { options: message.split_off(length), ..fields }
}

pub(crate) fn member(port: u16, sum: u32) -> Fields {
    with(request(port), 0, &[proposal(sum)])
}

/// Rates of the aggregates, and the number of flows that have reservations of their own.
fn aggregates(rig: &Rig) -> (Vec<u32>, u32) {
    let adopted = rig.node.flows().filter(|flow| flow.aggregate.is_some());
    (adopted.filter_map(|flow| flow.rate).collect(), rig.node.flow_count())
}

/// BOOM-2.3-02
#[test]
fn an_aggregate_has_one_reservation() {
    let mut rig = adopter();
    for port in 1..4 {
        assert_eq!(rig.pass(&member(port, 192_000)).octets, member(port, 192_000).octets());
    }
    assert_eq!((aggregates(&rig), rig.resources.len()), ((vec![192_000], 0), 1));
}

/// BOOM-F5.1.1-04: the kernel gets one reservation for the packets of all members.
#[test]
fn the_packets_of_all_members_are_policed_together() {
    let mut rig = adopter();
    (1..4).for_each(|port| drop(rig.pass(&member(port, 192_000))));
    let held: Vec<_> = rig.resources.reservations().collect();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].traffic.rate, 24_000);
    assert_eq!(held[0].filters[0].to_string(), "192.0.2.0/24 > 198.51.100.0/24 proto 17 dscp 46");
}

/// A node that is not configured for it, or that received the message from strangers, ignores the option.
#[test]
fn aggregates_of_strangers_are_ignored() {
    for config in [Config::default(), adopting(|config| config.aggregates.from_elsewhere = false)] {
        let mut rig = Rig::with(config);
        rig.pass(&member(1, 192_000));
        assert_eq!(aggregates(&rig), (vec![], 1));
    }
}

/// BOOM-G26-02
#[test]
fn an_option_is_about_the_pass_in_which_it_was_added() {
    let mut rig = adopter();
    rig.pass(&with(reply(1), 0, &[proposal(192_000)]));
    rig.pass(&with(request(2), OF_REPLY, &[proposal(192_000)]));
    assert_eq!(aggregates(&rig), (vec![], 2));
    rig.pass(&with(reply(1), OF_REPLY, &[proposal(192_000)]));
    assert_eq!(aggregates(&rig), (vec![64_000], 1));
}

/// BOOM-G27-01
#[test]
fn the_last_option_that_fits_counts() {
    let other = |transaction| Aggregation { transaction, ..proposal(192_000) };
    let mut elsewhere = other(9);
    elsewhere.flow.classifier.dst = ip("203.0.113.0");
    let mut rig = adopter();
    rig.pass(&with(request(1), 0, &[other(7), other(8), elsewhere]));
    let named: Vec<_> = rig.node.flows().filter_map(|flow| flow.aggregate).map(|one| one.number).collect();
    assert_eq!(named, [8]);
}

/// BOOM-G27-02: flows that have reservations of their own are folded in, on a link that has no room for both.
#[test]
fn an_aggregate_takes_the_place_of_its_flows() {
    let mut rig = adopter();
    (1..4).for_each(|port| drop(rig.pass(&request(port))));
    assert_eq!(aggregates(&rig), (vec![], 3));
    for (port, folded) in [(1, 64_000), (2, 128_000), (3, 192_000)] {
        assert!(!rig.pass(&member(port, 192_000)).message().is_refused());
        assert_eq!(aggregates(&rig), (vec![folded], 3 - u32::from(port)));
        let held: u64 = rig.resources.reservations().map(|one| one.traffic.rate).sum();
        assert_eq!(held, 24_000);
    }
}

/// BOOM-G27-03: the member that makes the aggregate too large is refused, and no other one.
#[test]
fn an_aggregate_that_does_not_fit_refuses_the_message() {
    let mut rig = adopter();
    (1..4).for_each(|port| drop(rig.pass(&member(port, 192_000))));
    let out = rig.pass(&member(4, 256_000));
    assert_eq!((out.message().is_refused(), out.rates().forward), (true, 8_000));
    assert!(!rig.pass(&member(1, 256_000)).message().is_refused(), "it is a member with its rate of before");
    assert_eq!(aggregates(&rig), (vec![192_000], 0));
}

/// BOOM-G27-05
#[test]
fn an_aggregate_stands_as_long_as_its_slowest_member() {
    let mut rig = adopter();
    rig.pass(&Fields { refresh: 30, ..member(1, 128_000) });
    rig.pass(&Fields { refresh: 5, ..member(2, 128_000) });
    rig.wait(seconds(104.0));
    assert_eq!(aggregates(&rig), (vec![128_000], 0));
    rig.wait(seconds(2.0));
    assert_eq!((aggregates(&rig), rig.resources.len()), ((vec![], 0), 0));
    assert_eq!(rig.node.counters().aggregates_expired, 1);
}

/// BOOM-G28-01
#[test]
fn two_nodes_may_use_one_number() {
    let mut rig = adopter();
    rig.pass(&member(1, 128_000));
    let mut other = Aggregation { address: ip("203.0.113.10"), ..proposal(128_000) };
    other.flow.mask.src = ip("0.0.0.127");
    rig.pass(&with(request(2), 0, &[other]));
    assert_eq!(aggregates(&rig), (vec![64_000, 64_000], 0));
}

/// Two nodes that propose the same packets: the second aggregate cannot stand beside the first, and its flows get reservations
/// of their own.
#[test]
fn packets_belong_to_one_aggregate() {
    let mut rig = adopter();
    rig.pass(&member(1, 128_000));
    let other = Aggregation { address: ip("203.0.113.10"), ..proposal(128_000) };
    assert!(!rig.pass(&with(request(2), 0, &[other])).message().is_refused());
    assert_eq!(aggregates(&rig), (vec![64_000], 1));
    assert_eq!(rig.node.counters().options_ignored, 1);
}

/// BOOM-F6.2-04
#[test]
fn any_member_refreshes_the_aggregate() {
    let mut rig = adopter();
    (1..3).for_each(|port| drop(rig.pass(&Fields { refresh: 10, ..member(port, 128_000) })));
    for _ in 0..10 {
        rig.wait(seconds(9.0));
        rig.pass(&Fields { refresh: 10, ..member(2, 64_000) });
    }
    assert_eq!((aggregates(&rig), rig.node.counters().adopted), ((vec![64_000], 0), 1));
}

/// A member that ends without a message is left out of the count, whatever the option has as the sum.
#[test]
fn members_that_are_silent_are_not_counted() {
    let mut rig = adopter();
    (1..3).for_each(|port| drop(rig.pass(&Fields { refresh: 10, ..member(port, 128_000) })));
    for _ in 0..8 {
        rig.wait(seconds(10.0));
        rig.pass(&Fields { refresh: 10, ..member(2, 128_000) });
    }
    assert_eq!(aggregates(&rig), (vec![64_000], 0));
}

/// BOOM-F3.2-01: a node that lost its state has the aggregate again after one message, and all of it after one of each member.
#[test]
fn the_messages_bring_all_that_is_needed() {
    for _ in 0..2 {
        let mut rig = adopter();
        for (port, held) in [(3, 64_000), (1, 128_000), (2, 192_000)] {
            rig.pass(&member(port, 192_000));
            assert_eq!(aggregates(&rig), (vec![held], 0));
        }
    }
}

/// BOOM-F6.2-08: without the option each flow gets a reservation of its own, and the aggregate loses its part, so that a link
/// without room for both never refuses one.
#[test]
fn flows_without_the_option_get_their_own_reservations() {
    let mut rig = adopter();
    (1..4).for_each(|port| drop(rig.pass(&member(port, 192_000))));
    for (port, left) in [(1, vec![128_000]), (2, vec![64_000]), (3, vec![])] {
        assert!(!rig.pass(&request(port)).message().is_refused());
        assert_eq!(aggregates(&rig), (left, port.into()));
    }
}

/// A release of a member lowers the aggregate at once.
#[test]
fn a_member_that_is_released_is_taken_off() {
    let mut rig = adopter();
    (1..3).for_each(|port| drop(rig.pass(&member(port, 128_000))));
    let release = |port| Fields { rates: vec![rates(0, 0)], ..request(port) };
    rig.pass(&release(1));
    assert_eq!((aggregates(&rig), rig.node.counters().released), ((vec![64_000], 0), 1));
    rig.pass(&release(2));
    assert_eq!((aggregates(&rig), rig.resources.len()), ((vec![], 0), 0));
}

/// A member that changes its rate changes the aggregate by the difference.
#[test]
fn a_member_may_change() {
    let mut rig = adopter();
    (1..3).for_each(|port| drop(rig.pass(&member(port, 128_000))));
    let less = Fields { rates: vec![rates(8000, 0)], ..request(1) };
    rig.pass(&with(less, 0, &[proposal(72_000)]));
    assert_eq!(aggregates(&rig), (vec![72_000], 0));
    rig.pass(&with(request(1), 0, &[proposal(128_000)]));
    assert_eq!(aggregates(&rig), (vec![128_000], 0));
}

/// The aggregate is never larger than the sum of the option.
#[test]
fn the_sum_of_the_option_is_the_most() {
    let mut rig = adopter();
    (1..4).for_each(|port| drop(rig.pass(&member(port, 192_000))));
    rig.pass(&member(1, 100_000));
    assert_eq!(aggregates(&rig), (vec![100_000], 0));
}

/// Options that make no sense are ignored: a rate below that of the flow, packets of others, a mask that is no filter, an
/// address of this node.
#[test]
fn options_without_sense_are_ignored() {
    let elsewhere = |change: &dyn Fn(&mut Aggregation)| {
        let mut option = proposal(192_000);
        change(&mut option);
        option
    };
    let all = [
        elsewhere(&|one| one.rate = 63_999),
        elsewhere(&|one| one.flow.classifier.src = ip("192.0.3.0")),
        elsewhere(&|one| one.flow.classifier.tos = 0x28),
        elsewhere(&|one| one.flow.classifier.protocol = 6),
        elsewhere(&|one| one.flow.mask.src = ip("0.0.255.0")),
        elsewhere(&|one| one.address = ip(NODE)),
    ];
    for option in all {
        let mut rig = adopter();
        assert!(!rig.pass(&with(request(1), 0, &[option])).message().is_refused());
        assert_eq!(aggregates(&rig), (vec![], 1), "{option:?}");
    }
}

/// The tables of aggregates and members have limits; beyond them flows get reservations of their own.
#[test]
fn tables_of_aggregates_are_bounded() {
    let mut rig = Rig::with(adopting(|config| {
        config.aggregates.max = 8;
        config.max_flows = 20;
    }));
    for number in 0..30_u16 {
        let mut fields = Fields { rates: vec![rates(8, 0)], ..request(number) };
        fields.flow.classifier.dst = ip(&format!("10.{number}.0.1"));
        let mut option = Aggregation { transaction: number.into(), ..proposal(8) };
        option.flow.classifier.dst = ip(&format!("10.{number}.0.0"));
        rig.pass(&with(fields, 0, &[option]));
    }
    // A quarter of a table is for those that hold little.
    assert_eq!((rig.node.aggregate_count(), rig.node.flow_count()), (6, 15));
    let mut rig = Rig::with(adopting(|config| config.max_flows = 4));
    for port in 1..9 {
        rig.pass(&with(Fields { rates: vec![rates(8, 0)], ..request(port) }, 0, &[proposal(64)]));
    }
    assert_eq!((aggregates(&rig).0, rig.node.counters().members_full), (vec![32], 4));
}

/// A flow of an aggregate needs no proof of return here: the node that proposes the aggregate is known.
#[test]
fn members_prove_to_the_node_that_proposes() {
    let mut rig = Rig::with(adopting(|config| config.prove = true));
    let out = rig.pass(&member(1, 64_000));
    assert_eq!((out.message().key, aggregates(&rig)), (1, (vec![64_000], 0)));
    assert_ne!(rig.pass(&request(2)).message().key, 1);
}

/// A node that proposes and a node behind it: what the second one holds is the sum of the first one.
#[test]
fn two_nodes_hold_the_same() {
    let mut first = Rig::with(settings(|_| {}));
    let mut second = Rig::behind(adopting(|_| {}));
    let pass = |first: &mut Rig, second: &mut Rig, fields: &Fields| {
        let out = first.pass(fields);
        second.octets(1, &Fields { ttl: out.ttl, ..fields.clone() }, &out.octets);
    };
    let mine = |rig: &Rig| rig.reserved().iter().map(|(_, _, rate)| *rate).sum::<u32>();
    for port in [1, 2, 3, 1] {
        pass(&mut first, &mut second, &request(port));
        assert_eq!(mine(&first), mine(&second));
    }
    assert_eq!((first.node.flow_count(), aggregates(&second)), (3, (vec![192_000], 0)));
    for port in [1, 2, 3] {
        pass(&mut first, &mut second, &Fields { rates: vec![rates(0, 0)], ..request(port) });
        assert_eq!(mine(&first), mine(&second));
    }
    assert_eq!(second.resources.len(), 0);
}

/// A node that demands proofs of return takes the release of a member from the node that proposes, and a forged one has no
/// effect.
#[test]
fn a_release_is_proved_by_the_node_that_proposes() {
    let mut first = Rig::with(settings(|_| {}));
    let mut second = Rig::behind(adopting(|config| config.prove = true));
    let pass = |first: &mut Rig, second: &mut Rig, fields: &Fields| {
        let out = first.pass(fields);
        second.octets(1, &Fields { ttl: out.ttl, ..fields.clone() }, &out.octets);
    };
    [1, 2, 3, 1].into_iter().for_each(|port| pass(&mut first, &mut second, &request(port)));
    assert_eq!(aggregates(&second), (vec![192_000], 0));
    let release = |port| Fields { rates: vec![rates(0, 0)], ..request(port) };
    second.pass(&release(1));
    assert_eq!(aggregates(&second), (vec![192_000], 0), "forged");
    for (port, left) in [(1, vec![128_000]), (2, vec![64_000])] {
        pass(&mut first, &mut second, &release(port));
        assert_eq!(aggregates(&second), (left, 0));
    }
}
