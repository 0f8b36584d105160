//! Interception of UDP datagrams that pass by: this node receives them, and they are not forwarded.
//!
//! An nftables table of our own redirects them (tproxy) to the UDP socket; addresses, TTL and options stay unchanged.
//! The kernel compares everything that the rule of an entry names, so that the rule matches only packets of that entry.
//! The redirection precedes the mark: without a listening socket the rule ends there, and the packet is forwarded as if
//! there were no rule. A dead daemon therefore stops no packet.
//!
//! The table belongs to a netlink socket of this process where the kernel supports that (Linux 5.12): then no other
//! program can remove it, and `nft flush ruleset` leaves it. [`Interception::restore`] installs again what was removed
//! nevertheless.

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;
use signalbox_core::{AlertRule, Entry, EntryRequest, Intercept, Match};

use crate::error::OpenError;
use crate::io::IoConfig;
use crate::netlink::nftables::expression::{self, Compare, Header};
use crate::netlink::nftables::{self, Hook, NFPROTO_IPV4, NFPROTO_IPV6, begin, transact};
use crate::netlink::{Batch, rules};

/// Name of the tables, in families `ip` and `ip6`.
const TABLE: &str = "signalbox";
const CHAIN: &str = "prerouting";
const UDP: u8 = 17;
/// Type and length of IPv4's Router Alert (RFC 2113).
const ROUTER_ALERT_V4: [u8; 2] = [148, 4];
/// Octets of the UDP header, which precedes the payload.
const UDP_HEADER: u32 = 8;

/// The installed rules and routes; they are removed when the value is dropped.
pub(crate) struct Interception {
    config: IoConfig,
    requests: Batch,
    owned: bool,
    laid: bool,
}

/// Installs the rules, and replaces those that a dead predecessor may have left.
pub(crate) fn lay(config: &IoConfig) -> Result<Interception, OpenError> {
    // From here on, a failure removes what is installed.
    let requests = open()?;
    let mut interception =
        Interception { config: config.clone(), requests, owned: config.own_tables, laid: true };
    // The policy rule and the route are added first and removed last. The kernel drops a redirected packet that has no
    // route to this node; it does not forward the packet, because the packet already belongs to a socket.
    for ipv6 in families(config) {
        rules::add(ipv6, config.mark, config.table).map_err(|error| match error.raw_os_error() {
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

/// Removes what a dead predecessor may have left, where this process must not intercept. The predecessor's policy rule
/// and route show whether there is anything to remove.
pub(crate) fn clear(config: &IoConfig) -> Result<(), OpenError> {
    let mut found = false;
    for ipv6 in families(config) {
        found |= rules::remove(ipv6, config.mark, config.table)
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
    begin(&mut requests);
    compose(&mut requests, config, false);
    let refused = requests.send_trial().map_err(|error| explain(&error))?;
    refused.into_iter().next().map_or(Ok(()), |(_, error)| Err(explain(&error)))
}

impl Interception {
    /// Installs the rules.
    fn lay_rules(&mut self) -> Result<(), OpenError> {
        let Self { config, requests, owned, .. } = self;
        let mut result = transact(requests, |requests| compose(requests, config, *owned));
        let unsupported =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL));
        if *owned && result.as_ref().is_err_and(unsupported) {
            *owned = false;
            result = transact(requests, |requests| compose(requests, config, false));
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
        if !self.owned {
            let wanted = |ipv6| -> usize {
                let entries = self.config.entries.iter().filter_map(intercepted);
                entries.map(|(_, intercept)| alerts(ipv6, intercept.alert).len()).sum()
            };
            let whole = |ipv6| Ok(nftables::rules(family(ipv6), (TABLE, CHAIN))? == wanted(ipv6));
            let whole = families(&self.config).map(whole).collect::<io::Result<Vec<_>>>();
            let whole = whole.map_err(|error| OpenError::system("reading the nftables rules", &error))?;
            if whole.contains(&false) {
                self.lay_rules()?;
                missing = true;
            }
        }
        Ok(missing)
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
            let removed = rules::remove(ipv6, config.mark, config.table)
                .map_err(|error| OpenError::system("removing the routing rule", &error));
            result = result.and(removed.map(drop));
        }
        result
    }
}

/// Adds the policy rule and the route for marked packets of a family again where they are missing, and returns whether they
/// were.
pub(crate) fn restore_route(ipv6: bool, config: &IoConfig) -> Result<bool, OpenError> {
    rules::restore(ipv6, config.mark, config.table)
        .map_err(|error| OpenError::system("restoring the routing rule for intercepted packets", &error))
}

impl Drop for Interception {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::warn!(%error, "interception rules stay behind");
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
            "the kernel needs nf_tables with tproxy (modules nft_tproxy, nf_tproxy_ipv4, nf_tproxy_ipv6), or \
             switch interception off in the configuration",
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
    for family in families(config).map(family) {
        nftables::table(requests, family, TABLE, 0, false);
        nftables::delete_table(requests, family, TABLE);
    }
}

/// Appends the tables with their rules, in place of former ones.
fn compose(requests: &mut Batch, config: &IoConfig, owned: bool) {
    compose_removal(requests, config);
    for ipv6 in families(config) {
        let (family, place) = (family(ipv6), (TABLE, CHAIN));
        nftables::table(requests, family, TABLE, 0, owned);
        nftables::chain(requests, family, place, Hook::Prerouting);
        for (port, intercept) in config.entries.iter().filter_map(intercepted) {
            for alert in alerts(ipv6, intercept.alert) {
                nftables::rule(requests, family, place, |rule| {
                    compose_rule(rule, ipv6, port, (alert, &intercept.matches), config.mark)
                });
            }
        }
    }
}

/// A test for a Router Alert.
#[derive(Debug, Clone, Copy)]
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

/// The port of a request for intercepted UDP datagrams, and its rule.
fn intercepted(request: &EntryRequest) -> Option<(u16, &Intercept)> {
    match (request.entry, &request.intercept) {
        (Entry::Udp(port), Some(intercept)) => Some((port, intercept)),
        _ => None,
    }
}

/// Composes the rule for the packets that an entry intercepts. GIST's interception (RFC 5971 §4.3.1, §5.3.2) is one of
/// these.
fn compose_rule(rule: &mut Batch, ipv6: bool, port: u16, (alert, matches): (Alert, &[Match]), mark: u32) {
    expression::protocol(rule, UDP);
    expression::load(rule, Header::Transport, (2, 2));
    expression::compare(rule, Compare::Equal, &port.to_be_bytes());
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
    expression::redirect(rule, family(ipv6), port);
    expression::mark(rule, mark);
    expression::accept(rule);
}

/// Whether there are rules to install.
pub(crate) fn is_wanted(config: &IoConfig) -> bool {
    config.intercept && config.entries.iter().any(|request| intercepted(request).is_some())
}
