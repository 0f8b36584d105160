//! The message: ICMP header, container header (§3.1), reservation message (§3.2), options (§3.3).

use signalbox_wire::{Reader, Short, Writer};

use super::checksum::Ends;
use super::code_points::{Family, Flags, Format, MessageType, Pass};
use super::edit;
use super::flow::FlowSpec;
use super::option::Options;
use super::qos::Qos;
use crate::error::DecodeError;

/// The first 32 bits of the container: they alone distinguish a Boomerang from a ping.
pub const MAGIC: u32 = 0x4711_4711;
/// The version of the reservation message that this implementation has.
pub const VERSION: u8 = 1;
/// The KEY at the start of a session.
pub const KEY_FIRST: u64 = 1;
/// Offset of the container in the ICMP message.
pub const CONTAINER: usize = 8;

/// A reservation message, received or to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Echo Request or Echo Reply.
    pub pass: Pass,
    /// Identifier of the ICMP Echo.
    pub identifier: u16,
    /// Sequence number of the ICMP Echo.
    pub sequence: u16,
    /// The initiating node's number of this message.
    pub transaction: u32,
    /// Address family and QoS format.
    pub format: Format,
    /// NACK and others; unknown bits are carried along.
    pub flags: Flags,
    /// Refresh interval, seconds.
    pub refresh: u8,
    /// Reserved: sent as 0, ignored.
    pub padding: u16,
    /// Confirmation; 0: refused.
    pub key: u64,
    /// What is asked for; `None`: the format is unknown.
    pub body: Option<Body<'a>>,
}

/// Flow, quality of service and options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body<'a> {
    /// The packets.
    pub flow: FlowSpec,
    /// What they get.
    pub qos: Qos<'a>,
    /// The options.
    pub options: Options<'a>,
}

impl<'a> Message<'a> {
    /// Parses an ICMP message (with IPv6: an ICMPv6 message) from its type octet on, without copying. The checksum is
    /// not verified.
    ///
    /// # Errors
    /// [`DecodeError`]: the message is to be forwarded unchanged.
    pub fn parse(icmp: &'a [u8], ipv6: bool) -> Result<Self, DecodeError> {
        let mut r = Reader::new(icmp);
        let cut = |field| move |short: Short| DecodeError::Short { field, short };
        let [kind, code, _, _] = r.array().map_err(cut("ICMP header"))?;
        let pass = Pass::of_icmp_type(kind, ipv6).filter(|_| code == 0);
        let pass = pass.ok_or(DecodeError::NotEcho { kind, code })?;
        let identifier = r.u16().map_err(cut("ICMP header"))?;
        let sequence = r.u16().map_err(cut("ICMP header"))?;
        let magic = r.u32().map_err(cut("magic number"))?;
        // BOOM-3.1-02
        if magic != MAGIC {
            return Err(DecodeError::Magic { found: magic });
        }
        let transaction = r.u32().map_err(cut("transaction id"))?;
        let [kind, format] = r.array().map_err(cut("message type"))?;
        let flags = Flags(r.u16().map_err(cut("flags"))?);
        // BOOM-3.1-09, BOOM-G22-01, BOOM-G30-01, BOOM-G40-01
        if MessageType(kind) != MessageType::RESERVATION {
            return Err(DecodeError::Type { found: kind });
        }
        let [refresh, version] = r.array().map_err(cut("refresh interval"))?;
        // BOOM-G30-01, BOOM-G40-01
        if version != VERSION {
            return Err(DecodeError::Version { found: version });
        }
        // BOOM-3.2.1-08
        let padding = r.u16().map_err(cut("padding"))?;
        let key = r.u64().map_err(cut("KEY"))?;
        // BOOM-3-03
        if !icmp.len().is_multiple_of(4) {
            return Err(DecodeError::Unaligned { octets: icmp.len() });
        }
        let format = Format(format);
        let body = Self::body(&mut r, format)?;
        Ok(Self { pass, identifier, sequence, transaction, format, flags, refresh, padding, key, body })
    }

    // BOOM-G6-01, BOOM-G30-02
    fn body(r: &mut Reader<'a>, format: Format) -> Result<Option<Body<'a>>, DecodeError> {
        let family = format.family();
        if family != Family::IPV4 && family != Family::IPV6 {
            return Ok(None);
        }
        let flow = FlowSpec::parse(r, family == Family::IPV6)
            .map_err(|short| DecodeError::Short { field: "flow specification", short })?;
        let Some(qos) = Qos::parse(r, format.qos())? else { return Ok(None) };
        let options = Options::parse(r, family)?;
        Ok(Some(Body { flow, qos, options }))
    }

    /// Appends the ICMP message with its checksum to `octets`. `ends` are the addresses of the packet. Without body it
    /// ends after the reservation header.
    pub fn encode(&self, ends: &Ends, octets: &mut Vec<u8>) {
        let start = octets.len();
        let mut w = Writer::new(octets);
        w.bytes(&[self.pass.icmp_type(ends.is_ipv6()), 0, 0, 0]);
        // BOOM-G2-01
        w.u16(self.identifier);
        // BOOM-3-01
        w.u16(self.sequence);
        // BOOM-3.1-01
        w.u32(MAGIC);
        w.u32(self.transaction);
        // BOOM-3.1-05
        w.u8(MessageType::RESERVATION.0);
        // BOOM-3-02
        w.u8(self.format.0);
        w.u16(self.flags.0);
        // BOOM-3.2.1-01
        w.u8(self.refresh);
        // BOOM-3.2.1-07
        w.u8(VERSION);
        w.u16(self.padding);
        // BOOM-G1-01
        w.u64(self.key);
        if let Some(body) = &self.body {
            // BOOM-3.2-01
            body.flow.encode(&mut w);
            body.qos.encode(&mut w);
            w.bytes(body.options.octets());
        }
        if let Some(message) = octets.get_mut(start..) {
            edit::set_checksum(message, ends);
        }
    }

    /// Whether a node refused: either sign alone counts. BOOM-G23-02, BOOM-G9-02.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.flags.contains(Flags::NACK) || self.key == 0
    }
}
