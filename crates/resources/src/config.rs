//! The configuration: links and their shares, policy rules, and keys of tokens.
//!
//! Values that a type can check alone (a rate, a prefix) are checked while they are read. [`Config::validated`] checks the
//! rest, and names the field.

mod rule;

use std::collections::BTreeSet;

use signalbox_core::traffic::{Excess, ServiceClass};

pub(crate) use self::rule::ANY_NAME;
pub use self::rule::{Day, RuleConfig, SENDERS_ANYWHERE};
pub use crate::opening::{OUTSIDE, Opening, Zones};
use crate::request::Proof;
use crate::token::KeyConfig;
use crate::units::{Rate, Share, Span, Trusted};

/// Link name in the configuration that stands for all interfaces without a link of their own, except tunnels. The
/// links that the packets of a tunnel use are not known here (RFC 2215 §3.1).
pub const ANY_LINK: &str = "*";

/// Settings of [`Resources`](crate::Resources).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Config {
    /// Links with resources to reserve. Without any, every request is refused.
    pub links: Vec<LinkConfig>,
    /// Zones of interfaces, which rules about passages name.
    pub zones: Zones,
    /// Policy rules. The first rule that applies decides.
    pub rules: Vec<RuleConfig>,
    /// Action for requests to which no rule applies.
    pub default: Action,
    /// Requesters that are allowed where the default is to deny. Neighbors among them speak for the requesters that their
    /// messages name.
    pub trusted: Vec<Trusted>,
    /// The least proof of an address in `trusted`, and in `from` and `via` of rules that do not say; not `None`.
    pub proof: Proof,
    /// Whether who asked gets the text of a refusal: the name of the rule, or the limit with its numbers.
    pub report_rule: bool,
    /// Whether a request may preempt reservations whose defending priority is below its setup priority.
    pub preemption: bool,
    /// Most reservations that one request may preempt; 1 to 1024.
    pub max_victims: u32,
    /// Most reservations at all interfaces together; 1 or more.
    pub max_reservations: u32,
    /// Most filters of one reservation; 1 to 1024.
    pub max_filters: u32,
    /// Most reservations of one session at one interface; 1 to 1024.
    pub max_sharers: u32,
    /// Most passages through a firewall or NAT; 1 or more. A quarter is kept for requesters that hold few.
    pub max_pinholes: u32,
    /// Keys that verify authorization tokens (RFC 5981).
    pub keys: Vec<KeyConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            zones: Zones::default(),
            rules: Vec::new(),
            default: Action::Allow,
            trusted: Vec::new(),
            proof: Proof::Link,
            report_rule: false,
            preemption: false,
            max_victims: 16,
            max_reservations: 100_000,
            max_filters: 64,
            max_sharers: 16,
            max_pinholes: 100_000,
            keys: Vec::new(),
        }
    }
}

/// The action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Action {
    /// The request goes on to admission control.
    Allow,
    /// It is refused.
    Deny,
}

/// One outgoing link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct LinkConfig {
    /// Name of the interface; [`ANY_LINK`] for all that are not named.
    pub interface: String,
    /// Capacity; none: as measured ([`Resources::measured`](crate::Resources::measured)).
    #[cfg_attr(feature = "serde", serde(default))]
    pub capacity: Option<Rate>,
    /// Share of the capacity that can be reserved. The rest is always left to best effort.
    #[cfg_attr(feature = "serde", serde(default = "default_reservable"))]
    pub reservable: Share,
    /// Octets of link header of each packet, 0 to 256. Headers count for packets of the smallest size that the request
    /// allows (RFC 2212 "Guidelines for Implementors").
    #[cfg_attr(feature = "serde", serde(default))]
    pub overhead: u32,
    /// Latency of a packet without queueing, 1 µs to 2^28 µs (RFC 2215 §3.4); none: not known.
    #[cfg_attr(feature = "serde", serde(default))]
    pub latency: Option<Span>,
    /// Octets of buffer for the bursts of all reservations; none: not limited.
    #[cfg_attr(feature = "serde", serde(default))]
    pub buffer: Option<u64>,
    /// Number of reservations with a queue of their own. The others share the queue of their service.
    #[cfg_attr(feature = "serde", serde(default = "default_own_queues"))]
    pub own_queues: u32,
    /// The least rate that each reservation counts for, so that many small ones use up the link and not its places;
    /// default: 0.
    #[cfg_attr(feature = "serde", serde(default))]
    pub min_rate: Rate,
    /// Most reservations at this link; none: only `max_reservations` limits them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_reservations: Option<u32>,
    /// Controlled load (RFC 2211).
    #[cfg_attr(feature = "serde", serde(default))]
    pub controlled_load: ServiceConfig,
    /// Guaranteed service (RFC 2212).
    #[cfg_attr(feature = "serde", serde(default = "default_guaranteed"))]
    pub guaranteed: ServiceConfig,
    /// Services with a code point, each by itself, unless `dscp` has an entry.
    #[cfg_attr(feature = "serde", serde(default = "default_diffserv"))]
    pub diffserv: ServiceConfig,
    /// Settings of single code points.
    #[cfg_attr(feature = "serde", serde(default))]
    pub dscp: Vec<DscpConfig>,
}

