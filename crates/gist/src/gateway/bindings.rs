//! The table of bindings: what this gateway asks of the kernel's NAT, for how long, and for which host.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::pinhole::Pinhole;
use signalbox_core::shares::{Refused, Shares, is_scarce};
use signalbox_core::slab::{Key, Slab};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::wheel::{Link, Timed, Wheel};
use signalbox_core::{IfIndex, Random, Time};

use super::leases::Hold;
use super::message::MAX_OFFERS;
use super::outbox::Waiting;

/// Bindings that live as long as that of a flow: two for messages in datagrams, and those of associations.
pub(super) const RELATED: usize = 2 + MAX_OFFERS;

/// Addresses of a Querying and a Responding node, as the gateway sees them when a Response passes.
pub(super) type Pair = (Ipv4Addr, Ipv4Addr);
/// The part of a table that is kept for interfaces with little, as for sources: a quarter.
const RESERVE: u32 = 4;
/// Messages that wait for the kernel's answer about one binding.
const MOST_WAITING: usize = 16;

/// What a binding is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The packets of a flow.
    Flow,
    /// GIST messages in datagrams.
    Datagrams,
    /// A messaging association.
    Association,
}

/// Who asked for a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requester {
    /// The host inside, by a packet from its own address.
    Host,
    /// Another host inside. The kernel is not asked for a way to the inside.
    Other,
    /// A node outside. The configuration or the host inside has agreed.
    Outside,
}

/// Whether the kernel has a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is only reserved.
    Reserved,
    /// The kernel is asked for it.
    Asked,
    /// The kernel has it.
    Active,
    /// The kernel translates the flow by itself since before its signaling began, and ends that by its own rules.
    Adopted,
}

/// What the kernel was asked about a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InKernel {
    /// Nothing: it is only reserved.
    Reserved,
    /// It was asked for it, until this time. The Response of a flow can wait for the answer.
    Asked { until: Time, awaited_by: Option<Key> },
    /// It has it until this time.
    Active { until: Time },
    /// It translates the flow by itself.
    Adopted,
}

/// What Responses have said about a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// No Response has come that needs it. A new binding can take its place.
    Unproved,
    /// A Response has come that needs it.
    Needed,
    /// It is that of a flow, and a Response has confirmed the flow.
    Confirmed,
}

/// The sides between which the Query of a flow passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// No Query has passed yet, or the binding is not that of a flow.
    Unknown,
    /// From inside to outside: the source of the Query is translated.
    Outward,
    /// From outside to a host inside: its destination is translated.
    Inward,
    /// From inside to a host inside: both are.
    Hairpin,
}

impl Course {
    pub(super) const fn is_from_inside(self) -> bool {
        matches!(self, Self::Outward | Self::Hairpin)
    }

    pub(super) const fn is_to_inside(self) -> bool {
        matches!(self, Self::Inward | Self::Hairpin)
    }
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) purpose: Purpose,
    pub(super) pinhole: Pinhole,
    /// The external port that it holds.
    hold: Option<Hold>,
    /// Whose share it counts for: the sender of the message that asked for it.
    pub(super) owner: IpAddr,
    /// The interface by which that message came in, which has a share too.
    pub(super) ifindex: IfIndex,
    pub(super) proof: Proof,
    pub(super) requester: Requester,
    pub(super) kernel: InKernel,
    pub(super) until: Time,
    /// Validity time of the routing state in the last Query.
    pub(super) validity: Duration,
    pub(super) course: Course,
    pub(super) related: [Option<Key>; RELATED],
    /// Messages that wait for the kernel's answer.
    pub(super) waiting: Vec<Waiting>,
    /// The nodes of an association: Querying and Responding node.
    pub(super) pair: Option<Pair>,
    link: Link,
}

impl Timed for Binding {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Binding {
    pub(super) const fn state(&self) -> State {
        match self.kernel {
            InKernel::Reserved => State::Reserved,
            InKernel::Asked { .. } => State::Asked,
            InKernel::Active { .. } => State::Active,
            InKernel::Adopted => State::Adopted,
        }
    }

