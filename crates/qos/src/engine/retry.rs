//! What this node asked for and could not be had for the moment is asked for again (RFC 5974 §5.3.5).

use signalbox_core::slab::Key;
use signalbox_wire::Writer;

use super::Qos;
use super::compose::Extra;
use super::event::Failure;
use super::session::{Retry, Stage, Want};
use crate::wire::{Hop, InfoClass};

impl Qos {
    /// Whether a request that failed for the moment is to be sent anew later: then nobody hears of the failure yet. What
    /// stood before and a user's change go other ways, and this node's own refusal is told at once.
    pub(super) fn will_retry(&mut self, key: Key, want: Want, failure: &Failure) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let asked = match want {
            Want::Reserve => session.stage == Stage::Reserved && session.rsn_out.is_some(),
            Want::Query => session.stage == Stage::Path,
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
            Some(Retry { want, count: count + 1, at: Some(self.now + wait.min(self.config.retry_max)) });
        // Nodes on the way gave back what they held: a refresh is not what they need.
        session.refresh_at = None;
        true
    }

    /// It is time to ask again.
    pub(super) fn retry(&mut self, key: Key) {
        let jitter = self.rng.jitter(self.config.refresh, 0.5, 1.5);
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(retry) = session.local.as_mut().and_then(|local| local.retry.as_mut()) else { return };
        retry.at = None;
        let (want, mri, rate, ifindex) = (retry.want, session.mri, session.rate, session.ifindex);
        if want == Want::Query {
            let rii = self.new_rii(key);
            let extra = Extra { rii: Some(rii), keep: true, ..Extra::default() };
            if let Some(octets) = self.send_query(key, mri, false, extra) {
                self.expect(key, rii, want, octets);
            }
            return;
        }
        // It is a new request, and no repetition.
        session.next_rsn();
        session.refresh_at = Some(self.now + jitter);
        let mut hops = Vec::new();
        if let Some(address) = self.interfaces.on(ifindex.unwrap_or_default(), mri.dst()) {
            Hop { address, rate, after_gap: false }.write(&mut Writer::new(&mut hops));
        }
        self.ask_onward(key, want, &hops);
    }
}
