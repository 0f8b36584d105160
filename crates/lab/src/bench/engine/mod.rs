//! `bench gist-engine`: a middle node in memory.

mod post;
mod world;

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use signalbox_core::rng::Random;
use signalbox_linux::memory;

use super::{Goal, machine, print, rounded};
use world::{Flow, Meter, SetUp, World};

/// Sessions that are set up at once.
const BATCH: usize = 512;
/// Data messages between two looks at the clock.
const DATA_BATCH: usize = 256;
const BYTES_GOAL: f64 = 300.0;
const DATA_GOAL_NS: f64 = 1000.0;
const GROWTH_GOAL: f64 = 2.5;
const MAX_SESSIONS: u32 = 100_000_000;

/// Options of `bench gist-engine`.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// Sessions that the node holds; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)))]
    pub sessions: Vec<u32>,
    /// Data messages that are measured with each number of sessions
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub messages: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What was measured with one number of sessions.
struct Outcome {
    sessions: u32,
    bytes_per_session: f64,
    data_ns: f64,
    data_ns_best: f64,
    responding_ns: f64,
    querying_ns: f64,
}

/// Whether a UDP payload is a GIST Data message.
pub(super) fn is_data(payload: &[u8]) -> bool {
    post::Kind::of(payload) == post::Kind::Data
}

pub(super) fn run(args: &EngineArgs) -> Result<()> {
    let outcomes = match args.sessions.as_slice() {
        [sessions] => vec![measure(*sessions, args.messages)?],
        // A process of its own for each number: memory given back by one run would hide what the next takes.
        many => many.iter().map(|sessions| in_child(*sessions, args.messages)).collect::<Result<_>>()?,
    };
    let goals = goals(&outcomes);
    if args.json {
        let report = json!({
            "bench": "gist-engine",
            "machine": machine::describe(),
            "messages": args.messages,
            "runs": outcomes.iter().map(Outcome::json).collect::<Vec<_>>(),
            "goals": goals.iter().map(Goal::json).collect::<Vec<_>>(),
        });
        print(&report.to_string());
    } else {
        print(&table(&outcomes, &goals)?);
    }
    Ok(())
}

fn goals(outcomes: &[Outcome]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let Some(most) = outcomes.iter().max_by_key(|outcome| outcome.sessions) else { return goals };
    goals.push(Goal::at_most("bytes per session", "at most 300", BYTES_GOAL, most.bytes_per_session));
    goals.push(Goal::at_most("ns per Data message", "under 1000", DATA_GOAL_NS, most.data_ns));
    if let Some(least) =
        outcomes.iter().min_by_key(|outcome| outcome.sessions).filter(|least| least.sessions < most.sessions)
    {
        let growth = most.data_ns / least.data_ns;
        goals.push(Goal::at_most(
            "Data, most sessions against fewest",
            "at most 2.5 times",
            GROWTH_GOAL,
            growth,
        ));
    }
    goals
}

fn table(outcomes: &[Outcome], goals: &[Goal]) -> Result<String> {
    let mut text = format!(
        "{:>9}  {:>13}  {:>11}  {:>11}  {:>18}  {:>16}\n",
        "sessions", "bytes/session", "ns/Data", "best ns", "ns/handshake resp.", "ns/handshake qry"
    );
    for outcome in outcomes {
        writeln!(
            text,
            "{:>9}  {:>13.1}  {:>11.0}  {:>11.0}  {:>18.0}  {:>16.0}",
            outcome.sessions,
            outcome.bytes_per_session,
            outcome.data_ns,
            outcome.data_ns_best,
            outcome.responding_ns,
            outcome.querying_ns
        )?;
    }
    for goal in goals {
        write!(text, "\n{goal}")?;
    }
    Ok(text)
}

