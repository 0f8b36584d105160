//! The record of instruction counts: a file of the repository, which changes on purpose only.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::callgrind::Counted;
use super::workload::Workload;

/// The compiler of this program.
pub(super) const COMPILER: &str = env!("SIGNALBOX_COMPILER");
/// Another compiler makes other instructions of the same source: this much more is then allowed.
const OTHER_COMPILER: f64 = 0.15;

const HEAD: &str = "\
# Instructions of each part of fixed workloads, in release programs, for one message, session or rule, and the percentage by which a
# count may differ. Recording keeps the percentage.
# `make test` compares with it. After a change that costs or saves on purpose:
#   cargo build --release -p signalboxd -p signalbox -p signalbox-lab-command && target/release/signalbox bench instructions --record scripts/instructions.tsv
# and say the reason in the commit.
";
const COMPILER_LINE: &str = "# compiler: ";

/// A record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    compiler: String,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    workload: String,
    part: String,
    instructions: u64,
    /// Percent by which the count may differ.
    tolerance: u32,
}

/// What a record says about a count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    Within {
        recorded: u64,
    },
    More {
        recorded: u64,
    },
    /// Less than on record, by more than the tolerance: a later increase up to the record would not be noticed.
    Less {
        recorded: u64,
    },
    /// It is not on record.
    New,
}

impl Verdict {
    pub(super) const fn is_failure(self) -> bool {
        matches!(self, Self::More { .. })
    }

    pub(super) const fn recorded(self) -> Option<u64> {
        match self {
            Self::Within { recorded } | Self::More { recorded } | Self::Less { recorded } => Some(recorded),
            Self::New => None,
        }
    }

    /// Returns the change against the record, as a share of it.
    pub(super) fn change(self, counted: &Counted) -> Option<f64> {
        let recorded = self.recorded()?.max(1);
        Some(counted.each() as f64 / recorded as f64 - 1.0)
    }

    /// What the reader of the table has to do.
    pub(super) const fn note(self) -> &'static str {
        match self {
            Self::Within { .. } => "",
            Self::More { .. } => "  MORE: find the cause, or record it on purpose",
            Self::Less { .. } => "  less: record it, so that the gain stays",
            Self::New => "  new: record it",
        }
    }
}

