//! Which crate may depend on which: the arrows of ARCHITECTURE.md, compared with `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::layers;
use crate::metadata::{self, list, text};

/// Each crate of the workspace, and the crates of the workspace that it may depend on. A crate that is not listed is an
/// error.
const ARROWS: &[(&str, &[&str])] = &[
    ("signalbox-wire", &[]),
    ("signalbox-core", &["signalbox-wire"]),
    ("signalbox-units", &["signalbox-core"]),
    ("signalbox-boomerang", &["signalbox-core", "signalbox-resources", "signalbox-wire"]),
    ("signalbox-casp", &["signalbox-core", "signalbox-resources", "signalbox-wire"]),
    ("signalbox-gist", &["signalbox-core", "signalbox-wire"]),
    ("signalbox-ping", &["signalbox-core", "signalbox-wire"]),
    ("signalbox-qos", &["signalbox-core", "signalbox-resources", "signalbox-wire"]),
    ("signalbox-mapping", &["signalbox-core", "signalbox-wire"]),
    ("signalbox-natfw", &["signalbox-core", "signalbox-resources", "signalbox-wire"]),
    ("signalbox-resources", &["signalbox-core", "signalbox-units"]),
    ("signalbox-rsvp", &["signalbox-core", "signalbox-resources", "signalbox-wire"]),
    ("signalbox-transport", &["signalbox-core", "signalbox-wire"]),
    (
        "signalbox-node",
        &[
            "signalbox-boomerang",
            "signalbox-casp",
            "signalbox-core",
            "signalbox-gist",
            "signalbox-mapping",
            "signalbox-natfw",
            "signalbox-ping",
            "signalbox-qos",
            "signalbox-resources",
            "signalbox-rsvp",
            "signalbox-transport",
        ],
    ),
    ("signalbox-sim", &["signalbox-core"]),
    // A crate of users: it composes a node of a protocol of its own.
    ("signalbox-example-trail", &["signalbox-core", "signalbox-node"]),
    ("signalbox-record", &["signalbox-core", "signalbox-wire"]),
    ("signalbox-linux", &["signalbox-core"]),
    ("signalbox-attached", &["signalbox-core", "signalbox-linux", "signalbox-node"]),
    ("signalbox-api", &[]),
    ("signalbox-cli", &[]),
    ("signalbox-json", &["signalbox-api"]),
    ("signalbox-show", &["signalbox-api", "signalbox-core", "signalbox-node"]),
    ("signalbox-config", &["signalbox-core", "signalbox-linux", "signalbox-node", "signalbox-units"]),
    (
        "signalbox-dissect",
        &[
            "signalbox-boomerang",
            "signalbox-casp",
            "signalbox-core",
            "signalbox-gist",
            "signalbox-mapping",
            "signalbox-natfw",
            "signalbox-ping",
            "signalbox-qos",
            "signalbox-rsvp",
            "signalbox-wire",
        ],
    ),
    (
        "signalbox-lab",
        &[
            "signalbox-api",
            "signalbox-config",
            "signalbox-core",
            "signalbox-dissect",
            "signalbox-json",
            "signalbox-linux",
            "signalbox-node",
            "signalbox-record",
            "signalbox-show",
            "signalbox-sim",
            "signalbox-units",
        ],
    ),
    (
        "signalbox-bench",
        &[
            // It measures each engine alone.
            "signalbox-boomerang",
            "signalbox-casp",
            "signalbox-config",
            "signalbox-core",
            "signalbox-gist",
            "signalbox-lab",
            "signalbox-linux",
            "signalbox-natfw",
            "signalbox-node",
            "signalbox-qos",
            "signalbox-resources",
            "signalbox-rsvp",
            "signalbox-wire",
        ],
    ),
    (
        "signalboxd",
        &[
            "signalbox-api",
            "signalbox-attached",
            "signalbox-config",
            "signalbox-core",
            "signalbox-json",
            "signalbox-linux",
            "signalbox-node",
            "signalbox-record",
            "signalbox-show",
        ],
    ),
    (
        "signalbox",
        &[
            "signalbox-api",
            "signalbox-cli",
            "signalbox-config",
            // The class of a service.
            "signalbox-core",
            "signalbox-dissect",
            "signalbox-json",
            // The sockets of a diagnosis, which needs no daemon (RFC 2745 §6).
            "signalbox-linux",
            // Its diagnostic client and its message formats.
            "signalbox-rsvp",
            "signalbox-units",
        ],
    ),
    ("signalbox-reproduce", &["signalbox-lab", "signalbox-units"]),
    (
        "signalbox-lab-command",
        &["signalbox-bench", "signalbox-cli", "signalbox-json", "signalbox-lab", "signalbox-reproduce"],
    ),
    ("xtask", &[]),
];

/// Crates that tests of any crate may use: the simulator drives engines in their tests.
const DEV_ONLY: &[&str] = &["signalbox-sim", "signalbox-core", "signalbox-wire"];

