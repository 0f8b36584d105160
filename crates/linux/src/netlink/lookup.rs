//! Lookup of the route that a packet would take, in the kernel's own tables.

use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::IfIndex;
use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery};

use super::cache::Cache;
use super::codec::{Attributes, Connection, Message, u32_of};
use crate::io::selftest;
use crate::scope::Vrf;
use crate::sys::sockaddr;

pub(super) const RTA_DST: u16 = 1;
pub(super) const RTA_SRC: u16 = 2;
pub(super) const RTA_IIF: u16 = 3;
pub(super) const RTA_OIF: u16 = 4;
pub(super) const RTA_PRIORITY: u16 = 6;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
pub(super) const RTA_MULTIPATH: u16 = 9;
pub(super) const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_MARK: u16 = 16;
const RTA_IP_PROTO: u16 = 27;
const RTA_SPORT: u16 = 28;
const RTA_DPORT: u16 = 29;
pub(super) const RTA_NH_ID: u16 = 30;
const RTAX_MTU: u16 = 2;
/// The answer is the entry of the table, with the length of its prefix and its metric.
const RTM_F_FIB_MATCH: u32 = 0x2000;
/// Mask of the DSCP without the two congestion bits, which routing must not use.
pub(super) const DSCP: u8 = 0xfc;

/// The lookup of routes.
pub(crate) struct Routes {
    connection: Connection,
    /// The interfaces as last read: for MTUs, and to distinguish our own addresses from foreign ones.
    interfaces: Vec<Interface>,
    cache: Cache,
    /// The VRF whose routes are asked for.
    vrf: Option<Vrf>,
    /// Whether the kernel has refused to tell routes of groups of IPv6.
    pub(super) groups_refused: bool,
}

/// The variant of the lookup request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Question {
    pub(super) src: Option<IpAddr>,
    /// The interface by which the packet comes in, so that it is routed as a forwarded one.
    pub(super) iif: Option<IfIndex>,
    pub(super) oif: Option<IfIndex>,
    /// Not a question to the kernel, but what its answers about a forwarded packet come to.
    pub(super) forwarded: bool,
    /// Likewise, what its answers about all interfaces but this one come to.
    pub(super) without: Option<IfIndex>,
}

impl Routes {
    /// The routes of a VRF, or those of packets in none.
    pub(crate) fn open(vrf: Option<Vrf>) -> io::Result<Self> {
        let mut connection = Connection::open()?;
        let interfaces = super::interfaces::dump(&mut connection, vrf.map(|vrf| vrf.ifindex))?;
        Ok(Self { connection, interfaces, cache: Cache::new()?, vrf, groups_refused: false })
    }

    pub(super) const fn vrf(&self) -> Option<Vrf> {
        self.vrf
    }

    /// The interface of packets of the VRF, on which their routing depends.
    fn device(&self) -> Option<IfIndex> {
        self.vrf.map(|vrf| vrf.ifindex)
    }

    /// The interfaces as read last.
    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Reads the interfaces again and returns the previous list.
    pub(crate) fn refresh(&mut self) -> io::Result<Vec<Interface>> {
        let device = self.device();
        let new = super::interfaces::dump(&mut self.connection, device)?;
        Ok(std::mem::replace(&mut self.interfaces, new))
    }

    /// Whether the device of the VRF is gone. Another one of the same name is another device.
    pub(crate) fn has_lost_vrf(&self) -> bool {
        self.device().is_some_and(|device| self.interfaces.iter().all(|one| one.ifindex != device))
    }

    /// Removes the kernel's former answers.
    pub(crate) const fn clear(&mut self) {
        self.cache.clear();
    }

