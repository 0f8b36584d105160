//! Configuration of messaging associations.

use core::time::Duration;

use super::LEAST_WINDOW;
use crate::apd::{Apd, Verdict};
use crate::engine::config::ConfigError;
use crate::engine::io::Transport;

/// Connection mode of a [`Gist`](crate::engine::Gist): it is off if no port is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct AssociationConfig {
    /// Port where peers open TCP channels; `None`: TCP alone is neither offered nor used.
    pub tcp_port: Option<u16>,
    /// The same for TLS over TCP. It differs from `tcp_port`, since the first octets do not distinguish the two.
    pub tls_port: Option<u16>,
    /// The same for SCTP.
    pub sctp_port: Option<u16>,
    /// Order in which stacks are offered and chosen. Stacks without a port are skipped; stacks that are not listed are last.
    /// Default: TLS, SCTP, TCP.
    pub preference: Vec<Transport>,
    /// Use associations for all messages along routing state, not only for those that need one; default false
    /// (RFC 5971 §4.3.3).
    pub always: bool,
    /// MA-Hold-Time of this node: how long it keeps an association that its peer does not use; 1 s to 49 days; default 30 s
    /// (RFC 5971 §4.4.5).
    pub hold_time: Duration,
    /// Longest time to set up an association, and lifetime of a received stack configuration; at least 1 s; default 30 s
    /// (RFC 5971 §5.7.1).
    pub setup_timeout: Duration,
    /// Delay of the next association with a peer, after one that failed before a message of the peer was received; counted
    /// from the opening of the failed one. It doubles with each further failure; 0: no delay; default 1 s.
    pub retry_min: Duration,
    /// The longest such delay, at least `retry_min`; default 60 s.
    pub retry_max: Duration,
    /// Most peers with such a delay at one time; for further peers there is no delay; default 4096.
    pub max_waits: usize,
    /// How long an association without sessions stays Connected before it becomes Idle; at least 100 ms; default 5 s.
    pub idle_after: Duration,
    /// Send a diagnostic MA-Hello if no message of the peer was received for the hold time, and close the association if it
    /// is not answered within the hold time (RFC 5971 §6.4); default true.
    pub probe: bool,
    /// Most associations; default 4096.
    pub max: u32,
    /// Associations that peers may open per second; 0: no limit; default 100 (RFC 5971 §8.4).
    pub accept_rate: u32,
    /// Most octets queued for one association; default 1 MiB.
    pub max_queued: usize,
    /// Most octets queued for all associations together; default 64 MiB.
    pub max_queued_total: usize,
    /// Octets that a channel may buffer. Further messages are queued for the association; at least 32 KiB, default 256 KiB.
    pub max_unsent: usize,
    /// Most octets of incomplete and waiting messages of all peers together; default 64 MiB. The largest message has
    /// 262 148 octets.
    pub max_buffered: usize,
    /// The authorised peer database. Peers without authentication are refused only if an entry matches them.
    pub authorised: Apd,
}

impl Default for AssociationConfig {
    fn default() -> Self {
        Self {
            tcp_port: None,
            tls_port: None,
            sctp_port: None,
            preference: vec![Transport::TlsTcp, Transport::Sctp, Transport::Tcp],
            always: false,
            hold_time: Duration::from_secs(30),
            setup_timeout: Duration::from_secs(30),
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_secs(60),
            max_waits: 4096,
            idle_after: Duration::from_secs(5),
            probe: true,
            max: 4096,
            accept_rate: 100,
            max_queued: 1 << 20,
            max_queued_total: 64 << 20,
            max_unsent: 256 << 10,
            max_buffered: 64 << 20,
            authorised: Apd::new(4096, Verdict::Deny),
        }
    }
}

impl AssociationConfig {
    /// The port of a transport.
    #[must_use]
    pub const fn port(&self, transport: Transport) -> Option<u16> {
        match transport {
            Transport::Tcp => self.tcp_port,
            Transport::TlsTcp => self.tls_port,
            Transport::Sctp => self.sctp_port,
        }
    }

