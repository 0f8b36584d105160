//! The contents of TCP connections, put into order by sequence number and cut into messages.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use signalbox_dissect::stream::Ordered;

use super::message::Gist;
use crate::protocols::packet::Segment;

/// Length of the header of a TLS record (RFC 8446 §5.1).
const RECORD_HEADER: usize = 5;
const RECORD_HANDSHAKE: u8 = 22;
const RECORD_APPLICATION: u8 = 23;

/// A TCP connection on a link from its SYN on, or an SCTP association from its INIT on.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    /// It is SCTP.
    pub(crate) sctp: bool,
    /// The end that opened it.
    pub(crate) client: SocketAddr,
    /// The end that was to accept it.
    pub(crate) server: SocketAddr,
    /// A SYN with ACK, or an INIT ACK, came back.
    pub(crate) accepted: bool,
    /// The direction from the client, and that from the server.
    pub(crate) flows: [Flow; 2],
    pub(crate) opened: Opened,
    /// Session identifiers of the link's messages that are in clear in its octets.
    pub(crate) clear_sessions: usize,
}

/// When a connection was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Opened {
    /// Since 1970.
    pub(crate) at: Duration,
    /// The link's first end opened it.
    pub(crate) outgoing: bool,
    /// The number of the frame in the capture of the link.
    pub(crate) frame: usize,
}

/// One direction of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flow {
    pub(crate) content: Content,
    /// GIST messages in clear.
    pub(crate) messages: u64,
    /// TLS records of a handshake, and of application data.
    pub(crate) records: [u64; 2],
    /// All octets in their order.
    order: Ordered,
    /// The number of octets that are cut into messages already.
    cut: usize,
    /// Where the messages end that are not acknowledged, and their numbers among all messages of the link.
    sent: VecDeque<(usize, usize)>,
}

/// What a direction carries, by its first octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Content {
    /// Nothing yet.
    #[default]
    Nothing,
    /// GIST messages in clear.
    Gist,
    /// TLS records.
    Tls,
    /// Neither, or octets are missing.
    Unknown,
}

/// All connections of a link.
#[derive(Debug, Default)]
pub(super) struct Streams {
    connections: Vec<Connection>,
    /// The connection, and the direction in it, of each pair of addresses: the last one opened.
    by_ends: HashMap<(SocketAddr, SocketAddr), (usize, usize)>,
}

impl Streams {
    /// Reads a segment; `message` is called with each GIST message that it completes, and returns the number of this message. Returns the
    /// numbers of messages that it acknowledges.
    pub(super) fn take(
        &mut self,
        segment: &Segment<'_>,
        mut message: impl FnMut(Gist<'_>) -> usize,
    ) -> Vec<usize> {
        let Segment { src, dst, sequence, .. } = *segment;
        let known = self.by_ends.get(&(src, dst)).copied();
        let (connection, direction) = match known {
            // A SYN is seen more than once if it is lost; another number is another connection.
            Some((connection, 0))
                if segment.syn
                    && self.connections[connection].flows[0].order.start()
                        != Some(sequence.wrapping_add(1)) =>
            {
                self.open(segment)
            }
            Some(known) => known,
            None if segment.syn && !segment.ack => self.open(segment),
            // A connection of before the capture, which begins before any daemon; it is ignored.
            None => return Vec::new(),
        };
        let connection = &mut self.connections[connection];
        if segment.syn && segment.ack && direction == 1 {
            connection.accepted = true;
            connection.flows[1].order.begin(sequence.wrapping_add(1));
        }
        if !segment.payload.is_empty() {
            // Data in a SYN begins one behind its number.
            let sequence = sequence.wrapping_add(u32::from(segment.syn));
            let flow = &mut connection.flows[direction];
            flow.take(sequence, segment.payload);
            flow.cut(&mut message);
        }
        if segment.ack {
            connection.flows[1 - direction].acknowledged(segment.acknowledgment)
        } else {
            Vec::new()
        }
    }

    /// Returns all connections, to be completed.
    pub(super) fn all_mut(&mut self) -> &mut [Connection] {
        &mut self.connections
    }

    /// Returns all connections, in the order in which they were opened.
    pub(super) fn finish(self) -> Vec<Connection> {
        self.connections
    }

    fn open(&mut self, segment: &Segment<'_>) -> (usize, usize) {
        let Segment { src: client, dst: server, sequence, .. } = *segment;
        let index = self.connections.len();
        let forth = Flow { order: Ordered::from(sequence.wrapping_add(1)), ..Flow::default() };
        let flows = [forth, Flow::default()];
        let opened = Opened::default();
        let connection =
            Connection { sctp: false, client, server, accepted: false, flows, opened, clear_sessions: 0 };
        self.connections.push(connection);
        self.by_ends.insert((client, server), (index, 0));
        self.by_ends.insert((server, client), (index, 1));
        (index, 0)
    }
}

impl Flow {
    /// Adds octets at their place.
    fn take(&mut self, sequence: u32, payload: &[u8]) {
        if !self.order.take(sequence, payload) {
            self.content = Content::Unknown;
        }
    }

