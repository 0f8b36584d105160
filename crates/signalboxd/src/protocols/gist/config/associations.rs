//! `[gist.associations]`: connection mode, in operators' terms.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use signalbox_core::node::Prefix;
use signalbox_linux::stream::StreamConfig;
use signalbox_node::gist::apd::{Apd, Entry, Name, Scope, Verdict};
use signalbox_node::gist::{self, Transport};
use signalbox_node::{ChannelConfig, Credentials, Tls, transport::Versions};

use crate::config::error::Problem;
use crate::config::{secret, units};

/// Longest file of a private key.
const LONGEST_KEY: u64 = 1 << 20;

/// `[gist.associations]`. Without a port there are none: datagrams carry everything.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AssociationsConfig {
    /// Where peers connect by TCP alone.
    tcp_port: Option<u16>,
    /// Where peers connect by TLS over TCP.
    tls_port: Option<u16>,
    /// Where peers connect by SCTP.
    pub(crate) sctp_port: Option<u16>,
    /// Order in which stacks are offered and chosen.
    preference: Vec<Stack>,
    /// Whether associations are used for all messages.
    always: bool,
    /// MA-Hold-Time.
    #[serde(deserialize_with = "units::duration")]
    hold_time: Duration,
    /// How long setting one up may take.
    #[serde(deserialize_with = "units::duration")]
    setup_timeout: Duration,
    /// How long after one that failed at once the next is opened.
    #[serde(deserialize_with = "units::duration")]
    retry_min: Duration,
    /// The longest such wait.
    #[serde(deserialize_with = "units::duration")]
    retry_max: Duration,
    /// How long an unused one is kept.
    #[serde(deserialize_with = "units::duration")]
    idle_after: Duration,
    /// Whether silent peers are probed.
    probe: bool,
    /// Most associations.
    max: u32,
    /// Associations that peers may open per second; 0: no limit.
    accept_rate: u32,
    /// Octets that may wait for one association.
    max_queued: usize,
    /// Octets that may wait for all of them.
    max_queued_total: usize,
    /// Octets of incomplete and waiting messages of all peers.
    max_buffered: usize,
    /// Octets that a channel may hold before messages wait in their association.
    max_unsent: usize,
    /// How long a TCP connection may take to come up.
    #[serde(deserialize_with = "units::duration")]
    connect_timeout: Duration,
    /// How long what was sent over TCP may stay unacknowledged.
    #[serde(deserialize_with = "units::duration")]
    user_timeout: Duration,
    /// How long a TCP connection that we close may take.
    #[serde(deserialize_with = "units::duration")]
    close_timeout: Duration,
    /// TCP connections of peers, at one time.
    accept_limit: u32,
    /// TCP connections from one address, at one time.
    accept_limit_per_source: u32,
    /// Keys and certificates.
    tls: Option<TlsConfig>,
    /// The authorised peer database; the first entry that fits decides.
    authorised: Vec<AuthorisedConfig>,
}

/// A protocol stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stack {
    Tls,
    Sctp,
    Tcp,
}

/// `[gist.associations.tls]`: paths of PEM files; certificates, or raw keys with `peer_keys`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsConfig {
    /// Our private key.
    key: PathBuf,
    /// Our certificate, then the intermediates.
    certificate: Option<PathBuf>,
    /// Whose signatures on peers' certificates are trusted.
    anchors: Option<PathBuf>,
    /// Public keys of all peers.
    peer_keys: Option<PathBuf>,
    /// Whether peers that connect must authenticate themselves.
    #[serde(default = "yes")]
    require_client: bool,
    /// Versions to negotiate.
    #[serde(default)]
    versions: VersionsText,
    /// How long a handshake may take.
    #[serde(default = "handshake_timeout", deserialize_with = "units::duration")]
    handshake_timeout: Duration,
    /// Handshakes with peers that connected, at one time.
    #[serde(default = "max_handshakes")]
    max_handshakes: u32,
}

/// Versions of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
enum VersionsText {
    #[default]
    #[serde(rename = "1.2 and 1.3")]
    Both,
    #[serde(rename = "1.2")]
    Only12,
    #[serde(rename = "1.3")]
    Only13,
}

const fn yes() -> bool {
    true
}

fn handshake_timeout() -> Duration {
    ChannelConfig::default().handshake
}

fn max_handshakes() -> u32 {
    ChannelConfig::default().max_handshakes
}

/// `[[gist.associations.authorised]]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthorisedConfig {
    /// The peers that it is about.
    #[serde(deserialize_with = "units::peer_name")]
    name: Name,
    /// Addresses at which the peer should be; empty: anywhere.
    #[serde(default)]
    peers: Vec<units::PrefixText>,
    /// Where the flow's source lies.
    source: Option<units::PrefixText>,
    /// Where the flow's destination lies.
    destination: Option<units::PrefixText>,
    /// What then.
    verdict: VerdictText,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum VerdictText {
    Allow,
    Deny,
}

