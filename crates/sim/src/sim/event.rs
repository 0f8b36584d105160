//! Events of the simulation and their queue.

use core::cmp::Ordering;
use core::net::IpAddr;

use signalbox_core::node::{RouteQuery, TransmitError};
use signalbox_core::pinhole::{PinholeError, PinholeId};
use signalbox_core::traffic::{ReservationId, ReserveError};
use signalbox_core::{Entry, Time};

use crate::config::{LinkId, NodeId};
use crate::packet::Packet;
use crate::stream::StreamEvent;

/// An event at a point in time. Events at the same time happen in the order of queueing.
pub(super) struct Queued {
    pub(super) at: Time,
    pub(super) order: u64,
    pub(super) event: Occurrence,
}

pub(super) enum Occurrence {
    Arrival {
        link: LinkId,
        end: usize,
        packet: Packet,
    },
    /// A packet that a node sent to itself.
    Loop {
        node: NodeId,
        packet: Packet,
    },
    Timer {
        node: NodeId,
    },
    Lookup {
        node: NodeId,
        incarnation: u32,
        id: u64,
        query: RouteQuery,
    },
    Multicast {
        node: NodeId,
        incarnation: u32,
        group: IpAddr,
        source: IpAddr,
    },
    Stream {
        connection: u64,
        event: StreamEvent,
    },
    ListenFailed {
        node: NodeId,
        incarnation: u32,
        port: u16,
    },
    Reserved {
        node: NodeId,
        incarnation: u32,
        id: ReservationId,
        result: Result<(), ReserveError>,
    },
    PinholeOpened {
        node: NodeId,
        incarnation: u32,
        id: PinholeId,
        result: Result<(), PinholeError>,
    },
    FlowFound {
        node: NodeId,
        incarnation: u32,
        id: PinholeId,
    },
    Failure {
        node: NodeId,
        incarnation: u32,
        entry: Entry,
        dst: IpAddr,
        error: TransmitError,
    },
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    /// The earliest event is the greatest, because the heap gives its maximum first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}
