//! Inputs and outputs of the engine.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use signalbox_core::IfIndex;
use signalbox_core::handover::Entries;
use signalbox_core::node::Interface;
use signalbox_core::packet::{Received, Transmit};

use crate::wire::{Filter, NatPmpResult, ResultCode};

/// One input of [`Mapper::handle`](super::Mapper::handle).
#[derive(Debug)]
pub enum Input<'a> {
    /// A deadline is due.
    Timer,
    /// A datagram to the port of PCP and NAT-PMP. It came in by the interface of the route to its source: who drives the engine has looked.
    Packet(Received<'a>),
    /// A datagram that [`Mapper::accepts`](super::Mapper::accepts) and that who drives the engine has dropped.
    Dropped {
        /// Its source.
        client: SocketAddr,
        /// Why.
        why: Dropped,
    },
    /// All interfaces of the node; given at the start and after each change.
    Interfaces(&'a [Interface]),
    /// The IPv4 address by which hosts outside reach mappings: that of the outermost NAT. `None`: no path outward is known.
    Outside(Option<Ipv4Addr>),
    /// The answer of the path to [`Output::Open`], one to each.
    Opened {
        /// The mapping.
        id: MappingId,
        /// The external place at the outermost node, or why there is none. A failure leaves nothing on any node.
        result: Result<SocketAddr, Failure>,
    },
    /// What happened to a mapping that stands.
    Changed {
        /// The mapping.
        id: MappingId,
        /// What happened.
        change: Change,
    },
    /// What [`Mapper::hand_over`](super::Mapper::hand_over) of the engine before this one wrote. It comes after the first
    /// [`Input::Interfaces`], at once.
    Handover {
        /// The entries.
        entries: Entries,
        /// How long ago they were written.
        elapsed: Duration,
    },
    /// What a user of the node demands.
    Command {
        /// To be given back with the event.
        id: u64,
        /// The command.
        command: Command,
    },
}

/// Why a datagram was dropped before the engine got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// The route to its source leaves by another interface, or there is none: anybody may have sent it.
    Elsewhere,
    /// Too many wait for the routes to their sources.
    Overload,
}

/// Who takes the next output of [`Mapper::poll`](super::Mapper::poll).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The driver: [`Output::Transmit`] or [`Output::Event`].
    Driver,
    /// The path: [`Output::Open`] or [`Output::Close`].
    Path,
}

/// One output of [`Mapper::poll`](super::Mapper::poll).
#[derive(Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// Send a datagram.
    Transmit(Transmit<'a>),
    /// Open every NAT and firewall of the path for a host, or change what is open. It is answered by [`Input::Opened`], and no other
    /// one for this mapping follows before.
    Open {
        /// The mapping.
        id: MappingId,
        /// What to open.
        wanted: Wanted,
    },
    /// Close what an [`Output::Open`] opened or asked for. It is not answered.
    Close {
        /// The mapping.
        id: MappingId,
    },
    /// The answer to a command.
    Event {
        /// The identifier of the command.
        id: u64,
        /// The answer.
        event: Event,
    },
}

/// Identifier of a mapping between the engine and the path. It is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingId(pub u64);

/// What a mapping is for: the inside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Inside {
    /// The host.
    pub client: IpAddr,
    /// IP protocol; 0: all.
    pub protocol: u8,
    /// Port of the host; 0: all.
    pub port: u16,
}

/// What the path is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The host, its protocol and port.
    pub inside: Inside,
    /// The interface towards the host.
    pub ifindex: IfIndex,
    /// The external address and port that are wished; unspecified and 0 where any will do.
    pub wish: SocketAddr,
    /// Nothing but the wish will do.
    pub exactly: bool,
    /// Who may send; empty: anybody.
    pub filters: Vec<Filter>,
}

/// Why the path did not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A node has no resources, or its kernel refused.
    NoResources,
    /// The share of the host is used up.
    Quota,
    /// The policy of a node does not allow it.
    NotAllowed,
    /// There is no path outward, no external address, or no answer.
    NoPath,
    /// The external place that alone would do belongs to another host.
    Taken,
    /// The protocol, or all ports of a host, cannot be mapped.
    Protocol,
    /// More filters than a node can keep.
    Filters,
}

impl Failure {
    /// The result code of PCP.
    #[must_use]
    pub const fn pcp(self) -> ResultCode {
        match self {
            Self::NoResources => ResultCode::NO_RESOURCES,
            Self::Quota => ResultCode::USER_EX_QUOTA,
            Self::NotAllowed => ResultCode::NOT_AUTHORIZED,
            Self::NoPath => ResultCode::NETWORK_FAILURE,
            Self::Taken => ResultCode::CANNOT_PROVIDE_EXTERNAL,
            Self::Protocol => ResultCode::UNSUPP_PROTOCOL,
            Self::Filters => ResultCode::EXCESSIVE_REMOTE_PEERS,
        }
    }

    /// The result of NAT-PMP.
    #[must_use]
    pub const fn nat_pmp(self) -> NatPmpResult {
        match self {
            Self::NoResources | Self::Quota | Self::Taken | Self::Protocol | Self::Filters => {
                NatPmpResult::OUT_OF_RESOURCES
            }
            Self::NotAllowed => NatPmpResult::NOT_AUTHORIZED,
            Self::NoPath => NatPmpResult::NETWORK_FAILURE,
        }
    }
}

/// What happened to a mapping that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The path gave it another external place.
    Moved(SocketAddr),
    /// The path lost or ended it, and no node has it any more. The engine asks again.
    Lost,
}

/// What a user of the node demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Command {
    /// End a mapping. Its host learns of it when it renews.
    Clear(Inside),
    /// The user of the identifier has gone. Commands are answered at once, so nothing is left to end.
    End,
}

/// The answer to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Event {
    /// The mapping has ended.
    Cleared,
    /// There is no such mapping.
    Unknown,
}
