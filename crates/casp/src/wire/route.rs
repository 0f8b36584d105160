//! RECORD_ROUTE and ROUTE, extensions of this suite after version 00 of the draft: the nodes that a message without state
//! has passed, or has yet to pass.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use signalbox_wire::{Reader, Short, Writer};

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

    /// All entries of a route; `None`: it has an entry that cannot be read, or too many.
    #[must_use]
    pub fn all(contents: &[u8]) -> Option<Vec<Self>> {
        let mut r = Reader::new(contents);
        let mut hops = Vec::new();
        while !r.is_empty() {
            hops.push(Self::parse(&mut r).ok().flatten()?);
            if hops.len() > MAX_ENTRIES {
                return None;
            }
        }
        Some(hops)
    }
}
