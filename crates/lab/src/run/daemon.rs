//! The daemons of a lab: real processes inside its namespaces.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signalbox_linux::netns::Namespace;
use signalbox_linux::process::Identity;

use crate::plan::configuration::configuration;
use crate::plan::places;
use crate::plan::{Plan, PlannedNode};
use crate::run::evidence::Stop;
use crate::run::{kernel, net, wait};

/// The time that a daemon has to be ready after its start, and to end when asked to.
/// Many daemons at once on a busy machine need more than half a minute.
const BUDGET: Duration = Duration::from_secs(120);

/// What a line of the log says if the daemon found its own state wrong.
const FAULT: &str = "a fault of Signalbox, please report it";

/// The number of lines of a log that an error shows.
const LOG_LINES: usize = 15;

/// A daemon that this process started.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) node: usize,
    pub(crate) process: Identity,
    namespace: Namespace,
    child: Child,
    log: PathBuf,
    /// Receives its notice that it is ready (the protocol of sd_notify(3)).
    notes: UnixDatagram,
    /// The kernel's rules before the start.
    before: Vec<String>,
}

/// Returns the path of a program: the value of `variable`, or else beside the program that runs now, or in `PATH`.
pub(crate) fn program(variable: &str, name: &str) -> Result<PathBuf> {
    let given = std::env::var_os(variable).map(PathBuf::from);
    let sought = given.clone().unwrap_or_else(|| name.into());
    given.or_else(|| signalbox_linux::program::find(name)).filter(|path| path.is_file()).with_context(|| {
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        format!(
            "no program {}; install the package signalbox, build it (cargo build{release} -p {name}), or say in ${variable} where it is",
            sought.display()
        )
    })
}

/// Returns where the daemon is.
pub(crate) fn place() -> Result<PathBuf> {
    program("SIGNALBOXD", "signalboxd")
}

