//! Benchmarks: what a session and a message cost, in memory and on the wire.
//!
//! Every benchmark prints its goals beside what it measured, reached or not, and exits 0 if it could measure.

mod boomerang;
mod engine;
mod forward;
mod machine;
mod natfw;
mod rsvp;
mod runs;

use forward::{boomerang as boomerang_forward, rsvp as rsvp_forward};
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

pub use boomerang::BoomerangArgs;
pub use engine::EngineArgs;
pub use forward::ForwardArgs;
pub use forward::boomerang::BoomerangForwardArgs;
pub use forward::rsvp::RsvpForwardArgs;
pub use natfw::NatfwArgs;
pub use rsvp::RsvpArgs;

/// Declares the table of benchmarks: a group for each thing that is measured, and a line for each protocol, with its
/// module and its options.
macro_rules! benchmarks {
    ($( $(#[doc = $what:literal])+ $group:ident as $set:ident {
        $( $(#[doc = $about:literal])+ $name:ident => $module:ident::$options:ident, )*
    } )*) => {
        /// What can be measured.
        #[derive(Debug, Clone, Subcommand)]
        pub enum BenchCommand {
            $( $(#[doc = $what])+ #[command(subcommand)] $group($set), )*
        }

        $(
            $(#[doc = $what])+
            #[derive(Debug, Clone, Subcommand)]
            pub enum $set {
                $( $(#[doc = $about])+ $name($options), )*
            }
        )*

        /// Runs one benchmark and prints its result.
        ///
        /// # Errors
        /// What kept it from measuring; a goal that is not reached is no error.
        pub fn run(command: BenchCommand) -> anyhow::Result<ExitCode> {
            match command {
                $( $( BenchCommand::$group($set::$name(options)) => $module::run(&options)?, )* )*
            }
            Ok(ExitCode::SUCCESS)
        }
    };
}

benchmarks! {
    /// An engine in memory, without a kernel.
    Engine as EngineCommand {
        /// A GIST node: time per message and handshake, memory per session.
        Gist => engine::EngineArgs,
        /// An RSVP router: time per new, refreshed and torn Path and Resv, memory per session.
        Rsvp => rsvp::RsvpArgs,
        /// A Boomerang router: time per new, refreshed, changed and released reservation, memory of each.
        Boomerang => boomerang::BoomerangArgs,
        /// A NAT that runs the NATFW application: time per CREATE, RESPONSE and refresh, memory per session.
        Natfw => natfw::NatfwArgs,
    }
    /// A node on real sockets between two namespaces.
    Forward as ForwardCommand {
        /// GIST messages per second, and those of a bare forwarder in its place.
        Gist => forward::ForwardArgs,
        /// RSVP set-ups per second, their latency, memory and refreshes, and the same packets through a bare forwarder.
        Rsvp => rsvp_forward::RsvpForwardArgs,
        /// Boomerang refreshes per second, and the same Echoes through a bare forwarder in its place.
        Boomerang => boomerang_forward::BoomerangForwardArgs,
    }
}

/// A goal for a measured value.
struct Goal {
    name: &'static str,
    /// In words, with its unit.
    wanted: &'static str,
    measured: f64,
    reached: bool,
}

impl Goal {
    fn at_most(name: &'static str, wanted: &'static str, limit: f64, measured: f64) -> Self {
        Self { name, wanted, measured, reached: measured <= limit }
    }

    fn at_least(name: &'static str, wanted: &'static str, limit: f64, measured: f64) -> Self {
        Self { name, wanted, measured, reached: measured >= limit }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "goal": self.wanted,
            "measured": rounded(self.measured),
            "reached": self.reached,
        })
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = if self.reached { "reached" } else { "NOT reached" };
        write!(f, "{}: {} (goal: {}) {verdict}", self.name, rounded(self.measured), self.wanted)
    }
}

/// Rounds to three digits after the point; no measurement here is more exact.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Prints a text. A reader that went away is no error.
fn print(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}
