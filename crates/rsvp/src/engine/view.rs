//! What operators are shown.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::metrics::Table;
use signalbox_core::stamp::Since;
use signalbox_core::{IfIndex, Key, Time, invariant};
use signalbox_resources::GrantId;
use signalbox_resources::intserv::TSpec;

use super::Rsvp;
use super::interfaces::{Iface, InterfaceState};
use super::neighbor::Traffic;
use super::path::{LOCAL, NON_RSVP, PATH, RESV, Sender, policy_in};
use super::reservation::{Branch, Request};
use super::session::{self, Blocked, NONE, is_application};
use crate::wire::{Adspec, Filter, FlowSpec, RawAdspec, Session, Style};

/// A session with its senders and the reservations for them at this node.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionView {
    /// The session.
    pub session: Session,
    /// Path state.
    pub senders: Vec<SenderView>,
    /// Reservations, each at one interface.
    pub reservations: Vec<ReservationView>,
    /// Blockade state (RFC 2205 §3.5).
    pub blockades: Vec<BlockadeView>,
    /// What is requested of each previous hop.
    pub upstream: Vec<UpstreamView>,
}

/// An element of blockade state (RFC 2205 §3.5).
#[derive(Debug, Clone, PartialEq)]
pub struct BlockadeView {
    /// The sender (explicit styles).
    pub sender: Option<Filter>,
    /// The previous hop (wildcard style).
    pub previous_hop: Option<IpAddr>,
    /// Requests that are not less than this are left out of merges.
    pub flowspec: FlowSpec,
    /// Time when it ends.
    pub expires: Time,
}

/// What is requested of a previous hop.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamView {
    /// The previous hop.
    pub previous_hop: IpAddr,
    /// The interface to it.
    pub ifindex: IfIndex,
    /// Style of the Resvs.
    pub style: Style,
    /// The requested flowspec of each sender; of a shared style they are merged in the Resv.
    pub flows: Vec<(Filter, FlowSpec)>,
    /// Time of the next refresh; `None`: it is not set.
    pub next_refresh: Option<Time>,
}

/// The request of a next hop, or of an application of this node.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestView {
    /// The next hop; `None`: an application of this node.
    pub next_hop: Option<IpAddr>,
    /// Its flowspec.
    pub flowspec: FlowSpec,
    /// Time when it, or its first sender, ends without a refresh; `None`: it does not end.
    pub expires: Option<Time>,
}

/// Path state of a sender.
#[derive(Debug, Clone, PartialEq)]
pub struct SenderView {
    /// The sender template.
    pub sender: Filter,
    /// Its traffic.
    pub tspec: TSpec,
    /// The previous hop; `None`: the sender is an application of this node.
    pub previous_hop: Option<IpAddr>,
    /// Incoming interface; [`IfIndex::NONE`]: there is none.
    pub ifindex: IfIndex,
    /// Time of its first Path, or of its announcement here.
    pub since: Time,
    /// Time when it ends without a refresh; `None`: it does not end.
    pub expires: Option<Time>,
    /// Time of the next Path; `None`: no Path is sent.
    pub next_refresh: Option<Time>,
    /// Interfaces by which its Paths leave.
    pub outgoing: Vec<IfIndex>,
    /// Hops without RSVP lie between the previous hop and this node.
    pub non_rsvp_hop: bool,
    /// A hop without RSVP or integrated services lies on the path.
    pub broken: bool,
    /// The ADSPEC at this node; `None`: there is none, or it cannot be read.
    pub adspec: Option<Adspec>,
    /// POLICY_DATA objects; empty for none.
    pub policy: Box<[u8]>,
}

/// A reservation at an interface.
#[derive(Debug, Clone, PartialEq)]
pub struct ReservationView {
    /// Its style.
    pub style: Style,
    /// Outgoing interface; [`IfIndex::NONE`]: an application of this node receives the data.
    pub ifindex: IfIndex,
    /// The senders; empty with WF.
    pub senders: Vec<Filter>,
    /// The merged flowspec of all requests.
    pub flowspec: FlowSpec,
    /// The next hops; `None`: an application of this node.
    pub next_hops: Vec<Option<IpAddr>>,
    /// The request of each.
    pub requests: Vec<RequestView>,
    /// The grant of admission control, whose time is that of the reservation.
    pub grant: Option<GrantId>,
    /// Time when the first application of this node requested it; `None`: only next hops did.
    pub requested_here: Option<Time>,
    /// POLICY_DATA objects of all requests; empty for none.
    pub policy: Box<[u8]>,
}

