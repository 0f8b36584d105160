//! An established association, which sctp-proto carries. It gets only chunks that it handles correctly.
//!
//! Each association has its own sctp-proto endpoint, because an endpoint finds associations by verification tag alone
//! and makes state for every INIT. Here associations are found by addresses and ports, and the handshake is done before:
//! sctp-proto starts in the state ESTABLISHED, with tags and sequence numbers of this crate's generator.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use core::time::Duration;
use sctp_proto::{
    Association, AssociationHandle, ClientConfig, DatagramEvent, Endpoint, EndpointConfig, Event, Payload,
    PayloadProtocolIdentifier, ReliabilityType, StreamEvent, TransportConfig,
};

use super::Config;
use super::handshake::Init;
use super::packet::{amend, kind};

/// Octets that sctp-proto holds at most, besides one message. For each packet that it makes, it examines all messages that
/// are not acknowledged; what comes after these waits here. On a path with a round-trip time of 20 ms this is 13 Mbit/s.
const HELD: usize = 32 << 10;

/// A message that waits.
struct Waiting {
    stream: u16,
    octets: Vec<u8>,
    ordered: bool,
    /// When it is given up.
    until: Option<Instant>,
}

pub(super) struct Link {
    endpoint: Endpoint,
    handle: AssociationHandle,
    association: Association,
    remote: SocketAddr,
    /// Streams with messages to read.
    readable: BTreeSet<u16>,
    /// Streams that this node has sent over.
    sending: BTreeSet<u16>,
    waiting: VecDeque<Waiting>,
    /// Octets of the messages that wait.
    waiting_octets: usize,
    /// The peer's last TSN that this node acknowledged by a SACK.
    acknowledged: u32,
    /// Octets that were not acknowledged when the peer's SHUTDOWN came.
    pub(super) overtaken: usize,
    /// sctp-proto has closed it.
    pub(super) ended: bool,
}

impl core::fmt::Debug for Link {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Link").field("remote", &self.remote).finish_non_exhaustive()
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

impl Link {
    /// `None` if sctp-proto refuses it, because both tags are the same (probability 2⁻³²).
    pub(super) fn new(config: &Config, ends: &[SocketAddr; 2], mine: &Init, peer: &Init) -> Option<Self> {
        let [local, remote] = *ends;
        let size = u32::try_from(config.max_message).unwrap_or(u32::MAX);
        let transport = TransportConfig::default()
            .with_local_port(local.port())
            .with_remote_port(remote.port())
            .with_max_receive_buffer_size(config.window)
            .with_max_send_message_size(size)
            .with_max_receive_message_size(size)
            .with_max_num_inbound_streams(config.streams)
            .with_max_num_outbound_streams(config.streams)
            .with_rto_initial_ms(milliseconds(config.rto_initial))
            .with_rto_min_ms(milliseconds(config.rto_min))
            .with_rto_max_ms(milliseconds(config.rto_max));
        let mut endpoint_config = EndpointConfig::new();
        endpoint_config.max_payload_size(config.max_payload);
        let mut endpoint = Endpoint::new(Arc::new(endpoint_config), None);
        let token = |init: &Init| {
            let value = init.value();
            let mut octets = vec![kind::INIT, 0];
            octets.extend_from_slice(&u16::try_from(value.len() + 4).unwrap_or(0).to_be_bytes());
            octets.extend_from_slice(&value);
            Bytes::from(octets)
        };
        let mut client = ClientConfig::new();
        client.transport = Arc::new(transport);
        let (handle, association) =
            endpoint.connect(client.with_snap(token(mine), token(peer)), remote).ok()?;
        Some(Self {
            endpoint,
            handle,
            association,
            remote,
            readable: BTreeSet::new(),
            sending: BTreeSet::new(),
            waiting: VecDeque::new(),
            waiting_octets: 0,
            acknowledged: peer.tsn.wrapping_sub(1),
            overtaken: 0,
            ended: false,
        })
    }

    /// Takes a packet with this node's verification tag and chunks of kinds that sctp-proto handles.
    pub(super) fn packet(&mut self, at: Instant, octets: Vec<u8>) {
        let event = self.endpoint.handle(at, self.remote, None, None, Bytes::from(octets));
        if let Some((handle, DatagramEvent::AssociationEvent(event))) = event
            && handle == self.handle
        {
            self.association.handle_event(event);
        }
        self.events();
    }

