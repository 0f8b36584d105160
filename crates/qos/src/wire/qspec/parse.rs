//! A received QSPEC.

use signalbox_wire::{Reader, Writer};

use super::code_points::{ObjectType, ParameterId};
use super::compose::Composer;
use super::element::{Object, Objects, element};
use super::error::{EncodeError, Problem, QspecError};
use super::header::{HEADER_LENGTH, Header};

/// The set of twelve-bit numbers that have occurred.
#[derive(Debug, Clone)]
pub(super) struct Seen([u64; 64]);

impl Seen {
    pub(super) const fn new() -> Self {
        Self([0; 64])
    }

    /// Adds `number`; false if it was in the set.
    pub(super) fn insert(&mut self, number: u16) -> bool {
        let bit = 1 << (number % 64);
        let Some(word) = self.0.get_mut(usize::from(number / 64)) else { return false };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    pub(super) fn has(&self, number: u16) -> bool {
        self.0.get(usize::from(number / 64)).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }
}

/// A QSPEC whose parts have been found, as a view into its octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Qspec<'a> {
    /// The common header.
    pub header: Header,
    /// All of it, from the common header on.
    pub octets: &'a [u8],
    objects: &'a [u8],
    encapsulated: Option<&'a [u8]>,
    known: [Option<Object<'a>>; 4],
}

impl<'a> Qspec<'a> {
    /// Finds the parts without checking their contents (RFC 5975 §5.1). It serves for a QSPEC that another node
    /// reported as malformed, for display, and before [`faults`](Self::faults). `octets` are the value of the QSPEC
    /// object of QoS NSLP.
    ///
    /// # Errors
    /// [`QspecError`] for what makes reading on impossible or pointless: the version, lengths that do not agree,
    /// an empty QSPEC or object, an object of a type that is neither known nor private or that occurs twice,
    /// and a Local QSPEC without an Initiator QSPEC at its end.
    pub fn frame(octets: &'a [u8]) -> Result<Self, QspecError> {
        Self::frame_at(octets, 0)
    }

    fn frame_at(octets: &'a [u8], base: usize) -> Result<Self, QspecError> {
        let (header, words) = Header::read(octets, base)?;
        let body = octets.get(HEADER_LENGTH..).unwrap_or_default();
        if body.len() != words * 4 {
            return Err(QspecError::header(Problem::Length, "Length", base + 2, words as u64));
        }
        if body.is_empty() {
            return Err(QspecError::header(Problem::Empty, "Length", base + 2, 0));
        }
        let mut qspec = Self { header, octets, objects: body, encapsulated: None, known: [None; 4] };
        let mut rest = Reader::at(body, base + HEADER_LENGTH);
        let mut private = 0_u8;
        while !rest.is_empty() {
            let start = rest.offset();
            let cut = |offset| QspecError::header(Problem::Length, "object", offset, words as u64);
            let next = element(&mut rest).map_err(cut)?;
            if header.local && rest.is_empty() {
                let (objects, initiator) =
                    body.split_at_checked(start - base - HEADER_LENGTH).unwrap_or_default();
                qspec.objects = objects;
                qspec.encapsulate(initiator, start)?;
                break;
            }
            let object = Object::of(&next);
            let faulty = |problem| Err(QspecError::object(problem, object.kind, start, "Object Type", start));
            object.frame()?;
            match qspec.known.get_mut(usize::from(object.kind.0)) {
                Some(Some(_)) => return faulty(Problem::Duplicate),
                Some(place) => *place = Some(object),
                None if !object.kind.is_private() => return faulty(Problem::UnknownObject),
                None => {
                    let bit = 1 << (object.kind.0 & 3);
                    if private & bit != 0 {
                        return faulty(Problem::Duplicate);
                    }
                    private |= bit;
                }
            }
        }
        if qspec.objects.is_empty() {
            return Err(QspecError::header(Problem::Empty, "local objects", base + 2, words as u64));
        }
        Ok(qspec)
    }

    /// Takes the last element of a Local QSPEC as the encapsulated Initiator QSPEC.
    fn encapsulate(&mut self, initiator: &'a [u8], start: usize) -> Result<(), QspecError> {
        let inner = Header::read(initiator, start)?.0;
        if inner.local {
            return Err(QspecError::header(Problem::NotInitiator, "I", start, 1));
        }
        Self::frame_at(initiator, start)?;
        self.encapsulated = Some(initiator);
        Ok(())
    }

