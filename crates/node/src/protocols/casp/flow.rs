//! The flow that a user means, as a flow identifier.

use core::net::IpAddr;

use signalbox_casp::wire::FlowId;

/// The flow between two hosts. Zero stands for a port or protocol that is not given. `None`: the addresses are of different
/// versions of IP.
pub(super) fn between(
    src: IpAddr,
    dst: IpAddr,
    protocol: Option<u8>,
    ports: [Option<u16>; 2],
) -> Option<FlowId> {
    let [src_port, dst_port] = ports.map(Option::unwrap_or_default);
    let with_ports = protocol.is_some() || ports != [None, None];
    let protocol = protocol.unwrap_or(0);
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            Some(FlowId::V4Ports { src, dst, src_port, dst_port, protocol })
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) if with_ports => {
            Some(FlowId::V6Ports { src, dst, src_port, dst_port, protocol })
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some(FlowId::V6Label { src, dst, label: 0 }),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
    }
}
