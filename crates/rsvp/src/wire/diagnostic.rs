//! The objects of diagnostics (RFC 2745 §3).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::code_points::{Class, DiagErrors};
use super::message::Message;
use super::object::{ObjectType, Objects, RawObject};
use super::values::{Filter, addresses, is_host};
use crate::error::{DecodeError, Fault};

/// DIAGNOSTIC (RFC 2745 §3.3): the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diagnostic {
    /// Limit of the RSVP hops over which information is collected; 0: no limit.
    pub max_hops: u8,
    /// RSVP hops so far.
    pub hops: u8,
    /// The flag MF: the DREP is a fragment, and more follow.
    pub more: bool,
    /// Identifies the request and its replies; chosen by the requester.
    pub request_id: u32,
    /// Path MTU: limit of the octets of DREQs and DREPs.
    pub path_mtu: u16,
    /// Fragment offset: octets of DIAG_RESPONSEs that were returned before.
    pub offset: u16,
    /// The node where the collection begins.
    pub last_hop: IpAddr,
    /// The sender at which it ends.
    pub sender: Filter,
    /// Destination of replies, by UDP.
    pub requester: SocketAddr,
}

impl Diagnostic {
    /// Parses a DIAGNOSTIC (RFC 2745 §3.3).
    pub(crate) fn parse(object: &RawObject<'_>) -> Result<Self, DecodeError> {
        let short = object.error(Fault::ObjectLength);
        let (fixed, rest) = object.content().split_first_chunk::<12>().ok_or(short)?;
        let [max_hops, hops, _, mf, i3, i2, i1, i0, m1, m0, o1, o0] = *fixed;
        let (last_hop, rest) = address(object.kind, rest).ok_or(short)?;
        let mut inside = Objects::at(rest, object.offset + object.octets.len() - rest.len());
        let mut embedded = |class| -> Result<Filter, DecodeError> {
            let one = inside.next().ok_or(short)??;
            if one.kind.class != class || !super::values::is_known(one.kind) {
                return Err(object.error(Fault::Value));
            }
            Filter::parse(&one)
        };
        let (sender, requester) = (embedded(Class::SENDER_TEMPLATE)?, embedded(Class::FILTER_SPEC)?);
        let ports = matches!(requester.c_type(), 1 | 2);
        let alike = [sender.src, requester.src].iter().all(|one| one.is_ipv6() == last_hop.is_ipv6());
        if inside.next().is_some() {
            return Err(short);
        }
        if !ports || !alike {
            return Err(object.error(Fault::MixedTypes));
        }
        if !is_host(last_hop) || !is_host(requester.src) {
            return Err(object.error(Fault::Value));
        }
        Ok(Self {
            max_hops,
            hops,
            more: mf & 1 != 0,
            request_id: u32::from_be_bytes([i3, i2, i1, i0]),
            path_mtu: u16::from_be_bytes([m1, m0]),
            offset: u16::from_be_bytes([o1, o0]),
            last_hop,
            sender,
            requester: SocketAddr::new(requester.src, requester.port()),
        })
    }
}

/// DIAG_SELECT (RFC 2745 §3.4): the objects that nodes report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiagSelect<'a> {
    pairs: &'a [[u8; 2]],
}

impl<'a> DiagSelect<'a> {
    pub(crate) fn of(object: &RawObject<'a>) -> Self {
        let (pairs, _) = object.content().as_chunks();
        // Two zero octets follow the last pair of an odd number.
        Self { pairs: pairs.strip_suffix(&[[0, 0]]).unwrap_or(pairs) }
    }

    /// The listed classes and C-Types; a C-Type of 0 stands for all of the class.
    pub fn kinds(&self) -> impl Iterator<Item = ObjectType> + use<'a> {
        self.pairs.iter().map(|[class, c_type]| ObjectType::new(Class(*class), *c_type))
    }

    /// Whether an object of this type is selected.
    #[must_use]
    pub fn selects(&self, kind: ObjectType) -> bool {
        self.kinds().any(|one| one.class == kind.class && (one.c_type == 0 || one.c_type == kind.c_type))
    }
}

