//! Packets of this node's own that take the way of intercepted ones: whether they arrive shows whether the interception works.
//!
//! A packet socket puts them on the loopback interface without a route, so that the kernel receives them there as it receives those of
//! other nodes: they pass the hook prerouting with all chains of others, the rule of the entry redirects and marks them, and the policy
//! rule and the local table lead them to the socket of the entry. A lookup of the route of a marked packet, which costs less, does not
//! show that a later chain changes the mark, that a chain drops the packets, or that a setting of the kernel does.
//!
//! They are addressed to an address for documentation, and their payload ends with a random token of this test: a packet with it is
//! not for the node. What does not get its mark is dropped at the end of prerouting (`guard`), so that it does not leave this machine.
//!
//! The loopback interface is not the interface by which packets of others come in. A rule about that interface alone is not seen.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use signalbox_core::node::{Interface, RouteQuery};
use signalbox_core::packet::{Transmit, router_alert_v4, router_alert_v6};
use signalbox_core::{AlertRule, Entry, EntryRequest, IfIndex, Intercept, Match, Reach};
use socket2::{Domain, Protocol, Socket, Type};

use super::compose;
use crate::intercept::value;
use crate::netlink::Batch;
use crate::netlink::Routes;
use crate::netlink::nftables::expression::{self, Compare, Header};
use crate::netlink::nftables::{self, NFPROTO_IPV4, NFPROTO_IPV6};
use crate::sys::mmsg::{self, Datagram, Outgoing};
use crate::sys::{self, packet};

/// The destinations: addresses for documentation, which no node has.
pub(crate) const TO_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 91);
pub(crate) const TO_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x5b);
const FROM_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 92);
const FROM_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x5c);
const LOOPBACK: &str = "lo";
/// A router that gets such a packet nevertheless sends it no further.
const TTL: u8 = 1;
/// Octets of the token, and of the token with the place of its packet among those of the test.
const TOKEN: usize = 16;
const MARKED: usize = TOKEN + 1;
/// Most packets of one test.
const MOST: usize = 16;
/// Most addresses of this node whose neighbors are tried as sources.
const MOST_SOURCES: usize = 16;

/// The beginning of the names of our tables.
const TABLES: &[u8] = b"signalbox";
/// Most chains that a fault names.
const MOST_CHAINS: usize = 8;

type Token = [u8; TOKEN];

/// The packets that one rule of the interception takes, of one IP version.
struct Kind {
    entry: Entry,
    /// The name of the protocol for people.
    name: String,
    ipv6: bool,
    alert: AlertRule,
    matches: Vec<Match>,
}

/// What did not arrive of the packets of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) ipv6: bool,
    /// The protocols, for people.
    pub(super) names: String,
    /// The setting of the kernel that lets none arrive, if one is known.
    pub(super) setting: Option<String>,
}

impl Lost {
    /// The text for people.
    pub(super) fn explain(&self) -> String {
        let (family, number) = if self.ipv6 { ("IPv6", NFPROTO_IPV6) } else { ("IPv4", NFPROTO_IPV4) };
        let what = format!("{family}: packets of {} do not arrive", self.names);
        if let Some(setting) = &self.setting {
            return format!(
                "{what}: the kernel drops them, because {setting} is 1: write 0, or let kernel.rule_preference be more than 0"
            );
        }
        let chains = nftables::chains_before_a_socket(number, TABLES).unwrap_or_default();
        let known = match chains.get(..chains.len().min(MOST_CHAINS)) {
            None | Some([]) => String::new(),
            Some(some) => format!(" ({})", some.join("; ")),
        };
        format!(
            "{what}: a chain of prerouting or input changes their mark or drops them: nft list ruleset{known}"
        )
    }
}

/// The test of the interception.
pub(super) struct SelfTest {
    /// It sends to the loopback interface, and receives nothing; `None` where the kernel has no packet sockets, or does not allow one.
    socket: Option<Socket>,
    kinds: Vec<Kind>,
    filters: Filters,
    /// The tokens of this test and of the one before, whose packets may come late.
    tokens: [Option<Token>; 2],
    /// The places of the packets that have not arrived.
    awaited: BTreeSet<u8>,
    /// Packets of tests that arrived since the last call of [`SelfTest::take_arrived`].
    arrived: u64,
}

impl SelfTest {
    /// Opens the socket of the test. `intercepted` says which entries are intercepted, by IP version.
    pub(super) fn open(entries: &[EntryRequest], intercepted: impl Fn(&EntryRequest, bool) -> bool) -> Self {
        let mut kinds = Vec::new();
        for (request, ipv6) in entries.iter().flat_map(|request| [(request, false), (request, true)]) {
            let rule = request.intercept.iter().find(|rule| may_be_tried(rule, ipv6));
            if let Some(rule) =
                rule.filter(|_| request.receive && kinds.len() < MOST && intercepted(request, ipv6))
            {
                kinds.push(Kind {
                    entry: request.entry,
                    name: request.subsystem.protocol.replace('_', " ").to_uppercase(),
                    ipv6,
                    alert: rule.alert,
                    matches: rule.matches.clone(),
                });
            }
        }
        // Protocol 0: the kernel gives it no packets.
        let socket = Socket::new(Domain::PACKET, Type::DGRAM.nonblocking(), Some(Protocol::from(0)));
        let socket = socket.inspect_err(|error| tracing::debug!(%error, "the interception is not tried"));
        Self {
            socket: socket.ok().filter(|_| !kinds.is_empty()),
            kinds,
            filters: Filters::open(),
            tokens: [None; 2],
            awaited: BTreeSet::new(),
            arrived: 0,
        }
    }

