//! Counters of the engine.

use signalbox_core::metrics::{
    Family, MESSAGES_DROPPED, MESSAGES_FORWARDED, MESSAGES_RECEIVED, MESSAGES_SENT, MESSAGES_UNSENT,
    RATE_LIMITED, RESERVATION_EVENTS, ROUTE_EVENTS, TABLE_FULL,
};

use crate::wire::ErrorCode;

/// Effects of received messages on state.
const UPDATES: Family = Family::counter(
    "rsvp_updates",
    &["type", "effect"],
    "Paths, and flow descriptors of Resvs, received; by their effect on the state of this node.",
);
/// Ends of path state.
const SENDER_EVENTS: Family =
    Family::counter("rsvp_sender_events", &["event"], "Senders whose path state ended, by cause.");

/// PathErrs and ResvErrs received.
const ERRORS_RECEIVED: Family = Family::counter(
    "rsvp_errors_received",
    &["code"],
    "PathErrs and ResvErrs received, by the Error Code of RFC 2205 appendix B.",
);

signalbox_core::counters! {
    /// Counters of RSVP.
    pub struct Counters {
        /// Paths received that created or changed path state.
        paths_taken: u64 => UPDATES { type: "path", effect: "changed" },
        /// Paths received that refreshed path state.
        paths_refreshed: u64 => UPDATES { type: "path", effect: "refreshed" },
        /// Paths that arrived before a planned restart and were handled again after it.
        paths_restored: u64 => UPDATES { type: "path", effect: "restored" },
        /// Resvs received that created or changed reservation state.
        resvs_taken: u64 => UPDATES { type: "resv", effect: "changed" },
        /// Flow descriptors of Resvs received that refreshed reservation state.
        resvs_refreshed: u64 => UPDATES { type: "resv", effect: "refreshed" },
        /// Paths sent, without retransmissions and without those that an Srefresh stands for.
        paths_sent: u64 => MESSAGES_SENT { type: "path" },
        /// Resvs sent, without retransmissions and without those that an Srefresh stands for.
        resvs_sent: u64 => MESSAGES_SENT { type: "resv" },
        /// PathErrs sent, including forwarded ones.
        path_errors_sent: u64 => MESSAGES_SENT { type: "path_err" },
        /// ResvErrs sent, including forwarded ones.
        resv_errors_sent: u64 => MESSAGES_SENT { type: "resv_err" },
        /// PathTears sent.
        path_tears_sent: u64 => MESSAGES_SENT { type: "path_tear" },
        /// ResvTears sent.
        resv_tears_sent: u64 => MESSAGES_SENT { type: "resv_tear" },
        /// ResvConfs sent, including forwarded ones.
        confirmations_sent: u64 => MESSAGES_SENT { type: "resv_conf" },
        /// Reservations granted, including changes.
        granted: u64 => RESERVATION_EVENTS { event: "granted" },
        /// Reservations refused by admission control or policy.
        refused: u64 => RESERVATION_EVENTS { event: "refused" },
        /// Reservations reduced for requests of higher priority.
        reduced: u64 => RESERVATION_EVENTS { event: "reduced" },
        /// Reservations lost: preempted, or their interface or the kernel failed.
        lost: u64 => RESERVATION_EVENTS { event: "lost" },
        /// Senders torn down by a message.
        senders_torn: u64 => SENDER_EVENTS { event: "torn_down" },
        /// Senders that expired without a refresh.
        senders_expired: u64 => SENDER_EVENTS { event: "expired" },
        /// Reservations torn down by a message, including parts of reservations.
        reservations_torn: u64 => RESERVATION_EVENTS { event: "torn_down" },
        /// Reservations that expired without a refresh, including parts of reservations.
        reservations_expired: u64 => RESERVATION_EVENTS { event: "expired" },
        /// Staged refreshes left out because too many were due in one second.
        staged_left_out: u64 => RATE_LIMITED { limit: "staged_refreshes" },
        /// Blockade states created.
        blockades: u64,
        /// Senders whose Paths now arrive from another previous hop.
        hop_changes: u64 => ROUTE_EVENTS { event: "peer_changed" },
        /// Senders whose route changed; their Paths were sent after the repair delay.
        repairs: u64 => ROUTE_EVENTS { event: "repaired" },
        /// Paths sent whole, because another router may have the place of the next hop.
        neighbors_followed: u64 => ROUTE_EVENTS { event: "neighbor_moved" },
        /// DREQs to which this node added its response.
        dreqs_taken: u64 => MESSAGES_RECEIVED { type: "dreq" },
        /// DREQs forwarded towards the sender about which they ask.
        dreqs_sent: u64 => MESSAGES_SENT { type: "dreq" },
        /// DREPs sent towards their requester, including fragments and forwarded ones.
        dreps_sent: u64 => MESSAGES_SENT { type: "drep" },
        /// DREQs and DREPs dropped by the rate limit.
        diagnostics_limited: u64 => RATE_LIMITED { limit: "diagnostics" },
        /// DREQs and DREPs that could not be forwarded, or that are not allowed; dropped.
        diagnostics_dropped: u64 => MESSAGES_DROPPED { reason: "diagnostic" },
        /// Errors received: not enough resources (1).
        admission_errors: u64 => ERRORS_RECEIVED { code: "admission" },
        /// Errors received: policy (2).
        policy_errors: u64 => ERRORS_RECEIVED { code: "policy" },
        /// Errors received: no path state for the session (3).
        no_path_errors: u64 => ERRORS_RECEIVED { code: "no_path" },
        /// Errors received: no path state for the sender (4).
        no_sender_errors: u64 => ERRORS_RECEIVED { code: "no_sender" },
        /// Errors received: style in conflict, or unknown (5, 6).
        style_errors: u64 => ERRORS_RECEIVED { code: "style" },
        /// Errors received: ports in conflict (7, 8).
        port_errors: u64 => ERRORS_RECEIVED { code: "ports" },
        /// Errors received: preempted (12).
        preempted_errors: u64 => ERRORS_RECEIVED { code: "preempted" },
        /// Errors received: unknown object class or type (13, 14).
        unknown_object_errors: u64 => ERRORS_RECEIVED { code: "unknown_object" },
        /// Errors received: traffic control refuses the parameters (21).
        traffic_control_errors: u64 => ERRORS_RECEIVED { code: "traffic_control" },
        /// Errors received: a system failed (22, 23).
        system_errors: u64 => ERRORS_RECEIVED { code: "system" },
        /// Errors received with any other code.
        other_errors: u64 => ERRORS_RECEIVED { code: "other" },
        /// Packets forwarded unread because they are addressed to another node.
        passed_on: u64 => MESSAGES_FORWARDED { type: "foreign" },
        /// Packets received by an interface where RSVP is switched off, or that is not known yet; dropped.
        disabled: u64 => MESSAGES_DROPPED { reason: "disabled_interface" },
        /// Messages with a wrong length; dropped.
        bad_length: u64 => MESSAGES_DROPPED { reason: "bad_length" },
        /// Messages of another version; dropped.
        bad_version: u64 => MESSAGES_DROPPED { reason: "bad_version" },
        /// Messages with a wrong checksum; dropped.
        bad_checksum: u64 => MESSAGES_DROPPED { reason: "bad_checksum" },
        /// Messages of unknown type; dropped.
        bad_type: u64 => MESSAGES_DROPPED { reason: "bad_type" },
        /// Messages with an illegal object length; dropped.
        bad_object_length: u64 => MESSAGES_DROPPED { reason: "bad_object_length" },
        /// Messages with an illegal address in the RSVP_HOP; dropped.
        bad_hop: u64 => MESSAGES_DROPPED { reason: "bad_hop" },
        /// Messages with a source port although the session has no port; dropped.
        bad_source_port: u64 => MESSAGES_DROPPED { reason: "bad_source_port" },
        /// Messages that lack a mandatory object; dropped.
        missing_object: u64 => MESSAGES_DROPPED { reason: "missing_object" },
        /// Messages with an object that is illegal in them; dropped.
        illegal_object: u64 => MESSAGES_DROPPED { reason: "illegal_object" },
        /// Messages whose objects are out of order; dropped.
        wrong_order: u64 => MESSAGES_DROPPED { reason: "wrong_order" },
        /// Messages whose flow descriptors do not suit their style; dropped.
        bad_descriptors: u64 => MESSAGES_DROPPED { reason: "bad_descriptors" },
        /// Messages that are malformed in another way; dropped.
        malformed: u64 => MESSAGES_DROPPED { reason: "malformed" },
        /// Messages of types that are never answered with an error, with an object of unknown class or type; dropped.
        unknown_object: u64 => MESSAGES_DROPPED { reason: "unknown_object" },
        /// Resvs and ResvTears with an unknown logical interface handle; dropped.
        bad_handle: u64 => MESSAGES_DROPPED { reason: "bad_handle" },
        /// Resvs, tears and errors received by another interface than that of their state, where `distant_hops` is off;
        /// dropped.
        wrong_interface: u64 => MESSAGES_DROPPED { reason: "wrong_interface" },
        /// Paths in Bundles that are news of a sender, while the route to it leaves by another interface; dropped.
        announced_elsewhere: u64 => MESSAGES_DROPPED { reason: "sender_elsewhere" },
        /// PathErrs and ResvErrs that would have returned to their sender; dropped.
        errors_returning: u64 => MESSAGES_DROPPED { reason: "returning_error" },
        /// PathErrs and ResvErrs above the limit of their state, of the interface, or of the Resv that they answer; dropped.
        errors_limited: u64 => RATE_LIMITED { limit: "errors" },
        /// ResvConfs whose destination is not the receiver in them; dropped.
        bad_confirmation: u64 => MESSAGES_DROPPED { reason: "bad_confirmation" },
        /// Paths and Resvs answered with an error: unknown objects, styles, ports, traffic specifications.
        rejected: u64 => MESSAGES_DROPPED { reason: "rejected" },
        /// ADSPECs received with a part that was left out: it is faulty, or it makes the ADSPEC too long.
        adspecs_mended: u64,
        /// PathTears, ResvTears, PathErrs, ResvErrs and ResvConfs that match no state; dropped.
        unmatched: u64 => MESSAGES_DROPPED { reason: "no_state" },
        /// Messages that returned to the node that sent them; dropped.
        own: u64 => MESSAGES_DROPPED { reason: "own_message" },
        /// Standby copies of Paths that came by an interface where the data leave; dropped.
        standby_returned: u64 => MESSAGES_DROPPED { reason: "standby_returned" },
        /// PathErrs about standby copies of Paths; dropped, because the reservation in use has none.
        standby_failed: u64 => MESSAGES_DROPPED { reason: "standby_error" },
        /// Messages of an unsupported type; dropped.
        unsupported: u64 => MESSAGES_DROPPED { reason: "unsupported_type" },
        /// Messages too large to be sent.
        too_large: u64 => MESSAGES_UNSENT { reason: "too_large" },
        /// Sessions refused because the table was full.
        sessions_full: u64 => TABLE_FULL { table: "sessions" },
        /// Senders refused because the table was full.
        senders_full: u64 => TABLE_FULL { table: "senders" },
        /// Reservations refused because the table was full.
        reservations_full: u64 => TABLE_FULL { table: "reservations" },
        /// Senders and reservations refused because the rest of a table is for sources and interfaces that hold less.
        shares_refused: u64 => TABLE_FULL { table: "shares" },
        /// Neighbors, addresses, ADSPECs and other parts that a full table did not take.
        overload: u64 => TABLE_FULL { table: "other" },
    }
}

impl Counters {
    /// Counts a PathErr or ResvErr that was received.
    pub(super) const fn error_received(&mut self, code: ErrorCode) {
        let counter = match code {
            ErrorCode::ADMISSION => &mut self.admission_errors,
            ErrorCode::POLICY => &mut self.policy_errors,
            ErrorCode::NO_PATH => &mut self.no_path_errors,
            ErrorCode::NO_SENDER => &mut self.no_sender_errors,
            ErrorCode::CONFLICTING_STYLE | ErrorCode::UNKNOWN_STYLE => &mut self.style_errors,
            ErrorCode::CONFLICTING_DEST_PORTS | ErrorCode::CONFLICTING_SENDER_PORTS => &mut self.port_errors,
            ErrorCode::PREEMPTED => &mut self.preempted_errors,
            ErrorCode::UNKNOWN_CLASS | ErrorCode::UNKNOWN_C_TYPE => &mut self.unknown_object_errors,
            ErrorCode::TRAFFIC_CONTROL => &mut self.traffic_control_errors,
            ErrorCode::TRAFFIC_CONTROL_SYSTEM | ErrorCode::RSVP_SYSTEM => &mut self.system_errors,
            _ => &mut self.other_errors,
        };
        *counter += 1;
    }
}
