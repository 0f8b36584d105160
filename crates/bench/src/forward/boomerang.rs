//! `bench forward boomerang`: the daemon between two namespaces, and a forwarder without any protocol in its place.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, SockaddrIn, sendmmsg, socket,
};
use serde_json::json;
use signalbox_boomerang::engine::{ENTRY, INTERPRETED};
use signalbox_boomerang::kit::{flow, message};
use signalbox_boomerang::wire::{Ends, Message, Pass, Qos, Rates};
use signalbox_core::metrics::Subsystem;
use signalbox_core::{AlertRule, EntryRequest, Intercept};
use signalbox_lab::machine::Watch;
use signalbox_linux::{Io, IoConfig};

use super::super::judged::{Judged, faster};
use super::super::{Goal, rounded};
use super::site::{self, Daemon, SINK, SOURCE, Site};
use super::tun;
use super::{Lane, SOURCE_PROCESSOR, Step, beside, pass_on, settle, table};

/// Messages per system call.
const BURST: usize = 32;
/// The time that the first messages may take to make their reservations.
const SET_UP: Duration = Duration::from_secs(10);
const RATIO_GOAL: f64 = 0.6;
const RATE_GOAL: f64 = 200_000.0;
/// No policy and no limit of rates, and reservations that the kernel does not keep: the measured messages are refreshes.
const SETTINGS: &str = "node.protocols = [\"boomerang\"]\n[boomerang]\nsource_rate = \"0/s\"\nmax_refresh = \"255s\"\n\
     [policy]\ndefault = \"allow\"\n[enforcement]\nmode = \"off\"\n[interfaces.\"*\"]\ncapacity = \"10gbit\"\n";

/// Options of `bench forward boomerang`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench forward boomerang
  signalbox bench forward boomerang --flows 1000 --rates 100000,200000 --seconds 5 --json")]
pub struct BoomerangForwardArgs {
    /// Reservations whose refreshes are sent, in turn
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=20_000))]
    pub flows: u16,
    /// Messages per second to offer, one after the other
    #[arg(long, value_name = "N", value_delimiter = ',',
          default_values_t = [50_000, 100_000, 150_000, 200_000, 250_000, 300_000, 400_000],
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rates: Vec<u64>,
    /// Seconds at each rate
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub seconds: u64,
    /// Measure another interception, too: mark and route to a TUN device
    #[arg(long)]
    pub tun: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

pub(in super::super) fn run(args: &BoomerangForwardArgs) -> Result<()> {
    let watch = Watch::start();
    let site = Site::build()?;
    site.silence()?;
    let messages = messages(args.flows);
    let node = {
        let _daemon = Daemon::start(&site, SETTINGS)?;
        set_up(&site, &messages)?;
        Lane { name: "node", steps: sweep(&site, args, &messages)? }
    };
    let bare = Lane { name: "bare", steps: through_bare(&site, args, &messages)? };
    let tun = args.tun.then(|| through_tun(&site, args, &messages)).transpose()?;
    let tun = tun.map(|steps| Lane { name: "TUN", steps });
    let size = messages.first().map_or(0, Vec::len);
    let ratio = node.best() / bare.best().max(1.0);
    let goals = vec![
        Goal::at_least("messages per second without loss", "over 200000", RATE_GOAL, node.lossless()),
        Goal::at_least("node against bare forwarder", "at least 0.6", RATIO_GOAL, ratio),
    ];
    let faults = faster("node", node.best(), bare.best()).into_iter().collect();
    let figures = json!({
        "flows": args.flows,
        "message_octets": size,
        "node": node.json(),
        "bare": bare.json(),
        "tun": tun.as_ref().map(Lane::json),
        "ratio": rounded(ratio),
    });
    let lanes: Vec<Lane> = [node, bare].into_iter().chain(tun).collect();
    let text = table(size, &lanes)?;
    Judged::new("boomerang-forward", &watch, goals, faults).print(args.json, &figures, &text)
}

/// A request for each flow, from the ICMP header on.
fn messages(flows: u16) -> Vec<Vec<u8>> {
    let (src, dst) = (IpAddr::V4(SOURCE), IpAddr::V4(SINK));
    let one = |number: u16| {
        let mut flow = flow(src, dst, 4000);
        flow.classifier.dst_port = 20_000 + number;
        let qos = Qos::BitRate(Rates { forward: 64_000, reverse: 0 });
        let first = message(Pass::Request, flow, qos);
        let message = Message { sequence: number, transaction: number.into(), refresh: 255, ..first };
        let mut octets = Vec::new();
        message.encode(&Ends { src, dst }, &mut octets);
        octets
    };
    (0..flows).map(one).collect()
}

