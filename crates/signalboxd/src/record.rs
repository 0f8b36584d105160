//! Recording of all that goes into the node, for `signalbox replay`.

use std::fs::{File, OpenOptions, Permissions};
use std::io::BufWriter;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use anyhow::{Context, Result};
use serde::Serialize;
use signalbox_core::Time;
use signalbox_core::node::Input;
use signalbox_node::{Command, Config as NodeConfig};
use signalbox_record::Writer;

use crate::config::RecordConfig;

/// An open recording.
#[derive(Debug)]
pub(crate) struct Recorder {
    writer: Writer<BufWriter<File>>,
}

/// The node's settings as the header holds them: the fields of the node's and the engines' configuration under
/// their names there, durations in microseconds.
#[derive(Debug, Serialize)]
struct Settings<'a> {
    wall_clock_us: u64,
    gist: GistSettings<'a>,
    ping: Option<PingSettings>,
}

#[derive(Debug, Serialize)]
struct GistSettings<'a> {
    identity: &'a [u8],
    validity_us: u128,
    inactivity_us: u128,
    t1_us: u128,
    t2_us: u128,
    attempts: u8,
    installation: String,
    cookie_period_us: u128,
    hops: u8,
    ip_ttl: u8,
    max_datagram: u16,
    dmode_rate: u32,
    dmode_burst: u32,
    error_rate: u32,
    intercept_rate: u32,
    max_sessions: u32,
    max_peers: u32,
}

#[derive(Debug, Serialize)]
struct PingSettings {
    nslp: u16,
}

impl Recorder {
    /// Starts the recording that `config` asks for, of a node made from `node` and `seed`.
    ///
    /// The file is its owner's only, for the seed in it is a secret.
    pub(crate) fn open(config: &RecordConfig, node: &NodeConfig, seed: &[u8; 32]) -> Result<Option<Self>> {
        let Some(path) = &config.file else { return Ok(None) };
        let cannot = || format!("cannot record to {}; set record.file", path.display());
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .with_context(cannot)?;
        // The mode above holds for new files only.
        file.set_permissions(Permissions::from_mode(0o600)).with_context(cannot)?;
        let limit = u64::from(config.limit_mib) << 20;
        let writer = Writer::new(BufWriter::new(file), &settings(node), seed, limit).with_context(cannot)?;
        tracing::warn!(path = %path.display(), "recording; the file holds this node's secrets");
        Ok(Some(Self { writer }))
    }

    /// Records an input. What goes wrong ends the recording, not the daemon.
    pub(crate) fn record(&mut self, now: Time, input: &Input<'_, Command>) {
        if !self.writer.is_open() {
            return;
        }
        match self.writer.record(now, input) {
            Ok(true) => {}
            Ok(false) => tracing::warn!("the recording has reached its limit and ends"),
            Err(error) => tracing::warn!(%error, "the recording ends"),
        }
    }

    /// Writes out what is held back.
    pub(crate) fn flush(&mut self) {
        if let Err(error) = self.writer.flush() {
            tracing::warn!(%error, "the recording is not written out");
        }
    }
}

fn settings(config: &NodeConfig) -> Settings<'_> {
    let gist = &config.gist;
    Settings {
        wall_clock_us: config.wall_clock_us,
        gist: GistSettings {
            identity: &gist.identity,
            validity_us: gist.validity.as_micros(),
            inactivity_us: gist.inactivity.as_micros(),
            t1_us: gist.t1.as_micros(),
            t2_us: gist.t2.as_micros(),
            attempts: gist.attempts,
            installation: format!("{:?}", gist.installation).to_lowercase(),
            cookie_period_us: gist.cookie_period.as_micros(),
            hops: gist.hops,
            ip_ttl: gist.ip_ttl,
            max_datagram: gist.max_datagram,
            dmode_rate: gist.dmode_rate,
            dmode_burst: gist.dmode_burst,
            error_rate: gist.error_rate,
            intercept_rate: gist.intercept_rate,
            max_sessions: gist.max_sessions,
            max_peers: gist.max_peers,
        },
        ping: config.ping.as_ref().map(|ping| PingSettings { nslp: ping.nslp.0 }),
    }
}
