//! The daemon's log: standard error, as text or JSON lines.

use signalbox_config::log::{Filter, Level};
use signalbox_config::{Log, LogFormat};
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
    let layer = fmt::layer().with_writer(std::io::stderr);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match config.format {
        LogFormat::Text => layer.with_ansi(false).with_target(config.level.names_modules()).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    let (filter, handle) = reload::Layer::new(targets(&config.level));
    tracing_subscriber::registry().with(layer).with(filter).init();
    LogLevel(Some(handle))
}

fn targets(filter: &Filter) -> Targets {
    let modules = filter.modules.iter().map(|(module, level)| (module.clone(), threshold(*level)));
    Targets::new().with_default(threshold(filter.level)).with_targets(modules)
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
        ] {
            let enabled = targets.would_enable(module, &level.into_level().unwrap());
            assert_eq!(enabled, expected, "{module} {level}");
        }
    }
}
