//! DNS messages (RFC 1035 §4): a query with one question, and the records of its answer that name servers and addresses.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Octets of the longest name (RFC 1035 §2.3.4).
const LONGEST_NAME: usize = 255;
/// Pointers of a name that are followed. A name that was compressed well has one.
const POINTERS: usize = 16;
/// Octets of the header.
const HEADER: usize = 12;
/// The class of the Internet.
const INTERNET: u16 = 1;
/// The type of aliases (RFC 1035 §3.3.1).
const CNAME: u16 = 5;
/// Aliases of one name that are followed. More are a loop, or a mistake.
const ALIASES: usize = 8;

/// A type of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// IPv4 addresses of a host (RFC 1035 §3.4.1).
    A = 1,
    /// IPv6 addresses of a host (RFC 3596 §2.1).
    Aaaa = 28,
    /// Servers of a domain (RFC 2782).
    Srv = 33,
}

/// A domain name as it is sent, without compression and in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Name(Vec<u8>);

impl Name {
    /// Reads a name as people write it: labels of letters, digits, hyphens and underscores, with or without a dot at its end.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let mut octets = Vec::new();
        for label in text.strip_suffix('.').unwrap_or(text).split('.') {
            let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
            if !label.bytes().all(|one| one.is_ascii_alphanumeric() || one == b'-' || one == b'_') {
                return None;
            }
            octets.push(length);
            octets.extend(label.bytes().map(|one| one.to_ascii_lowercase()));
        }
        octets.push(0);
        (octets.len() <= LONGEST_NAME).then_some(Self(octets))
    }

    /// Whether it is the root. As the target of an SRV record it means that the domain does not have the service (RFC 2782).
    pub(super) fn is_root(&self) -> bool {
        self.0 == [0]
    }
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Data {
    Address(IpAddr),
    Server { priority: u16, weight: u16, port: u16, target: Name },
}

/// Why a message does not answer a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server answers another query, or its message does not have the form of an answer.
    Malformed,
    /// The server could not answer, or refuses.
    Refused,
}

/// Appends a query to what is sent over TCP, where the length of a message comes first (RFC 1035 §4.2.2).
pub(super) fn query(to: &mut Vec<u8>, id: u16, name: &Name, kind: Kind) {
    let length = u16::try_from(HEADER + name.0.len() + 4).unwrap_or(u16::MAX);
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(&id.to_be_bytes());
    // Recursion is desired. One question follows, and no record.
    to.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    to.extend_from_slice(&name.0);
    to.extend_from_slice(&(kind as u16).to_be_bytes());
    to.extend_from_slice(&INTERNET.to_be_bytes());
}

/// The identifier of a message.
pub(super) fn id(message: &[u8]) -> Option<u16> {
    Reader { message, at: 0 }.u16()
}

/// Gives `each` the records of the answer to a query, with their times to live in seconds. Aliases of the name are followed within
/// the answer (RFC 1034 §3.6.2): a resolver that is asked for recursion has put all of them there. The time to live is that of
/// the record or of an alias before it, whichever is shorter. Records of other names are left out.
pub(super) fn answer(
    message: &[u8],
    name: &Name,
    kind: Kind,
    mut each: impl FnMut(u32, Data),
) -> Result<(), Fault> {
    let malformed = Fault::Malformed;
    let mut reader = Reader { message, at: 2 };
    let flags = reader.u16().ok_or(malformed)?;
    let questions = reader.u16().ok_or(malformed)?;
    let answers = reader.u16().ok_or(malformed)?;
    reader.at = HEADER;
    // A response to a standard query, complete.
    if flags & 0xfa00 != 0x8000 || questions != 1 {
        return Err(malformed);
    }
    let asked = reader.name().ok_or(malformed)?;
    if asked != *name || reader.u16() != Some(kind as u16) || reader.u16() != Some(INTERNET) {
        return Err(malformed);
    }
    match flags & 0xf {
        0 => {}
        // The name does not exist.
        3 => return Ok(()),
        _ => return Err(Fault::Refused),
    }
    let (mut name, mut longest) = (asked, u32::MAX);
    for _ in 0..=ALIASES {
        let mut alias = None;
        let mut records = reader;
        for _ in 0..answers {
            let record = records.record().ok_or(malformed)?;
            if record.owner != name {
                continue;
            }
            if record.kind == (kind as u16, INTERNET) {
                each(record.ttl.min(longest), record.data(kind).ok_or(malformed)?);
            } else if record.kind == (CNAME, INTERNET) {
                alias = Some((record.ttl, record.name().ok_or(malformed)?));
            }
        }
        let Some((ttl, target)) = alias else { return Ok(()) };
        (name, longest) = (target, longest.min(ttl));
    }
    Err(malformed)
}

