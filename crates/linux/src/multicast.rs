//! Multicast forwarding for networks that the lab and tests build: static routes in the kernel of a namespace.
//!
//! The kernel forwards multicast for as long as a socket holds its forwarding table; this is that socket. Real networks
//! have a routing daemon instead. RSVP reads the routes from the kernel in both cases.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use socket2::{Domain, Protocol, Socket, Type};

use crate::netns::Namespace;
use crate::sys::{interface_index, set_option, set_option_octets, sockaddr};

/// Requests to the kernel; the same numbers for IPv4 and IPv6 (linux/mroute.h, linux/mroute6.h).
const INIT: i32 = 200;
const ADD_INTERFACE: i32 = 202;
const ADD_ROUTE: i32 = 204;
const DEL_ROUTE: i32 = 205;
/// Flag: the interface is named by its number.
const VIFF_USE_IFINDEX: u8 = 8;
/// Number of interfaces that the kernel's table can hold.
const MOST: u16 = 32;

/// The holder of a namespace's multicast forwarding table. Without it the kernel deletes all routes.
#[derive(Debug, Default)]
pub struct MulticastRouter {
    tables: [Option<Table>; 2],
}

#[derive(Debug)]
struct Table {
    socket: Socket,
    ipv6: bool,
    /// The table's number of each interface, by the interface's name.
    interfaces: BTreeMap<String, u16>,
}

impl MulticastRouter {
    /// Sets the route in `namespace`, which is the same in all calls: packets from `source` to `group` that come in by
    /// `iif` leave by `oifs`, and only these.
    ///
    /// # Errors
    /// The kernel has no multicast routing, another process holds the table, or an interface is missing.
    pub fn set_route(
        &mut self,
        namespace: &Namespace,
        group: IpAddr,
        source: IpAddr,
        iif: &str,
        oifs: &[String],
    ) -> io::Result<()> {
        let [v4, v6] = &mut self.tables;
        let slot = if group.is_ipv4() { v4 } else { v6 };
        namespace
            .run(|| {
                if slot.is_none() {
                    *slot = Some(Table::open(group.is_ipv6())?);
                }
                let Some(table) = slot else { return Ok(()) };
                let parent = table.interface(iif)?;
                let out = oifs.iter().map(|oif| table.interface(oif)).collect::<io::Result<Vec<_>>>()?;
                table.route(ADD_ROUTE, group, source, parent, &out)
            })
            .map_err(io::Error::other)?
    }

    /// Removes a route.
    ///
    /// # Errors
    /// There is no such route.
    pub fn remove_route(&mut self, group: IpAddr, source: IpAddr) -> io::Result<()> {
        let [v4, v6] = &mut self.tables;
        let table = if group.is_ipv4() { v4 } else { v6 };
        let table = table.as_mut().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
        table.route(DEL_ROUTE, group, source, 0, &[])
    }
}

impl Table {
    fn open(ipv6: bool) -> io::Result<Self> {
        let (domain, protocol) = if ipv6 {
            (Domain::IPV6, Protocol::ICMPV6)
        } else {
            (Domain::IPV4, Protocol::from(libc::IPPROTO_IGMP))
        };
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        set_option(&socket, level(ipv6), INIT, 1)?;
        Ok(Self { socket, ipv6, interfaces: BTreeMap::new() })
    }

    /// The table's number of an interface. A new interface is added.
    fn interface(&mut self, name: &str) -> io::Result<u16> {
        if let Some(number) = self.interfaces.get(name) {
            return Ok(*number);
        }
        let number = u16::try_from(self.interfaces.len()).unwrap_or(MOST);
        if number >= MOST {
            return Err(io::Error::other("more interfaces than multicast routing knows"));
        }
        let index = interface_index(name)?;
        let mut octets = number.to_ne_bytes().to_vec();
        if self.ipv6 {
            // mif6ctl: number, flags, threshold, interface, rate limit
            let index = u16::try_from(index).map_err(io::Error::other)?;
            octets.extend([0, 1]);
            octets.extend(index.to_ne_bytes());
            octets.resize(12, 0);
        } else {
            // vifctl: number, flags, threshold, rate limit, interface, remote address
            octets.extend([VIFF_USE_IFINDEX, 1, 0, 0, 0, 0]);
            octets.extend(index.to_ne_bytes());
            octets.extend([0; 4]);
        }
        set_option_octets(&self.socket, level(self.ipv6), ADD_INTERFACE, &octets)?;
        self.interfaces.insert(name.to_owned(), number);
        Ok(number)
    }

    fn route(&self, request: i32, group: IpAddr, source: IpAddr, parent: u16, out: &[u16]) -> io::Result<()> {
        let mut octets = Vec::new();
        match (source, group) {
            (IpAddr::V4(source), IpAddr::V4(group)) => {
                // mfcctl: origin, group, parent, a threshold for each interface, three counters, expiry
                octets.extend(source.octets());
                octets.extend(group.octets());
                octets.extend(parent.to_ne_bytes());
                octets.extend((0..MOST).map(|number| u8::from(out.contains(&number))));
                octets.resize(octets.len().next_multiple_of(4) + 16, 0);
            }
            (IpAddr::V6(_), IpAddr::V6(_)) => {
                // mf6cctl: origin, group, parent, a bit for each interface
                for address in [source, group] {
                    let (name, length) = sockaddr::encode((address, 0).into());
                    octets.extend_from_slice(name.get(..length).unwrap_or(&[]));
                }
                octets.extend(parent.to_ne_bytes());
                octets.extend([0; 2]);
                let bits = out.iter().fold(0_u32, |bits, number| bits | 1 << number);
                octets.extend(bits.to_ne_bytes());
                octets.resize(octets.len() + 28, 0);
            }
            _ => return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        }
        set_option_octets(&self.socket, level(self.ipv6), request, &octets)
    }
}

const fn level(ipv6: bool) -> i32 {
    if ipv6 { libc::IPPROTO_IPV6 } else { libc::IPPROTO_IP }
}
