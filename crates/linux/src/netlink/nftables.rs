//! Requests to nftables: transactions, tables, chains and rules. [`expression`] and [`flow`] have the parts of a rule, [`set`]
//! has sets and maps.

pub(crate) mod expression;
pub(crate) mod flow;
pub(crate) mod set;

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::Batch;
use super::codec::{Attributes, Connection, Message, find};

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
pub(crate) const NFT_MSG_GETTABLE: u16 = message(1);
const NFT_MSG_DELTABLE: u16 = message(2);
const NFT_MSG_NEWCHAIN: u16 = message(3);
const NFT_MSG_GETCHAIN: u16 = message(4);
const NFT_MSG_DELCHAIN: u16 = message(5);
const NFT_MSG_NEWRULE: u16 = message(6);
const NFT_MSG_GETRULE: u16 = message(7);
const NFT_MSG_DELRULE: u16 = message(8);
pub(crate) const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFTA_TABLE_OWNER: u16 = 7;
/// Flag of a table: it belongs to the socket of the request. No other program can change or flush it (Linux 5.12).
pub(crate) const NFT_TABLE_F_OWNER: u32 = 2;
/// Flag of a table: it stays when its owner's socket is closed, and another socket can become the owner (Linux 6.9).
pub(crate) const NFT_TABLE_F_PERSIST: u32 = 4;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
/// The priority that nft calls raw, before connection tracking.
pub(crate) const RAW: i32 = -300;
/// The priority that nft calls mangle.
pub(crate) const MANGLE: i32 = -150;
/// A priority behind all that administrators use, and before the last hooks of connection tracking.
pub(crate) const LAST: i32 = i32::MAX - 16;
pub(crate) const NFTA_RULE_TABLE: u16 = 1;
pub(crate) const NFTA_RULE_CHAIN: u16 = 2;
pub(crate) const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
pub(crate) const NFTA_RULE_USERDATA: u16 = 7;

/// The messages that take away something in a table, or the table: DELTABLE, DELCHAIN, DELRULE, DELSET.
pub(crate) const REMOVALS: [u16; 4] =
    [NFT_MSG_DELTABLE, NFT_MSG_DELCHAIN, NFT_MSG_DELRULE, set::NFT_MSG_DELSET];

/// The messages that make, change or take away tables, chains and rules: NEWTABLE, DELTABLE, NEWCHAIN, DELCHAIN, NEWRULE, DELRULE.
pub(crate) const RULES: [u16; 6] = [
    NFT_MSG_NEWTABLE,
    NFT_MSG_DELTABLE,
    NFT_MSG_NEWCHAIN,
    NFT_MSG_DELCHAIN,
    NFT_MSG_NEWRULE,
    NFT_MSG_DELRULE,
];

/// The place in the path of a packet at which a chain is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Hook {
    /// Before the routing decision.
    Prerouting = 0,
    /// Where packets to this node arrive.
    Input = 1,
    /// Where packets to other nodes pass.
    Forward = 2,
    /// Where packets of this node begin.
    Output = 3,
    /// Before packets leave.
    Postrouting = 4,
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

/// Sends one transaction, which `compose` fills. An empty one is not sent.
pub(crate) fn transact(requests: &mut Batch, compose: impl FnOnce(&mut Batch)) -> io::Result<()> {
    begin(requests);
    compose(requests);
    if requests.len() == 1 {
        // A frame alone is acknowledged since Linux 6.10 only: the answer would be waited for in vain.
        requests.clear();
        return Ok(());
    }
    end(requests);
    requests.send_transaction()?.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}

/// Appends a request for a table. A table that is `owned` belongs to the socket of the request: no other program can change
/// or flush it, and the kernel removes it with the socket. It needs Linux 5.12.
pub(crate) fn table(requests: &mut Batch, family: u8, name: &str, flags: i32, owned: bool) {
    table_with(requests, family, name, flags, if owned { NFT_TABLE_F_OWNER } else { 0 });
}

/// Appends a request for a table with these properties.
pub(crate) fn table_with(requests: &mut Batch, family: u8, name: &str, flags: i32, properties: u32) {
    let table = requests
        .begin(NFT_MSG_NEWTABLE, libc::NLM_F_CREATE | flags, &about(family))
        .attribute(NFTA_TABLE_NAME, &text(name));
    if properties != 0 {
        table.attribute(NFTA_TABLE_FLAGS, &number(properties));
    }
}

