//! What a daemon that did not end in order left in the kernel: it is found by its names and numbers, and removed without a start.
//!
//! A table of nftables that has an owner shows by that whether a process of ours still runs. Routing rules, routes and queues do
//! not, so they are removed only if no table has an owner.

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::error::OpenError;
use crate::io::IoConfig;
use crate::netlink::nftables::{self, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, Table};
use crate::netlink::{Batch, rules};
use crate::pinhole::{self, PinholeConfig, Pinholes};
use crate::scope::Scope;
use crate::traffic::{self, TrafficConfig};

/// What a daemon with this configuration may have left.
#[derive(Debug)]
pub struct Leftovers {
    /// Its interception.
    pub io: IoConfig,
    /// Its queues.
    pub traffic: TrafficConfig,
    /// Its pinholes.
    pub pinholes: PinholeConfig,
}

impl Leftovers {
    /// Removes all of it, and returns what was removed, in words.
    ///
    /// # Errors
    /// A process of ours runs, or the kernel refuses a part.
    pub fn remove(&self) -> Result<Vec<String>, OpenError> {
        let (io, _) = self.io.for_this_machine()?;
        let tables = tables(&io.scope)?;
        if let Some(Table { name, owner, .. }) = tables.iter().find(|table| table.owner != 0) {
            return Err(OpenError::new(
                "daemon-runs",
                format!("the nftables table {name} belongs to a process that runs (netlink port {owner})"),
                "stop the daemon, or its helper, and then clean",
            ));
        }
        let mut removed = Vec::new();
        for table in &tables {
            self.remove_table(table)?;
            removed.push(format!("nftables table {} {}", words(table.family), table.name));
        }
        // The redirection went before: a redirected packet without a route would be lost.
        for (ipv6, family) in [(false, "IPv4"), (true, "IPv6")] {
            let rule = io.rule();
            match rules::remove(ipv6, rule) {
                Ok(true) => removed.push(format!(
                    "{family}: rule for the mark {:#x}, and routes of table {}",
                    rule.mark, rule.table
                )),
                Ok(false) => {}
                // The kernel has no such family.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {
                }
                Err(error) => return Err(refused("removing the routing rule", &error)),
            }
        }
        let queues = traffic::remove_left(&self.traffic)?;
        removed.extend(queues.into_iter().map(|interface| format!("queues at {interface}")));
        Ok(removed)
    }

    fn remove_table(&self, table: &Table) -> Result<(), OpenError> {
        if table.family == NFPROTO_INET && table.name == pinhole::TABLE {
            // With the rules in the operator's chains, and the flows that it let pass.
            return Pinholes::open(&self.pinholes)?.close();
        }
        let mut requests =
            Batch::open(NETLINK_NETFILTER).map_err(|error| refused("opening a netlink socket", &error))?;
        nftables::transact(&mut requests, |requests| {
            nftables::delete_table(requests, table.family, &table.name);
        })
        .map_err(|error| refused("removing an nftables table", &error))
    }
}

/// The tables of a daemon in this part of the network.
fn tables(scope: &Scope) -> Result<Vec<Table>, OpenError> {
    match nftables::tables() {
        Ok(all) => Ok(all.into_iter().filter(|table| is_ours(scope, &table.name)).collect()),
        // A kernel without nftables has no tables.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => Ok(Vec::new()),
        Err(error) => Err(refused("reading the nftables tables", &error)),
    }
}

/// Whether a daemon of this scope makes a table of this name. Other tables that begin with `signalbox` are somebody else's.
fn is_ours(scope: &Scope, name: &str) -> bool {
    let whole = ["signalbox", "signalbox_traffic"].iter().any(|base| scope.name(base) == name);
    // A node with pinholes has no VRF.
    let pinholes = scope.is_all() && name == pinhole::TABLE;
    let suffix = scope.name("");
    let numbered = |prefix: &str, radix: u32| {
        let number = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix.as_str()));
        number.is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_digit(radix)))
    };
    whole || pinholes || numbered("signalbox_ip", 10) || numbered("signalbox_echo_", 16)
}

const fn words(family: u8) -> &'static str {
    match family {
        NFPROTO_IPV4 => "ip",
        NFPROTO_IPV6 => "ip6",
        NFPROTO_INET => "inet",
        _ => "of another family,",
    }
}

fn refused(what: &str, error: &io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::net_admin(what, error),
        _ => OpenError::system(what, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_others_and_of_other_vrfs_are_left_alone() {
        let (all, red) = (Scope::default(), Scope::of(Some("red".to_owned())));
        let names = ["signalbox", "signalbox_traffic", "signalbox_ip46", "signalbox_echo_0000b00e"];
        for name in names {
            assert!(is_ours(&all, name) && !is_ours(&red, name), "{name}");
            let of_red = red.name(name);
            assert!(is_ours(&red, &of_red) && !is_ours(&all, &of_red), "{of_red}");
        }
        assert!(is_ours(&all, "signalbox_pinholes") && !is_ours(&red, "signalbox_pinholes"));
        for name in ["filter", "signalbox_mine", "signalbox_ip", "signalbox_ipx", "signalbox2"] {
            assert!(!is_ours(&all, name), "{name}");
        }
    }
}
