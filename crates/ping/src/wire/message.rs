//! The message: 24 octets, two lists of records, and optional padding.

use signalbox_wire::{Reader, Short, Writer};

use super::record::{Record, Records};
use crate::error::DecodeError;

/// The version of the format that this implementation has.
pub const VERSION: u8 = 1;
/// Length of a message without records, in octets.
pub const HEADER_OCTETS: usize = 24;
/// Largest message without padding that this node sends, in octets. The GIST message around it has at most 136 octets
/// more, for an IPv6 flow with ports, and stays within the 512 octets that GIST may send over a path of unknown MTU
/// (RFC 5971 §5.3.2.1). Both lists together take 22 IPv4 records or 12 IPv6 records.
pub const MAX_OCTETS: usize = 376;
/// Octets of the length field in front of the padding.
pub const PADDING_HEADER_OCTETS: usize = 4;
/// Most octets of padding: with [`MAX_OCTETS`] and the length field they fill the largest GIST object, 4095 words
/// (RFC 5971 A.2).
pub const MAX_PADDING: usize = 16_000;

signalbox_wire::code_points! {
    /// Kind of a message.
    pub struct Kind(u8) {
        /// A request travels downstream; records go to the first list.
        REQUEST = 1, "echo request";
        /// A reply travels upstream; records go to the second list.
        REPLY = 2, "echo reply";
    }
}

signalbox_wire::flags! {
    /// Flags of a message: what happened to it on the path.
    pub struct Flags(pub u8) {
        /// The node where the flow ends made the request a reply.
        END_REACHED = 0x80, "end-reached";
        /// A node before the end of the flow made it a reply: no further node answered.
        NO_NEXT_NODE = 0x40, "no-next-node";
        /// A node before the end of the flow made it a reply: it had no route or could not send.
        NOT_SENT = 0x20, "not-sent";
        /// Padding follows the records. The encoder sets this flag.
        PADDED = 0x10, "padded";
        /// The message was too long for the record of a node on the way to the end of the flow.
        THERE_TRUNCATED = 0x02, "there-truncated";
        /// The message was too long for the record of a node on the way back.
        BACK_TRUNCATED = 0x01, "back-truncated";
    }
}

/// A list of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    /// Nodes on the way to the end of the flow, and the node that made the request a reply.
    There,
    /// Nodes on the way back.
    Back,
}

/// A message, received or to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Request or reply; unknown kinds keep their number (0–15).
    pub kind: Kind,
    /// What happened on the way; unknown bits are carried along.
    pub flags: Flags,
    /// The initiator's count of its messages.
    pub sequence: u32,
    /// Random number of the initiator, the same in all messages of one ping.
    pub identifier: u64,
    /// When the initiator sent it, in microseconds since 1970 by its own clock.
    pub sent_us: u64,
    /// Records of the way there.
    pub there: Records<'a>,
    /// Records of the way back.
    pub back: Records<'a>,
    /// What makes the message large, a multiple of 4 octets; `None`: not even its length is there.
    pub padding: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// A request without records.
    #[must_use]
    pub fn request(sequence: u32, identifier: u64, sent_us: u64) -> Self {
        Self {
            kind: Kind::REQUEST,
            flags: Flags::default(),
            sequence,
            identifier,
            sent_us,
            there: Records::default(),
            back: Records::default(),
            padding: None,
        }
    }

    /// Parses a message that fills `octets` exactly, without copying (`docs/wire/ping.md`). It may be longer than
    /// [`MAX_OCTETS`].
    ///
    /// # Errors
    /// [`DecodeError`] names the field that is wrong and its offset.
    pub fn parse(octets: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(octets);
        let cut = |field| move |short: Short| DecodeError::Short { field, short };
        let [first, flags, there, back] = r.array().map_err(cut("first word"))?;
        if first >> 4 != VERSION {
            return Err(DecodeError::Version { found: first >> 4 });
        }
        let sequence = r.u32().map_err(cut("sequence"))?;
        let identifier = r.u64().map_err(cut("identifier"))?;
        let sent_us = r.u64().map_err(cut("time sent"))?;
        let there = Records::parse(&mut r, there)?;
        let back = Records::parse(&mut r, back)?;
        let padding = if Flags(flags).contains(Flags::PADDED) {
            let offset = r.offset();
            let length = r.u32().map_err(cut("length of the padding"))?;
            let octets = usize::try_from(length).ok().filter(|octets| octets.is_multiple_of(4));
            let octets = octets.ok_or(DecodeError::Padding { found: length, offset })?;
            Some(r.take(octets).map_err(cut("padding"))?)
        } else {
            None
        };
        if !r.is_empty() {
            return Err(DecodeError::Trailing { offset: r.offset(), octets: r.left() });
        }
        let kind = Kind(first & 0x0f);
        Ok(Self { kind, flags: Flags(flags), sequence, identifier, sent_us, there, back, padding })
    }

    /// Appends the message to `w`, with one additional record if `add` is given (`docs/wire/ping.md`). If the record would
    /// make the message longer than [`MAX_OCTETS`], padding not counted, the truncation flag of the list is set instead.
    pub fn encode(&self, add: Option<(List, Record)>, w: &mut Writer<'_>) {
        let unpadded = HEADER_OCTETS + self.there.octets().len() + self.back.octets().len();
        let room = MAX_OCTETS.saturating_sub(unpadded);
        let fits = |list: List, record: &Record| {
            let count = if list == List::There { self.there.count() } else { self.back.count() };
            record.octets() <= room && count < u8::MAX
        };
        let (mut there, mut back, mut flags) = (None, None, self.flags);
        match add {
            Some((List::There, record)) if fits(List::There, &record) => there = Some(record),
            Some((List::Back, record)) if fits(List::Back, &record) => back = Some(record),
            Some((List::There, _)) => flags = flags.with(Flags::THERE_TRUNCATED),
            Some((List::Back, _)) => flags = flags.with(Flags::BACK_TRUNCATED),
            None => {}
        }
        flags.0 &= !Flags::PADDED.0;
        if self.padding.is_some() {
            flags = flags.with(Flags::PADDED);
        }
        let [s0, s1, s2, s3] = self.sequence.to_be_bytes();
        w.bytes(&[
            VERSION << 4 | self.kind.0 & 0x0f,
            flags.0,
            self.there.count() + u8::from(there.is_some()),
            self.back.count() + u8::from(back.is_some()),
            s0,
            s1,
            s2,
            s3,
        ]);
        w.u64(self.identifier);
        w.u64(self.sent_us);
        w.bytes(self.there.octets());
        if let Some(record) = there {
            record.encode(w);
        }
        w.bytes(self.back.octets());
        if let Some(record) = back {
            record.encode(w);
        }
        if let Some(padding) = self.padding {
            // Padding of 4 GiB cannot be parsed; it would get the length 0.
            w.u32(u32::try_from(padding.len()).unwrap_or(0));
            w.bytes(padding);
        }
    }
}
