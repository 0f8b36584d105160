//! The commands. Each family of commands is a file or folder with a `mod` line and a line in the table below; nothing
//! outside depends on what is in it, except the table.

mod audit;
mod clear;
mod completion;
mod config;
mod decode;
mod net;
mod ping;
mod pinhole;
mod policy;
mod query;
mod reserve;
mod rsvp;
mod run;
mod show;
#[cfg(feature = "top")]
mod top;
mod watch;

pub(crate) use signalbox_cli::Run;

/// Defines a set of subcommands as an enum: a line for each, with its help, its name and its arguments, which
/// implement [`Run`], and the feature that it needs.
macro_rules! subcommands {
    ($visibility:vis enum $set:ident { $($(#[$help:meta])* $name:ident($arguments:ty) $(if $feature:literal)?,)* }) => {
        #[derive(Debug, clap::Subcommand)]
        $visibility enum $set { $($(#[cfg(feature = $feature)])? $(#[$help])* $name($arguments),)* }

        impl $crate::commands::Run for $set {
            fn run(self) -> anyhow::Result<$crate::exit::Exit> {
                match self { $($(#[cfg(feature = $feature)])? Self::$name(arguments) => arguments.run(),)* }
            }
        }
    };
}
pub(crate) use subcommands;

subcommands! {
    pub(crate) enum Command {
        /// Reserve along the path of a flow, hold it, and tear it down at the end.
        Reserve(Box<reserve::ReserveArgs>),
        /// Run a program, and reserve for the flows that it opens while they live.
        Run(Box<run::RunArgs>),
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
        /// Ask several nodes at once: what each shows, a flow hop by hop, what is wrong.
        Net(net::NetArgs),
        /// The state of the node on one screen, again and again: links, sessions, neighbors, decisions.
        Top(top::TopArgs) if "top",
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
        /// Print a script that completes words of this command in a shell.
        #[command(display_order = 900)]
        Completion(completion::CompletionArgs),
    }
}
