//! Message Routing Information: which messages a session's signaling follows (RFC 5971 §3.3, §5.8, A.3.1).
//!
//! GIST and its applications both describe flows by these types. The gist crate encodes and decodes the
//! octets.

use core::fmt;
use core::net::IpAddr;

/// Direction of a message relative to the flow (the D-flag of RFC 5971 A.3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Direction {
    /// In the direction of the flow (D=0).
    Downstream,
    /// Against the direction of the flow (D=1).
    Upstream,
}

impl Direction {
    /// The opposite direction.
    #[must_use]
    pub const fn inverted(self) -> Self {
        match self {
            Self::Downstream => Self::Upstream,
            Self::Upstream => Self::Downstream,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Downstream => "downstream",
            Self::Upstream => "upstream",
        })
    }
}

/// The path-coupled message routing method: signaling follows the flow (RFC 5971 §5.8.1, A.3.1.1).
///
/// A field that is `None` is a wildcard: its flag (P, T, F, S, A, B) is clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PathCoupled {
    /// Source address of the flow, of the same version as `dst`.
    pub src: IpAddr,
    /// Destination address of the flow.
    pub dst: IpAddr,
    /// Length of the mask on `src`, in bits: 0–32 for IPv4, 0–128 for IPv6.
    pub src_prefix: u8,
    /// Length of the mask on `dst`, in bits.
    pub dst_prefix: u8,
    /// IP protocol (P-flag); with IPv6 the upper-layer protocol.
    pub protocol: Option<u8>,
    /// Differentiated-services code point, 0–63 (T-flag).
    pub dscp: Option<u8>,
    /// IPv6 flow label, 20 bits (F-flag; never with IPv4).
    pub flow_label: Option<u32>,
    /// IPsec security parameter index (S-flag; needs `protocol`).
    pub spi: Option<u32>,
    /// Source port (A-flag; needs `protocol`). 0 is a specific port that is not yet known.
    pub src_port: Option<u16>,
    /// Destination port (B-flag; needs `protocol`). 0 is a specific port that is not yet known.
    pub dst_port: Option<u16>,
    /// Direction of the message that carries this MRI.
    pub direction: Direction,
}

impl PathCoupled {
    /// MRI of all packets from one host to another, downstream.
    #[must_use]
    pub const fn between(src: IpAddr, dst: IpAddr) -> Self {
        let (src_prefix, dst_prefix) =
            (if src.is_ipv4() { 32 } else { 128 }, if dst.is_ipv4() { 32 } else { 128 });
        Self {
            src,
            dst,
            src_prefix,
            dst_prefix,
            protocol: None,
            dscp: None,
            flow_label: None,
            spi: None,
            src_port: None,
            dst_port: None,
            direction: Direction::Downstream,
        }
    }
}

/// The loose-end message routing method: towards the edge of the network (RFC 5971 §5.8.2, A.3.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LooseEnd {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// `Downstream` (D=0) is towards the edge, `Upstream` (D=1) from the edge.
    pub direction: Direction,
}

/// Message Routing Information of any method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Mri {
    /// Along the flow.
    PathCoupled(PathCoupled),
    /// Towards the edge of the network.
    LooseEnd(LooseEnd),
}

impl Mri {
    /// Direction of the message that carries this MRI.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        match self {
            Self::PathCoupled(p) => p.direction,
            Self::LooseEnd(l) => l.direction,
        }
    }

    /// MRI of the same flow, for a message in `direction`.
    #[must_use]
    pub const fn with_direction(mut self, direction: Direction) -> Self {
        match &mut self {
            Self::PathCoupled(p) => p.direction = direction,
            Self::LooseEnd(l) => l.direction = direction,
        }
        self
    }

    /// MRI of the same flow, for a message in the opposite direction.
    #[must_use]
    pub const fn inverted(self) -> Self {
        let direction = self.direction().inverted();
        self.with_direction(direction)
    }

    /// Source address of the flow.
    #[must_use]
    pub const fn src(&self) -> IpAddr {
        match self {
            Self::PathCoupled(p) => p.src,
            Self::LooseEnd(l) => l.src,
        }
    }

    /// The end of the flow that a message with this MRI travels towards.
    #[must_use]
    pub const fn target(&self) -> IpAddr {
        match self.direction() {
            Direction::Downstream => self.dst(),
            Direction::Upstream => self.src(),
        }
    }

    /// Destination address of the flow.
    #[must_use]
    pub const fn dst(&self) -> IpAddr {
        match self {
            Self::PathCoupled(p) => p.dst,
            Self::LooseEnd(l) => l.dst,
        }
    }
}

impl fmt::Display for Mri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PathCoupled(p) => {
                let host = if p.src.is_ipv4() { 32 } else { 128 };
                let end = |f: &mut fmt::Formatter<'_>, addr: IpAddr, prefix: u8, port: Option<u16>| {
                    write!(f, "{addr}")?;
                    if prefix != host {
                        write!(f, "/{prefix}")?;
                    }
                    port.map_or(Ok(()), |port| write!(f, " port {port}"))
                };
                end(f, p.src, p.src_prefix, p.src_port)?;
                f.write_str(" > ")?;
                end(f, p.dst, p.dst_prefix, p.dst_port)?;
                for (name, value) in [
                    ("proto", p.protocol.map(u32::from)),
                    ("dscp", p.dscp.map(u32::from)),
                    ("label", p.flow_label),
                    ("spi", p.spi),
                ] {
                    if let Some(value) = value {
                        write!(f, " {name} {value}")?;
                    }
                }
                Ok(())
            }
            Self::LooseEnd(l) => write!(f, "{} > {} loose-end", l.src, l.dst),
        }
    }
}
