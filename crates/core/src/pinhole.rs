//! The passage of a flow through a firewall or NAT, as the kernel implements it.
//!
//! The engine that decides and the crate that enforces (`linux`) share these types and do not depend on each other.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::node::Prefix;
use crate::traffic::FlowFilter;

/// What happens to the packets of a flow at this node, and to the packets that answer them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Pinhole {
    /// The packets as they arrive, before any translation.
    pub packets: FlowFilter,
    /// Further senders of the packets.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub senders: Vec<Sender>,
    /// The rule is also for packets whose given ports are each higher by one (RTP and RTCP).
    #[cfg_attr(feature = "serde", serde(default))]
    pub second_port: bool,
    /// With a protocol of ICMP: the types that the rule is for; empty: all.
    #[cfg_attr(feature = "serde", serde(default))]
    pub icmp_types: Vec<u8>,
    /// Whether they pass.
    pub verdict: Verdict,
    /// Their source after translation; `None`: it stays.
    #[cfg_attr(feature = "serde", serde(default))]
    pub source: Option<Endpoint>,
    /// Their destination after translation; `None`: it stays.
    #[cfg_attr(feature = "serde", serde(default))]
    pub destination: Option<Endpoint>,
    /// Flows that the translated destination begins have, outside, the destination before the translation as their source: their
    /// receivers see the place at which the sender is reached. It lets nothing pass.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub mirrored: bool,
}

impl Pinhole {
    /// A passage without translation.
    #[must_use]
    pub const fn allow(packets: FlowFilter) -> Self {
        Self {
            packets,
            senders: Vec::new(),
            second_port: false,
            icmp_types: Vec::new(),
            verdict: Verdict::Allow,
            source: None,
            destination: None,
            mirrored: false,
        }
    }

    /// The flows that it is for: one for each sender, or two with [`Pinhole::second_port`], if there is a next port. Who judges a pinhole
    /// and who makes the kernel's rules of it take the flows from here, so that nothing is open that was not judged.
    pub fn flows(&self) -> impl Iterator<Item = PinholeFlow> {
        let Self { packets, source, destination, .. } = *self;
        let first = PinholeFlow { packets, source, destination };
        let other = move |sender: &Sender| {
            let packets = FlowFilter { src: sender.from, src_port: sender.port, ..packets };
            PinholeFlow { packets, ..first }
        };
        let all = core::iter::once(first).chain(self.senders.iter().map(other));
        let second = self.second_port;
        all.flat_map(move |flow| [Some(flow), if second { flow.next() } else { None }]).flatten()
    }
}

/// Senders of the packets of a pinhole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Sender {
    /// Their addresses.
    pub from: Prefix,
    /// Their port; `None`: any.
    #[cfg_attr(feature = "serde", serde(default))]
    pub port: Option<u16>,
}

/// One flow of a pinhole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinholeFlow {
    /// Its packets as they arrive.
    pub packets: FlowFilter,
    /// Their source after translation; `None`: it stays.
    pub source: Option<Endpoint>,
    /// Their destination after translation; `None`: it stays.
    pub destination: Option<Endpoint>,
}

impl PinholeFlow {
    /// The flow whose given ports are each higher by one; `None`: there is no such port.
    fn next(self) -> Option<Self> {
        let up = |port: Option<u16>| port.map_or(Some(None), |port| port.checked_add(1).map(Some));
        let ported = |end: Option<Endpoint>| match end {
            Some(end) => Some(Some(Endpoint { port: up(end.port)?, ..end })),
            None => Some(None),
        };
        let (src_port, dst_port) = (up(self.packets.src_port)?, up(self.packets.dst_port)?);
        let (source, destination) = (ported(self.source)?, ported(self.destination)?);
        Some(Self { packets: FlowFilter { src_port, dst_port, ..self.packets }, source, destination })
    }

    /// Its packets as they leave.
    #[must_use]
    pub fn translated(&self) -> FlowFilter {
        let mut packets = self.packets;
        if let Some(Endpoint { address, port }) = self.source {
            packets.src = Prefix::host(address);
            packets.src_port = port.or(packets.src_port);
        }
        if let Some(Endpoint { address, port }) = self.destination {
            packets.dst = Prefix::host(address);
            packets.dst_port = port.or(packets.dst_port);
        }
        packets
    }
}

/// Whether packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Verdict {
    /// They pass.
    Allow,
    /// They are dropped.
    Deny,
}

/// An address and, if ports are translated too, a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port; `None`: it stays.
    #[cfg_attr(feature = "serde", serde(default))]
    pub port: Option<u16>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{} port {port}", self.address),
            None => self.address.fmt(f),
        }
    }
}

