//! The table of associations, requests of the user, and timers.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use core::time::Duration;

use signalbox_core::wheel::{AT_ONCE, Timed};
use signalbox_core::{Index, KeyedHasher, Link as TimerLink, Random, Slab, Time, Wheel};

use super::answers::Answers;
use super::handshake::{Cookies, Init};
use super::link::Link;
use super::packet::{Composer, Header, kind};
use super::{
    AssociationId, Config, ConnectError, Counters, Delivery, Event, EventKind, LossReason, SendError,
    Transmit,
};

/// Local ports of associations that this node opens.
const EPHEMERAL: core::ops::Range<u64> = 49_152..65_536;

/// All SCTP endpoints of a node. The module describes its use.
#[derive(Debug)]
pub struct Sctp {
    pub(super) config: Config,
    pub(super) rng: Random,
    /// Local ports that are not chosen for associations of this node: others listen there.
    reserved: Vec<u16>,
    pub(super) cookies: Cookies,
    /// Limits of answers to INITs.
    pub(super) inits: Answers,
    /// Limits of answers to packets of no association.
    pub(super) strays: Answers,
    pub(super) table: Slab<Association>,
    /// Associations by addresses and ports. The hash is keyed because peers choose them.
    index: Index,
    hasher: KeyedHasher,
    wheel: Wheel,
    opening: u32,
    packets: VecDeque<Transmit>,
    /// Associations with something to send, and the time of the last of these requests.
    sending: Vec<AssociationId>,
    latest: Time,
    events: VecDeque<Event>,
    /// The `Instant` that stands for the time 0 in sctp-proto. Only differences to it are used.
    origin: Instant,
    pub(super) counters: Counters,
}

#[derive(Debug)]
pub(super) struct Association {
    timer: TimerLink,
    /// Endpoint of this node and of the peer.
    pub(super) ends: [SocketAddr; 2],
    pub(super) mine: Init,
    pub(super) state: State,
    incoming: bool,
    /// Octets of messages in the queue of events.
    waiting: usize,
    /// The user does not take messages now.
    paused: bool,
    /// It is among those with something to send.
    sending: bool,
    /// When a packet of the peer was received last, or when this node began to wait for one.
    pub(super) last_received: Time,
    closing: Option<Time>,
}

#[derive(Debug)]
pub(super) enum State {
    Opening { step: Step, attempts: u8, again: Time },
    Up { link: Box<Link>, peer: Init },
}

#[derive(Debug)]
pub(super) enum Step {
    /// INIT is sent.
    Init,
    /// COOKIE ECHO is sent.
    Echo { cookie: Vec<u8>, peer: Init },
}

impl Timed for Association {
    fn link(&mut self) -> &mut TimerLink {
        &mut self.timer
    }
}

