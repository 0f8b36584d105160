//! Channels over a reliable byte stream: Forwards-TCP as it is, or under TLS (RFC 5971 §5.7.2, §5.7.3).
//!
//! Whoever owns the socket drives a [`Channel`]:
//!
//! 1. octets from the network go into [`receive`](Channel::receive), its end into [`end`](Channel::end), its
//!    errors into [`lost`](Channel::lost);
//! 2. then [`poll_event`](Channel::poll_event) until there is none, [`received`](Channel::received) and
//!    [`consume`](Channel::consume) for what the peer sent, and [`poll_transmit`](Channel::poll_transmit) for
//!    octets to write;
//! 3. while [`wants_octets`](Channel::wants_octets) is false, the socket is not read: TCP then slows the peer.
//!
//! What is sent between two calls of `poll_transmit` shares TLS records of up to 16 kB: seven times as many
//! messages a second as with a record for each.

mod config;
mod error;
mod verify;

use core::time::Duration;
use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::net::IpAddr;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use signalbox_core::Time;

pub use self::config::{Credentials, TlsConfig, TlsConfigError, TlsSettings, Versions};
pub use self::error::{ChannelError, SendError};
use signalbox_core::security::Identity;

use crate::identity;

/// Buffers keep at most this much memory when they run empty.
const KEPT: usize = 16 * 1024;

/// Bounds on what a channel holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Octets accepted by [`Channel::send`] and not yet asked for by [`Channel::poll_transmit`]. At least the
    /// largest message, 262,148 octets.
    pub send: usize,
    /// Octets received and not consumed at which [`Channel::wants_octets`] turns false. At least the largest
    /// message. One call of [`Channel::receive`] may go beyond it by what it was given.
    pub receive: usize,
    /// Time that a TLS handshake may take.
    pub handshake: Duration,
}

/// 1 MiB each way, 10 s.
impl Default for Limits {
    fn default() -> Self {
        Self { send: 1 << 20, receive: 1 << 20, handshake: Duration::from_secs(10) }
    }
}

/// What happened to a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Ready: octets flow. The peer is known under TLS; it is `None` on a plain channel, and for a client
    /// that need not authenticate itself and did not.
    Connected {
        /// Who the peer has proved to be.
        peer: Option<Identity>,
    },
    /// The peer ended the channel orderly; what it sent before is in [`Channel::received`].
    Closed {
        /// Octets that were accepted for sending and are dropped now.
        unsent: usize,
    },
    /// The channel broke. What it received before can still be read.
    Failed {
        /// Why.
        error: ChannelError,
        /// Octets that were accepted for sending and are dropped now.
        unsent: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The TLS handshake is under way until this time at most.
    Opening(Time),
    Open,
    /// Ended by the peer, or failed.
    Over,
}

/// One end of a channel; see the module.
#[derive(Debug)]
pub struct Channel {
    tls: Option<Tls>,
    phase: Phase,
    limits: Limits,
    /// Accepted for sending, in clear.
    outgoing: Vec<u8>,
    /// Received, in clear; the first `read` octets are consumed.
    incoming: Vec<u8>,
    read: usize,
    events: VecDeque<Event>,
    /// We were asked to close.
    closing: bool,
    /// close_notify is on its way.
    notified: bool,
}

#[derive(Debug)]
struct Tls {
    connection: Box<Connection>,
    config: TlsConfig,
}

impl Channel {
    /// A plain channel over a connection that is up.
    #[must_use]
    pub fn plain(limits: Limits) -> Self {
        let mut channel = Self::new(None, Phase::Open, limits);
        channel.events.push_back(Event::Connected { peer: None });
        channel
    }

    /// The Querying node's end of a TLS channel, over a connection that is up (RFC 5971 §5.7.3). `peer` is the
    /// address that it was opened to; no name is told or compared in TLS.
    ///
    /// # Errors
    /// [`ChannelError::Internal`] if TLS cannot start, for want of random numbers for instance.
    pub fn client(config: &TlsConfig, peer: IpAddr, limits: Limits, now: Time) -> Result<Self, ChannelError> {
        config.set_time(now);
        let mut connection = ClientConnection::new(config.client.clone(), ServerName::from(peer))?;
        connection.set_buffer_limit(None); // `limits.send` bounds it
        Ok(Self::tls(connection.into(), config, limits, now))
    }

