//! Reservations of which a part is taken for a stronger one, in iface of all of it (RFC 4495).

use signalbox_core::Key;
use signalbox_resources::GrantId;

use super::Rsvp;
use super::path::policy_in;
use super::policy;
use super::receive::Failure;
use crate::wire::{ErrorCode, ErrorFlags, ErrorSpec, Filter, FlowSpec, PolicyValue};

/// Whether an error says that less is reserved than was.
pub(super) fn is_reduction(error: &ErrorSpec) -> bool {
    error.code == ErrorCode::POLICY && error.value == PolicyValue::PARTIAL_PREEMPT.0
}

/// What is left of a request, at a rate in octets a second.
fn left(flowspec: &FlowSpec, rate: u64) -> FlowSpec {
    FlowSpec { tspec: flowspec.tspec.limited(rate), rspec: flowspec.rspec.map(|rspec| rspec.limited(rate)) }
}

impl Rsvp {
    /// A part of a grant is gone. The next hops that asked for more hear how much is left; upstream all stays as it is until
    /// they ask for less.
    pub(super) fn on_reduced(&mut self, key: Key, grant: GrantId, rate: u64) {
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

    /// Tells a next hop how much is left of a reduced reservation, if it asks for more. What it says is absolute: whoever
    /// hears it twice gives up no more.
    pub(super) fn report_reduction(&mut self, key: Key, hop: u32) {
        let Some(branch) = self.branches.get(key) else { return };
        let Some((rate, request)) = branch.reduced().zip(branch.request(hop)) else { return };
        let granted = left(&request.flowspec, rate);
        if granted == request.flowspec {
            return;
        }
        let policy = policy::with_preempted(&policy_in(request.carried()));
        let failure = Failure::new(ErrorCode::POLICY, PolicyValue::PARTIAL_PREEMPT.0);
        self.report_failure_with(key, hop, (failure, ErrorFlags::IN_PLACE), granted, policy);
    }

    /// An application of this node hears that only this is left for these senders (of WF for all): it asks for no more from
    /// now on.
    pub(super) fn ask_for_less(&mut self, id: u64, granted: &FlowSpec, senders: &[Filter]) {
        let Some(request) = self.applications.get_mut(&id).and_then(|one| one.reserve_mut()) else { return };
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
            self.pending.push(id);
        }
    }
}
