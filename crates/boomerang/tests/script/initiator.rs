//! The initiating node.

use std::collections::BTreeSet;

use signalbox_boomerang::engine::{
    BoomerangEvent as Event, Command, Config, Input, Reason, Rejected, Request,
};
use signalbox_boomerang::wire::{
    Aggregation, Known, Note, OF_REPLY, OptionType, Pass, Refusal, ReturnProof, edit,
};
use signalbox_core::IfIndex;
use signalbox_core::hops::Path;
use signalbox_core::node::Prefix;

use crate::rig::*;

fn open(rig: &mut Rig, request: Request) -> Sent {
    let mut sent = rig.command(1, Command::Open(request));
    assert_eq!(sent.len(), 1, "{:?}", rig.events);
    sent.remove(0)
}

fn reserved(rig: &mut Rig) -> Sent {
    let first = open(rig, wish());
    assert_eq!(rig.echo(&first, |_| {}), []);
    first
}

/// BOOM-3.2.1-09, BOOM-3.2.1-04, BOOM-F4.1.4-02, BOOM-G33-02, BOOM-G15-01, BOOM-F3.3.3-01, BOOM-1-03: one loop sets up; the
/// first request has KEY 1, the interval of the configuration, a Router Alert and CS0.
#[test]
fn one_loop_sets_up() {
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    let message = first.message();
    assert_eq!((message.key, message.refresh, message.flags.0), (1, 30, RETURNS));
    assert_eq!((first.options.as_slice(), first.ttl, first.tos), (&[0x94, 4, 0, 0][..], 64, 0));
    assert_eq!(
        (first.ends.src, first.ends.dst, first.rates()),
        (ip("198.51.100.1"), ip(FEN), rates(64_000, 32_000))
    );
    assert_eq!(message.body.unwrap().flow.classifier.src, first.ends.src);
    rig.echo(&first, |_| {});
    let expected =
        Event::Reserved { rates: rates(64_000, 32_000), refresh: 30, loops: 1, path: Path::default() };
    assert_eq!(rig.events, [(1, expected)]);
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000)], "its own link");
}

/// BOOM-G4-02: the Router Alert can be switched off. BOOM-G29-05: with IPv6 it needs a configured value.
#[test]
fn a_router_alert_is_a_setting() {
    let mut rig = Rig::with(Config { router_alert: false, ..Config::default() });
    assert!(open(&mut rig, wish()).options.is_empty());
    let v6 = || Request { far_end: ip("2001:db8:1::2"), ..wish() };
    assert!(open(&mut Rig::new(), v6()).options.is_empty());
    let mut rig = Rig::with(Config { router_alert_v6: Some(65_503), ..Config::default() });
    assert_eq!(open(&mut rig, v6()).options, [58, 0, 5, 2, 0xff, 0xdf, 1, 0]);
}

/// BOOM-2.1-01, BOOM-3.2.1-03, BOOM-3.2.1-02, BOOM-F4.2-11, BOOM-G14-03, BOOM-F5.7.1-01: refreshes come at least once an
/// interval, at 0.8 to 1 of it.
#[test]
fn refreshes_are_spread_below_the_interval() {
    let mut rig = Rig::new();
    let mut last = reserved(&mut rig);
    let mut gaps = BTreeSet::new();
    for _ in 0..200 {
        let before = rig.now;
        let mut sent = Vec::new();
        while sent.is_empty() {
            sent = rig.wait(seconds(0.5));
        }
        gaps.insert(rig.now.since(before).as_millis());
        last = sent.remove(0);
        rig.echo(&last, |_| {});
    }
    assert!(gaps.iter().all(|gap| (24_000..=30_500).contains(gap)), "{gaps:?}");
    assert!(gaps.len() > 8 && rig.events.len() == 1);
    assert_eq!(last.rates(), rates(64_000, 32_000));
}

/// BOOM-F4.2-08, BOOM-F4.2-09, BOOM-F4.1.1-01, BOOM-2.1-04: an interval that the path shortened is used from then on.
#[test]
fn the_interval_of_the_reply_is_used() {
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    rig.echo(&first, |octets| edit::set_refresh(octets, 10));
    assert!(matches!(rig.last_event(), Event::Reserved { refresh: 10, .. }));
    let sent = rig.wait(seconds(10.1));
    assert_eq!(sent[0].message().refresh, 10);
}

