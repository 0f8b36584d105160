//! What the results of all benchmarks have in common: the machine, whether the measurement was disturbed, impossible figures, and
//! the goals.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use signalbox_lab::machine::{Machine, Verdict, Watch};
use signalbox_lab::{object, provenance};

use super::{Goal, print, rounded};

/// Most times the rate of the bare program that a node can reach. The node does the work of that program and its own, so a greater rate
/// is a fault of the measurement.
const MOST_TIMES: f64 = 1.25;

/// How a benchmark ended.
pub(super) struct Judged {
    bench: &'static str,
    started_unix_us: u64,
    machine: Machine,
    verdict: Verdict,
    faults: Vec<String>,
    goals: Vec<Goal>,
}

impl Judged {
    /// Judges times and rates. `faults` are impossible figures.
    pub(super) fn new(bench: &'static str, watch: &Watch, goals: Vec<Goal>, faults: Vec<String>) -> Self {
        let judged = Self::on(watch.machine(), bench, goals, faults);
        Self { started_unix_us: watch.started_unix_us(), ..judged }
    }

    /// Judges counts, which repeat whatever other programs do.
    pub(super) fn counted(bench: &'static str, watch: &Watch) -> Self {
        let judged = Self::new(bench, watch, Vec::new(), Vec::new());
        Self { verdict: Verdict::Clean, ..judged }
    }

    fn on(machine: Machine, bench: &'static str, goals: Vec<Goal>, faults: Vec<String>) -> Self {
        let verdict = if faults.is_empty() { machine.verdict() } else { Verdict::Invalid };
        Self { bench, started_unix_us: 0, machine, verdict, faults, goals }
    }

    /// Prints the result: `figures` as JSON, or `text`.
    ///
    /// # Errors
    /// A figure is impossible. All is printed before.
    pub(super) fn print(&self, json: bool, figures: &Value, text: &str) -> Result<()> {
        if json {
            print(&object::line("bench", &self.json(figures))?);
        } else {
            print(&self.text(text));
        }
        if self.verdict == Verdict::Invalid {
            bail!("the measurement is invalid: {}", self.faults.join("; "));
        }
        Ok(())
    }

    fn json(&self, figures: &Value) -> Value {
        let mut report = json!({
            "bench": self.bench,
            "started_unix_us": self.started_unix_us,
            "program": provenance::own(),
            "machine": self.machine,
            "verdict": self.verdict,
            "faults": self.faults,
            "goals": self.goals.iter().map(|goal| self.goal(goal)).collect::<Vec<_>>(),
        });
        for (name, value) in figures.as_object().into_iter().flatten() {
            report[name] = value.clone();
        }
        report
    }

    /// Whether a goal is reached; `None`: this measurement cannot say it.
    fn reached(&self, goal: &Goal) -> Option<bool> {
        (self.verdict == Verdict::Clean).then_some(goal.reached)
    }

    fn goal(&self, goal: &Goal) -> Value {
        json!({
            "name": goal.name,
            "goal": goal.wanted,
            "measured": rounded(goal.measured),
            "reached": self.reached(goal),
        })
    }

    fn text(&self, figures: &str) -> String {
        let mut text = format!("{}\n{figures}\n", self.machine);
        for goal in &self.goals {
            let Goal { name, wanted, measured, .. } = goal;
            let reached = match self.reached(goal) {
                Some(true) => "reached",
                Some(false) => "NOT reached",
                None => "not judged",
            };
            // Writing to a string does not fail.
            let _ = write!(text, "\n{name}: {} (goal: {wanted}) {reached}", rounded(*measured));
        }
        let _ = match self.verdict {
            Verdict::Clean => write!(text, "\nmeasurement: clean"),
            Verdict::Disturbed => write!(text, "\nmeasurement: disturbed, {}", self.machine.others()),
            Verdict::Invalid => write!(text, "\nmeasurement: INVALID, {}", self.faults.join("; ")),
        };
        text
    }
}

