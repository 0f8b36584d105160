//! The table of senders: how they are found, entered and removed, and the lists that connect them.

use signalbox_core::index::KeyedHasher;
use signalbox_core::slab::Slab;
use signalbox_core::{Key, invariant};
use signalbox_resources::intserv::TSpec;

use super::Senders;
use super::sender::{LOCAL, LOCAL_ONLY, RESV, Sender};
use crate::engine::interfaces::Iface;
use crate::engine::message_ids::SentState;
use crate::engine::session::{Blocked, NONE, Refusal, is_application};
use crate::engine::{Admission, Rsvp};
use crate::wire::{self, Filter, Selector};

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
pub(in crate::engine) struct SessionSenders<'a> {
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

impl Senders {
    /// A list of senders, from its first one on.
    fn list(&self, first: u32) -> SessionSenders<'_> {
        SessionSenders { senders: &self.slab, next: first }
    }

    /// A sender that is not the first of its session.
    fn find(&self, session: u32, src: u32, selector: Selector) -> Option<Key> {
        let index =
            self.index.find(self.hasher.hash_octets(&sender_octets(session, src, selector)), |index| {
                self.slab.get_index(index).is_some_and(|one| one.session == session && one.is(src, selector))
            })?;
        self.slab.key_of(index)
    }

    /// Enters a sender behind the first one of its session; `None`: the table is full.
    fn insert(&mut self, sender: Sender, first: u32) -> Option<Key> {
        let key = self.slab.insert(sender).ok()?;
        let Some(head) = self.slab.get_index_mut(first) else { return Some(key) };
        let [_, second] = head.siblings;
        head.siblings = [NONE, key.index()];
        if let Some(after) = self.slab.get_index_mut(second) {
            let [_, next] = after.siblings;
            after.siblings = [key.index(), next];
        }
        if let Some(own) = self.slab.get_mut(key) {
            own.siblings = [first, second];
        }
        let Self { slab, hasher, index, .. } = self;
        let hash = |at: u32| slab.get_index(at).map_or(0, |one| sender_hash(hasher, one));
        index.insert(hash(key.index()), key.index(), hash);
        Some(key)
    }

    /// Removes a sender from the list of its session, the index and the timers.
    fn remove(&mut self, key: Key) -> Option<Sender> {
        self.disarm(key);
        let [before, after] = invariant!(self.slab.get(key), "a sender is removed once")?.siblings;
        if let Some(one) = self.slab.get_index_mut(after) {
            let [_, next] = one.siblings;
            one.siblings = [before, next];
        }
        if let Some(one) = self.slab.get_index_mut(before) {
            let [previous, _] = one.siblings;
            one.siblings = [previous, after];
        }
        // The second sender becomes the first, which is not in the index.
        let unindexed = if before == NONE { after } else { key.index() };
        if let Some(one) = self.slab.get_index(unindexed) {
            self.index.remove(sender_hash(&self.hasher, one), |at| at == unindexed);
        }
        self.slab.remove(key)
    }
}

impl Rsvp {
    /// The SENDER_TEMPLATE or FILTER_SPEC of a record.
    pub(in crate::engine) fn filter_of(&self, sender: &Sender) -> Filter {
        let v6 = self.sessions.get_index(sender.session).is_some_and(|session| session.v6);
        Filter { src: self.addresses.unpack(sender.src, v6), selector: sender.selector() }
    }

    /// Finds a sender of a session.
    pub(in crate::engine) fn find_sender(&self, session: Key, wanted: &Filter) -> Option<Key> {
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
        self.senders.find(session.index(), src, wanted.selector)
    }

    /// The senders of a session.
    pub(in crate::engine) fn senders_of(&self, session: Key) -> SessionSenders<'_> {
        self.senders.list(self.sessions.get(session).map_or(NONE, |one| one.first))
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
    pub(in crate::engine) fn open_sender(
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
        let Some(key) = self.senders.insert(sender, first) else {
            self.addresses.release(src, v6);
            self.counters.senders_full += 1;
            tracing::debug!(session = %self.logged(session), sender = %wanted, reason = "table of senders full", "sender not created");
            return Err(Refusal::Full);
        };
        if let Some(record) = self.sessions.get_mut(session) {
            if first == NONE {
                record.first = key.index();
            }
            record.count = record.count.saturating_add(1);
        }
        Ok(key)
    }

