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

/// What can be measured.
#[derive(Debug, Clone, Subcommand)]
pub enum BenchCommand {
    /// A node in memory, without a kernel: time per message and handshake, memory per session.
    GistEngine(EngineArgs),
    /// A node on real sockets between two namespaces, and a bare forwarder in its place: messages per second.
    GistForward(ForwardArgs),
    /// An RSVP router in memory: time per new, refreshed and torn Path and Resv, memory per session.
    RsvpEngine(RsvpArgs),
}

/// Runs one benchmark and prints its result.
///
/// # Errors
/// Whatever kept it from measuring; a goal that is not reached is no error.
pub fn run(command: BenchCommand) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::GistEngine(args) => engine::run(&args)?,
        BenchCommand::GistForward(args) => forward::run(&args)?,
        BenchCommand::RsvpEngine(args) => rsvp::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What a measured value should come to.
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

/// Three digits after the point are more than any measurement here is worth.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Prints whole; a reader that went away is no error of ours.
fn print(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}
