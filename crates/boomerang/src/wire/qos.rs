//! The QoS specification (§3.2.3).

use signalbox_wire::{Reader, Short, Writer};

use super::code_points::{Pass, QosFormat};
use crate::error::DecodeError;

/// Most elements of a DOWNGRADE list.
pub const MAX_PAIRS: u8 = 32;

/// Rates in both directions, bit/s. They count whole IP packets; 0: nothing in that direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rates {
    /// From the initiating node to the far end.
    pub forward: u32,
    /// From the far end to the initiating node.
    pub reverse: u32,
}

impl Rates {
    /// The rate in the direction of the data that follow a message of this pass. BOOM-3.2.3-03, BOOM-F3.3.1-02.
    #[must_use]
    pub const fn of(self, pass: Pass) -> u32 {
        match pass {
            Pass::Request => self.forward,
            Pass::Reply => self.reverse,
        }
    }

    /// Whether both are 0: a release.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.forward == 0 && self.reverse == 0
    }

    /// Its octets in a message.
    #[must_use]
    pub fn octets(self) -> [u8; 8] {
        (u64::from(self.forward) << 32 | u64::from(self.reverse)).to_be_bytes()
    }

    // BOOM-3.2.3-02
    fn parse(r: &mut Reader<'_>) -> Result<Self, Short> {
        Ok(Self { forward: r.u32()?, reverse: r.u32()? })
    }
}

/// A list of pairs of rates in decreasing order, for one attempt instead of several. The first pair is the present grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Downgrade<'a> {
    /// Not defined: sent as 0, ignored.
    pub policy: u16,
    /// Not used: sent as 0, ignored.
    pub padding: u8,
    pairs: &'a [[u8; 8]],
}

impl<'a> Downgrade<'a> {
    /// The pairs.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = Rates> + use<'a> {
        self.pairs.iter().map(|[a, b, c, d, e, f, g, h]| Rates {
            forward: u32::from_be_bytes([*a, *b, *c, *d]),
            reverse: u32::from_be_bytes([*e, *f, *g, *h]),
        })
    }

    /// The first pair.
    #[must_use]
    pub fn first(&self) -> Rates {
        self.pairs().next().unwrap_or_default()
    }

    // BOOM-3.2.3-06, BOOM-G20-04
    fn parse(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let offset = r.offset();
        let cut = |short: Short| DecodeError::Short { field: "DOWNGRADE list", short };
        let wrong = |why| DecodeError::Downgrade { offset, why };
        let [count, p1, p0, padding] = r.array().map_err(cut)?;
        if count == 0 || count > MAX_PAIRS {
            return Err(wrong("not 1 to 32 elements"));
        }
        let (pairs, _) = r.take(usize::from(count) * 8).map_err(cut)?.as_chunks::<8>();
        let list = Self { policy: u16::from_be_bytes([p1, p0]), padding, pairs };
        let falls = list
            .pairs()
            .zip(list.pairs().skip(1))
            .all(|(one, next)| next.forward <= one.forward && next.reverse <= one.reverse);
        if falls { Ok(list) } else { Err(wrong("an element exceeds the one before it")) }
    }
}

/// One IntServ message (RFC 2210 Appendix A) for each direction, with its header; a header of length 0 stands for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntServ<'a> {
    /// From the initiating node to the far end.
    pub forward: &'a [u8],
    /// From the far end to the initiating node.
    pub reverse: &'a [u8],
}

impl<'a> IntServ<'a> {
    // BOOM-G21-01
    fn parse(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut one = || -> Result<&'a [u8], DecodeError> {
            let cut = |short: Short| DecodeError::Short { field: "IntServ message", short };
            let offset = r.offset();
            let mut ahead = *r;
            let [version, _, l1, l0] = ahead.array().map_err(cut)?;
            if version >> 4 != 0 {
                return Err(DecodeError::IntServ { found: version >> 4, offset });
            }
            r.take(4 + 4 * usize::from(u16::from_be_bytes([l1, l0]))).map_err(cut)
        };
        Ok(Self { forward: one()?, reverse: one()? })
    }

    /// The message of the data that follow a message of this pass.
    #[must_use]
    pub const fn of(self, pass: Pass) -> &'a [u8] {
        match pass {
            Pass::Request => self.forward,
            Pass::Reply => self.reverse,
        }
    }

    /// Whether both are empty: a release. BOOM-G12-03.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.forward.len() <= 4 && self.reverse.len() <= 4
    }
}

/// The quality of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos<'a> {
    /// QOSFMT_BITRATE.
    BitRate(Rates),
    /// QOSFMT_DOWNGRADE.
    Downgrade(Downgrade<'a>),
    /// QOSFMT_INTSERV.
    IntServ(IntServ<'a>),
}

impl<'a> Qos<'a> {
    /// A DOWNGRADE list of these pairs ([`Rates::octets`]), at most [`MAX_PAIRS`], in decreasing order.
    #[must_use]
    pub const fn list(pairs: &'a [[u8; 8]]) -> Self {
        Self::Downgrade(Downgrade { policy: 0, padding: 0, pairs })
    }

    /// Its format.
    #[must_use]
    pub const fn format(&self) -> QosFormat {
        match self {
            Self::BitRate(_) => QosFormat::BITRATE,
            Self::Downgrade(_) => QosFormat::DOWNGRADE,
            Self::IntServ(_) => QosFormat::INTSERV,
        }
    }

    /// The requested rates, those of the first element of a list; `None`: it is described by IntServ parameters.
    #[must_use]
    pub fn rates(&self) -> Option<Rates> {
        match self {
            Self::BitRate(rates) => Some(*rates),
            Self::Downgrade(list) => Some(list.first()),
            Self::IntServ(_) => None,
        }
    }

    /// Parses a QoS specification; `None`: the format is unknown. BOOM-G41-01, BOOM-3.2.3-01.
    pub(super) fn parse(r: &mut Reader<'a>, format: QosFormat) -> Result<Option<Self>, DecodeError> {
        let cut = |short: Short| DecodeError::Short { field: "rates", short };
        Ok(Some(match format {
            QosFormat::BITRATE => Self::BitRate(Rates::parse(r).map_err(cut)?),
            QosFormat::DOWNGRADE => Self::Downgrade(Downgrade::parse(r)?),
            QosFormat::INTSERV => Self::IntServ(IntServ::parse(r)?),
            _ => return Ok(None),
        }))
    }

    // BOOM-3.2.3-02, BOOM-F4.1.3-01, BOOM-G39-01
    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::BitRate(rates) => {
                w.u32(rates.forward);
                w.u32(rates.reverse);
            }
            Self::Downgrade(list) => {
                // A list that was parsed has at most 32 elements.
                w.u8(u8::try_from(list.pairs.len()).unwrap_or(MAX_PAIRS));
                w.u16(list.policy);
                w.u8(list.padding);
                w.bytes(list.pairs.as_flattened());
            }
            Self::IntServ(specs) => {
                w.bytes(specs.forward);
                w.bytes(specs.reverse);
            }
        }
    }
}
