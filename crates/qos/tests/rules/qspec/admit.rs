//! QSPECs against real admission control.

use proptest::prelude::*;
use signalbox_core::node::{Interface, Prefix};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, Time};
use signalbox_qos::engine::PROTOCOL;
use signalbox_qos::qspec::{Denied, Message, Offer, Passed, Wish, query, reserve, respond};
use signalbox_qos::wire::qspec::{
    Admission, AdmissionPriority, Flags, ObjectType, Outcome, ParameterId, PhbClass, Preemption, Procedure,
    Tmod, Value,
};
use signalbox_resources::config::{Action, LinkConfig, RuleConfig};
use signalbox_resources::{
    Admitted, Config, GrantId, GrantRequest, Owner, Refusal, Requester, ResourceOutput, Resources,
};

use super::support::*;

const D: ObjectType = ObjectType::DESIRED;
const A: ObjectType = ObjectType::AVAILABLE;

/// The reservable rate: 75 % of 10 Mbit/s, in octets a second.
const SHARE: f32 = 937_500.0;

fn link(change: impl FnOnce(&mut LinkConfig)) -> Config {
    let mut config = Config::of_link("eth1", "10mbit".parse().unwrap());
    change(&mut config.links[0]);
    config
}

struct Node {
    resources: Resources,
    offer: Offer,
}

impl Node {
    fn new(config: Config) -> Self {
        let mut resources = Resources::new(config, 0, [7; 32]).unwrap();
        let eth1 = Interface {
            ifindex: IfIndex(2),
            name: "eth1".into(),
            up: true,
            mtu: 1500,
            tunnel: false,
            addresses: vec![],
        };
        resources.interfaces(&[eth1]);
        Self { resources, offer: Offer::of(Tmod { max_packet: 1500, ..Offer::UNLIMITED }) }
    }

    fn ask(flow: u16) -> GrantRequest {
        let (from, to) = ("10.0.0.1".parse().unwrap(), "10.0.9.1".parse().unwrap());
        let filter = FlowFilter {
            protocol: Some(17),
            dst_port: Some(flow),
            ..FlowFilter::between(Prefix::host(from), Prefix::host(to))
        };
        let nothing = signalbox_qos::qspec::traffic_of(&tmod(1.0));
        GrantRequest::new(
            Owner { protocol: PROTOCOL, key: flow.into() },
            Requester::at(from),
            IfIndex(2),
            filter,
            nothing,
        )
    }

    fn reserve(
        &mut self,
        flow: u16,
        old: Option<GrantId>,
        octets: &[u8],
    ) -> (Vec<u8>, Result<(Admitted, Passed), Denied>) {
        let mut out = vec![9];
        let result =
            reserve(&mut self.resources, Time::ZERO, (&Self::ask(flow), old), octets, &self.offer, &mut out);
        while self.resources.poll().is_some() {}
        (out.split_off(1), result)
    }

    fn query(&self, flow: u16, octets: &[u8]) -> Vec<u8> {
        let mut out = vec![9];
        let ask = (&Self::ask(flow), None);
        query(&self.resources, Time::ZERO, ask, octets, &self.offer, &mut out).unwrap();
        out.split_off(1)
    }
}

