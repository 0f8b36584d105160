//! Reservations as the kernel implements them: packets, rates and the treatment of excess packets.
//!
//! The crates that decide (admission control, the signaling protocols) and the crate that enforces (`linux`)
//! share these types and do not depend on each other.

use core::fmt;

use crate::id::IfIndex;
use crate::mri::{Mri, PathCoupled};
use crate::node::Prefix;

/// Filter of packets. A field that is `None` matches all packets. Both prefixes are of the same IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct FlowFilter {
    /// Source addresses.
    pub src: Prefix,
    /// Destination addresses.
    pub dst: Prefix,
    /// IP protocol; with IPv6 the upper-layer protocol.
    pub protocol: Option<u8>,
    /// Source port; needs a protocol that has ports.
    pub src_port: Option<u16>,
    /// Destination port; needs a protocol that has ports.
    pub dst_port: Option<u16>,
    /// Differentiated-services code point of arriving packets, 0–63.
    pub dscp: Option<u8>,
    /// IPv6 flow label, 20 bits.
    pub flow_label: Option<u32>,
    /// IPsec security parameter index; needs protocol 50 (ESP) or 51 (AH).
    pub spi: Option<u32>,
}

impl FlowFilter {
    /// A filter for all packets from one prefix to another.
    #[must_use]
    pub const fn between(src: Prefix, dst: Prefix) -> Self {
        Self {
            src,
            dst,
            protocol: None,
            src_port: None,
            dst_port: None,
            dscp: None,
            flow_label: None,
            spi: None,
        }
    }

    /// Whether both prefixes are of this IP version.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.src.addr.is_ipv4() && self.dst.addr.is_ipv4()
    }
}

impl From<&Mri> for FlowFilter {
    /// A filter for the packets of the flow, independent of the message's direction. A loose-end MRI gives
    /// all packets between its two addresses.
    fn from(mri: &Mri) -> Self {
        match mri {
            Mri::PathCoupled(flow) => Self::from(flow),
            Mri::LooseEnd(end) => Self::between(Prefix::host(end.src), Prefix::host(end.dst)),
        }
    }
}

impl From<&PathCoupled> for FlowFilter {
    fn from(flow: &PathCoupled) -> Self {
        Self {
            src: Prefix { addr: flow.src, len: flow.src_prefix },
            dst: Prefix { addr: flow.dst, len: flow.dst_prefix },
            protocol: flow.protocol,
            src_port: flow.src_port,
            dst_port: flow.dst_port,
            dscp: flow.dscp,
            flow_label: flow.flow_label,
            spi: flow.spi,
        }
    }
}

impl fmt::Display for FlowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |f: &mut fmt::Formatter<'_>, prefix: &Prefix, port: Option<u16>| {
            if *prefix == Prefix::host(prefix.addr) {
                write!(f, "{}", prefix.addr)?;
            } else {
                write!(f, "{prefix}")?;
            }
            port.map_or(Ok(()), |port| write!(f, " port {port}"))
        };
        end(f, &self.src, self.src_port)?;
        f.write_str(" > ")?;
        end(f, &self.dst, self.dst_port)?;
        for (name, value) in [
            ("proto", self.protocol.map(u32::from)),
            ("dscp", self.dscp.map(u32::from)),
            ("label", self.flow_label),
            ("spi", self.spi),
        ] {
            if let Some(value) = value {
                write!(f, " {name} {value}")?;
            }
        }
        Ok(())
    }
}

/// Traffic parameters: the token bucket TSpec of RFC 2215 §3.6. Lengths are those of IP packets, header
/// included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct TrafficSpec {
    /// Token rate *r*, octets a second.
    pub rate: u64,
    /// Bucket depth *b*, octets.
    pub burst: u32,
    /// Peak rate *p*, octets a second; `None`: the rate of the link.
    pub peak: Option<u64>,
    /// Minimum policed unit *m*, octets: a shorter packet counts as a packet of this size.
    pub min_policed: u32,
    /// Maximum packet size *M*, octets: longer packets do not conform.
    pub max_packet: u32,
}

