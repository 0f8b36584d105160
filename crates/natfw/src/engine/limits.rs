//! Other limits for a node that runs. What stands beyond a lower limit stays until it ends.

use super::Natfw;
use super::config::{Config, ConfigError};

impl Config {
    /// Takes the limits of `new` that a running engine can change. All other settings stay.
    pub const fn take_limits(&mut self, new: &Self) {
        self.min_lifetime = new.min_lifetime;
        self.max_lifetime = new.max_lifetime;
        self.max_sessions = new.max_sessions;
        self.max_watched = new.max_watched;
    }
}

impl Natfw {
    /// Takes the limits of other settings ([`Config::take_limits`]). What stands beyond a lower limit stays.
    ///
    /// # Errors
    /// The first setting that is not allowed. All are as before.
    pub fn set_limits(&mut self, new: &Config) -> Result<(), ConfigError> {
        let mut config = self.config.clone();
        config.take_limits(new);
        config.validated()?;
        self.sessions.set_limit(config.max_sessions);
        self.shares.set_limit(config.max_sessions);
        self.ended.set_limit(config.max_sessions);
        self.out.set_limit(config.max_watched);
        self.config = config;
        Ok(())
    }
}
