//! Settings of the engine.

use core::time::Duration;
use std::collections::BTreeMap;

/// Longest refresh period.
const LONGEST: Duration = Duration::from_secs(24 * 86_400);

/// A node's settings. Everything that a peer can make grow is limited here.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Config {
    /// Settings of every interface that is not in [`Self::interfaces`].
    pub interface: InterfaceConfig,
    /// Settings of single interfaces, by name.
    pub interfaces: BTreeMap<String, InterfaceConfig>,
    /// Refresh reduction, integrity and Hello.
    pub neighbors: super::neighbor::Config,
    /// Keys that sign and verify messages (RFC 2747).
    pub keys: Vec<super::IntegrityKey>,
    /// *Kb*: lifetime of blockade state in refresh periods (RFC 2205 §3.5), at least 1. The RFC has no default.
    pub blockade_multiplier: u32,
    /// Staged refreshes in a second, and in one burst, at most. Further ones are left out.
    pub staged_rate: u32,
    /// A stronger request may reduce a reservation instead of taking all of it, and receivers of this node lower their
    /// requests to what is left (RFC 4495).
    pub reduction: bool,
    /// Multicast routing builds trees per source. With shared trees no SCOPE is sent (RFC 2205 §3.4).
    pub source_trees: bool,
    /// DREQs and DREPs (RFC 2745) that are handled in a second, and in one burst, at most; 0: they are not supported.
    pub diagnostics: u32,
    /// Microseconds since 1970 at the start of the engine's clock, for the arrival times in diagnostics.
    pub wall_clock_us: u64,
    /// Maximum number of sessions, up to 8,388,608.
    pub max_sessions: u32,
    /// Maximum number of senders in all sessions.
    pub max_senders: u32,
    /// Maximum number of senders in one session.
    pub max_senders_per_session: u16,
    /// Maximum number of reservations in all sessions at all interfaces.
    pub max_reservations: u32,
    /// Maximum number of next hops that share one reservation.
    pub max_next_hops: u16,
    /// Maximum octets of POLICY_DATA and unknown objects that are kept of one message. A longer ADSPEC is kept without the
    /// services that this node does not know.
    pub max_carried: u16,
    /// Maximum number of sessions that applications of this node register.
    pub max_applications: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interface: InterfaceConfig::default(),
            interfaces: BTreeMap::new(),
            neighbors: super::neighbor::Config::default(),
            keys: Vec::new(),
            blockade_multiplier: 4,
            staged_rate: 1000,
            reduction: true,
            source_trees: true,
            diagnostics: 50,
            wall_clock_us: 0,
            max_sessions: 100_000,
            max_senders: 200_000,
            max_senders_per_session: 1024,
            max_reservations: 200_000,
            max_next_hops: 64,
            max_carried: 1024,
            max_applications: 10_000,
        }
    }
}

/// Settings of an interface.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct InterfaceConfig {
    /// RSVP is on at the interface (RFC 2205 §3.11.4).
    pub enabled: bool,
    /// *R*: refresh period, 1 ms to 24 days. Each interval is a random value from 0.5 R to 1.5 R (RFC 2205 §3.7).
    #[cfg_attr(feature = "serde", serde(with = "seconds"))]
    pub refresh: Duration,
    /// *K*: state survives the loss of K - 1 refreshes (RFC 2205 §3.7), at least 1.
    pub cleanup: u32,
    /// Longest lifetime of state, whatever refresh period the neighbor announces. State of neighbors whose period is
    /// not longer than `refresh` never ends sooner than RFC 2205 §3.7 says.
    #[cfg_attr(feature = "serde", serde(with = "seconds"))]
    pub max_lifetime: Duration,
    /// *Slew.Max*: the part of itself by which R may grow from one period to the next (RFC 2205 §3.7).
    pub slew_max: f64,
    /// *W*: delay from a change of routes to the Path that follows it (RFC 2205 §3.6).
    #[cfg_attr(feature = "serde", serde(with = "seconds"))]
    pub repair_delay: Duration,
    /// Whether there are hops without RSVP behind the interface; `None`: the TTLs of messages decide (RFC 2205 §3.8).
    /// With either value, messages may have any TTL ([`super::neighbor::Trust::distant_hops`]).
    pub non_rsvp: Option<bool>,
    /// Staged refreshes after a change; `None`: the next refresh comes after the refresh period. Where messages have a
    /// MESSAGE_ID, its retransmissions (RFC 2961 §6) take the place of staged refreshes.
    pub staged: Option<Staged>,
    /// TOS octet or traffic class of messages.
    pub tos: u8,
    /// Refresh reduction, integrity and Hello at the interface; `None`: as at the others.
    pub neighbors: Option<super::neighbor::Interface>,
}

