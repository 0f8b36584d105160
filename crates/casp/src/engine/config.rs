//! Settings of the engine.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use signalbox_core::node::Prefix;

use super::io::Transport;
use super::session::DEFAULT_TIMEOUT;
use crate::wire::ClientType;

/// Settings of a [`Casp`](super::Casp).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Config {
    /// Most sessions of which this node has state. One session with two flows counts twice.
    pub max_sessions: u32,
    /// Most connections to other nodes.
    pub max_connections: u32,
    /// Most discoveries at one time, and most messages without state that wait for their next hop.
    pub max_searches: u32,
    /// Most octets of messages that wait for a next hop or a connection, of all sessions.
    pub max_waiting: u32,
    /// Most octets of messages whose end has not come, of all connections.
    pub max_incomplete: u32,
    /// Most messages that wait for the verdict of a client.
    pub max_held: u32,
    /// Longest message with its Length Header, octets.
    pub max_message: u32,
    /// Most octets that a connection may hold unsent. A peer that does not read gets no further messages.
    pub max_unsent: usize,
    /// Most octets that all connections may hold unsent together. A quarter is for nodes to which little is unsent.
    pub max_unsent_total: u32,
    /// Messages that a source may send over UDP in a second; more are dropped. 0: no limit.
    pub rate: u32,
    /// Messages without state of a node that this node sends on in a second, with a quarter of it at once. 0: no limit.
    pub stateless_rate: u32,
    /// Scout Requests of a source that are answered in a second, with a quarter of it at once. 0: no limit.
    pub answer_rate: u32,
    /// Scout Requests of all sources that are answered in a second, with a quarter of it at once. 0: no limit.
    pub total_answer_rate: u32,
    /// Refresh interval of the sessions of this node.
    pub refresh: Duration,
    /// Longest lifetime without refresh that this node grants, seconds.
    pub max_timeout: u32,
    /// Messages of this node's sessions contain CASP_TIMEOUT. Without it the lifetime is 30 s, and the refresh interval a
    /// third of it.
    pub send_timeout: bool,
    /// Refreshes of this node's sessions make each node discover its next hop again.
    pub rediscover: bool,
    /// How long a client may take for its verdict on a message.
    pub verdict: Duration,
    /// How long a connection may take to be established.
    pub connect: Duration,
    /// How long a connection is kept without messages.
    pub idle: Duration,
    /// Port of messages over TCP, SCTP and UDP.
    pub port: u16,
    /// Port of messages over TLS.
    pub tls_port: u16,
    /// Port of scout.
    pub scout_port: u16,
    /// Value of the Router Alert of Scout Requests with IPv6.
    pub router_alert_v6: u16,
    /// TOS octet or traffic class of Scout Requests: that of the data packets.
    pub scout_tos: u8,
    /// Transport of messages to addresses of these prefixes; the first that fits counts.
    pub transports: Vec<(Prefix, Transport)>,
    /// Transport of messages to all others.
    pub transport: Transport,
    /// Discovery of the next hop for destinations of these prefixes; the first that fits counts.
    pub discovery: Vec<(Prefix, Vec<Mechanism>)>,
    /// Discovery for all others, in this order.
    pub mechanisms: Vec<Mechanism>,
    /// CASP nodes that are known as neighbors: the routing table finds them, and over UDP they need no cookie.
    pub neighbors: BTreeSet<IpAddr>,
    /// Destinations for which this node is the responder.
    pub proxy: Vec<Prefix>,
    /// Nodes whose connections are accepted; empty: all.
    pub peers: Vec<Prefix>,
    /// Nodes whose packets are protected by IPsec. Their channels count as secure.
    pub protected: Vec<Prefix>,
    /// Clients of this node.
    pub clients: BTreeSet<u8>,
    /// Those of them that take messages without state.
    pub stateless_clients: BTreeSet<u8>,
    /// RECORD_ROUTE and ROUTE are sent, and this node takes part in delivery without state. Otherwise they are objects of unknown
    /// classes: this node keeps state, and sends them on.
    pub stateless: bool,
    /// An old branch is removed even if the new one crossed a hop without channel security.
    pub remove_unsecure: bool,
    /// FLOW_IDs of the private C-Types 129 and 130 are sent and accepted.
    pub private_flows: bool,
    /// ERRORs with private codes are sent.
    pub private_errors: bool,
}

