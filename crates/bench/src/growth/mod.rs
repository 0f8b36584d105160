//! `bench growth`: how the time of a message and the memory of a session grow with the number of sessions.

mod plot;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use signalbox_lab::machine::Watch;

use super::judged::{Judged, nothing};
use super::runs::MEASURABLE;
use super::{rounded, rsvp};

/// The numbers of sessions below the limit.
const SIZES: [u32; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// A benchmark of an engine, and the figures of it that are followed.
struct Engine {
    name: &'static str,
    /// The most sessions that it can be asked for.
    most: u32,
    /// The name of a message in the plot, and that of its figure.
    times: &'static [(&'static str, &'static str)],
    octets: &'static str,
}

const ENGINES: &[Engine] = &[
    Engine {
        name: "gist",
        most: 10_000_000,
        times: &[("Data", "ns_per_data"), ("handshake", "ns_per_handshake")],
        octets: "bytes_per_session",
    },
    Engine {
        name: "rsvp",
        most: rsvp::MAX_SESSIONS,
        times: &[
            ("set-up", "ns_per_set_up"),
            ("Path, refresh", "ns_per_path_refresh"),
            ("Resv, refresh", "ns_per_resv_refresh"),
        ],
        octets: "bytes_per_session",
    },
    Engine {
        name: "boomerang",
        most: 10_000_000,
        times: &[("new", "ns_per_reservation"), ("refresh", "ns_per_refresh")],
        octets: "bytes_per_reservation",
    },
    Engine {
        name: "casp",
        most: 10_000_000,
        times: &[("message", "ns_per_message"), ("refresh", "ns_per_refresh")],
        octets: "bytes_per_session",
    },
    Engine {
        name: "qos",
        most: 10_000_000,
        times: &[("RESERVE", "ns_per_reserve"), ("RESERVE, refresh", "ns_per_refresh")],
        octets: "bytes_per_session",
    },
    Engine {
        name: "natfw",
        most: 10_000_000,
        times: &[("CREATE", "ns_per_create"), ("CREATE, refresh", "ns_per_refresh")],
        octets: "bytes_per_session",
    },
    Engine {
        name: "gateway",
        most: 100_000,
        times: &[("Query", "ns_per_query"), ("Query, refresh", "ns_per_refresh")],
        octets: "bytes_per_flow",
    },
];

/// Options of `bench growth`.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct GrowthArgs {
    /// Engines to measure; without it, all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// The most sessions
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10_000..=10_000_000))]
    pub limit: u32,
    /// How often to repeat with each number of sessions; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Write a plot for each engine into this directory, as growth-NAME.svg
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

const HELP: &str = "\
A line t = tau + alpha n is fitted to the times of each message, by least squares of the relative deviations.
Ten million sessions take up to 16 GB of memory.

EXAMPLES:
  signalbox bench growth
  signalbox bench growth --only rsvp --limit 10000000 --plots docs/plots";

/// What was measured of one engine.
struct Growth {
    engine: &'static Engine,
    sizes: Vec<u32>,
    /// Of each message, nanoseconds with each number of sessions.
    times: Vec<Vec<f64>>,
    /// Octets of a session with each number of sessions.
    octets: Vec<f64>,
}

/// The line t = tau + alpha n.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    tau: f64,
    /// For each further session.
    alpha: f64,
}

impl Line {
    /// Fits the line to the points, so that the sum of the squares of relative deviations is least.
    fn through(sizes: &[u32], times: &[f64]) -> Self {
        let (mut w, mut wn, mut wnn, mut wt, mut wnt) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (size, time) in sizes.iter().zip(times) {
            let (n, weight) = (f64::from(*size), 1.0 / (time * time).max(1e-9));
            w += weight;
            wn += weight * n;
            wnn += weight * n * n;
            wt += weight * time;
            wnt += weight * n * time;
        }
        let alpha = (w * wnt - wn * wt) / (w * wnn - wn * wn);
        let alpha = if alpha.is_finite() { alpha } else { 0.0 };
        Self { tau: (wt - alpha * wn) / w.max(1e-30), alpha }
    }

    fn at(self, sessions: f64) -> f64 {
        self.tau + self.alpha * sessions
    }

    /// Nanoseconds for each further million of sessions.
    fn per_million(self) -> f64 {
        self.alpha * 1e6
    }
}