    pub(super) const fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Calls `each` with all routes of all tables. It is an error if they changed meanwhile, because some can be missing.
    pub(super) fn dump(&mut self, each: impl FnMut(&Message<'_>)) -> io::Result<()> {
        self.connection.begin(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &[0; 12]).transact(each)?;
        self.connection.whole()
    }

    /// The route of a packet.
    ///
    /// A packet whose source is another node's is a forwarded one. For IPv4 the kernel refuses to route it as our own.
    /// Without the source the kernel could pick another member of a multipath route, or miss a rule on the source. The
    /// lookup therefore treats the packet as if it came in by the interface that the query names, or else by the one that
    /// leads back to its source: three questions, and those that the kernel answered a moment ago cost no request. Where the kernel would not forward it (a host, or a reverse path
    /// filter), the result is the route by destination.
    pub(crate) fn lookup(&mut self, query: &RouteQuery) -> Result<Route, NoRoute> {
        if let Some(ifindex) = query.without {
            return self.lookup_without(query, ifindex);
        }
        let src = query.src.filter(|src| !src.is_unspecified() && src.is_ipv4() == query.dst.is_ipv4());
        // IPv6 needs no incoming interface. Where it is known, rules on it count.
        let foreign = src.is_some_and(|src| (src.is_ipv4() || query.iif.is_some()) && !self.is_local(src));
        if !foreign {
            let route = self.ask(query, Question { src, ..Question::default() });
            // The address may have been removed a moment ago; the kernel then reports an invalid request.
            return match route {
                Err(_) if src.is_some() => self.ask(query, Question::default()),
                route => route,
            };
        }
        // Most set-ups of a second are between hosts that another one asked for: one search instead of three.
        let whole = Question { src, iif: query.iif, forwarded: true, ..Question::default() };
        let key = self.cache.key(&mut self.connection, query, whole);
        if let Some(answer) = self.cache.get(&key) {
            return answer;
        }
        let answer = self.forwarded(query, src);
        self.cache.put(&key, &answer);
        answer
    }

    fn forwarded(&mut self, query: &RouteQuery, src: Option<IpAddr>) -> Result<Route, NoRoute> {
        let own = Question { src: src.filter(IpAddr::is_ipv6), ..Question::default() };
        let plain = self.ask(query, own);
        let Some(src) = src else { return plain };
        let input = |iif| Question { src: Some(src), iif: Some(iif), ..Question::default() };
        // The packets of a VRF are routed as packets of its device, whatever its interface is.
        let named = self.device().or(query.iif);
        let named = named.and_then(|iif| self.ask(query, input(iif)).ok());
        let found = named.or_else(|| {
            if self.vrf.is_some() {
                return None;
            }
            let back = self.ask(&RouteQuery::to(src), Question::default()).ok()?;
            self.ask(query, input(back.ifindex)).ok()
        });
        let Some(route) = found else { return plain };
        if route.local {
            return plain;
        }
        // The kernel's answer for a forwarded packet lacks our own address.
        let ours = match plain {
            Ok(plain) if plain.ifindex == route.ifindex => Some(plain.src),
            _ => {
                let towards = RouteQuery::to(route.gateway.unwrap_or(query.dst));
                let out = Question { oif: Some(route.ifindex), ..Question::default() };
                self.ask(&towards, out).ok().map(|route| route.src)
            }
        };
        ours.map(|src| Route { src, ..route }).ok_or(NoRoute::Failed)
    }

    /// The route if there were none by `without`: of the entries that lead out of the other interfaces, the one with the
    /// longest prefix and then the least metric. The kernel has no such question, so each interface is asked for once;
    /// the answers for a destination are kept.
    fn lookup_without(&mut self, query: &RouteQuery, without: IfIndex) -> Result<Route, NoRoute> {
        let question = Question { without: Some(without), ..Question::default() };
        let key = self.cache.key(&mut self.connection, query, question);
        if let Some(answer) = self.cache.get(&key) {
            return answer;
        }
        let mut best = None;
        for at in 0..self.interfaces.len() {
            let usable = self.interfaces.get(at).filter(|one| one.up && one.ifindex != without);
            // The device of a VRF stands for all of its routes.
            let usable = usable.filter(|one| Some(one.ifindex) != self.device());
            let Some(oif) = usable.map(|one| one.ifindex) else { continue };
            let entry = self.entry(query, oif);
            if let Ok((rank, route)) = entry
                && !route.local
                && best.is_none_or(|(so_far, _)| rank > so_far)
            {
                best = Some((rank, route));
            }
        }
        let answer = best.map(|(_, route)| route).ok_or(NoRoute::Unreachable);
        self.cache.put(&key, &answer);
        answer
    }

    /// The entry of the tables by which a packet would leave by `oif`, with its rank among others.
    fn entry(&mut self, query: &RouteQuery, oif: IfIndex) -> Result<((u8, Reverse<u32>), Route), NoRoute> {
        let ipv6 = query.dst.is_ipv6();
        let (family, length) = if ipv6 { (libc::AF_INET6, 128) } else { (libc::AF_INET, 32) };
        let mut message = [0; 12];
        message[..4].copy_from_slice(&[family as u8, length, 0, query.tos & DSCP]);
        message[8..].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
        self.connection.begin(libc::RTM_GETROUTE, 0, &message);
        address(&mut self.connection, RTA_DST, query.dst);
        self.connection.attribute(RTA_OIF, &oif.0.to_ne_bytes());
        let mut answer = None;
        let mut rank = (0, Reverse(0));
        let interfaces = &self.interfaces;
        self.connection
            .transact(|message| {
                if let Some((fixed, attributes)) = message.split::<12>() {
                    let mut metrics = attributes.filter(|(kind, _)| *kind == RTA_PRIORITY);
                    let metric = metrics.next().and_then(|(_, data)| u32_of(data)).unwrap_or(0);
                    rank = (fixed[1], Reverse(metric));
                    // An entry with several next hops, or with a nexthop object, does not say which one the packet takes.
                    let single = attributes.into_iter().any(|(kind, _)| kind == RTA_OIF);
                    let route = || read(fixed[7], attributes, interfaces, query.dst, None);
                    answer = Some(single.then(route));
                }
            })
            .map_err(|error| no_route(&error))?;
        let route = match answer {
            Some(Some(route)) => route,
            // With nexthop groups of IPv6, the kernel chooses a member whatever the interface is.
            Some(None) => match self.ask(query, Question { oif: Some(oif), ..Question::default() }) {
                Ok(route) if route.ifindex != oif => Err(NoRoute::Unreachable),
                route => route,
            },
            None => Err(NoRoute::Failed),
        };
        route.map(|route| (rank, route))
    }

    /// Whether a packet with this mark is led to this node, whatever its destination is.
    pub(crate) fn leads_here(&mut self, ipv6: bool, mark: u32) -> io::Result<bool> {
        let (family, length, dst): (_, _, IpAddr) = if ipv6 {
            (libc::AF_INET6, 128, selftest::TO_V6.into())
        } else {
            (libc::AF_INET, 32, selftest::TO_V4.into())
        };
        let mut message = [0; 12];
        message[..2].copy_from_slice(&[family as u8, length]);
        self.connection.begin(libc::RTM_GETROUTE, 0, &message);
        address(&mut self.connection, RTA_DST, dst);
        if let Some(device) = self.device() {
            self.connection.attribute(RTA_OIF, &device.0.to_ne_bytes());
        }
        self.connection.attribute(RTA_MARK, &mark.to_ne_bytes());
        let mut here = false;
        let asked = self.connection.transact(|message| {
            here = message.split::<12>().is_some_and(|(fixed, _)| fixed[7] == libc::RTN_LOCAL);
        });
        match asked {
            Err(error) if no_route(&error) == NoRoute::Failed => Err(error),
            _ => Ok(here),
        }
    }

    /// The same for packets of IPv4 of another node that come in by an interface of this node. That of the first one decides at which the
    /// kernel does not refuse the source: at some it may demand others.
    pub(crate) fn leads_here_from_outside(&mut self, mark: u32) -> io::Result<bool> {
        for (iif, source) in selftest::neighbors(&self.interfaces) {
            let mut message = [0; 12];
            message[..3].copy_from_slice(&[libc::AF_INET as u8, 32, 32]);
            self.connection.begin(libc::RTM_GETROUTE, 0, &message);
            address(&mut self.connection, RTA_DST, selftest::TO_V4.into());
            address(&mut self.connection, RTA_SRC, source);
            let iif = self.device().unwrap_or(iif);
            self.connection.attribute(RTA_IIF, &iif.0.to_ne_bytes());
            self.connection.attribute(RTA_MARK, &mark.to_ne_bytes());
            let mut here = false;
            let asked = self.connection.transact(|message| {
                here = message.split::<12>().is_some_and(|(fixed, _)| fixed[7] == libc::RTN_LOCAL);
            });
            match asked {
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EXDEV)) => {}
                Err(error) if no_route(&error) == NoRoute::Failed => return Err(error),
                _ => return Ok(here),
            }
        }
        Ok(true)
    }

    /// Whether the kernel would choose this next hop at `oif` for a packet to `dst` of which it knows nothing else.
    pub(crate) fn leads_by(&mut self, dst: IpAddr, oif: IfIndex, gateway: IpAddr) -> bool {
        let question = Question { oif: Some(oif), ..Question::default() };
        self.ask(&RouteQuery::to(dst), question).is_ok_and(|route| route.gateway == Some(gateway))
    }

    /// The MTU of an interface, if it is known.
    pub(crate) fn mtu(&self, ifindex: IfIndex) -> Option<u32> {
        let known = self.interfaces.iter().find(|known| known.ifindex == ifindex)?;
        Some(known.mtu).filter(|mtu| *mtu > 0)
    }

    pub(super) fn is_local(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.interfaces.iter().any(|i| i.addresses.contains(&address))
    }

    fn ask(&mut self, query: &RouteQuery, question: Question) -> Result<Route, NoRoute> {
        let key = self.cache.key(&mut self.connection, query, question);
        if let Some(answer) = self.cache.get(&key) {
            return answer;
        }
        let answer = self.request(query, question);
        self.cache.put(&key, &answer);
        answer
    }

    fn request(&mut self, query: &RouteQuery, question: Question) -> Result<Route, NoRoute> {
        let ipv6 = query.dst.is_ipv6();
        let (family, length) = if ipv6 { (libc::AF_INET6, 128) } else { (libc::AF_INET, 32) };
        let src_length = if question.src.is_some() { length } else { 0 };
        let mut message = [0; 12];
        message[..4].copy_from_slice(&[family as u8, length, src_length, query.tos & DSCP]);
        self.connection.begin(libc::RTM_GETROUTE, 0, &message);
        address(&mut self.connection, RTA_DST, query.dst);
        if let Some(src) = question.src {
            address(&mut self.connection, RTA_SRC, src);
        }
        // What comes out of no interface of the VRF leaves by its routes.
        let oif = question.oif.or(self.device().filter(|_| question.iif.is_none()));
        for (kind, index) in [(RTA_IIF, question.iif), (RTA_OIF, oif)] {
            if let Some(index) = index {
                self.connection.attribute(kind, &index.0.to_ne_bytes());
            }
        }
        // The kernel accepts ports of these protocols only, and refuses others.
        if let Some(protocol) = query.protocol.filter(|p| [6, 17].contains(p)) {
            self.connection.attribute(RTA_IP_PROTO, &[protocol]);
            for (kind, port) in [(RTA_SPORT, query.src_port), (RTA_DPORT, query.dst_port)] {
                if let Some(port) = port.filter(|port| *port != 0) {
                    self.connection.attribute(kind, &port.to_be_bytes());
                }
            }
        }
        let mut answer = None;
        let interfaces = &self.interfaces;
        self.connection
            .transact(|message| {
                if let Some((fixed, attributes)) = message.split::<12>() {
                    answer = Some(read(fixed[7], attributes, interfaces, query.dst, question.src));
                }
            })
            .map_err(|error| no_route(&error))?;
        answer.unwrap_or(Err(NoRoute::Failed))
    }
}

