//! Reservations that a node lost: who learns it, when, and with which reason.

use signalbox_boomerang::engine::{BoomerangEvent, Command, Config, Reason};
use signalbox_boomerang::wire::{Flags, Pass};
use signalbox_resources::Config as Resources;
use signalbox_resources::config::Action;
use signalbox_resources::units::Share;

use crate::adopt::{adopter, member};
use crate::rig::*;

/// A node on the path, and how it loses what it holds by eth2.
type Loss = fn(&mut Rig);

fn links(default: Action, capacity: &str) -> Resources {
    let mut links = Resources::of_link("*", capacity.parse().unwrap());
    links.default = default;
    links.links.iter_mut().for_each(|link| link.reservable = Share::percent(100));
    links
}

fn first_grant(rig: &Rig) -> signalbox_resources::GrantId {
    rig.resources.reservations().next().unwrap().grant
}

fn ended(rig: &mut Rig) {
    let grant = first_grant(rig);
    rig.resources.delete(grant);
    rig.drain();
}

fn reduced(rig: &mut Rig) {
    for capacity in ["10kbit", "200kbit"] {
        rig.0.resources.reload(rig.0.now, links(Action::Allow, capacity)).unwrap();
        rig.drain();
    }
}

fn of_other_rules(rig: &mut Rig) {
    rig.0.resources.reload(rig.0.now, links(Action::Deny, "200kbit")).unwrap();
    rig.drain();
}

/// The kernel refuses a change of the reservation.
fn of_the_kernel(rig: &mut Rig) {
    rig.kernel_refuses = true;
    rig.pass(&Fields { rates: vec![rates(63_000, 32_000)], ..request(4000) });
    rig.kernel_refuses = false;
}

fn gone(rig: &mut Rig) {
    rig.interfaces(&[1, 3]);
    rig.interfaces(&[1, 2, 3]);
}

/// A request goes from its node through a router, is turned round by the far end, and comes back through the router.
fn loops(own: &mut Rig, router: &mut Rig, sent: &Sent) {
    let back = reply(0);
    let there = Fields { ends: sent.ends, ..request(0) };
    let out = router.octets(1, &there, &sent.octets).remove(0);
    let mut turned = out.octets;
    turned[0] = Pass::Reply.icmp_type(false);
    let ends = signalbox_boomerang::wire::Ends { src: sent.ends.dst, dst: sent.ends.src };
    signalbox_boomerang::wire::edit::set_checksum(&mut turned, &ends);
    let back = Fields { ends, ..back };
    let out = router.octets(2, &back, &turned).remove(0);
    own.octets(2, &back, &out.octets);
}

/// Whatever a router loses, the answer to the next refresh brings router and reason to the node that holds the reservation, although the
/// router has room for it again.
#[test]
fn the_next_answer_names_node_and_reason() {
    for (lose, reason) in [
        (ended as Loss, Reason::Ended),
        (reduced, Reason::Reduced),
        (of_other_rules, Reason::Policy),
        (of_the_kernel, Reason::Kernel),
        (gone, Reason::Gone),
    ] {
        let mut own = Rig::new();
        own.be(IN);
        let mut router = Rig::of(Config::default(), links(Action::Allow, "200kbit"));
        let sent = own.command(1, Command::Open(wish())).remove(0);
        assert!(!sent.message().flags.contains(Flags::STANDS));
        loops(&mut own, &mut router, &sent);
        assert!(matches!(own.last_event(), BoomerangEvent::Reserved { .. }), "{:?}", own.events);
        assert_eq!(router.reserved().len(), 2);
        lose(&mut router);
        assert_ne!(router.reserved().first().map(|(pass, ..)| *pass), Some(Pass::Request), "{reason:?}");
        assert_eq!(router.resources.len(), router.node.flow_count());
        let refresh = own.wait(seconds(30.0)).remove(0);
        assert!(refresh.message().flags.contains(Flags::STANDS));
        loops(&mut own, &mut router, &refresh);
        let BoomerangEvent::Refused(refusal) = own.last_event() else { panic!("{:?}", own.events) };
        assert_eq!((refusal.node, refusal.reason), (Some(ip("198.51.100.1")), reason));
        // The release removes the lost reservation. The next request is a new one.
        let release = own.sent.last().unwrap().clone();
        loops(&mut own, &mut router, &release);
        assert_eq!((router.reserved().len(), router.resources.len()), (0, 0));
        let again = own.command(2, Command::Open(wish())).remove(0);
        loops(&mut own, &mut router, &again);
        let stands = matches!(own.last_event(), BoomerangEvent::Reserved { .. });
        assert_eq!(stands, reason != Reason::Policy, "{reason:?}: {:?}", own.last_event());
    }
}

/// The kernel of a router refuses what was granted while the request is on its way: the reply to it brings router and reason, and what the
/// path holds is released.
#[test]
fn the_reply_tells_what_the_kernel_refused() {
    let mut own = Rig::new();
    own.be(IN);
    let mut router = Rig::of(Config::default(), links(Action::Allow, "200kbit"));
    router.kernel_refuses = true;
    let sent = own.command(1, Command::Open(wish())).remove(0);
    loops(&mut own, &mut router, &sent);
    let BoomerangEvent::Refused(refusal) = own.last_event() else { panic!("{:?}", own.events) };
    assert_eq!((refusal.node, refusal.reason), (Some(ip(NODE)), Reason::Kernel));
    let release = own.sent.last().unwrap().clone();
    assert_eq!(release.rates(), rates(0, 0));
    loops(&mut own, &mut router, &release);
    assert_eq!((own.node.session_count(), router.node.flow_count(), router.resources.len()), (0, 0, 0));
    router.kernel_refuses = false;
    let again = own.command(2, Command::Open(wish())).remove(0);
    loops(&mut own, &mut router, &again);
    assert!(matches!(own.last_event(), BoomerangEvent::Reserved { .. }), "{:?}", own.events);
}

