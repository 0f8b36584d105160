//! `[gist]`: what operators can set of the engine, in their terms.

mod associations;

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer};
use signalbox_node::{Tls, gist};

use crate::config::Config;
use crate::config::error::Problem;
use crate::config::section::{Present, Section};
use crate::config::units;
use associations::AssociationsConfig;

/// `[gist]`. The engine's documentation gives the reasons of the ranges.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GistConfig {
    /// Whether it runs.
    pub(crate) enabled: bool,
    /// Not a setting any more.
    #[serde(deserialize_with = "moved_to_io")]
    ipv4: (),
    /// Not a setting any more.
    #[serde(deserialize_with = "moved_to_io")]
    ipv6: (),
    /// Peer identity as text; empty: random, new with each start.
    peer_identity: String,
    /// Validity time of routing state that we propose and require.
    #[serde(deserialize_with = "units::duration")]
    state_validity: Duration,
    /// How long a querying node keeps state that no application uses.
    #[serde(deserialize_with = "units::duration")]
    inactivity: Duration,
    /// First interval between Queries.
    #[serde(deserialize_with = "units::duration")]
    t1: Duration,
    /// Longest interval between Queries.
    #[serde(deserialize_with = "units::duration")]
    t2: Duration,
    /// Queries of one handshake before giving up.
    attempts: u8,
    /// When a responding node installs state.
    state_installation: Installation,
    /// How long a cookie's secret is used.
    #[serde(deserialize_with = "units::duration")]
    cookie_period: Duration,
    /// GIST hop count of our messages.
    hop_count: u8,
    /// IP TTL of our messages.
    ip_ttl: u8,
    /// Largest GIST message in a datagram where the path MTU is not known.
    max_datagram: u16,
    /// Messages of ours per second; 0: no limit.
    rate_limit: u32,
    /// Messages that may leave at once after a pause.
    rate_burst: u32,
    /// Error messages per second; 0: none.
    error_rate_limit: u32,
    /// Queries per second that want an answer to the same address; 0: no limit.
    query_rate_per_source: u32,
    /// Candidate Q-mode packets processed per second; 0: no limit.
    intercept_rate_limit: u32,
    /// Most sessions.
    max_sessions: u32,
    /// Most pieces of state that point to peers at the same address; 0: no limit.
    max_sessions_per_source: u32,
    /// Most peers.
    max_peers: u32,
    /// How long a second change of a destination's route waits.
    #[serde(deserialize_with = "units::duration")]
    hold_down: Duration,
    /// The longest such wait.
    #[serde(deserialize_with = "units::duration")]
    hold_down_max: Duration,
    /// Whether a change downstream puts the state upstream in doubt.
    upstream_tentative: bool,
    /// Whether Queries are sent upstream.
    upstream_queries: bool,
    /// DSCP of messages in normal mode and of associations.
    pub(crate) dscp: u8,
    /// Connection mode.
    pub(crate) associations: AssociationsConfig,
    /// Keys and certificates, read from the files that the section names.
    #[serde(skip)]
    pub(crate) tls: Option<Tls>,
}

/// The switches of the IP versions, which hold for all protocols.
fn moved_to_io<'de, D: Deserializer<'de>>(_: D) -> Result<(), D::Error> {
    Err(de::Error::custom("IP versions are switched for all protocols: give `ipv4` or `ipv6` in [io]"))
}

/// When a responding node installs state (RFC 5971 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Installation {
    Immediate,
    Confirmed,
    Delayed,
}

/// Field of the engine and key of the file, where they differ.
const RENAMED: [(&str, &str); 8] = [
    ("identity", "peer_identity"),
    ("validity", "state_validity"),
    ("installation", "state_installation"),
    ("hops", "hop_count"),
    ("dmode_rate", "rate_limit"),
    ("dmode_burst", "rate_burst"),
    ("error_rate", "error_rate_limit"),
    ("intercept_rate", "intercept_rate_limit"),
];