/// ROUTE (RFC 2745 §3.5): the nodes that a DREQ passed, the LAST-HOP first, each by the address of its interface
/// towards the sender. DREPs return along them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'a> {
    /// The R-pointer: in a DREQ the number of nodes, in a DREP the index of the node that it is sent to.
    pub pointer: u8,
    ipv6: bool,
    octets: &'a [u8],
}

impl<'a> Route<'a> {
    /// Parses a ROUTE (RFC 2745 §3.5).
    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let short = object.error(Fault::ObjectLength);
        let (&[_, _, _, pointer], octets) = object.content().split_first_chunk().ok_or(short)?;
        let ipv6 = object.kind.c_type == 2;
        if !octets.len().is_multiple_of(if ipv6 { 16 } else { 4 }) {
            return Err(short);
        }
        Ok(Self { pointer, ipv6, octets })
    }

    /// Number of nodes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.octets.len() / if self.ipv6 { 16 } else { 4 }
    }

    /// Whether it lists no node.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// The nodes.
    pub fn nodes(&self) -> impl Iterator<Item = IpAddr> + use<'a> {
        addresses(self.ipv6, self.octets)
    }
}

/// DIAG_RESPONSE (RFC 2745 §3.6): the response of one node. Unknown addresses are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiagResponse<'a> {
    /// Arrival time of the DREQ: the middle 32 bits of an NTP timestamp, see [`ntp_middle`].
    pub arrival: u32,
    /// Address of the incoming interface of the sender's messages.
    pub incoming: IpAddr,
    /// Address of the outgoing interface, by which the DREQ came.
    pub outgoing: IpAddr,
    /// The previous RSVP hop towards the sender.
    pub previous: IpAddr,
    /// D-TTL: IP hops from the previous RSVP node on the DREQ's path.
    pub d_ttl: u8,
    /// The flag M: the reservation is merged with those of other interfaces.
    pub merged: bool,
    /// The R-error flags.
    pub errors: DiagErrors,
    /// *K*: the refresh timer multiple, 4 bits.
    pub cleanup: u8,
    /// *R*: the refresh period, seconds.
    pub refresh: u16,
    /// The whole response objects; a TUNNEL object comes before them.
    pub objects: &'a [u8],
}

impl<'a> DiagResponse<'a> {
    /// Octets of the object before the response objects.
    pub const fn octets(ipv6: bool) -> usize {
        12 + 3 * if ipv6 { 16 } else { 4 }
    }

    /// Parses a DIAG_RESPONSE (RFC 2745 §3.6).
    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let short = object.error(Fault::ObjectLength);
        let (arrival, rest) = object.content().split_first_chunk().ok_or(short)?;
        let (incoming, rest) = address(object.kind, rest).ok_or(short)?;
        let (outgoing, rest) = address(object.kind, rest).ok_or(short)?;
        let (previous, rest) = address(object.kind, rest).ok_or(short)?;
        let (&[d_ttl, flags, t1, t0], objects) = rest.split_first_chunk().ok_or(short)?;
        for one in Objects::at(objects, object.offset + object.octets.len() - objects.len()) {
            one?;
        }
        Ok(Self {
            arrival: u32::from_be_bytes(*arrival),
            incoming,
            outgoing,
            previous,
            d_ttl,
            merged: flags & 0x80 != 0,
            errors: DiagErrors(flags >> 4 & 0x07),
            cleanup: flags & 0x0f,
            refresh: u16::from_be_bytes([t1, t0]),
            objects,
        })
    }

    /// Iterator over the response objects.
    pub fn objects(&self) -> impl Iterator<Item = RawObject<'a>> + use<'a> {
        Objects::at(self.objects, 0).map_while(Result::ok)
    }
}

