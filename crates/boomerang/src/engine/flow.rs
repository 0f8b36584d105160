//! A reservation of this node as a node on the path, and the key by which messages find it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::index::KeyedHasher;
use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::wheel::{Link, Timed};
use signalbox_resources::GrantId;

use super::domain::Stamp;
use super::interfaces::Iface;
use crate::wire::{Classifier, FlowSpec, Pass};

const REVERSE: u8 = 1;
const ANY_SRC_PORT: u8 = 2;
const ANY_DST_PORT: u8 = 4;
const ANY_PROTOCOL: u8 = 8;
const IPV6: u8 = 16;

/// Direction, 5-tuple and mask of a reservation. Neither tos nor flags nor the source of the message belong to it.
///
/// It is packed: an octet each for the lengths of the prefixes, the protocol and the bits above, two ports, two addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FlowKey([u8; 40]);

/// A mask that no packet filter of the kernel can express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoFilter;

/// The length of the prefix that a mask leaves, and the address without the bits that the mask ignores.
/// BOOM-3.2.2-05, BOOM-G5-01.
fn prefix(address: IpAddr, mask: IpAddr) -> Result<([u8; 16], u8), NoFilter> {
    let (bits, ignored, width) = match (address, mask) {
        (IpAddr::V4(address), IpAddr::V4(mask)) => {
            (u128::from(address.to_bits()), u128::from(mask.to_bits()), 32)
        }
        (IpAddr::V6(address), IpAddr::V6(mask)) => (address.to_bits(), mask.to_bits(), 128),
        _ => return Err(NoFilter),
    };
    if ignored & ignored.wrapping_add(1) != 0 {
        return Err(NoFilter);
    }
    let length = width - (128 - ignored.leading_zeros());
    Ok(((bits & !ignored).to_be_bytes(), u8::try_from(length).unwrap_or(u8::MAX)))
}

impl FlowKey {
    /// The key of a flow in the direction of a pass. BOOM-3.2.2-04, BOOM-F4.1.2-01, BOOM-G35-01, BOOM-G7-04.
    pub(super) fn of(flow: &FlowSpec, pass: Pass) -> Result<Self, NoFilter> {
        let FlowSpec { classifier: of, mask } = flow;
        let (src, src_length) = prefix(of.src, mask.src)?;
        let (dst, dst_length) = prefix(of.dst, mask.dst)?;
        let mut bits = if pass == Pass::Reply { REVERSE } else { 0 };
        if of.src.is_ipv6() {
            bits |= IPV6;
        }
        let mut port = |port: u16, mask: u16, bit: u8| match mask {
            0 => Ok(port),
            u16::MAX => {
                bits |= bit;
                Ok(0)
            }
            _ => Err(NoFilter),
        };
        let src_port = port(of.src_port, mask.src_port, ANY_SRC_PORT)?;
        let dst_port = port(of.dst_port, mask.dst_port, ANY_DST_PORT)?;
        let protocol = match mask.protocol {
            0 => of.protocol,
            // A port without a protocol is no filter.
            u8::MAX if bits & (ANY_SRC_PORT | ANY_DST_PORT) == ANY_SRC_PORT | ANY_DST_PORT => {
                bits |= ANY_PROTOCOL;
                0
            }
            _ => return Err(NoFilter),
        };
        match mask.tos & 0xfc {
            0 | 0xfc => {}
            _ => return Err(NoFilter),
        }
        let ([s1, s0], [d1, d0]) = (src_port.to_be_bytes(), dst_port.to_be_bytes());
        let mut octets = [0; 40];
        if let Some((head, addresses)) = octets.split_first_chunk_mut::<8>() {
            *head = [src_length, dst_length, protocol, bits, s1, s0, d1, d0];
            let (first, second) = addresses.split_at_mut(16);
            first.copy_from_slice(&src);
            second.copy_from_slice(&dst);
        }
        Ok(Self(octets))
    }

    /// The octets, for the number of a class.
    pub(super) const fn octets(&self) -> &[u8; 40] {
        &self.0
    }

    /// Whether the data go to a multicast group.
    pub(super) const fn is_of_group(&self) -> bool {
        // The first octet of the destination.
        let Self([_, _, _, bits, .., v6, _, _, _, _, _, _, _, _, _, _, _, v4, _, _, _]) = self;
        if *bits & IPV6 == 0 { *v4 & 0xf0 == 0xe0 } else { *v6 == 0xff }
    }

