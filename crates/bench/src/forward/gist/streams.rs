//! Messages over associations: Pings between two nodes of this program over TCP, TLS and SCTP, and the recorded octets
//! of such messages over TCP, through the daemon and through a bare relay.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rcgen::KeyPair;
use signalbox_core::Entry;
use signalbox_linux::process::Usage;
use signalbox_node::ping::{self, PingEvent};
use signalbox_node::{Command, Event};

use super::super::super::Goal;
use super::super::super::figures::{Column, Row};
use super::super::super::judged::faster;
use super::super::end::Seen;
use super::super::site::{Daemon, Site};
use super::super::{on_source, tcp};
use super::pair::{Kind, Pair, request, start};
use super::{ForwardArgs, Measured, SETTINGS, Transport, recorded};
use signalbox_lab::scratch::Scratch;

/// Sessions that Ping at the same time.
pub(super) const SESSIONS: u32 = 512;
/// Messages per second to offer with Pings, each a request and its reply.
const RATES: [u32; 9] = [2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 200_000, 300_000, 400_000];
/// With less than this share of its replies, a rate is more than a node or the source can carry.
const CARRIED: f64 = 0.97;
/// Time after a change of the rate that is not measured.
const SETTLE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(10);
const TCP_PORT: &str = "tcp_port = 270";
const TCP_GOAL: f64 = 600_000.0;
const TLS_GOAL: f64 = 400_000.0;

const COLUMNS: &[Column] = &[
    Column::whole("messages_per_second", "messages/s"),
    Column::micros("processor_us_per_message", "µs/message"),
];
const RATE: &str = "messages_per_second";

/// A transport of messages between two nodes.
struct Over {
    transport: Transport,
    name: &'static str,
    /// Lines of `[gist.associations]`, and what follows them.
    settings: String,
}

/// Raw public keys of all nodes, in files of a directory that goes with this value.
struct Keys(Scratch);

impl Keys {
    fn make() -> Result<Self> {
        let keys = Self(Scratch::new("bench-keys")?);
        let pair = KeyPair::generate()?;
        let public = pair.public_key_pem();
        for (path, text) in [(keys.own(), pair.serialize_pem()), (keys.peers(), public)] {
            fs::write(&path, text).with_context(|| path.display().to_string())?;
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        }
        Ok(keys)
    }

    fn own(&self) -> PathBuf {
        self.0.join("own.pem")
    }

    fn peers(&self) -> PathBuf {
        self.0.join("peers.pem")
    }
}

pub(super) fn measure(site: &Site, args: &ForwardArgs) -> Result<Measured> {
    let keys = Keys::make()?;
    let (own, peers) = (keys.own(), keys.peers());
    let tls = format!(
        "{}[gist.tls]\nkey_file = \"{}\"\npeer_keys_file = \"{}\"\n\
         [[gist.peer_rules]]\npeer = \"authenticated\"\naction = \"allow\"\n",
        associations("tls_port = 271"),
        own.display(),
        peers.display()
    );
    let all = [
        Over { transport: Transport::Tcp, name: "tcp", settings: associations(TCP_PORT) },
        Over { transport: Transport::Tls, name: "tls", settings: tls },
        Over { transport: Transport::Sctp, name: "sctp", settings: associations("sctp_port = 270") },
    ];
    let wanted = |over: &&Over| args.transports.contains(&over.transport);
    let mut rows: Vec<Row> = Vec::new();
    for transport in all.iter().filter(wanted) {
        rows.push(Row::new(transport.name));
        rows.push(Row::new(format!("{}, no daemon", transport.name)));
    }
    rows.extend(["tcp, recorded", "bare relay"].map(Row::new));
    for _ in 0..args.runs {
        let mut figures = Vec::new();
        for transport in all.iter().filter(wanted) {
            let lane = || format!("messages over {}", transport.name);
            figures.push(through_node(site, args, transport).with_context(lane)?);
            let without = on_source(|| sweep(site, args, transport, None));
            figures.push([without.with_context(|| format!("{}, no daemon", lane()))?[0], f64::NAN]);
        }
        let span = Duration::from_secs(args.seconds);
        let (node, recorded) =
            recorded::through_node(site, &args.daemon(""), span).context("recorded messages over tcp")?;
        figures.push(node);
        figures.push([tcp::through_relay(site, &recorded, span)?, f64::NAN]);
        for (row, figures) in rows.iter_mut().zip(figures) {
            row.add(&figures);
        }
    }
    let rate = |name: &str| {
        rows.iter().find(|row| row.name == name).map_or(f64::NAN, |row| row.median(COLUMNS, RATE))
    };
    let recorded = rate("tcp, recorded");
    let faults = faster("messages over TCP, recorded", recorded, rate("bare relay")).into_iter().collect();
    let mut goals =
        vec![Goal::at_least("messages per second over TCP, recorded", "at least 600000", TCP_GOAL, recorded)];
    if !rate("tls").is_nan() {
        goals.push(Goal::at_least("messages per second over TLS", "at least 400000", TLS_GOAL, rate("tls")));
    }
    let ratio = rate("sctp") / rate("tcp");
    if !ratio.is_nan() {
        goals.push(Goal::at_least("SCTP against TCP", "at least 0.5", 0.5, ratio));
    }
    let about = format!(
        "Pings of {SESSIONS} sessions at the highest rate that is carried, request and reply counted as one message \
         each, a dash if no reply came in time; then one direction with recorded messages over TCP"
    );
    Ok(Measured { name: "streams", about, columns: COLUMNS, rows, goals, faults })
}