impl Default for GistConfig {
    /// The engine's defaults, which are documented there.
    fn default() -> Self {
        let engine = gist::Config::default();
        Self {
            enabled: true,
            ipv4: (),
            ipv6: (),
            peer_identity: String::new(),
            state_validity: engine.validity,
            inactivity: engine.inactivity,
            t1: engine.t1,
            t2: engine.t2,
            attempts: engine.attempts,
            state_installation: match engine.installation {
                gist::Installation::Immediate => Installation::Immediate,
                gist::Installation::Confirmed => Installation::Confirmed,
                gist::Installation::Delayed => Installation::Delayed,
            },
            cookie_period: engine.cookie_period,
            hop_count: engine.hops,
            ip_ttl: engine.ip_ttl,
            max_datagram: engine.max_datagram,
            rate_limit: engine.dmode_rate,
            rate_burst: engine.dmode_burst,
            error_rate_limit: engine.error_rate,
            query_rate_per_source: engine.query_rate_per_source,
            intercept_rate_limit: engine.intercept_rate,
            max_sessions: engine.max_sessions,
            max_sessions_per_source: engine.max_sessions_per_source,
            max_peers: engine.max_peers,
            hold_down: engine.hold_down,
            hold_down_max: engine.hold_down_max,
            upstream_tentative: engine.upstream_tentative,
            upstream_queries: engine.upstream_queries,
            dscp: engine.dscp,
            associations: AssociationsConfig::default(),
            tls: None,
        }
    }
}

impl GistConfig {
    /// The engine's configuration.
    pub(crate) fn engine(&self) -> gist::Config {
        gist::Config {
            identity: self.peer_identity.clone().into_bytes(),
            validity: self.state_validity,
            inactivity: self.inactivity,
            t1: self.t1,
            t2: self.t2,
            attempts: self.attempts,
            installation: match self.state_installation {
                Installation::Immediate => gist::Installation::Immediate,
                Installation::Confirmed => gist::Installation::Confirmed,
                Installation::Delayed => gist::Installation::Delayed,
            },
            cookie_period: self.cookie_period,
            hops: self.hop_count,
            ip_ttl: self.ip_ttl,
            max_datagram: self.max_datagram,
            dmode_rate: self.rate_limit,
            dmode_burst: self.rate_burst,
            error_rate: self.error_rate_limit,
            query_rate_per_source: self.query_rate_per_source,
            intercept_rate: self.intercept_rate_limit,
            max_sessions: self.max_sessions,
            max_sessions_per_source: self.max_sessions_per_source,
            max_peers: self.max_peers,
            hold_down: self.hold_down,
            hold_down_max: self.hold_down_max,
            upstream_tentative: self.upstream_tentative,
            upstream_queries: self.upstream_queries,
            dscp: self.dscp,
            associations: self.associations.engine(),
            ..gist::Config::default()
        }
    }
}

impl Section for GistConfig {
    fn enabled(&self) -> bool {
        self.enabled
    }

    fn problem(&self, _: &Config) -> Option<Problem> {
        if let Some(problem) = self.associations.problem() {
            return Some(problem);
        }
        let error = self.engine().validated().err()?;
        let key = RENAMED.iter().find(|(field, _)| *field == error.field).map_or(error.field, |(_, key)| key);
        Some(Problem { key: format!("gist.{key}"), message: format!("out of range: {}", error.rule) })
    }

    fn read_files(&mut self, directory: &Path) -> Result<(), Problem> {
        self.tls = self.associations.read_tls(directory)?;
        Ok(())
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        node.gist = Some(signalbox_node::GistConfig {
            engine: self.engine(),
            channels: self.associations.channels(self.tls.clone()),
        });
    }
}

impl Present for GistConfig {
    fn section(&self) -> Option<&dyn Section> {
        Some(self)
    }

    fn section_mut(&mut self) -> Option<&mut dyn Section> {
        Some(self)
    }
}

/// The problem of a signaling application, configured in `section`, on a node without GIST.
pub(crate) fn needs_gist(config: &Config, section: &str) -> Option<Problem> {
    let message = format!("[{section}] is there, and needs GIST: leave GIST on, or remove that section");
    (!config.gist.enabled).then(|| Problem { key: "gist.enabled".to_owned(), message })
}
