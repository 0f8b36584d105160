//! Who asks: the neighbor, what is proved of it, and the requester that it claims to speak for.

use std::net::IpAddr;
use std::sync::Arc;

use signalbox_core::IfIndex;
use signalbox_core::node::Prefix;
use signalbox_core::security::{Fingerprint, Identity};
use signalbox_core::traffic::FlowFilter;
use signalbox_resources::config::{Action, RuleConfig};
use signalbox_resources::units::{Net, Trusted};
use signalbox_resources::{Config, GrantRequest, Neighbor, Proof, Rate, RequestedBy, Requester, Resources};

use crate::support::*;

/// A host of the office, which is the claimed requester of each flow here.
const OFFICE: &str = "192.0.2.7";
const STRANGER: &str = "198.51.100.66";
const ROUTER: &str = "203.0.113.1";
const DEFAULT: &str = "policy: no rule applies, and the default is to deny";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn nets(text: &str) -> Vec<Net> {
    vec![text.parse().unwrap()]
}

fn by(address: &str, proof: Proof) -> RequestedBy {
    RequestedBy::Neighbor(Neighbor { address: ip(address), ifindex: IfIndex(3), proof })
}

/// A request for a flow of the office.
fn office_request(requester: Requester) -> GrantRequest {
    let request = request_of(5004, 5);
    let filters = request.filters.iter().map(|one| FlowFilter { src: Prefix::host(ip(OFFICE)), ..*one });
    GrantRequest { requester, filters: filters.collect(), ..request.clone() }
}

fn claims(requested_by: RequestedBy) -> GrantRequest {
    office_request(Requester::new(requested_by, None, Some(ip(OFFICE))))
}

fn decided(resources: &Resources, request: &GrantRequest) -> Result<Option<u32>, String> {
    let run = resources.dry_run(NOW, request);
    run.result.map(|_| run.rule.map(|rule| rule.number)).map_err(|refusal| refusal.to_string())
}

/// The configuration of a router in README.md.
fn readme() -> Config {
    let trusted = ["local", "authenticated", "203.0.113.0/24"].map(|text| text.parse().unwrap());
    let office = RuleConfig {
        from: nets("192.0.2.0/24"),
        max_rate: Some(Rate(10 * MBIT)),
        ..RuleConfig::new("office", Action::Allow)
    };
    Config { default: Action::Deny, trusted: trusted.to_vec(), rules: vec![office], ..config() }
}

/// SEC-T31-01: a claim about the address of another host counts only if a trusted neighbor makes it.
#[test]
fn a_stranger_who_names_the_office_gets_nothing() {
    let resources = start(readme());
    let refused = Err(DEFAULT.to_owned());
    for proof in [Proof::None, Proof::Link, Proof::Handshake, Proof::Identity] {
        let asked = claims(by(STRANGER, proof));
        // An authenticated neighbor is trusted in this configuration.
        let expected = if proof == Proof::Identity { Ok(Some(1)) } else { refused.clone() };
        assert_eq!(decided(&resources, &asked), expected, "{proof}");
    }
    assert_eq!(decided(&resources, &claims(RequestedBy::Unknown)), refused, "nothing is proved");
    assert_eq!(decided(&resources, &claims(by(OFFICE, Proof::None))), refused, "the same address");
    // Hosts of the office that are neighbors, and those behind trusted neighbors, are served.
    for proof in [Proof::Link, Proof::Handshake] {
        assert_eq!(decided(&resources, &claims(by(OFFICE, proof))), Ok(Some(1)), "{proof}");
        assert_eq!(decided(&resources, &claims(by(ROUTER, proof))), Ok(Some(1)), "{proof}");
    }
    assert_eq!(decided(&resources, &claims(by(ROUTER, Proof::None))), refused, "no proof, no trust");
    // A host of the office asks for itself only.
    assert_eq!(decided(&resources, &claims(by("192.0.2.8", Proof::Handshake))), refused);
}

/// The limits of a rule hold for the party that a trusted neighbor speaks for, and each party has its own total.
#[test]
fn a_trusted_neighbor_speaks_for_each_of_its_parties() {
    let mut config = readme();
    config.rules[0].max_total = Some(Rate(8 * MBIT));
    let mut resources = start(config);
    let for_party = |port: u16, party: &str| {
        let requester = Requester::new(by(ROUTER, Proof::Handshake), None, Some(ip(party)));
        let request = request_of(port, 5);
        let filters = vec![FlowFilter { src: Prefix::host(ip(party)), ..request.filters[0] }];
        GrantRequest { requester, filters, ..request }
    };
    admit(&mut resources, &for_party(1, OFFICE));
    let refused = refusal(&mut resources, &for_party(2, OFFICE));
    assert_eq!(refused, "rule 1 'office': total: 5 of 8 Mbit/s in use by this requester, 5 Mbit/s asked");
    admit(&mut resources, &for_party(3, "192.0.2.8"));
}

