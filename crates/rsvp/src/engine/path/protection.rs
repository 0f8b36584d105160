//! Protected reservations: a second reservation along the backup route of the data, held ready before it is needed.
//!
//! A sender asks for it by "local protection desired" in the SESSION_ATTRIBUTE of its Paths (RFC 3209 §4.7). Three nodes
//! act:
//!
//! * A router asks the driver for the route that the data would take without the interface by which they leave now. It
//!   sends the Path by that interface as well, without the flag: a *standby* copy. To the engine it is a second branch of
//!   the sender, as multicast has them, so reservations at both interfaces are admitted and enforced. When routing
//!   turns to the second interface, the reservation is there and nothing is sent.
//! * A router that gets a standby copy handles it as any Path. It has no flag, so this router adds no further branch.
//! * Where both ways meet, the sender has two previous hops. The Path with the flag is in use. The copy is stored beside
//!   it, and each Resv and ResvTear to the previous hop goes to that of the copy too. Only the previous hop of the Path in use can
//!   report an error of the reservation: without the standby reservation the data have what they asked for.
//!
//! Nodes without this function pass the object on, and see a Path whose previous hop changes with each copy. A network
//! therefore uses it where all routers have it.

use signalbox_core::node::{NoRoute, Route, RouteQuery};
use signalbox_core::{IfIndex, Key, invariant};

use super::arrival::PathContents;
use super::difference::Part;
use super::sender::{PROTECTED, REPAIR, STANDBY, Sender, UnexpectedPath};
use crate::engine::interfaces::Iface;
use crate::engine::merging::Tears;
use crate::engine::receive::Failure;
use crate::engine::session::NONE;
use crate::engine::{Admission, Rsvp};
use crate::wire::attribute;

/// The bit that distinguishes lookups of backup routes from those of routes. Slots are not reused so often.
const BACKUP: u64 = 1 << 62;

impl Rsvp {
    /// Stores what the objects that a sender carries say about protection. Returns whether the desire for it is new.
    pub(in crate::engine) fn note_protection(&mut self, key: Key) -> Part {
        let Some(sender) = invariant!(self.senders.get(key), "a noted sender stands") else {
            return Part::Same;
        };
        // Paths of a group leave by several interfaces anyway.
        if self.sessions.get_index(sender.session).is_none_or(|session| session.multicast) {
            return Part::Same;
        }
        let asked = attribute::protection(sender.carried());
        let Some(sender) = invariant!(self.senders.get_mut(key), "a flagged sender stands") else {
            return Part::Same;
        };
        let desired = Part::new_if(sender.has(PROTECTED) != (asked == Some(true)));
        sender.set(PROTECTED, asked == Some(true));
        sender.set(STANDBY, asked == Some(false));
        let stored = match &mut sender.extra {
            Some(extra) if asked != Some(true) => core::mem::take(&mut extra.unexpected),
            _ => return desired,
        };
        for path in stored {
            self.release_hop(path.hop);
            self.release_adspec(path.adspec);
        }
        desired
    }

    /// The interface of the standby copies of a sender's Paths; [`Iface::NONE`] without a standby copy.
    pub(in crate::engine) fn standby_interface(sender: &Sender) -> Iface {
        let second =
            sender.extra.as_ref().filter(|_| sender.has(PROTECTED)).and_then(|extra| extra.oifs.first());
        second.copied().unwrap_or(Iface::NONE)
    }

    /// The mark of the next router by an outgoing interface of a sender's data; 0: there is none, or it is not known.
    pub(in crate::engine) fn next_router(sender: &Sender, iface: Iface) -> u32 {
        match &sender.extra {
            Some(extra) if iface.is_real() && iface == Self::standby_interface(sender) => {
                extra.standby_gateway
            }
            _ => sender.gateway,
        }
    }

    /// Asks the driver for the route of a protected sender's data without the interface by which they leave.
    pub(in crate::engine) fn look_up_backup(&mut self, key: Key, leaves_by: IfIndex) {
        let Some(dst) = invariant!(
            self.senders.get(key).and_then(|sender| {
                let session = self.sessions.get_index(sender.session)?;
                Some(self.addresses.unpack(session.dest, session.v6))
            }),
            "a backup route is looked up for a sender that stands"
        ) else {
            return;
        };
        let query = RouteQuery { without: Some(leaves_by), ..RouteQuery::to(dst) };
        self.out.lookup(key.to_u64() | BACKUP, query);
    }

