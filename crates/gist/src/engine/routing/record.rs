//! The record of a session: its message routing state in both directions (RFC 5971 §4.2.1).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::service::MessageHandle;
use signalbox_core::stamp::{Span, Stamp};
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Direction, Flow, NslpId, SessionId, Time};

use crate::engine::association::Need;
use crate::engine::routes::RouteLinks;
use crate::engine::view::{Role, RoutingState};

/// The number that stands for no peer, no egress, no association and no list entry.
pub(crate) const NONE: u32 = u32::MAX;

/// The states of RFC 5971 §6.2 and §6.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// No state machine in this direction.
    #[default]
    None,
    /// Querying: Awaiting Response, while the lookup of the route for the first Query is not answered.
    Resolving,
    /// Querying: Awaiting Response.
    AwaitingResponse,
    /// Querying: Established.
    Established,
    /// Querying: Awaiting Refresh.
    AwaitingRefresh,
    /// Responding: Awaiting Confirm.
    RespondingAwaitingConfirm,
    /// Responding: Established.
    RespondingEstablished,
    /// Responding: Awaiting Refresh.
    RespondingAwaitingRefresh,
}

impl State {
    pub(crate) const fn is_querying(self) -> bool {
        matches!(self, Self::Resolving | Self::AwaitingResponse | Self::Established | Self::AwaitingRefresh)
    }

    pub(crate) const fn is_responding(self) -> bool {
        matches!(
            self,
            Self::RespondingAwaitingConfirm | Self::RespondingEstablished | Self::RespondingAwaitingRefresh
        )
    }

    /// Data can be sent and received.
    pub(crate) const fn is_established(self) -> bool {
        matches!(
            self,
            Self::Established
                | Self::AwaitingRefresh
                | Self::RespondingEstablished
                | Self::RespondingAwaitingRefresh
        )
    }

    /// The role and the state as operators see them; `None` without a state machine.
    pub(crate) const fn shown(self) -> Option<(Role, RoutingState)> {
        Some(match self {
            Self::None => return None,
            Self::Resolving | Self::AwaitingResponse => (Role::Querying, RoutingState::AwaitingResponse),
            Self::Established => (Role::Querying, RoutingState::Established),
            Self::AwaitingRefresh => (Role::Querying, RoutingState::AwaitingRefresh),
            Self::RespondingAwaitingConfirm => (Role::Responding, RoutingState::AwaitingConfirm),
            Self::RespondingEstablished => (Role::Responding, RoutingState::Established),
            Self::RespondingAwaitingRefresh => (Role::Responding, RoutingState::AwaitingRefresh),
        })
    }
}

/// Routing state in one direction, 24 octets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Half {
    /// Interned peer, or [`NONE`].
    pub(crate) peer: u32,
    /// Interned egress: towards the next hop (querying), or towards the peer (responding); or [`NONE`].
    pub(crate) egress: u32,
    /// Querying: end of the validity time that the peer granted. Responding: `Expire_RNode`.
    pub(crate) expire: Stamp,
    /// Querying: `No_Response` or `Refresh_QNode`, whichever runs. Responding: `No_Confirm`.
    pub(crate) retry: Stamp,
    /// When the state was installed.
    pub(crate) since: Stamp,
    /// Queries (or Responses) sent in this handshake; the last this many Queries may be answered.
    pub(crate) attempts: u8,
    pub(crate) state: State,
    /// IP hops to the peer (RFC 5971 §5.2.2), or [`UNMEASURED`].
    pub(crate) distance: u8,
    pub(crate) flags: u8,
}

/// What only a querying direction has, 24 octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Querying {
    /// `Inactive_QNode`.
    pub(crate) inactive: Stamp,
    /// Its period.
    pub(crate) inactivity: Span,
    /// Number of the last Query, which is in its cookie. The first number is random.
    pub(crate) query: u32,
    /// Its place in the list of sessions with the same route.
    pub(crate) route_links: RouteLinks,
}

/// The distance to the peer is not known.
const UNMEASURED: u8 = u8::MAX;

/// [`Half::retry`] runs.
pub(crate) const RETRY: u8 = 1;
/// [`Half::expire`] runs.
pub(crate) const EXPIRE: u8 = 2;
/// [`Querying::inactive`] runs.
pub(crate) const INACTIVE: u8 = 4;
/// The routing state is Tentative (RFC 5971 §7.1.3).
pub(crate) const TENTATIVE: u8 = 8;
/// The application caused the last change and gets no notification of it.
pub(crate) const BY_APPLICATION: u8 = 16;
/// The peer can be reached at its address. Responding: its Confirm proved it. Querying: the Query was sent to this address, or
/// through it as the next hop, and the Response repeated its cookie.
pub(crate) const PROVEN: u8 = 32;
/// Do not refresh: the state upstream has expired (RFC 5971 §4.4.4).
pub(crate) const NO_REFRESH: u8 = 64;
/// The session is in connection mode. The table of associations has its binding.
pub(crate) const ASSOCIATED: u8 = 128;

