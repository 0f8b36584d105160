//! The Ping client: which nodes a session passes. Nodes on the way and the responder keep nothing.
//!
//! Call [`PingClient::poll`] until it returns `None` after each other call.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use signalbox_core::node::Interface;
use signalbox_core::wheel::AT_ONCE;
use signalbox_core::{Random, SessionId, Time, invariant};

use crate::engine::{Arrival, Indication, Request, SendRequest, Verdict};
use crate::wire::FlowId;
use crate::wire::ping::{Entry, MAX_ENTRIES, Ping, PingType};

/// How long an answer is waited for.
const WAIT: Duration = Duration::from_secs(20);
/// Most pings of this node that wait for their answer.
const MAX_WAITING: usize = 1024;

/// What becomes of a ping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PingEvent {
    /// The answer of the responder.
    Reply {
        /// The nodes that the request reached, in their order; the responder is the last one.
        nodes: Vec<Entry>,
        /// From the request to the reply.
        time: Duration,
    },
    /// This node is the last one, or the next one cannot be reached.
    NoNext,
    /// A node on the way reported that it cannot send the message on.
    Reported,
    /// No answer in time.
    Unanswered,
    /// The messaging layer does not take the request, or too many pings wait.
    Refused,
}

/// What the client asks of the messaging layer, with owned octets.
#[derive(Debug)]
enum Queued {
    Send {
        tag: u64,
        session: Option<SessionId>,
        flow: FlowId,
        reverse: bool,
        tear_down: bool,
        record_route: bool,
        route: Option<Vec<u8>>,
        data: Option<Vec<u8>>,
    },
    Verdict {
        id: u64,
        data: Option<Vec<u8>>,
        consume: bool,
    },
}

/// An output of the client.
#[derive(Debug)]
pub enum PingOutput<'a> {
    /// For the messaging layer.
    Request(Request<'a>),
    /// For the user who asked for the ping.
    Event {
        /// The user's id.
        id: u64,
        /// The event; it is the last one.
        event: PingEvent,
    },
}

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
    local: Vec<IpAddr>,
    /// By tag.
    waiting: BTreeMap<u64, Waiting>,
    /// Tags by session: each ping has one of its own.
    by_session: BTreeMap<SessionId, u64>,
    next_tag: u64,
    /// Microseconds since 1970 at [`Time::ZERO`].
    wall_clock_us: u64,
    requests: VecDeque<Queued>,
    events: VecDeque<(u64, PingEvent)>,
    /// The octets of the request that was polled last, and its route.
    octets: Vec<u8>,
    route: Vec<u8>,
}

