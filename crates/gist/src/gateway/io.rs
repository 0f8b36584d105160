//! Inputs and outputs of the gateway.

use core::time::Duration;

use signalbox_core::node::Interface;
use signalbox_core::packet::{Received, Transmit};
use signalbox_core::pinhole::{Pinhole, PinholeError, PinholeId, Translation};
use signalbox_core::traffic::FlowFilter;

/// One input of [`Gateway::handle`](super::Gateway::handle).
#[derive(Debug)]
pub enum Input<'a> {
    /// A datagram was intercepted, or came to this node.
    Datagram(Received<'a>),
    /// A deadline is due.
    Timer,
    /// All interfaces and addresses of the node.
    Interfaces(&'a [Interface]),
    /// The answer to [`Output::Open`] of the same id.
    Opened {
        /// The id of the pinhole.
        id: PinholeId,
        /// Whether the kernel has it.
        result: Result<(), PinholeError>,
    },
    /// The answer to [`Output::Find`] of the same id.
    Found {
        /// The id of the question.
        id: PinholeId,
        /// How the kernel translates the flow; `None`: it does not.
        translation: Option<Translation>,
    },
}

/// One output of [`Gateway::poll`](super::Gateway::poll).
#[derive(Debug)]
pub enum Output<'a> {
    /// Send a packet.
    Transmit(Transmit<'a>),
    /// Open a binding in the kernel, change or prolong it.
    Open {
        /// The id of the pinhole.
        id: PinholeId,
        /// The packets and their translation.
        pinhole: Pinhole,
        /// Time until the kernel removes it.
        lifetime: Duration,
    },
    /// Remove a binding from the kernel.
    Close {
        /// The id of the pinhole.
        id: PinholeId,
    },
    /// Find out whether the kernel translates a flow already.
    Find {
        /// The id of the question.
        id: PinholeId,
        /// Packets of one direction of the flow, with both addresses and ports.
        packets: FlowFilter,
    },
}
