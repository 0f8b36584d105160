//! The step `flood`: more messages or packets than a node likes.

use serde::Deserialize;
use signalbox_units::Span;
use toml::Spanned;

use super::StepKeys;
use crate::language::kinds::{Key, key};
use crate::language::together::alone;
use crate::language::{Family, Mistake, Prefix, Scope};

/// One thread cannot send more a second, nor a capture keep more messages.
const QUERIES_MAX: u32 = 100_000;

const PACKETS_MAX: u32 = 1_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flood {
    #[serde(rename = "type")]
    pub(crate) kind: Kind,
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    pub(crate) rate: Spanned<u32>,
    pub(crate) via: Option<Spanned<String>>,
    pub(crate) sources: Option<Spanned<Prefix>>,
    #[serde(rename = "for")]
    pub(crate) span: Option<Span>,
    pub(crate) port: Option<u16>,
    #[serde(default = "one")]
    pub(crate) flows: Spanned<u32>,
    #[serde(default)]
    pub(crate) background: bool,
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Queries of GIST.
    Query,
    /// Plain packets, whose time is measured.
    Udp,
}

impl StepKeys for Flood {
    const NAME: &'static str = "flood";
    const MEANING: &'static str = "Sends Queries with invented sources from a raw socket, for checks `load` of the node that receives them (IPv4 only); or UDP packets in 2,000 runs of 250, whose time the kernels take to forward them is measured. Captures are stopped meanwhile.";
    const KEYS: &'static [Key] = &[
        key("type", "word", "\"query\" or \"udp\""),
        key("from", "node", "the sender"),
        key("to", "node", "the end of the flows"),
        key("rate", "number", "messages or packets a second, 1 to 100,000 Queries or 1,000,000 packets"),
        key("via", "node", "of Queries: the neighbor that receives them; processor time and memory of its daemon are measured").optional(),
        key("sources", "prefix", "of Queries: the sources are drawn from it").optional(),
        key("for", "time", "of Queries: how long").optional(),
        key("port", "port", "of packets: the first destination port").optional(),
        key("flows", "number", "of packets: the number of ports from the first one on, used in turn").or("1"),
        key("background", "boolean", "of Queries: the next step begins at once").or("false"),
    ];

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        scope.nodes([&self.from, &self.to])?;
        let most = if self.kind == Kind::Query { QUERIES_MAX } else { PACKETS_MAX };
        if !(1..=most).contains(self.rate.as_ref()) {
            return Err(Mistake::new(self.rate.span(), format!("`rate` lies between 1 and {most}")));
        }
        match (self.kind, &self.via, &self.sources, &self.span, self.port) {
            (Kind::Query, Some(via), Some(sources), Some(_), None) => {
                alone(self.from.span(), "type = \"query\"", &[("flows", !self.flows.span().is_empty())])?;
                scope.daemon(via)?;
                scope.neighbors(&self.from, via)?;
                if sources.as_ref().address.is_ipv4() && scope.scenario.family == Family::Ipv4 {
                    return Ok(());
                }
                Err(Mistake::new(sources.span(), "a flood of Queries is IPv4"))
            }
            (Kind::Udp, None, None, None, Some(port)) => {
                alone(self.from.span(), "type = \"udp\"", &[("background", self.background)])?;
                scope.ports(port, &self.flows)
            }
            (Kind::Query, ..) => {
                Err(Mistake::new(self.from.span(), "a flood of Queries needs `via`, `sources` and `for`"))
            }
            (Kind::Udp, ..) => Err(Mistake::new(
                self.from.span(),
                "a flood of packets needs `port`, and no `via`, `sources` and `for`",
            )),
        }
    }
}
