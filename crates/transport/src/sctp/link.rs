//! An established association, which sctp-proto carries. It gets only chunks that it handles correctly.
//!
//! Each association has its own sctp-proto endpoint, because an endpoint finds associations by verification tag alone
//! and makes state for every INIT. Here associations are found by addresses and ports, and the handshake is done before:
//! sctp-proto starts in the state ESTABLISHED, with tags and sequence numbers of this crate's generator.

use std::collections::BTreeSet;
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

pub(super) struct Link {
    endpoint: Endpoint,
    handle: AssociationHandle,
    association: Association,
    remote: SocketAddr,
    /// Streams with messages to read.
    readable: BTreeSet<u16>,
    /// Streams that this node has sent over.
    sending: BTreeSet<u16>,
    /// The peer's last TSN that this node acknowledged by a SACK.
    acknowledged: u32,
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
            let value = init.value(None);
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
            acknowledged: peer.tsn.wrapping_sub(1),
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

    /// Sends a message. False: sctp-proto did not accept it.
    pub(super) fn send(
        &mut self,
        id: u16,
        octets: Vec<u8>,
        ordered: bool,
        lifetime: Option<Duration>,
    ) -> bool {
        let unspecified = PayloadProtocolIdentifier::Unknown;
        self.open(id);
        let Ok(mut stream) = self.association.stream(id) else { return false };
        let (reliability, value) = match lifetime {
            None => (ReliabilityType::Reliable, 0),
            Some(life) => (ReliabilityType::Timed, u32::try_from(milliseconds(life)).unwrap_or(u32::MAX)),
        };
        self.sending.insert(id);
        stream.set_reliability_params(!ordered, reliability, value).is_ok()
            && stream.write_sctp(&Bytes::from(octets), unspecified).is_ok()
    }

    /// Octets that are accepted and neither acknowledged nor given up.
    pub(super) fn buffered(&mut self) -> usize {
        let association = &mut self.association;
        let amount = |id: &u16| association.stream(*id).ok().and_then(|stream| stream.buffered_amount().ok());
        self.sending.iter().filter_map(amount).sum()
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
