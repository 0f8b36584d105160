//! `[rsvp]`: RSVP as a host and router.

use std::time::Duration;

use serde::Deserialize;
use signalbox_node::rsvp;

use super::error::Problem;
use super::units;

/// `[rsvp]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RsvpConfig {
    /// Whether it is spoken.
    pub(crate) enabled: bool,
    /// R.
    #[serde(deserialize_with = "units::duration")]
    refresh: Duration,
    /// K.
    refresh_multiple: u32,
    /// Slew.Max.
    slew_max: f64,
    /// W.
    #[serde(deserialize_with = "units::duration")]
    repair_delay: Duration,
    /// Code point of what is sent.
    dscp: u8,
    /// Settings of single interfaces.
    #[serde(rename = "interface")]
    interfaces: Vec<InterfaceSection>,
    /// Kb.
    blockade_multiple: u32,
    /// Staged refresh.
    staged: Option<StagedSection>,
    /// Multicast routing builds trees per source.
    source_trees: bool,
    /// Most sessions.
    max_sessions: u32,
    /// Most senders.
    max_senders: u32,
    /// Most senders of a session.
    max_senders_per_session: u16,
    /// Most reservations.
    max_reservations: u32,
    /// Most next hops of a reservation.
    max_next_hops: u16,
    /// Most sessions of applications of this node.
    max_applications: u32,
}

/// `[[rsvp.interface]]`: what is not said is as in `[rsvp]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct InterfaceSection {
    name: String,
    #[serde(default = "yes")]
    enabled: bool,
    #[serde(default, deserialize_with = "some_duration")]
    refresh: Option<Duration>,
    refresh_multiple: Option<u32>,
    slew_max: Option<f64>,
    #[serde(default, deserialize_with = "some_duration")]
    repair_delay: Option<Duration>,
    dscp: Option<u8>,
    /// Whether there are hops without RSVP behind it.
    non_rsvp: Option<bool>,
}

/// `rsvp.staged`
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct StagedSection {
    #[serde(deserialize_with = "units::duration")]
    first: Duration,
    factor: f64,
}

const fn yes() -> bool {
    true
}

fn some_duration<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    units::duration(deserializer).map(Some)
}

impl Default for RsvpConfig {
    fn default() -> Self {
        let rsvp::Config {
            interface,
            blockade_multiplier,
            source_trees,
            max_sessions,
            max_senders,
            max_senders_per_session,
            max_reservations,
            max_next_hops,
            max_applications,
            ..
        } = rsvp::Config::default();
        Self {
            enabled: true,
            refresh: interface.refresh,
            refresh_multiple: interface.cleanup,
            slew_max: interface.slew_max,
            repair_delay: interface.repair_delay,
            dscp: interface.tos >> 2,
            interfaces: Vec::new(),
            blockade_multiple: blockade_multiplier,
            staged: None,
            source_trees,
            max_sessions,
            max_senders,
            max_senders_per_session,
            max_reservations,
            max_next_hops,
            max_applications,
        }
    }
}

impl RsvpConfig {
    /// The engine's settings.
    pub(crate) fn engine(&self) -> rsvp::Config {
        let interface = rsvp::InterfaceConfig {
            refresh: self.refresh,
            cleanup: self.refresh_multiple,
            slew_max: self.slew_max,
            repair_delay: self.repair_delay,
            tos: self.dscp << 2,
            ..rsvp::InterfaceConfig::default()
        };
        let interfaces = self.interfaces.iter().map(|own| {
            let settings = rsvp::InterfaceConfig {
                enabled: own.enabled,
                refresh: own.refresh.unwrap_or(interface.refresh),
                cleanup: own.refresh_multiple.unwrap_or(interface.cleanup),
                slew_max: own.slew_max.unwrap_or(interface.slew_max),
                repair_delay: own.repair_delay.unwrap_or(interface.repair_delay),
                tos: own.dscp.map_or(interface.tos, |dscp| dscp << 2),
                non_rsvp: own.non_rsvp,
                neighbours: None,
            };
            (own.name.clone(), settings)
        });
        rsvp::Config {
            interfaces: interfaces.collect(),
            interface,
            blockade_multiplier: self.blockade_multiple,
            staged: self.staged.map(|staged| rsvp::Staged { first: staged.first, factor: staged.factor }),
            source_trees: self.source_trees,
            max_sessions: self.max_sessions,
            max_senders: self.max_senders,
            max_senders_per_session: self.max_senders_per_session,
            max_reservations: self.max_reservations,
            max_next_hops: self.max_next_hops,
            max_applications: self.max_applications,
            ..rsvp::Config::default()
        }
    }

