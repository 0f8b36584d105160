//! The commands. Each family of commands is a file or folder with a `mod` line and a line in the table below; nothing
//! outside depends on what is in it, except the table.

mod audit;
mod clear;
mod completion;
mod config;
mod decode;
mod lab;
mod ping;
mod pinhole;
mod policy;
mod query;
mod reserve;
mod rsvp;
mod show;
mod watch;

use anyhow::Result;

use crate::exit::Exit;

/// The arguments of a command, which carry it out.
pub(crate) trait Run {
    /// Carries the command out, prints the result, and returns the exit status.
    ///
    /// # Errors
    /// The daemon cannot be reached or refuses, or the arguments contradict each other.
    fn run(self) -> Result<Exit>;
}

impl<T: Run> Run for Box<T> {
    fn run(self) -> Result<Exit> {
        (*self).run()
    }
}

/// Defines a set of subcommands as an enum: a line for each, with its help, its name and its arguments, which
/// implement [`Run`].
macro_rules! subcommands {
    ($visibility:vis enum $set:ident { $($(#[$help:meta])* $name:ident($arguments:ty),)* }) => {
        #[derive(Debug, clap::Subcommand)]
        $visibility enum $set { $($(#[$help])* $name($arguments),)* }

        impl $crate::commands::Run for $set {
            fn run(self) -> anyhow::Result<$crate::exit::Exit> {
                match self { $(Self::$name(arguments) => arguments.run(),)* }
            }
        }
    };
}
pub(crate) use subcommands;

subcommands! {
    pub(crate) enum Command {
        /// Reserve along the path of a flow, hold it, and tear it down at the end.
        Reserve(Box<reserve::ReserveArgs>),
        /// Ask what the path of a flow could give.
        Query(Box<query::QueryArgs>),
        /// Send probes along the path of a flow and show the signaling nodes that they meet.
        Ping(ping::PingArgs),
        /// Passages through firewalls and NATs: open the path of a flow, be reached from outside, block senders.
        Pinhole(pinhole::PinholeArgs),
        /// What only RSVP has: announce a sender, reserve as a receiver, trace a reservation.
        Rsvp(rsvp::RsvpArgs),
        /// Show the state of the node.
        Show(show::ShowArgs),
        /// What became of requests, by the audit file of the daemon: who asked, what for, which rule decided.
        Audit(audit::AuditArgs),
        /// Print what changes at the node: reservations, interfaces, sessions, decisions.
        Watch(watch::WatchArgs),
        /// End state of the node, also that of another client or node.
        Clear(clear::ClearArgs),
        /// What the rules of the node answer to a request, without sending it.
        Policy(policy::PolicyArgs),
        /// Check a configuration of the daemon, or show all of its keys.
        Config(config::ConfigArgs),
        /// Print messages, from hexadecimal lines or a capture, as text or JSON.
        Decode(decode::DecodeArgs),
        /// Give a new node the inputs that a daemon recorded, and print what it does.
        Replay(signalbox_lab::replay::ReplayArgs),
        /// Networks of namespaces on this machine, and scenarios that run in them.
        Lab(signalbox_lab::cli::LabArgs),
        /// Scenarios in virtual time: the same engines without a kernel, with any number of seeds and faults.
        Sim(signalbox_lab::cli::sim::SimArgs),
        /// Measure the engines and the daemon on this machine.
        Bench(lab::BenchArgs),
        /// Print a script that completes words of this command in a shell.
        Completion(completion::CompletionArgs),
    }
}
