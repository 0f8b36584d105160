//! Reservations that this node lost. The initiating node learns it from the next answer that passes.
//!
//! A lost reservation keeps its place in the table, without a grant, until it would have expired. An initiating node sets
//! [`Flags::STANDS`] in each message after its reservation was granted. This node refuses such a message, and gives the reason of the
//! loss. It handles a message without the flag as a new request: as the first one of a session, or that of an initiating node which
//! does not have the flag. A session of this node gets the event at once.
//!
//! What the kernel refuses is lost some milliseconds after the request. Mostly the reply to that request is still to come by this node, which
//! refuses it.

use core::time::Duration;

use signalbox_core::{Key, invariant};
use signalbox_resources::{GrantId, LostWhy, Resources};

use super::Boomerang;
use super::flow::{Flow, FlowKey, IS_LOST};
use super::interfaces::Iface;
use super::io::{BoomerangEvent as Event, Reason, Refusal};
use super::path::Origin;
use super::reserve::Lookup;
use super::session::State;
use crate::wire::{Body, Flags, Message, Pass, Rates};

/// How long after its request a reply belongs to the same loop. It is less than the time between two refreshes, which is 0.8 s at
/// least: the request of a later loop may have taken another way.
const LOOP: Duration = Duration::from_millis(500);

impl Flow {
    /// The reason why it was lost; `None`: it stands.
    fn loss(&self) -> Option<Reason> {
        let number = u8::try_from(self.rate).ok().filter(|_| self.has(IS_LOST))?;
        Some(Reason::of(number))
    }
}

impl Boomerang {
    /// A grant was lost.
    pub(super) fn on_lost(&mut self, key: Key, grant: GrantId, why: LostWhy, resources: &mut Resources) {
        let reason = Reason::of_loss(why);
        if self.flows.get(key).is_some_and(|flow| flow.grant == grant && !flow.has(IS_LOST)) {
            tracing::debug!(grant = grant.0, reason = %why, "reservation lost");
            self.counters.lost += 1;
            self.flow_is_lost(key, reason, resources);
        } else if self.aggregate_is_lost(key, grant, reason) {
            tracing::debug!(grant = grant.0, reason = %why, "aggregate lost");
            self.counters.lost += 1;
        }
    }

    fn flow_is_lost(&mut self, key: Key, reason: Reason, resources: &mut Resources) {
        self.leave_class(key);
        let Some(flow) = invariant!(self.flows.get_mut(key), "a lost flow is in the table") else { return };
        if flow.iif == Iface::LOCAL {
            let session = self.by_data.get(&flow.key).copied();
            self.remove(key, None);
            if let Some(session) = session {
                self.own_link_is_lost(session, reason, resources);
            }
        } else if flow.key.is_of_group() {
            // Nothing comes back from a group: the next request asks again.
            self.remove(key, None);
        } else {
            flow.marks |= IS_LOST;
            flow.rate = reason.number().into();
            self.lost_flows += 1;
        }
    }

    /// The reservation of a session of this node at its own link was lost.
    fn own_link_is_lost(&mut self, key: Key, reason: Reason, resources: &mut Resources) {
        let Some(session) = self.sessions.get(key).filter(|session| session.state != State::Closing) else {
            return;
        };
        let service = session.service();
        let forward = self.available(&Origin::own(session.ends, session.oif), service, None, resources);
        let reverse = session.granted.map_or(0, |granted| granted.reverse);
        let refusal = Refusal {
            offer: Rates { forward, reverse },
            node: self.interfaces.address(session.oif, session.ends.dst),
            reason,
            note: None,
        };
        self.finish(key, Event::Refused(refusal));
        self.release(key, resources);
    }

    /// Why this node lost what the request of a reply that passes has just reserved here.
    pub(super) fn lost_in_this_loop(&self, body: &Body<'_>, pass: Pass, oif: Iface) -> Option<Reason> {
        if pass != Pass::Reply || self.lost_flows == 0 {
            return None;
        }
        let key = FlowKey::of(&body.flow, Pass::Request).ok()?;
        let found = self.find(key.hash(oif, &self.hasher), &key, oif);
        let flow = found.and_then(|found| self.flows.get(found))?;
        let reason = flow.loss()?;
        // The request began the holding time.
        let until = self.wheel.due(&flow.link)?;
        (until + LOOP >= self.now + self.holding_time(flow.refresh)).then_some(reason)
    }

    /// Looks whether this node lost what a message asks for. An error is the reason that its initiating node has to learn. Otherwise the
    /// message is a new request, and the result is what it finds in the table.
    pub(super) fn settle_loss(
        &mut self,
        lookup: Lookup,
        message: &Message<'_>,
        origin: &Origin,
    ) -> Result<Lookup, Reason> {
        let stands = message.flags.contains(Flags::STANDS);
        let Some((key, flow, reason)) = lookup.found.and_then(|key| {
            let flow = self.flows.get(key)?;
            Some((key, flow, flow.loss()?))
        }) else {
            return match self.aggregates.loss(lookup.hash, self.now).filter(|_| stands) {
                Some(reason) => Err(reason),
                None => Ok(lookup),
            };
        };
        // By another interface the flow has another path, which never held it.
        if stands && flow.oif == origin.oif {
            return Err(reason);
        }
        self.remove(key, None);
        Ok(Lookup { found: None, ..lookup })
    }
}
