//! Settings of CASP and of what its connections run over.

use core::time::Duration;

use signalbox_casp::clients::{natfw, qos};
use signalbox_casp::engine::{self, Mechanism, Transport};

use super::dns::{self, DNS, DnsConfig};
use crate::channels::{ChannelConfig, Ports};
use crate::config::ConfigError;

/// Settings of CASP on a node.
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CaspConfig {
    /// Settings of the messaging layer. The node sets its list of clients.
    pub engine: engine::Config,
    /// Settings of the channels that connections run over. With keys and certificates the node takes TLS connections.
    pub channels: ChannelConfig,
    /// Nodes may connect by SCTP.
    pub sctp: bool,
    /// Settings of the QoS client; `None`: the node passes its messages on. Its lifetime, whether it answers for others, and the
    /// nodes that IPsec protects are those of the messaging layer.
    pub qos: Option<qos::Config>,
    /// Settings of the client for firewalls and NATs; `None`: the node passes its messages on. Its lifetime is that of the messaging
    /// layer.
    pub natfw: Option<natfw::Config>,
    /// Settings of discovery by DNS, [`Mechanism::External`] of the number [`DNS`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub dns: DnsConfig,
}

impl CaspConfig {
    /// Checks every range. Keys and certificates are read by [`Node::new`](crate::Node::new).
    pub(super) fn validated(&self) -> Result<(), ConfigError> {
        self.engine.validated()?;
        let wrong = |field, problem| Err(engine::ConfigError { field, problem }.into());
        let mut used = self.engine.transports.iter().map(|(_, one)| *one).chain([self.engine.transport]);
        if self.channels.tls.is_none() && used.clone().any(|one| one == Transport::Tls) {
            return wrong("transport", "TLS needs keys and certificates");
        }
        if !self.sctp && used.any(|one| one == Transport::Sctp) {
            return wrong("transport", "SCTP is switched off");
        }
        if self.lacks_resolver() {
            return wrong("dns.resolvers", "discovery by DNS needs one");
        }
        if !self.dns.domains.iter().all(|(_, domain)| dns::is_domain(domain)) {
            return wrong("dns.domains", "not the name of a domain");
        }
        if let Some(problem) = self.qos.as_ref().and_then(qos::Config::problem) {
            return wrong("qos.segments", problem);
        }
        if let Some(nat) = self.natfw.as_ref().filter(|natfw| natfw.role == natfw::Role::Nat) {
            if nat.first_port == 0 || nat.first_port > nat.last_port {
                return wrong("natfw.first_port", "from 1 to last_port");
            }
            if nat.inside.is_empty() || (nat.outside.is_empty() && nat.external.is_none()) {
                return wrong(
                    "natfw.role",
                    "a NAT needs the interfaces of its inside and of its outside, or an external address",
                );
            }
        }
        if self.channels.handshake < Duration::from_secs(1) {
            return wrong("channels.handshake", "less than 1 s");
        }
        if self.channels.max_handshakes == 0 {
            return wrong("channels.max_handshakes", "less than 1");
        }
        Ok(())
    }

    /// Whether the node searches by DNS, and has no resolver.
    #[must_use]
    pub fn lacks_resolver(&self) -> bool {
        let engine = &self.engine;
        let mut all = engine.discovery.iter().flat_map(|(_, all)| all).chain(&engine.mechanisms);
        all.any(|one| *one == Mechanism::External(DNS)) && self.dns.resolvers.is_empty()
    }

    /// The ports at which nodes connect.
    pub(super) fn ports(&self) -> Ports {
        Ports {
            tcp: Some(self.engine.port),
            tls: self.channels.tls.is_some().then_some(self.engine.tls_port),
            sctp: self.sctp.then_some(self.engine.port),
            max_unsent: self.engine.max_unsent,
            largest: self.engine.max_message as usize,
        }
    }
}
