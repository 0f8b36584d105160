//! Packets that the node sent, and how tests look at them.

use std::net::{IpAddr, SocketAddr};

use signalbox_core::Time;
use signalbox_rsvp::wire::{ErrorSpec, Filter, FlowSpec, Message, MessageType};

/// A packet that the node sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// 0: routing decides.
    pub(crate) oif: u32,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) router_alert: bool,
    pub(crate) octets: Vec<u8>,
}

impl Sent {
    pub(crate) fn message(&self) -> Message<'_> {
        Message::parse(&self.octets).unwrap()
    }

    pub(crate) fn kind(&self) -> MessageType {
        MessageType(self.octets[1])
    }

    /// Its flow descriptors: flowspec and filter of each.
    pub(crate) fn flows(&self) -> Vec<(Option<FlowSpec>, Option<Filter>)> {
        let flows = self.message().flows();
        flows.map(|flow| (flow.flowspec.map(|flowspec| flowspec.read().unwrap()), flow.filter)).collect()
    }

    /// Its flow descriptors by rate and sender's number.
    pub(crate) fn rates(&self) -> Vec<(f32, u32)> {
        let number = |filter: Filter| match filter.src {
            IpAddr::V4(a) => u32::from(a.octets()[3]),
            IpAddr::V6(a) => u32::from(a.octets()[15]),
        };
        let flow = |(flowspec, filter): (Option<FlowSpec>, Option<Filter>)| {
            (flowspec.map_or(0.0, |flowspec| flowspec.tspec.rate()), filter.map_or(0, number))
        };
        self.flows().into_iter().map(flow).collect()
    }

    pub(crate) fn error(&self) -> ErrorSpec {
        self.message().error.unwrap()
    }

    pub(crate) fn scope(&self) -> Option<Vec<IpAddr>> {
        self.message().scope.map(|scope| scope.senders().collect())
    }
}

/// The packets of one type.
pub(crate) fn all(sent: &[Sent], kind: MessageType) -> Vec<Sent> {
    sent.iter().filter(|one| one.kind() == kind).cloned().collect()
}

/// The only packet of this type.
#[track_caller]
pub(crate) fn one(sent: &[Sent], kind: MessageType) -> Sent {
    let all = all(sent, kind);
    assert_eq!(all.len(), 1, "{kind}: {:?}", kinds(sent));
    all.into_iter().next().unwrap()
}

/// The only packet of this type to this address.
#[track_caller]
pub(crate) fn one_to(sent: &[Sent], kind: MessageType, dst: IpAddr) -> Sent {
    let sent: Vec<Sent> = sent.iter().filter(|one| one.dst == dst).cloned().collect();
    one(&sent, kind)
}

/// Types and destinations.
pub(crate) fn kinds(sent: &[Sent]) -> Vec<(MessageType, IpAddr)> {
    sent.iter().map(|one| (one.kind(), one.dst)).collect()
}

/// A reply to a diagnostic request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) octets: Vec<u8>,
}
