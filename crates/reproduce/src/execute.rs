//! The commands of experiments, one after the other, as processes of this program.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::experiment::Command;
use crate::store::{Kept, Store};

/// The time between two looks at a command.
const LOOK: Duration = Duration::from_millis(50);
/// A command that takes so many times its time, and some more, hangs.
const HANGS: u32 = 5;
const HANGS_AFTER: Duration = Duration::from_secs(120);
/// The time that a command has to take down what it made.
const END: Duration = Duration::from_secs(30);
/// The time after which one that was interrupted by the terminal, too, is told so.
const TOLD: Duration = Duration::from_millis(500);

/// Why a command did not end by itself.
#[derive(Debug)]
pub(crate) struct Interrupted;

/// Starts commands, and ends them if this process is asked to end.
#[derive(Debug)]
pub(crate) struct Executor {
    program: PathBuf,
    asked: Arc<AtomicBool>,
}

impl Executor {
    /// From now on SIGINT, SIGTERM and SIGHUP end the command that runs, and not this process at once.
    pub(crate) fn new() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find the own program")?;
        let executor = Self::of(program);
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&executor.asked))?;
        }
        Ok(executor)
    }

    fn of(program: PathBuf) -> Self {
        Self { program, asked: Arc::default() }
    }

    /// Runs a command and keeps what it printed. `tell` is called now and then with the time since its start.
    ///
    /// # Errors
    /// Nothing can be started or written.
    pub(crate) fn run(
        &self,
        store: &Store,
        command: &Command,
        made_by: &Value,
        tell: impl FnMut(Duration),
    ) -> Result<Result<Kept, Interrupted>> {
        let (said, printed) = (store.of(command, "log"), store.of(command, "out"));
        let create =
            |path: &Path| File::create(path).with_context(|| format!("cannot write {}", path.display()));
        let started_unix_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let (begin, mut child) = (Instant::now(), std::process::Command::new(&self.program));
        child.args(&command.words).stdin(Stdio::null()).stdout(create(&printed)?).stderr(create(&said)?);
        let mut child = child.spawn().with_context(|| format!("cannot start {}", self.program.display()))?;
        let ended = self.wait(&mut child, begin, command.takes * HANGS + HANGS_AFTER, tell)?;
        let text =
            fs::read_to_string(&printed).with_context(|| format!("cannot read {}", printed.display()))?;
        let objects: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let log = fs::read_to_string(&said).unwrap_or_default();
        // It is kept in another form, or of no use.
        let _ = fs::remove_file(&printed);
        let reason = match ended {
            Ended::Interrupted => return Ok(Err(Interrupted)),
            Ended::Hung => Some("it did not end in time".to_owned()),
            Ended::By(status) => reason(status, &objects, &log),
        };
        let kept = Kept {
            command: command.words.clone(),
            made_by: made_by.clone(),
            started_unix_us: u64::try_from(started_unix_us).unwrap_or(u64::MAX),
            elapsed_ms: u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
            objects,
            reason,
        };
        store.keep(command, &kept)?;
        Ok(Ok(kept))
    }

    fn wait(
        &self,
        child: &mut Child,
        begin: Instant,
        limit: Duration,
        mut tell: impl FnMut(Duration),
    ) -> Result<Ended> {
        loop {
            if let Some(status) = child.try_wait()? {
                // A command that the terminal interrupted, too, may have ended before this is seen.
                return Ok(if self.asked() { Ended::Interrupted } else { Ended::By(status) });
            }
            if self.asked() {
                end(child)?;
                return Ok(Ended::Interrupted);
            }
            if begin.elapsed() > limit {
                end(child)?;
                return Ok(Ended::Hung);
            }
            tell(begin.elapsed());
            thread::sleep(LOOK);
        }
    }

    /// Whether this process was asked to end.
    fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

/// How a command ended.
enum Ended {
    By(ExitStatus),
    Interrupted,
    Hung,
}

