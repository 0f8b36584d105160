//! The sender of the data asks (CREATE along the flow).

use std::time::Duration;

use signalbox_casp::clients::natfw::{NatfwEvent, NatfwRequest};
use signalbox_casp::engine::Indication;
use signalbox_casp::wire::natfw::{
    NatfwMessage, NatfwObject, NatfwStatus, NatfwType, NatfwValue, REACHED, Tlvs,
};
use signalbox_core::pinhole::PinholeError;
use signalbox_core::traffic::FlowFilter;
use signalbox_resources::config::{Action, Opening, RuleConfig};

use crate::rig::{FIRST, LIFETIME, Packet, Rig, at, filter, flow, open_policy, wants_response};

/// CASPMID-1-01, CASPMID-10.2-01, CASPMID-7-08, CASPMID-6-07, CASPMID-A-15: CREATE opens each firewall of the path before
/// it goes on, and the answer of the destination returns over the same nodes.
#[test]
fn a_sender_opens_all_firewalls() {
    let mut rig = Rig::open(4);
    rig.ask(false);
    assert_eq!(rig.passes(1), [flow(4).filter()]);
    assert_eq!(rig.passes(2), [flow(4).filter()]);
    assert_eq!(rig.kinds(1), [NatfwType::CREATE, NatfwType::RESPONSE]);
    assert!(!rig.last(3, NatfwType::CREATE).reverse);
    assert!(rig.last(0, NatfwType::RESPONSE).reverse);
    assert!(matches!(rig.events(0).last(), Some(NatfwEvent::Opened { lifetime: LIFETIME, nat: None })));
}

/// CASPMID-6-08, CASPMID-9.8-02, CASPMID-A-17: the RESPONSE of the target says that it was reached, what is open and for
/// how long.
#[test]
fn the_answer_has_filter_and_lifetime() {
    let mut rig = Rig::open(3);
    let request = NatfwRequest { filters: vec![filter(3)], lifetime: Some(60), ..rig.request(false) };
    rig.nodes[0].client.open(rig.now, 1, &request);
    rig.run();
    let response = rig.last(0, NatfwType::RESPONSE);
    let result = response.results()[0];
    assert_eq!((result.status, result.flags), (NatfwStatus::DONE, REACHED));
    let nested: Vec<NatfwValue<'_>> = result.nested.iter().filter_map(|tlv| NatfwValue::of(&tlv)).collect();
    assert!(nested.contains(&NatfwValue::Filter(filter(3))), "{nested:?}");
    assert!(nested.contains(&NatfwValue::Lifetime(60)), "{nested:?}");
}

/// CASPMID-10.2-03: without a NAT no binding is returned. CASPMID-8-04: with a NAT_OBJECT in the request it is in STATUS.
#[test]
fn a_binding_is_returned_where_a_nat_asked_for_it() {
    for nat in [false, true] {
        let mut rig = Rig::open(3);
        let mut values =
            vec![NatfwValue::MsgId(5), NatfwValue::Age(1), NatfwValue::Filter(filter(3)), wants_response()];
        values.extend(nat.then_some(NatfwValue::Nat(None)));
        rig.inject(0, 1, NatfwType::CREATE, &values);
        let response = rig.last(1, NatfwType::RESPONSE);
        let result = response.results()[0];
        let found = result.nested.iter().find(|tlv| tlv.kind == NatfwObject::NAT_OBJECT);
        let found = found.and_then(|tlv| NatfwValue::of(&tlv));
        assert_eq!(found, nat.then(|| NatfwValue::Nat(Some(filter(3)))));
    }
}

