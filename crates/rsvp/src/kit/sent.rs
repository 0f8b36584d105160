//! Packets that the node sent, and how their users look at them.

use core::net::{IpAddr, SocketAddr};

use crate::engine::IpTransmit;
use crate::wire::{ErrorSpec, Filter, FlowSpec, Message, MessageType};
use signalbox_core::Time;

/// A packet that the node sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    /// When it left.
    pub at: Time,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Outgoing interface; 0: routing decides.
    pub oif: u32,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS octet or traffic class.
    pub tos: u8,
    /// It has a Router Alert.
    pub router_alert: bool,
    /// The message.
    pub octets: Vec<u8>,
}

impl Sent {
    /// A packet that left at this time.
    pub fn new(at: Time, packet: &IpTransmit<'_>) -> Self {
        Self {
            at,
            src: packet.src,
            dst: packet.dst,
            oif: packet.ifindex.map_or(0, |ifindex| ifindex.0),
            ttl: packet.ttl,
            tos: packet.tos,
            router_alert: packet.router_alert,
            octets: packet.payload.to_vec(),
        }
    }

    /// The message, parsed.
    pub fn message(&self) -> Message<'_> {
        Message::parse(&self.octets).expect("the node sends whole messages")
    }

    /// Its type, also if it cannot be parsed.
    pub fn kind(&self) -> MessageType {
        MessageType(self.octets.get(1).copied().unwrap_or_default())
    }

    /// Its flow descriptors: flowspec and filter of each.
    pub fn flows(&self) -> Vec<(Option<FlowSpec>, Option<Filter>)> {
        let flows = self.message().flows();
        flows
            .map(|flow| (flow.flowspec.map(|flowspec| flowspec.read().expect("a flowspec")), flow.filter))
            .collect()
    }

    /// Its flow descriptors by rate and sender's number.
    pub fn rates(&self) -> Vec<(f32, u32)> {
        let number = |filter: Filter| match filter.src {
            IpAddr::V4(a) => a.to_bits() & 0xff,
            IpAddr::V6(a) => u32::from(a.segments()[7] & 0xff),
        };
        let flow = |(flowspec, filter): (Option<FlowSpec>, Option<Filter>)| {
            (flowspec.map_or(0.0, |flowspec| flowspec.tspec.rate()), filter.map_or(0, number))
        };
        self.flows().into_iter().map(flow).collect()
    }

    /// Its error.
    pub fn error(&self) -> ErrorSpec {
        self.message().error.expect("an ERROR_SPEC")
    }

    /// The senders of its SCOPE, if it has one.
    pub fn scope(&self) -> Option<Vec<IpAddr>> {
        self.message().scope.map(|scope| scope.senders().collect())
    }
}

/// The packets of one type.
pub fn all(sent: &[Sent], kind: MessageType) -> Vec<Sent> {
    sent.iter().filter(|one| one.kind() == kind).cloned().collect()
}

/// The only packet of this type.
#[track_caller]
pub fn one(sent: &[Sent], kind: MessageType) -> Sent {
    let mut all = all(sent, kind);
    assert_eq!(all.len(), 1, "{kind}: {:?}", kinds(sent));
    all.remove(0)
}

/// The only packet of this type to this address.
#[track_caller]
pub fn one_to(sent: &[Sent], kind: MessageType, dst: IpAddr) -> Sent {
    let sent: Vec<Sent> = sent.iter().filter(|one| one.dst == dst).cloned().collect();
    one(&sent, kind)
}

/// Types and destinations.
pub fn kinds(sent: &[Sent]) -> Vec<(MessageType, IpAddr)> {
    sent.iter().map(|one| (one.kind(), one.dst)).collect()
}

/// A reply to a diagnostic request.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Address and port of the node.
    pub src: SocketAddr,
    /// The requester.
    pub dst: SocketAddr,
    /// A whole DREP.
    pub octets: Vec<u8>,
}
