//! The record of one mapping.

use core::net::SocketAddr;
use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::wheel::{Link, Timed};

use super::io::Inside;
use super::outbox::Back;
use crate::wire::Filter;

/// Which protocol made the mapping, and what its host proves with that it is its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// PCP, with the nonce of the first request.
    Pcp([u8; 12]),
    /// NAT-PMP, which has no proof.
    NatPmp,
}

/// A request that waits for the path. Its octets are needed for the answer.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) octets: Box<[u8]>,
    /// The lifetime that it gets, in seconds.
    pub(super) lifetime: u32,
}

/// What the host wishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) place: SocketAddr,
    /// Nothing else will do.
    pub(super) exactly: bool,
}

/// Mapping Updates that are left to send (RFC 6887 §14.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct Updates {
    pub(super) left: u8,
    pub(super) next: Time,
    pub(super) gap: Duration,
}

/// Where a mapping is between its first request and its end.
#[derive(Debug)]
pub(super) enum Stage {
    /// The first request waits for the path until then.
    Asking { asked: Asked, until: Time },
    /// It works.
    Standing { place: SocketAddr, ends: Time, updates: Option<Updates> },
    /// It works, and a request with other filters waits for the path until then.
    Changing {
        place: SocketAddr,
        ends: Time,
        asked: Asked,
        /// The filters of before.
        before: Vec<Filter>,
        until: Time,
    },
    /// The path lost it, and is asked for the old place again.
    Repairing {
        place: SocketAddr,
        ends: Time,
        until: Time,
        /// When the next question is due; nothing while one waits for its answer.
        again: Option<Time>,
        /// The answer that is waited for is to a question of before, and says nothing about this one.
        stale: bool,
    },
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) inside: Inside,
    pub(super) holder: Holder,
    /// Where the last request came from.
    pub(super) back: Back,
    pub(super) wish: Wish,
    pub(super) filters: Vec<Filter>,
    pub(super) description: Option<Box<str>>,
    pub(super) stage: Stage,
    /// When the path was asked again last, because it had lost the mapping.
    pub(super) asked_again: Option<Time>,
    pub(super) link: Link,
}

impl Timed for Record {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Record {
    /// When its timer is due.
    pub(super) fn due(&self) -> Time {
        match &self.stage {
            Stage::Asking { until, .. } => *until,
            Stage::Standing { ends, updates, .. } => updates.map_or(*ends, |updates| updates.next.min(*ends)),
            // The answer of the path gives it another end.
            Stage::Changing { until, .. } => *until,
            Stage::Repairing { ends, until, again, .. } => (*ends).min(*until).min(again.unwrap_or(*until)),
        }
    }

    /// The external place and the end of a mapping that the host has been told of.
    pub(super) const fn told(&self) -> Option<(SocketAddr, Time)> {
        match self.stage {
            Stage::Asking { .. } => None,
            Stage::Standing { place, ends, .. }
            | Stage::Changing { place, ends, .. }
            | Stage::Repairing { place, ends, .. } => Some((place, ends)),
        }
    }

    /// What is left of its lifetime in seconds, rounded up: the lifetime of an error that ends with it.
    pub(super) fn rest(&self, now: Time, otherwise: u32) -> u32 {
        self.told().map_or(otherwise, |(_, ends)| seconds(ends.since(now)))
    }
}

/// Seconds, rounded up.
pub(super) fn seconds(time: Duration) -> u32 {
    let whole = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    u32::try_from(whole).unwrap_or(u32::MAX)
}