    /// The first value that is out of its range.
    pub(super) fn problem(&self) -> Option<Problem> {
        let dscps = self.interfaces.iter().filter_map(|own| own.dscp).chain([self.dscp]);
        let named = |name: &str| self.interfaces.iter().filter(|own| own.name == name).count();
        let (key, message) = if dscps.into_iter().any(|dscp| dscp > 63) {
            ("dscp".to_owned(), "out of range: 0 to 63".to_owned())
        } else if let Some(twice) = self.interfaces.iter().find(|own| named(&own.name) > 1) {
            ("interface".to_owned(), format!("{:?} twice", twice.name))
        } else {
            let rsvp::ConfigError { field, problem } = self.engine().validated().err()?;
            (ours(&field), problem.to_owned())
        };
        Some(Problem { key: format!("rsvp.{key}"), message })
    }
}

/// What the file calls a setting of the engine.
fn ours(field: &str) -> String {
    let (of_interface, last) = match field.rsplit_once('.') {
        Some((table, last)) => (table.starts_with("interfaces"), last),
        None => (false, field),
    };
    let name = match last {
        "cleanup" => "refresh_multiple",
        "blockade_multiplier" => "blockade_multiple",
        "first" => "staged.first",
        "factor" => "staged.factor",
        same => same,
    };
    if of_interface { "interface".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Config;
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("node.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn interfaces_differ_in_what_they_say_only() {
        let config = parse(
            "[rsvp]\nrefresh = \"2s\"\nrefresh_multiple = 4\nstaged = { first = \"50ms\", factor = 2.0 }\n\
             [[rsvp.interface]]\nname = \"eth1\"\nrefresh = \"100ms\"\nnon_rsvp = true\n\
             [[rsvp.interface]]\nname = \"eth2\"\nenabled = false\n",
        )
        .unwrap();
        let engine = config.rsvp().unwrap().engine();
        assert_eq!((engine.interface.refresh, engine.interface.cleanup), (Duration::from_secs(2), 4));
        let first = engine.of_interface("eth1");
        assert_eq!((first.refresh, first.cleanup), (Duration::from_millis(100), 4));
        assert_eq!((first.non_rsvp, engine.of_interface("eth2").enabled), (Some(true), false));
        assert_eq!(engine.staged, Some(rsvp::Staged { first: Duration::from_millis(50), factor: 2.0 }));
        assert!(config.io().rsvp);
    }

    #[test]
    fn without_its_section_or_switched_off_it_is_not_spoken() {
        assert!(parse("").unwrap().rsvp().is_none());
        assert!(parse("[rsvp]\nenabled = false").unwrap().rsvp().is_none());
        assert_eq!(parse("[rsvp]").unwrap().rsvp().unwrap().engine(), rsvp::Config::default());
    }

    #[test]
    fn mistakes_name_their_field() {
        for (text, place, part) in [
            ("[rsvp]\ndscp = 64\n", "2:8", "rsvp.dscp: out of range"),
            ("[rsvp]\nrefresh = \"30 d\"\n", "2:11", "duration"),
            ("[rsvp]\nrefresh = \"30d\"\n", "2:11", ""),
            ("[rsvp]\nrefresh_multiple = 0\n", "2:20", "rsvp.refresh_multiple: 0: state would"),
            ("[rsvp]\nstaged = { first = \"1ms\", factor = 2.0 }\n", "2:20", "rsvp.staged.first"),
            ("[rsvp]\n[[rsvp.interface]]\nname = \"a\"\n[[rsvp.interface]]\nname = \"a\"\n", "", "twice"),
            ("[rsvp]\nrefersh = \"1s\"\n", "2:1", "unknown field `refersh`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part) && error.contains(place), "{text}: {error}");
        }
    }
}
