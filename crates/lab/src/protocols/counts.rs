//! Numbers of messages on each link, for people and in JSON.

use serde_json::{Map, Value};

use crate::evidence::Evidence;
use crate::observe::trace::LinkTrace;
use crate::report::Section;

/// How many messages of each kind passed each link.
pub(super) struct Counts<const N: usize> {
    /// The names of the kinds: for people, and in JSON.
    kinds: [(&'static str, &'static str); N],
    /// The name of each link, and its counts.
    links: Vec<(String, [usize; N])>,
}

impl<const N: usize> Counts<N> {
    /// Counts the messages of all links.
    pub(super) fn new(
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
    pub(super) fn report(&self, title: &str) -> Vec<Section> {
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
