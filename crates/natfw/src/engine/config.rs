//! Configuration of the engine.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::NslpId;

/// Configuration of a [`Natfw`](super::Natfw).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Config {
    /// The NSLPID; 33 is registered.
    pub nslp: NslpId,
    /// What this node is on the path of data.
    pub middlebox: Middlebox,
    /// The node is the outermost NAT or firewall of its network: EXTERNAL messages end here (RFC 5973 §3.7.2).
    pub edge: bool,
    /// Names of the interfaces towards the protected or private network.
    pub inside: Vec<String>,
    /// Names of the interfaces towards the other network.
    pub outside: Vec<String>,
    /// External address of a NAT; `None`: the first IPv4 address of the first interface of `outside`.
    pub external: Option<Ipv4Addr>,
    /// First external port of a NAT.
    pub first_port: u16,
    /// Last external port of a NAT.
    pub last_port: u16,
    /// First external port that a publication may wish for, beside those that the NAT gives out.
    pub first_wish: u16,
    /// Last external port that a publication may wish for.
    pub last_wish: u16,
    /// Addresses that a twice-NAT translates. It changes messages by them, and nothing else (RFC 5973 §2.5).
    pub mappings: Vec<Mapping>,
    /// Time between two refreshes of sessions of this node, R of RFC 5973 §3.4. The lifetime follows from it.
    pub refresh: Duration,
    /// Time after which a request of this node without RESPONSE is sent again the first time. It doubles each time.
    pub retry: Duration,
    /// Shortest lifetime that this node accepts.
    pub min_lifetime: Duration,
    /// Longest lifetime that this node accepts. A longer one is lowered.
    pub max_lifetime: Duration,
    /// A request with a longer lifetime than `max_lifetime` is refused, not lowered.
    pub refuse_long: bool,
    /// How long a session stays after a NOTIFY without a request that confirms it; at least 30 s (RFC 5973 §3.2.8).
    pub hold: Duration,
    /// Most low-order bits of an address that a request for a firewall may leave open, at the source and at the
    /// destination of the flow.
    pub open_bits: OpenBits,
    /// Requests without a destination port are accepted by a firewall.
    pub any_port: bool,
    /// Requests without a protocol are accepted by a firewall.
    pub any_protocol: bool,
    /// Types of ICMP messages that a rule may be for; empty: all.
    pub icmp_types: Vec<u8>,
    /// Messages are sent and accepted over authenticated channels only (RFC 5973 §5.2.1).
    pub secure: bool,
    /// Messages are sent over messaging associations. NOTIFY always is.
    pub reliable: bool,
    /// Most sessions; a quarter is kept for sources that hold few.
    pub max_sessions: u32,
    /// Most requests at one time whose delivery this node waits for.
    pub max_watched: u32,
}

/// What a node is on the path of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Middlebox {
    /// A host or a router: it initiates, answers and forwards, and has no rules.
    #[default]
    None,
    /// It filters.
    Firewall,
    /// It translates addresses and ports, and filters.
    Nat,
    /// It translates both addresses of a flow by a fixed table.
    TwiceNat,
}

/// One host behind a twice-NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Mapping {
    /// The address by which hosts inside know it.
    pub inside: IpAddr,
    /// The address by which hosts outside know it.
    pub outside: IpAddr,
}

/// Low-order bits of addresses that may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct OpenBits {
    /// Of the source.
    pub source: u8,
    /// Of the destination.
    pub destination: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nslp: NslpId::NATFW,
            middlebox: Middlebox::None,
            edge: false,
            inside: Vec::new(),
            outside: Vec::new(),
            external: None,
            first_port: 32768,
            last_port: 60999,
            first_wish: 1024,
            last_wish: u16::MAX,
            mappings: Vec::new(),
            refresh: Duration::from_secs(300),
            retry: Duration::from_secs(2),
            min_lifetime: Duration::from_secs(10),
            max_lifetime: Duration::from_secs(3600),
            refuse_long: false,
            hold: Duration::from_secs(30),
            open_bits: OpenBits::default(),
            any_port: false,
            any_protocol: false,
            icmp_types: Vec::new(),
            secure: false,
            reliable: true,
            max_sessions: 100_000,
            max_watched: 10_000,
        }
    }
}

