//! What a scenario requires of the machine.

use anyhow::Result;
use signalbox_linux::netns::{self, Namespace};
use signalbox_linux::traffic;

use crate::language::{Requirement, Scenario};
use crate::plan::{NAMESPACE_PREFIX, Plan};
use crate::protocols;
use crate::run::kernel;

/// The first kernel with tables of nftables that have an owner.
const OWNED_TABLES: (u32, u32) = (5, 12);

/// Returns what the machine lacks; nothing if it has all.
pub(crate) fn lacking(scenario: &Scenario) -> Result<Option<String>> {
    for requirement in &scenario.requires {
        let (has, what) = match requirement {
            Requirement::Root => {
                let root = nix::unistd::geteuid().is_root() && !netns::inside_user_namespace();
                (root, "root, and not that of a user namespace".to_owned())
            }
            Requirement::Netem => {
                (tried("tc", &["qdisc add dev lo root netem delay 1ms"])?, "netem in the kernel".to_owned())
            }
            Requirement::Ebpf => {
                (traffic::can_classify(), "eBPF in the kernel, and the right to load programs".to_owned())
            }
            Requirement::Sctp => (sctp(), "SCTP in the kernel".to_owned()),
            Requirement::Device(kind) => {
                (has_device(kind)?, format!("devices of the kind {kind} in the kernel"))
            }
            Requirement::Kernel(needed) => {
                let has = signalbox_linux::kernel_version().is_none_or(|version| version >= *needed);
                (has, format!("Linux {}.{} or newer", needed.0, needed.1))
            }
            Requirement::Program(name) => (program(name), format!("the program {name}")),
        };
        if !has {
            return Ok(Some(format!("the machine lacks {what}")));
        }
    }
    let version = signalbox_linux::kernel_version().unwrap_or(OWNED_TABLES);
    Ok(without_owned_tables(scenario, version))
}

/// Which daemon does not start on a kernel of this version, for want of tables of nftables with an owner.
fn without_owned_tables(scenario: &Scenario, version: (u32, u32)) -> Option<String> {
    if version >= OWNED_TABLES {
        return None;
    }
    let plan = Plan::new(scenario);
    plan.nodes.iter().filter(|node| node.daemon).find_map(|node| {
        let mut runs = protocols::all().filter(|protocol| node.runs(*protocol));
        let protocol = runs.find(|protocol| protocol.needs_owned_tables(&node.config))?;
        Some(format!(
            "the machine lacks Linux 5.12 or newer: the daemon of {} takes messages of {} by a table of nftables with an owner",
            node.name,
            protocol.title()
        ))
    })
}

/// Whether all these commands of a program succeed, one after the other, in a namespace of their own.
fn tried(program: &str, commands: &[&str]) -> Result<bool> {
    let namespace = Namespace::create(&format!("{NAMESPACE_PREFIX}probe-{}", std::process::id()))?;
    let succeeds = |command: &&str| {
        kernel::output(&namespace, program, &command.split_whitespace().collect::<Vec<_>>()).is_ok()
    };
    let result = commands.iter().all(succeeds);
    netns::delete(namespace.name())?;
    Ok(result)
}

/// Whether the kernel can make a device of this kind.
fn has_device(kind: &str) -> Result<bool> {
    let more = match kind {
        "gre" => "local 192.0.2.1 remote 192.0.2.2",
        "vlan" => "id 7",
        "vrf" => "table 7",
        "vxlan" => "id 7 dstport 4789",
        _ => "",
    };
    let under = if kind == "vlan" { "link under" } else { "" };
    let made = format!("link add {under} name probe type {kind} {more}");
    tried("ip", &["link add under type veth peer name other", &made])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::read;

    #[test]
    fn a_daemon_that_would_not_start_on_an_old_kernel_skips_the_scenario() {
        let lacks = |config: &str, protocols: &str, version| {
            let text = format!(
                "version = 2\nname = \"x\"\ndescription = \"\"\n{config}\n[nodes.old]\nprotocols = [{protocols}]\n"
            );
            let scenario = read("x.toml", &text).unwrap_or_else(|error| panic!("{error}"));
            without_owned_tables(&scenario, version)
        };
        let why = lacks("", "\"gist\", \"rsvp\"", (5, 10)).expect("RSVP over IPv6");
        assert!(why.contains("Linux 5.12") && why.contains("of old ") && why.contains("of RSVP "), "{why}");
        assert!(lacks("", "\"boomerang\"", (5, 11)).is_some_and(|why| why.contains("of Boomerang ")));
        for (config, protocols, version) in [
            ("", "\"rsvp\", \"boomerang\"", (5, 12)),
            ("", "\"gist\", \"qos\", \"natfw\"", (5, 10)),
            ("[config.node]\nfamilies = [\"ipv4\"]", "\"rsvp\"", (5, 10)),
            ("[config.rsvp]\nrouter_alert = false", "\"rsvp\"", (5, 10)),
            ("[config.kernel]\nintercept = false", "\"rsvp\", \"boomerang\"", (5, 10)),
        ] {
            assert_eq!(lacks(config, protocols, version), None, "{config} {protocols}");
        }
    }

    #[test]
    fn versions_of_the_kernel_are_no_programs() {
        let of = |name: &str| Requirement::from(name.to_owned());
        assert_eq!(of("linux-5.12"), Requirement::Kernel((5, 12)));
        for program in ["linux-5", "linux-tools", "linux-a.b"] {
            assert_eq!(of(program), Requirement::Program(program.to_owned()));
        }
    }
}
