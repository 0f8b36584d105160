//! Programs of the user that run inside a node, such as signaling applications.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::evidence::ProgramRun;
use crate::plan::Plan;
use crate::scenario::RunStep;
use crate::{command, kernel, state, wait};

/// A program has this long to end when asked to.
const END: Duration = Duration::from_secs(15);

/// A program that was started.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    said: Receiver<Said>,
    deadline: Instant,
    run: ProgramRun,
}

/// What comes out of a program.
#[derive(Debug)]
enum Said {
    Line(String),
    Complaint(String),
}

impl Program {
    /// Starts it; `$SIGNALBOX_SOCKET` tells it the node's daemon, `{NODE}` in its arguments is that node's
    /// address, `{signalbox}` the command of this name.
    pub(crate) fn start(plan: &Plan, step: &RunStep) -> Result<Self> {
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
        let (sender, said) = channel();
        let pipes = child.stdout.take().zip(child.stderr.take());
        let (stdout, mut stderr) = pipes.context("a program without output")?;
        thread::spawn(move || {
            // A send fails only when nobody listens any more; then there is nothing to tell.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(Said::Line(line));
            }
            let mut complaint = String::new();
            let _ = stderr.read_to_string(&mut complaint);
            let _ = sender.send(Said::Complaint(complaint));
        });
        let run = ProgramRun { label: step.label.as_ref().clone(), node, ..ProgramRun::default() };
        Ok(Self { child, said, deadline: Instant::now() + step.within.0, run })
    }

    /// Waits until it says a line with this text, or ends; without a text, until it ends. Running out of time is for
    /// the checks to judge.
    pub(crate) fn wait(&mut self, until: Option<&str>) -> Result<()> {
        while Instant::now() < self.deadline {
            wait::check()?;
            let ended = self.child.try_wait()?.is_some();
            let before = self.run.lines.len();
            self.listen();
            let said = |text: &str| self.run.lines[before..].iter().any(|line| line.contains(text));
            if ended || until.is_some_and(said) {
                break;
            }
            thread::sleep(wait::STEP);
        }
        Ok(())
    }

    fn listen(&mut self) {
        for said in self.said.try_iter() {
            match said {
                Said::Line(line) => self.run.lines.push(line),
                Said::Complaint(complaint) => self.run.complaint = complaint,
            }
        }
    }

    /// The label of its step.
    pub(crate) fn label(&self) -> &str {
        &self.run.label
    }

    /// Waits until it says a line with this text after what it has said before, or ends.
    pub(crate) fn hear(&mut self, text: &str, within: Duration) -> Result<()> {
        self.deadline = Instant::now() + within;
        self.wait(Some(text))
    }

    /// Asks it to end, as Ctrl-C does.
    pub(crate) fn interrupt(&mut self) -> Result<()> {
        self.deadline = Instant::now() + END;
        if self.child.try_wait()?.is_none() {
            // The child is ours and nobody has waited for it, so that its number is nobody else's.
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
        for said in self.said.iter() {
            match said {
                Said::Line(line) => self.run.lines.push(line),
                Said::Complaint(complaint) => self.run.complaint = complaint,
            }
        }
        Ok(std::mem::take(&mut self.run))
    }

    fn end(&mut self) {
        // One that has ended already cannot be ended once more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
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