/// The middle 32 bits of an NTP timestamp, from microseconds since 1970: seconds modulo 65,536 and 16 bits of their
/// fraction (RFC 2745 §3.6).
#[must_use]
pub const fn ntp_middle(unix_us: u64) -> u32 {
    /// Seconds from 1900 to 1970.
    const SECONDS: u64 = 2_208_988_800;
    let (seconds, us) = (unix_us / 1_000_000, unix_us % 1_000_000);
    let middle = (((seconds + SECONDS) & 0xffff) << 16) | ((us << 16) / 1_000_000);
    #[expect(clippy::cast_possible_truncation, reason = "two halves of 16 bits")]
    let middle = middle as u32;
    middle
}

/// Splits off the first address, of the IP version of the C-Type.
fn address(kind: ObjectType, octets: &[u8]) -> Option<(IpAddr, &[u8])> {
    if kind.c_type == 1 {
        let (address, rest) = octets.split_first_chunk::<4>()?;
        Some((Ipv4Addr::from(*address).into(), rest))
    } else {
        let (address, rest) = octets.split_first_chunk::<16>()?;
        Some((Ipv6Addr::from(*address).into(), rest))
    }
}

impl<'a> Message<'a> {
    /// The DIAGNOSTIC of a DREQ or DREP (RFC 2745 §3.3).
    #[must_use]
    pub fn diagnostic(&self) -> Option<Diagnostic> {
        self.of_class(Class::DIAGNOSTIC).next().and_then(|object| Diagnostic::parse(&object).ok())
    }

    /// The DIAG_SELECT of a DREQ or DREP, if there is one (RFC 2745 §3.4).
    #[must_use]
    pub fn select(&self) -> Option<DiagSelect<'a>> {
        self.of_class(Class::DIAG_SELECT).next().map(|object| DiagSelect::of(&object))
    }

    /// The ROUTE of a DREQ or DREP, if there is one (RFC 2745 §3.5).
    #[must_use]
    pub fn route(&self) -> Option<Route<'a>> {
        self.of_class(Class::ROUTE).next().and_then(|object| Route::parse(&object).ok())
    }

    /// The DIAG_RESPONSEs of a DREQ or DREP (RFC 2745 §3.6).
    pub fn responses(&self) -> impl Iterator<Item = DiagResponse<'a>> + use<'a> {
        self.of_class(Class::DIAG_RESPONSE).filter_map(|object| DiagResponse::parse(&object).ok())
    }

    /// Checks the rules for DREQ and DREP beyond the grammar: the order of objects (RFC 2745 §3) and one IP version.
    pub(super) fn judge_diagnostic(&self) -> Result<(), DecodeError> {
        let mut last = 0;
        let ipv6 = self.session.is_some_and(|session| session.dest.is_ipv6());
        for object in self.objects() {
            let rank = match object.kind.class {
                Class::SESSION => 1,
                Class::RSVP_HOP => 2,
                Class::DIAGNOSTIC => 3,
                Class::DIAG_SELECT => 4,
                Class::ROUTE => 5,
                Class::DIAG_RESPONSE => 6,
                _ => continue,
            };
            if rank < last {
                return Err(object.error(Fault::Order));
            }
            last = rank;
            let versioned =
                matches!(object.kind.class, Class::DIAGNOSTIC | Class::ROUTE | Class::DIAG_RESPONSE);
            if versioned && (object.kind.c_type == 2) != ipv6 {
                return Err(object.error(Fault::MixedTypes));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_timestamp() {
        assert_eq!(ntp_middle(0), 0x7e80_0000, "2,208,988,800 is 0x83aa7e80");
        assert_eq!(ntp_middle(500_000), 0x7e80_8000);
        assert_eq!(ntp_middle(1_999_999), 0x7e81_ffff);
        assert_eq!(ntp_middle(0x1_0000 * 1_000_000), 0x7e80_0000, "after 18 hours it comes round");
    }
}
