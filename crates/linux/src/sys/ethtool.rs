//! Interface offloads, by the ioctl that `ethtool -K` uses.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use super::check;

const SIOCETHTOOL: u64 = 0x8946;
// ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM: only the last must succeed.
const OFF: [u32; 4] = [0x1f, 0x24, 0x2c, 0x17];

#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Switches segmentation, aggregation and transmit checksum offload of `interface` off.
pub(crate) fn disable_offload(interface: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut last = Ok(());
    for command in OFF {
        last = set(&socket, interface, command);
    }
    last
}

fn set(socket: &Socket, interface: &str, command: u32) -> io::Result<()> {
    let mut value = Value { command, data: 0 };
    // SAFETY: ifreq is a plain C struct for which all-zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names the interface by a NUL-terminated string and points to a live ethtool_value,
    // which is what these commands read and write.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    check(result).map(drop)
}
