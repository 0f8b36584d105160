//! Latency of a handshake's messages beside a bare echo: of single new sessions, back to back and with pauses.

use std::cell::Cell;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use signalbox_core::packet::Transmit;
use signalbox_linux::{Batch, Io, IoConfig};
use signalbox_node::Event;
use signalbox_node::ping::PingEvent;

use super::super::super::Goal;
use super::super::super::figures::{Column, Row};
use super::super::end::Seen;
use super::super::site::{Daemon, MIDDLE_UP, PORT, SOURCE, Site};
use super::super::{beside, on_source, quantiles};
use super::pair::{Kind, Pair, request, start};
use super::{ForwardArgs, Measured, SETTINGS};

/// The pauses between two handshakes, and their names.
const GAPS: [(Duration, &str); 3] = [
    (Duration::ZERO, "back to back"),
    (Duration::from_millis(1), "gaps of 1 ms"),
    (Duration::from_millis(5), "gaps of 5 ms"),
];
const RATIO_GOAL: f64 = 1.25;
/// The longest time that a message may take.
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(20);
/// Sessions that are set up before the clock starts.
const WARM_UP: u32 = 64;
/// Octets of the echo's datagrams, as many as a Query has.
const QUERY: usize = 136;

const COLUMNS: &[Column] = &[
    Column::micros("query_response_p50_us", "Query→Response p50"),
    Column::micros("query_response_p99_us", "p99"),
    Column::micros("response_confirm_p50_us", "Response→Confirm p50"),
    Column::micros("response_confirm_p99_us", "p99"),
];

pub(super) fn measure(site: &Site, args: &ForwardArgs) -> Result<Measured> {
    let mut rows: Vec<[Row; 2]> =
        GAPS.map(|(_, gap)| ["node", "bare echo"].map(|name| Row::new(format!("{name}, {gap}")))).into();
    for _ in 0..args.runs {
        let node = through_node(site, args)?;
        let echo = through_echo(site, args.timed)?;
        for (([row, bare], node), echo) in rows.iter_mut().zip(node).zip(echo) {
            row.add(&node);
            bare.add(&echo);
        }
    }
    let key = "query_response_p50_us";
    let goals = rows.iter().map(|[node, echo]| {
        let ratio = node.median(COLUMNS, key) / echo.median(COLUMNS, key);
        Goal::at_most(
            "Query to Response against a bare echo",
            "at most 1.25 times, at each gap",
            RATIO_GOAL,
            ratio,
        )
    });
    let goals = goals.collect();
    let about = format!("{} new sessions for each gap, one at a time; µs", args.timed);
    let rows = rows.into_iter().flatten().collect();
    Ok(Measured { name: "latency", about, columns: COLUMNS, rows, goals, faults: Vec::new() })
}

fn through_node(site: &Site, args: &ForwardArgs) -> Result<Vec<[f64; 4]>> {
    let _daemon = Daemon::start(site, &args.daemon(SETTINGS))?;
    on_source(|| {
        let mut pair = Pair::open(site, SETTINGS)?;
        pair.set_up(0..WARM_UP, 1, &mut |_| {})?;
        let mut next = WARM_UP;
        let mut all = Vec::new();
        for (gap, _) in GAPS {
            let (mut queries, mut responses) = (Vec::new(), Vec::new());
            for _ in 0..args.timed {
                let (query, response) = time(&mut pair, next)?;
                queries.push(query);
                responses.push(response);
                next += 1;
                pause(gap);
            }
            let [[q50, q99], [r50, r99]] = [quantiles(queries), quantiles(responses)];
            all.push([q50, q99, r50, r99]);
        }
        Ok(all)
    })
}

fn pause(gap: Duration) {
    if !gap.is_zero() {
        thread::sleep(gap);
    }
}

