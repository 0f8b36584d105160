//! `[restart]`: what a planned restart keeps.

use std::time::Duration;

use crate::keys::Keys;
use crate::kind::{duration, flag};

pub(crate) const MEANING: &str =
    "What a planned stop leaves to the next start ([operation.md](operation.md#planned-restart)).";

/// `[restart]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    /// Leave a file with the sessions of neighbors, and read that of the daemon before this one.
    pub handover: bool,
    /// How long a stop leaves the queues of reservations in force for the next start; zero: it removes them.
    pub keep_queues: Duration,
    /// How long a stop leaves pinholes and bindings open for the next start; zero: it closes them.
    pub keep_pinholes: Duration,
    /// How long pinholes and bindings that a crash left stay open until a request replaces them; zero: the start closes them.
    pub adopt_pinholes: Duration,
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            handover: true,
            keep_queues: Duration::ZERO,
            keep_pinholes: Duration::from_secs(10),
            adopt_pinholes: Duration::from_secs(360),
        }
    }
}

impl Restart {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "handover",
            &mut self.handover,
            flag(),
            "At a stop, write the sessions of neighbors to a file beside the control socket (its path and `.handover`). A \
             start within a minute reads it, so that the reservations come back at once and not with the next refresh.",
        );
        keys.key(
            "keep_queues",
            &mut self.keep_queues,
            duration(Duration::ZERO..=Duration::from_secs(60)),
            "How long a stop leaves the queues of reservations in force for the next start, which adopts them: no packet of a \
             reserved flow is best effort meanwhile ([enforcement.md](enforcement.md#start-stop-crash)). It needs eBPF and \
             `handover`. `\"0s\"`: a stop removes the queues.",
        );
        keys.key(
            "keep_pinholes",
            &mut self.keep_pinholes,
            duration(Duration::ZERO..=Duration::from_secs(60)),
            "How long a stop leaves the pinholes and bindings of `natfw` and `gist_nat` open that are in the file of `handover`: their packets \
             go on passing until the next start judges them ([natfw.md](natfw.md#when-the-daemon-stops)). \
             `\"0s\"`: a stop closes them.",
        );
        keys.key(
            "adopt_pinholes",
            &mut self.adopt_pinholes,
            duration(Duration::ZERO..=Duration::from_secs(3600)),
            "How long pinholes and bindings that a crash left stay open at most, until those who asked for them ask again. Their \
             external ports are kept for them ([natfw.md](natfw.md#when-the-daemon-crashes)). `\"0s\"`: the start closes them.",
        );
        let message = "without effect: set handover = true, or remove the key";
        if !self.handover && !self.keep_queues.is_zero() {
            keys.warn(&["keep_queues"], message);
        }
    }
}
