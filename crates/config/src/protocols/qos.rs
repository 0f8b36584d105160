//! `[qos]`, and `qos` in tables of interfaces.

use std::collections::BTreeMap;
use std::time::Duration;

use signalbox_core::{NslpId, ReserverId};
use signalbox_node::qos::{Aggregate, Config, ReverseDirection, StateKeeping};
use signalbox_node::resources::Rate;

use super::{Protocol, Protocols};
use crate::keys::Keys;
use crate::kind::{address, choice, duration, flag, number, rate, size};
use crate::openings::open;

pub(super) const MEANING: &str = "The QoS application of GIST [RFC 5974]: reservations along the path of a flow ([qos.md](qos.md)). Sections in \
     brackets are those of the RFC.";

const DAY: Duration = Duration::from_secs(86_400);

/// `[qos]`
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Qos {
    engine: Config,
    aggregates: BTreeMap<String, AggregateTable>,
}

/// `[interfaces.NAME.qos.aggregate]`
#[derive(Debug, Clone, PartialEq, Default)]
struct AggregateTable {
    deaggregator: Option<std::net::IpAddr>,
    dscp: Option<u8>,
    step: Option<Rate>,
}

impl Protocol for Qos {
    fn reload(&mut self, new: &Self) {
        self.engine.take_limits(&new.engine);
    }

    fn declare(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        keys.key(
            "nslp_id",
            &mut config.nslp.0,
            number(1..=u16::MAX),
            "NSLPID of its messages, the same on all nodes; 1 is registered for it.",
        );
        let mut bypass = config.bypass_nslp.map(|nslp| nslp.0);
        keys.option(
            "bypass_nslp_id",
            &mut bypass,
            number(1..=u16::MAX),
            "none",
            "NSLPID of end-to-end messages inside an aggregation region [3.3.1]; not `nslp_id`.",
        );
        config.bypass_nslp = bypass.map(NslpId);
        role(config, keys);
        refreshes(config, keys);
        times(config, keys);
        protection(config, keys);
        limits(config, keys);
        let bypass = config.bypass_nslp;
        let message = "belongs to another application: write 1, which is registered for QoS";
        keys.check(config.nslp != NslpId::NATFW, &["nslp_id"], message);
        let free = bypass != Some(config.nslp) && bypass != Some(NslpId::NATFW);
        let message = "belongs to another application: write one for private use, 32704 to 32767";
        keys.check(free, &["bypass_nslp_id"], message);
    }

    fn has_parts(&self) -> bool {
        true
    }

    fn has_part(&self, interface: &str) -> bool {
        self.aggregates.contains_key(interface)
    }

    fn interface(&mut self, name: &str, keys: &mut Keys<'_>) {
        let mut aggregate = self.aggregates.get(name).cloned().unwrap_or_default();
        let mut given = false;
        let needs = self.engine.bypass_nslp.is_some();
        let meaning = "An aggregate that begins here [4.5]: flows that leave by this interface go into it. All keys are \
                       needed, and `qos.bypass_nslp_id` as well.";
        keys.table("aggregate", meaning, |keys| {
            given = keys.is_there();
            if !given && !keys.lists() {
                return;
            }
            let meaning = "Address of the node where the region ends.";
            keys.needed("deaggregator", &mut aggregate.deaggregator, address(), meaning);
            let meaning = "Code point of the aggregate's packets.";
            keys.needed("dscp", &mut aggregate.dscp, number(0..=63), meaning);
            let meaning = "It grows and shrinks by multiples of this rate, shrinks by two at least, and ends with its \
                           last flow.";
            keys.needed("step", &mut aggregate.step, rate(1), meaning);
            keys.check(needs, &[""], "needs qos.bypass_nslp_id: write bypass_nslp_id = 32710 in [qos]");
        });
        if given {
            self.aggregates.insert(name.to_owned(), aggregate);
        }
    }

    fn check(&self, all: &Protocols, keys: &mut Keys<'_>) {
        let ping = NslpId(all.ping.nslp);
        for (key, nslp) in [("nslp_id", Some(self.engine.nslp)), ("bypass_nslp_id", self.engine.bypass_nslp)]
        {
            let message = format!("{} is ping.nslp_id: write another number", ping.0);
            keys.check(nslp != Some(ping), &[&format!("qos.{key}"), "ping.nslp_id"], &message);
        }
    }

    fn openings(&self, keys: &mut Keys<'_>) {
        if self.engine.accept_stateless {
            let what = "one datagram of anybody, with any source address, can make or end reservations that policy \
                        allows: remove accept_stateless";
            open(keys, &["qos.accept_stateless"], what);
        }
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        let aggregates = self.aggregates.iter().filter_map(|(interface, own)| {
            let (deaggregator, dscp, step) = (own.deaggregator?, own.dscp?, own.step?.0);
            Some(Aggregate { interface: interface.clone(), deaggregator, dscp, step })
        });
        node.qos = Some(Config { aggregates: aggregates.collect(), ..self.engine.clone() });
    }

    fn needs_gist(&self) -> bool {
        true
    }

    fn nslps(&self) -> Vec<NslpId> {
        vec![self.engine.nslp]
    }

    fn reserver(&self) -> Option<ReserverId> {
        Some(ReserverId::QOS)
    }
}

