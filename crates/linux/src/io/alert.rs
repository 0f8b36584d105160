//! Interception of packets of an IP protocol with a Router Alert, where the kernel does not intercept them by itself.
//!
//! IPv6: a rule of nftables marks the protocol's packets with hop-by-hop options, and the route for marked packets
//! leads to this node. Packets whose Router Alert has another value than the protocol's are not marked. The kernel
//! would find a group's packets in the table of local routes, which every host has and which comes first, and would
//! forward them all the same. A second rule therefore writes [`ALIAS`] over the first octet of a group's address, which
//! is the same for all groups, and [`group`] restores it. No checksum covers the address: RSVP's does not, and IPv6 has
//! no header checksum.
//!
//! IPv4: the kernel gives this node the packets that pass by, but forwards those to a group all the same where a
//! process of this host is a member. A rule drops the forwarded copies at the output.
//!
//! The tables belong to netlink sockets of this process, so that the kernel removes them when the daemon dies. Rules
//! without a listening socket would lose the packets.

use std::io;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::error::OpenError;
use crate::netlink::nftables::{NFTA_DATA_VALUE, NFTA_LIST_ELEM, about, begin, end, message, text};
use crate::netlink::{Batch, rules};

/// Prefix of the names of our tables, in families `ip` and `ip6`; the protocol's number follows.
const TABLE: &str = "signalbox_ip";
const CHAIN: &str = "passing";
/// The id of the error if the kernel does not support owned tables.
pub(super) const UNSUPPORTED: &str = "owned-tables-unsupported";

const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const NFT_MSG_NEWTABLE: u16 = message(0);
const NFT_MSG_DELTABLE: u16 = message(2);
const NFT_MSG_NEWCHAIN: u16 = message(3);
const NFT_MSG_NEWRULE: u16 = message(6);
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFT_TABLE_F_OWNER: u32 = 2;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NF_INET_PRE_ROUTING: u32 = 0;
const NF_INET_FORWARD: u32 = 2;
/// The priority that nft calls mangle.
const MANGLE: i32 = -150;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFT_REG_VERDICT: u32 = 0;
const NFT_REG_1: u32 = 1;
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFTA_META_SREG: u16 = 3;
const NFT_META_MARK: u32 = 3;
const NFT_META_L4PROTO: u32 = 16;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFT_CMP_EQ: u32 = 0;
const NFT_CMP_NEQ: u32 = 1;
const NFT_CMP_LTE: u32 = 3;
const NFT_CMP_GTE: u32 = 5;
const NFTA_EXTHDR_DREG: u16 = 1;
const NFTA_EXTHDR_TYPE: u16 = 2;
const NFTA_EXTHDR_OFFSET: u16 = 3;
const NFTA_EXTHDR_LEN: u16 = 4;
const NFTA_EXTHDR_FLAGS: u16 = 5;
const NFTA_EXTHDR_OP: u16 = 6;
const NFT_EXTHDR_F_PRESENT: u32 = 1;
const NFT_EXTHDR_OP_IPV6: u32 = 0;
const NFT_EXTHDR_OP_IPV4: u32 = 2;
/// The type of IPv6's hop-by-hop options header.
const HOP_BY_HOP: u8 = 0;
/// The type of IPv4's option.
const ROUTER_ALERT: u8 = 148;
const NFTA_PAYLOAD_DREG: u16 = 1;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LEN: u16 = 4;
const NFTA_PAYLOAD_SREG: u16 = 5;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
/// Offset of the destination address in the header.
const DESTINATION_V4: u32 = 16;
const DESTINATION_V6: u32 = 24;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;

/// The first octet of every group's address in IPv6.
const GROUP: u8 = 0xff;
/// The first and last value of that octet in IPv4.
const GROUPS_V4: [u8; 2] = [224, 239];
/// The value of that octet while the packet passes this node. No address begins with it (5b00::/8 is not assigned).
const ALIAS: u8 = 0x5b;