/// Appends the deletion of a table with all that it holds.
pub(crate) fn delete_table(requests: &mut Batch, family: u8, name: &str) {
    requests.begin(NFT_MSG_DELTABLE, 0, &about(family)).attribute(NFTA_TABLE_NAME, &text(name));
}

/// A table of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) family: u8,
    pub(crate) name: String,
    /// The netlink port of the socket that it belongs to; 0: it belongs to none, or to one that is closed.
    pub(crate) owner: u32,
}

/// All tables of all families.
pub(crate) fn tables() -> io::Result<Vec<Table>> {
    let mut connection = Connection::open_for(NETLINK_NETFILTER)?;
    connection.begin(NFT_MSG_GETTABLE, libc::NLM_F_DUMP, &about(0)).list(|message| {
        let ([family, ..], attributes) = message.split::<4>()?;
        let name = find(attributes, NFTA_TABLE_NAME)?;
        let owner = find(attributes, NFTA_TABLE_OWNER).and_then(|octets| octets.first_chunk());
        Some(Table {
            family: *family,
            name: String::from_utf8_lossy(name).trim_end_matches('\0').to_owned(),
            owner: owner.map_or(0, |octets| u32::from_be_bytes(*octets)),
        })
    })
}

/// Appends a request for a chain that the kernel calls at a hook, with a priority.
pub(crate) fn base_chain(
    requests: &mut Batch,
    family: u8,
    place: (&str, &str),
    kind: &str,
    (hook, priority): (Hook, i32),
) {
    inner_chain(requests, family, place).attribute(NFTA_CHAIN_TYPE, &text(kind)).nest(
        NFTA_CHAIN_HOOK,
        |at| {
            at.attribute(NFTA_HOOK_HOOKNUM, &number(hook as u32))
                .attribute(NFTA_HOOK_PRIORITY, &priority.to_be_bytes())
        },
    );
}

/// Appends a request for a chain that rules lead to.
pub(crate) fn inner_chain<'a>(
    requests: &'a mut Batch,
    family: u8,
    (table, name): (&str, &str),
) -> &'a mut Batch {
    requests
        .begin(NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, &about(family))
        .attribute(NFTA_CHAIN_TABLE, &text(table))
        .attribute(NFTA_CHAIN_NAME, &text(name))
}

/// Appends the deletion of a chain that nothing leads to.
pub(crate) fn delete_chain(requests: &mut Batch, family: u8, (table, name): (&str, &str)) {
    requests
        .begin(NFT_MSG_DELCHAIN, 0, &about(family))
        .attribute(NFTA_CHAIN_TABLE, &text(table))
        .attribute(NFTA_CHAIN_NAME, &text(name));
}

/// Appends the deletion of all rules of a chain.
pub(crate) fn empty_chain(requests: &mut Batch, family: u8, (table, chain): (&str, &str)) {
    requests
        .begin(NFT_MSG_DELRULE, 0, &about(family))
        .attribute(NFTA_RULE_TABLE, &text(table))
        .attribute(NFTA_RULE_CHAIN, &text(chain));
}

/// Appends the deletion of the rule with this handle.
pub(crate) fn delete_rule(requests: &mut Batch, family: u8, (table, chain): (&str, &str), handle: u64) {
    requests
        .begin(NFT_MSG_DELRULE, 0, &about(family))
        .attribute(NFTA_RULE_TABLE, &text(table))
        .attribute(NFTA_RULE_CHAIN, &text(chain))
        .attribute(NFTA_RULE_HANDLE, &handle.to_be_bytes());
}

/// Appends a rule to the head of a chain, with octets that the kernel only stores.
pub(crate) fn insert_rule(
    requests: &mut Batch,
    family: u8,
    place: (&str, &str),
    userdata: &[u8],
    expressions: impl FnOnce(&mut Batch),
) {
    add_rule(requests, family, place, libc::NLM_F_CREATE, expressions);
    requests.attribute(NFTA_RULE_USERDATA, userdata);
}

