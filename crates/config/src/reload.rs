//! Another configuration for a daemon that runs: which of its keys it takes, and which need a restart.

use crate::Config;

/// What a running daemon takes of another configuration.
#[derive(Debug)]
pub struct Reload {
    /// The configuration that is in force then.
    pub config: Config,
    /// The keys whose values change, with their tables, joined by dots.
    pub applied: Vec<String>,
    /// The keys whose values differ after that. They need a restart.
    pub needs_restart: Vec<String>,
}

impl Config {
    /// What a daemon that runs with this configuration takes of `new`: the rules, the limits of admission control, the keys
    /// of tokens, the roles of users, and the level of the log. `admission.max_reservations` is the size of tables, which stays.
    #[must_use]
    pub fn reload(&self, new: &Self) -> Reload {
        let mut config = self.clone();
        config.include.clone_from(&new.include);
        config.control.access.clone_from(&new.control.access);
        config.log.level = new.log.level.clone();
        config.secrets = self.secrets.with_tokens_of(&new.secrets);
        config.resources = new.resources.clone();
        config.resources.0.max_reservations = self.resources.0.max_reservations;
        let applied = config.differences(self);
        let needs_restart = new.differences(&config);
        Reload { config, applied, needs_restart }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Config;

    const HEAD: &str =
        "version = 1\n[node]\nprotocols = [\"gist\", \"qos\", \"rsvp\"]\n[rsvp.integrity]\nenabled = true\n";

    fn config(rest: &str) -> Config {
        let loaded = crate::parse(Path::new("node.toml"), &format!("{HEAD}{rest}{}", key("rsvp", 1)));
        loaded.usable().unwrap_or_else(|findings| panic!("{findings:?}")).0
    }

    fn key(usage: &str, id: u8) -> String {
        let entity = if usage == "tokens" { "entity = \"auth.example.org\"\n" } else { "" };
        format!("[[keys]]\nuse = \"{usage}\"\nid = {id}\nsecret_file = \"{id}.key\"\n{entity}")
    }

    #[test]
    fn rules_limits_and_the_log_level_are_taken() {
        let old = config("[policy]\ndefault = \"allow\"\n");
        let new = config(
            "[policy]\ndefault = \"deny\"\n[[policy.rules]]\naction = \"allow\"\nfrom = [\"10.0.0.0/8\"]\n\
             [admission]\npreemption = true\n[log]\nlevel = \"debug\"\n",
        );
        let reload = old.reload(&new);
        for name in ["policy.default", "policy.rules[1].from", "admission.preemption", "log.level"] {
            assert!(reload.applied.iter().any(|key| key == name), "{name}: {:?}", reload.applied);
        }
        assert_eq!(reload.needs_restart, [""; 0]);
        assert_eq!(reload.config, new);
        // The same once more changes nothing.
        assert_eq!(reload.config.reload(&new).applied, [""; 0]);
    }

    #[test]
    fn what_a_running_daemon_cannot_change_needs_a_restart() {
        let old = config("");
        let new = config(
            "[admission]\nmax_reservations = 5\n[log]\nformat = \"json\"\n[policy]\ndefault = \"allow\"\n\
             [interfaces.eth0]\ncapacity = \"10mbit\"\n",
        );
        let reload = old.reload(&new);
        assert_eq!(reload.applied, ["policy.default"]);
        for name in ["admission.max_reservations", "log.format", "interfaces.eth0.capacity"] {
            assert!(reload.needs_restart.iter().any(|key| key == name), "{name}: {:?}", reload.needs_restart);
        }
    }

    /// Keys of tokens are taken, those of RSVP need a restart.
    #[test]
    fn keys_are_taken_by_their_use() {
        let old = config(&key("tokens", 2));
        let token = config(&key("tokens", 3));
        let reload = old.reload(&token);
        assert_eq!((reload.needs_restart, reload.config.effective()), (vec![], token.effective()));
        assert!(!reload.applied.is_empty());
        let rsvp = config(
            &(key("tokens", 2) + &key("rsvp", 4).replace("secret_file", "interface = \"eth0\"\nsecret_file")),
        );
        let reload = old.reload(&rsvp);
        assert_eq!((reload.applied, reload.config.effective()), (vec![], old.effective()));
        assert!(!reload.needs_restart.is_empty());
    }
}
