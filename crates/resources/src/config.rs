//! The configuration: links and their shares, policy rules, and keys of tokens.
//!
//! Values that a type can check alone (a rate, a prefix) are checked while they are read. [`Config::validated`] checks the
//! rest, and names the field.

use std::collections::BTreeSet;

use signalbox_core::ReserverId;
use signalbox_core::traffic::{Excess, ServiceClass};

pub use crate::opening::{OUTSIDE, Opening, Zones};
use crate::request::Proof;
use crate::token::KeyConfig;
use crate::units::{Hours, Identity, Net, Ports, Rate, Services, Share, Span, Trusted};

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
    /// Requesters that are allowed where the default is to deny. Neighbours among them speak for the requesters that their
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

/// A policy rule. It applies if all its conditions match; a condition that is left out always matches. An allowing
/// rule applies only to requests of which **all** packets match. A denying rule applies if **any** packet matches, so
/// that a request for more than is forbidden cannot avoid it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RuleConfig {
    /// Name, for people. Each refusal contains it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub name: String,
    /// The action.
    pub action: Action,

    /// Request: what is opened through a firewall or NAT. A rule with this condition is for such requests only, a rule
    /// without it for reservations only.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub opens: Vec<Opening>,
    /// Request: zones of the interface by which the packets come in.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub from_zone: Vec<String>,
    /// Request: zones of the interface by which the packets leave.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub to_zone: Vec<String>,
    /// Request: the signaling protocols.
    #[cfg_attr(feature = "serde", serde(default))]
    pub signaling: Vec<ReserverId>,
    /// Requester: its address, as far as it is proved: that of the neighbour or, if the neighbour is trusted, the claimed one.
    #[cfg_attr(feature = "serde", serde(default))]
    pub from: Vec<Net>,
    /// Requester: the address of the neighbour.
    #[cfg_attr(feature = "serde", serde(default))]
    pub via: Vec<Net>,
    /// Requester: the least proof that an allowing rule needs; none: that of the configuration for addresses, else nothing.
    #[cfg_attr(feature = "serde", serde(default))]
    pub proof: Option<Proof>,
    /// Requester: authenticated peers, by the identity that they proved.
    #[cfg_attr(feature = "serde", serde(default))]
    pub peer: Vec<Identity>,
    /// Requester: authorizing entities of verified tokens, or `"any"`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub token: Vec<String>,
    /// Requester: names of user or application in the request (RFC 3182), or `"any"` for requests with a name. They
    /// are not authenticated: do not rely on them where strangers can send requests.
    #[cfg_attr(feature = "serde", serde(default))]
    pub user: Vec<String>,

    /// Request: services.
    #[cfg_attr(feature = "serde", serde(default))]
    pub service: Vec<Services>,
    /// Request: names of egress interfaces.
    #[cfg_attr(feature = "serde", serde(default))]
    pub interface: Vec<String>,
    /// Request: source addresses of packets.
    #[cfg_attr(feature = "serde", serde(default))]
    pub source: Vec<Net>,
    /// Request: destination addresses of packets.
    #[cfg_attr(feature = "serde", serde(default))]
    pub destination: Vec<Net>,
    /// Request: IP protocols, by number.
    #[cfg_attr(feature = "serde", serde(default))]
    pub protocol: Vec<u8>,
    /// Request: destination ports.
    #[cfg_attr(feature = "serde", serde(default))]
    pub ports: Vec<Ports>,

    /// Time: days of the week, in UTC.
    #[cfg_attr(feature = "serde", serde(default))]
    pub days: Vec<Day>,
    /// Time: hours of the day, in UTC.
    #[cfg_attr(feature = "serde", serde(default))]
    pub hours: Option<Hours>,

    /// Limit: rate of one reservation.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_rate: Option<Rate>,
    /// Limit: burst of one reservation, octets.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_burst: Option<u32>,
    /// Limit: rate of all reservations of one requester at one interface under this rule.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_total: Option<Rate>,
    /// Limit: number of reservations of one requester at one interface under this rule.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_reservations: Option<u32>,
    /// Limit: setup priority.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_setup_priority: Option<u16>,
    /// Limit: defending priority.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_defending_priority: Option<u16>,
    /// Limit: lifetime without a refresh.
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
            opens: Vec::new(),
            from_zone: Vec::new(),
            to_zone: Vec::new(),
            signaling: Vec::new(),
            from: Vec::new(),
            via: Vec::new(),
            proof: None,
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

impl RuleConfig {
    fn validated(&self, at: &str) -> Result<(), ConfigError> {
        let fault = |field: &str, problem: String| Err(ConfigError::new(format!("{at}.{field}"), problem));
        if self.peer.contains(&Identity::Any) {
            let problem = "\"any\" matches every request, as does a rule without peer: \"authenticated\"";
            return fault("peer", problem.to_owned());
        }
        if let Some(token) = self.token.iter().find(|token| token.is_empty()) {
            return fault("token", format!("{token:?}: the name of an authorizing entity, or \"any\""));
        }
        if let Some(user) = self.user.iter().find(|user| user.is_empty()) {
            return fault("user", format!("{user:?}: a name of a user or application, or \"any\""));
        }
        for (field, zones) in [("from_zone", &self.from_zone), ("to_zone", &self.to_zone)] {
            if self.opens.is_empty() && !zones.is_empty() {
                return fault(
                    field,
                    "is for passages: add opens, for instance opens = [\"between\"]".to_owned(),
                );
            }
        }
        if !self.from_zone.is_empty() && self.opens.iter().any(|opening| opening.is_of_receiver()) {
            return fault("from_zone", SENDERS_ANYWHERE.to_owned());
        }
        if self.ports.is_empty() || !self.protocol.is_empty() {
            // Ports have a meaning only with a protocol that has them.
        } else {
            return fault("ports", "needs ip_protocol, for instance ip_protocol = [\"udp\"]".to_owned());
        }
        if self.action == Action::Deny && self.proof.is_some() {
            let problem = "\"deny\" matches whatever is proved: leave it out, or \"allow\"";
            return fault("proof", problem.to_owned());
        }
        if self.proof == Some(Proof::None) {
            return fault("proof", "\"none\": link, handshake or identity".to_owned());
        }
        if self.action == Action::Deny && self.has_limits() {
            return fault("action", "\"deny\" takes no limits: leave them out, or \"allow\"".to_owned());
        }
        Ok(())
    }
}

/// Why a rule with `reserve` or `block` has no `from_zone`.
pub const SENDERS_ANYWHERE: &str =
    "\"reserve\" and \"block\" are for senders anywhere: write a rule of its own for them, without from_zone";

/// Whether the list is `"any"`.
pub(crate) const ANY_NAME: &str = "any";
