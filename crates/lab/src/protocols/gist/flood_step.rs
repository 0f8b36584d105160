//! The step `flood`: Queries with invented sources, from a raw socket. Their octets are composed for the lab, as the
//! readers of the checks are.

use std::net::{IpAddr, Ipv4Addr};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use serde_json::Value;
use signalbox_core::Random;
use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::process::{Identity, Usage};
use toml::Spanned;

use super::message::GIST_PORT;
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::plan::Plan;
use crate::run::{Background, Run};
use crate::scenario::{BACKGROUND, Family, Mistake, Prefix, Scope};
use crate::steps::Step;
use crate::units::Span;
use crate::{kernel, wait};

/// The NSLP identifier of Ping, the default of its configuration.
const PING: [u8; 2] = 32_704_u16.to_be_bytes();
const MAGIC: [u8; 4] = [0x4e, 0x04, 0xbd, 0xa5];
/// The time between two looks at the clock.
const TICK: Duration = Duration::from_millis(1);

/// One thread cannot send more packets a second, nor a capture keep more.
const RATE_MAX: u32 = 100_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FloodStep {
    from: Spanned<String>,
    via: Spanned<String>,
    to: Spanned<String>,
    sources: Spanned<Prefix>,
    rate: Spanned<u32>,
    #[serde(rename = "for")]
    span: Span,
    background: Option<String>,
}

/// What came of a flood.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloodRun {
    pub(crate) from: usize,
    /// The node that received it.
    pub(crate) node: usize,
    pub(crate) sent: u64,
    pub(crate) span: Duration,
    /// The time of a processor that the node's daemon used meanwhile.
    pub(crate) cpu: Duration,
    /// Octets of the daemon's memory before and after.
    pub(crate) memory: [u64; 2],
}

impl Step for FloodStep {
    const NAME: &'static str = "flood";
    const MEANING: &'static str =
        "Sends Queries with invented sources from a raw socket to a neighbour; IPv4 only.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "the node that sends them"),
        key(
            "via",
            "node",
            "the neighbour that receives them; the use of processor and memory by its daemon is measured",
        ),
        key("to", "node", "the end of the flows that they are for"),
        key("sources", "prefix", "the sources are drawn from it"),
        key("rate", "number", "Queries a second, 1 to 100000"),
        key("for", "time", "how long"),
        key("background", "background", "go on at once; a `join` step of this name waits for the end")
            .optional(),
    ];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        scope.node(&self.from)?;
        scope.daemon(&self.via)?;
        scope.node(&self.to)?;
        scope.neighbours(&self.from, &self.via)?;
        self.background.iter().for_each(|name| scope.define(BACKGROUND, name));
        if !self.sources.as_ref().address.is_ipv4() || scope.scenario.family != Family::Ipv4 {
            return Err(Mistake::new(self.sources.span(), "a flood is IPv4"));
        }
        if (1..=RATE_MAX).contains(self.rate.as_ref()) {
            return Ok(());
        }
        Err(Mistake::new(self.rate.span(), format!("`rate` lies between 1 and {RATE_MAX}")))
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let (from, _, destination) = run.ends(self.from.as_ref(), self.to.as_ref())?;
        let via = run.node(self.via.as_ref())?;
        let rate = *self.rate.as_ref();
        run.progress(&format!(
            "{rate} Queries a second with invented sources from {} to {} for {}",
            self.from.as_ref(),
            self.to.as_ref(),
            self.span
        ));
        let order = Order {
            from,
            via,
            to: destination,
            sources: *self.sources.as_ref(),
            rate,
            span: self.span.0,
            seed: run.scenario.seed,
            daemon: run.lab.process(via)?,
        };
        let flood = Flood::start(&run.lab.plan, order)?;
        match &self.background {
            Some(name) => run.in_background(name, flood),
            None => run.evidence.record(flood.finish()?),
        }
        Ok(())
    }

    fn measure(evidence: &Evidence) -> Option<(&'static str, Value)> {
        let all: Vec<_> = evidence.all().map(|run| super::flood::measured(evidence, run)).collect();
        (!all.is_empty()).then(|| ("floods", all.into()))
    }
}

