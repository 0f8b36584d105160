//! The signaling protocols of the lab: one folder a protocol, and one line in [`PROTOCOLS`].
//!
//! A folder holds how a node of a scenario runs the protocol, how its messages are read from the captures, what the
//! report shows of it, and its own steps and checks. The readers are written for the lab: what a check finds on the
//! wire must not rest on the code that is checked.

pub(crate) mod gist;
pub(crate) mod ping;
pub(crate) mod qos;
pub(crate) mod rsvp;

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::evidence::Evidence;
use crate::observe::packet::Ip;
use crate::observe::trace::Frame;
use crate::report::Section;

/// All protocols, in the order in which the report shows them.
const PROTOCOLS: &[&dyn Protocol] = &[&gist::Gist, &ping::Ping, &qos::Qos, &rsvp::Rsvp];

/// The conditions of all protocols, for the description of `wait_for`.
pub(crate) const CONDITIONS: &str = "`sessions` or `no_sessions`: every daemon with Ping holds routing state, or no daemon does; `no_rsvp`: no RSVP session";

/// Names of protocols.
pub(crate) type Set = BTreeSet<&'static str>;

/// A protocol that daemons run.
pub(crate) trait Protocol: Debug + Sync {
    /// The name in the lab; also the key of `[[nodes]]` if [`Protocol::switch`] gives one.
    fn name(&self) -> &'static str;

    /// The name for people.
    fn title(&self) -> &'static str;

    /// Whether a node runs the protocol without its key in the file; `None` if the file has no such key.
    fn switch(&self) -> Option<bool> {
        None
    }

    /// Whether the protocol makes reservations, which the node's kernel keeps.
    fn reserves(&self) -> bool {
        false
    }

    /// The commands that show the protocol's tables of a node, like `"show gist sessions"`.
    fn tables(&self) -> &'static [&'static str] {
        &[]
    }

    /// What a `wait_for` step can wait for.
    fn conditions(&self) -> &'static [Condition] {
        &[]
    }

    /// Makes a reader of the protocol's messages on a link whose captures are taken at the node `first`.
    fn observer(&self, _first: usize) -> Option<Box<dyn Observer>> {
        None
    }

    /// Returns what the report shows people.
    fn report(&self, _evidence: &Evidence) -> Vec<Section> {
        Vec::new()
    }

    /// Returns the measurements, by their names in the report.
    fn measure(&self, _evidence: &Evidence) -> Vec<(&'static str, Value)> {
        Vec::new()
    }
}

/// Reads the messages of a protocol from the frames of a link.
pub(crate) trait Observer: Any + Debug {
    /// Reads a frame; `ip` is the IP packet in it.
    fn take(&mut self, frame: &Frame, ip: Ip<'_>);

    /// Completes what was read, after the last frame.
    fn finish(&mut self) {}
}

/// Something that a `wait_for` step can wait for: each of the nodes shows a table like this.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Condition {
    /// The value of `condition` in the file.
    pub(crate) name: &'static str,
    /// What holds then, in words.
    pub(crate) meaning: &'static str,
    /// The protocol that the nodes have to run.
    pub(crate) protocol: &'static dyn Protocol,
    /// The command that shows the table.
    pub(crate) table: &'static str,
    pub(crate) holds: fn(&[Value]) -> bool,
}

/// Returns all protocols.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn Protocol> + Clone {
    PROTOCOLS.iter().copied()
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let all = all().flat_map(|protocol| protocol.conditions());
        all.clone().find(|condition| condition.name == name).copied().ok_or_else(|| {
            let known = all.map(|condition| format!("`{}`", condition.name));
            let known = known.collect::<Vec<_>>().join(", ");
            de::Error::custom(format!("unknown condition `{name}`, expected one of {known}"))
        })
    }
}

/// The protocols that a daemon runs: `node.protocols` of its configuration, if the file has it, else `keys`, those of
/// the node's own keys.
pub(crate) fn configured(config: &toml::Table, keys: &Set) -> Set {
    let list = config.get("node").and_then(|node| node.get("protocols")).and_then(toml::Value::as_array);
    let Some(list) = list else { return keys.clone() };
    let named = |protocol: &&dyn Protocol| list.iter().any(|name| name.as_str() == Some(protocol.name()));
    all().filter(named).map(|protocol| protocol.name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_is_described() {
        for condition in all().flat_map(|protocol| protocol.conditions()) {
            assert!(CONDITIONS.contains(&format!("`{}`", condition.name)), "{}", condition.name);
        }
    }
}