    /// Sends the packets of a new test, those of IPv4 and of IPv6 as `wanted` says. Returns why none of a family was sent. With
    /// `passed_over`, a setting of the kernel, packets of IPv4 that come by the loopback interface are not led to this node.
    pub(super) fn begin(
        &mut self,
        wanted: [bool; 2],
        passed_over: Option<&str>,
        routes: &mut Routes,
    ) -> Vec<String> {
        self.awaited.clear();
        let mut untried = Vec::new();
        for (ipv6, family) in [(false, "IPv4"), (true, "IPv6")] {
            let any = self.kinds.iter().any(|kind| kind.ipv6 == ipv6);
            if any && wanted[usize::from(ipv6)] {
                let source = match passed_over {
                    Some(setting) if !ipv6 => {
                        Err(format!("{setting} is 1, and those of the loopback interface cannot arrive then"))
                    }
                    _ => self.source(ipv6, routes),
                };
                let sent = source.and_then(|source| self.send(ipv6, source));
                untried.extend(sent.err().map(|reason| format!("{family}: {reason}")));
            }
        }
        untried
    }

    fn source(&self, ipv6: bool, routes: &mut Routes) -> Result<IpAddr, String> {
        if ipv6 {
            return Ok(FROM_V6.into());
        }
        let filter = self.filters.value();
        if filter == STRICT {
            return Err("net.ipv4.conf.lo.rp_filter or that of all is 1".to_owned());
        }
        // A loose filter demands a route to the source. An address of this node is no source of a packet that comes in.
        let neighbors = neighbors(routes.interfaces()).into_iter().map(|(_, neighbor)| neighbor);
        let candidates: Vec<IpAddr> = std::iter::once(FROM_V4.into()).chain(neighbors).collect();
        let mut fits = |to: IpAddr| match routes.lookup(&RouteQuery::to(to)) {
            Ok(route) => !route.local,
            Err(_) => filter == 0,
        };
        let found = candidates.into_iter().find(|candidate| fits(*candidate));
        found
            .ok_or_else(|| "net.ipv4.conf.lo.rp_filter or that of all is 2, and there is no route".to_owned())
    }

    /// Sends the packets of a family.
    fn send(&mut self, ipv6: bool, source: IpAddr) -> Result<(), String> {
        let Some(socket) = &self.socket else { return Err("there is no packet socket".to_owned()) };
        let reason = |error: std::io::Error| error.to_string();
        let loopback = sys::interface_index(LOOPBACK).map_err(reason)?;
        if self.awaited.is_empty() {
            let mut token = [0; TOKEN];
            sys::getrandom(&mut token).map_err(reason)?;
            self.tokens = [Some(token), self.tokens[0]];
        }
        let [Some(token), _] = self.tokens else { return Ok(()) };
        let name = packet::address(loopback, if ipv6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP });
        for (place, kind) in (0_u8..).zip(&self.kinds).filter(|(_, kind)| kind.ipv6 == ipv6) {
            let packet = kind.compose(source, &token, place);
            // It may come before the call returns.
            self.awaited.insert(place);
            let one = Outgoing { name: &name, payload: &packet, control: &[] };
            if let Err(error) = mmsg::send(socket.as_raw_fd(), std::iter::once(one)) {
                self.awaited
                    .retain(|place| self.kinds.get(usize::from(*place)).is_none_or(|kind| kind.ipv6 != ipv6));
                return Err(reason(error));
            }
        }
        Ok(())
    }

    /// Takes a packet of a test. False: the packet is for the node.
    pub(super) fn takes(&mut self, entry: Entry, datagram: &Datagram<'_>) -> bool {
        if self.tokens[0].is_none() {
            return false;
        }
        let Some([token @ .., place]) = datagram.payload.last_chunk::<MARKED>() else { return false };
        let of = |candidate: &Option<Token>| candidate.as_ref().is_some_and(|one| one == token);
        let Some(which) = self.tokens.iter().position(of) else { return false };
        let kind = self.kinds.get(usize::from(*place));
        if which == 0 && kind.is_some_and(|kind| kind.entry == entry) {
            self.awaited.remove(place);
        }
        self.arrived += 1;
        true
    }

    /// The number of packets of tests that arrived since the last call.
    pub(super) const fn take_arrived(&mut self) -> u64 {
        std::mem::replace(&mut self.arrived, 0)
    }

    /// Whether all packets of the test have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.awaited.is_empty()
    }

    /// What has not arrived of the packets of the last test. `obstacle`: a setting of the kernel by which none of IPv4 does.
    pub(super) fn lost(&self, obstacle: Option<&str>) -> Vec<Lost> {
        let lost = |ipv6: bool| {
            let kinds = self.awaited.iter().filter_map(|place| self.kinds.get(usize::from(*place)));
            let names: Vec<&str> =
                kinds.filter(|kind| kind.ipv6 == ipv6).map(|kind| kind.name.as_str()).collect();
            let setting = obstacle.filter(|_| !ipv6).map(ToOwned::to_owned);
            (!names.is_empty()).then(|| Lost { ipv6, names: names.join(", "), setting })
        };
        [false, true].into_iter().filter_map(lost).collect()
    }
}