/// A reply is not refused for a loss before its request, which may have taken another way.
#[test]
fn a_later_reply_tells_nothing_of_the_way_there() {
    for (later, refused) in [(0.1, true), (0.7, false)] {
        let mut rig = Rig::new();
        rig.pass(&request(1));
        ended(&mut rig);
        rig.wait(seconds(later));
        assert_eq!(rig.pass(&reply(1)).message().is_refused(), refused);
    }
}

/// Each refresh is refused until the initiating node has released the reservation: an answer can be lost.
#[test]
fn a_loss_is_told_again() {
    let mut rig = Rig::new();
    rig.pass(&request(1));
    ended(&mut rig);
    let refresh = Fields { flags: Flags::STANDS.0, ..request(1) };
    for _ in 0..3 {
        let sent = rig.pass(&refresh);
        let refusal = sent.message().body.unwrap().options.refusal().unwrap();
        assert_eq!(Reason::of(refusal.cause), Reason::Ended);
    }
    rig.pass(&Fields { rates: vec![rates(0, 0)], ..request(1) });
    assert!(!rig.pass(&refresh).message().is_refused());
}

/// A new request is the first message of a session, a message of another maker, or one whose flow leaves by another interface.
#[test]
fn who_does_not_hold_it_is_judged_anew() {
    let refresh = || Fields { flags: Flags::STANDS.0, ..request(1) };
    let mut rig = Rig::new();
    rig.pass(&request(1));
    ended(&mut rig);
    assert!(!rig.pass(&request(1)).message().is_refused());
    ended(&mut rig);
    rig.routes.insert(ip(FEN), 3);
    rig.input(signalbox_boomerang::engine::Input::RouteChanged(signalbox_core::node::Prefix::host(ip(FEN))));
    assert!(!rig.pass(&refresh()).message().is_refused());
    assert_eq!(rig.reserved(), [(Pass::Request, 3, 64_000)]);
    // A lost reservation expires when no message comes.
    ended(&mut rig);
    assert_eq!((rig.node.flow_count(), rig.resources.len()), (0, 0));
    let expired = rig.node.counters().expired;
    rig.wait(seconds(106.0));
    assert_eq!(rig.node.counters().expired, expired);
    assert!(!rig.pass(&refresh()).message().is_refused());
}

/// The reply is refused for a lost reservation of its own direction.
#[test]
fn the_reply_tells_of_its_direction() {
    let mut rig = Rig::new();
    rig.pass(&reply(1));
    assert_eq!(rig.reserved(), [(Pass::Reply, 1, 64_000)]);
    ended(&mut rig);
    let sent = rig.pass(&Fields { flags: Flags::STANDS.0, ..reply(1) });
    assert_eq!(sent.message().body.unwrap().options.refusal().unwrap().cause, Reason::Ended.number());
}

/// Who proved that it receives replies proves it again after a loss, and learns of it all the same.
#[test]
fn a_loss_does_not_lock_the_flow() {
    let mut rig = Rig::with(Config { prove: true, ..Config::default() });
    let first = rig.pass(&returning(1));
    let proved = returning(1).confirming(&first);
    rig.pass(&proved);
    assert_eq!(rig.node.flow_count(), 1);
    ended(&mut rig);
    let refresh = Fields { flags: RETURNS | Flags::STANDS.0, ..proved };
    assert!(rig.pass(&refresh).message().is_refused());
    // Its node begins again, two minutes later.
    let first = rig.pass(&returning(1));
    rig.pass(&returning(1).confirming(&first));
    assert_eq!(rig.node.flow_count(), 1);
}

/// What a node loses at its own link its user knows at once, and the path is released.
#[test]
fn a_loss_at_the_own_link_is_told_at_once() {
    let mut own = Rig::new();
    own.be(IN);
    let sent = own.command(1, Command::Open(wish())).remove(0);
    own.echo(&sent, |_| {});
    own.sent.clear();
    ended(&mut own);
    let BoomerangEvent::Refused(refusal) = own.last_event() else { panic!("{:?}", own.events) };
    assert_eq!((refusal.node, refusal.reason), (Some(ip("198.51.100.1")), Reason::Ended));
    assert_eq!(own.sent.last().unwrap().rates(), rates(0, 0));
}

/// Members of an aggregate that is lost learn it each by its own message.
#[test]
fn members_of_a_lost_aggregate_are_told() {
    let mut rig = adopter();
    let refresh = |port| Fields { flags: Flags::STANDS.0, ..member(port, 128_000) };
    rig.pass(&member(1, 128_000));
    rig.pass(&member(2, 128_000));
    assert_eq!((rig.node.aggregate_count(), rig.resources.len()), (1, 1));
    ended(&mut rig);
    assert_eq!((rig.node.aggregate_count(), rig.resources.len()), (0, 0));
    for port in [1, 2] {
        let sent = rig.pass(&refresh(port));
        let refusal = sent.message().body.unwrap().options.refusal().unwrap();
        assert_eq!(Reason::of(refusal.cause), Reason::Ended);
        rig.pass(&Fields { rates: vec![rates(0, 0)], ..member(port, 128_000) });
        assert!(!rig.pass(&refresh(port)).message().is_refused());
    }
}
