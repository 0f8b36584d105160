//! Objects and parameters in the octets.

use signalbox_wire::Reader;

use super::code_points::{ObjectType, ParameterId};
use super::error::{Problem, QspecError};
use super::value::Value;

/// The flags of a parameter (RFC 5975 §5.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags {
    /// M: a node that does not support the parameter must not reserve.
    pub mandatory: bool,
    /// E: the parameter could not be satisfied, or is wrong.
    pub error: bool,
    /// N: a node on the path does not support it.
    pub not_supported: bool,
}

impl Flags {
    /// M alone.
    pub const MANDATORY: Self = Self { mandatory: true, error: false, not_supported: false };
    /// The M bit of a parameter's first octet.
    pub(crate) const M: u8 = 0x80;
    /// The E bit of a parameter's first octet.
    pub(crate) const E: u8 = 0x40;
    /// The N bit of a parameter's first octet.
    pub(crate) const N: u8 = 0x20;
    /// The E bit of an object's first octet.
    pub(crate) const OBJECT_E: u8 = 0x80;

    const fn of(first: u8) -> Self {
        Self {
            mandatory: first & Self::M != 0,
            error: first & Self::E != 0,
            not_supported: first & Self::N != 0,
        }
    }

    /// The 16 bits before those of the length.
    pub(super) fn bits(self, id: ParameterId) -> u16 {
        u16::from(self.mandatory) << 15
            | u16::from(self.error) << 14
            | u16::from(self.not_supported) << 13
            | id.0 & 0xfff
    }
}

/// One type, length and value; `start` is the offset of its header.
pub(super) struct Element<'a> {
    pub(super) first: u8,
    /// The twelve bits of type or id.
    pub(super) number: u16,
    pub(super) start: usize,
    pub(super) value: Reader<'a>,
}

/// The next element, or the offset at which it is cut.
pub(super) fn element<'a>(r: &mut Reader<'a>) -> Result<Element<'a>, usize> {
    let start = r.offset();
    let word = r.u32().map_err(|short| short.offset)?;
    let [first, ..] = word.to_be_bytes();
    let value = r.sub((word & 0xfff) as usize * 4).map_err(|_| start)?;
    Ok(Element { first, number: (word >> 16 & 0xfff) as u16, start, value })
}

/// One object: a view into octets that [`Qspec::frame`](super::Qspec::frame) has checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// Which one.
    pub kind: ObjectType,
    /// E: something in it could not be satisfied or is wrong.
    pub error: bool,
    /// Where its header starts, in octets from the start of the QSPEC.
    pub start: usize,
    pub(super) value: &'a [u8],
}

impl<'a> Object<'a> {
    pub(super) fn of(element: &Element<'a>) -> Self {
        Self {
            kind: ObjectType(element.number),
            error: element.first & Flags::OBJECT_E != 0,
            start: element.start,
            value: element.value.peek_rest(),
        }
    }

    /// What stands behind its header.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.value
    }

    /// Its parameters, in their order.
    #[must_use]
    pub const fn parameters(&self) -> Parameters<'a> {
        Parameters {
            object: self.kind,
            object_start: self.start,
            rest: Reader::at(self.value, self.start + 4),
        }
    }

    /// The first parameter with this id.
    #[must_use]
    pub fn parameter(&self, id: ParameterId) -> Option<Parameter<'a>> {
        self.parameters().find(|parameter| parameter.id == id)
    }

    /// The value of this parameter, if it is there and well formed.
    #[must_use]
    pub fn value(&self, id: ParameterId) -> Option<Value<'a>> {
        self.parameter(id)?.value().ok()
    }

    /// Checks that the parameters fill the object, and that there are some.
    pub(super) fn frame(&self) -> Result<(), QspecError> {
        if self.value.is_empty() {
            return Err(QspecError::object(Problem::Empty, self.kind, self.start, "Length", self.start + 2));
        }
        let mut rest = Reader::at(self.value, self.start + 4);
        while !rest.is_empty() {
            element(&mut rest).map_err(|offset| {
                QspecError::object(Problem::Length, self.kind, self.start, "parameter", offset)
            })?;
        }
        Ok(())
    }
}

/// The objects of a QSPEC in their order; made by [`Qspec::objects`](super::Qspec::objects).
#[derive(Debug, Clone)]
pub struct Objects<'a> {
    pub(super) rest: Reader<'a>,
}

impl<'a> Iterator for Objects<'a> {
    type Item = Object<'a>;
    fn next(&mut self) -> Option<Object<'a>> {
        // Framing checked them all, so none fails here.
        element(&mut self.rest).ok().map(|e| Object::of(&e))
    }
}

/// The parameters of an object in their order.
#[derive(Debug, Clone)]
pub struct Parameters<'a> {
    object: ObjectType,
    object_start: usize,
    rest: Reader<'a>,
}

impl<'a> Iterator for Parameters<'a> {
    type Item = Parameter<'a>;
    fn next(&mut self) -> Option<Parameter<'a>> {
        let Element { first, number, start, value } = element(&mut self.rest).ok()?;
        Some(Parameter {
            object: self.object,
            object_start: self.object_start,
            id: ParameterId(number),
            flags: Flags::of(first),
            start,
            octets: value.peek_rest(),
        })
    }
}

/// One parameter. Its value is read by [`value`](Self::value): one with a bad value can still be found, flagged
/// and copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// The object it is in.
    pub object: ObjectType,
    /// Where the object's header starts.
    pub object_start: usize,
    /// Which one; unknown ids are carried along.
    pub id: ParameterId,
    /// Its flags, as they are.
    pub flags: Flags,
    /// Where its header starts, in octets from the start of the QSPEC.
    pub start: usize,
    /// Its value, whole words.
    pub octets: &'a [u8],
}

impl<'a> Parameter<'a> {
    /// The value. Parameters of unknown id are [`Value::Unknown`].
    ///
    /// # Errors
    /// [`QspecError`] names the field that is wrong, or the length.
    pub fn value(&self) -> Result<Value<'a>, QspecError> {
        let error = |field, word: usize, value, problem| QspecError {
            object: Some(self.object),
            object_start: self.object_start,
            parameter: Some(self.id),
            parameter_start: self.start,
            field,
            offset: self.start + word * 4,
            value,
            problem,
        };
        match Value::read(self.id, self.octets) {
            None => Err(error("Length", 0, self.octets.len() as u64 / 4, Problem::ParameterLength)),
            Some(value) => match value.wrong() {
                None => Ok(value),
                Some(wrong) => {
                    let word = self.octets.chunks_exact(4).nth(wrong.word).and_then(|w| w.first_chunk());
                    let found = word.map_or(0, |word| u32::from_be_bytes(*word).into());
                    Err(error(wrong.field, wrong.word + 1, found, wrong.problem))
                }
            },
        }
    }

    /// Whether the parameter must be understood: M is set, or it is TMOD-1, whose M always counts as set (§5.2.1).
    #[must_use]
    pub fn is_mandatory(&self) -> bool {
        self.flags.mandatory || self.id == ParameterId::TMOD_1
    }
}
