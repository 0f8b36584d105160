//! Requests of applications for all sessions of a flow (RFC 5971 B.5, B.6): a walk over all records, a bounded number per
//! call.

use core::time::Duration;

use signalbox_core::service::InvalidStatus;
use signalbox_core::slab::Key;
use signalbox_core::{Mri, NslpId, invariant};

use crate::engine::Gist;

/// Records that one call visits.
const STEP: u32 = 4096;
/// Most pending walks.
const MOST: usize = 16;

/// A walk over all records.
#[derive(Debug)]
pub(super) struct Sweep {
    next: u32,
    action: SweepAction,
}

#[derive(Debug)]
enum SweepAction {
    /// `InvalidateRoutingState` (B.6).
    Invalidate { nslp: Option<NslpId>, mri: Mri, status: InvalidStatus, data: Box<[u8]> },
    /// `SetStateLifetime` (B.5).
    Lifetime { nslp: NslpId, mri: Mri, lifetime: Duration },
}

impl Gist {
    /// `InvalidateRoutingState` for a flow (RFC 5971 B.6). False: too many walks are pending.
    pub(super) fn sweep_invalid(
        &mut self,
        nslp: Option<NslpId>,
        mri: Mri,
        status: InvalidStatus,
        data: &[u8],
    ) -> bool {
        self.sweep(SweepAction::Invalidate { nslp, mri, status, data: data.into() })
    }

    /// `SetStateLifetime` for a flow (RFC 5971 B.5). False: too many walks are pending.
    pub(super) fn sweep_lifetime(&mut self, nslp: NslpId, mri: Mri, lifetime: Duration) -> bool {
        self.sweep(SweepAction::Lifetime { nslp, mri, lifetime })
    }

    fn sweep(&mut self, action: SweepAction) -> bool {
        if self.applications.sweeps.len() >= MOST {
            return false;
        }
        self.applications.sweeps.push_back(Sweep { next: 0, action });
        true
    }

    /// Continues the first walk.
    pub(in crate::engine) fn run_sweeps(&mut self) {
        let Some(mut sweep) = self.applications.sweeps.pop_front() else { return };
        let used_slots = self.records.used_slots();
        let end = sweep.next.saturating_add(STEP).min(used_slots);
        for index in sweep.next..end {
            if let Some(key) = self.records.key_of(index) {
                self.sweep_record(key, &sweep.action);
            }
        }
        sweep.next = end;
        if end < used_slots {
            self.applications.sweeps.push_front(sweep);
        }
    }

    fn sweep_record(&mut self, key: Key, action: &SweepAction) {
        let Some(record) = invariant!(self.records.get(key), "a walk visits sessions that stand") else {
            return;
        };
        match action {
            SweepAction::Invalidate { nslp, mri, status, data } => {
                if nslp.is_none_or(|nslp| nslp == record.nslp) && record.flow.is_of(mri) {
                    self.invalidate(key, mri.direction(), *status, data);
                }
            }
            SweepAction::Lifetime { nslp, mri, lifetime } => {
                if *nslp == record.nslp && record.flow.is_of(mri) {
                    self.set_lifetime(key, mri.direction(), *lifetime);
                }
            }
        }
    }
}
