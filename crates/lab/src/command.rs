//! The real `signalbox` command, run inside a node.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::evidence::{COUNTERS, Shown};
use crate::plan::PlannedNode;
use crate::{daemon, kernel, net, protocols, state};

/// Returns where the command is.
pub(crate) fn place() -> Result<PathBuf> {
    match std::env::var_os("SIGNALBOX") {
        Some(_) => daemon::program("SIGNALBOX", "signalbox"),
        None => std::env::current_exe().context("cannot find the command itself"),
    }
}

/// Returns the command with the socket of a node's daemon.
pub(crate) fn signalbox(lab: &str, node: &PlannedNode) -> Result<Command> {
    let mut command = Command::new(place()?);
    command.env("SIGNALBOX_SOCKET", state::socket(lab, &node.name)).stdin(Stdio::null());
    Ok(command)
}

/// Returns all that a node's daemon shows, and what its kernel holds if it reserves.
pub(crate) fn shown(lab: &str, node: &PlannedNode) -> Result<Shown> {
    let mut shown = Shown::default();
    let runs = protocols::all().filter(|protocol| node.protocols.contains(protocol.name()));
    for words in runs.flat_map(|protocol| protocol.tables()).chain(&[COUNTERS]) {
        shown.tables.insert(words, table(lab, node, words)?);
    }
    if node.reserves() {
        shown.kernel = net::rules(&kernel::namespace(&node.namespace)?)?;
    }
    Ok(shown)
}

/// Returns a table of a node's daemon, as a command like `show gist sessions` prints it with `--json`.
pub(crate) fn table(lab: &str, node: &PlannedNode, words: &str) -> Result<Vec<Value>> {
    let mut command = signalbox(lab, node)?;
    command.args(words.split(' ')).arg("--json");
    let output = kernel::namespace(&node.namespace)?.run(|| command.output())??;
    if !output.status.success() {
        bail!("{} does not {words}: {}", node.name, String::from_utf8_lossy(&output.stderr).trim());
    }
    let rows = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    rows.collect::<Result<_, _>>().with_context(|| format!("`{words}` of {} printed no JSON", node.name))
}
