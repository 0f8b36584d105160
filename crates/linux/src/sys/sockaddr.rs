//! Socket addresses as the kernel lays them out in memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Octets of the longest supported address (`sockaddr_in6`).
pub(crate) const MAX: usize = 28;

/// Writes `addr` as `sockaddr_in` or `sockaddr_in6`; the second value is its length.
pub(crate) fn encode(addr: SocketAddr) -> ([u8; MAX], usize) {
    let mut octets = [0; MAX];
    octets[2..4].copy_from_slice(&addr.port().to_be_bytes());
    match addr {
        SocketAddr::V4(v4) => {
            octets[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            octets[4..8].copy_from_slice(&v4.ip().octets());
            (octets, 16)
        }
        SocketAddr::V6(v6) => {
            octets[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            octets[8..24].copy_from_slice(&v6.ip().octets());
            octets[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            (octets, 28)
        }
    }
}

/// Reads a `sockaddr_in` or `sockaddr_in6`. The scope of an IPv6 address is left out: control messages give the
/// interface, and protocols compare addresses without a scope.
pub(crate) fn decode(octets: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = octets.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let port = u16::from_be_bytes(*port);
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(*rest.first_chunk::<4>()?);
            Some(SocketAddr::V4(SocketAddrV4::new(ip, port)))
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(*rest.get(4..)?.first_chunk::<16>()?);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, 0)))
        }
        _ => None,
    }
}

/// The address in `octets` (4 or 16 of them).
pub(crate) fn ip(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => octets.first_chunk::<4>().map(|a| IpAddr::from(*a)),
        16 => octets.first_chunk::<16>().map(|a| IpAddr::from(*a)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_survive_the_way_there_and_back() {
        for addr in ["192.0.2.7:270", "[2001:db8::7]:271"] {
            let addr: SocketAddr = addr.parse().unwrap();
            let (octets, length) = encode(addr);
            assert_eq!(decode(&octets[..length]), Some(addr));
            assert_eq!(decode(&octets[..7]), None);
        }
    }
}
