//! Ports of entry: where packets come into a node and leave it.
//!
//! A protocol asks for the entries that it uses ([`EntryRequest`]). The driver opens them and depends on no
//! other part of the protocol. Byte streams are not packets; [`crate::node`] defines a contract of their own
//! for them.

use core::net::Ipv4Addr;

use crate::metrics::Subsystem;
use crate::packet::router_alert;

/// A port of entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Entry {
    /// UDP datagrams to this port. The payload follows the UDP header.
    Udp(u16),
    /// Packets of this IP protocol. The payload follows the IP header, its options and extension headers. The
    /// ports are 0.
    Ip(u8),
    /// ICMP and ICMPv6 Echo Requests and Echo Replies whose data begin with these four octets (big-endian), and
    /// Destination Unreachables that quote such a request; an interception rule does not apply to these. Any ICMP
    /// message can be sent. The payload is the whole ICMP message from its type octet on. The driver computes the checksum of sent
    /// messages. The ports are 0.
    IcmpEcho(u32),
}

/// What a protocol asks of the driver: an entry, and rules for the packets to intercept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRequest {
    /// The port of entry.
    pub entry: Entry,
    /// The entry as a part of the program, in metrics and in messages of errors.
    pub subsystem: Subsystem,
    /// Whether packets are received. An entry that only sends binds no port.
    pub receive: bool,
    /// Rules for packets to other nodes that this node receives instead of forwarding them: those that one of the rules
    /// takes.
    pub intercept: Vec<Intercept>,
    /// Conditions on the payload of packets that this node sends and that the kernel's connection tracking must not follow;
    /// they meet each. Empty: it follows all.
    pub untracked: Vec<Match>,
    /// Whether reports of ICMP about packets that could not be delivered are wanted (`Undeliverable` of
    /// [`crate::node::InputOf`]). Only entries of UDP have them.
    pub reports: bool,
    /// Another protocol may have the same entry. Then this one is asked first which packets it takes.
    pub shared: bool,
    /// The interfaces by which packets come in: with ICMP Echo those to intercept, with UDP all, where others than the named ones are
    /// left out. The driver drops what comes by others. A kernel without interception cannot: the protocol looks again.
    pub interfaces: Interfaces,
    /// Packets whose source nothing in them proves; `None`: there are none.
    pub unproved: Option<Unproved>,
}

/// Packets that nothing but their way proves: they are taken if they come in by the interface of the route to their source. By
/// default all packets, at all interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unproved {
    /// Conditions on the payload, of which they meet one. Empty: all packets of the entry.
    pub matches: Vec<Match>,
    /// The interfaces at which this is demanded.
    pub at: Interfaces,
}

/// A choice of interfaces by their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interfaces {
    /// Interfaces by name, each with whether it belongs to the choice.
    pub named: Vec<(String, bool)>,
    /// Whether all other interfaces belong to it.
    pub others: bool,
}

impl Default for Interfaces {
    /// All interfaces.
    fn default() -> Self {
        Self { named: Vec::new(), others: true }
    }
}

/// An interception rule: a passing packet of the entry is intercepted if it meets every condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intercept {
    /// The Router Alert (RFC 2113, RFC 2711) that the packet must carry.
    pub alert: AlertRule,
    /// Conditions on the payload; the packet must meet each of them.
    pub matches: Vec<Match>,
    /// Which packets it is about.
    pub reach: Reach,
    /// Where packets must come from and lead to; `None`: anywhere.
    pub through: Option<Through>,
}

/// Where packets of a rule come from, and where they lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Through {
    /// The name of the interface by which they arrive.
    pub from: String,
    /// Where the routes of the kernel lead them.
    pub to: Towards,
}

/// Where a packet leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Towards {
    /// To an address of this node.
    ThisNode,
    /// To this address.
    Address(Ipv4Addr),
    /// It leaves this node by the interface of this name.
    Interface(String),
}

/// Which packets an interception rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// Packets of the entry to other nodes.
    #[default]
    Passing,
    /// IPv4 packets of the entry that are to be translated: the kernel's connection tracking must not see them.
    Translated,
    /// The same for UDP datagrams to any port, also to ports of this node.
    TranslatedAnyPort,
}

/// The Router Alert that an intercepted packet must carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertRule {
    /// Any packet is intercepted, with a Router Alert or without.
    NotRequired,
    /// A Router Alert of any value is required.
    Any,
    /// A Router Alert of this value is required.
    Value {
        /// The value with IPv4.
        ipv4: u16,
        /// The value with IPv6.
        ipv6: u16,
    },
}

/// A condition on 32 bits of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// Offset of the first of the four octets in the payload.
    pub offset: u16,
    /// Mask of the bits that are compared (big-endian).
    pub mask: u32,
    /// Value that those bits must have.
    pub value: u32,
}

impl EntryRequest {
    /// An entry for packets that are addressed to this node only.
    #[must_use]
    pub const fn local(entry: Entry, subsystem: Subsystem) -> Self {
        Self {
            entry,
            subsystem,
            receive: true,
            intercept: Vec::new(),
            untracked: Vec::new(),
            reports: false,
            shared: false,
            interfaces: Interfaces { named: Vec::new(), others: true },
            unproved: None,
        }
    }