/// BOOM-G16-01, BOOM-2.1-03, BOOM-F4.2.1-01, BOOM-F4.2.1-02: replies are waited for 1, 2 and 4 s; then a release is sent.
/// BOOM-G16-02, BOOM-G34-01: each send has a new transaction.
#[test]
fn without_reply_a_session_fails() {
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    let mut sent = vec![first];
    for wait in [1.0, 2.0] {
        assert_eq!(rig.wait(seconds(wait - 0.03)), []);
        sent.extend(rig.wait(seconds(0.04)));
    }
    assert_eq!((sent.len(), rig.events.len()), (3, 0));
    let release = rig.wait(seconds(4.1));
    assert!(release[0].rates().is_zero());
    assert_eq!(rig.events, [(1, Event::Unanswered)]);
    let transactions: BTreeSet<u32> = sent.iter().map(|one| one.message().transaction).collect();
    assert_eq!(transactions.len(), 3);
    assert!(transactions.first().unwrap() >> 16 != 0, "the first is drawn at random");
    let sequences: Vec<u16> = sent.iter().map(|one| one.message().sequence).collect();
    assert_eq!(sequences[2], sequences[0].wrapping_add(2));
    rig.wait(seconds(60.0));
    assert_eq!((rig.node.session_count(), rig.node.flow_count()), (0, 0));
}

/// BOOM-G16-02: a reply to any of the sends counts.
#[test]
fn a_late_reply_counts() {
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    assert_eq!(rig.wait(seconds(1.1)).len(), 1);
    rig.echo(&first, |_| {});
    assert!(matches!(rig.last_event(), Event::Reserved { .. }));
}

/// BOOM-F4.2-10, BOOM-G17-02: a refused set-up is released at once, and the user gets the offer, the node and the reason.
/// BOOM-G9-02: NACK or a KEY of 0 alone is a refusal.
#[test]
fn a_refused_set_up_is_released() {
    for (nack, key) in [(1, 0), (1, 1), (0, 0)] {
        let mut rig = Rig::new();
        let first = open(&mut rig, wish());
        let release = rig.echo(&first, |octets| {
            octets[19] = nack;
            edit::set_key(octets, key);
            octets[64..68].copy_from_slice(&48_000_u32.to_be_bytes());
            octets.extend([0x80, 1, 0, 0, 203, 0, 113, 9, 1, 0, 0, 0]);
        });
        assert!(release[0].rates().is_zero(), "{nack} {key}");
        let Event::Refused(refusal) = rig.last_event() else { panic!("{:?}", rig.events) };
        assert_eq!(
            (refusal.offer, refusal.node, refusal.reason),
            (rates(48_000, 32_000), Some(ip("203.0.113.9")), Reason::Resources)
        );
        rig.echo(&release[0], |_| {});
        assert_eq!((rig.node.session_count(), rig.node.flow_count()), (0, 0));
    }
}

/// BOOM-G36-02: the link of this node is a part of the path.
#[test]
fn the_own_link_can_refuse() {
    let mut rig = Rig::new();
    let first = open(&mut rig, Request { rates: vec![rates(999_000, 0)], ..wish() });
    assert!(first.message().is_refused());
    rig.echo(&first, |_| {});
    let Event::Refused(refusal) = rig.last_event() else { panic!() };
    assert_eq!((refusal.offer.forward, refusal.node), (200_000, Some(ip("198.51.100.1"))));
}

/// BOOM-3.2.1-13, BOOM-F3.4-01, BOOM-G10-05, BOOM-G11-01: a larger KEY is sent again; refreshes and release keep it.
#[test]
fn a_larger_key_is_confirmed() {
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    let second = rig.echo(&first, |octets| edit::set_key(octets, 35));
    assert_eq!((second[0].message().key, rig.events.len()), (35, 0));
    rig.echo(&second[0], |_| {});
    assert!(matches!(rig.last_event(), Event::Reserved { loops: 2, .. }));
    assert_eq!(rig.wait(seconds(30.0))[0].message().key, 35);
    assert_eq!(rig.command(1, Command::Close)[0].message().key, 35);
}

/// BOOM-G10-05: a path that always multiplies is given up after eight loops.
#[test]
fn an_endless_locker_is_given_up() {
    let mut rig = Rig::new();
    let mut last = open(&mut rig, wish());
    for loops in 1..=7 {
        let key = last.message().key * 3;
        last = rig.echo(&last, |octets| edit::set_key(octets, key)).remove(0);
        assert!(!last.rates().is_zero(), "{loops}");
    }
    let key = last.message().key * 3;
    let release = rig.echo(&last, |octets| edit::set_key(octets, key));
    assert!(release[0].rates().is_zero());
    assert_eq!(rig.events, [(1, Event::Unanswered)]);
}

