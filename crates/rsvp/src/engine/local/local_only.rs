//! The interface by which an application of this node receives a group (RFC 2205 §3.9).
//!
//! On a host the path state of that interface is used. On a router, multicast routing may expect the data from another
//! interface and have a branch of its own to the application's interface. The path state of that branch is a sender
//! record with the flag [`LOCAL_ONLY`] (RFC 2209). Only messages of its own previous hop find it, it is never
//! forwarded, and only reservations of applications are made for it.

use core::net::IpAddr;

use signalbox_core::{Key, invariant};

use crate::engine::interfaces::Iface;
use crate::engine::io::Refused;
use crate::engine::merging::Tears;
use crate::engine::path::{LOCAL, LOCAL_ONLY, Sender, UnexpectedPath};
use crate::engine::{Admission, Rsvp};
use crate::wire::Style;

impl Rsvp {
    /// An application names the interface by which it receives the group, by an address of this node.
    pub(super) fn receive_at(
        &mut self,
        id: u64,
        address: IpAddr,
        resources: &mut dyn Admission,
    ) -> Result<(), Refused> {
        let session = self.application(id)?.session();
        let record = self.sessions.get(session).ok_or(Refused::NoSession)?;
        let iface = self.interfaces.owner(address).filter(|_| address.is_ipv6() == record.v6);
        let iface = iface.ok_or(Refused::BadReceiver)?;
        if record.multicast {
            self.received_at(id, session, Some(iface), resources);
        }
        Ok(())
    }

    /// Stores the interface by which an application receives, and updates the senders.
    pub(super) fn received_at(
        &mut self,
        id: u64,
        session: Key,
        iface: Option<Iface>,
        resources: &mut dyn Admission,
    ) {
        let Some(application) = invariant!(
            self.clients.applications.get_mut(&id),
            "an application stands while it names an interface"
        ) else {
            return;
        };
        if core::mem::replace(&mut application.receives, iface) == iface {
            return;
        }
        let senders: Vec<Key> = self
            .senders_of(session)
            .filter(|(_, one)| !one.has(LOCAL | LOCAL_ONLY))
            .map(|(key, _)| key)
            .collect();
        for sender in senders {
            self.follow_expected(session, sender, resources);
            self.update_local_only(session, sender, resources);
        }
    }

    /// The interface by which applications of this node receive a session, if they named one.
    pub(in crate::engine) fn received_by(&self, session: Key) -> Iface {
        let applications = self.sessions.get(session).map_or(&[][..], |one| one.applications());
        let iface = applications.iter().find_map(|id| self.clients.applications.get(id)?.receives);
        iface.unwrap_or(Iface::NONE)
    }

    /// The Local_Only record of a sender.
    pub(in crate::engine) fn local_only(&self, session: Key, of: Key) -> Option<Key> {
        let sender = self.senders.get(of)?;
        let same = |one: &Sender| one.src == sender.src && one.selector() == sender.selector();
        self.senders_of(session).find(|(_, one)| one.has(LOCAL_ONLY) && same(one)).map(|(key, _)| key)
    }

    /// The record of a sender that reservations of applications are made for.
    pub(in crate::engine) fn for_application(&self, session: Key, sender: Key) -> Key {
        let apart = self.received_by(session) != Iface::NONE;
        apart.then(|| self.local_only(session, sender)).flatten().unwrap_or(sender)
    }

    /// Creates the Local_Only record of a sender if the application's interface is a branch of its own, and ends it if
    /// it is not any more.
    pub(in crate::engine) fn update_local_only(
        &mut self,
        session: Key,
        key: Key,
        resources: &mut dyn Admission,
    ) {
        let iface = self.received_by(session);
        let Some(sender) = self.senders.get(key).filter(|sender| !sender.has(LOCAL | LOCAL_ONLY)) else {
            return;
        };
        let Some(extra) = &sender.extra else { return };
        // If routing forwards the data to that interface, they come like all others.
        let apart = iface != Iface::NONE
            && extra.expected == sender.iif
            && iface != sender.iif
            && !extra.routed.contains(&iface);
        match self.local_only(session, key) {
            Some(own) if !(apart && self.senders.get(own).is_some_and(|one| one.iif == iface)) => {
                self.end_local_only(session, own, resources);
            }
            None if apart => {
                let found = self.senders.get_mut(key).and_then(|sender| {
                    let unexpected = &mut sender.extra.as_mut()?.unexpected;
                    let at = unexpected.iter().position(|one| one.iif == iface)?;
                    Some(unexpected.swap_remove(at))
                });
                if let Some(unexpected) = found {
                    self.open_local_only(session, key, unexpected, resources);
                }
            }
            _ => {}
        }
    }

    fn open_local_only(
        &mut self,
        session: Key,
        key: Key,
        from: UnexpectedPath,
        resources: &mut dyn Admission,
    ) {
        let Some(filter) = invariant!(
            self.senders.get(key).map(|sender| self.filter_of(sender)),
            "a Local_Only sender is made of one that stands"
        ) else {
            return;
        };
        let Ok(own) = self.open_sender(session, &filter, from.tspec) else {
            self.release_hop(from.hop);
            self.release_adspec(from.adspec);
            return;
        };
        if let Some(sender) = self.senders.get_mut(own) {
            (sender.iif, sender.hop, sender.adspec) = (from.iif, from.hop, from.adspec);
            (sender.expires, sender.ttl) = (from.expires, from.ttl);
            sender.flags |= from.flags | LOCAL_ONLY;
        }
        self.leave_local(session, key, resources);
        self.update_egress(key, resources);
        self.update_egress(own, resources);
        self.arm_sender(own);
    }

    /// Ends what applications reserved for a sender whose data they now receive by another interface.
    fn leave_local(&mut self, session: Key, key: Key, resources: &mut dyn Admission) {
        if self.sessions.get(session).is_none_or(|one| one.style != Some(Style::Ff)) {
            return;
        }
        let branch = self.find_branch(session, Some(key), Iface::LOCAL);
        let Some((branch, of)) = branch.and_then(|key| Some((key, self.branches.get(key)?))) else { return };
        let applications: Vec<u32> = of.requests().map(|request| request.hop).collect();
        let mut upstream = self.begin_change();
        for hop in applications {
            self.release(&mut upstream, session, branch, hop, &[], resources);
        }
        self.send_upstream(upstream, session, Tears::Send, None);
    }

    fn end_local_only(&mut self, session: Key, key: Key, resources: &mut dyn Admission) {
        self.leave_local(session, key, resources);
        self.end_sender(key, None, resources);
    }
}
