//! Flows as the table of them has them.

use core::hash::{Hash, Hasher};
use core::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::traffic::FlowFilter;

/// A flow at an interface. Its parts are packed before they are hashed: a third of the work of hashing each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow(pub(super) IfIndex, pub(super) FlowFilter);

impl Hash for Flow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self(ifindex, filter) = self;
        let address = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let mut packed = [0; 56];
        let (src, rest) = packed.split_at_mut(16);
        src.copy_from_slice(&address(filter.src.addr).to_ne_bytes());
        let (dst, rest) = rest.split_at_mut(16);
        dst.copy_from_slice(&address(filter.dst.addr).to_ne_bytes());
        // What is not given and what is 0 may hash alike; they do not compare alike.
        let ports = u64::from(filter.src_port.unwrap_or(0)) << 16 | u64::from(filter.dst_port.unwrap_or(0));
        let kind = u64::from(filter.protocol.unwrap_or(0)) << 8 | u64::from(filter.dscp.unwrap_or(0));
        let masks = u64::from(filter.src.len) << 8 | u64::from(filter.dst.len);
        let others = u64::from(filter.flow_label.unwrap_or(0)) << 32 | u64::from(filter.spi.unwrap_or(0));
        let words = [u64::from(ifindex.0) << 32 | ports, kind << 16 | masks, others];
        for (place, word) in rest.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        state.write(&packed);
    }
}
