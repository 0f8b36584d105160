//! Lifetimes and refreshes.

use std::time::Duration;

use signalbox_casp::clients::natfw::{NatfwEvent, NatfwRequest};
use signalbox_casp::wire::natfw::{NatfwFilter, NatfwMessage, NatfwStatus, NatfwType, NatfwValue};
use signalbox_core::pinhole::PinholeError;
use signalbox_core::{SessionId, Time};
use signalbox_resources::config::{Action, Opening, RuleConfig};

use crate::rig::{Node, Packet, Rig, at, filter, flow, open_policy, wants_response};

/// CASPMID-2-07, CASPMID-2-06, CASPMID-12-01: the rules end after LIFETIME, or after the lifetime of the session without it.
#[test]
fn rules_end_without_refresh() {
    for (lifetime, seconds) in [(None, 90), (Some(40), 40)] {
        let mut rig = Rig::open(3);
        let mut values = vec![NatfwValue::MsgId(5), NatfwValue::Age(1)];
        values.extend(lifetime.map(NatfwValue::Lifetime));
        rig.inject(0, 1, NatfwType::CREATE, &values);
        rig.wait(Duration::from_secs(seconds - 1));
        assert_eq!(rig.passes(1).len(), 1);
        rig.wait(Duration::from_secs(2));
        assert!(rig.nodes[1].rules.is_empty());
        assert_eq!(rig.nodes[1].client.counters().expired, 1);
        assert_eq!(rig.nodes[1].resources.passage_count(), 0);
    }
}

/// CASPMID-2-08, CASPMID-9.7-01: the initiator refreshes at a third of the lifetime, from half to one and a half times that,
/// with an unchanged stamp.
#[test]
fn the_initiator_refreshes() {
    let mut rig = Rig::open(3);
    let request = NatfwRequest { lifetime: Some(60), ..rig.request(false) };
    rig.nodes[0].client.open(rig.now, 1, &request);
    rig.run();
    let mut last = rig.now;
    let age = rig.last(1, NatfwType::CREATE).age();
    let mut gaps = Vec::new();
    for _ in 0..20_000 {
        rig.seen.clear();
        rig.wait(Duration::from_millis(100));
        if let Some(one) = rig.seen.iter().find(|one| one.to == 1 && one.kind() == NatfwType::CREATE) {
            assert_eq!(one.age(), age);
            gaps.push(rig.now.since(last));
            last = rig.now;
        }
    }
    assert!(gaps.len() > 80, "{}", gaps.len());
    let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
    assert!(*least >= Duration::from_millis(9_900) && *least < Duration::from_secs(13), "{least:?}");
    assert!(*most <= Duration::from_millis(30_200) && *most > Duration::from_secs(27), "{most:?}");
    assert_eq!(rig.passes(1), [flow(3).filter()]);
}

/// CASPMID-A-17: a firewall lowers the lifetime by its policy, never raises it, and the next node gets the lowered one.
/// CASPMID-A-14: it is never longer than that of the session.
#[test]
fn a_firewall_lowers_the_lifetime() {
    let policy = |n| {
        let mut config = open_policy();
        let most = if n == 1 { Some("30s".parse().unwrap()) } else { None };
        config.rules = vec![RuleConfig { max_lifetime: most, ..config.rules[0].clone() }];
        config
    };
    let mut rig = Rig::with(4, &policy, &|_, config| config);
    let create = |msg_id, lifetime| {
        [NatfwValue::MsgId(msg_id), NatfwValue::Age(msg_id), NatfwValue::Lifetime(lifetime), wants_response()]
    };
    rig.inject(0, 1, NatfwType::CREATE, &create(1, 60));
    assert_eq!(rig.last(2, NatfwType::CREATE).lifetime(), Some(30));
    assert_eq!(rig.last(3, NatfwType::CREATE).lifetime(), Some(30));
    rig.inject(0, 1, NatfwType::CREATE, &create(2, 20));
    assert_eq!(rig.last(2, NatfwType::CREATE).lifetime(), Some(20));
    rig.wait(Duration::from_secs(21));
    assert!(rig.passes(1).is_empty());
    let mut rig = Rig::open(3);
    rig.inject(0, 1, NatfwType::CREATE, &create(1, 4_000));
    assert_eq!(rig.last(2, NatfwType::CREATE).lifetime(), Some(90));
}

