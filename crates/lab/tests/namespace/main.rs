//! The lab on a real kernel. Needs root (or a user namespace), `ip`, `nft`, and for the scenarios the built programs:
//! `cargo build -p signalbox -p signalbox-lab-command -p signalboxd`; `SIGNALBOX_BIN` is their directory, if they are not beside the test.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "tests")]

mod networks;
mod packets;
mod reservations;
mod scenarios;
mod schemas;
mod sweeps;

use std::path::PathBuf;
use std::process::{Command, Output};

/// The directory of the built programs.
fn programs() -> PathBuf {
    std::env::var_os("SIGNALBOX_BIN").map_or_else(
        || {
            // The programs are two directories above target/debug/deps/namespace-….
            let own = std::env::current_exe().expect("a test has a path");
            own.parent().and_then(|deps| deps.parent()).expect("cargo's layout").to_owned()
        },
        PathBuf::from,
    )
}

/// Runs `signalbox` with these arguments to its end.
fn signalbox(arguments: &[&str]) -> Output {
    let program = programs().join("signalbox");
    Command::new(&program).args(arguments).output().unwrap_or_else(|error| {
        panic!(
            "{}: {error}; build it: cargo build -p signalbox -p signalbox-lab-command -p signalboxd",
            program.display()
        )
    })
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The namespaces of a lab.
fn namespaces(lab: &str) -> Vec<String> {
    let prefix = format!("sbx-{lab}-");
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

/// Checks that no namespace and no file of a lab is left.
fn assert_gone(lab: &str) {
    assert_eq!(namespaces(lab), Vec::<String>::new());
    for path in [format!("/run/signalbox/lab/{lab}.json"), format!("/run/signalbox/lab/{lab}")] {
        assert!(!std::path::Path::new(&path).exists(), "{path} is left");
    }
}
