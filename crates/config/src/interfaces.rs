//! `[interfaces.NAME]`: what can be reserved at an interface, and the parts of the protocols.

use std::collections::BTreeMap;
use std::time::Duration;

use signalbox_core::traffic::ServiceClass;
use signalbox_node::resources::Rate;
use signalbox_node::resources::config::{
    ANY_LINK, DscpConfig, ExcessAction, LinkConfig, Queue, ServiceConfig, Zones,
};
use signalbox_units::Service;

use crate::Config;
use crate::enforcement::Mode;
use crate::keys::Keys;
use crate::kind::{choice, flag, number, rate, share, size, span, text};
use crate::protocols::{Protocol, Protocols, Sides};

const MEANING: &str = "One interface: `[interfaces.eth1]`, with the part of each protocol inside. `[interfaces.\"*\"]` is for all interfaces \
     whose own table lacks the part: reservations, or a protocol's. Reservations are possible at an interface where a key \
     of this table outside the parts of protocols, other than `zone`, is given. Without any, every request is refused. Tunnels need a table \
     of their own name for reservations, because this node cannot see the path of their packets.";

const ZONE: &str = "Its zone at a firewall or NAT, which `from_zone` and `to_zone` of rules name ([natfw.md](natfw.md#zones)). An interface without \
     a zone and a side is in the zone `\"outside\"`.";

/// Queues of single reservations that the kernel is asked to make at most.
const MOST_QUEUES: u32 = 2000;
/// Least rate of a link that is enforced, in octets a second.
const LEAST_RATE: u64 = 1000;
/// Most reservations of a link that are enforced.
const MOST_RESERVATIONS: u32 = 1_000_000;

