//! Channels of TLS over a stream (RFC 5971 §5.7.3).

use core::net::SocketAddr;
use core::time::Duration;

use signalbox_core::node::{StreamError, StreamId};
use signalbox_core::shares::source;
use signalbox_core::wheel::AT_ONCE;
use signalbox_core::{Time, invariant};
use signalbox_transport::Channel;
use signalbox_transport::stream::{ChannelError, Event};

use super::outbox::DriverRequest;
use super::{Channels, Closed, LINGER, Record, Report, Transport, Upper, reason};

/// Peers that are judged in one turn: each takes some tenths of a millisecond.
const JUDGED_AT_ONCE: u64 = 16;
/// After a turn in which channels ended, because their peers are not trusted any more, others stand for so long. The sessions of
/// each channel begin again when it ends.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct TlsRecord {
    /// `None` until the stream is connected.
    channel: Option<Channel>,
    /// Our address, if the peer opened the channel; `None`: we opened it.
    accepted_at: Option<SocketAddr>,
    pub(super) peer: SocketAddr,
    /// The handshake is done.
    up: bool,
    /// The configuration changed during the handshake.
    judge_later: bool,
    /// The peer has ended TLS: the number of our octets that were dropped. Whether the others have arrived is known when
    /// the stream ends.
    ending: Option<usize>,
    pub(super) deadline: Option<Time>,
}

impl TlsRecord {
    pub(super) const fn opened(peer: SocketAddr) -> Self {
        Self {
            channel: None,
            accepted_at: None,
            peer,
            up: false,
            judge_later: false,
            ending: None,
            deadline: None,
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        self.up
    }

    /// Whether the channel is one of the handshakes whose number is limited.
    pub(super) const fn counts(&self) -> bool {
        self.accepted_at.is_some() && !self.up
    }

    /// Whether the channel was reported, or the user opened it.
    const fn is_known(&self) -> bool {
        self.accepted_at.is_none() || self.up
    }

    /// False if the channel did not take the message.
    pub(super) fn send(&mut self, octets: &[u8]) -> bool {
        self.channel.as_mut().is_some_and(|channel| channel.send(octets).is_ok())
    }

    /// A message that is not taken even now came after the end of the channel. It counts as dropped.
    pub(super) fn send_or_drop(&mut self, octets: &[u8]) {
        if !self.send(octets)
            && let Some(dropped) = &mut self.ending
        {
            *dropped += octets.len();
        }
    }

    pub(super) fn close(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.close();
        }
    }

    pub(super) fn flush(&mut self, octets: &mut Vec<u8>) {
        if let Some(channel) = &mut self.channel {
            channel.poll_transmit(octets);
        }
    }

    pub(super) fn receive(&mut self, now: Time, octets: &[u8]) {
        if let Some(channel) = &mut self.channel {
            // The error comes again as an event.
            let _ = channel.receive(now, octets);
        }
    }
}

impl Channels {
    pub(super) fn accept_tls(
        &mut self,
        now: Time,
        stream: StreamId,
        local: SocketAddr,
        peer: SocketAddr,
        upper: &mut impl Upper,
    ) {
        let channel = self.tls.as_ref().map(|config| Channel::server(config, self.limits, now));
        let Some(Ok(channel)) = channel else {
            tracing::debug!(%peer, reason = "no TLS configuration", "stream reset");
            self.counters.handshakes_failed += 1;
            self.handshakes.release(source(peer.ip()));
            return self.out.push(DriverRequest::Close { stream, abort: true });
        };
        let (accepted_at, channel) = (Some(local), Some(channel));
        let record = TlsRecord { channel, accepted_at, ..TlsRecord::opened(peer) };
        self.records.insert(stream.0, Record::Tls(Box::new(record)));
        self.note_local(stream.0, local.ip());
        self.work_tls(now, stream.0, upper);
    }

