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
}

impl Starts {
    /// Lets a ping wait for the lookup of this name, and says what to look up.
    pub(crate) fn put(&mut self, lookup: u64, id: u64, request: PingRequest) -> RouteQuery {
        self.waiting.push(Start { lookup, id, request });
        RouteQuery {
            protocol: request.protocol,
            src_port: request.src_port,
            dst_port: request.dst_port,
            ..RouteQuery::to(request.dst)
        }
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
