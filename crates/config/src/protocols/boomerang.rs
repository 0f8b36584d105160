//! `[boomerang]`, and `boomerang` in tables of interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use signalbox_core::{Entry, EntryRequest, ReserverId};
use signalbox_linux::IoConfig;
use signalbox_node::boomerang::{Aggregation, Config, DomainKey, Integrity};
use signalbox_node::rsvp::neighbor::KeyUse;

use super::{Protocol, Protocols};
use crate::keys::Keys;
use crate::kind::{code_point, duration, flag, number, per_second, real};
use crate::openings::open;
use crate::secret;
use crate::secrets::{KeyEntry, Secrets, Use};

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
    /// Whether `sign` and `require` are in force.
    protects: bool,
    integrity: Integrity,
    /// The keys of `[[keys]]` for Boomerang, with their paths in the file.
    keys: Vec<(String, KeyEntry)>,
}

/// `[interfaces.NAME.boomerang]`
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    trusted: bool,
    aggregates: bool,
}

impl Default for Part {
    fn default() -> Self {
        Self { trusted: true, aggregates: false }
    }
}

impl Default for Boomerang {
    fn default() -> Self {
        let engine = Config::default();
        let seconds = |seconds: u8| Duration::from_secs(seconds.into());
        let (refresh, max_refresh) = (seconds(engine.refresh), seconds(engine.max_refresh));
        Self {
            engine,
            refresh,
            max_refresh,
            intercept: true,
            parts: BTreeMap::new(),
            protects: false,
            integrity: Integrity { sign: true, require: true, ..Integrity::default() },
            keys: Vec::new(),
        }
    }
}

impl Boomerang {
    /// The keys, with what is in their files.
    pub(crate) fn secrets(&self) -> &[DomainKey] {
        &self.integrity.keys
    }
}

