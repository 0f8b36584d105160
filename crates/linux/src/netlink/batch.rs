//! Many netlink requests at once: one system call sends them, one or two receive the answers.

use std::io;

use super::codec::{Messages, NESTED, REPLY, put};
use super::socket::Socket;

const HEADER: usize = 16;
/// Most requests in one system call. The kernel answers all of them before this process reads the first answer, and an answer that finds no room
/// in the socket's buffer is lost. If each request is refused, the answers take 104 KiB on Linux 6.18, of 208 KiB by default
/// (`net.core.rmem_default`).
const MOST: usize = 128;
/// Most octets in one system call.
const MOST_OCTETS: usize = 64 * 1024;

/// Which of the requests are the frame of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    /// No request.
    Absent,
    /// The first one.
    Open,
    /// The first and the last one.
    Whole,
}

/// A batch of requests that are sent together.
pub(crate) struct Batch {
    socket: Socket,
    octets: Vec<u8>,
    /// The offset at which each request begins.
    starts: Vec<usize>,
    sequence: u32,
    reply: Vec<u8>,
}

impl Batch {
    /// Opens an empty batch for the kernel's `protocol` in this thread's network namespace.
    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        let socket = Socket::open(protocol)?;
        socket.shorten_refusals()?;
        Ok(Self { socket, octets: Vec::new(), starts: Vec::new(), sequence: 0, reply: vec![0; REPLY] })
    }

    /// The number of requests in the batch.
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Starts a request of `kind` whose fixed part is `body`.
    pub(crate) fn begin(&mut self, kind: u16, flags: i32, body: &[u8]) -> &mut Self {
        self.end();
        self.starts.push(self.octets.len());
        let flags = (flags | libc::NLM_F_REQUEST) as u16;
        self.octets.extend_from_slice(&[0; 4]); // length, written when the request ends
        self.octets.extend_from_slice(&kind.to_ne_bytes());
        self.octets.extend_from_slice(&flags.to_ne_bytes());
        self.octets.extend_from_slice(&[0; 8]); // sequence, written when it is sent; port: the kernel's
        self.octets.extend_from_slice(body);
        self.pad()
    }

    /// Appends an attribute to the last request.
    pub(crate) fn attribute(&mut self, kind: u16, data: &[u8]) -> &mut Self {
        put(&mut self.octets, kind, data);
        self
    }

    /// Appends an attribute that holds what `inner` appends.
    pub(crate) fn nest(&mut self, kind: u16, inner: impl FnOnce(&mut Self) -> &mut Self) -> &mut Self {
        let start = self.octets.len();
        self.attribute(kind | NESTED, &[]);
        inner(self);
        let length = u16::try_from(self.octets.len() - start).unwrap_or(u16::MAX);
        if let Some(place) = self.octets.get_mut(start..start + 2) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
        self
    }

    /// The requests as they would be sent, but for their sequence numbers.
    #[cfg(test)]
    pub(crate) fn octets(&mut self) -> &[u8] {
        self.end();
        &self.octets
    }

    /// Removes all requests.
    pub(crate) fn clear(&mut self) {
        self.octets.clear();
        self.starts.clear();
    }

    /// Sends all requests, in as few calls as the kernel's buffers allow, and returns the refused ones with their
    /// numbers. After an error of the whole batch it is unknown which requests were done.
    pub(crate) fn send(&mut self) -> io::Result<Vec<(usize, io::Error)>> {
        let mut refused = Vec::new();
        self.end();
        let result = self.send_parts(&mut refused);
        self.clear();
        result.map(|()| refused)
    }

    /// Sends a transaction in the same way: nfnetlink carries out all its requests or none. The first and the last
    /// request frame the others.
    pub(crate) fn send_transaction(&mut self) -> io::Result<Vec<(usize, io::Error)>> {
        let mut refused = Vec::new();
        self.end();
        let result = self.send_part(0, self.starts.len(), Frame::Whole, &mut refused);
        self.clear();
        result.map(|()| refused)
    }

    /// Sends the beginning of a transaction, of which the first request is the frame. Without an end the kernel checks all
    /// requests and undoes them.
    pub(crate) fn send_trial(&mut self) -> io::Result<Vec<(usize, io::Error)>> {
        let mut refused = Vec::new();
        self.end();
        let result = self.send_part(0, self.starts.len(), Frame::Open, &mut refused);
        self.clear();
        result.map(|()| refused)
    }

    fn send_parts(&mut self, refused: &mut Vec<(usize, io::Error)>) -> io::Result<()> {
        let mut from = 0;
        while let Some(start) = self.starts.get(from) {
            let ends = self.starts.iter().skip(from + 1).copied().chain([self.octets.len()]);
            let count = ends.take(MOST).take_while(|end| *end <= start + MOST_OCTETS).count().max(1);
            self.send_part(from, from + count, Frame::Absent, refused)?;
            from += count;
        }
        Ok(())
    }

    /// Sends the requests `from..to`. Only the last request asks for an acknowledgement; in a transaction it is the
    /// last before the frame's end. Refusals arrive without a flag, and in order. A refused frame ends the whole
    /// transaction.
    fn send_part(
        &mut self,
        from: usize,
        to: usize,
        frame: Frame,
        refused: &mut Vec<(usize, io::Error)>,
    ) -> io::Result<()> {
        let Some(&start) = self.starts.get(from) else { return Ok(()) };
        let end = self.starts.get(to).copied().unwrap_or(self.octets.len());
        let (first, last) =
            (self.sequence.wrapping_add(1), to - from - 1 - usize::from(frame == Frame::Whole));
        for (number, at) in self.starts.iter().skip(from).take(to - from).enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            let Some(header) = self.octets.get_mut(*at..).and_then(|o| o.first_chunk_mut::<HEADER>()) else {
                break;
            };
            header[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
            if number == last {
                header[6] |= libc::NLM_F_ACK as u8;
            }
        }
        self.socket.send(self.octets.get(start..end).unwrap_or(&[]))?;
        loop {
            let length = self.socket.receive(&mut self.reply)?;
            for message in Messages(self.reply.get(..length).unwrap_or(&[])) {
                let number = message.sequence.wrapping_sub(first) as usize;
                if i32::from(message.kind) != libc::NLMSG_ERROR || number >= to - from {
                    continue; // an echo, or left over from a part that was given up
                }
                let result = message.error();
                let whole = frame != Frame::Absent && number == 0 && result.is_err();
                if let Err(error) = result {
                    refused.push((from + number, error));
                }
                if number == last || whole {
                    return Ok(());
                }
            }
        }
    }

    /// Writes the length of the last request.
    fn end(&mut self) {
        let Some(&start) = self.starts.last() else { return };
        let length = u32::try_from(self.octets.len() - start).unwrap_or(u32::MAX);
        if let Some(place) = self.octets.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
    }

    fn pad(&mut self) -> &mut Self {
        self.octets.resize(self.octets.len().next_multiple_of(4), 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_sys::protocols::NETLINK_ROUTE;

    #[test]
    fn refusals_have_their_error_number() {
        let mut batch = Batch::open(NETLINK_ROUTE).unwrap();
        let mut no_interface = [0; 16];
        no_interface[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        for number in 0..300 {
            // An interface that does not exist, or a request type that the kernel does not support.
            let kind = if number % 3 == 0 { libc::RTM_GETLINK } else { 0x7ff };
            batch.begin(kind, 0, &no_interface);
        }
        assert_eq!(batch.len(), 300);
        let refused = batch.send().unwrap();
        assert!(refused.iter().map(|(number, _)| *number).eq(0..300));
        for (number, error) in refused {
            let expected = if number % 3 == 0 { libc::ENODEV } else { libc::EOPNOTSUPP };
            assert_eq!(error.raw_os_error(), Some(expected), "{number}");
        }
        assert_eq!(batch.len(), 0);
        assert!(batch.send().unwrap().is_empty(), "nothing to send");
    }
}