    pub(super) fn connected_tls(&mut self, now: Time, stream: StreamId, upper: &mut impl Upper) {
        let Some(Record::Tls(tls)) = invariant!(
            self.records.get_mut(&stream.0),
            "a stream that connects is of a TLS channel that stands"
        ) else {
            return;
        };
        let peer = tls.peer.ip();
        match self.tls.as_ref().map(|config| Channel::client(config, peer, self.limits, now)) {
            Some(Ok(channel)) => {
                tls.channel = Some(channel);
                self.work_tls(now, stream.0, upper);
            }
            Some(Err(_)) | None => {
                self.out.push(DriverRequest::Close { stream, abort: true });
                self.end_tls(now, stream.0, Closed::Security, false, upper);
            }
        }
    }

    /// Handles the events of a channel and queues what it sends.
    pub(super) fn work_tls(&mut self, now: Time, number: u64, upper: &mut impl Upper) {
        let Some(Record::Tls(tls)) =
            invariant!(self.records.get_mut(&number), "a TLS channel with something to do stands")
        else {
            return;
        };
        let Some(channel) = &mut tls.channel else { return };
        let id = StreamId(number);
        let mut end = None;
        while let Some(event) = channel.poll_event() {
            let Event::Connected { peer } = event else {
                end = Some(event);
                break;
            };
            if !core::mem::replace(&mut tls.up, true) && tls.accepted_at.is_some() {
                self.handshakes.release(source(tls.peer.ip()));
            }
            if core::mem::take(&mut tls.judge_later) {
                self.judged_again.push_back(number);
            }
            let identity = peer.as_ref();
            upper.take(
                now,
                match tls.accepted_at {
                    None => Report::Connected { channel: id, identity },
                    Some(local) => {
                        let (transport, peer) = (Transport::TlsTcp, tls.peer);
                        Report::Accepted { channel: id, transport, local, peer, identity }
                    }
                },
            );
        }
        if tls.up && !channel.received().is_empty() {
            upper.take(now, Report::Octets { channel: id, octets: channel.received() });
            channel.consume(channel.received().len());
        }
        self.out.write(StreamId(number), |octets| {
            channel.poll_transmit(octets);
        });
        let deadline = channel.next_deadline();
        match end {
            Some(Event::Closed { unsent }) if tls.up => {
                tls.ending = Some(unsent);
                self.set_deadline(number, Some(now + LINGER));
            }
            Some(Event::Failed { error, unsent }) => self.failed_tls(now, number, &error, unsent, upper),
            Some(Event::Closed { .. }) => self.failed_tls(now, number, &ChannelError::Truncated, 0, upper),
            // While a channel ends its deadline is LINGER, not that of TLS.
            Some(Event::Connected { .. }) | None if tls.ending.is_none() => {
                self.set_deadline(number, deadline);
            }
            Some(Event::Connected { .. }) | None => {}
        }
    }

    fn failed_tls(
        &mut self,
        now: Time,
        number: u64,
        error: &ChannelError,
        unsent: usize,
        upper: &mut impl Upper,
    ) {
        let Some(Record::Tls(tls)) =
            invariant!(self.records.get(&number), "a TLS channel that failed stands until it is removed")
        else {
            return;
        };
        let (up, peer) = (tls.up, tls.peer);
        tracing::debug!(channel = number, %peer, reason = %error, handshake = !up, "TLS failed");
        if up && matches!(error, ChannelError::Untrusted(_)) {
            self.counters.tls_distrusted += 1;
            tracing::info!(%peer, reason = %error, "TLS channel ended: its peer is not trusted any more");
        } else if up {
            self.counters.tls_failed += 1;
        } else {
            self.counters.handshakes_failed += 1;
        }
        // An orderly close, so that a TLS alert still reaches the peer.
        self.out.push(DriverRequest::Close { stream: StreamId(number), abort: false });
        let why = match error {
            ChannelError::HandshakeTimeout => Closed::TimedOut,
            ChannelError::Truncated | ChannelError::Lost(_) => Closed::Reset,
            _ => Closed::Security,
        };
        self.end_tls(now, number, why, up || unsent > 0, upper);
    }

