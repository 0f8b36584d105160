//! The part of this machine's network in which a daemon works: all of it, or one VRF.
//!
//! A VRF is a device. The interfaces that have it as their master are its own, and so is a routing table. The kernel passes a packet
//! that comes in by such an interface through the hook prerouting twice: as one of the interface, and then as one of the device, with
//! the interface beside it (`sdif`). From there on it is a packet of the device; that is when sockets bound to the device get it. The
//! rules of a VRF therefore concern packets of the device, and the interface is what the kernel names beside it. They stand behind
//! those of a daemon without a VRF, which sees the packet in both passes: the last rule that gives a packet to a socket decides.
//!
//! Every table of nftables has a name of the VRF, and the interception a routing table of its own, so that daemons of several VRFs leave
//! each other alone.

use std::io;
use std::net::SocketAddr;

use signalbox_core::IfIndex;
use socket2::Socket;

use crate::error::OpenError;
use crate::netlink::Batch;
use crate::netlink::codec::Connection;
use crate::netlink::interfaces;
use crate::netlink::nftables::expression;

/// What stands between the name of a table and that of the VRF.
const INFIX: &str = "_vrf_";
/// The loopback interface.
const LOOPBACK: &str = "lo";
/// Bits of the number of a routing table that are left to that of the VRF.
const TABLE_BITS: u32 = 16;

/// The VRF of a daemon, if it has one; otherwise the daemon works in all of the machine's network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope(Option<String>);

/// A VRF as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vrf {
    pub(crate) ifindex: IfIndex,
    /// Its routing table.
    pub(crate) table: u32,
}

impl Scope {
    /// The VRF whose device has this name; `None`: all of the network.
    #[must_use]
    pub const fn of(vrf: Option<String>) -> Self {
        Self(vrf)
    }

    /// The name of the VRF.
    #[must_use]
    pub fn vrf(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The VRF as it is now.
    ///
    /// # Errors
    /// There is no VRF of this name, or it is down.
    pub(crate) fn find(&self) -> Result<Option<Vrf>, OpenError> {
        let Some(name) = &self.0 else { return Ok(None) };
        let found = Connection::open().and_then(|mut connection| interfaces::vrf(&mut connection, name));
        match found.map_err(|error| OpenError::system("reading the interfaces", &error))? {
            Some((vrf, true)) => Ok(Some(vrf)),
            Some((_, false)) => Err(OpenError::new(
                "vrf-down",
                format!("the VRF {name} is down"),
                format!("ip link set {name} up"),
            )),
            None => Err(OpenError::new(
                "no-vrf",
                format!("there is no VRF {name}"),
                format!("ip link add {name} type vrf table NUMBER, or correct node.vrf"),
            )),
        }
    }

    /// Makes a socket one of the VRF: it receives what comes in by its interfaces, and sends by its routes.
    pub(crate) fn bind(&self, socket: &Socket) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |name| socket.bind_device(Some(name.as_bytes())))
    }

    /// The same, and gives it a port. A second daemon of the scope is refused the port; else it would receive datagrams of the first
    /// one without an error. The kernel has no such rule: it refuses a port that a socket of no VRF has also to those of VRFs, and the
    /// other way round, unless SO_REUSEADDR is set at both.
    pub(crate) fn bind_port(&self, socket: &Socket, address: SocketAddr) -> io::Result<()> {
        self.bind(socket)?;
        if !self.is_all() {
            // That of no VRF has the option. Those of this VRF do not.
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            return socket.set_reuse_address(false);
        }
        match socket.bind(&address.into()) {
            // A socket of the loopback interface is in nobody's way but that of a socket of no VRF.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                socket.bind_device(Some(LOOPBACK.as_bytes())).map_err(|_| error)?;
                socket.bind(&address.into())?;
                socket.bind_device(None)?;
            }
            result => result?,
        }
        socket.set_reuse_address(true)
    }

    /// The name of a table of nftables.
    pub(crate) fn name(&self, table: &str) -> String {
        let Some(vrf) = &self.0 else { return table.to_owned() };
        // The program nft reads names of these characters only. No name of an interface has a slash.
        let plain = |c: char| c.is_ascii_alphanumeric() || ['_', '-', '.'].contains(&c);
        let words =
            vrf.chars().map(|c| if plain(c) { c.to_string() } else { format!("/{:x}/", u32::from(c)) });
        words.fold(format!("{table}{INFIX}"), |name, word| name + &word)
    }

    /// The priority of a chain that gives packets to sockets.
    pub(crate) fn priority(&self, priority: i32) -> i32 {
        priority + i32::from(self.0.is_some())
    }

    /// Whether packets of a pass through a hook may be of this scope before they are those of the device: without a VRF.
    pub(crate) const fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// The rule continues with packets of the VRF.
    pub(crate) fn packets(&self, rule: &mut Batch) {
        if let Some(name) = &self.0 {
            expression::arrived_by(rule, name);
        }
    }

    /// The rule continues with packets that came in by the interface of this name, at any hook behind [`Scope::packets`].
    pub(crate) fn arrived_by(&self, rule: &mut Batch, interface: &str) {
        if self.is_all() {
            expression::arrived_by(rule, interface);
        } else {
            expression::arrived_below_by(rule, interface);
        }
    }

    /// The interface by which what this machine sends to itself comes in.
    pub(crate) fn loopback(&self) -> &str {
        self.vrf().unwrap_or(LOOPBACK)
    }
}

impl Vrf {
    /// The routing table of the interception, of which `table` is the configured number.
    pub(crate) const fn own_table(self, table: u32) -> u32 {
        table.wrapping_shl(TABLE_BITS).wrapping_add(self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_differ_by_vrf_and_are_those_that_nft_reads() {
        let name = |vrf: Option<&str>| Scope::of(vrf.map(str::to_owned)).name("signalbox");
        assert_eq!(name(None), "signalbox");
        assert_eq!(name(Some("red")), "signalbox_vrf_red");
        assert_eq!(name(Some("a-b")), "signalbox_vrf_a-b");
        assert_eq!(name(Some("a:b")), "signalbox_vrf_a/3a/b");
    }

    #[test]
    fn each_vrf_has_a_table_of_its_own() {
        let table = |table| Vrf { ifindex: IfIndex(7), table }.own_table(270);
        assert_eq!((table(10), table(20)), (17_694_730, 17_694_740));
    }
}
