//! The handshake that installs and refreshes routing state: Query, Response, Confirm (RFC 5971 §4.4.1, §6.1 to §6.3, §8.5).
//!
//! [`Handshakes`] owns what handshakes need beside the record of their session: the secrets of cookies, Queries that wait for a
//! peering decision, and the limits of Queries and of queued messages (§8.4). Other rooms come in by the event functions of the
//! state machines (`rx_query`, `rx_response`, `rx_confirm`, `rx_data`, `birth`), which are named by the rules of §6.
//!
//! * `node_sm`: messages without a state machine, and selection of that of a message (§6.1).
//! * `querying`: the state machine of the Querying node (§6.2). `responding`: that of the Responding node (§6.3).
//! * `cookies`: Query-Cookies and Responder-Cookies (§8.5).
//! * `checks`: peering decisions of applications (§4.3.2).

mod checks;
mod cookies;
mod node_sm;
mod querying;
mod responding;

use core::net::IpAddr;

use signalbox_core::Time;
use signalbox_core::index::KeyedHasher;
use signalbox_core::rng::Random;
use signalbox_core::shares::{RateShares, Refused, Shares};

use crate::engine::association::octets;
use crate::engine::config::Config;
use checks::Checks;
use cookies::Cookies;

pub(in crate::engine) use querying::RESOLVE;

/// What the handshakes of a node share.
#[derive(Debug)]
pub(in crate::engine) struct Handshakes {
    cookies: Cookies,
    checks: Checks,
    /// Queries of each source and interface.
    queries: RateShares,
    /// Octets queued for all handshakes together, by the source that caused them.
    queued: Shares<Option<IpAddr>>,
}

impl Handshakes {
    /// No handshakes, with the limits of a configuration.
    pub(in crate::engine) fn new(config: &Config, hasher: KeyedHasher, rng: &mut Random) -> Self {
        Self {
            cookies: Cookies::new(config.cookie_period, rng),
            checks: Checks::new(config.max_checks, hasher),
            queries: RateShares::new(config.query_rate_per_source, KeyedHasher::new(rng)),
            queued: Shares::new(octets(config.max_queued), hasher),
        }
    }

    /// Takes the limits of other settings.
    pub(in crate::engine) fn set_limits(&mut self, now: Time, config: &Config) {
        self.queries.set_rate(now, config.query_rate_per_source);
    }

    /// When the next timeout of a peering decision is due.
    pub(in crate::engine) fn next_deadline(&self) -> Option<Time> {
        self.checks.deadline()
    }

    /// Whether a message of so many octets can be queued for a handshake. `from`: the source that causes it; `None`: this node,
    /// which the share of one source does not bind.
    pub(in crate::engine) fn has_room(&self, from: Option<IpAddr>, size: usize) -> bool {
        match self.queued.check(&from, octets(size)) {
            // Shares take a limit of 0 as no limit.
            Ok(()) => self.queued.limit() > 0,
            Err(Refused::Share) => from.is_none(),
            Err(Refused::Full) => false,
        }
    }

    /// A message is queued for a handshake.
    pub(in crate::engine) fn hold(&mut self, from: Option<IpAddr>, size: usize) {
        self.queued.hold_many(from, octets(size));
    }

    /// It is queued no more.
    pub(in crate::engine) fn release(&mut self, from: Option<IpAddr>, size: usize) {
        self.queued.release_many(from, octets(size));
    }
}