/// A way to find the next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Mechanism {
    /// The node with this address.
    Static(IpAddr),
    /// The next hop of the routing table, if it is one of [`Config::neighbors`].
    Routing,
    /// A Scout Request towards the destination.
    Scout,
    /// A mechanism outside of the engine, by its number: [`Output::Discover`](super::Output::Discover).
    External(u8),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_sessions: 262_144,
            max_connections: 4096,
            max_searches: 4096,
            max_waiting: 16 << 20,
            max_incomplete: 64 << 20,
            max_held: 4096,
            max_message: 70_000,
            max_unsent: 256 << 10,
            max_unsent_total: 64 << 20,
            rate: 10_000,
            stateless_rate: 400,
            answer_rate: 400,
            total_answer_rate: 10_000,
            refresh: Duration::from_secs(30),
            max_timeout: 3600,
            send_timeout: true,
            rediscover: true,
            verdict: Duration::from_secs(1),
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            port: 50003,
            tls_port: 50005,
            scout_port: 50004,
            router_alert_v6: 65503,
            scout_tos: 0,
            transports: Vec::new(),
            transport: Transport::Tcp,
            discovery: Vec::new(),
            mechanisms: vec![Mechanism::Routing, Mechanism::Scout],
            neighbors: BTreeSet::new(),
            proxy: Vec::new(),
            peers: Vec::new(),
            protected: Vec::new(),
            clients: BTreeSet::new(),
            stateless_clients: BTreeSet::new(),
            stateless: true,
            remove_unsecure: false,
            private_flows: false,
            private_errors: false,
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
    /// Lifetime of the sessions of this node, seconds.
    #[must_use]
    pub fn lifetime(&self) -> u32 {
        if self.send_timeout {
            u32::try_from(self.refresh.as_secs().saturating_mul(3)).unwrap_or(u32::MAX)
        } else {
            DEFAULT_TIMEOUT
        }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that is not allowed.
    pub fn validated(&self) -> Result<(), ConfigError> {
        let fault = |field, problem| Err(ConfigError { field, problem });
        if self.refresh < Duration::from_secs(1) || self.refresh > Duration::from_secs(86_400) {
            return fault("refresh", "not from a second to a day");
        }
        if self.max_timeout == 0 {
            return fault("max_timeout", "0 seconds");
        }
        if self.max_message < 24 {
            return fault("max_message", "less than a message has");
        }
        if self.mechanisms.is_empty() || self.discovery.iter().any(|(_, all)| all.is_empty()) {
            return fault("discovery", "no mechanism");
        }
        if self.clients.contains(&0) || self.clients.contains(&255) {
            return fault("clients", "0 and 255 are not used");
        }
        if !(65_503..=65_534).contains(&self.router_alert_v6) {
            return fault("router_alert_v6", "not one of the experimental values 65503 to 65534 (RFC 5350)");
        }
        if self.port == self.scout_port || self.port == self.tls_port {
            return fault("port", "the ports are not different");
        }
        Ok(())
    }

    /// The transport of messages to an address.
    pub(super) fn transport_to(&self, address: IpAddr) -> Transport {
        let found = self.transports.iter().find(|(prefix, _)| prefix.contains(address));
        found.map_or(self.transport, |(_, transport)| *transport)
    }

    /// The mechanisms for a destination, in their order.
    pub(super) fn mechanisms_to(&self, dst: IpAddr) -> &[Mechanism] {
        let found = self.discovery.iter().find(|(prefix, _)| prefix.contains(dst));
        found.map_or(&self.mechanisms, |(_, all)| all)
    }

    /// Whether this node has a client.
    pub(super) fn has(&self, client: ClientType) -> bool {
        self.clients.contains(&client.0)
    }
}
