//! Flows in records: a packed MRI without its direction.

use core::net::{IpAddr, Ipv4Addr};

use signalbox_core::{Direction, Mri, NslpId, PathCoupled, SessionId};

const PROTOCOL: u8 = 1;
const DSCP: u8 = 2;
const SPI: u8 = 4;
const SRC_PORT: u8 = 8;
const DST_PORT: u8 = 16;

/// A flow, without the direction of its messages. A path-coupled IPv4 flow, the common case, is in the record itself (24
/// octets with the tag). Any other flow takes one allocation per session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Path-coupled, IPv4.
    V4 {
        /// Which of the optional fields are there.
        present: u8,
        src_prefix: u8,
        dst_prefix: u8,
        protocol: u8,
        dscp: u8,
        src_port: u16,
        dst_port: u16,
        src: [u8; 4],
        dst: [u8; 4],
        spi: u32,
    },
    /// Anything else, written downstream.
    Other(Box<Mri>),
}

impl Flow {
    /// The flow of `mri`.
    pub(crate) fn of(mri: &Mri) -> Self {
        if let Mri::PathCoupled(p) = mri
            && let (IpAddr::V4(src), IpAddr::V4(dst)) = (p.src, p.dst)
            && p.flow_label.is_none()
        {
            let bit = |there: bool, bit: u8| if there { bit } else { 0 };
            return Self::V4 {
                present: bit(p.protocol.is_some(), PROTOCOL)
                    | bit(p.dscp.is_some(), DSCP)
                    | bit(p.spi.is_some(), SPI)
                    | bit(p.src_port.is_some(), SRC_PORT)
                    | bit(p.dst_port.is_some(), DST_PORT),
                src_prefix: p.src_prefix,
                dst_prefix: p.dst_prefix,
                protocol: p.protocol.unwrap_or(0),
                dscp: p.dscp.unwrap_or(0),
                src_port: p.src_port.unwrap_or(0),
                dst_port: p.dst_port.unwrap_or(0),
                src: src.octets(),
                dst: dst.octets(),
                spi: p.spi.unwrap_or(0),
            };
        }
        Self::Other(Box::new(mri.with_direction(Direction::Downstream)))
    }

    /// The MRI of a message of this flow in `direction`.
    pub(crate) fn mri(&self, direction: Direction) -> Mri {
        match self {
            Self::V4 {
                present,
                src_prefix,
                dst_prefix,
                protocol,
                dscp,
                src_port,
                dst_port,
                src,
                dst,
                spi,
            } => {
                let there = |bit: u8| present & bit != 0;
                Mri::PathCoupled(PathCoupled {
                    src: IpAddr::V4(Ipv4Addr::from(*src)),
                    dst: IpAddr::V4(Ipv4Addr::from(*dst)),
                    src_prefix: *src_prefix,
                    dst_prefix: *dst_prefix,
                    protocol: there(PROTOCOL).then_some(*protocol),
                    dscp: there(DSCP).then_some(*dscp),
                    flow_label: None,
                    spi: there(SPI).then_some(*spi),
                    src_port: there(SRC_PORT).then_some(*src_port),
                    dst_port: there(DST_PORT).then_some(*dst_port),
                    direction,
                })
            }
            Self::Other(mri) => mri.with_direction(direction),
        }
    }

    /// Whether `mri`, of either direction, is of this flow. Compares without allocating.
    pub(crate) fn is_of(&self, mri: &Mri) -> bool {
        match self {
            // The packed form has no direction, and comparing 24 octets is fast.
            Self::V4 { .. } => is_packable(mri) && *self == Self::of(mri),
            Self::Other(own) => own.with_direction(mri.direction()) == *mri,
        }
    }

    /// The end of the flow that messages in `direction` travel towards.
    pub(crate) fn target(&self, direction: Direction) -> IpAddr {
        match (self, direction) {
            (Self::V4 { dst, .. }, Direction::Downstream) => IpAddr::V4(Ipv4Addr::from(*dst)),
            (Self::V4 { src, .. }, Direction::Upstream) => IpAddr::V4(Ipv4Addr::from(*src)),
            (Self::Other(mri), direction) => mri.with_direction(direction).target(),
        }
    }
}

