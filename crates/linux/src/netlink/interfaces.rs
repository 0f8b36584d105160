//! The node's interfaces and addresses.

use std::io;

use signalbox_core::IfIndex;
use signalbox_core::node::Interface;

use super::codec::{Attributes, Connection, find, u32_of};
use crate::scope::Vrf;
use crate::sys::sockaddr;

// Attributes of a link and an address in linux/if_link.h and linux/if_addr.h; libc defines only some of these.
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_QDISC: u16 = 6;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
/// Within IFLA_INFO_DATA of a VRF: its routing table.
const IFLA_VRF_TABLE: u16 = 1;
const IFLA_AF_SPEC: u16 = 26;
/// Within IFLA_AF_SPEC and the family: the settings of the interface, one word each.
const IFLA_INET_CONF: u16 = 1;
/// The place of `src_valid_mark` among them (IPV4_DEVCONF_SRC_VMARK, which counts from 1).
const SRC_VALID_MARK: usize = 23;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// Flags of an IPv6 address that cannot be used, yet or at all.
const UNUSABLE: u32 = 0x40 | 0x08; // IFA_F_TENTATIVE, IFA_F_DADFAILED

/// Link types with an Ethernet header: Ethernet, and the loopback interface.
const WITH_ETHERNET_HEADER: [u16; 2] = [1, 772];

/// Kinds of interfaces that encapsulate packets in others.
const TUNNELS: [&str; 18] = [
    "ipip",
    "ip6tnl",
    "sit",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "erspan",
    "ip6erspan",
    "vti",
    "vti6",
    "xfrm",
    "vxlan",
    "geneve",
    "bareudp",
    "gtp",
    "wireguard",
    "tun",
];

/// The kind of a link in the kernel's IFLA_LINKINFO.
fn kind(link_info: &[u8]) -> Option<&[u8]> {
    find(Attributes(link_info), IFLA_INFO_KIND)?.split(|octet| *octet == 0).next()
}

/// Whether a link's kind in the kernel's IFLA_LINKINFO is that of a tunnel.
fn is_tunnel(link_info: &[u8]) -> bool {
    TUNNELS.iter().any(|tunnel| kind(link_info) == Some(tunnel.as_bytes()))
}

/// The routing table of a VRF in the kernel's IFLA_LINKINFO; `None`: the link is no VRF.
fn vrf_table(link_info: &[u8]) -> Option<u32> {
    let data = find(Attributes(link_info), IFLA_INFO_DATA).filter(|_| kind(link_info) == Some(b"vrf"))?;
    find(Attributes(data), IFLA_VRF_TABLE).and_then(u32_of)
}

/// The VRF whose device has this name, and whether it is up.
pub(crate) fn vrf(connection: &mut Connection, name: &str) -> io::Result<Option<(Vrf, bool)>> {
    let found = connection.begin(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; 16]).list(|message| {
        let (fixed, attributes) = message.split::<16>()?;
        let [_, _, _, _, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *fixed;
        let up = u32::from_ne_bytes([f0, f1, f2, f3]) & libc::IFF_UP as u32 != 0;
        let named = find(attributes, IFLA_IFNAME).and_then(|name| name.split(|octet| *octet == 0).next());
        let table = find(attributes, IFLA_LINKINFO).and_then(vrf_table)?;
        let vrf = Vrf { ifindex: IfIndex(u32::from_ne_bytes([i0, i1, i2, i3])), table };
        (named == Some(name.as_bytes())).then_some((vrf, up))
    })?;
    Ok(found.into_iter().next())
}

/// The link-layer properties of an interface.
pub(crate) struct LinkLayer {
    pub(crate) ifindex: u32,
    pub(crate) name: String,
    /// Octets before the IP header of packets that leave by the interface.
    pub(crate) link_header: u32,
    /// The interface that it is a part of, such as a bridge or a VRF; 0: none.
    pub(crate) master: u32,
    /// Whether it is a VRF.
    pub(crate) vrf: bool,
    /// Octets of the packets that have left by it, without the headers of the link; `None`: the kernel does not say it.
    pub(crate) sent: Option<u64>,
}

/// Octets of the packets that were sent, by the kernel's statistics of an interface (`struct rtnl_link_stats64`): it begins with the
/// packets received and sent, and their octets with the headers of the link.
fn sent(statistics: &[u8], link_header: u32) -> Option<u64> {
    let [_, packets, _, octets, ..] = *statistics.as_chunks::<8>().0 else { return None };
    let headers = u64::from_ne_bytes(packets).saturating_mul(link_header.into());
    Some(u64::from_ne_bytes(octets).saturating_sub(headers))
}

