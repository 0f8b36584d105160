//! Values of the objects that have a fixed form (RFC 5974 §5.1.3).

use signalbox_core::mri::PathCoupled;
use signalbox_core::{Mri, SessionId};
use signalbox_wire::Writer;

use super::code_points::{BindingCode, Info, ObjectType};
use super::object::{Extensibility, RawObject, write_object};
use crate::error::{DecodeError, EncodeError};

/// RSN: the sequence number of one node for one session, and the epoch of that node (RFC 5974 §5.1.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rsn {
    /// The number, compared by RFC 1982 ([`Rsn::newer`]).
    pub number: u32,
    /// Changes when the node restarts.
    pub epoch: u32,
}

impl Rsn {
    pub(crate) fn parse(object: &RawObject<'_>) -> Result<Self, DecodeError> {
        let [a, b, c, d, e, f, g, h] = object.fixed()?;
        Ok(Self { number: u32::from_be_bytes([a, b, c, d]), epoch: u32::from_be_bytes([e, f, g, h]) })
    }

    pub(crate) fn write(self, w: &mut Writer<'_>) {
        w.u32(self.number);
        w.u32(self.epoch);
    }

    /// Whether `number` comes after `than` in serial number arithmetic of 32 bits (RFC 1982). Numbers exactly half
    /// the space apart are not ordered there; here neither is newer.
    #[must_use]
    pub const fn newer(number: u32, than: u32) -> bool {
        let distance = number.wrapping_sub(than);
        distance != 0 && distance < 1 << 31
    }
}

/// BOUND-SESSION-ID: the session of the message is bound to this one (§5.1.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BoundSession {
    /// The reason.
    pub code: BindingCode,
    /// The other session.
    pub session: SessionId,
}

impl BoundSession {
    pub(crate) fn parse(object: &RawObject<'_>) -> Result<Self, DecodeError> {
        let octets: [u8; 20] = object.fixed()?;
        let ([_, _, _, code], session) = split(octets);
        let code = BindingCode(code);
        if !code.is_known() {
            return Err(object.error(Info::UNKNOWN_VALUE, "Binding Code", 3));
        }
        Ok(Self { code, session: SessionId(session) })
    }

    /// Appends the object.
    ///
    /// # Errors
    /// None that can happen: its length is fixed.
    pub fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        write_object(w, ObjectType::BOUND_SESSION_ID, Extensibility::Mandatory, |w| {
            w.u32(self.code.0.into());
            w.bytes(&self.session.0);
        })
    }
}

/// MSG-ID or BOUND-MSG-ID (§5.1.3.9, §5.1.3.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// D: the RESPONSEs depend on each other as well as the RESERVEs.
    pub bidirectional: bool,
    /// 128 random bits.
    pub id: [u8; 16],
}

impl MessageId {
    pub(crate) fn parse(object: &RawObject<'_>) -> Result<Self, DecodeError> {
        let ([_, _, _, d], id) = split(object.fixed()?);
        Ok(Self { bidirectional: d & 1 != 0, id })
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) {
        w.u32(self.bidirectional.into());
        w.bytes(&self.id);
    }
}

fn split(octets: [u8; 20]) -> ([u8; 4], [u8; 16]) {
    let (mut head, mut tail) = ([0; 4], [0; 16]);
    for (at, octet) in octets.into_iter().enumerate() {
        match head.get_mut(at) {
            Some(slot) => *slot = octet,
            None => {
                if let Some(slot) = tail.get_mut(at - 4) {
                    *slot = octet;
                }
            }
        }
    }
    (head, tail)
}

/// PACKET-CLASSIFIER for the path-coupled method: the fields of the MRI that classify the packets of the reservation
/// (RFC 5974 §5.1.3.5). QoS NSLP is defined for this method only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Classifier(pub u8);

impl Classifier {
    /// Source address and prefix.
    pub const X: Self = Self(0x80);
    /// Destination address and prefix.
    pub const Y: Self = Self(0x40);
    /// Protocol.
    pub const P: Self = Self(0x20);
    /// Diffserv code point.
    pub const T: Self = Self(0x10);
    /// Flow label.
    pub const F: Self = Self(0x08);
    /// SPI.
    pub const S: Self = Self(0x04);
    /// Source port.
    pub const A: Self = Self(0x02);
    /// Destination port.
    pub const B: Self = Self(0x01);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Every field that `mri` has: the default without a PACKET-CLASSIFIER.
    #[must_use]
    pub fn all_of(mri: &PathCoupled) -> Self {
        let present = [
            (Self::P, mri.protocol.is_some()),
            (Self::T, mri.dscp.is_some()),
            (Self::F, mri.flow_label.is_some()),
            (Self::S, mri.spi.is_some()),
            (Self::A, mri.src_port.is_some()),
            (Self::B, mri.dst_port.is_some()),
        ];
        let flags = present.into_iter().filter(|(_, has)| *has).map(|(flag, _)| flag.0);
        Self(flags.fold(Self::X.0 | Self::Y.0, |all, flag| all | flag))
    }

    /// Whether the MRI has every flagged field. Only then is the classifier valid.
    #[must_use]
    pub fn fits(self, mri: &Mri) -> bool {
        match mri {
            Mri::PathCoupled(mri) => Self::all_of(mri).contains(self),
            Mri::LooseEnd(_) => false,
        }
    }

    pub(crate) fn parse(object: &RawObject<'_>) -> Result<Self, DecodeError> {
        let [flags, ..]: [u8; 4] = object.fixed()?;
        Ok(Self(flags))
    }
}

impl core::fmt::Debug for Classifier {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Classifier(")?;
        for (at, name) in "XYPTFSAB".chars().enumerate() {
            if self.0 & 0x80 >> at != 0 {
                write!(f, "{name}")?;
            }
        }
        f.write_str(")")
    }
}
