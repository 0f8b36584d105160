//! The configurations of the daemons.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};
use signalbox_config::{Finding, Level};

use super::{Plan, PlannedInterface, PlannedNode, certificates, places};
use crate::language::{Scenario, merge};
use crate::protocols;

/// The number of the user and the group that daemons run as: `nobody`, so that all machines give the same result.
pub(crate) const USER: u32 = 65_534;

/// Returns the configuration of a node's daemon, as the text of its file.
pub(crate) fn configuration(plan: &Plan, node: &PlannedNode) -> Result<String> {
    let socket = places::socket(&plan.name, &node.name).display().to_string();
    let protocols: Vec<toml::Value> = protocols::all()
        .filter(|protocol| node.runs(*protocol))
        .map(|protocol| protocol.name().into())
        .collect();
    let mut table = toml::Table::new();
    set(&mut table, &["node", "name"], node.name.clone());
    set(&mut table, &["node", "protocols"], protocols);
    set(&mut table, &["control", "socket"], socket);
    set(&mut table, &["privileges", "user"], USER.to_string());
    certificates::configure(node, &mut table);
    merge(&mut table, &node.config);
    if node.reserves() {
        // A scenario that has a policy of its own says itself who is trusted.
        if !node.config.contains_key("policy") {
            let trusted = ["local", "authenticated"].map(str::to_owned).into_iter().chain(networks(plan));
            set(&mut table, &["policy", "trusted"], trusted.map(toml::Value::from).collect::<Vec<_>>());
        }
        for interface in &node.interfaces {
            capacity(plan, interface, &mut table);
        }
    }
    table.insert("version".to_owned(), 1.into());
    Ok(toml::to_string(&table)?)
}

/// Fails with the mistakes in the configurations of the daemons of a scenario. `file` is its name in errors.
pub(crate) fn check(file: &str, scenario: &Scenario) -> Result<()> {
    let mistakes = mistakes(&Plan::new(scenario))?;
    let lines: Vec<_> = mistakes.into_iter().map(|mistake| format!("{file}: {mistake}")).collect();
    ensure!(lines.is_empty(), "{}", lines.join("\n"));
    Ok(())
}

/// Returns the mistakes in the configurations of the daemons, each with the nodes that have it. No file is read for it, so that what
/// other files may add to is left to the daemon.
fn mistakes(plan: &Plan) -> Result<Vec<String>> {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for node in plan.nodes.iter().filter(|node| node.daemon && !node.config.contains_key("include")) {
        let loaded = signalbox_config::parse(Path::new(&node.name), &configuration(plan, node)?);
        let errors = loaded.findings.into_iter().filter(|finding| finding.level == Level::Error);
        for Finding { key, message, .. } in errors {
            let text = if key.is_empty() { message } else { format!("{key}: {message}") };
            match found.iter_mut().find(|(known, _)| *known == text) {
                Some((_, nodes)) => nodes.push(node.name.as_str()),
                None => found.push((text, vec![node.name.as_str()])),
            }
        }
    }
    Ok(found
        .into_iter()
        .map(|(text, nodes)| format!("the configuration of {}: {text}", nodes.join(", ")))
        .collect())
}

/// The networks of all links: every node of a lab is a neighbor that the others trust.
fn networks(plan: &Plan) -> BTreeSet<String> {
    let interfaces = plan.nodes.iter().flat_map(|node| &node.interfaces);
    interfaces
        .map(|interface| {
            let (address, length) = interface.address.network();
            format!("{address}/{length}")
        })
        .collect()
}

/// Puts the rate and the queues of an interface's link into its table, under what the scenario's own table for it says.
fn capacity(plan: &Plan, interface: &PlannedInterface, config: &mut toml::Table) {
    let link = &plan.links[interface.link];
    let Some(rate) = link.rate else { return };
    let given = config.get("interfaces").and_then(|tables| tables.get(&interface.name)).cloned();
    let name = interface.name.as_str();
    set(config, &["interfaces", name, "capacity"], format!("{}bit", rate.0));
    set(config, &["interfaces", name, "per_flow_queues"], i64::from(link.per_flow_queues));
    if let Some(reservable) = &link.reservable {
        set(config, &["interfaces", name, "reservable"], reservable.clone());
    }
    if let Some(given) = given {
        set(config, &["interfaces", name], given);
    }
}