/// Queue of conforming packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Treatment {
    /// A queue of their own, served with at least the reserved rate.
    OwnQueue,
    /// The queue of their service, shared with other reservations.
    Aggregate(ServiceClass),
}

/// Services whose reservations share a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ServiceClass {
    /// Controlled load (RFC 2211).
    ControlledLoad,
    /// Guaranteed service (RFC 2212).
    Guaranteed,
    /// The per-hop behaviour of this code point, 0–63 (RFC 2474).
    Dscp(u8),
}

impl fmt::Display for ServiceClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlledLoad => f.write_str("controlled-load"),
            Self::Guaranteed => f.write_str("guaranteed"),
            Self::Dscp(dscp) => write!(f, "dscp {dscp}"),
        }
    }
}

/// Treatment of packets beyond the token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Excess {
    /// They are dropped.
    Drop,
    /// They are sent unmarked as best effort, with a lower priority than traffic without a reservation (RFC
    /// 2211 §9).
    BestEffort,
}

/// A reservation at one outgoing interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Reservation {
    /// The interface that the packets leave by.
    pub ifindex: IfIndex,
    /// Filters of its packets, at least one. A packet that matches any of them belongs to the reservation;
    /// all share one token bucket.
    pub filters: Vec<FlowFilter>,
    /// Traffic parameters.
    pub traffic: TrafficSpec,
    /// Service rate of its queue in octets a second, if it is above the token rate: *R* of guaranteed service
    /// (RFC 2212).
    #[cfg_attr(feature = "serde", serde(default))]
    pub served: Option<u64>,
    /// Where conforming packets queue.
    pub treatment: Treatment,
    /// Code point that conforming packets are marked with, 0–63; `None`: it is not changed.
    pub mark_dscp: Option<u8>,
    /// Treatment of packets beyond the token bucket.
    pub excess: Excess,
}

impl Reservation {
    /// Guaranteed rate of its queue, octets a second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.served.unwrap_or(0).max(self.traffic.rate)
    }
}

/// Id of a reservation; the node chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReservationId(pub u64);

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reservation {}", self.0)
    }
}

/// Reason why a reservation is not in the kernel. The previous reservation of that id stays installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ReserveError {
    /// The limit on reservations is reached.
    Full,
    /// The kernel of this node, or its configuration, cannot do what is asked.
    Unsupported,
    /// The interface does not exist, or no reservations can be made at it.
    NoInterface,
    /// The kernel refused the request.
    Failed,
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no place for another reservation",
            Self::Unsupported => "not supported here",
            Self::NoInterface => "not an interface to reserve at",
            Self::Failed => "the kernel refused",
        })
    }
}

impl core::error::Error for ReserveError {}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;
    use crate::mri::{Direction, LooseEnd};

    #[test]
    fn a_flow_keeps_all_that_names_its_packets() {
        let (src, dst): (IpAddr, IpAddr) = ("fd00::".parse().unwrap(), "fd01::1".parse().unwrap());
        let flow = PathCoupled {
            src_prefix: 64,
            protocol: Some(17),
            dscp: Some(46),
            flow_label: Some(5),
            spi: Some(6),
            src_port: Some(7),
            dst_port: Some(8),
            direction: Direction::Upstream,
            ..PathCoupled::between(src, dst)
        };
        let filter = FlowFilter::from(&Mri::PathCoupled(flow));
        assert_eq!(filter.to_string(), "fd00::/64 port 7 > fd01::1 port 8 proto 17 dscp 46 label 5 spi 6");
        assert_eq!(filter, FlowFilter::from(&Mri::PathCoupled(flow).inverted()));
        assert!(!filter.is_ipv4());
    }

    #[test]
    fn a_loose_end_is_all_between_two_addresses() {
        let (src, dst): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let filter =
            FlowFilter::from(&Mri::LooseEnd(LooseEnd { src, dst, direction: Direction::Downstream }));
        assert_eq!(filter, FlowFilter::between(Prefix::host(src), Prefix::host(dst)));
        assert_eq!(filter.to_string(), "10.0.0.1 > 10.0.0.2");
        assert!(filter.is_ipv4());
    }
}
