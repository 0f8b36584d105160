//! Channels between the nodes of a protocol: TCP streams of the driver, TLS over such streams, and SCTP associations.
//!
//! SCTP is the kernel's if the configuration asks for it: then an association is a stream of the driver. Otherwise the
//! endpoints are in this process.
//!
//! A channel over a stream has the stream's number. Octets of plain streams pass unchanged. A TLS channel that a peer
//! opened is reported once its handshake is done, and the messages that are sent for one input leave in as
//! few TLS records as possible. Back-pressure needs no buffer here: the unsent octets of the driver are those of the
//! channel, and a channel that its user does not read is a stream that the driver does not read.

mod config;
mod listen;
mod outbox;
mod report;
mod sctp;
#[cfg(test)]
mod tests;
mod tls;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use signalbox_core::index::KeyedHasher;
use signalbox_core::metrics::{Family, Subsystem};
use signalbox_core::node::{Interface, StreamError, StreamId, StreamKind};
use signalbox_core::rng::Random;
use signalbox_core::shares::{Shares, source};
use signalbox_core::{Counter, Time};
use signalbox_transport::stream::{Limits, TlsConfig};

pub use self::config::{ChannelConfig, Credentials, Tls};
use self::listen::Listener;
pub(crate) use self::outbox::{DriverRequest, Outbox, SCTP};
pub(crate) use self::report::{Closed, Report, Transport, Upper};
use self::sctp::{SctpRecord, SctpSide};
use self::tls::TlsRecord;

/// Changes of channels.
const CHANNEL_EVENTS: Family = Family::counter(
    "channel_events",
    &["protocol", "event"],
    "Changes of the channels of messaging associations: plain TCP, TLS and SCTP.",
);

signalbox_core::counters! {
    /// Counters of channels.
    pub struct Counters {
        /// Channels that this node opened.
        opened: u64 => CHANNEL_EVENTS { event: "opened" },
        /// Channels that peers opened.
        accepted: u64 => CHANNEL_EVENTS { event: "accepted" },
        /// Accepted streams that were reset because too many TLS handshakes were in progress.
        handshakes_refused: u64 => CHANNEL_EVENTS { event: "tls_handshake_refused" },
        /// TLS handshakes that failed: no agreement, no valid credentials, no TLS at all, or too slow.
        handshakes_failed: u64 => CHANNEL_EVENTS { event: "tls_handshake_failed" },
        /// TLS channels that failed after the handshake because of octets from the peer.
        tls_failed: u64 => CHANNEL_EVENTS { event: "tls_failed" },
        /// TLS channels that ended because the certificate or key of the peer is not valid any more.
        tls_distrusted: u64 => CHANNEL_EVENTS { event: "tls_distrusted" },
        /// Ports at which the node could not listen.
        listen_failed: u64 => CHANNEL_EVENTS { event: "listen_failed" },
    }
}

/// The ports of a protocol at which peers connect, and what its user sends over one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports {
    /// Port of plain TCP; `None`: it is not used.
    pub(crate) tcp: Option<u16>,
    /// Port of TLS over TCP.
    pub(crate) tls: Option<u16>,
    /// Port of SCTP.
    pub(crate) sctp: Option<u16>,
    /// Octets that the user sends over a channel before it waits for a report.
    pub(crate) max_unsent: usize,
    /// Octets of the largest message.
    pub(crate) largest: usize,
}

impl Ports {
    /// Those at which peers can connect.
    pub(crate) fn listening(&self) -> Vec<u16> {
        [self.tcp, self.tls, self.sctp].into_iter().flatten().collect()
    }
}

/// What became of a message that was given to a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The channel took it, or there is no such channel any more.
    Done,
    /// An SCTP association took it: what the association holds may have changed.
    Sctp,
    /// An SCTP association could not take it. The channel is broken, since it loses nothing while it works.
    Lost,
}

#[derive(Debug)]
enum Record {
    Tcp,
    Tls(Box<TlsRecord>),
    Sctp(Box<SctpRecord>),
    /// An SCTP association of the kernel.
    KernelSctp,
}

