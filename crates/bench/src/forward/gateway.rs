//! `bench forward gateway`: the first Query of new flows through the daemon as a GIST-aware NAT gateway, and through programs
//! without a protocol in its place.

use std::io::ErrorKind;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Map, json};
use signalbox_core::SessionId;
use signalbox_lab::machine::Watch;
use signalbox_linux::{Io, IoConfig};
use signalbox_node::gist_nat::{Config, Gateway};

use super::super::Goal;
use super::super::figures::{Column, Row, table};
use super::super::gateway::messages;
use super::super::judged::Judged;
use super::site::{Daemon, MIDDLE_UP, PORT, SINK, SOURCE, Site};
use super::{beside, on_source, pass_on, quantiles};

/// The pauses before each message, and their names.
const GAPS: [(Duration, &str); 3] = [
    (Duration::ZERO, "back to back"),
    (Duration::from_millis(1), "gaps of 1 ms"),
    (Duration::from_millis(5), "gaps of 5 ms"),
];
/// Longer than any pause, so that a program that looks for so long never sleeps.
const BUSY: Duration = Duration::from_millis(20);
/// The port of the relay, which no rule intercepts.
const RELAY: u16 = PORT + 1;
/// The destination port of the flows, and the first source port.
const DATA: u16 = 5004;
const FIRST_PORT: u16 = 1024;
/// Flows before the clock starts.
const WARM_UP: u16 = 64;
/// The longest time that a message may take.
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(20);
const GOAL: f64 = 60.0;
const SETTINGS: &str = "node.protocols = [\"gist_nat\"]\nnode.families = [\"ipv4\"]\n\
     [gist_nat]\nquery_rate_per_source = \"0/s\"\n\
     [interfaces.middle0]\ngist_nat.side = \"inside\"\n[interfaces.middle1]\ngist_nat.side = \"outside\"\n";

const QUERY: &str = "query_p50_us";
const COLUMNS: &[Column] = &[
    Column::micros(QUERY, "Query p50"),
    Column::micros("query_p99_us", "p99"),
    Column::micros("response_p50_us", "Response p50"),
    Column::micros("response_p99_us", "p99"),
    Column::micros("refresh_p50_us", "next Query p50"),
    Column::micros("refresh_p99_us", "p99"),
];

/// Options of `bench forward gateway`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The times run from the call that sends a message inside to the one that reads it outside, one message at a time. The first \
Query of a flow asks the kernel whether it translates the flow already; the next one of the same flow does not. The other rows \
send the same datagrams: through a bare forwarder with the daemon's own sockets and interception, through a relay (recvfrom, \
sendto) without interception, and through the kernel's forwarding alone. The goal is for the gateway without the way to it \
and from it, which the row of the kernel shows. With busy polling, a program never sleeps.

EXAMPLES:
  signalbox bench forward gateway
  signalbox bench forward gateway --timed 2000 --runs 5 --json")]
pub struct GatewayForwardArgs {
    /// New flows for each gap, one at a time
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=4000))]
    pub timed: u16,
    /// How often to repeat, all rows in turn; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What stands in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Middle {
    /// The daemon, and whether it polls busily.
    Gateway(bool),
    /// Its sockets and its interception without the engine.
    Bare(bool),
    Relay,
    Kernel,
}

impl Middle {
    const ALL: [Self; 6] = [
        Self::Gateway(false),
        Self::Gateway(true),
        Self::Bare(false),
        Self::Bare(true),
        Self::Relay,
        Self::Kernel,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Gateway(false) => "gateway",
            Self::Gateway(true) => "gateway, busy polling",
            Self::Bare(false) => "bare forwarder",
            Self::Bare(true) => "bare forwarder, busy polling",
            Self::Relay => "relay",
            Self::Kernel => "kernel",
        }
    }
}

