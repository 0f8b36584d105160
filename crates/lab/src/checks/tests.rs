//! The checks on composed evidence: they find what is wrong.

use std::time::Duration;

use serde_json::json;

use super::judge;
use crate::evidence::{COUNTERS, Evidence, LossCount, Shown, Stop};
use crate::observe::trace::{LinkTrace, Trace};
use crate::plan::Plan;
use crate::protocols::gist::flood_step::FloodRun;
use crate::protocols::gist::message::{Kind, NO_ROUTING_STATE};
use crate::protocols::gist::probe_expired::ExpiredProbe;
use crate::protocols::gist::seen::{Carrier, Connection, Content, Flow, Message, Seen, Session};
use crate::protocols::ping::step::{PingRun, Reply};
use crate::scenario::{NamedCheck, read};
use crate::steps::CostRun;
use crate::steps::program::ProgramRun;

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
        carrier: Carrier::Datagram,
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
        negotiates: false,
        error: None,
        octets: Vec::new(),
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

pub(crate) fn evidence(checks: &str) -> (NamedCheck, Evidence) {
    let scenario = scenario(checks);
    let flow = ["10.0.1.1", "10.0.2.2"];
    let link = |first, ends| {
        let mut link = LinkTrace::new(first);
        link.seen_mut::<Seen>().messages = handshake(flow, ends);
        link
    };
    let mut evidence = Evidence::new(Plan::new(&scenario));
    let links = vec![link(0, ["10.0.1.1", "10.0.1.2"]), link(1, ["10.0.2.1", "10.0.2.2"])];
    evidence.trace = Trace { links };
    evidence.record(PingRun { from: 0, to: 2, ..PingRun::default() });
    (scenario.checks.into_iter().next().expect("there is one"), evidence)
}

/// What GIST's observer saw on a link.
fn seen(evidence: &mut Evidence, link: usize) -> &mut Seen {
    evidence.trace.links[link].seen_mut()
}

