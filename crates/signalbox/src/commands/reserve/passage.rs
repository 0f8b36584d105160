//! The passage through firewalls and NATs that `--pinhole` opens for the flow of a reservation.

use std::io::Write;

use anyhow::{Context, Result};
use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_response::Event;

use super::ReserveArgs;
use crate::client::{Loss, Termination};
use crate::commands::pinhole::{Call, RELEASE_TIMEOUT, text};
use crate::print::json_event;

/// An open passage.
pub(in crate::commands) struct Passage {
    call: Call,
    json: bool,
    granted: bool,
    ended: bool,
}

/// What became of the request for a passage.
pub(super) enum Opening {
    Open(Box<Passage>),
    Refused(Loss),
    /// The command is to end.
    Stopped,
}

impl Passage {
    /// Opens the path of the flow.
    pub(super) async fn open(arguments: &ReserveArgs, termination: &mut Termination) -> Result<Opening> {
        let call = Call::open(&arguments.node.socket, request(arguments)?).await?;
        let mut passage = Self { call, json: arguments.output.json, granted: false, ended: false };
        loop {
            let event = tokio::select! {
                event = passage.next() => event?,
                () = termination.wait() => {
                    passage.close().await?;
                    return Ok(Opening::Stopped);
                }
            };
            match event {
                Event::Granted(_) => return Ok(Opening::Open(Box::new(passage))),
                Event::Failed(failure) => return Ok(Opening::Refused(Loss::of(&failure, None))),
                Event::Released(_) => return Ok(Opening::Refused(Loss::because("it was closed"))),
                Event::Started(_)
                | Event::Accepted(_)
                | Event::Ended(_)
                | Event::Notified(_)
                | Event::Retrying(_) => {}
            }
        }
    }

    /// Waits until a node on the path does not hold the passage any more.
    pub(super) async fn lost(&mut self) -> Result<()> {
        while !self.ended {
            self.next().await?;
        }
        Ok(())
    }

    /// Closes the passage, if it stands.
    pub(super) async fn close(mut self) -> Result<()> {
        self.call.release().await;
        // If the daemon does not answer in time, it closes the passage when the call ends.
        tokio::time::timeout(RELEASE_TIMEOUT, self.lost()).await.unwrap_or(Ok(()))
    }

    /// The next event, which it prints.
    async fn next(&mut self) -> Result<Event> {
        loop {
            let response = self.call.next().await?;
            let response = response.context("the daemon ended before the passage was closed")?;
            // This command does not know an event of a newer daemon.
            let Some(event) = &response.event else { continue };
            let mut out = std::io::stdout();
            if self.json {
                json_event(&mut out, &response)?;
            } else {
                text(&mut out, event, self.granted)?;
            }
            out.flush()?;
            self.granted |= matches!(event, Event::Granted(_));
            self.ended = matches!(event, Event::Failed(_) | Event::Released(_));
            return Ok(event.clone());
        }
    }
}

/// The passage for the packets of the reservation. Packets of every code point pass.
fn request(arguments: &ReserveArgs) -> Result<v1::PinholeOpen> {
    let flow = v1::FlowSpec { dscp: None, ..arguments.request.flow()? };
    Ok(v1::PinholeOpen {
        protocol: v1::Protocol::Natfw.into(),
        action: v1::PinholeAction::Open.into(),
        flow: Some(flow),
        proxy: arguments.proxy,
        session_auth: arguments.request.authority.token.as_ref().map(|token| token.0.clone()),
        ..v1::PinholeOpen::default()
    })
}