impl Default for Half {
    fn default() -> Self {
        Self {
            peer: NONE,
            egress: NONE,
            expire: Stamp::default(),
            retry: Stamp::default(),
            since: Stamp::default(),
            attempts: 0,
            state: State::None,
            distance: UNMEASURED,
            flags: 0,
        }
    }
}

impl Half {
    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) const fn set(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    /// Sets the distance to the peer in IP hops.
    pub(crate) fn set_distance(&mut self, hops: u8) {
        self.distance = hops.min(UNMEASURED - 1);
    }

    /// IP hops to the peer; `None`: not known.
    pub(crate) fn distance(&self) -> Option<u8> {
        Some(self.distance).filter(|hops| *hops != UNMEASURED)
    }

    /// IP hops to the peer, or 0.
    pub(crate) fn distance_or_zero(&self) -> u8 {
        self.distance().unwrap_or(0)
    }

    /// Starts the handshake's or the refresh timer.
    pub(crate) fn start_retry(&mut self, now: Time, after: Duration) {
        self.retry = Stamp::after(now + after);
        self.set(RETRY, true);
    }

    /// Starts the validity timer.
    pub(crate) fn start_expire(&mut self, now: Time, after: Duration) {
        self.expire = Stamp::after(now + after);
        self.set(EXPIRE, true);
    }

    /// The first of the timers that run.
    fn deadline(&self, querying: &Querying) -> Option<Stamp> {
        if matches!(self.state, State::None) {
            return None;
        }
        let mut first = None;
        for (flag, stamp) in [(RETRY, self.retry), (EXPIRE, self.expire), (INACTIVE, querying.inactive)] {
            if self.has(flag) {
                first = Some(first.map_or(stamp, |first: Stamp| first.min(stamp)));
            }
        }
        first
    }
}

/// A message of an application that is queued until a handshake is complete.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) data: Box<[u8]>,
    pub(crate) handle: Option<MessageHandle>,
    /// When the timeout of the application ends.
    pub(crate) deadline: Option<Stamp>,
    pub(crate) ip_ttl: Option<u8>,
    pub(crate) hops: Option<u8>,
    /// The transport that the message needs.
    pub(crate) need: Need,
    pub(crate) reliable: bool,
    /// The source whose share of all queued octets it takes; `None`: this node.
    pub(crate) source: Option<IpAddr>,
}

/// State of a running handshake, and that of a direction that is querying upstream, which few sessions are. It has its own
/// allocation, which is freed when it has neither.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The direction upstream is querying.
    pub(crate) upstream: Option<Querying>,
    /// Messages for the downstream peer.
    pub(crate) down: VecDeque<Queued>,
    /// Messages for the upstream peer (Awaiting Confirm).
    pub(crate) up: VecDeque<Queued>,
    /// Contents of the Queries in each direction, downstream and upstream.
    queries: [QueryContents; 2],
    /// The Response for retransmissions, downstream and upstream.
    pub(crate) response: [Option<Box<StoredResponse>>; 2],
}

/// Contents of the Queries of a handshake.
#[derive(Debug, Default)]
pub(crate) struct QueryContents {
    /// Payload that the application gave for this handshake.
    pub(crate) data: Vec<u8>,
    /// Number of the first Query with a Stack-Proposal.
    pub(crate) first: Option<u32>,
    /// The first message of the queue is the payload of the Queries.
    pub(crate) piggybacked: bool,
}

/// A Response to be retransmitted (RFC 5971 §6.3 case 2).
#[derive(Debug)]
pub(crate) struct StoredResponse {
    pub(crate) octets: Box<[u8]>,
    pub(crate) src: core::net::SocketAddr,
    pub(crate) dst: core::net::SocketAddr,
}

impl Pending {
    pub(crate) fn queue(&mut self, direction: Direction) -> &mut VecDeque<Queued> {
        match direction {
            Direction::Downstream => &mut self.down,
            Direction::Upstream => &mut self.up,
        }
    }

    pub(crate) const fn queued(&self, direction: Direction) -> &VecDeque<Queued> {
        match direction {
            Direction::Downstream => &self.down,
            Direction::Upstream => &self.up,
        }
    }

    pub(crate) const fn query(&self, direction: Direction) -> &QueryContents {
        match direction {
            Direction::Downstream => &self.queries[0],
            Direction::Upstream => &self.queries[1],
        }
    }

    pub(crate) const fn query_mut(&mut self, direction: Direction) -> &mut QueryContents {
        match direction {
            Direction::Downstream => &mut self.queries[0],
            Direction::Upstream => &mut self.queries[1],
        }
    }

    /// When the timeout of the first queued message ends.
    pub(crate) fn deadline(&self) -> Option<Stamp> {
        self.down.iter().chain(&self.up).filter_map(|q| q.deadline).reduce(Stamp::min)
    }
}

/// The place of a direction in arrays of two.
pub(crate) const fn side(direction: Direction) -> usize {
    match direction {
        Direction::Downstream => 0,
        Direction::Upstream => 1,
    }
}

