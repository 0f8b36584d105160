//! Route netlink: route lookups, interfaces, events, and the rule and route that interception needs.
//!
//! A small codec of our own: a lookup takes little over a microsecond and allocates nothing, which a general
//! message library cannot do, and with the hot path written there is nothing left that one would save.

mod batch;
pub(crate) mod codec;
mod events;
pub(crate) mod interfaces;
mod lookup;
mod multicast;
pub(crate) mod nftables;
pub(crate) mod rules;

pub(crate) use batch::Batch;
pub(crate) use events::Events;
pub(crate) use lookup::Routes;
pub use multicast::MulticastRoute;

use std::net::IpAddr;

use signalbox_core::node::Prefix;

/// What the kernel says has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Interfaces or addresses: ask [`crate::Io::interfaces`] again.
    Interfaces,
    /// Routes to these destinations may have changed. A prefix of length 0 stands for all of its family:
    /// a link or address that goes takes IPv4 routes with it and the kernel does not say which.
    Route(Prefix),
    /// A multicast route that was asked for: ask [`crate::Io::multicast_route`] again.
    Multicast {
        /// The group.
        group: IpAddr,
        /// Who sends to it.
        source: IpAddr,
    },
}
