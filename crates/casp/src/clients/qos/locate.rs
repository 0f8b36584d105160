//! The interfaces by which the data of a session leave, one direction after the other.

use signalbox_core::node::RouteQuery;
use signalbox_core::{IfIndex, SessionId};
use signalbox_resources::Resources;

use super::node::Job;
use super::record::{Places, Record, data};
use super::{MAX_WAITING, QosClient, Waiting};
use crate::clients::shared::Waits;
use crate::wire::FlowId;

/// A message or a session whose interfaces are looked up.
#[derive(Debug)]
pub(super) struct Lookup {
    what: Waiting,
    places: Places,
    /// How many directions are known.
    known: usize,
}

impl Waits for Lookup {
    fn session(&self) -> Option<SessionId> {
        match &self.what {
            Waiting::Message(job) => Some(job.session),
            Waiting::Own(_) | Waiting::Again(_) => None,
        }
    }
}

impl QosClient {
    /// Ends messages of a session that wait. False: there are none of these.
    pub(super) fn end_waiting(&mut self, session: SessionId, ends: impl Fn(&Job) -> bool) -> bool {
        let ends = |lookup: &Lookup| match &lookup.what {
            Waiting::Message(job) => ends(job),
            Waiting::Own(_) | Waiting::Again(_) => false,
        };
        let mut ended = false;
        for lookup in self.waiting.end(session, ends) {
            if let Waiting::Message(job) = lookup.what {
                self.out.consume(job.id);
                ended = true;
            }
        }
        ended
    }

    /// Asks by which interfaces the data leave. What waits for them goes on at once if all data end here.
    pub(super) fn locate(&mut self, what: Waiting, resources: &mut Resources) {
        self.look_further(Lookup { what, places: [IfIndex::NONE; 2], known: 0 }, resources);
    }

    /// A direction is known, or has no route.
    pub(super) fn place_found(&mut self, id: u64, place: Option<IfIndex>, resources: &mut Resources) {
        // What waited may have ended with its session.
        let Some(mut lookup) = self.waiting.take(id) else { return };
        let Some(place) = place else { return self.located(lookup.what, None, resources) };
        if let Some(slot) = lookup.places.get_mut(lookup.known) {
            *slot = place;
        }
        lookup.known += 1;
        self.look_further(lookup, resources);
    }

    fn look_further(&mut self, mut lookup: Lookup, resources: &mut Resources) {
        let flows = match &lookup.what {
            Waiting::Message(job) => data(job.flow, job.opposite, job.instead),
            Waiting::Own(key) | Waiting::Again(key) => {
                self.records.get(*key).map(Record::data).unwrap_or_default()
            }
        };
        let elsewhere = |(at, flow): (usize, Option<FlowId>)| Some((at, flow?));
        let mut left = flows.into_iter().enumerate().skip(lookup.known).filter_map(elsewhere);
        let Some((at, flow)) = left.find(|(_, flow)| !self.local.has(flow.dst())) else {
            return self.located(lookup.what, Some(lookup.places), resources);
        };
        if let Waiting::Message(job) = &lookup.what
            && self.waiting.len() >= MAX_WAITING
        {
            self.counters.waiting_full += 1;
            tracing::debug!(session = %job.session, peer = %job.hop.address, reason = "too many messages wait for their interfaces", "message dropped");
            return self.out.consume(job.id);
        }
        lookup.known = at;
        let id = self.waiting.keep(lookup);
        let ports = flow.ports();
        let query = RouteQuery {
            protocol: flow.protocol(),
            src_port: ports.map(|(src, _)| src),
            dst_port: ports.map(|(_, dst)| dst),
            ..RouteQuery::to(flow.dst())
        };
        self.out.look_up(id, query);
    }

    /// The interfaces are known; `None`: a direction has no route.
    fn located(&mut self, what: Waiting, places: Option<Places>, resources: &mut Resources) {
        match what {
            Waiting::Message(job) => self.request(&job, places, resources),
            Waiting::Own(key) => self.begin(key, places, resources),
            Waiting::Again(key) => self.send_again(key, places, resources),
        }
    }
}
