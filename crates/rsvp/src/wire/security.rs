//! INTEGRITY and CHALLENGE (RFC 2747 §2.1, §4.3), HELLO (RFC 3209 §5.2).

use super::object::{OBJECT_HEADER_OCTETS, RawObject};
use crate::error::{DecodeError, Fault};

/// INTEGRITY (RFC 2747 §2): a keyed digest over the message, directly after the common header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Integrity<'a> {
    /// The sender answers challenges.
    pub handshake: bool,
    /// Identifies the key, together with the sender's address; 48 bits.
    pub key_id: u64,
    /// Sequence number; it grows for the life of the key.
    pub sequence: u64,
    /// Keyed Message Digest; a multiple of 4 octets.
    pub digest: &'a [u8],
    /// Offset of the digest from the start of the message.
    pub digest_offset: usize,
}

impl<'a> Integrity<'a> {
    pub(crate) const HANDSHAKE: u8 = 0x80;
    /// Octets before the digest, object header included.
    pub(crate) const PREFIX_OCTETS: usize = OBJECT_HEADER_OCTETS + 16;

    /// Parses an INTEGRITY (RFC 2747 §2).
    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let short = object.error(Fault::ObjectLength);
        let (fixed, digest) = object.content().split_first_chunk::<16>().ok_or(short)?;
        let &[flags, _, k5, k4, k3, k2, k1, k0, sequence @ ..] = fixed;
        if digest.is_empty() {
            return Err(short);
        }
        Ok(Self {
            handshake: flags & Self::HANDSHAKE != 0,
            key_id: u64::from_be_bytes([0, 0, k5, k4, k3, k2, k1, k0]),
            sequence: u64::from_be_bytes(sequence),
            digest,
            digest_offset: object.offset + Self::PREFIX_OCTETS,
        })
    }
}

/// CHALLENGE (RFC 2747 §4.3): asks the holder of a key for its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Challenge {
    /// Key Identifier, 48 bits.
    pub key_id: u64,
    /// The cookie; the Response returns it.
    pub cookie: u64,
}

impl Challenge {
    /// Parses a CHALLENGE (RFC 2747 §4.3).
    pub(crate) fn parse(object: &RawObject<'_>) -> Result<Self, DecodeError> {
        let [_, _, k5, k4, k3, k2, k1, k0, cookie @ ..] = object.array::<16>()?;
        Ok(Self {
            key_id: u64::from_be_bytes([0, 0, k5, k4, k3, k2, k1, k0]),
            cookie: u64::from_be_bytes(cookie),
        })
    }
}

/// HELLO (RFC 3209 §5.2): the instances of two neighbors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hello {
    /// HELLO ACK; else HELLO REQUEST.
    pub ack: bool,
    /// The sender's instance towards this neighbor.
    pub src_instance: u32,
    /// The last instance received from the neighbor; 0: none.
    pub dst_instance: u32,
}

impl Hello {
    /// Parses a HELLO (RFC 3209 §5.2).
    pub(crate) fn parse(object: &RawObject<'_>) -> Result<Self, DecodeError> {
        let [s3, s2, s1, s0, dst @ ..] = object.array::<8>()?;
        Ok(Self {
            ack: object.kind.c_type == 2,
            src_instance: u32::from_be_bytes([s3, s2, s1, s0]),
            dst_instance: u32::from_be_bytes(dst),
        })
    }
}
