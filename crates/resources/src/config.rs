//! What an operator configures: links and their shares, rules who may ask for what, keys of tokens.
//!
//! The types are those of the configuration file. What a type alone can tell (a rate, a prefix) is refused while it is
//! read; what needs a look around by [`Config::validated`], which names the field.

use std::collections::BTreeSet;

use signalbox_core::security::Fingerprint;
use signalbox_core::traffic::{Excess, ServiceClass};

use crate::token::KeyConfig;
use crate::units::{Hours, Net, Ports, Rate, Services, Share, Span};

/// Name of a link in the configuration that stands for all that have none of their own, but for tunnels: what becomes of
/// their packets nobody here knows (RFC 2215 §3.1).
pub const ANY_LINK: &str = "*";

/// Settings of [`Resources`](crate::Resources).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Config {
    /// Interfaces at which there is something to reserve; without any, everything is refused.
    #[cfg_attr(feature = "serde", serde(rename = "link"))]
    pub links: Vec<LinkConfig>,
    /// Who may ask for what: the first rule that applies decides.
    #[cfg_attr(feature = "serde", serde(rename = "rule"))]
    pub rules: Vec<RuleConfig>,
    /// What becomes of requests to which no rule applies.
    pub default: Action,
    /// Whether a request may take from reservations whose defending priority is below its setup priority.
    pub preemption: bool,
    /// Most reservations that one request may take from; 1 to 1024.
    pub max_victims: u32,
    /// Most reservations at all interfaces; from 1.
    pub max_reservations: u32,
    /// Most filters of one reservation; 1 to 1024.
    pub max_filters: u32,
    /// Most reservations of one session at one interface; 1 to 1024.
    pub max_sharers: u32,
    /// Keys by which authorization tokens (RFC 5981) are verified.
    #[cfg_attr(feature = "serde", serde(rename = "key"))]
    pub keys: Vec<KeyConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            rules: Vec::new(),
            default: Action::Allow,
            preemption: false,
            max_victims: 16,
            max_reservations: 100_000,
            max_filters: 64,
            max_sharers: 16,
            keys: Vec::new(),
        }
    }
}

/// Yes or no.
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
    /// What it carries; none: as measured ([`Resources::measured`](crate::Resources::measured)).
    #[cfg_attr(feature = "serde", serde(default))]
    pub capacity: Option<Rate>,
    /// How much of that can be reserved at all; the rest is always left to best effort.
    #[cfg_attr(feature = "serde", serde(default = "default_reservable"))]
    pub reservable: Share,
    /// Octets of link header that each packet costs on top, 0 to 256; counted at the smallest packets that the
    /// request allows (RFC 2212 "Guidelines for Implementors").
    #[cfg_attr(feature = "serde", serde(default))]
    pub overhead: u32,
    /// What it delays packets by when nothing queues, 1 µs to 2^28 µs (RFC 2215 §3.4); none: not known.
    #[cfg_attr(feature = "serde", serde(default))]
    pub latency: Option<Span>,
    /// Octets of buffer for the bursts of all reservations; none: not limited.
    #[cfg_attr(feature = "serde", serde(default))]
    pub buffer: Option<u64>,
    /// Reservations that may have a queue of their own; the others share that of their service.
    #[cfg_attr(feature = "serde", serde(default = "default_own_queues"))]
    pub own_queues: u32,
    /// Most reservations; none: only `max_reservations` of all.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_reservations: Option<u32>,
    /// Controlled load (RFC 2211).
    #[cfg_attr(feature = "serde", serde(default))]
    pub controlled_load: ServiceConfig,
    /// Guaranteed service (RFC 2212).
    #[cfg_attr(feature = "serde", serde(default = "default_guaranteed"))]
    pub guaranteed: ServiceConfig,
    /// Services that are known by a code point, each by itself, unless `dscp` says otherwise.
    #[cfg_attr(feature = "serde", serde(default = "default_diffserv"))]
    pub diffserv: ServiceConfig,
    /// Single code points.
    #[cfg_attr(feature = "serde", serde(default))]
    pub dscp: Vec<DscpConfig>,
}

