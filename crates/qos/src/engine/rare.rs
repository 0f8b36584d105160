//! What few sessions have: a record has 8 octets for all of it while it is empty.

use std::sync::Arc;

use signalbox_core::rare::Empty;
use signalbox_core::service::SiiHandle;
use signalbox_core::{Mri, RareVec, Time};
use signalbox_resources::GrantId;

use super::circle::Uncounted;
use super::path_check::{PathCheck, Request};
use super::report::Report;
use super::session::OldBranch;
use crate::wire::MessageId;

/// Fields that most sessions do without.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RareFields {
    /// Grants of other flows of the session, kept because REPLACE was clear.
    pub(super) kept: RareVec<(Mri, GrantId)>,
    /// Grants at the old egress interface while a changed route is repaired.
    pub(super) old_grants: RareVec<GrantId>,
    /// The aggregate that the flow is in, and its rate there.
    pub(super) aggregate: Option<(usize, u64)>,
    /// The MSG-ID that its RESERVEs are bound to, retransmissions included (RFC 5974 §4.6).
    pub(super) waits_for: Option<MessageId>,
    /// The previous peer before the route changed. Until this time its messages are refreshes of the old branch (RFC
    /// 5974 §5.2.5.4).
    pub(super) old_previous_peer: Option<(SiiHandle, Time)>,
    /// The previous peer by the last notification of GIST, if it is another one.
    pub(super) gist_previous: Option<SiiHandle>,
    /// The next peer by the last notification of GIST, if it is another one.
    pub(super) gist_next: Option<SiiHandle>,
    /// Branches to be torn down when the new one is confirmed.
    pub(super) old_branches: RareVec<OldBranch>,
    /// The QSPEC of the last QUERY that was sent. A QUERY with RESERVE-INIT is sent again when the route changes.
    pub(super) init_qspec: Option<Arc<[u8]>>,
    /// BOUND-SESSION-ID objects.
    pub(super) bound: RareVec<u8>,
    /// SESSION-AUTH objects. A RESERVE along a new path needs them again.
    pub(super) auth: RareVec<u8>,
    /// Unknown objects with AB=11.
    pub(super) refreshed: RareVec<u8>,
    /// Octets of long objects that it keeps in the share of its source.
    pub(super) contents: u32,
    /// Messages that were passed on for peers that preserve no hop count.
    pub(super) uncounted: RareVec<Uncounted>,
    /// The RII of the last refresh, where one that comes back shows a circle.
    pub(super) circling: Option<u32>,
    /// This relay waits for a RESERVE of its previous peer before it reserves further on.
    pub(super) path_check: Option<PathCheck>,
    /// The request that the next RESERVE of a repair carries.
    pub(super) request: Option<Request>,
    /// The report to a former peer that is sent again.
    pub(super) report: Option<Report>,
    /// No report of the next peer is taken before this time.
    pub(super) no_report_until: Option<Time>,
}

impl Empty for RareFields {
    const EMPTY: Self = Self {
        kept: RareVec::new(),
        old_grants: RareVec::new(),
        aggregate: None,
        waits_for: None,
        old_previous_peer: None,
        gist_previous: None,
        gist_next: None,
        old_branches: RareVec::new(),
        init_qspec: None,
        bound: RareVec::new(),
        auth: RareVec::new(),
        refreshed: RareVec::new(),
        contents: 0,
        uncounted: RareVec::new(),
        circling: None,
        path_check: None,
        request: None,
        report: None,
        no_report_until: None,
    };
    const NOTHING: &'static Self = &Self::EMPTY;
}
