//! The daemon's configuration: one TOML file, described in `docs/config.md`.
//!
//! Unknown keys, wrong types and values out of range are errors that name file, line and column; nothing
//! falls back to a default silently.

pub(crate) mod error;
pub(crate) mod log;
pub(crate) mod secret;
pub(crate) mod section;
pub(crate) mod units;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use signalbox_core::EntryRequest;
use signalbox_linux::IoConfig;

pub(crate) use error::ConfigError;
use error::Problem;
use log::LogFilter;

use crate::protocols::gist::config::GistConfig;
use crate::protocols::ping::config::PingConfig;
use crate::protocols::qos::config::QosConfig;
use crate::protocols::rsvp::config::RsvpConfig;
use crate::protocols::{sections, sections_mut};
use crate::resources::config::TrafficSection;

/// The whole file. Every section may be left out.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The node itself.
    pub(crate) node: NodeConfig,
    /// The control socket.
    pub(crate) control: ControlConfig,
    /// GIST.
    pub(crate) gist: GistConfig,
    /// What the daemon uses of the kernel.
    pub(crate) io: IoSection,
    /// Signaling applications; one runs only if its section is there.
    pub(crate) apps: AppsConfig,
    /// RSVP; `None`: it does not run here.
    pub(crate) rsvp: Option<RsvpConfig>,
    /// The test protocol.
    #[cfg(feature = "test-protocol")]
    pub(crate) beacon: Option<crate::protocols::beacon::config::BeaconConfig>,
    /// Links that can be reserved at, and the policy.
    pub(crate) resources: signalbox_node::resources::Config,
    /// How the kernel enforces reservations.
    pub(crate) traffic: TrafficSection,
    /// The log.
    pub(crate) log: LogConfig,
    /// Recording of the node's inputs.
    pub(crate) record: RecordConfig,
    /// Metrics over HTTP.
    pub(crate) metrics: MetricsConfig,
}

/// `[node]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeConfig {
    /// Name for logs and status; the host name if it is not given.
    pub(crate) name: String,
}

impl Default for NodeConfig {
    fn default() -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self { name: name.trim().to_owned() }
    }
}

/// `[control]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ControlConfig {
    /// Path of the Unix socket.
    pub(crate) socket: PathBuf,
    /// Its file permissions.
    #[serde(deserialize_with = "units::file_mode")]
    pub(crate) mode: u32,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self { socket: signalbox_api::DEFAULT_SOCKET.into(), mode: 0o660 }
    }
}

/// `[io]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IoSection {
    /// Signal over IPv4.
    pub(crate) ipv4: bool,
    /// Signal over IPv6.
    pub(crate) ipv6: bool,
    /// Take GIST packets that pass by with a Router Alert.
    pub(crate) intercept: bool,
    /// Packet mark for those.
    pub(crate) mark: u32,
    /// Packet mark of what this node sends itself.
    pub(crate) own_mark: u32,
    /// Routing table for packets with that mark.
    pub(crate) table: u32,
}

impl Default for IoSection {
    fn default() -> Self {
        let IoConfig { ipv4, ipv6, intercept, mark, own_mark, table, .. } = IoConfig::default();
        Self { ipv4, ipv6, intercept, mark, own_mark, table }
    }
}

/// `[apps]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AppsConfig {
    /// The Ping application; `None`: it does not run here.
    pub(crate) ping: Option<PingConfig>,
    /// The QoS application; `None`: it does not run here.
    pub(crate) qos: Option<QosConfig>,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogConfig {
    /// Least important level that is logged, for each module.
    pub(crate) level: LogFilter,
    /// Shape of its lines.
    pub(crate) format: LogFormat,
}

/// Shape of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// `[record]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RecordConfig {
    /// Where to write the node's inputs as JSON lines; `None`: nowhere.
    pub(crate) file: Option<PathBuf>,
    /// Size at which the recording ends, in MiB.
    pub(crate) limit_mib: u32,
}

impl Default for RecordConfig {
    fn default() -> Self {
        Self { file: None, limit_mib: 1024 }
    }
}

