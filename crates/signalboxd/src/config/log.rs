//! `log.level`: the least important level that is logged, of all modules and of single ones.

use serde::Deserialize;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Levels, by the names that they have in the configuration.
const LEVELS: [(&str, LevelFilter); 5] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// What is logged: `"info"`, or with levels of single modules `"info,signalbox_gist=debug"`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct LogFilter {
    level: LevelFilter,
    /// Modules with a level of their own, which holds for the modules inside them as well.
    modules: Vec<(String, LevelFilter)>,
}

impl Default for LogFilter {
    fn default() -> Self {
        Self { level: LevelFilter::INFO, modules: Vec::new() }
    }
}

impl LogFilter {
    /// The filter for the log. Where nothing is logged, nothing is formatted.
    pub(crate) fn targets(&self) -> Targets {
        Targets::new().with_default(self.level).with_targets(self.modules.iter().cloned())
    }

    /// Whether lines shall name the module that they come from: a level for developers is on.
    pub(crate) fn names_modules(&self) -> bool {
        !self.modules.is_empty() || self.level > LevelFilter::INFO
    }
}

impl TryFrom<String> for LogFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut filter = Self::default();
        for directive in text.split(',').map(str::trim) {
            match directive.split_once('=') {
                None => filter.level = level(directive)?,
                Some((module, name)) => {
                    filter.modules.push((module_name(module.trim())?, level(name.trim())?))
                }
            }
        }
        Ok(filter)
    }
}

fn level(name: &str) -> Result<LevelFilter, String> {
    LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level).ok_or_else(|| {
        let all = LEVELS.map(|(known, _)| format!("`{known}`")).join(", ");
        format!("{name:?}: expected one of {all}, and MODULE=LEVEL for single modules")
    })
}

fn module_name(name: &str) -> Result<String, String> {
    let known = name.starts_with("signalbox");
    let sound = name.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"_:".contains(&octet));
    if known && sound {
        return Ok(name.to_owned());
    }
    Err(format!("{name:?} is no module of Signalbox, such as `signalbox_gist` or `signalbox_node::node`"))
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::LevelFilter as L;

    use super::*;

    fn filter(text: &str) -> Result<LogFilter, String> {
        text.to_owned().try_into()
    }

    #[test]
    fn modules_have_levels_of_their_own() {
        let targets = filter("warn, signalbox_gist=debug,signalbox_rsvp::engine=trace").unwrap().targets();
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

    #[test]
    fn one_level_holds_for_all() {
        assert_eq!(filter("info").unwrap(), LogFilter::default());
        assert!(!filter("info").unwrap().names_modules());
        assert!(
            filter("debug").unwrap().names_modules() && filter("signalbox_qos=warn").unwrap().names_modules()
        );
        assert!(
            filter("signalbox_qos=warn").unwrap().targets().would_enable("signalboxd", &tracing::Level::INFO)
        );
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        for text in
            ["", "loud", "info,", "signalbox_gist", "signalbox_gist=", "gist=debug", "signalbox gist=debug"]
        {
            assert!(filter(text).is_err(), "{text}");
        }
    }
}
