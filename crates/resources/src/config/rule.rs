//! One policy rule: its conditions, its limits, and which of them go together.

use signalbox_core::ReserverId;

use super::{Action, ConfigError};
use crate::opening::Opening;
use crate::request::Proof;
use crate::units::{Hours, Identity, Net, Ports, Rate, Services, Span};

/// Why a rule with `reserve` or `block` has no `from_zone`.
pub const SENDERS_ANYWHERE: &str =
    "\"reserve\" and \"block\" are for senders anywhere: write a rule of its own for them, without from_zone";

/// Entry of `token` and `user` that stands for any of them.
pub(crate) const ANY_NAME: &str = "any";

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
    /// Requester: its address, as far as it is proved: that of the neighbor or, if the neighbor is trusted, the claimed one.
    #[cfg_attr(feature = "serde", serde(default))]
    pub from: Vec<Net>,
    /// Requester: the address of the neighbor.
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

    /// Checks everything that the types alone cannot check. `at`: the place of the rule in the configuration.
    pub(super) fn validated(&self, at: &str) -> Result<(), ConfigError> {
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
