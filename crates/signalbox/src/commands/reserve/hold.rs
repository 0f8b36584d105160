//! What all commands do that hold a reservation: one call of the daemon from its request to its release.

use anyhow::{Result, bail};
use signalbox_api::v1;
use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_api::v1::reserve_response::Event;
use tokio::time::Instant;
use tonic::transport::Channel;

use super::passage::Passage;
use super::{Call, RELEASE_TIMEOUT};
use crate::client::{End, Loss, Termination, refusal, wait_until};
use crate::exit::Exit;
use crate::print::now_unix_us;

/// What ends a reservation before its time.
pub(in crate::commands) trait Stop: Send {
    /// Waits for it. It may come a second time: then what is under way is left.
    fn wait(&mut self) -> impl Future<Output = ()> + Send;
}

impl Stop for Termination {
    async fn wait(&mut self) {
        Self::wait(self).await;
    }
}

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

/// Reserves, holds the reservation until it is to end or the passage is lost, and releases it. `each` takes each event.
pub(in crate::commands) async fn hold(
    channel: Channel,
    open: &v1::ReserveOpen,
    stop: &mut impl Stop,
    progress: &mut Progress,
    mut passage: Option<&mut Passage>,
    each: &mut (impl FnMut(v1::ReserveResponse) -> Result<()> + Send),
) -> Result<End> {
    let mut call = Call::open(&mut ReservationsClient::new(channel), open.clone()).await?;
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
            () = stop.wait() => Wake::Termination,
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
        let ended = response.event.as_ref().and_then(|event| progress.follow(event));
        each(response)?;
        match ended {
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
pub(in crate::commands) struct Progress {
    /// The far end confirms the tear.
    confirms: bool,
    /// A grant will do although the far end did not answer.
    accepts_part: bool,
    started: bool,
    /// This host's address in the flow.
    own: Option<String>,
    granted: bool,
    /// It was granted, and since when.
    pub(in crate::commands) stood: bool,
    pub(super) since: Instant,
}

impl Progress {
    pub(in crate::commands) fn new(confirms: bool, accepts_part: bool) -> Self {
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