    /// Transports that can be used, best first.
    pub fn usable(&self) -> impl Iterator<Item = (Transport, u16)> + '_ {
        let rest = [Transport::TlsTcp, Transport::Sctp, Transport::Tcp];
        let named = self.preference.iter().copied().enumerate();
        let named = named.filter(|(at, t)| self.preference.iter().position(|other| other == t) == Some(*at));
        let rest = rest.into_iter().filter(|t| !self.preference.contains(t));
        let all = named.map(|(_, transport)| transport).chain(rest);
        all.filter_map(|transport| Some((transport, self.port(transport)?)))
    }

    /// Takes the limits of `new` that a running engine can change. All other settings stay.
    pub(in crate::engine) const fn take_limits(&mut self, new: &Self) {
        self.max = new.max;
        self.accept_rate = new.accept_rate;
        self.max_queued = new.max_queued;
        self.max_queued_total = new.max_queued_total;
        self.max_unsent = new.max_unsent;
        self.max_buffered = new.max_buffered;
    }

    /// Checks every range. GIST-A.3.5-03: a hold time of 0 is not allowed.
    pub(in crate::engine) fn validated(&self) -> Result<(), ConfigError> {
        let second = Duration::from_secs(1);
        let distinct = self.tcp_port.is_none() || self.tcp_port != self.tls_port;
        let ports = [self.tcp_port, self.tls_port, self.sctp_port];
        let rules = [
            (!ports.contains(&Some(0)), "associations.port", "1 to 65535"),
            (distinct, "associations.tls_port", "another port than tcp_port"),
            (
                self.hold_time >= second && self.hold_time <= Duration::from_secs(49 * 86_400),
                "associations.hold_time",
                "1 s to 49 days",
            ),
            (self.setup_timeout >= second, "associations.setup_timeout", "at least 1 s"),
            (
                self.retry_max >= self.retry_min && self.retry_max <= Duration::from_secs(86_400),
                "associations.retry_max",
                "retry_min to 1 day",
            ),
            (self.idle_after >= Duration::from_millis(100), "associations.idle_after", "at least 100 ms"),
            (self.max >= 1, "associations.max", "at least 1"),
            (self.max_queued >= 1024, "associations.max_queued", "at least 1024 octets"),
            (self.max_unsent >= LEAST_WINDOW, "associations.max_unsent", "at least 32768 octets"),
            (self.max_buffered >= 1 << 18, "associations.max_buffered", "at least 262144 octets"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, field, rule)) => Err(ConfigError { field, rule }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GIST-4.4.5-03, GIST-5.7.1-07: 30 s each; off without ports.
    #[test]
    fn defaults_are_those_of_the_rfc() {
        let config = AssociationConfig::default();
        assert_eq!(config.validated(), Ok(()));
        assert_eq!(config.hold_time, Duration::from_secs(30));
        assert_eq!(config.setup_timeout, Duration::from_secs(30));
        assert_eq!(config.usable().count(), 0);
    }

    #[test]
    fn the_order_is_the_preference_then_the_rest() {
        let config = AssociationConfig {
            tcp_port: Some(270),
            tls_port: Some(271),
            sctp_port: Some(270),
            preference: vec![Transport::Tcp, Transport::Tcp, Transport::Sctp],
            ..AssociationConfig::default()
        };
        let order: Vec<_> = config.usable().collect();
        assert_eq!(order, [(Transport::Tcp, 270), (Transport::Sctp, 270), (Transport::TlsTcp, 271)]);
    }

    /// GIST-A.3.5-03
    #[test]
    fn impossible_values_are_refused() {
        let zero = AssociationConfig { hold_time: Duration::ZERO, ..AssociationConfig::default() };
        assert_eq!(zero.validated().unwrap_err().field, "associations.hold_time");
        let same = AssociationConfig { tcp_port: Some(1), tls_port: Some(1), ..AssociationConfig::default() };
        assert_eq!(same.validated().unwrap_err().field, "associations.tls_port");
    }
}
