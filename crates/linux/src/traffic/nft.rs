//! Classification where eBPF is not available: nftables maps lead from a packet's addresses, protocol and ports to the
//! class, which is set as the packet's priority before it is queued.
//!
//! A reservation with a code point also has an element in a map from its class to a chain that writes the code point: each class is that
//! of one reservation here. All packets of the class are marked, because the class delays what exceeds its rate.
//!
//! Filters with both hosts, the protocol and both ports are in a hash. All others are in a map of ranges, which is small and
//! slower to change. The kernel cannot match DSCP, flow label or SPI in the same lookup, so filters with these are refused.
//! `rules` has the maps and rules of a link.

mod rules;

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;
use signalbox_core::traffic::{FlowFilter, ReserveError};

use super::config::LinkConfig;
use super::htb::class_id;
use super::signaling::Signaling;
use crate::error::OpenError;
use crate::netlink::Batch;
use crate::netlink::nftables::set::{self, Change, Value};
use crate::netlink::nftables::{self, NFPROTO_INET, delete_table};
use rules::{MOST_EXACT, MOST_RANGES, Names};

/// Name of our table, in family `inet`.
pub(super) const TABLE: &str = "signalbox_traffic";

/// A filter as an element of one of the maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Element {
    ipv6: bool,
    from: Vec<u8>,
    /// The end of the range; `None` if the element is in the hash.
    to: Option<Vec<u8>>,
}

/// What the maps have of a reservation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Elements {
    filters: Vec<Element>,
    /// The code point of its packets.
    dscp: Option<u8>,
}

/// The maps of one link.
pub(super) struct Maps {
    /// The table, which other links have, too.
    table: String,
    names: Names,
    requests: Batch,
    /// Number of rules of the link's chain.
    rules: usize,
    /// Number of elements in the hash and in the ranges.
    held: [usize; 2],
}

impl std::fmt::Debug for Maps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Maps").field("names", &self.names).field("held", &self.held).finish_non_exhaustive()
    }
}

impl Maps {
    /// Makes the maps of a link and the chain that looks packets up in them.
    pub(super) fn open(
        (table, ifindex): (&str, u32),
        config: &LinkConfig,
        signaling: Signaling,
    ) -> Result<Self, OpenError> {
        let mut requests = Batch::open(NETLINK_NETFILTER)
            .map_err(|error| OpenError::system("opening a netlink socket for nftables", &error))?;
        let names = Names(ifindex);
        nftables::transact(&mut requests, |requests| {
            rules::compose(requests, table, names, config.signaling, signaling);
        })
        .map_err(|error| refused(&error))?;
        let rules =
            rules(table, names).map_err(|error| OpenError::system("reading the nftables rules", &error))?;
        Ok(Self { table: table.to_owned(), names, requests, rules, held: [0; 2] })
    }

    /// The table of nftables.
    pub(super) fn table(&self) -> &str {
        &self.table
    }

    /// Removes the maps and the chains of the link.
    pub(super) fn remove(mut self) -> io::Result<()> {
        let (table, names) = (self.table.as_str(), self.names);
        nftables::transact(&mut self.requests, |requests| rules::remove(requests, table, names))
    }

    /// Whether the rules of the link are all there. Nothing that has rules in front of it can be deleted alone.
    pub(super) fn are_whole(&self) -> io::Result<bool> {
        Ok(rules(&self.table, self.names)? == self.rules)
    }

    /// Encodes the filters as elements, or returns why they cannot be installed.
    pub(super) fn encode(&self, filters: &[FlowFilter], dscp: Option<u8>) -> Result<Elements, ReserveError> {
        let mut elements = Vec::with_capacity(filters.len());
        for filter in filters {
            let element = element(filter).ok_or(ReserveError::Unsupported)?;
            if !elements.contains(&element) {
                elements.push(element);
            }
        }
        let ranges = elements.iter().filter(|element| element.to.is_some()).count();
        let [hash_held, ranges_held] = self.held;
        if elements.is_empty() {
            Err(ReserveError::Unsupported)
        } else if ranges_held + ranges > MOST_RANGES as usize
            || hash_held + elements.len() > MOST_EXACT as usize
        {
            Err(ReserveError::Full)
        } else {
            Ok(Elements { filters: elements, dscp })
        }
    }

    /// Removes the previous elements and adds the new ones, all or nothing.
    pub(super) fn change(&mut self, new: &Elements, queue: u16, old: &Elements, was: u16) -> io::Result<()> {
        if new == old && queue == was {
            return Ok(());
        }
        let (table, names, requests) = (self.table.as_str(), self.names, &mut self.requests);
        let class = |queue| class_id(queue).to_ne_bytes().to_vec();
        nftables::transact(requests, |requests| {
            for (how, elements, queue) in [(Change::Delete, old, was), (Change::New, new, queue)] {
                for element in &elements.filters {
                    let map = names.map(element.ipv6, element.to.is_some());
                    let element = set::Element {
                        key: element.from.clone(),
                        end: element.to.clone(),
                        value: Some(Value::Octets(class(queue))),
                    };
                    set::change(requests, (table, &map), &element, how);
                }
                if let Some(dscp) = elements.dscp {
                    let value = Some(Value::GoTo(names.mark_chain(dscp)));
                    let element = set::Element { key: class(queue), end: None, value };
                    set::change(requests, (table, &names.marks()), &element, how);
                }
            }
        })?;
        let count = |elements: &Elements, ranges| {
            elements.filters.iter().filter(|e| e.to.is_some() == ranges).count()
        };
        for (held, ranges) in self.held.iter_mut().zip([false, true]) {
            *held = (*held + count(new, ranges)).saturating_sub(count(old, ranges));
        }
        Ok(())
    }
}

