//! The queue of what waits for the kernel.

use std::io::{self, Write};
use std::net::TcpStream;

use super::messages::Messages;
use crate::sys::is_full;

/// Capacity that an empty buffer may keep: thousands of idle streams must not hold what one burst needed.
pub(super) const KEPT: usize = 16 * 1024;

/// The queue of one stream.
pub(super) enum Outgoing {
    /// The octets of a TCP connection.
    Octets(Octets),
    /// The messages of an SCTP association.
    Messages(Messages),
}

impl Outgoing {
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Octets(octets) => octets.len(),
            Self::Messages(messages) => messages.len(),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes octets or messages to the kernel until it accepts no more.
    pub(super) fn write_to(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        match self {
            Self::Octets(octets) => octets.write_to(socket),
            Self::Messages(messages) => messages.write_to(socket),
        }
    }
}

/// A queue of contiguous octets, so that any number of small writes leave by one call.
#[derive(Default)]
pub(super) struct Octets {
    octets: Vec<u8>,
    /// Number of octets at the front that are gone.
    start: usize,
}

impl Octets {
    pub(super) const fn len(&self) -> usize {
        self.octets.len() - self.start
    }

    const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, octets: &[u8]) {
        // Moving the rest costs no more than the octets that are gone have cost already.
        if self.start > self.len() {
            self.octets.drain(..self.start);
            self.start = 0;
        }
        self.octets.extend_from_slice(octets);
    }

    /// Writes until `to` accepts no more, which is no error.
    fn write_to(&mut self, to: &mut impl Write) -> io::Result<()> {
        let result = loop {
            let rest = self.octets.get(self.start..).unwrap_or(&[]);
            if rest.is_empty() {
                break Ok(());
            }
            match to.write(rest) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.start += written.min(rest.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_full(&error) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if self.is_empty() {
            self.octets.clear();
            self.start = 0;
            self.octets.shrink_to(KEPT);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that accepts a few octets at a time and sometimes refuses.
    struct Slow(Vec<u8>, usize);

    impl Write for Slow {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            let taken = octets.len().min(self.1 % 7);
            if taken == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.0.extend_from_slice(&octets[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_arrives_in_order_whatever_is_taken_at_once() {
        let (mut outgoing, mut slow) = (Octets::default(), Slow(Vec::new(), 0));
        let all: Vec<u8> = (0..50_000_u32).map(|n| (n % 251) as u8).collect();
        for (number, piece) in all.chunks(33).enumerate() {
            outgoing.push(piece);
            if number % 3 == 0 {
                outgoing.write_to(&mut slow).unwrap();
            }
            assert_eq!(slow.0.len() + outgoing.len(), (number * 33) + piece.len());
        }
        while !outgoing.is_empty() {
            outgoing.write_to(&mut slow).unwrap();
        }
        assert!(slow.0 == all);
        assert!(outgoing.octets.capacity() <= KEPT);
    }

    #[test]
    fn a_broken_stream_is_distinguished_from_a_full_one() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut outgoing = Octets::default();
        outgoing.push(b"lost");
        assert!(outgoing.write_to(&mut Broken).is_err());
        assert_eq!(outgoing.len(), 4);
    }
}
