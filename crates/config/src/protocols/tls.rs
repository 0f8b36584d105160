//! `[gist.tls]` and `[casp.tls]`: keys and certificates.

use std::path::{Path, PathBuf};
use std::time::Duration;

use signalbox_node::transport::Versions;
use signalbox_node::{ChannelConfig, Credentials, Tls};

use crate::keys::Keys;
use crate::kind::{choice, duration, flag, list, number, path};
use crate::secret;

/// Longest file of a private key.
const LONGEST_KEY: u64 = 1 << 20;

/// Such a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TlsSection {
    key: Option<PathBuf>,
    certificate: Option<PathBuf>,
    anchors: Option<PathBuf>,
    peer_keys: Option<PathBuf>,
    revocations: Option<PathBuf>,
    revocation_strict: bool,
    require_client: bool,
    versions: Vec<Version>,
    handshake: Duration,
    max_handshakes: u32,
    /// What is in the files, once they are read.
    tls: Option<Tls>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V12,
    V13,
}

impl Default for TlsSection {
    fn default() -> Self {
        let ChannelConfig { handshake, max_handshakes, .. } = ChannelConfig::default();
        Self {
            key: None,
            certificate: None,
            anchors: None,
            peer_keys: None,
            revocations: None,
            revocation_strict: false,
            require_client: true,
            versions: vec![Version::V12, Version::V13],
            handshake,
            max_handshakes,
            tls: None,
        }
    }
}