/// Merges a value into a configuration, at this path of keys.
fn set(config: &mut toml::Table, path: &[&str], value: impl Into<toml::Value>) {
    let inside = |value, key: &&str| toml::Table::from_iter([((*key).to_owned(), value)]).into();
    if let toml::Value::Table(table) = path.iter().rev().fold(value.into(), inside) {
        merge(config, &table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::{builtins, read};

    #[test]
    fn the_scenario_s_configuration_lies_over_the_lab_s() {
        let text = "version = 2\nname = \"x\"\ndescription = \"\"\n[config.gist]\nretry.first = \"50ms\"\n\
                    [nodes.a]\nprotocols = [\"gist\"]\nconfig = { log = { level = \"debug\" }, gist = { retry = { attempts = 3 } } }\n";
        let scenario = read("x.toml", text).unwrap_or_else(|e| panic!("{e}"));
        let plan = Plan::new(&scenario);
        let written: toml::Table =
            configuration(&plan, &plan.nodes[0]).expect("a table").parse().expect("what was written is read");
        let wanted = "version = 1\nnode = { name = 'a', protocols = ['gist'] }\n\
                      control.socket = '/run/signalbox/lab/x/a.sock'\nprivileges.user = '65534'\nlog.level = 'debug'\n\
                      gist.retry = { first = '50ms', attempts = 3 }";
        assert_eq!(written, wanted.parse().expect("sound"));
    }

    #[test]
    fn every_scenario_gives_its_daemons_sound_configurations() {
        for (name, text) in builtins() {
            let scenario = read(name, text).unwrap_or_else(|error| panic!("{error}"));
            let mistakes = mistakes(&Plan::new(&scenario)).expect("tables");
            assert!(mistakes.is_empty(), "{name}: {mistakes:#?}");
        }
    }

    /// Whoever names a protocol, and what it stands on, has to write nothing else; only a gateway cannot guess its sides.
    #[test]
    fn each_protocol_runs_with_its_defaults_alone() {
        let found = |protocols: &str| {
            let text = format!(
                "version = 2\nname = \"x\"\ndescription = \"\"\n[nodes.a]\nprotocols = [{protocols}]\n"
            );
            let scenario = read("x.toml", &text).unwrap_or_else(|e| panic!("{e}"));
            mistakes(&Plan::new(&scenario)).expect("tables")
        };
        for protocol in protocols::all().map(|protocol| protocol.name()) {
            let alone = found(&format!("\"{protocol}\""));
            match protocol {
                "gist_nat" => assert!(alone[0].contains("gist_nat needs an inside"), "{alone:?}"),
                "mapping" => assert!(alone[0].contains("mapping needs natfw"), "{alone:?}"),
                "ping" | "qos" | "natfw" => {
                    assert!(alone[0].contains(&format!("{protocol} needs gist")), "{alone:?}");
                    let both = found(&format!("\"gist\", \"{protocol}\""));
                    assert!(both.is_empty(), "{protocol}: {both:?}");
                }
                _ => assert!(alone.is_empty(), "{protocol}: {alone:?}"),
            }
        }
    }

    #[test]
    fn what_a_daemon_would_refuse_is_a_mistake_of_the_scenario() {
        let text = "version = 2\nname = \"x\"\ndescription = \"\"\n\
                    [nodes.a]\nprotocols = [\"casp\"]\nconfig = { casp = { clients = [\"ping\"] } }\n\
                    [nodes.b]\nprotocols = [\"casp\"]\nconfig = { casp = { clients = [\"ping\"] } }\n\
                    [nodes.c]\nprotocols = [\"qos\"]\n[nodes.d]\ndaemon = false\n";
        let scenario = read("x.toml", text).unwrap_or_else(|e| panic!("{e}"));
        let found = mistakes(&Plan::new(&scenario)).expect("tables");
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].starts_with("the configuration of a, b: casp.clients: "), "{found:#?}");
        assert!(found[1].contains("of c: node.protocols: qos needs gist"), "{found:#?}");
        let included = text.replace("[\"qos\"]", "[\"qos\"]\nconfig = { include = [\"gist.toml\"] }");
        let scenario = read("x.toml", &included).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            mistakes(&Plan::new(&scenario)).expect("tables").len(),
            1,
            "a file may have what is missing"
        );
    }
}
