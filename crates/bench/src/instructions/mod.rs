//! `bench instructions`: the instructions of fixed workloads, which repeat where times do not, beside those on record.

pub(super) mod callgrind;
mod daemon;
mod record;
mod workload;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use signalbox_lab::machine::Watch;
use signalbox_linux::netns;

use super::judged::Judged;
use super::rounded;
use callgrind::Counted;
use record::{Record, Verdict};
use workload::{WORKLOADS, Workload};

/// Options of `bench instructions`.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct InstructionsArgs {
    /// Workloads to count; without it, all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Compare with this record; a part that costs more than its tolerance allows is a failure
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    pub compare: Option<PathBuf>,
    /// Write what was counted into this record, in place of what it says about these workloads
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

const HELP: &str = "\
It runs the programs under callgrind, so valgrind has to be installed. The workloads of the daemon make network
namespaces, which needs root; without it they are left out.

EXIT STATUS:
  0  counted, and no part costs more than the record allows
  1  a part costs more

EXAMPLES:
  signalbox bench instructions
  signalbox bench instructions --compare scripts/instructions.tsv
  signalbox bench instructions --only rsvp --record scripts/instructions.tsv";

/// A part of a workload, and what the record says about it.
struct Row {
    workload: &'static Workload,
    counted: Counted,
    verdict: Option<Verdict>,
}

pub(super) fn run(args: &InstructionsArgs) -> Result<ExitCode> {
    let workloads = chosen(&args.only)?;
    let known = args.compare.as_deref().or(args.record.as_deref()).map(Record::read).transpose()?;
    let watch = Watch::start();
    let mut rows = Vec::new();
    let mut left_out = Vec::new();
    for workload in workloads {
        if workload.needs_root && !netns::is_permitted() {
            left_out.push(workload.name);
            continue;
        }
        let counted = workload.count().with_context(|| format!("workload {}", workload.name))?;
        rows.extend(counted.into_iter().map(|counted| {
            let record = known.as_ref().filter(|_| args.compare.is_some());
            let verdict = record.map(|record| record.judge(workload, &counted));
            Row { workload, counted, verdict }
        }));
    }
    let figures = json!({
        "compiler": record::COMPILER,
        "parts": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "left_out": left_out,
    });
    Judged::counted("instructions", &watch).print(args.json, &figures, &table(&rows, &left_out)?)?;
    if let (Some(path), Some(known)) = (&args.record, known) {
        let counted = rows.iter().map(|row| (row.workload, &row.counted));
        known.replaced(counted).write(path)?;
    }
    let more = rows.iter().any(|row| row.verdict.is_some_and(Verdict::is_failure));
    Ok(if more { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn chosen(names: &[String]) -> Result<Vec<&'static Workload>> {
    if let Some(name) = names.iter().find(|name| WORKLOADS.iter().all(|workload| workload.name != **name)) {
        let known: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        bail!("no workload {name}; there are {}", known.join(", "));
    }
    let wanted = |workload: &&Workload| names.is_empty() || names.iter().any(|name| name == workload.name);
    Ok(WORKLOADS.iter().filter(wanted).collect())
}

impl Row {
    fn json(&self) -> Value {
        let mut row = json!({
            "workload": self.workload.name,
            "part": self.counted.part,
            "instructions": self.counted.each(),
            "times": self.counted.times,
        });
        if let Some(verdict) = self.verdict {
            row["recorded"] = json!(verdict.recorded());
            row["change"] = json!(verdict.change(&self.counted).map(rounded));
            row["reached"] = json!(!verdict.is_failure());
        }
        row
    }
}

fn table(rows: &[Row], left_out: &[&str]) -> Result<String> {
    let mut text = format!("{:<12} {:<28} {:>8} {:>14}", "workload", "part", "times", "instructions");
    let compared = rows.iter().any(|row| row.verdict.is_some());
    if compared {
        write!(text, " {:>14} {:>8}", "recorded", "change")?;
    }
    for row in rows {
        let Counted { part, times, .. } = &row.counted;
        write!(text, "\n{:<12} {part:<28} {times:>8} {:>14}", row.workload.name, row.counted.each())?;
        let Some(verdict) = row.verdict else { continue };
        match (verdict.recorded(), verdict.change(&row.counted)) {
            (Some(recorded), Some(change)) => write!(text, " {recorded:>14} {:>+7.1}%", change * 100.0)?,
            _ => write!(text, " {:>14} {:>8}", "-", "")?,
        }
        write!(text, "{}", verdict.note())?;
    }
    for name in left_out {
        write!(
            text,
            "\n{name}: left out, because making network namespaces is not permitted: run it as root"
        )?;
    }
    Ok(text)
}
