//! `signalbox`: the command for people. It parses arguments, asks the daemon or a library, and prints the answer.

mod arguments;
mod client;
mod commands;
mod exit;
mod print;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser};

use commands::{Command, Run};
use exit::Exit;

/// Internet signaling: reserve along paths, follow them, look at nodes and messages, run scenarios.
#[derive(Debug, Parser)]
#[command(name = "signalbox", disable_version_flag = true, after_help = HELP)]
struct Cli {
    /// Print the version; with --json also that of the JSON schemas.
    #[arg(short = 'V', long)]
    version: bool,
    #[arg(long, requires = "version", hide = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

const HELP: &str = concat!(
    exit::exit_status!("yes", "no: refused, lost, unanswered, a failed check, or less than was asked"),
    "EXAMPLES:\n",
    "  signalbox ping host.example --count 3\n",
    "  signalbox reserve 192.0.2.9 --rate 20mbit --proto udp --dport 5004\n",
    "  signalbox query 192.0.2.9 --rate 20mbit && start-the-stream\n",
    "  signalbox rsvp receive 192.0.2.9 --proto udp --dport 5004\n",
    "  signalbox show gist sessions --json\n",
    "  signalbox show counters --socket /run/signalbox/r1.sock\n",
    "  signalbox lab run quickstart\n",
    "  signalbox decode --protocol gist capture.pcap\n\n",
    "With --json, one object a line, each with a type; its fields are those of the gRPC interface, and docs/schema/ has their\n",
    "JSON Schemas. An error is an object on standard error then: {\"type\":\"error\",\"reason\",\"message\",\"cause\"}.",
);

fn main() -> ExitCode {
    run(&std::env::args_os().collect::<Vec<_>>()).into()
}

fn run(arguments: &[OsString]) -> Exit {
    // Also of a command line that cannot be parsed. What follows `--` is another command's.
    let json = arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let outcome = match Cli::try_parse_from(arguments) {
        Ok(Cli { version: true, json, .. }) => print_version(json),
        Ok(Cli { command: Some(command), .. }) => command.run(),
        Ok(Cli { command: None, .. }) => {
            let _ = Cli::command().print_help();
            return Exit::Usage;
        }
        Err(message) => return exit::report_usage(&message, json),
    };
    outcome.unwrap_or_else(|error| exit::report(&error, json))
}

fn print_version(json: bool) -> Result<Exit> {
    let version = env!("CARGO_PKG_VERSION");
    let mut out = io::stdout();
    if json {
        let schema = signalbox_json::SCHEMA;
        writeln!(out, r#"{{"type":"version","version":"{version}","schema":{schema}}}"#)?;
    } else {
        writeln!(out, "signalbox {version}")?;
    }
    Ok(Exit::Yes)
}

/// The command line as a whole, for the completion of words in shells.
fn command_line() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests;