impl Default for InterfaceConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            refresh: Duration::from_secs(30),
            cleanup: 3,
            max_lifetime: Duration::from_secs(600),
            slew_max: 0.3,
            repair_delay: Duration::from_secs(2),
            non_rsvp: None,
            staged: None,
            tos: 0xc0, // class selector 6, network control
            neighbors: None,
        }
    }
}

/// Staged refresh timers (draft-pan-rsvp-timer-00): a change is sent again after `first`, then after intervals that
/// grow by `factor` up to the refresh period.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Staged {
    /// *Rf*: time to the first repetition.
    #[cfg_attr(feature = "serde", serde(with = "seconds"))]
    pub first: Duration,
    /// 1 + *Delta*: growth from one interval to the next, more than 1.
    pub factor: f64,
    /// PathTears and ResvTears without a MESSAGE_ID are sent again too, up to the refresh period. RFC 2205 demands one.
    pub tears: bool,
    /// State that all next hops acknowledge by RFC 2961 is refreshed less often, down to once in [`Self::slow`].
    pub slow_refresh: bool,
    /// *Rs*: the refresh period of such state, up to 24 days. It is approached by steps of *Slew.Max*, each of which is
    /// acknowledged. A value below the refresh period has no effect.
    #[cfg_attr(feature = "serde", serde(with = "seconds"))]
    pub slow: Duration,
}

impl Default for Staged {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(3),
            factor: 1.3,
            tears: false,
            slow_refresh: false,
            slow: Duration::from_secs(900),
        }
    }
}

impl Staged {
    fn problem(&self) -> Option<(&'static str, &'static str)> {
        if self.first < Duration::from_millis(10) {
            return Some(("staged.first", "under 10 ms"));
        }
        if self.slow > LONGEST {
            return Some(("staged.slow", "over 24 days"));
        }
        let grows = self.factor > 1.0 && self.factor.is_finite();
        (!grows).then_some(("staged.factor", "not a number over 1"))
    }
}

/// A setting that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// Which setting.
    pub field: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Config {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that is not allowed.
    pub fn validated(&self) -> Result<(), ConfigError> {
        let fault = |field: String, problem| Err(ConfigError { field, problem });
        let named = self.interfaces.iter().map(|(name, one)| (format!("interfaces.{name}"), one));
        for (field, one) in core::iter::once(("interface".to_owned(), &self.interface)).chain(named) {
            if one.refresh < Duration::from_millis(1) || one.refresh > LONGEST {
                return fault(format!("{field}.refresh"), "not from 1 ms to 24 days");
            }
            if one.cleanup == 0 {
                return fault(format!("{field}.cleanup"), "0: state would not survive to its refresh");
            }
            if !(one.slew_max > 0.0 && one.slew_max.is_finite()) {
                return fault(format!("{field}.slew_max"), "not a number over 0");
            }
            if one.max_lifetime.is_zero() {
                return fault(format!("{field}.max_lifetime"), "0: state would end at once");
            }
            if one.repair_delay > LONGEST {
                return fault(format!("{field}.repair_delay"), "over 24 days");
            }
            if let Some((own, problem)) = one.staged.and_then(|own| own.problem()) {
                return fault(format!("{field}.{own}"), problem);
            }
            if let Some((own, problem)) = one.neighbors.and_then(|own| own.problem()) {
                return fault(format!("{field}.{own}"), problem);
            }
        }
        if let Some((own, problem)) = self.neighbors.interface.problem() {
            return fault(format!("neighbors.{own}"), problem);
        }
        if let Some((at, problem)) = super::keyring::problem(&self.keys) {
            return fault(format!("keys.{at}"), problem);
        }
        if self.max_sessions > super::session::MOST {
            return fault("max_sessions".to_owned(), "over 8388608");
        }
        if self.blockade_multiplier == 0 {
            return fault("blockade_multiplier".to_owned(), "0: a blockade would not hold");
        }
        Ok(())
    }

    /// The settings of an interface.
    #[must_use]
    pub fn of_interface(&self, name: &str) -> &InterfaceConfig {
        self.interfaces.get(name).unwrap_or(&self.interface)
    }
}

/// Durations are written as seconds.
#[cfg(feature = "serde")]
pub(super) mod seconds {
    use core::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(in crate::engine) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(value.as_secs_f64())
    }

    pub(in crate::engine) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}