/// CASPMID-4.1-02, CASPMID-7-06, CASPMID-7-07: a firewall that does not know who asks for a passage to the inside refuses,
/// and no rule is there. CASPMID-4.1-03, CASPMID-10.2-04: the firewall before it keeps its rule. CASPMID-7-32,
/// CASPMID-9.3-02: the destination is not asked.
#[test]
fn a_later_firewall_refuses() {
    let mut rig = Rig::new(4);
    rig.ask(false);
    assert_eq!(rig.status(0), NatfwStatus::POLICY);
    let refused = NatfwEvent::Refused { status: NatfwStatus::POLICY, node: Some(at(2)), note: None };
    assert_eq!(rig.events(0).last(), Some(&refused));
    assert_eq!(rig.passes(1), [flow(4).filter()]);
    assert_eq!(rig.passes(2), []);
    assert_eq!(rig.kinds(3), []);
    rig.wait(Duration::from_secs(30));
    assert_eq!(rig.passes(1), [flow(4).filter()]);
}

/// The node that refused is in STATUS, and its rule too where the configuration lets it out.
#[test]
fn a_refusal_has_the_rule_if_it_may() {
    for (report_rule, note) in [(false, None), (true, Some("rule 1 'no': denied".to_owned()))] {
        let policy = |n| {
            let deny = RuleConfig { opens: vec![Opening::Outward], ..RuleConfig::new("no", Action::Deny) };
            let rules = if n == 1 { vec![deny] } else { Vec::new() };
            signalbox_resources::Config { rules, report_rule, ..signalbox_resources::Config::default() }
        };
        let mut rig = Rig::with(3, &policy, &|_, config| config);
        rig.ask(false);
        let refused = NatfwEvent::Refused { status: NatfwStatus::POLICY, node: Some(at(1)), note };
        assert_eq!(rig.events(0).last(), Some(&refused));
    }
}

/// CASPMID-11.2-05: rules by address decide who opens what.
#[test]
fn rules_name_who_may_open() {
    for (from, status) in [("10.0.0.0/24", NatfwStatus::DONE), ("10.9.0.0/24", NatfwStatus::POLICY)] {
        let policy = |_| {
            let rule = RuleConfig {
                opens: vec![Opening::Outward],
                from: vec![from.parse().unwrap()],
                ..RuleConfig::new("some", Action::Allow)
            };
            let others = RuleConfig { opens: vec![Opening::Outward], ..RuleConfig::new("no", Action::Deny) };
            signalbox_resources::Config {
                rules: vec![rule, others],
                ..signalbox_resources::Config::default()
            }
        };
        let mut rig = Rig::with(3, &policy, &|_, config| config);
        rig.ask(false);
        assert_eq!(rig.status(0), status);
    }
}

/// The kernel of a firewall refuses: nothing is left there, and the request does not go on.
#[test]
fn the_kernel_refuses() {
    for (error, status) in [
        (PinholeError::Failed, NatfwStatus::RESOURCES),
        (PinholeError::Unsupported, NatfwStatus::GRANULARITY),
    ] {
        let mut rig = Rig::open(3);
        rig.nodes[1].kernel = Err(error);
        rig.ask(false);
        assert_eq!(rig.status(0), status);
        assert_eq!(rig.kinds(2), []);
        assert_eq!(rig.nodes[1].resources.passage_count(), 0);
    }
}

/// CASPMID-7-05, CASPMID-9.7-03: another AGE with another filter replaces the rules. CASPMID-9.7-02: the same AGE prolongs
/// them without asking policy.
#[test]
fn the_age_says_whether_rules_change() {
    let mut rig = Rig::standing(3, false);
    let narrow = flow(3).filter();
    let create = |msg_id, age, dst_port: u16| {
        let mut filter = filter(3);
        filter.dst_ports.push((dst_port, dst_port));
        [NatfwValue::MsgId(msg_id), NatfwValue::Age(age), NatfwValue::Filter(filter)]
    };
    let asked = |rig: &Rig| rig.nodes[1].client.counters().granted;
    rig.inject(0, 1, NatfwType::CREATE, &create(7, 70, 601));
    let wide = [narrow, FlowFilter { dst_port: Some(601), ..narrow }];
    assert_eq!(rig.passes(1), wide);
    assert_eq!(asked(&rig), 2);
    rig.wait(Duration::from_secs(20));
    // The same stamp: what the message asks for is not compared.
    rig.inject(0, 1, NatfwType::CREATE, &create(8, 70, 602));
    assert_eq!((rig.passes(1), asked(&rig)), (wide.to_vec(), 2));
    rig.inject(0, 1, NatfwType::CREATE, &create(9, 71, 602));
    assert_eq!(rig.passes(1), [narrow, FlowFilter { dst_port: Some(602), ..narrow }]);
}