/// All interfaces, whether or not they are up. Interfaces that change all the time are an error: reservations at one that is missing in
/// the list would be given up. The kernel reports each change, so the list is read again.
pub(crate) fn links(connection: &mut Connection) -> io::Result<Vec<LinkLayer>> {
    let links = connection.begin(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; 16]).list(|message| {
        let (fixed, attributes) = message.split::<16>()?;
        let [_, _, t0, t1, i0, i1, i2, i3, ..] = *fixed;
        let name = find(attributes, IFLA_IFNAME)?;
        let ethernet = WITH_ETHERNET_HEADER.contains(&u16::from_ne_bytes([t0, t1]));
        let link_header = if ethernet { 14 } else { 0 };
        Some(LinkLayer {
            ifindex: u32::from_ne_bytes([i0, i1, i2, i3]),
            name: String::from_utf8_lossy(name).trim_end_matches('\0').to_owned(),
            link_header,
            master: find(attributes, IFLA_MASTER).and_then(u32_of).unwrap_or(0),
            vrf: find(attributes, IFLA_LINKINFO).and_then(vrf_table).is_some(),
            sent: find(attributes, IFLA_STATS64).and_then(|statistics| sent(statistics, link_header)),
        })
    })?;
    connection.whole().map(|()| links)
}

