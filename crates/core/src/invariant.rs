//! Rules about an engine's own state, which no packet, request or report of the kernel can break.
//!
//! An engine that looks up what it stored itself finds it. If it does not, the engine has a fault, and
//! [`invariant!`](crate::invariant!) says so: it panics in tests, under fuzzing and in the simulator. A daemon counts it by place, writes
//! one line to its log and goes on without the record.
//!
//! What a peer, a user or the kernel can cause is no invariant: it is an ordinary case, and has a counter or an answer.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::counter::{Count, Counter};
use crate::metrics::{Family, Subsystem};

/// Invariants broken.
pub const INVARIANT_BROKEN: Family = Family::counter(
    "invariant_broken",
    &["place"],
    "Times that a rule about the daemon's own state did not hold, by place of the code: a fault of Signalbox. Please report it.",
);

/// Whether a broken invariant ends the program.
static STRICT: AtomicBool = AtomicBool::new(cfg!(debug_assertions));

/// The places whose invariant was broken. There are as many as the code has.
static BROKEN: Mutex<Vec<&'static Place>> = Mutex::new(Vec::new());

/// Lets broken invariants panic from now on, also in a program that is built for release.
pub fn panic_if_broken() {
    STRICT.store(true, Ordering::Relaxed);
}

/// A place of the code that relies on an invariant. [`invariant!`](crate::invariant!) makes it.
#[derive(Debug)]
pub struct Place {
    labels: [(&'static str, &'static str); 1],
    times: AtomicU64,
}

impl Place {
    /// A place of this name: the module, and the rule.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { labels: [("place", name)], times: AtomicU64::new(0) }
    }

    const fn name(&self) -> &'static str {
        self.labels[0].1
    }

    /// Counts that the invariant does not hold.
    ///
    /// # Panics
    /// In programs with debug assertions, and after [`panic_if_broken`].
    #[cold]
    #[inline(never)]
    pub fn broken(&'static self) {
        assert!(!STRICT.load(Ordering::Relaxed), "broken invariant: {}", self.name());
        self.count();
    }

    fn count(&'static self) {
        if self.times.fetch_add(1, Ordering::Relaxed) == 0 {
            // The list is whole also after a panic of another thread.
            BROKEN.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
    }
}

/// How often each broken invariant was found broken since the start.
#[must_use]
pub fn counters() -> Vec<Counter> {
    let places = BROKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = |place: &&'static Place| Count {
        name: place.name(),
        help: INVARIANT_BROKEN.help,
        family: Some(&INVARIANT_BROKEN),
        labels: &place.labels,
        value: place.times.load(Ordering::Relaxed),
    };
    places.iter().map(count).map(Counter::of(Subsystem::shared("invariant"))).collect()
}

/// An `Option` that is `Some` by an invariant of the engine; `None` is reported, and returned as it is.
///
/// ```
/// use signalbox_core::{Key, Slab, invariant};
///
/// fn refresh(sessions: &mut Slab<u32>, of: Key) {
///     let Some(refreshes) = invariant!(sessions.get_mut(of), "a refresh timer ends with its session") else { return };
///     *refreshes += 1;
/// }
/// # let mut sessions = Slab::new(1);
/// # let key = sessions.insert(1)?;
/// # refresh(&mut sessions, key);
/// # assert_eq!(sessions.get(key), Some(&2));
/// # Ok::<(), signalbox_core::Full>(())
/// ```
#[macro_export]
macro_rules! invariant {
    ($option:expr, $rule:literal) => {{
        static PLACE: $crate::invariant::Place =
            $crate::invariant::Place::new(concat!(module_path!(), ": ", $rule));
        let option = $option;
        if option.is_none() {
            PLACE.broken();
        }
        option
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    static FIRST: Place = Place::new("tests: the first");
    static SECOND: Place = Place::new("tests: the second");

    #[test]
    fn a_place_is_counted_as_often_as_its_invariant_is_broken() {
        for place in [&FIRST, &SECOND, &FIRST] {
            place.count();
        }
        let found = counters();
        let [first, second] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((first.count.value, second.count.value), (2, 1));
        assert_eq!(first.to_string(), "signalbox_invariant_broken_total{place=\"tests: the first\"}");
    }

    #[test]
    #[should_panic(expected = "broken invariant: signalbox_core::invariant::tests: one is there")]
    fn a_broken_invariant_ends_a_test() {
        let _ = invariant!(None::<u8>, "one is there");
    }

    #[test]
    fn what_holds_is_returned() {
        assert_eq!(invariant!(Some(1), "one is there"), Some(1));
    }
}
