//! Composing messages.

use signalbox_wire::{LengthOverflow, Writer};

use super::MAGIC;
use super::code_points::{MessageType, ObjectType};
use super::message::Message;
use crate::error::EncodeError;

/// Appends one object (RFC 5971 A.2): TLV header with AB=00, and the value that `value` writes.
fn object(
    w: &mut Writer<'_>,
    kind: ObjectType,
    value: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let slot = w.open_u16_behind(kind.0);
    value(w)?;
    let octets = w.since(&slot);
    if !octets.is_multiple_of(4) {
        return Err(EncodeError::forbidden(kind, "Length"));
    }
    Ok(w.close_u16(slot, octets / 4, 0xfff, 0)?)
}

/// Appends one object with the given value, if there is one.
fn plain(w: &mut Writer<'_>, kind: ObjectType, value: Option<&[u8]>) -> Result<(), EncodeError> {
    let Some(value) = value else { return Ok(()) };
    if !value.len().is_multiple_of(4) {
        return Err(EncodeError::forbidden(kind, "Length"));
    }
    let (length, max) = (value.len() / 4, 0xfff);
    let words = u16::try_from(length).ok().filter(|words| *words <= 0xfff);
    let words = words.ok_or(LengthOverflow { length, max })?;
    let ([k1, k0], [l1, l0]) = (kind.0.to_be_bytes(), words.to_be_bytes());
    w.bytes(&[k1, k0, l1, l0]);
    w.bytes(value);
    Ok(())
}

impl Message<'_> {
    /// Appends the message without magic number (RFC 5971 Appendix A): the objects in the order of §5.1, the computed
    /// length, reserved bits zero. A received [`MriObject`](super::MriObject) or [`NatTraversal`](super::NatTraversal) is
    /// copied octet by octet.
    ///
    /// The caller chooses the objects. Flags and values that the format forbids are errors.
    ///
    /// # Errors
    /// [`EncodeError`] for contents that the format forbids or that are too long. The octets written before must then be
    /// removed ([`Writer::abandon`]).
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.check_flags()?;
        let [version, hops, _, _, rest @ ..] = self.header.octets();
        let length = w.open_u16_behind(u16::from_be_bytes([version, hops]));
        w.bytes(&rest);
        if let Some(nat) = self.nat_traversal.filter(|nat| !nat.octets.is_empty()) {
            w.bytes(nat.octets);
        } else if let Some(nat) = &self.nat_traversal {
            object(w, ObjectType::NAT_TRAVERSAL, |w| nat.write(w))?;
        }
        if let Some(mri) = &self.mri {
            object(w, ObjectType::MRI, |w| mri.write(w))?;
        }
        plain(w, ObjectType::SESSION_ID, self.session.as_ref().map(|s| &s.0[..]))?;
        if let Some(nli) = &self.nli {
            object(w, ObjectType::NLI, |w| nli.write(w))?;
        }
        plain(w, ObjectType::QUERY_COOKIE, self.query_cookie)?;
        plain(w, ObjectType::RESPONDER_COOKIE, self.responder_cookie)?;
        if let Some(proposal) = &self.stack_proposal {
            object(w, ObjectType::STACK_PROPOSAL, |w| proposal.write(w))?;
        }
        if let Some(configuration) = &self.stack_configuration {
            object(w, ObjectType::STACK_CONFIGURATION, |w| configuration.write(w))?;
        }
        if let Some(error) = &self.error {
            object(w, ObjectType::ERROR, |w| error.write(w))?;
        }
        let hello_id = self.hello_id.map(u32::to_be_bytes);
        plain(w, ObjectType::HELLO_ID, hello_id.as_ref().map(|id| &id[..]))?;
        plain(w, ObjectType::NSLP_DATA, self.nslp_data)?;
        self.unknown.iter().for_each(|unknown| w.bytes(unknown.octets));
        let words = w.since(&length).saturating_sub(4) / 4;
        Ok(w.close_u16(length, words, u16::MAX, 0)?)
    }

    /// Appends the magic number and the message: the payload of a UDP datagram.
    ///
    /// # Errors
    /// As [`Message::encode`].
    pub fn encode_datagram(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        w.bytes(&MAGIC);
        self.encode(w)
    }

    /// Flags that a type must not have (A.1), whatever the encapsulation.
    fn check_flags(&self) -> Result<(), EncodeError> {
        let header = &self.header;
        let kind = header.kind;
        let refuse = |bad: bool, field| {
            if bad { Err(EncodeError::Forbidden { object: None, field }) } else { Ok(()) }
        };
        let query = kind == MessageType::QUERY;
        let r_free = kind == MessageType::RESPONSE || kind == MessageType::MA_HELLO;
        refuse(kind.name().is_none(), "Type")?;
        refuse(header.r != query && !r_free, "R-flag")?;
        refuse(kind == MessageType::RESPONSE && self.responder_cookie.is_some() && !header.r, "R-flag")?;
        refuse(header.e && kind != MessageType::DATA, "E-flag")?;
        refuse(header.c != query && kind != MessageType::DATA, "C-flag")
    }
}
