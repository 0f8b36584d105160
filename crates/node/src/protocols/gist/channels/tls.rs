//! Channels of TLS over a stream.

use core::net::SocketAddr;

use signalbox_core::Time;
use signalbox_core::node::{StreamError, StreamId};
use signalbox_gist::engine::{ChannelClosed, ChannelId, Input as Told, Transport};
use signalbox_transport::Channel;
use signalbox_transport::stream::{ChannelError, Event};

use super::outbox::Down;
use super::{Channels, LINGER, Record, Upper, reason};

#[derive(Debug)]
pub(super) struct TlsRecord {
    /// `None` until the stream is connected.
    channel: Option<Channel>,
    /// Our end, of an accepted one; `None`: we opened it.
    accepted_at: Option<SocketAddr>,
    peer: SocketAddr,
    /// The handshake is done.
    up: bool,
    /// The peer has ended TLS, and so many octets of ours were dropped. The end of the stream will tell whether
    /// the rest has arrived.
    ending: Option<usize>,
    pub(super) deadline: Option<Time>,
}

impl TlsRecord {
    pub(super) const fn opened(peer: SocketAddr) -> Self {
        Self { channel: None, accepted_at: None, peer, up: false, ending: None, deadline: None }
    }

    pub(super) const fn is_up(&self) -> bool {
        self.up
    }

    /// Whether it is one of the handshakes that are limited.
    pub(super) const fn counts(&self) -> bool {
        self.accepted_at.is_some() && !self.up
    }

    /// Whether GIST knows the channel.
    const fn is_known(&self) -> bool {
        self.accepted_at.is_none() || self.up
    }

    /// False: it was not taken.
    pub(super) fn send(&mut self, octets: &[u8]) -> bool {
        self.channel.as_mut().is_some_and(|channel| channel.send(octets).is_ok())
    }

    /// What cannot be taken even now came after the end of the channel; that is told with the end.
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
            // The event says the same.
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
            self.counters.handshakes_failed += 1;
            return self.out.push(Down::Close { stream, abort: true });
        };
        self.handshakes += 1;
        let (accepted_at, channel) = (Some(local), Some(channel));
        let record = TlsRecord { channel, accepted_at, ..TlsRecord::opened(peer) };
        self.records.insert(stream.0, Record::Tls(Box::new(record)));
        self.work_tls(now, stream.0, upper);
    }

    pub(super) fn connected_tls(&mut self, now: Time, stream: StreamId, upper: &mut impl Upper) {
        let Some(Record::Tls(tls)) = self.records.get_mut(&stream.0) else { return };
        let peer = tls.peer.ip();
        match self.tls.as_ref().map(|config| Channel::client(config, peer, self.limits, now)) {
            Some(Ok(channel)) => {
                tls.channel = Some(channel);
                self.work_tls(now, stream.0, upper);
            }
            Some(Err(_)) | None => {
                self.out.push(Down::Close { stream, abort: true });
                self.end_tls(now, stream.0, ChannelClosed::Security, false, upper);
            }
        }
    }

    /// Does what follows from what happened to a channel.
    pub(super) fn work_tls(&mut self, now: Time, number: u64, upper: &mut impl Upper) {
        let Some(Record::Tls(tls)) = self.records.get_mut(&number) else { return };
        let Some(channel) = &mut tls.channel else { return };
        let id = ChannelId(number);
        let mut end = None;
        while let Some(event) = channel.poll_event() {
            let Event::Connected { peer } = event else {
                end = Some(event);
                break;
            };
            if !core::mem::replace(&mut tls.up, true) && tls.accepted_at.is_some() {
                self.handshakes -= 1;
            }
            let identity = peer.as_ref();
            upper.tell(
                now,
                match tls.accepted_at {
                    None => Told::ChannelConnected { channel: id, identity },
                    Some(local) => {
                        let (transport, peer) = (Transport::TlsTcp, tls.peer);
                        Told::ChannelAccepted { channel: id, transport, local, peer, identity }
                    }
                },
            );
        }
        if tls.up && !channel.received().is_empty() {
            upper.tell(now, Told::ChannelOctets { channel: id, octets: channel.received() });
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
            // Deadlines of a channel that is ending are ours, not TLS's.
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
        let Some(Record::Tls(tls)) = self.records.get(&number) else { return };
        let up = tls.up;
        if up {
            self.counters.tls_failed += 1;
        } else {
            self.counters.handshakes_failed += 1;
        }
        // An alert may be on its way: orderly, so that it arrives.
        self.out.push(Down::Close { stream: StreamId(number), abort: false });
        let why = match error {
            ChannelError::HandshakeTimeout => ChannelClosed::TimedOut,
            ChannelError::Truncated | ChannelError::Lost(_) => ChannelClosed::Reset,
            _ => ChannelClosed::Security,
        };
        self.end_tls(now, number, why, up || unsent > 0, upper);
    }

    pub(super) fn expired_tls(&mut self, now: Time, number: u64, upper: &mut impl Upper) {
        let Some(Record::Tls(tls)) = self.records.get_mut(&number) else { return };
        if tls.ending.is_some() {
            self.out.push(Down::Close { stream: StreamId(number), abort: false });
            return self.end_tls(now, number, ChannelClosed::Orderly, true, upper);
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
        let Some(Record::Tls(tls)) = self.records.get(&number) else { return };
        let dropped = tls.ending.is_some_and(|unsent| unsent > 0);
        self.counters.handshakes_failed += u64::from(!tls.up && tls.channel.is_some());
        let why = match error {
            Some(error) => reason(error),
            None if tls.ending.is_some() => ChannelClosed::Orderly,
            // The stream ended without an end of TLS: somebody may have cut it.
            None => ChannelClosed::Reset,
        };
        self.end_tls(now, number, why, unacknowledged || dropped, upper);
    }

    fn end_tls(
        &mut self,
        now: Time,
        number: u64,
        reason: ChannelClosed,
        unacknowledged: bool,
        upper: &mut impl Upper,
    ) {
        let Some(Record::Tls(tls)) = self.forget(number) else { return };
        if tls.is_known() {
            upper.tell(now, Told::ChannelClosed { channel: ChannelId(number), reason, unacknowledged });
        }
    }
}