impl Default for AssociationsConfig {
    /// The engine's defaults.
    fn default() -> Self {
        let engine = gist::AssociationConfig::default();
        let streams = StreamConfig::default();
        let stack = |transport: &Transport| match transport {
            Transport::TlsTcp => Stack::Tls,
            Transport::Sctp => Stack::Sctp,
            Transport::Tcp => Stack::Tcp,
        };
        Self {
            tcp_port: engine.tcp_port,
            tls_port: engine.tls_port,
            sctp_port: engine.sctp_port,
            preference: engine.preference.iter().map(stack).collect(),
            always: engine.always,
            hold_time: engine.hold_time,
            setup_timeout: engine.setup_timeout,
            retry_min: engine.retry_min,
            retry_max: engine.retry_max,
            idle_after: engine.idle_after,
            probe: engine.probe,
            max: engine.max,
            accept_rate: engine.accept_rate,
            max_queued: engine.max_queued,
            max_queued_total: engine.max_queued_total,
            max_buffered: engine.max_buffered,
            max_unsent: engine.max_unsent,
            connect_timeout: streams.connect_timeout,
            user_timeout: streams.user_timeout,
            close_timeout: streams.close_timeout,
            accept_limit: streams.accept_limit,
            accept_limit_per_source: streams.accept_limit_per_source,
            tls: None,
            authorised: Vec::new(),
        }
    }
}

impl AssociationsConfig {
    /// The engine's configuration.
    pub(super) fn engine(&self) -> gist::AssociationConfig {
        let transport = |stack: &Stack| match stack {
            Stack::Tls => Transport::TlsTcp,
            Stack::Sctp => Transport::Sctp,
            Stack::Tcp => Transport::Tcp,
        };
        let mut authorised = Apd::new(self.authorised.len(), Verdict::Deny);
        for entry in &self.authorised {
            // It was made for exactly these.
            let _ = authorised.push(entry.engine());
        }
        gist::AssociationConfig {
            tcp_port: self.tcp_port,
            tls_port: self.tls_port,
            sctp_port: self.sctp_port,
            preference: self.preference.iter().map(transport).collect(),
            always: self.always,
            hold_time: self.hold_time,
            setup_timeout: self.setup_timeout,
            retry_min: self.retry_min,
            retry_max: self.retry_max,
            max_waits: gist::AssociationConfig::default().max_waits,
            idle_after: self.idle_after,
            probe: self.probe,
            max: self.max,
            accept_rate: self.accept_rate,
            max_queued: self.max_queued,
            max_queued_total: self.max_queued_total,
            max_buffered: self.max_buffered,
            max_unsent: self.max_unsent,
            authorised,
        }
    }

    /// What its TCP connections are made with.
    pub(crate) fn streams(&self, dscp: u8) -> StreamConfig {
        let defaults = StreamConfig::default();
        StreamConfig {
            connect_timeout: self.connect_timeout,
            user_timeout: self.user_timeout,
            close_timeout: self.close_timeout,
            tos: dscp << 2,
            accept_limit: self.accept_limit,
            accept_limit_per_source: self.accept_limit_per_source,
            // What the engine hands over before it waits, and one message more, always fit.
            unsent_limit: defaults.unsent_limit.max(self.max_unsent.saturating_mul(2)),
            ..defaults
        }
    }

    /// Settings of its channels; keys and certificates are those that were read.
    pub(crate) fn channels(&self, tls: Option<Tls>) -> ChannelConfig {
        let mut channels = ChannelConfig { tls, ..ChannelConfig::default() };
        if let Some(section) = &self.tls {
            channels.handshake = section.handshake_timeout;
            channels.max_handshakes = section.max_handshakes;
        }
        channels
    }

    /// What does not fit together; ranges are the engine's to check.
    pub(super) fn problem(&self) -> Option<Problem> {
        let problem = |key: &str, message: &str| {
            Some(Problem { key: format!("gist.associations.{key}"), message: message.to_owned() })
        };
        let second = Duration::from_secs(1);
        for (key, timeout) in [
            ("connect_timeout", self.connect_timeout),
            ("user_timeout", self.user_timeout),
            ("close_timeout", self.close_timeout),
        ] {
            if timeout < second || timeout > Duration::from_secs(86_400) {
                return problem(key, "out of range: 1 s to 1 day");
            }
        }
        if let Some(tls) = &self.tls {
            if tls.handshake_timeout < second {
                return problem("tls.handshake_timeout", "out of range: at least 1 s");
            }
            if tls.max_handshakes == 0 {
                return problem("tls.max_handshakes", "out of range: at least 1");
            }
            if tls.peer_keys.is_some() && tls.versions == VersionsText::Only12 {
                return problem("tls.versions", "raw public keys need TLS 1.3");
            }
        }
        let Some(tls) = &self.tls else {
            let message = "needs the section [gist.associations.tls] with keys and certificates";
            return self.tls_port.and_then(|_| problem("tls_port", message));
        };
        match (&tls.certificate, &tls.anchors, &tls.peer_keys) {
            (Some(_), Some(_), None) | (None, None, Some(_)) => None,
            (Some(_), None, None) => problem("tls", "certificate needs anchors, the trusted certificates"),
            _ => problem("tls", "either certificate and anchors, or peer_keys for raw public keys"),
        }
    }

