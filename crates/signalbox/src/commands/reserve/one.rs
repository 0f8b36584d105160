//! One reservation.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use signalbox_api::v1;
use signalbox_api::v1::reserve_response::Event;
use tokio::time::Instant;

use super::hold::{Progress, hold};
use super::passage::{Opening, Passage};
use super::{ReserveArgs, print};
use crate::arguments::microseconds;
use crate::client::{self, End, Retry, Termination};
use crate::exit::Exit;
use crate::print::{json_event, now_unix_us};

/// Reserves, and asks again after a loss.
pub(super) async fn run(arguments: &ReserveArgs, mut open: v1::ReserveOpen) -> Result<Exit> {
    let mut termination = Termination::new(None)?;
    let mut retry = Retry::new(arguments.retry.asks_again());
    let start = arguments.start_in.map(|wait| Instant::now() + wait);
    let mut ends = None;
    loop {
        let mut progress = Progress::new(arguments.confirms(), arguments.accepts_part());
        let end = attempt(arguments, &open, &mut termination, &mut progress).await;
        if progress.stood && retry.granted() {
            let begins = start.map_or(progress.since, |start| start.max(progress.since));
            ends = arguments.lifetime.hold.map(|hold| begins + hold);
        }
        if let Some(exit) = retry.after(end, &mut termination, |retrying| say(arguments, retrying)).await? {
            return Ok(exit);
        }
        if let Some(ends) = ends {
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Exit::No);
            }
            keep_end(&mut open, left);
        }
    }
}

/// The next request ends when the first one would have ended. `left`: the time until then. What was reserved in advance keeps its start, also
/// when it has begun: the session follows from it, and the time to hold counts from it.
fn keep_end(open: &mut v1::ReserveOpen, left: Duration) {
    if open.start_unix_us.is_none() {
        open.hold_us = Some(microseconds(left));
    }
}

/// Prints that it is asked for again.
fn say(arguments: &ReserveArgs, retrying: v1::Retrying) -> Result<()> {
    let response =
        v1::ReserveResponse { time_unix_us: now_unix_us(), event: Some(Event::Retrying(retrying)) };
    print_event(&mut std::io::stdout(), arguments, &response)
}

fn print_event(out: &mut impl Write, arguments: &ReserveArgs, response: &v1::ReserveResponse) -> Result<()> {
    // This command does not know an event of a newer daemon.
    let Some(event) = &response.event else { return Ok(()) };
    if arguments.output.json {
        json_event(out, response)?;
    } else {
        print::text(out, event, arguments)?;
    }
    Ok(out.flush()?)
}

/// Opens the path if `--pinhole` asks for it, reserves, and closes the path again.
async fn attempt(
    arguments: &ReserveArgs,
    open: &v1::ReserveOpen,
    termination: &mut Termination,
    progress: &mut Progress,
) -> Result<End> {
    let mut each = |response| print_event(&mut std::io::stdout(), arguments, &response);
    if !arguments.pinhole {
        let channel = client::channel(&arguments.node.socket).await?;
        return hold(channel, open, termination, progress, None, &mut each).await;
    }
    let mut passage = match Passage::open(arguments, termination).await? {
        Opening::Open(passage) => passage,
        Opening::Refused(loss) => return Ok(End::Lost(loss)),
        Opening::Stopped => return Ok(End::Over(Exit::No)),
    };
    let channel = client::channel(&arguments.node.socket).await?;
    let end = hold(channel, open, termination, progress, Some(&mut *passage), &mut each).await?;
    passage.close().await?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O09: after its start, a reservation in advance asks for the same time as before it, and so in the same session.
    #[test]
    fn the_next_request_ends_with_the_first_one() {
        let hold = Duration::from_secs(600);
        let now = v1::ReserveOpen { hold_us: Some(microseconds(hold)), ..v1::ReserveOpen::default() };
        let ahead = v1::ReserveOpen { start_unix_us: Some(1_700_000_000_000_000), ..now.clone() };
        for (open, hold) in [(now, Duration::from_secs(20)), (ahead, hold)] {
            let mut retry = open.clone();
            keep_end(&mut retry, Duration::from_secs(20));
            assert_eq!(retry, v1::ReserveOpen { hold_us: Some(microseconds(hold)), ..open });
        }
    }
}
