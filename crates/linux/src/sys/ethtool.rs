//! Offloads and speeds of interfaces, by the ioctl that `ethtool` uses.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use super::check;

/// SIOCETHTOOL.
pub(crate) const REQUEST: u64 = 0x8946;
// ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM: only the last must succeed.
const OFF: [u32; 4] = [0x1f, 0x24, 0x2c, 0x17];

/// ETHTOOL_GSET.
const GET_SETTINGS: u32 = 1;
/// The speed of a link that has none, or does not know it.
const UNKNOWN: u32 = u32::MAX;

/// `struct ethtool_cmd`.
#[repr(C)]
#[derive(Default)]
struct Settings {
    command: u32,
    modes: [u32; 2],
    speed: u16,
    link: [u8; 6],
    packets: [u32; 2],
    speed_high: u16,
    crossover: [u8; 2],
    partner: u32,
    reserved: [u32; 2],
}

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

/// The speed of `interface`, in octets a second; `None` if it is not known.
pub(crate) fn speed(interface: &str) -> io::Result<Option<u64>> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut settings = Settings { command: GET_SETTINGS, ..Settings::default() };
    request(&socket, interface, (&raw mut settings).cast())?;
    let megabits = u32::from(settings.speed_high) << 16 | u32::from(settings.speed);
    Ok((megabits != 0 && megabits != UNKNOWN).then_some(u64::from(megabits) * 125_000))
}

fn set(socket: &Socket, interface: &str, command: u32) -> io::Result<()> {
    let mut value = Value { command, data: 0 };
    request(socket, interface, (&raw mut value).cast())
}

/// Makes a request, whose structure of the kernel begins at `data`.
fn request(socket: &Socket, interface: &str, data: *mut libc::c_char) -> io::Result<()> {
    // SAFETY: ifreq is a plain C struct for which all-zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = data;
    // SAFETY: the request names the interface by a NUL-terminated string and points to the live structure that begins
    // with its command, which is what the command reads and writes.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), REQUEST as _, &raw mut request) };
    check(result).map(drop)
}
