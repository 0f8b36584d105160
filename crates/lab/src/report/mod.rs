//! The result of a run: tables for people, one JSON object for programs.

pub(crate) mod about;
pub mod chart;
mod checks;
pub(crate) mod csv;
pub(crate) mod interval;
pub(crate) mod junit;
pub(crate) mod numbers;
pub mod object;
mod octets;
pub(crate) mod plot;
mod protocols;
pub(crate) mod simulated;
mod steps;
pub(crate) mod sweep;
mod times;
mod usage;

use std::fmt::Write as _;

use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::judge::judge_of;
use crate::language::Scenario;
use crate::run::evidence::{Evidence, Outcome};

/// The result of a scenario.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) scenario: String,
    pub(crate) ok: bool,
    /// Why the scenario was not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skip: Option<String>,
    pub(crate) checks: Vec<Outcome>,
    pub(crate) measurements: Value,
}

/// A part of the report for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    title: String,
    /// Empty: the rows are lines of text.
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Section {
    /// Returns a table.
    pub(crate) fn table(title: impl Into<String>, header: &[&str], rows: Vec<Vec<String>>) -> Self {
        let header = header.iter().map(|cell| (*cell).to_owned()).collect();
        Self { title: title.into(), header, rows }
    }

    /// Returns lines of text.
    pub(crate) fn lines(title: impl Into<String>, lines: impl IntoIterator<Item = String>) -> Self {
        let rows = lines.into_iter().map(|line| vec![line]).collect();
        Self { title: title.into(), header: Vec::new(), rows }
    }

    fn text(&self) -> String {
        if self.header.is_empty() {
            let lines = self.rows.iter().flatten().map(|line| format!(" {line}"));
            return lines.collect::<Vec<_>>().join("\n");
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(&self.header).add_rows(&self.rows);
        table.to_string()
    }
}

impl Report {
    /// Puts the outcomes and the measurements of a run together.
    pub(crate) fn new(scenario: &Scenario, checks: Vec<Outcome>, evidence: &Evidence) -> Self {
        let ok = checks.iter().all(|check| check.ok);
        let measurements = measurements(scenario, evidence);
        Self { scenario: scenario.name.clone(), ok, skip: None, checks, measurements }
    }

    /// Returns the report of a scenario that cannot run on this machine.
    pub(crate) fn skipped(scenario: &Scenario, why: String) -> Self {
        let (checks, measurements) = (Vec::new(), Map::new().into());
        Self { scenario: scenario.name.clone(), ok: true, skip: Some(why), checks, measurements }
    }

    /// Returns the report for people: what protocols, steps and checks show, and the verdicts.
    pub(crate) fn text(&self, scenario: &Scenario, evidence: &Evidence) -> String {
        let mut sections: Vec<Section> =
            protocols::SHOWN.iter().flat_map(|shown| (shown.sections)(evidence)).collect();
        sections.extend(steps::sections(evidence));
        for section in scenario.checks.iter().filter_map(|check| checks::section(&check.check, evidence)) {
            match sections.iter_mut().find(|known| known.title == section.title) {
                Some(known) => {
                    known.rows.extend(section.rows);
                    known.rows.dedup();
                }
                None => sections.push(section),
            }
        }
        let verdicts = self.checks.iter().map(|check| {
            let word = if check.ok { "ok" } else { "FAILED" };
            format!("{word:6}  {}\n         {}", check.name, check.detail)
        });
        sections.push(Section::lines("checks", verdicts));
        let mut text = String::new();
        for section in sections.iter().filter(|section| !section.rows.is_empty()) {
            // Writing to a string does not fail.
            let _ = write!(text, "{}\n{}\n\n", section.title, section.text());
        }
        let failed = self.checks.iter().filter(|check| !check.ok).count();
        let _ = match failed {
            0 => writeln!(text, "{}: all {} checks hold", self.scenario, self.checks.len()),
            failed => writeln!(text, "{}: {failed} of {} checks FAILED", self.scenario, self.checks.len()),
        };
        text
    }
}

/// Returns the outcome of a file that was asked for and could not be written. What was measured is not lost with it.
pub(crate) fn unwritten(error: &anyhow::Error) -> Outcome {
    Outcome::new("the files that were asked for are written", Err(format!("{error:#}")))
}

/// The measurement that each protocol has.
const MESSAGES: &str = "messages";

fn measurements(scenario: &Scenario, evidence: &Evidence) -> Value {
    let mut all = Map::new();
    for shown in protocols::SHOWN {
        for (name, value) in (shown.measure)(evidence) {
            // Messages have the same name for each protocol that the lab reads.
            if name == MESSAGES {
                let group = all.entry(name).or_insert_with(|| Map::new().into());
                group[shown.protocol] = value;
            } else {
                all.insert(name.to_owned(), value);
            }
        }
    }
    all.extend(times::measure(evidence, scenario.seed).map(|times| ("times_ms".to_owned(), times)));
    let octets = octets::measure(evidence);
    if !octets.is_empty() {
        all.insert("layer_octets".to_owned(), octets.into());
    }
    for (name, value) in steps::measure(evidence).into_iter().chain(usage::measure(evidence)) {
        all.insert(name.to_owned(), value);
    }
    for check in &scenario.checks {
        if let Some((name, value)) = judge_of(&check.check).measure(evidence) {
            let group = all.entry(name).or_insert_with(|| Map::new().into());
            group[check.name.as_str()] = value;
        }
    }
    if !evidence.losses.is_empty() {
        let loss = |count: &crate::run::evidence::LossCount| {
            json!({
                "link": evidence.plan.links[count.link].name,
                "to": evidence.plan.nodes[count.node].name,
                "packets": count.seen,
                "lost": count.dropped,
            })
        };
        all.insert("loss".into(), evidence.losses.iter().map(loss).collect());
    }
    all.into()
}

/// Returns count, least, greatest and quantiles of sorted times.
pub(crate) fn quantiles(times: &[f64]) -> Value {
    let at = |percent: usize| times.get(((times.len() * percent).div_ceil(100)).saturating_sub(1)).copied();
    json!({
        "count": times.len(), "min": times.first(), "p50": at(50), "p90": at(90), "p99": at(99), "max": times.last(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_sorted_times() {
        let times: Vec<f64> = (1..=10).map(f64::from).collect();
        let value = quantiles(&times);
        assert_eq!((&value["count"], &value["p50"], &value["p90"]), (&json!(10), &json!(5.0), &json!(9.0)));
        assert_eq!((&value["p99"], &value["max"]), (&json!(10.0), &json!(10.0)));
        assert_eq!(quantiles(&[])["p50"], Value::Null);
    }
}
