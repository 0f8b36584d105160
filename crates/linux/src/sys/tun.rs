//! TUN devices.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::check;

/// TUNSETIFF.
const SET_INTERFACE: u64 = 0x4004_54ca;

/// Makes a TUN device of this name in the network namespace of the calling thread. Each read is a packet that is routed to
/// it, and each write a packet that comes in by it. The device ends with the file.
pub(crate) fn open(name: &str) -> io::Result<File> {
    let mut options = File::options();
    let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: ifreq is a plain C struct for which all-zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is a live ifreq with a NUL-terminated name and the flags, which the command reads and writes.
    check(unsafe { libc::ioctl(file.as_raw_fd(), SET_INTERFACE as _, &raw mut request) })?;
    Ok(file)
}