    /// Removes a sender that has no reservations of its own and leaves by no interface; the session stays.
    pub(super) fn remove_sender(&mut self, key: Key) {
        self.set_egress(key, &[]);
        self.remove_path_id(key);
        self.leave_tree(key);
        self.merging.end_withheld(key);
        let Some(sender) = self.senders.remove(key) else { return };
        let Sender { siblings: [before, after], session, hop, adspec, src, held_by, .. } = sender;
        let refreshes = sender.has(RESV).then_some(sender.resv_at);
        let mut v6 = false;
        if let Some(record) = self.sessions.get_index_mut(session) {
            if before == NONE {
                record.first = after;
            }
            record.count = record.count.saturating_sub(1);
            record.unblock(Blocked::Sender(key));
            v6 = record.v6;
        }
        for path in sender.extra.iter().flat_map(|extra| &extra.unexpected) {
            self.release_hop(path.hop);
            self.release_adspec(path.adspec);
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

    /// Ends path state: PathTear goes downstream, its reservations end without a ResvTear upstream (RFC 2205 §3.1.5).
    /// `tear`: the PathTear that was received, if any.
    pub(in crate::engine) fn end_sender(
        &mut self,
        key: Key,
        tear: Option<&wire::Message<'_>>,
        resources: &mut dyn Admission,
    ) {
        let Some(sender) = invariant!(self.senders.get(key), "a sender ends once") else { return };
        let Some(session) =
            invariant!(self.sessions.key_of(sender.session), "a session ends after its senders")
        else {
            return;
        };
        let apart = sender.has(LOCAL_ONLY).then(|| self.filter_of(sender));
        self.send_path_tear(key, tear);
        self.path_gone(key);
        self.leave_reservations(session, key, resources);
        self.remove_sender(key);
        if let Some(sender) = apart.and_then(|filter| self.find_sender(session, &filter)) {
            self.update_egress(sender, resources);
        }
        self.close_if_idle(session);
    }

    /// A sender left a previous hop. If it was the last one there, the MESSAGE_ID of the Resv is removed.
    pub(super) fn hop_left(&mut self, session: Key, hop: u32) {
        if hop != NONE && !self.senders_of(session).any(|(_, sender)| sender.hop == hop) {
            self.remove_sent(SentState::Resv(session, hop));
            self.end_parts(session, hop);
        }
    }

    pub(in crate::engine) fn release_hop(&mut self, hop: u32) {
        if !is_application(hop) {
            self.hops.release(hop);
        }
    }

    pub(in crate::engine) fn release_adspec(&mut self, adspec: u32) {
        if adspec != NONE {
            self.adspecs.release(adspec);
        }
    }

    /// Sets the interfaces by which the data of a sender leave.
    pub(in crate::engine) fn set_egress(&mut self, key: Key, egress: &[Iface]) {
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
        // By an interface that is new no Path has gone, unless the data left it a moment ago.
        let (routes, now) = (&self.routes, self.now);
        let is_new = |iface: &Iface| {
            iface.is_real()
                && !sender.is_announced(*iface)
                && !routes.has_left(now, (key, *iface), Self::next_router(sender, *iface))
        };
        let (first_is_new, unannounced) =
            (is_new(&first), rest.iter().copied().filter(is_new).collect::<Vec<Iface>>());
        let second = sender.extra.as_ref().and_then(|extra| extra.oifs.first().copied());
        if rest.is_empty() {
            if let Some(extra) = &mut sender.extra {
                extra.oifs.clear();
                extra.unannounced.clear();
            }
        } else {
            let extra = sender.extra();
            extra.oifs.clear();
            extra.oifs.extend_from_slice(rest);
            extra.unannounced = unannounced;
        }
        let (copy_before, copy) = (second.unwrap_or(Iface::NONE), Self::standby_interface(sender));
        if copy_before != copy {
            self.routes.set_copy(key.index(), copy_before, copy);
        }
        let old = core::mem::replace(&mut sender.oif, first);
        sender.set_announced(first, !first_is_new);
        if old == first {
            return;
        }
        let [before, after] = core::mem::replace(&mut sender.leaving, [NONE; 2]);
        self.routes.unlinked(key.index(), after);
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
    pub(in crate::engine) fn previous_hop(&self, sender: &Sender) -> Option<wire::RsvpHop> {
        if sender.has(LOCAL) { None } else { self.hops.lookup(sender.hop).copied() }
    }
}
