//! The real `signalbox` command, run inside a node.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::plan::PlannedNode;
use crate::plan::places;
use crate::run::{daemon, kernel};

/// Returns where the command is.
pub(crate) fn place() -> Result<PathBuf> {
    daemon::program("SIGNALBOX", "signalbox")
}

/// Returns the command with the socket of a node's daemon.
pub(crate) fn signalbox(lab: &str, node: &PlannedNode) -> Result<Command> {
    let mut command = Command::new(place()?);
    command.env("SIGNALBOX_SOCKET", places::socket(lab, &node.name)).stdin(Stdio::null());
    Ok(command)
}

/// Returns the rows of a table of a node's daemon, as `signalbox show` prints them with `--json`: an object a line.
pub(crate) fn table(lab: &str, node: &PlannedNode, words: &str) -> Result<Vec<Value>> {
    let text = shown(lab, node, words, "--json")?;
    let mut rows = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        match value.with_context(|| format!("`show {words}` of {} printed no JSON", node.name))? {
            Value::Array(all) => rows.extend(all),
            row => rows.push(row),
        }
    }
    Ok(rows)
}

/// Returns the counters of a node's daemon, in the format of OpenMetrics.
pub(crate) fn counters(lab: &str, node: &PlannedNode) -> Result<String> {
    shown(lab, node, "counters", "--openmetrics")
}

fn shown(lab: &str, node: &PlannedNode, words: &str, format: &str) -> Result<String> {
    let mut command = signalbox(lab, node)?;
    command.arg("show").args(words.split(' ')).arg(format);
    let output = kernel::namespace(&node.namespace)?.run(|| command.output())??;
    if !output.status.success() {
        bail!("{} does not show {words}: {}", node.name, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
