//! RSVP: sessions of this host, the RSVP state of the node, and diagnosis of paths.

mod args;
mod many;
mod print;
mod receive;
mod reserve;
mod send;
mod session;
mod show;
mod trace;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::{Run, subcommands};

pub(super) use reserve::reserve;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RsvpArgs {
    #[command(subcommand)]
    command: Command,
}

subcommands! {
    enum Command {
        /// Announce a sender of a session, and show what is reserved for it.
        Send(Box<send::SendArgs>),
        /// Reserve as a receiver of a session, for the senders that announce themselves.
        Receive(Box<receive::ReceiveArgs>),
        /// Show the sessions of this node, with path state and reservations, or its neighbours.
        Show(show::ShowArgs),
        /// Ask the nodes of the path to a sender, one after the other, what is reserved for it.
        Trace(Box<trace::TraceArgs>),
    }
}

const EXAMPLES: &str = "\
Examples:
  at the sender:    signalbox rsvp send 192.0.2.9 --proto udp --dport 5004 --rate 20mbit
  at the receiver:  signalbox rsvp receive 192.0.2.9 --proto udp --dport 5004
  on any node:      signalbox rsvp show
  from anywhere:    signalbox rsvp trace 192.0.2.9 --proto udp --dport 5004 --sender 198.51.100.7/4000

Senders announce, receivers reserve (RFC 2205): the receiver decides what is reserved. Both commands hold their state
until Ctrl-C, SIGTERM or the end of --hold, and then tear it down. With --flows N they do the same for N sessions, to
destination ports from --dport on, and report when all are complete.";

impl Run for RsvpArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        self.command.run(socket)
    }
}
