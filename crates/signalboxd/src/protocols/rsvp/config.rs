//! `[rsvp]`: RSVP as a host and router.

mod keys;
mod neighbours;

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use signalbox_core::{Entry, EntryRequest};
use signalbox_node::rsvp;
use signalbox_node::rsvp::neighbour::Config as NeighboursConfig;

use crate::config::Config;
use crate::config::error::Problem;
use crate::config::section::Section;
use crate::config::units;
use keys::KeySection;
use neighbours::{HelloSection, IntegritySection, ReductionSection, Tables};

/// The IP protocol of RSVP (RFC 2205 §3.3).
const PROTOCOL: u8 = 46;

/// `[rsvp]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RsvpConfig {
    /// Whether it runs.
    pub(crate) enabled: bool,
    /// R, the refresh period (RFC 2205 §3.7).
    #[serde(deserialize_with = "units::duration")]
    refresh: Duration,
    /// K, refresh periods until state expires (RFC 2205 §3.7).
    refresh_multiple: u32,
    /// Slew.Max, the largest growth of R in one step (RFC 2205 §3.7).
    slew_max: f64,
    /// W, the delay of local repair (RFC 2205 §3.6).
    #[serde(deserialize_with = "units::duration")]
    repair_delay: Duration,
    /// DSCP of the messages that are sent.
    dscp: u8,
    /// Settings of single interfaces.
    #[serde(rename = "interface")]
    interfaces: Vec<InterfaceSection>,
    /// Kb, refresh periods of blockade state (RFC 2205 §3.5).
    blockade_multiple: u32,
    /// Staged refresh.
    staged: Option<StagedSection>,
    /// Whether a reservation may be reduced instead of removed.
    bandwidth_reduction: bool,
    /// Whether Path messages to other addresses are intercepted.
    pub(crate) router_alert: bool,
    /// Refresh reduction.
    refresh_reduction: Option<ReductionSection>,
    /// Hello.
    hello: Option<HelloSection>,
    /// Integrity.
    integrity: Option<IntegritySection>,
    /// Keys for it.
    #[serde(rename = "key")]
    keys: Vec<KeySection>,
    /// The keys with their secrets, once they are read.
    #[serde(skip)]
    secrets: Vec<rsvp::IntegrityKey>,
    /// Multicast routing builds trees per source.
    source_trees: bool,
    /// Most diagnostic messages a second.
    diagnostics: u32,
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
    /// Most neighbours.
    max_neighbours: u32,
    /// Most states with a MESSAGE_ID of a neighbour, and again most with one of this node.
    max_names: u32,
    /// Most messages that wait for an acknowledgment.
    max_unacknowledged: u32,
    /// Most senders whose sequence numbers are kept, by key.
    max_associations: u32,
}

/// `[[rsvp.interface]]`: a key that is absent has the value of `[rsvp]`.
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
    refresh_reduction: Option<ReductionSection>,
    hello: Option<HelloSection>,
    integrity: Option<IntegritySection>,
}