/// A change that policy refuses leaves the former rules.
#[test]
fn a_refused_change_leaves_the_rules() {
    let mut rig = Rig::standing(3, false);
    rig.nodes[1].kernel = Err(PinholeError::Full);
    let mut other = filter(3);
    other.dst_ports = vec![(600, 601)];
    let values = [NatfwValue::MsgId(7), NatfwValue::Age(70), NatfwValue::Filter(other), wants_response()];
    rig.inject(0, 1, NatfwType::CREATE, &values);
    assert_eq!(rig.status(0), NatfwStatus::RESOURCES);
    assert_eq!(rig.passes(1), [flow(3).filter()]);
    assert_eq!(rig.nodes[1].resources.passage_count(), 1);
}

/// CASPMID-6-09, CASPMID-10.2-02: without NEXT the destination answers nothing.
#[test]
fn without_next_nothing_is_answered() {
    let mut rig = Rig::open(3);
    rig.inject(0, 1, NatfwType::CREATE, &[NatfwValue::MsgId(5), NatfwValue::Age(1)]);
    assert_eq!(rig.kinds(2), [NatfwType::CREATE]);
    assert_eq!(rig.kinds(1), [NatfwType::CREATE]);
    rig.wait(Duration::from_secs(60));
    assert_eq!(rig.kinds(1), [NatfwType::CREATE]);
}

/// CASPMID-7-34: NEXT CREATE: the destination asks for the opposite flow in the same session, by requests along that flow
/// that search their own way. CASPMID-9.3-01, CASPMID-9.3-03: they have the nested objects, a new number and a new stamp.
#[test]
fn next_create_asks_for_the_opposite_flow() {
    let mut rig = Rig::open(3);
    rig.accept();
    let mut nested = Vec::new();
    NatfwValue::ApplicationId(b"voice").encode(&mut nested).unwrap();
    let next = NatfwValue::Next(NatfwType::CREATE, Tlvs::of(&nested));
    rig.inject(0, 1, NatfwType::CREATE, &[NatfwValue::MsgId(5), NatfwValue::Age(1), next]);
    let back = rig.last(1, NatfwType::CREATE);
    assert_eq!((back.flow, back.reverse, back.session), (flow(3).reversed(), false, FIRST));
    assert!(back.values().contains(&NatfwValue::ApplicationId(b"voice")));
    assert_ne!((back.msg_id(), back.age()), (5, 1));
}

/// CASPMID-7-33: a CREATE that failed does not cause its NEXT; the RESPONSE takes its place.
#[test]
fn a_failed_create_causes_no_next() {
    let mut rig = Rig::open(3);
    let next = NatfwValue::Next(NatfwType::CREATE, Tlvs::of(&[]));
    rig.inject(0, 1, NatfwType::CREATE, &[NatfwValue::MsgId(5), NatfwValue::Age(1), next]);
    // No user of the destination accepts it.
    assert_eq!(rig.kinds(1), [NatfwType::CREATE, NatfwType::RESPONSE]);
    assert_eq!(rig.status(1), NatfwStatus::POLICY);
}

/// CASPMID-13-02: rules of two sessions for the same packets end each by itself.
#[test]
fn sessions_with_the_same_packets_are_independent() {
    let mut rig = Rig::open(3);
    let request = rig.request(false);
    for id in [1, 2] {
        rig.nodes[0].client.open(rig.now, id, &request);
        rig.run();
    }
    assert_eq!(rig.passes(1).len(), 2);
    rig.close();
    assert_eq!(rig.passes(1), [flow(3).filter()]);
}

