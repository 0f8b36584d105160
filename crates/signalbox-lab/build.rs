//! Builds in what the program is built from: the compiler, and the commit where there is one.

use std::path::Path;
use std::process::Command;
use std::{env, io};

/// The root of the sources, seen from this crate.
const ROOT: &str = "../..";
/// What the program is built from, below the root.
const SOURCES: [&str; 6] = ["crates", "scenarios", "papers", "examples", "Cargo.toml", "Cargo.lock"];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-env-changed=SIGNALBOX_COMMIT");
    for sources in SOURCES {
        println!("cargo::rerun-if-changed={ROOT}/{sources}");
    }
    let compiler = env::var_os("RUSTC").ok_or_else(|| io::Error::other("cargo sets RUSTC"))?;
    let version = Command::new(compiler).arg("--version").output()?;
    println!("cargo::rustc-env=SIGNALBOX_COMPILER={}", String::from_utf8_lossy(&version.stdout).trim());
    // Who builds outside of a clone may say which commit it is.
    let given = env::var("SIGNALBOX_COMMIT").ok().filter(|commit| !commit.is_empty());
    if let Some(commit) = given.or_else(commit) {
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
    // Other files are no reason to build again, so that a change of theirs would not be seen.
    let sources = SOURCES.map(|sources| format!(":/{sources}"));
    let mut status = vec!["status", "--porcelain", "--untracked-files=no", "--"];
    status.extend(sources.iter().map(String::as_str));
    let changed = git(&status).is_none_or(|text| !text.is_empty());
    Some(if changed { format!("{commit}-changed") } else { commit })
}

/// What git says, which changes nothing for it.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("--no-optional-locks").args(words).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.trim().to_owned())
}
