//! Other limits for a node that runs. What stands beyond a lower limit stays until it ends.

use signalbox_core::Time;

use super::Rsvp;
use super::config::{Config, ConfigError};

impl Config {
    /// Takes the limits and rates of `new` that a running engine can change. All other settings stay.
    pub fn take_limits(&mut self, new: &Self) {
        self.max_sessions = new.max_sessions;
        self.max_senders = new.max_senders;
        self.max_senders_per_session = new.max_senders_per_session;
        self.max_reservations = new.max_reservations;
        self.max_next_hops = new.max_next_hops;
        self.max_applications = new.max_applications;
        self.staged_rate = new.staged_rate;
        self.diagnostics = new.diagnostics;
        self.interface.max_lifetime = new.interface.max_lifetime;
        for (name, own) in &mut self.interfaces {
            own.max_lifetime = new.of_interface(name).max_lifetime;
        }
        self.neighbors.take_limits(&new.neighbors);
    }
}

impl Rsvp {
    /// Takes the limits and rates of other settings ([`Config::take_limits`]). What stands beyond a lower limit stays.
    ///
    /// # Errors
    /// The first setting that is not allowed. All are as before.
    pub fn set_limits(&mut self, now: Time, new: &Config) -> Result<(), ConfigError> {
        let mut config = self.config.clone();
        config.take_limits(new);
        config.validated()?;
        self.sessions.set_limit(config.max_sessions);
        self.senders.set_limit(config.max_senders);
        self.branches.set_limit(config.max_reservations);
        self.message_ids.set_limit(config.max_senders.saturating_add(config.max_reservations));
        self.output.set_limits(now, &config);
        self.diagnostics.set_limits(now, &config);
        self.interfaces.set_lifetimes(&config);
        self.neighbors.set_limits(&config.neighbors);
        self.config = config;
        Ok(())
    }
}
