//! Pings that wait for a route, to learn their source address.

use signalbox_core::node::RouteQuery;
use signalbox_ping::engine::PingRequest;

#[derive(Debug)]
struct Start {
    lookup: u64,
    id: u64,
    request: PingRequest,
}

/// The table of them: small, and users come seldom.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    waiting: Vec<Start>,
    lookups: u32,
}

/// Whether this lookup is ours, and not GIST's. Ours are small numbers. GIST's are never: they are names of
/// records, whose upper half is a generation from 1 on, or have the highest bit set.
pub(crate) const fn is_ours(lookup: u64) -> bool {
    lookup <= u32::MAX as u64
}

impl Starts {
    /// Lets a ping wait, and says what to look up.
    pub(crate) fn put(&mut self, id: u64, request: PingRequest) -> (u64, RouteQuery) {
        let lookup = u64::from(self.lookups);
        self.lookups = self.lookups.wrapping_add(1);
        self.waiting.push(Start { lookup, id, request });
        let query = RouteQuery {
            protocol: request.protocol,
            src_port: request.src_port,
            dst_port: request.dst_port,
            ..RouteQuery::to(request.dst)
        };
        (lookup, query)
    }

    /// The ping that waited for this lookup.
    pub(crate) fn take(&mut self, lookup: u64) -> Option<(u64, PingRequest)> {
        let at = self.waiting.iter().position(|start| start.lookup == lookup)?;
        let start = self.waiting.swap_remove(at);
        Some((start.id, start.request))
    }

    /// Whether a ping of this name waits.
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.waiting.iter().any(|start| start.id == id)
    }

    /// Forgets a ping. False if it does not wait.
    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let waiting = self.waiting.len();
        self.waiting.retain(|start| start.id != id);
        self.waiting.len() < waiting
    }

    /// Pings that wait.
    pub(crate) const fn len(&self) -> usize {
        self.waiting.len()
    }
}
