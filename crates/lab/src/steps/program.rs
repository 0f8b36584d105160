//! The steps `run`, `hear` and `end`: programs of the user that run inside a node, such as signaling applications.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use toml::Spanned;

use super::Step;
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::plan::Plan;
use crate::report::Section;
use crate::run::{Run, now};
use crate::scenario::{LABEL, MOMENT, Mistake, Scope};
use crate::units::Span;
use crate::{command, kernel, state, wait};

/// A program has this long to end when asked to.
const END: Duration = Duration::from_secs(15);

/// What the label of a `run` step names, besides a moment.
const PROGRAM: &str = "program";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunProgram {
    node: Spanned<String>,
    command: Spanned<Vec<String>>,
    label: Spanned<String>,
    until: Option<String>,
    #[serde(default = "run_budget")]
    within: Span,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hear {
    label: Spanned<String>,
    text: String,
    #[serde(default = "hear_budget")]
    within: Span,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    label: Spanned<String>,
}

const fn run_budget() -> Span {
    Span::millis(30_000)
}

const fn hear_budget() -> Span {
    Span::millis(15_000)
}

/// What came of a program.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgramRun {
    pub(crate) label: String,
    pub(crate) node: usize,
    /// The lines of its standard output.
    pub(crate) lines: Vec<String>,
    /// The text of its standard error.
    pub(crate) complaint: String,
    /// How it ended, if it did so in time.
    pub(crate) status: Option<String>,
    /// It ended with status 0.
    pub(crate) good: bool,
}

impl Step for RunProgram {
    const NAME: &'static str = "run";
    const MEANING: &'static str =
        "Runs a program inside a node; all programs are waited for after the last step.";
    const KEYS: &'static [Key] = &[
        key("node", "node", "where it runs"),
        key(
            "command",
            "list of texts",
            "the program and its arguments; {NODE} is replaced by that node's address, {signalbox} by the path of the \
             command; $SIGNALBOX_SOCKET is the socket of the node's daemon",
        ),
        key("label", "label", "names the program; as a moment it is the program's start"),
        key("until", "text", "go on when it prints a line with this text; without, when it has ended")
            .optional(),
        key("within", "time", "it has to end within this time").or("\"30s\""),
    ];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        scope.node(&self.node)?;
        [LABEL, MOMENT, PROGRAM].iter().for_each(|of| scope.define(of, self.label.as_ref()));
        if self.command.as_ref().is_empty() {
            return Err(Mistake::new(self.command.span(), "`command` names a program and its arguments"));
        }
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        run.progress(&format!("{} in {}", self.label.as_ref(), self.node.as_ref()));
        run.evidence.moments.insert(self.label.as_ref().clone(), now()?);
        let mut program = Process::start(&run.lab.plan, self)?;
        program.wait(self.until.as_deref())?;
        run.programs.push(program);
        Ok(())
    }

    fn report(evidence: &Evidence) -> Vec<Section> {
        let section = |run: &ProgramRun| {
            let node = &evidence.plan.nodes[run.node].name;
            Section::lines(format!("{}, in {node}", run.label), run.lines.iter().cloned())
        };
        evidence.all().map(section).collect()
    }
}

impl Step for Hear {
    const NAME: &'static str = "hear";
    const MEANING: &'static str = "Waits until a program that runs prints another line with this text.";
    const KEYS: &'static [Key] = &[
        key("label", "program", "the label of the `run` step"),
        key("text", "text", "part of a line"),
        key("within", "time", "the longest time").or("\"15s\""),
    ];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        scope.defined(PROGRAM, &self.label)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let label = self.label.as_ref();
        run.progress(&format!("{label}: waiting for {:?}", self.text));
        let mut programs = run.programs.iter_mut();
        let program = programs.find(|program| program.label() == label);
        program.map_or(Ok(()), |program| program.hear(&self.text, self.within.0))
    }
}

impl Step for End {
    const NAME: &'static str = "end";
    const MEANING: &'static str = "Asks a program that runs to end, as Ctrl-C does, and waits for its end.";
    const KEYS: &'static [Key] = &[key("label", "program", "the label of the `run` step")];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        scope.defined(PROGRAM, &self.label)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let label = self.label.as_ref();
        run.progress(&format!("{label} shall end"));
        if let Some(at) = run.programs.iter().position(|program| program.label() == label) {
            let mut program = run.programs.remove(at);
            program.interrupt()?;
            run.evidence.record(program.finish()?);
        }
        Ok(())
    }
}

