//! The step `reserve`: a reservation that the real `signalbox reserve` makes and holds.

use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use toml::Spanned;

use super::Step;
use super::program::{END, Process, ProgramRun};
use crate::command;
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::protocols;
use crate::run::{Run, now};
use crate::scenario::{Mistake, Scope};
use crate::units::{Rate, Span};

/// The time that a command has in addition to tear down each of its flows.
const END_EACH: Duration = Duration::from_millis(10);
/// The types of the events that answer a request.
const ANSWERS: [&str; 3] = ["granted", "failed", "refused"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reserve {
    from: Spanned<String>,
    to: Spanned<String>,
    port: u16,
    rate: Rate,
    #[serde(default = "qos")]
    signaling: Spanned<String>,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default = "budget")]
    within: Span,
    #[serde(default = "one")]
    flows: Spanned<u32>,
}

fn qos() -> Spanned<String> {
    Spanned::new(0..0, "qos".to_owned())
}

const fn budget() -> Span {
    Span::millis(15_000)
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

impl Step for Reserve {
    const NAME: &'static str = "reserve";
    const MEANING: &'static str = "Runs `signalbox reserve --json` for UDP. The next step begins when the request is answered; the reservation is held until a `stop` of its id or the end.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "where the command runs"),
        key("to", "node", "the other end of the flow"),
        key("port", "port", "the destination port of the flow"),
        key("rate", "rate", "what is reserved"),
        key("signaling", "protocol", "the protocol that reserves: qos, rsvp, boomerang").or("\"qos\""),
        key("options", "list of texts", "more arguments of the command").or("[]"),
        key("within", "time", "the next step begins after the answer, at the latest then").or("\"15s\""),
        key("flows", "number", "one command for this number of flows to ports that follow each other")
            .or("1"),
    ];
    const MOMENT_IS_END: bool = true;

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        let reserving = || protocols::all().filter(|protocol| protocol.reserves());
        let Some(protocol) = reserving().find(|protocol| protocol.name() == self.signaling.as_ref()) else {
            let known: Vec<_> = reserving().map(|protocol| protocol.name()).collect();
            let what = format!(
                "`{}` reserves nothing, expected one of {}",
                self.signaling.as_ref(),
                known.join(", ")
            );
            return Err(Mistake::new(self.signaling.span(), what));
        };
        scope.runs(protocol, &self.from)?;
        scope.node(&self.to)?;
        scope.ports(self.port, &self.flows)
    }

    fn run(&self, run: &mut Run<'_>, id: &str) -> Result<()> {
        let (from, to) = (self.from.as_ref(), self.to.as_ref());
        run.progress(&format!("{id}: reserving from {from} to {to}"));
        let (from, _, destination) = run.ends(from, to)?;
        let plan = &run.lab.plan;
        let mut command = command::signalbox(&plan.name, &plan.nodes[from])?;
        let [port, rate] = [self.port.to_string(), format!("{}bit", self.rate.0)];
        command.args([
            "reserve",
            &destination.to_string(),
            "--proto",
            "udp",
            "--dport",
            &port,
            "--rate",
            &rate,
        ]);
        if self.signaling.as_ref() != qos().as_ref() {
            command.args(["--signaling", self.signaling.as_ref()]);
        }
        command.args(&self.options);
        let flows = *self.flows.as_ref();
        if flows > 1 {
            command.args(["--flows", &flows.to_string()]);
        }
        command.arg("--json");
        let record = ProgramRun {
            id: Some(id.to_owned()),
            node: from,
            started: now()?,
            reserves: true,
            ..ProgramRun::default()
        };
        let mut program = Process::start(&plan.nodes[from].namespace, command, record, self.within.0)?;
        program.end = END + END_EACH * flows;
        program.wait(&run.evidence, |_, line| {
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            event["type"].as_str().is_some_and(|kind| ANSWERS.contains(&kind))
        })?;
        run.programs.push(program);
        Ok(())
    }

    fn measure(evidence: &Evidence) -> Option<(&'static str, Value)> {
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

    fn marks(evidence: &Evidence) -> Vec<(Duration, String)> {
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
}