impl Outcome {
    fn json(&self) -> Value {
        json!({
            "sessions": self.sessions,
            "bytes_per_session": rounded(self.bytes_per_session),
            "ns_per_data": rounded(self.data_ns),
            "ns_per_data_best": rounded(self.data_ns_best),
            "ns_per_handshake_responding": rounded(self.responding_ns),
            "ns_per_handshake_querying": rounded(self.querying_ns),
            "ns_per_handshake": rounded(f64::midpoint(self.responding_ns, self.querying_ns)),
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            sessions: value["sessions"].as_u64()?.try_into().ok()?,
            bytes_per_session: value["bytes_per_session"].as_f64()?,
            data_ns: value["ns_per_data"].as_f64()?,
            data_ns_best: value["ns_per_data_best"].as_f64()?,
            responding_ns: value["ns_per_handshake_responding"].as_f64()?,
            querying_ns: value["ns_per_handshake_querying"].as_f64()?,
        })
    }
}

fn in_child(sessions: u32, messages: u32) -> Result<Outcome> {
    let program = std::env::current_exe().context("cannot find the own program")?;
    let output = Command::new(program)
        .args(["bench", "gist-engine", "--json"])
        .args(["--sessions", &sessions.to_string(), "--messages", &messages.to_string()])
        .output()
        .context("cannot start the own program again")?;
    ensure!(
        output.status.success(),
        "{sessions} sessions: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let report: Value = serde_json::from_slice(&output.stdout).context("the run printed no JSON")?;
    report["runs"].get(0).and_then(Outcome::from_json).context("the run printed no result")
}

fn measure(sessions: u32, messages: u32) -> Result<Outcome> {
    // All that the benchmark itself needs is made, and touched, before memory is looked at.
    let capacity = sessions.saturating_add(u32::try_from(BATCH)?);
    let mut flows: Vec<Flow> = (0..capacity).map(Flow::numbered).collect();
    let order = shuffled(sessions);
    let mut made = Vec::new();
    let mut world = World::new(capacity)?;

    // One batch warms up: the neighbours and the post offices have their size from then on.
    let (warm, rest) = flows.split_at_mut(BATCH);
    world.set_up(warm, &mut SetUp::default())?;
    let before = memory::resident()?;
    let mut set_up = SetUp::default();
    for batch in rest.chunks_mut(BATCH) {
        world.set_up(batch, &mut set_up)?;
    }
    let after = memory::resident()?;

    let mut all = Meter::default();
    let mut best = f64::INFINITY;
    let mut left = usize::try_from(messages)?;
    for chunk in order.chunks(DATA_BATCH).cycle() {
        let mut cost = Meter::default();
        let picked = chunk.iter().filter_map(|number| rest.get(usize::try_from(*number).ok()?)).copied();
        world.data(picked, &mut made, &mut cost)?;
        all.time += cost.time;
        all.messages += cost.messages;
        best = best.min(cost.ns_each());
        left = left.saturating_sub(chunk.len());
        if left == 0 {
            break;
        }
    }
    let [query, _, confirm, first_data, _] = set_up.from_up;
    let [_, response, ..] = set_up.from_down;
    let each = |meters: &[Meter]| {
        let time = meters.iter().map(|meter| meter.time.as_secs_f64()).sum::<f64>();
        time * 1e9 / f64::from(sessions)
    };
    Ok(Outcome {
        sessions,
        bytes_per_session: grown(before, after) / f64::from(sessions),
        data_ns: all.ns_each(),
        data_ns_best: best,
        responding_ns: each(&[query, confirm]),
        querying_ns: each(&[first_data, response]),
    })
}

fn grown(before: u64, after: u64) -> f64 {
    after.saturating_sub(before) as f64
}

/// The numbers below `count` in an order that no cache foresees, the same each time.
fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut random = Random::from_number(1);
    for last in (1..order.len()).rev() {
        let other = random.range(0..u64::try_from(last + 1).unwrap_or(1));
        order.swap(last, usize::try_from(other).unwrap_or(last));
    }
    order
}
