//! Packets to an engine, and packets and messages that it sent.

use core::net::SocketAddr;
use core::time::Duration;

use signalbox_core::packet::{Received, Transmit, router_alert_v4, router_alert_v6};
use signalbox_core::{Entry, IfIndex};

use super::{ALERT, read};
use crate::engine::ChannelId;
use crate::wire::{Encapsulation, GistError, Message, MessageType, Nli, PORT, strip_magic};

/// The headers of a packet to an engine.
#[derive(Debug, Clone)]
pub struct Via {
    /// Source.
    pub src: SocketAddr,
    /// Destination, also that of a packet that is intercepted.
    pub dst: SocketAddr,
    /// Interface by which it comes in.
    pub ifindex: IfIndex,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS octet or traffic class.
    pub tos: u8,
    /// IP options.
    pub options: Vec<u8>,
}

impl Via {
    /// A packet in normal mode, from peer to peer.
    pub const fn normal(ifindex: IfIndex, src: SocketAddr, dst: SocketAddr) -> Self {
        Self { src, dst, ifindex, ttl: 64, tos: 0, options: Vec::new() }
    }

    /// A packet in Q-mode: it has a Router Alert of the value [`ALERT`].
    pub fn q_mode(ifindex: IfIndex, src: SocketAddr, dst: SocketAddr) -> Self {
        let options =
            if dst.is_ipv6() { router_alert_v6(ALERT).to_vec() } else { router_alert_v4(ALERT).to_vec() };
        Self { options, ..Self::normal(ifindex, src, dst) }
    }

    /// The same with this TTL.
    pub fn ttl(self, ttl: u8) -> Self {
        Self { ttl, ..self }
    }

    /// The packet with this payload.
    pub fn packet<'a>(&'a self, payload: &'a [u8]) -> Received<'a> {
        let &Self { src, dst, ifindex, ttl, tos, ref options } = self;
        Received { entry: Entry::Udp(PORT), src, dst, ifindex, ttl, tos, options, payload }
    }
}

/// A packet that an engine sent.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Source.
    pub src: SocketAddr,
    /// Destination.
    pub dst: SocketAddr,
    /// Interface by which it leaves, where the engine chose it.
    pub ifindex: Option<IfIndex>,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS octet or traffic class.
    pub tos: u8,
    /// The DF bit of IPv4.
    pub dont_fragment: bool,
    /// The flow label of IPv6.
    pub flow_label: u32,
    /// IP options.
    pub options: Vec<u8>,
    /// Payload of UDP.
    pub payload: Vec<u8>,
}

impl From<Transmit<'_>> for Packet {
    fn from(sent: Transmit<'_>) -> Self {
        Self {
            src: sent.src,
            dst: sent.dst,
            ifindex: sent.ifindex,
            ttl: sent.ttl,
            tos: sent.tos,
            dont_fragment: sent.dont_fragment,
            flow_label: sent.flow_label,
            options: sent.options.to_vec(),
            payload: sent.payload.to_vec(),
        }
    }
}

/// The methods that read the message panic where there is none.
impl Packet {
    /// The octets from the common header on.
    pub fn octets(&self) -> &[u8] {
        strip_magic(&self.payload).expect("a packet of GIST has its magic number")
    }

    /// The message.
    pub fn message(&self) -> Message<'_> {
        read(&self.payload).expect("a packet of GIST has a message")
    }

    /// Checks the type of the message.
    pub fn is(self, kind: MessageType) -> Self {
        assert_eq!(self.message().header.kind, kind, "{:?}", self.message());
        self
    }

    /// Checks that it is an Error message with this error.
    pub fn error_is(self, error: GistError) -> Self {
        assert_eq!(self.error(), error, "{:?}", self.message());
        self
    }

    /// The error of an Error message.
    pub fn error(&self) -> GistError {
        self.message().error.expect("the message has an Error object").error
    }

    /// The Network-Layer-Information of its sender.
    pub fn nli(&self) -> Nli<'_> {
        self.message().nli.expect("the message has an NLI")
    }

    /// The Query-Cookie.
    pub fn cookie(&self) -> Vec<u8> {
        self.message().query_cookie.expect("the message has a Query-Cookie").to_vec()
    }
}

/// A message that an engine sent over a channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Over {
    /// The channel.
    pub channel: ChannelId,
    /// The SCTP stream.
    pub stream: u16,
    /// How long the message may be delayed.
    pub lifetime: Option<Duration>,
    /// The octets from the common header on.
    pub octets: Vec<u8>,
}

impl Over {
    /// The message. It panics if there is none.
    pub fn message(&self) -> Message<'_> {
        Message::parse(&self.octets, Encapsulation::Association).expect("a channel has messages")
    }

    /// Checks the type of the message.
    pub fn is(self, kind: MessageType) -> Self {
        assert_eq!(self.message().header.kind, kind, "{:?}", self.message());
        self
    }

    /// Checks that it is an Error message with this error.
    pub fn error_is(self, error: GistError) -> Self {
        assert_eq!(self.message().error.map(|object| object.error), Some(error));
        self
    }
}
