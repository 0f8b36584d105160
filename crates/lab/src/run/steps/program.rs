//! The step `run`: programs of the user that run inside a node, such as signaling applications.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use super::Act;
use crate::language::PROGRAMS;
use crate::language::steps::program::RunProgram;
use crate::plan::places;
use crate::plan::subset::is_line;
use crate::run::evidence::Evidence;
use crate::run::{Run, command, kernel, now, programs, wait};

/// A program has this long to end when asked to.
pub(crate) const END: Duration = Duration::from_secs(15);

/// The last lines of a program that has ended are waited for this long: what it left running may keep its pipes open.
const LAST: Duration = Duration::from_millis(200);

/// What a program printed is read for this long after its end.
const PIPES: Duration = Duration::from_secs(5);

/// What came of a program.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgramRun {
    /// The `id` of its step.
    pub(crate) id: Option<String>,
    pub(crate) node: usize,
    /// When it was started, since 1970.
    pub(crate) started: Duration,
    /// It is the command of a `reserve` step.
    pub(crate) reserves: bool,
    /// The lines of its standard output.
    pub(crate) lines: Vec<String>,
    /// When each line came, since 1970.
    pub(crate) times: Vec<Duration>,
    /// The text of its standard error.
    pub(crate) complaint: String,
    /// Whether the line that its step waits for did not come in time.
    pub(crate) silent: bool,
    /// Whether it was asked to end.
    pub(crate) interrupted: bool,
    /// How it ended, if it did so in time.
    pub(crate) status: Option<String>,
    pub(crate) code: Option<i32>,
}

impl ProgramRun {
    /// Returns the first line that is an event of one of these types, and when it came.
    pub(crate) fn event(&self, kinds: &[&str]) -> Option<(Duration, Value)> {
        let events = self.times.iter().zip(&self.lines).filter_map(|(at, line)| {
            let event: Value = serde_json::from_str(line).ok()?;
            Some((*at, event))
        });
        let mut events =
            events.filter(|(_, event)| event["type"].as_str().is_some_and(|kind| kinds.contains(&kind)));
        events.next()
    }
}

impl Act for RunProgram {
    fn run(&self, run: &mut Run<'_>, id: &str) -> Result<()> {
        run.progress(&format!("{id} in {}", self.node.as_ref()));
        let plan = &run.lab.plan;
        let node = run.node(self.node.as_ref())?;
        let signalbox = command::place()?.display().to_string();
        let words = self.command.as_ref().iter().map(|word| plan.with_addresses(word));
        let programs = programs::directory(&plan.name, self.command.as_ref())?;
        let words = words.map(|word| word.replace("{signalbox}", &signalbox));
        let mut words = words.map(|word| word.replace(PROGRAMS, &programs));
        let mut command = Command::new(words.next().context("a command has at least one word")?);
        command.args(words).env("SIGNALBOX_SOCKET", places::socket(&plan.name, &plan.nodes[node].name));
        let record = ProgramRun { id: Some(id.to_owned()), node, started: now()?, ..ProgramRun::default() };
        let (evidence, namespace) = (&run.evidence, &plan.nodes[node].namespace);
        let wait = || {
            let mut program = Process::start(namespace, command, record, self.within.0)?;
            let came = program.wait(evidence, |evidence, line| {
                self.until.as_ref().is_some_and(|until| is_line(&evidence.plan, until, line))
            })?;
            anyhow::Ok((program, came))
        };
        let (mut program, came) = if self.rests() { run.captures.resting(plan, wait) } else { wait() }?;
        program.run.silent = self.until.is_some() && !came;
        run.programs.push(program);
        Ok(())
    }
}

/// A program that was started.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    output: Receiver<Output>,
    pub(crate) deadline: Instant,
    /// The number of its lines among which no other one is looked for.
    read: usize,
    /// How long it may take to end when it is asked to.
    pub(crate) end: Duration,
    pub(crate) run: ProgramRun,
}

/// What a program prints.
#[derive(Debug)]
enum Output {
    Line(Duration, String),
    Complaint(String),
}

impl Process {
    /// Starts a command in a namespace.
    pub(crate) fn start(
        namespace: &str,
        mut command: Command,
        run: ProgramRun,
        within: Duration,
    ) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // What it starts itself is in its group, and ends with it.
        command.process_group(0);
        let mut child = kernel::namespace(namespace)?
            .spawn(&mut command)
            .with_context(|| format!("cannot start {:?} in {namespace}", command.get_program()))?;
        let (sender, output) = channel();
        let pipes = child.stdout.take().zip(child.stderr.take());
        let (stdout, mut stderr) = pipes.context("a program without output")?;
        thread::spawn(move || {
            // A send fails only when the run is over.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(Output::Line(now().unwrap_or_default(), line));
            }
            let mut complaint = String::new();
            let _ = stderr.read_to_string(&mut complaint);
            let _ = sender.send(Output::Complaint(complaint));
        });
        Ok(Self { child, output, deadline: Instant::now() + within, read: 0, end: END, run })
    }

    /// Waits until it prints a line of this kind, or ends, or its time is over; `false`: no such line came.
    pub(crate) fn wait(
        &mut self,
        evidence: &Evidence,
        wanted: impl Fn(&Evidence, &String) -> bool,
    ) -> Result<bool> {
        while Instant::now() < self.deadline {
            wait::check()?;
            let ended = self.child.try_wait()?.is_some();
            self.listen();
            if ended {
                self.listen_on(LAST);
            }
            let new = &self.run.lines[self.read..];
            if let Some(at) = new.iter().position(|line| wanted(evidence, line)) {
                self.read += at + 1;
                return Ok(true);
            }
            self.read = self.run.lines.len();
            if ended {
                break;
            }
            thread::sleep(wait::STEP);
        }
        Ok(false)
    }

    /// Gives it a new time limit.
    pub(crate) fn limit(&mut self, within: Duration) {
        self.deadline = Instant::now() + within;
    }

    /// Takes what it prints until its pipes are closed, for this long at most.
    fn listen_on(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        while let Ok(output) = self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.run.take(output);
        }
    }

    fn listen(&mut self) {
        for output in self.output.try_iter() {
            self.run.take(output);
        }
    }

    /// Asks it to end, as Ctrl-C does.
    pub(crate) fn interrupt(&mut self) -> Result<()> {
        self.limit(self.end);
        if self.child.try_wait()?.is_none() {
            self.run.interrupted = true;
            // The child is ours and was not waited for, so that its number belongs to no other process.
            let pid = Pid::from_raw(i32::try_from(self.child.id())?);
            kill(pid, Signal::SIGINT).with_context(|| format!("cannot interrupt process {pid}"))?;
        }
        Ok(())
    }

    /// Waits for its end, which it should come to by itself.
    pub(crate) fn finish(mut self, evidence: &Evidence) -> Result<ProgramRun> {
        self.wait(evidence, |_, _| false)?;
        let status = self.child.try_wait()?;
        self.run.status = status.map(|status| status.to_string());
        self.run.code = status.and_then(|status| status.code());
        self.end();
        // Its pipes close with its group, and the thread that reads them ends. A program that left the group may keep them
        // open.
        self.listen_on(PIPES);
        Ok(std::mem::take(&mut self.run))
    }

    fn end(&mut self) {
        // Until it is waited for, no other process and no other group has its number. It may have ended already.
        if let (Ok(None), Ok(pid)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ProgramRun {
    fn take(&mut self, output: Output) {
        match output {
            Output::Line(at, line) => {
                self.lines.push(line);
                self.times.push(at);
            }
            Output::Complaint(complaint) => self.complaint = complaint,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
