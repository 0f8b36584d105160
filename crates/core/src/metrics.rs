//! Metric families: the names, labels, kinds and units under which monitoring systems see counters and gauges.
//!
//! Names follow the conventions of OpenMetrics 1.0. They are written here without the prefix `signalbox_` and
//! without the suffix `_total` of counters. A label has values of a closed set only, which the code names or the
//! configuration: never a session, an address or a peer.

/// Prefix of all names.
pub const PREFIX: &str = "signalbox_";

/// The kind of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// A distribution of measured values.
    Histogram,
}

/// A metric family.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Name without prefix and `_total`. It ends with the unit, if there is one.
    pub name: &'static str,
    /// Kind of all its metrics.
    pub kind: Kind,
    /// Unit of all its values: a base unit, such as `bytes` and `seconds`.
    pub unit: Option<&'static str>,
    /// Names of its labels. The value of `protocol` comes from the [`Subsystem`].
    pub labels: &'static [&'static str],
    /// Help text: what the sum of all its metrics is.
    pub help: &'static str,
}

impl Family {
    /// A family of counters.
    #[must_use]
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, unit: None, labels, help }
    }

    /// A family of gauges.
    #[must_use]
    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, unit: None, labels, help }
    }

    /// A family of histograms.
    #[must_use]
    pub const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: Kind::Histogram, unit: None, labels, help }
    }

    /// The same family with a unit, with which the name must end.
    #[must_use]
    pub const fn of_unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }
}

/// A part of the program that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subsystem {
    /// Its name, which begins the names of families that only it has.
    pub name: &'static str,
    /// Value of the label `protocol` of its metrics; empty if it belongs to no protocol.
    pub protocol: &'static str,
}

impl Subsystem {
    /// The main part of a protocol.
    #[must_use]
    pub const fn protocol(name: &'static str) -> Self {
        Self { name, protocol: name }
    }

    /// A further part of a protocol.
    #[must_use]
    pub const fn part(name: &'static str, protocol: &'static str) -> Self {
        Self { name, protocol }
    }

    /// A part that belongs to no protocol.
    #[must_use]
    pub const fn shared(name: &'static str) -> Self {
        Self { name, protocol: "" }
    }
}

/// The present value of a gauge. Its labels include `protocol`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gauge {
    /// Its family.
    pub family: &'static Family,
    /// Labels with their values, in the order of the family.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: u64,
}

impl Gauge {
    /// A gauge whose labels have these values, in the order of the family.
    #[must_use]
    pub fn new(family: &'static Family, values: &[&str], value: u64) -> Self {
        debug_assert_eq!(family.labels.len(), values.len(), "{}", family.name);
        let values = values.iter().map(|&value| value.to_owned());
        Self { family, labels: family.labels.iter().copied().zip(values).collect(), value }
    }

    /// The gauges of a table of a protocol.
    #[must_use]
    pub fn table(protocol: &str, table: Table) -> [Self; 2] {
        [
            Self::new(&TABLE_SIZE, &[protocol, table.name], table.size.into()),
            Self::new(&TABLE_LIMIT, &[protocol, table.name], table.limit.into()),
        ]
    }
}

/// A table of an engine that peers can fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Its name, as in the label `table`.
    pub name: &'static str,
    /// Number of its records.
    pub size: u32,
    /// Limit on that number.
    pub limit: u32,
}

impl Table {
    /// The present state of a table.
    #[must_use]
    pub const fn new(name: &'static str, size: u32, limit: u32) -> Self {
        Self { name, size, limit }
    }
}

/// Messages sent.
pub const MESSAGES_SENT: Family = Family::counter(
    "messages_sent",
    &["protocol", "type"],
    "Messages sent, by type; retransmissions and refreshes are included.",
);
/// Messages received.
pub const MESSAGES_RECEIVED: Family =
    Family::counter("messages_received", &["protocol", "type"], "Messages received and accepted, by type.");
/// Messages dropped.
pub const MESSAGES_DROPPED: Family = Family::counter(
    "messages_dropped",
    &["protocol", "reason"],
    "Messages received that were discarded, ignored or refused, by reason.",
);
/// Objects dropped from messages that are processed without them.
pub const OBJECTS_DROPPED: Family = Family::counter(
    "objects_dropped",
    &["protocol", "object"],
    "Objects left out of messages that are processed without them, by object.",
);
/// Messages forwarded.
pub const MESSAGES_FORWARDED: Family = Family::counter(
    "messages_forwarded",
    &["protocol", "type"],
    "Messages of other nodes that this node forwarded.",
);
/// Messages not sent.
pub const MESSAGES_UNSENT: Family = Family::counter(
    "messages_unsent",
    &["protocol", "reason"],
    "Messages that this node could not send, by reason.",
);
/// Messages sent again.
pub const RETRANSMISSIONS: Family = Family::counter(
    "retransmissions",
    &["protocol"],
    "Messages sent again because no answer was received in time.",
);
/// Messages without answer.
pub const MESSAGES_UNANSWERED: Family = Family::counter(
    "messages_unanswered",
    &["protocol"],
    "Messages given up because no answer was received after the last retransmission.",
);
/// Messages forwarded without supervision.
pub const MESSAGES_UNWATCHED: Family = Family::counter(
    "messages_unwatched",
    &["protocol"],
    "Messages forwarded without waiting for their result, because too many wait already.",
);
/// Refreshes by summary.
pub const STATES_SUMMARIZED: Family = Family::counter(
    "states_summarized",
    &["protocol"],
    "States refreshed or removed by a message sent that names several states.",
);
/// Records not created.
pub const TABLE_FULL: Family = Family::counter(
    "table_full",
    &["protocol", "table"],
    "Times that a table or a queue was full and did not take a record.",
);
/// Excess of a rate limit.
pub const RATE_LIMITED: Family = Family::counter(
    "rate_limited",
    &["protocol", "limit"],
    "Messages dropped, delayed or not sent because of a rate limit.",
);
/// Changes of routes and peers.
pub const ROUTE_EVENTS: Family = Family::counter(
    "route_events",
    &["protocol", "event"],
    "Changes of routes and peers that a protocol noticed, and what it did.",
);
/// Changes of reservations.
pub const RESERVATION_EVENTS: Family = Family::counter(
    "reservation_events",
    &["protocol", "event"],
    "Changes of the reservations of a protocol at this node.",
);
/// Changes of associations.
pub const ASSOCIATION_EVENTS: Family = Family::counter(
    "association_events",
    &["protocol", "event"],
    "Changes of messaging associations (GIST) and of SCTP associations.",
);

/// Sessions.
pub const SESSIONS: Family =
    Family::gauge("sessions", &["protocol"], "Sessions of which the node has state.");
/// Peers.
pub const PEERS: Family =
    Family::gauge("peers", &["protocol"], "Adjacent nodes of which the node has state.");
/// Associations.
pub const ASSOCIATIONS: Family =
    Family::gauge("associations", &["stack"], "Messaging associations of GIST, by transport.");
/// Size of a table.
pub const TABLE_SIZE: Family = Family::gauge("table_size", &["protocol", "table"], "Records in a table.");
/// Limit of a table.
pub const TABLE_LIMIT: Family =
    Family::gauge("table_limit", &["protocol", "table"], "Limit on the number of records in a table.");