impl Record {
    /// Reads a record; a file that does not exist yet is an empty one.
    pub(super) fn read(path: &Path) -> Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).with_context(|| path.display().to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let compiler = text.lines().find_map(|line| line.strip_prefix(COMPILER_LINE)).unwrap_or_default();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
        let lines = lines.map(|(number, line)| {
            let mut fields = line.split('\t');
            let mut next = || fields.next().with_context(|| format!("line {}: four fields", number + 1));
            let (workload, part, instructions) = (next()?.to_owned(), next()?.to_owned(), next()?);
            let tolerance = next()?.parse().with_context(|| format!("line {}", number + 1))?;
            let instructions = instructions.parse().with_context(|| format!("line {}", number + 1))?;
            Ok(Line { workload, part, instructions, tolerance })
        });
        Ok(Self { compiler: compiler.to_owned(), lines: lines.collect::<Result<_>>()? })
    }

    /// Returns it with these counts in place of all parts of their workloads.
    pub(super) fn replaced<'a>(
        self,
        counted: impl Iterator<Item = (&'a Workload, &'a Counted)> + Clone,
    ) -> Self {
        let stays = |line: &Line| counted.clone().all(|(workload, _)| workload.name != line.workload);
        let mut lines: Vec<Line> = self.lines.iter().filter(|line| stays(line)).cloned().collect();
        lines.extend(counted.clone().map(|(workload, counted)| Line {
            workload: workload.name.to_owned(),
            part: counted.part.clone(),
            instructions: counted.each(),
            tolerance: self.line(workload, counted).map_or(workload.tolerance, |line| line.tolerance),
        }));
        // The parts of a workload stay in the order of the run.
        lines.sort_by(|a, b| a.workload.cmp(&b.workload));
        Self { compiler: COMPILER.to_owned(), lines }
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let mut text = format!("{HEAD}{COMPILER_LINE}{}\n", self.compiler);
        for Line { workload, part, instructions, tolerance } in &self.lines {
            writeln!(text, "{workload}\t{part}\t{instructions}\t{tolerance}")?;
        }
        fs::write(path, text).with_context(|| path.display().to_string())
    }

    fn line(&self, workload: &Workload, counted: &Counted) -> Option<&Line> {
        self.lines.iter().find(|line| line.workload == workload.name && line.part == counted.part)
    }

    /// Compares a count with the record.
    pub(super) fn judge(&self, workload: &Workload, counted: &Counted) -> Verdict {
        let Some(line) = self.line(workload, counted) else { return Verdict::New };
        let recorded = line.instructions;
        let other = if self.compiler == COMPILER { 0.0 } else { OTHER_COMPILER };
        let tolerance = f64::from(line.tolerance) / 100.0 + other;
        let (is, was) = (counted.each() as f64, recorded as f64);
        if is > was * (1.0 + tolerance) {
            Verdict::More { recorded }
        } else if is < was * (1.0 - tolerance) {
            Verdict::Less { recorded }
        } else {
            Verdict::Within { recorded }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::WORKLOADS;
    use super::*;

    fn rsvp() -> &'static Workload {
        WORKLOADS.iter().find(|workload| workload.name == "rsvp").unwrap()
    }

    fn counted(sum: u64) -> Counted {
        Counted { part: "Path".to_owned(), times: 10, sum }
    }

    fn record(compiler: &str) -> Record {
        Record::parse(&format!("# a comment\n{COMPILER_LINE}{compiler}\nrsvp\tPath\t1000\t3\n")).unwrap()
    }

    #[test]
    fn only_what_costs_more_than_the_tolerance_fails() {
        let record = record(COMPILER);
        let verdict = |sum| record.judge(rsvp(), &counted(sum));
        assert_eq!(verdict(10_200), Verdict::Within { recorded: 1000 });
        assert_eq!(verdict(10_400), Verdict::More { recorded: 1000 });
        assert_eq!(verdict(9_000), Verdict::Less { recorded: 1000 });
        let new = Counted { part: "Resv".to_owned(), ..counted(10_000) };
        assert_eq!(record.judge(rsvp(), &new), Verdict::New);
        let failures: Vec<_> = [10_200, 10_400, 9_000].map(verdict).iter().map(|v| v.is_failure()).collect();
        assert_eq!(failures, [false, true, false]);
    }

    #[test]
    fn another_compiler_may_make_more_instructions() {
        let record = record("rustc 1.0.0");
        assert!(!record.judge(rsvp(), &counted(10_400)).is_failure());
        assert!(record.judge(rsvp(), &counted(13_000)).is_failure());
    }

    #[test]
    fn recording_replaces_the_workload_and_keeps_the_others() {
        let before = Record::parse("gist\tData\t7\t5\nrsvp\tPath\t1000\t3\nrsvp\tgone\t5\t3\n").unwrap();
        let new = counted(20_000);
        let after = before.replaced([(rsvp(), &new)].into_iter());
        let directory = tempfile();
        after.write(&directory).unwrap();
        let again = Record::read(&directory).unwrap();
        fs::remove_file(&directory).unwrap();
        assert_eq!(again, after);
        let lines: Vec<_> =
            again.lines.iter().map(|line| (&*line.part, line.instructions, line.tolerance)).collect();
        assert_eq!(lines, [("Data", 7, 5), ("Path", 2000, 3)], "the tolerance stays");
        assert_eq!(again.compiler, COMPILER);
    }

    fn tempfile() -> std::path::PathBuf {
        std::env::temp_dir().join(format!("signalbox-record-{}", std::process::id()))
    }
}
