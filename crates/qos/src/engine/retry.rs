//! New attempts after transient failures of own requests (RFC 5974 §5.3.5).

use signalbox_core::invariant;
use signalbox_core::slab::Key;
use signalbox_core::stamp::Moment;
use signalbox_wire::Writer;

use super::Qos;
use super::compose::Extra;
use super::event::Failure;
use super::session::{RequestKind, Retry, Stage};
use crate::wire::{Hop, InfoClass, Part};

impl Qos {
    /// Whether a request that failed temporarily is sent again later. Then the user gets no event yet. Confirmed
    /// reservations and changes are not repeated; a refusal of this node itself is reported at once.
    pub(super) fn will_retry(&mut self, key: Key, kind: RequestKind, failure: &Failure) -> bool {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a failure has a session") else {
            return false;
        };
        let asked = match kind {
            RequestKind::Reserve => session.stage == Stage::Reserved && session.rsn_out.is_some(),
            RequestKind::Query => session.stage == Stage::Path,
            _ => false,
        };
        let Some(local) = session.local.as_mut().filter(|local| !local.granted && !local.releasing) else {
            return false;
        };
        let count = local.retry.map_or(0, |retry| retry.count);
        let transient = InfoClass(failure.class) == InfoClass::TRANSIENT_FAILURE;
        if !asked || !transient || local.before.is_some() || count >= self.config.transient_retries {
            return false;
        }
        let wait = self.config.request_retry.saturating_mul(2u32.saturating_pow(count.into()));
        local.retry =
            Some(Retry { kind, count: count + 1, at: Some(self.now + wait.min(self.config.retry_max)) });
        // Nodes on the path released their resources: a refresh would not restore them.
        session.refresh_at = Moment::NEVER;
        true
    }

    /// Sends a new attempt.
    pub(super) fn retry(&mut self, key: Key) {
        let jitter = self.rng.jitter(self.config.refresh, 0.5, 1.5);
        let Some(session) = invariant!(self.sessions.get_mut(key), "a new try has a session") else { return };
        let Some(retry) =
            invariant!(session.local.as_mut().and_then(|local| local.retry.as_mut()), "a new try is due")
        else {
            return;
        };
        retry.at = None;
        let (kind, mri) = (retry.kind, session.mri());
        if kind == RequestKind::Query {
            let rii = self.new_rii(key);
            let extra = Extra { rii: Some(rii), keep: true, ..Extra::default() };
            if let Some(octets) = self.send_query(key, mri, false, extra) {
                self.expect(key, rii, kind, octets);
            }
            return;
        }
        // It is a new request, not a retransmission.
        session.next_rsn();
        session.refresh_at = (self.now + jitter).into();
        let hops = self.own_hops(key);
        self.request_from_path(key, kind, &hops);
    }

    /// The beginning of the list of hops in a request of this node's user: the own grant. Empty in requests for others,
    /// whose user is at another node.
    pub(super) fn own_hops(&self, key: Key) -> Vec<u8> {
        let mut hops = Vec::new();
        if let Some(session) = self.sessions.get(key).filter(|session| session.local.is_some())
            && let Some(address) =
                self.interfaces.on(session.ifindex.unwrap_or_default(), session.mri().dst())
        {
            let own = Hop::new(address, Part::Rate(session.rate));
            own.write(&mut Writer::new(&mut hops));
        }
        hops
    }
}
