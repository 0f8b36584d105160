//! One reservation.

use std::io::Write;

use anyhow::{Result, bail};
use signalbox_api::v1;
use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_api::v1::reserve_response::Event;

use super::passage::Passage;
use super::{Call, RELEASE_TIMEOUT, ReserveArgs, print};
use crate::client::{self, Stop, refusal, wait_until};
use crate::exit::Exit;
use crate::print::{json_event, now_unix_us};

/// What the command waited for, and got.
enum Wake {
    Response(v1::ReserveResponse),
    /// The daemon ended the call.
    Ended,
    /// The command is to end.
    Stop,
    /// A node on the path does not hold the passage any more.
    Closed,
    /// The daemon has not reported the tear in time.
    Timeout,
}

/// Opens the path if `--pinhole` asks for it, reserves, and closes the path again.
pub(super) async fn run(arguments: &ReserveArgs, open: v1::ReserveOpen) -> Result<Exit> {
    let mut stop = Stop::new(None)?;
    if !arguments.pinhole {
        return hold(arguments, open, &mut stop, None).await;
    }
    let Some(mut passage) = Passage::open(arguments, &mut stop).await? else { return Ok(Exit::No) };
    let exit = hold(arguments, open, &mut stop, Some(&mut passage)).await;
    passage.close().await?;
    exit
}

/// Reserves, holds the reservation until the command is stopped or the passage is lost, releases it, and prints each event.
async fn hold(
    arguments: &ReserveArgs,
    open: v1::ReserveOpen,
    stop: &mut Stop,
    mut passage: Option<&mut Passage>,
) -> Result<Exit> {
    let mut client = ReservationsClient::new(client::channel(&arguments.node.socket).await?);
    let mut call = Call::open(&mut client, open).await?;
    let mut out = std::io::stdout();
    let mut progress = Progress::new(arguments.confirms());
    let (mut deadline, mut closed) = (None, false);
    loop {
        let lost = async {
            match passage.as_deref_mut() {
                Some(passage) => passage.lost().await,
                None => std::future::pending().await,
            }
        };
        let wake = tokio::select! {
            response = call.events.message() => match response.map_err(refusal)? {
                Some(response) => Wake::Response(response),
                None => Wake::Ended,
            },
            () = stop.wait() => Wake::Stop,
            lost = lost, if !closed => {
                lost?;
                Wake::Closed
            }
            () = wait_until(deadline) => Wake::Timeout,
        };
        let response = match wake {
            Wake::Response(response) => response,
            Wake::Ended => bail!("the daemon ended before the reservation was released"),
            Wake::Closed => {
                closed = true;
                if deadline.is_none() {
                    call.release().await;
                    deadline = Some(tokio::time::Instant::now() + RELEASE_TIMEOUT);
                }
                continue;
            }
            Wake::Stop if progress.started && deadline.is_none() => {
                call.release().await;
                deadline = Some(tokio::time::Instant::now() + RELEASE_TIMEOUT);
                continue;
            }
            // The daemon releases a reservation when the call that made it ends.
            Wake::Stop | Wake::Timeout => {
                let event = Some(Event::Released(v1::ReserveReleased { confirmed: false }));
                v1::ReserveResponse { time_unix_us: now_unix_us(), event }
            }
        };
        // This command does not know an event of a newer daemon.
        let Some(event) = &response.event else { continue };
        if arguments.output.json {
            json_event(&mut out, &response)?;
        } else {
            print::text(&mut out, event, arguments)?;
        }
        out.flush()?;
        if let Some(exit) = progress.follow(event) {
            return Ok(if closed { Exit::No } else { exit });
        }
    }
}

/// The progress of one reservation.
#[derive(Debug)]
struct Progress {
    /// The far end confirms the tear.
    confirms: bool,
    started: bool,
    granted: bool,
}

impl Progress {
    const fn new(confirms: bool) -> Self {
        Self { confirms, started: false, granted: false }
    }

    /// Takes an event. Returns the exit status if it is the last event.
    fn follow(&mut self, event: &Event) -> Option<Exit> {
        match event {
            Event::Started(_) => self.started = true,
            Event::Granted(_) => self.granted = true,
            Event::Interrupted(_) => self.granted = false,
            Event::Failed(_) | Event::Lost(_) => return Some(Exit::No),
            Event::Released(released) => {
                return Some(Exit::yes_if(self.granted && (released.confirmed || !self.confirms)));
            }
            Event::ChangeRefused(_) => {}
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
        let mut progress = Progress::new(true);
        assert_eq!(progress.follow(&Event::Started(v1::ReserveStarted::default())), None);
        assert_eq!((progress.follow(&grant), progress.started), (None, true));
        assert_eq!(progress.follow(&released), Some(Exit::Yes));
        assert_eq!(Progress::new(true).follow(&released), Some(Exit::No), "released before it was granted");
        assert_eq!(progress.follow(&Event::Lost(v1::Failure::default())), Some(Exit::No));
    }

    #[test]
    fn a_tear_needs_a_confirmation_where_the_protocol_has_one() {
        let unconfirmed = Event::Released(v1::ReserveReleased { confirmed: false });
        for (confirms, exit) in [(true, Exit::No), (false, Exit::Yes)] {
            let mut progress = Progress::new(confirms);
            progress.follow(&Event::Granted(v1::PathGrant::default()));
            assert_eq!(progress.follow(&unconfirmed), Some(exit));
            progress.follow(&Event::Interrupted(v1::Failure::default()));
            assert_eq!(progress.follow(&unconfirmed), Some(Exit::No), "it did not stand at the end");
        }
    }
}