impl Background for Flood {
    fn join(self: Box<Self>, _name: &str, run: &mut Run<'_>) -> Result<()> {
        run.evidence.record(self.finish()?);
        Ok(())
    }
}

/// The order to send a flood.
#[derive(Debug, Clone, Copy)]
struct Order {
    from: usize,
    via: usize,
    to: IpAddr,
    sources: Prefix,
    rate: u32,
    span: Duration,
    seed: u64,
    /// The daemon of the node that receives them.
    daemon: Identity,
}

/// A flood that is being sent.
#[derive(Debug)]
struct Flood {
    thread: JoinHandle<Result<FloodRun>>,
}

impl Flood {
    /// Begins to send.
    fn start(plan: &Plan, order: Order) -> Result<Self> {
        let from = &plan.nodes[order.from];
        let interface = from.interfaces.iter().find(|interface| interface.peer.0 == order.via);
        let interface = interface.ok_or_else(|| anyhow!("the flood has no link to its neighbour"))?;
        let (IpAddr::V4(to), IpAddr::V4(_)) = (order.to, order.sources.address) else {
            bail!("a flood is IPv4");
        };
        let link = &plan.links[interface.link];
        let mac = |node: usize| -> Result<[u8; 6]> {
            let (_, name) = link.ends.iter().find(|(end, _)| *end == node).context("no such end")?;
            let namespace = kernel::namespace(&plan.nodes[node].namespace)?;
            let shown: Value = serde_json::from_str(&kernel::output(
                &namespace,
                "ip",
                &["-j", "link", "show", "dev", name],
            )?)?;
            mac_of(shown[0]["address"].as_str().unwrap_or_default())
                .with_context(|| format!("{name} has no Ethernet address"))
        };
        let head = [&mac(order.via)?[..], &mac(order.from)?, &[0x08, 0x00]].concat();
        let namespace = kernel::namespace(&from.namespace)?;
        let socket =
            Capture::open(&namespace, &interface.name, CaptureConfig { outgoing: false, buffer: 1 << 16 })
                .context("cannot open a raw socket for the flood")?;
        let thread = thread::spawn(move || send(&socket, &head, to, &order));
        Ok(Self { thread })
    }

    /// Waits for its end.
    fn finish(self) -> Result<FloodRun> {
        self.thread.join().map_err(|_| anyhow!("the flood panicked"))?
    }
}

fn send(socket: &Capture, head: &[u8], to: Ipv4Addr, order: &Order) -> Result<FloodRun> {
    let mut random = Random::from_number(order.seed);
    let usage = || Usage::of(&order.daemon).context("the daemon that is flooded has ended");
    let before = usage()?;
    let start = Instant::now();
    let (mut sent, mut refused) = (0_u64, 0_u64);
    while start.elapsed() < order.span {
        wait::check()?;
        let due = start.elapsed().min(order.span).as_secs_f64() * f64::from(order.rate);
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 packets")]
        while ((sent + refused) as f64) < due {
            let packet = query(source(order.sources, &mut random), to, &mut random);
            // The queue of the device may be full.
            match socket.send(&[head, &packet].concat()) {
                Ok(()) => sent += 1,
                Err(_) => refused += 1,
            }
        }
        thread::sleep(TICK);
    }
    let (after, span) = (usage()?, start.elapsed());
    Ok(FloodRun {
        from: order.from,
        node: order.via,
        sent,
        span,
        cpu: after.cpu.saturating_sub(before.cpu),
        memory: [before.memory, after.memory],
    })
}

/// Draws a host of a network.
fn source(network: Prefix, random: &mut Random) -> Ipv4Addr {
    let (IpAddr::V4(first), length) = network.network() else { return Ipv4Addr::UNSPECIFIED };
    let hosts = u32::MAX.checked_shr(length.into()).unwrap_or(0);
    Ipv4Addr::from(first.to_bits() | (random.u32() & hosts))
}

