//! The directory with the results of a sweep. It has each finished run as a line of JSON, from which the other files are made.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;

use crate::report::object;
use crate::report::sweep::Finished;

/// The finished runs, a line for each (`lab_run`).
const RUNS: &str = "runs.jsonl";
/// How a line begins.
const BEGIN: &[u8] = br#"{"type":"lab_run""#;
/// What the runs have in common (`lab_sweep_plan`).
const PLAN: &str = "plan.json";

/// The directory. No other process adds runs while this one has it.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    runs: Flock<File>,
    /// Where the last whole line ends.
    end: u64,
}

impl Directory {
    /// Takes a directory for the runs of a plan, and returns it with the finished ones.
    pub(super) fn open(path: &Path, plan: &Value) -> Result<(Self, Vec<Finished>)> {
        fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        let file = path.join(RUNS);
        let runs = OpenOptions::new().read(true).append(true).create(true).open(&file);
        let runs = runs.with_context(|| format!("cannot write {}", file.display()))?;
        let runs = Flock::lock(runs, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
            Errno::EWOULDBLOCK => {
                anyhow!(
                    "another sweep writes into {} now; wait for its end, or give another --out",
                    path.display()
                )
            }
            other => anyhow!("cannot lock {}: {other}", file.display()),
        })?;
        let mut directory = Self { path: path.to_owned(), runs, end: 0 };
        let (finished, length) = directory.finished()?;
        directory.agree(plan, finished.is_empty())?;
        if directory.end < length {
            directory
                .runs
                .set_len(directory.end)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok((directory, finished))
    }

    /// Reads the finished runs, and returns the length of the file. A last line without an end is of a run that was not finished.
    fn finished(&mut self) -> Result<(Vec<Finished>, u64)> {
        let file = self.path.join(RUNS);
        let mut text = Vec::new();
        self.runs.read_to_end(&mut text).with_context(|| format!("cannot read {}", file.display()))?;
        let whole = text.iter().rposition(|octet| *octet == b'\n').map_or(0, |last| last + 1);
        self.end = whole as u64;
        let (lines, rest) = text.split_at(whole);
        let mut finished: Vec<Finished> = Vec::new();
        for line in lines.split_inclusive(|octet| *octet == b'\n') {
            let run = serde_json::from_slice(line).ok().and_then(|run| Finished::read(&run));
            let run = run.with_context(|| foreign(&file, finished.len()))?;
            finished.push(run);
        }
        if !rest.iter().zip(BEGIN).all(|(octet, begin)| octet == begin) {
            bail!(foreign(&file, finished.len()));
        }
        Ok((finished, text.len() as u64))
    }

    /// Fails if the runs in the directory are those of another plan.
    fn agree(&self, plan: &Value, empty: bool) -> Result<()> {
        let file = self.path.join(PLAN);
        let known = match fs::read(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        if empty {
            return self.write(PLAN, &(object::line("lab_sweep_plan", plan)? + "\n"));
        }
        let known: Value = known.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let keys = plan.as_object().into_iter().flatten();
        let other = keys.filter(|(key, value)| known.get(key.as_str()) != Some(*value));
        let other: Vec<_> = other.map(|(key, _)| key.as_str()).collect();
        if other.is_empty() {
            return Ok(());
        }
        bail!(
            "{} has the runs of another experiment (it differs in: {}); give another --out",
            self.path.display(),
            other.join(", ")
        );
    }

    /// Adds a finished run. If it cannot be written, those before it stay.
    pub(super) fn keep(&mut self, line: &str) -> Result<()> {
        let written =
            self.runs.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.runs.sync_data());
        if let Err(error) = written {
            // Half a line is cut off when the directory is opened again, too.
            let _ = self.runs.set_len(self.end);
            return Err(error).with_context(|| format!("cannot write {}", self.path.join(RUNS).display()));
        }
        self.end += line.len() as u64 + 1;
        Ok(())
    }

