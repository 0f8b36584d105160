//! Messages that wait for the kernel to take them, for SCTP associations of the kernel (RFC 6458).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use super::outgoing::KEPT;
use crate::sys::mmsg::{self, BATCH, Outgoing};
use crate::sys::{cmsg, is_full};

/// Octets of one message's control messages: its stream and its lifetime.
const CONTROL: usize = cmsg::space(SEND_INFO) + cmsg::space(RELIABILITY);
/// `struct sctp_sndinfo`: stream, flags, payload protocol (RFC 6084: none is assigned), context, association.
const SEND_INFO: usize = 16;
/// `struct sctp_prinfo`: policy, value.
const RELIABILITY: usize = 8;

struct Entry {
    octets: usize,
    sctp_stream: u16,
    /// Time at which the message is abandoned.
    until: Option<Instant>,
}

/// A queue of messages whose octets are contiguous.
#[derive(Default)]
pub(super) struct Messages {
    octets: Vec<u8>,
    /// Number of octets at the front that are gone.
    start: usize,
    entries: VecDeque<Entry>,
    /// Streams that the association has in both directions; set when it is up, and not 0 then.
    streams: u16,
    /// Whether a message was passed to the kernel.
    pub(super) began: bool,
}

impl Messages {
    pub(super) const fn len(&self) -> usize {
        self.octets.len() - self.start
    }

    pub(super) const fn set_streams(&mut self, streams: u16) {
        self.streams = streams;
    }

    pub(super) fn push(&mut self, (sctp_stream, lifetime): (u16, Option<Duration>), message: &[u8]) {
        // Moving the rest costs no more than the octets that are gone have cost already.
        if self.start > self.len() {
            self.octets.drain(..self.start);
            self.start = 0;
        }
        self.octets.extend_from_slice(message);
        let until = lifetime.and_then(|lifetime| Instant::now().checked_add(lifetime));
        self.entries.push_back(Entry { octets: message.len(), sctp_stream, until });
    }

    /// Passes messages to the kernel until it accepts no more, which is no error.
    pub(super) fn write_to(&mut self, socket: &impl AsRawFd) -> io::Result<()> {
        let result = loop {
            if self.entries.is_empty() {
                break Ok(());
            }
            match self.write_batch(socket.as_raw_fd()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_full(&error) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if self.len() == 0 {
            self.octets.clear();
            self.start = 0;
            self.octets.shrink_to(KEPT);
        }
        result
    }

    fn write_batch(&mut self, fd: RawFd) -> io::Result<()> {
        let now = Instant::now();
        while let Some(entry) = self.entries.front().filter(|entry| entry.until.is_some_and(|at| at <= now)) {
            self.start += entry.octets;
            self.entries.pop_front();
        }
        let mut control = Vec::with_capacity(BATCH.min(self.entries.len()) * CONTROL);
        let mut pieces = Vec::with_capacity(BATCH.min(self.entries.len()));
        let mut at = self.start;
        for entry in self.entries.iter().take(BATCH) {
            let from = control.len();
            push_control(
                &mut control,
                entry.sctp_stream.checked_rem(self.streams).unwrap_or(0),
                entry.until,
                now,
            );
            pieces.push((from..control.len(), at..at + entry.octets));
            at += entry.octets;
        }
        if pieces.is_empty() {
            return Ok(());
        }
        let (control, octets) = (&control, &self.octets);
        let outgoing = pieces.into_iter().map(|(control_at, octets_at)| Outgoing {
            name: &[],
            control: control.get(control_at).unwrap_or(&[]),
            payload: octets.get(octets_at).unwrap_or(&[]),
        });
        let taken = mmsg::send(fd, outgoing)?;
        self.began = true;
        for entry in self.entries.drain(..taken.min(self.entries.len())) {
            self.start += entry.octets;
        }
        Ok(())
    }
}

fn push_control(control: &mut Vec<u8>, stream: u16, until: Option<Instant>, now: Instant) {
    let mut info = [0; SEND_INFO];
    info[..2].copy_from_slice(&stream.to_ne_bytes());
    cmsg::push(control, libc::IPPROTO_SCTP, libc::SCTP_SNDINFO, &info);
    if let Some(until) = until {
        let left = u32::try_from(until.duration_since(now).as_millis()).unwrap_or(u32::MAX);
        let mut reliability = [0; RELIABILITY];
        reliability[..2].copy_from_slice(&(libc::SCTP_PR_SCTP_TTL as u16).to_ne_bytes());
        reliability[4..].copy_from_slice(&left.max(1).to_ne_bytes());
        cmsg::push(control, libc::IPPROTO_SCTP, libc::SCTP_PRINFO, &reliability);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// A datagram socket keeps messages apart as SCTP does, but has no SCTP control messages: the kernel ignores those
    /// of another level.
    #[test]
    fn messages_stay_apart_and_in_order() {
        let (a, b) = UnixDatagram::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        let mut messages = Messages::default();
        messages.set_streams(3);
        let mut received = 0_u32;
        let mut receive_all = || {
            let mut octets = [0; 64];
            while let Ok(count) = b.recv(&mut octets) {
                assert_eq!(count, 4 + (received as usize % 7));
                assert_eq!(octets[..4], received.to_be_bytes());
                received += 1;
            }
            received
        };
        for number in 0..1000_u32 {
            let mut message = number.to_be_bytes().to_vec();
            message.resize(4 + (number as usize % 7), 0);
            messages.push(((number % 5) as u16, None), &message);
            if number % 10 == 0 {
                messages.write_to(&a).unwrap();
                receive_all();
            }
        }
        while messages.len() > 0 {
            messages.write_to(&a).unwrap();
            receive_all();
        }
        assert_eq!(receive_all(), 1000);
        assert!(messages.began && messages.octets.capacity() <= KEPT);
    }

    #[test]
    fn what_is_too_late_is_not_sent() {
        let (a, b) = UnixDatagram::pair().unwrap();
        b.set_nonblocking(true).unwrap();
        let mut messages = Messages::default();
        messages.set_streams(1);
        messages.push((0, Some(Duration::ZERO)), b"late");
        messages.push((0, Some(Duration::from_secs(3600))), b"in time");
        messages.write_to(&a).unwrap();
        let mut octets = [0; 64];
        let count = b.recv(&mut octets).unwrap();
        assert_eq!(&octets[..count], b"in time");
        assert!(b.recv(&mut octets).is_err() && messages.len() == 0);
    }

    #[test]
    fn control_messages_are_as_the_kernel_lays_them_out() {
        let mut control = Vec::new();
        let now = Instant::now();
        push_control(&mut control, 5, Some(now + Duration::from_millis(250)), now);
        let said: Vec<_> = cmsg::Messages(&control).collect();
        let (level, kind, info) = said[0];
        assert_eq!((level, kind, info.len()), (132, 2, 16));
        assert_eq!(info[..2], 5_u16.to_ne_bytes());
        let (level, kind, reliability) = said[1];
        assert_eq!((level, kind), (132, 5));
        assert_eq!(reliability, [16_u16.to_ne_bytes().as_slice(), &[0, 0], &250_u32.to_ne_bytes()].concat());
    }
}
