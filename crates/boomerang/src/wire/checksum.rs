//! The checksum of the ICMP message (RFC 792, RFC 4443 §2.3).

use core::net::IpAddr;

/// IP protocol number of ICMPv6, a part of its pseudo-header.
const ICMPV6: u8 = 58;

/// The two addresses of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Source address of the packet.
    pub src: IpAddr,
    /// Destination address of the packet.
    pub dst: IpAddr,
}

impl Ends {
    /// Whether the packet is an IPv6 packet.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.dst.is_ipv6()
    }
}

/// One's complement sum of the octets as 16-bit words (RFC 1071).
fn sum(start: u64, octets: &[u8]) -> u64 {
    let (words, rest) = octets.as_chunks::<4>();
    let mut sum = start;
    for word in words {
        sum += u64::from(u32::from_be_bytes(*word));
    }
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    sum + u64::from(u32::from_be_bytes(last))
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

// BOOM-G29-01
fn total(ends: &Ends, message: &[u8]) -> u16 {
    let start = match (ends.src, ends.dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let length = u64::try_from(message.len()).unwrap_or(u64::MAX) & 0xffff_ffff;
            sum(sum(length + u64::from(ICMPV6), &src.octets()), &dst.octets())
        }
        _ => 0,
    };
    folded(sum(start, message))
}

/// The checksum of an ICMP message whose checksum field is zero.
#[must_use]
pub fn checksum(ends: &Ends, message: &[u8]) -> u16 {
    !total(ends, message)
}

/// Whether the checksum of an ICMP message is correct.
#[must_use]
pub fn checksum_is_valid(ends: &Ends, message: &[u8]) -> bool {
    total(ends, message) == u16::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: Ends = Ends {
        src: IpAddr::V4(core::net::Ipv4Addr::LOCALHOST),
        dst: IpAddr::V4(core::net::Ipv4Addr::LOCALHOST),
    };

    #[test]
    fn sums_of_any_length_are_those_of_the_simple_way() {
        for length in 0..40 {
            let octets: Vec<u8> = (0..length).map(|n: u8| n.wrapping_mul(151) | 0x80).collect();
            let mut simple = 0_u32;
            for pair in octets.chunks(2) {
                simple += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
                simple = (simple & 0xffff) + (simple >> 16);
            }
            assert_eq!(u32::from(total(&V4, &octets)), simple, "{length}");
        }
        // RFC 1071 §3
        assert_eq!(total(&V4, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    /// BOOM-G29-01: the checksum of ICMPv6 has a pseudo-header.
    #[test]
    fn the_addresses_belong_to_the_sum_with_ipv6_only() {
        let ends = |src: &str| Ends { src: src.parse().unwrap(), dst: "2001:db8::2".parse().unwrap() };
        let message = [128, 0, 0, 0, 0x12, 0x34, 0, 1];
        // 2001+0db8+0001 + 2001+0db8+0002 + 0008 + 003a + 8000+1234+0001
        assert_eq!(total(&ends("2001:db8::1"), &message), 0xedec);
        assert_ne!(total(&ends("2001:db8::3"), &message), 0xedec);
    }
}