/// RSVP's state of an interface.
#[derive(Debug, Clone, PartialEq)]
pub struct InterfaceView<'a> {
    /// The kernel's number.
    pub ifindex: IfIndex,
    /// Its name.
    pub name: &'a str,
    /// RSVP is on there.
    pub enabled: bool,
    /// It is up.
    pub up: bool,
    /// This node's addresses in RSVP_HOPs: IPv4 and IPv6.
    pub addresses: [Option<IpAddr>; 2],
    /// The refresh period of the configuration.
    pub refresh: Duration,
    /// The refresh period in TIME_VALUES.
    pub announced: Duration,
    /// MESSAGE_IDs, and with them Bundles and Srefreshes.
    pub reduction: (bool, bool),
    /// Time between Hellos; `None`: Hello is off.
    pub hello: Option<Duration>,
    /// Messages carry INTEGRITY.
    pub signs: bool,
    /// Messages without INTEGRITY are dropped.
    pub requires_signature: bool,
    /// Number of neighbors.
    pub neighbors: usize,
    /// Messages by type.
    pub traffic: Traffic,
}

impl Rsvp {
    /// RSVP's interfaces with their places, from a place on.
    pub fn interface_views(&self, from: u32) -> impl Iterator<Item = (u32, InterfaceView<'_>)> {
        let skipped = usize::try_from(from).unwrap_or(usize::MAX);
        let places = (0..).zip(self.interfaces.all()).skip(skipped);
        places.map(|(place, known)| (place, self.interface_view(known)))
    }

