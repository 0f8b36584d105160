//! The step `flood` with plain packets: the time that the kernels take to bring a packet over the routers, measured so that other load on
//! the machine does no harm.
//!
//! Between namespaces the kernel forwards a packet inside the call that sends it. So packets are sent in short runs. A
//! run that was held up takes longer than the best one. A run whose packets the kernel left to another thread does not
//! count; the counter of the far end, which lags behind, shows it.

use std::fs::File;
use std::io::{Read, Seek};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signalbox_linux::netns::Namespace;
use signalbox_linux::topology;

use crate::plan::Plan;
use crate::run::{kernel, wait};

/// The packets of a run, which takes a fraction of a time slice of the scheduler.
const PACKETS: u32 = 250;
/// The number of runs that count, and the greatest number of all runs.
const RUNS: usize = 2000;
const RUNS_MAX: usize = 8000;
/// Octets of a packet's payload; with its headers it has 150.
const PAYLOAD: usize = 122;
/// Prime, and more than there are ports: each run visits flows from everywhere.
const STRIDE: u64 = 7_368_787;
/// The nftables table that drops the packets at their destination, so that no ICMP error is sent.
const TABLE: &str = "signalbox_lab_cost";

/// The order to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) destination: IpAddr,
    /// The first destination port.
    pub(super) port: u16,
    /// The number of ports from the first one on.
    pub(super) flows: u32,
    /// Packets a second, all flows together.
    pub(super) rate: u32,
}

/// What came of a step.
#[derive(Debug, Clone, Default)]
pub(crate) struct CostRun {
    /// The `id` of the step.
    pub(crate) id: String,
    /// Microseconds a packet, of each run in which every packet arrived while it went on; sorted.
    pub(crate) micros: Vec<f64>,
    /// Runs that do not count: something else went on meanwhile.
    pub(crate) disturbed: usize,
}

impl CostRun {
    /// Returns the microseconds a packet when nothing else goes on.
    pub(crate) fn least(&self) -> Option<f64> {
        self.micros.first().copied()
    }
}

/// Sends the packets and measures the time.
pub(super) fn measure(plan: &Plan, order: Order, id: &str) -> Result<CostRun> {
    let Order { from, to, destination, port, flows, rate } = order;
    let flows = u64::from(flows).max(1);
    let last = u64::from(port) + flows - 1;
    let far = kernel::namespace(&plan.nodes[to].namespace)?;
    let Some(leg) = plan.path(from, destination).last().copied() else {
        bail!("no route leads to {destination}");
    };
    let (_, interface) = &plan.links[leg.link].ends[usize::from(plan.links[leg.link].ends[0].0 != to)];
    let near = kernel::namespace(&plan.nodes[from].namespace)?;
    let any: IpAddr = if destination.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = near.run(|| UdpSocket::bind(SocketAddr::new(any, 0)))??;
    let mut counter = Counter::open(&far, interface)?;
    let family = if destination.is_ipv4() { "ip" } else { "ip6" };
    topology::nft(
        &far,
        &format!(
            "table {family} {TABLE} {{\n chain in {{\n type filter hook prerouting priority -300\n \
             udp dport {}-{last} drop\n }}\n}}\n",
            port
        ),
    )
    .context("cannot drop what arrives")?;
    let pause = Duration::from_secs(PACKETS.into()) / rate.max(1);
    let mut run = CostRun { id: id.to_owned(), ..CostRun::default() };
    let mut number = 0;
    let result = (|| {
        while run.micros.len() < RUNS && run.micros.len() + run.disturbed < RUNS_MAX {
            wait::check()?;
            let begin = Instant::now();
            let before = counter.packets()?;
            match send(&socket, destination, port, flows, &mut number) {
                Some(took) if counter.packets()? >= before + u64::from(PACKETS) => {
                    run.micros.push(took.as_secs_f64() * 1e6 / f64::from(PACKETS));
                }
                _ => run.disturbed += 1,
            }
            thread::sleep(pause.saturating_sub(begin.elapsed()));
        }
        Ok(())
    })();
    let removed = topology::nft(&far, &format!("delete table {family} {TABLE}\n"));
    result.and(removed.context("cannot take away what drops"))?;
    run.micros.sort_by(f64::total_cmp);
    Ok(run)
}

/// Sends the packets of one run and returns the time; `None` if the kernel refused a packet.
fn send(socket: &UdpSocket, to: IpAddr, port: u16, flows: u64, number: &mut u64) -> Option<Duration> {
    let payload = [0; PAYLOAD];
    let start = Instant::now();
    for _ in 0..PACKETS {
        let flow = u16::try_from(number.wrapping_mul(STRIDE) % flows).unwrap_or(0);
        *number += 1;
        socket.send_to(&payload, (to, port.saturating_add(flow))).ok()?;
    }
    Some(start.elapsed())
}

/// The kernel's counter of the packets that came to an interface.
struct Counter {
    file: File,
    interface: String,
    text: String,
}

impl Counter {
    fn open(namespace: &Namespace, interface: &str) -> Result<Self> {
        // The file shows the namespace in which it was opened.
        let file = namespace.run(|| File::open("/proc/thread-self/net/dev"))??;
        Ok(Self { file, interface: format!("{interface}:"), text: String::new() })
    }

    fn packets(&mut self) -> Result<u64> {
        self.text.clear();
        self.file.rewind()?;
        self.file.read_to_string(&mut self.text)?;
        let line = self.text.lines().find_map(|line| line.trim_start().strip_prefix(&self.interface));
        let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        packets.with_context(|| format!("the kernel does not count packets of {}", self.interface))
    }
}