/// Reads a message as the answer to each kind of query for its own name, and returns the number of records: for fuzzing.
pub(crate) fn records(message: &[u8]) -> usize {
    let name = Reader { message, at: HEADER }.name().unwrap_or_default();
    let mut count = 0;
    for kind in [Kind::A, Kind::Aaaa, Kind::Srv] {
        // A message that is no answer has the records before its fault.
        let _ = answer(message, &name, kind, |_, _| count += 1);
    }
    count
}

/// A position in a message. Reading behind its end gives `None`.
#[derive(Debug, Clone, Copy)]
struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let octets = self.message.get(self.at..end)?;
        self.at = end;
        Some(octets)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a name (RFC 1035 §4.1.4). Each pointer leads to an earlier place than the one before it, and there are few.
    fn name(&mut self) -> Option<Name> {
        let mut octets = Vec::new();
        let (mut reader, mut first, mut behind, mut pointers) = (*self, self.at, None, 0);
        loop {
            let [length] = reader.array()?;
            if length >= 0xc0 {
                let [low] = reader.array()?;
                let to = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                behind = behind.or(Some(reader.at));
                pointers += 1;
                if to >= first || pointers > POINTERS {
                    return None;
                }
                (reader.at, first) = (to, to);
                continue;
            }
            if length > 63 {
                return None;
            }
            octets.push(length);
            octets.extend(reader.take(length.into())?.iter().map(u8::to_ascii_lowercase));
            if octets.len() > LONGEST_NAME {
                return None;
            }
            if length == 0 {
                self.at = behind.unwrap_or(reader.at);
                return Some(Name(octets));
            }
        }
    }

    /// Reads a record (RFC 1035 §4.1.3).
    fn record(&mut self) -> Option<Record<'a>> {
        let owner = self.name()?;
        let kind = (self.u16()?, self.u16()?);
        let ttl = self.array().map(u32::from_be_bytes)?;
        let length = self.u16()?;
        let content = *self;
        self.take(length.into())?;
        // RFC 2181 §8: a time with the first bit set is zero.
        let ttl = if ttl > i32::MAX.unsigned_abs() { 0 } else { ttl };
        Some(Record { owner, kind, ttl, content, end: self.at })
    }
}

/// A record whose content is not read yet.
#[derive(Debug)]
struct Record<'a> {
    owner: Name,
    /// Type and class.
    kind: (u16, u16),
    /// Time to live, seconds.
    ttl: u32,
    content: Reader<'a>,
    /// Where the content ends.
    end: usize,
}

impl Record<'_> {
    /// What a record of one of the types that are asked for says.
    fn data(&self, kind: Kind) -> Option<Data> {
        let mut data = self.content;
        let content = match kind {
            Kind::A => Data::Address(IpAddr::V4(Ipv4Addr::from(data.array::<4>()?))),
            Kind::Aaaa => Data::Address(IpAddr::V6(Ipv6Addr::from(data.array::<16>()?))),
            Kind::Srv => {
                let [priority, weight, port] = [data.u16()?, data.u16()?, data.u16()?];
                Data::Server { priority, weight, port, target: data.name()? }
            }
        };
        (data.at == self.end).then_some(content)
    }

    /// The name that an alias stands for.
    fn name(&self) -> Option<Name> {
        let mut data = self.content;
        let name = data.name()?;
        (data.at == self.end).then_some(name)
    }
}