/// BOOM-G10-06, BOOM-G38-03, BOOM-3.1-03, BOOM-G30-03: replies with another transaction, flow, source or KEY are dropped.
#[test]
fn a_reply_must_be_that_of_the_request() {
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    rig.echo(&first, |octets| octets[15] ^= 1);
    rig.echo(&first, |octets| octets[40] ^= 1);
    let confirmed = |rig: &mut Rig, from: &Sent, key| rig.echo(from, |octets| edit::set_key(octets, key));
    let second = confirmed(&mut rig, &first, 6).remove(0);
    confirmed(&mut rig, &second, 7);
    let forged = Sent {
        ends: signalbox_boomerang::wire::Ends { dst: ip("198.51.100.9"), ..second.ends },
        ..second.clone()
    };
    rig.echo(&forged, |_| {});
    rig.echo(&second, |octets| octets.truncate(60));
    assert_eq!(rig.events, []);
    let counted = rig.node.counters();
    assert_eq!((counted.unexpected_replies, counted.invalid_replies, counted.unknown), (1, 3, 1));
    rig.echo(&second, |_| {});
    assert_eq!(rig.events.len(), 1);
}

/// BOOM-P-01: other rates are a change. BOOM-G17-03: after a refused change the former rates are sent at once.
#[test]
fn a_reservation_is_changed() {
    let mut rig = Rig::new();
    reserved(&mut rig);
    let change = rig.command(1, Command::Change(rates(96_000, 0)));
    rig.echo(&change[0], |_| {});
    assert!(matches!(rig.last_event(), Event::Reserved { rates: now, .. } if *now == rates(96_000, 0)));
    let change = rig.command(1, Command::Change(rates(128_000, 0)));
    let back = rig.echo(&change[0], |octets| edit::refuse(octets, Default::default()));
    assert_eq!(back[0].rates(), rates(96_000, 0));
    assert!(matches!(rig.last_event(), Event::ChangeRefused(_)));
    rig.echo(&back[0], |_| {});
    assert_eq!(rig.node.session_count(), 1);
}

/// BOOM-P-02: a session is released when its user closes it; the release is repeated until it returns.
#[test]
fn a_session_is_closed() {
    let mut rig = Rig::new();
    reserved(&mut rig);
    let release = rig.command(1, Command::Close);
    assert!(release[0].rates().is_zero());
    assert_eq!(rig.last_event(), &Event::Closed { confirmed: false });
    let again = rig.wait(seconds(1.1));
    assert!(again[0].rates().is_zero());
    rig.echo(&again[0], |_| {});
    assert_eq!((rig.node.session_count(), rig.node.flow_count()), (0, 0));
    assert_eq!(rig.wait(seconds(60.0)), []);
}

/// BOOM-G20-03: refreshes carry the list that came back.
#[test]
fn a_list_is_refreshed_as_it_came_back() {
    let mut rig = Rig::new();
    let list = vec![rates(128_000, 0), rates(64_000, 0)];
    let first = open(&mut rig, Request { rates: list, ..wish() });
    rig.echo(&first, |octets| octets[68..72].copy_from_slice(&64_000_u32.to_be_bytes()));
    assert!(matches!(rig.last_event(), Event::Reserved { rates: now, .. } if now.forward == 64_000));
    assert_eq!(rig.reserved()[0].2, 128_000, "the own link holds more until the refresh");
    assert_eq!(rig.wait(seconds(30.0))[0].rates(), rates(64_000, 0));
    assert_eq!(rig.reserved()[0].2, 64_000);
}

/// BOOM-F3.3.1-01, BOOM-F1-01, BOOM-G43-01: the receiver of the data, or another node, can initiate.
#[test]
fn the_flow_may_be_that_of_others() {
    let mut rig = Rig::new();
    let wish = Request {
        src: Some(ip("10.1.0.1")),
        dst: Some(ip("10.2.0.2")),
        rates: vec![rates(0, 9000)],
        ..wish()
    };
    let first = open(&mut rig, wish);
    let flow = first.message().body.unwrap().flow;
    assert_eq!((flow.classifier.src, flow.classifier.dst), (ip("10.1.0.1"), ip("10.2.0.2")));
    rig.echo(&first, |_| {});
    assert!(matches!(rig.last_event(), Event::Reserved { .. }));
}