/// The crates that hold protocol state or drive it in virtual time.
const SANS_IO: &[&str] = &[
    "signalbox-wire",
    "signalbox-core",
    "signalbox-units",
    "signalbox-boomerang",
    "signalbox-casp",
    "signalbox-gist",
    "signalbox-mapping",
    "signalbox-ping",
    "signalbox-qos",
    "signalbox-natfw",
    "signalbox-resources",
    "signalbox-rsvp",
    "signalbox-transport",
    "signalbox-node",
    "signalbox-sim",
    "signalbox-example-trail",
];
/// Crates that sans-IO crates never depend on, not even indirectly. A trailing `*` stands for any ending.
const IO_CRATES: &[&str] =
    &["tokio*", "mio", "nix", "netlink-*", "rtnetlink", "tonic*", "hyper*", "socket2", "capctl", "rustix"];

const ENGINES: &[&str] = &[
    "signalbox-boomerang",
    "signalbox-casp",
    "signalbox-gist",
    "signalbox-ping",
    "signalbox-qos",
    "signalbox-natfw",
    "signalbox-rsvp",
];

/// Crates that must not depend on others, by any path of normal dependencies, and the reason.
const NEVER: &[(&str, &[&str], &str)] = &[
    ("signalbox-ping", &["signalbox-gist"], "applications meet GIST in core's service interface only"),
    ("signalbox-qos", &["signalbox-gist"], "applications meet GIST in core's service interface only"),
    ("signalbox-natfw", &["signalbox-gist"], "applications meet GIST in core's service interface only"),
    ("signalbox-ping", &["signalbox-qos", "signalbox-natfw"], "applications do not depend on each other"),
    ("signalbox-qos", &["signalbox-ping", "signalbox-natfw"], "applications do not depend on each other"),
    ("signalbox-natfw", &["signalbox-ping", "signalbox-qos"], "applications do not depend on each other"),
    (
        "signalbox-gist",
        &["signalbox-ping", "signalbox-qos", "signalbox-natfw"],
        "GIST carries the data of any application",
    ),
    ("signalbox-gist", &["signalbox-rsvp"], "RSVP does not run over GIST"),
    (
        "signalbox-rsvp",
        &["signalbox-gist", "signalbox-ping", "signalbox-qos", "signalbox-natfw"],
        "RSVP does not run over GIST and carries no NSLP",
    ),
    (
        "signalbox-boomerang",
        &["signalbox-gist", "signalbox-ping", "signalbox-qos", "signalbox-rsvp"],
        "Boomerang is a protocol of its own",
    ),
    ("signalbox-resources", ENGINES, "admission control does not depend on the protocol of a request"),
    ("signalbox-transport", ENGINES, "channels carry octets, framing is GIST's"),
    ("signalbox-linux", ENGINES, "kernel access handles packets, not protocols"),
    ("signalbox-api", ENGINES, "API types stop at the edge of their crate"),
    ("signalbox-sim", &["signalbox-linux"], "virtual time has no kernel"),
    ("signalbox-wire", &["signalbox-core"], "wire depends on no crate of the workspace"),
    (
        "signalbox",
        &["signalbox-bench", "signalbox-lab", "signalbox-sim"],
        "the command of a router is small; the lab is a program of its own",
    ),
    ("*", &["signalboxd"], "nothing depends on the daemon"),
];

struct Package {
    name: String,
    /// (name, kind, uses default features, features); kind is "normal", "build" or "dev".
    declared: Vec<(String, String, bool, Vec<String>)>,
}

/// Checks all rules and prints each broken one. Returns true if none is broken.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let metadata = metadata::read(root, metadata::TARGETS[0])?;
    let ours = packages(&metadata)?;
    let reach = reachable(&metadata)?;
    let mut faults = Vec::new();
    for package in &ours {
        check_arrows(package, &ours, &mut faults);
        check_features(package, &mut faults);
        check_never(package, &reach, &mut faults);
    }
    let layers = layers::check(root, &mut faults)?;
    for fault in &faults {
        println!("deps: {fault}");
    }
    if faults.is_empty() {
        let edges: usize =
            ours.iter().map(|p| p.declared.iter().filter(|d| is_ours(&d.0, &ours)).count()).sum();
        println!("deps: {} crates, {edges} edges between them, every one allowed", ours.len());
        layers.iter().for_each(|line| println!("deps: {line}, none of an upper one"));
    }
    Ok(faults.is_empty())
}

fn check_arrows(package: &Package, ours: &[Package], faults: &mut Vec<String>) {
    let name = &package.name;
    let Some((_, allowed)) = ARROWS.iter().find(|(crate_name, _)| crate_name == name) else {
        faults.push(format!(
            "{name} has no place yet: add it to ARROWS in xtask/src/deps.rs and to ARCHITECTURE.md"
        ));
        return;
    };
    for (to, kind, ..) in package.declared.iter().filter(|d| is_ours(&d.0, ours)) {
        // The tests of a crate may need a feature of it that others do not have.
        let in_tests = kind == "dev" && (to == name || DEV_ONLY.contains(&to.as_str()));
        if !allowed.contains(&to.as_str()) && !in_tests {
            let list = if allowed.is_empty() { "nothing of ours".to_owned() } else { allowed.join(", ") };
            faults.push(format!(
                "{name} -> {to} ({kind}): not an arrow of the architecture; {name} may use {list}"
            ));
        }
    }
}