const fn default_reservable() -> Share {
    Share::Percent(75)
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
    /// A link of this name whose capacity, if any, is declared; all else by default.
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
            max_reservations: None,
            controlled_load: ServiceConfig::default(),
            guaranteed: default_guaranteed(),
            diffserv: default_diffserv(),
            dscp: Vec::new(),
        }
    }

    /// What is configured for a service.
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

/// One service at one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct ServiceConfig {
    /// Whether it can be had.
    pub offered: bool,
    /// Most of the link that it may have, within `reservable`; none: all of that.
    pub max_share: Option<Share>,
    /// Most that one reservation may have.
    pub max_each: Option<Rate>,
    /// Largest IP packet, octets; none: that of the interface, over which it is never.
    pub max_packet: Option<u32>,
    /// Where its packets queue.
    pub queue: Queue,
    /// What becomes of packets beyond the traffic specification.
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

/// Where packets of a reservation queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Queue {
    /// Each in its own; refused when there is none left.
    Own,
    /// All in the queue of the service.
    Shared,
    /// Each in its own while there are any left, then in that of the service.
    Auto,
}

/// What becomes of packets beyond the traffic specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ExcessAction {
    /// They are dropped.
    Drop,
    /// They go as best effort, as RFC 2211 and RFC 2212 recommend.
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

/// A single code point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct DscpConfig {
    /// 0 to 63.
    pub code: u8,
    /// How it is treated.
    #[cfg_attr(feature = "serde", serde(default = "default_diffserv"))]
    pub service: ServiceConfig,
}

/// A rule: it applies if everything that it names does; what it leaves out always applies. A rule that allows applies
/// only to requests of which **all** packets are named; one that denies applies if **any** of them is, so that asking for
/// more than is forbidden is no way around it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RuleConfig {
    /// For people; every refusal says it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub name: String,
    /// What it does.
    pub action: Action,

    /// Who: addresses that the request may come from.
    #[cfg_attr(feature = "serde", serde(default))]
    pub from: Vec<Net>,
    /// Who: authenticated peers, by fingerprint (64 hexadecimal digits), by DNS name (`"r1.example"`, or `"*.example"`
    /// for one label), or `"any"`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub peer: Vec<String>,
    /// Who: authorizing entities of verified tokens, or `"any"`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub token: Vec<String>,
    /// Who: names that the request gives for its user or application (RFC 3182), or `"any"` for those that give one. Nobody
    /// proves them: where strangers can ask, anybody can say anything.
    #[cfg_attr(feature = "serde", serde(default))]
    pub user: Vec<String>,

    /// What: services.
    #[cfg_attr(feature = "serde", serde(default))]
    pub service: Vec<Services>,
    /// What: names of outgoing interfaces.
    #[cfg_attr(feature = "serde", serde(default))]
    pub interface: Vec<String>,
    /// What: where packets come from.
    #[cfg_attr(feature = "serde", serde(default))]
    pub source: Vec<Net>,
    /// What: where packets go to.
    #[cfg_attr(feature = "serde", serde(default))]
    pub destination: Vec<Net>,
    /// What: IP protocols, by number.
    #[cfg_attr(feature = "serde", serde(default))]
    pub protocol: Vec<u8>,
    /// What: destination ports.
    #[cfg_attr(feature = "serde", serde(default))]
    pub ports: Vec<Ports>,

    /// When: days of the week, in UTC.
    #[cfg_attr(feature = "serde", serde(default))]
    pub days: Vec<Day>,
    /// When: hours of the day, in UTC.
    #[cfg_attr(feature = "serde", serde(default))]
    pub hours: Option<Hours>,

    /// How much: rate of one reservation.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_rate: Option<Rate>,
    /// How much: burst of one reservation, octets.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_burst: Option<u32>,
    /// How much: rate of all reservations of one asker at one interface under this rule.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_total: Option<Rate>,
    /// How much: reservations of one asker at one interface under this rule.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_reservations: Option<u32>,
    /// How strong: setup priority.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_setup_priority: Option<u16>,
    /// How strong: defending priority.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_defending_priority: Option<u16>,
    /// How long without a refresh.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_lifetime: Option<Span>,
}

