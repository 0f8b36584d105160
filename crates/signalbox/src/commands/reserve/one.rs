//! One reservation.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use signalbox_api::v1;
use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_api::v1::reserve_response::Event;

use tokio::time::Instant;

use super::passage::{Opening, Passage};
use super::{Call, RELEASE_TIMEOUT, ReserveArgs, print};
use crate::arguments::microseconds;
use crate::client::{self, End, Loss, Retry, Termination, refusal, wait_until};
use crate::exit::Exit;
use crate::print::{json_event, now_unix_us};

/// The daemon ended the call of a command that wanted to release.
const ENDED: &str = "the daemon ended before the reservation was released";

/// What the command waited for, and got.
enum Wake {
    Response(v1::ReserveResponse),
    /// The daemon ended the call.
    Ended,
    /// The command is to end.
    Termination,
    /// A node on the path does not hold the passage any more.
    Closed,
    /// The daemon has not reported the tear in time.
    Timeout,
}

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
    if !arguments.pinhole {
        return hold(arguments, open, termination, progress, None).await;
    }
    let mut passage = match Passage::open(arguments, termination).await? {
        Opening::Open(passage) => passage,
        Opening::Refused(loss) => return Ok(End::Lost(loss)),
        Opening::Stopped => return Ok(End::Over(Exit::No)),
    };
    let end = hold(arguments, open, termination, progress, Some(&mut *passage)).await?;
    passage.close().await?;
    Ok(end)
}

/// Reserves, holds the reservation until the command is stopped or the passage is lost, releases it, and prints each event.
async fn hold(
    arguments: &ReserveArgs,
    open: &v1::ReserveOpen,
    termination: &mut Termination,
    progress: &mut Progress,
    mut passage: Option<&mut Passage>,
) -> Result<End> {
    let mut client = ReservationsClient::new(client::channel(&arguments.node.socket).await?);
    let mut call = Call::open(&mut client, open.clone()).await?;
    let mut out = std::io::stdout();
    let (mut deadline, mut closed) = (None, false);
    loop {
        let lost = async {
            match passage.as_deref_mut() {
                Some(passage) => passage.lost().await,
                None => std::future::pending().await,
            }
        };
        let wake = tokio::select! {
            response = call.events.message() => match response.map_err(refusal) {
                Ok(Some(response)) => Wake::Response(response),
                Ok(None) => Wake::Ended,
                // Without its kind: no further attempt follows.
                Err(error) if deadline.is_some() && !closed => bail!("{ENDED}: {error:#}"),
                Err(error) => return Err(error),
            },
            () = termination.wait() => Wake::Termination,
            lost = lost, if !closed => {
                lost?;
                Wake::Closed
            }
            () = wait_until(deadline) => Wake::Timeout,
        };
        let response = match wake {
            Wake::Response(response) => response,
            Wake::Ended if progress.stood && deadline.is_none() => {
                return Ok(End::Lost(Loss::because("the daemon ended")));
            }
            Wake::Ended => bail!(ENDED),
            Wake::Closed => {
                closed = true;
                if deadline.is_none() {
                    call.release().await;
                    deadline = Some(Instant::now() + RELEASE_TIMEOUT);
                }
                continue;
            }
            Wake::Termination if progress.started && deadline.is_none() => {
                call.release().await;
                deadline = Some(Instant::now() + RELEASE_TIMEOUT);
                continue;
            }
            // The daemon releases a reservation when the call that made it ends.
            Wake::Termination | Wake::Timeout => {
                let event = Some(Event::Released(v1::ReserveReleased { confirmed: false }));
                v1::ReserveResponse { time_unix_us: now_unix_us(), event }
            }
        };
        print_event(&mut out, arguments, &response)?;
        let Some(event) = &response.event else { continue };
        match progress.follow(event) {
            Some(_) if closed => {
                return Ok(End::Lost(Loss::because("a node does not hold the passage any more")));
            }
            // The command is to end: it does not ask again.
            Some(End::Lost(_)) if deadline.is_some() => return Ok(End::Over(Exit::No)),
            Some(end) => return Ok(end),
            None => {}
        }
    }
}

