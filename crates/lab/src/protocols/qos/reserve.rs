//! The step `reserve`: a reservation that the real `signalbox reserve` makes and holds in the background.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use toml::Spanned;

use super::Qos;
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::plan::PlannedNode;
use crate::run::{Background, Run, now};
use crate::scenario::{BACKGROUND, MOMENT, Mistake, Scope};
use crate::steps::Step;
use crate::units::{Rate, Span};
use crate::{command, kernel, wait};

/// The time that a command has to tear down and end when asked to, and the time in addition for each of its flows.
const END: Duration = Duration::from_secs(15);
const END_EACH: Duration = Duration::from_millis(10);

/// What the name of a `reserve` step names.
pub(super) const RESERVATION: &str = "reservation";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reserve {
    name: Spanned<String>,
    from: Spanned<String>,
    to: Spanned<String>,
    port: u16,
    rate: Rate,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default = "budget")]
    within: Span,
    label: Option<String>,
    #[serde(default = "one")]
    flows: Spanned<u32>,
}

const fn budget() -> Span {
    Span::millis(15_000)
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

/// What came of a step.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReserveRun {
    pub(crate) name: String,
    /// When the command was started, since 1970.
    pub(crate) started: Duration,
    /// The events that it printed, and when.
    pub(crate) events: Vec<(Duration, Value)>,
    /// Its error output.
    pub(crate) complaint: String,
    /// How it ended, if it did so in time.
    pub(crate) status: Option<i32>,
}

/// What the command prints.
#[derive(Debug)]
enum Output {
    Event(Duration, Value),
    Complaint(String),
}

impl ReserveRun {
    fn take(&mut self, output: Output) {
        match output {
            Output::Event(at, event) => self.events.push((at, event)),
            Output::Complaint(complaint) => self.complaint = complaint,
        }
    }

    /// Returns the first event of this type, and when it was printed.
    pub(crate) fn event(&self, kind: &str) -> Option<&(Duration, Value)> {
        self.events.iter().find(|(_, event)| event["type"] == kind)
    }

    /// Returns the grant of the whole path.
    pub(crate) fn granted(&self) -> Option<&(Duration, Value)> {
        self.event("granted")
    }

    /// Returns the refusal.
    pub(crate) fn refused(&self) -> Option<&(Duration, Value)> {
        self.event("failed")
    }

    /// Returns how many flows were granted, and how many a second, if the command reserved for several.
    pub(super) fn rate(&self) -> Option<(u64, f64)> {
        let (_, granted) = self.granted()?;
        let (flows, elapsed_us) = granted["flows"].as_u64().zip(granted["elapsed_us"].as_f64())?;
        #[expect(clippy::cast_precision_loss, reason = "there are fewer than 2^16 ports")]
        let rate = flows as f64 / elapsed_us * 1e6;
        Some((flows, rate))
    }
}