/// The group that a packet for this address was sent to, if the rule rewrote its address.
pub(super) fn group(dst: IpAddr) -> IpAddr {
    match dst {
        IpAddr::V6(v6) if v6.octets()[0] == ALIAS => {
            let mut octets = v6.octets();
            octets[0] = GROUP;
            octets.into()
        }
        _ => dst,
    }
}

/// The interception of one family: the table exists as long as this value, IPv6's rule and route until
/// [`Alert::remove`] or the drop.
pub(super) struct Alert {
    requests: Batch,
    name: String,
    ipv6: bool,
    mark: u32,
    table: u32,
    laid: bool,
}

impl Alert {
    /// Installs table, rule and route for `protocol`, whose Router Alert has `value` with IPv6 and 0 with IPv4. The
    /// interception of another entry may have installed the same rule and route, which are reused.
    pub(super) fn lay(
        ipv6: bool,
        protocol: u8,
        value: u16,
        mark: u32,
        table: u32,
    ) -> Result<Self, OpenError> {
        let name = format!("{TABLE}{protocol}");
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        let system = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM) => OpenError::net_admin("intercepting raw packets", &error),
            Some(libc::EOPNOTSUPP | libc::EINVAL) => OpenError::new(
                UNSUPPORTED,
                format!("the kernel does not take an nftables table with an owner ({error})"),
                format!(
                    "interception over {family} needs Linux 5.12 or newer with nf_tables; or switch {family} off in the configuration"
                ),
            ),
            Some(libc::EBUSY | libc::EEXIST) => OpenError::new(
                "alerts-in-use",
                format!(
                    "the nftables table {TABLE}{protocol} for {family} belongs to another process ({error})"
                ),
                "stop the other daemon in this network namespace",
            ),
            _ => OpenError::system("intercepting raw packets", &error),
        };
        let mut requests = Batch::open(NETLINK_NETFILTER).map_err(system)?;
        if ipv6 {
            rules::add(true, mark, table).map_err(system)?;
        }
        // From here on, a failure removes what is installed.
        begin(&mut requests);
        if ipv6 {
            compose_v6(&mut requests, &name, (protocol, value), mark)
        } else {
            compose_v4(&mut requests, &name, protocol)
        }
        end(&mut requests);
        let mut alert = Self { requests, name, ipv6, mark, table, laid: true };
        match alert.requests.send_transaction().map_err(system)?.into_iter().next() {
            Some((_, error)) => Err(system(error)),
            None => Ok(alert),
        }
    }

    pub(super) fn remove(mut self) -> Result<(), OpenError> {
        self.take_away()
            .map_err(|error| OpenError::system("removing the interception of raw packets", &error))
    }

    fn take_away(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.laid) {
            return Ok(());
        }
        begin(&mut self.requests);
        let about = about(if self.ipv6 { NFPROTO_IPV6 } else { NFPROTO_IPV4 });
        self.requests.begin(NFT_MSG_DELTABLE, 0, &about).attribute(NFTA_TABLE_NAME, &text(&self.name));
        end(&mut self.requests);
        let refused = self.requests.send_transaction()?.into_iter().next().map(|(_, error)| error);
        if self.ipv6 {
            rules::remove(true, self.mark, self.table)?;
        }
        refused.filter(|error| error.raw_os_error() != Some(libc::ENOENT)).map_or(Ok(()), Err)
    }
}

impl Drop for Alert {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::warn!(%error, table = self.name, "an interception rule stays behind");
        }
    }
}

/// Numbers are in network order, register contents in the machine's.
fn number(value: u32) -> [u8; 4] {
    value.to_be_bytes()
}