    /// Keys and certificates from their files; paths are relative to `directory`.
    pub(super) fn read_tls(&self, directory: &Path) -> Result<Option<Tls>, Problem> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let read = |key: &str, file: &Option<PathBuf>| {
            let path = directory.join(file.as_deref().unwrap_or(Path::new("")));
            std::fs::read_to_string(&path).map_err(|error| Problem {
                key: format!("gist.associations.tls.{key}"),
                message: format!(
                    "cannot read {}: {error}; give the path of a PEM file that signalboxd may read",
                    path.display()
                ),
            })
        };
        let problem = |message| Problem { key: "gist.associations.tls.key".to_owned(), message };
        let key = secret::read(&directory.join(&tls.key), LONGEST_KEY).map_err(problem)?;
        let key = String::from_utf8(key).map_err(|_| problem("not a PEM file".to_owned()))?;
        let credentials = if tls.peer_keys.is_some() {
            Credentials::RawKeys { key, peers: read("peer_keys", &tls.peer_keys)? }
        } else {
            let chain = read("certificate", &tls.certificate)?;
            Credentials::Certificates { chain, key, anchors: read("anchors", &tls.anchors)? }
        };
        let versions = match tls.versions {
            VersionsText::Both => Versions::Both,
            VersionsText::Only12 => Versions::Only12,
            VersionsText::Only13 => Versions::Only13,
        };
        let tls = Tls { credentials, require_client: tls.require_client, versions };
        // Only to check them: the node reads them again, with its own clock.
        match tls.load(0) {
            Ok(_) => Ok(Some(tls)),
            Err(error) => {
                Err(Problem { key: "gist.associations.tls".to_owned(), message: error.to_string() })
            }
        }
    }
}

