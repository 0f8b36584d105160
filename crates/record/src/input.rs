//! Inputs that own what they hold, and how inputs look in a line.

use core::net::{IpAddr, SocketAddr};
use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use signalbox_core::node::{
    Input, Interface, NoRoute, Prefix, Route, StreamError, StreamId, StreamKind, TransmitError,
};
use signalbox_core::packet::Received;
use signalbox_core::traffic::{ReservationId, ReserveError};
use signalbox_core::{Entry, IfIndex};
use signalbox_wire::{hex, parse_hex};

/// A packet that owns its octets; the fields are those of [`Received`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedPacket {
    /// Port of entry that it came in by.
    pub entry: Entry,
    /// Address and port in the source fields.
    pub src: SocketAddr,
    /// Address and port in the destination fields.
    pub dst: SocketAddr,
    /// Interface it came in by.
    pub ifindex: IfIndex,
    /// TTL or hop limit as received.
    pub ttl: u8,
    /// TOS octet or traffic class.
    pub tos: u8,
    /// IPv4 options or IPv6 hop-by-hop options header.
    pub options: Vec<u8>,
    /// What follows the header of the entry.
    pub payload: Vec<u8>,
}

/// An input that owns what it holds; the variants are those of [`Input`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnedInput<C> {
    /// Nothing but the time.
    Timer,
    /// A packet arrived.
    Packet(OwnedPacket),
    /// The node's interfaces.
    Interfaces(Vec<Interface>),
    /// The answer to a route lookup.
    Route {
        /// The lookup's id.
        id: u64,
        /// The answer.
        result: Result<Route, NoRoute>,
    },
    /// Routes may have changed.
    RouteChanged(Prefix),
    /// A packet could not be sent.
    TransmitFailed {
        /// By which entry.
        entry: Entry,
        /// Where it was to go.
        dst: IpAddr,
        /// Why it did not.
        error: TransmitError,
    },
    /// Somebody connected.
    StreamAccepted {
        /// Which stream.
        stream: StreamId,
        /// What it runs over.
        kind: StreamKind,
        /// Our address.
        local: SocketAddr,
        /// Who connected.
        peer: SocketAddr,
    },
    /// A stream that the node opened is up.
    StreamConnected {
        /// Which stream.
        stream: StreamId,
        /// Our address.
        local: SocketAddr,
    },
    /// Octets of a stream.
    StreamOctets {
        /// Which stream.
        stream: StreamId,
        /// What the peer wrote.
        octets: Vec<u8>,
    },
    /// The driver holds less than before.
    StreamDrained {
        /// Which stream.
        stream: StreamId,
        /// Octets it still holds.
        unsent: usize,
    },
    /// A stream is no more.
    StreamClosed {
        /// Which stream.
        stream: StreamId,
        /// Why.
        error: Option<StreamError>,
        /// Octets that were written may be lost.
        unacknowledged: bool,
    },
    /// Nobody will connect to this port.
    ListenFailed {
        /// Of which kind.
        kind: StreamKind,
        /// Which port.
        port: u16,
        /// Why.
        error: StreamError,
    },
    /// A multicast route, or that there is none.
    Multicast {
        /// The group.
        group: IpAddr,
        /// Who sends to it.
        source: IpAddr,
        /// By which interface such packets come in.
        iif: IfIndex,
        /// By which interfaces they go out.
        oifs: Vec<IfIndex>,
    },
    /// A reservation stands in the kernel, or does not.
    Reserved {
        /// Which one.
        id: ReservationId,
        /// Whether it stands.
        result: Result<(), ReserveError>,
    },
    /// A user's command.
    Command(C),
}

impl<C> OwnedInput<C> {
    /// Hands it to `take` in the form that engines take.
    pub fn give<T>(self, take: impl FnOnce(Input<'_, C>) -> T) -> T {
        match self {
            Self::Timer => take(Input::Timer),
            Self::Packet(d) => take(Input::Packet(Received {
                entry: d.entry,
                src: d.src,
                dst: d.dst,
                ifindex: d.ifindex,
                ttl: d.ttl,
                tos: d.tos,
                options: &d.options,
                payload: &d.payload,
            })),
            Self::Interfaces(interfaces) => take(Input::Interfaces(&interfaces)),
            Self::Route { id, result } => take(Input::Route { id, result }),
            Self::RouteChanged(prefix) => take(Input::RouteChanged(prefix)),
            Self::TransmitFailed { entry, dst, error } => take(Input::TransmitFailed { entry, dst, error }),
            Self::StreamAccepted { stream, kind, local, peer } => {
                take(Input::StreamAccepted { stream, kind, local, peer })
            }
            Self::StreamConnected { stream, local } => take(Input::StreamConnected { stream, local }),
            Self::StreamOctets { stream, octets } => take(Input::StreamOctets { stream, octets: &octets }),
            Self::StreamDrained { stream, unsent } => take(Input::StreamDrained { stream, unsent }),
            Self::StreamClosed { stream, error, unacknowledged } => {
                take(Input::StreamClosed { stream, error, unacknowledged })
            }
            Self::ListenFailed { kind, port, error } => take(Input::ListenFailed { kind, port, error }),
            Self::Multicast { group, source, iif, oifs } => {
                take(Input::Multicast { group, source, iif, oifs: &oifs })
            }
            Self::Reserved { id, result } => take(Input::Reserved { id, result }),
            Self::Command(command) => take(Input::Command(command)),
        }
    }
}

/// An input as it stands in a line: borrowed to write, owned when read.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Saved<'a, C> {
    Timer,
    Packet(Packet<'a>),
    Interfaces(Cow<'a, [Interface]>),
    Route {
        id: u64,
        result: Result<Route, NoRoute>,
    },
    RouteChanged(Prefix),
    TransmitFailed {
        entry: Entry,
        dst: IpAddr,
        error: TransmitError,
    },
    StreamAccepted {
        stream: StreamId,
        #[serde(default)]
        kind: StreamKind,
        local: SocketAddr,
        peer: SocketAddr,
    },
    StreamConnected {
        stream: StreamId,
        local: SocketAddr,
    },
    StreamOctets {
        stream: StreamId,
        octets: Octets<'a>,
    },
    StreamDrained {
        stream: StreamId,
        unsent: usize,
    },
    StreamClosed {
        stream: StreamId,
        error: Option<StreamError>,
        unacknowledged: bool,
    },
    ListenFailed {
        #[serde(default)]
        kind: StreamKind,
        port: u16,
        error: StreamError,
    },
    Multicast {
        group: IpAddr,
        source: IpAddr,
        iif: IfIndex,
        oifs: Cow<'a, [IfIndex]>,
    },
    Reserved {
        id: ReservationId,
        result: Result<(), ReserveError>,
    },
    Command(C),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Packet<'a> {
    entry: Entry,
    src: SocketAddr,
    dst: SocketAddr,
    ifindex: IfIndex,
    ttl: u8,
    tos: u8,
    options: Octets<'a>,
    payload: Octets<'a>,
}

/// Octets in hexadecimal.
pub(crate) struct Octets<'a>(pub(crate) Cow<'a, [u8]>);

impl Serialize for Octets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Octets<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        parse_hex(&text).map(|octets| Self(Cow::Owned(octets))).map_err(serde::de::Error::custom)
    }
}

