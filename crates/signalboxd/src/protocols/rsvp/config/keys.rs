//! `[[rsvp.key]]`: keys by which messages are signed and verified. The secrets are in files of their own.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use signalbox_node::rsvp::neighbour::{Algorithm, KeyUse};
use signalbox_node::rsvp::{IntegrityKey, Secret};

use crate::config::error::Problem;
use crate::config::secret;

/// Octets of the longest secret and an end of line.
const LONGEST: u64 = 1024 + 2;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeySection {
    /// Key Identifier.
    id: u64,
    /// File that holds the secret.
    file: PathBuf,
    #[serde(default)]
    algorithm: AlgorithmText,
    #[serde(default, rename = "use")]
    usage: UseText,
    /// The interface where it is used; `None`: all interfaces.
    pub(super) interface: Option<String>,
    /// The neighbour that it is used with; `None`: all neighbours.
    neighbour: Option<IpAddr>,
    /// Start of its use, in seconds since 1970.
    #[serde(default)]
    from: u64,
    until: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
enum AlgorithmText {
    #[default]
    #[serde(rename = "hmac-sha-256")]
    HmacSha256,
    #[serde(rename = "hmac-md5")]
    HmacMd5,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum UseText {
    #[default]
    Both,
    Send,
    Receive,
}

impl KeySection {
    /// Whether messages may be signed with it.
    pub(super) fn signs(&self) -> bool {
        self.usage != UseText::Receive
    }

    /// Whether messages may be verified with it.
    pub(super) fn verifies(&self) -> bool {
        self.usage != UseText::Send
    }

    fn read(&self, directory: &Path) -> Result<IntegrityKey, String> {
        let content = secret::read(&directory.join(&self.file), LONGEST)?;
        Ok(IntegrityKey {
            id: self.id,
            algorithm: match self.algorithm {
                AlgorithmText::HmacSha256 => Algorithm::HmacSha256,
                AlgorithmText::HmacMd5 => Algorithm::HmacMd5,
            },
            secret: Secret::from_file(&content),
            usage: match self.usage {
                UseText::Both => KeyUse::Both,
                UseText::Send => KeyUse::Send,
                UseText::Receive => KeyUse::Receive,
            },
            interface: self.interface.clone(),
            neighbour: self.neighbour,
            from: self.from,
            until: self.until,
        })
    }
}

/// All keys, with what is in their files; paths are relative to `directory`.
pub(super) fn read(keys: &[KeySection], directory: &Path) -> Result<Vec<IntegrityKey>, Problem> {
    let numbered = (1..).zip(keys);
    let read = numbered.map(|(number, key): (usize, &KeySection)| {
        key.read(directory).map_err(|message| Problem { key: format!("rsvp.key[{number}].file"), message })
    });
    read.collect()
}

/// The key of the file for a setting of an integrity key, and the problem, from the engine's `at: key: problem`.
pub(super) fn ours(at: &str, problem: &str) -> (String, String) {
    let number = at.parse::<usize>().map_or(0, |at| at + 1);
    let (field, what) = problem.split_once(": ").unwrap_or(("id", problem));
    let field = if field == "secret" { "file" } else { field };
    (format!("key[{number}].{field}"), what.to_owned())
}
