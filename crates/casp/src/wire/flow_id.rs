//! FLOW_ID (appendix A.1 of the draft): the data flow that a session is for.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;
use signalbox_wire::{Reader, Short, Writer};

use super::code_points::FlowForm;

/// IP protocols of IPsec.
const ESP: u8 = 50;
const AH: u8 = 51;
/// Bits of an IPv6 flow label.
const LABEL: u32 = 0x000f_ffff;

/// The data flow. Unused bits of the octets do not reach this type, so that equal flows are equal values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum FlowId {
    /// C-Type 1: IPv4 with ports.
    V4Ports {
        /// Source of the data.
        src: Ipv4Addr,
        /// Destination of the data.
        dst: Ipv4Addr,
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
        /// IP protocol.
        protocol: u8,
    },
    /// C-Type 2: IPv4 with an IPsec SPI.
    V4Spi {
        /// Source of the data.
        src: Ipv4Addr,
        /// Destination of the data.
        dst: Ipv4Addr,
        /// Security parameter index.
        spi: u32,
        /// IP protocol: ESP or AH.
        protocol: u8,
    },
    /// C-Type 3: IPv6 with a flow label.
    V6Label {
        /// Source of the data.
        src: Ipv6Addr,
        /// Destination of the data.
        dst: Ipv6Addr,
        /// Flow label, 20 bits.
        label: u32,
    },
    /// C-Type 129, an extension of this suite: IPv6 with ports.
    V6Ports {
        /// Source of the data.
        src: Ipv6Addr,
        /// Destination of the data.
        dst: Ipv6Addr,
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
        /// IP protocol.
        protocol: u8,
    },
    /// C-Type 130, an extension of this suite: IPv6 with an IPsec SPI.
    V6Spi {
        /// Source of the data.
        src: Ipv6Addr,
        /// Destination of the data.
        dst: Ipv6Addr,
        /// Security parameter index.
        spi: u32,
        /// IP protocol: ESP or AH.
        protocol: u8,
    },
}

/// Why a flow cannot be composed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// An SPI with another protocol than ESP and AH.
    #[error("an SPI needs protocol 50 (ESP) or 51 (AH), not {0}")]
    NotIpsec(u8),
    /// A flow label of more than 20 bits.
    #[error("flow label {0:#x} has more than 20 bits")]
    Label(u32),
}

impl FlowId {
    /// The first flow in the order of this type.
    pub const FIRST: Self = Self::V4Ports {
        src: Ipv4Addr::UNSPECIFIED,
        dst: Ipv4Addr::UNSPECIFIED,
        src_port: 0,
        dst_port: 0,
        protocol: 0,
    };

    /// The C-Type.
    #[must_use]
    pub const fn form(&self) -> FlowForm {
        match self {
            Self::V4Ports { .. } => FlowForm::IPV4_PORTS,
            Self::V4Spi { .. } => FlowForm::IPV4_SPI,
            Self::V6Label { .. } => FlowForm::IPV6_LABEL,
            Self::V6Ports { .. } => FlowForm::IPV6_PORTS,
            Self::V6Spi { .. } => FlowForm::IPV6_SPI,
        }
    }

    /// Whether the C-Type is an extension of this suite.
    #[must_use]
    pub const fn is_private(&self) -> bool {
        matches!(self, Self::V6Ports { .. } | Self::V6Spi { .. })
    }

    /// Source of the data.
    #[must_use]
    pub const fn src(&self) -> IpAddr {
        match self {
            Self::V4Ports { src, .. } | Self::V4Spi { src, .. } => IpAddr::V4(*src),
            Self::V6Label { src, .. } | Self::V6Ports { src, .. } | Self::V6Spi { src, .. } => {
                IpAddr::V6(*src)
            }
        }
    }