    pub(super) fn timeout(&mut self, at: Instant) {
        if self.association.poll_timeout().is_some_and(|due| due <= at) {
            self.association.handle_timeout(at);
            self.events();
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.ended { None } else { self.association.poll_timeout() }
    }

    /// Packets to send.
    pub(super) fn transmit(&mut self, at: Instant, mut take: impl FnMut(Vec<u8>)) {
        self.hand_over(at);
        while let Some(transmit) = self.association.poll_transmit(at) {
            let Payload::RawEncode(packets) = transmit.payload else { continue };
            for packet in packets {
                let mut octets = Vec::from(packet);
                amend(&mut octets, &mut self.acknowledged);
                take(octets);
            }
        }
        self.events();
    }

    fn events(&mut self) {
        while let Some(event) = self.association.poll() {
            match event {
                Event::Stream(StreamEvent::Readable { id }) => {
                    self.readable.insert(id);
                }
                Event::Stream(StreamEvent::Opened { id }) => {
                    // The queue of accepted streams must not grow.
                    while self.association.accept_stream().is_some() {}
                    self.readable.insert(id);
                }
                Event::AssociationLost { .. } | Event::HandshakeFailed { .. } => self.ended = true,
                _ => {}
            }
        }
        // Events for the endpoint have no use, since each association has its own endpoint.
        while self.association.poll_endpoint_event().is_some() {}
    }

    /// The next whole message.
    pub(super) fn read(&mut self) -> Option<(u16, Vec<u8>)> {
        while let Some(&id) = self.readable.first() {
            let message =
                self.association.stream(id).ok().and_then(|mut stream| stream.read_sctp().ok().flatten());
            if let Some(message) = message {
                let mut octets = vec![0; message.len()];
                // The buffer is as long as the message.
                let _ = message.read(&mut octets);
                return Some((id, octets));
            }
            self.readable.remove(&id);
        }
        None
    }

    /// Opens a stream that was not used yet.
    pub(super) fn open(&mut self, id: u16) {
        if self.association.stream(id).is_err() {
            // If this fails, the following use of the stream fails.
            let _ = self.association.open_stream(id, PayloadProtocolIdentifier::Unknown);
        }
    }

    /// Takes a message to send.
    pub(super) fn send(
        &mut self,
        at: Instant,
        stream: u16,
        octets: Vec<u8>,
        ordered: bool,
        lifetime: Option<Duration>,
    ) {
        self.waiting_octets += octets.len();
        let until = lifetime.and_then(|lifetime| at.checked_add(lifetime));
        self.waiting.push_back(Waiting { stream, octets, ordered, until });
    }

    /// Gives messages that wait to sctp-proto, as many as it may hold.
    fn hand_over(&mut self, at: Instant) {
        let mut held = if self.waiting.is_empty() { return } else { self.held() };
        while held < HELD
            && let Some(next) = self.waiting.pop_front()
        {
            let size = next.octets.len();
            let left = next.until.map(|until| until.saturating_duration_since(at));
            if left.is_none_or(|left| left > Duration::ZERO) {
                let Ok(octets) = self.write(next, left) else { return };
                held += octets;
            }
            self.waiting_octets -= size;
        }
    }

    /// Gives a message to sctp-proto. If that refuses it, the association is about to end.
    fn write(&mut self, message: Waiting, left: Option<Duration>) -> Result<usize, ()> {
        self.open(message.stream);
        let octets = Bytes::from(message.octets);
        let size = octets.len();
        let (reliability, value) = match left {
            None => (ReliabilityType::Reliable, 0),
            Some(left) => (ReliabilityType::Timed, u32::try_from(milliseconds(left)).unwrap_or(u32::MAX)),
        };
        let written = self.association.stream(message.stream).is_ok_and(|mut stream| {
            stream.set_reliability_params(!message.ordered, reliability, value).is_ok()
                && stream.write_sctp(&octets, PayloadProtocolIdentifier::Unknown).is_ok()
        });
        if !written {
            let octets = octets.into();
            self.waiting.push_front(Waiting { octets, ..message });
            return Err(());
        }
        self.sending.insert(message.stream);
        Ok(size)
    }

    /// Octets that sctp-proto holds.
    fn held(&mut self) -> usize {
        let association = &mut self.association;
        let amount = |id: &u16| association.stream(*id).ok().and_then(|stream| stream.buffered_amount().ok());
        self.sending.iter().filter_map(amount).sum()
    }

    /// Octets that are accepted and neither acknowledged nor given up.
    pub(super) fn buffered(&mut self) -> usize {
        if self.ended { self.overtaken } else { self.waiting_octets + self.held() }
    }

    /// Starts the shutdown. [`buffered`](Self::buffered) must be 0, since sctp-proto would drop these octets.
    pub(super) fn shutdown(&mut self) {
        if !self.association.is_closing() {
            let _ = self.association.shutdown();
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.association.is_closing()
    }
}
