//! Boomerang: reservations in ICMP Echo.

mod fields;
mod message;

use serde_json::Value;

use super::counts::Counts;
use super::{Observer, Protocol};
use crate::evidence::Evidence;
use crate::observe::fields::Message;
use crate::observe::packet::Ip;
use crate::observe::trace::Frame;
use crate::report::Section;
use message::BoomerangMessage;

/// The kinds that the report counts.
const KINDS: [(&str, &str); 3] = [("requests", "requests"), ("replies", "replies"), ("refused", "refused")];

fn counts(evidence: &Evidence) -> Counts<3> {
    Counts::new(evidence, KINDS, |link| link.seen::<Seen>().counts())
}

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Boomerang;

impl Protocol for Boomerang {
    fn name(&self) -> &'static str {
        "boomerang"
    }

    fn title(&self) -> &'static str {
        "Boomerang"
    }

    fn reserves(&self) -> bool {
        true
    }

    fn fields(&self) -> Vec<(&'static str, &'static str)> {
        crate::observe::fields::described(fields::FIELDS)
    }

    fn observer(&self, _first: usize) -> Option<Box<dyn Observer>> {
        Some(Box::new(Seen::default()))
    }

    fn report(&self, evidence: &Evidence) -> Vec<Section> {
        counts(evidence).report("Boomerang messages on the links")
    }

    fn measure(&self, evidence: &Evidence) -> Vec<(&'static str, Value)> {
        counts(evidence).measure()
    }
}

/// What passed a link.
#[derive(Debug, Default)]
struct Seen {
    messages: Vec<BoomerangMessage>,
}

impl Observer for Seen {
    fn take(&mut self, frame: &Frame, ip: Ip<'_>) {
        self.messages.extend(message::read(frame, &ip));
    }

    fn protocol(&self) -> &'static str {
        "boomerang"
    }

    fn messages(&self) -> Vec<&dyn Message> {
        self.messages.iter().map(|message| message as &dyn Message).collect()
    }
}

impl Seen {
    /// Returns the numbers of requests, replies and refused ones of both.
    fn counts(&self) -> [usize; 3] {
        let count =
            |which: fn(&BoomerangMessage) -> bool| self.messages.iter().filter(|one| which(one)).count();
        [count(|one| !one.reply), count(|one| one.reply), count(BoomerangMessage::is_refused)]
    }
}
