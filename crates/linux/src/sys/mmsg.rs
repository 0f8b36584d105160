//! Many datagrams per system call: `recvmmsg` into reused buffers, `sendmmsg` from borrowed slices.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};

use super::check;

/// Most datagrams in one call: more gains nothing (see design notes on batch sizes).
pub(crate) const BATCH: usize = 64;

/// Least slots that are prepared for a call: a node without load receives fewer.
const PREPARED: usize = 8;

/// Octets for the sender's address: `sockaddr_in6` and `sockaddr_ll` both fit.
const NAME: usize = 32;

/// Buffers for up to [`BATCH`] datagrams with their control messages.
pub(crate) struct Buffers {
    payload: Vec<u8>,
    control: Vec<usize>, // usize, for its alignment
    names: Vec<[u8; NAME]>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    payload_size: usize,
    control_size: usize,
    /// Slots that the next call prepares at first.
    prepared: usize,
}

// SAFETY: the pointers inside are set and used within one call that borrows the value; between calls nothing
// reads them.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Allocates buffers for [`BATCH`] datagrams of `payload_size` octets with `control_size` octets of control
    /// messages each. Pages that no datagram has touched stay unmapped.
    pub(crate) fn new(payload_size: usize, control_size: usize) -> Self {
        let control_size = control_size.next_multiple_of(size_of::<usize>());
        // SAFETY: mmsghdr is a plain C struct for which all-zero is a valid value.
        let empty: libc::mmsghdr = unsafe { std::mem::zeroed() };
        let nowhere = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            payload: vec![0; payload_size * BATCH],
            control: vec![0; control_size / size_of::<usize>() * BATCH],
            names: vec![[0; NAME]; BATCH],
            vectors: vec![nowhere; BATCH],
            headers: vec![empty; BATCH],
            payload_size,
            control_size,
            prepared: PREPARED,
        }
    }

    /// Receives the datagrams that wait at `fd` into the slots from `first` on, without waiting for more. Returns their
    /// number, 0 if no datagram waits.
    ///
    /// It prepares as many slots as the last call needed, not all: these are 5 kB, which a process that has slept does not find in
    /// the processor's caches. If they are not enough, it prepares twice as many.
    pub(crate) fn receive(&mut self, fd: &impl AsRawFd, first: usize) -> io::Result<usize> {
        let mut next = first;
        while next < BATCH {
            let count = match self.receive_some(fd, next) {
                // The socket reports the error again if it lasts.
                Err(_) if next > first => 0,
                result => result?,
            };
            next += count;
            if count < self.prepared {
                break;
            }
            self.prepared = (self.prepared * 2).min(BATCH);
        }
        let received = next.saturating_sub(first);
        self.prepared = (received + 1).next_power_of_two().clamp(PREPARED, BATCH);
        Ok(received)
    }

    /// Receives into as many slots as are prepared, at most.
    fn receive_some(&mut self, fd: &impl AsRawFd, first: usize) -> io::Result<usize> {
        let mut count = 0;
        let slots = self
            .payload
            .chunks_exact_mut(self.payload_size)
            .zip(self.control.chunks_exact_mut(self.control_size / size_of::<usize>()))
            .zip(self.names.iter_mut().zip(&mut self.vectors))
            .zip(&mut self.headers);
        for (((payload, control), (name, vector)), header) in slots.skip(first).take(self.prepared) {
            vector.iov_base = payload.as_mut_ptr().cast();
            vector.iov_len = payload.len();
            let header = &mut header.msg_hdr;
            header.msg_name = name.as_mut_ptr().cast();
            header.msg_namelen = NAME as libc::socklen_t;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = self.control_size as _;
            header.msg_flags = 0;
            count += 1;
        }
        let Some(headers) = self.headers.get_mut(first..).filter(|_| count > 0) else { return Ok(0) };
        // SAFETY: the `count` headers were just pointed to distinct buffers of the lengths they state, all owned
        // by self and live; no timeout is given.
        let result = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        match check(result) {
            Ok(count) => Ok(count.unsigned_abs() as usize),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            },
        }
    }

    /// The datagram in `slot`, which is valid only if the last [`Self::receive`] filled that slot.
    pub(crate) fn get(&self, slot: usize) -> Option<Datagram<'_>> {
        let header = self.headers.get(slot)?;
        let payload = self.payload.get(slot * self.payload_size..(slot + 1) * self.payload_size)?;
        let words = self.control_size / size_of::<usize>();
        let control = self.control.get(slot * words..(slot + 1) * words)?;
        // SAFETY: the same memory seen as octets: every octet of a usize is initialised and u8 has no
        // alignment.
        let control = unsafe { std::slice::from_raw_parts(control.as_ptr().cast::<u8>(), self.control_size) };
        #[allow(clippy::unnecessary_cast)] // a different type with musl
        let control_length = header.msg_hdr.msg_controllen as usize;
        Some(Datagram {
            name: self.names.get(slot)?.get(..header.msg_hdr.msg_namelen as usize)?,
            payload: payload.get(..(header.msg_len as usize).min(self.payload_size))?,
            control: control.get(..control_length)?,
            flags: header.msg_hdr.msg_flags,
        })
    }
}

