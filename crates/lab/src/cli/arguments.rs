//! The arguments of `signalbox lab`, and its help.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use signalbox_units::Span;

use super::help::help;

/// The help of all commands of the lab together.
pub const LAB_HELP: &str = concat!(
    help!(
        ["all checks hold", "a check fails", "a missing right, tool or program, or a mistake in a scenario",],
        "lab list",
        "lab steps",
        "lab check ./mine.toml",
        "lab run quickstart",
        "lab soak soak --for 30m",
        "lab up quickstart",
        "lab exec h1 -- signalbox ping 10.0.3.2 --count 3",
        "lab down quickstart"
    ),
    "\n\nNeeds root, or a kernel that allows user namespaces (then only `list`, `steps`, `checks`, `check` and `run`, and nothing\n",
    "outlives the run).",
);

/// What the lab can do.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List the scenarios that are built in, and the labs that stand.
    #[command(after_help = help!("lab list", "lab list --names", "lab list --json | jq .standing"))]
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Print only the names of the scenarios, one a line.
        #[arg(long, conflicts_with = "json")]
        names: bool,
    },
    /// Explain the steps that the workload of a scenario can have, with their keys.
    #[command(after_help = help!("lab steps | less", "lab steps --json"))]
    Steps {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Explain the checks that a scenario can have, with their keys.
    #[command(after_help = help!("lab checks | less", "lab checks --json"))]
    Checks {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make the network of a scenario and start its daemons, to look around by hand.
    #[command(after_help = help!("lab up quickstart", "lab up ./mine.toml --json"))]
    Up {
        /// A scenario's name, or the path of a TOML file.
        name: String,
        /// Print the nodes as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Run a command inside a node of a standing lab.
    #[command(after_help = help!(
        ["that of the command in the node; 2 if the command line is wrong, 3 if nothing could be run"],
        "lab exec h1 -- signalbox ping 10.0.3.2 --count 3",
        "lab exec quickstart/r1 -- ip route",
    ))]
    Exec {
        /// The node: NODE, or LAB/NODE where several labs stand.
        node: String,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Report all mistakes of a scenario file; nothing is made, and no right is needed.
    #[command(after_help = help!(
        ["no file has a mistake", "a file has a mistake"],
        "lab check ./mine.toml",
        "lab check ./mine.toml --set rate=5mbit",
        "lab check scenarios/*.toml --json",
    ))]
    Check {
        /// Scenarios' names, or paths of TOML files.
        #[arg(required = true)]
        names: Vec<String>,
        /// Values of parameters.
        #[command(flatten)]
        set: Set,
        /// Print one JSON object a line, for each file.
        #[arg(long)]
        json: bool,
    },
    /// Judge the `show` checks of a scenario on its lab, which stands.
    #[command(after_help = help!(
        [
            "all checks hold",
            "a check fails",
            "a missing right, tool or program, or a mistake in a scenario",
        ],
        "lab up boomerang",
        "lab expect boomerang",
        "lab expect ./mine.toml --json",
    ))]
    Expect {
        /// A scenario's name, or the path of a TOML file.
        name: String,
        /// End with one JSON object on standard output.
        #[arg(long)]
        json: bool,
    },
    /// Repeat the steps of a scenario on one network, and watch memory and descriptors of its daemons. Nothing else is
    /// judged.
    #[command(after_help = help!(
        [
            "memory and descriptors of every daemon stay as they are",
            "they grow",
            "a missing right, tool or program, or a mistake in a scenario",
        ],
        "lab soak soak --for 30m",
        "lab soak ./mine.toml --for 2h --json",
    ))]
    Soak {
        /// A scenario's name, or the path of a TOML file.
        name: String,
        /// How long; the last round is finished.
        #[arg(long = "for", value_name = "TIME", default_value = "30m", value_parser = span)]
        time: Duration,
        /// End with one JSON object on standard output.
        #[arg(long)]
        json: bool,
    },
    /// Take a lab down, also what a crash left of it.
    #[command(after_help = help!("lab down quickstart", "lab down --all"))]
    Down {
        /// The lab's name.
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// Take down all labs of this machine, also those of other people.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Run scenarios: make the network, take the steps, judge the checks, take down.
    #[command(after_help = help!(
        [
            "all checks hold",
            "a check fails",
            "a missing right, tool or program, or a mistake in a scenario",
        ],
        "lab run quickstart",
        "lab run ./mine.toml --json --pcap captures",
        "lab run ./mine.toml --set rate=5mbit --repeat 10 --junit result.xml",
        "lab run quickstart --keep",
    ))]
    Run {
        /// Scenarios' names, or paths of TOML files.
        #[arg(required = true)]
        names: Vec<String>,
        /// How often each scenario is run.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        repeat: u32,
        /// The seed of what the lab draws at random, instead of the file's.
        #[arg(long)]
        seed: Option<u64>,
        /// Write the results into this file, as JUnit.
        #[arg(long, value_name = "FILE")]
        junit: Option<PathBuf>,
        /// Write the measurements into this file, as a table with one row for each number (CSV).
        #[arg(long, value_name = "FILE")]
        csv: Option<PathBuf>,
        /// Values of parameters.
        #[command(flatten)]
        set: Set,
        /// End with one JSON object on standard output.
        #[arg(long)]
        json: bool,
        /// Write the packets of each link into this directory, as LINK.pcap; those of several scenarios as SCENARIO/LINK.pcap, with
        /// --repeat as run-N/LINK.pcap.
        #[arg(long, value_name = "DIR")]
        pcap: Option<PathBuf>,
        /// Draw loss, delay and goodput of the flows of the scenario into this file, as SVG; with --repeat F.svg is F-N.svg for run N.
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
        /// Leave the network and the daemons standing.
        #[arg(long)]
        keep: bool,
    },
    /// Run a scenario with all values of its `[sweep]`, each several times, and compare. What is finished is kept: the same command
    /// goes on where it was interrupted.
    #[command(after_help = help!(
        [
            "all checks hold in all runs",
            "a check fails",
            "a missing right, tool or program, a mistake in a scenario, or not all runs could be made",
        ],
        "lab sweep ./mine.toml --out results",
        "lab sweep ./mine.toml --out results --repeat 20 --measure rtt_ms/p50",
        "lab sweep quickstart --out results --json",
    ))]
    Sweep {
        /// A scenario's name, or the path of a TOML file.
        name: String,
        /// The directory of the results. It is made if it is not there.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// How many runs each point has, instead of the file's `repeat`.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
        repeat: Option<u32>,
        /// A measurement that the table and the plot show, instead of the file's `measure`; `*` stands for any text.
        #[arg(long, value_name = "NAME")]
        measure: Vec<String>,
        /// The seed of the order of the runs and of what they draw at random, instead of the file's.
        #[arg(long)]
        seed: Option<u64>,
        /// Values of parameters that are not swept.
        #[command(flatten)]
        set: Set,
        /// End with one JSON object on standard output.
        #[arg(long)]
        json: bool,
    },
}

/// Values of a scenario's parameters.
#[derive(Debug, Default, Args)]
pub struct Set {
    /// A parameter of the scenario and its value.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
}

impl Set {
    /// Returns the parameters with their values.
    pub(crate) fn values(&self) -> &[(String, String)] {
        &self.set
    }
}

/// Splits a parameter and its value.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write a parameter and its value, like rate=5mbit".to_owned()),
    }
}

/// Reads a time.
fn span(text: &str) -> Result<Duration, String> {
    text.parse::<Span>().map(|span| span.0).map_err(|error| error.to_string())
}
