//! Interception of UDP datagrams that pass by: this node receives them, and they are not forwarded.
//!
//! An nftables table of our own redirects them (tproxy) to the UDP socket; addresses, TTL and options stay unchanged.
//! The kernel compares everything that the rule of an entry names, so that the rule matches only packets of that entry.
//! The redirection precedes the mark: without a listening socket the rule ends there, and the packet is forwarded as if
//! there were no rule. A daemon that has ended therefore stops no packet.
//!
//! Packets of an entry whose source nothing proves are dropped at the hook input if the route to their source leaves by another
//! interface, like a reverse path filter. All that this node takes passes that hook. There also what comes to a UDP port that is for some
//! interfaces by another one is dropped.
//!
//! A VRF has a table of its own, for its packets alone (`scope.rs`). There the kernel compares the source of a message with the routes of
//! the VRF only: the interface by which it came in does not count.
//!
//! The table belongs to a netlink socket of this process where the kernel supports that (Linux 5.12): then no other
//! program can remove it, and `nft flush ruleset` leaves it. [`Interception::restore`] installs again what was removed
//! nevertheless.

mod kinds;
mod sources;

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;
use signalbox_core::{AlertRule, Entry, EntryRequest, Interfaces, Match, Reach, Through, Towards, Unproved};

use crate::error::OpenError;
use crate::io::{IoConfig, selftest};
use crate::netlink::Batch;
use crate::netlink::nftables::expression::{self, Compare, Header};
use crate::netlink::nftables::{self, Hook, LAST, NFPROTO_IPV4, NFPROTO_IPV6, RAW, begin, transact};
use crate::netlink::rules::{self, Rank};
use crate::scope::Scope;
use kinds::Kinds;
pub(crate) use sources::{Sources, value};

/// Name of the tables, in families `ip` and `ip6`.
const TABLE: &str = "signalbox";
/// The chain that redirects.
const CHAIN: &str = "prerouting";
/// The chains that keep packets out of connection tracking: those that arrive, and those that this node sends.
const ARRIVING: &str = "untracked";
const SENT: &str = "untracked_sent";
/// The chain that drops packets of the self-test that lost their mark.
const TESTED: &str = "tested";
/// The chain that drops packets which do not come from where their source is.
const UNPROVED: &str = "unproved";
const UDP: u8 = 17;
/// Type and length of IPv4's Router Alert (RFC 2113).
const ROUTER_ALERT_V4: [u8; 2] = [148, 4];
/// Offset of the destination address in the IPv4 header.
const DESTINATION: u32 = 16;
/// Octets of the UDP header, which precedes the payload.
const UDP_HEADER: u32 = 8;

/// The installed rules and routes; they are removed when the value is dropped.
pub(crate) struct Interception {
    config: IoConfig,
    requests: Batch,
    /// What the kernel is asked for, and after the first rules what it has taken.
    kinds: Kinds,
    laid: bool,
}

/// Installs the rules, and replaces those that a predecessor without an orderly end may have left.
pub(crate) fn lay(config: &IoConfig) -> Result<Interception, OpenError> {
    // From here on, a failure removes what is installed.
    let requests = open()?;
    let mut interception = Interception {
        config: config.clone(),
        requests,
        kinds: Kinds { owned: config.own_tables, compares: true },
        laid: true,
    };
    // The policy rule and the route are added first and removed last. The kernel drops a redirected packet that has no
    // route to this node; it does not forward the packet, because the packet already belongs to a socket.
    for ipv6 in families(config) {
        rules::add(ipv6, config.rule()).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => OpenError::net_admin("the routing rule for intercepted packets", &error),
            Some(libc::ENETDOWN) => OpenError::new(
                "loopback-down",
                format!("the loopback interface is down ({error})"),
                "ip link set lo up",
            ),
            Some(libc::EEXIST) => OpenError::new(
                "table-in-use",
                format!("routing table {} holds a route that is not ours", config.table),
                "choose another table number in the configuration",
            ),
            _ => OpenError::system("the routing rule for intercepted packets", &error),
        })?;
    }
    interception.lay_rules()?;
    Ok(interception)
}

/// Removes what such a predecessor may have left, where this process must not intercept. The predecessor's policy rule
/// and route show whether there is anything to remove.
pub(crate) fn clear(config: &IoConfig) -> Result<(), OpenError> {
    let mut found = false;
    for ipv6 in families(config) {
        found |= rules::remove(ipv6, config.rule())
            .map_err(|error| OpenError::system("removing an old routing rule", &error))?;
    }
    if !found {
        return Ok(());
    }
    let mut requests = open()?;
    transact(&mut requests, |requests| compose_removal(requests, config)).map_err(|error| explain(&error))
}

