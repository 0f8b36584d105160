//! The state of a lab on disk, so that another process can take it down, also after a crash.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use signalbox_linux::process::Identity;

use crate::plan::places::{DIRECTORY, directory};

/// What exists or may exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) lab: String,
    /// The process that makes the lab or runs the scenario.
    pub(crate) maker: Process,
    /// Whether nothing of the lab is to stay after the end of its maker.
    #[serde(default)]
    pub(crate) temporary: bool,
    /// The names are written before the namespaces are made.
    pub(crate) namespaces: Vec<String>,
    pub(crate) daemons: Vec<Daemon>,
}

/// A daemon that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Daemon {
    pub(crate) node: String,
    #[serde(flatten)]
    pub(crate) process: Process,
}

/// A process, safe against reuse of its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Clock ticks from the start of the system to the start of the process.
    pub(crate) start: u64,
}

impl State {
    /// Claims the name of a lab; fails if a lab of this name exists.
    pub(crate) fn create(lab: &str, namespaces: Vec<String>) -> Result<Self> {
        fs::create_dir_all(DIRECTORY).with_context(|| format!("cannot make {DIRECTORY}"))?;
        let state = Self {
            lab: lab.to_owned(),
            maker: Process::own()?,
            temporary: true,
            namespaces,
            daemons: Vec::new(),
        };
        let path = path(lab);
        // Written whole under another name, then linked: no reader sees half a file, and only one lab gets the name.
        let draft = draft(lab);
        fs::write(&draft, serde_json::to_vec_pretty(&state)?).with_context(|| draft.display().to_string())?;
        let linked = fs::hard_link(&draft, &path);
        fs::remove_file(&draft).with_context(|| draft.display().to_string())?;
        match linked {
            Ok(()) => Ok(state),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                bail!(
                    "the lab {lab} stands already; if it is yours, take it down with `signalbox lab down {lab}`; otherwise \
                     copy the scenario to a file with another `name`"
                )
            }
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Returns the state of a lab, if there is one.
    pub(crate) fn load(lab: &str) -> Result<Option<Self>> {
        let path = path(lab);
        match fs::read(&path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text).with_context(|| path.display().to_string())?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Returns the names of all labs that have a state.
    pub(crate) fn labs() -> Result<Vec<String>> {
        let entries = match fs::read_dir(DIRECTORY) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).context(DIRECTORY),
        };
        let mut labs = Vec::new();
        for entry in entries {
            let path = entry.context(DIRECTORY)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                labs.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
            }
        }
        labs.sort();
        Ok(labs)
    }

    /// Writes the state after a change.
    pub(crate) fn save(&self) -> Result<()> {
        let draft = draft(&self.lab);
        fs::write(&draft, serde_json::to_vec_pretty(self)?).with_context(|| draft.display().to_string())?;
        fs::rename(&draft, path(&self.lab)).with_context(|| draft.display().to_string())
    }

    /// Removes the state and the files of a lab.
    pub(crate) fn remove(lab: &str) -> Result<()> {
        for result in [fs::remove_dir_all(directory(lab)), fs::remove_file(path(lab))] {
            match result {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                result => result.with_context(|| format!("cannot remove the files of lab {lab}"))?,
            }
        }
        Ok(())
    }
}

fn path(lab: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{lab}.json"))
}

fn draft(lab: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!(".{lab}.{}", std::process::id()))
}

impl Process {
    /// This process.
    pub(crate) fn own() -> Result<Self> {
        Ok(Identity::of(std::process::id()).context("no /proc")?.into())
    }

    /// Returns its identity, by which it can be ended.
    pub(crate) const fn identity(self) -> Identity {
        Identity { pid: self.pid, start: self.start }
    }
}

impl From<Identity> for Process {
    fn from(identity: Identity) -> Self {
        Self { pid: identity.pid, start: identity.start }
    }
}
