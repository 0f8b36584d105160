//! `[[keys]]`: keys of RSVP, Boomerang and of authorization tokens. The secrets are in files of their own.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use signalbox_node::resources::token::KeyConfig;
use signalbox_node::rsvp::neighbor::{Algorithm, KeyUse};

use crate::keys::Keys;
use crate::kind::{address, choice, date, number, path, text};
use crate::secret;

const MEANING: &str = "A key that this node shares with others: with RSVP neighbors [RFC 2747], with the Boomerang nodes of its domain, or \
     with an authorizing entity whose tokens it verifies [RFC 5981]. For RSVP, a key for a neighbor is preferred to one for an interface, and that to one for all. \
     Two keys may have one `id` only if they differ in direction, interface or neighbor. Senders change to the newer key \
     in the middle of the time in which both are valid. The last key stays in use after its end, with a warning in the \
     counters.";

/// Octets of the longest secret of tokens, and an end of line.
const LONGEST: u64 = 128 + 2;

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Rsvp,
    Boomerang,
    Tokens,
}

/// `[[keys]]`
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Secrets(Vec<KeyEntry>);

/// A key.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct KeyEntry {
    usage: Option<Use>,
    pub(crate) id: Option<u64>,
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) valid_from: Option<u64>,
    pub(crate) valid_until: Option<u64>,
    pub(crate) algorithm: Algorithm,
    pub(crate) direction: KeyUse,
    pub(crate) interface: Option<String>,
    pub(crate) neighbor: Option<IpAddr>,
    entity: Option<String>,
    truncated: Option<u8>,
}

impl Secrets {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.array("keys", MEANING, &mut self.0, KeyEntry::default, |keys, entry| entry.declare(keys));
    }

    /// The keys of one use, each with its path.
    pub(crate) fn of(&self, usage: Use) -> impl Iterator<Item = (String, &KeyEntry)> {
        let numbered =
            (1..).zip(&self.0).map(|(number, entry): (usize, _)| (format!("keys[{number}]"), entry));
        numbered.filter(move |(_, entry)| entry.usage == Some(usage))
    }

    /// The files of all secrets.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.0.iter().filter_map(|entry| entry.secret_file.clone())
    }

    /// The keys of `new` for the uses that are taken, and these keys for the others. The order is that of a list that has both
    /// already.
    pub(crate) fn with_keys_of(&self, new: &Self, is_taken: impl Fn(Use) -> bool) -> Self {
        let chosen = |all: &Self, taken| -> Vec<KeyEntry> {
            all.0.iter().filter(|entry| entry.usage.is_some_and(&is_taken) == taken).cloned().collect()
        };
        let (stay, taken) = (chosen(self, false), chosen(new, true));
        if stay == chosen(new, false) {
            new.clone()
        } else if taken == chosen(self, true) {
            self.clone()
        } else {
            Self(stay.into_iter().chain(taken).collect())
        }
    }

    /// The keys that verify tokens, with the secrets in their files.
    pub(crate) fn tokens(&self, directory: &Path, keys: &mut Keys<'_>) -> Vec<KeyConfig> {
        let mut all: Vec<KeyConfig> = Vec::new();
        for (at, entry) in self.of(Use::Tokens) {
            let (Some(id), Some(file), Some(entity)) = (entry.id, &entry.secret_file, &entry.entity) else {
                continue;
            };
            let Ok(id) = u32::try_from(id) else {
                keys.fault(&[&format!("{at}.id")], "out of range: a Key-ID of a token has 32 bits");
                continue;
            };
            if all.iter().any(|other| other.entity == *entity && other.id == id) {
                keys.fault(&[&format!("{at}.id")], "the entity has two keys of this id: write another id");
            }
            let content = match secret::read(&directory.join(file), LONGEST) {
                Ok(content) => content,
                Err(message) => {
                    keys.fault(&[&format!("{at}.secret_file")], &message);
                    continue;
                }
            };
            let octets = secret::line(&content);
            if !(16..=128).contains(&octets.len()) {
                let message = format!("the secret has {} octets: 16 to 128 are needed", octets.len());
                keys.fault(&[&format!("{at}.secret_file")], &message);
                continue;
            }
            all.push(KeyConfig {
                entity: entity.clone(),
                id,
                secret: octets.iter().map(|octet| format!("{octet:02x}")).collect(),
                length: entry.truncated.unwrap_or(32),
                from: entry.valid_from.unwrap_or(0),
                until: entry.valid_until,
            });
        }
        all
    }
}