impl<'a, C> From<&'a Input<'_, C>> for Saved<'a, &'a C> {
    fn from(input: &'a Input<'_, C>) -> Self {
        match input {
            Input::Timer => Self::Timer,
            Input::Packet(r) => Self::Packet(Packet {
                entry: r.entry,
                src: r.src,
                dst: r.dst,
                ifindex: r.ifindex,
                ttl: r.ttl,
                tos: r.tos,
                options: Octets(Cow::Borrowed(r.options)),
                payload: Octets(Cow::Borrowed(r.payload)),
            }),
            Input::Interfaces(interfaces) => Self::Interfaces(Cow::Borrowed(interfaces)),
            Input::Route { id, result } => Self::Route { id: *id, result: *result },
            Input::RouteChanged(prefix) => Self::RouteChanged(*prefix),
            Input::TransmitFailed { entry, dst, error } => {
                Self::TransmitFailed { entry: *entry, dst: *dst, error: *error }
            }
            Input::StreamAccepted { stream, kind, local, peer } => {
                Self::StreamAccepted { stream: *stream, kind: *kind, local: *local, peer: *peer }
            }
            Input::StreamConnected { stream, local } => {
                Self::StreamConnected { stream: *stream, local: *local }
            }
            Input::StreamOctets { stream, octets } => {
                Self::StreamOctets { stream: *stream, octets: Octets(Cow::Borrowed(octets)) }
            }
            Input::StreamDrained { stream, unsent } => {
                Self::StreamDrained { stream: *stream, unsent: *unsent }
            }
            Input::StreamClosed { stream, error, unacknowledged } => {
                Self::StreamClosed { stream: *stream, error: *error, unacknowledged: *unacknowledged }
            }
            Input::ListenFailed { kind, port, error } => {
                Self::ListenFailed { kind: *kind, port: *port, error: *error }
            }
            Input::Multicast { group, source, iif, oifs } => {
                Self::Multicast { group: *group, source: *source, iif: *iif, oifs: Cow::Borrowed(oifs) }
            }
            Input::Reserved { id, result } => Self::Reserved { id: *id, result: *result },
            Input::Command(command) => Self::Command(command),
        }
    }
}

impl<C> From<Saved<'_, C>> for OwnedInput<C> {
    fn from(saved: Saved<'_, C>) -> Self {
        match saved {
            Saved::Timer => Self::Timer,
            Saved::Packet(d) => Self::Packet(OwnedPacket {
                entry: d.entry,
                src: d.src,
                dst: d.dst,
                ifindex: d.ifindex,
                ttl: d.ttl,
                tos: d.tos,
                options: d.options.0.into_owned(),
                payload: d.payload.0.into_owned(),
            }),
            Saved::Interfaces(interfaces) => Self::Interfaces(interfaces.into_owned()),
            Saved::Route { id, result } => Self::Route { id, result },
            Saved::RouteChanged(prefix) => Self::RouteChanged(prefix),
            Saved::TransmitFailed { entry, dst, error } => Self::TransmitFailed { entry, dst, error },
            Saved::StreamAccepted { stream, kind, local, peer } => {
                Self::StreamAccepted { stream, kind, local, peer }
            }
            Saved::StreamConnected { stream, local } => Self::StreamConnected { stream, local },
            Saved::StreamOctets { stream, octets } => {
                Self::StreamOctets { stream, octets: octets.0.into_owned() }
            }
            Saved::StreamDrained { stream, unsent } => Self::StreamDrained { stream, unsent },
            Saved::StreamClosed { stream, error, unacknowledged } => {
                Self::StreamClosed { stream, error, unacknowledged }
            }
            Saved::ListenFailed { kind, port, error } => Self::ListenFailed { kind, port, error },
            Saved::Multicast { group, source, iif, oifs } => {
                Self::Multicast { group, source, iif, oifs: oifs.into_owned() }
            }
            Saved::Reserved { id, result } => Self::Reserved { id, result },
            Saved::Command(command) => Self::Command(command),
        }
    }
}
