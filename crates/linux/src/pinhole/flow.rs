//! The packets of pinholes, as keys and ranges of keys of the kernel's sets.

use std::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Endpoint, Pinhole, PinholeError, PinholeFlow, Verdict};
use signalbox_core::traffic::FlowFilter;

use crate::netlink::nftables::flow::Part;
use crate::netlink::nftables::set::ends;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// The protocols with ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// The types of ICMP and ICMPv6 messages that begin an exchange. Replies and errors belong to the flow of another message,
/// which connection tracking finds.
const BEGINNINGS: [&[u8]; 2] = [&[8, 13, 15, 17], &[128, 139]];

/// The form of a key in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Shape {
    /// Both addresses, the protocol and both ports.
    Flow,
    /// The same for all source ports.
    AnyPort,
    /// The same for all sources.
    AnySender,
    /// Source address, protocol and source port: flows that a host inside begins. No pinhole has this shape; a mirrored one has an
    /// element of it beside its own.
    Beginner,
    /// Anything else.
    Ranges,
}

impl Shape {
    /// The parts of the key.
    pub(super) const fn parts(self) -> &'static [Part] {
        use Part::{Destination, DestinationPort, Protocol, Source, SourcePort};
        match self {
            Self::Flow | Self::Ranges => &[Source, Destination, Protocol, SourcePort, DestinationPort],
            Self::AnyPort => &[Source, Destination, Protocol, DestinationPort],
            Self::AnySender => &[Destination, Protocol, DestinationPort],
            Self::Beginner => &[Source, Protocol, SourcePort],
        }
    }
}

/// The packets of a pinhole, or one part of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Flow {
    src: Prefix,
    dst: Prefix,
    protocol: Option<u8>,
    src_port: Option<u16>,
    /// The first and the last destination port; with ICMP, type and code.
    dst_port: Option<(u16, u16)>,
}

/// What is done with packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) verdict: Verdict,
    pub(super) source: Option<Endpoint>,
    pub(super) destination: Option<Endpoint>,
    /// Flows that the destination begins are translated, too.
    pub(super) mirrored: bool,
}

impl Action {
    /// Whether an address or a port changes.
    pub(super) const fn translates(&self) -> bool {
        self.source.is_some() || self.destination.is_some()
    }

    /// Whether a flow with this answer is translated so.
    pub(super) fn agrees(&self, answer: &Tuple) -> bool {
        let is = |end: Option<Endpoint>, address, port| {
            end.is_none_or(|end| end.address == address && end.port.is_none_or(|given| given == port))
        };
        is(self.destination, answer.src, answer.src_port) && is(self.source, answer.dst, answer.dst_port)
    }
}

/// The first packet of a flow, as connection tracking has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tuple {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) protocol: u8,
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
}

impl Tuple {
    /// The packet that a filter describes exactly, if it does.
    pub(super) fn of(packets: &FlowFilter) -> Option<Self> {
        let host = |prefix: Prefix| (prefix == Prefix::host(prefix.addr)).then_some(prefix.addr);
        let exact = packets.dscp.is_none() && packets.flow_label.is_none() && packets.spi.is_none();
        Some(Self {
            src: host(packets.src)?,
            dst: host(packets.dst).filter(|dst| exact && dst.is_ipv4() == packets.src.addr.is_ipv4())?,
            protocol: packets.protocol.filter(|protocol| WITH_PORTS.contains(protocol))?,
            src_port: packets.src_port?,
            dst_port: packets.dst_port?,
        })
    }
}

