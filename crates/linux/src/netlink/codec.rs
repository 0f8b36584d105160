//! Netlink messages and their attributes, and a socket for requests and answers.

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;

use super::socket::Socket;

const HEADER: usize = 16;
/// The kernel never sends more than this in one datagram.
pub(super) const REPLY: usize = 64 * 1024;
/// How often a list is asked for that changes while the kernel writes it.
const TRIES: u32 = 10;

/// A connection for requests to the kernel, one at a time.
pub(crate) struct Connection {
    socket: Socket,
    request: Vec<u8>,
    reply: Vec<u8>,
    sequence: u32,
    /// Whether the kernel says that what it lists has changed meanwhile: parts can be missing, or there twice.
    changed: bool,
}

impl Connection {
    /// Opens a connection for route netlink in this thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        Self::open_for(NETLINK_ROUTE)
    }

    /// Opens a connection for the kernel's `protocol` in this thread's network namespace.
    pub(crate) fn open_for(protocol: isize) -> io::Result<Self> {
        let socket = Socket::open(protocol)?;
        let request = Vec::with_capacity(256);
        Ok(Self { socket, request, reply: vec![0; REPLY], sequence: 0, changed: false })
    }

    /// Starts a request of `kind` whose fixed part is `body`.
    pub(crate) fn begin(&mut self, kind: u16, flags: i32, body: &[u8]) -> &mut Self {
        self.sequence = self.sequence.wrapping_add(1);
        let flags = (flags | libc::NLM_F_REQUEST) as u16;
        self.request.clear();
        self.request.extend_from_slice(&[0; 4]); // length, written when it is sent
        self.request.extend_from_slice(&kind.to_ne_bytes());
        self.request.extend_from_slice(&flags.to_ne_bytes());
        self.request.extend_from_slice(&self.sequence.to_ne_bytes());
        self.request.extend_from_slice(&[0; 4]); // port: the kernel's
        self.request.extend_from_slice(body);
        self
    }

    /// Appends an attribute to the request.
    pub(crate) fn attribute(&mut self, kind: u16, data: &[u8]) -> &mut Self {
        put(&mut self.request, kind, data);
        self
    }

    /// Appends an attribute that holds what `inner` appends.
    pub(crate) fn nest(&mut self, kind: u16, inner: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        nest(&mut self.request, kind, inner);
        self
    }

    /// Sends the request and calls `each` with each message of the answer. A refusal is returned as the error with the
    /// kernel's number.
    pub(crate) fn transact(&mut self, mut each: impl FnMut(&Message<'_>)) -> io::Result<()> {
        self.send()?;
        while !self.receive(&mut each)? {}
        Ok(())
    }

    /// Sends the request for a list, and returns what `read` makes of its messages. A list that changed while the kernel wrote it is
    /// asked for again: it can lack what is there. After some tries it is taken as it is, and [`Self::whole`] says so.
    pub(crate) fn list<T>(&mut self, mut read: impl FnMut(&Message<'_>) -> Option<T>) -> io::Result<Vec<T>> {
        let mut tries = 0;
        loop {
            let mut list = Vec::new();
            self.transact(|message| list.extend(read(message)))?;
            tries += 1;
            if !self.changed || tries == TRIES {
                return Ok(list);
            }
            self.sequence = self.sequence.wrapping_add(1);
            self.request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        }
    }

    /// Whether the list that was read last is whole.
    ///
    /// # Errors
    /// It changed while the kernel wrote it: parts can be missing.
    pub(super) fn whole(&self) -> io::Result<()> {
        if self.changed { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    /// Does the same for a request that the kernel answers by one message, even if it marks that as one of several.
    pub(crate) fn ask(&mut self, mut each: impl FnMut(&Message<'_>)) -> io::Result<()> {
        self.send()?;
        let mut answered = false;
        loop {
            let complete = self.receive(&mut |message| {
                answered = true;
                each(message);
            })?;
            if complete || answered {
                return Ok(());
            }
        }
    }

    /// Sends the request. The answer is read by [`Self::receive`].
    pub(crate) fn send(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.request.len()).map_err(io::Error::other)?;
        self.request[..4].copy_from_slice(&length.to_ne_bytes());
        self.changed = false;
        self.socket.send(&self.request)
    }

    /// Reads one datagram of the answer, calls `each` with its messages, and returns whether the answer is complete.
    pub(crate) fn receive(&mut self, each: &mut impl FnMut(&Message<'_>)) -> io::Result<bool> {
        let acknowledged = self.request[6] & libc::NLM_F_ACK as u8 != 0;
        let length = self.socket.receive(&mut self.reply)?;
        for message in Messages(self.reply.get(..length).unwrap_or(&[])) {
            if message.sequence != self.sequence {
                continue; // left over from an abandoned request
            }
            self.changed |= i32::from(message.flags) & libc::NLM_F_DUMP_INTR != 0;
            match i32::from(message.kind) {
                libc::NLMSG_ERROR => return message.error().map(|()| true),
                libc::NLMSG_DONE => return message.end().map(|()| true),
                _ => each(&message),
            }
            if !acknowledged && i32::from(message.flags) & libc::NLM_F_MULTI == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Flag of attributes that hold other attributes.
pub(crate) const NESTED: u16 = 0x8000;

/// An attribute as octets, for the data of another attribute.
pub(crate) fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut octets = Vec::with_capacity(4 + data.len().next_multiple_of(4));
    put(&mut octets, kind, data);
    octets
}

/// Appends an attribute.
pub(crate) fn put(octets: &mut Vec<u8>, kind: u16, data: &[u8]) {
    let length = u16::try_from(4 + data.len()).unwrap_or(u16::MAX);
    octets.extend_from_slice(&length.to_ne_bytes());
    octets.extend_from_slice(&kind.to_ne_bytes());
    octets.extend_from_slice(data);
    octets.resize(octets.len().next_multiple_of(4), 0);
}

/// Appends an attribute that holds what `inner` appends.
pub(crate) fn nest(octets: &mut Vec<u8>, kind: u16, inner: impl FnOnce(&mut Vec<u8>)) {
    let start = octets.len();
    put(octets, kind | NESTED, &[]);
    inner(octets);
    let length = u16::try_from(octets.len() - start).unwrap_or(u16::MAX);
    if let Some(place) = octets.get_mut(start..start + 2) {
        place.copy_from_slice(&length.to_ne_bytes());
    }
}

/// One netlink message.
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The result that an NLMSG_ERROR carries: number 0 is an acknowledgement.
    pub(crate) fn error(&self) -> io::Result<()> {
        match self.body.first_chunk::<4>().map(|v| i32::from_ne_bytes(*v)) {
            Some(0) => Ok(()),
            Some(number) => Err(io::Error::from_raw_os_error(number.wrapping_neg())),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The result that an NLMSG_DONE carries: a list that the kernel could not complete ends with the error's number.
    fn end(&self) -> io::Result<()> {
        match self.body.first_chunk::<4>().map(|v| i32::from_ne_bytes(*v)) {
            Some(number) if number < 0 => Err(io::Error::from_raw_os_error(number.wrapping_neg())),
            _ => Ok(()),
        }
    }

    /// The fixed part of `N` octets and the attributes after it.
    pub(crate) fn split<const N: usize>(&self) -> Option<(&'a [u8; N], Attributes<'a>)> {
        let (fixed, _) = self.body.split_first_chunk::<N>()?;
        Some((fixed, Attributes(self.body.get(N.next_multiple_of(4)..).unwrap_or(&[]))))
    }
}

/// The messages of a datagram, up to the first malformed one.
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let (header, _) = self.0.split_first_chunk::<HEADER>()?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let body = self.0.get(HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            body,
        })
    }
}

/// Attributes as (type without flags, data), up to the first malformed one.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let ([l0, l1, k0, k1], _) = self.0.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let data = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((u16::from_ne_bytes([*k0, *k1]) & 0x3fff, data))
    }
}

/// The data of the first attribute of `kind`.
pub(crate) fn find<'a>(attributes: Attributes<'a>, kind: u16) -> Option<&'a [u8]> {
    let mut attributes = attributes;
    attributes.find(|(found, _)| *found == kind).map(|(_, data)| data)
}

