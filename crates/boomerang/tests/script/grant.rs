//! What a reservation is to admission control: packets, rate, service, requester.

use signalbox_boomerang::engine::{Command, Config, Reason};
use signalbox_boomerang::wire::{Flags, Known, Pass, Refusal, UserId, checksum_is_valid, edit};
use signalbox_core::traffic::ServiceClass;
use signalbox_resources::Config as Resources;
use signalbox_resources::config::{Action, RuleConfig};
use signalbox_resources::decision::{End, Outcome, Why};

use crate::rig::*;

/// Packets of the reservations, as admission control has them.
fn filters(rig: &Rig) -> Vec<String> {
    rig.resources.reservations().flat_map(|row| row.filters).map(|filter| filter.to_string()).collect()
}

/// BOOM-1-02: one micro-flow, the flows between two networks, or all with a code point.
#[test]
fn a_group_of_flows_is_one_reservation() {
    let mut rig = Rig::new();
    rig.pass(&request(7));
    assert_eq!(filters(&rig), ["192.0.2.1 port 7 > 198.51.100.2 port 5004 proto 17"]);
    let mut group = request(8);
    let mask = &mut group.flow.mask;
    (mask.src, mask.dst) = (ip("0.0.0.255"), ip("0.0.0.255"));
    (mask.src_port, mask.dst_port, mask.protocol, mask.tos) = (u16::MAX, u16::MAX, u8::MAX, 0);
    rig.pass(&group);
    assert_eq!(filters(&rig)[1], "192.0.2.0/24 > 198.51.100.0/24 dscp 46");
}

/// BOOM-G7-01: the PHB is that of tos, whatever the mask is. BOOM-G7-02: packets must carry it only if the mask says so.
/// BOOM-3.2.2-07, BOOM-G33-01: the code point is taken as it is, and tos is not changed. BOOM-G7-04: the flags of the
/// classifier are ignored.
#[test]
fn the_phb_is_that_of_tos() {
    for (port, mask) in [(1, 0), (2, 0xff)] {
        let mut rig = Rig::new();
        let mut one = request(port);
        (one.flow.classifier.tos, one.flow.mask.tos, one.flow.classifier.flags) = (0xa3, mask, 0xff00);
        let out = rig.pass(&one);
        let body = out.message().body.unwrap();
        assert_eq!((body.flow.classifier.tos, body.flow.classifier.flags), (0xa3, 0xff00));
        let row = rig.resources.reservations().next().unwrap();
        assert_eq!(row.service, ServiceClass::Dscp(40));
        assert_eq!(row.filters[0].dscp, (mask == 0).then_some(40));
    }
}

/// BOOM-G32-01, BOOM-P-06: the rate counts IP packets; bursts of 10 ms or two packets pass, and no more.
#[test]
fn a_rate_is_a_peak_rate_with_a_small_burst() {
    let mut rig = Rig::of(Config::default(), Resources::of_link("*", "1gbit".parse().unwrap()));
    for (port, rate, burst) in [(1, 64_000, 3000), (2, 80_000_000, 100_000)] {
        rig.pass(&Fields { rates: vec![rates(rate, 0)], ..request(port) });
        let row = rig.resources.reservations().last().unwrap();
        assert_eq!((row.traffic.rate, row.traffic.burst), (u64::from(rate) / 8, burst));
    }
}

/// BOOM-G25-01: the option Boomerang_UID goes to the policy as it is, and a refusal is one like any other.
#[test]
fn the_policy_reads_the_user() {
    let rule = RuleConfig { user: vec!["alice".to_owned()], ..RuleConfig::new("alice", Action::Allow) };
    let links = Resources {
        rules: vec![rule],
        default: Action::Deny,
        ..Resources::of_link("*", "1mbit".parse().unwrap())
    };
    let mut rig = Rig::of(Config::default(), links);
    let with = |name: &[u8; 8]| {
        let mut octets = Vec::new();
        edit::append(&mut octets, &Known::UserId(UserId { user: *name, credential: [9; 8] }));
        octets
    };
    let sent = rig.pass(&Fields { options: with(b"alice\0\0\0"), ..request(1) });
    assert!(!sent.message().is_refused());
    let uid = sent.message().body.unwrap().options.user().unwrap();
    assert_eq!((uid.name(), uid.credential), (Some("alice"), [9; 8]));
    let sent = rig.pass(&Fields { options: with(b"mallory\0"), ..request(2) });
    let refusal = sent.message().body.unwrap().options.refusal().unwrap();
    assert_eq!((sent.message().is_refused(), refusal.cause), (true, Reason::Policy.number()));
}