/// State, and what a node at an end does.
fn role(config: &mut Config, keys: &mut Keys<'_>) {
    keys.key(
        "state",
        &mut config.state,
        choice(&[
            ("stateful", StateKeeping::Stateful),
            ("reduced", StateKeeping::Reduced),
            ("stateless", StateKeeping::Stateless),
        ]),
        "State that it keeps of reservations [4.7].",
    );
    keys.key(
        "proxy",
        &mut config.proxy,
        flag(),
        "This node is a proxy: messages with the PROXY flag end here [4.8].",
    );
    keys.key(
        "accept_reserve_init",
        &mut config.accept_reserve_init,
        flag(),
        "It reserves when the sender of a flow that ends here requests it [5.4.2].",
    );
    keys.key(
        "accept_not_supported",
        &mut config.accept_not_supported,
        flag(),
        "A reservation of this node stays although a node on the path does not support one of its parameters [RFC \
         5975 4.2.2]. `false`: this node tears it down.",
    );
    keys.key(
        "reverse",
        &mut config.way_back,
        choice(&[
            ("none", ReverseDirection::None),
            ("reserve", ReverseDirection::Reserve),
            ("ask", ReverseDirection::Ask),
        ]),
        "The reverse direction of a bidirectional reservation that ends here [4.4]: not reserved, reserved by this \
         node, or requested from the other end.",
    );
}

/// What refreshes and tears carry, and what is reported.
fn refreshes(config: &mut Config, keys: &mut Keys<'_>) {
    keys.key("reduced_refresh", &mut config.reduced_refresh, flag(), "Refreshes carry no QSPEC [3.2.5].");
    keys.key(
        "summary_sessions",
        &mut config.summary,
        number(0..=u16::MAX),
        "Sessions in one refresh beside the first [3.2.6]; 0: no summary refreshes.",
    );
    keys.key(
        "acknowledged_refresh",
        &mut config.acknowledged_refresh,
        flag(),
        "The next peer acknowledges refreshes.",
    );
    keys.key(
        "tear_old_branch",
        &mut config.tear_old_branch,
        flag(),
        "After a change of route the old branch is torn down [3.2.12].",
    );
    keys.key(
        "repeat_tear",
        &mut config.repeat_tear,
        flag(),
        "Tears of established reservations request a confirmation and are repeated until it arrives, except with \
         `reliable` or `secure`. RFC 5974 advises against it [5.2.4]. But if a tear is lost, the reservation stands \
         until it expires.",
    );
    keys.key(
        "ignore_gaps",
        &mut config.ignore_gaps,
        flag(),
        "Routers without the application provide the quality by other means [3.3.5]: gaps are not reported.",
    );
}

/// Periods, and the number of tries.
fn times(config: &mut Config, keys: &mut Keys<'_>) {
    keys.key(
        "refresh",
        &mut config.refresh,
        duration(Duration::from_secs(1)..=DAY),
        "Refresh period R [5.3.4].",
    );
    keys.key(
        "refresh_multiple",
        &mut config.refresh_multiple,
        number(1..=u8::MAX),
        "K: a reservation without a refresh expires after (K + 0.5) · 1.5 · R.",
    );
    keys.key(
        "max_lifetime",
        &mut config.max_lifetime,
        duration(Duration::from_secs(1)..=DAY),
        "Longest lifetime of state after a refresh, whatever refresh period the peer sent; not below the lifetime that \
         follows from `refresh`.",
    );
    keys.group("retry", |keys| {
        let ms = Duration::from_millis(10);
        let meaning = "First wait for a RESPONSE; it doubles with each retransmission [5.2.4].";
        keys.key("first", &mut config.request_retry, duration(ms..=DAY), meaning);
        let meaning = "How long this node waits for a RESPONSE in all, from `retry.first`.";
        keys.key("timeout", &mut config.retry_max, duration(ms..=DAY), meaning);
        let fits = config.request_retry <= config.retry_max;
        keys.check(
            fits,
            &["timeout", "first"],
            "shorter than retry.first: write a longer time, such as \"30s\"",
        );
    });
    keys.key(
        "transient_retries",
        &mut config.transient_retries,
        number(0..=u8::MAX),
        "How often the daemon repeats a request of a local user after a transient failure (error class 4) before it \
         reports the failure: after `retry.first`, then twice as long each time [5.3.5]. With 0 it reports at once.",
    );
}

/// Which messages are sent and accepted.
fn protection(config: &mut Config, keys: &mut Keys<'_>) {
    keys.key(
        "reliable",
        &mut config.reliable,
        flag(),
        "Messages are sent reliably; needs a port in `[gist.associations]`.",
    );
    keys.key(
        "secure",
        &mut config.secure,
        flag(),
        "Messages are sent and accepted over authenticated channels only; needs TLS.",
    );
    keys.key(
        "accept_stateless",
        &mut config.accept_stateless,
        flag(),
        "Accept messages without verified routing state: stateless ones, payloads of Queries, and explicitly routed ones \
         for unknown sessions. Anybody can send them, from any address ([security.md](security.md)). Nodes with `state` \
         other than `\"stateful\"` that receive stateless messages need it.",
    );
}

/// Sizes of tables.
fn limits(config: &mut Config, keys: &mut Keys<'_>) {
    keys.key(
        "max_sessions",
        &mut config.max_sessions,
        number(1..=u32::MAX),
        "Most sessions with a reservation; each takes about 2 KiB.",
    );
    keys.key(
        "max_queries",
        &mut config.max_queries,
        number(0..=u32::MAX),
        "Most sessions of which only a QUERY was seen.",
    );
    let meaning = "Octets of QSPECs and other objects that sessions, and messages that wait for another message, keep beyond \
                   512 octets each. A quarter is for neighbors that keep few. Further requests are refused.";
    keys.key("max_contents_size", &mut config.max_contents, size(0..=u32::MAX), meaning);
    keys.key(
        "max_commands",
        &mut config.max_commands,
        number(0..=u32::MAX),
        "Most reservations and queries of local users.",
    );
}