/// Makes the kernel check the rules without installing them.
pub(crate) fn check(config: &IoConfig) -> Result<(), OpenError> {
    let mut requests = open()?;
    let mut refused = None;
    for kinds in (Kinds { owned: false, compares: true }).and_less(judges_sources(config)) {
        begin(&mut requests);
        compose(&mut requests, config, kinds);
        refused = requests.send_trial().map_err(|error| explain(&error))?.into_iter().next();
        if !refused.as_ref().is_some_and(|(_, error)| is_unsupported(error)) {
            break;
        }
    }
    refused.map_or(Ok(()), |(_, error)| Err(explain(&error)))
}

impl Interception {
    /// Installs the rules.
    fn lay_rules(&mut self) -> Result<(), OpenError> {
        let Self { config, requests, kinds, .. } = self;
        let mut result = Ok(());
        for less in kinds.and_less(judges_sources(config)) {
            result = transact(requests, |requests| compose(requests, config, less));
            if !result.as_ref().is_err_and(is_unsupported) {
                if result.is_ok() {
                    kinds.lacking(less).for_each(|line| tracing::warn!("{line}"));
                    *kinds = less;
                }
                break;
            }
        }
        result.map_err(|error| explain(&error))
    }

    /// Installs again what another program removed, and returns whether there was anything to install.
    pub(crate) fn restore(&mut self) -> Result<bool, OpenError> {
        let mut missing = false;
        for ipv6 in families(&self.config) {
            missing |= restore_route(ipv6, &self.config)?;
        }
        // The kernel protects a table that has an owner.
        if !self.kinds.owned {
            let whole = |ipv6| {
                let planned = plan(&self.config, ipv6, self.kinds.compares);
                let table = self.config.scope.name(TABLE);
                for chain in [CHAIN, ARRIVING, SENT, TESTED, UNPROVED] {
                    let wanted = planned.iter().filter(|rule| rule.chain() == chain).count();
                    if wanted > 0 && nftables::rules(family(ipv6), (&table, chain))? != wanted {
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            let whole = families(&self.config).map(whole).collect::<io::Result<Vec<_>>>();
            let whole = whole.map_err(|error| OpenError::system("reading the nftables rules", &error))?;
            if whole.contains(&false) {
                self.lay_rules()?;
                missing = true;
            }
        }
        Ok(missing)
    }

    /// Puts the policy rules above those of other programs where the configuration allows that. Returns the rules that stay
    /// before them.
    pub(crate) fn keep_first(&self) -> Result<Vec<String>, OpenError> {
        let mut above = Vec::new();
        for ipv6 in families(&self.config) {
            above.extend(rank(ipv6, &self.config)?.above);
        }
        Ok(above)
    }

    /// Removes the rules.
    pub(crate) fn remove(mut self) -> Result<(), OpenError> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), OpenError> {
        if !std::mem::take(&mut self.laid) {
            return Ok(());
        }
        let Self { config, requests, .. } = self;
        let mut result =
            transact(requests, |requests| compose_removal(requests, config)).map_err(|error| explain(&error));
        for ipv6 in families(config) {
            let removed = rules::remove(ipv6, config.rule())
                .map_err(|error| OpenError::system("removing the routing rule", &error));
            result = result.and(removed.map(drop));
        }
        result
    }
}

/// Adds the policy rule and the route for marked packets of a family again where they are missing, and returns whether they
/// were.
pub(crate) fn restore_route(ipv6: bool, config: &IoConfig) -> Result<bool, OpenError> {
    rules::restore(ipv6, config.rule())
        .map_err(|error| OpenError::system("restoring the routing rule for intercepted packets", &error))
}

/// Compares the place of the policy rule of a family with those of others, and puts it first if the configuration allows that.
pub(crate) fn rank(ipv6: bool, config: &IoConfig) -> Result<Rank, OpenError> {
    rules::rank(ipv6, config.rule(), config.keep_rule_first)
        .map_err(|error| OpenError::system("the place of the routing rule for intercepted packets", &error))
}

impl Drop for Interception {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::warn!(%error, "interception rules stay behind; the next start replaces them, or signalboxd --clean removes them");
        }
    }
}

fn open() -> Result<Batch, OpenError> {
    Batch::open(NETLINK_NETFILTER).map_err(|error| explain(&error))
}

