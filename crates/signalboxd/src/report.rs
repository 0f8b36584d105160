//! Trouble that other nodes can cause, logged at most once a second for each cause.
//!
//! Engines only count. Where a counter of trouble has grown, one line of the log gives the difference.

use std::collections::BTreeMap;
use std::time::Duration;

use signalbox_core::invariant::INVARIANT_BROKEN;
use signalbox_core::{Count, Counter, Time};

/// Shortest time between two lines about the same cause.
const PERIOD: Duration = Duration::from_secs(1);

/// Counters, by subsystem and field, whose growth is logged.
pub(crate) const TROUBLE: [(&str, &str); 73] = [
    ("daemon", "receive_failed"),
    ("daemon", "clients_too_slow"),
    ("daemon", "indications_lost"),
    ("daemon", "connections_refused"),
    ("daemon", "calls_refused"),
    ("daemon", "log_lines_left_out"),
    ("daemon", "decisions_lost"),
    ("daemon", "audit_lines_lost"),
    ("resources", "decisions_left_out"),
    ("gist_io", "receive_truncated"),
    ("gist_io", "send_overflow"),
    ("streams", "accept_limited"),
    ("streams", "accept_failed"),
    ("streams", "unsent_limited"),
    ("channels", "handshakes_refused"),
    ("channels", "handshakes_failed"),
    ("channels", "listen_failed"),
    ("gist", "no_magic"),
    ("gist", "malformed"),
    ("gist", "hops_exceeded"),
    ("gist", "ttl_expired"),
    ("gist", "unknown_nslp"),
    ("gist", "mri_rejected"),
    ("gist", "untranslated"),
    ("gist", "ttl_rejected"),
    ("gist", "cookies_invalid"),
    ("gist", "intercept_limited"),
    ("gist", "dmode_limited"),
    ("gist", "errors_suppressed"),
    ("gist", "errors_received"),
    ("gist", "errors_stray"),
    ("gist", "errors_unsendable"),
    ("gist", "responses_stray"),
    ("gist", "sessions_full"),
    ("gist", "peers_full"),
    ("gist", "queue_full"),
    ("gist", "checks_full"),
    ("gist", "lookups_full"),
    ("gist", "transmit_failed"),
    ("gist", "associations_limited"),
    ("gist", "associations_full"),
    ("gist", "associations_unauthorized"),
    ("gist", "proposals_changed"),
    ("sctp", "inits_limited"),
    ("ping", "malformed"),
    ("qos", "overload"),
    ("qos", "contents_full"),
    ("rsvp", "wrong_interface"),
    ("rsvp_neighbors", "clock_differs"),
    ("rsvp_neighbors", "distant"),
    ("rsvp_neighbors", "wrong_source"),
    ("mapping", "lost"),
    ("gist_nat", "malformed"),
    ("gist_nat", "untranslatable"),
    ("gist_nat", "untranslated"),
    ("gist_nat", "too_deep"),
    ("gist_nat", "too_large"),
    ("gist_nat", "no_address"),
    ("gist_nat", "foreign_forged"),
    ("gist_nat", "foreign_link"),
    ("gist_nat", "foreign_cookie"),
    ("gist_nat", "queries_limited"),
    ("gist_nat", "refused"),
    ("gist_nat", "conflicts"),
    ("gist_nat", "bindings_full"),
    ("gist_nat", "bindings_of_host"),
    ("gist_nat", "ports_full"),
    ("casp", "malformed"),
    ("casp", "bad_cookies"),
    ("casp", "loops"),
    ("casp", "sessions_full"),
    ("casp", "connections_full"),
    ("casp", "framing"),
];

/// The counts that were logged last.
#[derive(Debug, Default)]
pub(crate) struct Reporter {
    reported: BTreeMap<(&'static str, &'static str), u64>,
    /// When the next look is allowed.
    next: Time,
}

/// One line of the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The counter.
    pub(crate) counter: Counter,
    /// How much it has grown since it was reported last.
    pub(crate) more: u64,
}

impl Reporter {
    /// When to look at the counters again after something happened.
    pub(crate) const fn next(&self) -> Time {
        self.next
    }

