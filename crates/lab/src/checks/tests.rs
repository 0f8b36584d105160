//! The checks on made-up evidence: they see what is wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::evidence::{ExpiredProbe, LossCount, PingRun, Stop};
use crate::observe::trace::{LinkTrace, Message, Session, Trace};
use crate::plan::Plan;
use crate::scenario::read;

const SESSION: Session = [7; 16];

/// h1 - r1 - h2, and the checks of `text`.
fn scenario(checks: &str) -> crate::scenario::Scenario {
    let text = format!(
        r#"name = "x"
description = "three in a row"
nodes = [{{ name = "h1" }}, {{ name = "r1", forward = true }}, {{ name = "h2" }}]
links = [{{ ends = ["h1", "r1"] }}, {{ ends = ["r1", "h2"] }}]
workload = [{{ step = "show", label = "now" }}]
checks = [{{ name = "it", {checks} }}]
"#
    );
    read("x.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

fn message(kind: Kind, at: u64, src: &str, dst: &str, outgoing: bool) -> Message {
    let query = kind == Kind::Query;
    Message {
        at: Duration::from_millis(at),
        outgoing,
        src: src.parse().expect("an address"),
        dst: dst.parse().expect("an address"),
        ttl: 64,
        router_alert: query.then_some(0),
        dst_port: 270,
        kind,
        hops: 10,
        c_flag: query,
        s_flag: !query,
        session: Some(SESSION),
        error: None,
        packet: vec![0; 60],
        payload_at: 32,
    }
}

/// A whole handshake and Data both ways between the ends of a link.
fn handshake(flow: [&str; 2], ends: [&str; 2]) -> Vec<Message> {
    let [a, b] = ends;
    vec![
        message(Kind::Query, 1, flow[0], flow[1], true),
        message(Kind::Response, 2, b, a, false),
        message(Kind::Confirm, 3, a, b, true),
        message(Kind::Data, 4, a, b, true),
        message(Kind::Data, 5, b, a, false),
    ]
}

fn evidence(checks: &str) -> (Check, Evidence) {
    let scenario = scenario(checks);
    let flow = ["10.0.1.1", "10.0.2.2"];
    let link = |first, ends| LinkTrace { first, messages: handshake(flow, ends), ..LinkTrace::default() };
    let evidence = Evidence {
        plan: Plan::new(&scenario),
        trace: Trace { links: vec![link(0, ["10.0.1.1", "10.0.1.2"]), link(1, ["10.0.2.1", "10.0.2.2"])] },
        udp: Vec::new(),
        pings: vec![PingRun { from: 0, to: 2, ..PingRun::default() }],
        snapshots: Vec::new(),
        windows: BTreeMap::new(),
        probes: Vec::new(),
        losses: Vec::new(),
        stops: Vec::new(),
    };
    (scenario.checks.into_iter().next().expect("there is one"), evidence)
}

#[track_caller]
fn fails(check: &Check, evidence: &Evidence, why: &str) {
    let outcome = run(check, evidence);
    assert!(!outcome.ok && outcome.detail.contains(why), "{outcome:?}");
}

#[track_caller]
fn holds(check: &Check, evidence: &Evidence) {
    let outcome = run(check, evidence);
    assert!(outcome.ok, "{outcome:?}");
}

#[test]
fn a_handshake_needs_every_message_in_order_on_every_link() {
    let (check, good) = evidence("kind = 'handshake', from = 'h1', to = 'h2'");
    holds(&check, &good);
    let change = |why: &str, change: fn(&mut Vec<Message>)| {
        let (_, mut bad) = evidence("kind = 'handshake', from = 'h1', to = 'h2'");
        change(&mut bad.trace.links[1].messages);
        fails(&check, &bad, why);
    };
    change("no Query on r1-h2", |messages| messages.clear());
    change("no Confirm", |messages| drop(messages.remove(2)));
    change("Confirm before Response", |messages| messages[2].at = Duration::from_micros(1500));
    change("no Router Alert", |messages| messages[0].router_alert = None);
    change("flow's source", |messages| messages[0].src = messages[1].src);
    change("port 270", |messages| messages[0].dst_port = 271);
    let (_, mut full) = evidence("kind = 'handshake', from = 'h1', to = 'h2'");
    full.trace.links[0].missed = 3;
    fails(&check, &full, "no room for 3 frames");
}

#[test]
fn a_query_that_passes_may_change_in_ttl_and_hops_only() {
    let text = "kind = 'passes_query', node = 'r1', gist_hops = 1";
    let passing = || {
        let (check, mut evidence) = evidence(text);
        for (link, messages) in evidence.trace.links.iter_mut().enumerate() {
            messages.messages.truncate(1);
            messages.messages[0].ttl -= u8::from(link == 1);
            messages.messages[0].hops -= u8::from(link == 1);
        }
        (check, evidence)
    };
    let (check, good) = passing();
    holds(&check, &good);
    let change = |why: &str, change: fn(&mut Message)| {
        let (check, mut bad) = passing();
        change(&mut bad.trace.links[1].messages[0]);
        fails(&check, &bad, why);
    };
    change("changed the TTL from 64 to 64", |query| query.ttl = 64);
    change("changed the GIST hop count", |query| query.hops = 8);
    change("changed the Router Alert", |query| query.router_alert = None);
    change("changed the message", |query| query.packet[50] = 1);
    change("changed the UDP ports", |query| query.packet[25] = 1);
    change("changed the source address", |query| query.src = [10, 0, 2, 1].into());
    change("did not leave", |query| query.session = None);
}

#[test]
fn sessions_are_counted_by_packets_and_replies() {
    let (check, mut evidence) = evidence("kind = 'set_up', from = 'h1', to = 'h2', sessions = 1");
    fails(&check, &evidence, "sessions with a reply: 0");
    let reply = crate::evidence::Reply { rtt_ms: 1.0, hops: Vec::new(), last_link_ms: None };
    evidence.pings[0].replies.push(reply);
    holds(&check, &evidence);
    // The Confirm may be lost before the capture: Data the same way proves the Response as well.
    evidence.trace.links[1].messages.remove(2);
    holds(&check, &evidence);
    evidence.trace.links[1].messages.remove(1);
    fails(&check, &evidence, "r1-h2 0");
}

#[test]
fn loss_lies_between_its_bounds_and_is_measured_on_enough_packets() {
    let (check, mut evidence) = evidence("kind = 'loss', min = 15.0, max = 25.0");
    fails(&check, &evidence, "no link has a loss");
    let count = |seen, dropped| vec![LossCount { link: 0, node: 1, seen, dropped }];
    for (seen, dropped, good) in [(1000, 200, true), (1000, 100, false), (1000, 300, false), (50, 10, false)]
    {
        evidence.losses = count(seen, dropped);
        assert_eq!(run(&check, &evidence).ok, good, "{dropped} of {seen}");
    }
}

#[test]
fn state_and_its_end() {
    let (check, mut evidence) = evidence("kind = 'state', label = 'now', sessions = 1");
    fails(&check, &evidence, "nobody was asked");
    let shown = |n: usize| (0..n).map(|id| json!({"session": format!("{id:032x}")})).collect::<Vec<_>>();
    evidence.snapshots = vec![("now".into(), (0..3).map(|node| (node, shown(1))).collect())];
    holds(&check, &evidence);
    evidence.snapshots = vec![("now".into(), (0..3).map(|node| (node, shown(node))).collect())];
    fails(&check, &evidence, "h1 0, r1 1, h2 2");

    let (check, mut evidence) = self::evidence("kind = 'no_routing_state', node = 'r1'");
    fails(&check, &evidence, "nothing was sent");
    evidence.probes.push(ExpiredProbe { to: 1, at: Duration::from_millis(10), session: SESSION });
    fails(&check, &evidence, "does not answer");
    let mut error = message(Kind::Error, 12, "10.0.1.2", "10.0.1.1", false);
    error.error = Some(6);
    evidence.trace.links[0].messages.push(error);
    fails(&check, &evidence, "Error Some(6)");
    evidence.trace.links[0].messages[5].error = Some(NO_ROUTING_STATE);
    holds(&check, &evidence);
}

#[test]
fn silence_and_a_clean_stop() {
    let (check, mut evidence) = evidence("kind = 'silent', label = 'now'");
    evidence.windows.insert("now".into(), (Duration::from_millis(10), Duration::from_millis(20)));
    holds(&check, &evidence);
    evidence.windows.insert("now".into(), (Duration::from_millis(5), Duration::from_millis(20)));
    fails(&check, &evidence, "Data from 10.0.1.2 on h1-r1");

    let (check, mut evidence) = self::evidence("kind = 'clean_stop'");
    fails(&check, &evidence, "no daemon was stopped");
    evidence.stops.push(Stop { node: 1, fault: None, changed: Vec::new() });
    holds(&check, &evidence);
    evidence.stops[0].changed.push("+ ip: 32765: from all fwmark 0x1 lookup 100".into());
    fails(&check, &evidence, "r1: + ip: 32765");
}
