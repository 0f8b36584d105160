//! The files that the daemon can open after its start (landlock).
//!
//! The crate `landlock` is that of the makers of this kernel feature. It uses what the running kernel supports, and reports
//! how much that is.

use std::fmt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};

use super::refused;
use crate::error::OpenError;

/// The latest version of the kernel's interface whose rights over files are all handled.
const VERSION: ABI = ABI::V5;

/// The files that a process can open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files {
    /// Files and directories that it reads, with all below them.
    pub read: Vec<PathBuf>,
    /// Directories in which it removes files.
    pub remove: Vec<PathBuf>,
    /// Directories in which it makes files and writes to them.
    pub write: Vec<PathBuf>,
}

/// How the kernel limits files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Only what was asked for can be opened.
    Limited,
    /// An older kernel: some kinds of access, such as truncation, are not limited.
    Partly,
    /// The kernel has no landlock, or nothing was asked for.
    Unlimited,
}

impl fmt::Display for FileAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Limited => "limited",
            Self::Partly => "partly limited",
            Self::Unlimited => "unlimited",
        })
    }
}

/// Opens the files and directories of the rules. What does not exist is left out.
pub(super) fn prepare(files: &Files) -> Result<RulesetCreated, OpenError> {
    let made = || -> Result<RulesetCreated, RulesetError> {
        let mut rules = Ruleset::default().handle_access(AccessFs::from_all(VERSION))?.create()?;
        for path in &files.read {
            rules = add(rules, path, AccessFs::ReadFile | AccessFs::ReadDir)?;
        }
        for path in &files.remove {
            rules = add(rules, path, AccessFs::RemoveFile.into())?;
        }
        for path in &files.write {
            rules = add(rules, path, AccessFs::MakeReg | AccessFs::WriteFile)?;
        }
        Ok(rules)
    };
    made().map_err(|error| refused("limiting files", &std::io::Error::other(error)))
}

fn add(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(file) = PathFd::new(path) else { return Ok(rules) };
    // Rights over directories cannot be given for a file.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(VERSION) };
    rules.add_rule(PathBeneath::new(file, access))
}

/// Puts the rules into force.
pub(super) fn restrict(rules: RulesetCreated) -> Result<FileAccess, OpenError> {
    let status =
        rules.restrict_self().map_err(|error| refused("limiting files", &std::io::Error::other(error)))?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => FileAccess::Limited,
        RulesetStatus::PartiallyEnforced => FileAccess::Partly,
        RulesetStatus::NotEnforced => FileAccess::Unlimited,
    })
}