/// A refresh that is lost, or whose answer is, is sent again before the rules expire, also when they live shortly. A path that answers
/// nothing gets few requests, and the user is informed when the rules have expired.
#[test]
fn a_refresh_without_an_answer_is_repeated() {
    for (lifetime, deaf) in [(20, 0), (30, 0), (90, 0), (20, 2), (30, 2), (60, 2), (90, 2)] {
        let mut rig = Rig::open(4);
        let request = NatfwRequest { lifetime: Some(lifetime), ..rig.request(false) };
        rig.nodes[0].client.open(rig.now, 1, &request);
        rig.run();
        rig.clear();
        let requests = |rig: &Rig| rig.kinds(1).iter().filter(|kind| **kind == NatfwType::CREATE).count();
        for round in 0..16 {
            rig.deaf = (round % 2 == 0).then_some(deaf);
            rig.seen.clear();
            while requests(&rig) == 0 {
                rig.wait(Duration::from_millis(100));
                assert_eq!([1, 2].map(|n| rig.passes(n).len()), [1, 1], "{lifetime} {deaf} {round}");
            }
        }
        let lost = |event: &NatfwEvent| matches!(event, NatfwEvent::Lost { .. });
        assert!(!rig.events(0).iter().any(lost), "{:?}", rig.events(0));
        if deaf == 0 {
            assert_eq!(rig.events(0), []);
        }
        rig.deaf = Some(0);
        rig.seen.clear();
        rig.wait(Duration::from_secs(u64::from(lifetime) + 2));
        assert!((2..=12).contains(&requests(&rig)), "{lifetime} {deaf} {}", requests(&rig));
        let status = NatfwStatus::NOT_DELIVERED;
        assert_eq!(rig.events(0).last(), Some(&NatfwEvent::Lost { status, node: None }));
    }
}

/// A path that grants rules for a second gets one request a second from each host, and not three.
#[test]
fn rules_that_live_shortly_make_few_requests() {
    for by_receiver in [false, true] {
        let policy = |_| {
            let mut config = open_policy();
            config.rules[0].max_lifetime = Some("1s".parse().unwrap());
            config
        };
        let mut rig = Rig::with(4, &policy, &|_, config| config);
        rig.accept();
        rig.ask(by_receiver);
        let opened = |event: &NatfwEvent| matches!(event, NatfwEvent::Opened { lifetime: 1, .. });
        assert!(rig.events(0).iter().any(opened), "{:?}", rig.events(0));
        let kind = if by_receiver { NatfwType::PATH } else { NatfwType::CREATE };
        rig.clear();
        rig.wait(Duration::from_secs(30));
        let requests = rig.kinds(1).iter().filter(|one| **one == kind).count();
        assert!((15..=30).contains(&requests), "{by_receiver} {requests}");
    }
}

/// The rules end when no request comes any more. A refresh of the session alone is no request: it does not reach the client
/// (tests/script/lifetime.rs).
#[test]
fn only_requests_refresh_rules() {
    let mut rig = Rig::standing(3, false);
    rig.deaf = Some(1);
    rig.wait(Duration::from_secs(91));
    assert!(rig.nodes[1].rules.is_empty());
}

fn ntp(now: Time, seconds: u64) -> u64 {
    (now.as_micros() / 1_000_000 + 1_700_000_000 + 2_208_988_800 + seconds) << 32
}

/// CASPMID-9.6-01, CASPMID-9.6-03: with TIME the rules begin later, and their lifetime too. CASPMID-9.6-02: not next year.
#[test]
fn rules_begin_later() {
    let mut rig = Rig::open(3);
    let create = |msg_id, time| {
        [
            NatfwValue::MsgId(msg_id),
            NatfwValue::Age(1),
            NatfwValue::Lifetime(30),
            NatfwValue::Time(time),
            wants_response(),
        ]
    };
    let late = ntp(rig.now, 31_536_000);
    rig.inject(0, 1, NatfwType::CREATE, &create(4, late));
    assert_eq!(rig.status(0), NatfwStatus::TIME);
    let soon = ntp(rig.now, 20);
    rig.inject(0, 1, NatfwType::CREATE, &create(5, soon));
    assert_eq!(rig.kinds(2), [NatfwType::CREATE]);
    rig.wait(Duration::from_secs(19));
    assert!(rig.passes(1).is_empty());
    rig.wait(Duration::from_secs(2));
    assert_eq!(rig.passes(1).len(), 1);
    rig.wait(Duration::from_secs(28));
    assert_eq!(rig.passes(1).len(), 1);
    rig.wait(Duration::from_secs(2));
    assert!(rig.passes(1).is_empty());
}

