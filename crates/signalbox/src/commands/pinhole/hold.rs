//! A passage, held until the command is stopped.

use std::io::Write;

use anyhow::{Result, bail};
use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_response::Event;
use tokio::time::Instant;

use super::accepted::Accepted;
use super::print::held;
use super::{Call, CommonArgs, RELEASE_TIMEOUT, text};
use crate::client::{End, Loss, Retry, Termination, wait_until};
use crate::exit::Exit;
use crate::print::{json_event, now_unix_us};

/// The daemon ended the call of a command that wanted to close the passage.
const ENDED: &str = "the daemon ended before the passage was closed";

/// What the command waited for, and got.
enum Wake {
    Response(Box<v1::OpenPinholeResponse>),
    /// The daemon ended the call.
    Ended,
    /// The command is to end.
    Termination,
    /// The daemon has not reported the end in time.
    Timeout,
}

/// Opens a passage, holds it until the command is stopped, closes it, and prints each event. A passage that is lost is asked for
/// again. `one_sender`: a command that waits for senders ends with the passage of the only one.
pub(super) async fn hold(open: v1::PinholeOpen, common: &CommonArgs, one_sender: bool) -> Result<Exit> {
    let mut termination = Termination::new(None)?;
    let mut retry = Retry::new(common.retry.asks_again() && open.start_unix_us.is_none());
    loop {
        let end = attempt(&open, common, one_sender, &mut termination, &mut retry).await;
        let say = |retrying| {
            let event = Some(Event::Retrying(retrying));
            print_event(common, &v1::OpenPinholeResponse { time_unix_us: now_unix_us(), event }, false)
        };
        if let Some(exit) = retry.after(end, &mut termination, say).await? {
            return Ok(exit);
        }
    }
}

fn print_event(common: &CommonArgs, response: &v1::OpenPinholeResponse, granted: bool) -> Result<()> {
    // This command ignores events of a newer daemon.
    let Some(event) = &response.event else { return Ok(()) };
    let mut out = std::io::stdout();
    if common.output.json {
        json_event(&mut out, response)?;
    } else {
        text(&mut out, event, granted)?;
        if matches!(event, Event::Granted(_)) {
            held(&mut out, common.lifetime_of_all.hold)?;
        }
    }
    Ok(out.flush()?)
}

async fn attempt(
    open: &v1::PinholeOpen,
    common: &CommonArgs,
    one_sender: bool,
    termination: &mut Termination,
    retry: &mut Retry,
) -> Result<End> {
    let mut call = Call::open(&common.node.socket, open.clone()).await?;
    let (mut started, mut granted, mut deadline) = (false, false, None);
    let mut source = None;
    let mut accepted = Accepted::default();
    loop {
        let wake = tokio::select! {
            response = call.next() => match response {
                Ok(Some(response)) => Wake::Response(Box::new(response)),
                Ok(None) => Wake::Ended,
                // Without its kind: no further attempt follows.
                Err(error) if deadline.is_some() => bail!("{ENDED}: {error:#}"),
                Err(error) => return Err(error),
            },
            () = termination.wait() => Wake::Termination,
            () = wait_until(deadline) => Wake::Timeout,
        };
        let response = match wake {
            Wake::Response(response) => *response,
            Wake::Ended if granted && deadline.is_none() => {
                return Ok(End::Lost(Loss::because("the daemon ended")));
            }
            Wake::Ended => bail!(ENDED),
            Wake::Termination if started && deadline.is_none() => {
                call.release().await;
                deadline = Some(Instant::now() + RELEASE_TIMEOUT);
                continue;
            }
            // The daemon closes a passage when the call that made it ends.
            Wake::Termination | Wake::Timeout => {
                let event = Some(Event::Released(v1::PinholeReleased {}));
                v1::OpenPinholeResponse { time_unix_us: now_unix_us(), event }
            }
        };
        print_event(common, &response, granted)?;
        let Some(event) = &response.event else { continue };
        if accepted.take(event) && one_sender && deadline.is_none() {
            call.release().await;
            deadline = Some(Instant::now() + RELEASE_TIMEOUT);
        }
        match event {
            Event::Started(begun) => {
                started = true;
                source = begun.flow.as_ref().and_then(|flow| flow.source.clone());
            }
            Event::Granted(_) | Event::Accepted(_) => {
                granted = true;
                if retry.granted() {
                    termination.end_after(common.lifetime_of_all.hold);
                }
            }
            Event::Ended(_) | Event::Notified(_) | Event::Retrying(_) => {}
            // The command is to end: it does not ask again.
            Event::Failed(_) if deadline.is_some() => return Ok(End::Over(Exit::No)),
            Event::Failed(failure) if granted => {
                return Ok(End::Lost(Loss::of_standing(failure, source.as_deref())));
            }
            Event::Failed(failure) => return Ok(End::Lost(Loss::of(failure, source.as_deref()))),
            Event::Released(_) => return Ok(End::Over(Exit::yes_if(granted && !accepted.lost()))),
        }
    }
}
