//! What daemons have to show, what queues their kernels have to have, and which packets have to pass: the keys of the step
//! `expect` and of the check `show`.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use signalbox_units::{BitRate, Span};
use toml::Spanned;

use super::kinds::{Key, key};
use super::together::{alone, in_order};
use super::{Mistake, Scope};
use crate::protocols;

/// How long absence has to hold. What waited to be sent, or was sent again, may make again what has just gone.
pub(crate) const ABSENT: Span = Span::millis(2000);

/// The keys of the step `expect` and of the check `show`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expectation {
    pub(crate) expect: Option<String>,
    pub(crate) show: Option<Spanned<String>>,
    pub(crate) nodes: Option<Spanned<toml::Value>>,
    pub(crate) of: Option<String>,
    #[serde(default, rename = "match")]
    pub(crate) wanted: toml::Table,
    #[serde(default)]
    pub(crate) have: toml::Table,
    pub(crate) count: Option<usize>,
    pub(crate) min: Option<usize>,
    pub(crate) max: Option<usize>,
    pub(crate) others: Option<usize>,
    pub(crate) queues: Option<Vec<Queues>>,
    pub(crate) packets: Option<Vec<Attempt>>,
    #[serde(default = "at_once")]
    pub(crate) within: Span,
    pub(crate) holds: Option<Span>,
}

const fn at_once() -> Span {
    Span::millis(0)
}

impl Expectation {
    pub(crate) const KEYS: &'static [Key] = &[
        key("expect", "text", "what has to hold, for the report").optional(),
        key("show", "words", "the words behind `signalbox show`, like \"gist sessions\" or \"reservations\"").optional(),
        key("nodes", "list of nodes", "the daemons that are asked; \"all\": each that runs the protocol, or makes reservations").or("\"all\""),
        key("of", "field", "count the elements of this list in the rows, and not the rows").optional(),
        key("match", "fields", "only rows with these values").or("{}"),
        key("have", "fields", "each row that matches has these values").or("{}"),
        key("count", "number", "each of the nodes shows exactly so many rows").optional(),
        key("min", "number", "the least number of rows, if there is no `count`; 0 if only `max` is given").or("1"),
        key("max", "number", "the greatest number of rows").optional(),
        key("others", "number", "each other node that has such a table shows exactly so many rows").optional(),
        key("queues", "list of tables", "instead of `show`: the queues of links as `tc` shows them: `node` and `towards` (the neighbor), `own` (0; queues of single reservations), `code_points` (none; those with a share), `reserved` (nothing; the sum of the rates of all queues of reservations), `min_packets` (0; that passed these queues since the daemon began)").optional(),
        key("packets", "list of tables", "instead of `show`: packets that are sent: `from` and `to` (nodes), `protocol` (\"udp\"; or \"tcp\"), `port`, `source_port` (any free one), `at` (the destination address, if it is not that of `to`), `arrives_at` (the port of `to`, if it is not `port`), `passes` (whether the packet arrives and its answer returns)").optional(),
        key("within", "time", "how long it may take; \"0s\": it holds at once").or("\"0s\""),
        key("holds", "time", "how long it has to stay so, from the moment it is so; what comes may go again while `within` lasts, what is gone may not come back. \"2s\" where something is gone: `count`, `max` or `others` is 0, no queue is used, no packet passes").or("\"0s\""),
    ];

    /// Returns what has to hold, in words.
    pub(crate) fn name(&self) -> &str {
        self.expect.as_deref().unwrap_or_default()
    }

    /// Checks names and numbers.
    pub(crate) fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        let kinds = [self.show.is_some(), self.queues.is_some(), self.packets.is_some()];
        if kinds.into_iter().filter(|given| *given).count() > 1 {
            let at = self.show.as_ref().map_or(0..0, Spanned::span);
            let what = "`show`, `queues` and `packets` are several expectations; write a step for each";
            return Err(Mistake::new(at, what));
        }
        let counted = [
            ("nodes", self.nodes.is_some()),
            ("of", self.of.is_some()),
            ("match", !self.wanted.is_empty()),
            ("have", !self.have.is_empty()),
            ("count", self.count.is_some()),
            ("min", self.min.is_some()),
            ("max", self.max.is_some()),
            ("others", self.others.is_some()),
        ];
        if let Some(queues) = &self.queues {
            alone(0..0, "queues", &counted)?;
            return queues.iter().try_for_each(|queues| queues.validate(scope));
        }
        if let Some(packets) = &self.packets {
            alone(0..0, "packets", &counted)?;
            return packets.iter().try_for_each(|attempt| attempt.validate(scope));
        }
        let Some(show) = &self.show else {
            let what = "it lacks `show`, `queues` or `packets`, which say what is looked at, like `show = \"gist sessions\"`";
            return Err(Mistake::new(0..0, what));
        };
        if show.as_ref().split(' ').any(|word| word.is_empty() || word.starts_with('-')) {
            let what = format!(
                "`{}` are no words behind `signalbox show`; use some like \"gist sessions\"",
                show.as_ref()
            );
            return Err(Mistake::new(show.span(), what));
        }
        if self.count.is_some() {
            alone(show.span(), "count", &[("min", self.min.is_some()), ("max", self.max.is_some())])?;
        }
        in_order(show.span(), [("min", self.min), ("max", self.max)])?;
        self.validate_nodes(scope, show)
    }

    /// Fails if nodes are asked that do not have such a table, or none has it.
    fn validate_nodes(&self, scope: &Scope<'_>, show: &Spanned<String>) -> Result<(), Mistake> {
        let words = show.as_ref().as_str();
        let first = words.split(' ').next().unwrap_or_default();
        let protocol = protocols::all().find(|protocol| protocol.name() == first);
        let has = |name: &Spanned<String>| match protocol {
            Some(protocol) => scope.runs(protocol, name),
            None if words == "reservations" => scope.reserves(name),
            None => scope.daemon(name),
        };
        let every = || match scope.scenario.nodes.iter().any(|node| has(&node.name).is_ok()) {
            true => Ok(()),
            false => {
                let other = if words == "reservations" { "a protocol that reserves" } else { "a daemon" };
                let title = protocol.map_or(other, |protocol| protocol.title());
                Err(Mistake::new(show.span(), format!("no node runs {title}, so that none shows {words}")))
            }
        };
        let Some(nodes) = &self.nodes else { return every() };
        match nodes.as_ref() {
            toml::Value::String(word) if word == "all" => every(),
            toml::Value::Array(all) if all.iter().all(toml::Value::is_str) => {
                let mut names = all.iter().filter_map(toml::Value::as_str);
                names.try_for_each(|name| has(&Spanned::new(nodes.span(), name.to_owned())))
            }
            _ => Err(Mistake::new(nodes.span(), "`nodes` is \"all\" or a list, like [\"h1\", \"r1\"]")),
        }
    }

    fn is_absence(&self) -> bool {
        let shown = self.show.is_some() && [self.count, self.max, self.others].contains(&Some(0));
        let unused = |queues: &Vec<Queues>| queues.iter().all(Queues::is_absence);
        let blocked = |packets: &Vec<Attempt>| packets.iter().all(Attempt::is_absence);
        shown || self.queues.as_ref().is_some_and(unused) || self.packets.as_ref().is_some_and(blocked)
    }

    /// Returns how long it has to stay so once it is so. What is gone may not come back.
    pub(crate) fn holds(&self) -> Duration {
        if self.is_absence() { self.holds.unwrap_or(ABSENT).0 } else { Duration::ZERO }
    }

    /// Returns how long it has to be so before it counts. What comes may go once more, as long as there is time left.
    pub(crate) fn settles(&self) -> Duration {
        self.holds.filter(|_| !self.is_absence()).map_or(Duration::ZERO, |span| span.0)
    }
}