    /// The hash by which a reservation at an interface is found. Only reservations for a group have one at each interface.
    pub(super) fn hash(&self, oif: Iface, hasher: &KeyedHasher) -> u64 {
        if !self.is_of_group() {
            return hasher.hash_octets(&self.0);
        }
        let mut octets = [0; 42];
        let parts: [&[u8]; 2] = [&self.0, &oif.number().to_be_bytes()];
        octets.iter_mut().zip(parts.into_iter().flatten()).for_each(|(to, from)| *to = *from);
        hasher.hash_octets(&octets)
    }

    /// Direction of the data.
    pub(super) const fn pass(&self) -> Pass {
        let [_, _, _, bits, ..] = self.0;
        if bits & REVERSE == 0 { Pass::Request } else { Pass::Reply }
    }

    /// The source address of the classifier: the side of the initiating node.
    pub(super) fn initiator(&self) -> IpAddr {
        self.prefixes().0.addr
    }

    fn prefixes(&self) -> (Prefix, Prefix) {
        let [src_length, dst_length, _, bits, _, _, _, _, addresses @ ..] = &self.0;
        let address = |octets: &[u8]| {
            let bits_of = octets.first_chunk::<16>().map_or(0, |octets| u128::from_be_bytes(*octets));
            if bits & IPV6 != 0 {
                IpAddr::V6(Ipv6Addr::from_bits(bits_of))
            } else {
                IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits_of).unwrap_or(0)))
            }
        };
        let (src, dst) = addresses.split_at(16);
        (Prefix { addr: address(src), len: *src_length }, Prefix { addr: address(dst), len: *dst_length })
    }

    /// The octets of the head, and the two addresses as numbers.
    fn parts(&self) -> ([u8; 8], u128, u128) {
        let [a, b, c, d, e, f, g, h, addresses @ ..] = self.0;
        let number = |octets: Option<&[u8; 16]>| octets.map_or(0, |octets| u128::from_be_bytes(*octets));
        let (src, dst) = (addresses.first_chunk(), addresses.last_chunk());
        ([a, b, c, d, e, f, g, h], number(src), number(dst))
    }

    fn of_parts(head: [u8; 8], src: u128, dst: u128) -> Self {
        let mut octets = [0; 40];
        let parts: [&[u8]; 3] = [&head, &src.to_be_bytes(), &dst.to_be_bytes()];
        octets.iter_mut().zip(parts.into_iter().flatten()).for_each(|(to, from)| *to = *from);
        Self(octets)
    }

    /// Bits of an address.
    const fn width(bits: u8) -> u8 {
        if bits & IPV6 == 0 { 32 } else { 128 }
    }

    /// The flows of its direction and protocol between the subnets of its addresses, at all ports. The prefixes of the subnets
    /// have these lengths with IPv4 and IPv6. `None`: it is for more than one subnet.
    pub(super) fn between_subnets(&self, ipv4: u8, ipv6: u8) -> Option<Self> {
        let ([src_length, dst_length, protocol, bits, ..], src, dst) = self.parts();
        let length = if bits & IPV6 == 0 { ipv4 } else { ipv6 };
        if src_length < length || dst_length < length {
            return None;
        }
        let drop = u32::from(Self::width(bits).saturating_sub(length));
        let cut =
            |address: u128| address.checked_shr(drop).and_then(|bits| bits.checked_shl(drop)).unwrap_or(0);
        let head = [length, length, protocol, bits | ANY_SRC_PORT | ANY_DST_PORT, 0, 0, 0, 0];
        Some(Self::of_parts(head, cut(src), cut(dst)))
    }

    /// Whether all packets of another flow belong to it, in the same direction.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let ([src_length, dst_length, protocol, bits, s1, s0, d1, d0], src, dst) = self.parts();
        let ([its_src, its_dst, its_protocol, its_bits, o1, o0, p1, p0], other_src, other_dst) =
            other.parts();
        let within = |length: u8, its_length: u8, prefix: u128, address: u128| {
            let drop = u32::from(Self::width(bits).saturating_sub(length));
            length <= its_length && (prefix ^ address).checked_shr(drop).unwrap_or(0) == 0
        };
        let agrees = |any: u8, here: u16, there: u16| bits & any != 0 || its_bits & any == 0 && here == there;
        let port = u16::from_be_bytes;
        (bits ^ its_bits) & (REVERSE | IPV6) == 0
            && within(src_length, its_src, src, other_src)
            && within(dst_length, its_dst, dst, other_dst)
            && agrees(ANY_SRC_PORT, port([s1, s0]), port([o1, o0]))
            && agrees(ANY_DST_PORT, port([d1, d0]), port([p1, p0]))
            && agrees(ANY_PROTOCOL, protocol.into(), its_protocol.into())
    }

    /// The key of the same flow in the direction of a pass.
    pub(super) const fn of_pass(&self, pass: Pass) -> Self {
        let mut octets = self.0;
        let [_, _, _, bits, ..] = &mut octets;
        *bits = (*bits & !REVERSE) | if matches!(pass, Pass::Reply) { REVERSE } else { 0 };
        Self(octets)
    }

    /// The key of the same packets in a reservation that the other end initiates.
    pub(super) fn of_other_end(&self) -> Self {
        let ([src_length, dst_length, protocol, bits, s1, s0, d1, d0], src, dst) = self.parts();
        let ports = bits & (ANY_SRC_PORT | ANY_DST_PORT);
        let exchanged = match ports {
            ANY_SRC_PORT => ANY_DST_PORT,
            ANY_DST_PORT => ANY_SRC_PORT,
            both => both,
        };
        let bits = (bits ^ ports ^ REVERSE) | exchanged;
        Self::of_parts([dst_length, src_length, protocol, bits, d1, d0, s1, s0], dst, src)
    }

    /// The flow specification of its packets, which have this tos octet.
    pub(super) fn spec(&self, tos: u8) -> FlowSpec {
        let [src_length, dst_length, protocol, bits, s1, s0, d1, d0, ..] = self.0;
        let (src, dst) = self.prefixes();
        let mask = |length: u8| {
            let ignored = |width: u8| u32::from(width.saturating_sub(length));
            match src.addr {
                IpAddr::V4(_) => {
                    IpAddr::V4(Ipv4Addr::from_bits(!u32::MAX.checked_shl(ignored(32)).unwrap_or(0)))
                }
                IpAddr::V6(_) => {
                    IpAddr::V6(Ipv6Addr::from_bits(!u128::MAX.checked_shl(ignored(128)).unwrap_or(0)))
                }
            }
        };
        let any = |bit: u8| if bits & bit == 0 { 0 } else { u16::MAX };
        let classifier = Classifier {
            src: src.addr,
            dst: dst.addr,
            src_port: u16::from_be_bytes([s1, s0]),
            dst_port: u16::from_be_bytes([d1, d0]),
            protocol,
            tos,
            flags: 0,
        };
        let mask = Classifier {
            src: mask(src_length),
            dst: mask(dst_length),
            src_port: any(ANY_SRC_PORT),
            dst_port: any(ANY_DST_PORT),
            protocol: if bits & ANY_PROTOCOL == 0 { 0 } else { u8::MAX },
            // The last two bits are not the code point's.
            tos: 0,
            flags: u16::MAX,
        };
        FlowSpec { classifier, mask }
    }

    /// The filter of the data packets: those that carry `dscp`, if it is given. BOOM-G8-02.
    pub(super) fn filter(&self, dscp: Option<u8>) -> FlowFilter {
        let [_, _, protocol, bits, s1, s0, d1, d0, ..] = self.0;
        let (src, dst) = self.prefixes();
        let port = |bit: u8, octets: [u8; 2]| (bits & bit == 0).then(|| u16::from_be_bytes(octets));
        let (src_port, dst_port) = (port(ANY_SRC_PORT, [s1, s0]), port(ANY_DST_PORT, [d1, d0]));
        let protocol = (bits & ANY_PROTOCOL == 0).then_some(protocol);
        let there = FlowFilter { protocol, src_port, dst_port, dscp, ..FlowFilter::between(src, dst) };
        match self.pass() {
            Pass::Request => there,
            Pass::Reply => FlowFilter { src: dst, dst: src, src_port: dst_port, dst_port: src_port, ..there },
        }
    }
}

