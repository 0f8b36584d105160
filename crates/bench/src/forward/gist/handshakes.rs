//! Handshakes per second: new sessions, each set up by one Ping.

use std::time::Instant;

use anyhow::{Context, Result};
use signalbox_linux::process::Usage;

use super::super::super::Goal;
use super::super::super::figures::{Column, Row};
use super::super::super::judged::nothing;
use super::super::on_source;
use super::super::set_ups::MEASURABLE;
use super::super::site::{Daemon, Site};
use super::pair::{Pair, WINDOW};
use super::{ForwardArgs, Measured, SETTINGS};

/// Sessions that are set up before the clock starts, so that what is made once does not count.
const WARM_UP: u32 = 256;
const RATE_GOAL: f64 = 80_000.0;

const COLUMNS: &[Column] = &[
    Column::whole("sessions_per_second", "sessions/s"),
    Column::whole("handshakes_per_second", "handshakes/s"),
    Column::micros("processor_us_per_handshake", "µs/handshake"),
    Column::octets("octets_per_session", "octets/session"),
];

pub(super) fn measure(site: &Site, args: &ForwardArgs) -> Result<Measured> {
    let mut rows = [Row::new("node"), Row::new("no daemon")];
    for _ in 0..args.runs {
        let [node, without] = &mut rows;
        node.add(&through_node(site, args)?);
        without.add(&on_source(|| set_up(site, args, || Ok(())))?.1);
    }
    let rate = rows[0].median(COLUMNS, "handshakes_per_second");
    let about = format!(
        "{} sessions, {WINDOW} under way at a time; the daemon is in two handshakes for each, one of both ends in one",
        args.set_ups
    );
    let goals = vec![Goal::at_least("handshakes per second", "at least 80000", RATE_GOAL, rate)];
    let octets = rows[0].median(COLUMNS, "octets_per_session");
    let faults =
        if args.set_ups < MEASURABLE { Vec::new() } else { nothing("node", octets).into_iter().collect() };
    Ok(Measured { name: "handshakes", about, columns: COLUMNS, rows: rows.into(), goals, faults })
}

fn through_node(site: &Site, args: &ForwardArgs) -> Result<[f64; 4]> {
    let daemon = Daemon::start(site, &args.daemon(SETTINGS))?;
    let process = daemon.process()?;
    let usage = || Usage::of(&process).context("the daemon has ended");
    let ([before, after], [rate, ..]) = on_source(|| set_up(site, args, usage))?;
    let sessions = f64::from(args.set_ups);
    let each = (after.cpu - before.cpu).as_secs_f64() * 1e6 / sessions / 2.0;
    Ok([rate, rate * 2.0, each, after.memory.saturating_sub(before.memory) as f64 / sessions])
}

/// Sets all sessions up. Returns what `look` saw before and after, and the rates of a path without a daemon.
fn set_up<T>(
    site: &Site,
    args: &ForwardArgs,
    mut look: impl FnMut() -> Result<T>,
) -> Result<([T; 2], [f64; 4])> {
    let mut pair = Pair::open(site, SETTINGS)?;
    pair.set_up(args.set_ups..args.set_ups + WARM_UP, WINDOW, &mut |_| {})?;
    let (before, start) = (look()?, Instant::now());
    pair.set_up(0..args.set_ups, WINDOW, &mut |_| {})?;
    let rate = f64::from(args.set_ups) / start.elapsed().as_secs_f64();
    Ok(([before, look()?], [rate, rate, f64::NAN, f64::NAN]))
}
