//! `signalbox`: the command for people. It parses arguments, asks the daemon or a library, and prints the answer. The commands of
//! the lab are those of another program, which it starts in its place.

mod arguments;
mod client;
mod commands;
mod elsewhere;
mod print;

use std::ffi::OsString;
use std::process::ExitCode;

use signalbox_cli::Version;
use signalbox_cli::exit::{self, Exit};

use commands::Command;

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

const ABOUT: &str =
    "Internet signaling: reserve along paths, follow them, look at nodes and messages, run scenarios";
const VERSION: Version = Version { program: env!("CARGO_PKG_VERSION"), schema: signalbox_json::SCHEMA };

fn run(arguments: &[OsString]) -> Exit {
    match elsewhere::wanted(arguments) {
        Some(command) => elsewhere::run(command, arguments),
        None => signalbox_cli::run::<Command>(command_line(), VERSION, arguments),
    }
}

/// The command line, with the commands that another program carries out.
fn command_line() -> clap::Command {
    own_command_line().subcommands(elsewhere::commands())
}

fn own_command_line() -> clap::Command {
    signalbox_cli::command_line::<Command>().name("signalbox").about(ABOUT).after_help(HELP)
}

#[cfg(test)]
mod tests;