    fn interface_view<'a>(&self, known: &'a InterfaceState) -> InterfaceView<'a> {
        let settings = self.neighbors.config().of(known.ifindex);
        let (refresh, announced) = known.periods();
        let reduction = settings.reduction;
        InterfaceView {
            ifindex: known.ifindex,
            name: &known.name,
            enabled: known.config.enabled,
            up: known.up,
            addresses: [known.address(false), known.address(true)],
            refresh,
            announced,
            reduction: (reduction.reliable, reduction.reliable && reduction.summary),
            hello: settings.hello.map(|hello| hello.interval),
            signs: settings.integrity.sending,
            requires_signature: settings.integrity.receiving,
            neighbors: self.neighbors.count_at(known.ifindex),
            traffic: self.neighbors.traffic(known.ifindex),
        }
    }

    /// The tables that peers can fill.
    #[must_use]
    pub const fn tables(&self) -> [Table; 4] {
        [
            Table::new("sessions", self.sessions.len(), self.sessions.limit()),
            Table::new("senders", self.senders.len(), self.senders.limit()),
            Table::new("reservations", self.branches.len(), self.branches.limit()),
            self.neighbors.table(),
        ]
    }

    /// The sessions, in a fixed order.
    pub fn view(&self) -> impl Iterator<Item = SessionView> + '_ {
        self.sessions.iter().map(|(key, record)| self.session_view(key, record))
    }

    /// Visits sessions from a place in the table on; see [`Slab::walk`](signalbox_core::Slab::walk).
    pub fn walk(&self, from: u32, mut visit: impl FnMut(SessionView) -> bool) -> Option<u32> {
        self.sessions.walk(from, |key, record| visit(self.session_view(key, record)))
    }

    /// Number of sessions.
    #[must_use]
    pub const fn session_count(&self) -> u32 {
        self.sessions.len()
    }

    fn session_view(&self, key: Key, record: &session::Session) -> SessionView {
        let style = record.style.unwrap_or(Style::Ff);
        let own = self.senders_of(key).flat_map(|(_, sender)| {
            self.branches_of(sender).filter(|_| style == Style::Ff).map(|(_, branch)| branch)
        });
        let shared = self.shared_branches(key).map(|(_, branch)| branch);
        SessionView {
            session: self.session_of(record),
            senders: self.senders_of(key).map(|(_, sender)| self.sender_view(sender)).collect(),
            reservations: own.chain(shared).map(|branch| self.reservation_view(style, branch)).collect(),
            blockades: self.blockade_views(record),
            upstream: self.upstream_views(key, style),
        }
    }

    fn blockade_views(&self, record: &session::Session) -> Vec<BlockadeView> {
        let list = record.extra.iter().flat_map(|extra| &extra.blockades);
        let standing = list.filter(|one| !one.until.is_due(self.now));
        standing
            .map(|one| {
                let (sender, previous_hop) = match one.of {
                    Blocked::Sender(key) => {
                        (self.senders.get(key).map(|sender| self.filter_of(sender)), None)
                    }
                    Blocked::Hop(hop) => (None, self.hops.lookup(hop).map(|hop| hop.addr)),
                };
                let expires = one.until.time(self.now);
                BlockadeView { sender, previous_hop, flowspec: one.flowspec, expires }
            })
            .collect()
    }

    fn upstream_views(&self, session: Key, style: Style) -> Vec<UpstreamView> {
        let mut views: Vec<(u32, UpstreamView)> = Vec::new();
        for (key, sender) in self.senders_of(session).filter(|(_, sender)| !sender.has(LOCAL)) {
            let Some(flowspec) = self.forwarded(key, sender, false) else { continue };
            let Some(hop) =
                invariant!(self.hops.lookup(sender.hop), "the previous hop of a sender is stored")
            else {
                continue;
            };
            let place = match views.iter().position(|(hop, _)| *hop == sender.hop) {
                Some(place) => place,
                None => {
                    let (previous_hop, ifindex) = (hop.addr, self.ifindex(sender.iif));
                    let flows = Vec::new();
                    let view = UpstreamView { previous_hop, ifindex, style, flows, next_refresh: None };
                    views.push((sender.hop, view));
                    views.len() - 1
                }
            };
            let Some((_, view)) = views.get_mut(place) else { continue };
            view.flows.push((self.filter_of(sender), flowspec));
            if sender.has(RESV) {
                view.next_refresh = Some(sender.resv_at.time(self.now));
            }
        }
        views.into_iter().map(|(_, view)| view).collect()
    }

    fn sender_view(&self, sender: &Sender) -> SenderView {
        SenderView {
            sender: self.filter_of(sender),
            tspec: *sender.tspec,
            previous_hop: self.hops.lookup(sender.hop).filter(|_| sender.hop != NONE).map(|hop| hop.addr),
            ifindex: self.ifindex(sender.iif),
            since: sender.since.time(),
            expires: (!sender.has(LOCAL)).then(|| sender.expires.time(self.now)),
            next_refresh: sender.has(PATH).then(|| sender.path_at.time(self.now)),
            outgoing: sender
                .egress()
                .filter(|iface| iface.is_real())
                .map(|iface| self.ifindex(iface))
                .collect(),
            non_rsvp_hop: sender.has(NON_RSVP),
            broken: self.is_broken(sender),
            adspec: self.adspec_of(sender),
            policy: policy_in(sender.carried()),
        }
    }

    /// Whether a hop on the path of a sender keeps no reservations, by the break bit of its ADSPEC or by a TTL.
    pub(super) fn is_broken(&self, sender: &Sender) -> bool {
        sender.has(NON_RSVP) || self.adspec_of(sender).is_some_and(|adspec| adspec.general.broken)
    }

    pub(super) fn adspec_of(&self, sender: &Sender) -> Option<Adspec> {
        RawAdspec::from_octets(self.adspecs.lookup(sender.adspec)?)?.read().ok()
    }

    fn reservation_view(&self, style: Style, branch: &Branch) -> ReservationView {
        let named = branch.requests().flat_map(|request| request.senders()).map(|(key, _)| *key);
        let mut keys: Vec<_> = self.senders.key_of(branch.sender).into_iter().chain(named).collect();
        keys.sort_unstable();
        keys.dedup();
        let hop = |hop: u32| self.hops.lookup(hop).filter(|_| !is_application(hop)).map(|hop| hop.addr);
        ReservationView {
            style,
            ifindex: self.ifindex(branch.oif),
            senders: keys
                .into_iter()
                .filter_map(|key| self.senders.get(key))
                .map(|sender| self.filter_of(sender))
                .collect(),
            flowspec: branch.flowspec(),
            next_hops: branch.requests().map(|request| hop(request.hop)).collect(),
            requests: branch
                .requests()
                .map(|request| RequestView {
                    next_hop: hop(request.hop),
                    flowspec: *request.flowspec,
                    expires: request.deadline().map(|at| at.time(self.now)),
                })
                .collect(),
            grant: branch.grant(),
            requested_here: branch.requests().filter_map(Request::since).min().map(Since::time),
            policy: branch.requests().flat_map(|request| policy_in(request.carried())).collect(),
        }
    }

    fn ifindex(&self, iface: Iface) -> IfIndex {
        self.interfaces.get(iface).map_or(IfIndex::NONE, |known| known.ifindex)
    }
}
