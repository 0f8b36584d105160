//! Pings that wait for the route to their destination, which gives their source address.

use signalbox_core::node::{NoRoute, Route, RouteQuery};

use super::Ping;
use super::event::{PingRequest, Refusal};

/// Most pings that wait for a route at one time.
const MAX_WAITING: usize = 256;

#[derive(Debug)]
struct Waiting {
    /// Identifier of the route lookup.
    lookup: u64,
    /// The user's identifier of the ping.
    id: u64,
    request: PingRequest,
}

/// The table of pings that wait. It is short, and users start pings seldom: a list is enough.
#[derive(Debug, Default)]
pub(super) struct Routes {
    waiting: Vec<Waiting>,
    last_lookup: u64,
}

impl Routes {
    fn contains(&self, id: u64) -> bool {
        self.waiting.iter().any(|waiting| waiting.id == id)
    }

    /// Removes a ping. False if it does not wait.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.id != id);
        self.waiting.len() < before
    }
}

impl Ping {
    /// Lets a ping without source address wait for its route.
    pub(super) fn look_up(&mut self, id: u64, request: PingRequest) {
        if self.routes.contains(id) || self.key_of(id).is_some() {
            return self.refuse(id, Refusal::IdInUse);
        }
        if self.routes.waiting.len() >= MAX_WAITING {
            return self.refuse(id, Refusal::TooMany);
        }
        self.routes.last_lookup += 1;
        let lookup = self.routes.last_lookup;
        self.routes.waiting.push(Waiting { lookup, id, request });
        let query = RouteQuery {
            protocol: request.protocol,
            src_port: request.src_port,
            dst_port: request.dst_port,
            ..RouteQuery::to(request.dst)
        };
        self.out.look_up(lookup, query);
    }

    /// Whether a ping with this identifier waits for its route.
    pub(super) fn is_waiting(&self, id: u64) -> bool {
        self.routes.contains(id)
    }

    /// Takes the answer to a lookup. The ping may have been stopped in the meantime.
    pub(super) fn take_route(
        &mut self,
        lookup: u64,
        result: Result<Route, NoRoute>,
    ) -> Option<(u64, PingRequest)> {
        let at = self.routes.waiting.iter().position(|waiting| waiting.lookup == lookup)?;
        let Waiting { id, request, .. } = self.routes.waiting.swap_remove(at);
        match result {
            Ok(route) => Some((id, PingRequest { src: Some(route.src), ..request })),
            Err(NoRoute::Unreachable | NoRoute::Prohibited | NoRoute::Failed) => {
                self.refuse(id, Refusal::NoRoute);
                None
            }
        }
    }
}
