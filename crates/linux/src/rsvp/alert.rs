//! IPv6's passing RSVP packets, turned to this node.
//!
//! A rule of nftables marks what has hop-by-hop options and is RSVP, and the route for marked packets leads here. A
//! Router Alert of another value than RSVP's is none. The table belongs to a netlink socket of this process, so that the kernel removes it when the daemon dies: a mark without
//! a socket that listens would be the end of the packet.

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;
use signalbox_core::packet::ROUTER_ALERT_RSVP_V6;

use crate::error::OpenError;
use crate::netlink::nftables::{NFTA_DATA_VALUE, NFTA_LIST_ELEM, about, begin, end, message, text};
use crate::netlink::{Batch, rules};

/// Name of our table, in family `ip6`.
const TABLE: &str = "signalbox_rsvp";
const CHAIN: &str = "prerouting";

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
const NFTA_EXTHDR_DREG: u16 = 1;
const NFTA_EXTHDR_TYPE: u16 = 2;
const NFTA_EXTHDR_OFFSET: u16 = 3;
const NFTA_EXTHDR_LEN: u16 = 4;
const NFTA_EXTHDR_FLAGS: u16 = 5;
const NFT_EXTHDR_F_PRESENT: u32 = 1;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NF_ACCEPT: u32 = 1;

/// What was laid: the table for as long as this lives, rule and route until [`Alert::remove`] or the drop.
pub(super) struct Alert {
    requests: Batch,
    mark: u32,
    table: u32,
    laid: bool,
}

impl Alert {
    /// Lays rule, route and table. The interception of GIST may have laid the same rule and route: they are taken over.
    pub(super) fn lay(mark: u32, table: u32) -> Result<Self, OpenError> {
        let system = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM) => OpenError::net_admin("taking RSVP packets that pass by", &error),
            Some(libc::EOPNOTSUPP | libc::EINVAL) => OpenError::new(
                "owned-tables-unsupported",
                format!("the kernel does not take an nftables table with an owner ({error})"),
                "RSVP over IPv6 needs Linux 5.12 or newer with nf_tables; or switch IPv6 off in the configuration",
            ),
            Some(libc::EBUSY | libc::EEXIST) => OpenError::new(
                "rsvp-in-use",
                format!("the nftables table ip6 {TABLE} belongs to somebody else ({error})"),
                "stop the other RSVP daemon in this network namespace",
            ),
            _ => OpenError::system("taking RSVP packets that pass by", &error),
        };
        let mut requests = Batch::open(NETLINK_NETFILTER).map_err(system)?;
        rules::add(true, mark, table).map_err(system)?;
        // From here on a failure removes what is there.
        begin(&mut requests);
        compose(&mut requests, mark);
        end(&mut requests);
        let mut alert = Self { requests, mark, table, laid: true };
        match alert.requests.send_transaction().map_err(system)?.into_iter().next() {
            Some((_, error)) => Err(system(error)),
            None => Ok(alert),
        }
    }

    pub(super) fn remove(mut self) -> Result<(), OpenError> {
        self.take_away().map_err(|error| OpenError::system("removing what takes RSVP packets", &error))
    }

    fn take_away(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.laid) {
            return Ok(());
        }
        begin(&mut self.requests);
        let about = about(NFPROTO_IPV6);
        self.requests.begin(NFT_MSG_DELTABLE, 0, &about).attribute(NFTA_TABLE_NAME, &text(TABLE));
        end(&mut self.requests);
        let refused = self.requests.send_transaction()?.into_iter().next().map(|(_, error)| error);
        rules::remove(true, self.mark, self.table)?;
        refused.filter(|error| error.raw_os_error() != Some(libc::ENOENT)).map_or(Ok(()), Err)
    }
}

impl Drop for Alert {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::warn!(%error, "the rule that takes RSVP packets stays behind");
        }
    }
}

/// Numbers are in network order here, register contents in the machine's.
fn number(value: u32) -> [u8; 4] {
    value.to_be_bytes()
}

