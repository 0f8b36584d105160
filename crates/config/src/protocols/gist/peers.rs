//! `[[gist.peer_rules]]`: the authorised peer database.

use signalbox_core::node::Prefix;
use signalbox_node::gist::apd::{Apd, Entry, Name, Scope, Verdict};
use signalbox_node::resources::units::Net;
use signalbox_units::Identity;

use crate::keys::Keys;
use crate::kind::{choice, list, network, peer};

pub(super) const MEANING: &str = "The authorised peer database [4.4.2]: any number of rules in order. The first rule that matches the peer and the \
     flow decides. An authenticated peer that no rule matches is denied. A peer over an association without security is \
     denied only by a rule for `\"any\"`.";

/// `[[gist.peer_rules]]`
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct PeerRule {
    peer: Option<Identity>,
    action: Option<Verdict>,
    at: Vec<Net>,
    source: Option<Net>,
    destination: Option<Net>,
}

impl PeerRule {
    pub(super) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.needed(
            "peer",
            &mut self.peer,
            peer(),
            "`\"any\"`: every peer; `\"authenticated\"`: every peer that proved an identity; `\"dns:NAME\"`: a dNSName \
             of the certificate or, without one, its Common Name, where the left-most label may be `*`; \
             `\"address:ADDRESS\"`: an iPAddress of the certificate; `\"key:FINGERPRINT\"`: SHA-256 of the public key \
             (SubjectPublicKeyInfo) in hexadecimal.",
        );
        keys.needed(
            "action",
            &mut self.action,
            choice(&[("allow", Verdict::Allow), ("deny", Verdict::Deny)]),
            "The decision.",
        );
        keys.key(
            "at",
            &mut self.at,
            list(network()),
            "Prefixes of addresses at which the peer for the flow should be; empty: anywhere.",
        );
        let meaning = "Prefix within which the flow's source lies.";
        keys.option("source", &mut self.source, network(), "any", meaning);
        let meaning = "Prefix within which the flow's destination lies.";
        keys.option("destination", &mut self.destination, network(), "any", meaning);
    }

    fn entry(&self) -> Option<Entry> {
        let prefix = |net: &Net| -> Prefix { net.0 };
        let scope = Scope {
            peers: self.at.iter().map(prefix).collect(),
            source: self.source.as_ref().map(prefix),
            destination: self.destination.as_ref().map(prefix),
        };
        let name = match self.peer.as_ref()? {
            Identity::Any => Name::Any,
            Identity::Authenticated => Name::Authenticated,
            // Every name that an identity may have is one of the database.
            Identity::Dns(name) => Name::Dns(name.parse().ok()?),
            Identity::Address(address) => Name::Address(*address),
            Identity::Key(print) => Name::Key(*print),
        };
        Some(Entry { name, scope, verdict: self.action? })
    }
}

/// The database of these rules.
pub(super) fn database(rules: &[PeerRule]) -> Apd {
    let mut database = Apd::new(rules.len(), Verdict::Deny);
    for entry in rules.iter().filter_map(PeerRule::entry) {
        // It was made for exactly these.
        let _ = database.push(entry);
    }
    database
}
