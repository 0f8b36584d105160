//! The common header (RFC 5971 A.1) and the encapsulations (§5.3, §5.4).

use signalbox_core::NslpId;
use signalbox_wire::Reader;

use super::code_points::MessageType;
use crate::error::{DecodeError, Problem};

/// The version of GIST that RFC 5971 defines.
pub const VERSION: u8 = 1;

/// Octets of the common header.
pub const HEADER_LENGTH: usize = 8;

/// Encapsulation of a message. The allowed message types and objects depend on it (RFC 5971 §5.1, §5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encapsulation {
    /// A UDP datagram from peer to peer (§5.3.1).
    Normal,
    /// A UDP datagram for the next GIST node on the path (§5.3.2).
    QMode,
    /// The stream of a messaging association (§5.4).
    Association,
}

impl Encapsulation {
    /// Whether it is a datagram.
    #[must_use]
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Normal | Self::QMode)
    }

    /// The encapsulation of a message, derived from its octets: the C-flag shows Q-mode, the magic number shows a
    /// datagram.
    #[must_use]
    pub const fn of(header: &Header, datagram: bool) -> Self {
        match (datagram, header.c) {
            (true, true) => Self::QMode,
            (true, false) => Self::Normal,
            (false, _) => Self::Association,
        }
    }
}

/// The common header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Number of GIST nodes that may still process the message, the destination included.
    pub hops: u8,
    /// 32-bit words after this header; computed when encoding.
    pub length_words: u16,
    /// The application.
    pub nslp: NslpId,
    /// Message type.
    pub kind: MessageType,
    /// C: to be understood without routing state.
    pub c: bool,
    /// S: the IP source address is the signaling source's own.
    pub s: bool,
    /// R: a reply is requested.
    pub r: bool,
    /// E: explicitly routed.
    pub e: bool,
}

impl Header {
    /// A header with the flags that the type requires: C and R in a Query, S in all others. The caller also sets `s` in a
    /// Query whose source is an address of this node, `r` in a Response that requests a Confirm, and `c` in Q-mode Data
    /// (RFC 5971 A.1).
    #[must_use]
    pub const fn new(kind: MessageType, nslp: NslpId, hops: u8) -> Self {
        let query = kind.0 == MessageType::QUERY.0;
        Self { hops, length_words: 0, nslp, kind, c: query, s: !query, r: query, e: false }
    }

    /// Parses the common header (RFC 5971 A.1), which is all that demultiplexing and forwarding need (§4.3.1). Only the
    /// version is checked. `octets` start at the common header and may end after it.
    ///
    /// # Errors
    /// [`Problem::ShortHeader`] or [`Problem::UnknownVersion`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        let header = Reader::new(octets).array::<HEADER_LENGTH>().map_err(|short| {
            DecodeError::header(Problem::ShortHeader, "Common-Header", 0, short.left as u64)
        })?;
        let [version, hops, l1, l0, n1, n0, kind, flags] = header;
        if version != VERSION {
            return Err(DecodeError::header(Problem::UnknownVersion, "Version", 0, version.into()));
        }
        Ok(Self {
            hops,
            length_words: u16::from_be_bytes([l1, l0]),
            nslp: NslpId(u16::from_be_bytes([n1, n0])),
            kind: MessageType(kind & 0x7f),
            c: kind & 0x80 != 0,
            s: flags & 0x80 != 0,
            r: flags & 0x40 != 0,
            e: flags & 0x20 != 0,
        })
    }

    /// Octets of the whole message by the length field, including the header.
    #[must_use]
    pub const fn message_octets(&self) -> usize {
        HEADER_LENGTH + self.length_words as usize * 4
    }

    /// The 8 octets.
    #[must_use]
    pub const fn octets(&self) -> [u8; HEADER_LENGTH] {
        let [l1, l0] = self.length_words.to_be_bytes();
        let [n1, n0] = self.nslp.0.to_be_bytes();
        let kind = self.kind.0 & 0x7f | (self.c as u8) << 7;
        let flags = (self.s as u8) << 7 | (self.r as u8) << 6 | (self.e as u8) << 5;
        [VERSION, self.hops, l1, l0, n1, n0, kind, flags]
    }

    /// Judges type, flags and encapsulation (RFC 5971 A.1, A.4.4.1, §5.5).
    ///
    /// # Errors
    /// [`Problem::UnknownType`], [`Problem::RFlag`], [`Problem::EFlag`], [`Problem::CFlag`] or
    /// [`Problem::Encapsulation`], the first that applies in this order.
    pub fn check(&self, encapsulation: Encapsulation) -> Result<(), DecodeError> {
        let kind = self.kind;
        let bad = |problem, field, offset, value| Err(DecodeError::header(problem, field, offset, value));
        if kind.name().is_none() {
            return bad(Problem::UnknownType, "Type", 6, kind.0.into());
        }
        let r_must = match kind {
            MessageType::QUERY => Some(true),
            MessageType::RESPONSE | MessageType::MA_HELLO => None,
            _ => Some(false),
        };
        if r_must.is_some_and(|must| must != self.r) {
            return bad(Problem::RFlag, "R-flag", 7, self.r.into());
        }
        if self.e && kind != MessageType::DATA {
            return bad(Problem::EFlag, "E-flag", 7, 1);
        }
        let q_mode = encapsulation == Encapsulation::QMode;
        let c_must = kind == MessageType::QUERY || kind == MessageType::DATA && q_mode;
        if c_must != self.c {
            return bad(Problem::CFlag, "C-flag", 6, self.c.into());
        }
        let allowed = match kind {
            MessageType::QUERY => q_mode,
            MessageType::DATA => true,
            MessageType::MA_HELLO => encapsulation == Encapsulation::Association,
            _ => !q_mode,
        };
        if !allowed {
            return bad(Problem::Encapsulation, "Type", 6, kind.0.into());
        }
        Ok(())
    }
}
