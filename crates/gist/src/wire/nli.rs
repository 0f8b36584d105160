//! Network-Layer-Information (RFC 5971 A.3.3).

use core::net::IpAddr;

use signalbox_wire::{LengthOverflow, Reader, Short, Writer};

use super::code_points::ObjectType;
use super::list::{take_padded, write_padded};
use super::mri::{address, write_address};
use super::object::RawObject;
use crate::error::{DecodeError, EncodeError, Problem};

/// The Network-Layer-Information of a node (RFC 5971 A.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nli<'a> {
    /// The peer identity, the same for all interfaces of the node; at most 255 octets.
    pub peer_identity: &'a [u8],
    /// IP TTL of the packet (downstream) or measured distance (upstream); 0: not known (§5.2.2).
    pub ip_ttl: u8,
    /// Validity time of routing state in milliseconds; never 0 (§4.4.4).
    pub validity_ms: u32,
    /// Interface address of the node.
    pub interface: IpAddr,
}

impl<'a> Nli<'a> {
    /// Parses the object (RFC 5971 A.3.3). The RFC forbids a validity time of 0 but has no error for it; this crate uses
    /// 10/1.
    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let nli = Self::read(object)?;
        if nli.validity_ms == 0 {
            return Err(object.error(Problem::Value, "Routing State Validity Time", object.start + 8, 0));
        }
        Ok(nli)
    }

    /// The interface address of an object whose validity time may be 0: an Error about it goes there (§5.6).
    #[cfg(feature = "engine")]
    pub(crate) fn interface_of(object: &RawObject<'a>) -> Option<IpAddr> {
        Self::read(object).ok().map(|nli| nli.interface)
    }

    fn read(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let mut r = Reader::at(object.value, object.start + 4);
        let words = (object.value.len() / 4) as u64;
        let short = |s: Short| object.error(Problem::ObjectLength, "Length", s.offset, words);
        let [pi_length, ip_ttl, version, _] = r.array().map_err(short)?;
        let v6 = match version >> 4 {
            4 => false,
            6 => true,
            other => return Err(object.error(Problem::Value, "IP-Ver", object.start + 6, other.into())),
        };
        let validity_ms = r.u32().map_err(short)?;
        let peer_identity = take_padded(&mut r, pi_length.into()).map_err(|_| {
            object.error(Problem::ObjectLength, "PI-Length", object.start + 4, pi_length.into())
        })?;
        let interface = address(&mut r, v6).map_err(short)?;
        object.end(r)?;
        Ok(Self { peer_identity, ip_ttl, validity_ms, interface })
    }

    /// Parses the value of an NLI object.
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
        let first = [pi_length, self.ip_ttl, if self.interface.is_ipv6() { 0x60 } else { 0x40 }, 0];
        w.u64(u64::from(u32::from_be_bytes(first)) << 32 | u64::from(self.validity_ms));
        write_padded(w, self.peer_identity);
        write_address(w, self.interface);
        Ok(())
    }
}
