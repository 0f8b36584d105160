//! Authorization tokens of RFC 5981, with shared keys only. Protocols find the SESSION_AUTH objects of their messages, this
//! module reads and verifies them.
//!
//! A token is a SESSION_AUTH object that an authorizing entity signed with a key which this node has too (RFC 5981
//! §4.1). Its AUTHENTICATION_DATA begins with a Key-ID. The rest is an HMAC-SHA-256 over all attributes before it.

mod object;
mod used;

pub(crate) use used::UsedTokens;

use core::fmt;
use std::sync::Arc;

use ring::hmac;
use signalbox_core::Time;
use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;

use crate::config::ConfigError;
use crate::units::{Net, Ports};

/// A key that an authorizing entity signs tokens with.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct KeyConfig {
    /// The authorizing entity, as AUTH_ENT_ID names it: an address or a name.
    pub entity: String,
    /// Key-ID. An entity may have several keys, so that they can be changed.
    pub id: u32,
    /// The key, 32 to 256 hexadecimal digits.
    pub secret: String,
    /// Octets of authentication data: 32, or 16 for the truncated form of RFC 4868.
    #[cfg_attr(feature = "serde", serde(default = "default_length"))]
    pub length: u8,
    /// First second of validity, since 1970.
    #[cfg_attr(feature = "serde", serde(default))]
    pub from: u64,
    /// First second after the validity, since 1970; none: no end.
    #[cfg_attr(feature = "serde", serde(default))]
    pub until: Option<u64>,
}

#[cfg(feature = "serde")]
const fn default_length() -> u8 {
    32
}

/// Hides the secret.
impl fmt::Debug for KeyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entity, id, length, from, until, .. } = self;
        write!(f, "KeyConfig({entity:?}, {id}, {length} octets, {from} to {until:?})")
    }
}

/// The contents of a verified token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Token {
    /// The authorizing entity that signed it. Policy rules match it.
    pub entity: String,
    /// The entity's own identifier of the session (SESSION_ID), if any.
    pub session: Vec<u8>,
    /// Source addresses that packets may have; empty: any (SOURCE_ADDR).
    pub sources: Vec<Prefix>,
    /// Destination addresses that packets may have; empty: any (DEST_ADDR).
    pub destinations: Vec<Prefix>,
    /// Source ports that packets may have; empty: any.
    pub source_ports: Vec<PortList>,
    /// Destination ports that packets may have; empty: any.
    pub destination_ports: Vec<PortList>,
    /// Start of validity, microseconds since 1970 (START_TIME).
    pub start_us: Option<u64>,
    /// End of validity, microseconds since 1970 (END_TIME).
    pub end_us: Option<u64>,
}

/// Ports of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortList {
    /// 6 or 17.
    pub protocol: u8,
    /// One port or a range.
    pub ports: Ports,
}

/// A token that is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No key of that entity has this Key-ID.
    #[error("token: no such key")]
    UnknownKey,
    /// The key is not valid at this time.
    #[error("token: the key is not valid now")]
    KeyExpired,
    /// Authentication data of another length than configured.
    #[error("token: authentication data of a wrong length")]
    Length,
    /// The authentication data do not match the octets.
    #[error("token: wrong signature")]
    Signature,
    /// It names a session (SESSION_ID), and was used in another one.
    #[error("token: it was used in another session")]
    Used,
    /// So many tokens of its entity were used that this one could not be remembered.
    #[error("token: too many of its entity are in use")]
    Full,
}

/// Octets of the shortest HMAC that [`Keys::verify_mac`] takes.
const SHORTEST_TAG: usize = 16;

/// The keys of all authorizing entities.
pub struct Keys {
    keys: Vec<Key>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.keys.len())
    }
}

/// An HMAC of protocols other than RFC 5981, which have no Key-ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mac {
    /// HMAC-SHA-256, cut to the length of the tag.
    Sha256,
    /// HMAC-SHA-1.
    Sha1,
}

struct Key {
    entity: String,
    id: u32,
    key: hmac::Key,
    sha1: hmac::Key,
    length: usize,
    from: u64,
    until: u64,
}

