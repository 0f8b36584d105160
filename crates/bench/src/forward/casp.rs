//! `bench forward casp`: messages of CASP over TCP through the daemon, and of GIST in the same run.

use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;
use signalbox_casp::kit::flow;
use signalbox_casp::wire::ping::{Ping, PingType};
use signalbox_casp::wire::{Body, ClientType, Signaling, framed};
use signalbox_lab::machine::Watch;
use signalbox_linux::process::Usage;

use super::super::figures::{Column, Row, table};
use super::super::judged::{Judged, faster};
use super::super::rounded;
use super::super::runs::session;
use super::gist::recorded;
use super::on_source;
use super::site::{Daemon, MIDDLE_UP, SINK, SOURCE, Site};
use super::tcp::{self, Ends, Messages};

const PORT: u16 = 50003;
const SOURCE_PORT: u16 = 4000;
/// First port of the flows, and flows with one source port.
const FIRST_PORT: u32 = 10_000;
const PER_PORT: u32 = 50_000;
const MAX_SESSIONS: u32 = 100_000;
/// Lifetime of the sessions, seconds: longer than a run, so that the daemon makes no refreshes of its own.
const LIFETIME: u32 = 3600;
/// A client that the daemon does not have.
const UNKNOWN: ClientType = ClientType(200);

const RATE: &str = "messages_per_second";
const SHARE: &str = "share_of_relay";
const COLUMNS: &[Column] = &[
    Column::whole(RATE, "messages/s"),
    Column { key: SHARE, head: "of the relay", digits: 2 },
    Column::micros("processor_us_per_message", "µs/message"),
    Column::octets("octets_per_message", "octets"),
    Column { key: "lost_share", head: "dropped", digits: 4 },
];

/// Options of `bench forward casp`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Source and sink are plain TCP connections. The daemon's Ping client adds an entry to each Ping, as GIST's Ping application does; it \
does not have the client of the other messages. The bare relay gets the same messages.

EXAMPLES:
  signalbox bench forward casp
  signalbox bench forward casp --sessions 10000 --seconds 5 --json")]
pub struct CaspForwardArgs {
    /// Sessions whose messages are sent in turn; GIST has 128
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)))]
    pub sessions: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub seconds: u64,
    /// How often to repeat, all lanes in turn; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What the messages of a lane are for.
#[derive(Debug, Clone, Copy)]
enum To {
    /// The Ping client of each node.
    Ping,
    /// A client that the daemon does not have.
    Unknown,
}

pub(in super::super) fn run(args: &CaspForwardArgs) -> Result<()> {
    let watch = Watch::start();
    let site = Site::build()?;
    let names = ["CASP, Pings", "CASP, passed on", "GIST, Pings"];
    let mut rows = names.map(|name| [Row::new(name), Row::new(format!("{name}, bare relay"))]);
    let span = Duration::from_secs(args.seconds);
    for _ in 0..args.runs {
        let [pings, passed, gist] = &mut rows;
        for (row, to) in [(pings, To::Ping), (passed, To::Unknown)] {
            let messages = messages(to, args.sessions)?;
            let figures = through_node(&site, &messages, span)?;
            beside_relay(row, &site, &messages, span, figures)?;
        }
        let (figures, messages) = recorded::through_node(&site, "", span).context("messages of GIST")?;
        beside_relay(gist, &site, &messages, span, [figures[0], figures[1], f64::NAN])?;
    }
    let rate = |row: &[Row; 2]| row[0].median(COLUMNS, RATE);
    let ratio = rate(&rows[0]) / rate(&rows[2]);
    let faster =
        |[node, bare]: &[Row; 2]| faster(&node.name, node.median(COLUMNS, RATE), bare.median(COLUMNS, RATE));
    let faults = rows.iter().filter_map(faster).collect();
    let rows = rows.as_flattened();
    let mut figures = json!({
        "repeated": args.runs,
        "sessions": args.sessions,
        "casp_against_gist": rounded(ratio),
    });
    for row in rows {
        figures["lanes"][&row.name] = row.json(COLUMNS).into();
    }
    let about = format!(
        "messages over TCP in one direction, {} sessions of CASP; medians of {} runs; octets are those that the source sends",
        args.sessions, args.runs
    );
    let text = format!(
        "{about}\n\n{}\n\nPings of CASP against those of GIST: {ratio:.2}",
        table("", COLUMNS, rows)?
    );
    Judged::new("casp-forward", &watch, Vec::new(), faults).print(args.json, &figures, &text)
}