/// Whether [`Flow::of`] needs no allocation for it.
fn is_packable(mri: &Mri) -> bool {
    matches!(mri, Mri::PathCoupled(p) if p.src.is_ipv4() && p.dst.is_ipv4() && p.flow_label.is_none())
}

/// The key of the routing state table (RFC 5971 §4.2.1), packed so that it can be hashed at once. It contains every field
/// by which flows differ, so that a peer cannot make many sessions with the same hash.
pub(crate) struct Triple {
    octets: [u8; 72],
    length: usize,
}

impl Triple {
    /// Of a message in either direction.
    pub(crate) fn of(mri: &Mri, session: SessionId, nslp: NslpId) -> Self {
        let mut triple = Self { octets: [0; 72], length: 0 };
        triple.put(session.0);
        triple.put(nslp.0.to_be_bytes());
        match (mri.src(), mri.dst()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                triple.put(src.octets());
                triple.put(dst.octets());
            }
            (src, dst) => {
                triple.put(wide(src));
                triple.put(wide(dst));
            }
        }
        if let Mri::PathCoupled(p) = mri {
            let ports = [p.src_port.unwrap_or(0).to_be_bytes(), p.dst_port.unwrap_or(0).to_be_bytes()];
            let [[a, b], [c, d]] = ports;
            triple.put([a, b, c, d]);
            triple.put([p.protocol.unwrap_or(0), p.dscp.unwrap_or(0), p.src_prefix, p.dst_prefix]);
            triple.put(p.spi.unwrap_or(0).to_be_bytes());
            triple.put(p.flow_label.unwrap_or(0).to_be_bytes());
        }
        triple
    }

    /// 16 + 2 + 32 + 16 octets at most are put: always within the 72.
    fn put<const N: usize>(&mut self, octets: [u8; N]) {
        if let Some(room) = self.octets.get_mut(self.length..self.length + N) {
            room.copy_from_slice(&octets);
        }
        self.length += N;
    }

    pub(crate) fn octets(&self) -> &[u8] {
        self.octets.get(..self.length).unwrap_or_default()
    }
}

fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_keeps_every_field() {
        let mut p = PathCoupled::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        for (protocol, ports) in [(None, None), (Some(17), Some((0, 9))), (Some(0), None)] {
            p.protocol = protocol;
            p.src_port = ports.map(|p| p.0);
            p.dst_port = ports.map(|p| p.1);
            p.dscp = Some(46);
            p.src_prefix = 24;
            let mri = Mri::PathCoupled(p);
            let flow = Flow::of(&mri);
            assert_eq!(flow.mri(Direction::Downstream), mri);
            assert_eq!(flow.mri(Direction::Upstream), mri.inverted());
            assert!(flow.is_of(&mri) && flow.is_of(&mri.inverted()));
        }
        assert!(!Flow::of(&Mri::PathCoupled(p)).is_of(&Mri::PathCoupled(PathCoupled { dscp: Some(0), ..p })));
    }

    /// Flows that differ in ports, protocol or SPI only have different hashes. Otherwise one peer could fill a chain.
    #[test]
    fn the_key_has_every_field_of_a_flow() {
        let p = PathCoupled::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let p = PathCoupled { protocol: Some(17), src_port: Some(1), dst_port: Some(2), ..p };
        let key = |p| Triple::of(&Mri::PathCoupled(p), SessionId::default(), NslpId::PING).octets().to_vec();
        for other in [
            PathCoupled { src_port: Some(2), ..p },
            PathCoupled { dst_port: Some(3), ..p },
            PathCoupled { protocol: Some(6), ..p },
            PathCoupled { spi: Some(7), ..p },
            PathCoupled { dscp: Some(46), ..p },
            PathCoupled { src_prefix: 24, ..p },
        ] {
            assert_ne!(key(p), key(other));
        }
        let upstream = PathCoupled { direction: Direction::Upstream, ..p };
        assert_eq!(key(p), key(upstream));
    }

    #[test]
    fn a_common_flow_takes_24_octets() {
        assert_eq!(size_of::<Flow>(), 24);
    }
}