impl Flow {
    /// The parts of a pinhole, each with what is done with it.
    pub(super) fn of(pinhole: &Pinhole) -> Result<Vec<(Self, Action)>, PinholeError> {
        let packets = &pinhole.packets;
        let ports = packets.src_port.is_some() || packets.dst_port.is_some();
        let has_ports = packets.protocol.is_some_and(|protocol| WITH_PORTS.contains(&protocol));
        let icmp = packets.protocol == Some(if packets.is_ipv4() { ICMP } else { ICMPV6 });
        let translated = [pinhole.source, pinhole.destination].into_iter().flatten();
        if packets.src.addr.is_ipv4() != packets.dst.addr.is_ipv4()
            || translated.clone().any(|end| end.address.is_ipv4() != packets.is_ipv4())
            || (ports || translated.clone().any(|end| end.port.is_some())) && !has_ports
            || packets.dscp.is_some()
            || packets.flow_label.is_some()
            || packets.spi.is_some()
            || !pinhole.icmp_types.is_empty() && (!icmp || !pinhole.senders.is_empty())
            || pinhole.senders.iter().any(|sender| sender.from.addr.is_ipv4() != packets.is_ipv4())
            || pinhole.senders.iter().any(|sender| sender.port.is_some()) && !has_ports
        {
            return Err(PinholeError::Unsupported);
        }
        let of_sender = 1 + usize::from(pinhole.second_port);
        // The flows of all senders are mirrored by one element, that of the first sender.
        let mut flows: Vec<(Self, Action)> = (0..)
            .zip(pinhole.flows())
            .map(|(at, flow)| part(&flow, pinhole.verdict, pinhole.mirrored && at < of_sender))
            .collect();
        match flows.as_slice() {
            [(flow, action), ..] if !pinhole.icmp_types.is_empty() => {
                flows = with_types(*flow, pinhole, *action);
                if flows.is_empty() { Err(PinholeError::Unsupported) } else { Ok(flows) }
            }
            // There is no next port.
            _ if flows.len() != of_sender * (1 + pinhole.senders.len()) => Err(PinholeError::Unsupported),
            _ => Ok(flows),
        }
    }

    /// The flows of all pinholes to which this packet could belong, except those of ranges.
    pub(super) fn candidates(tuple: &Tuple) -> [Self; 3] {
        let Tuple { src, dst, protocol, src_port, dst_port } = *tuple;
        let flow = Self {
            src: Prefix::host(src),
            dst: Prefix::host(dst),
            protocol: Some(protocol),
            src_port: Some(src_port),
            dst_port: Some((dst_port, dst_port)),
        };
        let any_port = Self { src_port: None, ..flow };
        [flow, any_port, Self { src: Prefix::all_like(src), ..any_port }]
    }

    /// Whether the packet belongs to the flow.
    pub(super) fn contains(&self, tuple: &Tuple) -> bool {
        self.src.contains(tuple.src)
            && self.dst.contains(tuple.dst)
            && self.protocol.is_none_or(|protocol| protocol == tuple.protocol)
            && self.src_port.is_none_or(|port| port == tuple.src_port)
            && self.dst_port.is_none_or(|(first, last)| (first..=last).contains(&tuple.dst_port))
    }

    /// The one packet that begins the flow, if both ends of it are known.
    pub(super) fn tuple(&self) -> Option<Tuple> {
        match *self {
            Self {
                src,
                dst,
                protocol: Some(protocol),
                src_port: Some(src_port),
                dst_port: Some((port, _)),
            } if self.shape() == Shape::Flow => {
                Some(Tuple { src: src.addr, dst: dst.addr, protocol, src_port, dst_port: port })
            }
            _ => None,
        }
    }

    /// Whether the flow is one of an ICMP type, which [`Self::keys`] has in the place of the destination port.
    pub(super) const fn has_icmp_type(&self) -> bool {
        matches!(self.protocol, Some(ICMP | ICMPV6)) && self.dst_port.is_some()
    }

    /// Whether the addresses are IPv6's.
    pub(super) const fn is_ipv6(&self) -> bool {
        self.src.addr.is_ipv6()
    }

    /// The form of the key.
    pub(super) fn shape(&self) -> Shape {
        let host = |prefix: Prefix| prefix == Prefix::host(prefix.addr);
        match self {
            Self { dst_port: Some((first, last)), protocol: Some(_), dst, .. }
                if first == last && host(*dst) =>
            {
                match (host(self.src), self.src.len, self.src_port) {
                    (true, _, Some(_)) => Shape::Flow,
                    (true, _, None) => Shape::AnyPort,
                    (false, 0, None) => Shape::AnySender,
                    (false, ..) => Shape::Ranges,
                }
            }
            _ => Shape::Ranges,
        }
    }

    /// The first and the last key, in this form.
    pub(super) fn keys(&self, shape: Shape) -> [Vec<u8>; 2] {
        let mut keys = [Vec::new(), Vec::new()];
        for part in shape.parts() {
            let [first, last] = match part {
                Part::Source => ends(self.src),
                Part::Destination => ends(self.dst),
                Part::Protocol => {
                    [self.protocol.unwrap_or(0), self.protocol.unwrap_or(u8::MAX)].map(|octet| vec![octet])
                }
                Part::SourcePort => {
                    let (first, last) = self.src_port.map_or((0, u16::MAX), |port| (port, port));
                    [first, last].map(|port| port.to_be_bytes().to_vec())
                }
                Part::DestinationPort => {
                    let (first, last) = self.dst_port.unwrap_or((0, u16::MAX));
                    [first, last].map(|port| port.to_be_bytes().to_vec())
                }
            };
            for (key, part) in keys.iter_mut().zip([first, last]) {
                key.extend(part);
                key.resize(key.len().next_multiple_of(4), 0); // each part begins at a register
            }
        }
        keys
    }