pub(in super::super) fn run(args: &GatewayForwardArgs) -> Result<()> {
    let watch = Watch::start();
    let site = Site::build()?;
    let name = |middle: Middle, gap| Row::new(format!("{}, {gap}", middle.name()));
    let mut rows = GAPS.map(|(_, gap)| Middle::ALL.map(|middle| name(middle, gap)));
    for _ in 0..args.runs {
        for (at, middle) in Middle::ALL.into_iter().enumerate() {
            let figures = through(&site, args, middle)?;
            for (row, figures) in rows.iter_mut().filter_map(|rows| rows.get_mut(at)).zip(figures) {
                row.add(&figures);
            }
        }
    }
    let goals: Vec<Goal> = rows.iter().flat_map(goals).collect();
    let rows = rows.as_flattened();
    let faults = faults(rows);
    let lanes: Map<_, _> = rows.iter().map(|row| (row.name.clone(), row.json(COLUMNS).into())).collect();
    let figures = json!({"repeated": args.runs, "flows": args.timed, "lanes": lanes});
    let about = format!("{} new flows for each gap, one message at a time; µs", args.timed);
    let text = format!("{about}\n\n{}", table("", COLUMNS, rows)?);
    Judged::new("gateway-forward", &watch, goals, faults).print(args.json, &figures, &text)
}

/// Times that cannot be. The gateway may seem to take less than the kernel's way: then the difference of their medians is below the noise.
fn faults(rows: &[Row]) -> Vec<String> {
    let early = rows.iter().filter(|row| row.median(COLUMNS, QUERY) <= 0.0);
    early.map(|row| format!("{}: a message took no time", row.name)).collect()
}

/// The goals at one gap: without and with busy polling.
fn goals(rows: &[Row; Middle::ALL.len()]) -> [Goal; 2] {
    let [gateway, busy, .., kernel] = rows.each_ref().map(|row| row.median(COLUMNS, QUERY));
    [("initial Query in the gateway", gateway), ("the same with busy polling", busy)]
        .map(|(name, time)| Goal::at_most(name, "at most 60 µs, at each gap", GOAL, time - kernel))
}

/// The figures of each gap.
fn through(site: &Site, args: &GatewayForwardArgs, middle: Middle) -> Result<Vec<[f64; 6]>> {
    let measure = |to: u16| {
        on_source(|| {
            let mut ends = Ends::open(site, middle, to)?;
            for _ in 0..WARM_UP {
                ends.flow(Duration::ZERO)?;
            }
            GAPS.iter().map(|(gap, _)| ends.measure(args.timed, *gap)).collect()
        })
    };
    let io = |busy_poll| {
        let sides = Config {
            inside: vec!["middle0".to_owned()],
            outside: vec!["middle1".to_owned()],
            ..Config::default()
        };
        let entries = vec![Gateway::entry(&sides)];
        let config = IoConfig { entries, ipv6: false, busy_poll, ..IoConfig::default() };
        site.middle.run(|| Io::open(&config))
    };
    match middle {
        Middle::Gateway(busy) => {
            let line =
                if busy { format!("io.busy_poll = \"{}ms\"\n", BUSY.as_millis()) } else { String::new() };
            let _daemon = Daemon::start(site, &format!("{line}{SETTINGS}"))?;
            measure(PORT)
        }
        Middle::Bare(busy) => {
            let io = io(if busy { BUSY } else { Duration::ZERO })??;
            beside(|stop| pass_on(io, stop), || measure(PORT))
        }
        Middle::Relay => {
            let socket = Site::socket(&site.middle, (MIDDLE_UP, RELAY).into())?;
            beside(|stop| relay(&socket, stop), || measure(RELAY))
        }
        Middle::Kernel => measure(PORT),
    }
}

fn relay(socket: &UdpSocket, stop: &AtomicBool) -> Result<()> {
    socket.set_read_timeout(Some(STEP))?;
    let mut octets = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        // An error is the end of the wait.
        if let Ok(length) = socket.recv(&mut octets) {
            socket.send_to(octets.get(..length).unwrap_or_default(), (SINK, PORT))?;
        }
    }
    Ok(())
}

