//! Commands that read or configure the kernel of a namespace.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use signalbox_linux::netns::Namespace;

/// Opens the namespace of this name.
pub(crate) fn namespace(name: &str) -> Result<Namespace> {
    Namespace::open(name).with_context(|| format!("no namespace {name}"))
}

/// Runs a command inside a namespace and returns its output; its error output is the error.
pub(crate) fn output(namespace: &Namespace, program: &str, words: &[&str]) -> Result<String> {
    let command = || format!("{program} {}", words.join(" "));
    let mut child = Command::new(program);
    child.args(words).stdin(Stdio::null());
    let output = namespace.run(|| child.output())?.map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            anyhow!("the command `{program}` is missing; install iproute2 and nftables")
        }
        _ => anyhow!("cannot start `{program}`: {error}"),
    })?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` in {} failed: {}", command(), namespace.name(), complaint.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
