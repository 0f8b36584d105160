//! RSVP (RFC 2205 and its family).

pub(crate) mod dissected;
pub(crate) mod held;
pub(crate) mod load;
pub(crate) mod message;
pub(crate) mod messages;
pub(crate) mod neighbour;
pub(crate) mod repaired;
pub(crate) mod resend;

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Condition, Observer, Protocol};
use crate::evidence::{Evidence, Shown};
use crate::observe::packet::Ip;
use crate::observe::trace::{Frame, LinkTrace};
use crate::plan::Leg;
use crate::report::Section;
use message::{RsvpMessage, RsvpPacket, RsvpType};

/// The command that shows the sessions of a node.
const SESSIONS: &str = "show rsvp sessions";
/// The command that shows the neighbours of a node.
const NEIGHBOURS: &str = "show rsvp neighbors";
/// Rates pass RSVP as single-precision floating point (RFC 2210 §3.1).
const RATE_ERROR: f64 = 1e-6;

/// Message types, and their names in reports.
const TYPES: [(RsvpType, &str); 10] = [
    (RsvpType::Path, "Path"),
    (RsvpType::Resv, "Resv"),
    (RsvpType::ResvConf, "ResvConf"),
    (RsvpType::PathErr, "PathErr"),
    (RsvpType::ResvErr, "ResvErr"),
    (RsvpType::PathTear, "PathTear"),
    (RsvpType::ResvTear, "ResvTear"),
    (RsvpType::Dreq, "DREQ"),
    (RsvpType::Drep, "DREP"),
    (RsvpType::Other, "others"),
];

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Rsvp;

impl Protocol for Rsvp {
    fn name(&self) -> &'static str {
        "rsvp"
    }

    fn title(&self) -> &'static str {
        "RSVP"
    }

    fn switch(&self) -> Option<bool> {
        Some(false)
    }

    fn reserves(&self) -> bool {
        true
    }

    fn tables(&self) -> &'static [&'static str] {
        &[SESSIONS, NEIGHBOURS]
    }

    fn conditions(&self) -> &'static [Condition] {
        const NONE: Condition = Condition {
            name: "no_rsvp",
            meaning: "the nodes have no RSVP session",
            protocol: &Rsvp,
            table: SESSIONS,
            holds: <[Value]>::is_empty,
        };
        &[NONE]
    }

    fn observer(&self, first: usize) -> Option<Box<dyn Observer>> {
        Some(Box::new(Seen { first, ..Seen::default() }))
    }

    fn report(&self, evidence: &Evidence) -> Vec<Section> {
        let links = || evidence.trace.links.iter().map(Seen::on);
        if links().all(|link| link.messages.is_empty()) {
            return Vec::new();
        }
        let header: Vec<_> = ["link"].into_iter().chain(TYPES.map(|(_, name)| name)).collect();
        let rows = links().zip(&evidence.plan.links).map(|(link, planned)| {
            let count = |kind| link.messages.iter().filter(|message| message.kind == kind).count();
            let mut row = vec![planned.name.clone()];
            row.extend(TYPES.map(|(kind, _)| count(kind).to_string()));
            row
        });
        vec![Section::table("RSVP messages on the links", &header, rows.collect())]
    }

    fn measure(&self, evidence: &Evidence) -> Vec<(&'static str, Value)> {
        if !evidence.plan.nodes.iter().any(|node| node.runs(&Self)) {
            return Vec::new();
        }
        let links = evidence.trace.links.iter().map(Seen::on).zip(&evidence.plan.links);
        let messages = links.map(|(link, planned)| {
            let counts = TYPES.iter().map(|(kind, name)| {
                let count = link.messages.iter().filter(|message| message.kind == *kind).count();
                (name.to_lowercase(), Value::from(count))
            });
            (planned.name.clone(), Value::Object(counts.collect()))
        });
        let sessions = evidence.snapshots.iter().map(|(label, snapshot)| {
            let of = |(node, shown): (&usize, &Shown)| {
                (evidence.plan.nodes[*node].name.clone(), Value::from(shown.table(SESSIONS).len()))
            };
            (label.clone(), Value::Object(snapshot.iter().map(of).collect()))
        });
        vec![
            ("rsvp_messages", Value::Object(messages.collect())),
            ("rsvp_sessions", Value::Object(sessions.collect())),
        ]
    }
}

/// What passed a link.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Index of the node at the first end.
    first: usize,
    pub(crate) messages: Vec<RsvpMessage>,
    /// The IP packets that carried them.
    pub(crate) packets: Vec<RsvpPacket>,
}

impl Observer for Seen {
    fn take(&mut self, frame: &Frame, ip: Ip<'_>) {
        let messages = message::messages(frame.at, frame.outgoing, &ip);
        self.packets.extend(message::packet(frame.at, &ip, messages.len()));
        self.messages.extend(messages);
    }
}

impl Seen {
    /// Returns what passed a link.
    fn on(link: &LinkTrace) -> &Self {
        link.seen()
    }

    /// Whether a message went along `leg`, which is on this link.
    fn along(&self, message: &RsvpMessage, leg: Leg) -> bool {
        message.outgoing == (leg.from == self.first)
    }
}

/// Returns the link from a node to its neighbour, by their names.
fn leg(evidence: &Evidence, from: &str, to: &str) -> Result<Leg, String> {
    let ends = evidence.plan.node(from).zip(evidence.plan.node(to));
    ends.and_then(|(from, to)| evidence.plan.leg(from, to))
        .ok_or_else(|| format!("no link from {from} to {to}"))
}

/// The nodes of a plan that have these addresses; `None` stands for an address that no node has.
fn owners(evidence: &Evidence, addresses: &[std::net::IpAddr]) -> BTreeSet<Option<usize>> {
    addresses.iter().map(|address| evidence.plan.owner(*address)).collect()
}