impl RuleConfig {
    /// A rule that always applies.
    #[must_use]
    pub fn new(name: &str, action: Action) -> Self {
        Self {
            name: name.to_owned(),
            action,
            from: Vec::new(),
            peer: Vec::new(),
            token: Vec::new(),
            user: Vec::new(),
            service: Vec::new(),
            interface: Vec::new(),
            source: Vec::new(),
            destination: Vec::new(),
            protocol: Vec::new(),
            ports: Vec::new(),
            days: Vec::new(),
            hours: None,
            max_rate: None,
            max_burst: None,
            max_total: None,
            max_reservations: None,
            max_setup_priority: None,
            max_defending_priority: None,
            max_lifetime: None,
        }
    }

    const fn has_limits(&self) -> bool {
        self.max_rate.is_some()
            || self.max_burst.is_some()
            || self.max_total.is_some()
            || self.max_reservations.is_some()
            || self.max_setup_priority.is_some()
            || self.max_defending_priority.is_some()
            || self.max_lifetime.is_some()
    }
}

/// Day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[expect(missing_docs, reason = "they are what they are")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// A setting that cannot be, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// Where it stands: `rule[3] 'guests'.peer`; the first rule is 1.
    pub field: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl ConfigError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

impl Config {
    /// One link, everything else by default.
    #[must_use]
    pub fn of_link(interface: &str, capacity: Rate) -> Self {
        Self { links: vec![LinkConfig::new(interface, Some(capacity))], ..Self::default() }
    }

    /// The settings of an interface: its own, or those of all that have none.
    #[must_use]
    pub fn link(&self, interface: &str) -> Option<&LinkConfig> {
        self.named(interface).or_else(|| self.named(ANY_LINK))
    }

    /// The settings of this very name.
    pub(crate) fn named(&self, name: &str) -> Option<&LinkConfig> {
        self.links.iter().find(|link| link.interface == name)
    }

    /// Checks all that the types alone cannot.
    ///
    /// # Errors
    /// The first setting that cannot be.
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

impl RuleConfig {
    fn validated(&self, at: &str) -> Result<(), ConfigError> {
        let fault = |field: &str, problem: String| Err(ConfigError::new(format!("{at}.{field}"), problem));
        for peer in &self.peer {
            let fingerprint = peer.parse::<Fingerprint>().is_ok();
            if !fingerprint && !is_dns_pattern(peer) && peer != ANY_NAME {
                return fault(
                    "peer",
                    format!(
                        "{peer:?} is neither a fingerprint (64 hexadecimal digits) nor a DNS name nor \"any\""
                    ),
                );
            }
        }
        if let Some(token) = self.token.iter().find(|token| token.is_empty()) {
            return fault("token", format!("{token:?}: the name of an authorizing entity, or \"any\""));
        }
        if let Some(user) = self.user.iter().find(|user| user.is_empty()) {
            return fault("user", format!("{user:?}: a name of a user or application, or \"any\""));
        }
        if self.ports.is_empty() || !self.protocol.is_empty() {
            // Ports mean nothing without the protocols that have them.
        } else {
            return fault("ports", "needs protocol, for instance protocol = [6, 17]".to_owned());
        }
        if self.action == Action::Deny && self.has_limits() {
            return fault("action", "\"deny\" takes no limits: leave them out, or \"allow\"".to_owned());
        }
        Ok(())
    }
}

/// Everybody who has any name of this kind.
pub(crate) const ANY_NAME: &str = "any";

fn is_dns_pattern(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    text.len() <= 253
        && text.contains('.')
        && name.split('.').all(|label| {
            !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        })
}
