//! `signalbox`: the command for people. It parses arguments, asks the daemon or a library, and prints the answer.

mod arguments;
mod client;
mod commands;
mod print;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser};

use commands::{Command, Run};

/// Exit status for a wrong command line, and for a daemon that cannot be reached or refuses.
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

fn main() -> ExitCode {
    run(std::env::args_os())
}

fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(message) => {
            // The exit status remains correct even if the message cannot be written.
            let _ = message.print();
            return if message.use_stderr() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS };
        }
    };
    match cli.command.run(&cli.node.socket) {
        Ok(code) => code,
        // The reader of the output closed it, as `head` does.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "signalbox: {error:#}");
            ExitCode::from(FAILED)
        }
    }
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
