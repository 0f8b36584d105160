//! The aggregates that this node proposes to the nodes behind it (§3.3.2, framework §5.1.1): flows of one protocol and PHB between two
//! subnets, which leave by one interface.
//!
//! The node keeps every flow, with its own interval. A class is only the number and the sum of its flows. So a proposal follows
//! from the reservations of this node, and ends with them. Its number follows from the class: a restarted node proposes the
//! same aggregates again.

use core::num::Wrapping;
use std::collections::HashMap;

use signalbox_core::index::KeyedHasher;
use signalbox_core::{IfIndex, Key, invariant};

use super::Boomerang;
use super::config::Aggregation as Settings;
use super::flow::{Flow, FlowKey, IS_INTSERV, IS_MEMBER};
use super::path::Origin;
use crate::wire::{Aggregation, Known, Message, OF_REPLY, Pass, edit};

/// Fewer members are no aggregate.
const FEWEST: u32 = 2;

/// What the flows of an aggregate have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    key: FlowKey,
    tos: u8,
    ifindex: IfIndex,
}

impl Class {
    /// The number of its aggregate, the same after each start. BOOM-3.3.2-03.
    fn number(&self) -> u32 {
        // FNV-1a. A host that finds two classes with the same number gains nothing: the flows of one class get no aggregate.
        let [a, b, c, d] = self.ifindex.0.to_be_bytes();
        let rest = [self.tos, a, b, c, d];
        let octets = self.key.octets().iter().chain(&rest);
        let hash = octets.fold(Wrapping(0x811c_9dc5_u32), |hash, octet| {
            (hash ^ Wrapping(u32::from(*octet))) * Wrapping(0x0100_0193)
        });
        hash.0
    }
}

#[derive(Debug)]
struct ClassSum {
    class: Class,
    members: u32,
    /// Sum of their rates, bit/s.
    rate: u64,
    /// It has had enough members, and still has two.
    proposed: bool,
}

/// The classes of the flows of this node, by their numbers. There is no class without a flow.
#[derive(Debug)]
pub(super) struct Proposals {
    sums: HashMap<u32, ClassSum, KeyedHasher>,
}

impl Proposals {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self { sums: HashMap::with_hasher(hasher) }
    }

    /// Counts a flow in its class. `false`: another class has its number. BOOM-F5.1.1-01.
    fn enter(&mut self, class: Class, rate: u32, enough: u32) -> bool {
        let new = ClassSum { class, members: 0, rate: 0, proposed: false };
        let sum = self.sums.entry(class.number()).or_insert(new);
        if sum.class != class {
            return false;
        }
        sum.members = sum.members.saturating_add(1);
        sum.rate = sum.rate.saturating_add(rate.into());
        sum.proposed |= sum.members >= enough.max(FEWEST);
        true
    }

    // BOOM-F6.2-07, BOOM-F6.2-06, BOOM-3.3.2-05
    fn leave(&mut self, class: &Class, rate: u32) {
        let number = class.number();
        let Some(sum) = self.sums.get_mut(&number).filter(|sum| sum.class == *class) else { return };
        sum.members = sum.members.saturating_sub(1);
        sum.rate = sum.rate.saturating_sub(rate.into());
        sum.proposed &= sum.members >= FEWEST;
        if sum.members == 0 {
            self.sums.remove(&number);
        }
    }

    /// Number and rate of the aggregate of a class, while it is proposed. BOOM-G27-04.
    fn proposed(&self, class: &Class) -> Option<(u32, u32)> {
        let number = class.number();
        let sum = self.sums.get(&number).filter(|sum| sum.class == *class && sum.proposed)?;
        // A sum that the option cannot express is not proposed.
        Some((number, u32::try_from(sum.rate).ok()?))
    }
}

/// An aggregate that this node proposes for a flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    class: Class,
    number: u32,
    /// The sum of its members, bit/s.
    rate: u32,
    /// The initiating node of the flow proved something.
    proved: bool,
}

impl Offer {
    pub(super) const fn number(&self) -> u32 {
        self.number
    }
}

impl Boomerang {
    // BOOM-G28-02, BOOM-F6.2-09, BOOM-3.3.2-06
    fn class_of(&self, flow: &Flow) -> Option<Class> {
        let Settings { propose, ipv4_prefix, ipv6_prefix, .. } = self.config.aggregates;
        if !propose || flow.has(IS_INTSERV) || flow.key.is_of_group() {
            return None;
        }
        let key = flow.key.between_subnets(ipv4_prefix, ipv6_prefix)?;
        Some(Class { key, tos: flow.tos, ifindex: self.interfaces.ifindex(flow.oif) })
    }

    /// Counts a reservation in its class, after it was made or changed.
    pub(super) fn enter_class(&mut self, key: Key) {
        let Some(flow) = invariant!(self.flows.get(key), "a flow that enters a class stands") else { return };
        let (class, rate) = (self.class_of(flow), flow.rate);
        let enough = self.config.aggregates.members;
        if class.is_some_and(|class| self.proposals.enter(class, rate, enough))
            && let Some(flow) = self.flows.get_mut(key)
        {
            flow.marks |= IS_MEMBER;
        }
    }

    /// Takes a reservation out of its class, before it is changed or removed.
    pub(super) fn leave_class(&mut self, key: Key) {
        let Some(flow) = self.flows.get(key).filter(|flow| flow.has(IS_MEMBER)) else { return };
        let (class, rate) = (self.class_of(flow), flow.rate);
        if let Some(class) = class {
            self.proposals.leave(&class, rate);
        }
        if let Some(flow) = self.flows.get_mut(key) {
            flow.marks &= !IS_MEMBER;
        }
    }

    /// The aggregate that this node proposes for a flow.
    pub(super) fn offer(&self, flow: &Flow) -> Option<Offer> {
        let class = self.class_of(flow).filter(|_| flow.has(IS_MEMBER))?;
        let (number, rate) = self.proposals.proposed(&class)?;
        Some(Offer { class, number, rate, proved: flow.proof != 0 || flow.signed })
    }

    /// Adds the option of the aggregate to a message whose flow is a member, also when it ends: without the option, a node that
    /// demands proofs would not accept the release. Whether it was added.
    pub(super) fn propose(
        &mut self,
        octets: &mut Vec<u8>,
        message: &Message<'_>,
        origin: &Origin,
        offer: &Offer,
    ) -> bool {
        let Offer { class, number: transaction, rate, proved } = *offer;
        // BOOM-3.3.2-02
        let Some(address) = self.interfaces.address(origin.oif, origin.ends.dst) else { return false };
        let room = usize::try_from(self.interfaces.mtu(origin.oif)).unwrap_or(0);
        let added = Aggregation::octets(origin.ends.is_ipv6());
        // BOOM-F5.1.1-02
        let closed = message.body.is_none_or(|body| body.options.tail() > 0);
        // BOOM-G31-01
        if closed || !origin.has_room(octets.len() + added, room, proved) {
            self.counters.options_left_out += 1;
            return false;
        }
        // BOOM-G26-01
        let flags = if message.pass == Pass::Reply { OF_REPLY } else { 0 };
        // BOOM-F5.1.1-03
        let option = Aggregation { address, transaction, flow: class.key.spec(class.tos), rate };
        edit::append_with(octets, flags, &Known::Aggregation(option));
        self.counters.options_added += 1;
        true
    }
}
