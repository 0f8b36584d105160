//! SCTP packets (RFC 9260 §3): common header, checksum, chunks.

use crc::{CRC_32_ISCSI, Crc, Table};

/// CRC32c, sixteen octets at a time.
static CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Octets of the common header.
const HEADER: usize = 12;

/// Chunk types (§3.2) that this crate handles.
pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const INIT: u8 = 1;
    pub(crate) const INIT_ACK: u8 = 2;
    pub(crate) const SACK: u8 = 3;
    pub(crate) const HEARTBEAT: u8 = 4;
    pub(crate) const ABORT: u8 = 6;
    pub(crate) const SHUTDOWN: u8 = 7;
    pub(crate) const SHUTDOWN_ACK: u8 = 8;
    pub(crate) const ERROR: u8 = 9;
    pub(crate) const COOKIE_ECHO: u8 = 10;
    pub(crate) const COOKIE_ACK: u8 = 11;
    pub(crate) const SHUTDOWN_COMPLETE: u8 = 14;
    pub(crate) const FORWARD_TSN: u8 = 192;
}

/// T bit of ABORT and SHUTDOWN COMPLETE: the verification tag is that of the packet that is answered (§8.5.1).
pub(super) const T_BIT: u8 = 1;

/// The common header without the checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) source: u16,
    pub(super) destination: u16,
    pub(super) tag: u32,
}

/// A chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk<'a> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) value: &'a [u8],
    /// The whole chunk, with the padding that was sent.
    pub(super) octets: &'a [u8],
}

/// A packet with a correct checksum and chunks of correct length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) header: Header,
    body: &'a [u8],
}

impl<'a> Packet<'a> {
    pub(super) fn parse(octets: &'a [u8]) -> Option<Self> {
        let (head, body) = octets.split_first_chunk::<HEADER>()?;
        let [s0, s1, d0, d1, t0, t1, t2, t3, c0, c1, c2, c3] = *head;
        if checksum(octets) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return None;
        }
        let header = Header {
            source: u16::from_be_bytes([s0, s1]),
            destination: u16::from_be_bytes([d0, d1]),
            tag: u32::from_be_bytes([t0, t1, t2, t3]),
        };
        let packet = Self { header, body };
        let whole: usize = packet.chunks().map(|chunk| chunk.octets.len()).sum();
        (whole == body.len() && whole > 0 && header.source != 0 && header.destination != 0).then_some(packet)
    }

    pub(super) fn chunks(&self) -> impl Iterator<Item = Chunk<'a>> + use<'a> {
        let mut rest = self.body;
        core::iter::from_fn(move || {
            let [kind, flags, l0, l1, ..] = *rest else { return None };
            let length = usize::from(u16::from_be_bytes([l0, l1]));
            let value = rest.get(4..length)?;
            let (octets, after) = rest.split_at(length.next_multiple_of(4).min(rest.len()));
            rest = after;
            Some(Chunk { kind, flags, value, octets })
        })
    }
}

/// Composes a packet.
pub(super) struct Composer(Vec<u8>);

impl Composer {
    pub(super) fn new(header: Header) -> Self {
        let mut octets = Vec::with_capacity(128);
        octets.extend_from_slice(&header.source.to_be_bytes());
        octets.extend_from_slice(&header.destination.to_be_bytes());
        octets.extend_from_slice(&header.tag.to_be_bytes());
        octets.extend_from_slice(&[0; 4]);
        Self(octets)
    }

    /// A chunk from its parts; a value that does not fit into the length field makes an empty chunk.
    pub(super) fn chunk(mut self, kind: u8, flags: u8, value: &[u8]) -> Self {
        let (length, value) = u16::try_from(value.len() + 4).map_or((4, &[][..]), |length| (length, value));
        self.0.extend_from_slice(&[kind, flags]);
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(value);
        self.pad()
    }

    /// A chunk as it was received.
    pub(super) fn copied(mut self, chunk: &Chunk<'_>) -> Self {
        self.0.extend_from_slice(chunk.octets);
        self.pad()
    }

    fn pad(mut self) -> Self {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == HEADER
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        seal(&mut self.0);
        self.0
    }
}

/// A packet of these ports, this tag and any body, with its checksum; for the fuzz bodies.
pub(crate) fn sealed(header: &[u8; 8], body: &[u8]) -> Vec<u8> {
    let mut octets = [&header[..], &[0; 4], body].concat();
    seal(&mut octets);
    octets
}

/// Writes the checksum.
fn seal(octets: &mut [u8]) {
    let sum = checksum(octets).to_le_bytes();
    if let Some(field) = octets.get_mut(8..HEADER) {
        field.copy_from_slice(&sum);
    }
}

fn checksum(octets: &[u8]) -> u32 {
    let mut digest = CRC.digest();
    digest.update(octets.get(..8).unwrap_or_default());
    digest.update(&[0; 4]);
    digest.update(octets.get(HEADER..).unwrap_or_default());
    digest.finalize()
}

/// Corrects a packet of sctp-proto. The payload protocol identifier of DATA becomes 0, "unspecified": RFC 6084 registers
/// none, and sctp-proto has those of WebRTC only. SHUTDOWN acknowledges the data that this node received (§3.3.8);
/// sctp-proto acknowledges the wrong direction, and usrsctp aborts because of it. `acknowledged` is the last TSN that a
/// SACK acknowledged; each SACK updates it.
pub(super) fn amend(octets: &mut [u8], acknowledged: &mut u32) {
    let mut at = HEADER;
    let mut changed = false;
    while let Some([chunk, _, l0, l1]) =
        octets.get(at..at + 4).and_then(|head| <[u8; 4]>::try_from(head).ok())
    {
        let tsn = octets.get_mut(at + 4..).and_then(<[u8]>::first_chunk_mut::<4>);
        match (chunk, tsn) {
            (kind::SACK, Some(tsn)) => *acknowledged = u32::from_be_bytes(*tsn),
            (kind::SHUTDOWN, Some(tsn)) => {
                *tsn = acknowledged.to_be_bytes();
                changed = true;
            }
            (kind::DATA, _) => {
                if let Some(identifier) = octets.get_mut(at + 12..at + 16) {
                    identifier.fill(0);
                    changed = true;
                }
            }
            _ => {}
        }
        at += usize::from(u16::from_be_bytes([l0, l1])).max(4).next_multiple_of(4);
    }
    if changed {
        seal(octets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_and_bounds() {
        // RFC 3720 B.4: 32 octets of zeroes give 0x8a9136aa.
        assert_eq!(CRC.checksum(&[0; 32]), 0x8a91_36aa);
        let header = Header { source: 1, destination: 2, tag: 3 };
        let octets = Composer::new(header).chunk(kind::ABORT, 0, &[]).chunk(kind::ERROR, 0, b"abc").finish();
        let packet = Packet::parse(&octets).unwrap();
        assert_eq!((packet.header, packet.chunks().count()), (header, 2));
        assert_eq!(packet.chunks().last().unwrap().value, b"abc");
        for at in 0..octets.len() {
            let mut changed = octets.clone();
            changed[at] ^= 1;
            assert!(Packet::parse(&changed).is_none());
            assert!(Packet::parse(&octets[..at]).is_none());
        }
    }
}
