//! Where the daemon's log goes: standard error, as text or JSON lines.

use tracing_subscriber::filter::LevelFilter;

use crate::config::{LogConfig, LogFormat};

/// Starts the log. The `level` of the configuration holds for everything; there is no filter by module.
pub(crate) fn start(config: &LogConfig) {
    let level: LevelFilter = config.level.into();
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    match config.format {
        LogFormat::Text => builder.with_ansi(false).with_target(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}