impl InterfaceSection {
    const fn tables(&self) -> Tables {
        let Self { refresh_reduction, hello, integrity, .. } = *self;
        Tables { refresh_reduction, hello, integrity }
    }
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
            reduction,
            source_trees,
            diagnostics,
            max_sessions,
            max_senders,
            max_senders_per_session,
            max_reservations,
            max_next_hops,
            max_applications,
            neighbours,
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
            bandwidth_reduction: reduction,
            router_alert: true,
            refresh_reduction: None,
            hello: None,
            integrity: None,
            keys: Vec::new(),
            secrets: Vec::new(),
            source_trees,
            diagnostics,
            max_sessions,
            max_senders,
            max_senders_per_session,
            max_reservations,
            max_next_hops,
            max_applications,
            max_neighbours: neighbours.max_neighbours,
            max_names: neighbours.max_names,
            max_unacknowledged: neighbours.max_unacknowledged,
            max_associations: neighbours.max_associations,
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
        let Self { refresh_reduction, hello, integrity, .. } = *self;
        let everywhere = Tables { refresh_reduction, hello, integrity }.over(Default::default());
        let interfaces = self.interfaces.iter().map(|own| {
            let tables = own.tables();
            let settings = rsvp::InterfaceConfig {
                enabled: own.enabled,
                refresh: own.refresh.unwrap_or(interface.refresh),
                cleanup: own.refresh_multiple.unwrap_or(interface.cleanup),
                slew_max: own.slew_max.unwrap_or(interface.slew_max),
                repair_delay: own.repair_delay.unwrap_or(interface.repair_delay),
                tos: own.dscp.map_or(interface.tos, |dscp| dscp << 2),
                max_lifetime: interface.max_lifetime,
                non_rsvp: own.non_rsvp,
                neighbours: (tables != Tables::default()).then(|| tables.over(everywhere)),
            };
            (own.name.clone(), settings)
        });
        rsvp::Config {
            interfaces: interfaces.collect(),
            interface,
            blockade_multiplier: self.blockade_multiple,
            staged: self.staged.map(|staged| rsvp::Staged { first: staged.first, factor: staged.factor }),
            reduction: self.bandwidth_reduction,
            source_trees: self.source_trees,
            diagnostics: self.diagnostics,
            max_sessions: self.max_sessions,
            max_senders: self.max_senders,
            max_senders_per_session: self.max_senders_per_session,
            max_reservations: self.max_reservations,
            max_next_hops: self.max_next_hops,
            max_applications: self.max_applications,
            neighbours: NeighboursConfig {
                interface: everywhere,
                max_neighbours: self.max_neighbours,
                max_names: self.max_names,
                max_unacknowledged: self.max_unacknowledged,
                max_associations: self.max_associations,
                ..NeighboursConfig::default()
            },
            keys: self.secrets.clone(),
            ..rsvp::Config::default()
        }
    }

    /// The first value that is out of its range.
    fn out_of_range(&self) -> Option<Problem> {
        let dscps = self.interfaces.iter().filter_map(|own| own.dscp).chain([self.dscp]);
        let named = |name: &str| self.interfaces.iter().filter(|own| own.name == name).count();
        let (key, message) = if dscps.into_iter().any(|dscp| dscp > 63) {
            ("dscp".to_owned(), "out of range: 0 to 63".to_owned())
        } else if let Some(twice) = self.interfaces.iter().find(|own| named(&own.name) > 1) {
            ("interface".to_owned(), format!("{:?} twice", twice.name))
        } else if let Some((key, message)) = self.integrity_problem() {
            (key, message.to_owned())
        } else {
            let rsvp::ConfigError { field, problem } = self.engine().validated().err()?;
            match field.strip_prefix("keys.") {
                Some(at) => keys::ours(at, problem),
                None => (self.ours(&field), problem.to_owned()),
            }
        };
        Some(Problem { key: format!("rsvp.{key}"), message })
    }

    /// A key without use, or integrity without key.
    fn integrity_problem(&self) -> Option<(String, &'static str)> {
        let own = |own: &InterfaceSection| own.integrity.and_then(|own| own.challenge_answers).is_some();
        if let Some(at) = self.interfaces.iter().position(own) {
            let key = format!("interface[{}].integrity.challenge_answers", at + 1);
            return Some((key, "is of the whole node; set it in [rsvp.integrity]"));
        }
        let engine = self.engine();
        let demanded = |interface: Option<&str>| {
            let settings = interface.and_then(|name| engine.of_interface(name).neighbours);
            settings.unwrap_or(engine.neighbours.interface).integrity
        };
        let places = self.interfaces.iter().map(|own| Some(own.name.as_str())).chain([None]);
        for place in places {
            let integrity = demanded(place);
            // Without a name: the interfaces without a section. Each of them may have keys of its own.
            let here: Vec<_> = self
                .keys
                .iter()
                .filter(|key| place.is_none() || key.interface.is_none() || key.interface.as_deref() == place)
                .collect();
            if integrity.sending && !here.iter().any(|key| key.signs()) {
                let message = "there is no [[rsvp.key]] to sign with, so nothing could be sent: give one, or \
                               sign = false";
                return Some(("integrity".to_owned(), message));
            }
            if integrity.receiving && !here.iter().any(|key| key.verifies()) {
                let message = "there is no [[rsvp.key]] to verify with, so nothing would be taken: give one, or \
                               require = false";
                return Some(("integrity".to_owned(), message));
            }
        }
        let used = |key: &KeySection| {
            let integrity = demanded(key.interface.as_deref());
            let anywhere =
                key.interface.is_none() && self.interfaces.iter().any(|own| own.integrity.is_some());
            anywhere || integrity.sending || integrity.receiving
        };
        let idle = self.keys.iter().position(|key| !used(key))?;
        let message = "nothing is signed or verified where it is for: add [rsvp.integrity], or \
                       integrity = {} to its [[rsvp.interface]]";
        Some((format!("key[{}].interface", idle + 1), message))
    }

    /// The key of the file for a setting of the engine.
    fn ours(&self, field: &str) -> String {
        let of_interface = field.strip_prefix("interfaces.").and_then(|rest| {
            // Names may have dots.
            let named = self.interfaces.iter().enumerate().filter_map(|(at, own)| {
                let last = rest.strip_prefix(own.name.as_str())?.strip_prefix('.')?;
                Some((at + 1, last))
            });
            named.min_by_key(|(_, last)| last.len())
        });
        let (place, last) = match of_interface {
            Some((number, last)) => (format!("interface[{number}]."), last),
            None => (String::new(), field.trim_start_matches("interface.").trim_start_matches("neighbours.")),
        };
        let name = match last {
            "cleanup" => "refresh_multiple",
            "blockade_multiplier" => "blockade_multiple",
            other => neighbours::ours(other).unwrap_or(other),
        };
        format!("{place}{name}")
    }
}

