//! Which interface an application of this node receives a group by (RFC 2205 §3.9).
//!
//! On a host the path state of that interface is the one that counts. On a router whose multicast routing expects the
//! data elsewhere, and makes a branch of its own to the application's interface, the state of that branch is a sender
//! record of its own, [`LOCAL_ONLY`]: found by no message but those of its own previous hop, never forwarded, met by
//! the application's reservations alone.

use core::net::IpAddr;

use signalbox_core::Key;
use signalbox_resources::Resources;

use super::Rsvp;
use super::forward::Tears;
use super::interfaces::Iface;
use super::io::Refused;
use super::sender::{LOCAL, LOCAL_ONLY, Sender, UnexpectedPath};
use crate::wire::Style;

impl Rsvp {
    /// Data of the session come to an application by the interface with this address.
    pub(super) fn receive_at(
        &mut self,
        id: u64,
        address: IpAddr,
        resources: &mut Resources,
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

    /// Takes down what an application says of its interface, and sees to the senders.
    pub(super) fn received_at(
        &mut self,
        id: u64,
        session: Key,
        iface: Option<Iface>,
        resources: &mut Resources,
    ) {
        let Some(application) = self.applications.get_mut(&id) else { return };
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

    /// The interface that applications of this node receive a session by, if they say so.
    pub(super) fn received_by(&self, session: Key) -> Iface {
        let applications = self.sessions.get(session).map_or(&[][..], |one| one.applications());
        let said = applications.iter().find_map(|id| self.applications.get(id)?.receives);
        said.unwrap_or(Iface::NONE)
    }

    /// The record of a sender's path state that is for applications only.
    pub(super) fn local_only(&self, session: Key, of: Key) -> Option<Key> {
        let sender = self.senders.get(of)?;
        let same = |one: &Sender| one.src == sender.src && one.selector() == sender.selector();
        self.senders_of(session).find(|(_, one)| one.has(LOCAL_ONLY) && same(one)).map(|(key, _)| key)
    }

    /// The record that an application's reservation for a sender is about.
    pub(super) fn for_application(&self, session: Key, sender: Key) -> Key {
        let apart = self.received_by(session) != Iface::NONE;
        apart.then(|| self.local_only(session, sender)).flatten().unwrap_or(sender)
    }

    /// Keeps path state of the application's interface apart if it is a branch of its own, and ends that when it is not
    /// any more.
    pub(super) fn update_local_only(&mut self, session: Key, key: Key, resources: &mut Resources) {
        let iface = self.received_by(session);
        let Some(sender) = self.senders.get(key).filter(|sender| !sender.has(LOCAL | LOCAL_ONLY)) else {
            return;
        };
        let Some(extra) = &sender.extra else { return };
        // Where routing sends the data on to that interface itself, they come the way of all others.
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

    fn open_local_only(&mut self, session: Key, key: Key, from: UnexpectedPath, resources: &mut Resources) {
        let Some(filter) = self.senders.get(key).map(|sender| self.filter_of(sender)) else { return };
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

    /// What applications reserved for a sender ends: it goes on, if at all, the other iface.
    fn leave_local(&mut self, session: Key, key: Key, resources: &mut Resources) {
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

    fn end_local_only(&mut self, session: Key, key: Key, resources: &mut Resources) {
        self.leave_local(session, key, resources);
        self.end_sender(key, None, resources);
    }
}