    /// The flow of a key and of the end of its range; `None`: no pinhole has such a key.
    pub(super) fn from_keys(shape: Shape, ipv6: bool, first: &[u8], last: &[u8]) -> Option<Self> {
        let like: IpAddr = if ipv6 { [0; 16].into() } else { [0; 4].into() };
        let mut flow = Self {
            src: Prefix::all_like(like),
            dst: Prefix::all_like(like),
            protocol: None,
            src_port: None,
            dst_port: None,
        };
        let mut at = 0;
        for part in shape.parts() {
            let octets = 4 * part.registers(ipv6) as usize;
            let (first, last) = (first.get(at..at + octets)?, last.get(at..at + octets)?);
            let port = |octets: &[u8]| octets.first_chunk().map(|port| u16::from_be_bytes(*port));
            match part {
                Part::Source => flow.src = prefix(first, last)?,
                Part::Destination => flow.dst = prefix(first, last)?,
                Part::Protocol => flow.protocol = (first == last).then_some(*first.first()?),
                Part::SourcePort => flow.src_port = (first == last).then_some(port(first)?),
                Part::DestinationPort => {
                    flow.dst_port = Some((port(first)?, port(last)?)).filter(|range| *range != (0, u16::MAX));
                }
            }
            at += octets;
        }
        Some(flow)
    }

    /// The sender, if its address, its protocol and its port are given.
    pub(super) fn sender(&self) -> Option<(IpAddr, u8, u16)> {
        let one = self.src == Prefix::host(self.src.addr);
        Some((self.src.addr, self.protocol.filter(|_| one)?, self.src_port?))
    }

    /// The flows that a receiver inside begins, and what their source is outside: the destination of this flow.
    pub(super) fn mirrored(&self, inside: Endpoint) -> Option<(Self, Endpoint)> {
        let outside = Endpoint { address: self.dst.addr, port: Some(self.dst_port()?) };
        let begun = Self {
            src: Prefix::host(inside.address),
            dst: Prefix::all_like(inside.address),
            protocol: Some(self.protocol?),
            src_port: Some(inside.port?),
            dst_port: None,
        };
        (self.dst == Prefix::host(self.dst.addr)).then_some((begun, outside))
    }

    /// The IP protocol, if one is given.
    pub(super) const fn protocol(&self) -> Option<u8> {
        self.protocol
    }

    /// Whether it is of ICMP.
    pub(super) fn is_icmp(&self) -> bool {
        self.protocol.is_some_and(|protocol| matches!(protocol, ICMP | ICMPV6))
    }

    /// The destination port, if there is one only.
    pub(super) fn dst_port(&self) -> Option<u16> {
        self.dst_port.filter(|(first, last)| first == last).map(|(port, _)| port)
    }

    /// The source port.
    pub(super) const fn src_port(&self) -> Option<u16> {
        self.src_port
    }
}

/// The flows of the ICMP types: with a passage, of those that begin an exchange.
fn with_types(flow: Flow, pinhole: &Pinhole, action: Action) -> Vec<(Flow, Action)> {
    let beginnings = BEGINNINGS[usize::from(flow.is_ipv6())];
    // Packets that are denied are compared one by one, not with the flow that they belong to.
    let meant = |kind: &&u8| action.verdict == Verdict::Deny || beginnings.contains(kind);
    let mut types: Vec<u8> = pinhole.icmp_types.iter().filter(meant).copied().collect();
    types.sort_unstable();
    types.dedup();
    let codes = |kind: u8| (u16::from_be_bytes([kind, 0]), u16::from_be_bytes([kind, u8::MAX]));
    types.into_iter().map(|kind| (Flow { dst_port: Some(codes(kind)), ..flow }, action)).collect()
}