/// What is wrong if a node does more than the bare program in its place. Rates are those of a second.
pub(super) fn faster(what: &str, rate: f64, bare: f64) -> Option<String> {
    let times = rate / bare;
    (times > MOST_TIMES).then(|| {
        format!("{what}: {rate:.0} a second are {times:.1} times what the bare program in its place did ({bare:.0})")
    })
}

/// What is wrong if a message takes less than half of its time through the bare program. Times are in µs.
pub(super) fn sooner(what: &str, time: f64, bare: f64) -> Option<String> {
    (time < bare / 2.0).then(|| {
        format!(
            "{what}: {time:.0} µs are less than half of what the bare program in its place took ({bare:.0})"
        )
    })
}

/// What is wrong if state takes no memory.
pub(super) fn nothing(what: &str, octets: f64) -> Option<String> {
    (octets <= 0.0).then(|| format!("{what}: {octets:.1} octets a session"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(others: f64, faults: Vec<String>) -> Judged {
        let machine = Machine {
            processor: "one".into(),
            processors: 2,
            memory_kib: Some(1),
            kernel: "6.1".into(),
            load: 0.1,
            others: Some(others),
        };
        let goals = vec![Goal::at_least("set-ups", "at least 0.7", 0.7, 0.9)];
        Judged::on(machine, "rsvp-forward", goals, faults)
    }

    #[test]
    fn a_goal_is_reached_only_where_the_measurement_was_clean() {
        let of = |others, faults| {
            let judged = judged(others, faults);
            (judged.json(&json!({"sessions": 5})), judged.text("table"))
        };
        let (clean, text) = of(0.01, Vec::new());
        assert_eq!([&clean["verdict"], &clean["goals"][0]["reached"]], [&json!("clean"), &json!(true)]);
        assert_eq!([&clean["sessions"], &clean["machine"]["others"]], [&json!(5), &json!(0.01)]);
        assert!(text.contains("0.9 (goal: at least 0.7) reached\nmeasurement: clean"), "{text}");
        let (disturbed, text) = of(0.4, Vec::new());
        assert_eq!(
            [&disturbed["verdict"], &disturbed["goals"][0]["reached"]],
            [&json!("disturbed"), &Value::Null]
        );
        assert!(text.contains("not judged\nmeasurement: disturbed, other programs took 40 %"), "{text}");
        let (invalid, text) = of(0.01, vec!["no octets".into()]);
        assert_eq!([&invalid["verdict"], &invalid["faults"][0]], [&json!("invalid"), &json!("no octets")]);
        assert!(!text.contains(") reached") && text.contains("INVALID, no octets"), "{text}");
    }

    #[test]
    fn a_figure_that_cannot_be_ends_with_an_error_behind_the_result() {
        let said = judged(0.0, vec!["no octets".into()]).print(true, &json!({}), "").expect_err("invalid");
        assert_eq!(said.to_string(), "the measurement is invalid: no octets");
        assert!(judged(0.9, Vec::new()).print(true, &json!({}), "").is_ok(), "a disturbed one is no error");
    }

    #[test]
    fn a_node_is_no_faster_than_a_bare_forwarder_and_state_takes_memory() {
        assert_eq!(faster("node", 110.0, 100.0), None, "within what runs differ");
        let said = faster("node", 490.0, 100.0).expect("4.9 times");
        assert!(said.contains("4.9 times"), "{said}");
        assert_eq!(faster("node", f64::NAN, 100.0), None);
        assert_eq!((sooner("Path", 60.0, 100.0), sooner("Path", f64::NAN, 100.0)), (None, None));
        assert!(sooner("Path", 12.0, 100.0).is_some_and(|said| said.starts_with("Path: 12 µs are less")));
        assert_eq!((nothing("node", 0.1), nothing("node", f64::NAN)), (None, None));
        assert_eq!(nothing("node", 0.0).as_deref(), Some("node: 0.0 octets a session"));
    }
}