    /// The driver answers a lookup of a backup route; `false`: the lookup was another one.
    pub(in crate::engine) fn on_backup_route(
        &mut self,
        id: u64,
        result: Result<Route, NoRoute>,
        resources: &mut dyn Admission,
    ) -> bool {
        if id & BACKUP == 0 {
            return false;
        }
        let key = Key::from_u64(id & !BACKUP);
        let Some(sender) = self.senders.get(key).filter(|one| one.has(PROTECTED) && one.oif.is_real()) else {
            return true;
        };
        let (first, iif, before) = (sender.oif, sender.iif, Self::standby_interface(sender));
        let route = result.ok().filter(|route| !route.local);
        let found = route.map_or(Iface::NONE, |route| self.interfaces.iface(route.ifindex));
        // Data that came in do not go back, and the way in use needs no second reservation.
        let standby = if found == first || found == iif { Iface::NONE } else { found };
        let gateway = route.and_then(|route| route.gateway).map_or(0, |gateway| self.note_gateway(gateway));
        let Some(sender) = invariant!(
            self.senders.get_mut(key),
            "a protected sender stands while its backup route is stored"
        ) else {
            return true;
        };
        let former = core::mem::replace(&mut sender.extra().standby_gateway, gateway);
        if standby != before {
            tracing::debug!(session = %self.logged_of(key), backup = ?route, "backup route found");
            self.set_standby(key, first, standby, resources);
        } else if standby.is_real() && former != gateway {
            tracing::debug!(session = %self.logged_of(key), backup = ?route, "backup route found");
            self.note_other_router(key, standby);
            self.copy_at_once(key, standby);
        }
        true
    }

    /// Changes the interface of the standby copies.
    fn set_standby(&mut self, key: Key, first: Iface, standby: Iface, resources: &mut dyn Admission) {
        let Some(sender) = invariant!(self.senders.get(key), "a protected sender stands") else { return };
        let Some(session) =
            invariant!(self.sessions.key_of(sender.session), "a protected sender has a session")
        else {
            return;
        };
        let before: Vec<Iface> = sender.egress().collect();
        let upstream = self.change_of_sender(session, key);
        let both = [first, standby];
        self.set_egress(key, if standby == Iface::NONE { &both[..1] } else { &both });
        self.release_left(session, key, &before, resources);
        self.copy_at_once(key, standby);
        if let Some(upstream) = upstream {
            self.reinstall_on(session, key, &before, resources);
            self.send_upstream(upstream, session, Tears::Withhold, None);
        }
    }

    /// Sends a standby copy along a backup route that is new. A Path that follows its own new route after W keeps its time.
    fn copy_at_once(&mut self, key: Key, standby: Iface) {
        if standby != Iface::NONE {
            self.send_path_again(key, standby);
        }
        if self.senders.get(key).is_some_and(|sender| !sender.has(REPAIR)) {
            self.schedule_path(key, true);
            self.arm_sender(key);
        }
    }

    /// Whether a Path is a standby copy of one from another previous hop.
    pub(super) fn is_standby(&self, sender: &Sender, contents: &PathContents<'_>) -> bool {
        sender.has(PROTECTED)
            && contents.protection == Some(false)
            && (sender.iif != contents.iface || self.hops.lookup(sender.hop) != Some(&contents.hop))
    }

    /// Takes a standby copy: its previous hop gets the Resvs of the sender too.
    pub(super) fn take_standby(
        &mut self,
        session: Key,
        key: Key,
        contents: &PathContents<'_>,
    ) -> Result<(), Failure> {
        let Some(sender) = invariant!(self.senders.get(key), "a standby copy is of a sender that stands")
        else {
            return Ok(());
        };
        if sender.leaves_by(contents.iface) {
            self.counters.standby_returned += 1;
            tracing::debug!(
                session = %contents.session, sender = %contents.filter, peer = %contents.hop.addr,
                reason = "a standby copy came by an interface where the data leave", "Path dropped"
            );
            return Ok(());
        }
        let known = self
            .standbys(sender)
            .any(|one| one.iif == contents.iface && self.hops.lookup(one.hop) == Some(&contents.hop));
        self.store_unexpected(key, contents)?;
        if !known {
            tracing::debug!(session = %contents.session, sender = %contents.filter, peer = %contents.hop.addr, "standby path state created");
            self.reserve_standby(session, key);
        }
        Ok(())
    }

    /// The standby copies of a sender's Path.
    pub(in crate::engine) fn standbys<'a>(
        &self,
        sender: &'a Sender,
    ) -> impl Iterator<Item = &'a UnexpectedPath> {
        sender.extra.iter().filter(|_| sender.has(PROTECTED)).flat_map(|extra| &extra.unexpected)
    }

    /// The previous hop in use changes, from `old`: a former standby copy is stored beside the new one, and what was
    /// stored of the new one is not needed any more.
    pub(super) fn exchange_standby(&mut self, key: Key, old: UnexpectedPath, was_standby: bool) {
        let Some(sender) = invariant!(self.senders.get(key), "a moved sender stands") else { return };
        let keeps = was_standby && sender.has(PROTECTED);
        let hop = sender.hop;
        if keeps {
            self.hops.retain(old.hop);
        }
        let Some(extra) = self.senders.get_mut(key).and_then(|sender| sender.extra.as_mut()) else { return };
        let mut dropped: Vec<UnexpectedPath> =
            extra.unexpected.extract_if(.., |one| one.hop == hop).collect();
        if keeps {
            dropped.extend(extra.unexpected.extract_if(.., |one| one.iif == old.iif));
            extra.unexpected.push(UnexpectedPath { adspec: NONE, ..old });
        }
        for path in dropped {
            self.release_hop(path.hop);
            self.release_adspec(path.adspec);
        }
    }
}