pub(super) fn run(args: &GrowthArgs) -> Result<ExitCode> {
    let engines = chosen(&args.only)?;
    let watch = Watch::start();
    let all = engines.into_iter().map(|engine| measure(engine, args)).collect::<Result<Vec<_>>>()?;
    let figures = json!({
        "repeated": args.runs,
        "engines": all.iter().map(Growth::json).collect::<Vec<_>>(),
    });
    let faults = all.iter().flat_map(Growth::faults).collect();
    let text = table(args.runs, &all)?;
    let judged = Judged::new("growth", &watch, Vec::new(), faults).print(args.json, &figures, &text);
    // A place that cannot be written costs no figure.
    if let Some(directory) = &args.plots {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let machine = watch.machine().to_string();
        for growth in &all {
            let file = directory.join(format!("growth-{}.svg", growth.engine.name));
            fs::write(&file, plot::svg(growth, &machine)?).with_context(|| file.display().to_string())?;
        }
    }
    judged.map(|()| ExitCode::SUCCESS)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Engine>> {
    if let Some(name) = names.iter().find(|name| ENGINES.iter().all(|engine| engine.name != **name)) {
        let known: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
        bail!("no engine {name}; there are {}", known.join(", "));
    }
    let wanted = |engine: &&Engine| names.is_empty() || names.iter().any(|name| name == engine.name);
    Ok(ENGINES.iter().filter(wanted).collect())
}

/// Returns the numbers of sessions up to `most`, which is the last one.
fn sizes(most: u32) -> Vec<u32> {
    SIZES.into_iter().filter(|size| *size < most).chain([most]).collect()
}

/// Runs the benchmark of the engine with each number of sessions, each in a process of its own.
fn measure(engine: &'static Engine, args: &GrowthArgs) -> Result<Growth> {
    let sizes = sizes(args.limit.min(engine.most));
    let program = std::env::current_exe().context("cannot find the own program")?;
    let list: Vec<_> = sizes.iter().map(u32::to_string).collect();
    let mut command = Command::new(program);
    command.args(["bench", "engine", engine.name, "--json", "--sessions", &list.join(",")]);
    command.args(["--runs", &args.runs.to_string()]);
    let output = command.output().context("cannot start the own program again")?;
    // What cannot be is judged here.
    let report: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    let said = || format!("{}: {}", engine.name, String::from_utf8_lossy(&output.stderr).trim());
    let report = report.with_context(said)?;
    let runs = report["runs"].as_array().context("the run printed no result")?;
    let figure = |key: &str| {
        let figures = runs.iter().map(|run| run[key].as_f64());
        figures.collect::<Option<Vec<f64>>>().with_context(|| format!("the run printed no {key}"))
    };
    let times = engine.times.iter().map(|(_, key)| figure(key)).collect::<Result<_>>()?;
    Ok(Growth { engine, times, octets: figure(engine.octets)?, sizes })
}

impl Growth {
    /// Each message with its times and its line.
    fn messages(&self) -> impl Iterator<Item = (&'static str, &[f64], Line)> {
        let names = self.engine.times.iter().map(|(name, _)| *name);
        names.zip(&self.times).map(|(name, times)| (name, &times[..], Line::through(&self.sizes, times)))
    }

    /// Figures that cannot be.
    fn faults(&self) -> Vec<String> {
        let name = self.engine.name;
        let measurable = self.sizes.iter().zip(&self.octets).filter(|(size, _)| **size >= MEASURABLE);
        let octets = measurable.filter_map(|(size, octets)| nothing(&format!("{name} with {size}"), *octets));
        let times = self.times.iter().flatten().filter(|time| **time <= 0.0);
        octets.chain(times.map(|time| format!("{name}: a message took {time} ns"))).collect()
    }

    fn json(&self) -> Value {
        let rounds = |all: &[f64]| all.iter().map(|one| rounded(*one)).collect::<Vec<_>>();
        let messages: Vec<Value> = self
            .messages()
            .map(|(name, times, line)| {
                json!({
                    "message": name,
                    "ns": rounds(times),
                    "tau_ns": rounded(line.tau),
                    "alpha_ns_per_million": rounded(line.per_million()),
                })
            })
            .collect();
        json!({
            "engine": self.engine.name,
            "sessions": self.sizes,
            "messages": messages,
            "bytes_per_session": self.sizes.iter().zip(&self.octets)
                .map(|(size, octets)| (*size >= MEASURABLE).then(|| rounded(*octets))).collect::<Vec<_>>(),
        })
    }
}

fn table(runs: u32, all: &[Growth]) -> Result<String> {
    let mut text = format!("medians of {runs} runs; t = tau + alpha n\n");
    for growth in all {
        write!(text, "\n{:<10} {:<16}", growth.engine.name, "sessions")?;
        for size in &growth.sizes {
            write!(text, " {size:>10}")?;
        }
        writeln!(text, " {:>9} {:>22}", "tau", "alpha, each million")?;
        for (name, times, line) in growth.messages() {
            write!(text, "{:<10} {:<16}", "", format!("{name}, ns"))?;
            for time in times {
                write!(text, " {time:>10.0}")?;
            }
            writeln!(text, " {:>9.0} {:>22.0}", line.tau, line.per_million())?;
        }
        write!(text, "{:<10} {:<16}", "", "octets/session")?;
        for (size, octets) in growth.sizes.iter().zip(&growth.octets) {
            if *size < MEASURABLE {
                write!(text, " {:>10}", "-")?;
            } else {
                write!(text, " {octets:>10.1}")?;
            }
        }
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let sizes = [1_000, 10_000, 100_000, 1_000_000];
        let times = sizes.map(|n| 500.0 + f64::from(n) * 0.0002);
        let line = Line::through(&sizes, &times);
        assert!((line.tau - 500.0).abs() < 0.01 && (line.per_million() - 200.0).abs() < 0.01, "{line:?}");
        assert!((line.at(1e6) - 700.0).abs() < 0.01);
    }

    #[test]
    fn the_last_number_of_sessions_is_the_most() {
        assert_eq!(sizes(10_000), [1_000, 10_000]);
        assert_eq!(sizes(6_000_000), [1_000, 10_000, 100_000, 1_000_000, 6_000_000]);
    }

    #[test]
    fn a_single_point_has_no_growth() {
        assert_eq!(Line::through(&[10], &[7.0]), Line { tau: 7.0, alpha: 0.0 });
    }

    #[test]
    fn the_plot_has_a_curve_and_a_line_for_each_message() {
        let engine = ENGINES.first().unwrap();
        let (sizes, octets) = (vec![1_000, 10_000, 100_000], vec![170.0, 165.0, 160.0]);
        let times = vec![vec![900.0, 950.0, 1000.0], vec![2000.0, 2100.0, 2200.0]];
        let growth = Growth { engine, sizes, times, octets };
        let chart = plot::chart(&growth, "a machine");
        let [messages, memory] = &chart.panels[..] else { panic!("two panels") };
        assert_eq!((messages.series.len(), memory.series.len()), (2 * 2, 1));
        let svg = chart.svg().unwrap();
        for text in ["Data: τ ", "100k", "sessions", "octets of a session", "a machine"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }
}
