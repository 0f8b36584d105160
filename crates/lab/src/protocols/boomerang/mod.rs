//! Boomerang: reservations in ICMP Echo.

mod fields;
mod message;

use serde_json::{Map, Value, json};

use super::{Observer, Protocol};
use crate::evidence::Evidence;
use crate::observe::fields::Message;
use crate::observe::packet::Ip;
use crate::observe::trace::{Frame, LinkTrace};
use crate::report::Section;
use message::BoomerangMessage;

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
        let links = || evidence.trace.links.iter().map(Seen::on);
        if links().all(|link| link.messages.is_empty()) {
            return Vec::new();
        }
        let rows = links().zip(&evidence.plan.links).map(|(link, planned)| {
            let counts = link.counts().map(|count| count.to_string());
            [planned.name.clone()].into_iter().chain(counts).collect()
        });
        let header = ["link", "requests", "replies", "refused"];
        vec![Section::table("Boomerang messages on the links", &header, rows.collect())]
    }

    fn measure(&self, evidence: &Evidence) -> Vec<(&'static str, Value)> {
        let links = || evidence.trace.links.iter().map(Seen::on);
        if links().all(|link| link.messages.is_empty()) {
            return Vec::new();
        }
        let counts: Map<_, _> = links()
            .zip(&evidence.plan.links)
            .map(|(link, planned)| {
                let [requests, replies, refused] = link.counts();
                let counts = json!({ "requests": requests, "replies": replies, "refused": refused });
                (planned.name.clone(), counts)
            })
            .collect();
        vec![("messages", counts.into())]
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
    /// Returns what passed a link.
    fn on(link: &LinkTrace) -> &Self {
        link.seen()
    }

    /// Returns the numbers of requests, replies and refused ones of both.
    fn counts(&self) -> [usize; 3] {
        let count =
            |which: fn(&BoomerangMessage) -> bool| self.messages.iter().filter(|one| which(one)).count();
        [count(|one| !one.reply), count(|one| one.reply), count(BoomerangMessage::is_refused)]
    }
}
