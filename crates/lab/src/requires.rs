//! What a scenario requires of the machine.

use anyhow::Result;
use signalbox_linux::netns::{self, Namespace};
use signalbox_linux::traffic;

use crate::kernel;
use crate::plan::NAMESPACE_PREFIX;
use crate::scenario::{Requirement, Scenario};

/// Returns what the machine lacks; nothing if it has all.
pub(crate) fn lacking(scenario: &Scenario) -> Result<Option<String>> {
    for requirement in &scenario.requires {
        let (has, what) = match requirement {
            Requirement::Root => {
                let root = nix::unistd::geteuid().is_root() && !netns::inside_user_namespace();
                (root, "root, and not that of a user namespace".to_owned())
            }
            Requirement::Netem => (
                tried(&["qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])?,
                "netem in the kernel".to_owned(),
            ),
            Requirement::Ebpf => {
                (traffic::can_classify(), "eBPF in the kernel, and the right to load programs".to_owned())
            }
            Requirement::Sctp => (sctp(), "SCTP in the kernel".to_owned()),
            Requirement::Program(name) => (program(name), format!("the program {name}")),
        };
        if !has {
            return Ok(Some(format!("the machine lacks {what}")));
        }
    }
    Ok(None)
}

/// Tries a command of `tc` in a namespace of its own.
fn tried(words: &[&str]) -> Result<bool> {
    let namespace = Namespace::create(&format!("{NAMESPACE_PREFIX}probe-{}", std::process::id()))?;
    let result = kernel::output(&namespace, "tc", words);
    netns::delete(namespace.name())?;
    Ok(result.is_ok())
}

/// Whether the kernel has SCTP now, or its module was loaded.
fn sctp() -> bool {
    std::fs::read_to_string("/proc/net/protocols").is_ok_and(|text| text.contains("SCTP"))
}

/// Whether a program is in one of the directories of `PATH`.
fn program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}