impl Protocol for Boomerang {
    fn reload(&mut self, new: &Self) {
        self.engine.take_limits(&new.engine);
        self.max_refresh = new.max_refresh;
        self.protects = new.protects;
        self.integrity.clone_from(&new.integrity);
        self.keys.clone_from(&new.keys);
    }

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
            "Reserve only for initiating nodes that proved, by a number of 64 bits, that they receive the replies: for the routers where \
             untrusted hosts are connected.",
        );
        keys.key(
            "provers",
            &mut config.provers,
            number(1..=4),
            "Routers on a path that demand such a proof. Hosts of this suite have an option with room for four. With 1 other hosts prove by \
             the whole KEY, for one router of the path. With 2 to 4 they are refused, because a part of the KEY can be guessed.",
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
        keys.group("integrity", |keys| {
            let meaning = "Whether `sign` and `require` are in force. The keys are in `[[keys]]`, with `use = \"boomerang\"`.";
            keys.key("enabled", &mut self.protects, flag(), meaning);
            let meaning = "Own requests are signed. Nodes without the key forward the signature.";
            keys.key("sign", &mut self.integrity.sign, flag(), meaning);
            let meaning = "Requests without a signature by a key of this node are refused. `false`: they are granted as the \
                           policy allows, and reservations that were signed obey signed messages only.";
            keys.key("require", &mut self.integrity.require, flag(), meaning);
            let range = Duration::from_millis(100)..=Duration::from_secs(3600);
            let meaning = "Largest difference between the time in a message and the clock of this node. Within it a recorded \
                           message can be repeated to routers that did not receive it.";
            keys.key("window", &mut self.integrity.window, duration(range), meaning);
        });
        keys.group("aggregates", |keys| {
            let aggregates = &mut config.aggregates;
            let meaning = "Add an option to the messages of flows of one protocol and PHB between two subnets, by which later nodes can \
                           keep one reservation for all of them.";
            keys.key("propose", &mut aggregates.propose, flag(), meaning);
            let meaning = "Flows from which on they are proposed as an aggregate. It ends with the last but one.";
            keys.key("members", &mut aggregates.members, number(2..=u32::MAX), meaning);
            let meaning = "Length of the prefixes of the subnets; 0: all flows of a protocol, a PHB and an outgoing interface.";
            keys.key("ipv4_prefix", &mut aggregates.ipv4_prefix, number(0..=32), meaning);
            keys.key("ipv6_prefix", &mut aggregates.ipv6_prefix, number(0..=128), "The same for IPv6.");
            let meaning = "Keep one reservation for an aggregate that another node proposes, in place of those of its flows. The \
                           interfaces need `aggregates = true`.";
            keys.key("adopt", &mut aggregates.adopt, flag(), meaning);
            keys.key("max", &mut aggregates.max, number(1..=65_536), "Most aggregates of other nodes.");
        });
        keys.key("dscp", &mut config.tos, code_point(), "DSCP of messages that the node sends.");
        keys.key(
            "source_rate",
            &mut config.rate,
            per_second(0..=u32::MAX),
            "Messages of one source at one interface that the node interprets; more are dropped. `\"0/s\"`: no limit.",
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
        let mut part = self.parts.get(name).copied().unwrap_or_default();
        keys.key(
            "trusted",
            &mut part.trusted,
            flag(),
            "`false`: messages that come in by the interface are forwarded without being interpreted.",
        );
        keys.key(
            "aggregates",
            &mut part.aggregates,
            flag(),
            "`true`: nodes of this domain send the options of aggregates that come in by the interface. Otherwise a node that proposes \
             or adopts aggregates takes them out.",
        );
        if keys.is_there() {
            self.parts.insert(name.to_owned(), part);
        }
    }

    fn take_keys(&mut self, secrets: &Secrets) {
        self.keys = secrets.of(Use::Boomerang).map(|(at, entry)| (at, entry.clone())).collect();
    }

    fn check(&self, _: &Protocols, keys: &mut Keys<'_>) {
        let has = |other: KeyUse| self.keys.iter().any(|(_, entry)| entry.direction != other);
        let lacking = match (self.protects, &self.integrity) {
            (true, integrity) if integrity.sign && !has(KeyUse::Receive) => "sign",
            (true, integrity) if integrity.require && !has(KeyUse::Send) => "require",
            (false, _) if !self.keys.is_empty() => {
                let message = "it is not used: write enabled = true in [boomerang.integrity]";
                return self.keys.iter().for_each(|(at, _)| keys.fault(&[&format!("{at}.id")], message));
            }
            _ => return,
        };
        let message = format!(
            "there is no key for {lacking}: write [[keys]] with use = \"boomerang\", or {lacking} = false"
        );
        keys.fault(&["boomerang.integrity"], &message);
    }

    fn read_files(&mut self, directory: &Path, keys: &mut Keys<'_>) {
        let mut ids = BTreeSet::new();
        for (at, entry) in &self.keys {
            let (Some(id), Some(file)) = (entry.id, &entry.secret_file) else { continue };
            let Ok(id) = u32::try_from(id) else {
                keys.fault(&[&format!("{at}.id")], "out of range: an identifier of Boomerang has 32 bits");
                continue;
            };
            if !ids.insert(id) {
                keys.fault(&[&format!("{at}.id")], "there is another key with it: write another id");
            }
            let Some(secret) = secret::shared(&directory.join(file), &format!("{at}.secret_file"), keys)
            else {
                continue;
            };
            self.integrity.keys.push(DomainKey {
                id,
                secret,
                signs: entry.direction != KeyUse::Receive,
                verifies: entry.direction != KeyUse::Send,
                from: entry.valid_from.unwrap_or(0),
                until: entry.valid_until,
            });
        }
    }

    fn openings(&self, keys: &mut Keys<'_>) {
        if !(self.engine.prove || self.protects && self.integrity.require) {
            let what = "messages prove nothing, not even their source address: no policy rule with `from` allows them, and rules \
                        without it allow everybody: write prove_return = true where hosts are connected";
            open(keys, &["boomerang.prove_return", "boomerang", "node.protocols"], what);
        }
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        let named = || self.parts.iter().filter(|(name, _)| *name != ANY);
        let elsewhere = self.parts.get(ANY).copied().unwrap_or_default();
        node.boomerang = Some(Config {
            trusted: named().map(|(name, part)| (name.clone(), part.trusted)).collect(),
            aggregates: Aggregation {
                from: named().map(|(name, part)| (name.clone(), part.aggregates)).collect(),
                from_elsewhere: elsewhere.aggregates,
                ..self.engine.aggregates.clone()
            },
            integrity: if self.protects { self.integrity.clone() } else { Integrity::default() },
            trusted_elsewhere: elsewhere.trusted,
            ..self.engine.clone()
        });
    }

    fn adapt(&self, _: &mut IoConfig, entries: &mut [EntryRequest]) {
        if !self.intercept {
            let echo = entries.iter_mut().filter(|request| matches!(request.entry, Entry::IcmpEcho(_)));
            echo.for_each(|request| request.intercept.clear());
        }
    }

    fn reserver(&self) -> Option<ReserverId> {
        Some(ReserverId::BOOMERANG)
    }
}
