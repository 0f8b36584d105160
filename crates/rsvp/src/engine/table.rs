//! The tables: functions that find, enter and remove sessions, senders and reservations, and the lists that connect
//! them.

use core::net::IpAddr;

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::slab::Slab;
use signalbox_core::{Key, SessionChange, invariant};
use signalbox_resources::Resources;
use signalbox_resources::intserv::TSpec;

use super::Rsvp;
use super::branch::{Branch, Request};
use super::destinations::Place;
use super::interfaces::Iface;
use super::message_ids::SentState;
use super::sender::{LOCAL, RESV, Sender};
use super::session::{Blocked, NONE, Session, is_application};
use crate::wire::{self, Filter, Selector, SessionKind, Style};

/// Reason why no state is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A zero and a non-zero DstPort for the same destination and protocol (RFC 2205 §3.2).
    DestPorts,
    /// A zero and a non-zero SrcPort of the same sender (RFC 2205 §3.2).
    SenderPorts,
    /// A table is full.
    Full,
}

/// The octets by which a session is hashed.
fn session_octets(dest: u32, v6: bool, protocol: u8, kind: SessionKind, port: u16) -> [u8; 8] {
    let [d3, d2, d1, d0] = dest.to_be_bytes();
    let [p1, p0] = port.to_be_bytes();
    let kind = u8::from(v6) << 1 | u8::from(kind == SessionKind::Gpi);
    [d3, d2, d1, d0, p1, p0, protocol, kind]
}

fn session_hash(hasher: &KeyedHasher, one: &Session) -> u64 {
    hasher.hash_octets(&session_octets(one.dest, one.v6, one.protocol, one.kind, one.port))
}

/// The octets by which a sender is hashed.
fn sender_octets(session: u32, src: u32, selector: Selector) -> [u8; 13] {
    let (kind, word) = match selector {
        Selector::Port(port) => (0, u32::from(port)),
        Selector::FlowLabel(label) => (1, label),
        Selector::Gpi(gpi) => (2, gpi),
    };
    let mut octets = [0; 13];
    let (ids, rest) = octets.split_at_mut(8);
    ids.copy_from_slice(&(u64::from(session) << 32 | u64::from(src)).to_be_bytes());
    rest.copy_from_slice(&[kind; 5]);
    if let Some(octets) = rest.first_chunk_mut::<4>() {
        *octets = word.to_be_bytes();
    }
    octets
}

fn sender_hash(hasher: &KeyedHasher, one: &Sender) -> u64 {
    hasher.hash_octets(&sender_octets(one.session, one.src, one.selector()))
}

/// Iterator over the senders of a session.
pub(super) struct SessionSenders<'a> {
    senders: &'a Slab<Sender>,
    next: u32,
}

impl<'a> Iterator for SessionSenders<'a> {
    type Item = (Key, &'a Sender);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, sender) = self.senders.entry(self.next)?;
        let [_, next] = sender.siblings;
        self.next = next;
        Some((key, sender))
    }
}

/// Iterator over a list of reservations.
pub(super) struct BranchList<'a> {
    branches: &'a Slab<Branch>,
    next: u32,
}

impl<'a> Iterator for BranchList<'a> {
    type Item = (Key, &'a Branch);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, branch) = self.branches.entry(self.next)?;
        self.next = branch.next;
        Some((key, branch))
    }
}

impl Rsvp {
    pub(super) fn find_session(&self, wanted: &wire::Session) -> Option<Key> {
        self.find_hashed(wanted, self.hash_of(wanted)?)
    }

    /// The hash of a session; `None` if no session has its destination.
    pub(super) fn hash_of(&self, wanted: &wire::Session) -> Option<u64> {
        let dest = self.addresses.find(wanted.dest)?;
        let v6 = wanted.dest.is_ipv6();
        let octets = session_octets(dest, v6, wanted.protocol, wanted.kind, wanted.port);
        Some(self.hasher.hash_octets(&octets))
    }

    /// The session with this hash, which [`Self::hash_of`] computed.
    pub(super) fn find_hashed(&self, wanted: &wire::Session, hash: u64) -> Option<Key> {
        let dest = self.addresses.find(wanted.dest)?;
        let v6 = wanted.dest.is_ipv6();
        let index = self.by_session.find(hash, |index| {
            self.sessions.get_index(index).is_some_and(|one| {
                one.dest == dest
                    && one.v6 == v6
                    && one.protocol == wanted.protocol
                    && one.port == wanted.port
                    && one.kind == wanted.kind
            })
        })?;
        self.sessions.key_of(index)
    }

