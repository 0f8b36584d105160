//! A node with four interfaces. The tests compose the messages of its neighbors and set its clock.
//!
//! Interface *n* is `eth`*n*, number *n*, with addresses `10.0.n.1` and `fd00:n::1`. Each has 10 Mbit/s, of which
//! reservations may have 7.5. [`Rig::route`] sets the routes of destinations; others have no route. Neighbor `k` at
//! interface *n* is `10.0.n.k` ([`at`]).
//!
//! ```text
//! let mut rig = Rig::new();                           // 10.9.0.0/16 goes out by eth2
//! let sent = rig.path(&Path::new());                  // from 10.0.1.9 by eth1
//! let path = one(&sent, MessageType::PATH);           // what left, parsed
//! ```

#[path = "rig/sent.rs"]
mod sent;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery};
use signalbox_core::traffic::{Reservation, ReservationId};
use signalbox_core::{IfIndex, Time};
use signalbox_resources::intserv::{RSpec, TSpec};
use signalbox_resources::{LostWhy, ResourceOutput, Resources};
use signalbox_rsvp::engine::IpReceived;
use signalbox_rsvp::engine::{Command, Config, Input, Output, PROTOCOL, Rsvp, RsvpEvent};
use signalbox_rsvp::wire::{
    ErrorCode, ErrorFlags, ErrorSpec, Filter, FlowSpec, HeaderFlags, MessageType, RsvpHop, Selector, Session,
    SessionKind, Style, Writer,
};

#[allow(unused_imports, reason = "of the rules not all")]
pub(crate) use sent::{Reply, Sent, all, kinds, one, one_to};

/// Refresh period of the neighbors by default, milliseconds.
pub(crate) const R: u32 = 30_000;

pub(crate) fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Neighbor `k` at interface `n`.
pub(crate) fn at(n: u32, k: u32) -> IpAddr {
    addr(&format!("10.0.{n}.{k}"))
}

/// The logical interface handle of the node at interface `n`, the same for all nodes: they have the same seed.
pub(crate) fn handle(n: u32) -> u32 {
    static HANDLES: OnceLock<Vec<u32>> = OnceLock::new();
    let all = HANDLES.get_or_init(|| {
        let rig = Rig::new();
        (1..=4).map(|n| rig.rsvp.handle_of(IfIndex(n)).unwrap()).collect()
    });
    all[n as usize - 1]
}

/// The session of most scripts: UDP to a unicast receiver behind eth2.
pub(crate) fn session() -> Session {
    to("10.9.0.1")
}

/// UDP port 5004 of a destination.
pub(crate) fn to(dest: &str) -> Session {
    Session { dest: addr(dest), protocol: 17, kind: SessionKind::Ports, port: 5004 }
}

/// The multicast session of most scripts.
pub(crate) fn group() -> Session {
    to("239.1.1.1")
}

/// Sender `n` of most scripts: `10.8.0.n`, port 4000.
pub(crate) fn sender(n: u32) -> Filter {
    Filter { src: addr(&format!("10.8.0.{n}")), selector: Selector::Port(4000) }
}

/// A Tspec with this rate in octets a second, a bucket of 3000, packets of 64 to 1500.
pub(crate) fn tspec(rate: f32) -> TSpec {
    TSpec::new(rate, 3000.0, f32::INFINITY, 64, 1500).unwrap()
}

/// Controlled load with this rate in octets a second.
pub(crate) fn load(rate: f32) -> FlowSpec {
    FlowSpec { tspec: tspec(rate), rspec: None }
}

/// Guaranteed service with this rate in octets a second.
pub(crate) fn guaranteed(rate: f32, service: f32, slack: u32) -> FlowSpec {
    FlowSpec { tspec: tspec(rate), rspec: Some(RSpec::new(service, slack).unwrap()) }
}

/// A unit of rate: 10 000 octets a second. A link has 93 of them.
pub(crate) const B: f32 = 10_000.0;

/// Any message.
pub(crate) fn compose(kind: MessageType, ttl: u8, compose: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut writer = Writer::new(&mut octets, kind, HeaderFlags::default(), ttl);
    compose(&mut writer);
    writer.finish().unwrap();
    octets
}

/// A Path or PathTear of a neighbor upstream; tests change the fields.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) session: Session,
    pub(crate) sender: Filter,
    pub(crate) hop: RsvpHop,
    pub(crate) period: u32,
    pub(crate) tspec: TSpec,
    /// Whole objects between TIME_VALUES and the sender descriptor.
    pub(crate) extra: Vec<u8>,
    /// A whole ADSPEC object.
    pub(crate) adspec: Vec<u8>,
    pub(crate) e_police: bool,
    /// Incoming interface.
    pub(crate) iif: u32,
    /// TTL in the IP header, and in the common header.
    pub(crate) ttl: u8,
    pub(crate) send_ttl: u8,
}