impl fmt::Display for Pinhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Allow => "allow",
            Verdict::Deny => "deny",
        };
        write!(f, "{verdict} {}", self.packets)?;
        for Sender { from, port } in &self.senders {
            write!(f, " or from {from}")?;
            port.map_or(Ok(()), |port| write!(f, " port {port}"))?;
        }
        if self.second_port {
            f.write_str(" and next port")?;
        }
        if let Some(source) = self.source {
            write!(f, " from {source}")?;
        }
        if let Some(destination) = self.destination {
            write!(f, " to {destination}")?;
        }
        if self.mirrored { f.write_str(" and back") } else { Ok(()) }
    }
}

signalbox_wire::code_points! {
    /// A protocol that opens pinholes. Values from 240 are for tests and experiments.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct OpenerId(u8) {
        /// The NATFW application (RFC 5973).
        NATFW = 1, "natfw";
        /// The GIST-aware NAT gateway (RFC 5971 §7.2).
        GIST_NAT = 2, "gist_nat";
        /// The client for firewalls of CASP.
        CASP = 3, "casp";
    }
}

impl OpenerId {
    /// The id of a pinhole of this protocol.
    #[must_use]
    pub const fn pinhole(self, key: u64) -> PinholeId {
        PinholeId { owner: self, key }
    }
}

/// Id of a pinhole. Each protocol chooses the keys of its own pinholes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PinholeId {
    /// The protocol that opens it, and that takes the kernel's answers.
    pub owner: OpenerId,
    /// The pinhole among those of its owner.
    pub key: u64,
}

impl fmt::Display for PinholeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pinhole {} of {}", self.key, self.owner)
    }
}

/// How the kernel translates the packets of a flow that it tracks already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Translation {
    /// Address and port of the source, after translation.
    pub source: SocketAddr,
    /// Address and port of the destination, after translation.
    pub destination: SocketAddr,
    /// A pinhole let the flow in, of this process or of a former one. It ends with the pinhole.
    pub by_pinhole: bool,
}

/// Reason why a pinhole is not in the kernel. The previous one of that id stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PinholeError {
    /// The limit on pinholes is reached.
    Full,
    /// Another pinhole or binding is for the same packets.
    Conflict,
    /// The kernel of this node, or its configuration, cannot do what is asked.
    Unsupported,
    /// The kernel refused the request.
    Failed,
}

impl fmt::Display for PinholeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no place for another pinhole",
            Self::Conflict => "another pinhole has these packets",
            Self::Unsupported => "not supported here",
            Self::Failed => "the kernel refused",
        })
    }
}

impl core::error::Error for PinholeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinhole_prints_what_it_does() {
        let (from, to): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.79".parse().unwrap());
        let packets = FlowFilter {
            protocol: Some(17),
            dst_port: Some(45000),
            ..FlowFilter::between(Prefix::host(from), Prefix::host(to))
        };
        let inside = Endpoint { address: "192.168.5.100".parse().unwrap(), port: Some(20230) };
        let pinhole = Pinhole { second_port: true, destination: Some(inside), ..Pinhole::allow(packets) };
        assert_eq!(
            pinhole.to_string(),
            "allow 192.0.2.1 > 192.0.2.79 port 45000 proto 17 and next port to 192.168.5.100 port 20230"
        );
    }

    #[test]
    fn a_second_port_is_a_second_flow_in_both_forms() {
        let host = |text: &str| Prefix::host(text.parse().unwrap());
        let packets = FlowFilter {
            protocol: Some(17),
            dst_port: Some(45000),
            ..FlowFilter::between(host("192.0.2.1"), host("192.0.2.79"))
        };
        let end = |port| Some(Endpoint { address: "192.168.5.100".parse().unwrap(), port: Some(port) });
        let pair = Pinhole { second_port: true, destination: end(20230), ..Pinhole::allow(packets) };
        let flows: Vec<_> = pair.flows().collect();
        let ports = |flow: &PinholeFlow| (flow.packets.dst_port, flow.translated().dst_port);
        assert_eq!(
            flows.iter().map(ports).collect::<Vec<_>>(),
            [(Some(45000), Some(20230)), (Some(45001), Some(20231))]
        );
        assert_eq!(flows[1].translated().dst, host("192.168.5.100"));
        assert_eq!(flows[1].translated().src, packets.src);
        let both =
            Pinhole { senders: vec![Sender { from: host("192.0.2.2"), port: Some(7) }], ..pair.clone() };
        let seen: Vec<_> =
            both.flows().map(|flow| (flow.packets.src, flow.packets.src_port, ports(&flow))).collect();
        let [one, two] = [(Some(45000), Some(20230)), (Some(45001), Some(20231))];
        let (first, other) = (host("192.0.2.1"), host("192.0.2.2"));
        assert_eq!(
            seen,
            [(first, None, one), (first, None, two), (other, Some(7), one), (other, Some(8), two)]
        );
        let single = Pinhole { second_port: false, ..pair.clone() };
        let last = Pinhole { destination: end(u16::MAX), ..pair };
        assert_eq!((single.flows().count(), last.flows().count()), (1, 1));
    }
}
