//! `[apps.qos]`, `[resources]` and `[traffic]`: reservations, who may have them, and how the kernel keeps them.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use signalbox_core::NslpId;
use signalbox_linux::traffic::{Enforcement, LinkConfig, Signaling, TrafficConfig};
use signalbox_node::qos::{self, StateKeeping, WayBack};
use signalbox_node::resources::{self, Rate, config::ANY_LINK, units::Share};

use super::error::Problem;
use super::units;

/// Reservations at a link whose number is not configured, where the kernel enforces them: each takes about 400
/// octets there.
const ENFORCED_RESERVATIONS: u32 = 16_384;
/// Own queues that the kernel is asked to make at most.
const MOST_QUEUES: u32 = 2000;
/// Least rate of a link that is enforced, in octets a second.
const LEAST_RATE: u64 = 1000;

/// `[apps.qos]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QosConfig {
    /// Whether it runs.
    pub(crate) enabled: bool,
    /// NSLPID that its messages carry.
    pub(crate) nslp_id: u16,
    /// NSLPID of end-to-end messages inside an aggregation region.
    bypass_nslp_id: Option<u16>,
    /// Aggregates that begin here.
    #[serde(rename = "aggregate")]
    aggregates: Vec<AggregateConfig>,
    /// How much it remembers.
    state: StateKeeping,
    /// This node ends messages that look for a proxy.
    proxy: bool,
    /// It reserves when the sender of a flow that ends here asks for it.
    accept_reserve_init: bool,
    /// What it does for the way back of bidirectional reservations.
    way_back: WayBack,
    /// Refreshes without QSPEC.
    reduced_refresh: bool,
    /// Sessions in one refresh beside the first.
    summary: u16,
    /// Refreshes are acknowledged by the next peer.
    acknowledged_refresh: bool,
    /// The old branch is torn down after a change of route.
    tear_old_branch: bool,
    /// Tears are confirmed, and repeated until they are.
    repeat_tear: bool,
    /// Routers without the application do not matter.
    ignore_gaps: bool,
    /// RESPONSEs tell the rule that refused.
    tell_rule: bool,
    /// Refresh period.
    #[serde(deserialize_with = "units::duration")]
    refresh: Duration,
    /// K of the state lifetime.
    refresh_multiple: u8,
    /// First wait for a RESPONSE.
    #[serde(deserialize_with = "units::duration")]
    request_retry: Duration,
    /// How long RESPONSEs are waited for.
    #[serde(deserialize_with = "units::duration")]
    retry_max: Duration,
    /// How often what failed for the moment is asked for again.
    transient_retries: u8,
    /// Messages are sent reliably.
    reliable: bool,
    /// Messages are sent over authenticated channels only.
    secure: bool,
    /// Most sessions.
    max_sessions: u32,
    /// Most sessions of which only a QUERY was seen.
    max_queries: u32,
    /// Most commands of users.
    max_commands: u32,
}

/// `[[apps.qos.aggregate]]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct AggregateConfig {
    interface: String,
    deaggregator: IpAddr,
    dscp: u8,
    step: Rate,
}

impl Default for QosConfig {
    fn default() -> Self {
        let engine = qos::Config::default();
        Self {
            enabled: true,
            nslp_id: engine.nslp.0,
            bypass_nslp_id: None,
            aggregates: Vec::new(),
            state: engine.state,
            proxy: engine.proxy,
            accept_reserve_init: engine.accept_reserve_init,
            way_back: engine.way_back,
            reduced_refresh: engine.reduced_refresh,
            summary: engine.summary,
            acknowledged_refresh: engine.acknowledged_refresh,
            tear_old_branch: engine.tear_old_branch,
            repeat_tear: engine.repeat_tear,
            ignore_gaps: engine.ignore_gaps,
            tell_rule: engine.tell_rule,
            refresh: engine.refresh,
            refresh_multiple: engine.refresh_multiple,
            request_retry: engine.request_retry,
            retry_max: engine.retry_max,
            transient_retries: engine.transient_retries,
            reliable: engine.reliable,
            secure: engine.secure,
            max_sessions: engine.max_sessions,
            max_queries: engine.max_queries,
            max_commands: engine.max_commands,
        }
    }
}

