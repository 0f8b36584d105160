//! Route lookups that the instance makes, apart from those of the messaging layer.

use signalbox_casp::engine::Input;
use signalbox_core::node::{NoRoute, Route, RouteQuery, StreamId};

use super::Instance;
use super::passages::{PassageRefusal, Passages};
use super::pings::PingRefusal;
use super::reservations::{Reservations, ReserveRefusal};
use crate::protocol::Context;

/// The bit of an identifier of a route lookup that the instance made; the engine's have it clear.
const OWN: u64 = 1 << 63;

/// What a route lookup of the instance is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum LookupPurpose {
    /// The source address of a series of pings.
    Ping(u64),
    /// The source address of a user's reservation.
    Reservation(u64),
    /// The new source address of a user's reservation.
    Move(u64),
    /// The interface of a flow, for the QoS client.
    Egress(u64),
    /// The source address of a user's passage.
    Passage(u64),
    /// The new source address of a user's passage.
    MovePassage(u64),
    /// The interface towards a hop, for the client for firewalls.
    Hop(u64),
    /// The source address of a connection.
    Connection(StreamId),
    /// The source address of a stream to a resolver.
    Resolver(StreamId),
}

impl Instance {
    pub(super) fn look_up(&mut self, query: RouteQuery, purpose: LookupPurpose) {
        let id = OWN | self.next_lookup;
        self.next_lookup = (self.next_lookup + 1) & !OWN;
        self.lookup_purposes.insert(id, purpose);
        self.lookups.push((id, query));
    }

    /// Looks up new sources for the flows whose source is gone.
    pub(super) fn find_sources(&mut self) {
        for (id, dst) in self.reservations.iter().flat_map(Reservations::homeless).collect::<Vec<_>>() {
            self.look_up(RouteQuery::to(dst), LookupPurpose::Move(id));
        }
        for (id, dst) in self.passages.iter().flat_map(Passages::homeless).collect::<Vec<_>>() {
            self.look_up(RouteQuery::to(dst), LookupPurpose::MovePassage(id));
        }
    }

    /// The answer to a lookup of the instance.
    pub(super) fn answered(
        &mut self,
        cx: &mut Context<'_>,
        purpose: LookupPurpose,
        result: Result<Route, NoRoute>,
    ) {
        let now = cx.now;
        match purpose {
            LookupPurpose::Reservation(id) => {
                let src = result.map(|route| route.src).map_err(|_| ReserveRefusal::NoRoute);
                if let Some(reservations) = &mut self.reservations {
                    reservations.route(now, id, src, cx.resources);
                }
            }
            LookupPurpose::Move(id) => {
                if let (Some(reservations), Ok(route)) = (&mut self.reservations, result) {
                    reservations.move_to(now, id, route.src, cx.resources);
                }
            }
            LookupPurpose::Egress(id) => {
                if let Some(reservations) = &mut self.reservations {
                    reservations.client.route(now, id, result, cx.resources);
                }
            }
            LookupPurpose::Passage(id) => {
                let src = result.map(|route| route.src).map_err(|_| PassageRefusal::NoRoute);
                if let Some(passages) = &mut self.passages {
                    passages.route(now, id, src);
                }
            }
            LookupPurpose::MovePassage(id) => {
                if let (Some(passages), Ok(route)) = (&mut self.passages, result) {
                    passages.move_to(now, id, route.src);
                }
            }
            LookupPurpose::Hop(id) => {
                if let Some(passages) = &mut self.passages {
                    passages.client.route(now, id, result, cx.resources);
                }
            }
            LookupPurpose::Ping(id) => {
                let src = result.map(|route| route.src).map_err(|_| PingRefusal::NoRoute);
                self.pings.route(now, id, src, &mut self.ping);
            }
            LookupPurpose::Resolver(stream) => {
                let src = result.map(|route| route.src).ok();
                self.dns.open(now, stream, src, &mut self.channels.out);
                self.after_dns(now);
            }
            LookupPurpose::Connection(stream) => {
                // The connection may have been closed meanwhile.
                let Some((transport, peer)) = self.opening.remove(&stream) else { return };
                match result {
                    Ok(route) => {
                        self.engine.handle(now, Input::Opening { stream, local: route.src });
                        self.open(now, stream, transport, route.src, peer);
                    }
                    Err(_) => {
                        self.engine.handle(now, Input::Closed { stream });
                        self.dialed(now, stream);
                    }
                }
            }
        }
    }
}
