//! Which programs made a result: their versions, and what they were built from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use ring::digest::{Context, SHA256};
use serde::Serialize;

use super::{command, daemon};

/// What a program was built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Build {
    /// The version of the program.
    pub version: &'static str,
    /// The commit, if it was built in a clone.
    pub commit: Option<&'static str>,
    /// The compiler.
    pub compiler: &'static str,
}

static OWN: OnceLock<Build> = OnceLock::new();

/// Says what this program was built from. It does so once, at its start.
pub fn set(build: Build) {
    // What is said later changes nothing.
    let _ = OWN.set(build);
}

/// Returns what this program was built from.
#[must_use]
pub fn own() -> Build {
    let unknown = Build { version: env!("CARGO_PKG_VERSION"), commit: None, compiler: "unknown" };
    OWN.get().copied().unwrap_or(unknown)
}

/// A program that took part in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    name: &'static str,
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compiler: Option<&'static str>,
    /// SHA-256 of its file, in hexadecimal.
    sha256: Option<String>,
}

/// Returns this program. It is looked at once.
pub(crate) fn this() -> &'static [Program] {
    static THIS: OnceLock<[Program; 1]> = OnceLock::new();
    THIS.get_or_init(|| {
        let Build { version, commit, compiler } = own();
        let sha256 = std::env::current_exe().ok().and_then(|path| sha256(&path).ok());
        let (version, compiler) = (Some(version.to_owned()), Some(compiler));
        [Program { name: "signalbox-lab", version, commit, compiler, sha256 }]
    })
}

/// Returns this program, the daemon and the command. They are looked at once.
#[must_use]
pub fn all() -> &'static [Program] {
    static ALL: OnceLock<Vec<Program>> = OnceLock::new();
    ALL.get_or_init(|| {
        let other = |name, path: anyhow::Result<PathBuf>| {
            let path = path.ok();
            let version = path.as_deref().and_then(version_of);
            let sha256 = path.as_deref().and_then(|path| sha256(path).ok());
            Program { name, version, commit: None, compiler: None, sha256 }
        };
        let others = [other("signalboxd", daemon::place()), other("signalbox", command::place())];
        this().iter().cloned().chain(others).collect()
    })
}

/// Returns the last word that a program prints as its version.
fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next()?.split_whitespace().last().map(str::to_owned)
}

fn sha256(path: &Path) -> io::Result<String> {
    let (mut file, mut context) = (File::open(path)?, Context::new(&SHA256));
    let mut part = vec![0; 1 << 16];
    loop {
        let length = file.read(&mut part)?;
        if length == 0 {
            break;
        }
        context.update(part.get(..length).unwrap_or_default());
    }
    Ok(context.finish().as_ref().iter().map(|octet| format!("{octet:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_digest() {
        let path = std::env::temp_dir().join(format!("signalbox-sha256-{}", std::process::id()));
        std::fs::write(&path, "abc").expect("the directory is writable");
        let digest = sha256(&path).expect("readable");
        assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        std::fs::remove_file(&path).expect("ours");
        assert!(matches!(this(), [Program { name: "signalbox-lab", sha256: Some(_), .. }]));
    }
}