/// All channels.
#[derive(Debug)]
pub(crate) struct Channels {
    tls: Option<TlsConfig>,
    limits: Limits,
    tcp_port: Option<u16>,
    tls_port: Option<u16>,
    /// Port of the kernel's SCTP, if that is used.
    kernel_sctp_port: Option<u16>,
    listeners: Vec<Listener>,
    /// Channels by number. Their user, the driver and this module choose the numbers; no peer does.
    records: BTreeMap<u64, Record>,
    /// Deadlines of TLS channels.
    deadlines: BTreeSet<(Time, u64)>,
    /// Accepted TLS channels whose handshake is not done, by source: one source leaves handshakes to others.
    handshakes: Shares<IpAddr>,
    /// TLS channels whose peers are to be judged again.
    judged_again: VecDeque<u64>,
    /// Until then no TLS channel that stands ends because its peer is not trusted any more.
    pause_until: Time,
    /// TLS channels with messages that were not flushed yet.
    dirty: Vec<u64>,
    sctp: Option<SctpSide>,
    /// The addresses of this node, and those at which its channels end, as far as they are known.
    own: BTreeSet<IpAddr>,
    locals: BTreeMap<u64, IpAddr>,
    pub(crate) out: Outbox,
    pub(crate) counters: Counters,
}

impl Channels {
    /// Takes other keys, certificates and revocation lists. The peers of channels that stand are judged by them, too.
    pub(crate) fn reload(&mut self, tls: Option<&Tls>, wall_clock_us: u64) {
        match tls.map(|tls| tls.load(wall_clock_us)) {
            Some(Ok(tls)) => {
                self.tls = Some(tls);
                self.judge_all();
            }
            Some(Err(error)) => tracing::warn!(%error, "keys and certificates ignored"),
            None => {}
        }
    }

    /// The wall clock was corrected. The certificates of all channels are judged by it.
    pub(crate) fn set_wall_clock(&mut self, wall_clock_us: u64) {
        if let Some(tls) = &self.tls {
            tls.set_wall_clock(wall_clock_us);
        }
        self.judge_all();
    }

    /// `seed` is SCTP's; TLS has its secrets from the system.
    /// `tls` is made of the keys in `config`. `listening`: the ports at which the protocols of the node listen.
    pub(crate) fn new(
        config: ChannelConfig,
        tls: Option<TlsConfig>,
        ports: Ports,
        listening: &[u16],
        dscp: u8,
        seed: [u8; 32],
    ) -> Self {
        let mut rng = Random::new(seed);
        let (hasher, seed) = (KeyedHasher::new(&mut rng), rng.array());
        let kernel = config.kernel_sctp;
        let ours = ports.sctp.filter(|_| !kernel);
        // Whatever the user sends before it waits for a report has a place, and two messages more: one of an application and
        // one of the protocol itself.
        let window = ports.max_unsent.saturating_add(sctp::UNDER_WAY + 2 * ports.largest);
        let most = signalbox_transport::sctp::Config {
            max_buffered: config.sctp.max_buffered.max(window),
            ..config.sctp
        };
        let sctp = ours.map(|port| SctpSide::new(most, port, listening.to_vec(), seed));
        Self {
            tls,
            limits: Limits { handshake: config.handshake, ..Limits::default() },
            tcp_port: ports.tcp,
            tls_port: ports.tls,
            kernel_sctp_port: ports.sctp.filter(|_| kernel),
            listeners: Vec::new(),
            records: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            handshakes: Shares::new(config.max_handshakes.max(1), hasher),
            judged_again: VecDeque::new(),
            pause_until: Time::ZERO,
            dirty: Vec::new(),
            sctp,
            own: BTreeSet::new(),
            locals: BTreeMap::new(),
            out: Outbox::new(dscp << 2),
            counters: Counters::default(),
        }
    }

    /// Number of channels in any state.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Adds the counters of the SCTP endpoints to `to`, if they are in use. Those of all protocols of the node are one sum.
    pub(crate) fn count_sctp(&self, to: &mut Vec<Counter>) {
        let counts = self.sctp.iter().flat_map(|side| side.counters().iter());
        for one in counts.map(Counter::of(Subsystem::protocol("sctp"))) {
            let same =
                |other: &&mut Counter| (other.subsystem, other.count.name) == (one.subsystem, one.count.name);
            match to.iter_mut().find(same) {
                Some(sum) => sum.count.value += one.count.value,
                None => to.push(one),
            }
        }
    }

