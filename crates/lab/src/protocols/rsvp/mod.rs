//! RSVP (RFC 2205 and its family).

mod fields;
pub(crate) mod message;

use serde_json::Value;

use super::counts::Counts;
use super::{Observer, Protocol};
use crate::evidence::Evidence;
use crate::observe::fields::Message;
use crate::observe::packet::Ip;
use crate::observe::trace::Frame;
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

fn counts(evidence: &Evidence) -> Counts<{ TYPES.len() }> {
    let kinds = TYPES.map(|(kind, name)| (name, fields::kind(kind)));
    Counts::new(evidence, kinds, |link| {
        let messages = &link.seen::<Seen>().messages;
        TYPES.map(|(kind, _)| messages.iter().filter(|message| message.kind == kind).count())
    })
}

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
        counts(evidence).report("RSVP messages on the links")
    }

    fn measure(&self, evidence: &Evidence) -> Vec<(&'static str, Value)> {
        counts(evidence).measure()
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
