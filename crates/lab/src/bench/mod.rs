//! Benchmarks: what a session and a message cost, in memory and on the wire.
//!
//! Every benchmark prints its goals beside what it measured, reached or not, and exits 0 if it could measure.

mod engine;
mod forward;
mod machine;
mod rsvp;
mod runs;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

pub use engine::EngineArgs;
pub use forward::ForwardArgs;
pub use rsvp::RsvpArgs;

/// Declares the table of benchmarks: one line each with the subcommand, its module and its options.
macro_rules! benchmarks {
    ($( $(#[doc = $about:literal])+ $name:ident => $module:ident::$options:ident, )*) => {
        /// What can be measured.
        #[derive(Debug, Clone, Subcommand)]
        pub enum BenchCommand {
            $( $(#[doc = $about])+ $name($options), )*
        }

        /// Runs one benchmark and prints its result.
        ///
        /// # Errors
        /// What kept it from measuring; a goal that is not reached is no error.
        pub fn run(command: BenchCommand) -> anyhow::Result<ExitCode> {
            match command {
                $( BenchCommand::$name(options) => $module::run(&options)?, )*
            }
            Ok(ExitCode::SUCCESS)
        }
    };
}

benchmarks! {
    /// A node in memory, without a kernel: time per message and handshake, memory per session.
    GistEngine => engine::EngineArgs,
    /// A node on real sockets between two namespaces, and a bare forwarder in its place: messages per second.
    GistForward => forward::ForwardArgs,
    /// An RSVP router in memory: time per new, refreshed and torn Path and Resv, memory per session.
    RsvpEngine => rsvp::RsvpArgs,
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
