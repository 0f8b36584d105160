//! What who asked gets of a refusal: the node, what it could still give, and the rule if the policy lets it out.

use signalbox_casp::clients::qos::{QosEvent, Range, Told};
use signalbox_casp::wire::qos::{QosErrorCode, QosType};
use signalbox_resources::config::{Action, LinkConfig, RuleConfig};
use signalbox_resources::decision::{Outcome, Why};
use signalbox_resources::{Config, End, Rate};

use crate::rig::{Rig, at, mbit};

/// Three nodes; the one between has these rules for a link of 10 Mbit/s.
fn with(rules: Vec<RuleConfig>, report_rule: bool) -> Rig {
    let mut rig = Rig::new(3);
    let link =
        LinkConfig { reservable: "100%".parse().unwrap(), ..LinkConfig::new("eth0", Some(Rate(1_250_000))) };
    let config = Config { links: vec![link], rules, report_rule, ..Config::default() };
    rig.nodes[1].resources.reload(rig.now, config).unwrap();
    rig
}

/// The node that refused, and what the user of the first node gets of it.
fn refused(rig: &mut Rig, rate: f32) -> Option<(QosErrorCode, Told)> {
    let request = rig.request(Range::only(mbit(rate)));
    rig.reserve(0, 1, &request);
    match rig.events(0).last() {
        Some(QosEvent::Refused { code, node, told, .. }) => {
            assert_eq!(*node, Some(at(1)));
            Some((*code, told.clone()))
        }
        _ => None,
    }
}

#[test]
fn a_rule_is_named_if_it_may() {
    let deny = || vec![RuleConfig::new("nobody", Action::Deny)];
    let told = Told { available: None, note: Some("rule 1 'nobody': denied".to_owned()) };
    assert_eq!(refused(&mut with(deny(), true), 2.0), Some((QosErrorCode::POLICY, told)));
    let mut rig = with(deny(), false);
    assert_eq!(refused(&mut rig, 2.0), Some((QosErrorCode::POLICY, Told::default())));
    let error = rig.last(0, QosType::ERROR);
    assert_eq!(error.message().refusal, None, "nothing but what the draft has");
}

/// What the node could still give is always in the Error, and the limit with its numbers where they may leave.
#[test]
fn the_rate_that_is_left_is_given() {
    let mut rig = with(Vec::new(), false);
    rig.occupy(1, 4.0);
    let told = Told { available: Some(750_000), note: None };
    assert_eq!(refused(&mut rig, 8.0), Some((QosErrorCode::BELOW_MINIMUM, told)));
    let mut rig = with(Vec::new(), true);
    rig.occupy(1, 4.0);
    let (_, told) = refused(&mut rig, 8.0).unwrap();
    assert!(told.note.as_ref().is_some_and(|note| note.starts_with("eth0: share: ")), "{told:?}");
}

/// The decisions of the nodes before it name the node that refused.
#[test]
fn decisions_name_the_node_that_refused() {
    let mut rig = with(vec![RuleConfig::new("nobody", Action::Deny)], false);
    rig.nodes[0].resources.record_decisions(true);
    refused(&mut rig, 2.0).unwrap();
    let resources = &mut rig.nodes[0].resources;
    let all: Vec<_> = std::iter::from_fn(|| resources.next_decision()).collect();
    let rows: Vec<_> = all.iter().map(|one| (one.outcome, one.why.clone())).collect();
    let end = Why::End(End::RefusedBeyond(Some(at(1))));
    assert_eq!(rows, [(Outcome::Granted, Why::Allowed), (Outcome::Ended, end)]);
}
