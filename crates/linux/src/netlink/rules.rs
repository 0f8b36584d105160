//! The policy rule and the route that lead marked packets to this node.

pub(crate) mod sources;

use std::{fmt, io};

use super::codec::{Connection, Message, u32_of};
use super::lookup::{RTA_OIF, RTA_PRIORITY, RTA_TABLE};
use sources::{FR_ACT_GOTO, FR_ACT_NOP};

const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_PROTOCOL: u16 = 21;
const FR_ACT_TO_TBL: u8 = 1;
/// A rule for the packets that its conditions do not describe.
const FIB_RULE_INVERT: u32 = 2;
/// FRA_DST, SRC, IIFNAME, FLOW, TUN_ID, OIFNAME, L3MDEV, UID_RANGE, IP_PROTO, SPORT_RANGE, DPORT_RANGE, DSCP: conditions of a rule.
const CONDITIONS: [u16; 12] = [1, 2, 3, 11, 12, 17, 19, 20, 22, 23, 24, 25];
/// The originator of the rule and route, as `ip rule` and `ip route` show it: a number that no routing daemon uses.
const PROTOCOL: u8 = 91;
/// The scope of the host itself (RT_SCOPE_HOST).
const HOST: u8 = 254;
/// The table of the addresses of this host.
const LOCAL_TABLE: u32 = 255;
/// Metric of a route behind the usual one, whose metric is 0 with IPv4 and 1024 with IPv6.
const BEHIND: u32 = 4096;
/// More rules or routes of ours cannot exist, because each start reuses those that it finds.
const MOST: usize = 64;

/// The policy rule of an interception: marked packets are routed by a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) mark: u32,
    pub(crate) table: u32,
    /// Its place among the rules of the kernel when it is added.
    pub(crate) preference: u32,
}

/// Adds `ip rule fwmark MARK lookup TABLE` and `ip route local default dev lo table TABLE`. What a predecessor left is
/// reused: its redirection may work already, and a redirected packet is lost while there is no rule.
pub(crate) fn add(ipv6: bool, wanted: Rule) -> io::Result<()> {
    let mut connection = Connection::open()?;
    let create = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    match route(&mut connection, libc::RTM_NEWROUTE, create, ipv6, wanted.table, None) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
            replace(&mut connection, ipv6, wanted.table)?;
        }
        result => result?,
    }
    // The rule of a predecessor may stand at another place.
    if own(&mut connection, ipv6, wanted)?.is_none() {
        added(rule(&mut connection, libc::RTM_NEWRULE, create, ipv6, wanted, Some(wanted.preference)))?;
    }
    Ok(())
}

/// Adds the rule or the route again where it is missing, and returns whether one was.
pub(crate) fn restore(ipv6: bool, wanted: Rule) -> io::Result<bool> {
    let mut connection = Connection::open()?;
    let create = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    // The route comes first: a packet that the rule leads to an empty table takes its usual way.
    let route = added(route(&mut connection, libc::RTM_NEWROUTE, create, ipv6, wanted.table, None))?;
    if own(&mut connection, ipv6, wanted)?.is_some() {
        return Ok(route);
    }
    let place = Some(wanted.preference);
    Ok(added(rule(&mut connection, libc::RTM_NEWRULE, create, ipv6, wanted, place))? || route)
}

/// Whether something was added; that it exists is no error.
fn added(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        result => result.map(|()| true),
    }
}

/// Where the rule of ours stands, if there is one.
fn own(connection: &mut Connection, ipv6: bool, wanted: Rule) -> io::Result<Option<u32>> {
    Ok(list(connection, ipv6)?.iter().find(|rule| rule.is(wanted)).map(|rule| rule.preference))
}

/// What stands before the rule of ours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Rank {
    /// The new preference, if the rule was put above others.
    pub(crate) raised: Option<u32>,
    /// The rules before it that can route the packets of the interception.
    pub(crate) above: Vec<String>,
}

