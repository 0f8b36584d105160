//! What a simulated node shows: the rows of `signalbox show`, with the same messages as the daemon's.

use anyhow::{Result, bail};
use serde_json::Value;
use signalbox_core::node::Interface;
use signalbox_json::Row;
use signalbox_node::Node;
use signalbox_show as show;

/// The tables that a simulated node has, by the words behind `signalbox show`.
const TABLES: [&str; 7] = [
    "gist sessions",
    "gist peers",
    "gist associations",
    "qos sessions",
    "reservations",
    "bindings",
    "interfaces",
];

/// Whether a simulated node shows this table.
pub(crate) fn is_table(words: &str) -> bool {
    TABLES.contains(&words)
}

/// Returns the rows of a table.
pub(super) fn table(node: &Node, interfaces: &[Interface], words: &str) -> Result<Vec<Value>> {
    match words {
        "gist sessions" => all(node.sessions().map(|row| show::gist::session(&row, interfaces))),
        "gist peers" => all(node.peers().map(|row| show::gist::peer(&row, interfaces))),
        "gist associations" => all(node.associations().map(|row| show::gist::association(&row))),
        "bindings" => {
            let mut rows = Vec::new();
            if let Some(gateway) = node.gist_nat() {
                gateway.bindings(0, |binding| {
                    rows.push(show::gist::binding(&binding, None));
                    true
                });
            }
            all(rows.into_iter())
        }
        "qos sessions" => all(node.qos_sessions().map(|row| {
            let held = row.grant.and_then(|grant| node.resources().reservation(grant));
            show::qos::session(&row, held.map(|held| show::held::row(node, &held)))
        })),
        "reservations" => {
            let resources = node.resources();
            let shown = resources.reservations().filter(|held| resources.has_row(held.grant));
            all(shown.map(|held| show::held::row(node, &held)))
        }
        "interfaces" => all(node.resources().links().map(|link| show::held::interface(&link))),
        _ => bail!("a simulated node shows no {words}"),
    }
}

fn all<R: Row>(rows: impl Iterator<Item = R>) -> Result<Vec<Value>> {
    rows.map(|row| Ok(serde_json::from_str(&signalbox_json::row(&row)?)?)).collect()
}
