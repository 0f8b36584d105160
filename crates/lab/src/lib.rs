//! The lab: topologies in network namespaces, scenarios that are TOML files, and checks of what has to hold.
//!
//! The crate has layers. A layer uses those below it, and none above; `cargo xtask deps` checks it. From the bottom:
//!
//! * `protocols`: the signaling protocols by their names, and how their messages are read from frames;
//! * `language`: what the file of a scenario says, read and checked;
//! * `plan`: what has to be made for it: names, addresses, routes, configurations. Nothing is made;
//! * `run`: what is made and done: namespaces, programs, steps, or the same in virtual time, and what was observed;
//! * `judge`: the checks, which judge what was observed from outside the daemons;
//! * `report`: text, JSON, plots;
//! * [`cli`]: the commands.
//!
//! Beside them [`replay`] repeats a recorded node. `docs/lab.md` describes the format of scenarios.
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

pub mod cli;
mod judge;
mod language;
mod plan;
mod protocols;
pub mod replay;
mod report;
mod run;

pub use report::{chart, object};
pub use run::{machine, provenance, scratch};

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
/// All mistakes in the text, each with file and line; without any, those in the configurations of its daemons.
pub fn read_scenario(file: &str, text: &str) -> anyhow::Result<Summary> {
    let scenario = language::read(file, text)?;
    plan::configuration::check(file, &scenario)?;
    let language::Scenario { name, description, workload, checks, .. } = scenario;
    Ok(Summary { name, description, steps: workload.len(), checks: checks.len() })
}
