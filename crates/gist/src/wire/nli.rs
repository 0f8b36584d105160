//! Network-Layer-Information (RFC 5971 A.3.3).

use core::net::IpAddr;

use signalbox_wire::{LengthOverflow, Reader, Short, Writer};

use super::code_points::ObjectType;
use super::list::{take_padded, write_padded};
use super::mri::{address, write_address};
use super::object::RawObject;
use crate::error::{DecodeError, EncodeError, Problem};

/// What a node says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nli<'a> {
    /// Names the node, whichever of its interfaces is used; at most 255 octets.
    pub peer_identity: &'a [u8],
    /// IP TTL as sent (downstream) or the distance measured (upstream); 0: not known (§5.2.2).
    pub ip_ttl: u8,
    /// How long routing state is right without a refresh, in milliseconds; never 0.
    pub validity_ms: u32,
    /// Where the node can be reached.
    pub interface: IpAddr,
}

impl<'a> Nli<'a> {
    /// RFC 5971 names no error for a validity time of 0, which it forbids: we answer 10/1.
    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let mut r = Reader::at(object.value, object.start + 4);
        let words = (object.value.len() / 4) as u64;
        let short = |s: Short| object.error(Problem::ObjectLength, "Length", s.offset, words);
        let [pi_length, ip_ttl, version, _] = r.array().map_err(short)?;
        let v6 = match version >> 4 {
            4 => false,
            6 => true,
            other => return Err(object.error(Problem::Value, "IP-Ver", object.start + 6, other.into())),
        };
        let at = r.offset();
        let validity_ms = r.u32().map_err(short)?;
        if validity_ms == 0 {
            return Err(object.error(Problem::Value, "Routing State Validity Time", at, 0));
        }
        let peer_identity = take_padded(&mut r, pi_length.into()).map_err(|_| {
            object.error(Problem::ObjectLength, "PI-Length", object.start + 4, pi_length.into())
        })?;
        let interface = address(&mut r, v6).map_err(short)?;
        object.end(r)?;
        Ok(Self { peer_identity, ip_ttl, validity_ms, interface })
    }

    /// The same of an object's value alone.
    #[cfg(feature = "engine")]
    pub(crate) fn of_value(value: &'a [u8]) -> Result<Self, DecodeError> {
        let extensibility = super::object::Extensibility::Mandatory;
        Self::parse(&RawObject { kind: ObjectType::NLI, extensibility, start: 0, value, octets: &[] })
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let length = self.peer_identity.len();
        let pi_length = u8::try_from(length).map_err(|_| LengthOverflow { length, max: 255 })?;
        if self.validity_ms == 0 {
            return Err(EncodeError::forbidden(ObjectType::NLI, "Routing State Validity Time"));
        }
        w.bytes(&[pi_length, self.ip_ttl, if self.interface.is_ipv6() { 0x60 } else { 0x40 }, 0]);
        w.u32(self.validity_ms);
        write_padded(w, self.peer_identity);
        write_address(w, self.interface);
        Ok(())
    }
}
