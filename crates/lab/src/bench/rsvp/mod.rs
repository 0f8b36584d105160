//! `bench rsvp-engine`: an RSVP router in memory.

mod world;

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use signalbox_linux::memory;

use super::{Goal, machine, print, rounded};
use world::{BATCH, Kind, World};

const BYTES_GOAL: f64 = 300.0;
const SET_UP_GOAL_NS: f64 = 3000.0;
const GROWTH_GOAL: f64 = 2.5;
const MAX_SESSIONS: u32 = 10_000_000;

/// Options of `bench rsvp-engine`.
#[derive(Debug, Clone, Args)]
pub struct RsvpArgs {
    /// Sessions that the router holds; several values are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)))]
    pub sessions: Vec<u32>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What was measured with one number of sessions, nanoseconds of processor time for each message with all that comes of
/// it; admission control included.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    sessions: u32,
    /// Path state and the path's part of the session.
    path_bytes: f64,
    /// Path and reservation state.
    bytes: f64,
    /// What admission control holds beside it.
    admission_bytes: f64,
    path: f64,
    path_refresh: f64,
    resv: f64,
    resv_refresh: f64,
    resv_tear: f64,
    path_tear: f64,
}

pub(super) fn run(args: &RsvpArgs) -> Result<()> {
    let outcomes = match args.sessions.as_slice() {
        [sessions] => vec![measure(*sessions)?],
        // A process of its own for each number: memory given back by one run would hide what the next takes.
        many => many.iter().map(|sessions| in_child(*sessions)).collect::<Result<_>>()?,
    };
    let goals = goals(&outcomes);
    if args.json {
        let report = json!({
            "bench": "rsvp-engine",
            "machine": machine::describe(),
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
    goals.push(Goal::at_most("ns per set-up", "under 3000", SET_UP_GOAL_NS, most.set_up()));
    goals.push(Goal::at_most("octets of path and reservation state", "at most 300", BYTES_GOAL, most.bytes));
    if let Some(least) =
        outcomes.iter().min_by_key(|outcome| outcome.sessions).filter(|least| least.sessions < most.sessions)
    {
        let growth = most.set_up() / least.set_up();
        goals.push(Goal::at_most(
            "set-up, most sessions against fewest",
            "at most 2.5 times",
            GROWTH_GOAL,
            growth,
        ));
    }
    goals
}

fn table(outcomes: &[Outcome], goals: &[Goal]) -> Result<String> {
    let mut text = format!(
        "{:>9} {:>11} {:>8} {:>9} {:>8} {:>8} {:>10} {:>9} {:>9}\n",
        "sessions", "bytes/path", "bytes", "ns/Path", "refresh", "ns/Resv", "refresh", "ResvTear", "PathTear"
    );
    for o in outcomes {
        writeln!(
            text,
            "{:>9} {:>11.1} {:>8.1} {:>9.0} {:>8.0} {:>8.0} {:>10.0} {:>9.0} {:>9.0}",
            o.sessions,
            o.path_bytes,
            o.bytes,
            o.path,
            o.path_refresh,
            o.resv,
            o.resv_refresh,
            o.resv_tear,
            o.path_tear
        )?;
    }
    for goal in goals {
        write!(text, "\n{goal}")?;
    }
    Ok(text)
}

impl Outcome {
    /// Path and Resv through the router.
    fn set_up(&self) -> f64 {
        self.path + self.resv
    }

    fn json(&self) -> Value {
        json!({
            "sessions": self.sessions,
            "bytes_per_path": rounded(self.path_bytes),
            "bytes_per_session": rounded(self.bytes),
            "bytes_per_session_of_admission": rounded(self.admission_bytes),
            "ns_per_path": rounded(self.path),
            "ns_per_path_refresh": rounded(self.path_refresh),
            "ns_per_resv": rounded(self.resv),
            "ns_per_resv_refresh": rounded(self.resv_refresh),
            "ns_per_resv_tear": rounded(self.resv_tear),
            "ns_per_path_tear": rounded(self.path_tear),
            "ns_per_set_up": rounded(self.set_up()),
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            sessions: value["sessions"].as_u64()?.try_into().ok()?,
            path_bytes: value["bytes_per_path"].as_f64()?,
            bytes: value["bytes_per_session"].as_f64()?,
            admission_bytes: value["bytes_per_session_of_admission"].as_f64()?,
            path: value["ns_per_path"].as_f64()?,
            path_refresh: value["ns_per_path_refresh"].as_f64()?,
            resv: value["ns_per_resv"].as_f64()?,
            resv_refresh: value["ns_per_resv_refresh"].as_f64()?,
            resv_tear: value["ns_per_resv_tear"].as_f64()?,
            path_tear: value["ns_per_path_tear"].as_f64()?,
        })
    }
}

fn in_child(sessions: u32) -> Result<Outcome> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let output = Command::new(program)
        .args(["bench", "rsvp-engine", "--json", "--sessions", &sessions.to_string()])
        .output()
        .context("cannot start a process for the measurement")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    Outcome::from_json(&report["runs"][0]).context("the measuring process did not report")
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds and octets of one run")]
fn measure(sessions: u32) -> Result<Outcome> {
    let bare = memory::resident()?;
    let admission = world::admission(sessions)?;
    let admission_bytes = memory::resident()?.saturating_sub(bare);
    let mut world = World::new(sessions)?;
    // One session there and back: what is allocated once is no session's.
    for (kind, sent) in [(Kind::Path, 1), (Kind::Resv, 1), (Kind::ResvTear, 1), (Kind::PathTear, 1)] {
        world.take(kind, 0, 1, sent)?;
    }
    let before = memory::resident()?;
    let each = |time: Duration| time.as_nanos() as f64 / f64::from(sessions);
    let phase = |world: &mut World, kind, sent| -> Result<f64> {
        let mut time = Duration::ZERO;
        for first in (0..sessions).step_by(BATCH as usize) {
            let count = BATCH.min(sessions - first);
            time += world.take(kind, first, count, sent)?;
        }
        Ok(each(time))
    };
    let path = phase(&mut world, Kind::Path, 1)?;
    let with_paths = memory::resident()?;
    let resv = phase(&mut world, Kind::Resv, 1)?;
    let with_all = memory::resident()?;
    ensure!(world.state() == (sessions, sessions, sessions), "not all sessions are there");
    let path_refresh = phase(&mut world, Kind::Path, 0)?;
    let resv_refresh = phase(&mut world, Kind::Resv, 0)?;
    let resv_tear = phase(&mut world, Kind::ResvTear, 1)?;
    let path_tear = phase(&mut world, Kind::PathTear, 1)?;
    ensure!(world.state() == (0, 0, 0), "some state was left");
    drop(admission);
    let bytes = |now: u64| now.saturating_sub(before) as f64 / f64::from(sessions);
    Ok(Outcome {
        sessions,
        path_bytes: bytes(with_paths),
        bytes: bytes(with_all.saturating_sub(admission_bytes)),
        admission_bytes: admission_bytes as f64 / f64::from(sessions),
        path,
        path_refresh,
        resv,
        resv_refresh,
        resv_tear,
        path_tear,
    })
}
