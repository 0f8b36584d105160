//! Settings of the engine.

use std::collections::BTreeMap;

use super::domain::Integrity;

/// Settings of a [`Boomerang`](super::Boomerang).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Config {
    /// Most reservations that this node holds as a node on the path.
    pub max_flows: u32,
    /// Most sessions that this node runs as initiating node.
    pub max_sessions: u32,
    /// Most messages that wait for a route.
    pub max_waiting: u32,
    /// Refresh interval of the sessions of this node, seconds.
    pub refresh: u8,
    /// Longest refresh interval that this node leaves in a passing message, seconds.
    pub max_refresh: u8,
    /// Holding time of a reservation, in refresh intervals.
    pub hold: f64,
    /// Messages that a source may send in a second; more are dropped. 0: no limit.
    pub rate: u32,
    /// Requests of this node contain a Router Alert (IPv4).
    pub router_alert: bool,
    /// Value of the Router Alert of this node's requests with IPv6; `None`: they contain none.
    pub router_alert_v6: Option<u16>,
    /// TOS octet or traffic class of the messages of this node.
    pub tos: u8,
    /// A reservation is only made for an initiating node that proved, by a number of 64 bits, that it received a reply.
    pub prove: bool,
    /// Routers on a path that can demand such a proof: 1 to 4. With 1 an initiating node without the option proves by the whole KEY; a part
    /// of it could be guessed.
    pub provers: u8,
    /// A request is refused whose flow has another source than the packet.
    pub same_source: bool,
    /// The HMAC with a key of the domain.
    pub integrity: Integrity,
    /// Aggregates of flows.
    pub aggregates: Aggregation,
    /// Whether messages that come in by an interface of this name are interpreted; otherwise they are passed on.
    pub trusted: BTreeMap<String, bool>,
    /// The same for interfaces without an entry.
    pub trusted_elsewhere: bool,
    /// The time in microseconds since 1970 at [`Time::ZERO`](signalbox_core::Time::ZERO). The node sets it.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub wall_clock_us: u64,
}

impl Default for Config {
    // BOOM-G15-01
    fn default() -> Self {
        Self {
            max_flows: 262_144,
            max_sessions: 65_536,
            max_waiting: 256,
            refresh: 30,
            max_refresh: 60,
            hold: 3.5,
            rate: 10_000,
            router_alert: true,
            router_alert_v6: None,
            tos: 0,
            prove: false,
            provers: 1,
            same_source: false,
            integrity: Integrity::default(),
            aggregates: Aggregation::default(),
            trusted: BTreeMap::new(),
            trusted_elsewhere: true,
            wall_clock_us: 0,
        }
    }
}

/// Settings of aggregates: those that this node proposes, and those of other nodes that it adopts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Aggregation {
    /// The node adds the option of an aggregate to the messages of flows that have much in common.
    pub propose: bool,
    /// Flows from which on an aggregate is proposed, at least 2.
    pub members: u32,
    /// Length of the prefixes of the subnets that aggregates are between.
    pub ipv4_prefix: u8,
    /// The same for IPv6.
    pub ipv6_prefix: u8,
    /// The node keeps one reservation for an aggregate that another node proposes.
    pub adopt: bool,
    /// Most aggregates of other nodes.
    pub max: u32,
    /// Whether options in messages that come in by an interface of this name are of nodes of this domain.
    pub from: BTreeMap<String, bool>,
    /// The same for interfaces without an entry.
    pub from_elsewhere: bool,
}

impl Default for Aggregation {
    fn default() -> Self {
        Self {
            propose: false,
            members: 3,
            ipv4_prefix: 24,
            ipv6_prefix: 64,
            adopt: false,
            max: 1024,
            from: BTreeMap::new(),
            from_elsewhere: false,
        }
    }
}

/// A setting that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// Which setting.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Config {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that is not allowed.
    pub fn validated(&self) -> Result<(), ConfigError> {
        let fault = |field, problem| Err(ConfigError { field, problem });
        if self.refresh == 0 {
            return fault("refresh", "0 seconds");
        }
        if self.max_refresh == 0 {
            return fault("max_refresh", "0 seconds");
        }
        if !(self.hold >= 1.0 && self.hold <= 1000.0) {
            return fault("hold", "not from 1 to 1000");
        }
        if self.router_alert_v6.is_some_and(|value| !(65_503..=65_534).contains(&value)) {
            return fault("router_alert_v6", "not one of the experimental values 65503 to 65534 (RFC 5350)");
        }
        if self.aggregates.members < 2 {
            return fault("aggregates.members", "less than 2");
        }
        if self.aggregates.ipv4_prefix > 32 || self.aggregates.ipv6_prefix > 128 {
            return fault("aggregates", "a prefix that is longer than an address");
        }
        if !(1..=4).contains(&self.provers) {
            return fault("provers", "not from 1 to 4");
        }
        self.integrity.validated()
    }
}
