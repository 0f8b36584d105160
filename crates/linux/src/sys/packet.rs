//! AF_PACKET sockets.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::check;

/// Offset of the packet type in a `sockaddr_ll`.
const PACKET_TYPE: usize = 10;

/// Binds the socket to the interface `index`, whose frames it receives from now on.
pub(crate) fn bind(socket: &impl AsRawFd, index: u32) -> io::Result<()> {
    // SAFETY: sockaddr_ll is a plain C struct for which all-zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.cast_signed();
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is a live sockaddr_ll and `length` its size.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
}

/// The `sockaddr_ll` to which a packet of the network layer is sent by the interface `index`, with link-layer addresses of zeros.
pub(crate) fn address(index: u32, protocol: libc::c_int) -> [u8; 20] {
    let mut address = [0; 20];
    address[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&(protocol as u16).to_be_bytes());
    address[4..8].copy_from_slice(&index.to_ne_bytes());
    // The length of an Ethernet address, which the last octets have.
    address[11] = 6;
    address
}

/// Receives frames to other stations, too, for as long as the socket lives.
pub(crate) fn promiscuous(socket: &impl AsRawFd, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let length = size_of::<libc::packet_mreq>() as libc::socklen_t;
    // SAFETY: `request` is a live packet_mreq and `length` its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            length,
        )
    };
    check(result).map(drop)
}

/// Whether this end sent the frame with this `sockaddr_ll`.
pub(crate) fn is_outgoing(name: &[u8]) -> bool {
    name.get(PACKET_TYPE) == Some(&libc::PACKET_OUTGOING)
}

/// The time in a `timespec`.
pub(crate) fn timespec(data: &[u8]) -> Option<Duration> {
    let (seconds, rest) = data.split_first_chunk::<{ size_of::<libc::time_t>() }>()?;
    let nanoseconds = rest.first_chunk::<{ size_of::<libc::c_long>() }>()?;
    let seconds = u64::try_from(libc::time_t::from_ne_bytes(*seconds)).ok()?;
    let nanoseconds = u32::try_from(libc::c_long::from_ne_bytes(*nanoseconds)).ok()?;
    Some(Duration::new(seconds, nanoseconds))
}
