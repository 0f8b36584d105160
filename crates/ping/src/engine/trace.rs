//! What a message of the NSIS Ping tool shows that came back (draft-juchem-nsis-ping-tool-02 §2).

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use super::event::Hop;
use crate::wire::nsis::{Message, Record};

/// The nodes that a message visited.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trace {
    /// Nodes after the initiator, in order. The last one sent the message back, if `turned`.
    pub(super) there: Vec<Hop>,
    /// Nodes on the way back, in order, without the initiator.
    pub(super) back: Vec<Hop>,
    /// Whether the node that sent the message back is among the records.
    pub(super) turned: bool,
    /// Whether records are missing because they had no room.
    pub(super) truncated: bool,
}

impl Trace {
    /// Reads a message as it reaches its initiator: with *N* nodes after the initiator, it counted 2N - 1 hops, and has the
    /// records of the initiator, of N nodes on the way there and of N - 1 on the way back.
    pub(super) fn of(message: &Message<'_>) -> Self {
        let hops = usize::from(message.hops);
        let nodes = hops.div_ceil(2);
        let mut records = message.records().skip(1).take(hops);
        let mut there: Vec<_> = records.by_ref().take(nodes).map(hop).collect();
        let back: Vec<_> = records.map(hop).collect();
        let turned = there.len() == nodes;
        for (at, node) in there.iter_mut().enumerate().filter(|(_, node)| node.received_us > 0) {
            // Only times of the same clock are compared. The way back visits the nodes in reverse order.
            let second = match (nodes - 1).checked_sub(at + 1) {
                Some(before_last) => back.get(before_last).map(|hop| hop.received_us),
                None => Some(node.received_us),
            };
            let since_first = |second: u64| Duration::from_micros(second.saturating_sub(node.received_us));
            node.round_trip = second.filter(|second| *second > 0).map(since_first);
        }
        Self { truncated: message.count() <= hops, there, back, turned }
    }
}

/// A node that wrote no address is shown as unknown, one that wrote no time as of 1970.
fn hop(record: Record) -> Hop {
    let time_us = record.time_us.unwrap_or(0);
    Hop {
        address: record.address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        received_us: time_us,
        sent_us: time_us,
        ip_distance: 0,
        round_trip: None,
    }
}
