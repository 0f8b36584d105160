//! Messages that leave: composing, the times at which they are sent, their repetition, and the limits of errors.
//!
//! All messages but diagnostics and repeated tears leave through [`Rsvp::transmit_state`](crate::engine::Rsvp::transmit_state). [`Sending`] owns what this needs beside the
//! state that the messages are about.
//!
//! * `path`: Paths, PathTears and PathErrs (RFC 2205 §3.1.3, §3.1.5, §3.1.7). `resv`: Resvs, ResvTears and ResvConfs (§3.1.4, §3.1.6,
//!   §3.1.9).
//! * `schedule`: when Paths and Resvs are sent next (§3.7). `staged`: the intervals after a change (draft-pan-rsvp-timer-00).
//! * `closing`: tears that are sent again (draft-pan-rsvp-timer-00 §5.3).
//! * `errors`: the limits of errors that are passed on.

mod closing;
mod errors;
mod path;
mod resv;
mod schedule;
mod staged;

use core::hash::Hash;

use signalbox_core::bucket::TokenBucket;
use signalbox_core::index::KeyedHasher;
use signalbox_core::shares::RateShares;
use signalbox_core::{Random, Time};

pub(in crate::engine) use closing::Torn;
pub(in crate::engine) use errors::Origin;
pub(in crate::engine) use path::carry;
pub(in crate::engine) use resv::{MOST_CARRIED, copy_flows};
pub(in crate::engine) use staged::Stage;

use super::Config;
use closing::ClosingStates;
use errors::PassedErrors;
use path::Advertised;

/// PathErrs in a second, by each interface, that answer Paths whose previous hop has proved nothing.
const ANSWERS: u32 = 1000;

/// What sending needs.
#[derive(Debug)]
pub(in crate::engine) struct Sending {
    /// For the jitter of refreshes.
    rng: Random,
    /// Services of each interface, by its number.
    advertised: Vec<Option<Advertised>>,
    /// The time until which they hold.
    advertised_until: Time,
    /// Tears that are sent again.
    closing: ClosingStates,
    /// Limits of the errors that are passed on, for each state.
    errors: PassedErrors,
    /// Limits of the errors that answer Paths, for each interface.
    answers: RateShares,
    /// Limit of the staged refreshes in a second.
    staged_limit: TokenBucket,
    /// The last time at which staged refreshes of a state began.
    last_trigger: Option<Time>,
    /// An ADSPEC that is being composed. It and `message` are allocations that are used again and hold no facts.
    adspec: Vec<u8>,
    /// A message that is being composed.
    message: Vec<u8>,
}

/// The keys of the tables of [`Sending`].
pub(in crate::engine) struct Hashers {
    pub(in crate::engine) errors: KeyedHasher,
    pub(in crate::engine) answers: KeyedHasher,
    pub(in crate::engine) closing: KeyedHasher,
}

impl Sending {
    pub(in crate::engine) fn new(config: &Config, hashers: Hashers, rng: Random) -> Self {
        Self {
            rng,
            advertised: Vec::new(),
            advertised_until: Time::ZERO,
            closing: ClosingStates::new(hashers.closing),
            errors: PassedErrors::new(hashers.errors, config.interface.refresh),
            answers: RateShares::new(ANSWERS, hashers.answers),
            staged_limit: TokenBucket::new(config.staged_rate, config.staged_rate),
            last_trigger: None,
            adspec: Vec::new(),
            message: Vec::new(),
        }
    }

    /// Takes another limit of the staged refreshes.
    pub(in crate::engine) fn set_limits(&mut self, now: Time, config: &Config) {
        self.staged_limit.set_limits(now, config.staged_rate, config.staged_rate);
    }

    /// Whether an error about a state may be passed on now. `contents` is what distinguishes it from others.
    pub(in crate::engine) fn passes_on(
        &mut self,
        now: Time,
        from: Origin,
        state: &impl Hash,
        contents: &impl Hash,
    ) -> bool {
        self.errors.allow(now, from, state, contents)
    }

    /// Whether no tear is sent again.
    pub(in crate::engine) const fn is_empty(&self) -> bool {
        self.closing.is_empty()
    }

    /// The time of the next tear that is sent again.
    pub(in crate::engine) fn next_deadline(&self) -> Option<Time> {
        self.closing.next_deadline()
    }
}
