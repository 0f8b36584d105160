//! Which crate may depend on which: the arrows of ARCHITECTURE.md, checked against `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Crate, and which of ours it may depend on. A crate that is not listed is an error: say where it stands.
const ARROWS: &[(&str, &[&str])] = &[
    ("signalbox-wire", &[]),
    ("signalbox-core", &["signalbox-wire"]),
    ("signalbox-gist", &["signalbox-core", "signalbox-wire"]),
    ("signalbox-ping", &["signalbox-core", "signalbox-wire"]),
    ("signalbox-qos", &["signalbox-core", "signalbox-resources", "signalbox-wire"]),
    ("signalbox-resources", &["signalbox-core"]),
    ("signalbox-rsvp", &["signalbox-core", "signalbox-resources", "signalbox-wire"]),
    ("signalbox-transport", &["signalbox-core", "signalbox-wire"]),
    (
        "signalbox-node",
        &[
            "signalbox-core",
            "signalbox-gist",
            "signalbox-ping",
            "signalbox-qos",
            "signalbox-resources",
            "signalbox-rsvp",
            "signalbox-transport",
        ],
    ),
    ("signalbox-sim", &["signalbox-core"]),
    ("signalbox-record", &["signalbox-core", "signalbox-wire"]),
    ("signalbox-linux", &["signalbox-core"]),
    ("signalbox-api", &[]),
    (
        "signalbox-dissect",
        &[
            "signalbox-core",
            "signalbox-gist",
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
            "signalbox-core",
            "signalbox-dissect",
            "signalbox-linux",
            "signalbox-node",
            "signalbox-record",
            // For a benchmark of the engine by itself.
            "signalbox-resources",
            "signalbox-rsvp",
            "signalbox-sim",
        ],
    ),
    (
        "signalboxd",
        &["signalbox-api", "signalbox-core", "signalbox-linux", "signalbox-node", "signalbox-record"],
    ),
    (
        "signalbox",
        &[
            "signalbox-api",
            "signalbox-dissect",
            "signalbox-lab",
            // The sockets of a diagnosis, which needs no daemon (RFC 2745 §6).
            "signalbox-linux",
            // Nothing but units: rates are written alike in the configuration and here.
            "signalbox-resources",
            // Its diagnostic client and its octets.
            "signalbox-rsvp",
        ],
    ),
    ("xtask", &[]),
];

/// What only tests may use on top, wherever it stands: the simulator drives engines in their tests.
const DEV_ONLY: &[&str] = &["signalbox-sim", "signalbox-core", "signalbox-wire"];

/// The crates that hold protocol state or drive it in virtual time.
const SANS_IO: &[&str] = &[
    "signalbox-wire",
    "signalbox-core",
    "signalbox-gist",
    "signalbox-ping",
    "signalbox-qos",
    "signalbox-resources",
    "signalbox-rsvp",
    "signalbox-transport",
    "signalbox-node",
    "signalbox-sim",
];
/// What those never reach, not even through somebody else. A trailing `*` stands for any ending.
const IO_CRATES: &[&str] =
    &["tokio*", "mio", "nix", "netlink-*", "rtnetlink", "tonic*", "hyper*", "socket2", "capctl", "rustix"];

const ENGINES: &[&str] = &["signalbox-gist", "signalbox-ping", "signalbox-qos", "signalbox-rsvp"];

/// Who never reaches whom, by any path of normal dependencies, and why.
const NEVER: &[(&str, &[&str], &str)] = &[
    ("signalbox-ping", &["signalbox-gist"], "applications meet GIST in core's service interface only"),
    ("signalbox-qos", &["signalbox-gist"], "applications meet GIST in core's service interface only"),
    ("signalbox-ping", &["signalbox-qos"], "applications do not know each other"),
    ("signalbox-qos", &["signalbox-ping"], "applications do not know each other"),
    (
        "signalbox-gist",
        &["signalbox-ping", "signalbox-qos"],
        "GIST carries applications, it does not know them",
    ),
    ("signalbox-gist", &["signalbox-rsvp"], "RSVP is not spoken over GIST"),
    (
        "signalbox-rsvp",
        &["signalbox-gist", "signalbox-ping", "signalbox-qos"],
        "RSVP has no GIST below it and no NSLP above",
    ),
    ("signalbox-resources", ENGINES, "who gets what is decided without knowing the protocol that asks"),
    ("signalbox-transport", ENGINES, "channels carry octets, framing is GIST's"),
    ("signalbox-linux", ENGINES, "kernel access knows datagrams, not protocols"),
    ("signalbox-api", ENGINES, "API types stop at the edge of their crate"),
    ("signalbox-sim", &["signalbox-linux"], "virtual time has no kernel"),
    ("signalbox-wire", &["signalbox-core"], "wire depends on nothing of ours"),
    ("*", &["signalboxd"], "nothing depends on the daemon"),
];

struct Package {
    name: String,
    /// (name, kind, uses default features, features); kind is "normal", "build" or "dev".
    declared: Vec<(String, String, bool, Vec<String>)>,
}

/// Checks everything and prints each broken rule; true if none is.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let metadata = metadata(root)?;
    let ours = packages(&metadata)?;
    let reach = reachable(&metadata)?;
    let mut faults = Vec::new();
    for package in &ours {
        check_arrows(package, &ours, &mut faults);
        check_features(package, &mut faults);
        check_never(package, &reach, &mut faults);
    }
    for fault in &faults {
        println!("deps: {fault}");
    }
    if faults.is_empty() {
        let edges: usize =
            ours.iter().map(|p| p.declared.iter().filter(|d| is_ours(&d.0, &ours)).count()).sum();
        println!("deps: {} crates, {edges} edges between them, every one allowed", ours.len());
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
        let in_tests = kind == "dev" && DEV_ONLY.contains(&to.as_str());
        if !allowed.contains(&to.as_str()) && !in_tests {
            let list = if allowed.is_empty() { "nothing of ours".to_owned() } else { allowed.join(", ") };
            faults.push(format!(
                "{name} -> {to} ({kind}): not an arrow of the architecture; {name} may use {list}"
            ));
        }
    }
}

/// The dissector takes the engines' octets only, and so does the command.
fn check_features(package: &Package, faults: &mut Vec<String>) {
    if !["signalbox-dissect", "signalbox"].contains(&package.name.as_str()) {
        return;
    }
    for (to, kind, defaults, features) in &package.declared {
        if ENGINES.contains(&to.as_str()) && (*defaults || features.iter().any(|f| f == "engine")) {
            faults.push(format!(
                "{} -> {to} ({kind}) with feature `engine`: it reads octets, set default-features = false",
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

fn metadata(root: &Path) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
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

/// For each member, everything that it reaches by normal dependencies, with the crate through which.
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

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo metadata: no `{key}`"))
}