/// BOOM-3.2.3-07: what cannot be asked for is rejected.
#[test]
fn impossible_requests_are_rejected() {
    let mut rig = Rig::new();
    for (request, why) in [
        (Request { rates: vec![rates(1, 1), rates(2, 1)], ..wish() }, Rejected::Rates),
        (Request { rates: vec![], ..wish() }, Rejected::Rates),
        (Request { rates: vec![rates(0, 0)], ..wish() }, Rejected::Rates),
        (Request { protocol: None, ..wish() }, Rejected::Ports),
        (Request { far_end: ip("0.0.0.0"), ..wish() }, Rejected::Address),
        (Request { src: Some(ip("::1")), ..wish() }, Rejected::Address),
        (Request { refresh: Some(0), ..wish() }, Rejected::Refresh),
        (Request { dscp: 64, ..wish() }, Rejected::Dscp),
    ] {
        assert_eq!(rig.command(1, Command::Open(request)), []);
        assert_eq!(rig.events.pop(), Some((1, Event::Rejected(why))));
    }
    rig.routes.insert(ip(FEN), 0);
    assert_eq!(rig.command(1, Command::Open(wish())), []);
    assert_eq!(rig.events.pop(), Some((1, Event::Rejected(Rejected::NoRoute))));
    assert_eq!(rig.command(1, Command::Close), []);
    assert_eq!(rig.events.pop(), Some((1, Event::Rejected(Rejected::NoSession))));
    assert_eq!(rig.node.session_count(), 0);
}

/// BOOM-F3.5-03: after a change of routes the next message looks the route up, and reserves where it leaves.
#[test]
fn a_refresh_follows_the_present_route() {
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    rig.echo(&first, |_| {});
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000)]);
    let lookups = rig.lookups;
    rig.routes.insert(ip(FEN), 3);
    rig.input(Input::RouteChanged(Prefix::host(ip(FEN))));
    let refresh = rig.wait(seconds(30.0)).pop().unwrap();
    rig.echo(&refresh, |_| {});
    assert_eq!((rig.reserved(), rig.lookups), (vec![(Pass::Request, 3, 64_000)], lookups + 1));
    // Without a route the message counts as lost, and after three of them the session is.
    rig.routes.insert(ip(FEN), 0);
    rig.input(Input::RouteChanged(Prefix::host(ip(FEN))));
    assert_eq!(rig.wait(seconds(40.0)), []);
    assert_eq!(rig.last_event(), &Event::Unanswered);
}

/// Another router takes over the address of the gateway: the sessions whose packets go there are refreshed at once, others are not. Who
/// forges that all the time makes a session refresh once in five seconds, and ends nothing.
#[test]
fn a_gateway_whose_place_another_router_has_gets_a_refresh_at_once() {
    let mut rig = Rig::new();
    rig.gateway = Some(ip(NODE));
    reserved(&mut rig);
    rig.wait(seconds(6.0));
    let moved = |n, address| Input::NeighborMoved { ifindex: IfIndex(n), address: ip(address) };
    rig.sent.clear();
    for other in [moved(1, NODE), moved(2, FEN), moved(9, NODE)] {
        rig.input(other);
    }
    assert_eq!((rig.wait(seconds(1.0)).len(), rig.node.counters().neighbors_followed), (0, 0));
    rig.input(moved(2, NODE));
    let mut sent = rig.sent.clone();
    sent.extend(rig.wait(seconds(0.1)));
    let refresh = sent.remove(0);
    assert_eq!((refresh.rates(), rig.node.counters().neighbors_followed), (rates(64_000, 32_000), 1));
    rig.echo(&refresh, |_| {});
    let mut refreshes = 0;
    for _ in 0..110 {
        rig.sent.clear();
        rig.input(moved(2, NODE));
        let mut sent = rig.sent.clone();
        sent.extend(rig.wait(seconds(0.1)));
        for one in &sent {
            rig.echo(one, |_| {});
        }
        refreshes += sent.len();
    }
    assert_eq!((refreshes, rig.node.session_count(), rig.events.len()), (2, 1, 1));
}

