//! `signalbox`: the command for people. It parses arguments, asks the daemon or a library, and prints.

mod client;
mod decode;
mod ping;
mod reserve;
mod rsvp;
mod show;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

/// Exit status of a wrong command line, of a daemon that cannot be reached or refuses.
const FAILED: u8 = 2;

/// Internet signaling: ask a Signalbox node, follow a path, look at messages, run scenarios.
#[derive(Debug, Parser)]
#[command(name = "signalbox", version, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    node: NodeArgs,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  signalbox ping 192.0.2.9 --count 3
  signalbox reserve 192.0.2.9 --rate 20mbit --proto udp --dport 5004
  signalbox query 192.0.2.9 --rate 20mbit
  signalbox rsvp receive 192.0.2.9 --proto udp --dport 5004
  signalbox show sessions --json
  signalbox --socket /run/signalbox/r1.sock show counters
  signalbox lab run quickstart
  signalbox decode --protocol gist capture.pcap
  signalbox replay inputs.jsonl

Exit status: 0 all is well, 1 the answer is \"no\" (a probe unanswered, a reservation refused, a check failed, a message that
cannot be understood, a recording that breaks off), 2 wrong arguments or no daemon.";

/// Which node to ask.
#[derive(Debug, Args)]
struct NodeArgs {
    /// Control socket of the daemon.
    #[arg(
        long,
        global = true,
        env = "SIGNALBOX_SOCKET",
        value_name = "PATH",
        default_value = signalbox_api::DEFAULT_SOCKET
    )]
    socket: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send probes along the path of a flow and show the signaling nodes that they meet.
    Ping(ping::PingArgs),
    /// Reserve along the path of a flow, hold it, and tear it down at the end.
    Reserve(Box<reserve::ReserveArgs>),
    /// Ask what the path of a flow could give.
    Query(Box<reserve::QueryArgs>),
    /// RSVP: announce a sender, reserve as a receiver, show sessions, trace a reservation.
    Rsvp(rsvp::RsvpArgs),
    /// Show what the node knows: sessions, peers, associations, reservations, interfaces, counters, status.
    Show(show::ShowArgs),
    /// Print messages, from hexadecimal lines or a capture, as text or JSON.
    Decode(decode::DecodeArgs),
    /// Networks of namespaces on this machine, and scenarios that run in them.
    Lab(signalbox_lab::cli::LabArgs),
    /// Measure the engine and the daemon on this machine.
    #[command(subcommand)]
    Bench(signalbox_lab::bench::BenchCommand),
    /// Give a new node the inputs that a daemon recorded, and print what it does.
    Replay(signalbox_lab::replay::ReplayArgs),
    /// Print the version of this command.
    Version,
}

fn main() -> ExitCode {
    run(std::env::args_os())
}

fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(message) => {
            // If not even the message can be written, the status still tells.
            let _ = message.print();
            return if message.use_stderr() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS };
        }
    };
    match execute(cli) {
        Ok(code) => code,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "signalbox: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn execute(cli: Cli) -> Result<ExitCode> {
    let socket = &cli.node.socket;
    match cli.command {
        Command::Ping(arguments) => on_runtime(ping::run(socket, &arguments)),
        Command::Reserve(arguments) => on_runtime(reserve::run(socket, &arguments)),
        Command::Query(arguments) => on_runtime(reserve::query(socket, &arguments)),
        Command::Rsvp(arguments) => on_runtime(rsvp::run(socket, &arguments)),
        Command::Show(arguments) => on_runtime(show::run(socket, &arguments)),
        Command::Decode(arguments) => decode::run(&arguments),
        Command::Lab(arguments) => signalbox_lab::cli::run(arguments),
        Command::Bench(command) => signalbox_lab::bench::run(command),
        Command::Replay(arguments) => signalbox_lab::replay::run(&arguments),
        Command::Version => {
            writeln!(io::stdout(), "signalbox {}", env!("CARGO_PKG_VERSION"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn on_runtime(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_socket_may_stand_anywhere() {
        for line in [
            ["signalbox", "--socket", "/s", "show", "peers"],
            ["signalbox", "show", "--socket", "/s", "peers"],
            ["signalbox", "show", "peers", "--socket", "/s"],
        ] {
            let cli = Cli::try_parse_from(line).unwrap();
            assert_eq!(cli.node.socket.to_str(), Some("/s"));
        }
    }

    #[test]
    fn a_broken_pipe_is_recognised_below_other_errors() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing");
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("else")));
    }
}