/// Compares the place of our rule with those of others. With `raise` it is put above them where that is possible: the kernel
/// places a rule behind those of the same preference, and the least one is 0.
pub(crate) fn rank(ipv6: bool, wanted: Rule, raise: bool) -> io::Result<Rank> {
    let mut connection = Connection::open()?;
    let rules = list(&mut connection, ipv6)?;
    let Some(at) = rules.iter().position(|rule| rule.is(wanted)) else { return Ok(Rank::default()) };
    let (before, ours) = (rules.get(..at).unwrap_or_default(), rules.get(at));
    let above: Vec<&Listed> = before.iter().filter(|rule| rule.takes(wanted.mark)).collect();
    let free = above.iter().map(|rule| rule.preference).min().and_then(|least| least.checked_sub(1));
    let (Some(free), Some(ours), true) = (free, ours, raise) else {
        return Ok(Rank { raised: None, above: above.iter().map(ToString::to_string).collect() });
    };
    let create = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    // The new rule comes before the former one goes, so that every packet finds one.
    rule(&mut connection, libc::RTM_NEWRULE, create, ipv6, wanted, Some(free))?;
    match rule(&mut connection, libc::RTM_DELRULE, libc::NLM_F_ACK, ipv6, wanted, Some(ours.preference)) {
        Err(error) if !absent(&error) => Err(error),
        _ => Ok(Rank { raised: Some(free), above: Vec::new() }),
    }
}

/// The rules that would stand before one of this preference and can route packets with its mark. It needs no privilege.
pub(crate) fn before(ipv6: bool, wanted: Rule) -> io::Result<Vec<String>> {
    let rules = list(&mut Connection::open()?, ipv6)?;
    let before = rules.iter().take_while(|rule| rule.preference <= wanted.preference && !rule.is(wanted));
    Ok(before.filter(|rule| rule.takes(wanted.mark)).map(ToString::to_string).collect())
}

/// A rule of the kernel, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Listed {
    preference: u32,
    action: u8,
    inverted: bool,
    /// It has a condition beside the mark.
    conditions: bool,
    mark: u32,
    /// The bits of the mark that count; 0: the rule has no condition on the mark.
    mask: u32,
    table: u32,
    protocol: u8,
}

impl Listed {
    fn read(message: &Message<'_>) -> Option<Self> {
        let (fixed, attributes) = message.split::<12>()?;
        let [_, dst, src, tos, table, _, _, action, f0, f1, f2, f3] = *fixed;
        let mut listed = Self {
            action,
            inverted: u32::from_ne_bytes([f0, f1, f2, f3]) & FIB_RULE_INVERT != 0,
            conditions: dst != 0 || src != 0 || tos != 0,
            table: table.into(),
            ..Self::default()
        };
        let mut masked = false;
        for (kind, data) in attributes {
            match kind {
                FRA_PRIORITY => listed.preference = u32_of(data)?,
                FRA_FWMARK => listed.mark = u32_of(data)?,
                FRA_FWMASK => (listed.mask, masked) = (u32_of(data)?, true),
                FRA_TABLE => listed.table = u32_of(data)?,
                FRA_PROTOCOL => listed.protocol = *data.first()?,
                kind if CONDITIONS.contains(&kind) => listed.conditions = true,
                _ => {}
            }
        }
        if listed.mark != 0 && !masked {
            listed.mask = u32::MAX;
        }
        Some(listed)
    }

    /// Whether it is the rule of an interception.
    const fn is(&self, rule: Rule) -> bool {
        self.mark == rule.mark && self.table == rule.table && self.protocol == PROTOCOL && !self.inverted
    }

    /// Whether it is the rule of the interception of any daemon with this mark.
    const fn is_of(&self, mark: u32) -> bool {
        self.mark == mark && self.action == FR_ACT_TO_TBL && self.protocol == PROTOCOL && !self.inverted
    }

