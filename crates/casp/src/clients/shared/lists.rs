//! HOPS: the lists of the nodes that granted a request.

use core::net::IpAddr;
use std::collections::BTreeMap;

use signalbox_core::Key;
use signalbox_wire::hops::{Hop, Hops, Part};

use crate::wire::Listed;

/// The lists that the last answers to requests of the node brought, by the record of the request.
#[derive(Debug, Default)]
pub(in crate::clients) struct Lists(BTreeMap<Key, Box<[u8]>>);

impl Lists {
    /// Keeps the list of an answer, if the answer has one.
    pub(in crate::clients) fn keep(&mut self, key: Key, listed: Option<Listed<'_>>) {
        if let Some(listed) = listed {
            self.0.insert(key, listed.hops.octets().into());
        }
    }

    pub(in crate::clients) fn get(&self, key: Key) -> Option<Hops<'_>> {
        self.0.get(&key).and_then(|list| Hops::from_octets(list))
    }

    pub(in crate::clients) fn remove(&mut self, key: Key) {
        self.0.remove(&key);
    }
}

/// A list with one node more, to which its message came over `hops` nodes: those without the client, and of other makes, only passed the
/// message on. `answered`: the message ends at the node.
pub(in crate::clients) fn with_node(
    listed: &Listed<'_>,
    hops: u8,
    node: Option<IpAddr>,
    part: Part,
    answered: bool,
) -> Vec<u8> {
    let mut list = listed.hops.octets().to_vec();
    let routers = listed.unaware(hops);
    if let Some(address) = node {
        let hop = Hop::new(address, part);
        Hop { after_gap: routers > 0, routers, answered, ..hop }.append(&mut list);
    }
    list
}
