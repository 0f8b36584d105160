//! The lab: topologies in network namespaces, scenarios that are TOML files, and checks of what has to hold.
//!
//! `scenario` reads the file, `plan` decides names, addresses and routes without touching anything, `net` carries the
//! plan out and takes it down again. `steps` and `checks` each have a table of all kinds, `run` does the steps, and the
//! checks judge from outside the daemons what `observe` captured. `protocols` has a folder for each signaling protocol.
//! `docs/lab.md` describes the format. `simulation` runs scenarios in virtual time, `replay` repeats a recorded node.
//!
//! [`read_scenario`] reads the text of a scenario, as `signalbox lab run` does before it makes anything:
//!
//! ```
//! let text = r#"
//! version = 2
//! name = "two"
//! description = "a Ping signal between two hosts"
//!
//! [topology]
//! chain = ["a", "b"]
//!
//! [[steps]]
//! ping = { from = "a", to = "b" }
//!
//! [[checks]]
//! expect = "all nodes are visited"
//! path = ["a", "b"]
//! "#;
//! let scenario = signalbox_lab::read_scenario("two.toml", text)?;
//! assert_eq!((scenario.name.as_str(), scenario.steps, scenario.checks), ("two", 1, 1));
//!
//! let mistake = signalbox_lab::read_scenario("two.toml", &text.replace("ping = ", "pong = "));
//! assert!(mistake.unwrap_err().to_string().starts_with("two.toml:9: a step has one of the keys run, reserve, ping"));
//! # Ok::<(), anyhow::Error>(())
//! ```

mod certificates;
pub mod cli;
mod command;
mod daemon;
mod evidence;
mod expectation;
mod help;
mod judge;
mod kernel;
mod lab;
mod language;
mod net;
mod observe;
mod packets;
mod plan;
mod protocols;
mod queues;
pub mod replay;
mod report;
mod requires;
mod routing;
mod run;
pub mod scratch;
pub mod simulation;
mod soak;
mod state;
mod steps;
mod wait;

pub use report::drawing;

/// A scenario in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The name of the scenario, and of its lab.
    pub name: String,
    /// What the scenario shows, in one line.
    pub description: String,
    /// The number of steps in its workload.
    pub steps: usize,
    /// The number of its checks.
    pub checks: usize,
}

/// Reads and validates the text of a scenario; `file` is its name in errors.
///
/// # Errors
/// All mistakes in the text, each with file and line.
pub fn read_scenario(file: &str, text: &str) -> anyhow::Result<Summary> {
    let language::Scenario { name, description, workload, checks, .. } = language::read(file, text)?;
    Ok(Summary { name, description, steps: workload.len(), checks: checks.len() })
}
