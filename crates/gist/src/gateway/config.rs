//! Configuration of the gateway.

use core::net::Ipv4Addr;
use core::time::Duration;

use signalbox_core::NslpId;

/// Configuration of a [`Gateway`](super::Gateway).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Config {
    /// Names of the interfaces towards the private network.
    pub inside: Vec<String>,
    /// Names of the interfaces towards the other network.
    pub outside: Vec<String>,
    /// External address; `None`: the first IPv4 address of the first interface of `outside`.
    pub external: Option<Ipv4Addr>,
    /// First external port.
    pub first_port: u16,
    /// Last external port.
    pub last_port: u16,
    /// Hosts inside that are reached from outside.
    pub forwards: Vec<Forward>,
    /// Applications of this node: it is a GIST peer for their messages, and does not translate them.
    pub hosted: Vec<NslpId>,
    /// Ports of this node at which it accepts messaging associations. They are not given to hosts inside.
    pub own_ports: Vec<u16>,
    /// A Query from outside for which there is no host inside is discarded, not answered.
    pub silent: bool,
    /// Lifetime of a binding until the Response comes.
    pub reserve: Duration,
    /// Longest lifetime of a binding without a refresh.
    pub max_lifetime: Duration,
    /// Most bindings; a quarter is kept for hosts that hold few.
    pub max_bindings: u32,
    /// Most Queries of one source in a second; 0: no limit.
    pub queries_of_source: u32,
    /// Most Errors in a second.
    pub errors: u32,
}

/// A host inside that is reached at an external port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Forward {
    /// The IP protocol.
    pub protocol: u8,
    /// First external port.
    pub first_port: u16,
    /// Last external port.
    pub last_port: u16,
    /// Address of the host inside.
    pub address: Ipv4Addr,
    /// Port of the host for the first external port; the others follow.
    pub port: u16,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            inside: Vec::new(),
            outside: Vec::new(),
            external: None,
            first_port: 16_384,
            last_port: 32_767,
            forwards: Vec::new(),
            hosted: Vec::new(),
            own_ports: Vec::new(),
            silent: false,
            reserve: Duration::from_secs(30),
            max_lifetime: Duration::from_secs(3600),
            max_bindings: 16_384,
            queries_of_source: 1000,
            errors: 100,
        }
    }
}

/// A configuration with which the gateway cannot run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The range of external ports is empty.
    #[error("first_port: from 1 to last_port")]
    Ports,
    /// A forward has an empty range, or its last port inside exceeds 65535.
    #[error("forwards: the external ports are a range from 1 on, and as many ports follow the one inside")]
    Forward,
    /// A lifetime is too short.
    #[error("reserve and max_lifetime: at least 1 s and 120 s")]
    Lifetimes,
    /// The table of bindings is too small or too large.
    #[error("max_bindings: 4 to 1,000,000")]
    Bindings,
}

impl Config {
    /// Takes the limits and rates of `new` that a running gateway can change. All other settings stay.
    pub const fn take_limits(&mut self, new: &Self) {
        self.max_lifetime = new.max_lifetime;
        self.max_bindings = new.max_bindings;
        self.queries_of_source = new.queries_of_source;
        self.errors = new.errors;
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn validated(&self) -> Result<(), ConfigError> {
        if self.first_port == 0 || self.first_port > self.last_port {
            return Err(ConfigError::Ports);
        }
        let is_range = |forward: &Forward| {
            let further = forward.last_port.checked_sub(forward.first_port);
            forward.first_port > 0 && further.is_some_and(|n| forward.port.checked_add(n).is_some())
        };
        if !self.forwards.iter().all(is_range) {
            return Err(ConfigError::Forward);
        }
        if self.reserve < Duration::from_secs(1) || self.max_lifetime < super::SHORTEST {
            return Err(ConfigError::Lifetimes);
        }
        if !(4..=1_000_000).contains(&self.max_bindings) {
            return Err(ConfigError::Bindings);
        }
        Ok(())
    }
}