/// CASPMID-11.2-02: what one requester opens is limited.
#[test]
fn one_requester_has_a_share() {
    let policy = |_| signalbox_resources::Config { max_pinholes: 8, ..open_policy() };
    let mut rig = Rig::with(3, &policy, &|_, config| config);
    let request = rig.request(false);
    for id in 0..9 {
        rig.nodes[0].client.open(rig.now, id, &request);
        rig.run();
    }
    assert!(rig.passes(1).len() < 8);
    assert_eq!(rig.status(0), NatfwStatus::RESOURCES);
}

/// CASPMID-4.1-04: a request is for one direction. CASPMID-4.1-05: a firewall that sees only requests of the other direction
/// opens it by them.
#[test]
fn each_direction_has_its_own_request() {
    let mut rig = Rig::standing(3, false);
    assert_eq!(rig.passes(1), [flow(3).filter()]);
    let mut data = Vec::new();
    let values = [NatfwValue::MsgId(5), NatfwValue::Age(1)];
    NatfwMessage::compose(NatfwType::CREATE, &values, &mut data).unwrap();
    for known in [true, false] {
        if !known {
            rig = Rig::open(3);
        }
        let (session, back) = (FIRST, flow(3).reversed());
        rig.deaf = Some(0);
        rig.carry(Packet {
            session,
            flow: back,
            reverse: false,
            to: 1,
            from: 2,
            hops: 1,
            data: data.clone(),
        });
        assert!(rig.passes(1).contains(&back.filter()), "{known}");
        assert_eq!(rig.passes(1).len(), if known { 2 } else { 1 });
    }
}

/// CASPMID-7-15, CASPMID-10.2-02: a RESPONSE confirms what asks for it, and reports an error that is not asked for.
#[test]
fn errors_need_no_next() {
    let mut rig = Rig::new(4);
    let values = [NatfwValue::MsgId(5), NatfwValue::Age(1)];
    rig.inject(0, 1, NatfwType::CREATE, &values);
    assert_eq!(rig.status(0), NatfwStatus::POLICY);
    let mut rig = Rig::open(4);
    rig.inject(0, 1, NatfwType::CREATE, &[NatfwValue::MsgId(5), NatfwValue::Age(1), wants_response()]);
    assert_eq!(rig.status(1), NatfwStatus::DONE);
}

/// CASPMID-8-07: packets pass without any object for logging. CASPMID-A-12: the client has number 2.
#[test]
fn logging_needs_to_be_asked_for() {
    let mut rig = Rig::open(3);
    rig.inject(0, 1, NatfwType::CREATE, &[NatfwValue::MsgId(5), NatfwValue::Age(1)]);
    assert_eq!(rig.passes(1).len(), 1);
    assert_eq!(signalbox_casp::wire::ClientType::NATFW.0, 2);
}

/// The next hop of the sender is another one, by a change of routes: the passage is asked for there at once. A branch that ends, or one
/// on the other side, changes nothing.
#[test]
fn another_next_hop_has_the_request_at_once() {
    for (by_receiver, kind) in [(false, NatfwType::CREATE), (true, NatfwType::PATH)] {
        let mut rig = Rig::standing(4, by_receiver);
        let branch =
            |previous, ended| Indication::Branch { session: FIRST, flow: flow(4), previous, id: 1, ended };
        rig.indicate(0, &branch(true, false));
        rig.indicate(0, &branch(false, true));
        assert_eq!(rig.kinds(1), []);
        rig.indicate(0, &branch(false, false));
        assert_eq!(rig.kinds(1)[0], kind);
        assert_eq!(rig.events(0), [], "it stands all the time");
        assert_eq!(rig.passes(2).len(), 1);
    }
}
