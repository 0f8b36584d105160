//! Keys by which messages are signed and verified. The secrets are in files of their own.

use std::collections::BTreeSet;
use std::path::Path;

use signalbox_node::rsvp::IntegrityKey;
use signalbox_node::rsvp::neighbor::KeyUse;

use crate::keys::Keys;
use crate::secret;
use crate::secrets::{KeyEntry, Secrets, Use};

/// A key of `[[keys]]` for RSVP.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RsvpKey {
    /// Its path in the file: `keys[1]`.
    pub(super) at: String,
    /// The interface where it is used; `None`: all interfaces.
    pub(super) interface: Option<String>,
    entry: KeyEntry,
}

impl RsvpKey {
    /// Whether messages may be signed with it.
    pub(super) fn signs(&self) -> bool {
        self.entry.direction != KeyUse::Receive
    }

    /// Whether messages may be verified with it.
    pub(super) fn verifies(&self) -> bool {
        self.entry.direction != KeyUse::Send
    }
}

/// The keys for RSVP.
pub(super) fn of(secrets: &Secrets) -> Vec<RsvpKey> {
    let ours = secrets.of(Use::Rsvp);
    ours.map(|(at, entry)| RsvpKey { at, interface: entry.interface.clone(), entry: entry.clone() }).collect()
}

/// All keys, with what is in their files; paths are relative to `directory`.
pub(super) fn read(keys: &[RsvpKey], directory: &Path, report: &mut Keys<'_>) -> Vec<IntegrityKey> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for RsvpKey { at, entry, .. } in keys {
        let (Some(id), Some(file)) = (entry.id, &entry.secret_file) else { continue };
        if id >= 1 << 48 {
            report.fault(&[&format!("{at}.id")], "out of range: an identifier of RSVP has 48 bits");
        }
        let place = |signs: bool| (id, entry.interface.clone(), entry.neighbor, signs);
        let signs = entry.direction == KeyUse::Receive || seen.insert(place(true));
        let verifies = entry.direction == KeyUse::Send || seen.insert(place(false));
        if !(signs && verifies) {
            let message = "there is another key with it for the same direction, interface and neighbor";
            report.fault(&[&format!("{at}.id")], message);
        }
        let Some(secret) = secret::shared(&directory.join(file), &format!("{at}.secret_file"), report) else {
            continue;
        };
        all.push(IntegrityKey {
            id,
            algorithm: entry.algorithm,
            secret,
            usage: entry.direction,
            interface: entry.interface.clone(),
            neighbor: entry.neighbor,
            from: entry.valid_from.unwrap_or(0),
            until: entry.valid_until,
        });
    }
    all
}
