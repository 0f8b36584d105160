//! How CASP uses channels (draft-schulzrinne-nsis-casp-01 section 7).

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_casp::engine::{Casp, Input, Transport as Kind};
use signalbox_core::Time;

use super::Instance;
use super::dns::Dns;
use crate::channels::{Report, Transport, Upper};
use crate::protocol::StreamInput;

/// What a connection of a transport runs over; the engine opens none for datagrams.
pub(super) const fn below(kind: Kind) -> Transport {
    match kind {
        Kind::Tcp | Kind::Udp => Transport::Tcp,
        Kind::Tls => Transport::TlsTcp,
        Kind::Sctp => Transport::Sctp,
    }
}

impl Instance {
    /// Takes what happened to a stream: of a connection, or to a resolver.
    pub(super) fn stream(&mut self, now: Time, input: StreamInput<'_>) {
        match input {
            StreamInput::Connected { stream, .. }
            | StreamInput::Octets { stream, .. }
            | StreamInput::Closed { stream, .. }
                if Dns::has(stream) =>
            {
                return self.resolver_stream(now, stream, &input);
            }
            StreamInput::Connected { stream, .. } => {
                self.dialing.remove(&stream);
            }
            StreamInput::Closed { stream, .. } => self.dialed(now, stream),
            StreamInput::Drained { stream, .. } if Dns::has(stream) => return,
            StreamInput::Accepted { .. }
            | StreamInput::Octets { .. }
            | StreamInput::Drained { .. }
            | StreamInput::ListenFailed { .. } => {}
        }
        let Self { engine, channels, .. } = self;
        match input {
            StreamInput::Accepted { stream, kind, local, peer } => {
                channels.accepted(now, (stream, kind), local, peer, engine);
            }
            StreamInput::Connected { stream, local } => channels.connected(now, stream, local.ip(), engine),
            StreamInput::Octets { stream, octets } => channels.octets(now, stream, octets, engine),
            StreamInput::Drained { stream, unsent } => channels.drained(now, stream, unsent, engine),
            StreamInput::Closed { stream, error, unacknowledged } => {
                channels.closed(now, stream, error, unacknowledged, engine);
            }
            StreamInput::ListenFailed { kind, port } => channels.listen_failed(now, (kind, port), engine),
        }
    }
}

impl Upper for Casp {
    fn take(&mut self, now: Time, what: Report<'_>) {
        let input = match what {
            Report::Accepted { channel: stream, transport, local, peer, identity } => {
                let transport = match transport {
                    Transport::Tcp => Kind::Tcp,
                    Transport::TlsTcp => Kind::Tls,
                    Transport::Sctp => Kind::Sctp,
                };
                let (local, identity) = (local.ip(), identity.cloned().map(Arc::new));
                Input::Accepted { stream, transport, local, peer, identity }
            }
            Report::Connected { channel: stream, identity } => {
                Input::Connected { stream, identity: identity.cloned().map(Arc::new) }
            }
            Report::Octets { channel: stream, octets } => Input::Octets { stream, octets },
            Report::Drained { channel: stream, unsent } => Input::Drained { stream, unsent },
            Report::Closed { channel: stream, reason: _, unacknowledged: _ } => Input::Closed { stream },
            // Other nodes see that the port is closed.
            Report::Listening { .. } => return,
        };
        self.handle(now, input);
    }

    fn is_known(&self, address: IpAddr) -> bool {
        Self::is_known(self, address)
    }
}