/// Sets a session up. Returns how long the daemon's Response to the source took, and its Confirm to the sink.
fn time(pair: &mut Pair, number: u32) -> Result<(Duration, Duration)> {
    let begin = Instant::now();
    let (mut sent, mut query, done) = (None, None, Cell::new(false));
    let (mut answered, mut confirm) = (None, None);
    // The clock runs from the moment at which a message is composed to the one at which the answer is read.
    let mut source = |seen: Seen<'_>| match seen {
        Seen::Sent(packet) if Kind::of(packet.payload) == Kind::Query => sent = Some(Instant::now()),
        Seen::Received(packet) if Kind::of(packet.payload) == Kind::Response => {
            query = query.or_else(|| Some(sent?.elapsed()));
        }
        Seen::Event(Event::Ping { event: PingEvent::Done { .. }, .. }) => done.set(true),
        _ => {}
    };
    let mut sink = |seen: Seen<'_>| match seen {
        Seen::Sent(packet) if Kind::of(packet.payload) == Kind::Response => answered = Some(Instant::now()),
        Seen::Received(packet) if Kind::of(packet.payload) == Kind::Confirm => {
            confirm = confirm.or_else(|| Some(answered?.elapsed()));
        }
        _ => {}
    };
    pair.source.command(start(number, request(number)), &mut source)?;
    pair.source.flush();
    while begin.elapsed() < PATIENCE {
        pair.source.turn(Duration::ZERO, &mut source)?;
        pair.sink.turn(Duration::ZERO, &mut sink)?;
        if done.get() {
            break;
        }
    }
    query.zip(confirm).context("a handshake was not completed")
}

/// The same gaps with datagrams of the same size, which a program in the middle returns at once.
pub(super) fn through_echo(site: &Site, timed: u32) -> Result<Vec<[f64; 4]>> {
    let socket = Site::socket(&site.middle, (MIDDLE_UP, PORT).into())?;
    let entries = signalbox_node::Config::default().entries();
    let config = IoConfig { entries, ipv6: false, intercept: false, ..IoConfig::default() };
    let mut io = site.source.run(|| Io::open(&config))??;
    beside(
        |stop| echo(&socket, stop),
        || {
            on_source(|| {
                let mut batch = Batch::new();
                for _ in 0..WARM_UP {
                    echoed(&mut io, &mut batch)?;
                }
                let mut all = Vec::new();
                for (gap, _) in GAPS {
                    let mut times = Vec::new();
                    for _ in 0..timed {
                        times.push(echoed(&mut io, &mut batch)?);
                        pause(gap);
                    }
                    let [p50, p99] = quantiles(times);
                    all.push([p50, p99, f64::NAN, f64::NAN]);
                }
                Ok(all)
            })
        },
    )
}

fn echo(socket: &UdpSocket, stop: &AtomicBool) -> Result<()> {
    socket.set_read_timeout(Some(STEP))?;
    let mut octets = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        // An error is the end of the wait.
        if let Ok((length, from)) = socket.recv_from(&mut octets) {
            socket.send_to(octets.get(..length).unwrap_or_default(), from)?;
        }
    }
    Ok(())
}

/// Sends a datagram, and returns how long it took until it was back.
fn echoed(io: &mut Io, batch: &mut Batch) -> Result<Duration> {
    let start = Instant::now();
    io.send(&Transmit {
        entry: signalbox_core::Entry::Udp(PORT),
        src: SocketAddr::new(SOURCE.into(), PORT),
        dst: SocketAddr::new(MIDDLE_UP.into(), PORT),
        ifindex: None,
        gateway: None,
        ttl: 64,
        tos: 0,
        dont_fragment: false,
        flow_label: 0,
        unproved: false,
        options: &[],
        payload: &[0; QUERY],
    });
    io.flush();
    loop {
        if io.wait(Some(Duration::ZERO)).context("cannot wait for the echo")?.packets
            && io.receive(batch).context("cannot receive the echo")? > 0
        {
            return Ok(start.elapsed());
        }
        ensure!(start.elapsed() < PATIENCE, "the echo did not come back");
    }
}