/// Settings with which the application cannot run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The range of external ports is empty.
    #[error("first_port: from 1 to last_port")]
    Ports,
    /// The range of ports to wish for is empty.
    #[error("first_wish: from 1 to last_wish")]
    Wishes,
    /// No lifetime can be accepted.
    #[error("min_lifetime: at least 1 s, and not more than max_lifetime")]
    Lifetimes,
    /// [`Config::hold`] is too short (RFC 5973 §3.2.8).
    #[error("hold: at least 30 s")]
    Hold,
    /// Requests would be sent again and again.
    #[error("refresh: at least 1 s; retry: at least 10 ms")]
    Timers,
    /// The lifetime of own requests follows from [`Config::refresh`] and does not fit.
    #[error("refresh: at most 13 years")]
    Refresh,
    /// The table of sessions has no place.
    #[error("max_sessions: at least 1")]
    Sessions,
    /// A firewall or NAT that does not know its inside.
    #[error("inside: a firewall or NAT needs the interfaces of its protected side")]
    NoInside,
    /// A NAT without an external address.
    #[error("external: a NAT needs the interface of its outside, or its external address")]
    NoOutside,
}

/// K of RFC 5973 §3.4: with 3, two successive refreshes may be lost.
const LOSSES: u32 = 3;
/// With it, [`Config::lifetime`] is below the 2³² s that a message can carry.
const LONGEST_REFRESH: Duration = Duration::from_secs(13 * 365 * 86_400);

impl Config {
    /// The lifetime that this node requests for its sessions: (K + 0.5) · 1.5 · R, the smallest of RFC 5973 §3.4.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.refresh * (2 * LOSSES + 1) * 3 / 4
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn validated(&self) -> Result<(), ConfigError> {
        let lifetimes = self.min_lifetime >= Duration::from_secs(1) && self.min_lifetime <= self.max_lifetime;
        let timers = self.refresh >= Duration::from_secs(1) && self.retry >= Duration::from_millis(10);
        let boxed = self.middlebox != Middlebox::None;
        let outside = !self.outside.is_empty() || self.external.is_some();
        for (right, error) in [
            (self.first_port > 0 && self.first_port <= self.last_port, ConfigError::Ports),
            (self.first_wish > 0 && self.first_wish <= self.last_wish, ConfigError::Wishes),
            (lifetimes, ConfigError::Lifetimes),
            (self.hold >= Duration::from_secs(30), ConfigError::Hold),
            (timers, ConfigError::Timers),
            (self.refresh <= LONGEST_REFRESH, ConfigError::Refresh),
            (self.max_sessions > 0, ConfigError::Sessions),
            (!boxed || !self.inside.is_empty(), ConfigError::NoInside),
            (!self.translates() || outside, ConfigError::NoOutside),
        ] {
            if !right {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the node translates addresses.
    pub(super) const fn translates(&self) -> bool {
        matches!(self.middlebox, Middlebox::Nat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_their_range_are_refused() {
        assert_eq!(Config::default().validated(), Ok(()));
        let wall =
            || Config { middlebox: Middlebox::Firewall, inside: vec!["lan".to_owned()], ..Config::default() };
        assert_eq!(wall().validated(), Ok(()));
        let zero = Duration::ZERO;
        for (wrong, error) in [
            (Config { first_port: 0, ..wall() }, ConfigError::Ports),
            (Config { first_port: 5, last_port: 4, ..wall() }, ConfigError::Ports),
            (Config { first_wish: 0, ..wall() }, ConfigError::Wishes),
            (Config { first_wish: 5, last_wish: 4, ..wall() }, ConfigError::Wishes),
            (Config { min_lifetime: zero, ..wall() }, ConfigError::Lifetimes),
            (Config { max_lifetime: Duration::from_secs(9), ..wall() }, ConfigError::Lifetimes),
            (Config { hold: Duration::from_secs(29), ..wall() }, ConfigError::Hold),
            (Config { retry: zero, ..wall() }, ConfigError::Timers),
            (Config { refresh: LONGEST_REFRESH * 2, ..wall() }, ConfigError::Refresh),
            (Config { max_sessions: 0, ..wall() }, ConfigError::Sessions),
            (Config { inside: Vec::new(), ..wall() }, ConfigError::NoInside),
            (Config { middlebox: Middlebox::Nat, ..wall() }, ConfigError::NoOutside),
        ] {
            assert_eq!(wrong.validated(), Err(error), "{wrong:?}");
        }
        let longest = Config { refresh: LONGEST_REFRESH, ..wall() };
        assert!(longest.validated().is_ok() && longest.lifetime().as_secs() < 1 << 32);
    }
}