    /// Destination of the data.
    #[must_use]
    pub const fn dst(&self) -> IpAddr {
        match self {
            Self::V4Ports { dst, .. } | Self::V4Spi { dst, .. } => IpAddr::V4(*dst),
            Self::V6Label { dst, .. } | Self::V6Ports { dst, .. } | Self::V6Spi { dst, .. } => {
                IpAddr::V6(*dst)
            }
        }
    }

    /// IP protocol of the data, if the form has it.
    #[must_use]
    pub const fn protocol(&self) -> Option<u8> {
        match self {
            Self::V4Ports { protocol, .. }
            | Self::V4Spi { protocol, .. }
            | Self::V6Ports { protocol, .. }
            | Self::V6Spi { protocol, .. } => Some(*protocol),
            Self::V6Label { .. } => None,
        }
    }

    /// Source and destination port, if the form has them.
    #[must_use]
    pub const fn ports(&self) -> Option<(u16, u16)> {
        match self {
            Self::V4Ports { src_port, dst_port, .. } | Self::V6Ports { src_port, dst_port, .. } => {
                Some((*src_port, *dst_port))
            }
            Self::V4Spi { .. } | Self::V6Label { .. } | Self::V6Spi { .. } => None,
        }
    }

    /// Security parameter index, if the form has it.
    #[must_use]
    pub const fn spi(&self) -> Option<u32> {
        match self {
            Self::V4Spi { spi, .. } | Self::V6Spi { spi, .. } => Some(*spi),
            Self::V4Ports { .. } | Self::V6Label { .. } | Self::V6Ports { .. } => None,
        }
    }

    /// IPv6 flow label, 0 if the form has none.
    #[must_use]
    pub const fn label(&self) -> u32 {
        match self {
            Self::V6Label { label, .. } => *label,
            Self::V4Ports { .. } | Self::V4Spi { .. } | Self::V6Ports { .. } | Self::V6Spi { .. } => 0,
        }
    }

    /// The filter of the data packets. Ports of a protocol that has none are left out. No data packet has port 0, and few have
    /// protocol 0 or flow label 0: these stand for all.
    #[must_use]
    pub fn filter(&self) -> FlowFilter {
        let between = FlowFilter::between(Prefix::host(self.src()), Prefix::host(self.dst()));
        let has_ports = self.protocol().is_some_and(|protocol| matches!(protocol, 6 | 17 | 33 | 132 | 136));
        let ports = self.ports().filter(|_| has_ports);
        FlowFilter {
            protocol: self.protocol().filter(|protocol| *protocol != 0),
            src_port: ports.map(|(src, _)| src).filter(|port| *port != 0),
            dst_port: ports.map(|(_, dst)| dst).filter(|port| *port != 0),
            spi: self.spi(),
            flow_label: match self {
                Self::V6Label { label, .. } => Some(*label).filter(|label| *label != 0),
                Self::V4Ports { .. } | Self::V4Spi { .. } | Self::V6Ports { .. } | Self::V6Spi { .. } => None,
            },
            ..between
        }
    }