impl Keys {
    /// Reads the configured keys.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn new(configs: &[KeyConfig]) -> Result<Self, ConfigError> {
        let mut keys: Vec<Key> = Vec::with_capacity(configs.len());
        for (number, config) in (1..).zip(configs) {
            let fault = |field: &str, problem: &str| {
                Err(ConfigError::new(format!("key[{number}] '{}'.{field}", config.entity), problem))
            };
            if config.entity.is_empty() {
                return fault("entity", "empty: the address or name of the authorizing entity");
            }
            if keys.iter().any(|key| key.entity == config.entity && key.id == config.id) {
                return fault("id", "the entity has two keys of this id");
            }
            let Some(secret) = from_hex(&config.secret).filter(|s| (16..=128).contains(&s.len())) else {
                return fault("secret", "32 to 256 hexadecimal digits are wanted");
            };
            if !matches!(config.length, 16 | 32) {
                return fault("length", "16 or 32 octets");
            }
            if config.until.is_some_and(|until| until <= config.from) {
                return fault("until", "not after from");
            }
            keys.push(Key {
                entity: config.entity.clone(),
                id: config.id,
                key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
                sha1: hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &secret),
                length: usize::from(config.length),
                from: config.from,
                until: config.until.unwrap_or(u64::MAX),
            });
        }
        Ok(Self { keys })
    }

    /// The verified token among the values of SESSION_AUTH objects, if any: one signed with a key that this node has. An object
    /// with another signature has no effect here (RFC 5981 §3.1).
    pub(crate) fn token<'a>(
        &self,
        objects: impl Iterator<Item = &'a [u8]>,
        now: u64,
    ) -> Result<Option<Arc<Token>>, TokenError> {
        let mut error = None;
        for signed in objects.filter_map(object::read) {
            match self.verify(&signed.token.entity, signed.key, signed.octets, signed.tag, now) {
                Ok(()) => return Ok(Some(Arc::new(signed.token))),
                // It may be signed for another node, and another object for this one.
                Err(TokenError::UnknownKey) => {}
                Err(other) => error = Some(other),
            }
        }
        error.map_or(Ok(None), Err)
    }

    /// Verifies the authentication data of a token (RFC 5981 §6.2.3): `signed` are the octets of its attributes up to
    /// AUTHENTICATION_DATA, `tag` the octets after the Key-ID there, `now` the seconds since 1970. Whether the token
    /// is valid now and covers the request is checked with each request.
    ///
    /// # Errors
    /// The reason of the authentication failure.
    pub fn verify(
        &self,
        entity: &str,
        key_id: u32,
        signed: &[u8],
        tag: &[u8],
        now: u64,
    ) -> Result<(), TokenError> {
        let key = self.keys.iter().find(|key| key.id == key_id && key.entity == entity);
        let key = key.ok_or(TokenError::UnknownKey)?;
        if !(key.from..key.until).contains(&now) {
            return Err(TokenError::KeyExpired);
        }
        if tag.len() != key.length {
            return Err(TokenError::Length);
        }
        if matches(&key.key, signed, tag) { Ok(()) } else { Err(TokenError::Signature) }
    }

    /// Verifies the HMAC `tag` of a token of an entity over `signed`, by any of its keys that is valid at `now`, seconds since
    /// 1970.
    ///
    /// # Errors
    /// The reason of the authentication failure; [`TokenError::UnknownKey`]: this node has no key of the entity.
    pub fn verify_mac(
        &self,
        entity: &str,
        mac: Mac,
        signed: &[u8],
        tag: &[u8],
        now: u64,
    ) -> Result<(), TokenError> {
        if tag.len() < SHORTEST_TAG {
            return Err(TokenError::Length);
        }
        let mut error = TokenError::UnknownKey;
        for key in self.keys.iter().filter(|key| key.entity == entity) {
            let octets = match mac {
                Mac::Sha256 => &key.key,
                Mac::Sha1 => &key.sha1,
            };
            if !(key.from..key.until).contains(&now) {
                error = TokenError::KeyExpired;
            } else if matches(octets, signed, tag) {
                return Ok(());
            } else {
                error = TokenError::Signature;
            }
        }
        Err(error)
    }
}

/// Whether `tag` is the beginning of the HMAC of `signed`.
fn matches(key: &hmac::Key, signed: &[u8], tag: &[u8]) -> bool {
    let right = hmac::sign(key, signed);
    // The library has no check for the truncated form. This comparison takes the same time for every octet that differs.
    let difference = right.as_ref().iter().zip(tag).fold(0, |sum, (a, b)| sum | (a ^ b));
    core::hint::black_box(difference) == 0 && tag.len() <= right.as_ref().len()
}

impl Token {
    /// The part of a request for these packets that the token does not cover, at `wall_us` microseconds since 1970.
    pub(crate) fn uncovered(
        &self,
        mut filters: impl Iterator<Item = FlowFilter>,
        wall_us: u64,
    ) -> Option<&'static str> {
        if self.start_us.is_some_and(|start| wall_us < start) {
            return Some("its time has not come");
        }
        if self.end_us.is_some_and(|end| wall_us >= end) {
            return Some("its time is over");
        }
        let within =
            |nets: &[Prefix], one: &Prefix| nets.is_empty() || nets.iter().any(|net| Net(*net).covers(one));
        let ports = |lists: &[PortList], protocol: Option<u8>, port: Option<u16>| {
            lists.is_empty()
                || lists.iter().any(|list| {
                    protocol == Some(list.protocol)
                        && port.is_some_and(|port| (list.ports.from..=list.ports.to).contains(&port))
                })
        };
        filters.find_map(|filter| {
            if !within(&self.sources, &filter.src) {
                Some("the flow's source is not among those that it names")
            } else if !within(&self.destinations, &filter.dst) {
                Some("the flow's destination is not among those that it names")
            } else if !ports(&self.source_ports, filter.protocol, filter.src_port) {
                Some("the flow's source port is not among those that it names")
            } else if !ports(&self.destination_ports, filter.protocol, filter.dst_port) {
                Some("the flow's destination port is not among those that it names")
            } else {
                None
            }
        })
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |octet, digit| octet << 4 | digit)).collect())
}

/// Seconds since 1970 at `now`, for [`Keys::verify`].
#[must_use]
pub const fn wall_seconds(wall_clock_us: u64, now: Time) -> u64 {
    wall_clock_us.saturating_add(now.as_micros()) / 1_000_000
}