    pub(crate) fn open(
        &mut self,
        now: Time,
        channel: StreamId,
        transport: Transport,
        [local, peer]: [IpAddr; 2],
        port: u16,
        upper: &mut impl Upper,
    ) {
        self.counters.opened += 1;
        let address = SocketAddr::new(peer, port);
        tracing::debug!(channel = channel.0, peer = %address, ?transport, "opening a channel");
        let mut kind = StreamKind::Tcp;
        let record = match transport {
            Transport::Sctp if self.kernel_sctp_port.is_some() => {
                kind = StreamKind::Sctp;
                Record::KernelSctp
            }
            Transport::Sctp => return self.open_sctp(now, channel, local, address, upper),
            Transport::Tcp => Record::Tcp,
            Transport::TlsTcp => Record::Tls(Box::new(TlsRecord::opened(address))),
        };
        self.records.insert(channel.0, record);
        self.note_local(channel.0, local);
        self.out.push(DriverRequest::Open { stream: channel, kind, local, peer: address });
    }

    /// Whether there is a channel of this number.
    pub(crate) fn has(&self, channel: StreamId) -> bool {
        self.records.contains_key(&channel.0)
    }

    /// Whether channels of this transport are streams of the driver.
    pub(crate) const fn runs_over_streams(&self, transport: Transport) -> bool {
        match transport {
            Transport::Tcp | Transport::TlsTcp => true,
            Transport::Sctp => self.kernel_sctp_port.is_some(),
        }
    }

    /// Whether a channel is a plain stream: then what it sends is written to the stream as it is.
    pub(crate) fn is_plain(&self, channel: StreamId) -> bool {
        matches!(self.records.get(&channel.0), Some(Record::Tcp))
    }

    /// Sends a message over a channel that is not plain. [`Channels::after_send`] must follow.
    pub(crate) fn send(
        &mut self,
        now: Time,
        channel: StreamId,
        (sctp_stream, lifetime): (u16, Option<Duration>),
        octets: &[u8],
    ) -> Sent {
        match self.records.get_mut(&channel.0) {
            Some(Record::Tls(tls)) => {
                if !tls.send(octets) {
                    // The buffer is full of messages of this input: they leave first.
                    self.out.write(channel, |octets| tls.flush(octets));
                    tls.send_or_drop(octets);
                }
                self.dirty.push(channel.0);
            }
            Some(Record::Sctp(_)) => return self.send_sctp(now, channel.0, (sctp_stream, lifetime), octets),
            // RFC 6084 §3.2: all messages of a session take one SCTP stream.
            Some(Record::KernelSctp) => self.out.message(channel, (sctp_stream, lifetime), octets),
            Some(Record::Tcp) => self.out.write(channel, |out| out.extend_from_slice(octets)),
            None => {}
        }
        Sent::Done
    }

    /// Reports what followed from [`Channels::send`].
    pub(crate) fn after_send(&mut self, now: Time, channel: StreamId, sent: Sent, upper: &mut impl Upper) {
        match sent {
            Sent::Done => {}
            Sent::Sctp => self.sent_sctp(now, channel.0, upper),
            Sent::Lost => self.break_sctp(now, channel.0, upper),
        }
    }

    pub(crate) fn read(&mut self, now: Time, channel: StreamId, on: bool, upper: &mut impl Upper) {
        match self.records.get(&channel.0) {
            Some(Record::Tcp | Record::Tls(_) | Record::KernelSctp) => {
                self.out.push(DriverRequest::Read { stream: channel, on });
            }
            Some(Record::Sctp(_)) => self.read_sctp(now, channel.0, on, upper),
            None => {}
        }
    }

