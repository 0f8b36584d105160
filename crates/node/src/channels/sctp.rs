//! Channels that are SCTP associations (RFC 6084).

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::node::{REPORT_EVERY, StreamId};
use signalbox_core::packet::Received;
use signalbox_core::{Time, invariant};
use signalbox_transport::sctp::{
    Arrival, AssociationId, Config, Counters, Delivery, Event, EventKind, LossReason, Sctp, SendError,
};

use super::{Channels, Closed, Record, Report, Sent, Transport, Upper};

/// Numbers of accepted channels begin here and are even. Drivers number their streams from 2 on.
const FIRST_ACCEPTED: u64 = 1 << 63;
/// Octets that an association may hold before they are reported as unsent: the size of a stream's buffer in a kernel.
pub(super) const UNDER_WAY: usize = 1 << 16;

/// The SCTP endpoints, and the channels of their associations.
#[derive(Debug)]
pub(super) struct SctpSide {
    sctp: Sctp,
    channels: BTreeMap<u64, u64>,
    /// Channels that hold unsent octets, by their peers. They are checked when a packet of the peer arrives.
    holding: BTreeSet<(IpAddr, u64)>,
    accepted: u64,
    /// When the last input came.
    now: Time,
}

#[derive(Debug)]
pub(super) struct SctpRecord {
    association: AssociationId,
    peer: SocketAddr,
    /// Number of streams in both directions; 0 until the association is up.
    streams: u16,
    /// Unsent octets as last reported, and octets that the user sent since then.
    held: usize,
    written: usize,
    /// A message came after the end of the association, so it is lost.
    late: bool,
}

impl SctpRecord {
    const fn new(association: AssociationId, peer: SocketAddr, streams: u16) -> Self {
        Self { association, peer, streams, held: 0, written: 0, late: false }
    }
}

impl SctpSide {
    /// `listening`: the ports at which the protocols of the node listen.
    pub(super) fn new(config: Config, port: u16, listening: Vec<u16>, seed: [u8; 32]) -> Self {
        let mut sctp = Sctp::new(Config { port: Some(port), ..config }, seed);
        sctp.reserve_ports(listening);
        Self { sctp, channels: BTreeMap::new(), holding: BTreeSet::new(), accepted: 0, now: Time::ZERO }
    }

    pub(super) const fn counters(&self) -> &Counters {
        self.sctp.counters()
    }

    /// Events that came while packets were made are due at once.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        if self.sctp.has_event() { Some(self.now) } else { self.sctp.next_deadline() }
    }
}

impl Channels {
    pub(super) fn open_sctp(
        &mut self,
        now: Time,
        channel: StreamId,
        local: IpAddr,
        peer: SocketAddr,
        upper: &mut impl Upper,
    ) {
        let opened = self.sctp.as_mut().and_then(|side| {
            let association = side.sctp.connect(now, SocketAddr::new(local, 0), peer).ok()?;
            side.channels.insert(association.to_u64(), channel.0);
            Some(association)
        });
        match opened {
            Some(association) => {
                let record = SctpRecord::new(association, peer, 0);
                self.records.insert(channel.0, Record::Sctp(Box::new(record)));
                self.note_local(channel.0, local);
                self.work_sctp(now, upper);
            }
            None => {
                let reason = Closed::Refused;
                upper.take(now, Report::Closed { channel, reason, unacknowledged: false });
            }
        }
    }

    pub(super) fn send_sctp(
        &mut self,
        now: Time,
        number: u64,
        (sctp_stream, lifetime): (u16, Option<Duration>),
        octets: &[u8],
    ) -> Sent {
        let Some(Record::Sctp(record)) =
            invariant!(self.records.get_mut(&number), "a message is sent over a channel of SCTP that stands")
        else {
            return Sent::Done;
        };
        let side = invariant!(self.sctp.as_mut(), "a channel of SCTP that sends has its endpoint");
        let (association, Some(side)) = (record.association, side) else { return Sent::Done };
        record.written += octets.len();
        // RFC 6084 §3.2: all messages of a session take one stream, and the peer's answers that of the same number.
        let stream = sctp_stream.checked_rem(record.streams).unwrap_or(0);
        let delivery = Delivery { ordered: true, lifetime };
        match side.sctp.send(now, association, stream, octets.to_vec(), delivery) {
            Ok(()) => Sent::Sctp,
            Err(SendError::Full | SendError::Size | SendError::Stream) => Sent::Lost,
            // The end of the association is among the events.
            Err(SendError::NotUp) => {
                record.late = true;
                Sent::Done
            }
        }
    }

