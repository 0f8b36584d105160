//! Filters as the kernel looks them up: a shape is the mask of the compared bits of a packet, a key is their value.
//!
//! The classifier looks a packet up once for each shape in use, the most specific first. All filters of one shape
//! together cost one lookup. The limit on wildcards is therefore the number of shapes, not of filters.

use std::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;

/// Octets of `struct key` in `bpf/traffic.c`.
pub(super) const KEY: usize = 48;
/// Most shapes in use at a time, per link and IP version.
pub(super) const SHAPES: usize = 16;

/// Offset of the shape's number in a key.
const SHAPE: usize = 46;

/// The mask of the compared bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Shape([u8; KEY]);

/// The value of the compared bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; KEY]);

/// Shape and key of a filter; `None` if the filter identifies no packet.
pub(super) fn encode(filter: &FlowFilter) -> Option<(Shape, Key)> {
    let FlowFilter { src, dst, protocol, src_port, dst_port, dscp, flow_label, spi } = *filter;
    let is_ipv4 = filter.is_ipv4();
    let mixed = src.addr.is_ipv4() != dst.addr.is_ipv4();
    // Port 0 stands for a port that is not known yet (RFC 5971 A.3.1.1).
    let no_port = src_port == Some(0) || dst_port == Some(0);
    let wide = dscp.is_some_and(|dscp| dscp > 0x3f) || flow_label.is_some_and(|label| label > 0xf_ffff);
    if mixed || no_port || wide || (is_ipv4 && flow_label.is_some()) {
        return None;
    }
    let (mut shape, mut key) = ([0; KEY], [0; KEY]);
    prefix(&mut shape, &mut key, 0, src);
    prefix(&mut shape, &mut key, 16, dst);
    put(&mut shape, &mut key, 32, flow_label.map(u32::to_ne_bytes));
    put(&mut shape, &mut key, 36, spi.map(u32::to_be_bytes));
    put(&mut shape, &mut key, 40, src_port.map(u16::to_be_bytes));
    put(&mut shape, &mut key, 42, dst_port.map(u16::to_be_bytes));
    put(&mut shape, &mut key, 44, protocol.map(|protocol| [protocol]));
    put(&mut shape, &mut key, 45, dscp.map(|dscp| [dscp]));
    Some((Shape(shape), Key(key)))
}

impl Shape {
    /// The number of compared bits: more bits are more specific.
    pub(super) fn specificity(&self) -> u32 {
        self.0.iter().map(|octet| octet.count_ones()).sum()
    }

    /// The shape in the kernel's form, with its number.
    pub(super) fn numbered(mut self, number: u8) -> [u8; KEY] {
        self.0[SHAPE] = number;
        self.0
    }
}

impl Key {
    /// The key in the kernel's form, with the number of its shape.
    pub(super) fn numbered(mut self, number: u8) -> [u8; KEY] {
        self.0[SHAPE] = number;
        self.0
    }
}

fn prefix(shape: &mut [u8; KEY], key: &mut [u8; KEY], at: usize, prefix: Prefix) {
    let (mut mask, mut octets) = ([0; 16], [0; 16]);
    match prefix.addr {
        IpAddr::V4(v4) => {
            let bits = u32::MAX.checked_shl(32 - u32::from(prefix.len.min(32))).unwrap_or(0);
            mask[..4].copy_from_slice(&bits.to_be_bytes());
            octets[..4].copy_from_slice(&(v4.to_bits() & bits).to_be_bytes());
        }
        IpAddr::V6(v6) => {
            let bits = u128::MAX.checked_shl(128 - u32::from(prefix.len.min(128))).unwrap_or(0);
            mask = bits.to_be_bytes();
            octets = (v6.to_bits() & bits).to_be_bytes();
        }
    }
    for (to, from) in key.iter_mut().skip(at).zip(octets) {
        *to = from;
    }
    for (to, from) in shape.iter_mut().skip(at).zip(mask) {
        *to = from;
    }
}

fn put<const N: usize>(shape: &mut [u8; KEY], key: &mut [u8; KEY], at: usize, value: Option<[u8; N]>) {
    let Some(value) = value else { return };
    for ((mask, octet), wanted) in shape.iter_mut().zip(key).skip(at).zip(value) {
        (*mask, *octet) = (0xff, wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(src: &str, dst: &str) -> FlowFilter {
        let prefix = |text: &str| {
            let (addr, len) = text.split_once('/').unwrap();
            Prefix { addr: addr.parse().unwrap(), len: len.parse().unwrap() }
        };
        FlowFilter::between(prefix(src), prefix(dst))
    }

    #[test]
    fn bits_beyond_a_prefix_do_not_count() {
        let (shape, key) = encode(&filter("10.1.2.3/16", "10.2.3.4/32")).unwrap();
        let same = encode(&filter("10.1.9.9/16", "10.2.3.4/32")).unwrap();
        assert_eq!((shape, key), same);
        assert_eq!(key.0[..4], [10, 1, 0, 0]);
        assert_eq!((&shape.0[..4], &shape.0[4..16]), (&[255, 255, 0, 0][..], &[0; 12][..]));
        assert_eq!(shape.specificity(), 48);
        let (all, _) = encode(&filter("::/0", "fd00::1/128")).unwrap();
        assert_eq!(all.specificity(), 128);
    }

    #[test]
    fn each_field_counts_where_it_is_given() {
        let base = filter("fd00::/64", "fd01::1/128");
        let full = FlowFilter {
            protocol: Some(17),
            src_port: Some(0x1234),
            dst_port: Some(5004),
            dscp: Some(46),
            flow_label: Some(0xf_1234),
            spi: Some(9),
            ..base
        };
        let (shape, key) = encode(&full).unwrap();
        assert_eq!(shape.specificity(), 64 + 128 + 8 + 16 + 16 + 8 + 32 + 32);
        assert_eq!(key.0[40..46], [0x12, 0x34, 0x13, 0x8c, 17, 46]);
        assert_eq!(key.0[36..40], [0, 0, 0, 9]);
        assert_eq!((key.numbered(3)[SHAPE], shape.numbered(4)[SHAPE]), (3, 4));
    }

    /// RSVPX-2207-4-06: all 32 bits of an SPI are compared, beside the protocol and without ports.
    #[test]
    fn an_spi_takes_the_place_of_ports() {
        let spi =
            |spi| FlowFilter { protocol: Some(50), spi: Some(spi), ..filter("10.0.0.0/8", "10.0.0.1/32") };
        let (shape, key) = encode(&spi(0x1234_5678)).unwrap();
        assert_eq!((&key.0[36..40], &shape.0[36..40]), (&[0x12, 0x34, 0x56, 0x78][..], &[0xff; 4][..]));
        assert_eq!((&shape.0[40..44], key.0[44]), (&[0; 4][..], 50));
        assert_ne!(encode(&spi(0x1234_5679)).unwrap().1, key);
    }

    #[test]
    fn what_no_packet_can_match_is_refused() {
        let v4 = filter("10.0.0.0/8", "10.0.0.1/32");
        assert!(encode(&FlowFilter { flow_label: Some(1), ..v4 }).is_none());
        assert!(encode(&FlowFilter { dst_port: Some(0), ..v4 }).is_none());
        assert!(encode(&FlowFilter { dscp: Some(64), ..v4 }).is_none());
        assert!(encode(&filter("10.0.0.0/8", "fd00::/64")).is_none());
    }
}