fn explain(error: &io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::net_admin("laying the nftables rules", error),
        _ => OpenError::new(
            "tproxy-unsupported",
            format!("the kernel does not take the nftables rules ({error})"),
            "the kernel needs nf_tables with tproxy (modules nft_tproxy, nf_tproxy_ipv4, nf_tproxy_ipv6), and with fib \
             (nft_fib_ipv4) for gist_nat, or switch interception off in the configuration",
        ),
    }
}

fn families(config: &IoConfig) -> impl Iterator<Item = bool> + use<> {
    [(config.ipv4, false), (config.ipv6, true)].into_iter().filter_map(|(on, ipv6)| on.then_some(ipv6))
}

const fn family(ipv6: bool) -> u8 {
    if ipv6 { NFPROTO_IPV6 } else { NFPROTO_IPV4 }
}

/// Appends the deletion of the tables. It adds each table first, so that the deletion of a missing table is no error.
fn compose_removal(requests: &mut Batch, config: &IoConfig) {
    let table = config.scope.name(TABLE);
    for family in families(config).map(family) {
        nftables::table(requests, family, &table, 0, false);
        nftables::delete_table(requests, family, &table);
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOENT))
}

/// Appends the tables with their rules, in place of former ones.
fn compose(requests: &mut Batch, config: &IoConfig, Kinds { owned, compares }: Kinds) {
    compose_removal(requests, config);
    let table = config.scope.name(TABLE);
    for ipv6 in families(config) {
        let (family, planned) = (family(ipv6), plan(config, ipv6, compares));
        nftables::table(requests, family, &table, 0, owned);
        for (chain, hook) in [
            (CHAIN, (Hook::Prerouting, config.scope.priority(config.priority))),
            (ARRIVING, (Hook::Prerouting, RAW)),
            (SENT, (Hook::Output, RAW)),
            (TESTED, (Hook::Prerouting, LAST)),
            (UNPROVED, (Hook::Input, LAST)),
        ] {
            if chain == CHAIN || planned.iter().any(|rule| rule.chain() == chain) {
                nftables::base_chain(requests, family, (&table, chain), "filter", hook);
            }
        }
        for planned in planned {
            let place = (table.as_str(), planned.chain());
            nftables::rule(requests, family, place, |rule| planned.compose(rule, ipv6, config));
        }
    }
}

