//! `[rsvp]`, and `rsvp` in tables of interfaces.

mod keyring;
mod neighbors;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use signalbox_core::{Entry, EntryRequest, ReserverId};
use signalbox_linux::IoConfig;
use signalbox_node::rsvp::{self, Config, InterfaceConfig, Staged};

use super::{Protocol, Protocols};
use crate::keys::Keys;
use crate::kind::{code_point, duration, factor, flag, number, per_second};
use crate::openings::open;
use crate::secrets::Secrets;
use keyring::RsvpKey;
use neighbors::Neighbors;

pub(super) const MEANING: &str = "RSVP [RFC 2205] as a host and router ([rsvp.md](rsvp.md)). With `kernel.intercept` the node intercepts Paths that it \
     forwards; without it the node is a host. Sections in brackets are those of the RFC.";

/// The IP protocol of RSVP (RFC 2205 §3.3).
const PROTOCOL: u8 = 46;
const LONGEST: Duration = Duration::from_secs(24 * 86_400);
/// The interface that stands for all without a part of their own.
const ANY: &str = "*";

/// `[rsvp]`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rsvp {
    engine: Config,
    everywhere: Interface,
    parts: BTreeMap<String, Interface>,
    router_alert: bool,
    keys: Vec<RsvpKey>,
    secrets: Vec<rsvp::IntegrityKey>,
}

/// Settings that interfaces may have of their own.
#[derive(Debug, Clone, PartialEq, Default)]
struct Interface {
    config: InterfaceConfig,
    staged: bool,
    stages: Staged,
    neighbors: Neighbors,
}

impl Default for Rsvp {
    fn default() -> Self {
        Self {
            engine: Config::default(),
            everywhere: Interface::default(),
            parts: BTreeMap::new(),
            router_alert: true,
            keys: Vec::new(),
            secrets: Vec::new(),
        }
    }
}

impl Interface {
    /// The keys; those of the `whole` node are not keys of an interface.
    fn declare(&mut self, keys: &mut Keys<'_>, whole: bool) {
        let config = &mut self.config;
        keys.key(
            "refresh",
            &mut config.refresh,
            duration(Duration::from_millis(1)..=LONGEST),
            "R: each refresh comes after half of it to one and a half [3.7].",
        );
        keys.key(
            "refresh_multiple",
            &mut config.cleanup,
            number(1..=u32::MAX),
            "K: state without a refresh expires after (K + 0.5) · 1.5 · R.",
        );
        keys.key(
            "max_lifetime",
            &mut config.max_lifetime,
            duration(Duration::from_millis(1)..=LONGEST),
            "Longest lifetime of state, whatever refresh period a neighbor announces. State of neighbors whose period is \
             not longer than `refresh` never ends sooner than with K.",
        );
        keys.key(
            "slew_max",
            &mut config.slew_max,
            factor(f64::MIN_POSITIVE..=1e6, "above 0"),
            "Largest growth of R from one period to the next, as a fraction of R.",
        );
        keys.key(
            "repair_delay",
            &mut config.repair_delay,
            duration(Duration::ZERO..=LONGEST),
            "W: from a change of routes to the Paths that follow it [3.6].",
        );
        keys.group("staged_refresh", |keys| {
            let meaning = "Staged refresh [draft-pan-rsvp-timer-00]: changed state is sent again after `first`, then after \
                           intervals that grow by `factor`, up to R. Messages with a MESSAGE_ID are repeated as \
                           `refresh_reduction` says instead.";
            keys.key("enabled", &mut self.staged, flag(), meaning);
            let range = Duration::from_millis(10)..=LONGEST;
            keys.key("first", &mut self.stages.first, duration(range), "Rf: the first interval.");
            let range = factor(1.0 + f64::EPSILON..=1e6, "above 1");
            keys.key("factor", &mut self.stages.factor, range, "1 + Delta: the growth of the interval.");
            let meaning = "PathTears and ResvTears without a MESSAGE_ID are sent again too, up to R. A Path or Resv for the \
                           same state ends that.";
            keys.key("tears", &mut self.stages.tears, flag(), meaning);
            let meaning = "State that all next hops acknowledge [RFC 2961] is refreshed less often: R grows by `slew_max` \
                           with each acknowledged refresh, up to `slow`. Neighbors need the same setting, or a \
                           `max_lifetime` of 5.25 times `slow`. For groups `refresh_reduction.all_nodes_capable` is needed too.";
            keys.key("slow_refresh", &mut self.stages.slow_refresh, flag(), meaning);
            let range = Duration::from_millis(1)..=LONGEST;
            keys.key("slow", &mut self.stages.slow, duration(range), "Rs: the longest refresh period.");
        });
        keys.key("dscp", &mut config.tos, code_point(), "DSCP of messages that the node sends.");
        self.neighbors.declare(keys, whole);
    }

    fn engine(&self) -> InterfaceConfig {
        InterfaceConfig { neighbors: Some(self.neighbors.engine()), ..self.alone() }
    }

