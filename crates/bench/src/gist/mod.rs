//! `bench engine gist`: a middle node in memory.

mod post;
mod world;

use anyhow::Result;
use clap::Args;
use signalbox_linux::memory;

use super::figures::Column;
use super::machine::Meter;
use super::runs::{Bench, Limit, Repeats, shuffled};
use world::{Flow, SetUp, World};

pub(super) use post::Kind;

/// Sessions that are set up at once.
const BATCH: usize = 512;
/// Data messages between two looks at the clock.
const DATA_BATCH: usize = 256;
const MAX_SESSIONS: u32 = 100_000_000;

/// Options of `bench engine gist`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench engine gist --sessions 100000
  signalbox bench engine gist --sessions 10000,1000000 --runs 5 --json")]
pub struct GistArgs {
    /// Sessions that the node holds; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)))]
    pub sessions: Vec<u32>,
    /// Data messages that are measured with each number of sessions
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub messages: u32,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its documentation would be the help text of the command")]
    pub repeats: Repeats,
}

const COLUMNS: &[Column] = &[
    Column::octets("bytes_per_session", "bytes/session"),
    Column::ns("ns_per_data", "ns/Data"),
    Column::ns("ns_per_data_best", "best ns"),
    Column::ns("ns_per_handshake_responding", "ns/handshake resp."),
    Column::ns("ns_per_handshake_querying", "ns/handshake qry"),
    Column::ns("ns_per_handshake", ""),
];

const LIMITS: &[Limit] = &[
    Limit::size("bytes per session", "bytes_per_session"),
    Limit {
        name: "ns per Data message",
        key: "ns_per_data",
        wanted: "under 1000",
        limit: 1000.0,
        growth: false,
    },
    Limit::flat("Data, most sessions against fewest", "ns_per_data"),
];

pub(super) fn run(args: &GistArgs) -> Result<()> {
    let messages = args.messages;
    let options = &[("messages", messages)];
    let bench = Bench {
        name: "gist-engine",
        command: ["engine", "gist"],
        columns: COLUMNS,
        limits: LIMITS,
        options,
        repeats: &args.repeats,
    };
    bench.run(&args.sessions, |sessions| measure(sessions, messages))
}

fn measure(sessions: u32, messages: u32) -> Result<Vec<f64>> {
    // All that the benchmark itself needs is made, and touched, before memory is looked at.
    let capacity = sessions.saturating_add(u32::try_from(BATCH)?);
    let mut flows: Vec<Flow> = (0..capacity).map(Flow::numbered).collect();
    let order = shuffled(sessions);
    let mut made = Vec::new();
    let mut world = World::new(capacity)?;

    // One batch warms up: the neighbors and the post offices have their size from then on.
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
        all.add(cost);
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
    let (responding, querying) = (each(&[query, confirm]), each(&[first_data, response]));
    Ok(vec![
        grown(before, after) / f64::from(sessions),
        all.ns_each(),
        best,
        responding,
        querying,
        f64::midpoint(responding, querying),
    ])
}

fn grown(before: u64, after: u64) -> f64 {
    after.saturating_sub(before) as f64
}
