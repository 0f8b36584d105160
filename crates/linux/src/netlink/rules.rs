//! The policy rule and the route that lead marked packets to this node.

use std::io;

use super::codec::Connection;
use super::lookup::{RTA_OIF, RTA_PRIORITY, RTA_TABLE};

const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_PROTOCOL: u16 = 21;
const FR_ACT_TO_TBL: u8 = 1;
/// The originator of the rule and route, as `ip rule` and `ip route` show it: a number that no routing daemon uses.
const PROTOCOL: u8 = 91;
/// The scope of the host itself (RT_SCOPE_HOST).
const HOST: u8 = 254;
/// Priority of the rule: after the local table (0), before the usual rules of administrators.
const PRIORITY: u32 = 270;
/// Metric of a route behind the usual one, whose metric is 0 with IPv4 and 1024 with IPv6.
const BEHIND: u32 = 4096;
/// More rules or routes of ours cannot exist, because each start reuses those that it finds.
const MOST: usize = 64;

/// Adds `ip rule fwmark MARK lookup TABLE` and `ip route local default dev lo table TABLE`. What a predecessor left is
/// reused: its redirection may work already, and a redirected packet is lost while there is no rule.
pub(crate) fn add(ipv6: bool, mark: u32, table: u32) -> io::Result<()> {
    let mut connection = Connection::open()?;
    let create = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    match route(&mut connection, libc::RTM_NEWROUTE, create, ipv6, table, None) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
            replace(&mut connection, ipv6, table)?;
        }
        result => result?,
    }
    match rule(&mut connection, libc::RTM_NEWRULE, create, ipv6, mark, table) {
        // The existing rule is equal in all parts, so it is ours.
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        result => result,
    }
}

/// Adds the rule or the route again where it is missing, and returns whether one was.
pub(crate) fn restore(ipv6: bool, mark: u32, table: u32) -> io::Result<bool> {
    let mut connection = Connection::open()?;
    let create = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let added = |result: io::Result<()>| match result {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        result => result.map(|()| true),
    };
    // The route comes first: a packet that the rule leads to an empty table takes its usual way.
    let route = added(route(&mut connection, libc::RTM_NEWROUTE, create, ipv6, table, None))?;
    Ok(added(rule(&mut connection, libc::RTM_NEWRULE, create, ipv6, mark, table))? || route)
}

/// Replaces a route that exists, which may be our predecessor's or another program's. A second route of ours stands
/// behind it meanwhile, so that every packet finds a route.
fn replace(connection: &mut Connection, ipv6: bool, table: u32) -> io::Result<()> {
    let create = libc::NLM_F_ACK | libc::NLM_F_CREATE;
    match route(connection, libc::RTM_NEWROUTE, create, ipv6, table, Some(BEHIND)) {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => return Err(error),
        _ => {}
    }
    // The deletion matches routes of ours only, the first one first. A route of another program stays.
    let result = match route(connection, libc::RTM_DELROUTE, libc::NLM_F_ACK, ipv6, table, None) {
        Err(error) if !absent(&error) => Err(error),
        _ => route(connection, libc::RTM_NEWROUTE, create | libc::NLM_F_EXCL, ipv6, table, None),
    };
    match route(connection, libc::RTM_DELROUTE, libc::NLM_F_ACK, ipv6, table, Some(BEHIND)) {
        Err(error) if !absent(&error) => result.and(Err(error)),
        _ => result,
    }
}

/// Removes the rule and the route and returns whether there was anything to remove. A missing rule or route is no
/// error.
pub(crate) fn remove(ipv6: bool, mark: u32, table: u32) -> io::Result<bool> {
    let mut connection = Connection::open()?;
    let mut found = false;
    for _ in 0..MOST {
        match rule(&mut connection, libc::RTM_DELRULE, libc::NLM_F_ACK, ipv6, mark, table) {
            Ok(()) => found = true,
            Err(error) if absent(&error) => break,
            Err(error) => return Err(error),
        }
    }
    for _ in 0..MOST {
        match route(&mut connection, libc::RTM_DELROUTE, libc::NLM_F_ACK, ipv6, table, None) {
            Ok(()) => found = true,
            Err(error) if absent(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

const fn family(ipv6: bool) -> u8 {
    if ipv6 { libc::AF_INET6 as u8 } else { libc::AF_INET as u8 }
}

fn rule(
    connection: &mut Connection,
    kind: u16,
    flags: i32,
    ipv6: bool,
    mark: u32,
    table: u32,
) -> io::Result<()> {
    let fixed = [family(ipv6), 0, 0, 0, libc::RT_TABLE_UNSPEC, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0];
    connection
        .begin(kind, flags, &fixed)
        .attribute(FRA_PRIORITY, &PRIORITY.to_ne_bytes())
        .attribute(FRA_FWMARK, &mark.to_ne_bytes())
        .attribute(FRA_TABLE, &table.to_ne_bytes())
        .attribute(FRA_PROTOCOL, &[PROTOCOL])
        .transact(|_| {})
}

fn route(
    connection: &mut Connection,
    kind: u16,
    flags: i32,
    ipv6: bool,
    table: u32,
    metric: Option<u32>,
) -> io::Result<()> {
    let loopback = crate::sys::interface_index("lo")?;
    let fixed = [
        family(ipv6),
        0,
        0,
        0,
        libc::RT_TABLE_UNSPEC,
        PROTOCOL,
        if ipv6 { 0 } else { HOST },
        libc::RTN_LOCAL,
        0,
        0,
        0,
        0,
    ];
    connection
        .begin(kind, flags, &fixed)
        .attribute(RTA_OIF, &loopback.to_ne_bytes())
        .attribute(RTA_TABLE, &table.to_ne_bytes());
    if let Some(metric) = metric {
        connection.attribute(RTA_PRIORITY, &metric.to_ne_bytes());
    }
    connection.transact(|_| {})
}
