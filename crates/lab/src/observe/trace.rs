//! The packets of all links, read once and put in order.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::packet::{Datagram, Gist, Ip, Kind, Segment};
use super::rsvp::{self, RsvpMessage, RsvpPacket};
use super::sctp::Associations;
#[cfg(test)]
pub(crate) use super::stream::Flow;
use super::stream::Streams;
pub(crate) use super::stream::{Connection, Content};
use crate::plan::Leg;

/// How the payload of the lab's own datagrams begins.
pub(crate) const PROBE_PAYLOAD: &[u8] = b"signalbox lab probe ";

/// A session identifier.
pub(crate) type Session = [u8; 16];

/// A frame as a capture saw it at the first end of its link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Since 1970.
    pub(crate) at: Duration,
    /// The first end sent it.
    pub(crate) outgoing: bool,
    /// From the Ethernet header on.
    pub(crate) octets: Vec<u8>,
}

/// What a message travelled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// A datagram of its own: D-mode.
    Datagram,
    /// A TCP connection or an SCTP association: C-mode.
    Stream,
}

/// A GIST message on a link.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) carrier: Carrier,
    /// Since 1970.
    pub(crate) at: Duration,
    /// The link's first end sent it.
    pub(crate) outgoing: bool,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) ttl: u8,
    pub(crate) router_alert: Option<u16>,
    pub(crate) dst_port: u16,
    pub(crate) kind: Kind,
    pub(crate) hops: u8,
    pub(crate) c_flag: bool,
    /// The IP source is the node's own address, not the flow's.
    pub(crate) s_flag: bool,
    pub(crate) session: Option<Session>,
    /// Stack-Proposal and Stack-Configuration-Data are there.
    pub(crate) negotiates: bool,
    pub(crate) error: Option<u16>,
    /// The message from its common header on.
    pub(crate) octets: Vec<u8>,
    /// The IP packet; in a stream, that with the message's last octets.
    pub(crate) packet: Vec<u8>,
    /// Where the UDP payload begins in the packet, if it is a datagram.
    pub(crate) payload_at: usize,
}

/// A datagram of the lab's own on a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) outgoing: bool,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) ttl: u8,
}

/// What passed a link.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkTrace {
    /// Index of the node at the first end.
    pub(crate) first: usize,
    pub(crate) messages: Vec<Message>,
    pub(crate) probes: Vec<Probe>,
    pub(crate) rsvp: Vec<RsvpMessage>,
    /// The packets in which they were.
    pub(crate) rsvp_packets: Vec<RsvpPacket>,
    /// In the order in which they were opened.
    pub(crate) connections: Vec<Connection>,
    /// Frames that the capture had no room for.
    pub(crate) missed: u64,
}

/// What passed all links, by the links' indexes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    pub(crate) links: Vec<LinkTrace>,
}

/// The place of a message in the order that a handshake has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Query,
    Response,
    Confirm,
    /// Data the way the Query went.
    DataDown,
    /// Data against it.
    DataUp,
}

impl Message {
    /// A message in a datagram.
    fn new(frame: &Frame, ip: Ip<'_>, dst_port: u16, payload_at: usize, gist: Gist<'_>) -> Self {
        Self {
            carrier: Carrier::Datagram,
            at: frame.at,
            outgoing: frame.outgoing,
            src: ip.src,
            dst: ip.dst,
            ttl: ip.ttl,
            router_alert: ip.router_alert,
            dst_port,
            kind: gist.kind,
            hops: gist.hops,
            c_flag: gist.c_flag,
            s_flag: gist.s_flag,
            session: gist.session,
            negotiates: gist.negotiates,
            error: gist.error,
            octets: gist.octets.to_vec(),
            packet: ip.packet.to_vec(),
            payload_at,
        }
    }
}

impl LinkTrace {
    /// Reads what a capture holds; `first` is the node at whose end it was taken.
    pub(crate) fn read(first: usize, frames: &[Frame], missed: u64) -> Self {
        let mut trace = Self { first, missed, ..Self::default() };
        let (mut streams, mut associations) = (Streams::default(), Associations::default());
        for frame in frames {
            let Some(ip) = Ip::read(&frame.octets) else { continue };
            let before = trace.rsvp.len();
            trace.rsvp.extend(rsvp::messages(frame.at, frame.outgoing, &ip));
            trace.rsvp_packets.extend(rsvp::packet(frame.at, &ip, trace.rsvp.len() - before));
            if let Some(Datagram { ip, dst_port, payload }) = Datagram::read(ip) {
                if payload.starts_with(PROBE_PAYLOAD) {
                    let Ip { src, dst, ttl, .. } = ip;
                    trace.probes.push(Probe { outgoing: frame.outgoing, src, dst, ttl });
                } else if let Some(gist) = Gist::read(payload) {
                    let payload_at = ip.packet.len() - payload.len();
                    trace.messages.push(Message::new(frame, ip, dst_port, payload_at, gist));
                }
            } else if let Some(segment) = Segment::read(ip) {
                streams.take(&segment, |gist| {
                    let message = Message::new(frame, ip, segment.dst.port(), 0, gist);
                    trace.messages.push(Message { carrier: Carrier::Stream, ..message });
                });
            } else {
                associations.take(&ip, |port, gist| {
                    let message = Message::new(frame, ip, port, 0, gist);
                    trace.messages.push(Message { carrier: Carrier::Stream, ..message });
                });
            }
        }
        trace.connections = streams.finish();
        trace.connections.extend(associations.finish());
        trace
    }

    /// Whether a frame went the way of `leg`, which is on this link.
    pub(crate) fn along(&self, outgoing: bool, leg: Leg) -> bool {
        outgoing == (leg.from == self.first)
    }

    /// The sessions of the Queries that went the way of `leg`.
    pub(crate) fn sessions(&self, leg: Leg) -> BTreeSet<Session> {
        self.queries(leg).filter_map(|message| message.session).collect()
    }

    /// The Queries that went the way of `leg`.
    pub(crate) fn queries(&self, leg: Leg) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |m| m.kind == Kind::Query && self.along(m.outgoing, leg))
    }

    /// The messages of a session's signaling along `leg`, with their places in the handshake.
    pub(crate) fn stages(&self, leg: Leg, session: Session) -> impl Iterator<Item = (Stage, &Message)> {
        self.messages.iter().filter(move |message| message.session == Some(session)).filter_map(
            move |message| {
                let stage = match (message.kind, self.along(message.outgoing, leg)) {
                    (Kind::Query, true) => Stage::Query,
                    (Kind::Response, false) => Stage::Response,
                    (Kind::Confirm, true) => Stage::Confirm,
                    (Kind::Data, true) => Stage::DataDown,
                    (Kind::Data, false) => Stage::DataUp,
                    _ => return None,
                };
                Some((stage, message))
            },
        )
    }

    /// When each stage of a session was first seen.
    pub(crate) fn firsts(&self, leg: Leg, session: Session) -> [Option<Duration>; 5] {
        let mut firsts = [None; 5];
        for (stage, message) in self.stages(leg, session) {
            firsts[stage as usize].get_or_insert(message.at);
        }
        firsts
    }
}

/// A session in hexadecimal, as the commands print it.
pub(crate) fn hex(session: Session) -> String {
    session.iter().map(|octet| format!("{octet:02x}")).collect()
}
