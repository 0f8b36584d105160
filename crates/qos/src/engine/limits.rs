//! Other limits for a node that runs. What stands beyond a lower limit stays until it ends.

use super::Qos;
use super::config::Config;

impl Config {
    /// Takes the limits of `new` that a running engine can change. All other settings stay.
    pub const fn take_limits(&mut self, new: &Self) {
        self.max_lifetime = new.max_lifetime;
        self.max_sessions = new.max_sessions;
        self.max_queries = new.max_queries;
        self.max_contents = new.max_contents;
        self.max_commands = new.max_commands;
        self.report_rule = new.report_rule;
    }
}

impl Qos {
    /// Takes the limits of other settings ([`Config::take_limits`]). What stands beyond a lower limit stays.
    pub const fn set_limits(&mut self, new: &Config) {
        self.config.take_limits(new);
        self.sessions.set_limit(self.config.max_sessions.saturating_add(self.config.max_queries));
        self.holders.set_limits(&self.config);
    }
}
