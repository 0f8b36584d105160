//! The daemon's log: standard error, as text or JSON lines, or journald.
//!
//! A thread of its own writes ([`stderr`]), so that who logs does not wait for the reader. Other nodes cause some lines, so each place
//! of the code writes few in a second; decisions have a limit of their own, for each source. Lines of the levels debug and trace are
//! for developers, and have no limit.

mod journal;
pub(crate) mod stderr;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use signalbox_config::log::{Filter, LIBRARIES, Level};
use signalbox_config::{Log, LogFormat};
use tracing::{Event, Level as TracingLevel, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

/// Changes the level of the log while the daemon runs; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct LogLevel(Option<reload::Handle<Targets, Layers>>);

/// What is below the filter.
type Layers = tracing_subscriber::layer::Layered<Box<dyn Layer<Registry> + Send + Sync>, Registry>;

impl LogLevel {
    /// Takes another level.
    pub(crate) fn set(&self, filter: &Filter) {
        // The handle fails only when the log has ended.
        let _ = self.0.as_ref().map(|handle| handle.reload(targets(filter)));
    }
}

/// Starts the log. What the filter leaves out costs the modules one comparison.
pub(crate) fn start(config: &Log) -> LogLevel {
    let journal = (config.format == LogFormat::Journal).then(journal::Journal::connect);
    let (journal, missing) = match journal {
        Some(Ok(journal)) => (Some(journal), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let layer = fmt::layer().with_writer(stderr::BufferedStderr);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match (journal, config.format) {
        (Some(journal), _) => journal.boxed(),
        (None, LogFormat::Json) => layer.json().flatten_event(true).boxed(),
        (None, LogFormat::Text | LogFormat::Journal) => {
            layer.with_ansi(false).with_target(config.level.names_modules()).boxed()
        }
    };
    let (filter, handle) = reload::Layer::new(targets(&config.level));
    tracing_subscriber::registry().with(layer).with(filter).with(Limited::new()).init();
    if let Some(error) = missing {
        tracing::warn!(%error, "journald cannot be reached: the log is text on standard error");
    }
    LogLevel(Some(handle))
}

/// Lines of one place of the code in a second, at most.
const LINES: u32 = 20;
/// Counts of lines. Places with the same one share it.
const COUNTS: usize = 256;

/// Lines that were left out since the start.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Counts a line that was left out.
fn leave_out() {
    LEFT_OUT.fetch_add(1, Ordering::Relaxed);
}

/// Lines that were left out since the start, because their place of the code had written enough in that second, or because
/// nothing read the log.
pub(crate) fn left_out() -> u64 {
    LEFT_OUT.load(Ordering::Relaxed)
}

/// Leaves out lines of places that write many.
struct Limited {
    start: Instant,
    /// The second, in the upper half, and the lines of it.
    counts: [AtomicU64; COUNTS],
}

impl Limited {
    fn new() -> Self {
        Self { start: Instant::now(), counts: [const { AtomicU64::new(0) }; COUNTS] }
    }

    /// Whether a place may write one more line in this second since the start.
    fn allow(&self, place: u64, second: u64) -> bool {
        let at = usize::try_from(place % COUNTS as u64).unwrap_or_default();
        let Some(count) = self.counts.get(at) else { return true };
        let (stored, second) = (count.load(Ordering::Relaxed), second << 32);
        let lines = if stored >> 32 << 32 == second { stored + 1 } else { second + 1 };
        // Two threads may count one line: the limit need not be exact.
        count.store(lines, Ordering::Relaxed);
        let allowed = lines - second <= u64::from(LINES);
        if !allowed {
            leave_out();
        }
        allowed
    }
}

impl<S: Subscriber> Layer<S> for Limited {
    fn event_enabled(&self, event: &Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // The limit of decisions is the one that admission control has for each source.
        if *metadata.level() > TracingLevel::INFO || metadata.target() == crate::decisions::TARGET {
            return true;
        }
        let place = BuildHasherDefault::<DefaultHasher>::default().hash_one(metadata.callsite());
        self.allow(place, self.start.elapsed().as_secs())
    }
}

fn targets(filter: &Filter) -> Targets {
    // A library logs at the levels for developers only if it is named.
    let quiet = LIBRARIES.iter().map(|name| ((*name).to_owned(), threshold(filter.level.min(Level::Info))));
    let modules = filter.modules.iter().map(|(module, level)| (module.clone(), threshold(*level)));
    Targets::new().with_default(threshold(filter.level)).with_targets(quiet).with_targets(modules)
}

const fn threshold(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::LevelFilter as L;

    use super::*;

    #[test]
    fn a_place_that_writes_many_lines_leaves_time_to_others() {
        let (limited, before) = (Limited::new(), left_out());
        let written = |place, second| (0..1000).filter(|_| limited.allow(place, second)).count();
        assert_eq!((written(1, 5), written(2, 5), written(1, 6)), (20, 20, 20));
        assert_eq!(written(1, 6), 0);
        assert!(left_out() - before >= 3 * 980 + 1000);
    }

    #[test]
    fn modules_have_levels_of_their_own() {
        let filter: Filter = "warn,signalbox_gist=debug,signalbox_rsvp::engine=trace".parse().unwrap();
        let targets = targets(&filter);
        for (module, level, expected) in [
            ("signalboxd", L::WARN, true),
            ("signalboxd", L::INFO, false),
            ("signalbox_gist::engine", L::DEBUG, true),
            ("signalbox_gist::engine", L::TRACE, false),
            ("signalbox_rsvp::engine::path", L::TRACE, true),
            ("signalbox_rsvp::wire", L::INFO, false),
            ("h2::codec::framed_read", L::INFO, false),
        ] {
            let enabled = targets.would_enable(module, &level.into_level().unwrap());
            assert_eq!(enabled, expected, "{module} {level}");
        }
    }

    #[test]
    fn libraries_log_their_frames_only_if_they_are_named() {
        let enabled = |text: &str, module: &str| {
            let targets = targets(&text.parse().unwrap());
            targets.would_enable(module, &TracingLevel::DEBUG)
        };
        assert!(enabled("debug", "signalbox_casp::engine") && !enabled("debug", "h2::codec::framed_write"));
        assert!(!enabled("trace", "tower::buffer::worker") && !enabled("trace", "hyper_util::server"));
        assert!(enabled("info,h2=debug", "h2::codec") && !enabled("info,h2=debug", "tonic::transport"));
    }
}
