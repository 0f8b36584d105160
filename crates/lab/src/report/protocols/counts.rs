//! Numbers of messages on each link, for people and in JSON.

use serde_json::{Map, Value};

use crate::protocols::rsvp::message::RsvpType;
use crate::protocols::{boomerang, casp, rsvp};
use crate::report::Section;
use crate::run::evidence::Evidence;
use crate::run::observe::trace::LinkTrace;

/// The types of RSVP messages that are counted.
const RSVP: [(RsvpType, &str); 10] = [
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

/// The kinds of Boomerang messages.
const BOOMERANG: [(&str, &str); 3] =
    [("requests", "requests"), ("replies", "replies"), ("refused", "refused")];

/// The kinds of CASP messages.
const CASP: [(&str, &str); 3] =
    [("scout requests", "scout_requests"), ("scout responses", "scout_responses"), ("messages", "messages")];

/// Counts the RSVP messages of each type.
pub(super) fn rsvp(evidence: &Evidence) -> Counts<{ RSVP.len() }> {
    let kinds = RSVP.map(|(kind, name)| (name, rsvp::fields::kind(kind)));
    Counts::new(evidence, kinds, |link| {
        let messages = &link.seen::<rsvp::Seen>().messages;
        RSVP.map(|(kind, _)| messages.iter().filter(|message| message.kind == kind).count())
    })
}

/// Counts the Boomerang messages of each kind.
pub(super) fn boomerang(evidence: &Evidence) -> Counts<3> {
    Counts::new(evidence, BOOMERANG, |link| link.seen::<boomerang::Seen>().counts())
}

/// Counts the CASP messages of each kind.
pub(super) fn casp(evidence: &Evidence) -> Counts<3> {
    Counts::new(evidence, CASP, |link| link.seen::<casp::Seen>().counts())
}

/// How many messages of each kind passed each link.
pub(super) struct Counts<const N: usize> {
    /// The names of the kinds: for people, and in JSON.
    kinds: [(&'static str, &'static str); N],
    /// The name of each link, and its counts.
    links: Vec<(String, [usize; N])>,
}

impl<const N: usize> Counts<N> {
    /// Counts the messages of all links.
    fn new(
        evidence: &Evidence,
        kinds: [(&'static str, &'static str); N],
        count: impl Fn(&LinkTrace) -> [usize; N],
    ) -> Self {
        let planned = evidence.plan.links.iter().map(|link| link.name.clone());
        Self { kinds, links: planned.zip(evidence.trace.links.iter().map(count)).collect() }
    }

    fn is_empty(&self) -> bool {
        self.links.iter().all(|(_, counts)| counts.iter().all(|count| *count == 0))
    }

    /// Returns a table with this title; nothing if no message passed.
    pub(super) fn sections(&self, title: &str) -> Vec<Section> {
        if self.is_empty() {
            return Vec::new();
        }
        let header: Vec<_> = ["link"].into_iter().chain(self.kinds.map(|(name, _)| name)).collect();
        let rows = self.links.iter().map(|(link, counts)| {
            [link.clone()].into_iter().chain(counts.map(|count| count.to_string())).collect()
        });
        vec![Section::table(title, &header, rows.collect())]
    }

    /// Returns the measurement `messages`; nothing if no message passed.
    pub(super) fn measure(&self) -> Vec<(&'static str, Value)> {
        if self.is_empty() {
            return Vec::new();
        }
        let link = |(link, counts): &(String, [usize; N])| {
            let counts =
                self.kinds.iter().zip(counts).map(|((_, key), count)| ((*key).to_owned(), (*count).into()));
            (link.clone(), Value::Object(counts.collect()))
        };
        vec![("messages", self.links.iter().map(link).collect::<Map<_, _>>().into())]
    }
}
