//! Authorisation of peers over associations (RFC 5971 §4.4.2).

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_core::security::Identity;
use signalbox_core::service::Security;
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, invariant};

use super::Stacks;
use super::machine::End;
use crate::apd::{Apd, Verdict, Wanted};
use crate::engine::Gist;
use crate::wire::StackProposal;

impl Gist {
    /// Whether the authorised peer database accepts the peer of an association for a flow. If no entry matches, an
    /// authenticated peer is refused. A peer without authentication is accepted, since messages that need security do not
    /// use its association. GIST-4.4.2-03, GIST-4.4.1-05, GIST-5.7.3.1-01.
    pub(super) fn may_use(&self, index: u32, mri: &Mri, expected_peers: &[IpAddr]) -> bool {
        let table = &self.associations;
        let association = invariant!(table.slab.get_index(index), "an association is judged while it stands");
        let Some(association) = association else { return false };
        let wanted = Wanted { mri, expected_peers };
        let decision = table.config.authorised.decide(association.identity.as_deref(), &wanted);
        match decision.verdict {
            Verdict::Allow => true,
            Verdict::Deny => decision.by.is_none() && !association.transport.is_secure(),
        }
    }

    /// The protection of a message over an association.
    pub(in crate::engine) fn security_of(&self, association: u32) -> Security {
        if self.associations.is_secure(association) { Security::Channel } else { Security::None }
    }

    /// The authenticated identity of the peer of an association.
    pub(in crate::engine) fn identity_of(&self, association: u32) -> Option<Arc<Identity>> {
        self.associations.slab.get_index(association)?.identity.clone()
    }

    /// Whether a Stack-Proposal in a Confirm is that of this node (RFC 5971 §5.7.1).
    pub(in crate::engine) fn is_our_offer(&self, proposal: &StackProposal<'_>) -> bool {
        Stacks::offered(&self.associations).equals(proposal)
    }

    /// Whether the database accepts the peer for a session. Downstream the expected address of the peer is the next hop of
    /// the route.
    pub(super) fn is_authorised(&self, index: u32, key: Key, direction: Direction) -> bool {
        let record = invariant!(self.records.get(key), "the peer of a session is judged while it stands");
        let Some(record) = record else { return false };
        let mri = record.flow.mri(direction);
        let egress = self.peers.egress(record.half(direction).egress);
        let egress = invariant!(egress, "a session with an association has an egress");
        let hop = egress.filter(|_| direction == Direction::Downstream);
        let hop = hop.map(|egress| egress.gateway.unwrap_or(mri.dst()));
        self.may_use(index, &mri, hop.as_slice())
    }

    /// Checks all sessions of an association; false if the association was closed. GIST-4.4.2-05, GIST-4.4.2-06.
    pub(super) fn authorise(&mut self, key: Key) -> bool {
        let index = key.index();
        let mut refused = false;
        let mut at = self.first_user(index);
        while let Some((session, direction)) = at {
            at = self.next_user((session, direction));
            if !self.is_authorised(index, session, direction) {
                refused = true;
                self.counters.sessions_unauthorized += 1;
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

    /// Checks all sessions after a change of the database (RFC 5971 §4.4.2). GIST-4.4.2-08.
    pub(in crate::engine) fn authorised_peers_changed(&mut self, apd: &Apd) {
        self.associations.config.authorised = apd.clone();
        self.associations.retry_delays.clear_all();
        self.associations.avoided.clear_all();
        self.associations.filtered.clear_all();
        let all: Vec<Key> = self.associations.slab.iter().map(|(key, _)| key).collect();
        for key in all {
            if self.associations.live(key).is_some_and(super::Association::is_up) {
                self.authorise(key);
            }
        }
    }
}
