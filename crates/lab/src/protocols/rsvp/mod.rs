//! RSVP (RFC 2205 and its family).

mod fields;
pub(crate) mod message;

use serde_json::{Map, Value};

use super::{Observer, Protocol};
use crate::evidence::Evidence;
use crate::observe::fields::Message;
use crate::observe::packet::Ip;
use crate::observe::trace::{Frame, LinkTrace};
use crate::plan::PlannedLink;
use crate::report::Section;
use message::{RsvpMessage, RsvpType};

/// The types that the report counts.
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

    fn reserves(&self) -> bool {
        true
    }

    fn fields(&self) -> Vec<(&'static str, &'static str)> {
        crate::observe::fields::described(fields::FIELDS)
    }

    fn alters(&self) -> bool {
        true
    }

    fn alter(&self, frame: &mut [u8]) -> Option<()> {
        message::alter(frame)
    }

    fn observer(&self, _first: usize) -> Option<Box<dyn Observer>> {
        Some(Box::new(Seen::default()))
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
        let link = |(link, planned): (&Seen, &PlannedLink)| {
            let count = |kind| link.messages.iter().filter(|message| message.kind == kind).count();
            let counts: Map<_, _> =
                TYPES.iter().map(|(kind, _)| (fields::kind(*kind).to_owned(), count(*kind).into())).collect();
            (planned.name.clone(), Value::Object(counts))
        };
        let links = || evidence.trace.links.iter().map(Seen::on);
        if links().all(|link| link.messages.is_empty()) {
            return Vec::new();
        }
        vec![("messages", Value::Object(links().zip(&evidence.plan.links).map(link).collect()))]
    }
}

/// What passed a link.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) messages: Vec<RsvpMessage>,
}

impl Observer for Seen {
    fn take(&mut self, frame: &Frame, ip: Ip<'_>) {
        self.messages.extend(message::messages(frame, &ip));
    }

    fn protocol(&self) -> &'static str {
        "rsvp"
    }

    fn messages(&self) -> Vec<&dyn Message> {
        self.messages.iter().map(|message| message as &dyn Message).collect()
    }
}

impl Seen {
    /// Returns what passed a link.
    fn on(link: &LinkTrace) -> &Self {
        link.seen()
    }
}