impl Path {
    /// A Path of sender 1 to [`session`], from neighbor 9 at eth1.
    pub(crate) fn new() -> Self {
        Self {
            session: session(),
            sender: sender(1),
            hop: RsvpHop { addr: at(1, 9), lih: 77 },
            period: R,
            tspec: tspec(10.0 * B),
            extra: Vec::new(),
            adspec: Vec::new(),
            e_police: false,
            iif: 1,
            ttl: 60,
            send_ttl: 60,
        }
    }

    /// A Path of sender `n` to `session`, from neighbor 9 at interface `iif`.
    pub(crate) fn of(session: Session, n: u32, iif: u32) -> Self {
        Self {
            session,
            sender: sender(n),
            hop: RsvpHop { addr: at(iif, 9), lih: 70 + iif },
            iif,
            ..Self::new()
        }
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        compose(MessageType::PATH, self.send_ttl, |w| {
            w.session(&self.session, self.e_police).hop(&self.hop).time_values(self.period).body(&self.extra);
            w.sender_template(&self.sender).sender_tspec(&self.tspec).body(&self.adspec);
        })
    }

    pub(crate) fn tear_octets(&self) -> Vec<u8> {
        compose(MessageType::PATH_TEAR, self.send_ttl, |w| {
            w.session(&self.session, false).hop(&self.hop).body(&self.extra);
            w.sender_template(&self.sender).sender_tspec(&self.tspec);
        })
    }
}

/// A Resv or ResvTear of a neighbor downstream; tests change the fields.
#[derive(Debug, Clone)]
pub(crate) struct Resv {
    pub(crate) session: Session,
    /// The handle is the number of the interface by which the Path left.
    pub(crate) hop: RsvpHop,
    pub(crate) period: u32,
    pub(crate) confirm: Option<IpAddr>,
    pub(crate) scope: Vec<IpAddr>,
    /// Whole objects before STYLE.
    pub(crate) extra: Vec<u8>,
    pub(crate) style: Style,
    pub(crate) flows: Vec<(Option<FlowSpec>, Vec<Filter>)>,
    /// Incoming interface.
    pub(crate) iif: u32,
}

impl Resv {
    fn of(style: Style, flows: Vec<(Option<FlowSpec>, Vec<Filter>)>) -> Self {
        Self {
            session: session(),
            hop: RsvpHop { addr: at(2, 9), lih: handle(2) },
            period: R,
            confirm: None,
            scope: Vec::new(),
            extra: Vec::new(),
            style,
            flows,
            iif: 2,
        }
    }

    /// FF from neighbor 9 at eth2 for [`session`].
    pub(crate) fn ff(flows: &[(FlowSpec, u32)]) -> Self {
        let flows = flows.iter().map(|(flowspec, n)| (Some(*flowspec), vec![sender(*n)])).collect();
        Self::of(Style::Ff, flows)
    }

    /// SE from neighbor 9 at eth2 for [`session`].
    pub(crate) fn se(flowspec: FlowSpec, senders: &[u32]) -> Self {
        let senders = senders.iter().map(|n| sender(*n)).collect();
        Self::of(Style::Se, vec![(Some(flowspec), senders)])
    }

    /// WF from neighbor 9 at eth2 for [`session`].
    pub(crate) fn wf(flowspec: FlowSpec) -> Self {
        Self::of(Style::Wf, vec![(Some(flowspec), Vec::new())])
    }

    /// The same from neighbor `k` at interface `n`, for `session`.
    pub(crate) fn from(self, n: u32, k: u32, session: Session) -> Self {
        Self { hop: RsvpHop { addr: at(n, k), lih: handle(n) }, iif: n, session, ..self }
    }

    /// The same with a RESV_CONFIRM for `receiver`.
    pub(crate) fn confirmed(self, receiver: IpAddr) -> Self {
        Self { confirm: Some(receiver), ..self }
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        compose(MessageType::RESV, 255, |w| {
            w.session(&self.session, false).hop(&self.hop).time_values(self.period);
            if let Some(receiver) = self.confirm {
                w.resv_confirm(receiver);
            }
            let mut scope = self.scope.clone();
            w.scope(&mut scope).body(&self.extra).style(self.style);
            self.flows(w);
        })
    }

