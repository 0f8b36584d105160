//! POLICY_DATA (RFC 2750 §3): forwarded unchanged, parsed for policy control.

use core::net::IpAddr;

use super::code_points::Class;
use super::object::{OBJECT_HEADER_OCTETS, Objects, RawObject};
use super::security::Integrity;
use super::values::{Filter, RsvpHop, Scope};
use crate::error::{DecodeError, Fault};

/// Octets before the options: object header, Data Offset, reserved.
const PREFIX_OCTETS: usize = OBJECT_HEADER_OCTETS + 4;

/// One POLICY_DATA object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyData<'a> {
    octets: &'a [u8],
}

/// Options of a POLICY_DATA object (RFC 2750 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyOptions<'a> {
    /// Originating RSVP_HOP: the node that made the object.
    pub origin: Option<RsvpHop>,
    /// Destination RSVP_HOP: the node that the object is for; others ignore it.
    pub destination: Option<RsvpHop>,
    /// SCOPE: the senders; it excludes filters. `None`: all flows of the session.
    pub scope: Option<Scope<'a>>,
    /// Digest over the object and a SESSION.
    pub integrity: Option<Integrity<'a>>,
    /// Policy refresh time (PRT), milliseconds.
    pub refresh: Option<u32>,
    options: &'a [u8],
}

impl<'a> PolicyData<'a> {
    pub(crate) const fn of(object: RawObject<'a>) -> Self {
        Self { octets: object.octets }
    }

    /// The whole object with its header.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// Splits options and elements.
    fn parts(&self) -> Option<(&'a [u8], &'a [u8])> {
        let &[o1, o0] = self.octets.get(OBJECT_HEADER_OCTETS..)?.first_chunk()?;
        let at = usize::from(u16::from_be_bytes([o1, o0]));
        if !at.is_multiple_of(4) {
            return None;
        }
        let (head, elements) = self.octets.split_at_checked(at)?;
        Some((head.get(PREFIX_OCTETS..)?, elements))
    }

    /// Parses the options (RFC 2750 §3.2).
    ///
    /// # Errors
    /// [`Fault::Value`] for a bad Data Offset, [`Fault::NotAllowed`] for an object that is not an option,
    /// [`Fault::MixedTypes`] for filters beside a SCOPE, [`Fault::Duplicate`], and faults of the options. Offsets are
    /// those within the object.
    pub fn options(&self) -> Result<PolicyOptions<'a>, DecodeError> {
        let bad = |fault| DecodeError::header(fault, OBJECT_HEADER_OCTETS);
        let (options, _) = self.parts().ok_or(bad(Fault::Value))?;
        let mut read = PolicyOptions { options, ..PolicyOptions::default() };
        let mut filters = false;
        for object in Objects::at(options, PREFIX_OCTETS) {
            let object = object?;
            let second = match object.kind.class {
                Class::NULL => false,
                Class::RSVP_HOP if read.origin.is_none() => {
                    read.origin.replace(RsvpHop::parse(&object)?).is_some()
                }
                Class::RSVP_HOP => read.destination.replace(RsvpHop::parse(&object)?).is_some(),
                Class::SCOPE => read.scope.replace(Scope::parse(&object)?).is_some(),
                Class::INTEGRITY => read.integrity.replace(Integrity::parse(&object)?).is_some(),
                Class::TIME_VALUES => read.refresh.replace(u32::from_be_bytes(object.array()?)).is_some(),
                Class::FILTER_SPEC => {
                    Filter::parse(&object)?;
                    filters = true;
                    false
                }
                _ => return Err(object.error(Fault::NotAllowed)),
            };
            if second {
                return Err(object.error(Fault::Duplicate));
            }
        }
        if filters && read.scope.is_some() { Err(bad(Fault::MixedTypes)) } else { Ok(read) }
    }

    /// Parses the elements (RFC 2750 §3.3).
    ///
    /// # Errors
    /// [`Fault::Value`] for a bad Data Offset, [`Fault::ObjectLength`] for a bad length of an element.
    pub fn elements(&self) -> Result<PolicyElements<'a>, DecodeError> {
        let bad = |fault, offset| DecodeError::header(fault, offset);
        let (_, elements) = self.parts().ok_or(bad(Fault::Value, OBJECT_HEADER_OCTETS))?;
        let all = PolicyElements { rest: elements };
        let mut rest = elements;
        while !rest.is_empty() {
            let offset = self.octets.len() - rest.len();
            (_, rest) = element(rest).ok_or(bad(Fault::ObjectLength, offset))?;
        }
        Ok(all)
    }

    /// The object with other elements and the same options.
    #[cfg(feature = "engine")]
    pub(crate) fn with_elements(&self, elements: impl Iterator<Item = PolicyElement<'a>>) -> Option<Vec<u8>> {
        let &[o1, o0] = self.octets.get(OBJECT_HEADER_OCTETS..)?.first_chunk()?;
        let mut octets = self.octets.get(..usize::from(u16::from_be_bytes([o1, o0])))?.to_vec();
        for element in elements {
            octets.extend_from_slice(&u16::try_from(element.data.len() + 4).ok()?.to_be_bytes());
            octets.extend_from_slice(&element.p_type.to_be_bytes());
            octets.extend_from_slice(element.data);
        }
        let length = u16::try_from(octets.len()).ok()?.to_be_bytes();
        octets.splice(..2, length);
        Some(octets)
    }

    /// Whether the object is for the node with address `own`: it names that node, or none (RFC 2750 §3.2).
    ///
    /// # Errors
    /// As [`PolicyData::options`].
    pub fn is_for(&self, own: IpAddr) -> Result<bool, DecodeError> {
        Ok(self.options()?.destination.is_none_or(|hop| hop.addr == own))
    }
}

impl<'a> PolicyOptions<'a> {
    /// The flows that the options name.
    pub fn filters(&self) -> impl Iterator<Item = Filter> + use<'a> {
        Objects::at(self.options, PREFIX_OCTETS)
            .map_while(Result::ok)
            .filter(|object| object.kind.class == Class::FILTER_SPEC)
            .filter_map(|object| Filter::parse(&object).ok())
    }

    /// The policy refresh multiplier N for a refresh period of `r` milliseconds (RFC 2750 §3.2), at least 1.
    #[must_use]
    pub fn refreshes(&self, r: u32) -> u32 {
        self.refresh.and_then(|policy| policy.checked_div(r)).unwrap_or(1).max(1)
    }
}

/// A policy element, opaque (RFC 2750 §3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyElement<'a> {
    /// Its P-Type.
    pub p_type: u16,
    /// Its contents; empty: delete all state of the P-Type (§3.4).
    pub data: &'a [u8],
}

/// Iterator of [`PolicyData::elements`].
#[derive(Debug, Clone)]
pub struct PolicyElements<'a> {
    rest: &'a [u8],
}

fn element(octets: &[u8]) -> Option<(PolicyElement<'_>, &[u8])> {
    let &[l1, l0, p1, p0] = octets.first_chunk()?;
    let length = usize::from(u16::from_be_bytes([l1, l0]));
    if !length.is_multiple_of(4) {
        return None;
    }
    let (element, rest) = octets.split_at_checked(length)?;
    let data = element.get(4..)?;
    Some((PolicyElement { p_type: u16::from_be_bytes([p1, p0]), data }, rest))
}

impl<'a> Iterator for PolicyElements<'a> {
    type Item = PolicyElement<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (element, rest) = element(self.rest)?;
        self.rest = rest;
        Some(element)
    }
}
