//! The signals that this command gets, and which of them the program gets.

use std::task::Poll;

use anyhow::{Context, Result};
use signalbox_linux::process;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals.
pub(super) struct Signals {
    /// Those for the program, by number.
    passed: Vec<(SignalKind, Signal)>,
    /// A child of this process has ended.
    child: Signal,
}

impl Signals {
    /// From now on they do not end this process. What it ignores is left: the program ignores that, too.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub(super) fn new() -> Result<Self> {
        let cannot = "cannot wait for signals";
        let mut passed = Vec::new();
        for kind in [
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::terminate(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ] {
            if !process::ignores(kind.as_raw_value()).context(cannot)? {
                passed.push((kind, signal(kind).context(cannot)?));
            }
        }
        Ok(Self { passed, child: signal(SignalKind::child()).context(cannot)? })
    }

    /// The next signal for the program; `None`: a child has ended, or the terminal has sent the signal to the program, too.
    pub(super) async fn next(&mut self) -> Option<i32> {
        let kind = std::future::poll_fn(|cx| {
            if self.child.poll_recv(cx).is_ready() {
                return Poll::Ready(None);
            }
            let mut passed = self.passed.iter_mut();
            let ready = passed.find_map(|(kind, signal)| signal.poll_recv(cx).is_ready().then_some(*kind));
            ready.map_or(Poll::Pending, |kind| Poll::Ready(Some(kind)))
        });
        let kind = kind.await?;
        let of_terminal = [SignalKind::interrupt(), SignalKind::quit()].contains(&kind);
        let told = of_terminal && process::has_terminal().unwrap_or(false);
        (!told).then(|| kind.as_raw_value())
    }
}