    pub(super) fn sent_sctp(&mut self, now: Time, number: u64, upper: &mut impl Upper) {
        self.report_unsent(now, number, upper);
        self.work_sctp(now, upper);
    }

    pub(super) fn read_sctp(&mut self, now: Time, number: u64, on: bool, upper: &mut impl Upper) {
        if let (Some(Record::Sctp(record)), Some(side)) = (self.records.get(&number), &mut self.sctp) {
            side.sctp.pause(now, record.association, !on);
            self.work_sctp(now, upper);
        }
    }

    pub(super) fn close_sctp(&mut self, now: Time, number: u64, abort: bool) {
        let Some(Record::Sctp(record)) =
            invariant!(self.remove_sctp(number), "a channel of SCTP is closed once")
        else {
            return;
        };
        let Some(side) = invariant!(self.sctp.as_mut(), "who closes has an endpoint") else { return };
        if abort {
            side.sctp.abort(record.association);
        } else {
            side.sctp.close(now, record.association);
        }
    }

    /// Whether a packet of IP protocol 132 is for an endpoint of these channels. Two protocols of a node can have endpoints.
    pub(crate) fn takes_sctp(&self, packet: &Received<'_>) -> bool {
        let (src, dst) = (packet.src.ip(), packet.dst.ip());
        self.sctp.as_ref().is_some_and(|side| side.sctp.is_addressee(src, dst, packet.payload))
    }

    /// Handles a packet of IP protocol 132 (RFC 6084 §3).
    pub(crate) fn sctp_packet(&mut self, now: Time, packet: Received<'_>, upper: &mut impl Upper) {
        // The port of entry may be that of another protocol.
        let Some(side) = &mut self.sctp else { return };
        let (src, dst) = (packet.src.ip(), packet.dst.ip());
        let arrival = Arrival { src, dst, ifindex: packet.ifindex };
        side.sctp.receive(now, arrival, packet.payload, &|address| upper.is_known(address));
        let from = (src, 0)..=(src, u64::MAX);
        let holding: Vec<u64> = side.holding.range(from).map(|(_, number)| *number).collect();
        for number in holding {
            self.report_unsent(now, number, upper);
        }
        self.work_sctp(now, upper);
    }

    pub(super) fn timer_sctp(&mut self, now: Time, upper: &mut impl Upper) {
        if let Some(side) = self.sctp.as_mut().filter(|s| s.next_deadline().is_some_and(|at| at <= now)) {
            side.sctp.handle_timer(now);
            self.work_sctp(now, upper);
        }
    }

    /// Reports events. [`transmit_sctp`](Self::transmit_sctp) follows at the end of the turn.
    fn work_sctp(&mut self, now: Time, upper: &mut impl Upper) {
        if let Some(side) = &mut self.sctp {
            side.now = now;
        }
        while let Some(event) = self.sctp.as_mut().and_then(|side| side.sctp.poll_event()) {
            self.event_sctp(now, event, upper);
        }
    }

    /// Queues packets for the driver: those of all messages of a turn together. True if there are packets.
    pub(super) fn transmit_sctp(&mut self) -> bool {
        let mut any = false;
        while let Some(packet) = self.sctp.as_mut().and_then(|side| side.sctp.poll_transmit()) {
            self.out.sctp(packet.src, packet.dst, &packet.octets);
            any = true;
        }
        any
    }

