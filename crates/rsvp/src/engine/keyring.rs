//! Keys as they are configured: interfaces by name, lifetimes by the calendar, secrets that are not written with other
//! settings.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use signalbox_core::Time;
pub use signalbox_resources::Secret;

use super::Rsvp;
use super::config::ConfigError;
use super::neighbor::{Algorithm, KeyConfig, KeyUse};

/// A key for INTEGRITY (RFC 2747).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Key {
    /// Key Identifier, below 2^48; unique for a sender (RFC 2747 §2).
    pub id: u64,
    /// The digest algorithm.
    pub algorithm: Algorithm,
    /// The shared secret.
    pub secret: Secret,
    /// Whether it signs, verifies, or both.
    pub usage: KeyUse,
    /// The interface; `None`: all interfaces.
    pub interface: Option<String>,
    /// The neighbor: destination of messages that are sent, RSVP_HOP of messages that are received; `None`: all
    /// neighbors.
    pub neighbor: Option<IpAddr>,
    /// KeyStartValid: seconds since 1970.
    pub from: u64,
    /// KeyEndValid: seconds since 1970; `None`: the key does not expire.
    pub until: Option<u64>,
}

/// Longest secret, octets.
const LONGEST: usize = 1024;

/// The first key that is not allowed, and the reason.
pub(super) fn problem(keys: &[Key]) -> Option<(usize, &'static str)> {
    let mut seen = BTreeSet::new();
    keys.iter().enumerate().find_map(|(at, key)| {
        let problem = match key.secret.octets() {
            _ if key.id >= 1 << 48 => "id: an identifier has 48 bits",
            None => "secret: not there, it is not written down with other settings",
            Some([]) => "secret: empty",
            Some(octets) if octets.len() > LONGEST => "secret: over 1024 octets",
            _ if key.until.is_some_and(|until| until < key.from) => "until: before from",
            _ => {
                let place = |usage| (key.id, key.interface.clone(), key.neighbor, usage);
                let sends = key.usage == KeyUse::Receive || seen.insert(place(true));
                let receives = key.usage == KeyUse::Send || seen.insert(place(false));
                if sends && receives {
                    return None;
                }
                "id: there is another key with it for the same use, interface and neighbor"
            }
        };
        Some((at, problem))
    })
}

impl Rsvp {
    /// Takes other keys. One that stays keeps its sequence numbers (RFC 2747 §3).
    ///
    /// # Errors
    /// The first key that is not allowed. The keys are as before.
    pub fn set_keys(&mut self, keys: Vec<Key>) -> Result<(), ConfigError> {
        if let Some((at, problem)) = problem(&keys) {
            return Err(ConfigError { field: format!("keys.{at}"), problem });
        }
        self.config.keys = keys;
        self.settle_neighbors();
        Ok(())
    }

    /// Gives the neighbor layer its settings and keys for the present interfaces.
    pub(super) fn settle_neighbors(&mut self) {
        let named = self.interfaces.all().filter_map(|known| {
            // The setting says what TTLs do not.
            let distant = known.config.non_rsvp.is_some();
            if known.config.neighbors.is_none() && !distant {
                return None;
            }
            let mut own = known.config.neighbors.unwrap_or(self.config.neighbors.interface);
            own.trust.distant_hops |= distant;
            Some((known.ifindex, own))
        });
        for (ifindex, own) in named {
            self.neighbors.set_interface(ifindex, own);
        }
        let seconds = |seconds: u64| Time::ZERO + Duration::from_secs(seconds.min(1 << 40));
        let keys = self.config.keys.iter().filter_map(|key| {
            let interface = match &key.interface {
                // A key for an interface that does not exist is not used.
                Some(name) => Some(self.interfaces.all().find(|known| known.name == *name)?.ifindex),
                None => None,
            };
            Some(KeyConfig {
                id: key.id,
                algorithm: key.algorithm,
                secret: key.secret.octets()?.to_vec(),
                usage: key.usage,
                interface,
                neighbor: key.neighbor,
                from: seconds(key.from),
                until: key.until.map(seconds),
            })
        });
        let keys: Vec<_> = keys.collect();
        // The keys were checked when the engine was created.
        let _ = self.neighbors.set_keys(&keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u64, secret: &[u8]) -> Key {
        Key {
            id,
            algorithm: Algorithm::default(),
            secret: Secret::new(secret),
            usage: KeyUse::Both,
            interface: None,
            neighbor: None,
            from: 0,
            until: None,
        }
    }

    #[test]
    fn what_cannot_be() {
        assert_eq!(key(1, b"x").algorithm, Algorithm::HmacSha256);
        let problem = |keys: &[Key]| problem(keys).map(|(at, why)| (at, why.split(':').next().unwrap()));
        assert_eq!(problem(&[key(1, b"x"), key(2, b"x")]), None);
        assert_eq!(problem(&[key(1, b"x"), key(1, b"y")]), Some((1, "id")));
        let send = Key { usage: KeyUse::Send, ..key(1, b"x") };
        let receive = Key { usage: KeyUse::Receive, ..key(1, b"y") };
        assert_eq!(problem(&[send.clone(), receive]), None);
        assert_eq!(problem(&[send, key(1, b"z")]), Some((1, "id")));
        let elsewhere = Key { interface: Some("eth1".into()), ..key(1, b"y") };
        assert_eq!(problem(&[key(1, b"x"), elsewhere]), None);
        assert_eq!(problem(&[key(1 << 48, b"x")]), Some((0, "id")));
        assert_eq!(problem(&[key(1, b"")]), Some((0, "secret")));
        assert_eq!(problem(&[key(1, &[1; 1025])]), Some((0, "secret")));
        assert_eq!(problem(&[Key { from: 9, until: Some(8), ..key(1, b"x") }]), Some((0, "until")));
    }
}
