//! `signalbox rsvp`: what only RSVP has. `signalbox show rsvp` shows its state.

pub(super) mod args;
mod many;
pub(super) mod print;
mod receive;
mod send;
mod session;
mod trace;

use anyhow::Result;
use clap::Args;

use super::{Run, subcommands};
use crate::exit::{Exit, exit_status};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
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
        /// Ask the nodes of the path to a sender, one after the other, what is reserved for it.
        Trace(Box<trace::TraceArgs>),
    }
}

const HELP: &str = concat!(
    exit_status!(
        "reserved, or the path was followed",
        "not reserved, or the path was not followed to its end"
    ),
    "EXAMPLES:\n",
    "  at the sender:    signalbox rsvp send 192.0.2.9 --proto udp --dport 5004 --rate 20mbit\n",
    "  at the receiver:  signalbox rsvp receive 192.0.2.9 --proto udp --dport 5004\n",
    "  on any node:      signalbox show rsvp sessions\n",
    "  from anywhere:    signalbox rsvp trace 192.0.2.9 --proto udp --dport 5004 --sender 198.51.100.7/4000\n\n",
    "Senders announce, receivers reserve (RFC 2205): the receiver decides what is reserved. Both commands hold their state\n",
    "until Ctrl-C, SIGTERM or the end of --hold, and then tear it down. With --flows N they do the same for N sessions, to\n",
    "destination ports from --dport on, and report when all are complete.",
);

impl Run for RsvpArgs {
    fn run(self) -> Result<Exit> {
        self.command.run()
    }
}
