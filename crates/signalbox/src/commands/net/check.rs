//! `signalbox net check`: what is wrong with nodes, or does not fit together.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::ask::{Answer, Asked, faults, object};
use crate::exit::Exit;
use crate::print::table;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {}

/// A clock that is off by less does no harm: messages with integrity keys are taken.
const CLOCK_US: i64 = 1_000_000;
const COLUMNS: [&str; 5] = ["node", "version", "protocols", "interception", "clock"];

pub(super) async fn check(asked: &Asked) -> Result<Exit> {
    let status = asked.show(&["status"], true).await?;
    let interfaces = asked.show(&["interfaces"], true).await?;
    let rsvp = asked.show(&["rsvp", "interfaces"], true).await?;
    let neighbors = asked.show(&["rsvp", "neighbors"], true).await?;
    let nodes: Vec<Status> = status.iter().filter_map(Status::of).collect();
    let mut findings: Vec<String> =
        faults(&status).map(|(node, fault)| format!("{node} does not answer: {}", fault.message)).collect();
    findings.extend(of_nodes(&nodes));
    findings.extend(of_links(&interfaces));
    findings.extend(of_keys(&rsvp, &neighbors));
    let mut out = std::io::stdout().lock();
    if asked.json {
        let rows: Vec<Value> = nodes
            .iter()
            .map(|node| json!({"node": node.node, "version": node.version, "protocols": node.protocols, "clock_us": node.clock}))
            .collect();
        object(
            &mut out,
            "net_check",
            json!({"ok": findings.is_empty(), "nodes": rows, "findings": findings}),
        )?;
    } else {
        let mut table = table::new(&COLUMNS);
        for node in &nodes {
            table.add_row(node.cells());
        }
        table::print(&mut out, &table)?;
        writeln!(out)?;
        for finding in &findings {
            writeln!(out, "{finding}")?;
        }
        if findings.is_empty() {
            writeln!(out, "nothing found at {} nodes", nodes.len())?;
        }
    }
    Ok(Exit::yes_if(findings.is_empty()))
}

/// What a node says about itself.
#[derive(Debug)]
struct Status {
    node: String,
    version: String,
    protocols: Vec<String>,
    /// Faults of the interception; `None`: nothing is intercepted.
    interception: Option<Vec<String>>,
    warnings: Vec<String>,
    /// Microseconds by which its clock is ahead of that of this machine; `None`: it does not say, or what it says lies within the time
    /// that the question took.
    clock: Option<i64>,
}

impl Status {
    fn of(answer: &Answer) -> Option<Self> {
        let row = answer.rows().next()?;
        let texts = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let protocols = row["protocols"].as_array().into_iter().flatten();
        let interception = &row["interception"];
        Some(Self {
            node: answer.node.clone(),
            version: row["version"].as_str().unwrap_or("unknown").to_owned(),
            protocols: protocols.filter_map(|one| one["protocol"].as_str()).map(str::to_owned).collect(),
            interception: interception.is_object().then(|| texts(&interception["faults"])),
            warnings: texts(&row["warnings"]),
            clock: row["time_unix_us"].as_u64().and_then(|time| ahead(time, answer.between)),
        })
    }

    fn cells(&self) -> [String; 5] {
        let clock = self.clock.map_or_else(|| "right".to_owned(), |us| format!("{:+.1} s", us as f64 / 1e6));
        let interception = match &self.interception {
            None => "-",
            Some(faults) if faults.is_empty() => "works",
            Some(_) => "fails",
        };
        [self.node.clone(), self.version.clone(), self.protocols.join(", "), interception.to_owned(), clock]
    }
}

/// How far a clock is ahead that showed `time` between two moments of this one; `None`: it may be right.
fn ahead(time: u64, (begin, end): (u64, u64)) -> Option<i64> {
    let difference = |of: u64| i64::try_from(time).ok()?.checked_sub(i64::try_from(of).ok()?);
    let off = if time > end { difference(end) } else { difference(begin).filter(|off| *off < 0) };
    off.filter(|off| off.abs() > CLOCK_US)
}

