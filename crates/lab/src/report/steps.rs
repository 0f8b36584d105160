//! What the report shows of the steps of each kind: for people, by names for programs, and as marks in a plot.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Section;
use crate::judge::load::Cost;
use crate::judge::traffic::{Service, services};
use crate::run::evidence::Evidence;
use crate::run::steps::cost::CostRun;
use crate::run::steps::program::ProgramRun;
use crate::run::steps::queries::FloodRun;
use crate::run::steps::reserve::ANSWERS;
use crate::run::steps::traffic::TrafficRun;

/// What the report shows people.
pub(super) fn sections(evidence: &Evidence) -> Vec<Section> {
    programs_shown(evidence).into_iter().chain([flows_shown(evidence)]).collect()
}

/// Returns the measurement of each kind of step, with its name in the report.
pub(super) fn measure(evidence: &Evidence) -> Vec<(&'static str, Value)> {
    let all = [programs(evidence), reservations(evidence), flows(evidence), floods(evidence)];
    all.into_iter().flatten().collect()
}

/// What programs measured themselves.
fn programs(evidence: &Evidence) -> Option<(&'static str, Value)> {
    let measured = |line: &String| {
        let value: Value = serde_json::from_str(line).ok()?;
        (value["type"] == "measured").then_some(value)
    };
    let of = |run: &ProgramRun| {
        let lines: Vec<Value> = run.lines.iter().filter_map(measured).collect();
        (!lines.is_empty()).then(|| (run.id.clone().unwrap_or_default(), lines.into()))
    };
    let all: Map<_, _> = evidence.all().filter_map(of).collect();
    (!all.is_empty()).then(|| ("programs", all.into()))
}

/// What programs printed.
fn programs_shown(evidence: &Evidence) -> Vec<Section> {
    let section = |run: &ProgramRun| {
        let node = &evidence.plan.nodes[run.node].name;
        let id = run.id.clone().unwrap_or_default();
        Section::lines(format!("{id}, in {node}"), run.lines.iter().cloned())
    };
    evidence.all().filter(|run: &&ProgramRun| !run.reserves).map(section).collect()
}

/// How reservations were answered.
fn reservations(evidence: &Evidence) -> Option<(&'static str, Value)> {
    let one = |run: &ProgramRun| {
        let answer = run.event(&ANSWERS);
        let ms = answer.as_ref().map(|(at, _)| at.saturating_sub(run.started).as_secs_f64() * 1e3);
        let number = |key: &str| answer.as_ref().and_then(|(_, answer)| answer[key].as_f64());
        let rate = number("flows").zip(number("seconds")).map(|(flows, seconds)| flows / seconds);
        let types: Vec<Value> = run
            .lines
            .iter()
            .filter_map(|line| Some(serde_json::from_str::<Value>(line).ok()?["type"].clone()))
            .collect();
        let value = json!({"answer_ms": ms, "per_second": rate, "events": types, "status": run.code});
        (run.id.clone().unwrap_or_default(), value)
    };
    let all: Map<_, _> = evidence.all().filter(|run: &&ProgramRun| run.reserves).map(one).collect();
    (!all.is_empty()).then(|| ("reservations", all.into()))
}

/// Returns when something happened to reservations that a plot should mark, in the time since 1970, and a label for it.
pub(super) fn marks(evidence: &Evidence) -> Vec<(Duration, String)> {
    const MARKED: [(&str, &str); 5] = [
        ("granted", "reserved"),
        ("refused", "refused"),
        ("failed", "refused"),
        ("lost", "lost"),
        ("released", "torn"),
    ];
    let runs = || evidence.all::<ProgramRun>().filter(|run| run.reserves);
    let several = runs().count() > 1;
    let of = |run: &ProgramRun| {
        let id = run.id.clone().unwrap_or_default();
        let label = |word: &str| if several { format!("{id} {word}") } else { word.to_owned() };
        let found = MARKED.map(|(kind, word)| run.event(&[kind]).map(|(at, _)| (at, label(word))));
        found.into_iter().flatten().collect::<Vec<_>>()
    };
    runs().flat_map(of).collect()
}

/// The service that each flow received in each phase.
fn flows(evidence: &Evidence) -> Option<(&'static str, Value)> {
    let phase = |(label, service): (&str, Service)| {
        let value = json!({
            "sent": service.sent, "lost": service.lost, "loss_percent": service.loss(),
            "goodput_kbit": service.goodput / 1e3,
            "delay_ms": {"p50": service.delay(50), "p99": service.delay(99), "max": service.delay(100)},
        });
        (label.to_owned(), value)
    };
    let flow = |(run, services): (&TrafficRun, Vec<_>)| {
        (run.name.clone(), services.into_iter().map(phase).collect::<Map<_, _>>().into())
    };
    let flows: Map<_, _> = services(evidence).into_iter().map(flow).collect();
    (!flows.is_empty()).then(|| ("traffic", flows.into()))
}

/// The same for people: a row for each flow and phase.
fn flows_shown(evidence: &Evidence) -> Section {
    let ms = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
    let header = ["flow", "phase", "sent", "lost", "loss %", "delay ms p50", "p99", "goodput kbit/s"];
    let mut rows = Vec::new();
    for (run, services) in services(evidence) {
        rows.extend(services.into_iter().map(|(phase, service)| {
            vec![
                run.name.clone(),
                phase.to_owned(),
                service.sent.to_string(),
                service.lost.to_string(),
                format!("{:.1}", service.loss()),
                ms(service.delay(50)),
                ms(service.delay(99)),
                format!("{:.0}", service.goodput / 1e3),
            ]
        }));
    }
    Section::table("flows", &header, rows)
}

/// What floods cost.
fn floods(evidence: &Evidence) -> Option<(&'static str, Value)> {
    let mut all = packets(evidence);
    for run in evidence.all::<FloodRun>() {
        all.insert(run.id.clone().unwrap_or_default(), queries(run, evidence));
    }
    (!all.is_empty()).then(|| ("floods", all.into()))
}

/// What floods of plain packets cost.
fn packets(evidence: &Evidence) -> Map<String, Value> {
    let one = |run: &CostRun| {
        let value = json!({
            "us_least": run.least(), "us_median": run.micros.get(run.micros.len() / 2),
            "runs": run.micros.len(), "disturbed": run.disturbed,
        });
        (run.id.clone(), value)
    };
    evidence.all().map(one).collect()
}

/// What a flood of Queries cost.
fn queries(run: &FloodRun, evidence: &Evidence) -> Value {
    let cost = Cost::of(run, evidence);
    json!({
        "node": evidence.plan.nodes[run.node].name,
        "queries": run.sent,
        "seconds": run.span.as_secs_f64(),
        "cpu_us_per_query": cost.cpu_us,
        "cpu_share": cost.cpu_share,
        "memory_growth_kib": cost.memory_kib,
        "amplification": cost.amplification,
    })
}