    pub(crate) fn tear_octets(&self) -> Vec<u8> {
        compose(MessageType::RESV_TEAR, 255, |w| {
            w.session(&self.session, false).hop(&self.hop).body(&self.extra).style(self.style);
            self.flows(w);
        })
    }

    fn flows(&self, w: &mut Writer<'_>) {
        for (flowspec, filters) in &self.flows {
            if let Some(flowspec) = flowspec {
                w.flowspec(flowspec);
            }
            for filter in filters {
                w.filter_spec(filter);
            }
        }
    }

    /// A ResvErr of this request's flow descriptors, from neighbor 9 at interface `iif`.
    pub(crate) fn error_octets(&self, iif: u32, code: ErrorCode, value: u16, in_place: bool) -> Vec<u8> {
        let flags = if in_place { ErrorFlags::IN_PLACE } else { ErrorFlags::default() };
        compose(MessageType::RESV_ERR, 255, |w| {
            w.session(&self.session, false).hop(&RsvpHop { addr: at(iif, 9), lih: 70 + iif });
            w.error_spec(&ErrorSpec { node: addr("10.7.7.7"), flags, code, value });
            let mut scope = self.scope.clone();
            w.scope(&mut scope).body(&self.extra).style(self.style);
            self.flows(w);
        })
    }
}

