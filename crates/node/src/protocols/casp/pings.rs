//! Series of pings that users ask for. Each ping of a series is a session of its own.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use signalbox_casp::clients::ping::{PingClient, PingEvent};
use signalbox_casp::wire::FlowId;
use signalbox_casp::wire::ping::Entry;
use signalbox_core::wheel::AT_ONCE;
use signalbox_core::{Time, invariant};

use super::flow;

/// Most series at one time.
const MAX_SERIES: usize = 1024;
/// Shortest interval of a series, and shortest time to wait for a reply.
pub const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// A series of pings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PingRequest {
    /// Destination of the flow.
    pub dst: IpAddr,
    /// Source of the flow; `None`: the address that routing chooses.
    pub src: Option<IpAddr>,
    /// IP protocol of the flow; `None`: UDP.
    pub protocol: Option<u8>,
    /// Source port of the flow.
    pub src_port: Option<u16>,
    /// Destination port of the flow.
    pub dst_port: Option<u16>,
    /// How many pings to send, at least 1; `None`: until stopped.
    pub count: Option<u32>,
    /// Time between two pings, at least [`MIN_INTERVAL`].
    pub interval: Duration,
    /// How long to wait for a reply, at least [`MIN_INTERVAL`].
    pub timeout: Duration,
    /// No node keeps a session for the pings: each appends itself to the message, and the reply goes back along this list.
    #[cfg_attr(feature = "serde", serde(default))]
    pub record_route: bool,
}

impl PingRequest {
    /// One ping to an address.
    #[must_use]
    pub const fn to(dst: IpAddr) -> Self {
        let (second, none) = (Duration::from_secs(1), None);
        let (count, interval, timeout) = (Some(1), second, second);
        Self {
            dst,
            src: None,
            protocol: None,
            src_port: none,
            dst_port: none,
            count,
            interval,
            timeout,
            record_route: false,
        }
    }

    /// The flow from an address.
    fn flow(&self, src: IpAddr) -> Result<FlowId, PingRefusal> {
        const UDP: u8 = 17;
        let ports = [self.src_port, self.dst_port];
        let protocol = self.protocol.or((src.is_ipv4() || ports != [None, None]).then_some(UDP));
        flow::between(src, self.dst, protocol, ports).ok_or(PingRefusal::Address)
    }
}

/// Why a series is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PingRefusal {
    /// Source and destination are of different versions of IP, or the destination is a group.
    #[error("source and destination are unicast addresses of one version of IP")]
    Address,
    /// The number of pings, the interval or the time to wait is too small.
    #[error("at least one ping, and at least 1 ms for interval and timeout")]
    Timing,
    /// There is no route to the destination.
    #[error("no route to the destination")]
    NoRoute,
    /// Too many series go on.
    #[error("this node runs {MAX_SERIES} pings already")]
    TooMany,
    /// The identifier is that of a series that goes on: an error of the driver.
    #[error("a ping of this name runs already")]
    NameTaken,
    /// The node does not run CASP.
    #[error("this node does not run CASP")]
    NotRunning,
}

/// Why a ping has no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Lost {
    /// No reply came in time.
    #[error("no reply in time")]
    Timeout,
    /// No next node was found: this node is the last one, or none of the path runs CASP.
    #[error("no node of the path runs CASP")]
    NoNext,
    /// A node on the path reported that it cannot send the message on.
    #[error("a node on the path cannot send the message on")]
    Reported,
    /// The messaging layer refused the message.
    #[error(
        "the messaging layer refused the message: a table is full, or the form of the flow or delivery without state is switched off"
    )]
    Refused,
}

/// What a user is informed of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum SeriesEvent {
    /// The series begins.
    Started {
        /// The flow that is pinged.
        flow: FlowId,
    },
    /// The series is refused; the last event.
    Refused(PingRefusal),
    /// A reply.
    Reply {
        /// Number of the ping, from 0.
        seq: u32,
        /// The nodes that the request reached; the last one is the end of the flow.
        nodes: Vec<Entry>,
        /// From the request to the reply.
        time: Duration,
        /// When the request was sent.
        sent: Time,
    },
    /// A ping has no reply.
    Lost {
        /// Number of the ping, from 0.
        seq: u32,
        /// The reason.
        why: Lost,
    },
    /// The series is over; the last event.
    Done {
        /// Pings sent.
        sent: u32,
        /// Replies.
        received: u32,
    },
}

#[derive(Debug)]
struct Series {
    request: PingRequest,
    /// `None` while the route is looked up.
    flow: Option<FlowId>,
    sent: u32,
    received: u32,
    /// Pings under way.
    waiting: u32,
    next: Option<Time>,
}

/// A ping under way.
#[derive(Debug, Clone, Copy)]
struct Probe {
    series: u64,
    seq: u32,
    sent: Time,
    until: Time,
}

/// All series of the node's users.
#[derive(Debug, Default)]
pub(super) struct Pings {
    series: BTreeMap<u64, Series>,
    /// By the client's number.
    probes: BTreeMap<u64, Probe>,
    next_probe: u64,
    /// When series send, and when probes are lost: `false` with the series, `true` with the probe.
    due: BTreeSet<(Time, bool, u64)>,
    events: VecDeque<(u64, SeriesEvent)>,
}