/// Measures the relay with the same messages. Adds a run of both to the rows: `figures` are messages per second, microseconds
/// of the daemon for each, and the share that did not arrive.
fn beside_relay(
    [node, bare]: &mut [Row; 2],
    site: &Site,
    messages: &Messages,
    span: Duration,
    [rate, micros, lost]: [f64; 3],
) -> Result<()> {
    let relay = tcp::through_relay(site, messages, span)?;
    node.add(&[rate, rate / relay.max(1.0), micros, messages.size(), lost]);
    bare.add(&[relay, 1.0, f64::NAN, messages.size(), f64::NAN]);
    Ok(())
}

/// The daemon has no route lookups and no limit of rates here; the next node of all flows is the sink.
fn settings() -> String {
    format!(
        "node.protocols = [\"casp\"]\nnode.families = [\"ipv4\"]\n[[casp.towards]]\nto = [\"{SINK}/32\"]\n\
         discovery = [\"static\"]\nnext = \"{SINK}\"\n"
    )
}

/// Returns a message of each session. All have the same length.
fn messages(to: To, sessions: u32) -> Result<Messages> {
    let mut data = Vec::new();
    let client = match to {
        To::Ping => {
            Ping { kind: PingType::REQUEST, token: 7, entries: Vec::new() }.encode(&mut data);
            ClientType::PING
        }
        To::Unknown => {
            data.extend(b"a message of a client");
            UNKNOWN
        }
    };
    let mut octets = Vec::new();
    for number in 0..sessions {
        let src_port = SOURCE_PORT + u16::try_from(number / PER_PORT)?;
        let dst_port = u16::try_from(FIRST_PORT + number % PER_PORT)?;
        let flow = flow(SOURCE, SINK, src_port, dst_port);
        let body = Body::Client { client, data: &data };
        let message = Signaling { timeout: Some(LIFETIME), body, ..Signaling::new(session(number), flow) };
        framed(&mut octets, |into| message.encode(into))?;
    }
    Ok(Messages { octets, count: usize::try_from(sessions)? })
}

/// Floods the daemon with the messages. Returns messages per second at the sink, microseconds of the daemon's processor time for
/// each, and the share that the daemon dropped.
fn through_node(site: &Site, messages: &Messages, span: Duration) -> Result<[f64; 3]> {
    let daemon = Daemon::start(site, &settings())?;
    let process = daemon.process()?;
    on_source(|| {
        let sink = tcp::listen(&site.sink, SocketAddrV4::new(SINK, PORT))?;
        let mut source = tcp::connect(&site.source, SocketAddrV4::new(MIDDLE_UP, PORT))?;
        let one = messages.octets.len() / messages.count;
        // The daemon connects to the next node with the first message, which also shows how many octets the sink gets.
        std::io::Write::write_all(&mut source, messages.octets.get(..one).unwrap_or_default())?;
        let mut ends = Ends::new(source, tcp::accept(&sink)?, messages)?;
        let size = ends.drain()?;
        ensure!(size >= one, "a message of {one} octets became one of {size}");
        // Each session is there after its first message.
        let mut written = 0;
        while written < messages.octets.len() {
            written += ends.flood(tcp::WARM_UP)?.written;
        }
        let used = || Usage::of(&process).context("the daemon has ended");
        ends.drain()?;
        let before = used()?.cpu;
        let moved = ends.flood(span)?;
        let late = ends.drain()?;
        let processor = used()?.cpu - before;
        let arrived = |octets: usize| octets as f64 / size as f64;
        let all = arrived(moved.arrived + late);
        let sent = moved.written as f64 / one as f64;
        let rate = arrived(moved.arrived) / moved.time.as_secs_f64();
        Ok([rate, processor.as_secs_f64() * 1e6 / all.max(1.0), (1.0 - all / sent.max(1.0)).max(0.0)])
    })
}
