//! Message-Routing-Information (RFC 5971 A.3.1).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::{Direction, LooseEnd, Mri, PathCoupled};
use signalbox_wire::{Reader, Short, Writer};

use super::code_points::{MrmId, ObjectType};
use crate::error::{DecodeError, EncodeError, Problem};

const P: u16 = 0x0800;
const T: u16 = 0x0400;
const F: u16 = 0x0200;
const S: u16 = 0x0100;
const A: u16 = 0x0080;
const B: u16 = 0x0040;
/// The D-flag of the path-coupled method.
const D: u16 = 0x0020;
/// The D-flag of the loose-end method.
const LOOSE_D: u16 = 0x0800;

/// A parsed MRI together with its received octets.
#[derive(Debug, Clone, Copy)]
pub struct MriObject<'a> {
    /// The parsed MRI.
    pub mri: Mri,
    /// The value of the received object. A reply repeats it octet by octet, including reserved bits and ignored fields.
    /// Empty: the encoder writes `mri`. With received octets only the direction of `mri` may be changed.
    pub octets: &'a [u8],
}

impl From<Mri> for MriObject<'_> {
    fn from(mri: Mri) -> Self {
        Self { mri, octets: &[] }
    }
}

impl PartialEq for MriObject<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.mri == other.mri
    }
}

impl MriObject<'_> {
    /// The MRI for a message in the opposite direction.
    #[must_use]
    pub const fn inverted(mut self) -> Self {
        self.mri = self.mri.inverted();
        self
    }

    /// Appends the object's value.
    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let (Some((head, tail)), Some(flag)) =
            (self.octets.split_first_chunk::<4>(), direction_flag(self.octets))
        else {
            return mri_encode(&self.mri, w);
        };
        let upstream = self.mri.direction() == Direction::Upstream;
        let head = u32::from_be_bytes(*head) & !u32::from(flag);
        w.u32(if upstream { head | u32::from(flag) } else { head });
        w.bytes(tail);
        Ok(())
    }
}

/// The D-flag of the routing method, in the second half of the first word.
fn direction_flag(value: &[u8]) -> Option<u16> {
    match MrmId(*value.first()?) {
        MrmId::PATH_COUPLED => Some(D),
        MrmId::LOOSE_END => Some(LOOSE_D),
        _ => None,
    }
}

/// Parses the value of an MRI object, without its TLV header (RFC 5971 A.3.1). Offsets in errors count from the object's TLV header.
///
/// # Errors
/// [`Problem::Value`] for an unknown method, IP version or a prefix longer than the address,
/// [`Problem::FlagField`] for F with IPv4 and S, A or B without P, [`Problem::ObjectLength`].
pub fn mri_parse(value: &[u8]) -> Result<Mri, DecodeError> {
    let mut r = Reader::at(value, 4);
    let [method, _n_flag_and_reserved] = r.array().map_err(|short| length(short, value))?;
    match MrmId(method) {
        MrmId::PATH_COUPLED => path_coupled(r, value),
        MrmId::LOOSE_END => loose_end(r, value),
        MrmId(other) => Err(error(Problem::Value, "MRM-ID", 4, other.into())),
    }
}

const fn error(problem: Problem, field: &'static str, offset: usize, value: u64) -> DecodeError {
    DecodeError { object: Some(ObjectType::MRI), field, offset, object_start: 0, value, problem }
}

fn length(short: Short, value: &[u8]) -> DecodeError {
    error(Problem::ObjectLength, "Length", short.offset, (value.len() / 4) as u64)
}

fn end(r: Reader<'_>, value: &[u8]) -> Result<(), DecodeError> {
    let (offset, words) = (r.offset(), value.len() / 4);
    if r.is_empty() { Ok(()) } else { Err(error(Problem::ObjectLength, "Length", offset, words as u64)) }
}

fn path_coupled(mut r: Reader<'_>, value: &[u8]) -> Result<Mri, DecodeError> {
    let short = |s| length(s, value);
    let flags = u16::from_be_bytes(r.array().map_err(short)?);
    let v6 = ip_version(flags)?;
    let set = |flag| flags & flag != 0;
    if set(F) && !v6 {
        return Err(error(Problem::FlagField, "F-flag", 6, flags.into()));
    }
    if !set(P) {
        for (flag, field, offset) in [(S, "S-flag", 6), (A, "A-flag", 7), (B, "B-flag", 7)] {
            if set(flag) {
                return Err(error(Problem::FlagField, field, offset, flags.into()));
            }
        }
    }
    let src = address(&mut r, v6).map_err(short)?;
    let dst = address(&mut r, v6).map_err(short)?;
    let at = r.offset();
    let [src_prefix, dst_prefix, protocol, ds] = r.array().map_err(short)?;
    let bits = if v6 { 128 } else { 32 };
    for (prefix, field, offset) in [(src_prefix, "Source Prefix", at), (dst_prefix, "Dest Prefix", at + 1)] {
        if prefix > bits {
            return Err(error(Problem::Value, field, offset, prefix.into()));
        }
    }
    let flow_label = if set(F) { Some(word(&mut r).map_err(short)? & 0x000f_ffff) } else { None };
    let spi = if set(S) { Some(word(&mut r).map_err(short)?) } else { None };
    let (src_port, dst_port) = if set(A) || set(B) {
        let [a1, a0, b1, b0] = r.array().map_err(short)?;
        let (a, b) = (u16::from_be_bytes([a1, a0]), u16::from_be_bytes([b1, b0]));
        (set(A).then_some(a), set(B).then_some(b))
    } else {
        (None, None)
    };
    end(r, value)?;
    Ok(Mri::PathCoupled(PathCoupled {
        src,
        dst,
        src_prefix,
        dst_prefix,
        protocol: set(P).then_some(protocol),
        dscp: set(T).then_some(ds >> 2),
        flow_label,
        spi,
        src_port,
        dst_port,
        direction: direction(set(D)),
    }))
}