pub(super) fn address(connection: &mut Connection, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => connection.attribute(kind, &v4.octets()),
        IpAddr::V6(v6) => connection.attribute(kind, &v6.octets()),
    };
}

/// Reads the kernel's answer, a route of type `kind`.
fn read(
    kind: u8,
    attributes: Attributes<'_>,
    interfaces: &[Interface],
    dst: IpAddr,
    asked_src: Option<IpAddr>,
) -> Result<Route, NoRoute> {
    // IPv6 answers with an unreachable route where IPv4 answers with an error.
    match kind {
        libc::RTN_UNREACHABLE | libc::RTN_THROW => return Err(NoRoute::Unreachable),
        libc::RTN_PROHIBIT | libc::RTN_BLACKHOLE => return Err(NoRoute::Prohibited),
        _ => {}
    }
    let (mut ifindex, mut src, mut gateway, mut mtu) = (None, None, None, None);
    for (kind, data) in attributes {
        match kind {
            RTA_OIF => ifindex = u32_of(data).map(IfIndex),
            RTA_PREFSRC => src = sockaddr::ip(data),
            RTA_GATEWAY => gateway = sockaddr::ip(data),
            RTA_VIA => gateway = data.get(2..).and_then(sockaddr::ip), // an IPv6 next hop for IPv4
            RTA_METRICS => {
                mtu = Attributes(data).find(|(kind, _)| *kind == RTAX_MTU).and_then(|(_, data)| u32_of(data));
            }
            _ => {}
        }
    }
    let ifindex = ifindex.ok_or(NoRoute::Unreachable)?;
    let interface = interfaces.iter().find(|interface| interface.ifindex == ifindex);
    let local = kind == libc::RTN_LOCAL;
    Ok(Route {
        ifindex,
        src: src.or(asked_src).unwrap_or(if local { dst } else { unspecified(dst) }),
        gateway: gateway.filter(|gateway| !gateway.is_unspecified()),
        mtu: mtu.filter(|mtu| *mtu != 0).or(interface.map(|i| i.mtu)).unwrap_or(minimum_mtu(dst)),
        local,
    })
}

fn no_route(error: &io::Error) -> NoRoute {
    match error.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::ESRCH) => NoRoute::Unreachable,
        // The kernel reports EINVAL for a blackhole route.
        Some(libc::EACCES | libc::EINVAL) => NoRoute::Prohibited,
        _ => NoRoute::Failed,
    }
}

const fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// The least MTU that every link of the family has.
const fn minimum_mtu(like: IpAddr) -> u32 {
    if like.is_ipv4() { 576 } else { 1280 }
}
