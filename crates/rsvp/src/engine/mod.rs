//! RSVP as an engine without clock, socket or thread: router and host in one, for IPv4 and IPv6, unicast and multicast.
//!
//! **Drain invariant.** After each [`Rsvp::handle`], call [`Rsvp::poll`] until it returns `None`, then ask
//! [`Rsvp::next_deadline`]. Extra polls are no-ops. Time never runs backwards. Whoever drives the engine answers each
//! [`Output::RouteLookup`] by one [`Input::Route`] of the same id, each [`Output::MulticastLookup`] by an
//! [`Input::Multicast`], and passes what [`Resources`] says of grants whose owner's protocol is [`PROTOCOL`] as
//! [`Input::Lost`].
//!
//! Messages are not processed yet: they are counted as unsupported, and commands are refused.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod config;
mod io;
pub mod neighbour;

use std::collections::VecDeque;

use signalbox_core::Time;
use signalbox_resources::Resources;

pub use config::{Config, ConfigError, InterfaceConfig, Staged};
pub use io::{Command, FlowRequest, Input, Output, Refused, ReserveRequest, RsvpEvent, SenderRequest};

use crate::counters::Counters;
use crate::wire::Message;

/// The protocol's name as owner of grants.
pub const PROTOCOL: &str = "rsvp";

/// One RSVP node.
#[derive(Debug)]
pub struct Rsvp {
    config: Config,
    counters: Counters,
    refused: VecDeque<u64>,
}

impl Rsvp {
    /// A node without sessions and interfaces; all its random numbers come from `seed`.
    ///
    /// # Errors
    /// The first setting that cannot be.
    pub fn new(config: Config, _seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.validated()?;
        Ok(Self { counters: Counters::default(), refused: VecDeque::new(), config })
    }

    /// Takes one input at `now`, which never runs backwards. Drain [`Rsvp::poll`] afterwards.
    pub fn handle(&mut self, _now: Time, input: Input<'_>, _resources: &mut Resources) {
        match input {
            Input::Packet(packet) if Message::parse(packet.payload).is_err() => self.counters.malformed += 1,
            Input::Packet(_) => self.counters.unsupported += 1,
            Input::Command { id, .. } => self.refused.push_back(id),
            _ => {}
        }
    }

    /// The next output, if any; its octets live until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        let id = self.refused.pop_front()?;
        Some(Output::Event { id, event: RsvpEvent::Refused(Refused::Unsupported) })
    }

    /// When [`Input::Timer`] is due; `None` while nothing waits.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// What was counted since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }
}