/// SEC-T31-02: the proof that a rule demands, or the whole policy.
#[test]
fn a_rule_can_demand_a_stronger_proof() {
    let all = [Proof::None, Proof::Link, Proof::Handshake, Proof::Identity];
    let granted = |rule: RuleConfig, least: Proof| {
        let config = Config { default: Action::Deny, proof: least, rules: vec![rule], ..config() };
        let resources = start(config);
        all.map(|proof| decided(&resources, &claims(by(OFFICE, proof))).is_ok())
    };
    let office = RuleConfig { from: nets("192.0.2.0/24"), ..RuleConfig::new("", Action::Allow) };
    let demands = |proof, rule: &RuleConfig| RuleConfig { proof: Some(proof), ..rule.clone() };
    assert_eq!(granted(office.clone(), Proof::Link), [false, true, true, true]);
    assert_eq!(granted(office.clone(), Proof::Handshake), [false, false, true, true]);
    assert_eq!(granted(demands(Proof::Link, &office), Proof::Handshake), [false, true, true, true]);
    assert_eq!(granted(demands(Proof::Identity, &office), Proof::Link), [false, false, false, true]);
    let anybody = RuleConfig::new("", Action::Allow);
    assert_eq!(granted(anybody.clone(), Proof::Identity), [true; 4], "it has no address");
    assert_eq!(granted(demands(Proof::Handshake, &anybody), Proof::Link), [false, false, true, true]);
    let router = RuleConfig { via: nets("192.0.2.7"), ..anybody };
    assert_eq!(granted(router, Proof::Link), [false, true, true, true]);
    // A key is the strongest proof, of an address too.
    let named = Requester::new(
        by(OFFICE, Proof::Handshake),
        Some(Arc::new(Identity::of_key(Fingerprint([1; 32])))),
        None,
    );
    let rules = vec![demands(Proof::Identity, &office)];
    let resources = start(Config { default: Action::Deny, rules, ..config() });
    assert_eq!(decided(&resources, &office_request(named)), Ok(Some(1)));
}

/// `via` is the neighbor, for which host it may speak.
#[test]
fn a_rule_can_name_the_neighbor() {
    let rule = RuleConfig {
        from: nets("192.0.2.0/24"),
        via: nets("203.0.113.0/24"),
        ..RuleConfig::new("", Action::Allow)
    };
    let with = |trusted: Vec<Trusted>| {
        start(Config { default: Action::Deny, trusted, rules: vec![rule.clone()], ..config() })
    };
    let trusted = || vec![ROUTER.parse().unwrap(), "198.51.100.66".parse().unwrap()];
    let handshake = |address| claims(by(address, Proof::Handshake));
    assert_eq!(decided(&with(trusted()), &handshake(ROUTER)), Ok(Some(1)));
    assert_eq!(decided(&with(trusted()), &handshake(STRANGER)), Ok(None), "trusted, but not by this rule");
    assert!(decided(&with(Vec::new()), &handshake(ROUTER)).is_err(), "it asks for itself");
    assert!(decided(&with(trusted()), &handshake(OFFICE)).is_err());
    let local_user = office_request(Requester::local(ip(OFFICE), None));
    assert!(decided(&with(trusted()), &local_user).is_err(), "a user of this host comes by no neighbor");
}

/// A rule that denies matches what a request says, proved or not, of the requester and of the neighbor.
#[test]
fn nobody_avoids_a_denial_by_leaving_the_proof_out() {
    let denies = |change: fn(&mut RuleConfig)| {
        let mut rule = RuleConfig::new("", Action::Deny);
        change(&mut rule);
        start(Config { rules: vec![rule], ..config() })
    };
    let from = denies(|rule| rule.from = nets("192.0.2.0/24"));
    for request in [
        claims(RequestedBy::Unknown),
        claims(by(OFFICE, Proof::None)),
        claims(by(ROUTER, Proof::Handshake)),
        office_request(Requester::new(by(OFFICE, Proof::Link), None, Some(ip(STRANGER)))),
    ] {
        assert_eq!(decided(&from, &request), Err("rule 1: denied".to_owned()), "{}", request.requester);
    }
    assert_eq!(
        decided(&from, &office_request(Requester::new(by(ROUTER, Proof::Link), None, None))),
        Ok(None)
    );
    let via = denies(|rule| rule.via = nets("203.0.113.0/24"));
    assert!(decided(&via, &claims(by(ROUTER, Proof::None))).is_err());
    assert_eq!(decided(&via, &claims(by(STRANGER, Proof::None))), Ok(None));
}

/// Requests that are merged need the proof and the address of each neighbor.
#[test]
fn merged_requests_are_as_good_as_the_worst() {
    let rule = RuleConfig {
        from: nets("192.0.2.0/24"),
        source: nets("0.0.0.0/0"),
        ..RuleConfig::new("", Action::Allow)
    };
    let resources = start(Config { default: Action::Deny, rules: vec![rule], ..config() });
    let neighbor = |address: &str, proof| Neighbor { address: ip(address), ifindex: IfIndex(3), proof };
    let merged = |other| {
        let all = vec![neighbor(OFFICE, Proof::Link), other];
        office_request(Requester::new(RequestedBy::Neighbors(all), None, None))
    };
    assert_eq!(decided(&resources, &merged(neighbor("192.0.2.8", Proof::Link))), Ok(Some(1)));
    assert!(decided(&resources, &merged(neighbor("192.0.2.8", Proof::None))).is_err());
    assert!(decided(&resources, &merged(neighbor(STRANGER, Proof::Identity))).is_err());
}

/// No proof is no setting, and a denial has none.
#[test]
fn a_proof_of_nothing_is_refused() {
    let with = |proof, rule| Config { proof, rules: vec![rule], ..config() }.validated();
    let rule = |action, proof| RuleConfig { proof, ..RuleConfig::new("", action) };
    assert!(with(Proof::Link, rule(Action::Allow, Some(Proof::Link))).is_ok());
    assert!(with(Proof::None, rule(Action::Allow, None)).is_err());
    assert!(with(Proof::Link, rule(Action::Allow, Some(Proof::None))).is_err());
    assert!(with(Proof::Link, rule(Action::Deny, Some(Proof::Link))).is_err());
}