/// Ends a command. It takes down what it made.
fn end(child: &mut Child) -> Result<()> {
    let begin = Instant::now();
    let process = Pid::from_raw(i32::try_from(child.id())?);
    let mut told = false;
    while child.try_wait()?.is_none() {
        if !told && begin.elapsed() > TOLD {
            told = true;
            // It may have ended just now.
            let _ = kill(process, Signal::SIGINT);
        }
        if begin.elapsed() > END {
            // The report says that it took too long, or that it was interrupted. What it made may stand still.
            eprintln!("a command did not end within {} s of being asked, and was killed", END.as_secs());
            child.kill()?;
            child.wait()?;
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Says why a command measured nothing; `None`: it did.
fn reason(status: ExitStatus, objects: &[Value], log: &str) -> Option<String> {
    for object in objects {
        if let Some(why) = object["skip"].as_str() {
            return Some(format!("skipped: {why}"));
        }
        let checks = object["checks"].as_array().into_iter().flatten();
        if let Some(check) = checks.into_iter().find(|check| check["ok"] == false) {
            let [name, detail] = ["name", "detail"].map(|key| check[key].as_str().unwrap_or_default());
            return Some(format!("the check {name:?} fails: {detail}"));
        }
    }
    if status.success() {
        return objects.is_empty().then(|| "it printed no result".to_owned());
    }
    let last = log.lines().rev().map(str::trim).find(|line| !line.is_empty());
    Some(last.map_or_else(|| status.to_string(), error))
}

/// Returns the text of an error, which a program that prints JSON has in an object.
fn error(line: &str) -> String {
    let object: Option<Value> = serde_json::from_str(line).ok();
    let text = object
        .as_ref()
        .and_then(|object| ["message", "error", "text"].iter().find_map(|key| object[*key].as_str()));
    text.unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    struct Site {
        directory: PathBuf,
        store: Store,
        executor: Executor,
    }

    impl Site {
        /// A program of this text, which is asked to run.
        fn new(name: &str, script: &str) -> Self {
            let directory =
                std::env::temp_dir().join(format!("signalbox-execute-{}-{name}", std::process::id()));
            let store = Store::open(&directory).expect("writable");
            let program = directory.join("program");
            fs::write(&program, format!("#!/usr/bin/env -S --default-signal sh\n{script}\n"))
                .expect("writable");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
            Self { executor: Executor::of(program), store, directory }
        }

        fn run(&self, tell: impl FnMut(Duration)) -> Result<Kept, Interrupted> {
            let command = Command { words: vec!["lab".into(), "run".into()], takes: Duration::from_secs(1) };
            self.executor.run(&self.store, &command, &json!({}), tell).expect("it can be started")
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            // The next run does not need it.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    #[test]
    fn what_a_command_prints_is_kept() {
        let site = Site::new("kept", "echo '{\"v\": 1}'; echo beside");
        let kept = site.run(|_| {}).expect("not interrupted");
        assert_eq!((kept.objects, kept.reason), (vec![json!({"v": 1})], None));
    }

    #[test]
    fn a_command_that_measures_nothing_says_why() {
        for (script, said) in [
            ("true", "it printed no result"),
            ("echo first >&2; echo the last >&2; exit 3", "the last"),
            ("echo '{\"error\": \"no right\"}' >&2; exit 3", "no right"),
            (
                "echo '{\"ok\": false, \"checks\": [{\"name\": \"all\", \"ok\": false, \"detail\": \"2 of 3\"}]}'; exit 1",
                "the check \"all\" fails: 2 of 3",
            ),
            ("echo '{\"ok\": true, \"skip\": \"no tshark\"}'", "skipped: no tshark"),
        ] {
            let site = Site::new("why", script);
            assert_eq!(site.run(|_| {}).expect("not interrupted").reason.as_deref(), Some(said), "{script}");
        }
    }

    #[test]
    fn a_command_is_interrupted_and_takes_down_what_it_made() {
        let site =
            Site::new("interrupted", "trap 'touch \"$0.down\"; exit 0' INT\nwhile :; do sleep 0.05; done");
        let asked = Arc::clone(&site.executor.asked);
        // As a signal does it, while the command runs.
        let interrupted = site.run(|_| asked.store(true, Ordering::Relaxed));
        assert!(interrupted.is_err());
        assert!(site.directory.join("program.down").exists());
    }
}