    /// Whether a session with a zero port meets one with a non-zero port (RFC 2205 §3.2).
    pub(super) fn ports_conflict(&self, wanted: &wire::Session) -> bool {
        if wanted.kind == SessionKind::Gpi {
            return false;
        }
        if wanted.port != 0 {
            return self.portless > 0 && self.find_session(&wire::Session { port: 0, ..*wanted }).is_some();
        }
        // Of two sessions that are alike, one has a port.
        let place = Place { dest: wanted.dest, protocol: wanted.protocol, gpi: false };
        let mut some = self.destinations.alike(place).take(2);
        some.any(|index| self.sessions.get_index(index).is_some_and(|one| one.port != 0))
    }

    /// Creates an empty session. `hash`: its hash, if it was computed before.
    pub(super) fn open_session(&mut self, wanted: &wire::Session, hash: Option<u64>) -> Result<Key, Refusal> {
        if self.ports_conflict(wanted) {
            return Err(Refusal::DestPorts);
        }
        let dest = self.addresses.pack(wanted.dest).map_err(|_| Refusal::Full)?;
        let v6 = wanted.dest.is_ipv6();
        if self.by_session.is_full() {
            let Self { sessions, hasher, by_session, .. } = self;
            by_session.rebuild(sessions.iter().map(|(key, _)| key.index()), |index| {
                sessions.get_index(index).map_or(0, |one| session_hash(hasher, one))
            });
        }
        let record = Session {
            dest,
            port: wanted.port,
            protocol: wanted.protocol,
            kind: wanted.kind,
            v6,
            style: None,
            multicast: wanted.dest.is_multicast(),
            count: 0,
            first: NONE,
            branches: NONE,
            reserved: 0,
            extra: None,
        };
        let Ok(key) = self.sessions.insert(record) else {
            self.addresses.release(dest, v6);
            self.counters.sessions_full += 1;
            tracing::debug!(session = %wanted, reason = "table of sessions full", "session not created");
            return Err(Refusal::Full);
        };
        let Self { sessions, hasher, by_session, .. } = self;
        let hash = hash.or_else(|| Some(session_hash(hasher, sessions.get(key)?)));
        by_session.insert(hash.unwrap_or(0), key.index(), |index| {
            sessions.get_index(index).map_or(0, |one| session_hash(hasher, one))
        });
        let gpi = wanted.kind == SessionKind::Gpi;
        let place = Place { dest: wanted.dest, protocol: wanted.protocol, gpi };
        self.destinations.insert(key.index(), place);
        self.portless += u32::from(wanted.port == 0);
        self.changes.note(|| SessionChange::opened(wanted.to_string()));
        Ok(key)
    }

    /// Removes a session without senders, reservations and applications.
    pub(super) fn close_if_idle(&mut self, session: Key) {
        let Some(record) = self.sessions.get(session).filter(|one| one.is_idle()) else { return };
        let (hash, dest, v6) = (session_hash(&self.hasher, record), record.dest, record.v6);
        let (protocol, gpi) = (record.protocol, record.kind == SessionKind::Gpi);
        self.portless -= u32::from(record.port == 0);
        let place = Place { dest: self.addresses.unpack(dest, v6), protocol, gpi };
        let named = wire::Session { dest: place.dest, protocol, kind: record.kind, port: record.port };
        self.changes.note(|| SessionChange::closed(named.to_string()));
        self.destinations.remove(session.index(), place);
        self.by_session.remove(hash, |index| index == session.index());
        self.sessions.remove(session);
        self.addresses.release(dest, v6);
    }

    /// A sender or a reservation of a session appears or disappears.
    pub(super) fn note_changed(&mut self, session: Key) {
        let Self { sessions, addresses, changes, .. } = self;
        let Some(record) = invariant!(sessions.get(session), "a changed session stands") else { return };
        changes.note(|| {
            let dest = addresses.unpack(record.dest, record.v6);
            let Session { protocol, kind, port, .. } = *record;
            SessionChange::changed(wire::Session { dest, protocol, kind, port }.to_string())
        });
    }

    /// The SESSION of a record.
    pub(super) fn session_of(&self, record: &Session) -> wire::Session {
        wire::Session {
            dest: self.addresses.unpack(record.dest, record.v6),
            protocol: record.protocol,
            kind: record.kind,
            port: record.port,
        }
    }

    /// The SENDER_TEMPLATE or FILTER_SPEC of a record.
    pub(super) fn filter_of(&self, sender: &Sender) -> Filter {
        let v6 = self.sessions.get_index(sender.session).is_some_and(|session| session.v6);
        Filter { src: self.addresses.unpack(sender.src, v6), selector: sender.selector() }
    }

