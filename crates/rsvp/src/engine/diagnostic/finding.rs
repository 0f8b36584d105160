//! The answer of this node to a DREQ about a session and a sender (RFC 2745 §3.6, steps 1 to 5 of §4.1).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::Key;

use crate::engine::Rsvp;
use crate::engine::interfaces::Iface;
use crate::engine::path::{LOCAL, Sender};
use crate::engine::reservation::Branch;
use crate::wire::{
    Class, DiagErrors, DiagResponse, DiagSelect, Diagnostic, HeaderFlags, Message, MessageType, ObjectType,
    Objects, RsvpHop, Style, Writer, ntp_middle,
};

/// State of this node that a DREQ is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// Path state of the sender.
    pub(in crate::engine) sender: Option<Key>,
    /// The reservation for it at the interface that the DREQ is about.
    branch: Option<Key>,
    style: Option<Style>,
    /// Incoming interface of the sender.
    pub(in crate::engine) iif: Iface,
    /// Outgoing interface that the DREQ is about, and its address.
    oif: Iface,
    outgoing: Option<IpAddr>,
    /// The previous hop; `None`: the sender is an application of this node, or the incoming interface cannot be used.
    pub(in crate::engine) previous: Option<RsvpHop>,
    /// Reservations at other interfaces are merged with this one.
    merged: bool,
}

impl Rsvp {
    /// Finds the state that a DREQ asks about; `begins`: this node is the LAST-HOP. The DREQ came by `iface`.
    pub(super) fn find(
        &self,
        message: &Message<'_>,
        asked: &Diagnostic,
        begins: bool,
        iface: Iface,
    ) -> Found {
        let session = message.session.and_then(|session| self.find_session(&session));
        let key = session.and_then(|session| self.find_sender(session, &asked.sender));
        let sender = key.and_then(|key| self.senders.get(key));
        let oif = match sender {
            Some(sender) if begins => self.where_data_leave(sender),
            None if begins => Iface::NONE,
            // The handle names the interface, as in a Resv (§3.2).
            _ => {
                let named = message.hop.and_then(|hop| self.interfaces.of_handle(hop.lih));
                let goes = |iface: &Iface| sender.is_some_and(|sender| sender.leaves_by(*iface));
                named.filter(goes).unwrap_or(iface)
            }
        };
        let dest = message.session.map(|session| session.dest);
        let received_here = dest.filter(|dest| self.interfaces.is_local(*dest));
        let ipv6 = asked.last_hop.is_ipv6();
        let outgoing = if oif.is_real() {
            Some(self.own_address(oif, ipv6))
        } else if let (Some(sender), Some(session)) = (sender.filter(|_| oif == Iface::LOCAL), session) {
            // An application receives a group by the interface where it joined.
            let joined = self.received_by(session);
            let by = if joined.is_real() { joined } else { sender.iif };
            received_here.or_else(|| Some(self.own_address(by, ipv6)))
        } else {
            received_here
        };
        let style = session.and_then(|session| self.sessions.get(session)).and_then(|one| one.style);
        let own = key.filter(|_| style == Some(Style::Ff));
        let at_oif = session.and_then(|session| self.find_branch(session, own, oif));
        let of_sender = |branch: &Branch| match (style, key, sender) {
            (Some(Style::Se), Some(key), _) => branch.names(key),
            (Some(Style::Wf), _, Some(sender)) => branch.is_for(sender.src),
            (_, key, _) => key.is_some(),
        };
        let branch = at_oif.filter(|key| self.branches.get(*key).is_some_and(of_sender));
        let merged = branch.is_some()
            && sender.is_some_and(|sender| {
                let mut others = self.branches_of(sender).filter(|(key, _)| Some(*key) != branch);
                others.any(|(_, other)| sender.leaves_by(other.oif) && of_sender(other))
            });
        let usable =
            |sender: &&Sender| self.interfaces.get(sender.iif).is_some_and(|known| known.is_usable());
        Found {
            sender: key,
            branch,
            style,
            iif: sender.filter(|sender| !sender.has(LOCAL)).map_or(Iface::NONE, |sender| sender.iif),
            oif,
            outgoing,
            previous: sender.filter(usable).and_then(|sender| self.previous_hop(sender)),
            merged,
        }
    }

    /// The interface by which a LAST-HOP sends the data of a sender; of several one with a reservation, if there is
    /// one.
    fn where_data_leave(&self, sender: &Sender) -> Iface {
        let reserved = |iface: &Iface| self.branches_of(sender).any(|(_, branch)| branch.oif == *iface);
        sender.egress().find(reserved).unwrap_or(sender.oif)
    }

