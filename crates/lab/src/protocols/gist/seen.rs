//! The GIST messages of a link, in datagrams and in streams, and the connections that carried streams.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::message::{Gist, Kind};
use super::sctp::Associations;
pub(crate) use super::stream::{Connection, Content};
use super::stream::{Opened, Streams};
use crate::protocols::frame::Frame;
use crate::protocols::packet::{Datagram, Ip, Segment, u16_at};
use crate::protocols::{Observer, fields};

/// The type of the NAT-Traversal object.
const NAT_TRAVERSAL: u16 = 7;

/// A session identifier.
pub(crate) type Session = [u8; 16];

/// How a message was carried.
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
    /// When TCP at the other end acknowledged its last octet.
    pub(crate) acknowledged: Option<Duration>,
    /// The link's first end sent it.
    pub(crate) outgoing: bool,
    /// The number of its frame in the capture of the link.
    pub(crate) frame: usize,
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

/// What passed a link.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) messages: Vec<Message>,
    /// In the order in which they were opened.
    pub(crate) connections: Vec<Connection>,
    streams: Streams,
    associations: Associations,
}

impl Message {
    /// Returns a message in a datagram.
    fn new(frame: &Frame, ip: Ip<'_>, dst_port: u16, payload_at: usize, gist: Gist<'_>) -> Self {
        Self {
            carrier: Carrier::Datagram,
            at: frame.at,
            acknowledged: None,
            outgoing: frame.outgoing,
            frame: frame.number,
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

    /// NAT-Count of the NAT-Traversal object (RFC 5971 A.3.9); `None`: the message does not begin with one.
    pub(crate) fn nats(&self) -> Option<u8> {
        let is_first = u16_at(&self.octets, 8)? & 0x0fff == NAT_TRAVERSAL;
        is_first.then(|| self.octets.get(14).copied())?
    }
}

impl Observer for Seen {
    fn take(&mut self, frame: &Frame, ip: Ip<'_>) {
        let messages = &mut self.messages;
        let mut in_stream = |port: u16, gist: Gist<'_>| {
            let message = Message::new(frame, ip, port, 0, gist);
            messages.push(Message { carrier: Carrier::Stream, ..message });
            messages.len() - 1
        };
        if let Some(Datagram { ip, dst_port, payload }) = Datagram::read(ip) {
            if let Some(gist) = Gist::read(payload) {
                let payload_at = ip.packet.len() - payload.len();
                self.messages.push(Message::new(frame, ip, dst_port, payload_at, gist));
            }
        } else if let Some(segment) = Segment::read(ip) {
            for number in self.streams.take(&segment, |gist| in_stream(segment.dst.port(), gist)) {
                if let Some(message) = self.messages.get_mut(number) {
                    message.acknowledged = Some(frame.at);
                }
            }
            mark(self.streams.all_mut(), frame);
        } else {
            self.associations.take(&ip, |port, gist| _ = in_stream(port, gist));
            mark(self.associations.all_mut(), frame);
        }
    }

    fn finish(&mut self) {
        self.connections = std::mem::take(&mut self.streams).finish();
        self.connections.extend(std::mem::take(&mut self.associations).finish());
        let sessions: BTreeSet<Session> =
            self.messages.iter().filter_map(|message| message.session).collect();
        for connection in &mut self.connections {
            let shown = |session: &&Session| {
                let mut flows = connection.flows.iter().filter(|flow| flow.content != Content::Gist);
                flows.any(|flow| flow.octets().windows(16).any(|octets| octets == session.as_slice()))
            };
            // What is in clear by its form needs no search.
            connection.clear_sessions = sessions.iter().filter(shown).count();
        }
    }

    fn protocol(&self) -> &'static str {
        "gist"
    }

    fn messages(&self) -> Vec<&dyn fields::Message> {
        let messages = self.messages.iter().map(|message| message as &dyn fields::Message);
        messages.chain(self.connections.iter().map(|connection| connection as &dyn fields::Message)).collect()
    }
}

/// Notes when and in which frame the last connection was opened.
fn mark(connections: &mut [Connection], frame: &Frame) {
    if let Some(last) = connections.last_mut().filter(|last| last.opened.frame == 0) {
        last.opened = Opened { at: frame.at, outgoing: frame.outgoing, frame: frame.number };
    }
}

/// Returns octets in hexadecimal, as the commands print them.
pub(crate) fn hex(octets: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 * octets.len());
    for octet in octets {
        // Writing to a string does not fail.
        let _ = write!(text, "{octet:02x}");
    }
    text
}
