//! `signalbox-lab`: the program that carries out `signalbox lab`, `sim`, `bench` and `replay`. `signalbox` starts it in its own place, so
//! that the command of a router is small.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use signalbox_bench::BenchCommand;
use signalbox_cli::exit::{Exit, exit_status};
use signalbox_cli::words::Words;
use signalbox_cli::{Run, Version};
use signalbox_lab::cli::sim::SimArgs;
use signalbox_lab::cli::{LAB_HELP, LabCommand};
use signalbox_lab::provenance::{self, Build};
use signalbox_lab::replay::ReplayArgs;
use signalbox_reproduce::ReproduceArgs;

#[derive(Debug, Subcommand)]
enum Command {
    /// Give a new node the inputs that a daemon recorded, and print what it does.
    Replay(ReplayArgs),
    /// Networks of namespaces on this machine, and scenarios that run in them.
    Lab(LabArgs),
    /// Scenarios in virtual time: the same engines without a kernel, with any number of seeds and faults.
    Sim(SimArgs),
    /// Measure the engines and the daemon on this machine.
    Bench(BenchArgs),
    /// Print the words of this command line for `signalbox completion`, as JSON.
    #[command(hide = true)]
    Words,
}

impl Run for Command {
    fn run(self) -> Result<Exit> {
        match self {
            Self::Replay(arguments) => signalbox_lab::replay::run(&arguments),
            Self::Lab(arguments) => match arguments.command {
                LabOrReproduce::Lab(command) => signalbox_lab::cli::run(command),
                LabOrReproduce::Reproduce(arguments) => signalbox_reproduce::run(&arguments),
            },
            Self::Sim(arguments) => signalbox_lab::cli::sim::run(arguments),
            Self::Bench(arguments) => signalbox_bench::run(arguments.command),
            Self::Words => print_words(),
        }
        .map(Exit::Of)
    }
}

#[derive(Debug, Args)]
#[command(after_help = LAB_HELP)]
struct LabArgs {
    #[command(subcommand)]
    command: LabOrReproduce,
}

/// The commands of the lab, and the one that runs others of them.
#[derive(Debug, Subcommand)]
enum LabOrReproduce {
    #[command(flatten)]
    Lab(LabCommand),
    /// Repeat the measurements of published papers, and write a report with both beside each other.
    Reproduce(ReproduceArgs),
}

#[derive(Debug, Args)]
#[command(after_help = BENCH)]
struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

const BENCH: &str = concat!(
    exit_status!(
        "measured; a goal that is not reached changes nothing, but an impossible figure ends with 3"
    ),
    "EXAMPLES:\n",
    "  signalbox bench list\n",
    "  signalbox bench engine gist\n",
    "  signalbox bench engine rsvp --json\n",
    "  signalbox bench forward gist\n",
    "  signalbox bench instructions --compare scripts/instructions.tsv",
);

const ABOUT: &str =
    "The lab of Signalbox: scenarios, benchmarks and recordings; `signalbox` has its commands, too";
const HELP: &str = concat!(
    exit_status!("yes", "no: a failed check, or a recording that is wrong"),
    "EXAMPLES:\n",
    "  signalbox lab run quickstart\n",
    "  signalbox sim run quickstart --leave-out\n",
    "  signalbox bench list",
);
const VERSION: Version = Version { program: env!("CARGO_PKG_VERSION"), schema: signalbox_json::SCHEMA };

/// What this program was built from.
const BUILD: Build = Build {
    version: env!("CARGO_PKG_VERSION"),
    commit: option_env!("SIGNALBOX_COMMIT"),
    compiler: env!("SIGNALBOX_COMPILER"),
};

fn main() -> ExitCode {
    provenance::set(BUILD);
    let arguments: Vec<OsString> = std::env::args_os().collect();
    signalbox_cli::run::<Command>(command_line(), VERSION, &arguments).into()
}

fn command_line() -> clap::Command {
    signalbox_cli::command_line::<Command>().name(signalbox_cli::lab::PROGRAM).about(ABOUT).after_help(HELP)
}

fn print_words() -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &Words::below(&command_line()))?;
    writeln!(out)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests;
