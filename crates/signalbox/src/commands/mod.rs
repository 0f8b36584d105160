//! The commands. Each family of commands is a folder with a `mod` line and a line in the table below; nothing outside a
//! folder depends on what is in it, except the table.

mod config;
mod decode;
mod lab;
mod ping;
mod qos;
mod reserve;
mod rsvp;
mod show;
mod version;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

/// The arguments of a command, which carry it out.
pub(crate) trait Run {
    /// Carries the command out with the daemon at `socket`, prints the result, and returns the exit status.
    ///
    /// # Errors
    /// The daemon cannot be reached or refuses, or the arguments contradict each other.
    fn run(self, socket: &Path) -> Result<ExitCode>;
}

impl<T: Run> Run for Box<T> {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        (*self).run(socket)
    }
}

/// Defines a set of subcommands as an enum: a line for each, with its help, its name and its arguments, which
/// implement [`Run`].
macro_rules! subcommands {
    ($visibility:vis enum $set:ident { $($(#[$help:meta])* $name:ident($arguments:ty),)* }) => {
        #[derive(Debug, clap::Subcommand)]
        $visibility enum $set { $($(#[$help])* $name($arguments),)* }

        impl $crate::commands::Run for $set {
            fn run(self, socket: &std::path::Path) -> anyhow::Result<std::process::ExitCode> {
                match self { $(Self::$name(arguments) => arguments.run(socket),)* }
            }
        }
    };
}
pub(crate) use subcommands;

subcommands! {
    pub(crate) enum Command {
        /// Send probes along the path of a flow and show the signaling nodes that they meet.
        Ping(ping::PingArgs),
        /// Reserve along the path of a flow, hold it, and tear it down at the end.
        Reserve(Box<reserve::ReserveArgs>),
        /// Ask what the path of a flow could give.
        Query(Box<qos::QueryArgs>),
        /// RSVP: announce a sender, reserve as a receiver, show sessions, trace a reservation.
        Rsvp(rsvp::RsvpArgs),
        /// Show the state of the node: sessions, peers, associations, reservations, interfaces, counters, status.
        Show(show::ShowArgs),
        /// Check a configuration of the daemon, or show all of its keys.
        Config(config::ConfigArgs),
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
        Version(version::VersionArgs),
    }
}
