//! Grants that were reduced for a stronger request instead of taken (RFC 4495).

use signalbox_core::{Key, invariant};
use signalbox_resources::GrantId;

use super::policy;
use crate::engine::Rsvp;
use crate::engine::path::policy_in;
use crate::engine::receive::Failure;
use crate::wire::{ErrorCode, ErrorFlags, ErrorSpec, Filter, FlowSpec, PolicyValue};

/// Whether an error reports a reduced reservation.
pub(super) fn is_reduction(error: &ErrorSpec) -> bool {
    error.code == ErrorCode::POLICY && error.value == PolicyValue::PARTIAL_PREEMPT.0
}

/// A flowspec limited to a rate in octets a second.
fn left(flowspec: &FlowSpec, rate: u64) -> FlowSpec {
    FlowSpec { tspec: flowspec.tspec.limited(rate), rspec: flowspec.rspec.map(|rspec| rspec.limited(rate)) }
}

impl Rsvp {
    /// A grant was reduced. Next hops with a larger request get a report of the rate that is left. Nothing goes upstream until
    /// they request less.
    pub(in crate::engine) fn on_reduced(&mut self, key: Key, grant: GrantId, rate: u64) {
        let Some(branch) = self.branches.get_mut(key).filter(|branch| branch.grant() == Some(grant)) else {
            return;
        };
        branch.extra.get_or_insert_default().reduced = Some(rate);
        self.counters.reduced += 1;
        tracing::debug!(grant = grant.0, rate, "reservation reduced");
        let hops: Vec<u32> = branch.requests().map(|request| request.hop).collect();
        for hop in hops {
            self.report_reduction(key, hop);
        }
    }

    /// Reports the rate that is left to a next hop with a larger request. The report is absolute: a repeated report
    /// changes nothing.
    pub(super) fn report_reduction(&mut self, key: Key, hop: u32) {
        let Some(branch) = invariant!(self.branches.get(key), "a reduced branch stands") else { return };
        let Some((rate, request)) = branch.reduced().zip(branch.request(hop)) else { return };
        let granted = left(&request.flowspec, rate);
        if granted == *request.flowspec {
            return;
        }
        let policy = policy::with_preempted(&policy_in(request.carried()));
        let failure = Failure::new(ErrorCode::POLICY, PolicyValue::PARTIAL_PREEMPT.0);
        self.report_failure_with(key, hop, (failure, ErrorFlags::IN_PLACE), granted, policy);
    }

    /// Lowers the request of an application of this node to what is left for these senders (with WF for all).
    pub(super) fn ask_for_less(&mut self, id: u64, granted: &FlowSpec, senders: &[Filter]) {
        let Some(request) =
            invariant!(self.clients.request_of(id), "what an application reserved ends before its request")
        else {
            return;
        };
        let mut less = false;
        for flow in &mut request.flows {
            if !flow.senders.is_empty() && !flow.senders.iter().any(|sender| senders.contains(sender)) {
                continue;
            }
            let before = flow.flowspec;
            let rspec = flow.flowspec.rspec.map(|rspec| match granted.rspec {
                Some(granted) if granted.rate() < rspec.rate() => granted,
                _ => rspec,
            });
            flow.flowspec = FlowSpec { tspec: before.tspec.within(&granted.tspec), rspec };
            less |= before != flow.flowspec;
        }
        if less {
            self.clients.renew(id);
        }
    }
}
