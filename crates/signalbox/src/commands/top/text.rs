//! Rates and shares as short texts, and an entry as lines.

use serde_json::Value;

use crate::print::{date_time, duration, rate};

/// A measured rate in bits a second, with two or three digits: `9.8mbit`. The argument counts octets.
pub(super) fn about(octets_per_s: u64) -> String {
    let bits = octets_per_s.saturating_mul(8);
    let (name, unit) = match bits {
        0..1_000 => return format!("{bits}bit"),
        1_000..1_000_000 => ("kbit", 1_000),
        1_000_000..1_000_000_000 => ("mbit", 1_000_000),
        _ => ("gbit", 1_000_000_000),
    };
    match bits / (unit / 10) {
        tenths @ 0..100 => format!("{}.{}{name}", tenths / 10, tenths % 10),
        tenths => format!("{}{name}", tenths / 10),
    }
}

/// Thousandths as a number with one digit behind the point.
pub(super) fn tenths(thousandths: u64) -> String {
    format!("{}.{}", thousandths / 1000, thousandths % 1000 / 100)
}

/// A part in hundredths of the whole; 0 of nothing.
pub(super) fn percent(part: u64, of: u64) -> u64 {
    let hundredths = (u128::from(part) * 100).checked_div(of.into()).unwrap_or(0);
    u64::try_from(hundredths).unwrap_or(u64::MAX)
}

/// A share as a bar with its number: `[###.....]  42%`.
pub(super) fn bar(percent: u64) -> String {
    const CELLS: u64 = 8;
    let cells = (0..CELLS).map(|cell| if (cell + 1) * 100 / CELLS <= percent { '#' } else { '.' });
    format!("[{}] {percent:>3}%", cells.collect::<String>())
}

/// Most lines of an entry: it can have as many senders or flows as its protocol allows.
const LINES: usize = 500;

/// The fields of an entry, a line each, with units for people.
pub(super) fn lines(value: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    add(&mut lines, String::new(), value);
    if lines.len() > LINES {
        lines.truncate(LINES);
        lines.push("… (`signalbox show … --json` prints all of it)".to_owned());
    }
    lines
}

/// Adds what a field has. Fields are nested as in the messages of the API, none of which contains itself.
fn add(lines: &mut Vec<String>, name: String, value: &Value) {
    if lines.len() > LINES {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                add(lines, name, value);
            }
        }
        Value::Array(values) => {
            for (number, value) in values.iter().enumerate() {
                add(lines, format!("{name}[{number}]"), value);
            }
        }
        Value::Null => {}
        Value::String(text) => lines.push(format!("{name:<34} {text}")),
        Value::Bool(yes) => lines.push(format!("{name:<34} {}", if *yes { "yes" } else { "no" })),
        Value::Number(number) => {
            let unit = number.as_u64().and_then(|number| in_units(&name, number));
            let unit = unit.map(|unit| format!(" ({unit})")).unwrap_or_default();
            lines.push(format!("{name:<34} {number}{unit}"));
        }
    }
}

/// A number by the unit in the name of its field.
fn in_units(name: &str, number: u64) -> Option<String> {
    if name.ends_with("_octets_per_s") {
        Some(rate(number))
    } else if name.ends_with("_unix_us") {
        Some(date_time(number))
    } else {
        name.ends_with("_us").then(|| duration(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_rates_have_few_digits() {
        let texts = [0, 124, 125, 1_234, 12_345, 1_226_000, 125_000_000, u64::MAX].map(about);
        let expected =
            ["0bit", "992bit", "1.0kbit", "9.8kbit", "98kbit", "9.8mbit", "1.0gbit", "18446744073gbit"];
        assert_eq!(texts.each_ref().map(String::as_str), expected);
        assert_eq!(tenths(12_345), "12.3");
    }

    #[test]
    fn shares_are_of_something() {
        assert_eq!((percent(1, 0), percent(7, 10), percent(u64::MAX, 1)), (0, 70, u64::MAX));
        assert_eq!(bar(42), "[###.....]  42%");
        assert_eq!(bar(130), "[########] 130%");
    }

    /// A session with very many senders has a bounded number of lines.
    #[test]
    fn an_entry_has_bounded_lines_with_units() {
        let value = serde_json::json!({
            "interface": { "name": "eth0" },
            "rate_octets_per_s": 125_000,
            "expires_in_us": 90_000_000,
            "enforced": true,
            "flows": [{ "source": "10.0.0.1" }],
        });
        let mut shown = lines(&value);
        shown.sort();
        let fields: Vec<Vec<&str>> = shown.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            fields,
            [
                vec!["enforced", "yes"],
                vec!["expires_in_us", "90000000", "(1m30s)"],
                vec!["flows[0].source", "10.0.0.1"],
                vec!["interface.name", "eth0"],
                vec!["rate_octets_per_s", "125000", "(1mbit)"],
            ]
        );
        let many = serde_json::json!({ "senders": vec![7; 100_000] });
        assert_eq!(lines(&many).len(), LINES + 1);
    }
}
