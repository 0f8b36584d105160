//! The reservation of one flow.

use anyhow::{Error, Result};
use signalbox_api::v1;
use signalbox_api::v1::reserve_response::Event;
use tokio::sync::{mpsc, watch};

use super::flow::Flow;
use crate::client::{AfterAttempt, End, Retry, Shared};
use crate::commands::reserve::{Progress, Stop, hold};
use crate::print::now_unix_us;

/// What is told of a flow.
#[derive(Debug)]
pub(super) enum Report {
    Event(Flow, Box<v1::ReserveResponse>),
    /// No reservation is held, and none is asked for. The error that ended it, if that was no event.
    Over(Flow, Option<Error>),
}

/// A flow that is to have a reservation.
pub(super) struct Held {
    pub(super) flow: Flow,
    pub(super) open: v1::ReserveOpen,
    pub(super) confirms: bool,
    pub(super) accepts_part: bool,
    pub(super) asks_again: bool,
    pub(super) connection: Shared,
    pub(super) reports: mpsc::UnboundedSender<Report>,
}

/// The end of the flow, once.
struct Told {
    stopped: watch::Receiver<bool>,
    told: bool,
}

impl Stop for Told {
    async fn wait(&mut self) {
        if self.told {
            std::future::pending::<()>().await;
        }
        // The sender is gone when the program has ended.
        let _ = self.stopped.wait_for(|stopped| *stopped).await;
        self.told = true;
    }
}

impl Held {
    /// Reserves, asks again after a refusal or a loss, and releases when the flow has ended.
    pub(super) async fn keep(self, stopped: watch::Receiver<bool>) {
        let error = self.attempts(stopped).await.err();
        // The receiver is gone only when the command ends.
        let _ = self.reports.send(Report::Over(self.flow, error));
    }

    async fn attempts(&self, stopped: watch::Receiver<bool>) -> Result<()> {
        let mut retry = Retry::also_refused(self.asks_again);
        let mut stop = Told { stopped, told: false };
        let mut broken = None;
        loop {
            let mut progress = Progress::new(self.confirms, self.accepts_part);
            let end = self.attempt(&mut stop, &mut progress, &mut broken).await;
            if progress.stood {
                retry.granted();
            }
            let AfterAttempt::Retry(retrying, wait) = retry.follow(end)? else { return Ok(()) };
            if stop.told {
                return Ok(());
            }
            self.say(v1::ReserveResponse {
                time_unix_us: now_unix_us(),
                event: Some(Event::Retrying(retrying)),
            });
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.wait() => return Ok(()),
            }
        }
    }

    /// One attempt. `broken`: the number of the connection that did not serve the last one.
    async fn attempt(
        &self,
        stop: &mut Told,
        progress: &mut Progress,
        broken: &mut Option<u32>,
    ) -> Result<End> {
        let (number, channel) = self.connection.channel(*broken).await?;
        let mut each = |response| {
            self.say(response);
            Ok(())
        };
        let end = hold(channel, &self.open, stop, progress, None, &mut each).await;
        *broken = end.is_err().then_some(number).or(*broken);
        end
    }

    fn say(&self, response: v1::ReserveResponse) {
        // The receiver is gone only when the command ends.
        let _ = self.reports.send(Report::Event(self.flow, Box::new(response)));
    }
}