/// The keys of one flow of a pinhole, and what is done with it.
fn part(flow: &PinholeFlow, verdict: Verdict, mirrored: bool) -> (Flow, Action) {
    let PinholeFlow { packets, source, destination } = flow;
    let action = match verdict {
        Verdict::Allow => Action { verdict, source: *source, destination: *destination, mirrored },
        Verdict::Deny => Action { verdict, source: None, destination: None, mirrored: false },
    };
    let keys = Flow {
        src: masked(packets.src),
        dst: masked(packets.dst),
        protocol: packets.protocol,
        src_port: packets.src_port,
        dst_port: packets.dst_port.map(|port| (port, port)),
    };
    (keys, action)
}

/// The prefix with its host bits cleared.
fn masked(prefix: Prefix) -> Prefix {
    let hosts = |bits: u32| bits.saturating_sub(prefix.len.into());
    match prefix.addr {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(hosts(32)).unwrap_or(0);
            Prefix { addr: IpAddr::V4((addr.to_bits() & mask).into()), len: prefix.len.min(32) }
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(hosts(128)).unwrap_or(0);
            Prefix { addr: IpAddr::V6((addr.to_bits() & mask).into()), len: prefix.len.min(128) }
        }
    }
}

/// The prefix from a first to a last address.
fn prefix(first: &[u8], last: &[u8]) -> Option<Prefix> {
    let differing =
        first.iter().zip(last).map(|(first, last)| first ^ last).enumerate().find(|(_, bits)| *bits != 0);
    let len = match differing {
        Some((octet, bits)) => u8::try_from(8 * octet).ok()? + bits.leading_zeros() as u8,
        None => u8::try_from(8 * first.len()).ok()?,
    };
    let v6 = first.first_chunk::<16>().map(|octets| IpAddr::from(*octets));
    let addr = v6.or_else(|| first.first_chunk::<4>().map(|octets| IpAddr::from(*octets)))?;
    Some(Prefix { addr, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(src: &str, dst: &str) -> FlowFilter {
        let prefix = |text: &str| {
            let (addr, len) = text.split_once('/').unwrap();
            Prefix { addr: addr.parse().unwrap(), len: len.parse().unwrap() }
        };
        FlowFilter::between(prefix(src), prefix(dst))
    }

    fn udp(src: &str, dst: &str, ports: [Option<u16>; 2]) -> Pinhole {
        let [src_port, dst_port] = ports;
        Pinhole::allow(FlowFilter { protocol: Some(17), src_port, dst_port, ..packets(src, dst) })
    }

    fn one(pinhole: &Pinhole) -> Flow {
        let flows = Flow::of(pinhole).unwrap();
        assert_eq!(flows.len(), 1);
        flows[0].0
    }

    #[test]
    fn shapes_follow_from_what_is_given() {
        let (host, other) = ("10.0.0.1/32", "10.0.0.2/32");
        for (src, ports, shape) in [
            (host, [Some(1), Some(2)], Shape::Flow),
            (host, [None, Some(2)], Shape::AnyPort),
            ("0.0.0.0/0", [None, Some(2)], Shape::AnySender),
            ("0.0.0.0/0", [Some(1), Some(2)], Shape::Ranges),
            ("10.0.0.0/8", [None, Some(2)], Shape::Ranges),
            (host, [Some(1), None], Shape::Ranges),
            (host, [None, None], Shape::Ranges),
        ] {
            assert_eq!(one(&udp(src, other, ports)).shape(), shape, "{src} {ports:?}");
        }
        assert_eq!(one(&Pinhole::allow(packets(host, other))).shape(), Shape::Ranges);
    }

    #[test]
    fn each_part_of_a_key_begins_at_a_register() {
        let flow = one(&udp("10.0.0.1/32", "10.0.0.2/32", [Some(1), Some(5004)]));
        let key = [10, 0, 0, 1, 10, 0, 0, 2, 17, 0, 0, 0, 0, 1, 0, 0, 0x13, 0x8c, 0, 0];
        assert_eq!(flow.keys(Shape::Flow), [key.to_vec(), key.to_vec()]);
        let flow = one(&udp("fd00::/16", "fd01::2/128", [None, Some(5004)]));
        let [first, last] = flow.keys(Shape::Ranges);
        assert_eq!((first.len(), last.len()), (44, 44));
        assert_eq!((&first[..3], &last[..3]), (&[0xfd, 0, 0][..], &[0xfd, 0, 0xff][..]));
        assert_eq!((&first[36..40], &last[36..40]), (&[0; 4][..], &[0xff, 0xff, 0, 0][..]));
    }

    #[test]
    fn a_key_gives_its_flow_again() {
        let ports = [[None, None], [Some(1), None], [None, Some(2)], [Some(1), Some(2)]];
        for (src, dst) in
            [("10.1.0.0/16", "10.2.0.1/32"), ("0.0.0.0/0", "1.2.3.4/32"), ("fd00::1/128", "fd00::/8")]
        {
            for ports in ports {
                let flow = one(&udp(src, dst, ports));
                let [first, last] = flow.keys(flow.shape());
                assert_eq!(Flow::from_keys(flow.shape(), flow.is_ipv6(), &first, &last), Some(flow));
            }
        }
        assert_eq!(Flow::from_keys(Shape::Flow, true, &[0; 20], &[0; 20]), None);
    }

    /// The second port is the next one, on both sides of a translation.
    #[test]
    fn the_second_port_is_the_next_one() {
        let inside = Endpoint { address: "10.0.0.9".parse().unwrap(), port: Some(20230) };
        let pinhole = Pinhole {
            second_port: true,
            destination: Some(inside),
            ..udp("0.0.0.0/0", "10.0.0.2/32", [None, Some(5004)])
        };
        let flows = Flow::of(&pinhole).unwrap();
        assert_eq!(flows.len(), 2);
        assert_eq!((flows[1].0.dst_port(), flows[1].0.src_port()), (Some(5005), None));
        assert_eq!(flows[1].1.destination, Some(Endpoint { port: Some(20231), ..inside }));
        let last = Pinhole { destination: Some(Endpoint { port: Some(u16::MAX), ..inside }), ..pinhole };
        assert_eq!(Flow::of(&last), Err(PinholeError::Unsupported));
    }

    #[test]
    fn types_that_begin_an_exchange_are_keys() {
        let icmp = FlowFilter { protocol: Some(1), ..packets("10.0.0.1/32", "10.0.0.2/32") };
        let pinhole = |types: &[u8]| Pinhole { icmp_types: types.to_vec(), ..Pinhole::allow(icmp) };
        let flows = Flow::of(&pinhole(&[0, 3, 8, 8, 11])).unwrap();
        assert_eq!(flows.len(), 1);
        assert_eq!(flows[0].0.dst_port, Some((0x0800, 0x08ff)));
        assert_eq!(Flow::of(&pinhole(&[3])), Err(PinholeError::Unsupported));
        let deny = Pinhole { verdict: Verdict::Deny, ..pinhole(&[0, 3, 8]) };
        assert_eq!(Flow::of(&deny).unwrap().len(), 3);
        assert_eq!(Flow::of(&pinhole(&[])).unwrap()[0].0.dst_port, None);
    }

    #[test]
    fn what_the_kernel_cannot_match_is_refused() {
        let good = udp("10.0.0.1/32", "10.0.0.2/32", [Some(1), Some(2)]);
        let changed = |packets| Pinhole { packets, ..good.clone() };
        for refused in [
            changed(FlowFilter { dscp: Some(1), ..good.packets }),
            changed(FlowFilter { flow_label: Some(1), ..good.packets }),
            changed(FlowFilter { spi: Some(1), ..good.packets }),
            changed(FlowFilter { protocol: Some(50), ..good.packets }),
            changed(FlowFilter { protocol: None, ..good.packets }),
            Pinhole { icmp_types: vec![8], ..good.clone() },
            Pinhole { source: Some(Endpoint { address: [0; 16].into(), port: None }), ..good.clone() },
        ] {
            assert_eq!(Flow::of(&refused), Err(PinholeError::Unsupported), "{refused}");
        }
    }

    #[test]
    fn a_packet_is_a_candidate_of_its_flows() {
        let (src, dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let tuple = Tuple { src, dst, protocol: 17, src_port: 1, dst_port: 2 };
        let flows = [("10.0.0.1/32", Some(1)), ("10.0.0.1/32", None), ("0.0.0.0/0", None)]
            .map(|(src, port)| one(&udp(src, "10.0.0.2/32", [port, Some(2)])));
        assert_eq!(Flow::candidates(&tuple), flows);
        assert!(flows.iter().all(|flow| flow.contains(&tuple)));
        assert_eq!(flows.map(|flow| flow.tuple()), [Some(tuple), None, None]);
        assert!(!flows[0].contains(&Tuple { src_port: 2, ..tuple }));
    }
}