    /// Removes a file that an earlier call left, if there is one.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let file = self.path.join(name);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", file.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes a file whole: it never stands there in part, and where it cannot be written the former one stays.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let (file, draft) = (self.path.join(name), self.path.join(format!(".{name}")));
        let written = File::create(&draft)
            .and_then(|mut draft| draft.write_all(text.as_bytes()).and_then(|()| draft.sync_all()))
            .and_then(|()| fs::rename(&draft, &file));
        if written.is_err() {
            // What is left of it would take the place that lacks.
            let _ = fs::remove_file(&draft);
        }
        written.with_context(|| format!("cannot write {}", file.display()))
    }
}

/// Says which line is something else.
fn foreign(file: &Path, before: usize) -> String {
    format!("line {} of {} is no run of a sweep; give another --out", before + 1, file.display())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::run::scratch::Scratch;

    fn line(point: usize, repetition: u32) -> String {
        let run = json!({
            "sweep": {"point": point, "repetition": repetition}, "seed": 7, "started_unix_us": 5, "elapsed_us": 1000,
            "verdict": "clean", "ok": true, "checks": [], "measurements": {"rtt_ms": {"p50": 1.5}},
        });
        object::line("lab_run", &run).expect("an object")
    }

    fn plan(seed: u64) -> Value {
        json!({"scenario": "x", "seed": seed})
    }

    #[test]
    fn finished_runs_are_there_again_and_half_a_line_is_not() {
        let scratch = Scratch::new("directory").expect("a directory");
        let path = scratch.join("new/out");
        let (mut directory, finished) = Directory::open(&path, &plan(1)).expect("it can be made");
        assert_eq!(finished, []);
        directory.keep(&line(1, 1)).expect("written");
        directory.keep(&line(2, 1)).expect("written");
        drop(directory);
        let mut file = OpenOptions::new().append(true).open(path.join(RUNS)).expect("there");
        file.write_all(&line(1, 2).as_bytes()[..40]).expect("written");
        let (mut directory, finished) = Directory::open(&path, &plan(1)).expect("the same plan");
        assert_eq!(finished.iter().map(|run| run.place.point).collect::<Vec<_>>(), [1, 2]);
        directory.keep(&line(1, 2)).expect("written");
        drop(directory);
        let (_, finished) = Directory::open(&path, &plan(1)).expect("the same plan");
        assert_eq!(finished.len(), 3);
    }

    #[test]
    fn a_second_sweep_at_once_and_another_experiment_are_refused() {
        let scratch = Scratch::new("directory").expect("a directory");
        let said = |seed| Directory::open(scratch.path(), &plan(seed)).expect_err("refused").to_string();
        let (mut directory, _) = Directory::open(scratch.path(), &plan(1)).expect("it is empty");
        assert!(said(1).starts_with("another sweep writes into "), "{}", said(1));
        directory.keep(&line(1, 1)).expect("written");
        drop(directory);
        assert!(
            said(2)
                .ends_with(" has the runs of another experiment (it differs in: seed); give another --out"),
            "{}",
            said(2)
        );
        let (directory, finished) = Directory::open(scratch.path(), &plan(1)).expect("the same plan");
        assert_eq!(finished.len(), 1);
        drop(directory);
        for notes in ["notes of somebody\n", "notes of somebody"] {
            fs::write(scratch.join(RUNS), notes).expect("written");
            assert!(said(1).contains("is no run of a sweep; give another --out"), "{}", said(1));
            assert_eq!(fs::read_to_string(scratch.join(RUNS)).expect("there"), notes);
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_the_former_one() {
        let scratch = Scratch::new("directory").expect("a directory");
        let (directory, _) = Directory::open(scratch.path(), &plan(1)).expect("it is empty");
        directory.write("sweep.csv", "one").expect("written");
        fs::create_dir(scratch.join(".sweep.csv")).expect("in the way");
        let said = directory.write("sweep.csv", "two").expect_err("a directory is in the way").to_string();
        assert!(said.starts_with("cannot write "), "{said}");
        assert_eq!(fs::read_to_string(scratch.join("sweep.csv")).expect("there"), "one");
    }
}