    /// A Response needs it.
    pub(super) const fn prove(&mut self) {
        if matches!(self.proof, Proof::Unproved) {
            self.proof = Proof::Needed;
        }
    }

    pub(super) const fn is_confirmed(&self) -> bool {
        matches!(self.proof, Proof::Confirmed)
    }

    /// Whether it may be there: the kernel has it already, or may be asked for it.
    pub(super) const fn may_open(&self) -> bool {
        let asked_by_its_host = !matches!(self.requester, Requester::Other);
        asked_by_its_host || self.pinhole.destination.is_none() || matches!(self.kernel, InKernel::Adopted)
    }

    /// Whether messages of this sender inside let it live longer. A way to the inside lives as long as its host asks for it.
    pub(super) fn may_prolong(&self, owner: IpAddr) -> bool {
        self.requester != Requester::Host || self.pinhole.destination.is_none() || self.owner == owner
    }

    /// Keeps a message until the kernel has answered; false if too many wait.
    pub(super) fn wait(&mut self, message: Waiting) -> bool {
        let has_room = self.waiting.len() < MOST_WAITING;
        if has_room {
            self.waiting.push(message);
        }
        has_room
    }
}

/// Why a binding is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoBinding {
    Full,
    /// The rest is for other sources.
    Share,
    /// The rest is for other interfaces.
    Interface,
    /// The same packets are translated to something else.
    Conflict,
}

/// What came of a binding that was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Insertion {
    /// It is new.
    New,
    /// It exists. The caller gives the hold back.
    Found(Option<Hold>),
}

#[derive(Debug)]
pub(super) struct Bindings {
    slab: Slab<Binding>,
    by_packets: Index,
    hasher: KeyedHasher,
    shares: Shares<IpAddr>,
    /// Counts only: the share of an interface depends on their number.
    by_interface: Shares<IfIndex>,
    interfaces: u32,
    /// The bindings of each interface that were not proved when they were made, the oldest first.
    unproved: Vec<(IfIndex, VecDeque<Key>)>,
    wheel: Wheel,
}

/// What is asked of the table.
#[derive(Debug)]
pub(super) struct BindingRequest {
    pub(super) purpose: Purpose,
    pub(super) pinhole: Pinhole,
    pub(super) hold: Option<Hold>,
    pub(super) owner: IpAddr,
    pub(super) ifindex: IfIndex,
    pub(super) requester: Requester,
    /// The kernel translates the packets so already.
    pub(super) adopted: bool,
}

impl Bindings {
    pub(super) fn new(most: u32, rng: &mut Random) -> Self {
        Self {
            slab: Slab::new(most),
            by_packets: Index::new(),
            hasher: KeyedHasher::new(rng),
            shares: Shares::new(most, KeyedHasher::new(rng)),
            by_interface: Shares::new(0, KeyedHasher::new(rng)),
            interfaces: 1,
            unproved: Vec::new(),
            wheel: Wheel::new(Duration::from_millis(100)),
        }
    }

    /// The binding of these packets.
    pub(super) fn find(&self, packets: &FlowFilter) -> Option<Key> {
        let hash = self.hasher.hash_one(packets);
        let is_it =
            |index| self.slab.get_index(index).is_some_and(|b: &Binding| b.pinhole.packets == *packets);
        self.slab.key_of(self.by_packets.find(hash, is_it)?)
    }