    fn event_sctp(&mut self, now: Time, event: Event, upper: &mut impl Upper) {
        let Some(side) = invariant!(self.sctp.as_mut(), "an event comes from an endpoint") else { return };
        let key = event.association.to_u64();
        let known = side.channels.get(&key).copied();
        match (event.kind, known) {
            (EventKind::Connected { local, remote, incoming: true, streams, .. }, None) => {
                let number = FIRST_ACCEPTED + 2 * side.accepted;
                side.accepted += 1;
                side.channels.insert(key, number);
                self.counters.accepted += 1;
                tracing::debug!(channel = number, peer = %remote, "SCTP association accepted");
                let record = SctpRecord::new(event.association, remote, streams);
                self.records.insert(number, Record::Sctp(Box::new(record)));
                self.note_local(number, local.ip());
                let (channel, transport, peer) = (StreamId(number), Transport::Sctp, remote);
                upper.take(now, Report::Accepted { channel, transport, local, peer, identity: None });
            }
            (EventKind::Connected { streams, .. }, Some(number)) => {
                if let Some(Record::Sctp(record)) = self.records.get_mut(&number) {
                    record.streams = streams;
                }
                upper.take(now, Report::Connected { channel: StreamId(number), identity: None });
            }
            (EventKind::Message { octets, .. }, Some(number)) => {
                upper.take(now, Report::Octets { channel: StreamId(number), octets: &octets });
            }
            (EventKind::Closed, Some(number)) => {
                let late = matches!(self.records.get(&number), Some(Record::Sctp(record)) if record.late);
                self.end_sctp(now, number, Closed::Orderly, late, upper);
            }
            (EventKind::Lost { reason, unsent }, Some(number)) => {
                let Some(Record::Sctp(record)) =
                    invariant!(self.records.get(&number), "an association that was lost has its channel")
                else {
                    return;
                };
                let why = match reason {
                    LossReason::Aborted if record.streams == 0 => Closed::Refused,
                    LossReason::NoAnswer | LossReason::TimedOut => Closed::TimedOut,
                    LossReason::Aborted
                    | LossReason::Local
                    | LossReason::Restarted
                    | LossReason::Violation => Closed::Reset,
                };
                tracing::debug!(channel = number, peer = %record.peer, ?reason, "SCTP association lost");
                self.end_sctp(now, number, why, unsent > 0, upper);
            }
            // The user has closed the channel.
            (_, None) => {}
        }
    }

    pub(super) fn break_sctp(&mut self, now: Time, number: u64, upper: &mut impl Upper) {
        if let (Some(Record::Sctp(record)), Some(side)) = (self.records.get(&number), &mut self.sctp) {
            side.sctp.abort(record.association);
        }
        tracing::debug!(channel = number, "SCTP association aborted");
        self.end_sctp(now, number, Closed::Reset, true, upper);
    }

    fn end_sctp(
        &mut self,
        now: Time,
        number: u64,
        reason: Closed,
        unacknowledged: bool,
        upper: &mut impl Upper,
    ) {
        if self.remove_sctp(number).is_some() {
            upper.take(now, Report::Closed { channel: StreamId(number), reason, unacknowledged });
        }
    }

    fn remove_sctp(&mut self, number: u64) -> Option<Record> {
        let record = self.remove(number)?;
        if let (Record::Sctp(record), Some(side)) = (&record, &mut self.sctp) {
            side.channels.remove(&record.association.to_u64());
            side.holding.remove(&(record.peer.ip(), number));
        }
        Some(record)
    }

    /// Reports the unsent octets of a channel if they changed, or if the user sent [`REPORT_EVERY`] octets since the
    /// last report.
    fn report_unsent(&mut self, now: Time, number: u64, upper: &mut impl Upper) {
        let Some(Record::Sctp(record)) =
            invariant!(self.records.get_mut(&number), "unsent octets are of a channel of SCTP that stands")
        else {
            return;
        };
        let Some(side) = invariant!(self.sctp.as_mut(), "octets are in an endpoint") else { return };
        let unsent = side.sctp.buffered(record.association).saturating_sub(UNDER_WAY);
        if unsent == record.held && record.written < REPORT_EVERY {
            return;
        }
        (record.held, record.written) = (unsent, 0);
        let entry = (record.peer.ip(), number);
        if unsent > 0 {
            side.holding.insert(entry);
        } else {
            side.holding.remove(&entry);
        }
        upper.take(now, Report::Drained { channel: StreamId(number), unsent });
    }
}