/// `[interfaces]`
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Interfaces {
    tables: BTreeMap<String, Link>,
    /// The zones of firewalls and NATs, where tables give them.
    zones: BTreeMap<String, String>,
    /// The interfaces of the machine; `None`: it is for another machine.
    pub(crate) present: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Link {
    config: LinkConfig,
    services: BTreeMap<String, ServiceConfig>,
    /// The files say something about it.
    given: bool,
}

impl Link {
    fn new(name: &str) -> Self {
        Self { config: LinkConfig::new(name, None), services: BTreeMap::new(), given: false }
    }
}

impl Interfaces {
    pub(crate) fn declare(&mut self, keys: &mut Keys<'_>, protocols: &mut Protocols, mode: Mode) {
        let Self { tables, zones, present } = self;
        keys.keyed("interfaces", (MEANING, "eth1"), tables, Link::new, |keys, name, link| {
            absent(name, present.as_deref(), keys);
            if !keys.lists() || keys.samples() || link.given {
                link.declare(keys);
            }
            link.given |= keys.gives_declared();
            if link.given {
                link.check(name, keys, mode);
            }
            if !keys.lists() || keys.samples() || zones.contains_key(name) {
                let mut zone = zones.get(name).cloned();
                let absent = "`\"inside\"` or `\"outside\"`, as its side";
                keys.option("zone", &mut zone, text(64), absent, ZONE);
                zones.extend(zone.map(|zone| (name.to_owned(), zone)));
            }
            for (protocol, _, section) in protocols.each_mut().filter(|(.., section)| section.has_parts()) {
                if !keys.lists() || keys.samples() || section.has_part(name) {
                    keys.table(protocol, "", |keys| section.interface(name, keys));
                }
            }
        });
    }

    /// Takes what a running daemon can of `new`. Where the kernel enforces reservations, the number of its queues and the size of
    /// its tables are those of the start: then these numbers stay, and the list of links.
    pub(crate) fn reload(&mut self, new: &Self, mode: Mode) {
        self.zones.clone_from(&new.zones);
        for name in new.zones.keys() {
            // A table is listed.
            self.tables.entry(name.clone()).or_insert_with(|| Link::new(name));
        }
        if mode == Mode::Off {
            return self.tables.clone_from(&new.tables);
        }
        for (name, link) in &mut self.tables {
            let Some(new) = new.tables.get(name).filter(|new| new.given == link.given) else { continue };
            let former = std::mem::replace(link, new.clone()).config;
            let LinkConfig { capacity, own_queues, max_reservations, .. } = former;
            link.config = LinkConfig { own_queues, max_reservations, ..link.config.clone() };
            // Only a link whose capacity is given has queues.
            if link.config.capacity.is_some() != capacity.is_some() {
                link.config.capacity = capacity;
            }
        }
    }

    /// The links for admission control.
    pub(crate) fn links(&self) -> Vec<LinkConfig> {
        self.tables.values().filter(|link| link.given).map(|link| link.config.clone()).collect()
    }
}

impl Config {
    /// The zones of the interfaces: those of their tables, else their sides.
    pub(crate) fn zones(&self) -> Zones {
        let mut zones = BTreeMap::new();
        for (interface, side) in self.running().filter_map(Protocol::sides).flat_map(Sides::all) {
            zones.insert(interface.to_owned(), side.to_owned());
        }
        zones.extend(self.interfaces.zones.clone());
        Zones(zones)
    }

    /// Checks the zones that rules name.
    pub(crate) fn check_zones(&self, keys: &mut Keys<'_>) {
        let (zones, rules) = (self.zones(), &self.resources.0.rules);
        for (number, rule) in (1..).zip(rules) {
            for (key, named) in [("from_zone", &rule.from_zone), ("to_zone", &rule.to_zone)] {
                for zone in named.iter().filter(|zone| !zones.has(zone)) {
                    let message = format!(
                        "no interface is in the zone {zone:?}: write zone = {zone:?} in [interfaces.NAME], or correct the name"
                    );
                    keys.fault(&[&format!("policy.rules[{number}].{key}")], &message);
                }
            }
        }
        if rules.iter().all(|rule| rule.from_zone.is_empty() && rule.to_zone.is_empty()) {
            return;
        }
        let mut sides = BTreeMap::new();
        for (interface, side) in self.running().filter_map(Protocol::sides).flat_map(Sides::all) {
            let differs = *sides.entry(interface).or_insert(side) != side;
            if differs && !self.interfaces.zones.contains_key(interface) {
                let message = "is on different sides, so its zone is not clear: write zone in this table";
                keys.fault(&[&format!("interfaces.{interface}")], message);
            }
        }
    }
}

/// Reports a table of an interface that the machine does not have. It may come later, as a tunnel or a modem does at boot.
fn absent(name: &str, present: Option<&[String]>, keys: &mut Keys<'_>) {
    let Some(present) = present else { return };
    if name == ANY_LINK || present.iter().any(|one| one == name) {
        return;
    }
    let here = present.join(", ");
    keys.warn(
        &[""],
        &format!(
            "there is no such interface here, only {here}: the daemon waits for it; correct the name, if it does not come later"
        ),
    );
}

impl Link {
    fn declare(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.config;
        keys.option(
            "capacity",
            &mut config.capacity,
            rate(1),
            "measured",
            "Its rate in bits per second. With `enforcement.mode = \"required\"` you must give it, because the measured \
             value can be wrong; it is then at least 8kbit.",
        );
        keys.key("reservable", &mut config.reservable, share(), "Part of the capacity for reservations.");
        keys.key("overhead", &mut config.overhead, size(0..=256), "Size of the link header of each packet.");
        keys.option(
            "latency",
            &mut config.latency,
            span(Duration::from_micros(1)..=Duration::from_micros(1 << 28)),
            "unknown",
            "Delay of an unloaded link, for RSVP's ADSPECs.",
        );
        keys.option(
            "buffer",
            &mut config.buffer,
            size(0..=u64::MAX),
            "unlimited",
            "Octets for the bursts of all reservations.",
        );
        keys.key(
            "per_flow_queues",
            &mut config.own_queues,
            number(0..=u32::MAX),
            "Reservations with a queue of their own; at most 2000 where the kernel enforces them.",
        );
        keys.option(
            "max_reservations",
            &mut config.max_reservations,
            number(1..=u32::MAX),
            "16384; with `enforcement.mode = \"off\"` none",
            "Most reservations here; at most 1000000 where the kernel enforces them. A quarter of them is for neighbors that \
             hold few.",
        );
        keys.key(
            "min_rate",
            &mut config.min_rate,
            rate(0),
            "The least rate that each reservation counts for, so that many small ones use up the capacity before the \
             places.",
        );
        let defaults = LinkConfig::new("", None);
        let new = |name: &str| match class(name) {
            Some(Some(class)) => *defaults.service(class),
            _ => defaults.diffserv,
        };
        let meaning = "Limits of a service here: `services.controlled-load`, `services.guaranteed`, `services.dscp` for \
                       every code point, `services.\"dscp:46\"` for one.";
        keys.keyed("services", (meaning, "guaranteed"), &mut self.services, new, |keys, name, service| {
            declare_service(keys, service);
            let known = class(name);
            let message = "is no service: write controlled-load, guaranteed, dscp or dscp:N";
            keys.check(known.is_some(), &[""], message);
            let shared = known == Some(Some(ServiceClass::Guaranteed))
                && service.offered
                && service.queue == Queue::Shared;
            keys.check(
                !shared,
                &["queue"],
                "\"shared\" cannot hold a delay bound: write \"own\" or \"auto\"",
            );
        });
        config.dscp.clear();
        for (name, service) in &self.services {
            match class(name) {
                Some(Some(ServiceClass::ControlledLoad)) => config.controlled_load = *service,
                Some(Some(ServiceClass::Guaranteed)) => config.guaranteed = *service,
                Some(Some(ServiceClass::Dscp(code))) => {
                    config.dscp.push(DscpConfig { code, service: *service })
                }
                Some(None) => config.diffserv = *service,
                None => {}
            }
        }
    }

    /// Reports what the kernel cannot enforce.
    fn check(&self, name: &str, keys: &mut Keys<'_>, mode: Mode) {
        let config = &self.config;
        let required = mode == Mode::Required;
        if mode == Mode::Off {
            return;
        }
        if name == ANY_LINK {
            let message = "reservations at unnamed interfaces cannot be enforced: write [interfaces.NAME], or mode = \
                           \"best-effort\" in [enforcement]";
            return keys.check(!required, &[""], message);
        }
        let message = "missing: write the rate of the interface, such as capacity = \"100mbit\", or mode = \
                       \"best-effort\" in [enforcement]";
        keys.check(!required || config.capacity.is_some(), &["capacity", ""], message);
        let Some(Rate(capacity)) = config.capacity else { return };
        let message = "out of range: from 8kbit, or write mode = \"off\" in [enforcement]";
        keys.check(capacity >= LEAST_RATE, &["capacity"], message);
        let message = "out of range: 0 to 2000, or write mode = \"off\" in [enforcement]";
        keys.check(config.own_queues <= MOST_QUEUES, &["per_flow_queues"], message);
        let message = "out of range: 1 to 1000000, or write mode = \"off\" in [enforcement]";
        keys.check(config.max_reservations <= Some(MOST_RESERVATIONS), &["max_reservations"], message);
    }
}

/// The service that a table is for; `Some(None)`: every code point.
fn class(name: &str) -> Option<Option<ServiceClass>> {
    if name == "dscp" { Some(None) } else { name.parse().ok().map(|Service(class)| Some(class)) }
}

fn declare_service(keys: &mut Keys<'_>, service: &mut ServiceConfig) {
    keys.key("offered", &mut service.offered, flag(), "Whether the service is offered.");
    let meaning = "Most of the link for the service, within `reservable`.";
    keys.option("max_share", &mut service.max_share, share(), "all", meaning);
    keys.option("max_each", &mut service.max_each, rate(0), "unlimited", "Largest rate of one reservation.");
    let meaning = "Largest IP packet; that of the interface is always the upper limit.";
    keys.option("max_packet_size", &mut service.max_packet, size(1..=u32::MAX), "the interface's", meaning);
    keys.key(
        "queue",
        &mut service.queue,
        choice(&[("own", Queue::Own), ("shared", Queue::Shared), ("auto", Queue::Auto)]),
        "Each reservation has its own queue; all share that of the service; or its own while queues are left.",
    );
    keys.key(
        "excess",
        &mut service.excess,
        choice(&[("best-effort", ExcessAction::BestEffort), ("drop", ExcessAction::Drop)]),
        "The treatment of packets that do not conform.",
    );
}
