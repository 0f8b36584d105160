//! What is counted.

signalbox_core::counters! {
    /// What admission control counts.
    pub struct Counters {
        /// Reservations admitted.
        admitted: u64,
        /// Reservations changed.
        modified: u64,
        /// Reservations released by their owner.
        released: u64,
        /// Requests that a policy rule or the default refused, or whose token does not cover them.
        refused_policy: u64,
        /// Requests refused for want of rate or buffer.
        refused_resources: u64,
        /// Requests refused because a table, a limit of reservations or of queues is full.
        refused_full: u64,
        /// Requests refused for another reason: a bad or unsupported request, an interface that is down or unknown.
        refused_other: u64,
        /// Guaranteed reservations admitted at a lower rate by using slack.
        slack_used: u64,
        /// Reservations taken from their owners for stronger requests.
        preempted: u64,
        /// Reservations of which a part was taken for stronger requests.
        reduced: u64,
        /// Reservations lost because the kernel refused them.
        kernel_refused: u64,
        /// Reservations lost because their interface is gone or has less to give.
        interface_lost: u64,
        /// Answers of the kernel about reservations that are no more; ignored.
        answers_ignored: u64,
    }
}