    /// The binding that is wanted: the one that exists, or a new one until `until`, and the hold that is not needed. If the
    /// host asks now for one that another host has made, it becomes its own. After a failure no hold is needed.
    ///
    /// `replaces`: another one was removed for it, as [`Bindings::victim`] said.
    pub(super) fn make(
        &mut self,
        request: BindingRequest,
        until: Time,
        replaces: bool,
    ) -> Result<(Key, Insertion), NoBinding> {
        let BindingRequest { purpose, pinhole, hold, owner, ifindex, requester, adopted } = request;
        if let Some(key) = self.find(&pinhole.packets) {
            let binding = self.slab.get_mut(key).filter(|binding| binding.pinhole == pinhole);
            let binding = binding.ok_or(NoBinding::Conflict)?;
            if (requester, binding.requester) != (Requester::Host, Requester::Other) {
                return Ok((key, Insertion::Found(hold)));
            }
            binding.requester = requester;
            let former = core::mem::replace(&mut binding.hold, hold);
            if binding.owner != owner && self.shares.take(owner).is_ok() {
                self.shares.release(core::mem::replace(&mut binding.owner, owner));
            }
            return Ok((key, Insertion::Found(former)));
        }
        if !replaces {
            self.check(owner, ifindex)?;
        }
        let hash = self.hasher.hash_one(&pinhole.packets);
        let binding = Binding {
            purpose,
            pinhole,
            hold,
            owner,
            ifindex,
            proof: Proof::Unproved,
            requester,
            kernel: if adopted { InKernel::Adopted } else { InKernel::Reserved },
            until,
            validity: Duration::ZERO,
            course: Course::Unknown,
            related: [None; RELATED],
            waiting: Vec::new(),
            pair: None,
            link: Link::default(),
        };
        let key = self.slab.insert(binding).map_err(|_| NoBinding::Full)?;
        self.shares.hold(owner);
        self.by_interface.hold(ifindex);
        self.queue(ifindex, key);
        let Self { slab, by_packets, hasher, wheel, .. } = self;
        by_packets.insert(hash, key.index(), |index| {
            slab.get_index(index).map_or(0, |b: &Binding| hasher.hash_one(&b.pinhole.packets))
        });
        wheel.arm(slab, key.index(), until);
        Ok((key, Insertion::New))
    }

    /// Whether there is room for one more binding of a source and an interface.
    fn check(&self, owner: IpAddr, ifindex: IfIndex) -> Result<(), NoBinding> {
        self.shares.check(&owner, 1).map_err(|refused| match refused {
            Refused::Full => NoBinding::Full,
            Refused::Share => NoBinding::Share,
        })?;
        let limit = self.shares.limit();
        let has_share = !is_scarce(limit, self.shares.total() + 1) || self.has_share(limit, ifindex);
        if has_share { Ok(()) } else { Err(NoBinding::Interface) }
    }

    /// Whether an interface has less than its share of what is kept of a table for interfaces with little.
    pub(super) fn has_share(&self, limit: u32, ifindex: IfIndex) -> bool {
        self.by_interface.held(&ifindex) < (limit / RESERVE / self.interfaces).max(1)
    }

    /// The number of interfaces that share the table.
    pub(super) fn set_interfaces(&mut self, interfaces: u32) {
        self.interfaces = interfaces.max(1);
    }

    /// What to remove so that there is room for a binding of a source and an interface, if that helps: the oldest binding without
    /// a Response, of the interface itself while it has more than its share, otherwise of the interface that has most. A source that
    /// has more than its share gets no room.
    pub(super) fn victim(&mut self, owner: IpAddr, ifindex: IfIndex) -> Option<Key> {
        match self.check(owner, ifindex) {
            Ok(()) | Err(NoBinding::Share | NoBinding::Conflict) => None,
            Err(NoBinding::Interface) => self.oldest(ifindex),
            Err(NoBinding::Full) if self.shares.held(&owner) >= self.shares.fair() => None,
            Err(NoBinding::Full) => self.oldest_of_most(),
        }
    }

    /// The oldest binding without a Response of the interface that has most of these.
    pub(super) fn oldest_of_most(&mut self) -> Option<Key> {
        let (ifindex, _) = self.unproved.iter().max_by_key(|(_, queue)| queue.len())?;
        self.oldest(*ifindex)
    }

