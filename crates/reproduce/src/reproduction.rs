//! One reproduction: what it takes is said, the commands run, and the report is written.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use signalbox_lab::machine::{Machine, Watch};
use signalbox_lab::provenance;

use crate::execute::Executor;
use crate::experiment::Command;
use crate::report::{self, Report, Runs};
use crate::selection::{Selection, minutes};
use crate::store::Store;

/// Exit status where an experiment failed.
const FAILED: u8 = 1;

/// Runs what was selected, and writes the report into the directory.
pub(crate) fn run(selection: &Selection, directory: &Path, json: bool) -> Result<ExitCode> {
    let store = Store::open(directory)?;
    let executor = Executor::new()?;
    let watch = Watch::start();
    let made_by = made_by(&watch.machine());
    let commands = selection.commands();
    let mut runs = Runs::new();
    for command in &commands {
        if let Some(kept) = store.kept(command, &made_by) {
            runs.insert(command.words.clone(), kept);
        }
    }
    let mut progress = Progress::new(&commands, &runs, directory);
    let mut interrupted = false;
    for command in &commands {
        if runs.contains_key(&command.words) {
            continue;
        }
        progress.begin(command);
        let Ok(kept) = executor.run(&store, command, &made_by, |time| progress.tell(command, time))? else {
            interrupted = true;
            break;
        };
        progress.end(command, kept.reason.as_deref());
        runs.insert(command.words.clone(), kept);
    }
    let report = Report::new(selection, &runs, &watch);
    let mut pages = Vec::new();
    for (name, text) in [
        ("report.html", report::html::page(&report)),
        ("figures.csv", report::csv::table(&report)),
        ("report.json", format!("{}\n", report.json()?)),
    ] {
        pages.push(store.write(name, &text)?);
    }
    if interrupted {
        let done = runs.len();
        bail!(
            "interrupted: {done} of {} commands are kept in {}, and the same command goes on",
            commands.len(),
            directory.display()
        );
    }
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", report.json()?)?;
    } else {
        writeln!(out, "{}", report.text())?;
        for page in pages {
            writeln!(out, "{}", page.display())?;
        }
    }
    Ok(if report.failures().next().is_none() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// What results depend on beside their command: the files of all programs, and the machine.
fn made_by(machine: &Machine) -> Value {
    let Machine { processor, processors, memory_kib, kernel, .. } = machine;
    json!({
        "programs": provenance::all(), "processor": processor, "processors": processors, "memory_kib": memory_kib, "kernel": kernel,
    })
}

/// What people are told meanwhile, on standard error. What cannot be printed is no reason to fail.
struct Progress {
    all: usize,
    number: usize,
    /// The time that the commands take that have not ended.
    left: Duration,
    terminal: bool,
}

impl Progress {
    /// Says how long all takes.
    fn new(commands: &[&Command], kept: &Runs, directory: &Path) -> Self {
        let missing: Vec<_> = commands.iter().filter(|command| !kept.contains_key(&command.words)).collect();
        let left = missing.iter().map(|command| command.takes).sum();
        let (all, number) = (commands.len(), commands.len() - missing.len());
        let mut err = io::stderr().lock();
        let _ = write!(err, "{all} commands, about {}", minutes(left));
        if number > 0 {
            let _ = write!(err, "; {number} of them are kept in {} from before", directory.display());
        }
        let _ = writeln!(err);
        Self { all, number, left, terminal: io::stderr().is_terminal() }
    }

    fn begin(&mut self, command: &Command) {
        self.number += 1;
        let _ = writeln!(
            io::stderr(),
            "[{}/{}] {}, about {} left",
            self.number,
            self.all,
            command.shown(),
            minutes(self.left)
        );
    }

    /// On a terminal: how long the command has run.
    fn tell(&self, command: &Command, time: Duration) {
        if self.terminal {
            let (time, takes) = (minutes(time), minutes(command.takes));
            let _ = write!(io::stderr(), "\r\x1b[K        {time} of about {takes}\r");
        }
    }

    fn end(&mut self, command: &Command, reason: Option<&str>) {
        self.left = self.left.saturating_sub(command.takes);
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        if let Some(reason) = reason {
            let _ = writeln!(io::stderr(), "        FAILED: {reason}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The load differs each time; a daemon that was built again, and another machine, have other results.
    #[test]
    fn results_depend_on_the_daemon_and_on_the_machine() {
        let machine = Watch::start().machine();
        let one = made_by(&machine);
        let busier = Machine { load: machine.load + 1.0, others: Some(0.5), ..machine.clone() };
        assert_eq!(made_by(&busier), one);
        let faster = Machine { processors: machine.processors + 1, ..machine };
        assert_ne!(made_by(&faster), one);
        let names: Vec<_> =
            one["programs"].as_array().into_iter().flatten().map(|one| &one["name"]).collect();
        assert_eq!(names, ["signalbox-lab", "signalboxd", "signalbox"]);
    }
}