fn loose_end(mut r: Reader<'_>, value: &[u8]) -> Result<Mri, DecodeError> {
    let short = |s| length(s, value);
    let flags = u16::from_be_bytes(r.array().map_err(short)?);
    let v6 = ip_version(flags)?;
    let src = address(&mut r, v6).map_err(short)?;
    let dst = address(&mut r, v6).map_err(short)?;
    end(r, value)?;
    Ok(Mri::LooseEnd(LooseEnd { src, dst, direction: direction(flags & LOOSE_D != 0) }))
}

fn word(r: &mut Reader<'_>) -> Result<u32, Short> {
    r.array().map(u32::from_be_bytes)
}

const fn direction(upstream: bool) -> Direction {
    if upstream { Direction::Upstream } else { Direction::Downstream }
}

/// Whether the IP-Ver field is 6.
fn ip_version(flags: u16) -> Result<bool, DecodeError> {
    match flags >> 12 {
        4 => Ok(false),
        6 => Ok(true),
        other => Err(error(Problem::Value, "IP-Ver", 6, other.into())),
    }
}

pub(crate) fn address(r: &mut Reader<'_>, v6: bool) -> Result<IpAddr, Short> {
    Ok(if v6 {
        IpAddr::V6(Ipv6Addr::from(r.array::<16>()?))
    } else {
        IpAddr::V4(Ipv4Addr::from(r.array::<4>()?))
    })
}

pub(crate) fn write_address(w: &mut Writer<'_>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => w.bytes(&a.octets()),
        IpAddr::V6(a) => w.bytes(&a.octets()),
    }
}

/// Appends two addresses between two words. IPv4 is written at once: a third of the instructions of four parts.
fn write_words(w: &mut Writer<'_>, first: u32, [src, dst]: [IpAddr; 2], last: u32) {
    if let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) {
        let [a, b, c, d] = [first, src.to_bits(), dst.to_bits(), last].map(u128::from);
        return w.bytes(&(a << 96 | b << 64 | c << 32 | d).to_be_bytes());
    }
    w.u32(first);
    write_address(w, src);
    write_address(w, dst);
    w.u32(last);
}

/// Appends the value of an MRI object, without its TLV header (RFC 5971 A.3.1); reserved bits are zero.
///
/// # Errors
/// [`EncodeError::Forbidden`] for combinations that the flags of A.3.1.1 do not allow (a flow label with IPv4, an SPI or
/// ports without a protocol), for addresses of two IP versions, and for prefixes, labels or DSCPs out of range.
pub fn mri_encode(mri: &Mri, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    let refuse = |bad: bool, field| {
        if bad { Err(EncodeError::forbidden(ObjectType::MRI, field)) } else { Ok(()) }
    };
    let v6 = mri.src().is_ipv6();
    refuse(v6 != mri.dst().is_ipv6(), "IP-Ver")?;
    let version: u16 = if v6 { 0x6000 } else { 0x4000 };
    let upstream = mri.direction() == Direction::Upstream;
    match mri {
        Mri::PathCoupled(p) => {
            let host = if v6 { 128 } else { 32 };
            refuse(p.src_prefix > host, "Source Prefix")?;
            refuse(p.dst_prefix > host, "Dest Prefix")?;
            refuse(p.dscp.is_some_and(|d| d > 63), "DS-field")?;
            refuse(p.flow_label.is_some_and(|l| !v6 || l > 0x000f_ffff), "Flow Label")?;
            refuse(p.protocol.is_none() && p.spi.is_some(), "S-flag")?;
            refuse(p.protocol.is_none() && p.src_port.is_some(), "A-flag")?;
            refuse(p.protocol.is_none() && p.dst_port.is_some(), "B-flag")?;
            let flag = |set: bool, flag: u16| if set { flag } else { 0 };
            let flags = version
                | flag(p.protocol.is_some(), P)
                | flag(p.dscp.is_some(), T)
                | flag(p.flow_label.is_some(), F)
                | flag(p.spi.is_some(), S)
                | flag(p.src_port.is_some(), A)
                | flag(p.dst_port.is_some(), B)
                | flag(upstream, D);
            let ds = p.dscp.unwrap_or(0) << 2;
            let first = u32::from(MrmId::PATH_COUPLED.0) << 24 | u32::from(flags);
            let last = u32::from_be_bytes([p.src_prefix, p.dst_prefix, p.protocol.unwrap_or(0), ds]);
            write_words(w, first, [p.src, p.dst], last);
            p.flow_label.into_iter().chain(p.spi).for_each(|word| w.u32(word));
            if p.src_port.is_some() || p.dst_port.is_some() {
                w.u32(u32::from(p.src_port.unwrap_or(0)) << 16 | u32::from(p.dst_port.unwrap_or(0)));
            }
        }
        Mri::LooseEnd(l) => {
            w.u16(u16::from(MrmId::LOOSE_END.0) << 8);
            w.u16(version | if upstream { LOOSE_D } else { 0 });
            write_address(w, l.src);
            write_address(w, l.dst);
        }
    }
    Ok(())
}
