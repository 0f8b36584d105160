//! Benchmarks of a node on real sockets, between two namespaces, and of programs without a protocol in its place.

pub(super) mod boomerang;
pub(super) mod casp;
mod end;
pub(super) mod gateway;
pub(super) mod gist;
pub(super) mod natfw;
pub(super) mod qos;
pub(super) mod rsvp;
pub(super) mod set_ups;
pub(super) mod site;
mod tcp;
mod tun;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use signalbox_core::packet::Transmit;
use signalbox_linux::{Batch, Io};

use super::rounded;

/// The source and this program on one processor, what is measured on the other.
const SOURCE_PROCESSOR: usize = 0;
const MIDDLE_PROCESSOR: usize = 1;
/// More than this share of the messages missing counts as loss.
const LOSS_ALLOWED: f64 = 0.001;
/// After this time without an arrival no packet is in transit.
const SETTLE: Duration = Duration::from_millis(50);
/// A full receive buffer of 8 MB is read much sooner than this many looks take.
const SETTLE_LOOKS: usize = 100;
/// How long a bare forwarder waits before it looks whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// One rate through one forwarder, in messages and seconds.
struct Step {
    offered: u64,
    sent: u64,
    arrived: u64,
    overrun: u64,
    seconds: f64,
}

/// All rates through one forwarder.
struct Lane {
    name: &'static str,
    steps: Vec<Step>,
}

/// Waits until no message arrives any more.
fn settle(arrived: impl Fn() -> Result<u64>) -> Result<()> {
    for _ in 0..SETTLE_LOOKS {
        let before = arrived()?;
        thread::sleep(SETTLE);
        if arrived()? == before {
            return Ok(());
        }
    }
    anyhow::bail!("messages arrive without end")
}

/// Runs `work` on a thread of its own, bound to the processor of the source.
fn on_source<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            site::pin(SOURCE_PROCESSOR)?;
            work()
        });
        worker.join().map_err(|_| anyhow::anyhow!("the source panicked"))?
    })
}

/// Runs `forward` on a thread of its own, bound to the processor for what is measured, while `work` runs. It ends when its
/// flag is set.
fn beside<T>(
    forward: impl FnOnce(&AtomicBool) -> Result<()> + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let forwarder = scope.spawn(|| {
            site::pin(MIDDLE_PROCESSOR)?;
            forward(&stop)
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        forwarder.join().map_err(|_| anyhow::anyhow!("the bare forwarder panicked"))??;
        done
    })
}

/// Waits for packets as the daemon does, for `patience` at most. The batch is empty if none came.
fn arrivals(io: &mut Io, batch: &mut Batch, patience: Duration) -> Result<()> {
    let ready = io.wait(Some(patience)).context("the bare forwarder cannot wait")?;
    if ready.changes {
        // A report of the kernel that is not taken ends each wait at once: the forwarder would never sleep.
        io.changes();
    }
    io.receive(batch).context("the bare forwarder cannot receive")?;
    Ok(())
}

/// Sends all that arrives on as it came, by the daemon's own sockets, until `stop` is set.
fn pass_on(mut io: Io, stop: &AtomicBool) -> Result<()> {
    let mut batch = Batch::new();
    while !stop.load(Ordering::Relaxed) {
        arrivals(&mut io, &mut batch, LOOK)?;
        for received in batch.iter() {
            io.send(&Transmit {
                entry: received.entry,
                src: received.src,
                dst: received.dst,
                ifindex: None,
                gateway: None,
                ttl: received.ttl.saturating_sub(1),
                tos: received.tos,
                dont_fragment: false,
                flow_label: 0,
                unproved: true,
                options: received.options,
                payload: received.payload,
            });
        }
        io.flush();
    }
    Ok(())
}

/// Returns p50 and p99 in microseconds.
fn quantiles(mut times: Vec<Duration>) -> [f64; 2] {
    times.sort();
    [50, 99].map(|percent| {
        let at = times.len().saturating_sub(1) * percent / 100;
        times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    })
}

impl Step {
    fn per_second(&self) -> f64 {
        self.arrived as f64 / self.seconds
    }

    fn loss(&self) -> f64 {
        1.0 - self.arrived as f64 / self.sent.max(1) as f64
    }

    fn json(&self) -> Value {
        json!({
            "offered_per_second": self.offered,
            "sent": self.sent,
            "arrived": self.arrived,
            "arrived_per_second": self.per_second().round(),
            "loss": rounded(self.loss()),
            "middle_overrun": self.overrun,
        })
    }
}

impl Lane {
    /// Most messages per second that arrived at any rate.
    fn best(&self) -> f64 {
        self.steps.iter().map(Step::per_second).fold(0.0, f64::max)
    }

    /// Most messages per second without loss.
    fn lossless(&self) -> f64 {
        let without = self.steps.iter().filter(|step| step.loss() <= LOSS_ALLOWED);
        without.map(Step::per_second).fold(0.0, f64::max)
    }

    fn json(&self) -> Value {
        json!({
            "messages_per_second": self.best().round(),
            "messages_per_second_without_loss": self.lossless().round(),
            "steps": self.steps.iter().map(Step::json).collect::<Vec<_>>(),
        })
    }
}

/// Returns the table of all steps, and the result of each lane below it.
fn steps_table(lanes: &[Lane]) -> Result<String> {
    let mut text = format!(
        "{:<14} {:>10} {:>10} {:>10} {:>12} {:>7}\n",
        "", "offered/s", "sent", "arrived", "arrived/s", "loss"
    );
    for lane in lanes {
        for step in &lane.steps {
            writeln!(
                text,
                "{:<14} {:>10} {:>10} {:>10} {:>12.0} {:>6.2}%",
                lane.name,
                step.offered,
                step.sent,
                step.arrived,
                step.per_second(),
                step.loss() * 100.0
            )?;
        }
    }
    Ok(text)
}

fn table(size: usize, lanes: &[Lane]) -> Result<String> {
    let mut text = format!("messages of {size} octets, one processor for what is measured\n\n");
    text.push_str(&steps_table(lanes)?);
    for lane in lanes {
        write!(
            text,
            "\n{}: at most {:.0} messages/s, {:.0} without loss",
            lane.name,
            lane.best(),
            lane.lossless()
        )?;
    }
    Ok(text)
}
