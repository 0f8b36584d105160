//! Requests to nftables: transactions, tables, chains and rules. [`expression`] has the parts of a rule.

pub(crate) mod expression;

use super::Batch;

const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10; // NFNL_SUBSYS_NFTABLES
/// The attribute that holds a value, within another.
pub(crate) const NFTA_DATA_VALUE: u16 = 1;
/// The attribute that is one element of a list.
pub(crate) const NFTA_LIST_ELEM: u16 = 1;
/// The families of tables.
pub(crate) const NFPROTO_INET: u8 = 1;
pub(crate) const NFPROTO_IPV4: u8 = 2;
pub(crate) const NFPROTO_IPV6: u8 = 10;

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
/// The priority that nft calls mangle.
const MANGLE: i32 = -150;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;

/// The place in the path of a packet at which a chain is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Hook {
    /// Before the routing decision.
    Prerouting = 0,
    /// Where packets to other nodes pass.
    Forward = 2,
}

/// The message type of a request.
pub(crate) const fn message(kind: u16) -> u16 {
    SUBSYSTEM << 8 | kind
}

/// The `struct nfgenmsg` of a request about tables of a family.
pub(crate) const fn about(family: u8) -> [u8; 4] {
    [family, 0, 0, 0]
}

/// Begins a transaction.
pub(crate) fn begin(requests: &mut Batch) {
    requests.begin(NFNL_MSG_BATCH_BEGIN, 0, &frame());
}

/// Ends a transaction.
pub(crate) fn end(requests: &mut Batch) {
    requests.begin(NFNL_MSG_BATCH_END, 0, &frame());
}

/// Appends a request for a table. A table that is `owned` belongs to the socket of the request: no other program can change
/// or flush it, and the kernel removes it with the socket. It needs Linux 5.12.
pub(crate) fn table(requests: &mut Batch, family: u8, name: &str, flags: i32, owned: bool) {
    let table = requests
        .begin(NFT_MSG_NEWTABLE, libc::NLM_F_CREATE | flags, &about(family))
        .attribute(NFTA_TABLE_NAME, &text(name));
    if owned {
        table.attribute(NFTA_TABLE_FLAGS, &number(NFT_TABLE_F_OWNER));
    }
}

/// Appends the deletion of a table with all that it holds.
pub(crate) fn delete_table(requests: &mut Batch, family: u8, name: &str) {
    requests.begin(NFT_MSG_DELTABLE, 0, &about(family)).attribute(NFTA_TABLE_NAME, &text(name));
}

/// Appends a request for a chain, named by its table and itself, of the type `filter` with the priority `mangle`.
pub(crate) fn chain(requests: &mut Batch, family: u8, (table, name): (&str, &str), hook: Hook) {
    requests
        .begin(NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, &about(family))
        .attribute(NFTA_CHAIN_TABLE, &text(table))
        .attribute(NFTA_CHAIN_NAME, &text(name))
        .attribute(NFTA_CHAIN_TYPE, &text("filter"))
        .nest(NFTA_CHAIN_HOOK, |at| {
            at.attribute(NFTA_HOOK_HOOKNUM, &number(hook as u32))
                .attribute(NFTA_HOOK_PRIORITY, &MANGLE.to_be_bytes())
        });
}

/// Appends a rule to a chain, named by its table and itself. `expressions` appends the parts of the rule.
pub(crate) fn rule(
    requests: &mut Batch,
    family: u8,
    (table, chain): (&str, &str),
    expressions: impl FnOnce(&mut Batch),
) {
    requests
        .begin(NFT_MSG_NEWRULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND, &about(family))
        .attribute(NFTA_RULE_TABLE, &text(table))
        .attribute(NFTA_RULE_CHAIN, &text(chain))
        .nest(NFTA_RULE_EXPRESSIONS, |rule| {
            expressions(rule);
            rule
        });
}

/// A name as a string that ends with a zero octet, as the kernel requires.
pub(crate) fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// Numbers are in network order, register contents in the machine's.
const fn number(value: u32) -> [u8; 4] {
    value.to_be_bytes()
}

fn frame() -> [u8; 4] {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    [0, 0, high, low]
}
