//! Whether steps did what they are for: a step that fails fails the run, unless the scenario says that it is to fail.

use crate::language::steps::Step;
use crate::language::{NamedStep, Scenario};
use crate::run::evidence::{Evidence, Outcome};
use crate::run::steps::ping::PingRun;
use crate::run::steps::program::ProgramRun;
use crate::run::steps::reserve::ANSWERS;
use crate::run::steps::wait::Missed;

/// Returns the outcomes of steps that failed, and of those that were to fail.
pub(crate) fn judge_steps(scenario: &Scenario, evidence: &Evidence) -> Vec<Outcome> {
    let of_step = |(place, named): (usize, &NamedStep)| {
        let id = named.name(place);
        let program = || evidence.all::<ProgramRun>().find(|run| run.id.as_ref() == Some(&id));
        let (fails, failure) = match &named.step {
            Step::RunProgram(keys) => (keys.fails, program()?.failure()),
            Step::Reserve(keys) => (keys.fails, program()?.refusal()),
            Step::Ping(keys) if taken(&id, evidence) => (keys.fails, unanswered(&id, evidence)),
            Step::Wait(_) => {
                (false, Some(evidence.all::<Missed>().find(|missed| missed.id == id)?.why.clone()))
            }
            _ => return None,
        };
        let verdict = match (fails, failure) {
            (false, None) => return None,
            (false, Some(why)) => Err(why),
            (true, Some(why)) => Ok(format!("it failed, as it was to: {why}")),
            (true, None) => Err("it was to fail, and did not".to_owned()),
        };
        Some(Outcome::of_step(&id, verdict))
    };
    scenario.workload.iter().enumerate().filter_map(of_step).collect()
}

impl ProgramRun {
    /// Returns why a program did not do what its step is for.
    fn failure(&self) -> Option<String> {
        let why = match &self.status {
            _ if self.silent => "the line that it waits for did not come".to_owned(),
            None => "the program did not end in time".to_owned(),
            Some(status) if self.code != Some(0) && !self.interrupted => format!("it ended with {status}"),
            Some(_) => return None,
        };
        Some(format!("{why}; {}", self.printed()))
    }

    /// Returns why a reservation was not granted at once.
    fn refusal(&self) -> Option<String> {
        let answer = self.event(&ANSWERS).map(|(_, answer)| answer);
        let Some(answer) = answer else { return Some(format!("no answer came; {}", self.printed())) };
        let kind = answer["type"].as_str().filter(|kind| *kind != "granted")?;
        let reason = ["message", "reason"].iter().find_map(|key| answer[key].as_str());
        Some(format!("{kind}: {}", reason.map_or_else(|| answer.to_string(), str::to_owned)))
    }

    /// What a person needs who asks why it failed: what it complained of, or the last line that it printed.
    fn printed(&self) -> String {
        let complaint = self.complaint.trim();
        match self.lines.last() {
            _ if !complaint.is_empty() => format!("it says {complaint:?}"),
            Some(line) => format!("its last line is {line:?}"),
            None => "it printed nothing".to_owned(),
        }
    }
}

/// Whether a `ping` step was taken.
fn taken(id: &String, evidence: &Evidence) -> bool {
    evidence.all::<PingRun>().any(|run| run.id.as_ref() == Some(id))
}