impl Section for RsvpConfig {
    fn enabled(&self) -> bool {
        self.enabled
    }

    fn problem(&self, _: &Config) -> Option<Problem> {
        self.out_of_range()
    }

    fn read_files(&mut self, directory: &Path) -> Result<(), Problem> {
        self.secrets = keys::read(&self.keys, directory)?;
        self.out_of_range().map_or(Ok(()), Err)
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        node.rsvp = Some(self.engine());
    }

    /// Where Router Alerts are ignored, the kernel forwards RSVP's packets like any other packets (RFC 6398).
    fn adapt(&self, entries: &mut [EntryRequest]) {
        if !self.router_alert {
            let rsvp = entries.iter_mut().filter(|request| request.entry == Entry::Ip(PROTOCOL));
            rsvp.for_each(|request| request.intercept = None);
        }
    }

    fn reserves(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use signalbox_node::rsvp::neighbour::{Algorithm, KeyUse};

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
    }

    #[test]
    fn what_can_be_switched_off_is_on() {
        let of = |text: &str| {
            let config = parse(text).unwrap();
            (
                config.rsvp().unwrap().engine().reduction,
                config.rsvp().unwrap().router_alert,
                config.io.intercept,
            )
        };
        assert_eq!(of("[rsvp]"), (true, true, true));
        assert_eq!(of("[rsvp]\nbandwidth_reduction = false"), (false, true, true));
        assert_eq!(of("[rsvp]\nrouter_alert = false"), (true, false, true));
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
            ("[rsvp]\nbandwidth_reduction = \"off\"\n", "2:23", "expected a boolean"),
            ("[rsvp]\nrouter_alert = 0\n", "2:16", "expected a boolean"),
            ("[rsvp.hello]\nmisses = 0.5\n", "2:10", "rsvp.hello.misses: not from 1"),
            (
                "[rsvp.refresh_reduction]\nack_delay = \"1s\"\n",
                "2:13",
                "rsvp.refresh_reduction.ack_delay: not below",
            ),
            ("[rsvp.refresh_reduction]\nenabeld = true\n", "2:1", "unknown field `enabeld`"),
            (
                "[[rsvp.interface]]\nname = \"a\"\n[[rsvp.interface]]\nname = \"a.b\"\nhello = { interval = \"0s\" }\n",
                "5:22",
                "rsvp.interface[2].hello.interval: not from 1 ms",
            ),
            ("[rsvp.integrity]\nwindow = 8\n", "1:1", "no [[rsvp.key]] to sign with"),
            ("[rsvp.integrity]\nsign = false\n", "1:1", "no [[rsvp.key]] to verify with"),
            ("[rsvp]\n[[rsvp.key]]\nid = 1\nfile = \"k\"\n", "2:1", "add [rsvp.integrity]"),
            ("[[rsvp.key]]\nid = 1\nfile = \"k\"\nalgorithm = \"md5\"\n", "4:13", "unknown variant `md5`"),
            (
                "[[rsvp.interface]]\nname = \"a\"\nintegrity = { sign = false, require = false, challenge_answers = 3 }\n",
                "3:",
                "set it in [rsvp.integrity]",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part) && error.contains(place), "{text}: {error}");
        }
    }

    #[test]
    fn tables_of_an_interface_change_what_holds_everywhere() {
        let config = parse(
            "[rsvp.refresh_reduction]\nenabled = false\nbundle_delay = \"7ms\"\n\
             [rsvp.hello]\ninterval = \"1s\"\n\
             [[rsvp.interface]]\nname = \"a\"\nrefresh_reduction = { transmissions = 9 }\nhello = { misses = 2.0 }\n\
             [[rsvp.interface]]\nname = \"b\"\nhello = { enabled = false }\n\
             [[rsvp.interface]]\nname = \"c\"\n",
        );
        let engine = config.unwrap().rsvp().unwrap().engine();
        let everywhere = engine.neighbours.interface;
        assert!(!everywhere.reduction.reliable && !everywhere.reduction.summary);
        assert_eq!(everywhere.hello.unwrap().interval, Duration::from_secs(1));
        let a = engine.of_interface("a").neighbours.unwrap();
        assert!(a.reduction.reliable && a.reduction.summary);
        assert_eq!((a.reduction.limit, a.reduction.bundle_delay), (9, Duration::from_millis(7)));
        assert_eq!((a.hello.unwrap().misses, a.hello.unwrap().interval), (2.0, Duration::from_secs(1)));
        let b = engine.of_interface("b").neighbours.unwrap();
        assert!(b.hello.is_none() && !b.reduction.reliable);
        assert_eq!(engine.of_interface("c").neighbours, None);
    }

    #[test]
    fn secrets_come_from_files_that_others_cannot_read() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("signalboxd-rsvp-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("node.toml");
        let key = directory.join("shared.key");
        let text = "[rsvp.integrity]\nchallenge = false\nwindow = 8\n[[rsvp.interface]]\nname = \"lan\"\n\
                    integrity = { sign = false, require = false }\n[[rsvp.key]]\nid = 7\nfile = \"shared.key\"\n\
                    [[rsvp.key]]\nid = 8\nfile = \"shared.key\"\nalgorithm = \"hmac-md5\"\nuse = \"receive\"\n\
                    neighbour = \"10.0.0.2\"\nuntil = 2000000000\n";
        std::fs::write(&file, text).unwrap();
        let load = |mode: u32, secret: &str| {
            std::fs::write(&key, secret).unwrap();
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
            Config::load(&file).map_err(|error| error.to_string())
        };
        let missing = Config::load(&file).unwrap_err().to_string();
        let (open, empty) = (load(0o644, "secret\n").unwrap_err(), load(0o600, "\n").unwrap_err());
        let config = load(0o640, "secret\n");
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(
            missing.contains(":9:8: rsvp.key[1].file: cannot read") && missing.ends_with("may read"),
            "{missing}"
        );
        assert!(open.contains(":9:8: ") && open.contains("are 0644") && open.contains("chmod 600"), "{open}");
        assert!(empty.contains("rsvp.key[1].file: empty"), "{empty}");
        let config = config.unwrap();
        let engine = config.rsvp().unwrap().engine();
        let integrity = engine.neighbours.interface.integrity;
        assert_eq!((integrity.sending, integrity.receiving, integrity.handshake), (true, true, false));
        assert_eq!(integrity.window, 8);
        assert!(!engine.of_interface("lan").neighbours.unwrap().integrity.sending);
        let [sha, md5] = &engine.keys[..] else { panic!("two keys") };
        assert_eq!((sha.id, sha.algorithm), (7, Algorithm::HmacSha256));
        assert_eq!((md5.algorithm, md5.usage), (Algorithm::HmacMd5, KeyUse::Receive));
        assert_eq!((md5.neighbour, md5.until), (Some("10.0.0.2".parse().unwrap()), Some(2_000_000_000)));
        assert_eq!(sha.secret, rsvp::Secret::new(*b"secret"));
        assert!(!format!("{config:?}").contains("secret\""));
    }
}
