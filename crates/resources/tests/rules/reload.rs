//! Other settings while reservations stand: the new rules and shares judge them again.

use std::net::IpAddr;

use signalbox_resources::config::{Action, LinkConfig, RuleConfig};
use signalbox_resources::units::Share;
use signalbox_resources::{Cause, Config, GrantRequest, LostWhy, Rate, Requester, Resources};

use crate::support::*;

/// Rules with the default to deny.
fn only(rules: Vec<RuleConfig>) -> Config {
    Config { rules, default: Action::Deny, ..config() }
}

fn rule(max_reservations: Option<u32>, max_rate: Option<u64>) -> RuleConfig {
    let mut rule = RuleConfig::new("everybody", Action::Allow);
    rule.max_reservations = max_reservations;
    rule.max_rate = max_rate.map(Rate);
    rule
}

/// Resources with reservations for the ports 1, 2 and 3 of 1, 2 and 3 Mbit/s.
fn three(config: Config) -> (Resources, Kernel) {
    let mut resources = start(config);
    for port in 1..=3 {
        admit(&mut resources, &request_of(port, u64::from(port)));
    }
    let mut kernel = Kernel::default();
    assert_eq!(kernel.drain(&mut resources), []);
    (resources, kernel)
}

fn reload(resources: &mut Resources, kernel: &mut Kernel, config: Config) -> Vec<(u64, LostWhy)> {
    resources.reload(NOW, config).unwrap();
    let lost = kernel.drain(resources);
    assert_eq!(kernel.sum(ETH1), reserved(resources), "the kernel has what is booked");
    lost.into_iter().map(|(key, _, why)| (key, why)).collect()
}

#[test]
fn the_same_settings_change_nothing() {
    let (mut resources, mut kernel) = three(only(vec![rule(Some(3), None)]));
    assert_eq!(reload(&mut resources, &mut kernel, only(vec![rule(Some(3), None)])), []);
    assert_eq!(reserved(&resources), 6 * MBIT);
    // The account of the rule still has all three.
    let text = refusal(&mut resources, &request_of(4, 1));
    assert!(text.contains("everybody"), "{text}");
}

#[test]
fn reservations_that_the_rules_refuse_are_lost() {
    let (mut resources, mut kernel) = three(config());
    let lost = reload(&mut resources, &mut kernel, only(vec![rule(None, Some(2 * MBIT))]));
    assert_eq!(lost, [(3, LostWhy::Rules)]);
    assert_eq!((reserved(&resources), resources.counters().rules_lost), (3 * MBIT, 1));
    assert_eq!(reload(&mut resources, &mut kernel, only(vec![])).len(), 2);
    assert!(resources.is_empty());
}

/// A limit of a requester keeps the oldest.
#[test]
fn the_oldest_stay_within_a_limit() {
    let (mut resources, mut kernel) = three(config());
    let lost = reload(&mut resources, &mut kernel, only(vec![rule(Some(2), None)]));
    assert_eq!(lost, [(3, LostWhy::Rules)]);
    // A release makes room in the new account.
    let first = resources.reservations().next().unwrap().grant;
    resources.release(first);
    admit(&mut resources, &request_of(4, 1));
}

#[test]
fn a_smaller_share_loses_the_weakest() {
    let (mut resources, mut kernel) = three(config());
    let half = LinkConfig { reservable: Share::percent(40), ..link("eth1", 10) };
    let lost = reload(&mut resources, &mut kernel, Config { links: vec![half], ..config() });
    assert_eq!(lost, [(3, LostWhy::CapacityReduced)]);
    assert_eq!(reload(&mut resources, &mut kernel, config()), []);
    admit(&mut resources, &request_of(3, 7));
}

/// Preemption works among reservations that were made before it was allowed.
#[test]
fn preemption_can_be_allowed_later() {
    let (mut resources, mut kernel) = three(config());
    let strong = at_priority(5, 5, request_of(4, 9));
    assert!(resources.admit(NOW, &strong).is_err());
    assert_eq!(reload(&mut resources, &mut kernel, Config { preemption: true, ..config() }), []);
    assert_eq!(admit(&mut resources, &strong).preempted, 2);
    assert_eq!(reload(&mut resources, &mut kernel, config()).len(), 2, "the reports of the preemption");
}

#[test]
fn faulty_settings_change_nothing() {
    let (mut resources, mut kernel) = three(config());
    assert!(resources.reload(NOW, Config { max_victims: 0, ..only(vec![]) }).is_err());
    assert_eq!(kernel.drain(&mut resources), []);
    admit(&mut resources, &request_of(4, 1));
}

/// What stands beyond a lower `max_reservations` can still change its interface. It was granted, and the kernel did not get it.
#[test]
fn a_reservation_beyond_a_lower_limit_can_move() {
    let links = || vec![link("eth1", 10), link("eth2", 10)];
    let (mut resources, mut kernel) = three(Config { links: links(), ..config() });
    let lower = Config { max_reservations: 1, links: links(), ..config() };
    assert_eq!(reload(&mut resources, &mut kernel, lower), []);
    let first = resources.reservations().next().unwrap().grant;
    resources.modify(NOW, first, &GrantRequest { ifindex: ETH2, ..request_of(1, 1) }).unwrap();
    assert_eq!(kernel.drain(&mut resources), []);
    assert_eq!((kernel.sum(ETH1), kernel.sum(ETH2)), (5 * MBIT, MBIT));
    assert_eq!(resources.reservations().count(), 3);
    resources.release(first);
    assert_eq!(kernel.drain(&mut resources), []);
    assert_eq!((kernel.sum(ETH1), kernel.sum(ETH2)), (5 * MBIT, 0));
}

/// Each requester has its account also beyond a lower `max_reservations`. The later ones had none, and no limit.
#[test]
fn accounts_beyond_a_lower_limit_count() {
    let mut each = RuleConfig::new("each", Action::Allow);
    each.max_total = Some(Rate(4 * MBIT));
    let settings = |max_reservations| Config { max_reservations, ..only(vec![each.clone()]) };
    let from_host = |host: u8, port, mbit| GrantRequest {
        requester: Requester::at(IpAddr::from([10, 0, 0, host])),
        ..request_of(port, mbit)
    };
    let mut resources = start(settings(100));
    let grants = [from_host(1, 1, 1), from_host(2, 2, 1), from_host(2, 3, 2)]
        .map(|request| admit(&mut resources, &request).grant);
    let mut kernel = Kernel::default();
    assert_eq!(kernel.drain(&mut resources), []);
    assert_eq!(reload(&mut resources, &mut kernel, settings(1)), []);
    let [_, _, last] = grants;
    let more = resources.modify(NOW, last, &from_host(2, 3, 4)).unwrap_err();
    assert_eq!(more.cause(), Cause::Policy, "{more}");
    resources.modify(NOW, last, &from_host(2, 3, 3)).unwrap();
}
