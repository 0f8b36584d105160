//! Views of a node for operators.

use signalbox_core::{NslpId, Time};
use signalbox_gist::engine::{AssociationView, PeerView, SessionView};

use crate::node::Node;
use crate::protocol::Size;
use crate::protocols::{ApplicationView, ProtocolId};

/// A counter of one part of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// The part: `gist`, `channels`, `sctp`, `ping`, `qos`, `rsvp`, `rsvp_neighbours`, `resources` or `applications`.
    pub room: &'static str,
    /// The name of the counter within its part.
    pub name: &'static str,
    /// Help text: what is counted.
    pub help: &'static str,
    /// The count since the start.
    pub value: u64,
}

impl Counter {
    /// Makes counters of this part from their names, help texts and values.
    pub(crate) fn of(room: &'static str) -> impl Fn((&'static str, &'static str, u64)) -> Self {
        move |(name, help, value)| Self { room, name, help, value }
    }
}

impl Node {
    /// GIST's sessions, in a fixed order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView<'_>> {
        self.protocols.gist().into_iter().flat_map(|gist| gist.engine.sessions())
    }

    /// Number of GIST's sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.protocols.gist().map_or(0, |gist| gist.engine.session_count() as usize)
    }

    /// The GIST engine, read only; `None` if the node does not run GIST.
    #[must_use]
    pub fn gist(&self) -> Option<&signalbox_gist::engine::Gist> {
        self.protocols.gist().map(|gist| &gist.engine)
    }

    /// GIST's peers, in a fixed order.
    pub fn peers(&self) -> impl Iterator<Item = PeerView<'_>> {
        self.protocols.gist().into_iter().flat_map(|gist| gist.engine.peers())
    }

    /// GIST's messaging associations, in a fixed order.
    pub fn associations(&self) -> impl Iterator<Item = AssociationView<'_>> {
        self.protocols.gist().into_iter().flat_map(|gist| gist.engine.associations())
    }

    /// Channels of GIST's associations, those included that are not up yet.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.protocols.gist().map_or(0, |gist| gist.channels.len())
    }

    /// Pings that this node started and that run.
    #[must_use]
    pub fn pings(&self) -> u32 {
        self.protocols.ping().map_or(0, |ping| ping.engine.running())
    }

    /// Sessions of the QoS application, in a fixed order.
    pub fn qos_sessions(&self) -> impl Iterator<Item = signalbox_qos::engine::SessionView> {
        self.protocols.qos().into_iter().flat_map(|qos| qos.engine.view(self.now))
    }

    /// The QoS application, read only; `None` if the node does not run it.
    #[must_use]
    pub fn qos(&self) -> Option<&signalbox_qos::engine::Qos> {
        self.protocols.qos().map(|qos| &qos.engine)
    }

    /// RSVP's sessions, in a fixed order.
    pub fn rsvp_sessions(&self) -> impl Iterator<Item = signalbox_rsvp::engine::SessionView> {
        self.rsvp().into_iter().flat_map(signalbox_rsvp::engine::Rsvp::view)
    }

    /// RSVP's neighbours, and those whose messages failed authentication.
    #[must_use]
    pub fn rsvp_neighbours(&self, now: Time) -> Vec<signalbox_rsvp::engine::neighbour::View> {
        self.rsvp().map_or_else(Vec::new, |rsvp| rsvp.neighbours().view(now))
    }

    /// The RSVP engine, read only; `None` if the node does not run RSVP.
    #[must_use]
    pub fn rsvp(&self) -> Option<&signalbox_rsvp::engine::Rsvp> {
        self.protocols.rsvp().map(|rsvp| &rsvp.engine)
    }

    /// The protocols that the node runs.
    pub fn protocols(&self) -> impl Iterator<Item = ProtocolId> {
        self.protocols.ids()
    }

    /// The signaling applications inside of the node, by NSLPID.
    pub fn nslps(&self) -> impl Iterator<Item = (ProtocolId, NslpId)> {
        self.applications.iter().copied()
    }

    /// How much state each protocol of the node has.
    pub fn sizes(&self) -> impl Iterator<Item = (ProtocolId, Size)> {
        self.protocols.sizes()
    }

    /// Time of the last input.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Admission control, read only.
    #[must_use]
    pub const fn resources(&self) -> &signalbox_resources::Resources {
        &self.resources
    }

    /// Signaling applications of other processes that are registered, in the order in which they came.
    pub fn applications(&self) -> impl Iterator<Item = ApplicationView> {
        self.protocols.gist().into_iter().flat_map(|gist| gist.applications.all.iter().copied())
    }

    /// All counters of the node.
    pub fn counters(&self) -> impl Iterator<Item = Counter> {
        let mut counters = Vec::new();
        for protocol in self.protocols.iter() {
            protocol.counters(&mut counters);
        }
        counters.extend(self.resources.counters().iter().map(Counter::of("resources")));
        counters.into_iter()
    }

    /// The counter of this name, 0 if there is none.
    #[must_use]
    pub fn counter(&self, room: &str, name: &str) -> u64 {
        self.counters().find(|c| c.room == room && c.name == name).map_or(0, |c| c.value)
    }
}