    /// Returns all octets in their order.
    pub(crate) fn octets(&self) -> &[u8] {
        self.order.octets()
    }

    /// Takes the messages that end before the octet with this number, which the other end expects next.
    fn acknowledged(&mut self, next: u32) -> Vec<usize> {
        let come = self.order.start().map_or(0, |start| next.wrapping_sub(start));
        // More than half of all numbers ahead is behind.
        let come = if come > u32::MAX / 2 { 0 } else { usize::try_from(come).unwrap_or(0) };
        let count = self.sent.iter().take_while(|(end, _)| *end <= come).count();
        self.sent.drain(..count).map(|(_, number)| number).collect()
    }

    /// Cuts complete messages and records.
    fn cut(&mut self, message: &mut impl FnMut(Gist<'_>) -> usize) {
        loop {
            let rest = self.order.octets().get(self.cut..).unwrap_or_default();
            if self.content == Content::Nothing {
                self.content = match rest {
                    [] => return,
                    [RECORD_HANDSHAKE, ..] => Content::Tls,
                    [1, ..] => Content::Gist,
                    _ => Content::Unknown,
                };
            }
            let length = match self.content {
                Content::Gist => {
                    // The version; this reader supports no other.
                    if rest.first().is_some_and(|version| *version != 1) {
                        self.content = Content::Unknown;
                        return;
                    }
                    let Some((gist, length)) = Gist::cut(rest) else { return };
                    self.sent.push_back((self.cut + length, message(gist)));
                    self.messages += 1;
                    length
                }
                Content::Tls => {
                    let [kind, major, _, high, low, ..] = rest else { return };
                    if !(20..=23).contains(kind) || *major != 3 {
                        self.content = Content::Unknown;
                        return;
                    }
                    let length = RECORD_HEADER + usize::from(u16::from_be_bytes([*high, *low]));
                    if rest.len() < length {
                        return;
                    }
                    self.records[0] += u64::from(*kind == RECORD_HANDSHAKE);
                    self.records[1] += u64::from(*kind == RECORD_APPLICATION);
                    length
                }
                Content::Nothing | Content::Unknown => return,
            };
            self.cut += length;
        }
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of cuts may have one")]
mod tests {
    use super::*;
    use crate::protocols::gist::message::Kind;

    const START: u32 = u32::MAX - 20;

    fn ends() -> [SocketAddr; 2] {
        ["10.0.1.1:40000", "10.0.1.2:270"].map(|end| end.parse().expect("an address"))
    }

    /// A Data message with a session of these octets, and one word more.
    fn data(session: u8) -> Vec<u8> {
        let header: &[u8] = &[1, 1, 0, 7, 0, 0, 3, 0x40, 0, 1, 0, 4];
        [header, &[session; 16], &[0, 8, 0, 1, 0, 0, 0, 0][..8]].concat()
    }

    fn opened() -> Streams {
        let [client, server] = ends();
        let mut streams = Streams::default();
        let syn = Segment {
            src: client,
            dst: server,
            sequence: START,
            acknowledgment: 0,
            syn: true,
            ack: false,
            payload: &[],
        };
        let answer = Segment {
            src: server,
            dst: client,
            sequence: 7,
            acknowledgment: START.wrapping_add(1),
            ack: true,
            ..syn
        };
        for segment in [syn, syn, answer] {
            streams.take(&segment, |_| panic!("no message"));
        }
        streams
    }

    /// Feeds pieces of the client's octets, by their places, in this order.
    fn feed(streams: &mut Streams, octets: &[u8], pieces: &[std::ops::Range<usize>]) -> Vec<(Kind, u8)> {
        let [src, dst] = ends();
        let mut seen = Vec::new();
        for piece in pieces {
            let at = u32::try_from(piece.start).expect("short");
            let segment = Segment {
                src,
                dst,
                sequence: START.wrapping_add(1 + at),
                acknowledgment: 8,
                syn: false,
                ack: true,
                payload: &octets[piece.clone()],
            };
            streams.take(&segment, |gist| {
                seen.push((gist.kind, gist.session.map_or(0, |session| session[0])));
                seen.len() - 1
            });
        }
        seen
    }

    #[test]
    fn messages_come_out_whole_and_in_order_however_the_segments_came() {
        let octets = [data(1), data(2), data(3)].concat();
        let all = [(Kind::Data, 1), (Kind::Data, 2), (Kind::Data, 3)];
        let ways: [&[std::ops::Range<usize>]; 5] = [
            &[0..108],
            &[0..5, 5..40, 40..108],
            &[72..108, 36..72, 0..36],
            // Sent again, in other pieces that overlap.
            &[0..50, 0..36, 60..108, 40..90, 50..61],
            &[30..80, 30..40, 70..108, 0..31],
        ];
        for pieces in ways {
            let mut streams = opened();
            assert_eq!(feed(&mut streams, &octets, pieces), all, "{pieces:?}");
            let connections = streams.finish();
            assert_eq!(connections.len(), 1);
            assert!(connections[0].accepted);
            assert_eq!(connections[0].flows[0].content, Content::Gist);
            assert_eq!(connections[0].flows[0].octets(), octets);
            assert_eq!(connections[0].flows[1].content, Content::Nothing);
        }
    }

    /// The sequence numbers of the messages wrap around.
    #[test]
    fn a_message_is_acknowledged_when_its_last_octet_is() {
        let octets = [data(1), data(2), data(3)].concat();
        let mut streams = opened();
        feed(&mut streams, &octets, &[0..108]);
        let [client, server] = ends();
        let mut answer = |octets: u32| {
            let acknowledgment = START.wrapping_add(1 + octets);
            let segment = Segment {
                src: server,
                dst: client,
                sequence: 8,
                acknowledgment,
                syn: false,
                ack: true,
                payload: &[],
            };
            streams.take(&segment, |_| panic!("no message"))
        };
        assert_eq!(answer(35), Vec::<usize>::new());
        assert_eq!(answer(36), [0]);
        assert_eq!(answer(0), Vec::<usize>::new(), "an old one");
        assert_eq!(answer(108), [1, 2]);
        assert_eq!(answer(108), Vec::<usize>::new(), "once");
    }

    #[test]
    fn a_gap_holds_back_what_is_behind_it() {
        let octets = [data(1), data(2)].concat();
        let mut streams = opened();
        assert_eq!(feed(&mut streams, &octets, &[0..30, 37..72]), []);
        assert_eq!(feed(&mut streams, &octets, &[30..36]), [(Kind::Data, 1)]);
    }

    #[test]
    fn tls_records_are_counted_and_nothing_else_passes_as_tls() {
        let records =
            [&[22, 3, 1, 0, 2, 9, 9][..], &[20, 3, 3, 0, 1, 1], &[23, 3, 3, 0, 3, 1, 2, 3]].concat();
        let mut streams = opened();
        feed(&mut streams, &records, &[0..3, 3..records.len()]);
        let flow = &streams.finish()[0].flows[0];
        assert_eq!((flow.content, flow.records, flow.messages), (Content::Tls, [1, 1], 0));

        let clear = [&records[..], &data(1)].concat();
        let mut streams = opened();
        assert_eq!(feed(&mut streams, &clear, &[0..clear.len()]), []);
        assert_eq!(streams.finish()[0].flows[0].content, Content::Unknown);
    }

    #[test]
    fn the_same_ports_again_are_another_connection() {
        let mut streams = opened();
        let [src, dst] = ends();
        let syn = Segment { src, dst, sequence: 99, acknowledgment: 0, syn: true, ack: false, payload: &[] };
        streams.take(&syn, |_| panic!("no message"));
        let connections = streams.finish();
        assert_eq!(connections.len(), 2);
        assert!(connections[0].accepted && !connections[1].accepted);
    }
}
