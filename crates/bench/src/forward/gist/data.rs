//! Data messages through the daemon and through bare forwarders, in datagrams at rising rates.

use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use signalbox_linux::{Io, IoConfig};

use super::super::super::Goal;
use super::super::super::figures::{Column, Row};
use super::super::super::judged::faster;
use super::super::end::Seen;
use super::super::site::{Daemon, PORT, SINK, SOURCE, Site};
use super::super::{Lane, Step, beside, on_source, settle, steps_table};
use super::pair::{Kind, Pair, WINDOW};
use super::{ForwardArgs, Measured, SETTINGS, bare, source};

pub(super) const NAME: &str = "data";
/// Where a bare forwarder sends to.
const SINK_PORT: SocketAddrV4 = SocketAddrV4::new(SINK, PORT);
const RATIO_GOAL: f64 = 0.85;
const RATE_GOAL: f64 = 600_000.0;

const COLUMNS: &[Column] = &[
    Column::whole("messages_per_second", "messages/s"),
    Column::whole("messages_per_second_without_loss", "without loss"),
];

/// Messages of sessions that are set up.
struct Recorded {
    /// Where the middle node receives them.
    to: SocketAddr,
    /// The Data message of each session.
    messages: Vec<Vec<u8>>,
}

/// Measures all lanes in turn, and returns the steps of the last run as well.
pub(super) fn measure(site: &Site, args: &ForwardArgs) -> Result<(Measured, Vec<Lane>)> {
    let mut rows = ["node", "bare", "bare, segments"].map(Row::new);
    let (mut last, mut size) = (Vec::new(), 0);
    for _ in 0..args.runs {
        let (node, recorded) = through_node(site, args)?;
        let lanes = [node, through_bare(site, args, &recorded)?, through_segmented(site, args, &recorded)?];
        for (row, lane) in rows.iter_mut().zip(&lanes) {
            row.add(&[lane.best(), lane.lossless()]);
        }
        size = recorded.messages.first().map_or(0, Vec::len);
        last = lanes.into();
    }
    let [node, _, segments] = &rows;
    let best = |row: &Row| row.median(COLUMNS, "messages_per_second");
    let ratio = best(node) / best(segments).max(1.0);
    let goals = vec![
        Goal::at_least("node against bare forwarder with segments", "at least 0.85", RATIO_GOAL, ratio),
        Goal::at_least("Data messages per second", "at least 600000", RATE_GOAL, best(node)),
    ];
    let faults = faster("Data messages", best(node), best(segments)).into_iter().collect();
    let about = format!(
        "Data messages of {size} octets of {} sessions, one processor for what is measured",
        args.sessions
    );
    Ok((Measured { name: NAME, about, columns: COLUMNS, rows: rows.into(), goals, faults }, last))
}

/// The steps of the last run.
pub(super) fn json(lanes: &[Lane]) -> Value {
    lanes.iter().map(|lane| (lane.name, lane.json())).map(|(name, lane)| json!({name: lane})).collect()
}

pub(super) fn text(lanes: &[Lane]) -> Result<String> {
    steps_table(lanes)
}

fn through_node(site: &Site, args: &ForwardArgs) -> Result<(Lane, Recorded)> {
    let _daemon = Daemon::start(site, &args.daemon(SETTINGS))?;
    let recorded = on_source(|| establish(site, args.sessions))?;
    let steps = sweep(site, args, &recorded)?;
    Ok((Lane { name: "node", steps }, recorded))
}

/// Sets `sessions` up by one ping each from source to sink, and returns the Data message that the source sent to
/// the middle node for each.
fn establish(site: &Site, sessions: u32) -> Result<Recorded> {
    let mut pair = Pair::open(site, SETTINGS)?;
    let (mut to, mut messages) = (None, Vec::new());
    pair.set_up(0..sessions, WINDOW, &mut |seen| {
        if let Seen::Sent(packet) = seen
            && Kind::of(packet.payload) == Kind::Data
        {
            to = Some(packet.dst);
            messages.push(packet.payload.to_vec());
        }
    })?;
    Ok(Recorded { to: to.context("no Data message was sent")?, messages })
}

fn through_bare(site: &Site, args: &ForwardArgs, recorded: &Recorded) -> Result<Lane> {
    let socket = Site::socket(&site.middle, recorded.to)?;
    let forward = |stop: &_| bare::forward(&socket, SINK_PORT, stop);
    Ok(Lane { name: "bare", steps: beside(forward, || sweep(site, args, recorded))? })
}

fn through_segmented(site: &Site, args: &ForwardArgs, recorded: &Recorded) -> Result<Lane> {
    let entries = signalbox_node::Config::default().entries();
    let config = IoConfig { entries, ipv6: false, intercept: false, ..IoConfig::default() };
    let io = site.middle.run(|| Io::open(&config))??;
    let forward = |stop: &_| bare::forward_segmented(io, SINK_PORT, stop);
    Ok(Lane { name: "bare, segments", steps: beside(forward, || sweep(site, args, recorded))? })
}

/// Sends at each rate from a thread of its own, bound to its processor, and counts what arrives.
fn sweep(site: &Site, args: &ForwardArgs, recorded: &Recorded) -> Result<Vec<Step>> {
    // The socket is not read: arrivals fill its buffer once, and the kernel counts all further ones as drops.
    let sink = Site::socket(&site.sink, (SINK, PORT).into())?;
    let source = Site::socket(&site.source, (SOURCE, PORT).into())?;
    source.connect(recorded.to).context("cannot reach the middle")?;
    let span = Duration::from_secs(args.seconds);
    let steps = on_source(|| {
        fill(site, &source, &recorded.messages)?;
        args.rates.iter().map(|rate| step(site, &source, &recorded.messages, *rate, span)).collect()
    });
    drop(sink);
    steps
}

/// Sends until the sink's buffer is full, so that every further message is counted.
fn fill(site: &Site, source: &UdpSocket, messages: &[Vec<u8>]) -> Result<()> {
    let start = site.arrived()?;
    for _ in 0..200 {
        source::send(source, messages, 20_000, Duration::from_millis(50))?;
        if site.arrived()? > start {
            return settle(|| site.arrived());
        }
    }
    anyhow::bail!("nothing reaches the sink")
}

fn step(site: &Site, source: &UdpSocket, messages: &[Vec<u8>], rate: u64, span: Duration) -> Result<Step> {
    let (arrived, overrun) = (site.arrived()?, site.overrun()?);
    let (sent, time) = source::send(source, messages, rate, span)?;
    settle(|| site.arrived())?;
    Ok(Step {
        offered: rate,
        sent,
        arrived: site.arrived()? - arrived,
        overrun: site.overrun()? - overrun,
        seconds: time.as_secs_f64(),
    })
}