impl AuthorisedConfig {
    fn engine(&self) -> Entry {
        let prefix = |text: &units::PrefixText| -> Prefix { text.0 };
        Entry {
            name: self.name.clone(),
            scope: Scope {
                peers: self.peers.iter().map(prefix).collect(),
                source: self.source.as_ref().map(prefix),
                destination: self.destination.as_ref().map(prefix),
            },
            verdict: match self.verdict {
                VerdictText::Allow => Verdict::Allow,
                VerdictText::Deny => Verdict::Deny,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("node.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_section_there_are_datagrams_only() {
        let config = parse("").unwrap();
        assert_eq!(config.gist.engine().associations.usable().count(), 0);
        assert!(config.gist.associations.sctp_port.is_none() && config.gist.tls.is_none());
    }

    #[test]
    fn ports_and_order_reach_the_engine() {
        let config = parse(
            "[gist.associations]\ntcp_port = 270\nsctp_port = 271\npreference = [\"tcp\"]\nalways = true\n\
             hold_time = \"10s\"",
        )
        .unwrap();
        let engine = config.gist.engine().associations;
        let usable: Vec<_> = engine.usable().collect();
        assert_eq!(usable, [(Transport::Tcp, 270), (Transport::Sctp, 271)]);
        assert_eq!((engine.always, engine.hold_time), (true, Duration::from_secs(10)));
    }

    #[test]
    fn limits_and_timeouts_reach_who_keeps_them() {
        let config = parse(
            "[gist]\ndscp = 48\n[gist.associations]\nmax_queued = 4096\nmax_unsent = 8000000\naccept_limit = 7\n\
             connect_timeout = \"3s\"\n\
             [gist.associations.tls]\nkey = \"k\"\npeer_keys = \"p\"\nversions = \"1.3\"\nmax_handshakes = 9\n\
             handshake_timeout = \"4s\"",
        )
        .unwrap();
        let streams = config.io(Vec::new()).streams;
        assert_eq!((streams.tos, streams.accept_limit, streams.unsent_limit), (192, 7, 16_000_000));
        assert_eq!(streams.connect_timeout, Duration::from_secs(3));
        let engine = config.gist.engine();
        assert_eq!((engine.dscp, engine.associations.max_queued), (48, 4096));
        let channels = config.gist.associations.channels(None);
        assert_eq!((channels.max_handshakes, channels.handshake), (9, Duration::from_secs(4)));
    }

    #[test]
    fn authorised_peers_keep_their_order() {
        let config = parse(
            "[[gist.associations.authorised]]\nname = \"dns:*.example.org\"\npeers = [\"10.0.0.0/8\"]\n\
             destination = \"2001:db8::/32\"\nverdict = \"allow\"\n\
             [[gist.associations.authorised]]\nname = \"any\"\nverdict = \"deny\"\n",
        )
        .unwrap();
        let apd = config.gist.engine().associations.authorised;
        let entries: Vec<_> = apd.entries().map(|(_, entry)| entry.clone()).collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            (entries[0].name.to_string(), entries[0].verdict),
            ("dns *.example.org".into(), Verdict::Allow)
        );
        assert_eq!(entries[0].scope.peers[0].to_string(), "10.0.0.0/8");
        assert_eq!(entries[0].scope.destination.unwrap().to_string(), "2001:db8::/32");
        assert_eq!((&entries[1].name, entries[1].verdict), (&Name::Any, Verdict::Deny));
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let entry = "[[gist.associations.authorised]]\n";
        for (text, place, part) in [
            ("[gist.associations]\ntls_port = 271\n", "node.toml:2:12: ", "needs the section"),
            ("[gist.associations]\nhold_time = \"0s\"\n", "node.toml:2:13: ", "1 s to 49 days"),
            ("[gist.associations]\ntcp_port = 70000\n", "node.toml:2:12: ", "expected u16"),
            ("[gist.associations]\nuser_timeout = \"0s\"\n", "node.toml:2:16: ", "1 s to 1 day"),
            ("[gist.associations]\nmax_queued = 9\n", "node.toml:2:14: ", "at least 1024"),
            (
                "[gist.associations.tls]\nkey = \"k\"\npeer_keys = \"p\"\nversions = \"1.2\"\n",
                "node.toml:4:12: ",
                "need TLS 1.3",
            ),
            ("[gist]\ndscp = 64\n", "node.toml:2:8: ", "0 to 63"),
            ("[gist]\nhold_down = \"20s\"\n", "node.toml:1:1: ", "hold_down to 1 day"),
            ("[gist.associations]\npreference = [\"udp\"]\n", "node.toml:2:15: ", "`sctp`"),
            ("[gist.associations.tls]\nkey = \"k\"\n", "node.toml:1:1: ", "either certificate and anchors"),
            (
                "[gist.associations.tls]\nkey = \"k\"\ncertificate = \"c\"\n",
                "node.toml:1:1: ",
                "needs anchors",
            ),
            (&format!("{entry}name = \"bob\"\nverdict = \"deny\"\n"), "node.toml:2:8: ", "dns:NAME"),
            (&format!("{entry}name = \"key:12\"\nverdict = \"deny\"\n"), "node.toml:2:8: ", "64 hexadecimal"),
            (&format!("{entry}name = \"any\"\nsource = \"10.0.0.0\"\n"), "node.toml:3:10: ", "10.0.0.0/8"),
            (&format!("{entry}name = \"any\"\nsource = \"::/129\"\n"), "node.toml:3:10: ", "10.0.0.0/8"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
            assert!(error.starts_with(place), "{text:?}: {error}");
        }
    }

    #[test]
    fn keys_come_from_files_beside_the_configuration() {
        let directory = std::env::temp_dir().join(format!("signalboxd-tls-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let keys = rcgen::KeyPair::generate().unwrap();
        let key = directory.join("key.pem");
        std::fs::write(&key, keys.serialize_pem()).unwrap();
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let file = directory.join("node.toml");
        let text = "[gist.associations]\ntls_port = 271\n\
                    [gist.associations.tls]\nkey = \"key.pem\"\npeer_keys = \"peers.pem\"\n";
        std::fs::write(&file, text).unwrap();
        let open = Config::load(&file).unwrap_err().to_string();
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let missing = Config::load(&file).unwrap_err().to_string();
        std::fs::write(directory.join("peers.pem"), "nothing").unwrap();
        let empty = Config::load(&file).unwrap_err().to_string();
        std::fs::write(directory.join("peers.pem"), keys.public_key_pem()).unwrap();
        let config = Config::load(&file);
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(open.contains("node.toml:4:7: ") && open.contains("chmod 600"), "{open}");
        assert!(
            missing.contains("node.toml:5:13: gist.associations.tls.peer_keys: cannot read"),
            "{missing}"
        );
        assert!(missing.contains("peers.pem") && missing.ends_with("may read"), "{missing}");
        assert!(empty.contains("node.toml:3:") && empty.contains("[tls-pem]"), "{empty}");
        assert!(config.unwrap().gist.tls.is_some());
    }
}
