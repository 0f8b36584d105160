//! The key of the routing state table (RFC 5971 §4.2.1).

use core::net::{IpAddr, Ipv4Addr};

use signalbox_core::index::KeyedHasher;
use signalbox_core::{Mri, NslpId, PathCoupled, SessionId};

/// The keyed hash of flow, session and application. It contains every field by which flows differ, so that a peer cannot make
/// many sessions with the same hash.
#[inline]
pub(crate) fn hash(hasher: &KeyedHasher, mri: &Mri, session: SessionId, nslp: NslpId) -> u64 {
    match mri {
        Mri::PathCoupled(p) => match (p.src, p.dst, p.flow_label) {
            (IpAddr::V4(src), IpAddr::V4(dst), None) => {
                hasher.hash_octets(&narrow(p, src, dst, session, nslp))
            }
            _ => hasher.hash_octets(&wide(mri, session, nslp)),
        },
        Mri::LooseEnd(_) => hasher.hash_octets(&wide(mri, session, nslp)),
    }
}

/// Of a path-coupled IPv4 flow, the common case: all places are fixed, which takes half of the instructions of [`wide`].
fn narrow(p: &PathCoupled, src: Ipv4Addr, dst: Ipv4Addr, session: SessionId, nslp: NslpId) -> [u8; 40] {
    let mut octets = [0; 40];
    octets[..16].copy_from_slice(&session.0);
    octets[16..20].copy_from_slice(&src.octets());
    octets[20..24].copy_from_slice(&dst.octets());
    octets[24..26].copy_from_slice(&p.src_port.unwrap_or(0).to_be_bytes());
    octets[26..28].copy_from_slice(&p.dst_port.unwrap_or(0).to_be_bytes());
    let rest = [p.protocol.unwrap_or(0), p.dscp.unwrap_or(0), p.src_prefix, p.dst_prefix];
    octets[28..32].copy_from_slice(&rest);
    octets[32..36].copy_from_slice(&p.spi.unwrap_or(0).to_be_bytes());
    octets[36..38].copy_from_slice(&nslp.0.to_be_bytes());
    octets
}

/// Of any flow.
fn wide(mri: &Mri, session: SessionId, nslp: NslpId) -> [u8; 66] {
    let mut octets = [0; 66];
    octets[..16].copy_from_slice(&session.0);
    octets[16..32].copy_from_slice(&mapped(mri.src()));
    octets[32..48].copy_from_slice(&mapped(mri.dst()));
    octets[48..50].copy_from_slice(&nslp.0.to_be_bytes());
    if let Mri::PathCoupled(p) = mri {
        octets[50..52].copy_from_slice(&p.src_port.unwrap_or(0).to_be_bytes());
        octets[52..54].copy_from_slice(&p.dst_port.unwrap_or(0).to_be_bytes());
        let rest = [p.protocol.unwrap_or(0), p.dscp.unwrap_or(0), p.src_prefix, p.dst_prefix];
        octets[54..58].copy_from_slice(&rest);
        octets[58..62].copy_from_slice(&p.spi.unwrap_or(0).to_be_bytes());
        octets[62..66].copy_from_slice(&p.flow_label.unwrap_or(0).to_be_bytes());
    }
    octets
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

#[cfg(test)]
mod tests {
    use signalbox_core::Direction;

    use super::*;

    /// Flows that differ in ports, protocol or SPI only have different hashes. Otherwise one peer could fill a chain.
    #[test]
    fn the_key_has_every_field_of_a_flow() {
        let hasher = KeyedHasher::with_key([5; 16]);
        let hash = |p| hash(&hasher, &Mri::PathCoupled(p), SessionId::default(), NslpId::PING);
        let ends: [[IpAddr; 2]; 2] = [
            [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
            [[1, 0, 0, 0, 0, 0, 0, 1].into(), [1, 0, 0, 0, 0, 0, 0, 2].into()],
        ];
        for [src, dst] in ends {
            let p = PathCoupled::between(src, dst);
            let p = PathCoupled { protocol: Some(17), src_port: Some(1), dst_port: Some(2), ..p };
            for other in [
                PathCoupled { src: dst, ..p },
                PathCoupled { dst: src, ..p },
                PathCoupled { src_port: Some(2), ..p },
                PathCoupled { dst_port: Some(3), ..p },
                PathCoupled { protocol: Some(6), ..p },
                PathCoupled { spi: Some(7), ..p },
                PathCoupled { dscp: Some(46), ..p },
                PathCoupled { flow_label: Some(1), ..p },
                PathCoupled { src_prefix: 24, ..p },
                PathCoupled { dst_prefix: 24, ..p },
            ] {
                assert_ne!(hash(p), hash(other), "{other:?}");
            }
            let upstream = PathCoupled { direction: Direction::Upstream, ..p };
            assert_eq!(hash(p), hash(upstream));
        }
    }

    #[test]
    fn the_key_has_session_and_application() {
        let hasher = KeyedHasher::with_key([5; 16]);
        for dst in [IpAddr::from([10, 0, 0, 2]), IpAddr::from([1, 0, 0, 0, 0, 0, 0, 2])] {
            let mri = Mri::PathCoupled(PathCoupled::between(dst, dst));
            let hash = |session, nslp| hash(&hasher, &mri, SessionId(session), nslp);
            let one = hash([1; 16], NslpId::PING);
            assert!(one != hash([2; 16], NslpId::PING) && one != hash([1; 16], NslpId::QOS));
        }
    }
}
