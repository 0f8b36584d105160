//! Three nodes in a row in the simulator. The middle one is measured, with everything that its inputs cause.

pub(super) mod qos;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_core::{EntryRequest, Time};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Family, LinkConfig, NodeId, Sim, topology};

use super::figures::Column;
use super::machine;
use super::runs::{Bench, Limit, Repeats};

/// The first node has a queue for so many users.
const MAX_SESSIONS: u32 = 10_000;
/// A day in 2026, in microseconds since 1970.
const WALL_CLOCK_US: u64 = 1_790_000_000_000_000;
/// Virtual time between two new sessions.
const GAP: Duration = Duration::from_millis(2);
/// Virtual time after which nothing of a set-up or release is under way.
const QUIET: Duration = Duration::from_secs(2);

/// Options of a benchmark in a row of nodes.
#[derive(Debug, Clone, Args)]
pub struct RowArgs {
    /// Sessions that the router holds; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1_000, 10_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)))]
    pub sessions: Vec<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub repeats: Repeats,
}

/// A protocol with sessions over the router.
trait Sessions {
    const NAME: &'static str;
    const COMMAND: [&'static str; 2];
    /// The refresh period. Refreshes are measured for so long.
    const PERIOD: Duration;

    /// The configuration of each node, which holds this number of sessions.
    fn config(sessions: u32) -> Result<Config>;
    /// What the first node is asked before the first session.
    fn prepare() -> Option<Command>;
    /// The command that opens session `number`, from the first node to the last.
    fn open(row: &Row, number: u32) -> Result<Command>;
    /// The command that ends it.
    fn close(row: &Row, number: u32) -> Result<Command>;
    /// Sessions that the router holds.
    fn held(row: &Row) -> usize;
}

/// Processor time of the router while it is measured.
#[derive(Debug, Default)]
struct Meter {
    on: Cell<bool>,
    time: Cell<Duration>,
}

/// A node whose calls are measured.
struct Measured {
    node: Node,
    meter: Option<Rc<Meter>>,
}

impl Measured {
    fn measured<T>(meter: Option<&Meter>, work: impl FnOnce() -> T) -> T {
        let Some(meter) = meter.filter(|meter| meter.on.get()) else { return work() };
        let start = machine::processor_time().unwrap_or_default();
        let done = machine::counted(work);
        let time = machine::processor_time().unwrap_or_default().saturating_sub(start);
        meter.time.set(meter.time.get() + time);
        done
    }
}

impl NodeEngine for Measured {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        Self::measured(self.meter.as_deref(), || self.node.handle(now, input));
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        Self::measured(self.meter.as_deref(), || self.node.poll())
    }

    fn entries(&self) -> Vec<EntryRequest> {
        self.node.entries()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.node.next_deadline()
    }
}

/// The network.
struct Row {
    sim: Sim<Measured>,
    nodes: [NodeId; 3],
    meter: Rc<Meter>,
}

impl Row {
    fn new<S: Sessions>(sessions: u32) -> Result<Self> {
        let mut sim = Sim::with_seed(1);
        let meter = Rc::new(Meter::default());
        let config = S::config(sessions)?;
        // The simulator has no way to report that a configuration is wrong.
        Node::new(config.clone(), [1; 32])?;
        let nodes = [("first", false), ("router", true), ("last", false)].map(|(name, is_measured)| {
            let meter = is_measured.then(|| meter.clone());
            let config = config.clone();
            sim.add_engine(name, move |boot| {
                let node = Node::new(config.clone(), boot.seed).unwrap_or_else(|error| {
                    // It was accepted above.
                    unreachable!("{error}")
                });
                Measured { node, meter: meter.clone() }
            })
        });
        topology::chain(&mut sim, &nodes, &LinkConfig::default());
        Ok(Self { sim, nodes, meter })
    }

    fn address(&self, at: usize) -> Result<std::net::IpAddr> {
        let node = self.nodes.get(at).copied();
        node.map(|node| self.sim.address(node, Family::V4)).ok_or_else(|| anyhow::anyhow!("no node {at}"))
    }

    /// Measures the router during `work`; returns nanoseconds for each of `times`.
    fn phase(&mut self, part: &str, times: u32, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<f64> {
        self.meter.time.take();
        self.meter.on.set(true);
        let done = work(self);
        self.meter.on.set(false);
        done?;
        machine::part_ends(part, times.into())?;
        self.sim.take_events();
        Ok(self.meter.time.get().as_nanos() as f64 / f64::from(times))
    }
}

const COLUMNS: &[Column] = &[
    Column::ns("ns_per_set_up", "ns/set-up"),
    Column::ns("ns_per_refresh_period", "refresh period"),
    Column::ns("ns_per_release", "release"),
];

const LIMITS: &[Limit] = &[Limit::flat("set-up, most sessions against fewest", "ns_per_set_up")];

fn run<S: Sessions>(args: &RowArgs) -> Result<()> {
    let bench = Bench {
        name: S::NAME,
        command: S::COMMAND,
        columns: COLUMNS,
        limits: LIMITS,
        options: &[],
        repeats: &args.repeats,
    };
    bench.run(&args.sessions, measure::<S>)
}

fn measure<S: Sessions>(sessions: u32) -> Result<Vec<f64>> {
    let mut row = Row::new::<S>(sessions)?;
    let first = row.nodes[0];
    row.sim.run_for(QUIET);
    if let Some(command) = S::prepare() {
        row.sim.command(first, command);
    }
    row.sim.run_for(QUIET);
    let set_up = row.phase("set-up", sessions, |row| {
        for number in 0..sessions {
            let command = S::open(row, number)?;
            row.sim.command(first, command);
            row.sim.run_for(GAP);
        }
        row.sim.run_for(QUIET);
        Ok(())
    })?;
    let held = S::held(&row);
    ensure!(held == usize::try_from(sessions)?, "{held} of {sessions} sessions were set up");
    let refresh = row.phase("refresh period", sessions, |row| {
        row.sim.run_for(S::PERIOD);
        Ok(())
    })?;
    let release = row.phase("release", sessions, |row| {
        for number in 0..sessions {
            let command = S::close(row, number)?;
            row.sim.command(first, command);
            row.sim.run_for(GAP);
        }
        row.sim.run_for(QUIET);
        Ok(())
    })?;
    let left = S::held(&row);
    ensure!(left == 0, "{left} sessions were left");
    Ok(vec![set_up, refresh, release])
}