/// The host inside and the one outside, which one thread serves without waiting.
struct Ends {
    inside: UdpSocket,
    outside: UdpSocket,
    /// Where the host inside sends to.
    to: SocketAddr,
    /// Whether the middle translates: only then there are Responses and next Queries.
    translates: bool,
    next: u16,
    octets: [u8; 2048],
}

impl Ends {
    fn open(site: &Site, middle: Middle, to: u16) -> Result<Self> {
        let open = |namespace, address| -> Result<UdpSocket> {
            let socket = Site::socket(namespace, SocketAddr::new(address, PORT))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        Ok(Self {
            inside: open(&site.source, SOURCE.into())?,
            outside: open(&site.sink, SINK.into())?,
            to: if middle == Middle::Relay { (MIDDLE_UP, to).into() } else { (SINK, to).into() },
            translates: matches!(middle, Middle::Gateway(_)),
            next: FIRST_PORT,
            octets: [0; 2048],
        })
    }

    fn measure(&mut self, flows: u16, gap: Duration) -> Result<[f64; 6]> {
        let mut times: [Vec<Duration>; 3] = Default::default();
        for _ in 0..flows {
            for (times, time) in times.iter_mut().zip(self.flow(gap)?) {
                times.extend(time);
            }
        }
        let [[q50, q99], [r50, r99], [n50, n99]] = times.map(quantiles);
        Ok([q50, q99, r50, r99, n50, n99])
    }

    /// A new flow: its Query, the Response, and the next Query. Returns how long each took.
    fn flow(&mut self, gap: Duration) -> Result<[Option<Duration>; 3]> {
        let number = self.next;
        self.next = self.next.checked_add(1).context("no more ports")?;
        let session = SessionId(u128::from(number).to_be_bytes());
        let (src, dst) = (SocketAddrV4::new(SOURCE, number), SocketAddrV4::new(SINK, DATA));
        let query = messages::query(src, dst, session)?;
        let (inside, outside) = (&self.inside, &self.outside);
        let (first, at, from) = passage([inside, outside], self.to, &query, gap, &mut self.octets)?;
        if !self.translates {
            return Ok([Some(first), None, None]);
        }
        let response = messages::response(self.octets.get(..at).unwrap_or_default(), SINK.into())?;
        let (answer, ..) = passage([outside, inside], from, &response, gap, &mut self.octets)?;
        let (next, ..) = passage([inside, outside], self.to, &query, gap, &mut self.octets)?;
        Ok([Some(first), Some(answer), Some(next)])
    }
}

/// Sends a message after a pause. Returns how long it took until it was read at the other end, its octets there, and its
/// source.
fn passage(
    [from, at]: [&UdpSocket; 2],
    to: SocketAddr,
    message: &[u8],
    gap: Duration,
    octets: &mut [u8],
) -> Result<(Duration, usize, SocketAddr)> {
    if !gap.is_zero() {
        thread::sleep(gap);
    }
    let start = Instant::now();
    from.send_to(message, to).context("cannot send")?;
    loop {
        match at.recv_from(octets) {
            Ok((length, source)) => return Ok((start.elapsed(), length, source)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
        ensure!(start.elapsed() < PATIENCE, "a message did not come through");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_noise_makes_faster_than_the_kernel_is_no_fault() {
        let row = |middle: Middle, time: f64| {
            let mut row = Row::new(middle.name());
            row.add(&[time; 6]);
            row
        };
        let rows = Middle::ALL.map(|middle| row(middle, if middle == Middle::Kernel { 30.0 } else { 29.5 }));
        let [gateway, _] = goals(&rows);
        assert!(gateway.reached && gateway.measured < 0.0);
        assert_eq!(faults(&rows), Vec::<String>::new());
        assert_eq!(faults(&[row(Middle::Kernel, 0.0)]), ["kernel: a message took no time"]);
    }
}