    /// Whether it can route a packet with this mark. Rules of the table of local addresses, rules without action, those of
    /// [`sources`], and those of other daemons take no packet from the interception.
    const fn takes(&self, mark: u32) -> bool {
        let fits = self.mask == 0 || mark & self.mask == self.mark;
        let can = if self.inverted { self.conditions || !fits } else { fits };
        let harmless = match self.action {
            FR_ACT_NOP => true,
            FR_ACT_GOTO => self.protocol == PROTOCOL,
            // A daemon of a VRF leads its packets to this node, too.
            FR_ACT_TO_TBL => self.table == LOCAL_TABLE || self.protocol == PROTOCOL,
            _ => false,
        };
        can && !harmless
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "preference {}", self.preference)?;
        if self.inverted {
            f.write_str(", not")?;
        }
        if self.mask != 0 {
            write!(f, ", fwmark {:#x}/{:#x}", self.mark, self.mask)?;
        }
        if self.conditions {
            f.write_str(", with conditions")?;
        }
        match self.action {
            FR_ACT_TO_TBL => write!(f, ", lookup {}", self.table),
            action => write!(f, ", action {action}"),
        }
    }
}

/// The rules of a family, in the order in which the kernel asks them. A family that the kernel does not have has none.
fn list(connection: &mut Connection, ipv6: bool) -> io::Result<Vec<Listed>> {
    let header = [family(ipv6), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    match connection.begin(libc::RTM_GETRULE, libc::NLM_F_DUMP, &header).list(Listed::read) {
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(Vec::new()),
        listed => listed,
    }
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

/// Removes the rule, those of [`sources`], and the route, and returns whether there was anything to remove. A missing rule or route is no
/// error.
pub(crate) fn remove(ipv6: bool, wanted: Rule) -> io::Result<bool> {
    if !ipv6 {
        sources::leave(wanted)?;
    }
    let mut connection = Connection::open()?;
    let table = wanted.table;
    let mut found = false;
    for _ in 0..MOST {
        // At whatever place it stands.
        match rule(&mut connection, libc::RTM_DELRULE, libc::NLM_F_ACK, ipv6, wanted, None) {
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
    wanted: Rule,
    preference: Option<u32>,
) -> io::Result<()> {
    let fixed = [family(ipv6), 0, 0, 0, libc::RT_TABLE_UNSPEC, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0];
    connection.begin(kind, flags, &fixed);
    if let Some(preference) = preference {
        connection.attribute(FRA_PRIORITY, &preference.to_ne_bytes());
    }
    connection
        .attribute(FRA_FWMARK, &wanted.mark.to_ne_bytes())
        .attribute(FRA_TABLE, &wanted.table.to_ne_bytes())
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

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u32 = 0x5b00_010e;

    /// Which rules of others take packets from the interception.
    #[test]
    fn a_rule_outranks_only_if_it_can_take_a_marked_packet() {
        let lookup = Listed { preference: 100, action: FR_ACT_TO_TBL, table: 77, ..Listed::default() };
        let mark = |mark, mask| Listed { mark, mask, ..lookup };
        let not = |rule: Listed| Listed { inverted: true, ..rule };
        for (rule, takes) in [
            (lookup, true),
            (Listed { conditions: true, ..lookup }, true),
            (Listed { table: LOCAL_TABLE, ..lookup }, false),
            (Listed { protocol: PROTOCOL, ..mark(MARK, u32::MAX) }, false),
            (Listed { action: FR_ACT_NOP, ..lookup }, false),
            (Listed { action: FR_ACT_GOTO, ..lookup }, true),
            (Listed { action: FR_ACT_GOTO, protocol: PROTOCOL, ..lookup }, false),
            (Listed { action: 6, ..lookup }, true),
            (mark(0xca6c, u32::MAX), false),
            (not(mark(0xca6c, u32::MAX)), true),
            (mark(MARK, u32::MAX), true),
            (not(mark(MARK, u32::MAX)), false),
            (not(Listed { conditions: true, ..mark(MARK, u32::MAX) }), true),
            (mark(0x5b00_0000, 0xff00_0000), true),
        ] {
            assert_eq!(rule.takes(MARK), takes, "{rule}");
        }
    }
}
