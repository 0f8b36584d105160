//! Runs of programs under callgrind, which counts the instructions of a process.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};

use super::super::machine::{PART, PARTS};
use signalbox_lab::scratch::Scratch;

/// Instructions of one part of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Counted {
    pub(in super::super) part: String,
    /// Messages, sessions or rules that were handled.
    pub(in super::super) times: u64,
    /// Instructions of all of them.
    pub(in super::super) sum: u64,
}

impl Counted {
    /// Returns the instructions of one.
    pub(in super::super) const fn each(&self) -> u64 {
        self.sum / if self.times == 0 { 1 } else { self.times }
    }
}

/// The directory of one run's files.
pub(in super::super) struct Files {
    directory: Scratch,
}

impl Files {
    pub(in super::super) fn new(name: &str) -> Result<Self> {
        Ok(Self { directory: Scratch::new(&format!("count-{name}"))? })
    }

    pub(in super::super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns valgrind with its options; the program and its arguments follow.
    pub(in super::super) fn valgrind(&self) -> Vec<OsString> {
        let option = |name: &str, value: &Path| {
            let mut option = OsString::from(name);
            option.push(value);
            option
        };
        vec![
            "valgrind".into(),
            "--tool=callgrind".into(),
            "--combine-dumps=no".into(),
            "--compress-strings=no".into(),
            "--compress-pos=no".into(),
            option("--log-file=", &self.path("log")),
            option("--callgrind-out-file=", &self.path("out")),
        ]
    }

    /// Returns the file that callgrind wrote when it was asked for the `number`th time, from 1 on.
    pub(in super::super) fn dump(&self, number: usize) -> PathBuf {
        self.path(&format!("out.{number}"))
    }

    /// Returns the file that callgrind wrote at the end of the program.
    pub(in super::super) fn last(&self) -> PathBuf {
        self.path("out")
    }
}

/// Returns the sum of a file that callgrind wrote.
pub(in super::super) fn instructions(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let sum = text.lines().find_map(|line| line.strip_prefix("summary: "));
    let sum = sum.and_then(|sum| sum.trim().parse().ok());
    sum.with_context(|| format!("{} has no sum", file.display()))
}

/// Runs a command to its end; the error shows what it printed.
pub(in super::super) fn finish(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(missing)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", output.status, said.trim());
    Ok(output.stderr)
}

/// Explains why a program cannot be started.
pub(in super::super) fn missing(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound => anyhow!("no valgrind here: install it (Debian: apt-get install valgrind)"),
        _ => anyhow!(error).context("cannot start valgrind"),
    }
}

/// Makes the command whose first word is the program.
pub(in super::super) fn command(words: impl IntoIterator<Item = OsString>) -> Result<Command> {
    let mut words = words.into_iter();
    let mut command = Command::new(words.next().context("no program")?);
    command.args(words);
    Ok(command)
}

/// A run of a benchmark of an engine: the files of its parts, in order, with name and number of messages.
pub(in super::super) fn run_engine(files: &Files, words: &[&str]) -> Result<Vec<(String, u64)>> {
    let mut all = files.valgrind();
    all.extend(
        ["--collect-atstart=no", "--toggle-collect=*bench_counted*", "--dump-before=*bench_mark*"]
            .map(Into::into),
    );
    all.push(std::env::current_exe().context("cannot find the own program")?.into());
    all.extend(["bench", "engine"].iter().chain(words).map(Into::into));
    all.extend(["--json", "--runs=1"].map(Into::into));
    let said = finish(command(all)?.env(PARTS, "1"))?;
    let said = String::from_utf8(said).context("the benchmark printed other than text")?;
    let parts = said.lines().filter_map(|line| {
        let (name, messages) = line.strip_prefix(PART)?.split_once('\t')?;
        Some((name.to_owned(), messages.parse().ok()?))
    });
    let parts: Vec<_> = parts.collect();
    ensure!(!parts.is_empty(), "the benchmark named no parts: {said}");
    Ok(parts)
}

/// Counts the parts of a benchmark of an engine; parts with one name are added.
pub(super) fn engine(words: &[&str]) -> Result<Vec<Counted>> {
    let files = Files::new(words.first().copied().unwrap_or("engine"))?;
    let mut all: Vec<Counted> = Vec::new();
    for (at, (part, times)) in run_engine(&files, words)?.into_iter().enumerate() {
        let sum = instructions(&files.dump(at + 1))?;
        ensure!(sum > 0, "{part}: no instruction was counted");
        match all.iter_mut().find(|counted| counted.part == part) {
            Some(counted) => {
                counted.times += times;
                counted.sum += sum;
            }
            None => all.push(Counted { part, times, sum }),
        }
    }
    Ok(all)
}
