//! What is counted.

use signalbox_core::metrics::Family;

/// Changes of grants.
const ADMISSION_EVENTS: Family = Family::counter(
    "admission_events",
    &["event"],
    "Decisions and changes of admission control, all protocols together.",
);
/// Refusals.
const ADMISSIONS_REFUSED: Family =
    Family::counter("admissions_refused", &["reason"], "Requests that admission control refused, by reason.");

signalbox_core::counters! {
    /// What admission control counts.
    pub struct Counters {
        /// Reservations admitted.
        admitted: u64 => ADMISSION_EVENTS { event: "admitted" },
        /// Reservations changed.
        modified: u64 => ADMISSION_EVENTS { event: "modified" },
        /// Reservations released by their owner.
        released: u64 => ADMISSION_EVENTS { event: "released" },
        /// Requests refused by a policy rule or by the default, or not covered by their token.
        refused_policy: u64 => ADMISSIONS_REFUSED { reason: "policy" },
        /// Requests refused because rate or buffer is not available.
        refused_resources: u64 => ADMISSIONS_REFUSED { reason: "resources" },
        /// Requests refused because a table, or a limit on reservations or queues, is full.
        refused_full: u64 => ADMISSIONS_REFUSED { reason: "full" },
        /// Requests refused for another reason: a bad or unsupported request, an interface that is down or unknown.
        refused_other: u64 => ADMISSIONS_REFUSED { reason: "other" },
        /// Guaranteed reservations admitted at a lower rate by using slack.
        slack_used: u64 => ADMISSION_EVENTS { event: "slack_used" },
        /// Reservations removed for requests of higher priority.
        preempted: u64 => ADMISSION_EVENTS { event: "preempted" },
        /// Reservations reduced for requests of higher priority.
        reduced: u64 => ADMISSION_EVENTS { event: "reduced" },
        /// Reservations lost because the kernel refused them.
        kernel_refused: u64 => ADMISSION_EVENTS { event: "kernel_refused" },
        /// Reservations lost because their interface is gone or has less capacity.
        interface_lost: u64 => ADMISSION_EVENTS { event: "interface_lost" },
        /// Reservations ended by an administrator.
        deleted: u64 => ADMISSION_EVENTS { event: "deleted" },
        /// Reservations ended because other rules came into force that do not allow them.
        rules_lost: u64 => ADMISSION_EVENTS { event: "rules_lost" },
        /// Answers of the kernel about reservations that do not exist any more; ignored.
        answers_ignored: u64,
        /// Decisions that are in no log: one source caused many of them, or nothing took them in time.
        decisions_left_out: u64,
    }
}