/// The kind of the queueing discipline at the root of an interface; `None`: the interface is gone, or has no such thing.
pub(crate) fn queueing(connection: &mut Connection, ifindex: u32) -> io::Result<Option<String>> {
    let mut link = [0; 16];
    link[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let mut kind = None;
    let answer = connection.begin(libc::RTM_GETLINK, 0, &link).ask(|message| {
        let named = message.split::<16>().and_then(|(_, attributes)| find(attributes, IFLA_QDISC));
        kind = named.map(|name| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
    });
    match answer {
        Err(error) if error.raw_os_error() != Some(libc::ENODEV) => Err(error),
        _ => Ok(kind),
    }
}

/// The name of an interface for which `net.ipv4.conf.INTERFACE.src_valid_mark` is set, if there is one.
pub(crate) fn with_valid_mark(connection: &mut Connection) -> io::Result<Option<String>> {
    let found = connection.begin(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; 16]).list(|message| {
        let (_, attributes) = message.split::<16>()?;
        let settings = find(attributes, IFLA_AF_SPEC)
            .and_then(|families| find(Attributes(families), libc::AF_INET as u16))
            .and_then(|inet| find(Attributes(inet), IFLA_INET_CONF));
        let words = settings.unwrap_or_default().as_chunks::<4>().0;
        let set = words.get(SRC_VALID_MARK).is_some_and(|word| u32::from_ne_bytes(*word) != 0);
        let name = find(attributes, IFLA_IFNAME).filter(|_| set)?;
        Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
    })?;
    Ok(found.into_iter().next())
}

/// Whether an interface with these flags takes packets.
///
/// `IFF_RUNNING` says so too, but the kernel derives it from the carrier once a second, for the interfaces of all network namespaces
/// together: a link that has come back would count as lost for up to a second, while routes lead to it.
const fn is_up(flags: u32) -> bool {
    let needed = (libc::IFF_UP | libc::IFF_LOWER_UP) as u32;
    // Waits for something above the carrier, such as authentication by IEEE 802.1X.
    let dormant = libc::IFF_DORMANT as u32;
    flags & (needed | dormant) == needed
}

/// All interfaces of the connection's network namespace, in the order of their numbers, or those of a VRF with its device.
pub(crate) fn dump(connection: &mut Connection, vrf: Option<IfIndex>) -> io::Result<Vec<Interface>> {
    let interfaces = connection.begin(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; 16]).list(|message| {
        let (fixed, attributes) = message.split::<16>()?;
        let [_, _, _, _, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *fixed;
        let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
        let mut interface = Interface {
            ifindex: IfIndex(u32::from_ne_bytes([i0, i1, i2, i3])),
            name: String::new(),
            up: is_up(flags),
            mtu: 0,
            tunnel: false,
            addresses: Vec::new(),
        };
        let mut master = IfIndex::NONE;
        for (kind, data) in attributes {
            match kind {
                IFLA_IFNAME => {
                    interface.name = String::from_utf8_lossy(data).trim_end_matches('\0').to_owned();
                }
                IFLA_MTU => interface.mtu = u32_of(data).unwrap_or(0),
                IFLA_LINKINFO => interface.tunnel = is_tunnel(data),
                IFLA_MASTER => master = u32_of(data).map_or(IfIndex::NONE, IfIndex),
                _ => {}
            }
        }
        vrf.is_none_or(|vrf| [interface.ifindex, master].contains(&vrf)).then_some(interface)
    });
    let mut interfaces: Vec<Interface> = interfaces?;
    interfaces.sort_by_key(|interface| interface.ifindex);

    let addresses = connection.begin(libc::RTM_GETADDR, libc::NLM_F_DUMP, &[0; 8]).list(|message| {
        let (fixed, attributes) = message.split::<8>()?;
        let [_, _, flags, _, i0, i1, i2, i3] = *fixed;
        let ifindex = IfIndex(u32::from_ne_bytes([i0, i1, i2, i3]));
        let (mut flags, mut local, mut address) = (u32::from(flags), None, None);
        for (kind, data) in attributes {
            match kind {
                IFA_LOCAL => local = sockaddr::ip(data),
                IFA_ADDRESS => address = sockaddr::ip(data),
                IFA_FLAGS => flags = u32_of(data).unwrap_or(flags),
                _ => {}
            }
        }
        // On a point-to-point link IFA_ADDRESS is the address of the other end.
        local.or(address).filter(|_| flags & UNUSABLE == 0).map(|address| (ifindex, address))
    })?;
    for (ifindex, address) in addresses {
        if let Ok(found) = interfaces.binary_search_by_key(&ifindex, |i| i.ifindex) {
            interfaces[found].addresses.push(address);
        }
    }
    Ok(interfaces)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::netlink::codec::Messages;
    use crate::simulated::{self, Kernel, Shared};

    /// A kernel whose interfaces change while it lists them.
    struct Changing;

    impl Kernel for Changing {
        fn ask(&mut self, _: isize, requests: &[u8]) -> Vec<Vec<u8>> {
            let sequence = Messages(requests).next().unwrap().sequence;
            let flags = libc::NLM_F_MULTI | libc::NLM_F_DUMP_INTR;
            vec![simulated::message(libc::NLMSG_DONE, flags, sequence, &[0; 4])]
        }
    }

    /// An interface that is missing in the list is not gone.
    #[test]
    fn a_list_of_links_that_is_never_whole_is_an_error() {
        let kernel: Shared = Arc::new(Mutex::new(Changing));
        let mut connection = simulated::run(&kernel, Connection::open).unwrap();
        assert_eq!(links(&mut connection).err().map(|error| error.kind()), Some(io::ErrorKind::Interrupted));
    }

    #[test]
    fn a_link_whose_carrier_is_back_counts_before_the_kernel_says_running() {
        const UP: u32 = libc::IFF_UP as u32;
        const CARRIER: u32 = libc::IFF_LOWER_UP as u32;
        let (running, dormant) = (libc::IFF_RUNNING as u32, libc::IFF_DORMANT as u32);
        assert!(is_up(UP | CARRIER) && is_up(UP | CARRIER | running));
        for flags in [0, UP, CARRIER, UP | running, UP | CARRIER | dormant] {
            assert!(!is_up(flags), "{flags:x}");
        }
    }

    /// RSVPIS-2215-3.1-01: the kind that the kernel reports decides.
    /// The capacity of a link counts octets of packets, so its use does too.
    #[test]
    fn what_a_link_has_sent_is_counted_without_its_headers() {
        let numbers = |of: &[u64]| of.iter().flat_map(|one| one.to_ne_bytes()).collect::<Vec<_>>();
        assert_eq!(sent(&numbers(&[1, 10, 2, 1_140, 5]), 14), Some(1_000));
        assert_eq!(sent(&numbers(&[1, 10, 2, 1_140]), 0), Some(1_140));
        assert_eq!(sent(&numbers(&[1, 10, 2, 100]), 14), Some(0));
        assert_eq!(sent(&numbers(&[1, 10, 2]), 14), None, "an older kernel");
    }

    #[test]
    fn tunnels_are_known_by_their_kind() {
        let info = |kind: &str| {
            let length = u16::try_from(4 + kind.len() + 1).unwrap();
            let mut octets = [length.to_ne_bytes(), IFLA_INFO_KIND.to_ne_bytes()].concat();
            octets.extend_from_slice(kind.as_bytes());
            octets.resize(octets.len() + 4 - kind.len() % 4, 0);
            octets
        };
        for kind in ["gre", "wireguard", "tun", "ipip"] {
            assert!(is_tunnel(&info(kind)), "{kind}");
        }
        for kind in ["veth", "bridge", "vlan", "tunnel", "gr"] {
            assert!(!is_tunnel(&info(kind)), "{kind}");
        }
        assert!(!is_tunnel(&[]));
    }
}