impl Step for Reserve {
    const NAME: &'static str = "reserve";
    const MEANING: &'static str =
        "Runs `signalbox reserve` for UDP and holds the reservation until a `join` of its name or the end.";
    const KEYS: &'static [Key] = &[
        key("name", "reservation", "names the reservation"),
        key("from", "node", "where the command runs"),
        key("to", "node", "the other end of the flow"),
        key("port", "port", "the destination port of the flow"),
        key("rate", "rate", "what is reserved"),
        key("options", "list of texts", "more arguments of the command").or("[]"),
        key("within", "time", "the next step is taken after the answer, at the latest then").or("\"15s\""),
        key("label", "moment", "remembers the moment of the answer").optional(),
        key("flows", "number", "one command for this number of flows to ports that follow each other")
            .or("1"),
    ];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        scope.runs(&Qos, &self.from)?;
        scope.node(&self.to)?;
        self.label.iter().for_each(|label| scope.define(MOMENT, label));
        [RESERVATION, BACKGROUND].iter().for_each(|of| scope.define(of, self.name.as_ref()));
        scope.ports(self.port, &self.flows)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let (from, to, name) = (self.from.as_ref(), self.to.as_ref(), self.name.as_ref());
        run.progress(&format!("{name}: reserving from {from} to {to}"));
        let (from, _, destination) = run.ends(from, to)?;
        let mut words: Vec<String> = vec![destination.to_string()];
        let [port, rate] = [self.port.to_string(), format!("{}bit", self.rate.0)];
        words.extend(["--proto", "udp", "--dport", &port, "--rate", &rate].map(str::to_owned));
        words.extend(self.options.iter().cloned());
        let flows = *self.flows.as_ref();
        if flows > 1 {
            words.extend(["--flows".to_owned(), flows.to_string()]);
        }
        let record = ReserveRun { name: name.clone(), started: now()?, ..ReserveRun::default() };
        let plan = &run.lab.plan;
        let mut command = Holding::start(&plan.name, &plan.nodes[from], &words, flows, record)?;
        command.wait_answer(self.within.0)?;
        run.in_background(name, command);
        run.remember(self.label.as_ref(), name)
    }

    fn measure(evidence: &Evidence) -> Option<(&'static str, Value)> {
        let one = |run: &ReserveRun| {
            let last = run.granted().or(run.refused());
            let answer = last.map(|(at, _)| at.saturating_sub(run.started).as_secs_f64() * 1e3);
            let types: Vec<_> = run.events.iter().map(|(_, event)| event["type"].clone()).collect();
            let rate = run.rate().map(|(_, rate)| rate);
            let value =
                json!({"answer_ms": answer, "per_second": rate, "events": types, "status": run.status});
            (run.name.clone(), value)
        };
        let all: Map<_, _> = evidence.all().map(one).collect();
        (!all.is_empty()).then(|| ("reservations", all.into()))
    }

    fn marks(evidence: &Evidence) -> Vec<(Duration, String)> {
        const MARKED: [(&str, &str); 4] =
            [("granted", "reserved"), ("failed", "refused"), ("lost", "lost"), ("released", "torn")];
        let several = evidence.all::<ReserveRun>().count() > 1;
        let of = |run: &ReserveRun| {
            let label = |word: &str| if several { format!("{} {word}", run.name) } else { word.to_owned() };
            let found = MARKED.map(|(kind, word)| run.event(kind).map(|(at, _)| (*at, label(word))));
            found.into_iter().flatten().collect::<Vec<_>>()
        };
        evidence.all().flat_map(of).collect()
    }
}

impl Background for Holding {
    fn join(self: Box<Self>, name: &str, run: &mut Run<'_>) -> Result<()> {
        run.progress(&format!("releasing {name}"));
        run.evidence.record(self.finish()?);
        Ok(())
    }
}

/// A command that was started.
#[derive(Debug)]
struct Holding {
    child: Child,
    output: Receiver<Output>,
    run: ReserveRun,
    /// How long it may take to end.
    end: Duration,
}

impl Holding {
    /// Starts the command with these words behind `reserve`.
    fn start(lab: &str, node: &PlannedNode, words: &[String], flows: u32, run: ReserveRun) -> Result<Self> {
        let mut command = command::signalbox(lab, node)?;
        command.arg("reserve").args(words).arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kernel::namespace(&node.namespace)?
            .spawn(&mut command)
            .context("cannot start signalbox reserve")?;
        let (sender, output) = channel();
        let pipes = child.stdout.take().zip(child.stderr.take());
        let (stdout, mut stderr) = pipes.context("a command without output")?;
        thread::spawn(move || {
            // A send fails only when the run is over.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let at = now().unwrap_or_default();
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                let _ = sender.send(Output::Event(at, event));
            }
            let mut complaint = String::new();
            let _ = stderr.read_to_string(&mut complaint);
            let _ = sender.send(Output::Complaint(complaint));
        });
        Ok(Self { child, output, run, end: END + END_EACH * flows })
    }

    /// Waits until it has an answer or ends.
    fn wait_answer(&mut self, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            wait::check()?;
            let ended = self.child.try_wait()?.is_some();
            self.listen();
            if ended || self.run.granted().is_some() || self.run.refused().is_some() {
                break;
            }
            thread::sleep(wait::STEP);
        }
        Ok(())
    }

    /// Asks it to tear down, as Ctrl-C does, and waits for its end.
    fn finish(mut self) -> Result<ReserveRun> {
        if self.child.try_wait()?.is_none() {
            // The child is ours and was not waited for, so that its number belongs to no other process.
            let pid = Pid::from_raw(i32::try_from(self.child.id())?);
            kill(pid, Signal::SIGINT).with_context(|| format!("cannot interrupt process {pid}"))?;
        }
        wait::until(self.end, || self.child.try_wait().is_ok_and(|status| status.is_some()));
        self.run.status = self.child.try_wait()?.and_then(|status| status.code());
        self.end();
        // Its pipes close with it, and the thread that reads them ends.
        for output in self.output.iter() {
            self.run.take(output);
        }
        Ok(std::mem::take(&mut self.run))
    }

    fn listen(&mut self) {
        for output in self.output.try_iter() {
            self.run.take(output);
        }
    }

    fn end(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.end();
    }
}
