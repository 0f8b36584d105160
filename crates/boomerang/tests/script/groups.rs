//! Requests to a multicast group, whose data branch: no receiver is known, and nothing comes back.

use std::net::IpAddr;

use signalbox_boomerang::engine::{
    BoomerangEvent as Event, Command, Config, Input, Integrity, Reason, Rejected, Request,
};
use signalbox_boomerang::wire::{Ends, Flags, Pass};
use signalbox_core::hops::Path;
use signalbox_core::node::Prefix;

use crate::rig::*;

const GROUP: &str = "232.1.1.1";

fn group() -> IpAddr {
    ip(GROUP)
}

/// A request of this rate to the group, as a branching node gets it.
fn to_group(rate: u32) -> Fields {
    let mut fields = Fields { rates: vec![rates(rate, 0)], refresh: 3, flags: 2, ..request(1) };
    fields.ends.dst = group();
    fields.flow.classifier.dst = group();
    fields
}

/// A node where the group branches to eth2 and eth3.
fn branching(config: Config) -> Rig {
    let mut rig = Rig::with(config);
    rig.trees.insert((group(), ip(IN)), (1, vec![2, 3]));
    rig
}

fn pass(rig: &mut Rig, fields: &Fields) -> Vec<Sent> {
    rig.octets(1, fields, &fields.octets())
}

/// Interfaces of the copies, and whether they are refused.
fn copies(sent: &[Sent]) -> Vec<(Option<u32>, bool)> {
    sent.iter().map(|one| (one.by, one.message().is_refused())).collect()
}

fn wish_to_group() -> Request {
    Request { far_end: group(), rates: vec![rates(64_000, 0)], ..wish() }
}

/// BOOM-G44-02: each outgoing interface has a copy and a reservation of its own.
#[test]
fn a_request_to_a_group_reserves_on_each_branch() {
    let mut rig = branching(Config::default());
    let sent = pass(&mut rig, &to_group(64_000));
    assert_eq!(copies(&sent), [(Some(2), false), (Some(3), false)]);
    assert!(sent.iter().all(|one| one.ttl == 63 && one.ends.dst == group() && one.message().key == 1));
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000), (Pass::Request, 3, 64_000)]);
    // The same message again refreshes both.
    pass(&mut rig, &to_group(64_000));
    assert_eq!((rig.node.counters().refreshed, rig.lookups), (2, 0));
    pass(&mut rig, &to_group(0));
    assert_eq!((rig.node.flow_count(), rig.resources.len()), (0, 0));
}

/// BOOM-F5.3-03: a branch without room is refused in its own copy, and another one is granted.
#[test]
fn a_full_branch_does_not_hinder_the_other() {
    let mut rig = branching(Config::default());
    rig.routes.insert(ip(FEN), 3);
    rig.pass(&Fields { rates: vec![rates(180_000, 0)], ..request(9) });
    let sent = pass(&mut rig, &to_group(64_000));
    assert_eq!(copies(&sent), [(Some(2), false), (Some(3), true)]);
    let body = sent[1].message().body.unwrap();
    assert_eq!((sent[1].rates().forward, body.options.refusal().unwrap().cause), (20_000, 1));
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000), (Pass::Request, 3, 180_000)]);
}

/// BOOM-G44-02: nothing comes back from a group, so no prime is put into the KEY. A node that demands proofs refuses, unless
/// the request is authenticated.
#[test]
fn no_proof_of_return_is_asked_for() {
    let mut rig = branching(Config { prove: true, ..Config::default() });
    let sent = pass(&mut rig, &to_group(64_000));
    assert_eq!(copies(&sent), [(Some(2), true), (Some(3), true)]);
    let body = sent[0].message().body.unwrap();
    assert_eq!(Reason::of(body.options.refusal().unwrap().cause), Reason::Unauthenticated);
    assert_eq!(rig.node.flow_count(), 0);
    let key = signalbox_boomerang::engine::DomainKey {
        id: 5,
        secret: signalbox_resources::Secret::new(*b"of the domain"),
        signs: true,
        verifies: true,
        from: 0,
        until: None,
    };
    let integrity = Integrity { sign: true, require: true, keys: vec![key], ..Integrity::default() };
    let signed = Config { prove: true, integrity, wall_clock_us: 1_770_000_000_000_000, ..Config::default() };
    let mut user = Rig::with(signed.clone());
    user.be(IN);
    let request = user.command(1, Command::Open(wish_to_group())).remove(0);
    let mut rig = branching(signed);
    let sent = rig.octets(1, &Fields { ends: request.ends, ..to_group(0) }, &request.octets);
    assert_eq!(copies(&sent), [(Some(2), false), (Some(3), false)]);
    assert_eq!(rig.node.flow_count(), 2);
}

