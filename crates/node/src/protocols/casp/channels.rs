//! How CASP uses channels (draft-schulzrinne-nsis-casp-01 section 7).

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_casp::engine::{Casp, Input, Transport as Kind};
use signalbox_core::Time;

use crate::channels::{Report, Transport, Upper};

/// What a connection of a transport runs over; the engine opens none for datagrams.
pub(super) const fn below(kind: Kind) -> Transport {
    match kind {
        Kind::Tcp | Kind::Udp => Transport::Tcp,
        Kind::Tls => Transport::TlsTcp,
        Kind::Sctp => Transport::Sctp,
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