    /// Composes the DIAG_RESPONSE (RFC 2745 §3.6); `hops`: IP hops from the previous RSVP node.
    pub(super) fn response<'a>(
        &self,
        found: &Found,
        hops: u8,
        ipv6: bool,
        objects: &'a [u8],
    ) -> DiagResponse<'a> {
        let unknown: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let incoming = found.iif.is_real().then(|| self.own_address(found.iif, ipv6));
        let sender = found.sender.and_then(|key| self.senders.get(key));
        let timed = if found.oif.is_real() { found.oif } else { found.iif };
        let (errors, cleanup, period) = if sender.is_some() {
            (DiagErrors::default(), self.interfaces.cleanup(timed), self.interfaces.period_now(timed))
        } else {
            (DiagErrors::NO_PATH, 0, 0)
        };
        let now = self.config.wall_clock_us.saturating_add(self.now.as_micros());
        DiagResponse {
            arrival: ntp_middle(now),
            incoming: incoming.unwrap_or(unknown),
            outgoing: found.outgoing.unwrap_or(unknown),
            previous: sender.and_then(|sender| self.previous_hop(sender)).map_or(unknown, |hop| hop.addr),
            d_ttl: hops,
            merged: found.merged,
            errors,
            cleanup: u8::try_from(cleanup.min(15)).unwrap_or(15),
            refresh: u16::try_from(period.div_ceil(1000)).unwrap_or(u16::MAX),
            objects,
        }
    }

    /// Composes the response objects, selected or default ones, in at most `room` octets (RFC 2745 §3.4). Whether all
    /// fit.
    pub(super) fn response_objects(
        &self,
        found: &Found,
        select: Option<&DiagSelect<'_>>,
        room: usize,
    ) -> (Vec<u8>, bool) {
        let mut objects = Vec::new();
        let mut w = Writer::new(&mut objects, MessageType::DREP, HeaderFlags::default(), 0);
        self.write_state(found, select, &mut w);
        let whole = w.finish_without_checksum().is_ok();
        let mut kept = Vec::new();
        let mut all = whole;
        for object in Objects::of(&objects).map_while(Result::ok) {
            let fits = kept.len() + object.octets.len() <= room;
            all &= fits;
            if fits {
                kept.extend_from_slice(object.octets);
            }
        }
        (kept, all)
    }

    /// Writes path state, then the reservation (RFC 2745 §3.4).
    fn write_state(&self, found: &Found, select: Option<&DiagSelect<'_>>, w: &mut Writer<'_>) {
        let selects = |class: Class, c_type: u8| match select {
            Some(select) => select.selects(ObjectType::new(class, c_type)),
            None => {
                matches!(class, Class::SENDER_TSPEC | Class::STYLE | Class::FLOWSPEC | Class::FILTER_SPEC)
            }
        };
        let Some(sender) = found.sender.and_then(|key| self.senders.get(key)) else { return };
        let own = self.filter_of(sender);
        let by_family = if own.src.is_ipv4() { 1 } else { 2 };
        if let Some(hop) = self.previous_hop(sender).filter(|_| selects(Class::RSVP_HOP, by_family)) {
            w.hop(&hop);
        }
        if selects(Class::SENDER_TEMPLATE, own.c_type()) {
            w.sender_template(&own);
        }
        if selects(Class::SENDER_TSPEC, 2) {
            w.sender_tspec(&sender.tspec);
        }
        let adspec = self.adspecs.lookup(sender.adspec);
        if let Some(adspec) = adspec.filter(|_| selects(Class::ADSPEC, 2)) {
            w.raw(adspec);
        }
        let branch = found.branch.and_then(|key| self.branches.get(key));
        let (Some(branch), Some(style)) = (branch, found.style) else { return };
        if selects(Class::STYLE, 1) {
            w.style(style);
        }
        if selects(Class::FLOWSPEC, 2) {
            w.flowspec(&branch.flowspec());
        }
        if style.is_explicit() && selects(Class::FILTER_SPEC, own.c_type()) {
            w.filter_spec(&own);
            let mut others: Vec<Key> =
                branch.requests().flat_map(|one| one.senders()).map(|(key, _)| *key).collect();
            others.sort_unstable();
            others.dedup();
            for other in others.into_iter().filter(|key| Some(*key) != found.sender) {
                if let Some(other) = self.senders.get(other) {
                    w.filter_spec(&self.filter_of(other));
                }
            }
        }
        if style == Style::Wf && selects(Class::SCOPE, by_family) {
            let scopes = branch.requests().filter_map(|one| one.scope()).flatten();
            let ipv6 = own.src.is_ipv6();
            w.scope(&mut scopes.map(|src| self.addresses.unpack(*src, ipv6)).collect::<Vec<_>>());
        }
    }
}
