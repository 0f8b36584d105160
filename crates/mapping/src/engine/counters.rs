//! What the engine counts.

use signalbox_core::metrics::{Family, MESSAGES_DROPPED, MESSAGES_RECEIVED, MESSAGES_SENT};

/// Mappings of hosts.
const MAPPINGS: Family = Family::counter(
    "mapping_mappings",
    &["event"],
    "Mappings of hosts by PCP and NAT-PMP, by what happened.",
);

signalbox_core::counters! {
    /// Counts of PCP and NAT-PMP since the start.
    pub struct Counters {
        /// MAP requests received.
        maps_received: u64 => MESSAGES_RECEIVED { type: "map" },
        /// PEER requests received. Each draws UNSUPP_OPCODE.
        peers_received: u64 => MESSAGES_RECEIVED { type: "peer" },
        /// ANNOUNCE requests received.
        announces_received: u64 => MESSAGES_RECEIVED { type: "announce" },
        /// Requests of NAT-PMP for the external address received.
        addresses_received: u64 => MESSAGES_RECEIVED { type: "nat_pmp_address" },
        /// Requests of NAT-PMP for a mapping received.
        nat_pmp_maps_received: u64 => MESSAGES_RECEIVED { type: "nat_pmp_map" },
        /// Responses of success sent.
        successes_sent: u64 => MESSAGES_SENT { type: "success" },
        /// Error responses sent.
        errors_sent: u64 => MESSAGES_SENT { type: "error" },
        /// Announcements sent.
        announcements_sent: u64 => MESSAGES_SENT { type: "announcement" },
        /// Mapping Updates sent (RFC 6887 §14.2).
        updates_sent: u64 => MESSAGES_SENT { type: "update" },
        /// Requests dropped because they came in by another interface, or from a source that may not ask.
        foreign: u64 => MESSAGES_DROPPED { reason: "not_served" },
        /// Requests dropped because their host, or all hosts, send too many.
        rate: u64 => MESSAGES_DROPPED { reason: "rate_limit" },
        /// Datagrams dropped because they are too short, responses, or of a protocol that is switched off.
        malformed: u64 => MESSAGES_DROPPED { reason: "malformed" },
        /// Requests dropped because the change before them waits for the path.
        busy: u64 => MESSAGES_DROPPED { reason: "busy" },
        /// Mappings that the path granted.
        opened: u64 => MAPPINGS { event: "opened" },
        /// Requests that the path refused, or did not answer.
        refused: u64 => MAPPINGS { event: "refused" },
        /// Mappings that their host deleted.
        deleted: u64 => MAPPINGS { event: "deleted" },
        /// Mappings whose lifetime ended.
        expired: u64 => MAPPINGS { event: "expired" },
        /// Mappings that got another external place.
        moved: u64 => MAPPINGS { event: "moved" },
        /// Mappings that the path lost, and granted again.
        repaired: u64 => MAPPINGS { event: "repaired" },
        /// Mappings that the path lost for good.
        lost: u64 => MAPPINGS { event: "lost" },
        /// Mappings that the node before this one handed over.
        restored: u64 => MAPPINGS { event: "restored" },
        /// Mappings that a command cleared.
        cleared: u64 => MAPPINGS { event: "cleared" },
    }
}