/// The rule that refused is in the message where the configuration lets it out, and the initiating node gives it to its user.
#[test]
fn a_refusal_has_the_rule_if_it_may() {
    let rules = |report_rule| Resources {
        rules: vec![RuleConfig::new("nobody", Action::Deny)],
        report_rule,
        ..Resources::of_link("*", "1mbit".parse().unwrap())
    };
    for (report_rule, note) in [(false, None), (true, Some("rule 1 'nobody': denied".to_owned()))] {
        let mut rig = Rig::of(Config::default(), rules(report_rule));
        let sent = rig.pass(&request(1));
        let options = sent.message().body.unwrap().options;
        assert_eq!((options.refusal().unwrap().cause, options.note()), (Reason::Policy.number(), note));
        assert!(checksum_is_valid(&sent.ends, &sent.octets));
    }
}

/// The record of decisions names the node further on that refused, at the nodes that the request had passed and at the initiating node.
#[test]
fn the_node_that_refused_is_recorded() {
    let beyond = || Why::Beyond(Some(ip("192.0.2.77")));
    let refuse_with = |octets: &mut Vec<u8>, flags: Flags| {
        edit::refuse(octets, flags);
        edit::append(octets, &Known::Refusal(Refusal { address: ip("192.0.2.77"), cause: 3 }));
    };
    let refuse = |octets: &mut Vec<u8>| refuse_with(octets, Flags::default());
    let refuse_returning = |octets: &mut Vec<u8>| refuse_with(octets, Flags::RETURNS);
    let decided = |rig: &mut Rig| -> Vec<(Outcome, Why)> {
        std::iter::from_fn(|| rig.resources.next_decision()).map(|one| (one.outcome, one.why)).collect()
    };
    let mut rig = Rig::new();
    rig.resources.record_decisions(true);
    let passed = rig.pass(&request(1));
    decided(&mut rig);
    rig.echo(&passed, refuse);
    assert_eq!(decided(&mut rig), [(Outcome::Refused, beyond())]);
    // Of a flow that has no reservation here.
    let other = rig.pass(&Fields { rates: vec![rates(0, 0)], ..request(2) });
    rig.echo(&other, refuse);
    assert_eq!(decided(&mut rig), []);

    // What a reservation with a proof records has to show its number, or anybody writes into the record.
    let mut rig = Rig::with(Config { prove: true, ..Config::default() });
    rig.resources.record_decisions(true);
    let first = rig.pass(&returning(1));
    let passed = rig.pass(&returning(1).confirming(&first));
    decided(&mut rig);
    rig.echo(&Sent { octets: returning(1).octets(), ..passed.clone() }, refuse_returning);
    assert_eq!(decided(&mut rig), []);
    rig.echo(&passed, refuse_returning);
    assert_eq!(decided(&mut rig), [(Outcome::Refused, beyond())]);

    let mut rig = Rig::new();
    rig.resources.record_decisions(true);
    let sent = rig.command(1, Command::Open(wish())).remove(0);
    rig.echo(&sent, refuse);
    let ended = Why::End(End::RefusedBeyond(Some(ip("192.0.2.77"))));
    assert_eq!(decided(&mut rig).last(), Some(&(Outcome::Ended, ended)));
    // A user who leaves is another reason.
    let sent = rig.command(2, Command::Open(wish())).remove(0);
    rig.echo(&sent, |_| {});
    rig.command(2, Command::Close);
    assert_eq!(decided(&mut rig).last(), Some(&(Outcome::Ended, Why::End(End::User))));
}