fn settings(transport: &Over) -> String {
    format!("{SETTINGS}{}", transport.settings)
}

/// All messages go over associations, to and from this port.
fn associations(port: &str) -> String {
    format!("[gist.associations]\nalways = true\n{port}\n")
}

/// Nodes with associations over TCP.
pub(super) fn over_tcp() -> String {
    format!("{SETTINGS}{}", associations(TCP_PORT))
}

fn through_node(site: &Site, args: &ForwardArgs, transport: &Over) -> Result<[f64; 2]> {
    let daemon = Daemon::start(site, &args.daemon(&settings(transport)))?;
    on_source(|| sweep(site, args, transport, Some(&daemon)))
}

/// Pings at rising rates. Returns the most messages per second that are carried, and the daemon's processor time for
/// each; NaN if no reply comes in time.
fn sweep(site: &Site, args: &ForwardArgs, transport: &Over, daemon: Option<&Daemon>) -> Result<[f64; 2]> {
    let mut best = [f64::NAN; 2];
    let mut pair = Pair::open(site, &settings(transport))?;
    pair.set_up(0..1, 1, &mut |_| {})?;
    for (step, rate) in (1..).zip(RATES) {
        let figures = ping_at(&mut pair, args, step * SESSIONS, rate, daemon)?;
        // Against a number, `max` returns the number and not NaN.
        if figures[0] > best[0].max(0.0) {
            best = figures;
        }
        if figures[0] < f64::from(rate) * CARRIED {
            break;
        }
    }
    Ok(best)
}

/// Pings with sessions from number `first` on, `rate` messages per second.
fn ping_at(
    pair: &mut Pair,
    args: &ForwardArgs,
    first: u32,
    rate: u32,
    daemon: Option<&Daemon>,
) -> Result<[f64; 2]> {
    let process = daemon.map(Daemon::process).transpose()?;
    let used = || -> Result<Duration> {
        let usage = process.as_ref().map(Usage::of).transpose().context("the daemon has ended")?;
        Ok(usage.map_or(Duration::ZERO, |usage| usage.cpu))
    };
    let sessions = first..first + SESSIONS;
    let interval = Duration::from_secs_f64(f64::from(SESSIONS) * 2.0 / f64::from(rate));
    // The Pings of all sessions are spread over the interval.
    let interval = interval.max(ping::MIN_INTERVAL);
    let begin = Instant::now();
    for number in sessions.clone() {
        // The sessions so far are more than can be carried, if new ones take that long.
        if begin.elapsed() >= PATIENCE {
            break;
        }
        let request = ping::PingRequest { count: None, interval, ..request(number) };
        pair.source.command(start(number, request), &mut |_| {})?;
        pair.settle(interval / SESSIONS)?;
    }
    pair.settle(SETTLE)?;
    let (before, begin, mut replies, mut datagrams) = (used()?, Instant::now(), 0_u32, 0_u32);
    while begin.elapsed() < Duration::from_secs(args.seconds) {
        pair.source.turn(Duration::ZERO, &mut |seen| {
            datagrams += u32::from(is_datagram(&seen));
            if let Seen::Event(Event::Ping { event: PingEvent::Reply(_), .. }) = seen {
                replies += 1;
            }
        })?;
        pair.sink.turn(Duration::ZERO, &mut |seen| datagrams += u32::from(is_datagram(&seen)))?;
    }
    ensure!(datagrams == 0, "{datagrams} messages went in datagrams, not over an association");
    let (seconds, processor) = (begin.elapsed().as_secs_f64(), used()? - before);
    for number in sessions {
        let stop = Command::Ping { id: number.into(), command: ping::Command::Stop };
        pair.source.command(stop, &mut |_| {})?;
    }
    pair.settle(SETTLE)?;
    let messages = f64::from(replies) * 2.0;
    Ok([messages / seconds, daemon.map_or(f64::NAN, |_| processor.as_secs_f64() * 1e6 / messages.max(1.0))])
}

/// Whether it is a Data message in a datagram, as messages go when no association can be had.
fn is_datagram(seen: &Seen<'_>) -> bool {
    let (entry, payload) = match seen {
        Seen::Received(packet) => (packet.entry, packet.payload),
        Seen::Sent(packet) => (packet.entry, packet.payload),
        _ => return false,
    };
    matches!(entry, Entry::Udp(_)) && Kind::of(payload) == Kind::Data
}