    /// The settings without those for neighbors.
    fn alone(&self) -> InterfaceConfig {
        InterfaceConfig { staged: self.staged.then_some(self.stages), ..self.config }
    }
}

impl Protocol for Rsvp {
    fn reload(&mut self, new: &Self) {
        self.engine.take_limits(&new.engine);
        self.everywhere.config.max_lifetime = new.everywhere.config.max_lifetime;
        for (name, own) in &mut self.parts {
            own.config.max_lifetime = new.parts.get(name).unwrap_or(&new.everywhere).config.max_lifetime;
        }
        if self.takes_keys_of(new) {
            self.keys.clone_from(&new.keys);
            self.secrets.clone_from(&new.secrets);
        }
    }

    fn declare(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        keys.key(
            "blockade_multiple",
            &mut config.blockade_multiplier,
            number(1..=u32::MAX),
            "Kb: lifetime of blockade state, in refresh periods [3.5].",
        );
        keys.key(
            "staged_refresh_rate",
            &mut config.staged_rate,
            per_second(0..=u32::MAX),
            "Staged refreshes that the node sends; it leaves out further ones.",
        );
        keys.key(
            "bandwidth_reduction",
            &mut config.reduction,
            flag(),
            "If a stronger request needs only a part of a reservation, only that part is taken, and local receivers \
             request no more than the remaining rate of the ResvErr [RFC 4495]. `false`: the whole reservation is taken.",
        );
        keys.key(
            "router_alert",
            &mut self.router_alert,
            flag(),
            "`false`: Router Alerts of RSVP are ignored [RFC 6398]: the kernel forwards Paths like all other packets, and \
             the node is an RSVP host. `kernel.intercept = false` has the same effect for RSVP and GIST.",
        );
        keys.key(
            "source_trees",
            &mut config.source_trees,
            flag(),
            "Multicast routing builds trees per source; with shared trees no SCOPE is sent [3.4].",
        );
        keys.key(
            "diagnostic_rate",
            &mut config.diagnostics,
            per_second(0..=u32::MAX),
            "Diagnostic messages [RFC 2745] that the node handles; one address gets a fifth of it in replies. `\"0/s\"`: it drops all.",
        );
        keys.key("max_sessions", &mut config.max_sessions, number(0..=u32::MAX), "Most sessions.");
        keys.key(
            "max_senders",
            &mut config.max_senders,
            number(0..=u32::MAX),
            "Most senders, of all sessions.",
        );
        keys.key(
            "max_senders_per_session",
            &mut config.max_senders_per_session,
            number(0..=u16::MAX),
            "Most senders of one session.",
        );
        keys.key(
            "max_reservations",
            &mut config.max_reservations,
            number(0..=u32::MAX),
            "Most reservations, of all sessions at all interfaces.",
        );
        keys.key(
            "max_next_hops",
            &mut config.max_next_hops,
            number(0..=u16::MAX),
            "Most next hops that share one reservation.",
        );
        keys.key(
            "max_applications",
            &mut config.max_applications,
            number(0..=u32::MAX),
            "Most sessions that applications of this node have registered.",
        );
        neighbors::limits(&mut config.neighbors, keys);
        self.everywhere.declare(keys, true);
    }

    fn has_parts(&self) -> bool {
        true
    }

    fn has_part(&self, interface: &str) -> bool {
        self.parts.contains_key(interface)
    }

    fn interface(&mut self, name: &str, keys: &mut Keys<'_>) {
        let mut part = self.parts.get(name).unwrap_or(&self.everywhere).clone();
        keys.key("enabled", &mut part.config.enabled, flag(), "Whether RSVP runs at the interface.");
        let mut hidden = part.config.non_rsvp.unwrap_or(false);
        let meaning = "There are hops without RSVP behind the interface. `false`: the TTLs of messages show them [3.8].";
        keys.key("non_rsvp_hops", &mut hidden, flag(), meaning);
        part.config.non_rsvp = hidden.then_some(true);
        keys.inheriting("[rsvp]", |keys| part.declare(keys, false));
        if keys.is_there() {
            self.parts.insert(name.to_owned(), part);
        }
    }

    fn take_keys(&mut self, secrets: &Secrets) {
        self.keys = keyring::of(secrets);
    }

    fn check(&self, _: &Protocols, keys: &mut Keys<'_>) {
        self.unused(keys);
        let places = self.parts.iter().map(|(name, own)| (Some(name.as_str()), own));
        let mut lacking = None;
        for (interface, own) in places.chain([(None, &self.everywhere)]) {
            let integrity = own.neighbors.integrity();
            // Without a name: the interfaces without a part. Each of them may have keys of its own.
            let interface = interface.filter(|name| *name != ANY);
            let here = || {
                self.keys.iter().filter(move |key| {
                    interface.is_none() || key.interface.is_none() || key.interface.as_deref() == interface
                })
            };
            if integrity.sending && !here().any(RsvpKey::signs) {
                lacking = Some(("sign", "so nothing could be sent"));
            } else if integrity.receiving && !here().any(RsvpKey::verifies) {
                lacking = Some(("require", "so no message would be accepted"));
            }
        }
        if let Some((what, why)) = lacking {
            let message = format!(
                "there is no key for {what}, {why}: write [[keys]] with use = \"rsvp\", or {what} = false"
            );
            keys.fault(&["rsvp.integrity", "interfaces"], &message);
        }
    }

