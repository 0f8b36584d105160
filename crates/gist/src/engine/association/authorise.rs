//! Who may be a peer over an association (RFC 5971 §4.4.2).

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_core::security::Identity;
use signalbox_core::service::Security;
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri};

use super::Stacks;
use super::machine::End;
use crate::apd::{Apd, Verdict, Wanted};
use crate::engine::Gist;
use crate::wire::StackProposal;

impl Gist {
    /// Whether the authorised peer database accepts the peer of an association for a flow. Where no entry
    /// matches, an authenticated peer is refused, and one without authentication is not: nothing that wants
    /// security goes over its association. GIST-4.4.2-03, GIST-4.4.1-05, GIST-5.7.3.1-01.
    pub(super) fn may_use(&mut self, index: u32, mri: &Mri, expected_peers: &[IpAddr]) -> bool {
        let table = &mut self.associations;
        let Some(association) = table.slab.get_index_mut(index) else { return false };
        let wanted = Wanted { mri, expected_peers };
        let decision = table.config.authorised.decide(association.identity.as_deref(), &wanted);
        association.per_flow |= decision.depends_on_flow;
        match decision.verdict {
            Verdict::Allow => true,
            Verdict::Deny => decision.by.is_none() && !association.transport.is_secure(),
        }
    }

    /// What a message over an association was protected by.
    pub(in crate::engine) fn security_of(&self, association: u32) -> Security {
        if self.associations.is_secure(association) { Security::Channel } else { Security::None }
    }

    /// Who the other end of an association proved to be.
    pub(in crate::engine) fn identity_of(&self, association: u32) -> Option<Arc<Identity>> {
        self.associations.slab.get_index(association)?.identity.clone()
    }

    /// Whether a proposal that came back is the one that we make.
    pub(in crate::engine) fn is_our_offer(&self, proposal: &StackProposal<'_>) -> bool {
        Stacks::offered(&self.associations).equals(proposal)
    }

    /// The same for a session, with the address where its peer must be if this node knows: one hop downstream
    /// it is the next hop of the route.
    pub(super) fn is_authorised(&mut self, index: u32, key: Key, direction: Direction) -> bool {
        let Some(record) = self.records.get(key) else { return false };
        let mri = record.flow.mri(direction);
        let egress = self.peers.egress(record.half(direction).egress);
        let hop = egress.filter(|_| direction == Direction::Downstream);
        let hop = hop.map(|egress| egress.gateway.unwrap_or(mri.dst()));
        self.may_use(index, &mri, hop.as_slice())
    }

    /// Judges all sessions of an association; false if nothing is left of it. GIST-4.4.2-05, GIST-4.4.2-06.
    pub(super) fn authorise(&mut self, key: Key) -> bool {
        let index = key.index();
        let mut refused = false;
        let mut at = self.first_user(index);
        while let Some((session, direction)) = at {
            at = self.next_user((session, direction));
            if !self.is_authorised(index, session, direction) {
                refused = true;
                self.counters.sessions_unauthorised += 1;
                tracing::debug!(session = %self.records.get(session).map(|r| r.session).unwrap_or_default(), reason = "peer no longer authorised", "session ended");
                self.association_lost(session, direction, End::Unauthorised);
            }
        }
        if refused && self.associations.get(index).is_some_and(|a| a.sessions == 0) {
            self.close_channel(index, true);
            self.end_association(key, End::Unauthorised, false);
            return false;
        }
        true
    }

    /// The database changed: everything is judged again. GIST-4.4.2-08.
    pub(in crate::engine) fn authorised_peers_changed(&mut self, apd: &Apd) {
        self.associations.config.authorised = apd.clone();
        self.associations.retry_delays.forget_all();
        let all: Vec<Key> = self.associations.slab.iter().map(|(key, _)| key).collect();
        for key in all {
            if self.associations.slab.get(key).is_some_and(super::Association::is_up) {
                self.authorise(key);
            }
        }
    }
}