pub(crate) struct Rig {
    pub(crate) rsvp: Rsvp,
    pub(crate) resources: Resources,
    pub(crate) now: Time,
    pub(crate) interfaces: Vec<Interface>,
    /// Replies by UDP that no test has taken yet.
    pub(crate) replies: Vec<Reply>,
    /// Events of applications.
    pub(crate) events: Vec<(u64, RsvpEvent)>,
    /// Interface of each unicast destination; 0: this node.
    pub(crate) routes: Vec<(Prefix, u32)>,
    /// Interface of the backup route of all unicast destinations; 0: they have no backup route.
    pub(crate) backup: u32,
    /// Number of the neighbor at the end of unicast routes.
    pub(crate) gateway: u32,
    /// Incoming and outgoing interfaces by group and source.
    pub(crate) trees: BTreeMap<(IpAddr, IpAddr), (u32, Vec<u32>)>,
    /// Reservations in the kernel.
    pub(crate) installed: BTreeMap<ReservationId, Reservation>,
    /// Number of answered route lookups.
    pub(crate) lookups: u32,
    /// The last unicast and multicast lookups.
    pub(crate) asked: (Option<RouteQuery>, Option<(IpAddr, IpAddr)>),
    /// Multicast routes that the node released.
    pub(crate) released: Vec<(IpAddr, IpAddr)>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self::with_links(config, "10mbit")
    }

    /// A node whose neighbors may be behind nodes without RSVP.
    pub(crate) fn distant() -> Self {
        let mut config = Config::default();
        config.neighbors.interface.trust.distant_hops = true;
        Self::with(config)
    }

    /// A node whose links have this capacity.
    pub(crate) fn with_links(config: Config, capacity: &str) -> Self {
        let mut config = config;
        // The neighbors support RFC 2205 only.
        config.neighbors.interface.reduction.reliable = false;
        Self::with_neighbors(config, capacity)
    }

    /// A node with its own settings for neighbors.
    pub(crate) fn with_neighbors(config: Config, capacity: &str) -> Self {
        Self::with_all(config, signalbox_resources::Config::of_link("*", capacity.parse().unwrap()))
    }

    /// A node with these links and policy, whose neighbors support RFC 2205 only.
    pub(crate) fn with_resources(links: signalbox_resources::Config) -> Self {
        let mut config = Config::default();
        config.neighbors.interface.reduction.reliable = false;
        Self::with_all(config, links)
    }

    pub(crate) fn with_all(config: Config, links: signalbox_resources::Config) -> Self {
        let interfaces: Vec<Interface> = (1..=4)
            .map(|n| Interface {
                ifindex: IfIndex(n),
                name: format!("eth{n}"),
                up: true,
                mtu: 1500,
                tunnel: false,
                addresses: vec![at(n, 1), addr(&format!("fd00:{n}::1"))],
            })
            .collect();
        let mut resources = Resources::new(links, 0, [1; 32]).unwrap();
        resources.interfaces(&interfaces);
        let routes = vec![
            (Prefix { addr: addr("10.9.0.0"), len: 16 }, 2),
            (Prefix { addr: addr("fd09::"), len: 16 }, 2),
            (Prefix { addr: addr("10.8.0.0"), len: 16 }, 1),
        ];
        let mut rig = Self {
            rsvp: Rsvp::new(config, [9; 32]).unwrap(),
            resources,
            now: Time::from_secs(10),
            interfaces,
            replies: Vec::new(),
            events: Vec::new(),
            routes,
            backup: 0,
            gateway: 9,
            trees: BTreeMap::new(),
            installed: BTreeMap::new(),
            lookups: 0,
            asked: (None, None),
            released: Vec::new(),
        };
        rig.input(Input::Interfaces(&rig.interfaces.clone()));
        rig
    }

    /// Routes a prefix to `oif` (0: to this node) from now on, and reports the change to the node.
    pub(crate) fn route(&mut self, prefix: &str, len: u8, oif: u32) -> Vec<Sent> {
        let prefix = Prefix { addr: addr(prefix), len };
        self.routes.retain(|(known, _)| *known != prefix);
        self.routes.insert(0, (prefix, oif));
        self.input(Input::RouteChanged(prefix))
    }

    /// Sets the multicast route of sender `n` to `session`, and reports it to the node.
    pub(crate) fn tree(&mut self, session: Session, n: u32, iif: u32, oifs: &[u32]) -> Vec<Sent> {
        let key = (session.dest, sender(n).src);
        self.trees.insert(key, (iif, oifs.to_vec()));
        let oifs: Vec<IfIndex> = oifs.iter().copied().map(IfIndex).collect();
        self.input(Input::Multicast { group: key.0, source: key.1, iif: IfIndex(iif), oifs: &oifs })
    }

    /// Gives an input and answers the lookups that follow; returns the packets that the node sends.
    pub(crate) fn input(&mut self, input: Input<'_>) -> Vec<Sent> {
        self.rsvp.handle(self.now, input, &mut self.resources);
        let mut sent = Vec::new();
        loop {
            let (mut lookups, mut groups) = (Vec::new(), Vec::new());
            while let Some(output) = self.rsvp.poll() {
                match output {
                    Output::Send(packet) => sent.push(Sent {
                        at: self.now,
                        src: packet.src,
                        dst: packet.dst,
                        oif: packet.ifindex.map_or(0, |ifindex| ifindex.0),
                        ttl: packet.ttl,
                        tos: packet.tos,
                        router_alert: packet.router_alert,
                        octets: packet.payload.to_vec(),
                    }),
                    Output::Reply { src, dst, payload, .. } => {
                        self.replies.push(Reply { src, dst, octets: payload.to_vec() });
                    }
                    Output::RouteLookup { id, query } => {
                        self.asked.0 = Some(query);
                        lookups.push((id, query));
                    }
                    Output::MulticastLookup { group, source } => {
                        self.asked.1 = Some((group, source));
                        groups.push((group, source));
                    }
                    Output::MulticastRelease { group, source } => self.released.push((group, source)),
                    Output::Event { id, event } => self.events.push((id, event)),
                }
            }
            let (mut lost, mut reduced) = (Vec::new(), Vec::new());
            while let Some(output) = self.resources.poll() {
                match output {
                    ResourceOutput::Install { id, reservation } => {
                        self.installed.insert(id, reservation.clone());
                        self.resources.installed(id, Ok(()));
                    }
                    ResourceOutput::Remove { id } => {
                        self.installed.remove(&id);
                    }
                    ResourceOutput::Reduced { owner, grant, rate } => reduced.push((owner.key, grant, rate)),
                    ResourceOutput::Lost { owner, grant, why } if owner.protocol == PROTOCOL => {
                        lost.push((owner.key, grant, why));
                    }
                    _ => {}
                }
            }
            if lookups.is_empty() && groups.is_empty() && lost.is_empty() && reduced.is_empty() {
                return sent;
            }
            for (id, query) in lookups {
                self.lookups += 1;
                let result = self.way_to(&query);
                self.rsvp.handle(self.now, Input::Route { id, result }, &mut self.resources);
            }
            for (group, source) in groups {
                let (iif, oifs) = self.trees.get(&(group, source)).cloned().unwrap_or_default();
                let oifs: Vec<IfIndex> = oifs.into_iter().map(IfIndex).collect();
                let input = Input::Multicast { group, source, iif: IfIndex(iif), oifs: &oifs };
                self.rsvp.handle(self.now, input, &mut self.resources);
            }
            for (key, grant, rate) in reduced {
                self.rsvp.handle(self.now, Input::Reduced { key, grant, rate }, &mut self.resources);
            }
            for (key, grant, why) in lost {
                self.rsvp.handle(self.now, Input::Lost { key, grant, why }, &mut self.resources);
            }
        }
    }

    fn way_to(&self, query: &RouteQuery) -> Result<Route, NoRoute> {
        let dst = query.dst;
        let local = self.interfaces.iter().any(|one| one.addresses.contains(&dst));
        let routed = match query.without {
            Some(_) => Some(self.backup).filter(|oif| *oif != 0),
            None => self.routes.iter().find(|(prefix, _)| prefix.contains(dst)).map(|(_, oif)| *oif),
        };
        match routed.filter(|_| !local) {
            None if !local => Err(NoRoute::Unreachable),
            None | Some(0) => {
                let lo = IfIndex(100);
                Ok(Route { ifindex: lo, src: dst, gateway: None, mtu: 65536, local: true })
            }
            Some(oif) => {
                let gateway = Some(at(oif, self.gateway));
                Ok(Route { ifindex: IfIndex(oif), src: at(oif, 1), gateway, mtu: 1500, local: false })
            }
        }
    }

    /// Gives a packet from interface `iif`.
    pub(crate) fn packet(&mut self, iif: u32, src: IpAddr, dst: IpAddr, ttl: u8, octets: &[u8]) -> Vec<Sent> {
        self.input(Input::Packet(IpReceived {
            src,
            dst,
            ifindex: IfIndex(iif),
            ttl,
            tos: 0xc0,
            router_alert: true,
            payload: octets,
        }))
    }

    pub(crate) fn path(&mut self, path: &Path) -> Vec<Sent> {
        self.packet(path.iif, path.sender.src, path.session.dest, path.ttl, &path.octets())
    }

    pub(crate) fn path_tear(&mut self, path: &Path) -> Vec<Sent> {
        self.packet(path.iif, path.sender.src, path.session.dest, path.ttl, &path.tear_octets())
    }

    pub(crate) fn resv(&mut self, resv: &Resv) -> Vec<Sent> {
        self.neighborly(resv.iif, resv.hop.addr, &resv.octets())
    }

    pub(crate) fn resv_tear(&mut self, resv: &Resv) -> Vec<Sent> {
        self.neighborly(resv.iif, resv.hop.addr, &resv.tear_octets())
    }

    /// The reservation at interface `n` is lost.
    pub(crate) fn lose(&mut self, n: u32, why: LostWhy) -> Vec<Sent> {
        let one = self.resources.reservations().find(|one| one.ifindex.0 == n).unwrap();
        let (key, grant) = (one.owner.key, one.grant);
        self.resources.release(grant);
        self.input(Input::Lost { key, grant, why })
    }

    /// Gives a message that is addressed to this node, by interface `iif` from the neighbor `src`.
    pub(crate) fn neighborly(&mut self, iif: u32, src: IpAddr, octets: &[u8]) -> Vec<Sent> {
        let dst = if src.is_ipv6() { addr(&format!("fd00:{iif}::1")) } else { at(iif, 1) };
        self.packet(iif, src, dst, 255, octets)
    }

    pub(crate) fn command(&mut self, id: u64, command: Command) -> Vec<Sent> {
        self.input(Input::Command { id, command })
    }

    /// Lets time pass; returns the packets that the node sends meanwhile.
    pub(crate) fn wait(&mut self, time: Duration) -> Vec<Sent> {
        let end = self.now + time;
        let mut sent = Vec::new();
        for _ in 0..1_000_000 {
            let Some(next) = self.rsvp.next_deadline().filter(|next| *next <= end) else {
                self.now = end;
                return sent;
            };
            self.now = self.now.max(next);
            sent.extend(self.input(Input::Timer));
        }
        panic!("the node's timers make no progress");
    }

    /// Octets a second reserved at interface `n`.
    pub(crate) fn reserved(&self, n: u32) -> u64 {
        self.resources.links().filter(|link| link.ifindex == IfIndex(n)).map(|link| link.reserved).sum()
    }

    /// Bucket depth of each reservation at interface `n`, octets.
    pub(crate) fn bursts(&self, n: u32) -> Vec<u32> {
        self.installed.values().filter(|one| one.ifindex.0 == n).map(|one| one.traffic.burst).collect()
    }

    /// Number of reservations at all interfaces.
    pub(crate) fn reservations(&self) -> usize {
        self.resources.reservations().count()
    }

    /// Takes the events of an application.
    pub(crate) fn take_events(&mut self, id: u64) -> Vec<RsvpEvent> {
        let (of, others) = core::mem::take(&mut self.events).into_iter().partition(|(to, _)| *to == id);
        self.events = others;
        let of: Vec<(u64, RsvpEvent)> = of;
        of.into_iter().map(|(_, event)| event).collect()
    }
}
