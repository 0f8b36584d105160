//! Channels over a reliable byte stream: Forwards-TCP as it is, or under TLS (RFC 5971 §5.7.2, §5.7.3).
//!
//! The owner of the socket drives a [`Channel`]:
//!
//! 1. It gives octets of the socket to [`receive`](Channel::receive), and calls [`end`](Channel::end) when the socket's
//!    stream ends and [`lost`](Channel::lost) when it fails.
//! 2. Then it calls [`poll_event`](Channel::poll_event) until there is none, takes octets of the peer by
//!    [`received`](Channel::received) and [`consume`](Channel::consume), and writes the octets that
//!    [`poll_transmit`](Channel::poll_transmit) returns.
//! 3. While [`wants_octets`](Channel::wants_octets) is false, it does not read the socket. TCP then slows the peer down.
//!
//! All messages sent between two calls of `poll_transmit` share TLS records of up to 16 kB. This gives seven times as
//! many messages per second as one record for each message.

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

pub use self::config::{Credentials, Revocation, TlsConfig, TlsConfigError, TlsSettings, Versions};
pub use self::error::{ChannelError, SendError};
use signalbox_core::security::Identity;

use crate::identity;

/// Octets of memory that an empty buffer keeps.
const KEPT: usize = 16 * 1024;

/// Limits of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Octets accepted by [`Channel::send`] and not yet taken by [`Channel::poll_transmit`]. At least the largest
    /// message, 262,148 octets.
    pub send: usize,
    /// Octets received and not consumed at which [`Channel::wants_octets`] becomes false. At least the largest message.
    /// The octets of one call of [`Channel::receive`] may exceed it.
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

/// An event of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The channel is ready to send and receive. The peer is `None` on a plain channel, and for a client that did not
    /// authenticate and need not.
    Connected {
        /// The authenticated identity of the peer.
        peer: Option<Identity>,
    },
    /// The peer closed the channel. Octets that it sent before are in [`Channel::received`].
    Closed {
        /// Octets that were accepted for sending and are now dropped.
        unsent: usize,
    },
    /// The channel failed. Octets that it received before can still be read.
    Failed {
        /// The error.
        error: ChannelError,
        /// Octets that were accepted for sending and are now dropped.
        unsent: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The TLS handshake, which must end before this time.
    Opening(Time),
    /// The peer is judged again at this time.
    Open(Option<Time>),
    /// The peer closed the channel, or it failed.
    Over,
}

