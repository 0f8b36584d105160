//! The JSON Schemas of the command's output.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

/// Writes or compares the schemas. The generator is part of the crate that prints, so that this program is built without the API. It is
/// built as a part of the whole workspace: for its package alone, cargo compiles all that it uses with other features, a second time.
pub(crate) fn run(root: &Path, options: &[&str]) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--quiet", "--workspace", "--example", "schema"];
    let built = Command::new(cargo)
        .args(build)
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo build")?;
    if !built.status.success() {
        return Ok(false);
    }
    let generator = executable(&String::from_utf8_lossy(&built.stdout), "schema");
    let generator = generator.context("cargo names no program of the example")?;
    let status = Command::new(&generator).arg("docs/schema").args(options).current_dir(root).status();
    Ok(status.with_context(|| format!("cannot run {}", generator.display()))?.success())
}

/// The program of a target, from the messages of cargo: one JSON object in each line.
fn executable(messages: &str, target: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut of_target = messages.filter(|message| message["target"]["name"] == target);
    of_target.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_that_of_the_target() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"signalbox_json"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/t/other"}
no JSON
{"reason":"compiler-artifact","target":{"name":"schema"},"executable":"/t/examples/schema"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "schema"), Some(PathBuf::from("/t/examples/schema")));
        assert_eq!(executable(messages, "none"), None);
    }
}
