//! Waiting for conditions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The time between two looks.
pub(crate) const STEP: Duration = Duration::from_millis(10);

static LIMIT: Mutex<Option<Instant>> = Mutex::new(None);
static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT, SIGTERM and SIGHUP do not end this process but make [`check`] fail, so that what was made is
/// taken down.
pub(crate) fn catch_signals() -> Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// From now on [`check`] fails after this time, if there is one.
pub(crate) fn limit(span: Option<Duration>) {
    // A lock that is poisoned belongs to a thread that panicked; the limit is whole in any case.
    *LIMIT.lock().unwrap_or_else(PoisonError::into_inner) =
        span.and_then(|span| Instant::now().checked_add(span));
}

/// Fails once a signal has asked this process to end, or the time of the run is over.
pub(crate) fn check() -> Result<()> {
    if LIMIT.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|limit| Instant::now() > limit) {
        bail!("the run takes longer than its `timeout`");
    }
    if INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}

/// Looks until `condition` holds; `false` if it does not within `budget`.
pub(crate) fn until(budget: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + budget;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(STEP);
    }
}

/// Waits for a time; fails at once when interrupted.
pub(crate) fn pass(span: Duration) -> Result<()> {
    let deadline = Instant::now() + span;
    while Instant::now() < deadline {
        check()?;
        thread::sleep(STEP.min(deadline.saturating_duration_since(Instant::now())));
    }
    Ok(())
}