fn refusal(result: Result<(Admitted, Passed), Denied>) -> Refusal {
    match result {
        Err(Denied::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

fn of(procedure: Procedure, rate: f32, more: &[(Flags, Value<'_>)]) -> Vec<u8> {
    let mut desired = vec![(M, Value::Tmod1(tmod(rate)))];
    desired.extend_from_slice(more);
    compose(&Wish::of(procedure, &desired))
}

/// QSPEC-4.3.1-01, QSPEC-4-02: the request is granted completely or not at all. The refusal has E on TMOD-1 and names
/// the rule.
#[test]
fn a_request_without_a_range_is_granted_completely_or_not_at_all() {
    let mut node = Node::new(link(|_| ()));
    let (out, granted) = node.reserve(1, None, &of(Procedure::DESIRED, 500_000.0, &[]));
    let (admitted, passed) = granted.unwrap();
    assert_eq!((admitted.given.rate, passed.failed), (500_000, false));
    assert_eq!(rate(&out, D), 500_000.0);
    let sent = of(Procedure::DESIRED, 500_000.0, &[]);
    let (out, denied) = node.reserve(2, None, &sent);
    assert_eq!(denied.as_ref().unwrap_err().outcome(), Outcome::FAILURE);
    assert_eq!(refusal(denied).to_string(), "eth1: share: 4 of 7.5 Mbit/s in use, 4 Mbit/s asked");
    assert!(flags(&out, D, ParameterId::TMOD_1).error && object(&out, D).error);
    assert_eq!(values(&out, D), values(&sent, D));
}

/// QSPEC-4.3.1-02, QSPEC-3.2-08: negotiable values are lowered to the available resources, link headers included, and
/// exactly that is reserved.
#[test]
fn negotiable_values_are_lowered_to_what_is_available() {
    for overhead in [0, 38] {
        let mut node = Node::new(link(|link| link.overhead = overhead));
        node.reserve(1, None, &of(Procedure::DESIRED, 300_000.0, &[])).1.unwrap();
        let (out, granted) = node.reserve(2, None, &of(Procedure::AVAILABLE, 800_000.0, &[]));
        let (admitted, passed) = granted.unwrap();
        let left = rate(&out, A);
        assert_eq!(rate(&out, D), 800_000.0);
        assert_eq!(passed.demand.tmod.unwrap().rate, left);
        assert_eq!(admitted.given.rate as f32, left);
        // Packets of 64 octets, each with 38 octets of link header.
        let most = SHARE * 64.0 / (64.0 + overhead as f32) - 300_000.0;
        assert!(left <= most && left > most - 100.0, "{left} of {most}");
        let mut response = Vec::new();
        respond(&out, Message::Reserve, &mut response).unwrap();
        assert_eq!(rate(&response, ObjectType::RESERVED), left);
    }
}

/// A RESERVE that replaces another may use the resources of the old one. If it is refused, the old one stays.
#[test]
fn in_the_place_of_another() {
    let mut node = Node::new(link(|_| ()));
    let sent = of(Procedure::AVAILABLE, 900_000.0, &[]);
    let first = node.reserve(1, None, &sent).1.unwrap().0;
    let (out, again) = node.reserve(1, Some(first.grant), &sent);
    assert_eq!((rate(&out, A), again.unwrap().0.grant), (900_000.0, first.grant));
    let (out, _) = node.reserve(1, Some(first.grant), &of(Procedure::AVAILABLE, 5e6, &[]));
    assert_eq!(rate(&out, A), SHARE);
    let denied = node.reserve(1, Some(first.grant), &of(Procedure::DESIRED, 5e6, &[])).1;
    assert!(refusal(denied).to_string().starts_with("eth1: share"));
    assert!(node.reserve(2, None, &of(Procedure::AVAILABLE, 10.0, &[])).1.is_err(), "still all taken");
}

/// QSPEC-3.2-12: a value below the minimum fails the reservation, with E on the parameter that is too small, and
/// nothing is reserved.
#[test]
fn a_value_below_the_minimum_fails_the_reservation() {
    let mut node = Node::new(link(|_| ()));
    node.reserve(1, None, &of(Procedure::DESIRED, 900_000.0, &[])).1.unwrap();
    let desired = [(M, Value::Tmod1(tmod(100_000.0)))];
    for (minimum, good) in [(37_500.0, true), (37_501.0, false)] {
        let minimum = [(M, Value::Tmod1(tmod(minimum)))];
        let sent = compose(&Wish { minimum: &minimum, ..Wish::of(Procedure::MINIMUM, &desired) });
        let (out, result) = node.reserve(2, None, &sent);
        if good {
            let grant = result.unwrap().0.grant;
            node.resources.release(grant);
            assert_eq!(rate(&out, A), 37_500.0);
        } else {
            assert_eq!(result.unwrap_err(), Denied::Unsatisfied);
            assert!(flags(&out, A, ParameterId::TMOD_1).error);
            assert!(flags(&out, ObjectType::MINIMUM, ParameterId::TMOD_1).error);
        }
    }
}

/// Limits of bucket and packet size. QSPEC-3.3.1-11: policy lowers QoS Available as well.
#[test]
fn bucket_packet_size_and_policy_lower_what_is_available() {
    let mut node = Node::new(link(|link| link.buffer = Some(7000)));
    let (out, granted) = node.reserve(1, None, &of(Procedure::AVAILABLE, 1000.0, &[]));
    assert_eq!(granted.unwrap().0.given.burst, 7000);
    assert!(matches!(value(&out, A, ParameterId::TMOD_1), Value::Tmod1(tmod) if tmod.bucket == 7000.0));

    let mut node = Node::new(link(|_| ()));
    node.offer.limit.max_packet = u32::MAX;
    let big = Tmod { max_packet: 9000, bucket: 20_000.0, ..tmod(1000.0) };
    let sent = compose(&Wish::of(Procedure::AVAILABLE, &[(M, Value::Tmod1(big))]));
    assert_eq!(node.reserve(1, None, &sent).1.unwrap().0.given.max_packet, 1500);
    let sent = compose(&Wish::of(Procedure::DESIRED, &[(M, Value::Tmod1(big))]));
    let (out, denied) = node.reserve(2, None, &sent);
    assert!(flags(&out, D, ParameterId::TMOD_1).error);
    assert!(refusal(denied).to_string().contains("9000"));

    let rule = RuleConfig {
        max_rate: Some("1mbit".parse().unwrap()),
        max_burst: Some(5000),
        ..RuleConfig::new("small", Action::Allow)
    };
    let mut node = Node::new(Config { rules: vec![rule], ..link(|_| ()) });
    let answer = node.query(1, &of(Procedure::QUERY, 500_000.0, &[]));
    let (out, granted) = node.reserve(1, None, &of(Procedure::AVAILABLE, 500_000.0, &[]));
    let given = granted.unwrap().0.given;
    assert_eq!((given.rate, given.burst), (125_000, 5000));
    assert_eq!((rate(&out, A), rate(&answer, A)), (125_000.0, 125_000.0));
}

/// QSPEC-6-01: a priority that the requester may not have is refused, with E on its parameter.
#[test]
fn unauthorised_priority() {
    let rule = RuleConfig {
        max_setup_priority: Some(1),
        max_defending_priority: Some(1),
        ..RuleConfig::new("citizens", Action::Allow)
    };
    let mut node = Node::new(Config { rules: vec![rule], ..link(|_| ()) });
    let emergency = (PLAIN, Value::Preemption(Preemption { preemption: 2, defending: 2 }));
    let (out, denied) = node.reserve(1, None, &of(Procedure::AVAILABLE, 1000.0, &[emergency]));
    assert!(refusal(denied).to_string().contains("'citizens'"));
    assert!(flags(&out, D, ParameterId::PREEMPTION_PRIORITY).error);
    let high = (PLAIN, Value::Admission(Admission::y2171(AdmissionPriority::HIGH)));
    let (out, denied) = node.reserve(1, None, &of(Procedure::DESIRED, 1000.0, &[high]));
    refusal(denied);
    assert!(object(&out, D).error, "no one parameter says it");
    assert!(node.reserve(1, None, &of(Procedure::DESIRED, 1000.0, &[])).1.is_ok());
}

/// QSPEC-5.2.8-03, QSPEC-5.2.9-03: the preemption priority of a new flow is compared with the defending priority of
/// existing flows; a high-priority flow gets the resources of a best-effort flow, and not the reverse.
#[test]
fn priorities_decide_between_flows() {
    let admission = |p| (PLAIN, Value::Admission(Admission::y2171(p)));
    let rfc3181 = |preemption, defending| (PLAIN, Value::Preemption(Preemption { preemption, defending }));
    let (low, high) = (admission(AdmissionPriority::BEST_EFFORT), admission(AdmissionPriority::HIGH));
    for (first, second, taken) in [
        (low, high, true),
        (high, low, false),
        (high, high, false),
        (rfc3181(1, 5), rfc3181(5, 5), false),
        (rfc3181(1, 5), rfc3181(6, 6), true),
        (rfc3181(1, 5), rfc3181(3, 9), false),
        (rfc3181(9, 9), rfc3181(9, 9), false),
    ] {
        let mut node = Node::new(Config { preemption: true, ..link(|_| ()) });
        node.reserve(1, None, &of(Procedure::DESIRED, 600_000.0, &[first])).1.unwrap();
        let mut out = Vec::new();
        let sent = of(Procedure::DESIRED, 600_000.0, &[second]);
        let ask = (&Node::ask(2), None);
        let result = reserve(&mut node.resources, Time::ZERO, ask, &sent, &node.offer, &mut out);
        assert_eq!(result.is_ok(), taken, "{} against {}", second.1, first.1);
        let mut lost = false;
        while let Some(output) = node.resources.poll() {
            lost |= matches!(output, ResourceOutput::Lost { owner, .. } if owner.key == 1);
        }
        assert_eq!(lost, taken);
    }
}

/// The values that a QUERY collects can be reserved. On a full link they are zero, and a QUERY reserves no resources.
#[test]
fn what_a_query_collects_can_be_reserved() {
    let mut node = Node::new(link(|link| link.overhead = 20));
    let answer = rate(&node.query(1, &of(Procedure::QUERY, 5e6, &[])), A);
    assert_eq!(rate(&node.query(1, &of(Procedure::QUERY, 5e6, &[])), A), answer);
    assert!(answer > 700_000.0);
    node.reserve(1, None, &of(Procedure::DESIRED, answer, &[])).1.unwrap();
    let collected = node.query(2, &of(Procedure::RECEIVER_COLLECTED, 5e6, &[]));
    assert_eq!((rate(&collected, A), rate(&collected, D)), (1.0, 5e6));
    let plain = of(Procedure::RECEIVER_DESIRED, 5e6, &[]);
    assert_eq!(node.query(2, &plain), plain);
    let unknown = GrantRequest { ifindex: IfIndex(77), ..Node::ask(1) };
    let mut out = Vec::new();
    query(
        &node.resources,
        Time::ZERO,
        (&unknown, None),
        &of(Procedure::QUERY, 5e6, &[]),
        &node.offer,
        &mut out,
    )
    .unwrap();
    assert_eq!(rate(&out, A), 1.0);
}

/// A service that is not offered has E on the parameter that requests it; a malformed parameter is reported.
#[test]
fn a_refusal_marks_the_parameter_that_caused_it() {
    let mut node = Node::new(link(|link| {
        link.guaranteed.offered = false;
        link.diffserv.offered = false;
    }));
    for parameter in [Value::SlackTerm(0), Value::Phb(PhbClass::dscp(46))] {
        let (out, denied) = node.reserve(1, None, &of(Procedure::DESIRED, 1000.0, &[(PLAIN, parameter)]));
        refusal(denied);
        assert!(flags(&out, D, parameter.id()).error && !flags(&out, D, ParameterId::TMOD_1).error);
    }
    let mut bad = of(Procedure::DESIRED, 1000.0, &[(PLAIN, Value::Dste(0))]);
    let at = object(&bad, D).parameter(ParameterId::DSTE_CLASS_TYPE).unwrap().start + 4;
    bad[at] = 99;
    let (out, denied) = node.reserve(1, None, &bad);
    let Err(Denied::Qspec(error)) = denied else { panic!("{denied:?}") };
    assert_eq!(error.parameter, Some(ParameterId::DSTE_CLASS_TYPE));
    let shown: Vec<_> = object(&out, D).parameters().map(|p| (p.id.0, p.flags.error)).collect();
    assert_eq!(shown, [(13, true)]);
    let (out, denied) = node.reserve(1, None, &of(Procedure::DESIRED, 1000.0, &[(M, Value::Dste(0))]));
    assert_eq!(denied.unwrap_err(), Denied::Unsatisfied);
    assert!(flags(&out, D, ParameterId::DSTE_CLASS_TYPE).not_supported);
}

/// Guaranteed service is requested at the rate of TMOD-1 with its slack.
#[test]
fn guaranteed_service_is_requested_at_the_rate_of_its_bucket() {
    let mut node = Node::new(link(|_| ()));
    let (_, granted) =
        node.reserve(1, None, &of(Procedure::DESIRED, 100_000.0, &[(M, Value::SlackTerm(500))]));
    let (admitted, passed) = granted.unwrap();
    let rspec = passed.demand.rspec().unwrap();
    assert_eq!((rspec.rate(), rspec.slack()), (100_000.0, 500));
    assert!(admitted.rspec.is_some());
}

proptest! {
    /// For any requests, the grants never exceed the share, no grant exceeds its request, and the reported values are
    /// the reserved ones.
    #[test]
    fn never_more_than_the_share(
        wishes in prop::collection::vec((1.0..600_000.0_f32, 64..1500_u32, any::<bool>()), 1..12),
        overhead in 0..64_u32,
    ) {
        let mut node = Node::new(link(|link| link.overhead = overhead));
        let mut charged = 0.0_f64;
        for (n, (wish, m, negotiable)) in (1..).zip(&wishes) {
            let wanted = Tmod { min_policed: *m, ..tmod(*wish) };
            let procedure = if *negotiable { Procedure::AVAILABLE } else { Procedure::DESIRED };
            let sent = compose(&Wish::of(procedure, &[(M, Value::Tmod1(wanted))]));
            let (out, result) = node.reserve(n, None, &sent);
            let Ok((admitted, passed)) = result else { continue };
            let answer = if *negotiable { rate(&out, A) } else { rate(&out, D) };
            prop_assert!(answer <= *wish && passed.demand.tmod.unwrap().rate == answer);
            prop_assert_eq!(admitted.given.rate, signalbox_qos::qspec::traffic_of(&tmod(answer)).rate);
            charged += f64::from(answer) * (1.0 + f64::from(overhead) / f64::from(*m));
        }
        prop_assert!(charged <= f64::from(SHARE) + 1.0, "{charged}");
    }
}
