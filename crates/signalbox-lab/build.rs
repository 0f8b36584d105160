//! Builds in what the program is built from: the compiler, and the commit where there is one.

use std::path::Path;
use std::process::Command;
use std::{env, io};

/// The root of the sources, seen from this crate.
const ROOT: &str = "../..";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-env-changed=SIGNALBOX_COMMIT");
    for sources in ["crates", "scenarios", "examples"] {
        println!("cargo::rerun-if-changed={ROOT}/{sources}");
    }
    let compiler = env::var_os("RUSTC").ok_or_else(|| io::Error::other("cargo sets RUSTC"))?;
    let version = Command::new(compiler).arg("--version").output()?;
    println!("cargo::rustc-env=SIGNALBOX_COMPILER={}", String::from_utf8_lossy(&version.stdout).trim());
    // A package is built outside of the clone: it says itself which commit it has.
    if let Some(commit) = env::var("SIGNALBOX_COMMIT").ok().or_else(commit) {
        println!("cargo::rustc-env=SIGNALBOX_COMMIT={commit}");
    }
    Ok(())
}

/// The commit of the clone that has the sources, with `-changed` if the sources are not those of the commit. `None`: they are in no clone, or
/// in that of something else.
fn commit() -> Option<String> {
    let top = Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if top != Path::new(ROOT).canonicalize().ok()? {
        return None;
    }
    let commit = git(&["rev-parse", "HEAD"])?;
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|text| !text.is_empty());
    Some(if changed { format!("{commit}-changed") } else { commit })
}

/// What git says, which changes nothing for it.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("--no-optional-locks").args(words).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.trim().to_owned())
}
