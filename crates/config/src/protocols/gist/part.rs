//! `gist` in tables of interfaces.

use std::net::IpAddr;

use signalbox_node::gist::{Config, IngressFilter, OwnAddress};
use signalbox_node::resources::units::Net;

use crate::keys::Keys;
use crate::kind::{address, list, network};

/// `[interfaces.NAME.gist]`
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Part {
    addresses: Vec<IpAddr>,
    sources: Vec<Net>,
}

impl Part {
    pub(super) fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "addresses",
            &mut self.addresses,
            list(address()),
            "Address of this node in the Network-Layer-Information of messages that leave by the interface, and their \
             source; at most one of each IP version [5.2.2]. It may be an address of another interface, such as that of \
             `lo`; while the node does not have it, or without the key, routing selects the address. Peers must have a \
             route to it. Absent: as in `[interfaces.\"*\".gist]`.",
        );
        let count = |v6: bool| self.addresses.iter().filter(|address| address.is_ipv6() == v6).count();
        let message = "two addresses of one IP version: write one of each";
        keys.check(count(false) <= 1 && count(true) <= 1, &["addresses"], message);
        keys.key(
            "sources",
            &mut self.sources,
            list(network()),
            "Ingress filter: sources of the flows that may enter by the interface. Downstream Queries about other flows \
             are refused (Ingress Filter Failure) [5.8.1.2]. Empty: all sources. Absent: as in `[interfaces.\"*\".gist]`.",
        );
    }

    /// Puts the part of the interface `name` into the settings of the engine.
    pub(super) fn install(&self, name: &str, engine: &mut Config) {
        let interface = || name.to_owned();
        let addresses =
            self.addresses.iter().map(|address| OwnAddress { interface: interface(), address: *address });
        engine.own_addresses.extend(addresses);
        let filters = self.sources.iter().map(|net| IngressFilter { interface: interface(), prefix: net.0 });
        engine.ingress_filters.extend(filters);
    }
}
