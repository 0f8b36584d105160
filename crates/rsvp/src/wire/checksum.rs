//! The checksum of the common header (RFC 2205 §3.1.1).

/// One's complement sum of the octets as 16-bit words, folded; an odd last octet counts as if a zero followed (RFC
/// 1071).
fn sum(octets: &[u8]) -> u16 {
    // Except for its own octet order, the sum does not depend on that of the words (RFC 1071 §2).
    let (words, rest) = octets.as_chunks::<8>();
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    let mut sum = u64::from_ne_bytes(last);
    for word in words {
        let (low, carry) = sum.overflowing_add(u64::from_ne_bytes(*word));
        sum = low + u64::from(carry); // a carry cannot leave all ones
    }
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    u16::from_be(u16::try_from(sum).unwrap_or(u16::MAX))
}

/// The checksum of a message whose checksum field is zero (RFC 2205 §3.1.1). It is never 0, which means "no checksum":
/// 0xFFFF verifies as well.
#[must_use]
pub fn checksum(message: &[u8]) -> u16 {
    match !sum(message) {
        0 => u16::MAX,
        checksum => checksum,
    }
}

/// Whether the checksum of a message is right (RFC 2205 §3.1.1).
#[must_use]
pub fn checksum_is_valid(message: &[u8]) -> bool {
    sum(message) == u16::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_any_length() {
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[1]), 0x0100);
        assert_eq!(sum(&[0xff, 0xff, 0, 1]), 1, "the carry comes round");
        assert_eq!(sum(&[0x12, 0x34, 0x56, 0x78, 0x9a]), 0x02ad);
        for length in 0..40 {
            let octets: Vec<u8> = (0..length).map(|n: u8| n.wrapping_mul(151) | 0x80).collect();
            let mut simple = 0_u32;
            for pair in octets.chunks(2) {
                simple += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
                simple = (simple & 0xffff) + (simple >> 16);
            }
            assert_eq!(u32::from(sum(&octets)), simple, "{length}");
        }
        assert_eq!(sum(&[0xff; 64]), 0xffff);
        // RFC 1071 §3
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn no_message_looks_unsummed() {
        assert_eq!(checksum(&[0xff, 0xff]), 0xffff);
        assert!(checksum_is_valid(&[0xff, 0xff, 0xff, 0xff]));
        assert_eq!(checksum(&[0; 4]), 0xffff);
    }
}