    fn openings(&self, keys: &mut Keys<'_>) {
        for (name, part) in
            self.parts.iter().map(|(name, part)| (Some(name), part)).chain([(None, &self.everywhere)])
        {
            let place = name.map_or("rsvp".to_owned(), |name| format!("interfaces.{name}.rsvp"));
            for key in part.neighbors.relaxed() {
                let what = "messages that need not come from a neighbor are accepted: remove the key";
                open(keys, &[&format!("{place}.{key}"), &place, "interfaces"], what);
            }
        }
        if self.lacks_integrity() {
            let what = "without [rsvp.integrity] everybody on a link can pretend to be a neighbor there, and senders of \
                        Paths are not authenticated: write [[keys]] with use = \"rsvp\", and share them with all neighbors";
            open(keys, &["rsvp.integrity", "rsvp", "node.protocols"], what);
        }
    }

    fn read_files(&mut self, directory: &Path, keys: &mut Keys<'_>) {
        self.secrets = keyring::read(&self.keys, directory, keys);
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        let others = self.parts.get(ANY).unwrap_or(&self.everywhere);
        let named = self.parts.iter().filter(|(name, _)| *name != ANY);
        let mut config = Config {
            interface: others.alone(),
            interfaces: named.map(|(name, own)| (name.clone(), own.engine())).collect(),
            keys: self.secrets.clone(),
            ..self.engine.clone()
        };
        config.neighbors.interface = others.neighbors.engine();
        node.rsvp = Some(config);
    }

    /// Where Router Alerts are ignored, the kernel forwards RSVP's packets like any other packets (RFC 6398).
    fn adapt(&self, _: &mut IoConfig, entries: &mut [EntryRequest]) {
        if !self.router_alert {
            let rsvp = entries.iter_mut().filter(|request| request.entry == Entry::Ip(PROTOCOL));
            rsvp.for_each(|request| request.intercept.clear());
        }
    }

    fn unjudged(&self, older: bool) -> Option<(&'static str, &'static str, &'static str)> {
        let (hooks, instead) = if older {
            (
                "the hooks input and forward",
                "to drop them at the hook prerouting, write meta l4proto 46 drop; or use Linux 5.12",
            )
        } else {
            ("the hook forward", "to drop them at the hook input, write meta l4proto 46 drop")
        };
        let what = "messages of RSVP that pass by with its Router Alert, also those that need none, such as a PathErr";
        self.router_alert.then_some((hooks, what, instead))
    }

    fn forgeable(&self) -> Option<&'static str> {
        self.lacks_integrity().then_some("proof = \"identity\", and share keys by [rsvp.integrity]")
    }

    fn reserver(&self) -> Option<ReserverId> {
        Some(ReserverId::RSVP)
    }
}

impl Rsvp {
    /// Whether messages without INTEGRITY are accepted at an interface.
    fn lacks_integrity(&self) -> bool {
        // Interfaces without a part are as [rsvp], unless "*" has one.
        let rest = self.parts.get(ANY).unwrap_or(&self.everywhere);
        let named = self.parts.iter().filter(|(name, _)| *name != ANY).map(|(_, part)| part);
        named.chain([rest]).any(|part| !part.neighbors.integrity().receiving)
    }

    /// Whether a running daemon can take the keys of `new`: the same messages are signed and verified.
    pub(crate) fn takes_keys_of(&self, new: &Self) -> bool {
        let protected = |rsvp: &Self| -> Vec<(Option<String>, bool, bool)> {
            let named = rsvp.parts.iter().map(|(name, own)| (Some(name.clone()), own));
            let all = named.chain([(None, &rsvp.everywhere)]);
            let integrity = |own: &Interface| own.neighbors.integrity();
            all.map(|(name, own)| (name, integrity(own).sending, integrity(own).receiving)).collect()
        };
        protected(self) == protected(new)
    }

    /// The keys, with what is in their files.
    pub(crate) fn secrets(&self) -> &[rsvp::IntegrityKey] {
        &self.secrets
    }

    /// Reports keys by which nothing is signed or verified.
    fn unused(&self, keys: &mut Keys<'_>) {
        let uses = |own: &Interface| own.neighbors.integrity().sending || own.neighbors.integrity().receiving;
        for key in &self.keys {
            let used = match &key.interface {
                None => uses(&self.everywhere) || self.parts.values().any(uses),
                Some(name) => uses(self.parts.get(name).unwrap_or(&self.everywhere)),
            };
            if !used {
                let message =
                    "nothing is signed or verified where it is for: write enabled = true in [rsvp.integrity]";
                keys.fault(&[&format!("{}.id", key.at)], message);
            }
        }
    }
}
