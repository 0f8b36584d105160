//! The contents of SCTP associations (RFC 9260), as far as the checks need them. Fragmented GIST messages are not
//! reassembled.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use super::message::Gist;
use super::stream::{Connection, Content, Flow, Opened};
use crate::protocols::packet::Ip;

const PROTOCOL_SCTP: u8 = 132;
const COMMON_HEADER: usize = 12;
const DATA: u8 = 0;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
/// The flags of a chunk that is the first and the last fragment of a message.
const WHOLE: u8 = 0x03;
/// The length of TSN, stream identifier, stream sequence number and payload protocol.
const DATA_HEADER: usize = 12;

/// All associations of a link.
#[derive(Debug, Default)]
pub(super) struct Associations {
    all: Vec<Connection>,
    /// The association, and the direction in it, of each pair of addresses: the last one opened.
    by_ends: HashMap<(SocketAddr, SocketAddr), (usize, usize)>,
    /// Transmission sequence numbers seen in a direction of an association: a chunk that comes again counts once.
    seen: BTreeSet<(usize, usize, u32)>,
}

impl Associations {
    /// Reads a packet if it is SCTP; `message` is called with each GIST message in it and the destination port.
    pub(super) fn take(&mut self, ip: &Ip<'_>, mut message: impl FnMut(u16, Gist<'_>)) {
        let Some(packet) = ip.carries(PROTOCOL_SCTP) else { return };
        let [high, low, to_high, to_low, ..] = *packet else { return };
        let port = u16::from_be_bytes([to_high, to_low]);
        let src = SocketAddr::new(ip.src, u16::from_be_bytes([high, low]));
        let dst = SocketAddr::new(ip.dst, port);
        let mut chunks = packet.get(COMMON_HEADER..).unwrap_or_default();
        while let [kind, flags, high, low, ..] = *chunks {
            let length = usize::from(u16::from_be_bytes([high, low]));
            let Some(value) = chunks.get(4..length) else { return };
            let known = self.by_ends.get(&(src, dst)).copied();
            match (kind, known) {
                // An INIT that comes again is the same attempt.
                (INIT, None | Some((_, 1))) => self.open(src, dst),
                (INIT_ACK, Some((index, 1))) => self.all[index].accepted = true,
                (DATA, Some((index, direction))) => {
                    let new = value
                        .first_chunk::<4>()
                        .is_some_and(|tsn| self.seen.insert((index, direction, u32::from_be_bytes(*tsn))));
                    let payload = value.get(DATA_HEADER..).filter(|_| new && flags & WHOLE == WHOLE);
                    let flow = &mut self.all[index].flows[direction];
                    if let Some((gist, _)) = payload.and_then(Gist::cut) {
                        flow.content = Content::Gist;
                        flow.messages += 1;
                        message(port, gist);
                    }
                }
                _ => {}
            }
            chunks = chunks.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }

    /// Returns all associations, to be completed.
    pub(super) fn all_mut(&mut self) -> &mut [Connection] {
        &mut self.all
    }

    /// Returns all associations, in the order in which they were opened.
    pub(super) fn finish(self) -> Vec<Connection> {
        self.all
    }

    fn open(&mut self, client: SocketAddr, server: SocketAddr) {
        let index = self.all.len();
        let flows = [Flow::default(), Flow::default()];
        let opened = Opened::default();
        let connection =
            Connection { sctp: true, client, server, accepted: false, flows, opened, clear_sessions: 0 };
        self.all.push(connection);
        self.by_ends.insert((client, server), (index, 0));
        self.by_ends.insert((server, client), (index, 1));
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{Kind, tests::query_v4};
    use super::*;

    /// A frame of a packet with these chunks, from 10.0.1.1 to 10.0.3.2 or back.
    fn frame(forth: bool, chunks: &[&[u8]]) -> Vec<u8> {
        let mut frame = query_v4();
        frame.truncate(14 + 24);
        let (ports, ends) = if forth {
            ([0xc0, 0, 1, 14], [10, 0, 1, 1, 10, 0, 3, 2])
        } else {
            ([1, 14, 0xc0, 0], [10, 0, 3, 2, 10, 0, 1, 1])
        };
        frame[26..34].copy_from_slice(&ends);
        frame[23] = PROTOCOL_SCTP;
        frame.extend(ports);
        frame.extend([0; 8]);
        chunks.iter().for_each(|chunk| frame.extend_from_slice(chunk));
        let length = u16::try_from(frame.len() - 14).unwrap();
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame
    }

    fn data(tsn: u8, flags: u8) -> Vec<u8> {
        let gist = [1, 1, 0, 5, 0x7f, 0xc0, 3, 0, 0, 1, 0, 4, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];
        let mut chunk = vec![DATA, flags, 0, 16 + 28, 0, 0, 0, tsn, 0, 3, 0, 0, 0, 0, 0, 0];
        chunk.extend(gist);
        chunk
    }

    #[test]
    fn messages_are_found_once_in_their_association() {
        let mut associations = Associations::default();
        let mut found = Vec::new();
        let mut take = |associations: &mut Associations, forth, chunks: &[&[u8]]| {
            let frame = frame(forth, chunks);
            let ip = Ip::read(&frame).expect("sound");
            associations.take(&ip, |port, gist| found.push((port, gist.kind, gist.session)));
        };
        take(&mut associations, true, &[&data(1, WHOLE)]);
        for _ in 0..2 {
            take(&mut associations, true, &[&[INIT, 0, 0, 4]]);
        }
        take(&mut associations, false, &[&[INIT_ACK, 0, 0, 4]]);
        take(&mut associations, true, &[&[3, 0, 0, 6, 0, 0, 0, 0], &data(1, WHOLE), &data(2, WHOLE)]);
        take(&mut associations, true, &[&data(2, WHOLE), &data(3, 1), &[9]]);
        take(&mut associations, false, &[&data(1, WHOLE)]);
        let one = |port| (port, Kind::Data, Some([7; 16]));
        assert_eq!(found, [one(270), one(270), one(0xc000)]);
        let all = associations.finish();
        let [connection] = &all[..] else { panic!("{all:?}") };
        assert!(connection.accepted && connection.sctp);
        assert_eq!(connection.flows.each_ref().map(|flow| flow.messages), [2, 1]);
    }
}