impl KeyEntry {
    fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.needed(
            "use",
            &mut self.usage,
            choice(&[("rsvp", Use::Rsvp), ("boomerang", Use::Boomerang), ("tokens", Use::Tokens)]),
            "What the key is for: RSVP messages of neighbors, Boomerang messages of a domain, or authorization tokens.",
        );
        keys.needed(
            "id",
            &mut self.id,
            number(0..=u64::MAX),
            "Key Identifier, the same at both ends: below 2^48 for RSVP, below 2^32 for Boomerang and tokens.",
        );
        keys.needed(
            "secret_file",
            &mut self.secret_file,
            path("rsvp-1.key"),
            "File of the secret, relative to the configuration: its octets without one final end of line, 1 to 1024 for \
             RSVP and Boomerang, 16 to 128 for tokens. Other users must not be able to read or write it (`chmod 600`). `openssl rand \
             -hex 32` makes a good one.",
        );
        let meaning = "Start of its validity, by the clock at the daemon's start.";
        keys.option("valid_from", &mut self.valid_from, date(), "always", meaning);
        keys.option("valid_until", &mut self.valid_until, date(), "for ever", "End of its validity.");
        keys.key(
            "algorithm",
            &mut self.algorithm,
            choice(&[("hmac-sha-256", Algorithm::HmacSha256), ("hmac-md5", Algorithm::HmacMd5)]),
            "For RSVP; MD5 is for routers without SHA-256.",
        );
        keys.key(
            "direction",
            &mut self.direction,
            choice(&[("both", KeyUse::Both), ("send", KeyUse::Send), ("receive", KeyUse::Receive)]),
            "For RSVP and Boomerang: whether the key signs, verifies, or both.",
        );
        keys.option("interface", &mut self.interface, text(64), "all", "For RSVP: interface of the key.");
        let meaning = "For RSVP: address of the neighbor in its RSVP_HOP.";
        keys.option("neighbor", &mut self.neighbor, address(), "all", meaning);
        let meaning = "For tokens, needed there: the authorizing entity, an address or a name.";
        keys.option("entity", &mut self.entity, text(255), "none", meaning);
        let meaning = "For tokens: octets of authentication data, 32 or 16.";
        keys.option("length", &mut self.truncated, number(16..=32), "32", meaning);
        let ordered = self.valid_from.unwrap_or(0) < self.valid_until.unwrap_or(u64::MAX);
        keys.check(ordered, &["valid_until"], "not after valid_from: write a later date");
        let whole = matches!(self.truncated, None | Some(16 | 32));
        keys.check(whole, &["length"], "neither 16 nor 32: write one of them");
        let other: &[&str] = match self.usage {
            Some(Use::Rsvp) => &["entity", "length"],
            Some(Use::Boomerang) => &["algorithm", "entity", "interface", "length", "neighbor"],
            Some(Use::Tokens) => &["algorithm", "direction", "interface", "neighbor"],
            None => &[],
        };
        for name in other.iter().filter(|name| keys.given(name)).collect::<Vec<_>>() {
            keys.fault(&[name], "not a key of this use: remove it");
        }
        if self.usage == Some(Use::Tokens) {
            let message =
                "missing: write the authorizing entity of the tokens, such as entity = \"auth.example.org\"";
            keys.check(
                self.entity.as_ref().is_some_and(|name| !name.is_empty()),
                &["entity", "use"],
                message,
            );
        }
    }
}