/// BOOM-G31-01: no option is added that does not fit into the MTU. BOOM-G24-02: none is added behind an unknown one.
#[test]
fn an_option_must_fit() {
    let mut rig = Rig::new();
    let too_much = || Fields { rates: vec![rates(999_999, 0)], ..request(1) };
    let sent = rig.pass(&too_much());
    assert!(sent.message().body.unwrap().options.refusal().is_some());
    // Options of 20 octets behind a message of 72; an IP header with options and another option take 84 of 1500.
    for (count, fits) in [(67, true), (68, false)] {
        let mut options = Vec::new();
        for _ in 0..count {
            edit::append(&mut options, &Known::UserId(UserId { user: [0; 8], credential: [0; 8] }));
        }
        let sent = rig.pass(&Fields { options, ..too_much() });
        let refusal = sent.message().body.unwrap().options.refusal();
        assert_eq!((sent.message().is_refused(), refusal.is_some()), (true, fits));
    }
    let sent = rig.pass(&Fields { options: vec![0x77, 0x77, 0, 0], ..too_much() });
    assert_eq!((sent.message().is_refused(), sent.octets.len()), (true, 76));
}

/// BOOM-G2-02: the identifier is that of the process, the sequence number grows by one with each message. BOOM-2.1-02: the
/// initiating node has the state of the session, a node on the path has reservations only.
#[test]
fn an_initiating_node_numbers_its_messages() {
    let mut rig = Rig::new();
    let first = rig.command(1, Command::Open(wish())).remove(0);
    let second =
        rig.command(2, Command::Open(signalbox_boomerang::engine::Request { dst_port: Some(1), ..wish() }));
    let (first, second) = (first.message(), second[0].message());
    assert_eq!(first.identifier, second.identifier);
    assert_eq!(second.sequence, first.sequence.wrapping_add(1));
    assert_eq!(rig.node.session_count(), 2);
    let mut router = Rig::new();
    router.pass(&request(1));
    assert_eq!((router.node.session_count(), router.node.flow_count()), (0, 1));
}

/// BOOM-P-03: with a release the kernel's part of the reservation goes, too. BOOM-G37-01: neither before the first message
/// nor after the release has the data a grant.
#[test]
fn a_release_leaves_nothing_in_the_kernel() {
    let mut rig = Rig::new();
    assert!(rig.resources.is_empty());
    rig.pass(&request(1));
    let id = rig.resources.reservations().next().unwrap().reservation;
    rig.pass(&Fields { rates: vec![rates(0, 0)], ..request(1) });
    assert_eq!((rig.removed.clone(), rig.resources.len()), (vec![id], 0));
}

/// BOOM-G23-01: NO_ECHO is flag 0x0002, which nodes on the path forward.
#[test]
fn no_echo_has_its_bit() {
    let mut rig = Rig::new();
    let sent = rig.pass(&Fields { flags: 0x0002, ..request(1) });
    assert!(sent.message().flags.contains(Flags::NO_ECHO) && !sent.message().is_refused());
}

/// BOOM-G35-02: a release of one end leaves the reservation of the other one for the same packets.
#[test]
fn both_ends_may_reserve_for_the_same_packets() {
    let mut rig = Rig::new();
    rig.pass(&Fields { rates: vec![rates(64_000, 0)], ..request(1) });
    // The other end is the initiating node, and asks for the data that it receives.
    let theirs = |rate| {
        let mut fields = Fields { rates: vec![rates(0, rate)], ..reply(1) };
        fields.flow = fields.flow.inverted();
        fields.ends = signalbox_boomerang::wire::Ends { src: ip(IN), dst: ip(FEN) };
        fields
    };
    rig.pass(&theirs(100_000));
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000), (Pass::Reply, 2, 100_000)]);
    let kernel = |rig: &Rig| rig.resources.links().find(|link| link.ifindex.0 == 2).unwrap().reserved;
    assert_eq!(kernel(&rig), 12_500, "the larger rate counts, once");
    rig.pass(&theirs(0));
    assert_eq!((rig.reserved(), kernel(&rig)), (vec![(Pass::Request, 2, 64_000)], 8000));
    rig.pass(&theirs(100_000));
    rig.pass(&Fields { rates: vec![rates(0, 0)], ..request(1) });
    assert_eq!((rig.reserved(), kernel(&rig)), (vec![(Pass::Reply, 2, 100_000)], 12_500));
    rig.pass(&theirs(0));
    assert_eq!((rig.resources.len(), kernel(&rig)), (0, 0));
}