/// A rule of our table.
enum Planned<'a> {
    /// Packets that are redirected to the socket of a port.
    Redirected { socket: u16, packets: Packets<'a> },
    /// The same packets stay out of connection tracking.
    Arriving { packets: Packets<'a> },
    /// Packets of this node stay out of connection tracking.
    Sent { matches: &'a [Match] },
    /// Packets of the self-test that lost their mark do not leave this machine.
    Tested,
    /// What comes in by an interface is not compared.
    Excepted { interface: &'a str, entry: Entry },
    /// Packets that come by other interfaces than those of their entry are dropped.
    Elsewhere { entry: Entry },
    /// Packets that do not come from where their source is are dropped.
    Unproved { interface: Option<&'a str>, entry: Entry, condition: Option<Match> },
}

/// The conditions of a rule; with a destination port, only packets to it.
#[derive(Clone, Copy)]
struct Packets<'a> {
    through: Option<&'a Through>,
    port: Option<u16>,
    alert: Alert,
    matches: &'a [Match],
}

/// The rules of a family.
fn plan(config: &IoConfig, ipv6: bool, compares: bool) -> Vec<Planned<'_>> {
    let mut planned = if compares { plan_unproved(config) } else { Vec::new() };
    for (entry, served) in config.entries.iter().filter_map(confined) {
        planned.extend(served.map(|interface| Planned::Excepted { interface, entry }));
        planned.push(Planned::Elsewhere { entry });
    }
    // In a VRF there is no self-test.
    if config.scope.is_all() && config.entries.iter().any(|request| datagrams(request).is_some()) {
        planned.push(Planned::Tested);
    }
    for (socket, request) in config.entries.iter().filter_map(datagrams) {
        for intercept in request.intercept.iter().filter(|intercept| intercept.is_for(ipv6)) {
            let port = (intercept.reach != Reach::TranslatedAnyPort).then_some(socket);
            let (matches, through) = (&intercept.matches[..], intercept.through.as_ref());
            for alert in alerts(ipv6, intercept.alert) {
                let packets = Packets { through, port, alert, matches };
                planned.push(Planned::Redirected { socket, packets });
                if intercept.reach != Reach::Passing {
                    planned.push(Planned::Arriving { packets });
                }
            }
        }
        if !request.untracked.is_empty() && !ipv6 {
            planned.push(Planned::Sent { matches: &request.untracked });
        }
    }
    planned
}

/// The rules about sources. Those of one entry follow each other: an interface is an exception for one entry.
fn plan_unproved(config: &IoConfig) -> Vec<Planned<'_>> {
    let mut planned = Vec::new();
    for (entry, Unproved { matches, at: Interfaces { named, others } }) in
        config.entries.iter().filter_map(compared)
    {
        let conditions = || matches.iter().copied().map(Some).chain(matches.is_empty().then_some(None));
        let chosen = named.iter().filter(|(_, chosen)| *chosen).map(|(name, _)| Some(name.as_str()));
        let excepted = named.iter().filter(|(_, chosen)| !*chosen).map(|(name, _)| name.as_str());
        if *others {
            let all = std::iter::once(config.scope.loopback()).chain(excepted);
            planned.extend(all.map(|interface| Planned::Excepted { interface, entry }));
        }
        for interface in chosen.filter(|_| !*others).chain(others.then_some(None)) {
            planned.extend(conditions().map(|condition| Planned::Unproved { interface, entry, condition }));
        }
    }
    planned
}

/// An entry whose packets are compared with the routes to their sources at the hook input.
fn compared(request: &EntryRequest) -> Option<(Entry, &Unproved)> {
    match request.entry {
        Entry::Udp(_) | Entry::Ip(_) => request.unproved.as_ref().map(|unproved| (request.entry, unproved)),
        // Its messages are passed to a queue by rules of their own.
        Entry::IcmpEcho(_) => None,
    }
}

/// A UDP entry of some interfaces only, and these.
fn confined(request: &EntryRequest) -> Option<(Entry, impl Iterator<Item = &str>)> {
    let Interfaces { named, others } = &request.interfaces;
    let confined = matches!(request.entry, Entry::Udp(_)) && request.receive && !*others;
    let served = named.iter().filter(|(_, chosen)| *chosen).map(|(name, _)| name.as_str());
    confined.then_some((request.entry, served))
}

fn judges_sources(config: &IoConfig) -> bool {
    config.entries.iter().any(|request| compared(request).is_some())
}

/// Composes the conditions for packets of an entry.
fn of_entry(rule: &mut Batch, entry: Entry) {
    match entry {
        Entry::Udp(port) => {
            expression::protocol(rule, UDP);
            expression::load(rule, Header::Transport, (2, 2));
            expression::compare(rule, Compare::Equal, &port.to_be_bytes());
        }
        Entry::Ip(protocol) => expression::protocol(rule, protocol),
        Entry::IcmpEcho(_) => {}
    }
}

impl Planned<'_> {
    const fn chain(&self) -> &'static str {
        match self {
            Self::Redirected { .. } => CHAIN,
            Self::Arriving { .. } => ARRIVING,
            Self::Sent { .. } => SENT,
            Self::Tested => TESTED,
            Self::Excepted { .. } | Self::Elsewhere { .. } | Self::Unproved { .. } => UNPROVED,
        }
    }

    fn compose(&self, rule: &mut Batch, ipv6: bool, config: &IoConfig) {
        let scope = &config.scope;
        match *self {
            Self::Redirected { socket, packets } => {
                scope.packets(rule);
                compose_conditions(rule, packets, scope);
                expression::redirect(rule, family(ipv6), socket);
                expression::mark(rule, config.mark);
                expression::accept(rule);
            }
            Self::Arriving { packets } => {
                scope.packets(rule);
                compose_conditions(rule, packets, scope);
                expression::untracked(rule);
            }
            Self::Sent { matches } => {
                expression::has_mark(rule, config.own_mark);
                let packets = Packets { through: None, port: None, alert: Alert::Absent, matches };
                compose_conditions(rule, packets, scope);
                expression::untracked(rule);
            }
            Self::Tested => selftest::guard(rule, ipv6, UDP, config.mark),
            Self::Excepted { interface, entry } => {
                scope.packets(rule);
                of_entry(rule, entry);
                scope.arrived_by(rule, interface);
                expression::accept(rule);
            }
            Self::Elsewhere { entry } => {
                scope.packets(rule);
                of_entry(rule, entry);
                expression::counter(rule);
                expression::drop(rule);
            }
            Self::Unproved { interface, entry, condition } => {
                scope.packets(rule);
                // The program nft (1.0.6) cannot list a rule that loads octets behind a protocol which it does not know.
                if let Some(Match { offset, mask, value }) = condition {
                    let header = if matches!(entry, Entry::Udp(_)) { UDP_HEADER } else { 0 };
                    expression::load(rule, Header::Transport, (header + u32::from(offset), 4));
                    expression::mask(rule, &mask.to_be_bytes());
                    expression::compare(rule, Compare::Equal, &value.to_be_bytes());
                }
                of_entry(rule, entry);
                if let Some(interface) = interface {
                    scope.arrived_by(rule, interface);
                }
                expression::came_from_its_source(rule, false);
                expression::counter(rule);
                expression::drop(rule);
            }
        }
    }
}