/// The table for IPv6, with one chain:
///
/// ```text
/// meta l4proto PROTOCOL @exthdr hbh,2,2 0x0502 @exthdr hbh,4,2 != VALUE accept
/// meta l4proto PROTOCOL exthdr hbh exists ip6 daddr ff00::/8 @nh,192,8 set 0x5b
/// meta l4proto PROTOCOL exthdr hbh exists meta mark set MARK
/// ```
///
/// The first rule accepts Router Alerts of other values, which nodes ignore (RFC 2711 §2.1). It reads the position at
/// which the option stands unless other options precede it.
fn compose_v6(requests: &mut Batch, name: &str, (protocol, value): (u8, u16), mark: u32) {
    chain(requests, name, NFPROTO_IPV6, NF_INET_PRE_ROUTING);
    rule(requests, name, (NFPROTO_IPV6, protocol), |rule| {
        options(rule, HOP_BY_HOP, (2, 2), 0);
        compare(rule, NFT_CMP_EQ, &[5, 2]);
        options(rule, HOP_BY_HOP, (4, 2), 0);
        compare(rule, NFT_CMP_NEQ, &value.to_be_bytes());
        verdict(rule, NF_ACCEPT);
    });
    let with_options = |rule: &mut Batch| {
        // Type and offset 0 test whether the hop-by-hop options header exists.
        options(rule, HOP_BY_HOP, (0, 1), NFT_EXTHDR_F_PRESENT);
        compare(rule, NFT_CMP_EQ, &[1]);
    };
    rule(requests, name, (NFPROTO_IPV6, protocol), |rule| {
        with_options(rule);
        destination(rule, DESTINATION_V6, NFTA_PAYLOAD_DREG);
        compare(rule, NFT_CMP_EQ, &[GROUP]);
        immediate(rule, &[ALIAS]);
        destination(rule, DESTINATION_V6, NFTA_PAYLOAD_SREG);
    });
    rule(requests, name, (NFPROTO_IPV6, protocol), |rule| {
        with_options(rule);
        immediate(rule, &mark.to_ne_bytes());
        expression(rule, "meta", |meta| {
            meta.attribute(NFTA_META_KEY, &number(NFT_META_MARK))
                .attribute(NFTA_META_SREG, &number(NFT_REG_1))
        });
    });
}

/// The table for IPv4, with one chain: `meta l4proto PROTOCOL ip option ra value 0 ip daddr 224.0.0.0/4 drop`. The
/// kernel ignores alerts of other values, too.
fn compose_v4(requests: &mut Batch, name: &str, protocol: u8) {
    chain(requests, name, NFPROTO_IPV4, NF_INET_FORWARD);
    rule(requests, name, (NFPROTO_IPV4, protocol), |rule| {
        options(rule, ROUTER_ALERT, (2, 2), 0);
        compare(rule, NFT_CMP_EQ, &[0, 0]);
        destination(rule, DESTINATION_V4, NFTA_PAYLOAD_DREG);
        compare(rule, NFT_CMP_GTE, &[GROUPS_V4[0]]);
        compare(rule, NFT_CMP_LTE, &[GROUPS_V4[1]]);
        verdict(rule, NF_DROP);
    });
}

/// Appends a table of ours with one chain at `hook`.
fn chain(requests: &mut Batch, name: &str, family: u8, hook: u32) {
    requests
        .begin(NFT_MSG_NEWTABLE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &about(family))
        .attribute(NFTA_TABLE_NAME, &text(name))
        .attribute(NFTA_TABLE_FLAGS, &number(NFT_TABLE_F_OWNER));
    requests
        .begin(NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, &about(family))
        .attribute(NFTA_CHAIN_TABLE, &text(name))
        .attribute(NFTA_CHAIN_NAME, &text(CHAIN))
        .attribute(NFTA_CHAIN_TYPE, &text("filter"))
        .nest(NFTA_CHAIN_HOOK, |at| {
            at.attribute(NFTA_HOOK_HOOKNUM, &number(hook))
                .attribute(NFTA_HOOK_PRIORITY, &MANGLE.to_be_bytes())
        });
}

