//! A flow that the program sends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use signalbox_api::v1;
use signalbox_linux::launch::Transport;

/// The packets of one socket to one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flow {
    pub(super) transport: Transport,
    /// `None`: this host's address towards the destination.
    pub(super) source: Option<IpAddr>,
    pub(super) source_port: u16,
    pub(super) destination: SocketAddr,
}

impl Flow {
    /// A flow by which the options of a request are checked.
    pub(super) const fn example() -> Self {
        let destination = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);
        Self { transport: Transport::Udp, source: None, source_port: 9, destination }
    }

    /// The flow as a message of the API.
    pub(super) fn spec(&self) -> v1::FlowSpec {
        v1::FlowSpec {
            source: self.source.map(|source| source.to_string()),
            destination: Some(self.destination.ip().to_string()),
            ip_protocol: Some(self.transport.number().into()),
            source_port: Some(self.source_port.into()),
            destination_port: Some(self.destination.port().into()),
            ..v1::FlowSpec::default()
        }
    }
}