/// A KEY without room for the numbers of the present path is given up, and the proof begins again.
#[test]
fn a_full_key_begins_again() {
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    let second = rig.echo(&first, |octets| edit::set_key(octets, 35));
    rig.echo(&second[0], |_| {});
    let refresh = rig.wait(seconds(30.0)).remove(0);
    let refuse = |octets: &mut Vec<u8>| {
        edit::refuse(octets, Default::default());
        edit::append(octets, &Known::Refusal(Refusal { address: ip(NODE), cause: Reason::KeyFull.number() }));
    };
    let again = rig.echo(&refresh, refuse);
    assert_eq!((again[0].message().key, rig.events.len()), (1, 1));
    let confirmed = rig.echo(&again[0], |octets| edit::set_key(octets, 55));
    rig.echo(&confirmed[0], |_| {});
    assert_eq!(rig.events.len(), 1, "nothing changed for the user");
    // A KEY that holds no number has room: then the refusal stands.
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    rig.echo(&first, refuse);
    assert!(matches!(rig.last_event(), Event::Refused(_)));
}

/// What a node adds to its refusal is for people, without control characters. Without the node it belongs to nobody.
#[test]
fn the_user_gets_the_rule() {
    for (refused, note) in [(true, Some("rule 2 'a'[31m".to_owned())), (false, None)] {
        let mut rig = Rig::new();
        let first = open(&mut rig, wish());
        rig.echo(&first, |octets| {
            edit::refuse(octets, Default::default());
            let refusal = Refusal { address: ip(NODE), cause: Reason::Policy.number() };
            refused.then(|| edit::append(octets, &Known::Refusal(refusal)));
            edit::append(octets, &Known::Note(Note::of("rule 2 'a'\u{1b}[31m")));
        });
        let Event::Refused(refusal) = rig.last_event() else { panic!("{:?}", rig.events) };
        assert_eq!(refusal.note, note);
    }
}

/// BOOM-G18-01: a query has both signs of a refusal. Nothing is reserved, also not here, and the answer has the least of the
/// path.
#[test]
fn a_query_reserves_nothing() {
    let mut rig = Rig::new();
    let sent = rig.command(1, Command::Query(Request { rates: vec![rates(900_000, 0)], ..wish() })).remove(0);
    let message = sent.message();
    assert_eq!((message.flags.0, message.key, sent.rates()), (1, 0, rates(200_000, 0)));
    assert_eq!(rig.node.flow_count(), 0);
    rig.echo(&sent, |octets| edit::set_octets(octets, 64, 48_000_u32.to_be_bytes()));
    assert_eq!(rig.events, [(1, Event::Available(rates(48_000, 0)))]);
    assert_eq!(rig.node.session_count(), 0);
    assert_eq!(rig.wait(seconds(60.0)), []);
    rig.command(2, Command::Query(wish()));
    let repeated = rig.wait(seconds(60.0));
    assert_eq!((repeated.len(), rig.last_event()), (2, &Event::Unanswered), "there is nothing to release");
    assert_eq!(rig.node.session_count(), 0);
}

/// The source of the requests is the address that routing chooses.
#[test]
fn routing_chooses_the_source() {
    let mut rig = Rig::new();
    rig.source = ip("198.51.100.77");
    let sent = open(&mut rig, wish());
    assert_eq!(sent.ends.src, ip("198.51.100.77"));
    assert_eq!(sent.message().body.unwrap().flow.classifier.src, ip("198.51.100.77"));
}

/// BOOM-G26-04: an aggregation option that a node on the path added does not come back in the next request.
#[test]
fn a_refresh_has_no_option_of_an_aggregate() {
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    let flow = first.message().body.unwrap().flow;
    let (address, transaction) = (ip("192.0.2.77"), 5);
    let added = Known::Aggregation(Aggregation { address, transaction, flow, rate: 192_000 });
    rig.echo(&first, |octets| edit::append(octets, &added));
    assert_eq!(rig.events.len(), 1, "the reply counts");
    let refresh = rig.wait(seconds(30.1)).remove(0);
    assert!(
        refresh
            .message()
            .body
            .unwrap()
            .options
            .iter()
            .all(|one| one.option.kind() != OptionType::AGGREGATION)
    );
}

/// A user who asked for it gets the last event when the path has answered the release, or does not answer.
#[test]
fn a_release_is_confirmed() {
    let wish = || Request { confirm_release: true, ..wish() };
    for answered in [true, false] {
        let mut rig = Rig::new();
        let sent = rig.command(1, Command::Open(wish())).remove(0);
        rig.echo(&sent, |_| {});
        let release = rig.command(1, Command::Close).remove(0);
        assert!(matches!(rig.last_event(), Event::Reserved { .. }), "it waits");
        rig.command(1, Command::Change(rates(1000, 0)));
        assert_eq!(rig.last_event(), &Event::Rejected(Rejected::NoSession));
        if answered {
            rig.echo(&release, |_| {});
        } else {
            rig.wait(seconds(8.0));
        }
        assert_eq!(rig.last_event(), &Event::Closed { confirmed: answered });
        assert_eq!((rig.node.session_count(), rig.node.flow_count()), (0, 0));
    }
    // Who closes twice does not wait.
    let mut rig = Rig::new();
    let sent = rig.command(1, Command::Open(wish())).remove(0);
    rig.echo(&sent, |_| {});
    rig.command(1, Command::Close);
    rig.command(1, Command::Close);
    assert_eq!(rig.last_event(), &Event::Closed { confirmed: false });
}

