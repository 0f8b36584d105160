//! `[boomerang]`, and `boomerang` in tables of interfaces.

use std::collections::BTreeMap;
use std::time::Duration;

use signalbox_core::{Entry, EntryRequest, ReserverId};
use signalbox_linux::IoConfig;
use signalbox_node::boomerang::Config;

use super::Protocol;
use crate::keys::Keys;
use crate::kind::{code_point, duration, flag, number, per_second, real};
use crate::openings::open;

pub(super) const MEANING: &str = "Boomerang: reservations in ICMP Echo ([boomerang.md](boomerang.md)). With `kernel.intercept` the node interprets the \
     messages that it forwards; without it the node only begins reservations of its own.";

/// The interface that stands for all without a part of their own.
const ANY: &str = "*";
/// Experimental values of the Router Alert with IPv6 (RFC 5350).
const EXPERIMENTAL: std::ops::RangeInclusive<u16> = 65_503..=65_534;

/// `[boomerang]`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Boomerang {
    engine: Config,
    refresh: Duration,
    max_refresh: Duration,
    intercept: bool,
    parts: BTreeMap<String, Part>,
}

/// `[interfaces.NAME.boomerang]`
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    trusted: bool,
}

impl Default for Boomerang {
    fn default() -> Self {
        let engine = Config::default();
        let seconds = |seconds: u8| Duration::from_secs(seconds.into());
        let (refresh, max_refresh) = (seconds(engine.refresh), seconds(engine.max_refresh));
        Self { engine, refresh, max_refresh, intercept: true, parts: BTreeMap::new() }
    }
}

impl Protocol for Boomerang {
    fn declare(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        let seconds = || duration(Duration::from_secs(1)..=Duration::from_secs(u8::MAX.into()));
        let meaning = "Refresh interval of the reservations of this node, in whole seconds.";
        keys.key("refresh", &mut self.refresh, seconds(), meaning);
        let meaning = "Longest refresh interval that the node leaves in a passing message, in whole seconds.";
        keys.key("max_refresh", &mut self.max_refresh, seconds(), meaning);
        for (name, value, own) in [
            ("refresh", self.refresh, &mut config.refresh),
            ("max_refresh", self.max_refresh, &mut config.max_refresh),
        ] {
            let message = "messages have whole seconds: write such a time, as \"30s\"";
            keys.check(value.subsec_nanos() == 0, &[name], message);
            *own = u8::try_from(value.as_secs()).unwrap_or(u8::MAX);
        }
        keys.key(
            "hold_multiple",
            &mut config.hold,
            real(1.0..=1000.0),
            "A reservation without a refresh expires after this multiple of the interval in the last message.",
        );
        keys.key(
            "prove_return",
            &mut config.prove,
            flag(),
            "Reserve only for initiating nodes that proved, by the KEY, that they receive the replies. A KEY has room for two \
             proofs, and a router takes one for each direction: for the routers where untrusted hosts are connected.",
        );
        keys.key(
            "own_source",
            &mut config.same_source,
            flag(),
            "Refuse requests whose flow has another source than the message.",
        );
        keys.key(
            "intercept",
            &mut self.intercept,
            flag(),
            "`false`: the kernel forwards the messages of others like all pings. `kernel.intercept = false` has the same \
             effect for all protocols.",
        );
        keys.group("router_alert", |keys| {
            let meaning = "Own requests over IPv4 contain a Router Alert [RFC 2113]. Routers of this suite need none.";
            keys.key("ipv4", &mut config.router_alert, flag(), meaning);
            let meaning = "Value of the Router Alert in own requests over IPv6 [RFC 2711]. Other values than the \
                           experimental ones [RFC 5350] belong to others.";
            keys.option("ipv6", &mut config.router_alert_v6, number(EXPERIMENTAL), "no Router Alert", meaning);
        });
        keys.key("dscp", &mut config.tos, code_point(), "DSCP of messages that the node sends.");
        keys.key(
            "source_rate",
            &mut config.rate,
            per_second(0..=u32::MAX),
            "Messages of one source that the node interprets; more are dropped. `\"0/s\"`: no limit.",
        );
        keys.key(
            "max_flows",
            &mut config.max_flows,
            number(1..=u32::MAX),
            "Most reservations as a node on the path.",
        );
        keys.key(
            "max_sessions",
            &mut config.max_sessions,
            number(0..=u32::MAX),
            "Most reservations of local users.",
        );
        keys.key(
            "max_waiting",
            &mut config.max_waiting,
            number(1..=u32::MAX),
            "Most messages that wait for a route lookup.",
        );
    }

    fn has_parts(&self) -> bool {
        true
    }

    fn has_part(&self, interface: &str) -> bool {
        self.parts.contains_key(interface)
    }

    fn interface(&mut self, name: &str, keys: &mut Keys<'_>) {
        let mut own = self.parts.get(name).copied().unwrap_or(Part { trusted: true });
        keys.key(
            "trusted",
            &mut own.trusted,
            flag(),
            "`false`: messages that come in by the interface are forwarded without being interpreted.",
        );
        if keys.is_there() {
            self.parts.insert(name.to_owned(), own);
        }
    }

    fn openings(&self, keys: &mut Keys<'_>) {
        if !self.engine.prove {
            let what = "messages prove nothing, not even their source address, and policy rules with `from` compare that: write \
                        prove_return = true where hosts are connected that you do not trust";
            open(keys, &["boomerang.prove_return", "boomerang", "node.protocols"], what);
        }
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        let named = self.parts.iter().filter(|(name, _)| *name != ANY);
        node.boomerang = Some(Config {
            trusted: named.map(|(name, part)| (name.clone(), part.trusted)).collect(),
            trusted_elsewhere: self.parts.get(ANY).is_none_or(|part| part.trusted),
            ..self.engine.clone()
        });
    }

    fn adapt(&self, _: &mut IoConfig, entries: &mut [EntryRequest]) {
        if !self.intercept {
            let echo = entries.iter_mut().filter(|request| matches!(request.entry, Entry::IcmpEcho(_)));
            echo.for_each(|request| request.intercept = None);
        }
    }

    fn reserver(&self) -> Option<ReserverId> {
        Some(ReserverId::BOOMERANG)
    }
}