    /// Finds the parts and checks everything that does not depend on the message (RFC 5975 §5).
    ///
    /// # Errors
    /// [`QspecError`]: the first fault.
    pub fn parse(octets: &'a [u8]) -> Result<Self, QspecError> {
        let qspec = Self::frame(octets)?;
        qspec.faults().next().map_or(Ok(qspec), Err)
    }

    /// All faults: an unassigned procedure, parameters that occur twice or have a wrong length or value, and
    /// priorities that need another one. The QSPEC that a Local QSPEC encapsulates is not examined: only the edges of
    /// the domain do that (RFC 5975 §3.3).
    pub fn faults(&self) -> impl Iterator<Item = QspecError> + use<'a> {
        let procedure = self.header.procedure;
        let unassigned = (!procedure.is_assigned())
            .then(|| QspecError::header(Problem::Procedure, "QSPEC Procedure", 1, procedure.0.into()));
        unassigned.into_iter().chain(self.objects().flat_map(|object| object.faults()))
    }

    /// All objects in their order; of a Local QSPEC those before the one that it encapsulates.
    #[must_use]
    pub const fn objects(&self) -> Objects<'a> {
        Objects { rest: Reader::at(self.objects, HEADER_LENGTH) }
    }

    /// One of the four objects.
    #[must_use]
    pub fn object(&self, kind: ObjectType) -> Option<Object<'a>> {
        self.known.get(usize::from(kind.0)).copied().flatten()
    }

    /// QoS Desired.
    #[must_use]
    pub fn desired(&self) -> Option<Object<'a>> {
        self.object(ObjectType::DESIRED)
    }

    /// QoS Available.
    #[must_use]
    pub fn available(&self) -> Option<Object<'a>> {
        self.object(ObjectType::AVAILABLE)
    }

    /// QoS Reserved.
    #[must_use]
    pub fn reserved(&self) -> Option<Object<'a>> {
        self.object(ObjectType::RESERVED)
    }

    /// Minimum QoS.
    #[must_use]
    pub fn minimum(&self) -> Option<Object<'a>> {
        self.object(ObjectType::MINIMUM)
    }

    /// The octets of the Initiator QSPEC that a Local QSPEC stands for.
    #[must_use]
    pub const fn encapsulated(&self) -> Option<&'a [u8]> {
        self.encapsulated
    }

    /// Appends it again (RFC 5975 §5): the same octets, except for reserved bits, which become zero, and for the flags
    /// of TMOD-1: M is always set and N never.
    ///
    /// # Errors
    /// [`EncodeError`] if one of its [`faults`](Self::faults) forbids it.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let mut composer = Composer::new(self.header, w)?;
        for object in self.objects() {
            composer.object(object.kind, object.error, |composer| {
                object.parameters().try_for_each(|parameter| composer.copy(&parameter))
            })?;
        }
        composer.finish(self.encapsulated)
    }
}

impl<'a> Object<'a> {
    /// What is wrong with its parameters.
    pub(super) fn faults(self) -> impl Iterator<Item = QspecError> + use<'a> {
        let mut seen = Seen::new();
        let faults = self.parameters().filter_map(move |parameter| {
            if seen.insert(parameter.id.0) {
                return parameter.value().err();
            }
            Some(QspecError {
                parameter: Some(parameter.id),
                parameter_start: parameter.start,
                value: parameter.id.0.into(),
                ..QspecError::object(
                    Problem::Duplicate,
                    self.kind,
                    self.start,
                    "Parameter ID",
                    parameter.start,
                )
            })
        });
        faults.chain(self.lonely_rph())
    }

    /// RPH Priority must not be without Admission Priority (§5.2.10).
    fn lonely_rph(self) -> Option<QspecError> {
        let rph = self.parameter(ParameterId::RPH_PRIORITY)?;
        if self.parameter(ParameterId::ADMISSION_PRIORITY).is_some() {
            return None;
        }
        Some(QspecError {
            parameter: Some(rph.id),
            parameter_start: rph.start,
            value: rph.id.0.into(),
            ..QspecError::object(Problem::Priorities, self.kind, self.start, "Parameter ID", rph.start)
        })
    }
}