/// The dissector and the command use the message formats of the engine crates only.
fn check_features(package: &Package, faults: &mut Vec<String>) {
    if !["signalbox-dissect", "signalbox"].contains(&package.name.as_str()) {
        return;
    }
    for (to, kind, defaults, features) in &package.declared {
        if ENGINES.contains(&to.as_str()) && (*defaults || features.iter().any(|f| f == "engine")) {
            faults.push(format!(
                "{} -> {to} ({kind}) with feature `engine`: it only reads messages, set default-features = false",
                package.name
            ));
        }
    }
}

fn check_never(
    package: &Package,
    reach: &BTreeMap<String, BTreeMap<String, String>>,
    faults: &mut Vec<String>,
) {
    let name = package.name.as_str();
    let Some(reached) = reach.get(name) else { return };
    let path = |to: &str| {
        let mut hops = vec![to];
        while let Some(before) = hops.last().and_then(|at| reached.get(*at)) {
            hops.push(before);
        }
        hops.reverse();
        hops.join(" -> ")
    };
    if SANS_IO.contains(&name) {
        for to in reached.keys().filter(|to| IO_CRATES.iter().any(|pattern| matches(pattern, to))) {
            faults.push(format!("{}: {name} is sans-IO and never reaches {to}", path(to)));
        }
    }
    for (from, never, why) in NEVER.iter().filter(|(from, ..)| *from == "*" || *from == name) {
        for to in never.iter().filter(|to| **to != name && reached.contains_key(**to)) {
            let from = if *from == "*" { name } else { from };
            faults.push(format!("{}: {from} never reaches {to}: {why}", path(to)));
        }
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

fn is_ours(name: &str, ours: &[Package]) -> bool {
    ours.iter().any(|package| package.name == name)
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let members: BTreeSet<&str> = list(metadata, "workspace_members").filter_map(Value::as_str).collect();
    let mut ours = Vec::new();
    for package in list(metadata, "packages") {
        if !members.contains(text(package, "id")?) {
            continue;
        }
        let mut declared = Vec::new();
        for dependency in list(package, "dependencies") {
            declared.push((
                text(dependency, "name")?.to_owned(),
                dependency["kind"].as_str().unwrap_or("normal").to_owned(),
                dependency["uses_default_features"].as_bool().unwrap_or(true),
                list(dependency, "features").filter_map(Value::as_str).map(str::to_owned).collect(),
            ));
        }
        ours.push(Package { name: text(package, "name")?.to_owned(), declared });
    }
    Ok(ours)
}

/// For each member, every crate that it depends on, directly or not, with the crate that brings it in.
fn reachable(metadata: &Value) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    let mut names = BTreeMap::new();
    for package in list(metadata, "packages") {
        names.insert(text(package, "id")?, text(package, "name")?);
    }
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in list(&metadata["resolve"], "nodes") {
        let from = text(node, "id")?;
        for dep in list(node, "deps") {
            if list(dep, "dep_kinds").any(|kind| kind["kind"].is_null()) {
                edges.entry(from).or_default().push(text(dep, "pkg")?);
            }
        }
    }
    let mut reach = BTreeMap::new();
    for member in list(metadata, "workspace_members").filter_map(Value::as_str) {
        let mut through: BTreeMap<String, String> = BTreeMap::new();
        let mut seen = BTreeSet::from([member]);
        let mut waiting = vec![member];
        while let Some(from) = waiting.pop() {
            for to in edges.get(from).into_iter().flatten().copied() {
                if seen.insert(to) {
                    through.insert(names[to].to_owned(), names[from].to_owned());
                    waiting.push(to);
                }
            }
        }
        reach.insert(names[member].to_owned(), through);
    }
    Ok(reach)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crates in backticks.
    fn named(cell: &str) -> BTreeSet<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_table_of_the_architecture_has_the_same_arrows() {
        let page = std::fs::read_to_string(crate::root().join("ARCHITECTURE.md")).expect("it is there");
        let (_, table) = page.split_once("| may use |\n|---|---|---|\n").expect("it has the table");
        let rows = table.lines().map_while(|line| line.strip_prefix("| ")).map(|row| {
            let (name, rest) = row.split_once(" |").expect("a row has columns");
            let (_, uses) = rest.trim_end_matches(" |").rsplit_once("| ").unwrap_or_default();
            (name.trim_matches('`').to_owned(), named(uses))
        });
        let short = |name: &str| name.strip_prefix("signalbox-").unwrap_or(name).to_owned();
        // This program is no part of what it checks.
        let arrows = ARROWS.iter().filter(|(name, _)| *name != "xtask");
        let arrows = arrows.map(|(name, uses)| (short(name), uses.iter().map(|one| short(one)).collect()));
        assert_eq!(rows.collect::<BTreeMap<_, _>>(), arrows.collect::<BTreeMap<_, _>>());
    }
}