/// A received datagram in its buffers.
pub(crate) struct Datagram<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) payload: &'a [u8],
    pub(crate) control: &'a [u8],
    pub(crate) flags: i32,
}

impl Datagram<'_> {
    /// Whether something did not fit: payload and control messages may be incomplete.
    pub(crate) fn truncated(&self) -> bool {
        self.flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0
    }
}

/// A datagram to send.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) payload: &'a [u8],
    pub(crate) control: &'a [u8],
}

/// Sends the first [`BATCH`] of `datagrams` without waiting and returns the number sent, at least one. An error
/// concerns the first datagram.
pub(crate) fn send<'a>(fd: RawFd, datagrams: impl Iterator<Item = Outgoing<'a>>) -> io::Result<usize> {
    // Only what is used is written: 64 headers are 5 kB, and most calls send few packets.
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
    let mut count = 0;
    for ((header, vector), datagram) in headers.iter_mut().zip(&mut vectors).zip(datagrams) {
        let vector = vector.write(libc::iovec {
            iov_base: datagram.payload.as_ptr().cast_mut().cast(),
            iov_len: datagram.payload.len(),
        });
        // SAFETY: a plain C struct for which all-zero is a valid value.
        let header = &mut header.write(unsafe { std::mem::zeroed() }).msg_hdr;
        header.msg_name = datagram.name.as_ptr().cast_mut().cast();
        header.msg_namelen = datagram.name.len() as libc::socklen_t;
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        if !datagram.control.is_empty() {
            header.msg_control = datagram.control.as_ptr().cast_mut().cast();
            header.msg_controllen = datagram.control.len() as _;
        }
        count += 1;
    }
    // SAFETY: the first `count` headers were written. They point to slices and vectors that live until the call returns,
    // with their lengths; the kernel only reads through them (and writes msg_len, in `headers`).
    let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr().cast(), count, libc::MSG_DONTWAIT as _) };
    check(sent).map(|sent| sent.unsigned_abs() as usize)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn one_receive_takes_all_that_waits_whatever_the_last_one_took() {
        let (to, from) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        let mut buffers = Buffers::new(64, 64);
        for (first, count) in [(0, 1), (0, 8), (0, 64), (0, 3), (5, 20), (0, 9), (60, 4), (64, 0)] {
            let octets: Vec<[u8; 1]> = (0..count).map(|number| [number]).collect();
            let each = octets.iter().map(|payload| Outgoing { name: &[], payload, control: &[] });
            let sent = if count == 0 { 0 } else { send(from.as_raw_fd(), each).unwrap() };
            assert_eq!(sent, usize::from(count));
            assert_eq!(buffers.receive(&to, first).unwrap(), sent, "{count} from {first} on");
            for (slot, payload) in (first..).zip(&octets) {
                assert_eq!(buffers.get(slot).unwrap().payload, payload);
            }
            if first + sent < BATCH {
                assert_eq!(buffers.receive(&to, first).unwrap(), 0, "nothing waits");
            }
        }
    }

    #[test]
    fn what_does_not_fit_waits_for_the_next_receive() {
        let (to, from) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        let mut buffers = Buffers::new(64, 64);
        (0..BATCH + 6).for_each(|_| assert_eq!(from.send(&[7]).unwrap(), 1));
        assert_eq!(buffers.receive(&to, 60).unwrap(), 4);
        assert_eq!(buffers.receive(&to, 0).unwrap(), BATCH);
        assert_eq!(buffers.receive(&to, 0).unwrap(), 2);
    }
}
