//! What operators see.

use signalbox_core::Time;
use signalbox_gist::engine::{AssociationView, PeerView, SessionView};

use crate::applications::ApplicationView;
use crate::node::Node;

/// One number that a room of the node counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// The room: `gist`, `channels`, `sctp`, `ping`, `qos`, `rsvp`, `rsvp_neighbours`, `resources` or `applications`.
    pub room: &'static str,
    /// The counter's name in its room.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// Since the start.
    pub value: u64,
}

impl Node {
    /// GIST's sessions, in a fixed order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView<'_>> {
        self.gist.sessions()
    }

    /// Number of GIST's sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.gist.sessions().count()
    }

    /// GIST's peers, in a fixed order.
    pub fn peers(&self) -> impl Iterator<Item = PeerView<'_>> {
        self.gist.peers()
    }

    /// GIST's messaging associations, in a fixed order.
    pub fn associations(&self) -> impl Iterator<Item = AssociationView<'_>> {
        self.gist.associations()
    }

    /// Channels of GIST's associations, those included that are not up yet.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// Pings that this node started and that run.
    #[must_use]
    pub fn pings(&self) -> u32 {
        self.ping.as_ref().map_or(0, signalbox_ping::engine::Ping::running)
    }

    /// Sessions of the QoS application, in a fixed order.
    pub fn qos_sessions(&self) -> impl Iterator<Item = signalbox_qos::engine::SessionView> {
        self.qos.iter().flat_map(|qos| qos.view(self.now))
    }

    /// RSVP's sessions, in a fixed order.
    pub fn rsvp_sessions(&self) -> impl Iterator<Item = signalbox_rsvp::engine::SessionView> {
        self.rsvp.iter().flat_map(signalbox_rsvp::engine::Rsvp::view)
    }

    /// RSVP's neighbours, and who is not believed to be one.
    #[must_use]
    pub fn rsvp_neighbours(&self, now: Time) -> Vec<signalbox_rsvp::engine::neighbour::View> {
        self.rsvp.as_ref().map_or_else(Vec::new, |rsvp| rsvp.neighbours().view(now))
    }

    /// RSVP, to look at, if the node speaks it.
    #[must_use]
    pub const fn rsvp(&self) -> Option<&signalbox_rsvp::engine::Rsvp> {
        self.rsvp.as_ref()
    }

    /// Admission control, to look at.
    #[must_use]
    pub const fn resources(&self) -> &signalbox_resources::Resources {
        &self.resources
    }

    /// Applications outside of the node that are registered, in the order in which they came.
    pub fn applications(&self) -> impl Iterator<Item = ApplicationView> {
        self.applications.all.iter().copied()
    }

    /// All that the rooms count.
    pub fn counters(&self) -> impl Iterator<Item = Counter> {
        let counter = |room| {
            move |(name, help, value): (&'static str, &'static str, u64)| Counter { room, name, help, value }
        };
        let ping = self.ping.iter().flat_map(|ping| ping.counters().iter());
        let channels = self.channels.counters.iter().map(counter("channels"));
        let sctp = self.channels.sctp_counters().into_iter().flat_map(|counters| counters.iter());
        let rooms = self.gist.counters().iter().map(counter("gist")).chain(channels);
        let qos = self.qos.iter().flat_map(|qos| qos.counters().iter()).map(counter("qos"));
        let rsvp = self.rsvp.iter().flat_map(|rsvp| rsvp.counters().iter()).map(counter("rsvp"));
        let neighbours = self.rsvp.iter().flat_map(|rsvp| rsvp.neighbours().counters().iter());
        let resources = self.resources.counters().iter().map(counter("resources"));
        let applications = self.applications.counters.iter().map(counter("applications"));
        rooms
            .chain(sctp.map(counter("sctp")))
            .chain(ping.map(counter("ping")))
            .chain(qos)
            .chain(rsvp)
            .chain(neighbours.map(counter("rsvp_neighbours")))
            .chain(resources)
            .chain(applications)
    }

    /// The counter of this name, 0 if there is none.
    #[must_use]
    pub fn counter(&self, room: &str, name: &str) -> u64 {
        self.counters().find(|c| c.room == room && c.name == name).map_or(0, |c| c.value)
    }
}
