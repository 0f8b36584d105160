//! `[restart]`: what a planned restart keeps.

use crate::keys::Keys;
use crate::kind::flag;

pub(crate) const MEANING: &str =
    "What a planned stop leaves to the next start ([operation.md](operation.md#planned-restart)).";

/// `[restart]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    /// Leave a file with the sessions of neighbours, and read that of the daemon before this one.
    pub handover: bool,
}

impl Default for Restart {
    fn default() -> Self {
        Self { handover: true }
    }
}

impl Restart {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "handover",
            &mut self.handover,
            flag(),
            "At a stop, write the sessions of neighbours to a file beside the control socket (its path and `.handover`). A \
             start within a minute reads it, so that the reservations come back at once and not with the next refresh.",
        );
    }
}