/// Removes our table, with the parts of all links. A missing table is no error.
pub(super) fn remove(table: &str) -> io::Result<()> {
    let mut requests = Batch::open(NETLINK_NETFILTER)?;
    let removed = nftables::transact(&mut requests, |requests| delete_table(requests, NFPROTO_INET, table));
    removed.or_else(|error| match error.raw_os_error() {
        // There is no such table, or this kernel has no nftables at all.
        Some(libc::ENOENT | libc::EOPNOTSUPP) => Ok(()),
        _ => Err(error),
    })
}

fn refused(error: &io::Error) -> OpenError {
    let what = "making the nftables maps";
    match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::net_admin(what, error),
        // A missing module, no nf_tables at all, and a property that this kernel does not know. Another error, such as a lack of memory, may
        // be gone at the next try.
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EINVAL) => OpenError::new(
            "nft-maps-unsupported",
            format!("the kernel does not take the nftables maps ({error})"),
            "the kernel needs nf_tables and nft_limit",
        ),
        _ => OpenError::system(what, error),
    }
}

fn element(filter: &FlowFilter) -> Option<Element> {
    let FlowFilter { src, dst, protocol, src_port, dst_port, dscp, flow_label, spi } = *filter;
    let mixed = src.addr.is_ipv4() != dst.addr.is_ipv4();
    if mixed
        || dscp.is_some()
        || flow_label.is_some()
        || spi.is_some()
        || src_port == Some(0)
        || dst_port == Some(0)
    {
        return None;
    }
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for prefix in [src, dst] {
        let [first, last] = set::ends(prefix);
        from.extend(first);
        to.extend(last);
    }
    // Each field begins at a multiple of four octets.
    from.extend([protocol.unwrap_or(0), 0, 0, 0]);
    to.extend([protocol.unwrap_or(u8::MAX), 0, 0, 0]);
    for port in [src_port, dst_port] {
        let padded = |port: u16| port.to_be_bytes().into_iter().chain([0, 0]);
        from.extend(padded(port.unwrap_or(0)));
        to.extend(padded(port.unwrap_or(u16::MAX)));
    }
    let exact = from == to;
    Some(Element { ipv6: !filter.is_ipv4(), from, to: (!exact).then_some(to) })
}

/// The number of rules in a link's chain.
fn rules(table: &str, names: Names) -> io::Result<usize> {
    nftables::rules(NFPROTO_INET, (table, &names.link()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use signalbox_core::node::Prefix;

    fn prefix(text: &str, len: u8) -> Prefix {
        Prefix { addr: text.parse().unwrap(), len }
    }

    #[test]
    fn a_whole_filter_is_one_key() {
        let filter = FlowFilter {
            protocol: Some(17),
            src_port: Some(1),
            dst_port: Some(5004),
            ..FlowFilter::between(prefix("10.0.0.1", 32), prefix("10.0.0.2", 32))
        };
        let element = element(&filter).unwrap();
        assert_eq!(element.from, [10, 0, 0, 1, 10, 0, 0, 2, 17, 0, 0, 0, 0, 1, 0, 0, 0x13, 0x8c, 0, 0]);
        assert_eq!((element.ipv6, element.to), (false, None));
    }

    #[test]
    fn a_wildcard_is_a_range() {
        let element = element(&FlowFilter::between(prefix("fd00::1", 16), prefix("fd01::2", 128))).unwrap();
        let to = element.to.unwrap();
        assert_eq!((element.from.len(), to.len()), (44, 44));
        assert_eq!((&element.from[..3], &to[..3]), (&[0xfd, 0, 0][..], &[0xfd, 0, 0xff][..]));
        assert_eq!(element.from[16..32], to[16..32]);
        assert_eq!(to[32..], [255, 0, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0]);
    }

    /// Only a kernel that lacks something is called so.
    #[test]
    fn a_refusal_has_the_name_of_its_reason() {
        let id = |number| refused(&io::Error::from_raw_os_error(number)).id;
        for lacks in [libc::ENOENT, libc::EOPNOTSUPP, libc::EINVAL] {
            assert_eq!(id(lacks), "nft-maps-unsupported", "{lacks}");
        }
        assert_eq!(id(libc::EPERM), "missing-net-admin");
        for other in [libc::ENOMEM, libc::EBUSY, libc::ENOSPC, libc::EMSGSIZE] {
            assert_eq!(id(other), "system-call", "{other}");
        }
    }

    #[test]
    fn what_one_lookup_cannot_match_is_refused() {
        let filter = FlowFilter::between(prefix("fd00::1", 16), prefix("fd01::2", 128));
        for refused in [
            FlowFilter { dscp: Some(1), ..filter },
            FlowFilter { flow_label: Some(1), ..filter },
            FlowFilter { spi: Some(1), ..filter },
            FlowFilter { dst_port: Some(0), ..filter },
        ] {
            assert_eq!(element(&refused), None);
        }
    }
}
