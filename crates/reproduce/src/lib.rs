//! `signalbox lab reproduce`: the measurements of published papers on Internet signaling, repeated with the programs of today.
//!
//! `papers/` has the published figures, the place of each, and the experiments as files. An experiment runs commands of the lab, the
//! simulator and the benchmarks, and says which number that they print is which figure. The report has the figures beside each other.

mod execute;
mod experiment;
mod measure;
mod papers;
mod pointer;
mod report;
mod reproduction;
mod selection;
mod store;
mod units;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use experiment::Mode;

const HELP: &str = "\
EXIT STATUS:
  0  every experiment measured
  1  an experiment failed; the report says why, and has the others
  2  the command line is wrong
  3  interrupted, no such experiment, or files that cannot be written

EXAMPLES:
  signalbox lab reproduce --list
  signalbox lab reproduce
  signalbox lab reproduce boomerang-2001 --full --out boomerang
  signalbox lab reproduce rsvp-router-1998/latency --file

Needs root for what it runs.";

/// Arguments of `signalbox lab reproduce`.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct ReproduceArgs {
    /// A paper, or one experiment of it; all papers if none is given.
    #[arg(value_name = "PAPER[/EXPERIMENT]")]
    name: Option<String>,
    /// Measure with few repetitions: all papers take at most ten minutes. This is the default.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Measure as much as the papers did.
    #[arg(long)]
    full: bool,
    /// The directory of the report. A reproduction that was interrupted goes on in it.
    #[arg(long, value_name = "DIR", default_value = "reproduction")]
    out: PathBuf,
    /// Only list the experiments, with the figures that each repeats and the time that it takes.
    #[arg(long, conflicts_with = "file")]
    list: bool,
    /// Only print the files of the experiments.
    #[arg(long, conflicts_with = "json")]
    file: bool,
    /// End with one JSON object on standard output.
    #[arg(long)]
    json: bool,
}

/// Repeats experiments, and writes the report.
///
/// # Errors
/// No such experiment; files that cannot be written; an interruption. What was measured before is kept.
pub fn run(arguments: &ReproduceArgs) -> Result<ExitCode> {
    let mode = if arguments.full { Mode::Full } else { Mode::Quick };
    let selection = selection::Selection::new(arguments.name.as_deref(), mode)?;
    let text = if arguments.file {
        selection.files()
    } else if arguments.list && arguments.json {
        selection.list_json()?
    } else if arguments.list {
        selection.list()
    } else {
        return reproduction::run(&selection, &arguments.out, arguments.json);
    };
    writeln!(io::stdout().lock(), "{}", text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the words behind `signalbox` of each command that experiments run, in both modes.
///
/// # Errors
/// A mistake in the tables or in the file of an experiment.
pub fn commands() -> Result<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for mode in [Mode::Quick, Mode::Full] {
        let selection = selection::Selection::new(None, mode)?;
        all.extend(selection.commands().into_iter().map(|command| command.words.clone()));
    }
    Ok(all)
}
