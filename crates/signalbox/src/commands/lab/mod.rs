//! `signalbox lab`, `signalbox sim`, `signalbox bench` and `signalbox replay`, which the crates of the lab and of the benchmarks carry out without a daemon.

use anyhow::Result;
use clap::Args;

use super::Run;
use crate::exit::{Exit, exit_status};

impl Run for signalbox_lab::cli::LabArgs {
    fn run(self) -> Result<Exit> {
        signalbox_lab::cli::run(self).map(Exit::Of)
    }
}

impl Run for signalbox_lab::cli::sim::SimArgs {
    fn run(self) -> Result<Exit> {
        signalbox_lab::cli::sim::run(self).map(Exit::Of)
    }
}

#[derive(Debug, Args)]
#[command(after_help = BENCH)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: signalbox_bench::BenchCommand,
}

const BENCH: &str = concat!(
    exit_status!("measured; a goal that is not reached changes nothing"),
    "EXAMPLES:\n",
    "  signalbox bench list\n",
    "  signalbox bench engine gist\n",
    "  signalbox bench engine rsvp --json\n",
    "  signalbox bench forward gist\n",
    "  signalbox bench instructions --compare scripts/instructions.tsv",
);

impl Run for BenchArgs {
    fn run(self) -> Result<Exit> {
        signalbox_bench::run(self.command).map(Exit::Of)
    }
}

impl Run for signalbox_lab::replay::ReplayArgs {
    fn run(self) -> Result<Exit> {
        signalbox_lab::replay::run(&self).map(Exit::Of)
    }
}
