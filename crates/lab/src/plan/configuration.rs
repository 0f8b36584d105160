//! The configurations of the daemons.

use std::collections::BTreeSet;

use anyhow::Result;

use super::{Plan, PlannedInterface, PlannedNode, certificates, places};
use crate::language::merge;
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
    use std::path::Path;

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
            let plan = Plan::new(&scenario);
            for node in plan.nodes.iter().filter(|node| node.daemon) {
                let text = configuration(&plan, node).expect("a table");
                let loaded = signalbox_config::parse(Path::new(name), &text);
                assert!(loaded.config.is_some(), "{name}, {}: {:#?}\n{text}", node.name, loaded.findings);
            }
        }
    }
}
