//! Reservations by QoS NSLP over GIST (RFC 5974): `signalbox reserve --protocol nsis` and `signalbox query`.

mod many;
mod print;
mod query;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use signalbox_api::v0;
use signalbox_api::v0::reserve_event::Event;

use super::reserve::ReserveArgs;
use crate::client::{self, Stop, answer, refusal, wait_until};

pub(super) use query::QueryArgs;

/// How long the far end may take to confirm that a reservation is torn down.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reserves, holds the reservation until the command is stopped, releases it, and prints each event.
pub(super) async fn reserve(socket: &Path, arguments: &ReserveArgs) -> Result<ExitCode> {
    if let Some(flows) = arguments.flows {
        return many::reserve(socket, arguments, flows).await;
    }
    let request = request(arguments)?;
    let mut stop = Stop::new(None)?;
    let mut client = client::connect(socket).await?;
    let mut events = answer(client.reserve(request).await)?;
    let mut out = std::io::stdout();
    let json = arguments.wanted.json;
    let mut progress = Progress::default();
    let mut deadline = None;
    loop {
        let wake = tokio::select! {
            event = events.message() => match event.map_err(refusal)? {
                Some(event) => Wake::Event(event.event),
                None => Wake::Ended,
            },
            () = stop.wait() => Wake::Stop,
            () = wait_until(deadline) => Wake::Timeout,
        };
        let event = match (wake, progress.id) {
            (Wake::Event(Some(event)), _) => event,
            // The daemon is newer than this command.
            (Wake::Event(None), _) => continue,
            (Wake::Ended, _) => bail!("the daemon ended before the reservation was released"),
            (Wake::Stop, Some(id)) if deadline.is_none() => {
                answer(client.release(v0::ReleaseRequest { id }).await)?;
                deadline = Some(tokio::time::Instant::now() + RELEASE_TIMEOUT);
                continue;
            }
            // The daemon releases a reservation when the call that made it ends.
            (Wake::Stop | Wake::Timeout, _) => {
                print::unconfirmed(&mut out, json)?;
                return Ok(ExitCode::from(1));
            }
        };
        if json {
            print::json(&mut out, &event)?;
        } else {
            print::text(&mut out, &event, arguments.hold)?;
        }
        out.flush()?;
        if let Some(code) = progress.follow(&event) {
            return Ok(ExitCode::from(code));
        }
    }
}

fn request(arguments: &ReserveArgs) -> Result<v0::ReserveRequest> {
    Ok(v0::ReserveRequest {
        wanted: Some(arguments.wanted.request()?),
        receiver_initiated: arguments.receiver_initiated,
        bidirectional: arguments.bidirectional,
        hold_ms: arguments.hold.map(|hold| u64::try_from(hold.as_millis())).transpose()?,
        priority: arguments.priority.map(Into::into),
        confirm_release: true,
        token: Vec::new(),
    })
}

/// What the command waited for, and got.
enum Wake {
    /// An event of the reservation; `None` is an event that this command does not know.
    Event(Option<Event>),
    /// The daemon ended the call.
    Ended,
    /// The command is to end.
    Stop,
    /// The far end has not confirmed the tear in time.
    Timeout,
}

/// The progress of one reservation.
#[derive(Debug, Default)]
struct Progress {
    id: Option<u64>,
    granted: bool,
}

impl Progress {
    /// Takes an event. Returns the exit status if it is the last event.
    fn follow(&mut self, event: &Event) -> Option<u8> {
        match event {
            Event::Started(started) => self.id = Some(started.id),
            Event::Granted(_) | Event::Rerouted(_) => self.granted = true,
            Event::Failed(_) | Event::Lost(_) => return Some(1),
            Event::Released(_) => return Some(u8::from(!self.granted)),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_shows_whether_the_reservation_was_granted() {
        let grant = Event::Granted(v0::PathGrant::default());
        let released = Event::Released(v0::ReserveReleased {});
        let mut progress = Progress::default();
        let started = Event::Started(v0::ReserveStarted { id: 4, ..Default::default() });
        assert_eq!(progress.follow(&started), None);
        assert_eq!((progress.follow(&grant), progress.id), (None, Some(4)));
        assert_eq!(progress.follow(&released), Some(0));
        assert_eq!(Progress::default().follow(&released), Some(1), "released before it was granted");
        assert_eq!(progress.follow(&Event::Lost(v0::PathRefusal::default())), Some(1));
    }
}
