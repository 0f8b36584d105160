//! The authorised peer database (RFC 5971 §4.4.2): the identities that may be peers, and for which flows.
//!
//! It is an ordered list; the first entry whose identity and scope match decides. The engine calls [`Apd::decide`] when
//! an association is authenticated, again for each further flow, and for all associations whenever the database has changed.
//! After a `Deny` the association is closed without another GIST message, and its routing state is deleted.

use core::fmt;
use core::net::IpAddr;

use signalbox_core::Mri;
use signalbox_core::node::Prefix;
use signalbox_core::security::{Fingerprint, Identity};

/// An identity and the namespace that it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Name {
    /// The wildcard: every peer, authenticated or not.
    Any,
    /// Every peer that has proved any identity.
    Authenticated,
    /// A DNS name: it is compared with each dNSName of the certificate or, if there is no dNSName, with its Common Name
    /// (RFC 5971 §5.7.3.1).
    Dns(DnsName),
    /// The SHA-256 fingerprint of the peer's public key, in a certificate or raw.
    Key(#[cfg_attr(feature = "serde", serde(with = "text"))] Fingerprint),
    /// An iPAddress of the certificate.
    Address(IpAddr),
}

impl Name {
    /// Whether `peer` has this name; `None` is a peer without authentication.
    #[must_use]
    pub fn matches(&self, peer: Option<&Identity>) -> bool {
        match (self, peer) {
            (Self::Any, _) | (Self::Authenticated, Some(_)) => true,
            (Self::Dns(name), Some(peer)) => peer.dns_names().any(|presented| name.matches(presented)),
            (Self::Key(key), Some(peer)) => peer.key == *key,
            (Self::Address(address), Some(peer)) => peer.addresses.contains(address),
            (_, None) => false,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Authenticated => f.write_str("authenticated"),
            Self::Dns(name) => write!(f, "dns {name}"),
            Self::Key(key) => write!(f, "key {key}"),
            Self::Address(address) => write!(f, "address {address}"),
        }
    }
}

/// A domain name in lower case without a final dot; its left-most label may be `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct DnsName(String);

/// The reason why a text is not a domain name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a domain name: {0:?}; labels of letters, digits, - and _, the first one may be *")]
pub struct BadDnsName(String);

impl core::str::FromStr for DnsName {
    type Err = BadDnsName;

    fn from_str(text: &str) -> Result<Self, BadDnsName> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let rest = name.strip_prefix("*.").unwrap_or(name);
        if name.len() > 253 || !rest.split('.').all(label) {
            return Err(BadDnsName(text.to_owned()));
        }
        Ok(Self(name.to_ascii_lowercase()))
    }
}

impl TryFrom<String> for DnsName {
    type Error = BadDnsName;

    fn try_from(text: String) -> Result<Self, BadDnsName> {
        text.parse()
    }
}

impl From<DnsName> for String {
    fn from(name: DnsName) -> Self {
        name.0
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl DnsName {
    /// Compares with a name of a certificate (RFC 5971 §5.7.3.1): case is ignored, and `*` as left-most label on either
    /// side matches one label.
    #[must_use]
    pub fn matches(&self, presented: &str) -> bool {
        let presented = presented.strip_suffix('.').unwrap_or(presented);
        let (Some((ours, our_rest)), Some((theirs, their_rest))) = (cut(&self.0), cut(presented)) else {
            return self.0.eq_ignore_ascii_case(presented);
        };
        // `*` does not match an empty label, nor one with characters that a name cannot have.
        let wild = (ours == "*" && !theirs.is_empty()) || theirs == "*";
        our_rest.eq_ignore_ascii_case(their_rest) && (wild || ours.eq_ignore_ascii_case(theirs))
    }
}

fn cut(name: &str) -> Option<(&str, &str)> {
    name.split_once('.')
}

/// Conditions of an entry. A field that is `None` or empty is no condition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Scope {
    /// Peer Address Ownership: one of these must be an address at which the peer for the flow is expected.
    pub peers: Vec<Prefix>,
    /// End-System Subnet: the flow's source lies within.
    pub source: Option<Prefix>,
    /// End-System Subnet: the flow's destination lies within.
    pub destination: Option<Prefix>,
}

impl Scope {
    /// Everywhere.
    pub const ANY: Self = Self { peers: Vec::new(), source: None, destination: None };

