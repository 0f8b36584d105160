//! Reservations that the real `signalbox reserve` makes and holds in the background.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::evidence::{ReserveRun, Said};
use crate::plan::PlannedNode;
use crate::run::now;
use crate::{command, kernel, wait};

/// A command has this long to tear down and end when asked to, and so much longer for each of its flows.
const END: Duration = Duration::from_secs(15);
const END_EACH: Duration = Duration::from_millis(10);

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Reserve {
    child: Child,
    said: Receiver<Said>,
    run: ReserveRun,
    /// How long it may take to end.
    end: Duration,
}

impl Reserve {
    /// Starts the command with these words behind `reserve`.
    pub(crate) fn start(
        lab: &str,
        node: &PlannedNode,
        words: &[String],
        flows: u32,
        run: ReserveRun,
    ) -> Result<Self> {
        let mut command = command::signalbox(lab, node)?;
        command.arg("reserve").args(words).arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kernel::namespace(&node.namespace)?
            .spawn(&mut command)
            .context("cannot start signalbox reserve")?;
        let (sender, said) = channel();
        let pipes = child.stdout.take().zip(child.stderr.take());
        let (stdout, mut stderr) = pipes.context("a command without output")?;
        thread::spawn(move || {
            // A send fails only when nobody listens any more; then there is nothing to tell.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let at = now().unwrap_or_default();
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                let _ = sender.send(Said::Event(at, event));
            }
            let mut complaint = String::new();
            let _ = stderr.read_to_string(&mut complaint);
            let _ = sender.send(Said::Complaint(complaint));
        });
        Ok(Self { child, said, run, end: END + END_EACH * flows })
    }

    /// Waits until it has an answer, whatever it is, or ends.
    pub(crate) fn wait_answer(&mut self, within: Duration) -> Result<()> {
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
    pub(crate) fn finish(mut self) -> Result<ReserveRun> {
        if self.child.try_wait()?.is_none() {
            // The child is ours and nobody has waited for it, so that its number is nobody else's.
            let pid = Pid::from_raw(i32::try_from(self.child.id())?);
            kill(pid, Signal::SIGINT).with_context(|| format!("cannot interrupt process {pid}"))?;
        }
        wait::until(self.end, || self.child.try_wait().is_ok_and(|status| status.is_some()));
        self.run.status = self.child.try_wait()?.and_then(|status| status.code());
        self.end();
        // Its pipes close with it, and the thread that reads them ends.
        for said in self.said.iter() {
            self.run.take(said);
        }
        Ok(std::mem::take(&mut self.run))
    }

    fn listen(&mut self) {
        for said in self.said.try_iter() {
            self.run.take(said);
        }
    }

    fn end(&mut self) {
        // One that has ended already cannot be ended once more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.end();
    }
}