/// The kernel refuses what a second CREATE asks for: the rules of the first one begin at their time all the same, not before.
#[test]
fn a_change_that_fails_leaves_rules_that_begin_later() {
    let mut rig = Rig::open(3);
    let time = NatfwValue::Time(ntp(rig.now, 20));
    rig.inject(0, 1, NatfwType::CREATE, &[NatfwValue::MsgId(5), NatfwValue::Age(1), time]);
    rig.nodes[1].kernel = Err(PinholeError::Failed);
    let other = NatfwValue::Filter(NatfwFilter { dst_ports: vec![(600, 601)], ..filter(3) });
    rig.inject(0, 1, NatfwType::CREATE, &[NatfwValue::MsgId(6), NatfwValue::Age(2), other]);
    assert_eq!(rig.status(0), NatfwStatus::RESOURCES);
    rig.nodes[1].kernel = Ok(());
    rig.wait(Duration::from_secs(19));
    assert!(rig.passes(1).is_empty());
    rig.wait(Duration::from_secs(2));
    assert_eq!(rig.passes(1), [flow(3).filter()]);
}

/// What ends at one time ends in parts, so that messages have their turn in between.
#[test]
fn many_sessions_end_in_parts() {
    let (mut rig, mut data) = (Rig::open(3), Vec::new());
    NatfwMessage::compose(NatfwType::CREATE, &[NatfwValue::MsgId(5), NatfwValue::Age(1)], &mut data).unwrap();
    for n in 0..600u128 {
        let (session, data) = (SessionId((n + 1000).to_be_bytes()), data.clone());
        rig.carry(Packet { session, flow: flow(3), reverse: false, to: 1, from: 0, hops: 1, data });
    }
    assert_eq!(rig.passes(1).len(), 600);
    rig.now = rig.now + Duration::from_secs(100);
    let mut left = || {
        let Node { client, resources, .. } = &mut rig.nodes[1];
        client.timer(rig.now, resources);
        (client.sessions(), client.next_deadline().is_some_and(|at| at <= rig.now))
    };
    assert_eq!([left(), left(), left()], [(344, true), (88, true), (0, false)]);
}

/// CASPMID-12-03: a firewall that comes onto the path has the rules after the next refresh.
#[test]
fn a_new_firewall_gets_the_rules_by_a_refresh() {
    let mut rig = Rig::standing(4, false);
    let mut other = Rig::open(4);
    rig.nodes[2] = other.nodes.remove(2);
    assert!(rig.passes(2).is_empty());
    rig.wait(Duration::from_secs(45));
    assert_eq!(rig.passes(2), [flow(4).filter()]);
}

/// CASP-P-07: requests come from the end that asks; firewalls refresh nothing by themselves.
#[test]
fn firewalls_make_no_refresh() {
    let mut rig = Rig::standing(4, false);
    rig.wait(Duration::from_secs(600));
    let count = |n| rig.kinds(n).iter().filter(|kind| **kind == NatfwType::CREATE).count();
    assert!(count(1) > 10);
    assert_eq!((count(1), count(1)), (count(2), count(3)));
}

/// T25: rules may be for an hour. A refresh is judged by the time at which it comes, and rules that begin later by the time at which
/// they begin.
#[test]
fn what_goes_on_and_what_begins_is_judged_by_the_hour() {
    let hours = Some("00:01-01:00".parse().unwrap());
    let opens = vec![Opening::Outward];
    let deny = RuleConfig { opens, hours, ..RuleConfig::new("", Action::Deny) };
    let policy = signalbox_resources::Config { rules: vec![deny], ..signalbox_resources::Config::default() };
    let rig = || Rig::with(3, &|_| policy.clone(), &|_, config| config);
    let mut standing = rig();
    standing.now = Time::from_secs(50);
    let create = |msg_id| [NatfwValue::MsgId(msg_id), NatfwValue::Age(1), NatfwValue::Lifetime(30)];
    standing.inject(0, 1, NatfwType::CREATE, &create(4));
    standing.wait(Duration::from_secs(9));
    standing.inject(0, 1, NatfwType::CREATE, &create(5));
    assert_eq!(standing.passes(1).len(), 1);
    standing.wait(Duration::from_secs(2));
    standing.inject(0, 1, NatfwType::CREATE, &create(6));
    assert_eq!((standing.status(0), standing.passes(1).len()), (NatfwStatus::POLICY, 0));
    // Who asked learns at once that its passage has ended, and where.
    let mut held = rig();
    held.now = Time::from_secs(50);
    held.ask(false);
    assert!(matches!(held.events(0).last(), Some(NatfwEvent::Opened { .. })), "{:?}", held.events(0));
    held.clear();
    held.wait(Duration::from_secs(120));
    assert_eq!(held.events(0), [NatfwEvent::Lost { status: NatfwStatus::POLICY, node: Some(at(1)) }]);
    let mut later = rig();
    later.now = Time::from_secs(50);
    let time = NatfwValue::Time(ntp(later.now, 20));
    later.inject(0, 1, NatfwType::CREATE, &[NatfwValue::MsgId(4), NatfwValue::Age(1), time]);
    later.wait(Duration::from_secs(22));
    assert_eq!((later.status(0), later.passes(1).len()), (NatfwStatus::POLICY, 0));
}