/// Composes an IP packet with a Query in Q-mode (RFC 5971 §5.1, §5.3.2, A.3), as a node sends it for a new session.
fn query(src: Ipv4Addr, dst: Ipv4Addr, random: &mut Random) -> Vec<u8> {
    let (session, cookie, identity): ([u8; 16], [u8; 8], [u8; 4]) =
        (random.array(), random.array(), random.array());
    let object = |kind: u8, value: &[u8]| {
        let words = u16::try_from(value.len() / 4).unwrap_or(0).to_be_bytes();
        [&[0, kind], &words[..], value].concat()
    };
    let mri = [&[0, 0, 0x40, 0][..], &src.octets(), &dst.octets(), &[32, 32, 0, 0]].concat();
    let nli = [&[4, 64, 0x40, 0][..], &30_000_u32.to_be_bytes(), &identity, &src.octets()].concat();
    let objects = [object(0, &mri), object(1, &session), object(2, &nli), object(5, &cookie)].concat();
    let [high, low] = u16::try_from(objects.len() / 4).unwrap_or(0).to_be_bytes();
    // Query with C-flag, R-flag set, S-flag clear: the source is the flow's.
    let header = [1, 64, high, low, PING[0], PING[1], 0x80, 0x40];
    let payload = [&MAGIC[..], &header, &objects].concat();

    let [port, length] = [GIST_PORT, u16::try_from(8 + payload.len()).unwrap_or(0)].map(u16::to_be_bytes);
    // No checksum, as UDP over IPv4 allows.
    let udp = [&port[..], &port, &length, &[0, 0], &payload].concat();
    let [high, low] = u16::try_from(24 + udp.len()).unwrap_or(0).to_be_bytes();
    let fixed = [0x46, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0];
    // With a Router Alert (RFC 2113).
    let mut ip = [&fixed[..], &src.octets(), &dst.octets(), &[148, 4, 0, 0]].concat();
    let sum = checksum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    [ip, udp].concat()
}

/// Computes the checksum of an IPv4 header (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    !u16::try_from((folded >> 16) + (folded & 0xffff)).unwrap_or(0)
}

fn mac_of(text: &str) -> Option<[u8; 6]> {
    let octets: Vec<u8> =
        text.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect::<Result<_, _>>().ok()?;
    octets.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::packet::{Datagram, Ip};
    use crate::protocols::gist::message::{Gist, Kind};

    #[test]
    fn what_is_sent_reads_as_a_query_from_the_network() {
        let mut random = Random::from_number(1);
        let network = Prefix::try_from("198.18.0.0/15".to_owned()).expect("sound");
        let mut sources = std::collections::BTreeSet::new();
        for _ in 0..50 {
            let src = source(network, &mut random);
            assert!(network.contains(src.into()));
            sources.insert(src);
            let packet = query(src, Ipv4Addr::new(10, 0, 3, 2), &mut random);
            // The sum over a header with its checksum is 0.
            assert_eq!(checksum(&packet[..24]), 0);
            let frame = [&[0; 12][..], &[8, 0], &packet].concat();
            let datagram = Ip::read(&frame).and_then(Datagram::read).expect("a datagram");
            assert_eq!((datagram.ip.src, datagram.ip.router_alert), (src.into(), Some(0)));
            let gist = Gist::read(datagram.payload).expect("a message");
            assert_eq!((gist.kind, gist.c_flag, gist.s_flag), (Kind::Query, true, false));
            assert!(gist.session.is_some());
        }
        assert!(sources.len() > 40);
    }

    #[test]
    fn addresses_of_interfaces_are_read() {
        assert_eq!(mac_of("02:00:00:0a:ff:10"), Some([2, 0, 0, 10, 255, 16]));
        assert_eq!(mac_of("02:00"), None);
    }
}
