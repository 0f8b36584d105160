//! Configuration of the engine.

use core::time::Duration;

use signalbox_core::node::Prefix;

/// Configuration of a [`Mapper`](super::Mapper).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Config {
    /// PCP is answered. Otherwise a request of PCP draws nothing.
    pub pcp: bool,
    /// NAT-PMP is answered, if the node translates addresses. With PCP on and this off, a request of NAT-PMP draws UNSUPP_VERSION in
    /// the format of PCP (RFC 6887 §9).
    pub nat_pmp: bool,
    /// Names of the interfaces at which requests are accepted. Others are discarded.
    pub interfaces: Vec<String>,
    /// Sources that may ask; empty: all that the interface lets in.
    pub from: Vec<Prefix>,
    /// The node translates IPv4 addresses. NAT-PMP exists for such nodes only (RFC 6886 §3.8).
    pub translates: bool,
    /// Mappings of all ports or all protocols are passed on to the path. A NAT cannot grant them (RFC 6887 §11.3).
    pub wildcards: bool,
    /// Shortest lifetime of PCP (RFC 6887 §15: at least 120 s).
    pub min_lifetime: Duration,
    /// Longest lifetime (RFC 6887 §15: at most 24 h).
    pub max_lifetime: Duration,
    /// Most mappings; a quarter is kept for hosts that have few.
    pub max_mappings: u32,
    /// Most mappings of one host, an IPv6 /64.
    pub max_of_host: u32,
    /// Most first requests of one host that wait for the path.
    pub max_waiting: u32,
    /// Most filters of one mapping.
    pub max_filters: usize,
    /// Requests in a second of all hosts that are looked at; 0: no limit.
    pub rate: u32,
    /// Requests in a second of one host that are looked at, with a quarter of it at once; 0: no limit.
    pub host_rate: u32,
    /// Requests with PREFER_FAILURE in a second of one host, which could be used to try all ports; 0: no limit.
    pub exact_rate: u32,
    /// Questions to the path in a second because of requests of all hosts; 0: no limit.
    pub open_rate: u32,
    /// The same because of requests of one host, with a quarter of it at once; 0: no limit.
    pub host_open_rate: u32,
    /// How long a request waits for the path before it is answered by NETWORK_FAILURE.
    pub patience: Duration,
    /// How long a lost mapping is asked for again before its client is told.
    pub repair: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pcp: true,
            nat_pmp: true,
            interfaces: Vec::new(),
            from: Vec::new(),
            translates: true,
            wildcards: false,
            min_lifetime: Duration::from_secs(120),
            max_lifetime: Duration::from_secs(86_400),
            max_mappings: 1_024,
            max_of_host: 64,
            max_waiting: 4,
            max_filters: 8,
            rate: 500,
            host_rate: 100,
            exact_rate: 8,
            open_rate: 50,
            host_open_rate: 20,
            patience: Duration::from_secs(10),
            repair: Duration::from_secs(30),
        }
    }
}

/// Settings with which the engine cannot run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Requests could not come in.
    #[error("interfaces: at least one")]
    Interfaces,
    /// No lifetime can be granted.
    #[error("min_lifetime: at least 1 s, and not more than max_lifetime, which is at most 24 h")]
    Lifetimes,
    /// A table has no place.
    #[error("max_mappings, max_of_host, max_waiting, max_filters: at least 1")]
    Limits,
    /// Requests would fail at once.
    #[error("patience, repair: at least 1 s")]
    Waits,
}

impl Config {
    /// Checks every range.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn validated(&self) -> Result<(), ConfigError> {
        let second = Duration::from_secs(1);
        let day = Duration::from_secs(86_400);
        let lifetimes =
            self.min_lifetime >= second && self.min_lifetime <= self.max_lifetime && self.max_lifetime <= day;
        let limits =
            self.max_mappings > 0 && self.max_of_host > 0 && self.max_waiting > 0 && self.max_filters > 0;
        for (right, error) in [
            (!self.interfaces.is_empty(), ConfigError::Interfaces),
            (lifetimes, ConfigError::Lifetimes),
            (limits, ConfigError::Limits),
            (self.patience >= second && self.repair >= second, ConfigError::Waits),
        ] {
            if !right {
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_their_range_are_refused() {
        let fit = || Config { interfaces: vec!["lan".to_owned()], ..Config::default() };
        assert_eq!(fit().validated(), Ok(()));
        for (wrong, error) in [
            (Config::default(), ConfigError::Interfaces),
            (Config { min_lifetime: Duration::ZERO, ..fit() }, ConfigError::Lifetimes),
            (Config { max_lifetime: Duration::from_secs(119), ..fit() }, ConfigError::Lifetimes),
            (Config { max_lifetime: Duration::from_secs(86_401), ..fit() }, ConfigError::Lifetimes),
            (Config { max_filters: 0, ..fit() }, ConfigError::Limits),
            (Config { patience: Duration::ZERO, ..fit() }, ConfigError::Waits),
        ] {
            assert_eq!(wrong.validated(), Err(error), "{wrong:?}");
        }
    }
}
