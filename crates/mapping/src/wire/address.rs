//! Addresses of 16 octets (RFC 6887 §5).

use core::net::{IpAddr, Ipv6Addr};

/// Reads an address. The IPv4-mapped form is an IPv4 address; all of its first 96 bits decide.
pub(super) fn read(octets: [u8; 16]) -> IpAddr {
    let address = Ipv6Addr::from(octets);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

/// The 16 octets of an address.
pub(super) const fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
