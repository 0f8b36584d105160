//! Bundles (RFC 2961 §3).

use super::code_points::MessageType;
use super::object::HEADER_OCTETS;
use crate::error::{DecodeError, Fault};

/// The messages in a Bundle, each with its own common header (RFC 2961 §3.1). Their lengths were checked when the
/// Bundle was parsed.
#[derive(Debug, Clone)]
pub struct SubMessages<'a> {
    rest: &'a [u8],
}

impl<'a> SubMessages<'a> {
    /// The messages of a whole Bundle with its header.
    pub(crate) fn of(bundle: &'a [u8]) -> Self {
        Self { rest: bundle.get(HEADER_OCTETS..).unwrap_or_default() }
    }

    /// Checks that the lengths add up, that there is a message, and that none is a Bundle (RFC 2961 §3.1).
    pub(crate) fn check(bundle: &'a [u8]) -> Result<Self, DecodeError> {
        let all = Self::of(bundle);
        let mut rest = all.rest;
        if rest.is_empty() {
            return Err(DecodeError::header(Fault::Bundle, HEADER_OCTETS));
        }
        while !rest.is_empty() {
            let error = |fault| Err(DecodeError::header(fault, bundle.len() - rest.len()));
            let Some((message, after)) = first(rest) else { return error(Fault::MessageLength) };
            if message.get(1) == Some(&MessageType::BUNDLE.0) {
                return error(Fault::Bundle);
            }
            rest = after;
        }
        Ok(all)
    }
}

/// Splits the first message off, by its own length.
fn first(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let &[.., l1, l0] = octets.first_chunk::<HEADER_OCTETS>()?;
    let length = usize::from(u16::from_be_bytes([l1, l0]));
    if length < HEADER_OCTETS { None } else { octets.split_at_checked(length) }
}

impl<'a> Iterator for SubMessages<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        let (message, rest) = first(self.rest)?;
        self.rest = rest;
        Some(message)
    }
}