const fn default_reservable() -> Share {
    Share::percent(75)
}

const fn default_own_queues() -> u32 {
    1000
}

const fn default_guaranteed() -> ServiceConfig {
    ServiceConfig { queue: Queue::Own, ..ServiceConfig::DEFAULT }
}

const fn default_diffserv() -> ServiceConfig {
    ServiceConfig { queue: Queue::Shared, ..ServiceConfig::DEFAULT }
}

impl LinkConfig {
    /// A link with this name and, if given, this capacity. All other settings are defaults.
    #[must_use]
    pub fn new(interface: &str, capacity: Option<Rate>) -> Self {
        Self {
            interface: interface.to_owned(),
            capacity,
            reservable: default_reservable(),
            overhead: 0,
            latency: None,
            buffer: None,
            own_queues: default_own_queues(),
            min_rate: Rate(0),
            max_reservations: None,
            controlled_load: ServiceConfig::default(),
            guaranteed: default_guaranteed(),
            diffserv: default_diffserv(),
            dscp: Vec::new(),
        }
    }

    /// The settings of a service.
    #[must_use]
    pub fn service(&self, service: ServiceClass) -> &ServiceConfig {
        match service {
            ServiceClass::ControlledLoad => &self.controlled_load,
            ServiceClass::Guaranteed => &self.guaranteed,
            ServiceClass::Dscp(code) => {
                self.dscp.iter().find(|dscp| dscp.code == code).map_or(&self.diffserv, |dscp| &dscp.service)
            }
        }
    }
}

/// Settings of one service at one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct ServiceConfig {
    /// Whether the service is offered.
    pub offered: bool,
    /// Most of the link for the service, within `reservable`; none: all of it.
    pub max_share: Option<Share>,
    /// Largest rate of one reservation.
    pub max_each: Option<Rate>,
    /// Largest IP packet, octets; none: that of the interface, which is always the upper limit.
    pub max_packet: Option<u32>,
    /// Queue of its packets.
    pub queue: Queue,
    /// Treatment of packets beyond the traffic specification.
    pub excess: ExcessAction,
}

impl ServiceConfig {
    const DEFAULT: Self = Self {
        offered: true,
        max_share: None,
        max_each: None,
        max_packet: None,
        queue: Queue::Auto,
        excess: ExcessAction::BestEffort,
    };
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The queue of the packets of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Queue {
    /// Each reservation has its own queue. Requests are refused when no queue is left.
    Own,
    /// All reservations share the queue of the service.
    Shared,
    /// Each reservation has its own queue while queues are left, then it uses the queue of the service.
    Auto,
}

/// The treatment of packets beyond the traffic specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ExcessAction {
    /// They are dropped.
    Drop,
    /// They are sent as best effort, as RFC 2211 and RFC 2212 recommend.
    BestEffort,
}

impl From<ExcessAction> for Excess {
    fn from(action: ExcessAction) -> Self {
        match action {
            ExcessAction::Drop => Self::Drop,
            ExcessAction::BestEffort => Self::BestEffort,
        }
    }
}

/// Settings of a single code point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct DscpConfig {
    /// The code point, 0 to 63.
    pub code: u8,
    /// Its settings.
    #[cfg_attr(feature = "serde", serde(default = "default_diffserv"))]
    pub service: ServiceConfig,
}

/// A setting that is invalid, with the valid values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// Its place: `rule[3] 'guests'.peer`; the first rule is 1.
    pub field: String,
    /// The error and the valid values.
    pub problem: String,
}

