//! The checks on composed evidence: they find what is wrong.

use std::time::Duration;

use super::{judge, judge_of};
use crate::language::expectation::Expectation;
use crate::language::{NamedCheck, read};
use crate::plan::Plan;
use crate::protocols::gist::message::Kind;
use crate::protocols::gist::seen::{Carrier, Message, Seen, Session};
use crate::run::evidence::{Evidence, LossCount, Stop};
use crate::run::observe::trace::{LinkTrace, Trace};
use crate::run::steps::cost::CostRun;
use crate::run::steps::ping::{PingRun, Reply};
use crate::run::steps::program::ProgramRun;
use crate::run::steps::queries::FloodRun;

const SESSION: Session = [7; 16];

/// h1 - r1 - h2 with some steps, and the check of `text`.
fn scenario(check: &str) -> crate::language::Scenario {
    let text = format!(
        r#"version = 2
name = "x"
description = "three in a row"
topology = {{ chain = ["h1", "r1", "h2"], all_nodes = {{ protocols = ["gist", "ping", "qos"] }}, all_links = {{ rate = "10mbit" }} }}
steps = [
    {{ id = "now", wait = "1s" }},
    {{ id = "ping", ping = {{ from = "h1", to = "h2" }} }},
    {{ id = "program", run = {{ node = "h1", command = ["true"] }} }},
    {{ id = "few", flood = {{ type = "udp", from = "h1", to = "h2", port = 9, rate = 10 }} }},
    {{ id = "many", flood = {{ type = "udp", from = "h1", to = "h2", port = 9, rate = 10 }} }},
    {{ id = "queries", flood = {{ type = "query", from = "h1", to = "h2", via = "r1", sources = "10.9.0.0/16", for = "1s", rate = 1000 }} }},
]
[[checks]]
expect = "it"
{check}
"#
    );
    read("x.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

fn message(kind: Kind, at: u64, src: &str, dst: &str, outgoing: bool) -> Message {
    let query = kind == Kind::Query;
    Message {
        carrier: Carrier::Datagram,
        acknowledged: None,
        at: Duration::from_millis(at),
        outgoing,
        frame: usize::try_from(at).expect("small"),
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
        negotiates: false,
        error: None,
        octets: vec![0; 20],
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

pub(crate) fn evidence(check: &str) -> (NamedCheck, Evidence) {
    let scenario = scenario(check);
    let flow = ["10.0.1.1", "10.0.2.2"];
    let link = |first, ends| {
        let mut link = LinkTrace::new(first);
        link.seen_mut::<Seen>().messages = handshake(flow, ends);
        link
    };
    let mut evidence = Evidence::new(Plan::new(&scenario));
    let links = vec![link(0, ["10.0.1.1", "10.0.1.2"]), link(1, ["10.0.2.1", "10.0.2.2"])];
    evidence.trace = Trace { links };
    evidence.record(PingRun { id: Some("ping".into()), from: 0, to: 2, ..PingRun::default() });
    (scenario.checks.into_iter().next().expect("there is one"), evidence)
}

/// What GIST's observer saw on a link.
fn seen(evidence: &mut Evidence, link: usize) -> &mut Seen {
    evidence.trace.links[link].seen_mut()
}

fn between(evidence: &mut Evidence, id: &str, from: u64, to: u64) {
    let [from, to] = [from, to].map(Duration::from_millis);
    evidence.spans.insert(id.into(), (from, to));
    evidence.moments.insert(id.into(), to);
}

#[track_caller]
fn fails(check: &NamedCheck, evidence: &Evidence, why: &str) {
    let outcome = judge(check, evidence);
    assert!(!outcome.ok && outcome.detail.contains(why), "{outcome:?}");
}

#[track_caller]
fn holds(check: &NamedCheck, evidence: &Evidence) {
    let outcome = judge(check, evidence);
    assert!(outcome.ok, "{outcome:?}");
}

/// The check holds, and fails with this reason after the change.
#[track_caller]
fn changed(text: &str, why: &str, change: impl FnOnce(&mut Evidence)) {
    let (check, mut evidence) = evidence(text);
    holds(&check, &evidence);
    change(&mut evidence);
    fails(&check, &evidence, why);
}

#[test]
fn messages_are_counted_by_their_fields_direction_and_time() {
    let queries = "messages = { protocol = 'gist', type = 'query', from = 'h1', to = 'r1', ip_destination = '{h2}', max = 1, min = 1 }";
    changed(queries, "0 of 3", |evidence| seen(evidence, 0).messages[0].kind = Kind::Error);
    changed(queries, "0 of 2", |evidence| seen(evidence, 0).messages[0].outgoing = false);
    changed(queries, "0 of 3", |evidence| seen(evidence, 0).messages[0].dst = "10.0.2.1".parse().unwrap());
    let per_link =
        "messages = { protocol = 'gist', type = 'confirm', links = 'all', per = 'link', max = 1, min = 1 }";
    changed(per_link, "1 on h1-r1, 0 on r1-h2", |evidence| drop(seen(evidence, 1).messages.remove(2)));
    let (check, mut evidence) =
        evidence("messages = { protocol = 'gist', links = 'all', max = 0 }\nduring = 'now'");
    between(&mut evidence, "now", 10, 20);
    holds(&check, &evidence);
    between(&mut evidence, "now", 5, 20);
    fails(&check, &evidence, "frame 5 on h1-r1");
    let have = "messages = { protocol = 'gist', type = 'query', links = 'path h1 h2', have = { router_alert = { present = true }, c = true } }";
    changed(have, "frame 1 on r1-h2: router_alert is absent", |evidence| {
        seen(evidence, 1).messages[0].router_alert = None;
    });
    changed(have, "no room for 3 frames", |evidence| evidence.trace.links[0].missed = 3);
}

#[test]
fn the_same_values_pass_every_link_in_both_directions() {
    let text = "messages = { protocol = 'gist', type = 'data', links = 'path h1 h2', per = 'direction', distinct = 'body', same = true, min = 1, max = 1 }";
    changed(text, "differ", |evidence| seen(evidence, 1).messages[4].octets[15] = 7);
    changed(text, "the values against r1-h2 differ", |evidence| drop(seen(evidence, 1).messages.pop()));
}

#[test]
fn a_sequence_needs_every_message_in_order_on_every_link() {
    let text = "sequence = ['> query', '< response', '> confirm', '> data', '< data']\nlinks = 'path h1 h2'\nper = 'session_id'";
    changed(text, "no sequence begins on r1-h2", |evidence| seen(evidence, 1).messages.clear());
    changed(text, "message 3 of the sequence is missing", |evidence| {
        drop(seen(evidence, 1).messages.remove(2))
    });
    changed(text, "message 3 of the sequence is too early", |evidence| {
        seen(evidence, 0).messages[2].at = Duration::from_micros(1500);
    });
    let lossy = "sequence = ['> query', '< response', '> confirm|data']\nlinks = 'path h1 h2'\nper = 'session_id'\nmin = 1\nmax = 1";
    let (check, mut evidence) = evidence(lossy);
    seen(&mut evidence, 1).messages.remove(2);
    holds(&check, &evidence);
    seen(&mut evidence, 1).messages.remove(1);
    fails(&check, &evidence, "0 of 1 sessions");
}

#[test]
fn a_repair_is_a_sequence_with_the_neighbor_itself_after_the_moment_and_in_time() {
    let text = "sequence = ['> query', { type = '< response', ip_source = '{previous}' }, { type = '> confirm', ip_destination = '{next}' }]\n\
                links = ['h1', 'r1']\nper = 'session_id'\nafter = 'now'\nwithin = '2ms'\nmin = 1";
    let (check, mut evidence) = evidence(text);
    fails(&check, &evidence, "was not taken");
    between(&mut evidence, "now", 0, 1);
    holds(&check, &evidence);
    let measured = judge_of(&check.check).measure(&evidence).expect("it has a moment").1;
    assert_eq!((&measured["sessions"], &measured["last_ms"]), (&1.into(), &2.0.into()));
    seen(&mut evidence, 0).messages[1].src = "10.0.2.2".parse().unwrap();
    fails(&check, &evidence, "0 of 1 sessions");
    seen(&mut evidence, 0).messages[1].src = "10.0.1.2".parse().unwrap();
    seen(&mut evidence, 0).messages[2].at = Duration::from_millis(4);
    fails(&check, &evidence, "within 2ms");
}

#[test]
fn messages_that_pass_a_node_may_change_in_the_named_fields_only() {
    let text = "forwarding = { protocol = 'gist', type = 'query', node = 'r1', path = ['h1', 'h2'], less = { ip_ttl = 1, hops = 1 } }";
    let passing = || {
        let (check, mut evidence) = evidence(text);
        let query = &mut seen(&mut evidence, 1).messages[0];
        (query.ttl, query.hops) = (63, 9);
        (check, evidence)
    };
    let (check, good) = passing();
    holds(&check, &good);
    let change = |why: &str, change: fn(&mut Message)| {
        let (check, mut bad) = passing();
        change(&mut seen(&mut bad, 1).messages[0]);
        fails(&check, &bad, why);
    };
    change("changed ip_ttl from 64 to 64", |query| query.ttl = 64);
    change("changed hops from 10 to 8", |query| query.hops = 8);
    change("changed router_alert", |query| query.router_alert = None);
    change("changed body", |query| query.octets[15] = 1);
    change("changed source_port", |query| query.packet[25] = 1);
    change("changed ip_source", |query| query.src = [10, 0, 2, 1].into());
    change("had not come to r1", |query| query.session = None);
}

#[test]
fn sessions_are_counted_by_their_replies_and_the_nodes_visited() {
    let reply = |at: u64, padding: usize| {
        let sent = Duration::from_millis(at);
        Reply { sent, rtt_ms: 1.0, hops: Vec::new(), last_link_ms: None, padding }
    };
    let (check, mut evidence) = evidence("path = { ping = 'ping', sessions = 1, padding = 8 }");
    fails(&check, &evidence, "0 replies in 0 sessions");
    evidence.first_mut::<PingRun>().replies.push(reply(1, 8));
    holds(&check, &evidence);
    evidence.first_mut::<PingRun>().replies.push(reply(2, 4));
    fails(&check, &evidence, "4 octets of padding");
    let (check, _) = self::evidence("path = ['h1', 'r1', 'h2']");
    fails(&check, &evidence, "a reply went h1, expected h1 - r1 - h2");
}

#[test]
fn loss_lies_between_its_bounds_and_is_measured_on_enough_packets() {
    let (check, mut evidence) = evidence("traffic = { links = 'all', min_loss = '15%', max_loss = '25%' }");
    fails(&check, &evidence, "no link has a loss");
    let count = |seen, dropped| vec![LossCount { link: 0, node: 1, seen, dropped }];
    for (seen, dropped, good) in [(1000, 200, true), (1000, 100, false), (1000, 300, false), (50, 10, false)]
    {
        evidence.losses = count(seen, dropped);
        assert_eq!(judge(&check, &evidence).ok, good, "{dropped} of {seen}");
    }
}

#[test]
fn a_clean_end_leaves_everything_as_it_was() {
    let (check, mut evidence) = evidence("clean = true");
    fails(&check, &evidence, "no daemon was stopped");
    evidence.stops.push(Stop { node: 1, fault: None, before: Vec::new(), changed: Vec::new() });
    holds(&check, &evidence);
    evidence.stops[0].changed.push("+ ip: 32765: from all fwmark 0x1 lookup 100".into());
    fails(&check, &evidence, "r1: + ip: 32765");
}

#[test]
fn a_program_is_judged_by_its_lines_and_its_end() {
    let text = "output = 'program'\nlines = ['one {h2}', { type = 'granted', hops = [{ address = '{r1}' }] }]\nnever = [{ type = 'lost' }]";
    let (check, empty) = evidence(text);
    fails(&check, &empty, "was not taken");
    let granted = r#"{"type":"granted","hops":[{"address":"10.0.1.2","rate":1}]}"#;
    let tried = |lines: [&str; 3], code: Option<i32>, why: Option<&str>| {
        let (_, mut evidence) = evidence(text);
        evidence.record(ProgramRun {
            id: Some("program".into()),
            lines: lines.map(Into::into).to_vec(),
            complaint: "it cannot\n".into(),
            status: code.map(|code| format!("exit status: {code}")),
            code,
            ..ProgramRun::default()
        });
        match why {
            Some(why) => fails(&check, &evidence, why),
            None => holds(&check, &evidence),
        }
    };
    let good = ["line one 10.0.2.2!", "two", granted];
    tried(good, Some(0), None);
    tried([granted, "two", "one 10.0.2.2"], Some(0), Some("in this order"));
    tried(["one 10.0.2.2", r#"{"type":"lost"}"#, granted], Some(0), Some("it printed"));
    tried(good, Some(1), Some("exit status: 1"));
    tried(good, None, Some("did not end in time"));
}

#[test]
fn what_a_packet_costs_is_compared() {
    let run = |id: &str, least: f64, runs: usize| CostRun {
        id: id.into(),
        micros: vec![least; runs],
        disturbed: 1,
    };
    let (check, mut evidence) = evidence("load = { of = 'many', base = 'few', max_times = 1.5 }");
    evidence.record(run("few", 2.0, 50));
    fails(&check, &evidence, "nothing was timed at \"many\"");
    for (least, runs, why) in
        [(3.0, 50, None), (3.1, 50, Some("1.55 times")), (2.0, 49, Some("49 runs were undisturbed"))]
    {
        evidence.remove::<CostRun>();
        evidence.record(run("few", 2.0, 50));
        evidence.record(run("many", least, runs));
        match why {
            Some(why) => fails(&check, &evidence, why),
            None => holds(&check, &evidence),
        }
    }
}

#[test]
fn a_flood_is_judged_by_what_it_took() {
    let text =
        "load = { of = 'queries', min_messages = 1000, max_cpu_per_message = '50us', max_memory_kib = 100 }";
    let (check, mut evidence) = evidence(text);
    fails(&check, &evidence, "flooded nothing");
    let run = || FloodRun {
        id: Some("queries".into()),
        from: 0,
        node: 1,
        sent: 1000,
        span: Duration::from_secs(1),
        cpu: Duration::from_millis(40),
        memory: [1 << 20, (1 << 20) + 4096],
    };
    let outcomes = [
        (run(), true),
        (FloodRun { sent: 999, ..run() }, false),
        (FloodRun { cpu: Duration::from_millis(60), ..run() }, false),
        (FloodRun { memory: [0, 1 << 20], ..run() }, false),
    ];
    for (run, good) in outcomes {
        evidence.remove::<FloodRun>();
        evidence.record(run.clone());
        assert_eq!(judge(&check, &evidence).ok, good, "{run:?}");
    }
}

#[test]
fn a_load_is_what_passed_while_the_step_lasted() {
    let text = "load = { protocol = 'gist', link = 'h1-r1', during = 'now', base_link = 'r1-h2', base = 'now', fewer_packets = 2.0 }";
    let (check, mut evidence) = evidence(text);
    between(&mut evidence, "now", 0, 2);
    fails(&check, &evidence, "1 and");
    seen(&mut evidence, 0).messages.remove(0);
    holds(&check, &evidence);
    between(&mut evidence, "now", 10, 20);
    fails(&check, &evidence, "0 packets");
}

#[test]
fn the_kernel_is_compared_at_the_ends_of_two_steps() {
    let text = "kernel = { node = 'r1', at = 'now', same_as = 'start' }";
    let (check, mut evidence) = evidence(text);
    fails(&check, &evidence, "was not read");
    let lines = |last: &str| vec!["tc qdisc: a".to_owned(), "ip: route".to_owned(), last.to_owned()];
    evidence.kernels.insert(("start".into(), 1), vec![lines("nft: b")]);
    evidence.kernels.insert(("now".into(), 1), vec![lines("nft: b")]);
    holds(&check, &evidence);
    evidence.kernels.insert(("now".into(), 1), vec![lines("nft: c")]);
    fails(&check, &evidence, "- nft: b; + nft: c");
    // It has to stay so.
    evidence.kernels.insert(("now".into(), 1), vec![lines("nft: b"), lines("nft: c")]);
    fails(&check, &evidence, "no longer at the end of `holds`: - nft: b; + nft: c");
}

#[test]
fn what_is_gone_has_to_stay_so() {
    let held = |text: &str| {
        let (check, _) = evidence(text);
        let holds = check.check.expectation().map_or(Duration::ZERO, Expectation::holds);
        (holds, check.check.listens(), check.check.rests())
    };
    let (none, two) = (Duration::ZERO, Duration::from_secs(2));
    let show = "show = 'gist sessions'";
    assert_eq!(held(show), (none, none, none));
    for gone in ["count = 0", "max = 0", "others = 0"] {
        assert_eq!(held(&format!("{show}\n{gone}")), (two, none, none), "{gone}");
    }
    assert_eq!(held(&format!("{show}\ncount = 0\nholds = '5s'")).0, Duration::from_secs(5));
    // What comes has to be so for this time before it counts.
    assert_eq!(held(&format!("{show}\ncount = 1\nholds = '5s'")).0, none);
    let messages = "[checks.messages]\nprotocol = 'gist'\nlinks = 'all'\nmax = ";
    assert_eq!(held(&format!("{messages}0")).1, two);
    assert_eq!(held(&format!("{messages}1")).1, none);
    assert_eq!(held("clean = true").2, two);
}
