//! Classes and what happens to excess traffic (RFC 5975 §5.2.11 to §5.2.14).

use core::fmt;

use super::code_points::ExcessTreatment;

/// Excess Treatment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Excess {
    /// What happens.
    pub treatment: ExcessTreatment,
    /// The code point (0–63) that excess packets get; there if and only if they are re-marked.
    pub remark: Option<u8>,
}

/// PHB Class: one of the four forms of RFC 3140.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PhbClass {
    /// A behaviour of a standard, by its recommended code point (0–63).
    Standard {
        /// The code point; of a set the smallest.
        dscp: u8,
        /// A scheduling class of several behaviours: packets of one microflow that use them keep their order.
        set: bool,
    },
    /// An experimental or local behaviour.
    Local {
        /// Its identification code (12 bits), assigned by IANA.
        code: u16,
        /// As above.
        set: bool,
    },
}

impl PhbClass {
    /// The class of one code point (0–63).
    #[must_use]
    pub const fn dscp(dscp: u8) -> Self {
        Self::Standard { dscp, set: false }
    }

    /// The field's 16 bits; `None` if a number is too large for its bits.
    #[must_use]
    pub fn field(self) -> Option<u16> {
        match self {
            Self::Standard { dscp, set } if dscp < 64 => Some(u16::from(dscp) << 10 | u16::from(set) << 1),
            Self::Local { code, set } if code < 0x1000 => Some(code << 4 | u16::from(set) << 1 | 1),
            _ => None,
        }
    }

    /// Reads the field. Bits 12 and 13 of a local class are reserved and ignored; those between the code point
    /// and bit 14 of a standard one are drawn as zeros, and a field with other bits is not a standard class.
    #[must_use]
    pub fn from_field(field: u16) -> Option<Self> {
        let set = field & 2 != 0;
        if field & 1 != 0 {
            return Some(Self::Local { code: field >> 4, set });
        }
        let [high, low] = field.to_be_bytes();
        (high & 0x03 == 0 && low & 0xfc == 0).then_some(Self::Standard { dscp: high >> 2, set })
    }
}

impl fmt::Display for PhbClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, number, set) = match *self {
            Self::Standard { dscp, set } => ("DSCP", u16::from(dscp), set),
            Self::Local { code, set } => ("PHB", code, set),
        };
        write!(f, "{name} {number}{}", if set { " and its set" } else { "" })
    }
}

/// What a Y.1541 class promises (RFC 5975 §5.2.14); `None` is unspecified.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Y1541Objectives {
    /// Mean delay, microseconds.
    pub delay_us: Option<u32>,
    /// Delay variation, microseconds.
    pub variation_us: Option<u32>,
    /// Loss ratio.
    pub loss: Option<f32>,
}

/// The objectives of a Y.1541 class; `None` for classes above 7.
#[must_use]
pub const fn y1541_objectives(class: u8) -> Option<Y1541Objectives> {
    let (delay_ms, variation_ms, loss) = match class {
        0 => (Some(100), Some(50), Some(1e-3)),
        1 => (Some(400), Some(50), Some(1e-3)),
        2 => (Some(100), None, Some(1e-3)),
        3 => (Some(400), None, Some(1e-3)),
        4 => (Some(1000), None, Some(1e-3)),
        5 => (None, None, None),
        6 => (Some(100), Some(50), Some(1e-5)),
        7 => (Some(400), Some(50), Some(1e-5)),
        _ => return None,
    };
    Some(Y1541Objectives { delay_us: thousandfold(delay_ms), variation_us: thousandfold(variation_ms), loss })
}

const fn thousandfold(milliseconds: Option<u32>) -> Option<u32> {
    match milliseconds {
        Some(ms) => Some(ms * 1000),
        None => None,
    }
}
