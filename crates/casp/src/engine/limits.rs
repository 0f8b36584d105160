//! Whose share a session uses, and other limits for a node that runs. What stands beyond a lower limit stays until it ends.

use core::net::IpAddr;

use signalbox_core::shares::{Shares, source};
use signalbox_core::{Key, Time};

use super::Casp;
use super::config::{Config, ConfigError};

impl Config {
    /// Takes the limits and rates of `new` that a running engine can change, and whether it takes part in delivery without state. All
    /// other settings stay.
    pub const fn take_limits(&mut self, new: &Self) {
        self.max_sessions = new.max_sessions;
        self.max_connections = new.max_connections;
        self.max_searches = new.max_searches;
        self.max_waiting = new.max_waiting;
        self.max_incomplete = new.max_incomplete;
        self.max_held = new.max_held;
        self.max_message = new.max_message;
        self.max_unsent = new.max_unsent;
        self.max_unsent_total = new.max_unsent_total;
        self.max_timeout = new.max_timeout;
        self.stateless = new.stateless;
        self.rate = new.rate;
        self.stateless_rate = new.stateless_rate;
        self.answer_rate = new.answer_rate;
        self.total_answer_rate = new.total_answer_rate;
    }
}

/// See [`Casp::is_known`].
pub(super) fn is_known(config: &Config, by_source: &Shares<IpAddr>, address: IpAddr) -> bool {
    config.neighbors.contains(&address) || by_source.held(&source(address)) > 0
}

impl Casp {
    /// The source that made a session.
    pub(super) fn owner(&self, key: Key) -> Option<IpAddr> {
        Some(self.source_of(self.sessions.get(key)?.owner))
    }

    /// The source whose share the owner of a session uses: a node, or a client of this node.
    pub(super) fn source_of(&self, owner: Key) -> IpAddr {
        self.peers.address(owner).map_or_else(|| super::source_of_client(owner), source)
    }

    /// Whether the node with this address is among [`Config::neighbors`], or made a session that stands, as another address of its
    /// [source](source()) may have done.
    #[must_use]
    pub fn is_known(&self, address: IpAddr) -> bool {
        is_known(&self.config, &self.by_source, address)
    }

    /// Takes the limits and rates of other settings ([`Config::take_limits`]). What stands beyond a lower limit stays.
    ///
    /// # Errors
    /// The first setting that is not allowed. All are as before.
    pub fn set_limits(&mut self, now: Time, new: &Config) -> Result<(), ConfigError> {
        let mut config = self.config.clone();
        config.take_limits(new);
        config.validated()?;
        self.sessions.slab.set_limit(config.max_sessions);
        self.by_source.set_limit(config.max_sessions);
        self.waiting_octets.set_limit(config.max_waiting);
        self.peers.set_limits(&config);
        self.searches.set_limit(config.max_searches);
        self.pending.set_limit(config.max_searches);
        self.held.set_limit(config.max_held);
        self.held_by.set_limit(config.max_held);
        self.rates.set_rate(now, config.rate);
        self.stateless_rates.set_rate(now, config.stateless_rate);
        self.answers.set_rate(now, config.answer_rate);
        self.errors.set_rate(now, config.answer_rate);
        self.all_answers.set_limits(now, config.total_answer_rate, config.total_answer_rate.div_ceil(4));
        self.config = config;
        Ok(())
    }
}
