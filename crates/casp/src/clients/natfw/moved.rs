//! A passage whose source, this node, has another address. The session keeps its identifier, and FLOW_ID and filters are new
//! (draft-tschofenig-nsis-casp-midcom-01 section 4.1).

use signalbox_core::node::Prefix;
use signalbox_core::{Key, Time, invariant};

use super::NatfwClient;
use super::record::Stage;
use crate::clients::shared::Message;
use crate::wire::FlowId;

impl NatfwClient {
    /// The passage of a user goes on for another flow, from another address of this node. When the path lets its packets pass, the
    /// user gets [`NatfwEvent::Opened`](super::NatfwEvent::Opened), and the former flow is torn down. False: it does not move,
    /// because its session has no identifier yet, or it is about to end.
    pub fn move_to(&mut self, now: Time, id: u64, flow: FlowId) -> bool {
        self.now = self.now.max(now);
        let Some(key) = self.by_user.get(&id).copied() else { return false };
        let age = self.clock.next_age(self.now);
        let Some(record) = self.records.get_mut(key).filter(|record| record.flow != flow) else {
            return false;
        };
        let former = record.flow;
        let Some(own) = record.origin.own_mut() else { return false };
        let Some(session) = own.name.session() else { return false };
        let stage = match own.stage {
            Stage::Opening => Stage::Opening,
            // The user is informed when the path lets the packets of the new flow pass.
            Stage::Standing { until } | Stage::Failing { until } => Stage::Failing { until },
            Stage::Failed | Stage::Closing | Stage::Lost => return false,
        };
        for filter in own.filters.iter_mut().filter(|filter| filter.src == Prefix::host(former.src())) {
            filter.src = Prefix::host(flow.src());
        }
        // Who asks for other packets uses another AGE.
        (own.age, own.stage) = (age, stage);
        let older = own.former.replace(Box::new(former));
        record.flow = flow;
        self.by_session.remove(&(session, former));
        self.by_session.insert((session, flow), key);
        if let Some(older) = older {
            self.out.send(Message::tear_down(session, *older));
        }
        self.send_own(key);
        self.arm(key);
        true
    }

    /// The session with the flow that the source has left ends in the messaging layer, and with it the rules for that flow.
    pub(super) fn leave_former(&mut self, key: Key) {
        let Some(record) = invariant!(self.records.get_mut(key), "who moved has a record") else { return };
        let Some(own) = record.origin.own_mut() else { return };
        if let (Some(session), Some(former)) = (own.name.session(), own.former.take()) {
            self.out.send(Message::tear_down(session, *former));
        }
    }

    /// Ends a session of this node in the messaging layer, and with it what other nodes have of it.
    pub(super) fn tear_down(&mut self, key: Key) {
        self.leave_former(key);
        if let Some(record) = self.records.get(key)
            && let Some(session) = record.origin.session()
        {
            self.out.send(Message::tear_down(session, record.flow));
        }
    }
}
