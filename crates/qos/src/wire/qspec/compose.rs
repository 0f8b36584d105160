//! Composing a QSPEC, part by part, without intermediate copies.

use signalbox_wire::{LengthSlot, Writer};

use super::code_points::{ObjectType, ParameterId};
use super::element::{Flags, Parameter};
use super::error::EncodeError;
use super::header::Header;
use super::parse::Seen;
use super::value::Value;

/// The largest length, in words.
const MAX_WORDS: u16 = 0xfff;

/// Appends one QSPEC to a writer. If any step fails, what was written so far must not be sent: the caller takes
/// its octets back ([`Writer::abandon`]).
#[derive(Debug)]
#[must_use = "a QSPEC that is not finished has no length"]
pub struct Composer<'w, 'b> {
    w: &'w mut Writer<'b>,
    header: Header,
    length: LengthSlot,
    low_bits: u16,
    /// Bits 0–3 for the four objects, 4–7 for the private ones.
    objects: u8,
}

impl<'w, 'b> Composer<'w, 'b> {
    /// Appends the common header (RFC 5975 §5.1.1).
    ///
    /// # Errors
    /// [`EncodeError::Forbidden`]: a type of more than five bits, or a procedure that is not assigned.
    pub fn new(header: Header, w: &'w mut Writer<'b>) -> Result<Self, EncodeError> {
        let (high, low_bits) = header.bits()?;
        w.u16(high);
        let length = w.open_u16();
        Ok(Self { w, header, length, low_bits, objects: 0 })
    }

    /// Appends one object (RFC 5975 §5.1.2). `error` is its E flag; `parameters` appends its parameters.
    ///
    /// # Errors
    /// [`EncodeError`]: an object that is there already or of no type that may be sent, an empty one, or what
    /// `parameters` returns.
    pub fn object(
        &mut self,
        kind: ObjectType,
        error: bool,
        parameters: impl FnOnce(&mut ObjectComposer<'_, 'b>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let bit = match kind.0 {
            0..=3 => 1 << kind.0,
            _ if kind.is_private() => 0x10 << (kind.0 & 3),
            _ => return Err(EncodeError::header("Object Type")),
        };
        if self.objects & bit != 0 {
            return Err(EncodeError::DuplicateObject(kind));
        }
        self.objects |= bit;
        self.w.u16(u16::from(error) << 15 | kind.0);
        let length = self.w.open_u16();
        let mut composer = ObjectComposer { w: self.w, seen: Seen::new() };
        parameters(&mut composer)?;
        if composer.seen.has(ParameterId::RPH_PRIORITY.0)
            && !composer.seen.has(ParameterId::ADMISSION_PRIORITY.0)
        {
            return Err(EncodeError::Priorities);
        }
        let words = self.w.since(&length) / 4;
        if words == 0 {
            return Err(EncodeError::Empty(Some(kind)));
        }
        Ok(self.w.close_u16(length, words, MAX_WORDS, 0)?)
    }

    /// Whether no object has been appended yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.objects == 0
    }

    /// Fills in the length. A Local QSPEC needs the octets of the Initiator QSPEC that it encapsulates.
    ///
    /// # Errors
    /// [`EncodeError`]: no object, more than 4,095 words, a Local QSPEC without Initiator QSPEC or the other way
    /// round.
    pub fn finish(self, initiator: Option<&[u8]>) -> Result<(), EncodeError> {
        if self.objects == 0 {
            return Err(EncodeError::Empty(None));
        }
        let is_initiator = |octets: &[u8]| Header::read(octets, 0).is_ok_and(|(header, _)| !header.local);
        if initiator.is_some() != self.header.local || !initiator.is_none_or(is_initiator) {
            return Err(EncodeError::header("I"));
        }
        self.w.bytes(initiator.unwrap_or_default());
        let words = self.w.since(&self.length) / 4;
        Ok(self.w.close_u16(self.length, words, MAX_WORDS, self.low_bits)?)
    }
}

/// Appends the parameters of one object.
#[derive(Debug)]
pub struct ObjectComposer<'w, 'b> {
    w: &'w mut Writer<'b>,
    seen: Seen,
}

impl ObjectComposer<'_, '_> {
    /// Appends a parameter (RFC 5975 §5.1.2). TMOD-1 always gets M and never N (§5.2.1).
    ///
    /// # Errors
    /// [`EncodeError`]: one that is there already, or a value that the format forbids.
    pub fn put(&mut self, flags: Flags, value: &Value<'_>) -> Result<(), EncodeError> {
        self.element(flags, value.id(), |w| value.write(w))
    }

    /// Appends a parameter as it was received, but for reserved bits, which become zero.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn copy(&mut self, parameter: &Parameter<'_>) -> Result<(), EncodeError> {
        let wrong = |field| EncodeError::Forbidden { parameter: Some(parameter.id), field };
        self.put(parameter.flags, &parameter.value().map_err(|error| wrong(error.field))?)
    }

    /// Appends a parameter with a bad value exactly as it was received, to return it to its sender (RFC 5975 §4.2.4).
    ///
    /// # Errors
    /// As [`put`](Self::put), but the value is not judged.
    pub fn quote(&mut self, flags: Flags, parameter: &Parameter<'_>) -> Result<(), EncodeError> {
        self.element(flags, parameter.id, |w| {
            w.bytes(parameter.octets);
            Ok(())
        })
    }

    fn element(
        &mut self,
        flags: Flags,
        id: ParameterId,
        value: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        if id.0 > 0xfff {
            return Err(EncodeError::Forbidden { parameter: Some(id), field: "Parameter ID" });
        }
        if !self.seen.insert(id.0) {
            return Err(EncodeError::DuplicateParameter(id));
        }
        let first = id == ParameterId::TMOD_1;
        let flags = Flags {
            mandatory: flags.mandatory || first,
            not_supported: flags.not_supported && !first,
            ..flags
        };
        self.w.u16(flags.bits(id));
        let length = self.w.open_u16();
        value(self.w)?;
        let words = self.w.since(&length) / 4;
        Ok(self.w.close_u16(length, words, MAX_WORDS, 0)?)
    }
}