    /// The Responding node's end of a TLS channel.
    ///
    /// # Errors
    /// [`ChannelError::Internal`] if TLS cannot start.
    pub fn server(config: &TlsConfig, limits: Limits, now: Time) -> Result<Self, ChannelError> {
        config.set_time(now);
        let mut connection = ServerConnection::new(config.server.clone())?;
        connection.set_buffer_limit(None); // `limits.send` bounds it
        Ok(Self::tls(connection.into(), config, limits, now))
    }

    fn tls(connection: Connection, config: &TlsConfig, limits: Limits, now: Time) -> Self {
        let tls = Tls { connection: Box::new(connection), config: config.clone() };
        Self::new(Some(tls), Phase::Opening(now + limits.handshake), limits)
    }

    fn new(tls: Option<Tls>, phase: Phase, limits: Limits) -> Self {
        Self {
            tls,
            phase,
            limits,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            read: 0,
            events: VecDeque::new(),
            closing: false,
            notified: false,
        }
    }

    /// Octets came from the network. Those that come after the channel is over are ignored.
    ///
    /// # Errors
    /// The channel failed now; [`Event::Failed`] says the same, and an alert may be waiting to be sent.
    pub fn receive(&mut self, now: Time, octets: &[u8]) -> Result<(), ChannelError> {
        if self.phase == Phase::Over {
            return Ok(());
        }
        let Some(tls) = &mut self.tls else {
            self.incoming.extend_from_slice(octets);
            return Ok(());
        };
        tls.config.set_time(now);
        let result = tls.decrypt(octets, &mut self.incoming);
        // Even if something broken followed, what came before it counts.
        if matches!(self.phase, Phase::Opening(_)) && !tls.connection.is_handshaking() {
            match tls.peer() {
                Ok(peer) => {
                    self.phase = Phase::Open;
                    self.events.push_back(Event::Connected { peer });
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
        match result {
            Ok(Heard::More) => Ok(()),
            Ok(Heard::CloseNotify) => {
                self.over();
                Ok(())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// The byte stream ended (a TCP FIN): orderly on a plain channel, and under TLS only after close_notify.
    pub fn end(&mut self) {
        if self.phase == Phase::Over {
            return;
        }
        match &self.tls {
            None => self.over(),
            // Ending after our own close_notify without answering it is common and loses nothing of ours.
            Some(_) if self.notified => self.over(),
            Some(_) => {
                self.fail(ChannelError::Truncated);
            }
        }
    }

    /// The connection broke; `cause` is for people.
    pub fn lost(&mut self, cause: &str) {
        if self.phase != Phase::Over {
            self.fail(ChannelError::Lost(cause.to_owned()));
        }
    }

    /// Takes octets for the peer, all or none. Before the handshake is done they wait for it.
    ///
    /// # Errors
    /// [`SendError::Full`] asks for patience, [`SendError::Closed`] is final.
    pub fn send(&mut self, octets: &[u8]) -> Result<(), SendError> {
        if self.closing || self.phase == Phase::Over {
            return Err(SendError::Closed);
        }
        let room = self.send_room();
        if octets.len() > room {
            return Err(SendError::Full { room });
        }
        self.outgoing.extend_from_slice(octets);
        Ok(())
    }

    /// Octets that [`send`](Self::send) would take now.
    #[must_use]
    pub fn send_room(&self) -> usize {
        self.limits.send.saturating_sub(self.outgoing.len())
    }

    /// Appends octets for the network to `out`; false if there are none. Call it when the socket can take them:
    /// what is not asked for counts against the send limit, and so reaches whoever sends.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        match &mut self.tls {
            None => out.append(&mut self.outgoing),
            Some(tls) => {
                if self.phase == Phase::Open {
                    // Writing to memory cannot fail; neither can rustls take less with no buffer limit.
                    let _ = tls.connection.writer().write_all(&self.outgoing);
                    self.outgoing.clear();
                    if self.closing && !self.notified {
                        tls.connection.send_close_notify();
                        self.notified = true;
                    }
                }
                while tls.connection.wants_write() {
                    if !matches!(tls.connection.write_tls(out), Ok(1..)) {
                        break;
                    }
                }
            }
        }
        if self.outgoing.is_empty() {
            self.outgoing.shrink_to(KEPT);
        }
        out.len() > before
    }

    /// What the peer sent and was not consumed yet.
    #[must_use]
    pub fn received(&self) -> &[u8] {
        self.incoming.get(self.read..).unwrap_or_default()
    }

    /// Drops the first `count` octets of [`received`](Self::received), at most all.
    pub fn consume(&mut self, count: usize) {
        self.read = self.read.saturating_add(count).min(self.incoming.len());
        if self.read == self.incoming.len() {
            self.incoming.clear();
            self.incoming.shrink_to(KEPT);
            self.read = 0;
        } else if self.read > self.incoming.len() / 2 {
            // Moves fewer octets than were consumed since the last time.
            self.incoming.drain(..self.read);
            self.read = 0;
        }
    }

    /// Whether the socket should be read: the peer is not done, and less than the limit waits to be consumed.
    #[must_use]
    pub fn wants_octets(&self) -> bool {
        self.phase != Phase::Over && self.received().len() < self.limits.receive
    }

    /// The next event, in order. `Connected` comes before anything can be received.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Asks for an orderly end: what was sent still goes out, then close_notify under TLS. When
    /// [`is_flushed`](Self::is_flushed), the socket's sending side is shut down.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Everything that will ever be sent has been handed out by [`poll_transmit`](Self::poll_transmit).
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        let pending = self.tls.as_ref().is_some_and(|tls| tls.connection.wants_write());
        let notified = self.notified || self.tls.is_none() || self.phase == Phase::Over;
        (self.closing || self.phase == Phase::Over) && self.outgoing.is_empty() && !pending && notified
    }

    /// When [`handle_timer`](Self::handle_timer) wants to be called.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Opening(deadline) => Some(deadline),
            Phase::Open | Phase::Over => None,
        }
    }

    /// Fails a handshake that takes too long; otherwise nothing.
    pub fn handle_timer(&mut self, now: Time) {
        if self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.fail(ChannelError::HandshakeTimeout);
        }
    }

