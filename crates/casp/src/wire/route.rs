//! RECORD_ROUTE and ROUTE, extensions of this suite after version 00 of the draft: the nodes that a message without state
//! has passed, or has yet to pass.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use signalbox_wire::{Reader, Short, Writer};

use super::code_points::Class;

/// Most entries of a route.
pub const MAX_ENTRIES: usize = 64;

/// A node of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// IP protocol of the transport: 6 TCP, 17 UDP, 132 SCTP.
    pub transport: u8,
    /// Address and messaging port.
    pub address: SocketAddr,
}

impl Hop {
    /// Reads an entry; `None`: its address family is unknown.
    ///
    /// # Errors
    /// [`Short`] if octets are missing.
    pub fn parse(r: &mut Reader<'_>) -> Result<Option<Self>, Short> {
        let [network, transport] = r.array()?;
        let port = r.u16()?;
        let address = match network {
            4 => IpAddr::V4(Ipv4Addr::from(r.array::<4>()?)),
            6 => IpAddr::V6(Ipv6Addr::from(r.array::<16>()?)),
            _ => return Ok(None),
        };
        Ok(Some(Self { transport, address: SocketAddr::new(address, port) }))
    }

    /// Appends the entry.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&[if self.address.is_ipv4() { 4 } else { 6 }, self.transport]);
        w.u16(self.address.port());
        match self.address.ip() {
            IpAddr::V4(v4) => w.bytes(&v4.octets()),
            IpAddr::V6(v6) => w.bytes(&v6.octets()),
        }
    }
}

/// The contents of a RECORD_ROUTE or ROUTE whose entries can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'a> {
    contents: &'a [u8],
    entries: usize,
    /// Offset of the last entry.
    last: usize,
}

impl<'a> Route<'a> {
    /// A route without entries.
    pub const EMPTY: Self = Self { contents: &[], entries: 0, last: 0 };

    /// Checks all entries; `None`: one of them cannot be read, or there are more than [`MAX_ENTRIES`].
    #[must_use]
    pub fn parse(contents: &'a [u8]) -> Option<Self> {
        let mut r = Reader::new(contents);
        let mut route = Self { contents, ..Self::EMPTY };
        while !r.is_empty() {
            route.last = r.offset();
            Hop::parse(&mut r).ok().flatten()?;
            route.entries += 1;
            if route.entries > MAX_ENTRIES {
                return None;
            }
        }
        Some(route)
    }

    /// The octets of all entries.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.contents
    }

    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// All entries in their order: the initiator is the first one.
    pub fn iter(&self) -> impl Iterator<Item = Hop> + use<'a> {
        let mut r = Reader::new(self.contents);
        core::iter::from_fn(move || Hop::parse(&mut r).ok().flatten())
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> Option<Hop> {
        Hop::parse(&mut Reader::new(self.contents.get(self.last..)?)).ok().flatten()
    }

    /// All entries but the last one.
    #[must_use]
    pub fn without_last(&self) -> Self {
        self.contents.get(..self.last).and_then(Self::parse).unwrap_or(Self::EMPTY)
    }

    /// Whether an entry has this address.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.iter().any(|hop| hop.address.ip() == address)
    }
}

/// The object of a message that is delivered without state, by its octets, which may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing<'a> {
    /// RECORD_ROUTE: each node on the way appends itself.
    Record(&'a [u8]),
    /// ROUTE: the nodes that an answer has yet to pass, the next one is the last entry.
    Route(&'a [u8]),
}

impl<'a> Routing<'a> {
    /// The class of the object.
    #[must_use]
    pub const fn class(&self) -> Class {
        match self {
            Self::Record(_) => Class::RECORD_ROUTE,
            Self::Route(_) => Class::ROUTE,
        }
    }

    /// The contents of the object.
    #[must_use]
    pub const fn contents(&self) -> &'a [u8] {
        match self {
            Self::Record(contents) | Self::Route(contents) => contents,
        }
    }
}
