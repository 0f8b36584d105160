//! The numbers among the measurements of a run: each with its name, what it is of, and its unit.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// What a number is of that is about the whole run.
pub(crate) const ALL: &str = "all";

/// The unit of a number of things.
const ONE: &str = "1";

/// How the name of a measurement ends, and its unit.
const UNITS: [(&str, &str); 15] = [
    ("_ms", "ms"),
    ("_us", "us"),
    ("_ns", "ns"),
    ("_kbit", "kbit/s"),
    ("_percent", "%"),
    ("_per_second", "1/s"),
    ("per_second", "1/s"),
    ("_per_s", "1/s"),
    ("_kib", "KiB"),
    ("_octets", "octet"),
    ("octets", "octet"),
    ("seconds", "s"),
    ("us_least", "us"),
    ("us_median", "us"),
    ("cpu_us_per_query", "us"),
];

/// Numbers of things, also inside of a measurement with a unit.
const COUNTS: [&str; 8] = ["count", "sessions", "sent", "lost", "packets", "runs", "sizes", "scv"];

/// The name of a number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Name {
    pub(crate) measurement: String,
    /// The link, flow or step, and the phase; [`ALL`] is the whole run.
    pub(crate) of: String,
    pub(crate) statistic: String,
}

/// As `[sweep]` names it: `traffic/flow/before/loss_percent`, or `rtt_ms/p50` of the whole run.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measurement, of, statistic } = self;
        match of.as_str() {
            ALL if measurement == statistic => f.write_str(measurement),
            ALL => write!(f, "{measurement}/{statistic}"),
            _ => write!(f, "{measurement}/{of}/{statistic}"),
        }
    }
}

/// A number that a run measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Number {
    pub(crate) name: Name,
    pub(crate) unit: &'static str,
    pub(crate) value: serde_json::Number,
}

/// Returns all numbers of the measurements, in the order of their names.
pub(crate) fn numbers(measurements: &Value) -> Vec<Number> {
    let mut all = Vec::new();
    walk(measurements, &mut Vec::new(), &mut |path, value| {
        let ([measurement, rest @ ..], Some(statistic)) = (path, path.last()) else { return };
        let of = rest.split_last().map_or_else(String::new, |(_, of)| of.join("/"));
        // An empty cell would be a missing value for the programs that read a table.
        let of = if of.is_empty() { ALL.to_owned() } else { of };
        let name = Name { measurement: measurement.clone(), of, statistic: statistic.clone() };
        all.push(Number { name, unit: unit(path), value: value.clone() });
    });
    all
}

/// Visits each number, with the names that lead to it.
fn walk(value: &Value, path: &mut Vec<String>, visit: &mut impl FnMut(&[String], &serde_json::Number)) {
    match value {
        Value::Number(number) => visit(path, number),
        Value::Object(object) => {
            for (name, value) in object {
                path.push(name.clone());
                walk(value, path, visit);
                path.pop();
            }
        }
        Value::Array(array) => {
            for (name, value) in names(array).into_iter().zip(array) {
                path.push(name);
                walk(value, path, visit);
                path.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Names the elements of a list: by the words in each, so that an element keeps its name where another one comes or goes, and by its place among those
/// of the same words.
fn names(list: &[Value]) -> Vec<String> {
    let words: Vec<String> = list.iter().map(words).collect();
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    let several = |one: &String| words.iter().filter(|other| *other == one).nth(1).is_some();
    let names = words.iter().map(|one| {
        let place = met.entry(one).or_default();
        *place += 1;
        match (one.as_str(), several(one)) {
            ("", _) => (*place - 1).to_string(),
            (_, true) => format!("{} {one}", *place - 1),
            (_, false) => one.clone(),
        }
    });
    names.collect()
}

/// The texts and truths in an object.
fn words(value: &Value) -> String {
    let words = value.as_object().into_iter().flatten().filter_map(|(name, value)| match value {
        Value::String(text) => Some(format!("{name}={text}")),
        Value::Bool(truth) => Some(format!("{name}={truth}")),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the unit that the names of a number say.
fn unit(path: &[String]) -> &'static str {
    let Some((leaf, _)) = path.split_last() else { return ONE };
    if COUNTS.contains(&leaf.as_str()) {
        return ONE;
    }
    // The round trips of each step are in milliseconds.
    if path.first().is_some_and(|first| first == "pings") {
        return if leaf == "variance" { "ms2" } else { "ms" };
    }
    let mut names = path.iter().rev();
    names.find_map(|name| UNITS.iter().find(|(end, _)| name.ends_with(end))).map_or(ONE, |(_, unit)| *unit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_those_of_a_sweep() {
        let measured = json!({
            "rtt_ms": {"p50": 1.5}, "last_link_ms": 0.25, "traffic": {"flow": {"before": {"sent": 9}}}, "path": ["h1"],
        });
        let all: Vec<_> =
            numbers(&measured).iter().map(|number| format!("{} {}", number.name, number.unit)).collect();
        assert_eq!(all, ["last_link_ms ms", "rtt_ms/p50 ms", "traffic/flow/before/sent 1"]);
    }

    /// A run in which an acknowledgment passed, too, is compared with one without.
    #[test]
    fn a_row_keeps_its_name_where_another_one_comes() {
        let row = |kind: &str, stands: bool| json!({"type": kind, "stands": stands, "octets": 3});
        let shown = |rows: Vec<Value>| -> Vec<_> {
            numbers(&json!({"rows": rows})).iter().map(|number| number.name.to_string()).collect()
        };
        assert_eq!(shown(vec![row("syn", true)]), ["rows/stands=true type=syn/octets"]);
        assert_eq!(
            shown(vec![row("ack", true), row("syn", false), row("syn", true)])[1..],
            ["rows/stands=false type=syn/octets", "rows/stands=true type=syn/octets"]
        );
        assert_eq!(
            shown(vec![json!({"n": 1}), row("syn", true), row("syn", true)]),
            ["rows/0/n", "rows/0 stands=true type=syn/octets", "rows/1 stands=true type=syn/octets"]
        );
    }
}
