//! Counters of the engine.

signalbox_core::counters! {
    /// Counters of RSVP.
    pub struct Counters {
        /// Paths received that made or changed path state.
        paths_taken: u64,
        /// Paths received that refreshed path state.
        paths_refreshed: u64,
        /// Resvs received that made or changed reservation state.
        resvs_taken: u64,
        /// Flow descriptors of Resvs received that refreshed reservation state.
        resvs_refreshed: u64,
        /// Paths sent.
        paths_sent: u64,
        /// Resvs sent.
        resvs_sent: u64,
        /// PathErrs sent, those that are passed on among them.
        path_errors_sent: u64,
        /// ResvErrs sent, those that are passed on among them.
        resv_errors_sent: u64,
        /// PathTears sent.
        path_tears_sent: u64,
        /// ResvTears sent.
        resv_tears_sent: u64,
        /// ResvConfs sent, those that are passed on among them.
        confirmations_sent: u64,
        /// Reservations granted, changes included.
        granted: u64,
        /// Reservations refused by admission control or policy.
        refused: u64,
        /// Reservations of which a part was taken for stronger ones.
        reduced: u64,
        /// Reservations lost: preempted, or their interface or the kernel failed.
        lost: u64,
        /// Senders torn down by a message.
        senders_torn: u64,
        /// Senders that expired without a refresh.
        senders_expired: u64,
        /// Reservations torn down by a message, parts of reservations included.
        reservations_torn: u64,
        /// Reservations that expired without a refresh, parts of reservations included.
        reservations_expired: u64,
        /// Pieces of blockade state set.
        blockades: u64,
        /// Senders whose Paths come by another previous hop than before.
        hop_changes: u64,
        /// Senders whose route changed; their Paths went out after the repair delay.
        repairs: u64,
        /// DREQs that this node added its response to.
        dreqs_taken: u64,
        /// DREQs sent on towards the sender that they ask about.
        dreqs_sent: u64,
        /// DREPs sent towards their requester, parts and those that are passed on among them.
        dreps_sent: u64,
        /// DREQs and DREPs above the limit of a second; dropped.
        diagnostics_limited: u64,
        /// DREQs and DREPs that could not be forwarded or were not allowed to; dropped.
        diagnostics_dropped: u64,
        /// Packets passed on unread because they are for another node.
        passed_on: u64,
        /// Packets received by an interface where RSVP is switched off, or that is not known yet; dropped.
        disabled: u64,
        /// Messages with a wrong length; dropped.
        bad_length: u64,
        /// Messages of another version; dropped.
        bad_version: u64,
        /// Messages with a wrong checksum; dropped.
        bad_checksum: u64,
        /// Messages of unknown type; dropped.
        bad_type: u64,
        /// Messages with an illegal object length; dropped.
        bad_object_length: u64,
        /// Messages with an illegal address in the RSVP_HOP; dropped.
        bad_hop: u64,
        /// Messages with a source port although the session has no port; dropped.
        bad_source_port: u64,
        /// Messages that lack a mandatory object; dropped.
        missing_object: u64,
        /// Messages with an object that is illegal in them; dropped.
        illegal_object: u64,
        /// Messages whose objects are out of order; dropped.
        wrong_order: u64,
        /// Messages whose flow descriptors do not suit their style; dropped.
        bad_descriptors: u64,
        /// Messages that are malformed in another way; dropped.
        malformed: u64,
        /// Messages whose errors are not answered, with an object of unknown class or type; dropped.
        unknown_object: u64,
        /// Resvs and ResvTears with an unknown logical interface handle; dropped.
        bad_handle: u64,
        /// Resvs, tears and errors that came by another interface than their state's, where `distant_hops` is off;
        /// dropped.
        wrong_interface: u64,
        /// PathErrs and ResvErrs that would have returned to where they came from; dropped.
        errors_returning: u64,
        /// PathErrs and ResvErrs above the limit of their state, or of the interface; dropped.
        errors_limited: u64,
        /// ResvConfs whose destination is not the receiver in them; dropped.
        bad_confirmation: u64,
        /// Paths and Resvs refused with an error: unknown objects, styles, ports, traffic specifications.
        rejected: u64,
        /// ADSPECs of which a bad part was left out, or all.
        adspecs_mended: u64,
        /// PathTears, ResvTears, PathErrs, ResvErrs and ResvConfs that match no state; dropped.
        unmatched: u64,
        /// Messages that returned to the node that sent them; dropped.
        own: u64,
        /// Messages of an unsupported type; dropped.
        unsupported: u64,
        /// Neighbours that restarted or were silent for too long; their state was sent again.
        neighbours_lost: u64,
        /// Last keys that expired and are still used, because there is no other.
        keys_expired: u64,
        /// Messages too large to be sent.
        too_large: u64,
        /// Sessions refused because the table was full.
        sessions_full: u64,
        /// Senders refused because the table was full.
        senders_full: u64,
        /// Reservations refused because the table was full.
        reservations_full: u64,
        /// Neighbours, addresses, ADSPECs and other parts that a full table did not take.
        overload: u64,
    }
}
