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

/// Puts the two rules around that of the interception of IPv4 if they are `wanted`, and removes those that stand elsewhere. Returns
/// whether they are in place: before preference 0 there is no room.
pub(crate) fn keep(rule: Rule, wanted: bool) -> io::Result<bool> {
    let mut connection = Connection::open()?;
    let rules = list(&mut connection, false)?;
    let own = rules.iter().find(|listed| listed.is(rule)).filter(|_| wanted);
    let around = own.and_then(|own| Some((own.preference.checked_sub(1)?, own.preference.checked_add(1)?)));
    let present = |action, preference| {
        rules.iter().any(|listed| is_ours(listed, rule, action) && listed.preference == preference)
    };
    if let Some((before, behind)) = around {
        // The target comes first.
        for (action, preference) in [(FR_ACT_NOP, behind), (FR_ACT_GOTO, before)] {
            if !present(action, preference) {
                added(request(&mut connection, libc::RTM_NEWRULE, rule.mark, action, preference))?;
            }
        }
    }
    for (action, stays) in
        [(FR_ACT_GOTO, around.map(|(before, _)| before)), (FR_ACT_NOP, around.map(|(_, behind)| behind))]
    {
        let stale = rules.iter().filter(|listed| is_ours(listed, rule, action));
        for listed in stale.filter(|listed| Some(listed.preference) != stays).take(MOST) {
            match request(&mut connection, libc::RTM_DELRULE, rule.mark, action, listed.preference) {
                Err(error) if !absent(&error) => return Err(error),
                _ => {}
            }
        }
    }
    Ok(around.is_some())
}

fn is_ours(listed: &Listed, rule: Rule, action: u8) -> bool {
    listed.protocol == PROTOCOL && listed.mark == rule.mark && listed.action == action
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
