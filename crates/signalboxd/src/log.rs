//! The daemon's log: standard error, as text or JSON lines.

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::config::{LogConfig, LogFormat};

/// Starts the log. What the filter leaves out costs the modules one comparison.
pub(crate) fn start(config: &LogConfig) {
    let layer = fmt::layer().with_writer(std::io::stderr);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match config.format {
        LogFormat::Text => layer.with_ansi(false).with_target(config.level.names_modules()).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer).with(config.level.targets()).init();
}