impl Pings {
    /// Begins a series. The result is the destination whose route the caller looks up, if it has to.
    pub(super) fn start(
        &mut self,
        now: Time,
        id: u64,
        request: PingRequest,
        client: &mut PingClient,
    ) -> Option<IpAddr> {
        let wrong_time = [request.interval, request.timeout].iter().any(|time| *time < MIN_INTERVAL);
        let refusal = if self.series.contains_key(&id) {
            Some(PingRefusal::NameTaken)
        } else if request.count == Some(0) || wrong_time {
            Some(PingRefusal::Timing)
        } else if request.dst.is_multicast() || request.dst.is_unspecified() {
            Some(PingRefusal::Address)
        } else if self.series.len() >= MAX_SERIES {
            Some(PingRefusal::TooMany)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.events.push_back((id, SeriesEvent::Refused(refusal)));
            return None;
        }
        let (src, dst) = (request.src, request.dst);
        let series = Series { request, flow: None, sent: 0, received: 0, waiting: 0, next: None };
        self.series.insert(id, series);
        match src {
            Some(src) => {
                self.route(now, id, Ok(src), client);
                None
            }
            None => Some(dst),
        }
    }

    /// The source of a series is known.
    pub(super) fn route(
        &mut self,
        now: Time,
        id: u64,
        src: Result<IpAddr, PingRefusal>,
        client: &mut PingClient,
    ) {
        let Some(series) = self.series.get_mut(&id).filter(|series| series.flow.is_none()) else { return };
        match src.and_then(|src| series.request.flow(src)) {
            Ok(flow) => {
                series.flow = Some(flow);
                self.events.push_back((id, SeriesEvent::Started { flow }));
                self.send(now, id, client);
            }
            Err(refusal) => {
                self.series.remove(&id);
                self.events.push_back((id, SeriesEvent::Refused(refusal)));
            }
        }
    }

    fn send(&mut self, now: Time, id: u64, client: &mut PingClient) {
        let Some(series) = invariant!(self.series.get_mut(&id), "a series that sends stands") else { return };
        let Some(flow) = invariant!(series.flow, "a series that sends has a flow") else { return };
        let probe = self.next_probe;
        self.next_probe += 1;
        let until = now + series.request.timeout;
        self.probes.insert(probe, Probe { series: id, seq: series.sent, sent: now, until });
        self.due.insert((until, true, probe));
        series.sent = series.sent.saturating_add(1);
        series.waiting += 1;
        let more = series.request.count.is_none_or(|count| series.sent < count);
        series.next = more.then_some(now + series.request.interval);
        self.due.extend(series.next.map(|at| (at, false, id)));
        client.ping(now, probe, flow, series.request.record_route);
    }

    /// Takes what became of a ping of the client.
    pub(super) fn event(&mut self, probe: u64, event: PingEvent) {
        match event {
            PingEvent::Reply { nodes, time } => self.end(probe, Ok((nodes, time))),
            PingEvent::NoNext => self.end(probe, Err(Lost::NoNext)),
            PingEvent::Reported => self.end(probe, Err(Lost::Reported)),
            PingEvent::Unanswered => self.end(probe, Err(Lost::Timeout)),
            PingEvent::Refused => self.end(probe, Err(Lost::Refused)),
        }
    }

    fn end(&mut self, probe: u64, result: Result<(Vec<Entry>, Duration), Lost>) {
        // The client may answer after the time of the ping.
        let Some(Probe { series: id, seq, sent, until }) = self.probes.remove(&probe) else { return };
        self.due.remove(&(until, true, probe));
        // Its user may have stopped the series.
        let Some(series) = self.series.get_mut(&id) else { return };
        series.waiting -= 1;
        let event = match result {
            Ok((nodes, time)) => {
                series.received += 1;
                SeriesEvent::Reply { seq, nodes, time, sent }
            }
            Err(why) => SeriesEvent::Lost { seq, why },
        };
        self.events.push_back((id, event));
        if series.waiting == 0 && series.next.is_none() {
            let (sent, received) = (series.sent, series.received);
            self.series.remove(&id);
            self.events.push_back((id, SeriesEvent::Done { sent, received }));
        }
    }

    /// Ends a series without an event.
    pub(super) fn stop(&mut self, id: u64) {
        let Some(series) = self.series.remove(&id) else { return };
        if let Some(at) = series.next {
            self.due.remove(&(at, false, id));
        }
    }

    pub(super) fn timer(&mut self, now: Time, client: &mut PingClient) {
        for _ in 0..AT_ONCE {
            let Some((at, is_probe, id)) = self.due.first().copied().filter(|(at, ..)| *at <= now) else {
                return;
            };
            self.due.remove(&(at, is_probe, id));
            if is_probe {
                self.end(id, Err(Lost::Timeout));
            } else {
                self.send(now, id, client);
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(at, ..)| *at)
    }

    pub(super) fn take_event(&mut self) -> Option<(u64, SeriesEvent)> {
        self.events.pop_front()
    }

    pub(super) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }
}
