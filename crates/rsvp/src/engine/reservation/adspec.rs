//! What reservations take from the ADSPECs of Paths: the error terms of guaranteed service, which are a part of each request to admission
//! control (TC_Adspec of RFC 2205 §3.11.2; RFC 2212), and the path MTU, which is the M of a flowspec that gives none (RFC 2210 §2.3.2).

use signalbox_core::{Key, invariant};
use signalbox_resources::intserv::ErrorTerms;

use crate::engine::merging::Tears;
use crate::engine::path::{Part, Sender};
use crate::engine::session::is_application;
use crate::engine::{Admission, Rsvp};

/// What reservations take from one ADSPEC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::engine) struct Composed {
    /// Error terms of the path up to this node.
    terms: ErrorTerms,
    /// The largest packet of the path, octets.
    mtu: u32,
}

impl Rsvp {
    /// What reservations take from the ADSPEC of a sender. Without an ADSPEC nothing is known of errors and of a limit.
    pub(in crate::engine) fn composed(&self, sender: &Sender) -> Composed {
        let adspec = self.adspec_of(sender);
        Composed {
            terms: adspec.and_then(|adspec| adspec.guaranteed?.terms).unwrap_or_default(),
            mtu: adspec.map_or(u32::MAX, |adspec| adspec.general.mtu),
        }
    }

    /// Error terms of the path up to this node, from the ADSPEC of a sender (RFC 2212).
    pub(super) fn terms(&self, sender: &Sender) -> ErrorTerms {
        self.composed(sender).terms
    }

    /// The ADSPEC of a sender has changed. Returns whether admission control has to be asked again for reservations that its data meet.
    pub(in crate::engine) fn follow_adspec(&mut self, key: Key, before: Composed) -> Part {
        let Some(sender) = invariant!(self.senders.get(key), "an ADSPEC is that of a sender that stands")
        else {
            return Part::Same;
        };
        let after = self.composed(sender);
        let mut branches = self.branches_of(sender);
        let terms = after.terms != before.terms
            && branches.any(|(_, branch)| sender.leaves_by(branch.oif) && branch.flowspec().rspec.is_some());
        if after.mtu != before.mtu {
            self.ask_for_sizes(key, after.mtu.min(before.mtu));
        }
        Part::new_if(terms)
    }

    /// The path MTU of a sender has changed, and the lesser of both is `mtu`. A request may have an M that was completed by it. The next
    /// Resv completes it anew; a refresh by its MESSAGE_ID would not, so that the next hop has to send the Resv.
    fn ask_for_sizes(&mut self, key: Key, mtu: u32) {
        let Some(sender) = invariant!(self.senders.get(key), "a path MTU is that of a sender that stands")
        else {
            return;
        };
        let mut large: Vec<(Key, u32)> = Vec::new();
        for (branch, record) in self.branches_of(sender) {
            let concerned = record.requests().filter(|one| one.flowspec.tspec.max_packet() >= mtu);
            large.extend(concerned.map(|one| (branch, one.hop)).filter(|(_, hop)| !is_application(*hop)));
        }
        for (branch, hop) in large {
            self.remove_request_id(branch, hop);
        }
    }

    /// Asks again for the reservations that a sender's data meet, because a Path that refreshes its state has changed what they are
    /// granted for. Previous hops learn what follows.
    pub(in crate::engine) fn renew_grants(&mut self, session: Key, key: Key, resources: &mut dyn Admission) {
        let Some(upstream) = self.change_of_sender(session, key) else { return };
        self.reinstall_of(session, key, resources);
        self.send_upstream(upstream, session, Tears::Withhold, None);
    }
}
