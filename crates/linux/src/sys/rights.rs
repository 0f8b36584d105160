//! Descriptors that go from one process to another over a Unix socket (SCM_RIGHTS, unix(7)).

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::cmsg;

/// Most descriptors in one message.
const MOST: usize = 16;
/// Octets of a descriptor in a control message.
const EACH: usize = size_of::<RawFd>();

/// Sends `octets`, which are not empty, as one message with `descriptors`.
pub(crate) fn send_rights(socket: &impl AsRawFd, octets: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let data: Vec<u8> = descriptors.iter().flat_map(|fd| fd.to_ne_bytes()).collect();
    let mut control = Vec::new();
    if !data.is_empty() {
        cmsg::push(&mut control, libc::SOL_SOCKET, libc::SCM_RIGHTS, &data);
    }
    let mut vector = libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    // SAFETY: a plain C structure, for which all-zero is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = control.len() as _;
    // SAFETY: `header` names one live vector and a live control buffer, each with its length, which the kernel only reads.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads one message into `buffer`. The result is its length, 0 at the end of the connection, and its descriptors.
pub(crate) fn receive_rights(socket: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    // usize, for its alignment.
    let mut control = vec![0_usize; cmsg::space(MOST * EACH).div_ceil(size_of::<usize>())];
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a plain C structure, for which all-zero is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(control.as_slice()) as _;
    // SAFETY: `header` names one live vector and a live, aligned control buffer, each with its length.
    let read = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    #[allow(clippy::unnecessary_cast)] // a different type with musl
    let length = header.msg_controllen as usize;
    let octets: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).take(length).collect();
    let rights = cmsg::Messages(&octets)
        .filter(|(level, kind, _)| (*level, *kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS))
        .flat_map(|(_, _, data)| data.chunks_exact(EACH));
    let numbers = rights.filter_map(|fd| fd.first_chunk().copied().map(RawFd::from_ne_bytes));
    // SAFETY: the kernel has just made these descriptors for this message, and nothing else has them.
    let descriptors = numbers.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect();
    if header.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is too long"));
    }
    Ok((read, descriptors))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn a_descriptor_works_at_the_other_end() {
        let (near, far) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        send_rights(&near, b"one", &[theirs.as_raw_fd()]).unwrap();
        send_rights(&near, b"none", &[]).unwrap();
        drop((near, theirs));
        let mut buffer = [0; 8];
        let (length, mut descriptors) = receive_rights(&far, &mut buffer).unwrap();
        assert_eq!((&buffer[..length], descriptors.len()), (&b"one"[..], 1));
        UnixStream::from(descriptors.remove(0)).write_all(b"hello").unwrap();
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        let (length, descriptors) = receive_rights(&far, &mut buffer).unwrap();
        assert_eq!((length, descriptors.len()), (4, 0));
        assert_eq!(receive_rights(&far, &mut buffer).unwrap().0, 0);
    }
}
