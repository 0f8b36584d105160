//! How GIST uses channels (RFC 5971 §5.7).

use core::net::IpAddr;

use signalbox_core::Time;
use signalbox_gist::engine::{AssociationConfig, ChannelClosed, ChannelId, Gist, Input, Transport as Stack};

use crate::channels::{Closed, Ports, Report, Transport, Upper};

/// The largest GIST message, octets: its length counts words (A.1).
const LARGEST: usize = 4 * 0xffff;

/// The ports of GIST's associations.
pub(super) const fn ports(associations: &AssociationConfig) -> Ports {
    Ports {
        tcp: associations.tcp_port,
        tls: associations.tls_port,
        sctp: associations.sctp_port,
        max_unsent: associations.max_unsent,
        largest: LARGEST,
    }
}

/// What a channel of a protocol stack runs over.
pub(super) const fn below(stack: Stack) -> Transport {
    match stack {
        Stack::Tcp => Transport::Tcp,
        Stack::TlsTcp => Transport::TlsTcp,
        Stack::Sctp => Transport::Sctp,
    }
}

const fn stack(transport: Transport) -> Stack {
    match transport {
        Transport::Tcp => Stack::Tcp,
        Transport::TlsTcp => Stack::TlsTcp,
        Transport::Sctp => Stack::Sctp,
    }
}

const fn why(reason: Closed) -> ChannelClosed {
    match reason {
        Closed::Orderly => ChannelClosed::Orderly,
        Closed::Refused => ChannelClosed::Refused,
        Closed::Reset => ChannelClosed::Reset,
        Closed::TimedOut => ChannelClosed::TimedOut,
        Closed::Security => ChannelClosed::Security,
    }
}

impl Upper for Gist {
    fn take(&mut self, now: Time, what: Report<'_>) {
        let input = match what {
            Report::Accepted { channel, transport, local, peer, identity } => {
                let (channel, transport) = (ChannelId(channel.0), stack(transport));
                Input::ChannelAccepted { channel, transport, local, peer, identity }
            }
            Report::Connected { channel, identity } => {
                Input::ChannelConnected { channel: ChannelId(channel.0), identity }
            }
            Report::Octets { channel, octets } => {
                Input::ChannelOctets { channel: ChannelId(channel.0), octets }
            }
            Report::Drained { channel, unsent } => {
                Input::ChannelDrained { channel: ChannelId(channel.0), unsent }
            }
            Report::Closed { channel, reason, unacknowledged } => {
                let (channel, reason) = (ChannelId(channel.0), why(reason));
                Input::ChannelClosed { channel, reason, unacknowledged }
            }
            Report::Listening { transport, on } => Input::Listening { transport: stack(transport), on },
        };
        self.handle(now, input);
    }

    fn is_known(&self, address: IpAddr) -> bool {
        Self::is_known(self, address)
    }
}