/// The code point that data packets must carry, if the mask does not ignore it. BOOM-G7-02.
pub(super) const fn demanded_dscp(classifier: &Classifier, mask: &Classifier) -> Option<u8> {
    if mask.tos & 0xfc == 0 { Some(classifier.tos >> 2) } else { None }
}

/// Data packets must carry the code point of the reservation.
pub(super) const IS_MARKED: u8 = 1;
/// The reservation has IntServ parameters, which its grant has.
pub(super) const IS_INTSERV: u8 = 2;
/// The reservation is counted in the aggregate of its class.
pub(super) const IS_MEMBER: u8 = 4;
/// The reservation was lost: it has no grant, and its initiating node does not know it yet.
pub(super) const IS_LOST: u8 = 8;

/// A reservation at one interface. With index, generation and timer it takes 96 octets at most.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) key: FlowKey,
    pub(super) link: Link,
    pub(super) grant: GrantId,
    /// Rate, bit/s; with [`IS_INTSERV`] the tag of the parameters, with [`IS_LOST`] the number of the reason.
    pub(super) rate: u32,
    /// What further messages must have.
    pub(super) proof: u32,
    /// Interface that the data leave by.
    pub(super) oif: Iface,
    /// Interface that the first message came in by.
    pub(super) iif: Iface,
    /// PHB of the data.
    pub(super) tos: u8,
    /// Refresh interval that this node left in the last message, seconds.
    pub(super) refresh: u8,
    /// [`IS_MARKED`], [`IS_INTSERV`], [`IS_MEMBER`], [`IS_LOST`].
    pub(super) marks: u8,
    /// `proof` is the stamp of the last message of the reservation, which must be authenticated and newer each time.
    /// Otherwise it is the first half of the number that its messages show, or 0 if any message is accepted.
    pub(super) signed: bool,
}

