//! Wrong proofs of return: how many came, and how many are answered by a new number.
//!
//! A number of 64 bits is not guessed, so a right one is accepted however many wrong ones came before, and so is a message that shows
//! none. What is limited is the answer to wrong ones: beyond the rate of the flow, of the source or of the interface they are refused.
//! An initiating node whose number is outdated begins again without it.

use core::net::IpAddr;
use std::collections::BTreeMap;

use signalbox_core::index::KeyedHasher;
use signalbox_core::shares::{RateShares, source};
use signalbox_core::{IfIndex, Random, Time};

/// Wrong proofs a second that are answered by a new number: about a flow, of a source, and of an interface.
const OF_FLOW: u32 = 4;
const OF_SOURCE: u32 = 64;
const OF_INTERFACE: u32 = 1024;
/// Wrong proofs of an interface, without a pause, from which on they are called an attack. Hosts whose router has started again show fewer.
const ATTACK: u64 = 100;
/// Seconds without a wrong proof after which an attack is over, and between two lines of the log about it.
const PAUSE: u64 = 10;
/// Interfaces whose wrong proofs are shown.
const INTERFACES: usize = 256;

/// Wrong proofs that came in by an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuessView {
    /// The interface.
    pub ifindex: IfIndex,
    /// How many came since the last pause of ten seconds.
    pub wrong: u64,
    /// How many of them were refused because of their rate.
    pub limited: u64,
    /// When the first one came.
    pub since: Time,
    /// When the last one came.
    pub last: Time,
    /// The initiating node in the last one. It may be forged.
    pub source: IpAddr,
}

impl GuessView {
    /// Whether they are more than hosts with outdated numbers send.
    #[must_use]
    pub const fn is_attack(&self) -> bool {
        self.wrong >= ATTACK
    }
}

/// The wrong proofs of all interfaces.
#[derive(Debug)]
pub(super) struct Guesses {
    flows: RateShares,
    sources: RateShares,
    interfaces: RateShares,
    seen: BTreeMap<IfIndex, GuessView>,
    /// When the last line was written.
    logged: Option<Time>,
}

const fn is_over(now: Time, last: Time) -> bool {
    now.as_micros().saturating_sub(last.as_micros()) > PAUSE * 1_000_000
}

impl Guesses {
    pub(super) fn new(rng: &mut Random) -> Self {
        let mut rates = |rate| RateShares::new(rate, KeyedHasher::new(rng));
        Self {
            flows: rates(OF_FLOW),
            sources: rates(OF_SOURCE),
            interfaces: rates(OF_INTERFACE),
            seen: BTreeMap::new(),
            logged: None,
        }
    }

    /// Counts a wrong proof about a flow with this hash. Whether it may be answered by a new number.
    pub(super) fn wrong(&mut self, now: Time, hash: u64, initiator: IpAddr, ifindex: IfIndex) -> bool {
        let from = source(initiator);
        let allowed = self.flows.allow(now, &(hash, from, ifindex))
            && self.sources.allow(now, &(from, ifindex))
            && self.interfaces.allow(now, &ifindex);
        let new = GuessView { ifindex, wrong: 0, limited: 0, since: now, last: now, source: initiator };
        if self.seen.len() >= INTERFACES && !self.seen.contains_key(&ifindex) {
            return allowed;
        }
        let seen = self.seen.entry(ifindex).or_insert(new);
        if is_over(now, seen.last) {
            *seen = new;
        }
        seen.wrong += 1;
        seen.limited += u64::from(!allowed);
        (seen.last, seen.source) = (now, initiator);
        if seen.is_attack() && self.logged.is_none_or(|logged| is_over(now, logged)) {
            self.logged = Some(now);
            tracing::warn!(
                ifindex = ifindex.0,
                src = %initiator,
                wrong = seen.wrong,
                limited = seen.limited,
                reason = "wrong proofs of return",
                "a host guesses proofs of return: sources may be forged behind this interface"
            );
        }
        allowed
    }

    /// The interfaces from which wrong proofs came in the last seconds.
    pub(super) fn views(&self, now: Time) -> impl Iterator<Item = GuessView> {
        self.seen.values().copied().filter(move |seen| !is_over(now, seen.last))
    }
}