    /// Finds a sender of a session.
    pub(super) fn find_sender(&self, session: Key, wanted: &Filter) -> Option<Key> {
        let record = self.sessions.get(session)?;
        let src = self.addresses.find(wanted.src)?;
        // The first sender of a session is not in the index: most sessions have only one.
        let (key, first) = self.senders.entry(record.first)?;
        if first.is(src, wanted.selector) {
            return Some(key);
        }
        if record.count <= 1 {
            return None;
        }
        let octets = sender_octets(session.index(), src, wanted.selector);
        let index = self.by_sender.find(self.hasher.hash_octets(&octets), |index| {
            self.senders
                .get_index(index)
                .is_some_and(|one| one.session == session.index() && one.is(src, wanted.selector))
        })?;
        self.senders.key_of(index)
    }

    /// The senders of a session.
    pub(super) fn senders_of(&self, session: Key) -> SessionSenders<'_> {
        SessionSenders {
            senders: &self.senders,
            next: self.sessions.get(session).map_or(NONE, |one| one.first),
        }
    }

    fn source_conflicts(&self, session: Key, wanted: &Filter) -> bool {
        match wanted.selector {
            Selector::Port(0) => self.senders_of(session).any(|(_, one)| {
                let other = self.filter_of(one);
                other.src == wanted.src && other.port() != 0
            }),
            Selector::Port(_) => {
                self.find_sender(session, &Filter { selector: Selector::Port(0), ..*wanted }).is_some()
            }
            _ => false,
        }
    }

    /// Creates a sender of a session, behind the first one.
    pub(super) fn open_sender(
        &mut self,
        session: Key,
        wanted: &Filter,
        tspec: TSpec,
    ) -> Result<Key, Refusal> {
        let record = self.sessions.get(session).ok_or(Refusal::Full)?;
        if record.count > 0 && self.source_conflicts(session, wanted) {
            return Err(Refusal::SenderPorts);
        }
        if record.count >= self.config.max_senders_per_session {
            self.counters.senders_full += 1;
            tracing::debug!(session = %self.logged(session), sender = %wanted, reason = "too many senders in the session", "sender not created");
            return Err(Refusal::Full);
        }
        let (v6, first) = (record.v6, record.first);
        let src = self.addresses.pack(wanted.src).map_err(|_| Refusal::Full)?;
        let tspec = self.shared.tspec(&tspec);
        let sender = Sender::new(self.now, (session.index(), src, wanted.selector), tspec);
        let Ok(key) = self.senders.insert(sender) else {
            self.addresses.release(src, v6);
            self.counters.senders_full += 1;
            tracing::debug!(session = %self.logged(session), sender = %wanted, reason = "table of senders full", "sender not created");
            return Err(Refusal::Full);
        };
        match self.senders.get_index_mut(first) {
            None => {
                if let Some(record) = self.sessions.get_mut(session) {
                    record.first = key.index();
                }
            }
            Some(head) => {
                let [_, second] = head.siblings;
                head.siblings = [NONE, key.index()];
                if let Some(after) = self.senders.get_index_mut(second) {
                    let [_, next] = after.siblings;
                    after.siblings = [key.index(), next];
                }
                if let Some(own) = self.senders.get_mut(key) {
                    own.siblings = [first, second];
                }
                self.index_sender(key.index());
            }
        }
        if let Some(record) = self.sessions.get_mut(session) {
            record.count = record.count.saturating_add(1);
        }
        Ok(key)
    }

    fn index_sender(&mut self, index: u32) {
        let Self { senders, hasher, by_sender, .. } = self;
        let hash = |at: u32| senders.get_index(at).map_or(0, |one| sender_hash(hasher, one));
        by_sender.insert(hash(index), index, hash);
    }

    fn unindex(by_sender: &mut Index, senders: &Slab<Sender>, hasher: &KeyedHasher, index: u32) {
        if let Some(one) = senders.get_index(index) {
            by_sender.remove(sender_hash(hasher, one), |at| at == index);
        }
    }

    /// Removes a sender that has no reservations of its own and leaves by no interface; the session stays.
    pub(super) fn remove_sender(&mut self, key: Key) {
        self.set_egress(key, &[]);
        self.remove_path_id(key);
        self.leave_tree(key);
        self.withheld.remove(key);
        self.sender_wheel.cancel(&mut self.senders, key.index());
        let Some(sender) = invariant!(self.senders.get(key), "a sender is removed once") else { return };
        let ([before, after], session) = (sender.siblings, sender.session);
        let (hop, adspec, src, held_by) = (sender.hop, sender.adspec, sender.src, sender.held_by);
        let refreshes = sender.has(RESV).then_some(sender.resv_at);
        if let Some(one) = self.senders.get_index_mut(after) {
            let [_, next] = one.siblings;
            one.siblings = [before, next];
        }
        if let Some(one) = self.senders.get_index_mut(before) {
            let [previous, _] = one.siblings;
            one.siblings = [previous, after];
        }
        if before == NONE {
            // The second sender becomes the first, which is not in the index.
            Self::unindex(&mut self.by_sender, &self.senders, &self.hasher, after);
        } else {
            Self::unindex(&mut self.by_sender, &self.senders, &self.hasher, key.index());
        }
        let mut v6 = false;
        if let Some(record) = self.sessions.get_index_mut(session) {
            if before == NONE {
                record.first = after;
            }
            record.count = record.count.saturating_sub(1);
            record.unblock(Blocked::Sender(key));
            v6 = record.v6;
        }
        if let Some(sender) = self.senders.remove(key) {
            for path in sender.extra.iter().flat_map(|extra| &extra.unexpected) {
                self.release_hop(path.hop);
                self.release_adspec(path.adspec);
            }
        }
        self.release_hop(hop);
        self.release_adspec(adspec);
        if held_by != Iface::NONE {
            self.give_place_back(self.addresses.unpack(src, v6), held_by);
        }
        self.addresses.release(src, v6);
        if let Some(session) = self.sessions.key_of(session) {
            if let Some(at) = refreshes {
                self.hand_over_refresh(session, hop, at);
            }
            self.hop_left(session, hop);
            self.note_changed(session);
        }
    }

    /// A sender left a previous hop. If it was the last one there, the MESSAGE_ID of the Resv is removed.
    pub(super) fn hop_left(&mut self, session: Key, hop: u32) {
        if hop != NONE && !self.senders_of(session).any(|(_, sender)| sender.hop == hop) {
            self.remove_sent(SentState::Resv(session, hop));
            self.end_parts(session, hop);
        }
    }

    pub(super) fn release_hop(&mut self, hop: u32) {
        if !is_application(hop) {
            self.hops.release(hop);
        }
    }

    pub(super) fn release_adspec(&mut self, adspec: u32) {
        if adspec != NONE {
            self.adspecs.release(adspec);
        }
    }

    /// The reservations that may be for a sender: its own with FF, else those of the session.
    pub(super) fn branches_of(&self, sender: &Sender) -> BranchList<'_> {
        let session = self.sessions.get_index(sender.session);
        let next = match session.and_then(|session| session.style.map(|style| (style, session.branches))) {
            Some((Style::Ff, _)) => sender.branches,
            Some((_, shared)) => shared,
            None => NONE,
        };
        BranchList { branches: &self.branches, next }
    }

    /// The reservations of a session with a shared style.
    pub(super) fn shared_branches(&self, session: Key) -> BranchList<'_> {
        BranchList {
            branches: &self.branches,
            next: self.sessions.get(session).map_or(NONE, |one| one.branches),
        }
    }

    /// The reservation at an interface: of a sender with FF, of the session otherwise.
    pub(super) fn find_branch(&self, session: Key, sender: Option<Key>, oif: Iface) -> Option<Key> {
        let next = match sender {
            Some(sender) => self.senders.get(sender)?.branches,
            None => self.sessions.get(session)?.branches,
        };
        let mut all = BranchList { branches: &self.branches, next };
        all.find(|(_, branch)| branch.oif == oif).map(|(key, _)| key)
    }

    /// Creates a reservation with the request of one next hop.
    pub(super) fn open_branch(
        &mut self,
        session: Key,
        sender: Option<Key>,
        oif: Iface,
        request: Request,
        style: Style,
    ) -> Result<Key, Refusal> {
        if self.sessions.get(session).is_none_or(|record| record.reserved == u16::MAX) {
            self.counters.reservations_full += 1;
            return Err(Refusal::Full);
        }
        if !self.take_reservation(oif) {
            self.counters.reservations_full += 1;
            return Err(Refusal::Full);
        }
        let mut branch =
            Branch::new(session.index(), sender.map_or(NONE, |sender| sender.index()), oif, request);
        let head = match sender {
            Some(sender) => self.senders.get(sender).map(|one| one.branches),
            None => self.sessions.get(session).map(|one| one.branches),
        };
        branch.next = head.unwrap_or(NONE);
        let Ok(key) = self.branches.insert(branch) else {
            self.give_reservation_back(oif);
            self.counters.reservations_full += 1;
            tracing::debug!(session = %self.logged(session), reason = "table of reservations full", "reservation not created");
            return Err(Refusal::Full);
        };
        self.note_changed(session);
        if let Some(sender) = sender.and_then(|sender| self.senders.get_mut(sender)) {
            sender.branches = key.index();
        }
        if let Some(record) = self.sessions.get_mut(session) {
            if sender.is_none() {
                record.branches = key.index();
            }
            record.reserved = record.reserved.saturating_add(1);
            record.style = Some(style);
        }
        Ok(key)
    }

    /// Removes a reservation with all its requests and releases its grant.
    pub(super) fn remove_branch(&mut self, key: Key, resources: &mut Resources) {
        self.queue_policing_check(key);
        let Some(branch) = invariant!(self.branches.get(key), "a branch is removed once") else { return };
        let (session, sender, next) = (branch.session, branch.sender, branch.next);
        let oif = branch.oif;
        if let Some(grant) = branch.grant() {
            resources.release(grant);
        }
        let hops: Vec<u32> = branch.requests().map(|request| request.hop).collect();
        for hop in hops {
            self.remove_request_id(key, hop);
            self.release_hop(hop);
        }
        let head = if sender == NONE {
            self.sessions.get_index_mut(session).map(|one| &mut one.branches)
        } else {
            self.senders.get_index_mut(sender).map(|one| &mut one.branches)
        };
        match head {
            Some(head) if *head == key.index() => *head = next,
            Some(head) => {
                let mut at = *head;
                while let Some(one) = self.branches.get_index_mut(at) {
                    if one.next == key.index() {
                        one.next = next;
                        break;
                    }
                    at = one.next;
                }
            }
            None => {}
        }
        self.branch_wheel.cancel(&mut self.branches, key.index());
        self.branches.remove(key);
        self.give_reservation_back(oif);
        if let Some(record) = self.sessions.get_index_mut(session) {
            record.reserved = record.reserved.saturating_sub(1);
            if record.reserved == 0 {
                record.style = None;
            }
        }
        if let Some(session) = self.sessions.key_of(session) {
            self.note_changed(session);
        }
    }

    /// Sets the interfaces by which the data of a sender leave.
    pub(super) fn set_egress(&mut self, key: Key, egress: &[Iface]) {
        if self.has_sent_ids() {
            let left: Vec<Iface> = match self.senders.get(key) {
                Some(sender) => sender.egress().filter(|iface| !egress.contains(iface)).collect(),
                None => return,
            };
            for iface in left {
                self.remove_sent(SentState::Path(key, iface));
            }
        }
        let Some(sender) = invariant!(self.senders.get_mut(key), "a leaving sender stands") else { return };
        let first = egress.first().copied().unwrap_or(Iface::NONE);
        let rest = egress.get(1..).unwrap_or_default();
        if rest.is_empty() {
            if let Some(extra) = &mut sender.extra {
                extra.oifs.clear();
            }
        } else {
            let oifs = &mut sender.extra().oifs;
            oifs.clear();
            oifs.extend_from_slice(rest);
        }
        if sender.oif == first {
            return;
        }
        let [before, after] = core::mem::replace(&mut sender.leaving, [NONE; 2]);
        let old = core::mem::replace(&mut sender.oif, first);
        self.route_checks.unlinked(key.index(), after);
        self.moved.unlinked(key.index(), after);
        if let Some(one) = self.senders.get_index_mut(after) {
            let [_, next] = one.leaving;
            one.leaving = [before, next];
        }
        if let Some(one) = self.senders.get_index_mut(before) {
            let [previous, _] = one.leaving;
            one.leaving = [previous, after];
        } else if let Some(known) =
            self.interfaces.get_mut(old).filter(|known| known.first_leaving == key.index())
        {
            known.first_leaving = after;
        }
        let Some(known) = self.interfaces.get_mut(first) else { return };
        let head = core::mem::replace(&mut known.first_leaving, key.index());
        if let Some(one) = self.senders.get_index_mut(head) {
            let [_, next] = one.leaving;
            one.leaving = [key.index(), next];
        }
        if let Some(own) = self.senders.get_mut(key) {
            own.leaving = [NONE, head];
        }
    }

    /// The previous hop of a sender, address and interface handle; `None`: the sender is an application of this node.
    pub(super) fn previous_hop(&self, sender: &Sender) -> Option<wire::RsvpHop> {
        if sender.has(LOCAL) { None } else { self.hops.lookup(sender.hop).copied() }
    }

    /// The address of this node at an interface, for a session of this IP version.
    pub(super) fn own_address(&self, iface: Iface, v6: bool) -> IpAddr {
        self.interfaces.address(iface, v6).unwrap_or(if v6 {
            IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED)
        })
    }
}
