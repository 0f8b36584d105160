//! Objects that are stored with state and forwarded with it: unknown objects (RFC 2205 §3.10) and POLICY_DATA.
//!
//! Policy elements have lifetimes of their own (RFC 2750 §3.4). An element that a message leaves out stays until its
//! lifetime ends, which is N times that of the RSVP state if the object has a policy refresh time (§3.2). A newer
//! element of the same P-Type and policy hop replaces it, an empty one deletes it.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::stamp::Stamp;

use crate::wire::{Class, Objects, PolicyData};

/// Longest lifetime of policy.
const LONGEST: Duration = Duration::from_secs(100 * 86_400);

/// Arrival time and lifetime of a message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Received {
    pub(crate) now: Time,
    /// Lifetime of RSVP state that the message refreshes (RFC 2205 §3.7).
    pub(crate) life: Duration,
    /// *R* of the message, milliseconds.
    pub(crate) period: u32,
    /// Maximum octets that are kept of one request or sender.
    pub(crate) limit: usize,
}

/// Lifetime of a POLICY_DATA object.
#[derive(Debug, Clone, Copy)]
struct PolicyLife {
    ends: Stamp,
    /// *N*: the policy refresh multiplier (RFC 2750 §3.2).
    multiplier: u32,
}

impl PolicyLife {
    fn new(multiplier: u32, now: Time, life: Duration) -> Self {
        Self { ends: Stamp::after(now + life.saturating_mul(multiplier).min(LONGEST)), multiplier }
    }
}

/// POLICY_DATA and unknown objects of one sender or request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Carried {
    /// Whole objects: those of the last message, then POLICY_DATA of earlier messages that did not expire.
    octets: Vec<u8>,
    /// Octets of the last message.
    own: usize,
    /// Lifetimes of the POLICY_DATA objects, in their order.
    lives: Vec<PolicyLife>,
    /// Number of POLICY_DATA objects of the last message.
    own_lives: usize,
}

/// What another message is for stored objects.
#[derive(Debug)]
pub(crate) enum Compared {
    /// It changes no object.
    Same(Renewal),
    /// It changes some. These are all objects after it.
    Changed(Carried),
}

/// How the lifetimes of stored objects go on after a message that changes no object.
#[derive(Debug)]
pub(crate) enum Renewal {
    /// The objects are those of the last message, and their lifetimes restart.
    Repeated,
    /// The objects are those of several messages, with the lifetimes in this record.
    Regrouped(Carried),
}

impl Carried {
    /// The objects of an application of this node; they do not expire.
    pub(crate) fn of_application(octets: Vec<u8>) -> Self {
        Self { own: octets.len(), octets, ..Self::default() }
    }