impl QosConfig {
    /// The engine's settings.
    pub(crate) fn engine(&self) -> qos::Config {
        let aggregates = self.aggregates.iter().map(|aggregate| qos::Aggregate {
            interface: aggregate.interface.clone(),
            deaggregator: aggregate.deaggregator,
            dscp: aggregate.dscp,
            step: aggregate.step.0,
        });
        qos::Config {
            nslp: NslpId(self.nslp_id),
            bypass_nslp: self.bypass_nslp_id.map(NslpId),
            aggregates: aggregates.collect(),
            state: self.state,
            proxy: self.proxy,
            accept_reserve_init: self.accept_reserve_init,
            way_back: self.way_back,
            reduced_refresh: self.reduced_refresh,
            summary: self.summary,
            acknowledged_refresh: self.acknowledged_refresh,
            tear_old_branch: self.tear_old_branch,
            repeat_tear: self.repeat_tear,
            ignore_gaps: self.ignore_gaps,
            tell_rule: self.tell_rule,
            refresh: self.refresh,
            refresh_multiple: self.refresh_multiple,
            request_retry: self.request_retry,
            retry_max: self.retry_max,
            transient_retries: self.transient_retries,
            reliable: self.reliable,
            secure: self.secure,
            max_sessions: self.max_sessions,
            max_queries: self.max_queries,
            max_commands: self.max_commands,
            ..qos::Config::default()
        }
    }

    /// The first value that is out of its range; `ping` is the number of the Ping application, if it runs.
    pub(super) fn problem(&self, ping: Option<u16>) -> Option<Problem> {
        let second = Duration::from_secs(1);
        let day = Duration::from_secs(86_400);
        let taken = |nslp: u16| nslp == NslpId::NONE.0 || nslp == NslpId::NATFW.0 || Some(nslp) == ping;
        let (key, message) = if taken(self.nslp_id) {
            ("nslp_id", "belongs to another application; 1 is registered for QoS")
        } else if self.bypass_nslp_id.is_some_and(|nslp| taken(nslp) || nslp == self.nslp_id) {
            ("bypass_nslp_id", "belongs to another application, or is nslp_id")
        } else if !self.aggregates.is_empty() && self.bypass_nslp_id.is_none() {
            ("aggregate", "needs bypass_nslp_id")
        } else if self.aggregates.iter().any(|a| a.dscp > 63) {
            ("aggregate", "dscp out of range: 0 to 63")
        } else if self.aggregates.iter().any(|a| a.step.0 == 0) {
            ("aggregate", "step out of range: from \"8bit\"")
        } else if !(second..=day).contains(&self.refresh) {
            ("refresh", "out of range: 1 s to 1 day")
        } else if self.refresh_multiple == 0 {
            ("refresh_multiple", "out of range: 1 to 255")
        } else if !(Duration::from_millis(10)..=day).contains(&self.request_retry) {
            ("request_retry", "out of range: 10 ms to 1 day")
        } else if !(self.request_retry..=day).contains(&self.retry_max) {
            ("retry_max", "out of range: request_retry to 1 day")
        } else if self.max_sessions == 0 {
            ("max_sessions", "at least 1")
        } else {
            return None;
        };
        Some(Problem { key: format!("apps.qos.{key}"), message: message.to_owned() })
    }
}

/// `[traffic]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TrafficSection {
    /// What to do where the kernel cannot enforce everything.
    enforcement: EnforcementMode,
    /// Use eBPF where the kernel allows it.
    ebpf: bool,
    /// What signaling is sure of at each link.
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
    /// What to enforce: the links that have something to reserve, as far as they are named and have a capacity. The
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

    /// What admission control may give: not more reservations than the kernel has places for.
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
    pub(super) fn problem(&self, resources: &resources::Config) -> Option<Problem> {
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

    use super::super::Config;
    use super::*;

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
    fn without_its_section_or_switched_off_it_does_not_run() {
        assert!(parse("").unwrap().qos().is_none());
        assert!(parse("[apps.qos]\nenabled = false").unwrap().qos().is_none());
        assert_eq!(parse("[apps.qos]").unwrap().qos().unwrap().engine(), qos::Config::default());
    }

    #[test]
    fn mistakes_name_their_field() {
        let link = "[apps.qos]\n[[resources.link]]\ninterface = \"rb\"\n";
        for (text, place, part) in [
            ("[apps.qos]\nnslp_id = 2\n".to_owned(), "2:11", "apps.qos.nslp_id: belongs to another"),
            ("[apps.ping]\n[apps.qos]\nnslp_id = 32704\n".to_owned(), "3:11", "apps.qos.nslp_id: belongs"),
            ("[apps.qos]\nrefresh = \"1ms\"\n".to_owned(), "2:11", "apps.qos.refresh: out of range"),
            ("[apps.qos]\nstate = \"some\"\n".to_owned(), "2:9", "expected one of `stateful`"),
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
