//! The end of a command that runs until it is stopped.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// What ends a command: Ctrl-C, SIGTERM, or the end of its time.
pub(crate) struct Termination {
    interrupt: Signal,
    terminate: Signal,
    end: Option<Instant>,
}

impl Termination {
    /// From now on, the signals no longer kill the process. `hold` is the time after which the command ends by itself.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub(crate) fn new(hold: Option<Duration>) -> Result<Self> {
        let cannot = "cannot wait for signals";
        let interrupt = signal(SignalKind::interrupt()).context(cannot)?;
        let terminate = signal(SignalKind::terminate()).context(cannot)?;
        let mut termination = Self { interrupt, terminate, end: None };
        termination.end_after(hold);
        Ok(termination)
    }

    /// Sets the end: after `hold` from now; `None` removes it.
    pub(crate) fn end_after(&mut self, hold: Option<Duration>) {
        self.end = hold.map(|hold| Instant::now() + hold);
    }

    /// Waits until the command is to end. May be called again for a second signal.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = wait_until(self.end) => self.end = None,
        }
    }
}

/// Waits until `end`; `None` never comes.
pub(crate) async fn wait_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}