    /// The objects of a message.
    pub(crate) fn of(octets: &[u8], received: Received) -> Self {
        let life = |policy: PolicyData<'_>| {
            let multiplier = policy.options().map_or(1, |options| options.refreshes(received.period));
            PolicyLife::new(multiplier, received.now, received.life)
        };
        let lives: Vec<PolicyLife> = policies(octets).map(life).collect();
        Self { octets: octets.to_vec(), own: octets.len(), own_lives: lives.len(), lives }
    }

    /// All objects.
    pub(crate) fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// The objects after another message (RFC 2750 §3.4).
    pub(crate) fn after(&self, message: &[u8], received: Received) -> Self {
        let mut new = Self::of(message, received);
        let replaced = replaced_by(message);
        let stored = policies(&self.octets).zip(&self.lives);
        for (policy, life) in stored.filter(|(_, life)| !life.ends.is_due(received.now)) {
            if let Some(rest) = remaining(&policy, &replaced)
                && new.octets.len() + rest.len() <= received.limit
            {
                new.octets.extend(rest);
                new.lives.push(*life);
            }
        }
        new
    }

    /// What another message is for these objects.
    pub(crate) fn compare(&self, message: &[u8], received: Received) -> Compared {
        if self.octets.get(..self.own) == Some(message) {
            return Compared::Same(Renewal::Repeated);
        }
        let new = self.after(message, received);
        if new.octets == self.octets {
            Compared::Same(Renewal::Regrouped(new))
        } else {
            Compared::Changed(new)
        }
    }

    /// Takes another message that changes no object.
    pub(crate) fn renew(&mut self, renewal: Renewal, received: Received) {
        match renewal {
            Renewal::Repeated => self.refresh(received.now, received.life),
            Renewal::Regrouped(new) => *self = new,
        }
    }

    /// Takes another message if it changes no object; `false`: it changes some, and nothing was done.
    pub(crate) fn repeat(&mut self, message: &[u8], received: Received) -> bool {
        match self.compare(message, received) {
            Compared::Same(renewal) => {
                self.renew(renewal, received);
                true
            }
            Compared::Changed(_) => false,
        }
    }

    /// Restarts the lifetimes of the last message's policy, because it or its MESSAGE_ID was received again.
    pub(crate) fn refresh(&mut self, now: Time, life: Duration) {
        for one in self.lives.iter_mut().take(self.own_lives) {
            *one = PolicyLife::new(one.multiplier, now, life);
        }
    }

    /// Time when the first POLICY_DATA of an earlier message expires.
    pub(crate) fn deadline(&self) -> Option<Stamp> {
        self.lives.iter().skip(self.own_lives).map(|life| life.ends).reduce(Stamp::min)
    }

    /// Drops POLICY_DATA of earlier messages that expired; whether there was any.
    pub(crate) fn expire(&mut self, now: Time) -> bool {
        if self.deadline().is_none_or(|at| !at.is_due(now)) {
            return false;
        }
        let (own, kept) = self.octets.split_at_checked(self.own).unwrap_or((&self.octets, &[]));
        let lives = self.lives.get(self.own_lives..).unwrap_or_default();
        let mut octets = own.to_vec();
        let mut left = self.lives.get(..self.own_lives).unwrap_or_default().to_vec();
        for (policy, life) in policies(kept).zip(lives).filter(|(_, life)| !life.ends.is_due(now)) {
            octets.extend_from_slice(policy.octets());
            left.push(*life);
        }
        (self.octets, self.lives) = (octets, left);
        true
    }
}

/// The POLICY_DATA objects among some objects.
fn policies(octets: &[u8]) -> impl Iterator<Item = PolicyData<'_>> {
    let objects = Objects::at(octets, 0).map_while(Result::ok);
    objects.filter(|object| object.kind.class == Class::POLICY_DATA).map(PolicyData::of)
}

/// Policy hop of a POLICY_DATA object: the address of its origin (RFC 2750 §3.2). The outer `None`: its options are
/// malformed.
fn origin(policy: &PolicyData<'_>) -> Option<Option<IpAddr>> {
    policy.options().ok().map(|options| options.origin.map(|hop| hop.addr))
}

/// Policy hops and P-Types of the elements of a message, in order. One sorted list for all stored elements: a peer
/// chooses the number of both, and their product must not be the cost of a message.
fn replaced_by(message: &[u8]) -> Vec<(Option<IpAddr>, u16)> {
    let mut all = Vec::new();
    for policy in policies(message) {
        if let (Some(hop), Ok(elements)) = (origin(&policy), policy.elements()) {
            all.extend(elements.map(|element| (hop, element.p_type)));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The part of a stored POLICY_DATA object that a newer message with the elements `replaced` neither replaces nor
/// deletes; `None`: no part.
fn remaining(stored: &PolicyData<'_>, replaced: &[(Option<IpAddr>, u16)]) -> Option<Vec<u8>> {
    let hop = origin(stored)?;
    let replaced = |p_type: u16| replaced.binary_search(&(hop, p_type)).is_ok();
    let elements = stored.elements().ok()?;
    let total = elements.clone().count();
    let left: Vec<_> =
        elements.filter(|element| !element.data.is_empty() && !replaced(element.p_type)).collect();
    if left.is_empty() {
        return None;
    }
    if left.len() == total {
        return Some(stored.octets().to_vec());
    }
    if stored.options().ok()?.integrity.is_some() {
        return None; // its digest covers all elements
    }
    stored.with_elements(left.into_iter())
}