    /// Version of TLS in use, such as 0x0304 for 1.3; `None` on plain channels and before it is agreed.
    #[must_use]
    pub fn tls_version(&self) -> Option<u16> {
        self.tls.as_ref()?.connection.protocol_version().map(u16::from)
    }

    fn over(&mut self) {
        self.phase = Phase::Over;
        if let Some(tls) = &mut self.tls
            && !self.notified
        {
            tls.connection.send_close_notify();
            self.notified = true;
        }
        let unsent = core::mem::take(&mut self.outgoing).len();
        self.events.push_back(Event::Closed { unsent });
    }

    fn fail(&mut self, error: ChannelError) -> ChannelError {
        self.phase = Phase::Over;
        let unsent = core::mem::take(&mut self.outgoing).len();
        self.events.push_back(Event::Failed { error: error.clone(), unsent });
        error
    }
}

/// How a run of TLS octets ended.
enum Heard {
    More,
    CloseNotify,
}

impl Tls {
    /// Takes all `octets`; plaintext is appended to `to`.
    fn decrypt(&mut self, mut octets: &[u8], to: &mut Vec<u8>) -> Result<Heard, ChannelError> {
        loop {
            // Fails only if rustls holds plaintext that was not taken, and it is taken below.
            let taken =
                self.connection.read_tls(&mut octets).map_err(|e| ChannelError::Internal(e.to_string()))?;
            let state = self.connection.process_new_packets();
            let closed = matches!(&state, Ok(state) if state.peer_has_closed());
            let mut reader = self.connection.reader();
            // `Err` means that nothing is there now.
            while let Ok(plain @ [_, ..]) = reader.fill_buf() {
                to.extend_from_slice(plain);
                let count = plain.len();
                reader.consume(count);
            }
            state?;
            if closed {
                return Ok(Heard::CloseNotify);
            }
            if octets.is_empty() || taken == 0 {
                return Ok(Heard::More);
            }
        }
    }

    fn peer(&self) -> Result<Option<Identity>, ChannelError> {
        let Some([first, ..]) = self.connection.peer_certificates() else { return Ok(None) };
        if self.config.raw_keys {
            return Ok(Some(identity::of_key(first)));
        }
        let identity = identity::of_certificate(first);
        identity.map(Some).ok_or_else(|| ChannelError::Untrusted("unreadable certificate".to_owned()))
    }
}
