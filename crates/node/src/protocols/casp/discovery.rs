//! Discovery by mechanisms outside of the messaging layer.

use core::net::IpAddr;

use signalbox_casp::engine::Input;
use signalbox_core::Time;
use signalbox_core::node::{RouteQuery, StreamId};

use super::dns::DNS;
use super::{Instance, LookupPurpose};
use crate::protocol::StreamInput;

impl Instance {
    /// Searches the next node of a flow by a mechanism of this number.
    pub(super) fn discover(&mut self, now: Time, id: u64, mechanism: u8, dst: IpAddr) {
        if mechanism == DNS {
            self.dns.discover(now, id, dst);
            self.after_dns(now);
        } else {
            self.engine.handle(now, Input::Discovered { id, address: None });
        }
    }

    /// Passes on what DNS found and what it needs.
    pub(super) fn after_dns(&mut self, now: Time) {
        while let Some((id, address)) = self.dns.answer() {
            self.engine.handle(now, Input::Discovered { id, address });
        }
        while let Some((stream, resolver)) = self.dns.opening() {
            self.look_up(RouteQuery::to(resolver), LookupPurpose::Resolver(stream));
        }
    }

    /// Takes what happened to a stream to a resolver.
    pub(super) fn resolver_stream(&mut self, now: Time, stream: StreamId, input: &StreamInput<'_>) {
        let out = &mut self.channels.out;
        match input {
            StreamInput::Connected { .. } => self.dns.connected(stream, out),
            StreamInput::Octets { octets, .. } => self.dns.octets(now, stream, octets, out),
            StreamInput::Closed { .. } => self.dns.closed(now, stream),
            StreamInput::Accepted { .. } | StreamInput::Drained { .. } | StreamInput::ListenFailed { .. } => {
            }
        }
        self.after_dns(now);
    }

    /// A connection to a node is over. If it was never established, discovery by DNS avoids this node.
    pub(super) fn dialed(&mut self, now: Time, stream: StreamId) {
        if let Some(peer) = self.dialing.remove(&stream) {
            self.dns.unreachable(now, peer);
        }
    }
}