/// A program that was started.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    output: Receiver<Output>,
    deadline: Instant,
    run: ProgramRun,
}

/// What a program prints.
#[derive(Debug)]
enum Output {
    Line(String),
    Complaint(String),
}

impl Process {
    /// Starts it. `$SIGNALBOX_SOCKET` is the socket of the node's daemon; `{NODE}` in its arguments is replaced by
    /// that node's address, `{signalbox}` by the path of the command.
    fn start(plan: &Plan, step: &RunProgram) -> Result<Self> {
        let node = plan.node(step.node.as_ref()).ok_or_else(|| anyhow!("no node {}", step.node.as_ref()))?;
        let planned = &plan.nodes[node];
        let signalbox = command::place()?.display().to_string();
        let words = step.command.as_ref().iter().map(|word| with_addresses(plan, word));
        let mut words = words.map(|word| word.replace("{signalbox}", &signalbox));
        let program = words.next().context("a command has at least one word")?;
        let mut command = Command::new(&program);
        command.args(words).env("SIGNALBOX_SOCKET", state::socket(&plan.name, &planned.name));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kernel::namespace(&planned.namespace)?
            .spawn(&mut command)
            .with_context(|| format!("cannot start {program} in {}", planned.name))?;
        let (sender, output) = channel();
        let pipes = child.stdout.take().zip(child.stderr.take());
        let (stdout, mut stderr) = pipes.context("a program without output")?;
        thread::spawn(move || {
            // A send fails only when the run is over.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(Output::Line(line));
            }
            let mut complaint = String::new();
            let _ = stderr.read_to_string(&mut complaint);
            let _ = sender.send(Output::Complaint(complaint));
        });
        let run = ProgramRun { label: step.label.as_ref().clone(), node, ..ProgramRun::default() };
        Ok(Self { child, output, deadline: Instant::now() + step.within.0, run })
    }

    /// Waits until it prints a line with this text, or ends; without a text, until it ends. The checks judge whether
    /// it was in time.
    pub(crate) fn wait(&mut self, until: Option<&str>) -> Result<()> {
        while Instant::now() < self.deadline {
            wait::check()?;
            let ended = self.child.try_wait()?.is_some();
            let before = self.run.lines.len();
            self.listen();
            let printed = |text: &str| self.run.lines[before..].iter().any(|line| line.contains(text));
            if ended || until.is_some_and(printed) {
                break;
            }
            thread::sleep(wait::STEP);
        }
        Ok(())
    }

    fn listen(&mut self) {
        for output in self.output.try_iter() {
            match output {
                Output::Line(line) => self.run.lines.push(line),
                Output::Complaint(complaint) => self.run.complaint = complaint,
            }
        }
    }

    /// The label of its step.
    pub(crate) fn label(&self) -> &str {
        &self.run.label
    }

    /// Waits until it prints another line with this text, or ends.
    pub(crate) fn hear(&mut self, text: &str, within: Duration) -> Result<()> {
        self.deadline = Instant::now() + within;
        self.wait(Some(text))
    }

    /// Asks it to end, as Ctrl-C does.
    pub(crate) fn interrupt(&mut self) -> Result<()> {
        self.deadline = Instant::now() + END;
        if self.child.try_wait()?.is_none() {
            // The child is ours and was not waited for, so that its number belongs to no other process.
            let pid = Pid::from_raw(i32::try_from(self.child.id())?);
            kill(pid, Signal::SIGINT).with_context(|| format!("cannot interrupt process {pid}"))?;
        }
        Ok(())
    }

    /// Waits for its end, which it should come to by itself.
    pub(crate) fn finish(mut self) -> Result<ProgramRun> {
        self.wait(None)?;
        self.run.status = self.child.try_wait()?.map(|status| status.to_string());
        self.run.good = self.child.try_wait()?.is_some_and(|status| status.success());
        self.end();
        // Its pipes close with it, and the thread that reads them ends.
        for output in self.output.iter() {
            match output {
                Output::Line(line) => self.run.lines.push(line),
                Output::Complaint(complaint) => self.run.complaint = complaint,
            }
        }
        Ok(std::mem::take(&mut self.run))
    }

    fn end(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn with_addresses(plan: &Plan, word: &str) -> String {
    let mut word = word.to_owned();
    for (index, node) in plan.nodes.iter().enumerate() {
        if let Some(address) = plan.address(index) {
            word = word.replace(&format!("{{{}}}", node.name), &address.to_string());
        }
    }
    word
}