fn of_nodes(nodes: &[Status]) -> Vec<String> {
    let mut findings = Vec::new();
    let versions: BTreeSet<&str> = nodes.iter().map(|node| node.version.as_str()).collect();
    if versions.len() > 1 {
        let of = |version: &&str| -> String {
            let names = nodes.iter().filter(|node| node.version == **version).map(|node| node.node.as_str());
            format!("{version} ({})", names.collect::<Vec<_>>().join(", "))
        };
        findings
            .push(format!("different versions: {}", versions.iter().map(of).collect::<Vec<_>>().join("; ")));
    }
    for node in nodes {
        let name = &node.node;
        findings
            .extend(node.interception.iter().flatten().map(|fault| format!("{name}: interception: {fault}")));
        findings.extend(node.warnings.iter().map(|warning| format!("{name}: {warning}")));
        findings.extend(node.clock.map(|us| {
            let way = if us > 0 { "ahead of" } else { "behind" };
            format!(
                "the clock of {name} is {:.1} s {way} that of this machine",
                us.unsigned_abs() as f64 / 1e6
            )
        }));
    }
    findings
}

/// Interfaces with reservations that are down, or where the kernel lacks something.
fn of_links(interfaces: &[Answer]) -> Vec<String> {
    let mut findings = Vec::new();
    for answer in interfaces {
        for row in answer.rows() {
            let name = row["interface"]["name"].as_str().unwrap_or_default();
            if row["up"] == false && row["reservations"].as_u64().unwrap_or(0) > 0 {
                findings.push(format!("{}: {name} is down and has reservations", answer.node));
            }
            let missing =
                row["enforcement"]["missing"].as_array().into_iter().flatten().filter_map(Value::as_str);
            findings.extend(missing.map(|what| format!("{}: {name}: {what}", answer.node)));
        }
    }
    findings
}

/// RSVP neighbors of which one requires signatures and the other does not sign.
fn of_keys(rsvp: &[Answer], neighbors: &[Answer]) -> Vec<String> {
    let mut interfaces: BTreeMap<String, (String, Value)> = BTreeMap::new();
    for answer in rsvp {
        for row in answer.rows() {
            for address in row["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                interfaces.insert(address.to_owned(), (answer.node.clone(), row.clone()));
            }
        }
    }
    let mut findings = BTreeSet::new();
    for answer in neighbors {
        for row in answer.rows() {
            let own = interfaces.values().find(|(node, interface)| {
                *node == answer.node && interface["interface"]["name"] == row["interface"]["name"]
            });
            let other = row["address"].as_str().and_then(|address| interfaces.get(address));
            let (Some(one), Some(other)) = (own, other) else { continue };
            for ((node, interface), (peer, far)) in [(one, other), (other, one)] {
                if interface["requires_signature"] == true && far["signs"] == false {
                    let name = |of: &Value| of["interface"]["name"].as_str().unwrap_or_default().to_owned();
                    findings.insert(format!(
                        "{node} takes only signed messages of RSVP at {}, and {peer} does not sign at {}",
                        name(interface),
                        name(far)
                    ));
                }
            }
        }
    }
    findings.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(node: &str, rows: &[Value]) -> Answer {
        let text = rows.iter().map(|row| format!("{row}\n")).collect();
        Answer { node: node.into(), text: Ok(text), between: (10_000_000, 12_000_000) }
    }

    fn status(version: &str, time: u64, faults: &[&str]) -> Value {
        json!({"version": version, "protocols": [{"protocol": "qos"}], "warnings": [], "time_unix_us": time,
            "interception": {"faults": faults}})
    }

    #[test]
    fn nodes_that_do_not_fit_together_are_named() {
        let answers = [
            answer("a", &[status("0.2.0", 11_000_000, &[])]),
            answer("b", &[status("0.3.0", 15_500_000, &["rule 5 is in the way"])]),
            answer("c", &[status("0.2.0", 9_500_000, &[])]),
        ];
        let nodes: Vec<Status> = answers.iter().filter_map(Status::of).collect();
        let expected = [
            "different versions: 0.2.0 (a, c); 0.3.0 (b)",
            "b: interception: rule 5 is in the way",
            "the clock of b is 3.5 s ahead of that of this machine",
        ];
        assert_eq!(of_nodes(&nodes), expected);
    }

    #[test]
    fn a_neighbor_that_does_not_sign_is_named_once() {
        let interface = |name: &str, address: &str, signs: bool| json!({"interface": {"name": name}, "addresses": [address], "signs": signs, "requires_signature": signs});
        let rsvp = [
            answer("a", &[interface("e0", "10.0.0.1", true)]),
            answer("b", &[interface("e1", "10.0.0.2", false)]),
        ];
        let neighbors = [
            answer("a", &[json!({"interface": {"name": "e0"}, "address": "10.0.0.2"})]),
            answer("b", &[json!({"interface": {"name": "e1"}, "address": "10.0.0.1"})]),
        ];
        let found = of_keys(&rsvp, &neighbors);
        assert_eq!(found, ["a takes only signed messages of RSVP at e0, and b does not sign at e1"]);
    }
}