    /// The oldest binding of an interface without a Response.
    pub(super) fn oldest(&mut self, ifindex: IfIndex) -> Option<Key> {
        let at = self.unproved.iter().position(|(of, _)| *of == ifindex)?;
        let (_, queue) = self.unproved.get_mut(at)?;
        loop {
            let key = queue.pop_front()?;
            // It may have ended, or be proved by now.
            if self.slab.get(key).is_some_and(|binding| binding.proof == Proof::Unproved) {
                return Some(key);
            }
        }
    }

    /// Notes a new binding of an interface.
    fn queue(&mut self, ifindex: IfIndex, key: Key) {
        let Self { unproved, slab, .. } = self;
        let Some((_, queue)) = unproved.iter_mut().find(|(of, _)| *of == ifindex) else {
            return unproved.push((ifindex, VecDeque::from([key])));
        };
        // Each key is removed once. Those behind a binding that waits for its Response stay as long as that.
        let is_over =
            |key: &Key| slab.get(*key).is_none_or(|binding: &Binding| binding.proof != Proof::Unproved);
        while queue.front().is_some_and(is_over) {
            queue.pop_front();
        }
        queue.push_back(key);
    }

    pub(super) fn get(&self, key: Key) -> Option<&Binding> {
        self.slab.get(key)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Binding> {
        self.slab.get_mut(key)
    }

    /// Lets a binding live until `until` at least.
    pub(super) fn prolong(&mut self, key: Key, until: Time) {
        if let Some(binding) = self.slab.get_mut(key).filter(|binding| binding.until < until) {
            // The timer is armed again when it fires.
            binding.until = until;
        }
    }

    /// Removes a binding, and returns it with the port that it held.
    pub(super) fn remove(&mut self, key: Key) -> Option<(Binding, Option<Hold>)> {
        let hash = self.hasher.hash_one(&self.slab.get(key)?.pinhole.packets);
        self.wheel.cancel(&mut self.slab, key.index());
        self.by_packets.remove(hash, |index| index == key.index());
        let binding = self.slab.remove(key)?;
        self.shares.release(binding.owner);
        self.by_interface.release(binding.ifindex);
        let hold = binding.hold;
        Some((binding, hold))
    }

    /// The next binding whose time has come.
    pub(super) fn expired(&mut self, now: Time) -> Option<Key> {
        loop {
            let index = self.wheel.pop_due(&mut self.slab, now)?;
            let (key, until) = self.slab.entry(index).map(|(key, binding)| (key, binding.until))?;
            if until <= now {
                return Some(key);
            }
            self.wheel.arm(&mut self.slab, index, until);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }

    pub(super) const fn len(&self) -> u32 {
        self.slab.len()
    }

    /// Has at most `most` bindings from now on. Those that are there stay.
    pub(super) const fn set_limit(&mut self, most: u32) {
        self.slab.set_limit(most);
        self.shares.set_limit(most);
    }

    pub(super) const fn limit(&self) -> u32 {
        self.slab.limit()
    }

    /// Visits the bindings from a slot on until `visit` is false, and returns the slot to go on from.
    pub(super) fn walk(&self, from: u32, visit: impl FnMut(Key, &Binding) -> bool) -> Option<u32> {
        self.slab.walk(from, visit)
    }

    /// The handle of a binding in the entries of this gateway: slot and generation in 32 bits.
    pub(super) const fn handle(key: Key) -> u32 {
        (key.index() + 1) & SLOT | key.generation() << SLOT_BITS
    }

    /// The binding of a handle, if it still exists.
    pub(super) fn of_handle(&self, handle: u32) -> Option<Key> {
        let key = self.slab.key_of((handle & SLOT).checked_sub(1)?)?;
        (Self::handle(key) == handle).then_some(key)
    }
}

/// Bits of a handle that have the slot.
const SLOT_BITS: u32 = 20;
const SLOT: u32 = (1 << SLOT_BITS) - 1;