/// Appends a rule for a protocol, also behind extension headers, which `rest` completes.
fn rule(requests: &mut Batch, name: &str, (family, protocol): (u8, u8), rest: impl FnOnce(&mut Batch)) {
    requests
        .begin(NFT_MSG_NEWRULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND, &about(family))
        .attribute(NFTA_RULE_TABLE, &text(name))
        .attribute(NFTA_RULE_CHAIN, &text(CHAIN))
        .nest(NFTA_RULE_EXPRESSIONS, |rule| {
            expression(rule, "meta", |meta| {
                meta.attribute(NFTA_META_DREG, &number(NFT_REG_1))
                    .attribute(NFTA_META_KEY, &number(NFT_META_L4PROTO))
            });
            compare(rule, NFT_CMP_EQ, &[protocol]);
            rest(rule);
            rule
        });
}

fn expression(rule: &mut Batch, name: &str, data: impl FnOnce(&mut Batch) -> &mut Batch) {
    rule.nest(NFTA_LIST_ELEM, |element| {
        element.attribute(NFTA_EXPR_NAME, &text(name)).nest(NFTA_EXPR_DATA, data)
    });
}

/// Loads octets at an offset of an extension header (IPv6) or an option (IPv4) into the register.
fn options(rule: &mut Batch, kind: u8, (offset, octets): (u32, u32), flags: u32) {
    let operation = if kind == ROUTER_ALERT { NFT_EXTHDR_OP_IPV4 } else { NFT_EXTHDR_OP_IPV6 };
    expression(rule, "exthdr", |header| {
        header
            .attribute(NFTA_EXTHDR_DREG, &number(NFT_REG_1))
            .attribute(NFTA_EXTHDR_TYPE, &[kind])
            .attribute(NFTA_EXTHDR_OFFSET, &number(offset))
            .attribute(NFTA_EXTHDR_LEN, &number(octets))
            .attribute(NFTA_EXTHDR_FLAGS, &number(flags))
            .attribute(NFTA_EXTHDR_OP, &number(operation))
    });
}

/// Loads the first octet of the destination into the register, or stores it from there.
fn destination(rule: &mut Batch, offset: u32, register: u16) {
    expression(rule, "payload", |payload| {
        payload
            .attribute(register, &number(NFT_REG_1))
            .attribute(NFTA_PAYLOAD_BASE, &number(NFT_PAYLOAD_NETWORK_HEADER))
            .attribute(NFTA_PAYLOAD_OFFSET, &number(offset))
            .attribute(NFTA_PAYLOAD_LEN, &number(1))
    });
}

/// Loads these octets into the register.
fn immediate(rule: &mut Batch, value: &[u8]) {
    expression(rule, "immediate", |immediate| {
        immediate
            .attribute(NFTA_IMMEDIATE_DREG, &number(NFT_REG_1))
            .nest(NFTA_IMMEDIATE_DATA, |data| data.attribute(NFTA_DATA_VALUE, value))
    });
}

/// Appends the verdict on the packet.
fn verdict(rule: &mut Batch, code: u32) {
    expression(rule, "immediate", |immediate| {
        immediate.attribute(NFTA_IMMEDIATE_DREG, &number(NFT_REG_VERDICT)).nest(NFTA_IMMEDIATE_DATA, |data| {
            data.nest(NFTA_DATA_VERDICT, |verdict| verdict.attribute(NFTA_VERDICT_CODE, &number(code)))
        })
    });
}

/// Appends a comparison of the register with these octets; the rule continues if it is true.
fn compare(rule: &mut Batch, how: u32, octets: &[u8]) {
    expression(rule, "cmp", |compare| {
        compare
            .attribute(NFTA_CMP_SREG, &number(NFT_REG_1))
            .attribute(NFTA_CMP_OP, &number(how))
            .nest(NFTA_CMP_DATA, |data| data.attribute(NFTA_DATA_VALUE, octets))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_group_comes_by_its_alias() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(group(ip("5b3e::1:1")), ip("ff3e::1:1"));
        for other in ["ff3e::1", "2001:db8::5b", "10.1.2.3", "91.1.2.3"] {
            assert_eq!(group(ip(other)), ip(other));
        }
    }
}
