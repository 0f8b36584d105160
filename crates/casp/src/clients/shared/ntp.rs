//! NTP timestamps (RFC 1305) in messages of clients.

/// Seconds from 1900 to 1970.
const OFFSET: u64 = 2_208_988_800;

/// Microseconds since 1970 as a timestamp.
pub(in crate::clients) const fn stamp(us: u64) -> u64 {
    let seconds = (us / 1_000_000).wrapping_add(OFFSET);
    (seconds << 32) | (((us % 1_000_000) << 32) / 1_000_000)
}

/// Microseconds since 1970 of a timestamp; `None`: it is before.
pub(in crate::clients) fn micros(stamp: u64) -> Option<u64> {
    let seconds = (stamp >> 32).checked_sub(OFFSET)?;
    Some(seconds * 1_000_000 + (((stamp & 0xffff_ffff) * 1_000_000) >> 32))
}