/// A test for a Router Alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alert {
    /// No test.
    Absent,
    /// IPv4: the first option, with any value or with this one.
    First(Option<u16>),
    /// IPv4: an option at any place. The kernel finds those of value 0 only.
    Zero,
    /// IPv6: hop-by-hop options. The engine examines whether there is a Router Alert, and with which value: the option may
    /// stand anywhere in the header.
    HopByHop,
}

/// The tests of an entry's rule. A packet is intercepted if it passes one of them.
fn alerts(ipv6: bool, rule: AlertRule) -> Vec<Alert> {
    match (rule, ipv6) {
        (AlertRule::NotRequired, _) => vec![Alert::Absent],
        (AlertRule::Any, false) => vec![Alert::First(None), Alert::Zero],
        (AlertRule::Value { ipv4: 0, .. }, false) => vec![Alert::Zero],
        (AlertRule::Value { ipv4, .. }, false) => vec![Alert::First(Some(ipv4))],
        (AlertRule::Any | AlertRule::Value { .. }, true) => vec![Alert::HopByHop],
    }
}

/// The port of a request for UDP datagrams that has rules.
fn datagrams(request: &EntryRequest) -> Option<(u16, &EntryRequest)> {
    match request.entry {
        Entry::Udp(port) if !request.intercept.is_empty() => Some((port, request)),
        Entry::Udp(_) | Entry::Ip(_) | Entry::IcmpEcho(_) => None,
    }
}

/// Composes the conditions for the packets of a rule. GIST's interception (RFC 5971 §4.3.1, §5.3.2) is one of these.
fn compose_conditions(
    rule: &mut Batch,
    Packets { through, port, alert, matches }: Packets<'_>,
    scope: &Scope,
) {
    if let Some(through) = through {
        scope.arrived_by(rule, &through.from);
    }
    expression::protocol(rule, UDP);
    if let Some(port) = port {
        expression::load(rule, Header::Transport, (2, 2));
        expression::compare(rule, Compare::Equal, &port.to_be_bytes());
    }
    if matches!(alert, Alert::First(_) | Alert::Zero) {
        // The test of the header's length is cheap and excludes nearly all other packets.
        expression::load(rule, Header::Network, (0, 1));
        expression::mask(rule, &[0x0f]);
        expression::compare(rule, Compare::Above, &[5]);
    }
    match alert {
        Alert::Absent => {}
        Alert::First(value) => {
            let option = [&ROUTER_ALERT_V4[..], &value.map(u16::to_be_bytes).unwrap_or_default()].concat();
            let octets = if value.is_some() { 4 } else { 2 };
            expression::load(rule, Header::Network, (20, octets));
            expression::compare(rule, Compare::Equal, option.get(..octets as usize).unwrap_or(&option));
        }
        Alert::Zero => expression::has_router_alert(rule),
        Alert::HopByHop => expression::has_hop_by_hop(rule),
    }
    for condition in matches {
        expression::load(rule, Header::Transport, (UDP_HEADER + u32::from(condition.offset), 4));
        if condition.mask != u32::MAX {
            expression::mask(rule, &condition.mask.to_be_bytes());
        }
        expression::compare(rule, Compare::Equal, &condition.value.to_be_bytes());
    }
    // The lookup of a route is what costs most.
    match through.map(|through| &through.to) {
        None => {}
        Some(Towards::ThisNode) => expression::leads_here(rule),
        Some(Towards::Address(address)) => {
            expression::load(rule, Header::Network, (DESTINATION, 4));
            expression::compare(rule, Compare::Equal, &address.octets());
        }
        Some(Towards::Interface(name)) => expression::leads_out_by(rule, name),
    }
}

/// Whether there are rules to install.
pub(crate) fn is_wanted(config: &IoConfig) -> bool {
    let lays = |request: &EntryRequest| {
        datagrams(request).is_some() || compared(request).is_some() || confined(request).is_some()
    };
    config.intercept && config.entries.iter().any(lays)
}
