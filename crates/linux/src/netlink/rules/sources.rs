//! The two policy rules by which the kernel's lookup of the source of an intercepted packet does not use the table of the interception.
//!
//! With `src_valid_mark`, the kernel looks up the route to the source of a packet of IPv4 with the packet's mark. The table for this
//! mark leads to this node whatever the address is, and the kernel drops packets that have an address of its own as source. That lookup
//! is made as if the packet came in by the loopback interface; the lookup for the packet itself has its real interface. So
//!
//! ```text
//! PREFERENCE - 1: iif lo fwmark MARK goto PREFERENCE + 1
//! PREFERENCE:     fwmark MARK lookup TABLE
//! PREFERENCE + 1: fwmark MARK nop
//! ```
//!
//! leave the lookup of the source to the rules of others, as that of any packet. The last rule is there because the kernel jumps only to
//! a preference that has a rule. Where it has one of another program too, either is a target.
//!
//! Daemons of several VRFs have the same mark, each with a rule of its own, which may stand at different places. The two rules around
//! that of another daemon are its own.

use std::io;

use super::{
    FRA_FWMARK, FRA_PRIORITY, FRA_PROTOCOL, Listed, MOST, PROTOCOL, Rule, absent, added, family, list,
};
use crate::netlink::codec::Connection;

const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
pub(super) const FR_ACT_GOTO: u8 = 2;
pub(super) const FR_ACT_NOP: u8 = 3;
const LOOPBACK: &[u8] = b"lo\0";

/// Puts the two rules around that of the interception of IPv4 if they are `wanted`, and removes those that stand around none. Without
/// them no daemon needs any. Returns whether they are in place: before preference 0 there is no room.
pub(crate) fn keep(rule: Rule, wanted: bool) -> io::Result<bool> {
    let mut connection = Connection::open()?;
    let rules = list(&mut connection, false)?;
    let own = rules.iter().find(|listed| listed.is(rule)).filter(|_| wanted);
    let around = own.and_then(|own| around(own.preference));
    let present = |action, preference| {
        rules.iter().any(|listed| is_ours(listed, rule.mark, action) && listed.preference == preference)
    };
    if let Some((before, behind)) = around {
        // The target comes first.
        for (action, preference) in [(FR_ACT_NOP, behind), (FR_ACT_GOTO, before)] {
            if !present(action, preference) {
                added(request(&mut connection, libc::RTM_NEWRULE, rule.mark, action, preference))?;
            }
        }
    }
    remove(&mut connection, &rules, rule.mark, |listed| wanted && listed.is_of(rule.mark))?;
    Ok(around.is_some())
}

/// Removes those that no other daemon needs, before the rule of this one goes.
pub(crate) fn leave(rule: Rule) -> io::Result<()> {
    let mut connection = Connection::open()?;
    let rules = list(&mut connection, false)?;
    remove(&mut connection, &rules, rule.mark, |listed| listed.is_of(rule.mark) && !listed.is(rule))
}

/// The preferences of the two rules around one.
fn around(preference: u32) -> Option<(u32, u32)> {
    Some((preference.checked_sub(1)?, preference.checked_add(1)?))
}

/// Removes all of `rules` that are of this kind, but those around rules of interceptions that are `served`.
fn remove(
    connection: &mut Connection,
    rules: &[Listed],
    mark: u32,
    served: impl Fn(&Listed) -> bool,
) -> io::Result<()> {
    let served = rules.iter().filter(|listed| served(listed)).filter_map(|listed| around(listed.preference));
    let needed: Vec<_> =
        served.flat_map(|(before, behind)| [(FR_ACT_GOTO, before), (FR_ACT_NOP, behind)]).collect();
    let stale = rules.iter().filter(|listed| {
        [FR_ACT_GOTO, FR_ACT_NOP].iter().any(|action| is_ours(listed, mark, *action))
            && !needed.contains(&(listed.action, listed.preference))
    });
    for listed in stale.take(MOST) {
        match request(connection, libc::RTM_DELRULE, mark, listed.action, listed.preference) {
            Err(error) if !absent(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn is_ours(listed: &Listed, mark: u32, action: u8) -> bool {
    listed.protocol == PROTOCOL && listed.mark == mark && listed.action == action
}

fn request(connection: &mut Connection, kind: u16, mark: u32, action: u8, preference: u32) -> io::Result<()> {
    let create = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let flags = libc::NLM_F_ACK | if kind == libc::RTM_NEWRULE { create } else { 0 };
    let fixed = [family(false), 0, 0, 0, libc::RT_TABLE_UNSPEC, 0, 0, action, 0, 0, 0, 0];
    connection
        .begin(kind, flags, &fixed)
        .attribute(FRA_PRIORITY, &preference.to_ne_bytes())
        .attribute(FRA_FWMARK, &mark.to_ne_bytes())
        .attribute(FRA_PROTOCOL, &[PROTOCOL]);
    if action == FR_ACT_GOTO {
        // Behind the rule of the interception, which follows this one.
        connection
            .attribute(FRA_IIFNAME, LOOPBACK)
            .attribute(FRA_GOTO, &preference.saturating_add(2).to_ne_bytes());
    }
    connection.transact(|_| {})
}