impl Daemon {
    /// Starts the daemon of a node; it may not be ready yet.
    ///
    /// `before` are the kernel's rules before a predecessor that was killed.
    pub(crate) fn start(plan: &Plan, index: usize, before: Option<Vec<String>>) -> Result<Self> {
        let program = place()?;
        let node = &plan.nodes[index];
        let directory = places::directory(&plan.name);
        let file = write_configuration(plan, node)?;
        let namespace = kernel::namespace(&node.namespace)?;
        let before = before.map_or_else(|| net::rules(&namespace), Ok)?;
        let log = directory.join(format!("{}.log", node.name));
        let writer = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| log.display().to_string())?;
        let errors = writer.try_clone()?;
        let socket = directory.join(format!("{}.notify", node.name));
        let notes = notes_at(&socket).with_context(|| socket.display().to_string())?;
        let mut command = Command::new(&program);
        command.env("NOTIFY_SOCKET", &socket);
        command.arg("--config").arg(&file).stdin(Stdio::null()).stdout(writer).stderr(errors);
        // An interrupt from the terminal is meant for the lab, which ends the daemons in order.
        command.process_group(0);
        let child =
            namespace.spawn(&mut command).with_context(|| format!("cannot start {}", program.display()))?;
        let process = Identity::of(child.id()).map_err(|_| anyhow!("{}", early(&node.name, &log)))?;
        Ok(Self { node: index, process, namespace, child, log, notes, before })
    }

    /// Waits until the daemon reports that it is ready; its control socket exists long before.
    pub(crate) fn wait_ready(&mut self, node: &PlannedNode) -> Result<()> {
        let (mut ready, mut ended) = (false, false);
        let mut note = [0; 64];
        wait::until(BUDGET, || {
            ended = !self.process.is_alive();
            ready = self.notes.recv(&mut note).is_ok_and(|length| note[..length].starts_with(b"READY=1"));
            ready || ended || wait::check().is_err()
        });
        wait::check()?;
        if ready {
            return Ok(());
        }
        if ended {
            bail!("{}", early(&node.name, &self.log));
        }
        bail!("the daemon of {} is not ready after {BUDGET:?}{}", node.name, tail(&self.log))
    }

    /// Writes the configuration of the daemon anew, makes it read it, and waits until it has.
    pub(crate) fn reload(&mut self, plan: &Plan) -> Result<()> {
        let node = &plan.nodes[self.node];
        write_configuration(plan, node)?;
        self.signal(Signal::SIGHUP)?;
        self.wait_ready(node)
    }

    /// Asks the daemon to end, waits for its end, and compares the kernel's rules.
    pub(crate) fn stop(mut self) -> Result<Stop> {
        self.signal(Signal::SIGTERM)?;
        // A paused daemon ends only when it runs again.
        self.signal(Signal::SIGCONT)?;
        let fault = self.wait_end("does not end when asked to");
        self.compare(fault)
    }

    /// Stops the process of the daemon, or lets it run on.
    pub(crate) fn pause(&self, on: bool) -> Result<()> {
        self.signal(if on { Signal::SIGSTOP } else { Signal::SIGCONT })
    }

    /// Ends the daemon as a crash does; returns the kernel's rules as they were before its start.
    pub(crate) fn kill(mut self) -> Result<Vec<String>> {
        self.signal(Signal::SIGKILL)?;
        self.child.wait()?;
        Ok(self.before)
    }

    /// Sends a signal. The child was not waited for, so that its number belongs to no other process.
    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.process.pid)?);
        kill(pid, signal).with_context(|| format!("cannot signal process {pid}"))
    }

    fn wait_end(&mut self, late: &str) -> Option<String> {
        let mut status = None;
        wait::until(BUDGET, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        match status {
            Some(status) if status.success() => None,
            Some(status) => Some(format!("ended with {status}{}", tail(&self.log))),
            None => {
                // Reported as not clean. The daemon has to end in any case.
                let _ = self.child.kill().and_then(|()| self.child.wait());
                Some(late.to_owned())
            }
        }
    }

    fn compare(self, fault: Option<String>) -> Result<Stop> {
        let mut stop = Stop { node: self.node, fault, before: self.before, changed: Vec::new() };
        stop.compare(&net::rules(&self.namespace)?);
        Ok(stop)
    }
}

/// Writes the configuration of a node's daemon; returns its place.
fn write_configuration(plan: &Plan, node: &PlannedNode) -> Result<PathBuf> {
    let file = places::directory(&plan.name).join(format!("{}.toml", node.name));
    fs::write(&file, configuration(plan, node)?).with_context(|| file.display().to_string())?;
    Ok(file)
}

/// Makes the socket for the notices of a daemon, in place of its predecessor's.
fn notes_at(place: &Path) -> Result<UnixDatagram> {
    match fs::remove_file(place) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let notes = UnixDatagram::bind(place)?;
    notes.set_nonblocking(true)?;
    Ok(notes)
}

fn early(node: &str, log: &Path) -> String {
    format!("the daemon of {node} ended at once{}", tail(log))
}

/// The lines of a log in which a daemon says that a rule about its own state does not hold.
pub(crate) fn faults(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().filter(|line| line.contains(FAULT)).map(str::to_owned).collect()
}

/// Returns the end of a log, to be appended to a sentence.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let from = lines.len().saturating_sub(LOG_LINES);
    match &lines[from..] {
        [] => "; its log is empty".to_owned(),
        last => format!("; its log ends:\n  {}", last.join("\n  ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_shows_where_a_daemon_found_its_state_wrong() {
        let log = std::env::temp_dir().join(format!("signalbox-faults-{}.log", std::process::id()));
        let fault = format!("ERROR {FAULT}: this rule about its own state does not hold place=\"x\"");
        fs::write(&log, format!("INFO ready\n{fault}\nINFO stopping\n")).expect("written");
        assert_eq!(faults(&log), [fault]);
        fs::remove_file(&log).expect("removed");
        assert!(faults(&log).is_empty());
    }
}