impl ConfigError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

impl Config {
    /// A configuration of one link. All other settings are defaults.
    #[must_use]
    pub fn of_link(interface: &str, capacity: Rate) -> Self {
        Self { links: vec![LinkConfig::new(interface, Some(capacity))], ..Self::default() }
    }

    /// The smallest capacity that a link has, octets a second; `None`: no link has one.
    #[must_use]
    pub fn slowest_link(&self) -> Option<u64> {
        self.links.iter().filter_map(|link| link.capacity).map(|rate| rate.0).min()
    }

    /// The settings of an interface: its own, or those of [`ANY_LINK`].
    #[must_use]
    pub fn link(&self, interface: &str) -> Option<&LinkConfig> {
        self.named(interface).or_else(|| self.named(ANY_LINK))
    }

    /// The settings of an interface; those of [`ANY_LINK`] are not for tunnels.
    pub(crate) fn of_interface(&self, interface: &str, tunnel: bool) -> Option<&LinkConfig> {
        if tunnel { self.named(interface) } else { self.link(interface) }
    }

    /// The settings with exactly this name.
    pub(crate) fn named(&self, name: &str) -> Option<&LinkConfig> {
        self.links.iter().find(|link| link.interface == name)
    }

    /// Checks everything that the types alone cannot check.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn validated(&self) -> Result<(), ConfigError> {
        for (name, value) in [
            ("max_victims", self.max_victims),
            ("max_filters", self.max_filters),
            ("max_sharers", self.max_sharers),
        ] {
            if !(1..=1024).contains(&value) {
                return Err(ConfigError::new(name, "out of range: 1 to 1024"));
            }
        }
        if self.max_reservations == 0 {
            return Err(ConfigError::new("max_reservations", "out of range: from 1"));
        }
        if self.max_pinholes == 0 {
            return Err(ConfigError::new("max_pinholes", "out of range: from 1"));
        }
        if self.proof == Proof::None {
            return Err(ConfigError::new("proof", "\"none\": link, handshake or identity"));
        }
        let mut names = BTreeSet::new();
        for (number, link) in (1..).zip(&self.links) {
            let at = format!("link[{number}] '{}'", link.interface);
            if link.interface.is_empty() {
                return Err(ConfigError::new(
                    format!("link[{number}].interface"),
                    "empty: the name of an interface, or \"*\" for all that are not named",
                ));
            }
            if !names.insert(&link.interface) {
                return Err(ConfigError::new(format!("{at}.interface"), "named twice"));
            }
            link.validated(&at)?;
        }
        for (number, rule) in (1..).zip(&self.rules) {
            let at = if rule.name.is_empty() {
                format!("rule[{number}]")
            } else {
                format!("rule[{number}] '{}'", rule.name)
            };
            rule.validated(&at)?;
        }
        crate::token::Keys::new(&self.keys).map(drop)
    }
}

impl LinkConfig {
    fn validated(&self, at: &str) -> Result<(), ConfigError> {
        let fault = |field: &str, problem: &str| Err(ConfigError::new(format!("{at}.{field}"), problem));
        if self.capacity == Some(Rate(0)) {
            return fault("capacity", "out of range: from 8bit; leave it out to have it measured");
        }
        if self.overhead > 256 {
            return fault("overhead", "out of range: 0 to 256 octets");
        }
        if self.latency.is_some_and(|Span(latency)| !(1..=1 << 28).contains(&latency.as_micros())) {
            return fault("latency", "out of range: 1us to 268s");
        }
        for (field, service) in [
            ("controlled_load.max_packet", &self.controlled_load),
            ("guaranteed.max_packet", &self.guaranteed),
            ("diffserv.max_packet", &self.diffserv),
        ] {
            if service.max_packet == Some(0) {
                return fault(field, "out of range: from 1");
            }
        }
        let mut codes = BTreeSet::new();
        for dscp in &self.dscp {
            if dscp.code > 63 {
                return fault("dscp.code", "out of range: 0 to 63");
            }
            if !codes.insert(dscp.code) {
                return fault("dscp.code", "named twice");
            }
        }
        let guaranteed_shared = self.guaranteed.offered && self.guaranteed.queue == Queue::Shared;
        if guaranteed_shared {
            return fault("guaranteed.queue", "\"shared\" cannot hold a delay bound: \"own\" or \"auto\"");
        }
        Ok(())
    }
}