impl Timed for Flow {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Flow {
    /// The stamp of its last message, if its messages are authenticated.
    pub(super) const fn stamp(&self) -> Option<Stamp> {
        if self.signed { Some(Stamp(self.proof)) } else { None }
    }

    /// Whether it has a mark.
    pub(super) const fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    pub(super) fn filter(&self) -> FlowFilter {
        self.key.filter(self.has(IS_MARKED).then_some(self.tos >> 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(src: &str, dst: &str, masks: [&str; 2]) -> FlowSpec {
        let classifier = Classifier {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            src_port: 1000,
            dst_port: 2000,
            protocol: 17,
            tos: 0xb8,
            flags: 0,
        };
        let mut flow = FlowSpec::exact(classifier);
        flow.mask.src = masks[0].parse().unwrap();
        flow.mask.dst = masks[1].parse().unwrap();
        flow
    }

    /// BOOM-P-10, BOOM-P-09: the record of a reservation, its generation and the most that its index takes.
    #[test]
    fn a_reservation_takes_96_octets() {
        assert_eq!(size_of::<Option<Flow>>(), 80);
        assert!(size_of::<Option<Flow>>() + 4 + 12 <= 96);
    }

    /// BOOM-G5-01, BOOM-3.2.2-05, BOOM-3.2.2-04: set bits of the mask are ignored.
    #[test]
    fn a_mask_makes_a_prefix() {
        let exact = flow("192.0.2.7", "198.51.100.2", ["0.0.0.0", "0.0.0.0"]);
        let filter = FlowKey::of(&exact, Pass::Request).unwrap().filter(None);
        assert_eq!(filter.to_string(), "192.0.2.7 port 1000 > 198.51.100.2 port 2000 proto 17");
        let net = flow("192.0.2.7", "198.51.100.2", ["0.0.0.255", "0.0.255.255"]);
        let filter = FlowKey::of(&net, Pass::Request).unwrap().filter(Some(46));
        assert_eq!(filter.to_string(), "192.0.2.0/24 port 1000 > 198.51.0.0/16 port 2000 proto 17 dscp 46");
        let mut any = net;
        (any.mask.src_port, any.mask.dst_port, any.mask.protocol) = (u16::MAX, u16::MAX, u8::MAX);
        let filter = FlowKey::of(&any, Pass::Request).unwrap().filter(None);
        assert_eq!(filter.to_string(), "192.0.2.0/24 > 198.51.0.0/16");
        let v6 = flow("2001:db8::1", "2001:db8:1::2", ["::ffff", "::"]);
        let filter = FlowKey::of(&v6, Pass::Request).unwrap().filter(None);
        assert_eq!(filter.to_string(), "2001:db8::/112 port 1000 > 2001:db8:1::2 port 2000 proto 17");
    }

    /// BOOM-G8-02: the reverse direction exchanges addresses and ports.
    #[test]
    fn the_reply_pass_is_about_the_data_of_the_far_end() {
        let key =
            FlowKey::of(&flow("192.0.2.7", "198.51.100.2", ["0.0.0.0", "0.0.0.255"]), Pass::Reply).unwrap();
        assert_eq!(key.filter(None).to_string(), "198.51.100.0/24 port 2000 > 192.0.2.7 port 1000 proto 17");
        assert_eq!(key.initiator().to_string(), "192.0.2.7");
    }

    #[test]
    fn masks_that_no_filter_expresses_are_refused() {
        let holes = flow("192.0.2.7", "198.51.100.2", ["0.0.1.0", "0.0.0.0"]);
        assert_eq!(FlowKey::of(&holes, Pass::Request), Err(NoFilter));
        let exact = flow("192.0.2.7", "198.51.100.2", ["0.0.0.0", "0.0.0.0"]);
        for change in [
            |mask: &mut Classifier| mask.src_port = 1,
            |mask: &mut Classifier| mask.protocol = 1,
            |mask: &mut Classifier| mask.protocol = 0xff,
            |mask: &mut Classifier| mask.tos = 0x10,
        ] {
            let mut flow = exact;
            change(&mut flow.mask);
            assert_eq!(FlowKey::of(&flow, Pass::Request), Err(NoFilter), "{:?}", flow.mask);
        }
    }

    /// BOOM-3.3.2-04: only what the flows of a class have in common is filled in.
    #[test]
    fn a_class_is_two_subnets_and_a_protocol() {
        let key = |src, dst| FlowKey::of(&flow(src, dst, ["0.0.0.0", "0.0.0.0"]), Pass::Reply).unwrap();
        let one = key("192.0.2.7", "198.51.100.2");
        let class = one.between_subnets(24, 64).unwrap();
        let spec = class.spec(0xb8);
        let Classifier { src, dst, src_port, dst_port, protocol, tos, flags } = spec.classifier;
        assert_eq!((src.to_string(), dst.to_string()), ("192.0.2.0".into(), "198.51.100.0".into()));
        assert_eq!((src_port, dst_port, protocol, tos, flags), (0, 0, 17, 0xb8, 0));
        let Classifier { src, dst, src_port, dst_port, protocol, tos, flags } = spec.mask;
        assert_eq!((src.to_string(), dst.to_string()), ("0.0.0.255".into(), "0.0.0.255".into()));
        assert_eq!((src_port, dst_port, protocol, tos, flags), (u16::MAX, u16::MAX, 0, 0, u16::MAX));
        assert_eq!(FlowKey::of(&spec, Pass::Reply), Ok(class));
        assert_eq!(key("192.0.2.200", "198.51.100.9").between_subnets(24, 64), Some(class));
        assert!(class.covers(&one) && class.covers(&class) && !one.covers(&class));
        assert!(!class.covers(&key("192.0.3.7", "198.51.100.2")) && !class.covers(&one.of_other_end()));
        let all = one.between_subnets(0, 0).unwrap();
        assert!(all.covers(&one) && all.covers(&class) && !class.covers(&all));
        assert_eq!(class.between_subnets(25, 64), None, "it is for two subnets of that length");
        let v6 = flow("2001:db8::1", "2001:db8:1::2", ["::", "::"]);
        let v6 = FlowKey::of(&v6, Pass::Request).unwrap();
        let class = v6.between_subnets(24, 48).unwrap();
        assert_eq!(class.filter(None).to_string(), "2001:db8::/48 > 2001:db8:1::/48 proto 17");
        assert_eq!(FlowKey::of(&class.spec(0), Pass::Request), Ok(class));
        assert!(class.covers(&v6) && v6.between_subnets(0, 0).unwrap().covers(&v6) && !all.covers(&v6));
    }

    #[test]
    fn both_ends_name_the_same_packets() {
        let mut one = flow("192.0.2.7", "198.51.100.2", ["0.0.0.0", "0.0.0.255"]);
        one.mask.src_port = u16::MAX;
        let key = FlowKey::of(&one, Pass::Request).unwrap();
        let other = FlowKey::of(&one.inverted(), Pass::Reply).unwrap();
        assert_eq!((key.of_other_end(), other.of_other_end()), (other, key));
        assert_eq!(key.filter(None), other.filter(None));
    }

    /// BOOM-G35-01: what distinguishes two reservations.
    #[test]
    fn tos_and_flags_do_not_belong_to_the_key() {
        let one = flow("192.0.2.7", "198.51.100.2", ["0.0.0.0", "0.0.0.0"]);
        let key = FlowKey::of(&one, Pass::Request);
        let mut other = one;
        (other.classifier.tos, other.classifier.flags, other.mask.tos) = (0, 7, 0);
        assert_eq!(FlowKey::of(&other, Pass::Request), key);
        assert_ne!(FlowKey::of(&one, Pass::Reply), key);
        let mut other = one;
        other.classifier.src_port += 1;
        assert_ne!(FlowKey::of(&other, Pass::Request), key);
    }
}