impl Sctp {
    /// Endpoints without associations. Tags, sequence numbers, ports and cookies are drawn from `seed`.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "sctp-proto needs an Instant, and only this function makes one"
    )]
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let mut rng = Random::new(seed);
        let cookies = Cookies::new(config.cookie_life, &mut rng);
        let sources = KeyedHasher::new(&mut rng);
        Self {
            cookies,
            inits: Answers::new(config.init_rate, config.init_burst, sources),
            strays: Answers::new(config.init_rate, config.init_burst, sources),
            table: Slab::new(config.max_associations),
            index: Index::new(),
            hasher: KeyedHasher::new(&mut rng),
            wheel: Wheel::new(Duration::from_millis(1)),
            opening: 0,
            packets: VecDeque::new(),
            sending: Vec::new(),
            latest: Time::ZERO,
            events: VecDeque::new(),
            origin: Instant::now(),
            counters: Counters::default(),
            reserved: Vec::new(),
            rng,
            config,
        }
    }

    /// Never chooses one of these local ports for an association that this node opens: other endpoints of the node listen
    /// there.
    pub fn reserve_ports(&mut self, ports: Vec<u16>) {
        self.reserved = ports;
    }

    /// Whether a packet is for these endpoints: to the port at which they listen, or of one of their associations. It is for
    /// a node that has several such values behind one raw socket. The checksum is not examined.
    #[must_use]
    pub fn is_addressee(&self, src: IpAddr, dst: IpAddr, octets: &[u8]) -> bool {
        let Some([s0, s1, d0, d1]) = octets.first_chunk() else { return false };
        let (source, destination) = (u16::from_be_bytes([*s0, *s1]), u16::from_be_bytes([*d0, *d1]));
        let ends = [SocketAddr::new(dst, destination), SocketAddr::new(src, source)];
        self.config.port == Some(destination) || self.find(&ends).is_some()
    }

    /// Opens an association (RFC 6084 §3.1.2: the Querying node opens it, to the address and port in the Response). With
    /// a `local` port of 0, this node chooses the port.
    ///
    /// # Errors
    /// [`ConnectError`]; nothing is sent.
    pub fn connect(
        &mut self,
        now: Time,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<AssociationId, ConnectError> {
        if remote.port() == 0 || local.is_ipv4() != remote.is_ipv4() {
            return Err(ConnectError::Address);
        }
        if self.opening >= self.config.max_opening {
            return Err(ConnectError::Full);
        }
        let local = if local.port() == 0 { self.free_port(local.ip(), remote)? } else { local };
        let ends = [local, remote];
        if self.find(&ends).is_some() {
            return Err(ConnectError::Exists);
        }
        let mine = self.own_init();
        let state = State::Opening { step: Step::Init, attempts: 0, again: now };
        let key = self.insert(now, ends, mine, state, false).ok_or(ConnectError::Full)?;
        self.opening += 1;
        self.work(now, key);
        Ok(key)
    }

    /// Sends a message over `stream` (RFC 9260 §11.1.5).
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent.
    pub fn send(
        &mut self,
        now: Time,
        association: AssociationId,
        stream: u16,
        octets: Vec<u8>,
        delivery: Delivery,
    ) -> Result<(), SendError> {
        let (size, buffered) = (octets.len(), self.config.max_buffered);
        let at = self.instant(now);
        if size == 0 || size > self.config.max_message {
            return Err(SendError::Size);
        }
        let record = self.table.get_mut(association).ok_or(SendError::NotUp)?;
        let State::Up { link, peer } = &mut record.state else { return Err(SendError::NotUp) };
        if record.closing.is_some() || link.is_closing() || link.ended {
            return Err(SendError::NotUp);
        }
        if stream >= record.mine.streams(peer) {
            return Err(SendError::Stream);
        }
        let before = link.buffered();
        if before + size > buffered {
            return Err(SendError::Full);
        }
        if before == 0 {
            record.last_received = now;
        }
        let lifetime = delivery.lifetime.filter(|_| peer.forward_tsn);
        link.send(at, stream, octets, delivery.ordered, lifetime);
        self.work_later(now, association);
        Ok(())
    }

    /// Octets accepted for sending and not acknowledged.
    pub fn buffered(&mut self, association: AssociationId) -> usize {
        self.table.get_mut(association).map_or(0, Association::buffered)
    }

    /// Stops or continues the reception of messages. While it is stopped, the peer can fill the receive window. Messages
    /// that are events already are still returned, and so are all messages left when the association ends.
    pub fn pause(&mut self, now: Time, association: AssociationId, paused: bool) {
        if let Some(record) = self.table.get_mut(association) {
            record.paused = paused;
            self.work(now, association);
        }
    }

    /// Shuts an association down (RFC 9260 §9.2): all sent messages arrive first. An association that is not established
    /// is aborted.
    pub fn close(&mut self, now: Time, association: AssociationId) {
        let Some(record) = self.table.get_mut(association) else { return };
        if let State::Opening { .. } = record.state {
            self.abort(association);
            return;
        }
        record.closing.get_or_insert(now + self.config.shutdown_timeout);
        self.work(now, association);
    }

    /// Aborts an association (RFC 9260 §9.1).
    pub fn abort(&mut self, association: AssociationId) {
        self.break_off(association, LossReason::Local);
    }

    /// The next packet to send. The packets that follow from messages and from received packets are made here, so that
    /// messages which are sent between two calls share packets.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        loop {
            if let Some(packet) = self.packets.pop_front() {
                return Some(packet);
            }
            let key = self.sending.pop()?;
            if self.table.get_mut(key).is_some_and(|record| core::mem::take(&mut record.sending)) {
                self.work(self.latest, key);
            }
        }
    }

    /// Whether there is an event to poll. [`poll_transmit`](Self::poll_transmit) can cause one.
    #[must_use]
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next event. Messages that are not polled fill the receive window, and the peer must wait.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let EventKind::Message { octets, .. } = &event.kind
            && let Some(record) = self.table.get_mut(event.association)
        {
            record.waiting = record.waiting.saturating_sub(octets.len());
            self.read(event.association);
        }
        Some(event)
    }

    /// When [`handle_timer`](Self::handle_timer) is due, or an earlier time.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }

    /// Handles timers that are due, a part of them at a time. The rest stays due.
    pub fn handle_timer(&mut self, now: Time) {
        for _ in 0..AT_ONCE {
            let Some(index) = self.wheel.pop_due(&mut self.table, now) else { return };
            let Some(key) = self.table.key_of(index) else { continue };
            let at = self.instant(now);
            let Some(record) = self.table.get_mut(key) else { continue };
            if let State::Up { link, .. } = &mut record.state {
                link.timeout(at);
            }
            if record.give_up_at(&self.config).is_some_and(|end| end <= now) {
                self.break_off(key, LossReason::TimedOut);
            } else {
                self.work(now, key);
            }
        }
    }

    /// Number of associations, including those that are being opened.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.table.len()
    }

    /// Whether there is no association.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Counts since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn find(&self, ends: &[SocketAddr; 2]) -> Option<AssociationId> {
        let same = |index| self.table.get_index(index).is_some_and(|record| record.ends == *ends);
        self.index.find(self.hasher.hash_one(ends), same).and_then(|index| self.table.key_of(index))
    }

    pub(super) fn own_init(&mut self) -> Init {
        let tag = self.rng.u32().max(1);
        self.init_of(tag)
    }

    /// The parameters of this node with this tag.
    pub(super) fn init_of(&self, tag: u32) -> Init {
        Init::own(tag, self.config.window, self.config.streams)
    }

    fn insert(
        &mut self,
        now: Time,
        ends: [SocketAddr; 2],
        mine: Init,
        state: State,
        incoming: bool,
    ) -> Option<AssociationId> {
        let timer = TimerLink::default();
        let record = Association {
            timer,
            ends,
            mine,
            state,
            incoming,
            waiting: 0,
            paused: false,
            sending: false,
            last_received: now,
            closing: None,
        };
        let key = self.table.insert(record).ok()?;
        let (table, hasher) = (&self.table, &self.hasher);
        let rehash = |index| table.get_index(index).map_or(0, |record| hasher.hash_one(&record.ends));
        self.index.insert(hasher.hash_one(&ends), key.index(), rehash);
        Some(key)
    }

    /// Makes the association of a valid COOKIE ECHO (RFC 9260 §5.1).
    pub(super) fn accept(
        &mut self,
        now: Time,
        ends: [SocketAddr; 2],
        mine: Init,
        peer: Init,
    ) -> Option<AssociationId> {
        let link = Box::new(Link::new(&self.config, &ends, &mine, &peer)?);
        let key = self.insert(now, ends, mine, State::Up { link, peer }, true)?;
        self.announce(key);
        Some(key)
    }

    /// Makes an association established that this node opened; false if sctp-proto refuses it.
    pub(super) fn up(&mut self, key: AssociationId, mine: Init, peer: Init) -> bool {
        let Some(record) = self.table.get_mut(key) else { return false };
        let Some(link) = Link::new(&self.config, &record.ends, &mine, &peer) else { return false };
        record.mine = mine;
        record.state = State::Up { link: Box::new(link), peer };
        self.opening -= 1;
        self.announce(key);
        true
    }

    fn announce(&mut self, key: AssociationId) {
        let Some(record) = self.table.get(key) else { return };
        let State::Up { peer, .. } = &record.state else { return };
        let [local, remote] = record.ends;
        let kind = EventKind::Connected {
            local,
            remote,
            incoming: record.incoming,
            streams: record.mine.streams(peer),
            partial_reliability: peer.forward_tsn,
        };
        tracing::debug!(association = key.to_u64(), %local, peer = %remote, incoming = record.incoming, "SCTP association established");
        self.events.push_back(Event { association: key, kind });
        self.counters.connected += 1;
    }

    /// Leaves what an association has to send to [`poll_transmit`](Self::poll_transmit). For each packet that it makes,
    /// sctp-proto examines all messages that are not acknowledged; so this is not done for each message.
    pub(super) fn work_later(&mut self, now: Time, key: AssociationId) {
        self.latest = now;
        if let Some(record) = self.table.get_mut(key)
            && !core::mem::replace(&mut record.sending, true)
        {
            self.sending.push(key);
        }
    }

    /// Does everything that follows from a packet, a request or a timer of an association.
    pub(super) fn work(&mut self, now: Time, key: AssociationId) {
        let at = self.instant(now);
        self.read(key);
        let Some(record) = self.table.get_mut(key) else { return };
        let [local, remote] = record.ends;
        let (src, dst) = (local.ip(), remote.ip());
        match &mut record.state {
            State::Opening { step, attempts, again } => {
                if *again <= now {
                    if *attempts > self.config.max_init_retries {
                        self.finish(key, Some(LossReason::NoAnswer));
                        return;
                    }
                    let wait = self.config.rto_initial * 2u32.saturating_pow(u32::from(*attempts));
                    *attempts += 1;
                    *again = now + wait.min(self.config.rto_max);
                    let header = |tag| Header { source: local.port(), destination: remote.port(), tag };
                    let octets = match step {
                        Step::Init => {
                            Composer::new(header(0)).chunk(kind::INIT, 0, &record.mine.value()).finish()
                        }
                        Step::Echo { cookie, peer } => {
                            Composer::new(header(peer.tag)).chunk(kind::COOKIE_ECHO, 0, cookie).finish()
                        }
                    };
                    self.packet(src, dst, octets);
                }
            }
            State::Up { link, .. } => {
                if record.closing.is_some() && link.buffered() == 0 {
                    link.shutdown();
                }
                let (packets, counters) = (&mut self.packets, &mut self.counters);
                link.transmit(at, |octets| {
                    counters.sent += 1;
                    packets.push_back(Transmit { src, dst, octets });
                });
                if link.ended {
                    let reason = (link.overtaken > 0).then_some(LossReason::Aborted);
                    self.finish(key, reason);
                    return;
                }
            }
        }
        self.arm(key);
    }

    fn arm(&mut self, key: AssociationId) {
        let Some(record) = self.table.get_mut(key) else { return };
        let own_deadline = match &record.state {
            State::Opening { again, .. } => Some(*again),
            // Rounded up to a microsecond, so that the timer of sctp-proto is due at this time.
            State::Up { link, .. } => link.deadline().map(|due| {
                Time::ZERO + due.saturating_duration_since(self.origin) + Duration::from_nanos(999)
            }),
        };
        let deadline = [own_deadline, record.give_up_at(&self.config)].into_iter().flatten().min();
        self.wheel.cancel(&mut self.table, key.index());
        if let Some(deadline) = deadline {
            self.wheel.arm(&mut self.table, key.index(), deadline);
        }
    }

    /// Moves messages to the queue of events, within the receive window.
    pub(super) fn read(&mut self, key: AssociationId) {
        let window = usize::try_from(self.config.window).unwrap_or(usize::MAX);
        let Some(record) = self.table.get_mut(key) else { return };
        let State::Up { link, .. } = &mut record.state else { return };
        while !record.paused
            && record.waiting < window
            && let Some((stream, octets)) = link.read()
        {
            record.waiting += octets.len();
            self.events.push_back(Event { association: key, kind: EventKind::Message { stream, octets } });
        }
    }

    /// Sends ABORT and removes the association (RFC 9260 §9.1).
    pub(super) fn break_off(&mut self, key: AssociationId, reason: LossReason) {
        let Some(record) = self.table.get(key) else { return };
        let [local, remote] = record.ends;
        let tag = match &record.state {
            State::Up { peer, .. } | State::Opening { step: Step::Echo { peer, .. }, .. } => Some(peer.tag),
            State::Opening { step: Step::Init, .. } => None,
        };
        if let Some(tag) = tag {
            let header = Header { source: local.port(), destination: remote.port(), tag };
            let octets = Composer::new(header).chunk(kind::ABORT, 0, &[]).finish();
            self.packet(local.ip(), remote.ip(), octets);
        }
        self.finish(key, Some(reason));
    }

    /// Removes an association and reports its end.
    pub(super) fn finish(&mut self, key: AssociationId, reason: Option<LossReason>) {
        if let Some(record) = self.table.get_mut(key) {
            record.paused = false;
        }
        self.read(key);
        self.wheel.cancel(&mut self.table, key.index());
        let table = &self.table;
        if let Some(record) = table.get(key) {
            self.index.remove(self.hasher.hash_one(&record.ends), |index| index == key.index());
        }
        let Some(mut record) = self.table.remove(key) else { return };
        if matches!(record.state, State::Opening { .. }) {
            self.opening -= 1;
        }
        let kind = match reason {
            None => {
                tracing::debug!(association = key.to_u64(), peer = %record.ends[1], "SCTP association closed");
                self.counters.closed += 1;
                EventKind::Closed
            }
            Some(reason) => {
                tracing::debug!(association = key.to_u64(), peer = %record.ends[1], %reason, "SCTP association lost");
                self.counters.lost += 1;
                EventKind::Lost { reason, unsent: record.buffered() }
            }
        };
        self.events.push_back(Event { association: key, kind });
    }

    pub(super) fn packet(&mut self, src: IpAddr, dst: IpAddr, octets: Vec<u8>) {
        self.counters.sent += 1;
        self.packets.push_back(Transmit { src, dst, octets });
    }

    pub(super) fn instant(&self, time: Time) -> Instant {
        self.origin + time.since(Time::ZERO)
    }

    fn free_port(&mut self, local: IpAddr, remote: SocketAddr) -> Result<SocketAddr, ConnectError> {
        for _ in 0..64 {
            let port = u16::try_from(self.rng.range(EPHEMERAL)).unwrap_or(u16::MAX);
            let local = SocketAddr::new(local, port);
            if !self.reserved.contains(&port) && self.find(&[local, remote]).is_none() {
                return Ok(local);
            }
        }
        Err(ConnectError::Full)
    }
}

impl Association {
    fn buffered(&mut self) -> usize {
        match &mut self.state {
            State::Up { link, .. } => link.buffered(),
            State::Opening { .. } => 0,
        }
    }

    /// When the association is given up, unless a packet is received before.
    fn give_up_at(&mut self, config: &Config) -> Option<Time> {
        let waiting = self.buffered() > 0;
        let silent = waiting.then_some(self.last_received + config.peer_timeout);
        [silent, self.closing].into_iter().flatten().min()
    }
}
