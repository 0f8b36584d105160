//! Other limits for a node that runs. What stands beyond a lower limit stays until it ends.

use signalbox_core::Time;

use super::Boomerang;
use super::config::{Config, ConfigError};

impl Config {
    /// Takes the limits and the rate of `new` that a running engine can change. All other settings stay.
    pub const fn take_limits(&mut self, new: &Self) {
        self.max_flows = new.max_flows;
        self.max_sessions = new.max_sessions;
        self.max_waiting = new.max_waiting;
        self.max_refresh = new.max_refresh;
        self.rate = new.rate;
        self.aggregates.max = new.aggregates.max;
    }
}

impl Boomerang {
    /// Takes the limits and the rate of other settings ([`Config::take_limits`]). What stands beyond a lower limit stays.
    ///
    /// # Errors
    /// The first setting that is not allowed. All are as before.
    pub fn set_limits(&mut self, now: Time, new: &Config) -> Result<(), ConfigError> {
        let mut config = self.config.clone();
        config.take_limits(new);
        config.validated()?;
        self.flows.set_limit(config.max_flows);
        self.by_source.set_limit(config.max_flows);
        self.by_interface.set_limit(config.max_flows);
        self.sessions.set_limit(config.max_sessions);
        self.routes.set_limit(config.max_waiting);
        self.rates.set_rate(now, config.rate);
        self.aggregates.set_limits(config.aggregates.max, config.max_flows);
        self.config = config;
        Ok(())
    }
}