/// Many requests have no answer at one moment. One input handles a part of them, and the rest stays due.
#[test]
fn timers_that_are_due_together_are_handled_in_parts() {
    let mut rig = Rig::new();
    for n in 0..600_u16 {
        rig.command(n.into(), Command::Open(Request { src_port: Some(5000 + n), ..wish() }));
    }
    rig.now = rig.now + seconds(1.5);
    let mut repeated = Vec::new();
    while rig.node.next_deadline().is_some_and(|next| next <= rig.now) {
        rig.sent.clear();
        rig.input(Input::Timer);
        repeated.push(rig.sent.len());
    }
    repeated.retain(|sent| *sent > 0);
    assert_eq!(repeated, [256, 256, 88]);
}

/// On the path a reservation has the name of its flow: a second user with the same flow would change it, and end it when he leaves.
#[test]
fn a_flow_belongs_to_the_first_user_who_asks_for_it() {
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    rig.echo(&first, |_| {});
    assert_eq!(rig.command(2, Command::Open(Request { rates: vec![rates(1000, 0)], ..wish() })), []);
    assert_eq!(rig.events.pop(), Some((2, Event::Rejected(Rejected::FlowTaken))));
    // A query reserves nothing.
    assert_eq!(rig.command(2, Command::Query(wish())).len(), 1);
    rig.command(2, Command::Close);
    // The flow is free when its user leaves, although the release has no answer yet.
    assert_eq!(rig.command(1, Command::Close).len(), 1);
    let third = rig.command(3, Command::Open(wish()));
    assert_eq!(third.len(), 1, "{:?}", rig.events);
    rig.echo(&third[0], |_| {});
    assert!(matches!(rig.last_event(), Event::Reserved { .. }));
    assert_eq!(rig.wait(seconds(8.0)).iter().filter(|sent| sent.rates() == rates(0, 0)).count(), 0);
    assert_eq!(rig.node.session_count(), 1);
}

/// What a reply proves by options is returned in each request that follows, also after the option of a node that left the path.
#[test]
fn proofs_of_return_are_returned() {
    let proof = |node| Known::ReturnProof(ReturnProof { node, number: 7 });
    let mut rig = Rig::new();
    let first = open(&mut rig, wish());
    assert!(first.proofs().is_empty());
    let add = |octets: &mut Vec<u8>| {
        edit::append(octets, &proof(1));
        edit::append_with(octets, OF_REPLY, &proof(2));
    };
    let second = rig.echo(&first, add).remove(0);
    let numbers = second.proofs();
    assert_eq!(
        numbers.iter().map(|(flags, proof)| (*flags, proof.node)).collect::<Vec<_>>(),
        [(0, 1), (OF_REPLY, 2)]
    );
    assert!(rig.events.is_empty());
    assert!(rig.echo(&second, |_| {}).is_empty());
    assert!(matches!(rig.last_event(), Event::Reserved { loops: 2, .. }));
    let refresh = rig.wait(seconds(30.0)).remove(0);
    assert_eq!(refresh.proofs(), numbers);
    // Another number is confirmed at once.
    let confirmed = rig.echo(&refresh, |octets| {
        let end = octets.len();
        octets[end - 1] = 9;
    });
    assert_eq!(confirmed[0].proofs()[1].1.number, 9);
    rig.echo(&confirmed[0], |_| {});
    // A node that takes the number for a wrong one is shown none.
    let refresh = rig.wait(seconds(30.0)).remove(0);
    let again = rig.echo(&refresh, |octets| {
        edit::refuse(octets, Default::default());
        edit::append(
            octets,
            &Known::Refusal(Refusal { address: ip(NODE), cause: Reason::WrongProof.number() }),
        );
    });
    assert!(again[0].proofs().is_empty() && !again[0].message().is_refused());
    rig.echo(&again[0], add);
    assert_eq!(rig.events.len(), 1, "nothing changed for the user");
    let release = rig.command(1, Command::Close).remove(0);
    assert_eq!(release.proofs(), numbers);
}