/// Sends each message until all have passed the daemon once, so that every further one is a refresh.
fn set_up(site: &Site, messages: &[Vec<u8>]) -> Result<()> {
    let deadline = Instant::now() + SET_UP;
    loop {
        let before = site.echoes()?;
        // The rate leaves time for the first messages, which make reservations.
        send(site, messages, 5000, Duration::from_secs_f64(messages.len() as f64 / 5000.0 + 0.01))?;
        settle(|| site.echoes())?;
        if site.echoes()? - before >= messages.len() as u64 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the daemon does not forward every message");
    }
}

/// Sends at each rate from a thread of its own, bound to its processor, and counts what arrives.
fn sweep(site: &Site, args: &BoomerangForwardArgs, messages: &[Vec<u8>]) -> Result<Vec<Step>> {
    let span = Duration::from_secs(args.seconds);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            site::pin(SOURCE_PROCESSOR)?;
            args.rates.iter().map(|rate| step(site, messages, *rate, span)).collect()
        });
        worker.join().map_err(|_| anyhow::anyhow!("the source panicked"))?
    })
}

fn step(site: &Site, messages: &[Vec<u8>], rate: u64, span: Duration) -> Result<Step> {
    let arrived = site.echoes()?;
    let (sent, time) = send(site, messages, rate, span)?;
    settle(|| site.echoes())?;
    let arrived = site.echoes()? - arrived;
    Ok(Step {
        offered: rate,
        sent,
        arrived,
        // The kernel does not count what finds no room in the queue where this program could read it.
        overrun: sent.saturating_sub(arrived),
        seconds: time.as_secs_f64(),
    })
}

/// Sends `messages`, one after the other and again from the start, `rate` a second for `span`. Returns how many were sent,
/// and how long it took.
fn send(site: &Site, messages: &[Vec<u8>], rate: u64, span: Duration) -> Result<(u64, Duration)> {
    let open = || socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Icmp);
    let socket = site.source.run(open)?.context("cannot open a raw socket")?;
    let to = [Some(SockaddrIn::new(10, 91, 2, 2, 0)); BURST];
    debug_assert_eq!(SINK.octets(), [10, 91, 2, 2]);
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BURST, None);
    let gap = Duration::from_secs_f64(BURST as f64 / rate as f64);
    let mut queue = messages.iter().cycle();
    let start = Instant::now();
    let (mut due, mut sent) = (start, 0);
    while due - start < span && start.elapsed() < span {
        // A busy loop keeps the rate even; sleeping would make bursts.
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        due += gap;
        let burst: Vec<[std::io::IoSlice<'_>; 1]> =
            queue.by_ref().take(BURST).map(|message| [std::io::IoSlice::new(message)]).collect();
        match sendmmsg(socket.as_raw_fd(), &mut headers, &burst, to, [], MsgFlags::empty()) {
            Ok(done) => sent += done.count() as u64,
            // No buffer: these are not offered.
            Err(Errno::EAGAIN | Errno::ENOBUFS) => {}
            Err(error) => return Err(error).context("the source cannot send"),
        }
    }
    Ok((sent, start.elapsed()))
}

/// The same messages through the daemon's own sockets, without any protocol: each is sent on as it came.
fn through_bare(site: &Site, args: &BoomerangForwardArgs, messages: &[Vec<u8>]) -> Result<Vec<Step>> {
    let intercept = Intercept::passing(AlertRule::NotRequired, INTERPRETED.to_vec());
    let entry = EntryRequest::local(ENTRY, Subsystem::protocol("bare")).with_intercept(intercept);
    let config = IoConfig { entries: vec![entry], ipv6: false, ..IoConfig::default() };
    let io = site.middle.run(|| Io::open(&config))??;
    beside(|stop| pass_on(io, stop), || sweep(site, args, messages))
}

/// The same messages through a TUN device.
fn through_tun(site: &Site, args: &BoomerangForwardArgs, messages: &[Vec<u8>]) -> Result<Vec<Step>> {
    let device = tun::divert(site)?;
    beside(|stop| tun::forward(device, stop), || sweep(site, args, messages))
}