/// `[metrics]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsConfig {
    /// Where monitoring systems can read the metrics over HTTP; `None`: nowhere.
    #[serde(deserialize_with = "units::listener")]
    pub(crate) listen: Option<SocketAddr>,
}

impl Config {
    /// Reads and checks the file at `path`, and the keys and certificates that it names.
    ///
    /// # Errors
    /// A file cannot be read, or a value in it is wrong.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let mut config = Self::parse(path, &text)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        for section in sections_mut(&mut config) {
            section.read_files(directory).map_err(|problem| ConfigError::value(path, &text, &problem))?;
        }
        Ok(config)
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)
            .map_err(|error| ConfigError::at(path, text, error.span(), error.message().to_owned()))?;
        match config.problem() {
            None => Ok(config),
            Some(problem) => Err(ConfigError::value(path, text, &problem)),
        }
    }

    /// The first value that is out of its range.
    fn problem(&self) -> Option<Problem> {
        let problem = |key: &str, message: &str| Some(Problem { key: key.into(), message: message.into() });
        // The kernel's limit is 108 octets with the closing zero.
        if self.control.socket.as_os_str().len() > 107 {
            return problem("control.socket", "at most 107 octets, the limit of Unix sockets");
        }
        if !self.control.socket.is_absolute() {
            return problem("control.socket", "an absolute path, such as \"/run/signalbox/signalboxd.sock\"");
        }
        if !self.io.ipv4 && !self.io.ipv6 {
            return problem("io.ipv6", "IPv4 and IPv6 are both switched off; leave one of them on");
        }
        if self.io.mark == 0 {
            return problem("io.mark", "not 0, and a mark that nothing else on this machine uses");
        }
        if self.io.own_mark == 0 || self.io.own_mark == self.io.mark {
            return problem(
                "io.own_mark",
                "not 0, not io.mark, and a mark that nothing else on this machine uses",
            );
        }
        if matches!(self.io.table, 0 | 253..=255) {
            return problem("io.table", "not 0 and not 253 to 255, and a table that nothing else uses");
        }
        if self.record.limit_mib == 0 {
            return problem("record.limit_mib", "at least 1");
        }
        if let Some(problem) = sections(self).find_map(|section| section.problem(self)) {
            return Some(problem);
        }
        if let Err(error) = self.resources.validated() {
            return problem(&format!("resources.{}", error.field), &error.problem);
        }
        self.traffic.problem(&self.resources)
    }

    /// What can be used, but is likely to be a mistake.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let open = self.metrics.listen.filter(|address| !address.ip().is_loopback());
        let metrics = open.map(|address| {
            format!(
                "metrics.listen: {address} is reached from other machines, without encryption and without \
                 authentication; use 127.0.0.1 or [::1], or protect the port by a firewall"
            )
        });
        metrics.into_iter().collect()
    }

    /// What to open in the kernel, `entries` being the ports of entry that the node asks for.
    pub(crate) fn io(&self, mut entries: Vec<EntryRequest>) -> IoConfig {
        for section in sections(self) {
            section.adapt(&mut entries);
        }
        IoConfig {
            entries,
            ipv4: self.io.ipv4,
            ipv6: self.io.ipv6,
            intercept: self.io.intercept,
            mark: self.io.mark,
            own_mark: self.io.own_mark,
            table: self.io.table,
            streams: self.gist.associations.streams(self.gist.dscp),
            ..IoConfig::default()
        }
    }

    /// The Ping application's section, if it runs.
    pub(crate) fn ping(&self) -> Option<&PingConfig> {
        self.apps.ping.as_ref().filter(|ping| ping.enabled)
    }

    /// The QoS application's section, if it runs.
    pub(crate) fn qos(&self) -> Option<&QosConfig> {
        self.apps.qos.as_ref().filter(|qos| qos.enabled)
    }

    /// RSVP's section, if it runs.
    pub(crate) fn rsvp(&self) -> Option<&RsvpConfig> {
        self.rsvp.as_ref().filter(|rsvp| rsvp.enabled)
    }
}

#[cfg(test)]
mod tests;
