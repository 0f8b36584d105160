//! One rule at the head of each configured chain of the operator: it accepts flows that have our mark.
//!
//! The rule carries a comment by which it is found again. Nothing else in these chains is read or changed.

use std::io;

use super::config::Chain;
use crate::netlink::Batch;
use crate::netlink::codec::{Connection, be64_of, find};
use crate::netlink::nftables::expression::accept;
use crate::netlink::nftables::{
    self, NFTA_RULE_CHAIN, NFTA_RULE_HANDLE, NFTA_RULE_TABLE, NFTA_RULE_USERDATA, about, flow, message, text,
    transact,
};

const NFT_MSG_GETRULE: u16 = message(7);
/// The type of a comment in what the nft tool stores with a rule.
const NFTNL_UDATA_RULE_COMMENT: u8 = 0;
const COMMENT: &str = "signalbox pinholes";

/// Puts the rule at the head of the chain, in place of what a former process left there.
pub(super) fn install(
    reader: &mut Connection,
    requests: &mut Batch,
    chain: &Chain,
    mark: u32,
) -> io::Result<()> {
    let former = handles(reader, chain)?;
    transact(requests, |requests| {
        deletions(requests, chain, &former);
        nftables::insert_rule(requests, chain.family, place(chain), &comment(), |rule| {
            flow::has_mark(rule, mark);
            accept(rule);
        });
    })
}

/// Whether the chain has the rule.
pub(super) fn is_installed(reader: &mut Connection, chain: &Chain) -> io::Result<bool> {
    handles(reader, chain).map(|handles| !handles.is_empty())
}

/// Removes the rule. A missing chain or rule is no error.
pub(super) fn remove(reader: &mut Connection, requests: &mut Batch, chain: &Chain) -> io::Result<()> {
    let handles = handles(reader, chain)?;
    if handles.is_empty() {
        return Ok(());
    }
    transact(requests, |requests| deletions(requests, chain, &handles))
}

fn deletions(requests: &mut Batch, chain: &Chain, handles: &[u64]) {
    for handle in handles {
        nftables::delete_rule(requests, chain.family, place(chain), *handle);
    }
}

/// The handles of our rules in a chain. A missing chain has none.
fn handles(reader: &mut Connection, chain: &Chain) -> io::Result<Vec<u64>> {
    let comment = comment();
    let (table, name) = place(chain);
    reader
        .begin(NFT_MSG_GETRULE, libc::NLM_F_DUMP, &about(chain.family))
        .attribute(NFTA_RULE_TABLE, &text(table))
        .attribute(NFTA_RULE_CHAIN, &text(name));
    let handles = reader.list(|message| {
        let (_, attributes) = message.split::<4>()?;
        find(attributes, NFTA_RULE_USERDATA).filter(|found| *found == comment)?;
        find(attributes, NFTA_RULE_HANDLE).and_then(be64_of)
    });
    match handles {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
        handles => handles,
    }
}

fn place(chain: &Chain) -> (&str, &str) {
    (&chain.table, &chain.name)
}

/// The comment as the nft tool stores and shows it.
fn comment() -> Vec<u8> {
    let comment = text(COMMENT);
    [&[NFTNL_UDATA_RULE_COMMENT, comment.len() as u8], &comment[..]].concat()
}
