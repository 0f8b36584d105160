//! The packets of all links, read once and put in order.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::packet::{Datagram, Gist, Kind};
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

/// A GIST message on a link.
#[derive(Debug, Clone)]
pub(crate) struct Message {
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
    pub(crate) error: Option<u16>,
    /// The IP packet.
    pub(crate) packet: Vec<u8>,
    /// Where the UDP payload begins in the packet.
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

impl LinkTrace {
    /// Reads what a capture holds; `first` is the node at whose end it was taken.
    pub(crate) fn read(first: usize, frames: &[Frame], missed: u64) -> Self {
        let mut trace = Self { first, missed, ..Self::default() };
        for frame in frames {
            let Some(datagram) = Datagram::read(&frame.octets) else { continue };
            let Datagram { src, dst, ttl, router_alert, dst_port, payload, packet } = datagram;
            if payload.starts_with(PROBE_PAYLOAD) {
                trace.probes.push(Probe { outgoing: frame.outgoing, src, dst, ttl });
            } else if let Some(gist) = Gist::read(payload) {
                trace.messages.push(Message {
                    at: frame.at,
                    outgoing: frame.outgoing,
                    src,
                    dst,
                    ttl,
                    router_alert,
                    dst_port,
                    kind: gist.kind,
                    hops: gist.hops,
                    c_flag: gist.c_flag,
                    s_flag: gist.s_flag,
                    session: gist.session,
                    error: gist.error,
                    packet: packet.to_vec(),
                    payload_at: packet.len() - payload.len(),
                });
            }
        }
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