/// The 64-bit number in network order in `data`.
pub(crate) fn be64_of(data: &[u8]) -> Option<u64> {
    data.first_chunk::<8>().map(|v| u64::from_be_bytes(*v))
}

/// The 32-bit number in `data`.
pub(crate) fn u32_of(data: &[u8]) -> Option<u32> {
    data.first_chunk::<4>().map(|v| u32::from_ne_bytes(*v))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::simulated::{self, Kernel, Shared};

    /// A kernel that answers each request for a list by the next of its answers: datagrams of messages.
    struct Lists(Vec<Vec<Vec<u8>>>);

    impl Kernel for Lists {
        fn ask(&mut self, _: isize, requests: &[u8]) -> Vec<Vec<u8>> {
            let sequence = Messages(requests).next().unwrap().sequence;
            let mut answer = self.0.remove(0);
            for datagram in &mut answer {
                let mut at = 0;
                while at < datagram.len() {
                    let length = u32::from_ne_bytes(datagram[at..at + 4].try_into().unwrap()) as usize;
                    datagram[at + 8..at + 12].copy_from_slice(&sequence.to_ne_bytes());
                    at += length.next_multiple_of(4);
                }
            }
            answer
        }
    }

    /// A message of a list with one number.
    fn one_of_several(kind: i32, more: i32, number: i32) -> Vec<u8> {
        simulated::message(kind, libc::NLM_F_MULTI | more, 0, &number.to_ne_bytes())
    }

    /// Asks a kernel with these answers for a list of numbers.
    fn listed(answers: Vec<Vec<Vec<u8>>>) -> io::Result<Vec<i32>> {
        let kernel: Shared = Arc::new(Mutex::new(Lists(answers)));
        let mut connection = simulated::run(&kernel, Connection::open).unwrap();
        connection
            .begin(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; 16])
            .list(|message| message.body.first_chunk().map(|number| i32::from_ne_bytes(*number)))
    }

    const ITEM: i32 = libc::RTM_NEWLINK as i32;
    const CHANGED: i32 = libc::NLM_F_DUMP_INTR;

    /// The kernel leaves an interface out if one in front of it goes while it writes the list in several parts.
    #[test]
    fn a_list_that_changed_meanwhile_is_read_again() {
        let item = |number| one_of_several(ITEM, 0, number);
        let end = |more| one_of_several(libc::NLMSG_DONE, more, 0);
        let in_between = vec![item(1), [one_of_several(ITEM, CHANGED, 3), end(0)].concat()];
        let at_the_end = vec![item(1), item(3), end(CHANGED)];
        let whole = vec![[item(1), item(2), item(3)].concat(), end(0)];
        assert_eq!(listed(vec![in_between, at_the_end, whole]).unwrap(), [1, 2, 3]);
        // One that changes all the time is taken as it is.
        assert_eq!(listed(vec![vec![item(1), end(CHANGED)]; TRIES as usize]).unwrap(), [1]);
    }

    #[test]
    fn a_list_that_the_kernel_could_not_complete_is_an_error() {
        let cut = vec![one_of_several(ITEM, 0, 1), one_of_several(libc::NLMSG_DONE, 0, -libc::EMSGSIZE)];
        assert_eq!(listed(vec![cut]).unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
    }

    #[test]
    fn broken_messages_and_attributes_end_the_list() {
        let mut octets = vec![20, 0, 0, 0, 24, 0, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        assert_eq!(Messages(&octets).count(), 1);
        for cut in 0..octets.len() {
            assert_eq!(Messages(&octets[..cut]).count(), 0);
        }
        octets[0] = 3;
        assert_eq!(Messages(&octets).count(), 0);

        let attributes = [5, 0, 1, 0, 9, 0, 0, 0, 8, 0, 2, 0, 1, 0, 0, 0];
        let read: Vec<_> = Attributes(&attributes).collect();
        assert_eq!(read, [(1, &[9][..]), (2, &[1, 0, 0, 0][..])]);
        assert_eq!(Attributes(&attributes[..12]).count(), 1);
        assert_eq!(Attributes(&[2, 0, 1, 0]).count(), 0);
    }
}