    /// Whether this entry applies to `wanted`.
    #[must_use]
    pub fn covers(&self, wanted: &Wanted<'_>) -> bool {
        let owned = |peer: &Prefix| wanted.expected_peers.iter().any(|address| peer.contains(*address));
        let ends = Ends::of(wanted.mri);
        (self.peers.is_empty() || self.peers.iter().any(owned))
            && self.source.is_none_or(|subnet| within(ends.source, subnet))
            && self.destination.is_none_or(|subnet| within(ends.destination, subnet))
    }
}

/// The two ends of a flow, as ranges of addresses.
struct Ends {
    source: Prefix,
    destination: Prefix,
}

impl Ends {
    fn of(mri: &Mri) -> Self {
        match mri {
            Mri::PathCoupled(flow) => Self {
                source: Prefix { addr: flow.src, len: flow.src_prefix },
                destination: Prefix { addr: flow.dst, len: flow.dst_prefix },
            },
            Mri::LooseEnd(flow) => {
                Self { source: Prefix::host(flow.src), destination: Prefix::host(flow.dst) }
            }
        }
    }
}

/// Whether all addresses of `inner` are in `outer`: a flow that could also end elsewhere is not within.
fn within(inner: Prefix, outer: Prefix) -> bool {
    inner.len >= outer.len && outer.contains(inner.addr)
}

/// The flow for which a peer is authorised.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The flow.
    pub mri: &'a Mri,
    /// Addresses at which the peer for this flow is expected, from the routing table of this node, never from the peer. If
    /// it is empty, no entry with Peer Address Ownership applies.
    pub expected_peers: &'a [IpAddr],
}

/// Whether a peer is authorised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Verdict {
    /// The association can be used as normal.
    Allow,
    /// It is torn down, its routing state deleted.
    Deny,
}

/// A line of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Entry {
    /// Name of the peer.
    pub name: Name,
    /// When.
    pub scope: Scope,
    /// The decision.
    pub verdict: Verdict,
}

/// Identifier of an entry, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EntryId(pub u32);

/// The answer of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Whether the peer is authorised.
    pub verdict: Verdict,
    /// The entry that matched; `None` if no entry matched and the default decided.
    pub by: Option<EntryId>,
}

/// Why the database was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApdError {
    /// The limit of entries is reached.
    #[error("[apd-full] the authorised peer database is full ({0} entries); delete some or raise the limit")]
    Full(usize),
    /// No entry has this id.
    #[error("[apd-unknown] no entry {0:?} in the authorised peer database")]
    Unknown(EntryId),
}

/// The database; see the module.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Apd {
    entries: Vec<(EntryId, Entry)>,
    next: u32,
    limit: usize,
    otherwise: Verdict,
}

impl Apd {
    /// An empty database for at most `limit` entries. `otherwise` is the decision if no entry matches. `Deny` is the same as
    /// the wildcard deny entry of RFC 5971 §4.4.2.
    #[must_use]
    pub const fn new(limit: usize, otherwise: Verdict) -> Self {
        Self { entries: Vec::new(), next: 0, limit, otherwise }
    }

    /// First match decides.
    #[must_use]
    pub fn decide(&self, peer: Option<&Identity>, wanted: &Wanted<'_>) -> Decision {
        for (id, entry) in self.entries.iter().filter(|(_, entry)| entry.name.matches(peer)) {
            if entry.scope.covers(wanted) {
                return Decision { verdict: entry.verdict, by: Some(*id) };
            }
        }
        Decision { verdict: self.otherwise, by: None }
    }

    /// Adds an entry before the one that is now at `position` (0 is the first), or at the end if there is none.
    ///
    /// # Errors
    /// [`ApdError::Full`].
    pub fn insert(&mut self, position: usize, entry: Entry) -> Result<EntryId, ApdError> {
        if self.entries.len() >= self.limit {
            return Err(ApdError::Full(self.limit));
        }
        let id = EntryId(self.next);
        // 2^32 administrative changes are not reached.
        self.next = self.next.wrapping_add(1);
        self.entries.insert(position.min(self.entries.len()), (id, entry));
        Ok(id)
    }

    /// Adds an entry at the end.
    ///
    /// # Errors
    /// [`ApdError::Full`].
    pub fn push(&mut self, entry: Entry) -> Result<EntryId, ApdError> {
        self.insert(self.entries.len(), entry)
    }

    /// Changes an entry in its place.
    ///
    /// # Errors
    /// [`ApdError::Unknown`].
    pub fn modify(&mut self, id: EntryId, entry: Entry) -> Result<(), ApdError> {
        let (_, old) = self.entries.iter_mut().find(|(i, _)| *i == id).ok_or(ApdError::Unknown(id))?;
        *old = entry;
        Ok(())
    }

    /// Removes and returns an entry.
    ///
    /// # Errors
    /// [`ApdError::Unknown`].
    pub fn remove(&mut self, id: EntryId) -> Result<Entry, ApdError> {
        let at = self.entries.iter().position(|(i, _)| *i == id).ok_or(ApdError::Unknown(id))?;
        Ok(self.entries.remove(at).1)
    }

    /// Entries in their order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (EntryId, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }
}

/// Fingerprints as text.
#[cfg(feature = "serde")]
mod text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use signalbox_core::security::Fingerprint;

    pub(super) fn serialize<S: Serializer>(print: &Fingerprint, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(print)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Fingerprint, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