/// In a chain and a table of its own:
///
/// ```text
/// meta l4proto 46 @exthdr hbh,2,2 0x0502 @exthdr hbh,4,2 != 1 accept
/// meta l4proto 46 exthdr hbh exists meta mark set MARK
/// ```
///
/// The first is for Router Alerts of other values, which are as if they were not there (RFC 2711 §2.1). It looks where
/// the option is bound to be unless others come before it.
fn compose(requests: &mut Batch, mark: u32) {
    let about = about(NFPROTO_IPV6);
    requests
        .begin(NFT_MSG_NEWTABLE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &about)
        .attribute(NFTA_TABLE_NAME, &text(TABLE))
        .attribute(NFTA_TABLE_FLAGS, &number(NFT_TABLE_F_OWNER));
    requests
        .begin(NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, &about)
        .attribute(NFTA_CHAIN_TABLE, &text(TABLE))
        .attribute(NFTA_CHAIN_NAME, &text(CHAIN))
        .attribute(NFTA_CHAIN_TYPE, &text("filter"))
        .nest(NFTA_CHAIN_HOOK, |hook| {
            hook.attribute(NFTA_HOOK_HOOKNUM, &number(NF_INET_PRE_ROUTING))
                .attribute(NFTA_HOOK_PRIORITY, &MANGLE.to_be_bytes())
        });
    rule(requests, |rule| {
        of_rsvp(rule);
        options(rule, 2, 2, 0);
        compare(rule, NFT_CMP_EQ, &[5, 2]);
        options(rule, 4, 2, 0);
        compare(rule, NFT_CMP_NEQ, &ROUTER_ALERT_RSVP_V6.to_be_bytes());
        expression(rule, "immediate", |verdict| {
            verdict.attribute(NFTA_IMMEDIATE_DREG, &number(NFT_REG_VERDICT)).nest(
                NFTA_IMMEDIATE_DATA,
                |data| {
                    data.nest(NFTA_DATA_VERDICT, |code| code.attribute(NFTA_VERDICT_CODE, &number(NF_ACCEPT)))
                },
            )
        })
    });
    rule(requests, |rule| {
        of_rsvp(rule);
        // Type and offset 0: the hop-by-hop options header, whether it is there.
        options(rule, 0, 1, NFT_EXTHDR_F_PRESENT);
        compare(rule, NFT_CMP_EQ, &[1]);
        expression(rule, "immediate", |value| {
            value
                .attribute(NFTA_IMMEDIATE_DREG, &number(NFT_REG_1))
                .nest(NFTA_IMMEDIATE_DATA, |data| data.attribute(NFTA_DATA_VALUE, &mark.to_ne_bytes()))
        });
        expression(rule, "meta", |meta| {
            meta.attribute(NFTA_META_KEY, &number(NFT_META_MARK))
                .attribute(NFTA_META_SREG, &number(NFT_REG_1))
        })
    });
}

fn rule(requests: &mut Batch, expressions: impl FnOnce(&mut Batch) -> &mut Batch) {
    requests
        .begin(NFT_MSG_NEWRULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND, &about(NFPROTO_IPV6))
        .attribute(NFTA_RULE_TABLE, &text(TABLE))
        .attribute(NFTA_RULE_CHAIN, &text(CHAIN))
        .nest(NFTA_RULE_EXPRESSIONS, expressions);
}

fn expression<'a>(
    rule: &'a mut Batch,
    name: &str,
    data: impl FnOnce(&mut Batch) -> &mut Batch,
) -> &'a mut Batch {
    rule.nest(NFTA_LIST_ELEM, |element| {
        element.attribute(NFTA_EXPR_NAME, &text(name)).nest(NFTA_EXPR_DATA, data)
    })
}

/// The protocol behind all extension headers is RSVP.
fn of_rsvp(rule: &mut Batch) {
    expression(rule, "meta", |meta| {
        meta.attribute(NFTA_META_DREG, &number(NFT_REG_1)).attribute(NFTA_META_KEY, &number(NFT_META_L4PROTO))
    });
    compare(rule, NFT_CMP_EQ, &[super::RSVP as u8]);
}

/// Octets of the hop-by-hop options header into the register.
fn options(rule: &mut Batch, offset: u32, octets: u32, flags: u32) {
    expression(rule, "exthdr", |header| {
        header
            .attribute(NFTA_EXTHDR_DREG, &number(NFT_REG_1))
            .attribute(NFTA_EXTHDR_TYPE, &[0])
            .attribute(NFTA_EXTHDR_OFFSET, &number(offset))
            .attribute(NFTA_EXTHDR_LEN, &number(octets))
            .attribute(NFTA_EXTHDR_FLAGS, &number(flags))
    });
}

/// The register holds these octets, or others.
fn compare(rule: &mut Batch, how: u32, octets: &[u8]) {
    expression(rule, "cmp", |compare| {
        compare
            .attribute(NFTA_CMP_SREG, &number(NFT_REG_1))
            .attribute(NFTA_CMP_OP, &number(how))
            .nest(NFTA_CMP_DATA, |data| data.attribute(NFTA_DATA_VALUE, octets))
    });
}