/// A reply to a probe that was sent then, with this padding.
fn reply(at: u64, padding: usize) -> Reply {
    let sent = Duration::from_millis(at);
    Reply { sent, rtt_ms: 1.0, hops: Vec::new(), last_link_ms: None, padding }
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

#[test]
fn a_handshake_needs_every_message_in_order_on_every_link() {
    let (check, good) = evidence("kind = 'handshake', from = 'h1', to = 'h2'");
    holds(&check, &good);
    let change = |why: &str, change: fn(&mut Vec<Message>)| {
        let (_, mut bad) = evidence("kind = 'handshake', from = 'h1', to = 'h2'");
        change(&mut seen(&mut bad, 1).messages);
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
        for (link, messages) in evidence.trace.links.iter_mut().map(LinkTrace::seen_mut::<Seen>).enumerate() {
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
        change(&mut seen(&mut bad, 1).messages[0]);
        fails(&check, &bad, why);
    };
    change("changed the TTL from 64 to 64", |query| query.ttl = 64);
    change("changed the GIST hop count", |query| query.hops = 8);
    change("changed the Router Alert", |query| query.router_alert = None);
    change("changed the message", |query| query.packet[50] = 1);
    change("changed the UDP ports", |query| query.packet[25] = 1);
    change("changed the source address", |query| query.src = [10, 0, 2, 1].into());
    change("no Query passed", |query| query.session = None);
}

#[test]
fn sessions_are_counted_by_packets_and_replies() {
    let (check, mut evidence) = evidence("kind = 'set_up', from = 'h1', to = 'h2', sessions = 1");
    fails(&check, &evidence, "sessions with a reply: 0");
    evidence.first_mut::<PingRun>().replies.push(reply(1, 0));
    holds(&check, &evidence);
    // The Confirm may be lost before the capture: Data in the same direction proves the Response as well.
    seen(&mut evidence, 1).messages.remove(2);
    holds(&check, &evidence);
    seen(&mut evidence, 1).messages.remove(1);
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
        assert_eq!(judge(&check, &evidence).ok, good, "{dropped} of {seen}");
    }
}

#[test]
fn state_and_its_end() {
    let (check, mut evidence) = evidence("kind = 'state', label = 'now', sessions = 1");
    fails(&check, &evidence, "no daemon was asked");
    let shown = |n: usize| {
        let sessions = (0..n).map(|id| json!({"session_id": format!("{id:032x}")})).collect();
        Shown { tables: [("show gist sessions", sessions)].into(), ..Shown::default() }
    };
    evidence.snapshots = vec![("now".into(), (0..3).map(|node| (node, shown(1))).collect())];
    holds(&check, &evidence);
    evidence.snapshots = vec![("now".into(), (0..3).map(|node| (node, shown(node))).collect())];
    fails(&check, &evidence, "h1 0, r1 1, h2 2");

    let (check, mut evidence) = self::evidence("kind = 'no_routing_state', node = 'r1'");
    fails(&check, &evidence, "nothing was sent");
    evidence.record(ExpiredProbe { to: 1, at: Duration::from_millis(10), session: SESSION });
    fails(&check, &evidence, "does not answer");
    let mut error = message(Kind::Error, 12, "10.0.1.2", "10.0.1.1", false);
    error.error = Some(6);
    seen(&mut evidence, 0).messages.push(error);
    fails(&check, &evidence, "Error Some(6)");
    seen(&mut evidence, 0).messages[5].error = Some(NO_ROUTING_STATE);
    holds(&check, &evidence);
}

fn end(text: &str) -> std::net::SocketAddr {
    text.parse().expect("an address")
}

/// A connection that was accepted and carries this both ways.
fn connection(client: &str, server: &str, content: Content) -> Connection {
    let mut flow = Flow::default();
    (flow.content, flow.messages, flow.records) = (content, 2, [1, 3]);
    let (client, server) = (end(client), end(server));
    Connection { sctp: false, client, server, accepted: true, flows: [flow.clone(), flow] }
}

/// The same handshakes over an association on each link.
fn associated(more: &str, content: Content) -> (NamedCheck, Evidence) {
    let (check, mut evidence) =
        evidence(&format!("kind = 'associations', from = 'h1', to = 'h2', sessions = 1{more}"));
    let ends = [["10.0.1.1:4000", "10.0.1.2:270"], ["10.0.2.1:4000", "10.0.2.2:270"]];
    for (link, [client, server]) in evidence.trace.links.iter_mut().map(LinkTrace::seen_mut::<Seen>).zip(ends)
    {
        link.connections = vec![connection(client, server, content)];
        for message in &mut link.messages {
            if matches!(message.kind, Kind::Query | Kind::Response) {
                message.negotiates = true;
            } else {
                message.carrier = Carrier::Stream;
            }
        }
        if content == Content::Tls {
            link.messages.retain(|message| message.carrier == Carrier::Datagram);
        }
    }
    evidence.first_mut::<PingRun>().replies.push(reply(1, 0));
    (check, evidence)
}

#[test]
fn associations_are_negotiated_and_carry_everything_over_one_connection() {
    let (check, good) = associated("", Content::Gist);
    holds(&check, &good);
    let change = |why: &str, change: fn(&mut Seen)| {
        let (_, mut bad) = associated("", Content::Gist);
        change(seen(&mut bad, 1));
        fails(&check, &bad, why);
    };
    change("a Response from 10.0.2.2 lacks", |link| link.messages[1].negotiates = false);
    change("Data from 10.0.2.1 in a datagram", |link| link.messages[3].carrier = Carrier::Datagram);
    change("no Data upstream", |link| drop(link.messages.pop()));
    change("2 connections", |link| link.connections.extend_from_within(..));
    change("0 connections", |link| link.connections.clear());
    change("was not accepted", |link| link.connections[0].accepted = false);
    change("port 270 was expected", |link| link.connections[0].server.set_port(271));
    change("port 270 was expected", |link| link.connections[0].client = end("10.0.2.2:4000"));
    change("Unknown", |link| link.connections[0].flows[1].content = Content::Unknown);
    change("Queries of 0 sessions", |link| drop(link.messages.remove(0)));
    let (_, mut mute) = associated("", Content::Gist);
    mute.first_mut::<PingRun>().replies.clear();
    fails(&check, &mute, "0 of 1 sessions had a reply");
}

#[test]
fn what_is_to_be_secret_is_tls_and_shows_no_session() {
    let (check, good) = associated(", tls = true", Content::Tls);
    holds(&check, &good);
    let (_, clear) = associated(", tls = true", Content::Gist);
    fails(&check, &clear, "carried Gist");
    let change = |why: &str, change: fn(&mut Flow)| {
        let (_, mut bad) = associated(", tls = true", Content::Tls);
        change(&mut seen(&mut bad, 1).connections[0].flows[0]);
        fails(&check, &bad, why);
    };
    change("0 records of the handshake", |flow| flow.records[0] = 0);
    change("in clear", |flow| flow.octets = [&[23, 3, 3][..], &SESSION].concat());
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

#[test]
fn a_program_is_judged_by_its_lines_and_its_end() {
    let (check, empty) = evidence("kind = \"program\", label = \"now\", lines = [\"one\", \"three\"]");
    fails(&check, &empty, "nothing ran as");
    let tried = |lines: [&str; 3], status: Option<&str>, why: Option<&str>| {
        let (_, mut evidence) = evidence("kind = \"no_errors\"");
        evidence.record(ProgramRun {
            label: "now".into(),
            node: 0,
            lines: lines.map(Into::into).to_vec(),
            complaint: "it cannot\n".into(),
            status: status.map(Into::into),
            good: status == Some("exit status: 0"),
        });
        match why {
            Some(why) => fails(&check, &evidence, why),
            None => holds(&check, &evidence),
        }
    };
    let (good, done) = (["line one", "two", "three!"], Some("exit status: 0"));
    tried(good, done, None);
    tried(["three", "one", "two"], done, Some("no line with \"three\""));
    tried(good, Some("exit status: 1"), Some("exit status: 1: it cannot"));
    tried(good, None, Some("did not end in time"));
}

#[test]
fn large_messages_are_the_same_on_every_link_and_both_ways() {
    let text = "kind = 'whole', from = 'h1', to = 'h2', messages = 2, octets = 8";
    let large = || {
        let (check, mut evidence) = evidence(text);
        for link in evidence.trace.links.iter_mut().map(LinkTrace::seen_mut::<Seen>) {
            link.messages.retain(|message| message.kind == Kind::Data);
            link.messages.extend_from_within(..);
            for (number, message) in link.messages.iter_mut().enumerate() {
                message.octets = vec![u8::try_from(number / 2).expect("few"); 20];
            }
        }
        evidence.first_mut::<PingRun>().replies = vec![reply(1, 8), reply(2, 8)];
        (check, evidence)
    };
    let (check, good) = large();
    holds(&check, &good);
    let change = |why: &str, change: fn(&mut Evidence)| {
        let (_, mut bad) = large();
        change(&mut bad);
        fails(&check, &bad, why);
    };
    change("1 different messages", |evidence| seen(evidence, 1).messages.truncate(2));
    change("other octets", |evidence| seen(evidence, 1).messages[2].octets[15] = 7);
    change("8 octets came back", |evidence| drop(evidence.first_mut::<PingRun>().replies.pop()));
}

#[test]
fn a_repair_is_a_handshake_with_the_neighbour_itself_and_a_reply_since() {
    let text =
        "kind = 'repaired', label = 'lost', hops = ['h1', 'r1'], sessions = 1, within = '1s', goal = '2ms'";
    let text = format!(
        "name = \"x\"\ndescription = \"\"\nnodes = [{{ name = \"h1\" }}, {{ name = \"r1\", forward = true }}, \
         {{ name = \"h2\" }}]\nlinks = [{{ ends = [\"h1\", \"r1\"] }}, {{ ends = [\"r1\", \"h2\"] }}]\n\
         workload = [{{ step = \"kill\", node = \"r1\", label = \"lost\" }}]\nchecks = [{{ name = \"it\", {text} }}]\n"
    );
    let scenario = read("x.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let check = scenario.checks.first().expect("there is one");
    let (_, mut evidence) = evidence("kind = 'no_errors'");
    fails(check, &evidence, "nothing happened");
    // The handshake of the evidence takes from 1 ms to 3 ms.
    evidence.moments.insert("lost".into(), Duration::from_micros(500));
    fails(check, &evidence, "0 had a reply");
    evidence.first_mut::<PingRun>().replies.push(reply(2, 0));
    holds(check, &evidence);
    let measured = |evidence: &Evidence| check.check.measure(evidence).expect("labelled").1;
    assert_eq!(measured(&evidence)["goal_reached"], true);
    seen(&mut evidence, 0).messages[1].src = "10.0.2.2".parse().expect("an address");
    fails(check, &evidence, "0 sessions");
    seen(&mut evidence, 0).messages[1].src = "10.0.1.2".parse().expect("an address");
    seen(&mut evidence, 0).messages[2].at = Duration::from_millis(900);
    holds(check, &evidence);
    assert_eq!(measured(&evidence)["goal_reached"], false);
    evidence.moments.insert("lost".into(), Duration::from_millis(2));
    fails(check, &evidence, "0 sessions");
}

#[test]
fn a_flood_is_judged_by_what_it_took() {
    let text = "kind = 'flood', node = 'r1', queries = 1000, cpu_per_query = '50us', memory_kib = 100";
    let (check, mut evidence) = evidence(text);
    fails(&check, &evidence, "was not flooded");
    let run = FloodRun {
        from: 0,
        node: 1,
        sent: 1000,
        span: Duration::from_secs(1),
        cpu: Duration::from_millis(40),
        memory: [1 << 20, (1 << 20) + 4096],
    };
    let outcomes = [
        (run, true),
        (FloodRun { sent: 999, ..run }, false),
        (FloodRun { cpu: Duration::from_millis(60), ..run }, false),
        (FloodRun { memory: [0, 1 << 20], ..run }, false),
    ];
    for (run, good) in outcomes {
        evidence.forget::<FloodRun>();
        evidence.record(run);
        assert_eq!(judge(&check, &evidence).ok, good, "{run:?}");
    }
}

#[test]
fn what_a_packet_costs_is_compared() {
    let text = "kind = 'cost', label = 'many', base = 'few', most = 1.5";
    let text = format!(
        "name = \"x\"\ndescription = \"\"\nnodes = [{{ name = \"h1\" }}, {{ name = \"h2\" }}]\n\
         links = [{{ ends = [\"h1\", \"h2\"] }}]\n\
         workload = [{{ step = \"cost\", label = \"few\", from = \"h1\", to = \"h2\", port = 9 }}, \
         {{ step = \"cost\", label = \"many\", from = \"h1\", to = \"h2\", port = 9 }}]\n\
         checks = [{{ name = \"it\", {text} }}]\n"
    );
    let scenario = read("x.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let check = scenario.checks.first().expect("there is one");
    let (_, mut evidence) = evidence("kind = 'no_errors'");
    let run = |label: &str, least: f64, runs: usize| CostRun {
        label: label.into(),
        micros: vec![least; runs],
        disturbed: 1,
    };
    evidence.record(run("few", 2.0, 50));
    fails(check, &evidence, "nothing was timed at \"many\"");
    evidence.record(run("many", 3.0, 50));
    holds(check, &evidence);
    evidence.forget::<CostRun>();
    evidence.record(run("few", 2.0, 50));
    evidence.record(run("many", 3.1, 50));
    fails(check, &evidence, "1.55 times");
    evidence.forget::<CostRun>();
    evidence.record(run("few", 2.0, 50));
    evidence.record(run("many", 2.0, 49));
    fails(check, &evidence, "49 runs were undisturbed");
}

#[test]
fn who_is_refused_leaves_nothing_behind() {
    let text = "kind = 'refused', from = 'h1', to = 'h2', by = 'r1', label = 'now', counter = 'signalbox_channels_failed_total', \
         most = 1";
    let kept_out = || {
        let (check, mut evidence) = evidence(text);
        seen(&mut evidence, 0).messages.truncate(2);
        seen(&mut evidence, 0).connections = vec![connection("10.0.1.1:4000", "10.0.1.2:270", Content::Tls)];
        seen(&mut evidence, 1).messages.clear();
        evidence.first_mut::<PingRun>().lost.push("no reply in time".into());
        let counters = vec![json!({"name": "signalbox_channels_failed_total", "samples": [{"count": 1}]})];
        let associations = vec![json!({"peer": {"address": "10.0.2.2", "port": 270}})];
        let tables = [(COUNTERS, counters), ("show gist associations", associations)].into();
        let shown = Shown { tables, ..Shown::default() };
        evidence.snapshots = vec![("now".into(), [(1, shown)].into())];
        (check, evidence)
    };
    let (check, good) = kept_out();
    holds(&check, &good);
    let change = |why: &str, change: fn(&mut Evidence)| {
        let (_, mut bad) = kept_out();
        change(&mut bad);
        fails(&check, &bad, why);
    };
    change("1 replies", |evidence| evidence.first_mut::<PingRun>().replies.push(reply(1, 0)));
    change("did not try", |evidence| seen(evidence, 0).connections.clear());
    change("2 connections", |evidence| {
        let another = connection("10.0.1.1:4001", "10.0.1.2:270", Content::Tls);
        seen(evidence, 0).connections.push(another);
    });
    change("can be read", |evidence| {
        let data = message(Kind::Data, 3, "10.0.1.1", "10.0.1.2", true);
        seen(evidence, 0).messages.push(data);
    });
    change("in clear", |evidence| seen(evidence, 0).connections[0].flows[0].content = Content::Gist);
    change("went on to r1-h2", |evidence| {
        seen(evidence, 1).messages.push(message(Kind::Query, 3, "10.0.1.1", "10.0.2.2", true));
    });
    change("an association with it", |evidence| {
        let shown = evidence.snapshots[0].1.get_mut(&1).expect("asked");
        shown
            .tables
            .get_mut("show gist associations")
            .expect("asked")
            .push(json!({"peer": {"address": "10.0.1.1", "port": 270}}));
    });
    change("counts no", |evidence| {
        evidence.snapshots[0].1.get_mut(&1).expect("asked").tables.remove(COUNTERS);
    });
}