    /// What has grown since the last look.
    pub(crate) fn look(&mut self, now: Time, counters: impl Iterator<Item = Counter>) -> Vec<Line> {
        self.next = now + PERIOD;
        counters
            .filter(|counter| is_trouble(counter) || is_invariant(counter))
            .filter_map(|counter| {
                let reported = self.reported.entry((counter.subsystem.name, counter.count.name)).or_default();
                let more = counter.count.value.saturating_sub(*reported);
                let first = *reported == 0;
                *reported = counter.count.value;
                // A broken invariant is logged once for each place.
                (more > 0 && (first || !is_invariant(&counter))).then_some(Line { counter, more })
            })
            .collect()
    }
}

/// Whether growth of this counter is logged.
pub(crate) fn is_trouble(counter: &Counter) -> bool {
    TROUBLE.contains(&(counter.subsystem.name, counter.count.name))
}

/// Whether this counts how often the program found itself wrong.
fn is_invariant(counter: &Counter) -> bool {
    counter.count.family == Some(&INVARIANT_BROKEN)
}

impl Line {
    /// Writes it to the log.
    pub(crate) fn log(&self) {
        let Count { help, value, name, .. } = self.counter.count;
        if is_invariant(&self.counter) {
            return tracing::error!(
                place = name,
                "a fault of Signalbox, please report it: this rule about its own state does not hold"
            );
        }
        tracing::warn!(more = self.more, total = value, "{}: {help}", self.counter);
    }
}

#[cfg(test)]
mod tests {
    use signalbox_core::metrics::Subsystem;

    use super::*;
    use crate::driver::tests::{every_counter, whole_node};

    #[test]
    fn what_is_reported_is_counted() {
        let all = every_counter(&whole_node());
        assert_eq!(all.iter().filter(|counter| is_trouble(counter)).count(), TROUBLE.len());
    }

    fn counter(name: &'static str, value: u64) -> Counter {
        let count = Count { name, help: "", family: None, labels: &[], value };
        Counter { subsystem: Subsystem::protocol("gist"), count }
    }

    #[test]
    fn growth_is_reported_once() {
        let mut reporter = Reporter::default();
        let lines = reporter.look(Time::ZERO, [counter("malformed", 3)].into_iter());
        assert_eq!(lines, [Line { counter: counter("malformed", 3), more: 3 }]);
        assert_eq!(reporter.next(), Time::from_secs(1));
        assert!(reporter.look(Time::from_secs(1), [counter("malformed", 3)].into_iter()).is_empty());
        let grown = counter("malformed", 10);
        assert_eq!(reporter.look(Time::from_secs(2), [grown].into_iter())[0].more, 7);
    }

    #[test]
    fn a_broken_invariant_is_told_once() {
        let broken = |value| {
            let counter = counter("engine: a rule", value);
            [Counter { count: Count { family: Some(&INVARIANT_BROKEN), ..counter.count }, ..counter }]
                .into_iter()
        };
        let mut reporter = Reporter::default();
        assert_eq!(reporter.look(Time::ZERO, broken(1)).len(), 1);
        assert!(reporter.look(Time::from_secs(1), broken(7)).is_empty());
    }

    /// GIST-8.5-08, GIST-5.7.1-17, GIST-5.6-09, GIST-4.4.6-02, GIST-4.4.6-05: a cookie or a proposal that fails its
    /// check, an Error that cannot be sent, and answers that belong to nothing are logged, each at most once a
    /// second.
    #[test]
    fn what_the_rfc_wants_logged_is_logged() {
        for name in
            ["cookies_invalid", "proposals_changed", "errors_unsendable", "responses_stray", "errors_stray"]
        {
            let mut reporter = Reporter::default();
            assert_eq!(reporter.look(Time::ZERO, [counter(name, 3)].into_iter()).len(), 1, "{name}");
            assert_eq!(reporter.next(), Time::from_secs(1));
        }
    }

    #[test]
    fn ordinary_counts_are_not_trouble() {
        let counter = counter("data_received", 3);
        assert!(Reporter::default().look(Time::ZERO, [counter].into_iter()).is_empty());
    }
}