/// One end of a channel. The module describes its use.
#[derive(Debug)]
pub struct Channel {
    tls: Option<Tls>,
    phase: Phase,
    limits: Limits,
    /// Plaintext accepted for sending.
    outgoing: Vec<u8>,
    /// Plaintext received; the first `read` octets are consumed.
    incoming: Vec<u8>,
    read: usize,
    events: VecDeque<Event>,
    /// [`Channel::close`] was called.
    closing: bool,
    /// close_notify was sent.
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
        let mut channel = Self::new(None, Phase::Open(None), limits);
        channel.events.push_back(Event::Connected { peer: None });
        channel
    }

    /// The Querying node's end of a TLS channel, over a connection that is up (RFC 5971 §5.7.3). `peer` is the
    /// address that it was opened to. TLS neither sends nor compares a name.
    ///
    /// # Errors
    /// [`ChannelError::Internal`] if TLS cannot start, for example without random numbers.
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

    /// Takes octets of the peer. After the end of the channel they are ignored.
    ///
    /// # Errors
    /// The channel failed. [`Event::Failed`] has the same error, and an alert may wait to be sent.
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
        // Valid octets before an error are valid.
        if matches!(self.phase, Phase::Opening(_)) && !tls.connection.is_handshaking() {
            match tls.peer() {
                Ok(peer) => {
                    self.phase = Phase::Open(tls.valid_until(now));
                    tracing::debug!(authenticated = peer.is_some(), "channel connected");
                    self.events.push_back(Event::Connected { peer });
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
        match result {
            Ok(Progress::More) => Ok(()),
            Ok(Progress::CloseNotify) => {
                self.over();
                Ok(())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Handles the end of the byte stream (a TCP FIN). Under TLS it is an error without close_notify (RFC 8446 §6.1).
    pub fn end(&mut self) {
        if self.phase == Phase::Over {
            return;
        }
        match &self.tls {
            None => self.over(),
            // Many peers do not answer close_notify. No octets of this node are lost.
            Some(_) if self.notified => self.over(),
            Some(_) => {
                self.fail(ChannelError::Truncated);
            }
        }
    }

    /// Handles the failure of the byte stream. `cause` is a text for the log.
    pub fn lost(&mut self, cause: &str) {
        if self.phase != Phase::Over {
            self.fail(ChannelError::Lost(cause.to_owned()));
        }
    }

    /// Accepts octets for the peer, all or none. They are sent after the handshake.
    ///
    /// # Errors
    /// After [`SendError::Full`] the caller may try again later; [`SendError::Closed`] is final.
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

    /// Number of octets that [`send`](Self::send) would accept now.
    #[must_use]
    pub fn send_room(&self) -> usize {
        self.limits.send.saturating_sub(self.outgoing.len())
    }

    /// Appends octets for the socket to `out`; false if there are none. Call it when the socket is writable: octets that
    /// are not taken count for the send limit, which slows the sender down.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        match &mut self.tls {
            None => out.append(&mut self.outgoing),
            Some(tls) => {
                if matches!(self.phase, Phase::Open(_)) {
                    // Writing to memory cannot fail, and without a buffer limit rustls takes all octets.
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

    /// Octets of the peer that are not consumed yet.
    #[must_use]
    pub fn received(&self) -> &[u8] {
        self.incoming.get(self.read..).unwrap_or_default()
    }

    /// Removes the first `count` octets of [`received`](Self::received).
    pub fn consume(&mut self, count: usize) {
        self.read = self.read.saturating_add(count).min(self.incoming.len());
        if self.read == self.incoming.len() {
            self.incoming.clear();
            self.incoming.shrink_to(KEPT);
            self.read = 0;
        } else if self.read > self.incoming.len() / 2 {
            // This moves fewer octets than were consumed since the last move.
            self.incoming.drain(..self.read);
            self.read = 0;
        }
    }

    /// Whether the socket should be read: the channel has not ended, and less than the limit waits to be consumed.
    #[must_use]
    pub fn wants_octets(&self) -> bool {
        self.phase != Phase::Over && self.received().len() < self.limits.receive
    }

    /// The next event, in order. `Connected` comes before anything can be received.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Closes the channel. Octets accepted before are still sent, then close_notify under TLS. When
    /// [`is_flushed`](Self::is_flushed) is true, the driver shuts down the sending side of the socket.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) has returned all octets of a channel that ended.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        let pending = self.tls.as_ref().is_some_and(|tls| tls.connection.wants_write());
        let notified = self.notified || self.tls.is_none() || self.phase == Phase::Over;
        (self.closing || self.phase == Phase::Over) && self.outgoing.is_empty() && !pending && notified
    }

    /// When [`handle_timer`](Self::handle_timer) is due.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Opening(deadline) => Some(deadline),
            Phase::Open(deadline) => deadline,
            Phase::Over => None,
        }
    }

    /// Ends a handshake that takes too long, or a channel whose peer has no valid certificate any more.
    pub fn handle_timer(&mut self, now: Time) {
        if self.next_deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        match (self.phase, &self.tls) {
            (Phase::Open(_), Some(tls)) => {
                let config = tls.config.clone();
                self.judge(&config, now);
            }
            _ => drop(self.fail(ChannelError::HandshakeTimeout)),
        }
    }

    /// Judges the peer of a channel again, as a handshake with this configuration would do it now. If it is not trusted any
    /// more, the channel fails with [`ChannelError::Untrusted`]. False during the handshake, and then nothing happens.
    pub fn judge(&mut self, config: &TlsConfig, now: Time) -> bool {
        let Some(tls) = &mut self.tls else { return true };
        match self.phase {
            Phase::Opening(_) => return false,
            Phase::Over => return true,
            Phase::Open(_) => {}
        }
        let is_server = matches!(*tls.connection, Connection::Client(_));
        let chain = tls.connection.peer_certificates().unwrap_or_default();
        match config.judge(is_server, chain, now) {
            Ok(()) => {
                tls.config = config.clone();
                self.phase = Phase::Open(tls.valid_until(now));
            }
            Err(error) => {
                tls.connection.send_close_notify();
                self.notified = true;
                self.fail(error.into());
            }
        }
        true
    }

    /// TLS version in use, such as 0x0304 for 1.3; `None` on plain channels and before it is negotiated.
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
        tracing::debug!(unsent, "channel closed by the peer");
        self.events.push_back(Event::Closed { unsent });
    }

    fn fail(&mut self, error: ChannelError) -> ChannelError {
        self.phase = Phase::Over;
        let unsent = core::mem::take(&mut self.outgoing).len();
        tracing::debug!(reason = %error, unsent, "channel failed");
        self.events.push_back(Event::Failed { error: error.clone(), unsent });
        error
    }
}

/// What TLS expects after the octets that it took.
enum Progress {
    More,
    CloseNotify,
}

impl Tls {
    /// Decrypts `octets` and appends the plaintext to `to` (RFC 8446 §5.2).
    fn decrypt(&mut self, mut octets: &[u8], to: &mut Vec<u8>) -> Result<Progress, ChannelError> {
        loop {
            // This fails only if rustls has plaintext that was not taken; all is taken below.
            let taken =
                self.connection.read_tls(&mut octets).map_err(|e| ChannelError::Internal(e.to_string()))?;
            let state = self.connection.process_new_packets();
            let closed = matches!(&state, Ok(state) if state.peer_has_closed());
            let mut reader = self.connection.reader();
            // `Err` means that no plaintext is left.
            while let Ok(plain @ [_, ..]) = reader.fill_buf() {
                to.extend_from_slice(plain);
                let count = plain.len();
                reader.consume(count);
            }
            state?;
            if closed {
                return Ok(Progress::CloseNotify);
            }
            if octets.is_empty() || taken == 0 {
                return Ok(Progress::More);
            }
        }
    }

    /// When the peer is judged again.
    fn valid_until(&self, now: Time) -> Option<Time> {
        let chain = self.connection.peer_certificates()?;
        self.config.valid_until(chain, now)
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
