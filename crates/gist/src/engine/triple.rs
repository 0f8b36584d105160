//! The key of the routing state table (RFC 5971 §4.2.1).

use core::net::IpAddr;

use signalbox_core::{Mri, NslpId, SessionId};

/// Flow, session and application, packed so that they can be hashed at once. It contains every field by which flows
/// differ, so that a peer cannot make many sessions with the same hash.
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
    use signalbox_core::{Direction, PathCoupled};

    use super::*;

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
}
