//! Netlink messages and their attributes, read and written. It shares nothing with the code that is judged: the numbers are
//! those of the kernel's headers.

const HEADER: usize = 16;
const NESTED: u16 = 0x8000;
const KIND: u16 = 0x3fff;
#[cfg(feature = "namespace-tests")]
const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_MULTI: u16 = 0x2;
pub(crate) const NLM_F_ACK: u16 = 0x4;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// A netlink message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// The fixed part and the attributes.
    pub(crate) body: &'a [u8],
}

/// The messages of a datagram. Octets that are no message are an error of who sent them.
pub(crate) fn messages(datagram: &[u8]) -> Vec<Message<'_>> {
    let (mut rest, mut all) = (datagram, Vec::new());
    while !rest.is_empty() {
        let long = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
        let short = |at: usize| u16::from_ne_bytes(rest[at..at + 2].try_into().unwrap());
        let length = long(0) as usize;
        all.push(Message { kind: short(4), flags: short(6), sequence: long(8), body: &rest[HEADER..length] });
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    all
}

impl<'a> Message<'a> {
    /// The attributes behind the `struct nfgenmsg`. Others than these are an error.
    pub(crate) fn attributes(&self, known: &[u16]) -> Attributes<'a> {
        Attributes(&self.body[4..]).only(known)
    }
}

/// Attributes in a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// Each attribute: its type without flags, and its data.
    pub(crate) fn each(self) -> Vec<(u16, &'a [u8])> {
        let (mut rest, mut all) = (self.0, Vec::new());
        while !rest.is_empty() {
            let short = |at: usize| u16::from_ne_bytes(rest[at..at + 2].try_into().unwrap());
            let length = usize::from(short(0));
            all.push((short(2) & KIND, &rest[4..length]));
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
        all
    }

    /// The same attributes, which are of these types. What is not known cannot be judged.
    pub(crate) fn only(self, known: &[u16]) -> Self {
        for (kind, data) in self.each() {
            assert!(known.contains(&kind), "attribute {kind} is none of {known:?}: {data:02x?}");
        }
        self
    }

    pub(crate) fn find(self, kind: u16) -> Option<&'a [u8]> {
        self.each().into_iter().find(|(found, _)| *found == kind).map(|(_, data)| data)
    }

    pub(crate) fn nested(self, kind: u16) -> Option<Self> {
        self.find(kind).map(Attributes)
    }

    /// A string without the zero octet at its end.
    pub(crate) fn text(self, kind: u16) -> Option<String> {
        let octets = self.find(kind)?.strip_suffix(&[0]).expect("a string ends with a zero octet");
        Some(String::from_utf8(octets.to_vec()).unwrap())
    }

    /// A number of 32 bits in network order.
    pub(crate) fn number(self, kind: u16) -> Option<u32> {
        self.find(kind).map(|data| u32::from_be_bytes(data.try_into().unwrap()))
    }

    /// A number of 64 bits in network order.
    pub(crate) fn long(self, kind: u16) -> Option<u64> {
        self.find(kind).map(|data| u64::from_be_bytes(data.try_into().unwrap()))
    }
}

/// An attribute as octets.
pub(crate) fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut octets = u16::try_from(4 + data.len()).unwrap().to_ne_bytes().to_vec();
    octets.extend(kind.to_ne_bytes());
    octets.extend(data);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// An attribute that holds others.
pub(crate) fn nest(kind: u16, inner: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &inner.concat())
}

/// A message as octets.
pub(crate) fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut octets = u32::try_from(HEADER + body.len()).unwrap().to_ne_bytes().to_vec();
    octets.extend(kind.to_ne_bytes());
    octets.extend(flags.to_ne_bytes());
    octets.extend(sequence.to_ne_bytes());
    octets.extend([0; 4]);
    octets.extend(body);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// The answer to one request: an error number, or 0 for an acknowledgement.
pub(crate) fn result(sequence: u32, error: i32) -> Vec<u8> {
    let mut body = (-error).to_ne_bytes().to_vec();
    body.extend([0; HEADER]);
    message(NLMSG_ERROR, 0, sequence, &body)
}

/// The end of an answer of several messages.
pub(crate) fn done(sequence: u32) -> Vec<u8> {
    message(NLMSG_DONE, NLM_F_MULTI, sequence, &[0; 4])
}

#[cfg(feature = "namespace-tests")]
/// The error numbers of an answer, by the sequence number of the request.
pub(crate) fn errors(datagram: &[u8]) -> Vec<(u32, i32)> {
    let results = messages(datagram).into_iter().filter(|message| message.kind == NLMSG_ERROR);
    results.map(|one| (one.sequence, -i32::from_ne_bytes(one.body[..4].try_into().unwrap()))).collect()
}

/// The request to forget all flows of connection tracking.
#[cfg(feature = "namespace-tests")]
pub(crate) fn flush(sequence: u32) -> Vec<u8> {
    message(1 << 8 | 2, NLM_F_REQUEST | NLM_F_ACK, sequence, &[0; 4])
}