impl PingClient {
    /// A client that waits for nothing; its tokens come from `seed`.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            rng: Random::new(seed),
            now: Time::ZERO,
            local: Vec::new(),
            waiting: BTreeMap::new(),
            by_session: BTreeMap::new(),
            next_tag: 1,
            wall_clock_us: 0,
            requests: VecDeque::new(),
            events: VecDeque::new(),
            octets: Vec::new(),
            route: Vec::new(),
        }
    }

    /// Sets the wall clock: microseconds since 1970 at [`Time::ZERO`]. Without it entries have the time since the start.
    pub const fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.wall_clock_us = wall_clock_us;
    }

    /// Takes over the node's interfaces.
    pub fn interfaces(&mut self, list: &[Interface]) {
        self.local = list.iter().filter(|one| one.up).flat_map(|one| one.addresses.iter().copied()).collect();
        self.local.retain(|address| !address.is_loopback());
    }

    /// Sends a ping along a flow. If it is `stateless`, each node of the path appends itself to the message, and keeps no session.
    pub fn ping(&mut self, now: Time, id: u64, flow: FlowId, stateless: bool) {
        self.now = self.now.max(now);
        if self.waiting.len() >= MAX_WAITING {
            return self.events.push_back((id, PingEvent::Refused));
        }
        let (tag, token) = (self.next_tag, self.rng.u64());
        self.next_tag += 1;
        self.waiting.insert(tag, Waiting { id, token, flow, session: None, stateless, since: self.now });
        let mut data = Vec::new();
        Ping { kind: PingType::REQUEST, token, entries: Vec::new() }.encode(&mut data);
        self.requests.push_back(Queued::Send {
            tag,
            session: None,
            flow,
            reverse: false,
            tear_down: false,
            record_route: stateless,
            route: None,
            data: Some(data),
        });
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
                    self.events.push_back((waiting.id, PingEvent::Refused));
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
        self.events.push_back((waiting.id, event));
        if let Some(id) = waiting.session {
            let Waiting { session, flow, stateless, .. } = waiting;
            self.by_session.remove(&id);
            if stateless {
                return;
            }
            self.requests.push_back(Queued::Send {
                tag,
                session,
                flow,
                reverse: false,
                tear_down: true,
                record_route: false,
                route: None,
                data: None,
            });
        }
    }

    fn received(&mut self, arrival: &Arrival<'_>) {
        let verdict = |data, consume| Queued::Verdict { id: arrival.id, data, consume };
        let Ok(mut ping) = Ping::parse(arrival.data) else {
            return self.requests.push_back(verdict(None, false));
        };
        match (ping.kind, arrival.reverse) {
            (PingType::REQUEST, false) => {
                let like = arrival.flow.dst();
                let own = self.local.iter().copied().find(|address| address.is_ipv4() == like.is_ipv4());
                if let Some(address) =
                    own.or_else(|| self.local.first().copied()).filter(|_| ping.entries.len() < MAX_ENTRIES)
                {
                    let time_us = self.wall_clock_us.saturating_add(self.now.as_micros());
                    ping.entries.push(Entry { address, hops: arrival.hops, time_us });
                }
                if arrival.last {
                    ping.kind = PingType::REPLY;
                }
                let mut data = Vec::new();
                ping.encode(&mut data);
                if !arrival.last {
                    return self.requests.push_back(verdict(Some(data), false));
                }
                self.requests.push_back(verdict(None, true));
                self.requests.push_back(Queued::Send {
                    tag: 0,
                    session: Some(arrival.session),
                    flow: arrival.flow,
                    reverse: true,
                    tear_down: false,
                    record_route: false,
                    route: (!arrival.route.is_empty()).then(|| arrival.route.to_vec()),
                    data: Some(data),
                });
            }
            (PingType::REPLY, true) if arrival.last => {
                self.requests.push_back(verdict(None, true));
                let found = self.find(arrival.session, &arrival.flow);
                let waiting = found.and_then(|tag| Some((tag, self.waiting.get(&tag)?)));
                if let Some((tag, waiting)) = waiting.filter(|(_, waiting)| waiting.token == ping.token) {
                    let time = self.now.since(waiting.since);
                    self.end(tag, PingEvent::Reply { nodes: ping.entries, time });
                }
            }
            _ => self.requests.push_back(verdict(None, false)),
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
        let Some(queued) = self.requests.pop_front() else {
            let (id, event) = self.events.pop_front()?;
            return Some(PingOutput::Event { id, event });
        };
        Some(PingOutput::Request(match queued {
            Queued::Send { tag, session, flow, reverse, tear_down, record_route, route, data } => {
                let (has_data, has_route) = (data.is_some(), route.is_some());
                self.octets = data.unwrap_or_default();
                self.route = route.unwrap_or_default();
                let send = SendRequest {
                    tag,
                    reverse,
                    tear_down,
                    record_route,
                    route: has_route.then_some(&self.route[..]),
                    data: has_data.then_some(&self.octets[..]),
                    ..SendRequest::new(session, flow, &[])
                };
                Request::Send(send)
            }
            Queued::Verdict { id, data, consume } => {
                let verdict = match data {
                    _ if consume => Verdict::Consume,
                    Some(data) => {
                        self.octets = data;
                        Verdict::Replace(&self.octets)
                    }
                    None => Verdict::Forward,
                };
                Request::Verdict { id, verdict }
            }
        }))
    }
}
