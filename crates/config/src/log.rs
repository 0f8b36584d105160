//! `log.level`: the least important level that is logged, of all modules and of single ones.

use std::fmt;
use std::str::FromStr;

use crate::kind::{Kind, KindError, quoted};
use crate::tree::{Tree, Value};

/// How important a line of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// The daemon cannot do its work.
    Error,
    /// Somebody should act.
    Warn,
    /// Decisions about requests, start, stop and other rare events.
    #[default]
    Info,
    /// State transitions and dropped messages.
    Debug,
    /// Each message.
    Trace,
}

/// Levels, by the names that they have in the configuration.
const LEVELS: [(&str, Level); 5] = [
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("info", Level::Info),
    ("debug", Level::Debug),
    ("trace", Level::Trace),
];

/// What is logged: `"info"`, or with levels of single modules `"info,signalbox_gist=debug"`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Level of all modules that are not named.
    pub level: Level,
    /// Modules with a level of their own, which holds for the modules inside them as well.
    pub modules: Vec<(String, Level)>,
}

impl Filter {
    /// Whether lines shall name the module that they come from: a level for developers is on.
    #[must_use]
    pub fn names_modules(&self) -> bool {
        !self.modules.is_empty() || self.level > Level::Info
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
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

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            |level: Level| LEVELS.iter().find(|(_, known)| *known == level).map_or("", |(name, _)| name);
        f.write_str(name(self.level))?;
        self.modules.iter().try_for_each(|(module, level)| write!(f, ",{module}={}", name(*level)))
    }
}

fn level(name: &str) -> Result<Level, String> {
    let known = LEVELS.iter().find(|(known, _)| *known == name);
    known.map(|(_, level)| *level).ok_or_else(|| format!("{name:?} is no level"))
}

/// Libraries whose modules can be named, because they log each frame of the control socket.
pub const LIBRARIES: [&str; 6] = ["h2", "hyper", "hyper_util", "mio", "tonic", "tower"];

fn module_name(name: &str) -> Result<String, String> {
    let known = name.starts_with("signalbox") || LIBRARIES.contains(&name);
    let sound = name.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"_:".contains(&octet));
    if known && sound {
        return Ok(name.to_owned());
    }
    Err(format!("{name:?} is no module of Signalbox, such as signalbox_gist or signalbox_node::node"))
}

/// The kind of `log.level`.
pub(crate) struct LogFilter;

impl Kind for LogFilter {
    type Value = Filter;

    fn read(&self, value: &Tree) -> Result<Filter, KindError> {
        match &value.value {
            Value::Text(text) => text.parse().map_err(KindError::new),
            other => Err(KindError::new(format!("{other} is no level"))),
        }
    }

    fn show(&self, value: &Filter) -> String {
        quoted(&value.to_string())
    }

    fn form(&self) -> String {
        "\"error\", \"warn\", \"info\", \"debug\" or \"trace\", then MODULE=LEVEL for single modules"
            .to_owned()
    }

    fn example(&self) -> String {
        quoted("info,signalbox_gist=debug")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_levels_of_their_own() {
        let text = "warn,signalbox_gist=debug,signalbox_rsvp::engine=trace";
        let filter: Filter = text.parse().unwrap();
        assert_eq!(filter.level, Level::Warn);
        assert_eq!(filter.modules[1], ("signalbox_rsvp::engine".to_owned(), Level::Trace));
        assert_eq!(filter.to_string(), text);
        assert!(filter.names_modules() && !Filter::default().names_modules());
    }

    #[test]
    fn a_text_that_is_no_filter_is_refused() {
        for text in
            ["", "loud", "info,", "signalbox_gist", "signalbox_gist=", "gist=debug", "signalbox gist=debug"]
        {
            assert!(text.parse::<Filter>().is_err(), "{text}");
        }
    }
}
