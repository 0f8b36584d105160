//! Other limits for a node that runs. What stands beyond a lower limit stays until it ends.

use signalbox_core::{Time, TokenBucket};

use super::Gist;
use super::config::{Config, ConfigError};

impl Config {
    /// Takes the limits and rates of `new` that a running engine can change. All other settings stay.
    pub fn take_limits(&mut self, new: &Self) {
        self.dmode_rate = new.dmode_rate;
        self.dmode_by_link = new.dmode_by_link;
        self.dmode_burst = new.dmode_burst;
        self.error_rate = new.error_rate;
        self.query_rate_per_source = new.query_rate_per_source;
        self.intercept_rate = new.intercept_rate;
        self.max_sessions = new.max_sessions;
        self.max_sessions_per_source = new.max_sessions_per_source;
        self.max_peers = new.max_peers;
        self.associations.take_limits(&new.associations);
    }
}

impl Gist {
    /// Takes the limits and rates of other settings ([`Config::take_limits`]). What stands beyond a lower limit stays.
    ///
    /// # Errors
    /// The first setting that is not allowed. All are as before.
    pub fn set_limits(&mut self, now: Time, new: &Config) -> Result<(), ConfigError> {
        let mut config = self.config.clone();
        config.take_limits(new);
        config.validated()?;
        self.config = config;
        let Self { config, .. } = self;
        self.records.set_limit(config.max_sessions);
        self.peers.set_limit(config.max_peers);
        self.rates.set_limits(now, config);
        self.handshakes.set_limits(now, config);
        self.associations.set_limits(now, &new.associations);
        Ok(())
    }
}

/// Changes a limit that a rate of 0 switches off.
pub(super) fn limit(bucket: &mut Option<TokenBucket>, now: Time, rate: u32, burst: u32) {
    match bucket {
        Some(bucket) if rate > 0 => bucket.set_limits(now, rate, burst),
        _ => *bucket = (rate > 0).then(|| TokenBucket::new(rate, burst)),
    }
}
