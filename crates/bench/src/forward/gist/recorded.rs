//! Messages of GIST that were recorded on their way to the daemon, and are sent again over the same association.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use signalbox_core::node::StreamId;
use signalbox_linux::process::Usage;

use super::super::end::Seen;
use super::super::on_source;
use super::super::site::{Daemon, Site};
use super::super::tcp::{Messages, WARM_UP};
use super::pair::Pair;
use super::streams::{SESSIONS, over_tcp};

/// Octets that may wait at the source for the kernel while recorded messages are sent.
const WAITING: usize = 1 << 20;
/// Recorded messages that are written at once.
const BURST: usize = 128;
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends recorded messages over the source's connection, without the source's node, and counts what reaches the sink's for
/// `span`, over TCP. `top` are lines for the top of the daemon's configuration. Returns messages per second and microseconds of
/// the daemon's processor time for each, and the messages.
pub(in super::super) fn through_node(site: &Site, top: &str, span: Duration) -> Result<([f64; 2], Messages)> {
    let settings = over_tcp();
    let daemon = Daemon::start(site, &format!("{top}{settings}"))?;
    let process = daemon.process()?;
    on_source(|| {
        let mut pair = Pair::open(site, &settings)?;
        let (mut written, mut stream) = (Vec::new(), None);
        pair.set_up(0..SESSIONS, 1, &mut |seen| {
            if let Seen::Written(to, octets) = seen {
                stream = Some(to);
                written.extend(data(octets));
            }
        })?;
        let stream = stream.context("nothing was written to a connection")?;
        written.truncate(BURST);
        let recorded = Messages { octets: written.concat(), count: written.len() };
        ensure!(recorded.count == BURST, "{} messages were recorded", recorded.count);
        // One burst shows how many octets the sink gets for it.
        let size = burst_at_sink(&mut pair, stream, &recorded)?;
        let mut flood = |time: Duration| -> Result<usize> {
            let (begin, mut arrived) = (Instant::now(), 0);
            while begin.elapsed() < time {
                while pair.source.io.streams().unsent() < WAITING {
                    pair.source.io.streams().write(stream, &recorded.octets);
                }
                pair.source.turn(Duration::ZERO, &mut |_| {})?;
                pair.sink.turn(Duration::ZERO, &mut |seen| arrived += octets_of(&seen))?;
            }
            Ok(arrived)
        };
        flood(WARM_UP)?;
        let used = || Usage::of(&process).context("the daemon has ended");
        let (before, begin) = (used()?.cpu, Instant::now());
        let arrived = flood(span)?;
        let (seconds, processor) = (begin.elapsed().as_secs_f64(), used()?.cpu - before);
        let messages = arrived as f64 / size as f64 * BURST as f64;
        Ok(([messages / seconds, processor.as_secs_f64() * 1e6 / messages.max(1.0)], recorded))
    })
}

/// Writes one burst. Returns the octets that reach the sink for it, which its node does not get.
fn burst_at_sink(pair: &mut Pair, stream: StreamId, recorded: &Messages) -> Result<usize> {
    pair.source.io.streams().write(stream, &recorded.octets);
    let (mut arrived, mut from, mut quiet) = (0, None, Instant::now());
    let begin = quiet;
    while quiet.elapsed() < WARM_UP || arrived == 0 {
        pair.source.turn(Duration::ZERO, &mut |_| {})?;
        pair.sink.turn(Duration::ZERO, &mut |seen| {
            if let Seen::Octets(stream, octets) = seen {
                arrived += octets.len();
                (quiet, from) = (Instant::now(), Some(stream));
            }
        })?;
        if let Some(stream) = from {
            pair.sink.hide(stream);
        }
        ensure!(begin.elapsed() < PATIENCE, "no recorded message reaches the sink");
    }
    Ok(arrived)
}

fn octets_of(seen: &Seen<'_>) -> usize {
    if let Seen::Octets(_, octets) = seen { octets.len() } else { 0 }
}

/// Returns the Data messages in octets that were written to a connection: length and type of a message stand in its
/// common header (RFC 5971 A.1).
fn data(mut octets: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let [_, _, high, low, _, _, kind, ..] = *octets {
        let end = (8 + 4 * usize::from(u16::from_be_bytes([high, low]))).min(octets.len());
        let (message, rest) = octets.split_at(end);
        if kind & 0x7f == 3 {
            all.push(message.to_vec());
        }
        octets = rest;
    }
    all
}