    /// The flow of the opposite direction. An SPI and a flow label are those of the given direction, and stay.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4Ports { src, dst, src_port, dst_port, protocol } => {
                Self::V4Ports { src: dst, dst: src, src_port: dst_port, dst_port: src_port, protocol }
            }
            Self::V6Ports { src, dst, src_port, dst_port, protocol } => {
                Self::V6Ports { src: dst, dst: src, src_port: dst_port, dst_port: src_port, protocol }
            }
            Self::V4Spi { src, dst, spi, protocol } => Self::V4Spi { src: dst, dst: src, spi, protocol },
            Self::V6Spi { src, dst, spi, protocol } => Self::V6Spi { src: dst, dst: src, spi, protocol },
            Self::V6Label { src, dst, label } => Self::V6Label { src: dst, dst: src, label },
        }
    }

    /// Checks what a sender must not compose.
    ///
    /// # Errors
    /// The field at fault.
    pub const fn checked(self) -> Result<Self, FlowError> {
        match self {
            Self::V4Spi { protocol, .. } | Self::V6Spi { protocol, .. }
                if protocol != ESP && protocol != AH =>
            {
                Err(FlowError::NotIpsec(protocol))
            }
            Self::V6Label { label, .. } if label > LABEL => Err(FlowError::Label(label)),
            Self::V4Ports { .. }
            | Self::V4Spi { .. }
            | Self::V6Label { .. }
            | Self::V6Ports { .. }
            | Self::V6Spi { .. } => Ok(self),
        }
    }

    /// Octets of the contents of a form; `None`: the form is unknown.
    #[must_use]
    pub const fn octets_of(form: FlowForm) -> Option<usize> {
        match form {
            FlowForm::IPV4_PORTS | FlowForm::IPV4_SPI => Some(16),
            FlowForm::IPV6_LABEL => Some(36),
            FlowForm::IPV6_PORTS | FlowForm::IPV6_SPI => Some(40),
            _ => None,
        }
    }

    /// Reads the contents of an object of this form; `None`: the form is unknown, and nothing is read.
    ///
    /// # Errors
    /// [`Short`] if octets are missing.
    pub fn parse(r: &mut Reader<'_>, form: FlowForm) -> Result<Option<Self>, Short> {
        Ok(Some(match form {
            FlowForm::IPV4_PORTS => {
                let (src, dst) = (v4(r)?, v4(r)?);
                let (src_port, dst_port) = (r.u16()?, r.u16()?);
                Self::V4Ports { src, dst, src_port, dst_port, protocol: protocol(r)? }
            }
            FlowForm::IPV4_SPI => {
                Self::V4Spi { src: v4(r)?, dst: v4(r)?, spi: r.u32()?, protocol: protocol(r)? }
            }
            FlowForm::IPV6_LABEL => Self::V6Label { src: v6(r)?, dst: v6(r)?, label: r.u32()? & LABEL },
            FlowForm::IPV6_PORTS => {
                let (src, dst) = (v6(r)?, v6(r)?);
                let (src_port, dst_port) = (r.u16()?, r.u16()?);
                Self::V6Ports { src, dst, src_port, dst_port, protocol: protocol(r)? }
            }
            FlowForm::IPV6_SPI => {
                Self::V6Spi { src: v6(r)?, dst: v6(r)?, spi: r.u32()?, protocol: protocol(r)? }
            }
            _ => return Ok(None),
        }))
    }

    /// Appends the contents of the object.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match self.src() {
            IpAddr::V4(v4) => w.bytes(&v4.octets()),
            IpAddr::V6(v6) => w.bytes(&v6.octets()),
        }
        match self.dst() {
            IpAddr::V4(v4) => w.bytes(&v4.octets()),
            IpAddr::V6(v6) => w.bytes(&v6.octets()),
        }
        match self {
            Self::V4Ports { src_port, dst_port, protocol, .. }
            | Self::V6Ports { src_port, dst_port, protocol, .. } => {
                w.u16(*src_port);
                w.u16(*dst_port);
                w.bytes(&[*protocol, 0, 0, 0]);
            }
            Self::V4Spi { spi, protocol, .. } | Self::V6Spi { spi, protocol, .. } => {
                w.u32(*spi);
                w.bytes(&[*protocol, 0, 0, 0]);
            }
            Self::V6Label { label, .. } => w.u32(*label & LABEL),
        }
    }
}

fn v4(r: &mut Reader<'_>) -> Result<Ipv4Addr, Short> {
    r.array::<4>().map(Ipv4Addr::from)
}

fn v6(r: &mut Reader<'_>) -> Result<Ipv6Addr, Short> {
    r.array::<16>().map(Ipv6Addr::from)
}

/// The protocol and three unused octets.
fn protocol(r: &mut Reader<'_>) -> Result<u8, Short> {
    r.array::<4>().map(|[protocol, ..]| protocol)
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.filter().fmt(f)
    }
}