/// Returns why sessions of a `ping` step ended without a reply.
fn unanswered(id: &String, evidence: &Evidence) -> Option<String> {
    let runs = || evidence.all::<PingRun>().filter(|run| run.id.as_ref() == Some(id));
    let mut silent = runs().filter(|run| run.replies.is_empty());
    let first = silent.next()?;
    let reason = first.lost.first().map_or_else(|| first.complaint.trim(), String::as_str);
    let reason = if reason.is_empty() { "it did not end in time" } else { reason };
    Some(format!("{} of {} sessions got no reply: {reason}", 1 + silent.count(), runs().count()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::read;
    use crate::plan::Plan;
    use crate::run::steps::ping::Reply;

    /// The verdict on one step with this id in a scenario, after `record` was observed. `None`: the report does not mention the step.
    fn judged(step: &str, record: impl FnOnce(&mut Evidence)) -> Option<(bool, String)> {
        let text = format!(
            "version = 2\nname = 'x'\ndescription = 'two'\n\
             topology = {{ chain = ['h1', 'h2'], all_nodes = {{ protocols = ['gist', 'ping', 'qos'] }}, all_links = {{ rate = '10mbit' }} }}\n\
             [[steps]]\nid = 'it'\n{step}\n"
        );
        let scenario = read("x.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        let mut evidence = Evidence::new(Plan::new(&scenario));
        record(&mut evidence);
        let mut outcomes = judge_steps(&scenario, &evidence);
        assert!(outcomes.len() < 2, "{outcomes:?}");
        outcomes.pop().map(|outcome| (outcome.ok, outcome.detail))
    }

    fn fails(step: &str, record: impl FnOnce(&mut Evidence), why: &str) {
        let (ok, detail) = judged(step, record).expect("it failed");
        assert!(!ok && detail.contains(why), "{detail}");
    }

    fn program(run: ProgramRun) -> impl FnOnce(&mut Evidence) {
        move |evidence| evidence.record(ProgramRun { id: Some("it".into()), ..run })
    }

    fn ended(code: i32) -> ProgramRun {
        let status = Some(format!("exit status: {code}"));
        ProgramRun { status, code: Some(code), complaint: "it cannot\n".into(), ..ProgramRun::default() }
    }

    #[test]
    fn a_program_that_fails_fails_the_run() {
        let step = "run = { node = 'h1', command = ['true'] }";
        assert_eq!(judged(step, |_| ()), None, "it was not taken");
        assert_eq!(judged(step, program(ended(0))), None);
        fails(step, program(ended(2)), "it ended with exit status: 2; it says \"it cannot\"");
        fails(step, program(ProgramRun::default()), "did not end in time; it printed nothing");
        assert_eq!(judged(step, program(ProgramRun { interrupted: true, ..ended(1) })), None);
        fails(step, program(ProgramRun { silent: true, interrupted: true, ..ended(0) }), "did not come");
        let wanted = "run = { node = 'h1', command = ['true'], fails = true }";
        assert!(judged(wanted, program(ended(2))).is_some_and(|(ok, _)| ok));
        fails(wanted, program(ended(0)), "did not");
    }

    #[test]
    fn a_reservation_has_to_be_granted() {
        let step = "reserve = { from = 'h1', to = 'h2', port = 9, rate = '1mbit' }";
        let answered = |lines: &[&str]| {
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            let times = vec![core::time::Duration::ZERO; lines.len()];
            program(ProgramRun { lines, times, ..ended(0) })
        };
        let (granted, refused) = (r#"{"type":"granted"}"#, r#"{"type":"failed","message":"no room at r1"}"#);
        assert_eq!(judged(step, answered(&[granted, r#"{"type":"lost"}"#])), None);
        fails(step, answered(&[refused, granted]), "failed: no room at r1");
        fails(step, answered(&[r#"{"type":"started"}"#]), "no answer came");
        let wanted = "reserve = { from = 'h1', to = 'h2', port = 9, rate = '1mbit', fails = true }";
        assert_eq!(
            judged(wanted, answered(&[refused])),
            Some((true, "it failed, as it was to: failed: no room at r1".into()))
        );
        fails(wanted, answered(&[granted]), "did not");
    }

    #[test]
    fn each_session_has_to_get_a_reply() {
        let step = "ping = { from = 'h1', to = 'h2', sessions = 2 }";
        let reply = || Reply {
            sent: core::time::Duration::ZERO,
            rtt_ms: 1.0,
            hops: Vec::new(),
            last_link_ms: None,
            padding: 0,
        };
        let ran = |second: PingRun| {
            move |evidence: &mut Evidence| {
                evidence.record(PingRun {
                    id: Some("it".into()),
                    replies: vec![reply()],
                    ..PingRun::default()
                });
                evidence.record(PingRun { id: Some("it".into()), ..second });
            }
        };
        assert_eq!(judged(step, ran(PingRun { replies: vec![reply()], ..PingRun::default() })), None);
        let lost = PingRun { lost: vec!["no route".into()], ..PingRun::default() };
        fails(step, ran(lost), "1 of 2 sessions got no reply: no route");
        fails(step, ran(PingRun::default()), "1 of 2 sessions got no reply: it did not end in time");
    }
}