/// Whether packets of a rule can be tried: those of other rules come by an interface that the rule names.
fn may_be_tried(rule: &Intercept, ipv6: bool) -> bool {
    rule.reach == Reach::Passing && rule.through.is_none() && rule.is_for(ipv6)
}

/// Other nodes' addresses of IPv4, each with the interface by which its packets come in.
pub(crate) fn neighbors(interfaces: &[Interface]) -> Vec<(IfIndex, IpAddr)> {
    let up = interfaces.iter().filter(|one| one.up);
    let addresses = up.flat_map(|one| one.addresses.iter().map(|address| (one.ifindex, *address)));
    let neighbors = addresses.filter_map(|(ifindex, address)| Some((ifindex, neighbor(address)?)));
    neighbors.take(MOST_SOURCES).collect()
}

/// Another address of the link of an address of this node.
fn neighbor(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V4(address) = address else { return None };
    let [a, b, c, d] = address.octets();
    // Those that end so are those of the network and of all its nodes in most networks.
    let d = Some(d ^ 1).filter(|d| ![0, u8::MAX].contains(d)).or_else(|| d.checked_add(2))?;
    (!address.is_loopback()).then(|| Ipv4Addr::new(a, b, c, d).into())
}

impl Kind {
    /// A packet of this kind that ends with the token and its place.
    fn compose(&self, source: IpAddr, token: &Token, place: u8) -> Vec<u8> {
        let mut payload = Vec::new();
        for Match { offset, value, .. } in &self.matches {
            let (start, end) = (usize::from(*offset), usize::from(*offset) + 4);
            payload.resize(payload.len().max(end), 0);
            let octets = payload.get_mut(start..end).into_iter().flatten();
            octets.zip(value.to_be_bytes()).for_each(|(octet, wanted)| *octet |= wanted);
        }
        payload.extend_from_slice(token);
        payload.push(place);
        let (v4, v6) = match self.alert {
            AlertRule::Value { ipv4, ipv6 } => (router_alert_v4(ipv4), router_alert_v6(ipv6)),
            AlertRule::Any | AlertRule::NotRequired => (router_alert_v4(0), router_alert_v6(0)),
        };
        let options: &[u8] = match (self.alert, self.ipv6) {
            (AlertRule::NotRequired, _) => &[],
            (_, false) => &v4,
            (_, true) => &v6,
        };
        let port = if let Entry::Udp(port) = self.entry { port } else { 0 };
        let to: IpAddr = if self.ipv6 { TO_V6.into() } else { TO_V4.into() };
        let transmit = Transmit {
            entry: self.entry,
            src: SocketAddr::new(source, port),
            dst: SocketAddr::new(to, port),
            ifindex: None,
            gateway: None,
            ttl: TTL,
            tos: 0,
            dont_fragment: false,
            flow_label: 0,
            unproved: false,
            options,
            payload: &payload,
        };
        let mut packet = Vec::new();
        match self.entry {
            Entry::Ip(protocol) => compose::packet_of(protocol, &transmit, &mut packet),
            Entry::Udp(_) | Entry::IcmpEcho(_) => compose::packet(&transmit, &mut packet),
        };
        compose::seal(&mut packet);
        packet
    }
}

/// The value of rp_filter with which the kernel demands that the route to the source leads out by the interface.
const STRICT: u8 = 1;

/// The filter of sources at the loopback interface. The files stay open: a daemon without privileges cannot open them again.
struct Filters([Option<File>; 2]);

impl Filters {
    fn open() -> Self {
        Self(["all", LOOPBACK].map(|of| File::open(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter")).ok()))
    }

    /// The larger value counts.
    fn value(&self) -> u8 {
        self.0.iter().flatten().filter_map(value).max().unwrap_or(0)
    }
}

/// Composes the rule that drops packets of tests, of one protocol, that come to the end of prerouting without the mark:
///
/// ```text
/// iifname "lo" ip daddr TO meta l4proto PROTOCOL meta mark != MARK drop
/// ```
pub(crate) fn guard(rule: &mut Batch, ipv6: bool, protocol: u8, mark: u32) {
    expression::arrived_by(rule, LOOPBACK);
    if ipv6 {
        expression::load(rule, Header::Network, (24, 16));
        expression::compare(rule, Compare::Equal, &TO_V6.octets());
    } else {
        expression::load(rule, Header::Network, (16, 4));
        expression::compare(rule, Compare::Equal, &TO_V4.octets());
    }
    expression::protocol(rule, protocol);
    expression::lacks_mark(rule, mark);
    expression::drop(rule);
}
