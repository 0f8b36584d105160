//! What monitoring systems see of the daemon: counters, gauges and histograms, as metric families.
//!
//! The event loop copies the numbers into a [`Snapshot`], in one bounded turn. The control thread makes families of
//! it, for gRPC and for HTTP.

mod families;
mod histogram;
pub(crate) mod http;
mod measured;
#[cfg(test)]
mod tests;

use signalbox_core::Counter;
use signalbox_core::metrics::{Family, Gauge};

pub(crate) use families::families;
pub(crate) use measured::{Measure, Measurements};

use crate::view::View;
use histogram::Histogram;

/// All numbers at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Counters of the daemon, its sockets and the node.
    pub(crate) counters: Vec<Counter>,
    /// Gauges of the node.
    pub(crate) gauges: Vec<Gauge>,
    /// Histograms of the daemon.
    pub(crate) histograms: Vec<Measured>,
    /// When the daemon started, in microseconds since 1970.
    pub(crate) start_unix_us: u64,
}

/// A histogram with its name.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    family: &'static Family,
    /// Values of the family's labels.
    labels: Vec<&'static str>,
    histogram: Histogram,
}

impl Snapshot {
    /// Copies the numbers of a view.
    pub(crate) fn take(view: &View<'_>) -> Self {
        Self {
            counters: view.kernel.counters(view.node),
            gauges: view.node.gauges(),
            histograms: view.kernel.histograms(),
            start_unix_us: view.kernel.start_unix_us(),
        }
    }
}