    /// Has the peers of all TLS channels judged again.
    pub(super) fn judge_all(&mut self) {
        let tls = self.records.iter().filter(|(_, record)| matches!(record, Record::Tls(_)));
        self.judged_again = tls.map(|(number, _)| *number).collect();
    }

    /// Serves the deadlines of TLS channels, and judges the peers of some. Few channels that stand end at a time.
    pub(super) fn timer_tls(&mut self, now: Time, upper: &mut impl Upper) {
        let before = self.counters.tls_distrusted;
        for _ in 0..AT_ONCE {
            let Some((_, number)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) else {
                break;
            };
            let few = now >= self.pause_until && self.counters.tls_distrusted - before < JUDGED_AT_ONCE;
            if few || !self.stands(number) {
                self.set_deadline(number, None);
                self.expired_tls(now, number, upper);
            } else {
                self.set_deadline(number, Some(self.pause_until.max(now + PAUSE)));
            }
        }
        if now >= self.pause_until {
            self.judge_some(now, upper);
        }
        if self.counters.tls_distrusted != before {
            self.pause_until = now + PAUSE;
        }
    }

    /// Whether a channel is in use. Its only deadline then is that of its peer's certificate.
    fn stands(&self, number: u64) -> bool {
        matches!(self.records.get(&number), Some(Record::Tls(tls)) if tls.up && tls.ending.is_none())
    }

    /// Judges the peers of some TLS channels, by the configuration in force.
    fn judge_some(&mut self, now: Time, upper: &mut impl Upper) {
        for _ in 0..JUDGED_AT_ONCE {
            let Some(number) = self.judged_again.pop_front() else { return };
            // It may have ended since.
            let (Some(Record::Tls(tls)), Some(config)) = (self.records.get_mut(&number), &self.tls) else {
                continue;
            };
            tls.judge_later = !tls.channel.as_mut().is_some_and(|channel| channel.judge(config, now));
            if !tls.judge_later {
                self.work_tls(now, number, upper);
            }
        }
    }

    fn expired_tls(&mut self, now: Time, number: u64, upper: &mut impl Upper) {
        let Some(Record::Tls(tls)) =
            invariant!(self.records.get_mut(&number), "a deadline is of a TLS channel that stands")
        else {
            return;
        };
        if tls.ending.is_some() {
            self.out.push(DriverRequest::Close { stream: StreamId(number), abort: false });
            return self.end_tls(now, number, Closed::Orderly, true, upper);
        }
        if let Some(channel) = &mut tls.channel {
            channel.handle_timer(now);
        }
        self.work_tls(now, number, upper);
    }

    pub(super) fn closed_tls(
        &mut self,
        now: Time,
        number: u64,
        error: Option<StreamError>,
        unacknowledged: bool,
        upper: &mut impl Upper,
    ) {
        let Some(Record::Tls(tls)) =
            invariant!(self.records.get(&number), "a stream that closed is of a TLS channel that stands")
        else {
            return;
        };
        let dropped = tls.ending.is_some_and(|unsent| unsent > 0);
        self.counters.handshakes_failed += u64::from(!tls.up && tls.channel.is_some());
        let why = match error {
            Some(error) => reason(error),
            None if tls.ending.is_some() => Closed::Orderly,
            // The stream ended without an end of TLS: an attacker may have cut it.
            None => Closed::Reset,
        };
        self.end_tls(now, number, why, unacknowledged || dropped, upper);
    }

    fn end_tls(
        &mut self,
        now: Time,
        number: u64,
        reason: Closed,
        unacknowledged: bool,
        upper: &mut impl Upper,
    ) {
        let Some(Record::Tls(tls)) = invariant!(self.remove(number), "a channel ends once") else { return };
        if tls.is_known() {
            upper.take(now, Report::Closed { channel: StreamId(number), reason, unacknowledged });
        }
    }
}