/// The progress of one attempt.
#[derive(Debug)]
struct Progress {
    /// The far end confirms the tear.
    confirms: bool,
    /// A grant will do although the far end did not answer.
    accepts_part: bool,
    started: bool,
    /// This host's address in the flow.
    own: Option<String>,
    granted: bool,
    /// It was granted, and since when.
    stood: bool,
    since: Instant,
}

impl Progress {
    fn new(confirms: bool, accepts_part: bool) -> Self {
        Self {
            confirms,
            accepts_part,
            started: false,
            own: None,
            granted: false,
            stood: false,
            since: Instant::now(),
        }
    }

    /// Takes an event. Returns how the attempt ended if it is the last event.
    fn follow(&mut self, event: &Event) -> Option<End> {
        match event {
            Event::Started(started) => {
                self.started = true;
                self.own = started.flow.as_ref().and_then(|flow| flow.source.clone());
            }
            Event::Granted(grant) => {
                self.granted = self.accepts_part || grant.far_end != Some(false);
                if !std::mem::replace(&mut self.stood, true) {
                    self.since = Instant::now();
                }
            }
            Event::Interrupted(_) => self.granted = false,
            Event::Failed(failure) | Event::Lost(failure) => {
                return Some(End::Lost(Loss::of(failure, self.own.as_deref())));
            }
            Event::Released(released) => {
                let well = self.granted && (released.confirmed || !self.confirms);
                return Some(End::Over(Exit::yes_if(well)));
            }
            Event::ChangeRefused(_) | Event::Retrying(_) => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_shows_whether_the_reservation_stood() {
        let grant = Event::Granted(v1::PathGrant::default());
        let released = Event::Released(v1::ReserveReleased { confirmed: true });
        let mut progress = Progress::new(true, false);
        assert!(progress.follow(&Event::Started(v1::ReserveStarted::default())).is_none());
        assert!(progress.follow(&grant).is_none() && progress.started);
        assert!(matches!(progress.follow(&released), Some(End::Over(Exit::Yes))));
        let unheld = Progress::new(true, false).follow(&released);
        assert!(matches!(unheld, Some(End::Over(Exit::No))), "released before it was granted");
        assert!(matches!(progress.follow(&Event::Lost(v1::Failure::default())), Some(End::Lost(_))));
    }

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

    /// O10: a reservation that ends before the far end is no success, unless its user says that it will do.
    #[test]
    fn a_missing_far_end_is_a_failure_without_partial() {
        let grant = |far_end| Event::Granted(v1::PathGrant { far_end, ..v1::PathGrant::default() });
        let released = Event::Released(v1::ReserveReleased { confirmed: true });
        for (far_end, partial, exit) in [
            (Some(false), false, Exit::No),
            (Some(false), true, Exit::Yes),
            (Some(true), false, Exit::Yes),
            (None, false, Exit::Yes),
        ] {
            let mut progress = Progress::new(true, partial);
            assert!(progress.follow(&grant(far_end)).is_none() && progress.stood);
            let end = progress.follow(&released);
            assert!(matches!(end, Some(End::Over(status)) if status == exit), "{far_end:?} {partial}");
        }
    }

    #[test]
    fn a_tear_needs_a_confirmation_where_the_protocol_has_one() {
        let unconfirmed = Event::Released(v1::ReserveReleased { confirmed: false });
        for (confirms, exit) in [(true, Exit::No), (false, Exit::Yes)] {
            let mut progress = Progress::new(confirms, false);
            progress.follow(&Event::Granted(v1::PathGrant::default()));
            let end = progress.follow(&unconfirmed);
            assert!(matches!(end, Some(End::Over(status)) if status == exit), "{end:?}");
            progress.follow(&Event::Interrupted(v1::Failure::default()));
            let end = progress.follow(&unconfirmed);
            assert!(matches!(end, Some(End::Over(Exit::No))), "it did not stand at the end: {end:?}");
        }
    }
}