/// What the queues at one end of a link should hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Queues {
    pub(crate) node: Spanned<String>,
    /// The neighbor to which the packets leave.
    pub(crate) towards: Spanned<String>,
    /// Queues of single reservations.
    #[serde(default)]
    pub(crate) own: usize,
    /// Code points with a queue that is used.
    #[serde(default)]
    pub(crate) code_points: Vec<u8>,
    /// Sum of the rates of all queues of reservations; nothing if not given.
    pub(crate) reserved: Option<BitRate>,
    /// At least this number of packets has gone through them.
    #[serde(default)]
    pub(crate) min_packets: u64,
}

impl Queues {
    /// Checks the names.
    pub(crate) fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.reserves(&self.node)?;
        scope.neighbors(&self.node, &self.towards)
    }

    /// Whether nothing should be reserved.
    pub(crate) const fn is_absence(&self) -> bool {
        self.own == 0 && self.code_points.is_empty() && self.reserved.is_none()
    }
}

/// One attempt to reach a node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attempt {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    /// The destination address, if it is not that of `to`.
    pub(crate) at: Option<IpAddr>,
    #[serde(default)]
    pub(crate) protocol: Transport,
    pub(crate) port: u16,
    pub(crate) source_port: Option<u16>,
    /// The port at which `to` receives, if a NAT changes it.
    pub(crate) arrives_at: Option<u16>,
    pub(crate) passes: bool,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    #[default]
    Udp,
    Tcp,
}

impl Attempt {
    /// Checks the names.
    pub(crate) fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.nodes([&self.from, &self.to])
    }

    /// Whether the packet should not arrive.
    pub(crate) const fn is_absence(&self) -> bool {
        !self.passes
    }
}