/// A message to a group is about data to this group only, and no other message is about data to a group: otherwise one
/// packet could have a reservation on a branch, or release it, that its sender does not reach.
#[test]
fn other_messages_do_not_touch_a_group() {
    let mut rig = branching(Config::default());
    pass(&mut rig, &to_group(64_000));
    let mut unicast = Fields { rates: vec![rates(0, 0)], ..to_group(0) };
    unicast.ends.dst = ip(FEN);
    assert!(rig.pass(&unicast).message().is_refused());
    let mut back = Fields { pass: Pass::Reply, ..to_group(0) };
    back.ends = Ends { src: ip(FEN), dst: ip(IN) };
    assert!(rig.pass(&back).message().is_refused());
    let mut other = to_group(64_000);
    other.flow.classifier.dst = ip("232.9.9.9");
    assert_eq!(copies(&pass(&mut rig, &other)), [(Some(2), true), (Some(3), true)]);
    let mut wide = to_group(64_000);
    wide.flow.mask.dst = ip("0.0.0.255");
    assert_eq!(copies(&pass(&mut rig, &wide)), [(Some(2), true), (Some(3), true)]);
    assert_eq!(rig.node.flow_count(), 2);
}

/// A packet that does not come from the side of its source is dropped, as the kernel drops data of this group.
#[test]
fn a_forged_source_from_another_side_reserves_nothing() {
    let mut rig = branching(Config::default());
    pass(&mut rig, &to_group(64_000));
    let octets = to_group(128_000).octets();
    assert_eq!(rig.octets(3, &to_group(0), &octets), []);
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000), (Pass::Request, 3, 64_000)]);
    assert_eq!(rig.node.counters().no_route, 1);
}

/// A new branch is reserved with the next request. A branch that was left expires.
#[test]
fn branches_come_and_go() {
    let mut rig = branching(Config::default());
    rig.trees.insert((group(), ip(IN)), (1, vec![2]));
    pass(&mut rig, &to_group(64_000));
    assert_eq!(rig.branch(group(), ip(IN), &[2, 3]), [], "a change of routes sends nothing");
    assert_eq!(pass(&mut rig, &to_group(64_000)).len(), 2);
    assert_eq!(rig.node.flow_count(), 2);
    rig.branch(group(), ip(IN), &[3]);
    for _ in 0..4 {
        rig.wait(seconds(3.0));
        pass(&mut rig, &to_group(64_000));
    }
    assert_eq!(rig.reserved(), [(Pass::Request, 3, 64_000)]);
}

/// At the end of a branch the node counts what its receivers learn.
#[test]
fn a_request_ends_where_no_route_leads_on() {
    let mut rig = Rig::new();
    assert_eq!(pass(&mut rig, &to_group(64_000)), []);
    assert_eq!(pass(&mut rig, &Fields { flags: 3, key: 0, ..to_group(64_000) }), []);
    assert_eq!((rig.node.counters().group_granted, rig.node.counters().group_refused), (1, 1));
    assert!(rig.followed.is_empty(), "a group without a route takes no place");
    // Neither an answer nor an error goes to the source.
    assert_eq!(pass(&mut rig, &Fields { ttl: 1, ..to_group(64_000) }), []);
    let mut link = to_group(64_000);
    link.ends.dst = ip("224.0.0.9");
    assert_eq!(pass(&mut rig, &link), []);
}

/// BOOM-G23-03: a far end does not answer a request with NO_ECHO, refused or not, and reserves nothing for its way back.
#[test]
fn a_far_end_is_silent_where_no_echo_is_asked_for() {
    let mut rig = Rig::new();
    let silent = |flags: u16| {
        let mut fields = Fields { flags, ..request(1) };
        fields.ends.dst = ip(NODE);
        fields.flow.classifier.dst = ip(NODE);
        fields
    };
    assert_eq!(pass(&mut rig, &silent(2)), []);
    assert_eq!(pass(&mut rig, &Fields { key: 0, ..silent(3) }), []);
    assert_eq!((rig.node.flow_count(), rig.resources.len(), rig.lookups), (0, 0, 0));
    assert_eq!((rig.node.counters().not_echoed, rig.node.counters().replies_sent), (2, 0));
    assert_eq!(pass(&mut rig, &silent(0)).len(), 1);
    assert_eq!(rig.reserved(), [(Pass::Reply, 1, 64_000)]);
}