    /// An entry for packets that are only sent.
    #[must_use]
    pub const fn send_only(entry: Entry, subsystem: Subsystem) -> Self {
        Self {
            entry,
            subsystem,
            receive: false,
            intercept: Vec::new(),
            untracked: Vec::new(),
            reports: false,
            shared: false,
            interfaces: Interfaces { named: Vec::new(), others: true },
            unproved: None,
        }
    }

    /// The same entry with this interception rule too.
    #[must_use]
    pub fn with_intercept(mut self, intercept: Intercept) -> Self {
        self.intercept.push(intercept);
        self
    }

    /// Adds what another protocol asks of the same entry.
    pub fn join(&mut self, other: Self) {
        self.receive |= other.receive;
        self.reports |= other.reports;
        self.intercept.extend(other.intercept);
        if self.untracked.is_empty() {
            self.untracked = other.untracked;
        }
        if self.unproved.is_none() {
            self.unproved = other.unproved;
        }
    }
}

impl Intercept {
    /// A rule for packets of the entry to other nodes.
    #[must_use]
    pub const fn passing(alert: AlertRule, matches: Vec<Match>) -> Self {
        Self { alert, matches, reach: Reach::Passing, through: None }
    }

    /// Whether the rule is for packets of this IP version.
    #[must_use]
    pub fn is_for(&self, ipv6: bool) -> bool {
        !ipv6 || self.reach == Reach::Passing
    }

    /// Whether a passing packet with these options (as in
    /// [`Received::options`](crate::packet::Received::options)) and this payload is intercepted, if it comes from and leads to
    /// where the rule says.
    #[must_use]
    pub fn takes(&self, ipv6: bool, options: &[u8], payload: &[u8]) -> bool {
        let alert = match self.alert {
            AlertRule::NotRequired => true,
            AlertRule::Any => router_alert(options, ipv6).is_some(),
            AlertRule::Value { ipv4: v4, ipv6: v6 } => {
                router_alert(options, ipv6) == Some(if ipv6 { v6 } else { v4 })
            }
        };
        self.is_for(ipv6) && alert && self.matches.iter().all(|m| m.holds(payload))
    }
}

impl Match {
    /// The condition that the payload has these 32 bits at `offset`.
    #[must_use]
    pub const fn word(offset: u16, value: u32) -> Self {
        Self { offset, mask: u32::MAX, value }
    }

    /// Whether the payload meets the condition. A payload that is too short does not meet it.
    #[must_use]
    pub fn holds(&self, payload: &[u8]) -> bool {
        let word = payload.get(usize::from(self.offset)..).and_then(<[u8]>::first_chunk::<4>);
        word.is_some_and(|word| u32::from_be_bytes(*word) & self.mask == self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{router_alert_v4, router_alert_v6};

    #[test]
    fn a_rule_takes_what_meets_every_condition() {
        let magic = Match::word(0, 0x4e04_bda5);
        let flag = Match { offset: 8, mask: 0x8000, value: 0x8000 };
        let rule = Intercept::passing(AlertRule::Any, vec![magic, flag]);
        let payload = [0x4e, 0x04, 0xbd, 0xa5, 1, 2, 3, 4, 5, 6, 0x80, 0];
        let alert = router_alert_v4(7);
        assert!(rule.takes(false, &alert, &payload));
        assert!(!rule.takes(false, &[], &payload), "no Router Alert");
        assert!(!rule.takes(false, &alert, &payload[..11]), "too short");
        assert!(!rule.takes(false, &alert, &[0; 12]), "another magic number");
        let rsvp = Intercept::passing(AlertRule::Value { ipv4: 0, ipv6: 1 }, Vec::new());
        assert!(rsvp.takes(false, &router_alert_v4(0), &[]) && !rsvp.takes(false, &alert, &[]));
        assert!(rsvp.takes(true, &router_alert_v6(1), &[]) && !rsvp.takes(true, &router_alert_v6(0), &[]));
        assert!(Intercept::passing(AlertRule::NotRequired, Vec::new()).takes(true, &[], &[]));
        // Packets are translated with IPv4 only.
        let translated = Intercept { reach: Reach::Translated, ..rule };
        assert!(translated.takes(false, &alert, &payload) && !translated.takes(true, &alert, &payload));
    }

    /// One protocol that shares the entry of another adds its rules, and takes none away.
    #[test]
    fn requests_for_one_entry_are_joined() {
        let entry = Entry::Udp(270);
        let rule = |value| Intercept::passing(AlertRule::Any, vec![Match::word(0, value)]);
        let request =
            |value| EntryRequest::local(entry, Subsystem::part("io", "p")).with_intercept(rule(value));
        let mut joined = request(1);
        let untracked = vec![Match::word(4, 3)];
        joined.join(EntryRequest { untracked: untracked.clone(), shared: true, ..request(2) });
        assert_eq!(joined, EntryRequest { untracked, ..request(1).with_intercept(rule(2)) });
    }
}