/// A session of an application on a flow.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) link: Link,
    pub(crate) flow: Flow,
    pub(crate) session: SessionId,
    pub(crate) nslp: NslpId,
    /// State for messages downstream and upstream: the peers towards the flow's destination and source.
    pub(crate) halves: [Half; 2],
    /// What the direction downstream has if it is querying.
    downstream: Querying,
    pub(crate) pending: Option<Box<Pending>>,
    /// When this node last passed a refresh on.
    pub(crate) passed_at: Stamp,
    /// Refreshes that it passed on one soon after the other.
    pub(crate) passed: u8,
}

impl Record {
    /// Reads a field of each part of the record that a message needs.
    pub(crate) fn is_read(&self) -> bool {
        let [down, up] = &self.halves;
        self.link.is_armed()
            ^ (self.nslp.0 == 0)
            ^ self.pending.is_some()
            ^ (down.peer == up.peer)
            ^ (self.downstream.query == 0)
    }

    /// A record without state in either direction.
    pub(crate) fn new(flow: Flow, session: SessionId, nslp: NslpId) -> Self {
        Self {
            link: Link::default(),
            flow,
            session,
            nslp,
            halves: [Half::default(); 2],
            downstream: Querying::default(),
            pending: None,
            passed_at: Stamp::default(),
            passed: 0,
        }
    }

    /// What a direction has if it is querying.
    pub(crate) fn querying(&self, direction: Direction) -> Querying {
        match direction {
            Direction::Downstream => self.downstream,
            Direction::Upstream => self.pending.as_ref().and_then(|p| p.upstream).unwrap_or_default(),
        }
    }

    /// The same, of a direction that is querying, to change it.
    pub(crate) fn querying_mut(&mut self, direction: Direction) -> &mut Querying {
        match direction {
            Direction::Downstream => &mut self.downstream,
            Direction::Upstream => self.pending.get_or_insert_default().upstream.get_or_insert_default(),
        }
    }

    /// A direction is not querying any more. It is in no list.
    pub(crate) fn end_querying(&mut self, direction: Direction) {
        match direction {
            Direction::Downstream => self.downstream = Querying::default(),
            Direction::Upstream => self.pending.iter_mut().for_each(|pending| pending.upstream = None),
        }
    }

    /// The place of a direction in the list of sessions with the same route; `None`: it is not querying.
    pub(crate) fn route_links_mut(&mut self, direction: Direction) -> Option<&mut RouteLinks> {
        match direction {
            Direction::Downstream => Some(&mut self.downstream.route_links),
            Direction::Upstream => Some(&mut self.pending.as_mut()?.upstream.as_mut()?.route_links),
        }
    }

    /// (Re)starts `Inactive_QNode` of a querying direction with its period.
    pub(crate) fn start_inactive(&mut self, direction: Direction, now: Time) {
        let querying = self.querying_mut(direction);
        querying.inactive = Stamp::later(now, querying.inactivity);
        self.half_mut(direction).set(INACTIVE, true);
    }

    pub(crate) const fn half(&self, direction: Direction) -> &Half {
        match direction {
            Direction::Downstream => &self.halves[0],
            Direction::Upstream => &self.halves[1],
        }
    }

    pub(crate) const fn half_mut(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::Downstream => &mut self.halves[0],
            Direction::Upstream => &mut self.halves[1],
        }
    }

    /// Whether neither direction has a state machine.
    pub(crate) fn is_empty(&self) -> bool {
        self.halves.iter().all(|half| half.state == State::None)
    }

    /// The first of all its timers.
    pub(crate) fn deadline(&self) -> Option<Stamp> {
        let [down, up] = &self.halves;
        let queued = self.pending.as_ref().and_then(|p| p.deadline());
        let upstream = self.querying(Direction::Upstream);
        [down.deadline(&self.downstream), up.deadline(&upstream), queued]
            .into_iter()
            .flatten()
            .reduce(Stamp::min)
    }
}

impl Timed for Record {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

#[cfg(test)]
mod tests {
    use signalbox_core::{Mri, PathCoupled};

    use super::*;

    /// At most 160 octets for an IPv4 session in both directions, index (at most 12) and generation included.
    #[test]
    fn a_session_fits_its_budget() {
        assert_eq!((size_of::<Half>(), size_of::<Querying>()), (24, 24));
        assert!(size_of::<Option<Record>>() <= 144, "{}", size_of::<Option<Record>>());
    }

    #[test]
    fn a_direction_upstream_has_memory_of_its_own_while_it_is_querying() {
        let host = IpAddr::from([192, 0, 2, 1]);
        let flow = Flow::of(&Mri::PathCoupled(PathCoupled::between(host, host)));
        let mut record = Record::new(flow, SessionId::default(), NslpId::PING);
        let (down, up) = (Direction::Downstream, Direction::Upstream);
        record.querying_mut(down).query = 1;
        assert!(
            record.route_links_mut(down).is_some()
                && record.route_links_mut(up).is_none()
                && record.pending.is_none()
        );
        record.querying_mut(up).query = 2;
        assert_eq!([down, up].map(|direction| record.querying(direction).query), [1, 2]);
        record.end_querying(up);
        assert_eq!((record.querying(down).query, record.querying(up)), (1, Querying::default()));
        assert!(record.route_links_mut(up).is_none());
    }
}