impl TlsSection {
    pub(super) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.option(
            "key_file",
            &mut self.key,
            path("key.pem"),
            "none",
            "Private key of this node: ECDSA P-256 or P-384, Ed25519 or RSA. Others must not be able to read or write \
             the file (`chmod 600`).",
        );
        keys.option(
            "certificate_file",
            &mut self.certificate,
            path("certificate.pem"),
            "none",
            "Certificate of this node, then the intermediates. An extended key usage must permit client and server.",
        );
        keys.option(
            "anchors_file",
            &mut self.anchors,
            path("anchors.pem"),
            "none",
            "Certificates of the authorities that sign peers' certificates. Use it with `certificate_file`.",
        );
        keys.option(
            "peer_keys_file",
            &mut self.peer_keys,
            path("peers.pem"),
            "none",
            "Public keys of all peers, instead of `certificate_file` and `anchors_file`: raw public keys [RFC 7250], TLS \
             1.3 only.",
        );
        keys.option(
            "revocations_file",
            &mut self.revocations,
            path("revoked.pem"),
            "none",
            "Lists of certificates that the authorities have revoked (`X509 CRL`) [RFC 5280]. A peer with such a certificate, \
             or with one that such an authority has signed, is refused. Use it with `anchors_file`.",
        );
        keys.key(
            "revocations_required",
            &mut self.revocation_strict,
            flag(),
            "Whether a peer is refused if an authority of its chain has no list in `revocations_file`, or one whose next \
             update is overdue.",
        );
        keys.key(
            "require_client",
            &mut self.require_client,
            flag(),
            "Whether peers that connect must authenticate. They are asked for a certificate in any case.",
        );
        keys.key(
            "versions",
            &mut self.versions,
            list(choice(&[("1.2", Version::V12), ("1.3", Version::V13)])),
            "Versions to negotiate; one at least.",
        );
        keys.key(
            "handshake_timeout",
            &mut self.handshake,
            duration(Duration::from_secs(1)..=Duration::MAX),
            "How long a handshake may take.",
        );
        keys.key(
            "max_handshakes",
            &mut self.max_handshakes,
            number(1..=u32::MAX),
            "Handshakes with peers that connected, at one time. More are reset.",
        );
        keys.check(
            !self.versions.is_empty(),
            &["versions"],
            "empty: write one version at least, such as [\"1.3\"]",
        );
        let fits = self.peer_keys.is_none() || self.versions.contains(&Version::V13);
        keys.check(fits, &["versions"], "raw public keys need TLS 1.3: write versions = [\"1.3\"]");
        let fits = self.revocations.is_none() || self.anchors.is_some();
        keys.check(fits, &["revocations_file"], "concerns certificates: write anchors_file, or remove it");
        let fits = !self.revocation_strict || self.revocations.is_some();
        keys.check(fits, &["revocations_required"], "needs lists: write revocations_file");
        let any = keys.gives_any(&["key_file", "certificate_file", "anchors_file", "peer_keys_file"]);
        let message =
            "incomplete: write key_file, and either certificate_file and anchors_file, or peer_keys_file";
        keys.check(!any || self.is_complete(), &["key_file", "certificate_file", "peer_keys_file"], message);
    }

    /// Whether it names the files of one kind of credentials.
    pub(super) const fn is_complete(&self) -> bool {
        self.key.is_some()
            && matches!(
                (&self.certificate, &self.anchors, &self.peer_keys),
                (Some(_), Some(_), None) | (None, None, Some(_))
            )
    }

    /// The files that it names.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let all = [&self.key, &self.certificate, &self.anchors, &self.peer_keys, &self.revocations];
        all.into_iter().flatten().cloned().collect()
    }

    /// Reads the files that `table` names; their paths are relative to `directory`.
    pub(super) fn read(&mut self, table: &str, directory: &Path, keys: &mut Keys<'_>) {
        let Some(key) = &self.key else { return };
        let mut read = |name: &str, path: &Path, secret: bool| {
            let path = directory.join(path);
            let text = if secret {
                let octets = secret::read(&path, LONGEST_KEY);
                octets.and_then(|octets| String::from_utf8(octets).map_err(|_| "not a PEM file".to_owned()))
            } else {
                let why = "give the path of a PEM file that signalboxd may read";
                std::fs::read_to_string(&path)
                    .map_err(|error| format!("cannot read {}: {error}; {why}", path.display()))
            };
            text.map_err(|message| keys.fault(&[&format!("{table}.{name}")], &message)).ok()
        };
        let key = read("key_file", key, true);
        let credentials = match (&self.certificate, &self.anchors, &self.peer_keys) {
            (None, None, Some(peers)) => {
                let peers = read("peer_keys_file", peers, false);
                key.zip(peers).map(|(key, peers)| Credentials::RawKeys { key, peers })
            }
            (Some(chain), Some(anchors), None) => {
                let chain = read("certificate_file", chain, false);
                let anchors = read("anchors_file", anchors, false);
                let all = key.zip(chain).zip(anchors);
                all.map(|((key, chain), anchors)| Credentials::Certificates { chain, key, anchors })
            }
            _ => None,
        };
        let lists = self.revocations.as_ref().map(|path| read("revocations_file", path, false));
        let (Some(credentials), None | Some(Some(_))) = (credentials, &lists) else { return };
        let versions = match (self.versions.contains(&Version::V12), self.versions.contains(&Version::V13)) {
            (true, false) => Versions::Only12,
            (false, true) => Versions::Only13,
            _ => Versions::Both,
        };
        let tls = Tls {
            require_client: self.require_client,
            versions,
            revocation_lists: lists.flatten().unwrap_or_default(),
            revocation_strict: self.revocation_strict,
            ..Tls::new(credentials)
        };
        // Only to check them: the node reads them again, with its own clock.
        match tls.load(0) {
            Ok(_) => self.tls = Some(tls),
            Err(error) => keys.fault(&[&format!("{table}.key_file")], &error.to_string()),
        }
    }

    /// The settings of `new` with which a running node sets up associations. Those of handshakes in general stay.
    pub(super) fn reloaded(&self, new: &Self) -> Self {
        // Without its port there is no TLS, and without keys no port.
        if !self.is_complete() || !new.is_complete() {
            return self.clone();
        }
        Self {
            handshake: self.handshake,
            max_handshakes: self.max_handshakes,
            // The check of a text reads no files.
            tls: new.tls.clone().or_else(|| self.tls.clone()),
            ..new.clone()
        }
    }

    /// What is in the files.
    pub(super) const fn content(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Settings of the channels.
    pub(super) fn channels(&self) -> ChannelConfig {
        ChannelConfig {
            tls: self.tls.clone(),
            handshake: self.handshake,
            max_handshakes: self.max_handshakes,
            ..ChannelConfig::default()
        }
    }
}
