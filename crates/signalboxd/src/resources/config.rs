//! `[resources]` and `[traffic]`: what there is to reserve, and how the kernel keeps it.

use serde::Deserialize;
use signalbox_linux::traffic::{Enforcement, LinkConfig, Signaling, TrafficConfig};
use signalbox_node::resources::{self, config::ANY_LINK, units::Share};

use crate::config::error::Problem;

/// Reservations at a link whose number is not configured, where the kernel enforces them: each takes about 400
/// octets there.
const ENFORCED_RESERVATIONS: u32 = 16_384;
/// Own queues that the kernel is asked to make at most.
const MOST_QUEUES: u32 = 2000;
/// Least rate of a link that is enforced, in octets a second.
const LEAST_RATE: u64 = 1000;

/// `[traffic]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TrafficSection {
    /// What to do where the kernel cannot enforce everything.
    enforcement: EnforcementMode,
    /// Use eBPF where the kernel allows it.
    ebpf: bool,
    /// Share of each link that is kept for signaling.
    signaling: Share,
}

impl Default for TrafficSection {
    fn default() -> Self {
        Self { enforcement: EnforcementMode::default(), ebpf: true, signaling: Share::Percent(2) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum EnforcementMode {
    #[default]
    Required,
    BestEffort,
    Off,
}

impl TrafficSection {
    /// What to enforce: the links that can be reserved at, as far as they are named and have a capacity. The
    /// node's own packets carry `mark`.
    pub(crate) fn enforcer(&self, resources: &resources::Config, mark: u32) -> TrafficConfig {
        let links = resources.links.iter().filter(|link| link.interface != ANY_LINK).filter_map(|link| {
            let rate = link.capacity?.0;
            Some(LinkConfig {
                reservable: link.reservable.of(rate),
                signaling: LinkConfig::signaling(self.signaling.of(rate), rate),
                classes: u16::try_from(link.own_queues).unwrap_or(u16::MAX),
                max_reservations: self.most(resources, link),
                ..LinkConfig::new(&link.interface, rate)
            })
        });
        TrafficConfig {
            enforcement: match self.enforcement {
                EnforcementMode::Required => Enforcement::Required,
                EnforcementMode::BestEffort => Enforcement::BestEffort,
                EnforcementMode::Off => Enforcement::Off,
            },
            links: links.collect(),
            ebpf: self.ebpf,
            signaling: Signaling { mark, ..Signaling::default() },
        }
    }

    /// The settings of admission control: it grants not more reservations than the kernel can keep.
    pub(crate) fn admission(&self, resources: &resources::Config) -> resources::Config {
        let mut admission = resources.clone();
        if self.enforcement != EnforcementMode::Off {
            for link in &mut admission.links {
                link.max_reservations = Some(self.most(resources, link));
            }
        }
        admission
    }

    fn most(&self, resources: &resources::Config, link: &resources::config::LinkConfig) -> u32 {
        link.max_reservations.unwrap_or(ENFORCED_RESERVATIONS).min(resources.max_reservations)
    }

    /// The first value of a link that cannot be enforced.
    pub(crate) fn problem(&self, resources: &resources::Config) -> Option<Problem> {
        let required = self.enforcement == EnforcementMode::Required;
        if self.enforcement == EnforcementMode::Off {
            return None;
        }
        (1..).zip(&resources.links).find_map(|(number, link)| {
            let any = link.interface == ANY_LINK;
            let (field, message) = if any && required {
                ("interface", "\"*\" cannot be enforced: name the interfaces, or set traffic.enforcement")
            } else if link.capacity.is_none() && required {
                ("capacity", "needed to enforce reservations: give it, or set traffic.enforcement")
            } else if any || link.capacity.is_none() {
                return None;
            } else if link.capacity.is_some_and(|rate| rate.0 < LEAST_RATE) {
                ("capacity", "out of range: from 8kbit, or set traffic.enforcement = \"off\"")
            } else if link.own_queues > MOST_QUEUES {
                ("own_queues", "out of range: 0 to 2000, or set traffic.enforcement = \"off\"")
            } else if link.max_reservations.is_some_and(|most| !(1..=1_000_000).contains(&most)) {
                ("max_reservations", "out of range: 1 to 1000000, or set traffic.enforcement = \"off\"")
            } else {
                return None;
            };
            Some(Problem {
                key: format!("resources.link[{number}].{field}"),
                message: format!("{:?}: {message}", link.interface),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use signalbox_node::qos;

    use super::*;
    use crate::config::Config;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("node.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn one_link_serves_admission_and_enforcement() {
        let config = parse(
            "[apps.qos]\nrefresh = \"2s\"\n[[resources.link]]\ninterface = \"rb\"\ncapacity = \"10mbit\"\n\
             reservable = \"80%\"\nown_queues = 7\n[[resources.link]]\ninterface = \"rc\"\ncapacity = \"8mbit\"\n\
             max_reservations = 5\n[traffic]\nenforcement = \"best-effort\"\nsignaling = \"3%\"\n",
        )
        .unwrap();
        let qos = config.qos().unwrap().engine();
        assert_eq!(qos, qos::Config { refresh: Duration::from_secs(2), ..qos::Config::default() });
        let traffic = config.traffic.enforcer(&config.resources, config.io.own_mark);
        assert_eq!(traffic.signaling, Signaling::default());
        assert_eq!(traffic.enforcement, Enforcement::BestEffort);
        let rb = LinkConfig {
            name: "rb".into(),
            rate: 1_250_000,
            reservable: 1_000_000,
            signaling: 37_500,
            classes: 7,
            max_reservations: ENFORCED_RESERVATIONS,
        };
        assert_eq!(traffic.links[0], rb);
        assert_eq!((traffic.links[1].rate, traffic.links[1].max_reservations), (1_000_000, 5));
        let admission = config.traffic.admission(&config.resources);
        let most: Vec<_> = admission.links.iter().map(|link| link.max_reservations).collect();
        assert_eq!(most, [Some(ENFORCED_RESERVATIONS), Some(5)], "no more than the kernel has places for");
    }

    #[test]
    fn mistakes_name_their_field() {
        let link = "[apps.qos]\n[[resources.link]]\ninterface = \"rb\"\n";
        for (text, place, part) in [
            (format!("{link}capacity = \"fast\"\n"), "4:12", "is no rate"),
            (format!("{link}capacity = \"10mbit\"\nshare = 5\n"), "5:1", "unknown field `share`"),
            (format!("{link}capacity = \"10mbit\"\nown_queues = 3000\n"), "5:14", "0 to 2000"),
            (link.to_owned(), "2:1", "resources.link[1].capacity: \"rb\": needed to enforce"),
            (
                format!("{link}capacity = \"1gbit\"\n[[resources.link]]\ninterface = \"*\"\n"),
                "6:13",
                "resources.link[2].interface: \"*\": ",
            ),
            (
                format!("{link}capacity = \"1gbit\"\noverhead = 999\n"),
                "5:12",
                "resources.link[1] 'rb'.overhead: out of range",
            ),
            ("[traffic]\nsignaling = \"much\"\n".to_owned(), "2:13", "share: 0% to 100%"),
            ("[traffic]\nenforcement = \"strict\"\n".to_owned(), "2:15", "expected one of `required`"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.starts_with(&format!("node.toml:{place}: ")), "{text:?}: {error}");
            assert!(error.contains(part), "{text:?}: {error}");
        }
        let off = format!("{link}[traffic]\nenforcement = \"off\"\n");
        assert!(parse(&off).is_ok(), "a measured capacity will do where nothing is enforced");
    }
}
