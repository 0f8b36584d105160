//! What a node does with the requests of a session.

use core::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::Endpoint;
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Flow, Mri};
use signalbox_resources::Passage;

use crate::wire::{DataTerminal, ExternalAddress};

/// What this node does with the requests of a session.
#[derive(Debug)]
pub(super) struct Plan {
    /// Flow of the request that is sent on.
    pub(super) flow: Flow,
    pub(super) direction: Direction,
    /// This node sends the RESPONSE.
    pub(super) answers: bool,
    /// Requests are sent on.
    pub(super) forwards: bool,
    /// A rule becomes active when the request succeeds.
    pub(super) installs: bool,
    /// A lease of external ports, which the session holds.
    pub(super) lease: Option<Key>,
    pub(super) passage: Option<Passage>,
    /// What only an EXTERNAL has.
    pub(super) external: Option<Box<External>>,
}

/// What this node does with an EXTERNAL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct External {
    /// NATFW_DTINFO of the request that is sent on.
    pub(super) terminal: DataTerminal,
    /// External address that a RESPONSE of this node carries.
    pub(super) address: Option<ExternalAddress>,
    /// External address of this NAT for NATFW_EXTERNAL_BINDING, if it is not the edge.
    pub(super) binding: Option<ExternalAddress>,
    /// What later CREATEs are matched with, if the request is for a host inside (RFC 5973 §3.8).
    pub(super) reserved: Option<Reserved>,
    /// In proxy mode: the passages of the flow to the inside that this edge opens by itself.
    pub(super) opens: Vec<Passage>,
    /// The session of an initiator that has lost it, whose external port this one has.
    pub(super) replaces: Option<Key>,
}

impl External {
    /// An EXTERNAL that is only sent on.
    pub(super) const fn of(terminal: DataTerminal) -> Self {
        Self { terminal, address: None, binding: None, reserved: None, opens: Vec::new(), replaces: None }
    }
}

/// A receiver inside that others may reach, or must not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reserved {
    /// The receiver as others address it: the external address and port of a NAT, else its own.
    pub(super) address: IpAddr,
    pub(super) port: Option<u16>,
    pub(super) protocol: Option<u8>,
    /// The receiver itself.
    pub(super) inside: Endpoint,
    /// The senders that are meant.
    pub(super) senders: Prefix,
    pub(super) sender_port: Option<u16>,
    pub(super) spi: Option<u32>,
    pub(super) second: bool,
    pub(super) blocks: bool,
}

impl Plan {
    /// Requests are only sent on or, at the end, answered.
    pub(super) fn plain(mri: &Mri, terminal: Option<DataTerminal>, answers: bool) -> Self {
        let external = terminal.map(|terminal| Box::new(External::of(terminal)));
        Self {
            flow: Flow::of(mri),
            direction: mri.direction(),
            answers,
            forwards: !answers,
            installs: false,
            lease: None,
            passage: None,
            external,
        }
    }

    /// MRI of the request that is sent on.
    pub(super) fn mri(&self) -> Mri {
        self.flow.mri(self.direction)
    }

    /// Whether it is the MRI of the request that is sent on.
    pub(super) fn sends(&self, mri: &Mri) -> bool {
        mri.direction() == self.direction && self.flow.is_of(mri)
    }

    pub(super) fn reserved(&self) -> Option<Reserved> {
        self.external.as_ref().and_then(|external| external.reserved)
    }

    /// What all senders that are meant may reach without a CREATE.
    pub(super) fn published(&self) -> Option<Reserved> {
        self.reserved().filter(|reserved| self.installs && !reserved.blocks)
    }

    /// All that the policy allowed.
    pub(super) fn passages(&self) -> impl Iterator<Item = &Passage> {
        self.passage.iter().chain(self.external.iter().flat_map(|external| &external.opens))
    }

    /// Takes all that the policy allowed.
    pub(super) fn take_passages(&mut self) -> Vec<Passage> {
        let opens = self.external.as_mut().map(|external| core::mem::take(&mut external.opens));
        self.passage.take().into_iter().chain(opens.unwrap_or_default()).collect()
    }

    /// Gives the plan what the policy allowed: the passage of the request first.
    pub(super) fn set_passages(&mut self, passages: Vec<Passage>) {
        let mut passages = passages.into_iter();
        self.passage = passages.next();
        if let Some(external) = &mut self.external {
            external.opens = passages.collect();
        }
    }

    /// Whether packets and messages are processed in the same way by another plan.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let on = |plan: &Self| plan.external.as_ref().map(|external| (external.terminal, external.reserved));
        (&self.flow, self.direction) == (&other.flow, other.direction)
            && on(self) == on(other)
            && self.lease == other.lease
            && (self.answers, self.forwards, self.installs) == (other.answers, other.forwards, other.installs)
    }
}
