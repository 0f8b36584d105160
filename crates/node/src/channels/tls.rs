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
    opener: Opener,
    pub(super) peer: SocketAddr,
    state: State,
    pub(super) deadline: Option<Time>,
}

/// Who opened a channel.
#[derive(Debug, Clone, Copy)]
enum Opener {
    Own,
    /// The peer, at this address of ours.
    Peer(SocketAddr),
}

#[derive(Debug)]
enum State {
    /// The stream is not connected yet.
    Connecting,
    /// `judge_later`: the configuration changed meanwhile.
    Handshake {
        channel: Channel,
        judge_later: bool,
    },
    Up(Channel),
    /// The peer has ended TLS. Of our octets `dropped` were. Whether the others have arrived is known when the stream ends.
    Ending {
        channel: Channel,
        dropped: usize,
    },
}

impl State {
    const fn channel(&mut self) -> Option<&mut Channel> {
        match self {
            Self::Connecting => None,
            Self::Handshake { channel, .. } | Self::Up(channel) | Self::Ending { channel, .. } => {
                Some(channel)
            }
        }
    }

    /// The handshake is done. The result is whether the peer has to be judged by a newer configuration.
    fn connected(&mut self) -> bool {
        match core::mem::replace(self, Self::Connecting) {
            Self::Handshake { channel, judge_later } => {
                *self = Self::Up(channel);
                judge_later
            }
            other @ (Self::Connecting | Self::Up(_) | Self::Ending { .. }) => {
                *self = other;
                false
            }
        }
    }

    /// The peer has ended TLS after the handshake.
    fn end(&mut self, dropped: usize) {
        *self = match core::mem::replace(self, Self::Connecting) {
            Self::Up(channel) | Self::Ending { channel, .. } => Self::Ending { channel, dropped },
            other @ (Self::Connecting | Self::Handshake { .. }) => other,
        };
    }
}

impl TlsRecord {
    pub(super) const fn opened(peer: SocketAddr) -> Self {
        Self { opener: Opener::Own, peer, state: State::Connecting, deadline: None }
    }

    /// Whether the handshake is done.
    pub(super) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_) | State::Ending { .. })
    }

    /// Whether the channel is one of the handshakes whose number is limited.
    pub(super) const fn counts(&self) -> bool {
        matches!(self.opener, Opener::Peer(_)) && !self.is_up()
    }

    /// Whether the channel was reported, or the user opened it.
    const fn is_known(&self) -> bool {
        matches!(self.opener, Opener::Own) || self.is_up()
    }

    const fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending { .. })
    }

    /// False if the channel did not take the message.
    pub(super) fn send(&mut self, octets: &[u8]) -> bool {
        self.state.channel().is_some_and(|channel| channel.send(octets).is_ok())
    }

    /// A message that is not taken even now came after the end of the channel. It counts as dropped.
    pub(super) fn send_or_drop(&mut self, octets: &[u8]) {
        if !self.send(octets)
            && let State::Ending { dropped, .. } = &mut self.state
        {
            *dropped += octets.len();
        }
    }

    pub(super) fn close(&mut self) {
        if let Some(channel) = self.state.channel() {
            channel.close();
        }
    }

    pub(super) fn flush(&mut self, octets: &mut Vec<u8>) {
        if let Some(channel) = self.state.channel() {
            channel.poll_transmit(octets);
        }
    }

    pub(super) fn receive(&mut self, now: Time, octets: &[u8]) {
        if let Some(channel) = self.state.channel() {
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
        let state = State::Handshake { channel, judge_later: false };
        let record = TlsRecord { opener: Opener::Peer(local), state, ..TlsRecord::opened(peer) };
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
                tls.state = State::Handshake { channel, judge_later: false };
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
        let id = StreamId(number);
        let mut end = None;
        while let Some(event) = tls.state.channel().and_then(Channel::poll_event) {
            let Event::Connected { peer } = event else {
                end = Some(event);
                break;
            };
            if tls.counts() {
                self.handshakes.release(source(tls.peer.ip()));
            }
            if tls.state.connected() {
                self.judged_again.push_back(number);
            }
            let identity = peer.as_ref();
            upper.take(
                now,
                match tls.opener {
                    Opener::Own => Report::Connected { channel: id, identity },
                    Opener::Peer(local) => {
                        let (transport, peer) = (Transport::TlsTcp, tls.peer);
                        Report::Accepted { channel: id, transport, local, peer, identity }
                    }
                },
            );
        }
        let is_up = tls.is_up();
        let Some(channel) = tls.state.channel() else { return };
        if is_up && !channel.received().is_empty() {
            upper.take(now, Report::Octets { channel: id, octets: channel.received() });
            channel.consume(channel.received().len());
        }
        self.out.write(StreamId(number), |octets| {
            channel.poll_transmit(octets);
        });
        let deadline = channel.next_deadline();
        match end {
            Some(Event::Closed { unsent }) if is_up => {
                tls.state.end(unsent);
                self.set_deadline(number, Some(now + LINGER));
            }
            Some(Event::Failed { error, unsent }) => self.failed_tls(now, number, &error, unsent, upper),
            Some(Event::Closed { .. }) => self.failed_tls(now, number, &ChannelError::Truncated, 0, upper),
            // While a channel ends its deadline is LINGER, not that of TLS.
            Some(Event::Connected { .. }) | None if !tls.is_ending() => {
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
        let (up, peer) = (tls.is_up(), tls.peer);
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
        matches!(self.records.get(&number), Some(Record::Tls(tls)) if matches!(tls.state, State::Up(_)))
    }

    /// Judges the peers of some TLS channels, by the configuration in force.
    fn judge_some(&mut self, now: Time, upper: &mut impl Upper) {
        for _ in 0..JUDGED_AT_ONCE {
            let Some(number) = self.judged_again.pop_front() else { return };
            // It may have ended since.
            let (Some(Record::Tls(tls)), Some(config)) = (self.records.get_mut(&number), &self.tls) else {
                continue;
            };
            // A channel that connects yet gets the configuration that is in force then.
            let Some(channel) = tls.state.channel() else { continue };
            let judged = channel.judge(config, now);
            if let State::Handshake { judge_later, .. } = &mut tls.state {
                *judge_later = !judged;
            }
            if judged {
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
        if tls.is_ending() {
            self.out.push(DriverRequest::Close { stream: StreamId(number), abort: false });
            return self.end_tls(now, number, Closed::Orderly, true, upper);
        }
        if let Some(channel) = tls.state.channel() {
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
        let has_dropped = matches!(tls.state, State::Ending { dropped, .. } if dropped > 0);
        self.counters.handshakes_failed += u64::from(matches!(tls.state, State::Handshake { .. }));
        let why = match error {
            Some(error) => reason(error),
            None if tls.is_ending() => Closed::Orderly,
            // The stream ended without an end of TLS: an attacker may have cut it.
            None => Closed::Reset,
        };
        self.end_tls(now, number, why, unacknowledged || has_dropped, upper);
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
