//! What the daemon and its sockets count, beside the counters of the node.

use signalbox_core::metrics::{Family, Subsystem};
use signalbox_core::{Counter, invariant};
use signalbox_linux::Io;
use signalbox_linux::pinhole::{PinholeCounters, Pinholes};
use signalbox_linux::stream::StreamCounters;
use signalbox_linux::traffic::{Enforcer, TrafficCounters};
use signalbox_node::Node;

/// Requests over the control socket.
const API_REQUESTS: Family =
    Family::counter("api_requests", &["kind"], "Requests over the control socket, by kind.");

signalbox_core::counters! {
    /// What the daemon counts.
    pub(crate) struct DaemonCounters {
        /// Requests for information over the control socket.
        questions: u64 => API_REQUESTS { kind: "query" },
        /// Pings started over the control socket.
        pings_started: u64 => API_REQUESTS { kind: "ping" },
        /// Reservations, and queries of paths, started over the control socket.
        reservations_started: u64 => API_REQUESTS { kind: "reservation" },
        /// Passages through firewalls and NATs started over the control socket.
        passages_started: u64 => API_REQUESTS { kind: "passage" },
        /// Connections of the control socket refused because too many were open.
        connections_refused: u64,
        /// Calls over the control socket refused because too many of their kind were open.
        calls_refused: u64,
        /// Pings and reservations ended because their client did not read the events.
        clients_too_slow: u64,
        /// Times that an application of another process read so slowly that the node stopped sending to it for a time.
        applications_lagged: u64,
        /// Indications lost because an application of another process did not read them.
        indications_lost: u64,
        /// Times that receiving failed.
        receive_failed: u64,
        /// Times that the kernel failed to report which streams are ready.
        streams_failed: u64,
        /// Times that interfaces or addresses changed.
        interface_changes: u64,
        /// Times that routes changed.
        route_changes: u64,
        /// Times that packets to a neighbor went to another link-layer address than before, without a change of routes.
        neighbor_changes: u64,
        /// Of these, those that the node did not learn of, because too many of the same link waited.
        neighbor_changes_left_out: u64,
        /// Times that rules or routes of the interception were installed again, because another program had removed them.
        interception_restored: u64,
        /// Times that the policy rule of the interception was put above a rule of another program.
        interception_raised: u64,
        /// Reservations that were at a link by which their packets no longer left, found by the comparison in the background and not
        /// by a report of the kernel, and moved.
        reservations_repaired: u64,
        /// Turns of the event loop that took longer than 100 ms.
        long_turns: u64,
        /// Lines left out of the log, because their place of the code wrote 20 in that second already, or nothing read them.
        log_lines_left_out: u64,
        /// Decisions that are in no log, because it was not written in time.
        decisions_lost: u64,
        /// Lines that the audit file lacks, because the disk was full or failed.
        audit_lines_lost: u64,
    }
}

/// What the daemon and its sockets count.
pub(super) struct Counted<'a> {
    pub(super) daemon: DaemonCounters,
    /// Of each entry.
    pub(super) io: Vec<Counter>,
    pub(super) streams: &'a StreamCounters,
    /// `None` on a node that reserves nothing.
    pub(super) traffic: Option<&'a TrafficCounters>,
    /// `None` on a node that opens nothing.
    pub(super) pinholes: Option<&'a PinholeCounters>,
}

impl<'a> Counted<'a> {
    pub(super) fn new(
        daemon: DaemonCounters,
        io: &'a Io,
        enforcer: Option<&'a Enforcer>,
        pinholes: Option<&'a Pinholes>,
    ) -> Self {
        Self {
            daemon,
            io: io.counters().collect(),
            streams: io.stream_counters(),
            traffic: enforcer.map(Enforcer::counters),
            pinholes: pinholes.map(Pinholes::counters),
        }
    }

    /// All of these counters, and those of the node.
    pub(super) fn with(self, node: &Node) -> impl Iterator<Item = Counter> {
        let counter_of = |name| Counter::of(Subsystem::shared(name));
        let daemon = self.daemon.iter().map(counter_of("daemon"));
        let streams = self.streams.iter().map(counter_of("streams"));
        let traffic =
            self.traffic.into_iter().flat_map(|traffic| traffic.iter()).map(counter_of("enforcement"));
        let pinholes =
            self.pinholes.into_iter().flat_map(|pinholes| pinholes.iter()).map(counter_of("pinholes"));
        let invariants = invariant::counters();
        daemon
            .chain(self.io)
            .chain(streams)
            .chain(traffic)
            .chain(pinholes)
            .chain(node.counters())
            .chain(invariants)
    }
}
