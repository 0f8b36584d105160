//! What the client has, for people.

use signalbox_core::pinhole::{Endpoint, Pinhole, PinholeId};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{SessionId, Time};
use signalbox_resources::{Passage, Requester};

use super::NatfwClient;
use super::record::{Opened, Record, Rule};
use super::rules::pinhole_id;
use crate::clients::shared::Addresses;
use crate::wire::FlowId;

/// One rule of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleView {
    /// Its pinhole.
    pub pinhole: PinholeId,
    /// The packets that pass.
    pub packets: FlowFilter,
    /// Their source after translation; `None`: it stays.
    pub source: Option<Endpoint>,
    /// The kernel was asked to let them pass.
    pub active: bool,
    /// The policy rule that allowed it: its number and name.
    pub policy: Option<String>,
}

impl RuleView {
    /// What the kernel does.
    #[must_use]
    pub fn pinhole(&self) -> Pinhole {
        Pinhole { source: self.source, ..Pinhole::allow(self.packets) }
    }
}

/// One session with one flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassageView {
    /// Its identifier.
    pub session: SessionId,
    /// The flow.
    pub flow: FlowId,
    /// The user who asked here, if the request began here.
    pub user: Option<u64>,
    /// The request ended here.
    pub ends_here: bool,
    /// The path granted it, or the rules are in the kernel.
    pub granted: bool,
    /// Who asked; `None`: this node.
    pub requester: Option<Requester>,
    /// What this node opened.
    pub rules: Vec<RuleView>,
    /// When it ends without a refresh.
    pub until: Time,
}

impl PassageView {
    fn of(record: &Record, local: &Addresses) -> Option<Self> {
        let active = matches!(record.opened, Opened::Active { .. });
        let view = |rule: &Rule| RuleView {
            pinhole: pinhole_id(rule.key),
            packets: rule.packets,
            source: rule.source,
            active,
            policy: rule.passages.first().and_then(Passage::rule).map(ToString::to_string),
        };
        let waiting = record.change.iter().flat_map(|change| &change.rules);
        let rules: Vec<RuleView> = if record.opened.rules().is_empty() {
            waiting.map(view).collect()
        } else {
            record.opened.rules().iter().map(view).collect()
        };
        let own = record.origin.own();
        let granted = match own {
            Some(own) => own.stage.is_standing(),
            None => record.opened.age().is_some(),
        };
        let asker = record.asker(false).or_else(|| record.asker(true)).filter(|_| own.is_none());
        Some(Self {
            session: record.origin.session()?,
            flow: record.flow,
            user: own.map(|own| own.id),
            ends_here: own.is_none() && local.has(record.flow.dst()),
            granted,
            requester: asker.map(|asker| asker.hop.requester(record.flow.src())),
            until: if rules.is_empty() { record.until } else { record.rules_until },
            rules,
        })
    }
}

impl NatfwClient {
    /// Shows sessions from a place in the table on, until `visit` returns false. The result is where to go on; `None`: these
    /// were all.
    pub fn walk(&self, from: u32, mut visit: impl FnMut(PassageView) -> bool) -> Option<u32> {
        self.records.walk(from, |_, record| PassageView::of(record, &self.local).is_none_or(&mut visit))
    }

    /// Whether there is a session of this identifier.
    #[must_use]
    pub fn has_session(&self, session: SessionId) -> bool {
        !self.of_session(session).is_empty()
    }
}