/// Appends a rule to a chain, named by its table and itself. `expressions` appends the parts of the rule.
pub(crate) fn rule(
    requests: &mut Batch,
    family: u8,
    place: (&str, &str),
    expressions: impl FnOnce(&mut Batch),
) {
    add_rule(requests, family, place, libc::NLM_F_CREATE | libc::NLM_F_APPEND, expressions);
}

fn add_rule(
    requests: &mut Batch,
    family: u8,
    (table, chain): (&str, &str),
    flags: i32,
    expressions: impl FnOnce(&mut Batch),
) {
    requests
        .begin(NFT_MSG_NEWRULE, flags, &about(family))
        .attribute(NFTA_RULE_TABLE, &text(table))
        .attribute(NFTA_RULE_CHAIN, &text(chain))
        .nest(NFTA_RULE_EXPRESSIONS, |rule| {
            expressions(rule);
            rule
        });
}

/// The number of rules in a chain, named by its table and itself; 0 if there is none of that name.
pub(crate) fn rules(family: u8, (table, chain): (&str, &str)) -> io::Result<usize> {
    let mut connection = Connection::open_for(NETLINK_NETFILTER)?;
    let rules = connection
        .begin(NFT_MSG_GETRULE, libc::NLM_F_DUMP, &about(family))
        .attribute(NFTA_RULE_TABLE, &text(table))
        .attribute(NFTA_RULE_CHAIN, &text(chain))
        .list(|message| (message.kind == NFT_MSG_NEWRULE).then_some(()))?;
    Ok(rules.len())
}

/// The chains of a family, and of both families together, that are called at the hooks prerouting and input, in tables whose names do not
/// begin with `except`: family, table, chain, hook and priority as text.
pub(crate) fn chains_before_a_socket(family: u8, except: &[u8]) -> io::Result<Vec<String>> {
    let mut chains = Vec::new();
    let mut connection = Connection::open_for(NETLINK_NETFILTER)?;
    for family in [family, NFPROTO_INET] {
        let words = match family {
            NFPROTO_IPV4 => "ip",
            NFPROTO_IPV6 => "ip6",
            _ => "inet",
        };
        connection.begin(NFT_MSG_GETCHAIN, libc::NLM_F_DUMP, &about(family)).transact(|message| {
            chains.extend(base_chain_of(message, except).map(|chain| format!("{words} {chain}")));
        })?;
    }
    Ok(chains)
}

fn base_chain_of(message: &Message<'_>, except: &[u8]) -> Option<String> {
    let (_, attributes) = message.split::<4>()?;
    let table = find(attributes, NFTA_CHAIN_TABLE).filter(|table| !table.starts_with(except))?;
    let hook = Attributes(find(attributes, NFTA_CHAIN_HOOK)?);
    let number = |kind| Some(u32::from_be_bytes(*find(hook, kind)?.first_chunk()?));
    let place = match number(NFTA_HOOK_HOOKNUM)? {
        hook if hook == Hook::Prerouting as u32 => "prerouting",
        hook if hook == Hook::Input as u32 => "input",
        _ => return None,
    };
    let priority = number(NFTA_HOOK_PRIORITY)?.cast_signed();
    let name = |octets| String::from_utf8_lossy(octets).trim_end_matches('\0').to_owned();
    let chain = name(find(attributes, NFTA_CHAIN_NAME)?);
    Some(format!("{} {chain} at {place} {priority}", name(table)))
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::netlink::codec::Messages;

    /// The attributes of the requests that `compose` appends, each after its fixed part, with the kind of the request.
    pub(crate) fn composed(compose: impl FnOnce(&mut Batch)) -> Vec<(u16, Vec<u8>)> {
        let mut requests = Batch::open(NETLINK_NETFILTER).unwrap();
        compose(&mut requests);
        Messages(requests.octets()).map(|message| (message.kind, message.body[4..].to_vec())).collect()
    }

    /// The expressions of a rule: name and data.
    pub(crate) fn expressions(rule: &[u8]) -> Vec<(String, Vec<u8>)> {
        let name = |octets| String::from_utf8_lossy(octets).trim_end_matches('\0').to_owned();
        let list = Attributes(find(Attributes(rule), NFTA_RULE_EXPRESSIONS).unwrap());
        list.map(|(_, one)| {
            (name(find(Attributes(one), 1).unwrap()), find(Attributes(one), 2).unwrap().to_vec())
        })
        .collect()
    }
}
