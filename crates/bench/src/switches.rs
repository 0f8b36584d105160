//! `bench switches`: how long the kernel takes to switch from one thread to another on one processor.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Args;
use serde_json::json;
use signalbox_lab::machine::Watch;

use super::forward::site;
use super::judged::Judged;
use super::rounded;

/// The processor of both threads.
const PROCESSOR: usize = 0;
/// Switches before the clock starts.
const WARM_UP: u32 = 1000;

/// Options of `bench switches`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Two threads pass an octet to and fro through two pipes. A switch is half of a round trip: with a read and a write of a pipe, which the kernel's way \
from a packet to a waiting program has as well.

EXAMPLES:
  signalbox bench switches
  signalbox bench switches --rounds 100000 --json")]
pub struct SwitchesArgs {
    /// Round trips, two switches each
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    pub rounds: u32,
    /// Print one JSON object instead of a text
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &SwitchesArgs) -> Result<ExitCode> {
    let watch = Watch::start();
    let mut times = measure(args.rounds)?;
    times.sort();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let at = |place: usize| rounded(times.get(place).copied().map_or(f64::NAN, micros));
    let mean = rounded(micros(times.iter().sum::<Duration>()) / times.len() as f64);
    let (least, middle, most) = (at(0), at(times.len() / 2), at(times.len().saturating_sub(1)));
    let figures = json!({"rounds": args.rounds, "switch_us": {"least": least, "median": middle, "mean": mean, "most": most}});
    let text = format!(
        "{} switches: least {least} µs, median {middle} µs, mean {mean} µs, most {most} µs",
        2 * u64::from(args.rounds)
    );
    let faults = if least > 0.0 { Vec::new() } else { vec!["a switch took no time".to_owned()] };
    Judged::new("switches", &watch, Vec::new(), faults).print(args.json, &figures, &text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the time of a switch in each round trip.
fn measure(rounds: u32) -> Result<Vec<Duration>> {
    let (to_other, here) = (pipe()?, pipe()?);
    thread::scope(|scope| {
        let (from, mut to) = (to_other.0, here.1);
        let other = scope.spawn(move || answer(from, &mut to));
        let own = scope.spawn(move || ask(rounds, here.0, to_other.1));
        let times = own.join().map_err(|_| anyhow!("a thread panicked"))?;
        other.join().map_err(|_| anyhow!("a thread panicked"))??;
        times
    })
}

fn ask(rounds: u32, mut from: PipeReader, mut to: PipeWriter) -> Result<Vec<Duration>> {
    site::pin(PROCESSOR)?;
    let mut round = || -> Result<Duration> {
        let begin = Instant::now();
        to.write_all(&[1])?;
        from.read_exact(&mut [0])?;
        Ok(begin.elapsed() / 2)
    };
    for _ in 0..WARM_UP {
        round()?;
    }
    (0..rounds).map(|_| round()).collect()
}

/// Sends back what comes, until the other end is closed.
fn answer(mut from: PipeReader, to: &mut PipeWriter) -> Result<()> {
    site::pin(PROCESSOR)?;
    let mut octet = [0];
    while from.read(&mut octet)? > 0 {
        to.write_all(&octet)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_trip_has_a_time() {
        let times = measure(20).expect("two threads");
        assert!(times.len() == 20 && times.iter().all(|time| !time.is_zero()));
    }
}
