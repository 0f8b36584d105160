//! The Ping client: which nodes a session passes. Nodes on the way and the responder keep nothing.
//!
//! Call [`PingClient::poll`] until it returns `None` after each other call.

mod output;

use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::node::Interface;
use signalbox_core::wheel::AT_ONCE;
use signalbox_core::{Random, SessionId, Time, invariant};

use crate::clients::shared::{Addresses, Clock, Message};
use crate::engine::{Arrival, Indication};
use crate::wire::FlowId;
use crate::wire::ping::{Entry, MAX_ENTRIES, Ping, PingType};

pub use output::{PingEvent, PingOutput};

use output::Outputs;

/// How long an answer is waited for.
const WAIT: Duration = Duration::from_secs(20);
/// Most pings of this node that wait for their answer.
const MAX_WAITING: usize = 1024;

#[derive(Debug)]
struct Waiting {
    id: u64,
    token: u64,
    flow: FlowId,
    session: Option<SessionId>,
    /// No node has state for it.
    stateless: bool,
    since: Time,
}

/// The Ping client of one node.
#[derive(Debug)]
pub struct PingClient {
    rng: Random,
    now: Time,
    local: Addresses,
    /// By tag.
    waiting: BTreeMap<u64, Waiting>,
    /// Tags by session: each ping has one of its own.
    by_session: BTreeMap<SessionId, u64>,
    next_tag: u64,
    clock: Clock,
    out: Outputs,
}

impl PingClient {
    /// A client that waits for nothing; its tokens come from `seed`.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            rng: Random::new(seed),
            now: Time::ZERO,
            local: Addresses::default(),
            waiting: BTreeMap::new(),
            by_session: BTreeMap::new(),
            next_tag: 1,
            clock: Clock::new(0),
            out: Outputs::default(),
        }
    }

    /// Sets the wall clock: microseconds since 1970 at [`Time::ZERO`]. Without it entries have the time since the start.
    pub const fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.clock.set(wall_clock_us);
    }

    /// Takes over the node's interfaces.
    pub fn interfaces(&mut self, list: &[Interface]) {
        self.local.set(list);
    }

    /// Sends a ping along a flow. If it is `stateless`, each node of the path appends itself to the message, and keeps no session.
    pub fn ping(&mut self, now: Time, id: u64, flow: FlowId, stateless: bool) {
        self.now = self.now.max(now);
        if self.waiting.len() >= MAX_WAITING {
            return self.out.event(id, PingEvent::Refused);
        }
        let (tag, token) = (self.next_tag, self.rng.u64());
        self.next_tag += 1;
        self.waiting.insert(tag, Waiting { id, token, flow, session: None, stateless, since: self.now });
        let mut data = Vec::new();
        Ping { kind: PingType::REQUEST, token, entries: Vec::new() }.encode(&mut data);
        self.out.send(Message { tag, record_route: stateless, ..Message::new(None, flow, data) });
    }

    /// Takes an indication of the messaging layer.
    pub fn indication(&mut self, now: Time, indication: &Indication<'_>) {
        self.now = self.now.max(now);
        match indication {
            Indication::Opened { tag, session, .. } => {
                if let Some(waiting) = self.waiting.get_mut(tag) {
                    waiting.session = Some(*session);
                    self.by_session.insert(*session, *tag);
                }
            }
            Indication::Refused { tag, .. } => {
                if let Some(waiting) = self.waiting.remove(tag) {
                    self.out.event(waiting.id, PingEvent::Refused);
                }
            }
            Indication::Received(arrival) => self.received(arrival),
            Indication::Undelivered { session, flow } => self.finish(*session, flow, PingEvent::NoNext),
            Indication::Ended { session, flow, .. } => self.finish(*session, flow, PingEvent::Unanswered),
            // With state an error is followed by one of the above, or by the end of the wait.
            Indication::Error { session, flow, .. } => {
                let tag = self.find(*session, flow);
                let stateless = |tag: &u64| self.waiting.get(tag).is_some_and(|one| one.stateless);
                if let Some(tag) = tag.filter(stateless) {
                    self.end(tag, PingEvent::Reported);
                }
            }
            Indication::Branch { .. } => {}
        }
    }

    fn find(&self, session: SessionId, flow: &FlowId) -> Option<u64> {
        let tag = *self.by_session.get(&session)?;
        self.waiting.get(&tag).filter(|one| one.flow == *flow).map(|_| tag)
    }

    /// Ends the wait for an answer, and the session.
    fn finish(&mut self, session: SessionId, flow: &FlowId, event: PingEvent) {
        let Some(tag) = self.find(session, flow) else { return };
        self.end(tag, event);
    }

    fn end(&mut self, tag: u64, event: PingEvent) {
        let Some(waiting) = invariant!(self.waiting.remove(&tag), "a ping ends once") else { return };
        if let Some(session) = waiting.session {
            self.by_session.remove(&session);
            if !waiting.stateless {
                self.out.send(Message::tear_down(session, waiting.flow));
            }
        }
        self.out.event(waiting.id, event);
    }

    fn received(&mut self, arrival: &Arrival<'_>) {
        let Ok(mut ping) = Ping::parse(arrival.data) else { return self.out.forward(arrival.id, None) };
        match (ping.kind, arrival.reverse) {
            (PingType::REQUEST, false) => {
                let own = self.local.like(arrival.flow.dst());
                if let Some(address) = own.filter(|_| ping.entries.len() < MAX_ENTRIES) {
                    let time_us = self.clock.wall_us(self.now);
                    ping.entries.push(Entry { address, hops: arrival.hops, time_us });
                }
                if arrival.last {
                    ping.kind = PingType::REPLY;
                }
                let mut data = Vec::new();
                ping.encode(&mut data);
                if !arrival.last {
                    return self.out.forward(arrival.id, Some(data));
                }
                self.out.consume(arrival.id);
                let route = (!arrival.route.is_empty()).then(|| arrival.route.to_vec());
                let answer = Message::new(Some(arrival.session), arrival.flow, data);
                self.out.send(Message { reverse: true, route, ..answer });
            }
            (PingType::REPLY, true) if arrival.last => {
                self.out.consume(arrival.id);
                let found = self.find(arrival.session, &arrival.flow);
                let waiting = found.and_then(|tag| Some((tag, self.waiting.get(&tag)?)));
                if let Some((tag, waiting)) = waiting.filter(|(_, waiting)| waiting.token == ping.token) {
                    let time = self.now.since(waiting.since);
                    self.end(tag, PingEvent::Reply { nodes: ping.entries, time });
                }
            }
            _ => self.out.forward(arrival.id, None),
        }
    }

    /// Ends pings that were not answered in time, a part of them at a time.
    pub fn timer(&mut self, now: Time) {
        self.now = self.now.max(now);
        for _ in 0..AT_ONCE {
            let Some(tag) = self.waiting.first_key_value().map(|(tag, _)| *tag) else { return };
            if self.waiting.get(&tag).is_none_or(|waiting| waiting.since + WAIT > self.now) {
                return;
            }
            self.end(tag, PingEvent::Unanswered);
        }
    }

    /// When [`PingClient::timer`] is due; `None`: nothing waits.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        // Tags grow with time.
        self.waiting.first_key_value().map(|(_, waiting)| waiting.since + WAIT)
    }

    /// The next output, if any; its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<PingOutput<'_>> {
        self.out.poll()
    }
}
