//! `bench profile`: the share of each routine in the cost of a message, from instruction counts, which repeat.

mod costs;
mod routine;

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use signalbox_lab::machine::Watch;

use super::instructions::callgrind::{self, Files};
use super::judged::Judged;
use super::rounded;
use costs::Costs;
use routine::Routine;

/// The benchmarks of engines, with options that keep a run short.
const BENCHES: &[&[&str]] = &[
    &["gist", "--sessions", "1024", "--messages", "4096"],
    &["rsvp", "--sessions", "2048"],
    &["qos", "--sessions", "2048"],
    &["natfw", "--sessions", "2048"],
    &["gateway", "--sessions", "2048"],
    &["boomerang", "--sessions", "2048"],
    &["casp", "--sessions", "2048"],
    &["casp-qos", "--sessions", "2048"],
];
/// Characters of a function's name that are shown.
const NAME: usize = 90;

/// Options of `bench profile`.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct ProfileArgs {
    /// Benchmarks of engines to count; without it, all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Show so many functions of each part, those with the most instructions of their own
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub functions: usize,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

const HELP: &str = "\
It runs the benchmarks of engines under callgrind, so valgrind has to be installed. Instructions of the kernel are not counted.
What the compiler has put into its caller counts for the caller, unless the program has debug information.

EXAMPLES:
  signalbox bench profile
  signalbox bench profile --only rsvp --functions 20";

/// A part of a benchmark: what its messages cost.
struct Part {
    bench: &'static str,
    name: String,
    times: u64,
    costs: Costs,
}

pub(super) fn run(args: &ProfileArgs) -> Result<ExitCode> {
    let watch = Watch::start();
    let mut parts = Vec::new();
    for words in chosen(&args.only)? {
        parts.extend(count(words)?);
    }
    let figures = json!({"parts": parts.iter().map(|part| part.json(args.functions)).collect::<Vec<_>>()});
    let mut text = String::new();
    for words in BENCHES {
        let of = |part: &&Part| Some(&part.bench) == words.first();
        let parts: Vec<&Part> = parts.iter().filter(of).collect();
        if !parts.is_empty() {
            table(&mut text, &parts, args.functions)?;
        }
    }
    Judged::counted("profile", &watch).print(args.json, &figures, &text)?;
    Ok(ExitCode::SUCCESS)
}

fn chosen(names: &[String]) -> Result<Vec<&'static [&'static str]>> {
    let known: Vec<_> = BENCHES.iter().filter_map(|words| words.first().copied()).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("no benchmark {name} of an engine; there are {}", known.join(", "));
    }
    let wanted = |words: &&&[&str]| {
        names.is_empty() || words.first().is_some_and(|first| names.iter().any(|name| name == first))
    };
    Ok(BENCHES.iter().filter(wanted).copied().collect())
}

fn count(words: &'static [&'static str]) -> Result<Vec<Part>> {
    let bench = words.first().copied().context("a benchmark without a name")?;
    let files = Files::new(bench)?;
    let mut parts: Vec<Part> = Vec::new();
    for (at, (name, times)) in callgrind::run_engine(&files, words)?.into_iter().enumerate() {
        let file = files.dump(at + 1);
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        if let Some(part) = parts.iter_mut().find(|part| part.name == name) {
            part.times += times;
            part.costs.read(&text)?;
        } else {
            let mut costs = Costs::default();
            costs.read(&text)?;
            parts.push(Part { bench, name, times, costs });
        }
    }
    Ok(parts)
}

impl Part {
    fn each(&self, instructions: f64) -> f64 {
        instructions / self.times.max(1) as f64
    }

    fn json(&self, functions: usize) -> Value {
        let shares = self.costs.routines();
        let all: f64 = shares.iter().sum();
        let routines: serde_json::Map<String, Value> = Routine::ALL
            .iter()
            .zip(shares)
            .map(|(routine, cost)| {
                let of =
                    json!({"instructions": self.each(cost).round(), "share": rounded(cost / all.max(1.0))});
                (routine.name().to_owned(), of)
            })
            .collect();
        let top: Vec<_> = self
            .costs
            .functions(functions)
            .into_iter()
            .map(|(name, cost)| json!({"function": name, "instructions": self.each(cost).round()}))
            .collect();
        json!({
            "engine": self.bench,
            "part": self.name,
            "times": self.times,
            "instructions": self.each(all).round(),
            "routines": routines,
            "functions": top,
        })
    }
}

fn table(text: &mut String, parts: &[&Part], functions: usize) -> Result<()> {
    let bench = parts.first().map_or("", |part| part.bench);
    write!(text, "\n\n{bench:<20} {:>12}", "instructions")?;
    for routine in Routine::ALL {
        write!(text, " {:>9}", routine.name())?;
    }
    for part in parts {
        let shares = part.costs.routines();
        let all: f64 = shares.iter().sum();
        write!(text, "\n{:<20} {:>12.0}", part.name, part.each(all))?;
        for cost in shares {
            write!(text, " {:>7.1} %", cost / all.max(1.0) * 100.0)?;
        }
    }
    for part in parts.iter().filter(|_| functions > 0) {
        write!(text, "\n\n{}: instructions of the functions themselves", part.name)?;
        for (name, cost) in part.costs.functions(functions) {
            let name: String = name.chars().take(NAME).collect();
            write!(text, "\n{:>10.0}  {name}", part.each(cost))?;
        }
    }
    Ok(())
}