    pub(crate) fn close(&mut self, now: Time, channel: StreamId, abort: bool) {
        let stream = channel;
        match self.records.get_mut(&channel.0) {
            Some(Record::Tcp | Record::KernelSctp) => self.out.push(DriverRequest::Close { stream, abort }),
            Some(Record::Tls(tls)) => {
                // Before the handshake is done there is nothing to send first.
                let abort = abort || !tls.is_up();
                if !abort {
                    tls.close();
                    self.out.write(stream, |octets| tls.flush(octets));
                }
                self.out.push(DriverRequest::Close { stream, abort });
            }
            Some(Record::Sctp(_)) => return self.close_sctp(now, channel.0, abort),
            None => {}
        }
        self.remove(channel.0);
    }

    /// Flushes the TLS channels, and makes the packets of SCTP. True if there was something to send.
    pub(crate) fn flush(&mut self) -> bool {
        let any = !self.dirty.is_empty() | self.transmit_sctp();
        for number in self.dirty.drain(..) {
            if let Some(Record::Tls(tls)) = self.records.get_mut(&number) {
                self.out.write(StreamId(number), |octets| tls.flush(octets));
            }
        }
        any
    }

    pub(crate) fn accepted(
        &mut self,
        now: Time,
        (stream, kind): (StreamId, StreamKind),
        local: SocketAddr,
        peer: SocketAddr,
        upper: &mut impl Upper,
    ) {
        self.counters.accepted += 1;
        let port = Some(local.port());
        if !stream.0.is_multiple_of(2) || self.records.contains_key(&stream.0) {
            return; // a driver chooses even numbers, and none twice
        }
        let plain = match kind {
            StreamKind::Tcp if port == self.tcp_port => Some((Record::Tcp, Transport::Tcp)),
            StreamKind::Sctp if port == self.kernel_sctp_port => Some((Record::KernelSctp, Transport::Sctp)),
            _ => None,
        };
        if let Some((record, transport)) = plain {
            tracing::debug!(channel = stream.0, %peer, ?transport, "channel accepted");
            self.records.insert(stream.0, record);
            self.note_local(stream.0, local.ip());
            upper.take(now, Report::Accepted { channel: stream, transport, local, peer, identity: None });
        } else if kind == StreamKind::Sctp {
            tracing::debug!(%peer, reason = "no such port", "SCTP association reset");
            self.out.push(DriverRequest::Close { stream, abort: true });
        } else if port == self.tls_port && self.handshakes.take(source(peer.ip())).is_ok() {
            self.accept_tls(now, stream, local, peer, upper);
        } else {
            tracing::debug!(%peer, handshakes = self.handshakes.total(), reason = "no such port, or too many TLS handshakes", "stream reset");
            self.counters.handshakes_refused += u64::from(port == self.tls_port);
            self.out.push(DriverRequest::Close { stream, abort: true });
        }
    }

    pub(crate) fn connected(&mut self, now: Time, stream: StreamId, local: IpAddr, upper: &mut impl Upper) {
        self.note_local(stream.0, local);
        match self.records.get(&stream.0) {
            Some(Record::Tcp | Record::KernelSctp) => {
                upper.take(now, Report::Connected { channel: stream, identity: None });
            }
            Some(Record::Tls(_)) => self.connected_tls(now, stream, upper),
            Some(Record::Sctp(_)) | None => {}
        }
    }

    pub(crate) fn octets(&mut self, now: Time, stream: StreamId, octets: &[u8], upper: &mut impl Upper) {
        match self.records.get_mut(&stream.0) {
            Some(Record::Tcp | Record::KernelSctp) => {
                upper.take(now, Report::Octets { channel: stream, octets });
            }
            Some(Record::Tls(tls)) => {
                tls.receive(now, octets);
                self.work_tls(now, stream.0, upper);
            }
            Some(Record::Sctp(_)) | None => {}
        }
    }

    pub(crate) fn drained(&mut self, now: Time, stream: StreamId, unsent: usize, upper: &mut impl Upper) {
        match self.records.get_mut(&stream.0) {
            Some(Record::Tls(tls)) if !tls.is_up() => return,
            Some(Record::Tcp | Record::Tls(_) | Record::KernelSctp) => {}
            Some(Record::Sctp(_)) | None => return,
        }
        upper.take(now, Report::Drained { channel: stream, unsent });
    }

