//! Stack-Proposal and Stack-Configuration-Data (RFC 5971 A.3.4, A.3.5, §5.7).

use signalbox_wire::{LengthOverflow, Reader, Short, Writer};

use super::code_points::{MaProtocolId, ObjectType};
use super::list::{Item, List, take_padded, write_padded};
use super::object::RawObject;
use crate::error::{DecodeError, EncodeError, Problem};

/// The protocols of one stack, from top to bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Profile<'a>(
    /// One octet for each protocol, never 0.
    pub &'a [u8],
);

impl Profile<'_> {
    /// The protocols from top to bottom.
    pub fn protocols(&self) -> impl Iterator<Item = MaProtocolId> + '_ {
        self.0.iter().copied().map(MaProtocolId)
    }

    /// Whether `protocol` is part of the stack.
    #[must_use]
    pub fn contains(&self, protocol: MaProtocolId) -> bool {
        self.0.contains(&protocol.0)
    }
}

impl<'a> Item<'a> for Profile<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self, Short> {
        let count = usize::from(r.u8()?);
        let protocols = r.take(count)?;
        r.take(super::list::padding(1 + count))?;
        Ok(Self(protocols))
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let length = self.0.len();
        let count = u8::try_from(length).map_err(|_| LengthOverflow { length, max: 255 })?;
        if count == 0 || self.0.contains(&0) {
            return Err(EncodeError::forbidden(ObjectType::STACK_PROPOSAL, "Profile"));
        }
        w.u8(count);
        w.bytes(self.0);
        w.bytes([0; 3].get(..super::list::padding(1 + length)).unwrap_or_default());
        Ok(())
    }
}

/// Which stacks a node offers for a messaging association, best first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StackProposal<'a> {
    /// At least one. Stack-Configuration-Data refers to them by number from 1.
    pub profiles: List<'a, Profile<'a>>,
}

impl<'a> StackProposal<'a> {
    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let mut r = Reader::at(object.value, object.start + 4);
        let words = (object.value.len() / 4) as u64;
        let short = |s: Short| object.error(Problem::ObjectLength, "Length", s.offset, words);
        // A.4.4.10: "a length of 0" is answered with 10/1. An object without value is treated in the same way.
        let at = r.offset();
        let count = r.array().map_or(0, |[count, _, _, _]: [u8; 4]| count);
        if count == 0 {
            return Err(object.error(Problem::Value, "Prof-Count", at, 0));
        }
        let mut check = r;
        for _ in 0..count {
            let at = check.offset();
            let profile = Profile::read(&mut check).map_err(short)?;
            if profile.0.is_empty() {
                return Err(object.error(Problem::EmptyList, "Profile", at, 0));
            }
            if let Some(i) = profile.0.iter().position(|p| *p == 0) {
                return Err(object.error(Problem::Value, "MA-Protocol-ID", at + 1 + i, 0));
            }
        }
        object.end(check)?;
        Ok(Self { profiles: List::read(&mut r, count).map_err(short)? })
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let count = self.profiles.count_u8()?;
        if count == 0 {
            return Err(EncodeError::forbidden(ObjectType::STACK_PROPOSAL, "Prof-Count"));
        }
        w.bytes(&[count, 0, 0, 0]);
        self.profiles.write(w)
    }
}

/// The options of one protocol (RFC 5971 A.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MaOptions<'a> {
    /// The protocol.
    pub protocol: MaProtocolId,
    /// The profile it is for, from 1; 0: all.
    pub profile: u8,
    /// D: the protocol must not be used.
    pub disabled: bool,
    /// The options data without padding, at most 255 octets. A peer may have counted the padding, so only the first octets
    /// are used ([`MaOptions::port`]).
    pub data: &'a [u8],
}

impl MaOptions<'_> {
    /// The port number that Forwards-TCP options of a Response begin with (§5.7.2).
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.data.first_chunk().map(|port| u16::from_be_bytes(*port))
    }
}

impl<'a> Item<'a> for MaOptions<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self, Short> {
        let [protocol, profile, length, flags] = r.array()?;
        let data = take_padded(r, length.into())?;
        Ok(Self { protocol: MaProtocolId(protocol), profile, disabled: flags & 0x80 != 0, data })
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let length = self.data.len();
        let octets = u8::try_from(length).map_err(|_| LengthOverflow { length, max: 255 })?;
        w.bytes(&[self.protocol.0, self.profile, octets, u8::from(self.disabled) << 7]);
        write_padded(w, self.data);
        Ok(())
    }
}

/// How a messaging association would be set up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StackConfiguration<'a> {
    /// How long the node keeps an idle association, in milliseconds; never 0.
    pub hold_time_ms: u32,
    /// The options of the protocols.
    pub options: List<'a, MaOptions<'a>>,
}

impl<'a> StackConfiguration<'a> {
    /// Parses the object (RFC 5971 A.3.5). The RFC forbids an MA-Hold-Time of 0 but has no error for it; this crate uses
    /// 10/1.
    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let mut r = Reader::at(object.value, object.start + 4);
        let words = (object.value.len() / 4) as u64;
        let short = |s: Short| object.error(Problem::ObjectLength, "Length", s.offset, words);
        let [count, _, _, _] = r.array().map_err(short)?;
        let at = r.offset();
        let hold_time_ms = r.u32().map_err(short)?;
        if hold_time_ms == 0 {
            return Err(object.error(Problem::Value, "MA-Hold-Time", at, 0));
        }
        let options = List::read(&mut r, count).map_err(short)?;
        object.end(r)?;
        Ok(Self { hold_time_ms, options })
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        if self.hold_time_ms == 0 {
            return Err(EncodeError::forbidden(ObjectType::STACK_CONFIGURATION, "MA-Hold-Time"));
        }
        w.bytes(&[self.options.count_u8()?, 0, 0, 0]);
        w.u32(self.hold_time_ms);
        self.options.write(w)
    }

    /// Whether it contradicts `proposal` (RFC 5971 §5.7.1): it has options for a profile or protocol that is not proposed or,
    /// if it must be `complete` (in a Query or Response), no options for a proposed Forwards-TCP.
    #[must_use]
    pub fn contradicts(&self, proposal: &StackProposal<'_>, complete: bool) -> bool {
        let stray = self.options.iter().any(|o| match usize::from(o.profile).checked_sub(1) {
            None => !proposal.profiles.iter().any(|p| p.contains(o.protocol)),
            Some(n) => !proposal.profiles.iter().nth(n).is_some_and(|p| p.contains(o.protocol)),
        });
        let tcp = MaProtocolId::FORWARDS_TCP;
        let for_tcp = |n: usize| {
            let mut options = self.options.iter().filter(|o| o.protocol == tcp);
            options.any(|o| o.profile == 0 || usize::from(o.profile) == n + 1)
        };
        let lacking = || proposal.profiles.iter().enumerate().any(|(n, p)| p.contains(tcp) && !for_tcp(n));
        stray || complete && lacking()
    }
}