/// Requests that wait for a route, and routes, are limited: forged sources leave places to others, and what is not used is
/// removed.
#[test]
fn routes_of_groups_are_limited() {
    let mut rig = Rig::with(Config { max_waiting: 16, ..Config::default() });
    rig.answer_lookups = false;
    for host in 0..2000_u32 {
        let mut fields = to_group(8);
        fields.ends.src = IpAddr::V4((0x0a00_0000 + host).into());
        pass(&mut rig, &fields);
    }
    assert!(rig.followed.len() <= 1024, "{}", rig.followed.len());
    assert!(rig.node.counters().groups_full > 0);
    assert_eq!(rig.node.counters().waiting_full, rig.followed.len() as u64 - 16);
    rig.wait(seconds(400.0));
    assert!(rig.followed.is_empty());
}

/// BOOM-F5.3-01, BOOM-F5.3-02, BOOM-F5.3-04: a sender reserves for a group; its requests have NO_ECHO, and come every 3 s.
#[test]
fn a_sender_reserves_for_a_group() {
    let mut rig = Rig::new();
    let sent = rig.command(1, Command::Open(wish_to_group()));
    let first = &sent[0];
    assert_eq!((sent.len(), first.by, first.ends.dst), (1, Some(2), group()));
    let message = first.message();
    assert!(message.flags.contains(Flags::NO_ECHO));
    assert_eq!((message.key, message.refresh, first.rates()), (1, 3, rates(64_000, 0)));
    let reserved = Event::Reserved { rates: rates(64_000, 0), refresh: 3, loops: 1, path: Path::default() };
    assert_eq!(rig.events, [(1, reserved)]);
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000)]);
    assert_eq!(rig.wait(seconds(2.3)), []);
    assert_eq!(rig.wait(seconds(0.7)).len(), 1);
}

/// BOOM-G44-01: silence is no loss, and replies of hosts that answer pings to groups have no effect.
#[test]
fn silence_of_a_group_is_no_loss() {
    let mut rig = Rig::new();
    let first = rig.command(1, Command::Open(wish_to_group())).remove(0);
    let refreshes = rig.wait(seconds(60.0));
    assert!((20..=25).contains(&refreshes.len()), "{}", refreshes.len());
    let mut reply = first.clone();
    reply.ends.dst = ip(FEN);
    // It even claims a refusal.
    assert_eq!(rig.echo(&reply, |octets| octets[19] |= 1), []);
    assert_eq!(rig.node.counters().unexpected_replies, 1);
    assert_eq!((rig.events.len(), rig.node.session_count()), (1, 1));
    let last = rig.command(1, Command::Close);
    assert_eq!((last.len(), last[0].rates()), (1, rates(0, 0)));
    assert_eq!(rig.last_event(), &Event::Closed { confirmed: false });
    assert_eq!((rig.node.session_count(), rig.node.flow_count()), (0, 0));
}

/// A request to a group has no rate from it, and no query goes to a group.
#[test]
fn nothing_is_asked_of_a_group() {
    let mut rig = Rig::new();
    let both = Request { rates: vec![rates(64_000, 1)], ..wish_to_group() };
    let elsewhere = Request { dst: Some(ip(FEN)), ..wish_to_group() };
    let around = Request { dst: Some(group()), ..wish() };
    let rejected = [
        (Command::Open(both), Rejected::Group),
        (Command::Query(wish_to_group()), Rejected::Group),
        (Command::Open(elsewhere), Rejected::Address),
        (Command::Open(around), Rejected::Address),
    ];
    for (command, why) in rejected {
        assert_eq!(rig.command(1, command), []);
        assert_eq!(rig.last_event(), &Event::Rejected(why));
    }
    rig.command(1, Command::Open(wish_to_group()));
    assert_eq!(rig.command(1, Command::Change(rates(1000, 1000))), []);
    assert_eq!(rig.last_event(), &Event::Rejected(Rejected::Group));
}

/// The own link of the sender is a part of the path: the only one that it learns about.
#[test]
fn a_sender_learns_what_its_own_link_refuses() {
    let mut rig = Rig::new();
    rig.command(1, Command::Open(Request { rates: vec![rates(300_000, 0)], ..wish_to_group() }));
    let Event::Refused(refusal) = rig.last_event() else { panic!("{:?}", rig.events) };
    assert_eq!((refusal.offer, refusal.reason), (rates(200_000, 0), Reason::Resources));
    assert_eq!(rig.node.session_count(), 0);
    rig.command(2, Command::Open(wish_to_group()));
    let sent = rig.command(2, Command::Change(rates(300_000, 0)));
    assert_eq!(sent.len(), 2, "the former rate is sent at once");
    assert!(matches!(rig.last_event(), Event::ChangeRefused(_)), "{:?}", rig.events);
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000)]);
    // A change of routes is followed with the next request.
    rig.routes.insert(group(), 3);
    rig.input(Input::RouteChanged(Prefix::all_like(group())));
    assert_eq!(rig.wait(seconds(3.0))[0].by, Some(3));
}
