//! `[apps.qos]`

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use signalbox_core::NslpId;
use signalbox_node::qos::{self, ReverseDirection, StateKeeping};
use signalbox_node::resources::Rate;

use crate::config::Config;
use crate::config::error::Problem;
use crate::config::section::Section;
use crate::config::units;
use crate::protocols::gist::config::needs_gist;

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
    /// State that it keeps: stateful, reduced-state or stateless operation.
    state: StateKeeping,
    /// This node ends messages that look for a proxy.
    proxy: bool,
    /// It reserves when the sender of a flow that ends here asks for it.
    accept_reserve_init: bool,
    /// How the reverse direction of bidirectional reservations is handled.
    way_back: ReverseDirection,
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
    /// Routers without the application are not reported as gaps.
    ignore_gaps: bool,
    /// RESPONSEs name the rule that refused.
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
    /// How often a request is repeated that failed with a transient error.
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
}

impl Section for QosConfig {
    fn enabled(&self) -> bool {
        self.enabled
    }

    fn problem(&self, config: &Config) -> Option<Problem> {
        let ping = config.ping().map(|ping| ping.nslp_id);
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
            return needs_gist(config, "apps.qos");
        };
        Some(Problem { key: format!("apps.qos.{key}"), message: message.to_owned() })
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        node.qos = Some(self.engine());
    }

    fn nslps(&self) -> Vec<NslpId> {
        vec![NslpId(self.nslp_id)]
    }

    fn reserves(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("node.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn without_its_section_or_switched_off_it_does_not_run() {
        assert!(parse("").unwrap().qos().is_none());
        assert!(parse("[apps.qos]\nenabled = false").unwrap().qos().is_none());
        assert_eq!(parse("[apps.qos]").unwrap().qos().unwrap().engine(), qos::Config::default());
    }

    #[test]
    fn mistakes_name_their_field() {
        for (text, place, part) in [
            ("[apps.qos]\nnslp_id = 2\n", "2:11", "apps.qos.nslp_id: belongs to another"),
            ("[apps.ping]\n[apps.qos]\nnslp_id = 32704\n", "3:11", "apps.qos.nslp_id: belongs"),
            ("[apps.qos]\nrefresh = \"1ms\"\n", "2:11", "apps.qos.refresh: out of range"),
            ("[apps.qos]\nstate = \"some\"\n", "2:9", "expected one of `stateful`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("node.toml:{place}: ")), "{text:?}: {error}");
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
