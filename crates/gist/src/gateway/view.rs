//! What users are shown.

use core::time::Duration;

use signalbox_core::pinhole::{Pinhole, PinholeId};

use super::bindings::{Purpose, State};
use super::{Gateway, id_of};

/// A binding, as users see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingView {
    /// Its id in the kernel.
    pub id: PinholeId,
    /// What it is for.
    pub purpose: Purpose,
    /// Whether the kernel has it.
    pub state: State,
    /// A Response has confirmed it.
    pub confirmed: bool,
    /// The packets and their translation.
    pub pinhole: Pinhole,
    /// Time until it expires.
    pub time_left: Duration,
}

impl Gateway {
    /// Visits the bindings from a slot on until `visit` is false, and returns the slot to go on from.
    pub fn bindings(&self, from: u32, mut visit: impl FnMut(BindingView) -> bool) -> Option<u32> {
        self.bindings.walk(from, |key, binding| {
            visit(BindingView {
                id: id_of(key),
                purpose: binding.purpose,
                state: binding.state(),
                confirmed: binding.is_confirmed(),
                pinhole: binding.pinhole.clone(),
                time_left: binding.until.since(self.now),
            })
        })
    }
}
