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

/// What programs printed, by the names of their steps.
fn programs(evidence: &Evidence) -> Option<(&'static str, Value)> {
    let line = |line: &String| match serde_json::from_str(line) {
        Ok(value @ Value::Object(_)) => value,
        _ => Value::from(line.as_str()),
    };
    let of = |run: &ProgramRun| {
        let lines: Vec<Value> = run.lines.iter().map(line).collect();
        let node = &evidence.plan.nodes[run.node].name;
        (run.id.clone().unwrap_or_default(), json!({"node": node, "status": run.code, "lines": lines}))
    };
    let all: Map<_, _> = evidence.all().filter(|run: &&ProgramRun| !run.reserves).map(of).collect();
    (!all.is_empty()).then(|| ("programs", all.into()))
}

/// The same for people.
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
        let seconds = number("elapsed_us").map(|us| us / 1e6).filter(|seconds| *seconds > 0.0);
        let types: Vec<Value> = run
            .lines
            .iter()
            .filter_map(|line| Some(serde_json::from_str::<Value>(line).ok()?["type"].clone()))
            .collect();
        let mut value = json!({"answer_ms": ms, "events": types, "status": run.code});
        if let Some((flows, seconds)) = number("flows").zip(seconds) {
            value["per_second"] = (flows / seconds).into();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::evidence;

    #[test]
    fn what_programs_print_is_measured_line_for_line() {
        let (_, mut evidence) = evidence("clean = true");
        let lines = ["observing", r#"{"type":"kept","median_us":9.5}"#].map(str::to_owned).to_vec();
        let run = ProgramRun { id: Some("observer".into()), lines, code: Some(0), ..ProgramRun::default() };
        evidence.record(run);
        let (_, programs) = programs(&evidence).expect("there is one");
        assert_eq!(programs["observer"]["lines"], json!(["observing", {"type": "kept", "median_us": 9.5}]));
        assert_eq!(programs["observer"]["status"], 0);
    }

    #[test]
    fn many_reservations_have_a_rate_and_one_has_none() {
        let (_, mut evidence) = evidence("clean = true");
        for (id, line) in [
            (
                "many",
                r#"{"type":"granted","time_unix_us":9,"flows":10000,"elapsed_us":2000000,"far_end":true}"#,
            ),
            ("one", r#"{"type":"granted","time_unix_us":9}"#),
        ] {
            let (lines, times) = (vec![line.to_owned()], vec![Duration::from_secs(1)]);
            let id = Some(id.to_owned());
            evidence.record(ProgramRun { id, reserves: true, lines, times, ..ProgramRun::default() });
        }
        let (_, reservations) = reservations(&evidence).expect("there are two");
        assert_eq!(reservations["many"]["per_second"], json!(5000.0));
        assert_eq!(reservations["one"].get("per_second"), None);
    }
}