    pub(crate) fn closed(
        &mut self,
        now: Time,
        stream: StreamId,
        error: Option<StreamError>,
        unacknowledged: bool,
        upper: &mut impl Upper,
    ) {
        match self.records.get_mut(&stream.0) {
            Some(Record::Tcp | Record::KernelSctp) => {
                self.remove(stream.0);
                let reason = error.map_or(Closed::Orderly, reason);
                tracing::debug!(channel = stream.0, ?reason, unacknowledged, "channel closed");
                upper.take(now, Report::Closed { channel: stream, reason, unacknowledged });
            }
            Some(Record::Tls(_)) => self.closed_tls(now, stream.0, error, unacknowledged, upper),
            Some(Record::Sctp(_)) | None => {}
        }
    }

    /// A channel ends at this address of the node.
    fn note_local(&mut self, number: u64, local: IpAddr) {
        if !local.is_unspecified() && self.records.contains_key(&number) {
            self.locals.insert(number, local);
        }
    }

    /// Takes the list of interfaces. Channels that end at an address which the node has no longer are closed: nothing arrives
    /// there, and TCP notices that only after many retransmissions.
    pub(crate) fn interfaces(&mut self, now: Time, interfaces: &[Interface], upper: &mut impl Upper) {
        let addresses = interfaces.iter().flat_map(|one| one.addresses.iter().copied()).collect();
        let former = core::mem::replace(&mut self.own, addresses);
        if former.is_subset(&self.own) {
            return;
        }
        let is_gone = |local: &IpAddr| former.contains(local) && !self.own.contains(local);
        let gone: Vec<_> =
            self.locals.iter().filter(|(_, local)| is_gone(local)).map(|(number, _)| *number).collect();
        for number in gone {
            tracing::debug!(channel = number, reason = "its address is gone", "channel closed");
            let stream = StreamId(number);
            match self.records.get(&number) {
                Some(Record::Tcp | Record::Tls(_) | Record::KernelSctp) => {
                    self.out.push(DriverRequest::Close { stream, abort: true });
                    self.closed(now, stream, Some(StreamError::Reset), true, upper);
                }
                Some(Record::Sctp(_)) => self.break_sctp(now, number, upper),
                None => {}
            }
        }
    }

    /// When [`Channels::timer`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let tls = self.deadlines.first().map(|(at, _)| *at);
        let sctp = self.sctp.as_ref().and_then(SctpSide::next_deadline);
        let judged = (!self.judged_again.is_empty()).then_some(self.pause_until);
        [tls, sctp, self.listen_deadline(), judged].into_iter().flatten().min()
    }

    pub(crate) fn timer(&mut self, now: Time, upper: &mut impl Upper) {
        self.timer_tls(now, upper);
        self.timer_sctp(now, upper);
        self.listen_again(now, upper);
    }

    /// Sets or clears the deadline of a TLS channel.
    fn set_deadline(&mut self, number: u64, deadline: Option<Time>) {
        let Some(Record::Tls(tls)) = self.records.get_mut(&number) else { return };
        if tls.deadline == deadline {
            return;
        }
        if let Some(old) = core::mem::replace(&mut tls.deadline, deadline) {
            self.deadlines.remove(&(old, number));
        }
        self.deadlines.extend(deadline.map(|at| (at, number)));
    }

    fn remove(&mut self, number: u64) -> Option<Record> {
        self.set_deadline(number, None);
        self.locals.remove(&number);
        let record = self.records.remove(&number)?;
        if let Record::Tls(tls) = &record
            && tls.counts()
        {
            self.handshakes.release(source(tls.peer.ip()));
        }
        Some(record)
    }
}

/// Time to wait for the end of the stream after the end of TLS.
const LINGER: Duration = Duration::from_secs(2);

/// The reason for the end of a channel whose stream failed with this error.
const fn reason(error: StreamError) -> Closed {
    match error {
        StreamError::Refused => Closed::Refused,
        StreamError::TimedOut => Closed::TimedOut,
        StreamError::Reset | StreamError::Unreachable | StreamError::AddressInUse | StreamError::Other => {
            Closed::Reset
        }
    }
}
