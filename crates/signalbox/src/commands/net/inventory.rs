//! The nodes that are asked: those of a file, or of a lab.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::exit::usage;

/// Where a lab keeps what belongs to its nodes, below its name.
const LABS: &str = "/run/signalbox/lab";

/// A node, and how to ask it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    /// The words before those of the question; empty: this program.
    pub(super) command: Vec<String>,
    /// The control socket of its daemon; `None`: the default one of that machine.
    pub(super) socket: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inventory {
    nodes: BTreeMap<String, Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    command: Vec<String>,
    socket: Option<PathBuf>,
}

/// The nodes of a lab, or else of a file; only those that are named, if some are.
///
/// # Errors
/// There is no such file or lab, it is wrong, or it has no such node.
pub(super) fn nodes(file: &Path, lab: Option<&str>, only: &[String]) -> Result<Vec<Node>> {
    let (mut nodes, place) = match lab {
        Some(lab) => (of_lab(lab)?, format!("the lab {lab}")),
        None => (of_file(file)?, file.display().to_string()),
    };
    if let Some(missing) = only.iter().find(|name| nodes.iter().all(|node| node.name != **name)) {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        usage!("{place} has no node {missing}; there are {}", names.join(", "));
    }
    if !only.is_empty() {
        nodes.retain(|node| only.contains(&node.name));
    }
    Ok(nodes)
}

fn of_file(file: &Path) -> Result<Vec<Node>> {
    let text = fs::read_to_string(file).with_context(|| {
        format!(
            "cannot read {}: write the nodes into it (signalbox net --help), or give --inventory or --lab",
            file.display()
        )
    })?;
    let Inventory { nodes } = match toml::from_str(&text) {
        Ok(inventory) => inventory,
        Err(error) => usage!("{}: {error}", file.display()),
    };
    if nodes.is_empty() {
        usage!("{} names no node", file.display());
    }
    let node = |(name, Entry { command, socket })| Node { name, command, socket };
    Ok(nodes.into_iter().map(node).collect())
}

fn of_lab(lab: &str) -> Result<Vec<Node>> {
    if lab.is_empty() || lab.contains(['/', '.']) {
        usage!("--lab {lab}: this is no name of a lab");
    }
    let directory = Path::new(LABS).join(lab);
    let entries = fs::read_dir(&directory)
        .with_context(|| format!("no lab {lab} stands here: `signalbox lab list` names those that do"))?;
    let mut nodes = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock")) {
            nodes.push(Node { name: name.to_owned(), command: Vec::new(), socket: Some(path.clone()) });
        }
    }
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    if nodes.is_empty() {
        usage!("no daemon of the lab {lab} runs");
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str, only: &[&str]) -> Result<Vec<Node>> {
        let file = std::env::temp_dir().join(format!("sbx-inventory-{}-{name}", std::process::id()));
        fs::write(&file, text).unwrap();
        let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
        let nodes = nodes(&file, None, &only);
        fs::remove_file(file).unwrap();
        nodes
    }

    #[test]
    fn a_file_names_sockets_and_commands() {
        let text =
            "[nodes.r2]\ncommand = [\"ssh\", \"r2\", \"signalbox\"]\n[nodes.r1]\nsocket = \"/run/r1.sock\"\n";
        let all = read("all", text, &[]).unwrap();
        let names: Vec<&str> = all.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["r1", "r2"]);
        assert_eq!(all[0].socket, Some("/run/r1.sock".into()));
        assert_eq!(all[1].command, ["ssh", "r2", "signalbox"]);
        assert_eq!(read("one", text, &["r2"]).unwrap().len(), 1);
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, only, said) in [
            ("[nodes.r1]\nsockets = \"/s\"\n", &[][..], "unknown field `sockets`"),
            ("[nodes]\n", &[], "names no node"),
            ("[nodes.r1]\n", &["r9"], "no node r9; there are r1"),
        ] {
            let error = read("wrong", text, only).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let error = nodes(Path::new("/none/such"), None, &[]).unwrap_err().to_string();
        assert!(error.contains("--lab"), "{error}");
        assert!(nodes(Path::new("/none/such"), Some("../etc"), &[]).is_err());
    }
}
