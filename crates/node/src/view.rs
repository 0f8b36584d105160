//! Views of a node for operators.

use signalbox_core::metrics::{Family, Gauge, Subsystem};
use signalbox_core::{Counter, NslpId, Time};
use signalbox_gist::engine::{AssociationView, PeerView, SessionView};

use crate::composition::{Composition, Place};
use crate::node::Node;
use crate::protocol::Size;
use crate::protocols::{ApplicationView, ProtocolId};

/// Protocols that run.
const PROTOCOL_RUNNING: Family =
    Family::gauge("protocol_running", &["protocol"], "1 if the node runs the protocol, 0 if it does not.");
/// Reservations.
const RESERVATIONS: Family =
    Family::gauge("reservations", &["protocol", "interface"], "Reservations at an outgoing interface.");
/// Capacity of interfaces.
const INTERFACE_CAPACITY: Family = Family::gauge(
    "interface_capacity_bytes_per_second",
    &["interface"],
    "Capacity of an interface at which the node reserves.",
)
.of_unit("bytes_per_second");
/// Share of interfaces.
const INTERFACE_RESERVABLE: Family = Family::gauge(
    "interface_reservable_bytes_per_second",
    &["interface"],
    "Part of the capacity of an interface that can be reserved.",
)
.of_unit("bytes_per_second");
/// Use of interfaces.
const INTERFACE_RESERVED: Family = Family::gauge(
    "interface_reserved_bytes_per_second",
    &["interface"],
    "Rate of all reservations at an interface.",
)
.of_unit("bytes_per_second");

impl Node {
    /// GIST's sessions, in a fixed order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView<'_>> {
        self.protocols.gist.as_deref().into_iter().flat_map(|gist| gist.engine.sessions())
    }

    /// Number of GIST's sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.protocols.gist.as_deref().map_or(0, |gist| gist.engine.session_count() as usize)
    }

    /// The GIST engine, read only; `None` if the node does not run GIST.
    #[must_use]
    pub fn gist(&self) -> Option<&signalbox_gist::engine::Gist> {
        self.protocols.gist.as_deref().map(|gist| &gist.engine)
    }

    /// GIST's peers, in a fixed order.
    pub fn peers(&self) -> impl Iterator<Item = PeerView<'_>> {
        self.protocols.gist.as_deref().into_iter().flat_map(|gist| gist.engine.peers())
    }

    /// GIST's messaging associations, in a fixed order.
    pub fn associations(&self) -> impl Iterator<Item = AssociationView<'_>> {
        self.protocols.gist.as_deref().into_iter().flat_map(|gist| gist.engine.associations())
    }

    /// Channels of GIST's associations, those included that are not up yet.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.protocols.gist.as_deref().map_or(0, |gist| gist.channels.len())
    }

    /// Pings that this node started and that run.
    #[must_use]
    pub fn pings(&self) -> u32 {
        self.protocols.ping.as_deref().map_or(0, |ping| ping.engine.running())
    }

    /// Sessions of the QoS application, in a fixed order.
    pub fn qos_sessions(&self) -> impl Iterator<Item = signalbox_qos::engine::SessionView> {
        self.protocols.qos.as_deref().into_iter().flat_map(|qos| qos.engine.view(self.now))
    }

    /// The QoS application, read only; `None` if the node does not run it.
    #[must_use]
    pub fn qos(&self) -> Option<&signalbox_qos::engine::Qos> {
        self.protocols.qos.as_deref().map(|qos| &qos.engine)
    }

    /// The NATFW application, read only; `None` if the node does not run it.
    #[must_use]
    pub fn natfw(&self) -> Option<&signalbox_natfw::engine::Natfw> {
        self.protocols.natfw.as_deref().map(|natfw| &natfw.engine)
    }

    /// CASP's client for firewalls, read only; `None` if the node does not run it.
    #[must_use]
    pub fn casp_firewall(&self) -> Option<&signalbox_casp::clients::natfw::NatfwClient> {
        self.protocols.casp.as_deref()?.passages()
    }

    /// RSVP's sessions, in a fixed order.
    pub fn rsvp_sessions(&self) -> impl Iterator<Item = signalbox_rsvp::engine::SessionView> {
        self.rsvp().into_iter().flat_map(signalbox_rsvp::engine::Rsvp::view)
    }

    /// The RSVP engine, read only; `None` if the node does not run RSVP.
    #[must_use]
    pub fn rsvp(&self) -> Option<&signalbox_rsvp::engine::Rsvp> {
        self.protocols.rsvp.as_deref().map(|rsvp| &rsvp.engine)
    }

    /// The Boomerang engine, read only; `None` if the node does not run Boomerang.
    #[must_use]
    pub fn boomerang(&self) -> Option<&signalbox_boomerang::engine::Boomerang> {
        self.protocols.boomerang.as_deref().map(|boomerang| &boomerang.engine)
    }

    /// The GIST-aware NAT gateway, read only; `None` if the node is not one.
    #[must_use]
    pub fn gist_nat(&self) -> Option<&signalbox_gist::gateway::Gateway> {
        self.protocols.gist_nat.as_deref().map(|gateway| &gateway.engine)
    }

    /// CASP's messaging layer, read only; `None` if the node does not run CASP.
    #[must_use]
    pub fn casp(&self) -> Option<&signalbox_casp::engine::Casp> {
        self.protocols.casp.as_deref().map(|casp| &casp.engine)
    }

    /// The server of PCP and NAT-PMP, read only; `None` if the node does not run it.
    #[must_use]
    pub fn mapping(&self) -> Option<&signalbox_mapping::engine::Mapper> {
        self.protocols.mapping.as_deref().map(|mapping| &mapping.engine)
    }

    /// The protocols that the node runs.
    pub fn protocols(&self) -> impl Iterator<Item = ProtocolId> {
        self.sizes().map(|(id, _)| id)
    }

    /// The signaling applications inside of the node, by NSLPID.
    pub fn nslps(&self) -> impl Iterator<Item = (ProtocolId, NslpId)> {
        self.applications.iter().filter_map(|(place, nslp)| Some((ProtocolId::at(*place)?, *nslp)))
    }

    /// How much state each protocol of the node has.
    pub fn sizes(&self) -> impl Iterator<Item = (ProtocolId, Size)> {
        self.protocols.named().filter_map(|(place, one)| Some((ProtocolId::at(place)?, one.size())))
    }

    /// Signaling applications of other processes that are registered, in the order in which they came.
    pub fn applications(&self) -> impl Iterator<Item = ApplicationView> {
        self.protocols.gist.as_deref().into_iter().flat_map(|gist| gist.applications.all.iter().copied())
    }
}

impl<P: Composition> Node<P> {
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

    /// All counters of the node.
    pub fn counters(&self) -> impl Iterator<Item = Counter> {
        let mut counters = Vec::new();
        for protocol in self.protocols.iter() {
            protocol.counters(&mut counters);
        }
        let resources = Subsystem::shared("resources");
        counters.extend(self.resources.counters().iter().map(Counter::of(resources)));
        counters.into_iter()
    }

    /// All gauges of the node. No table is walked for them.
    #[must_use]
    pub fn gauges(&self) -> Vec<Gauge> {
        let running = P::names().zip(Place::all()).map(|(name, place)| {
            let runs = self.protocols.get(place).is_some();
            Gauge::new(&PROTOCOL_RUNNING, &[name], u64::from(runs))
        });
        let mut gauges: Vec<Gauge> = running.collect();
        for protocol in self.protocols.iter() {
            protocol.gauges(&mut gauges);
        }
        for link in self.resources.links() {
            let Some(capacity) = link.capacity else { continue };
            gauges.extend([
                Gauge::new(&INTERFACE_CAPACITY, &[link.name], capacity),
                Gauge::new(&INTERFACE_RESERVABLE, &[link.name], link.share),
                Gauge::new(&INTERFACE_RESERVED, &[link.name], link.reserved),
            ]);
            for reserver in self.protocols.iter().filter_map(|protocol| protocol.owners().reserver) {
                let here = link.protocols.iter().find(|(protocol, _)| *protocol == reserver);
                let labels = [&*reserver.to_string(), link.name];
                gauges.push(Gauge::new(&RESERVATIONS, &labels, here.map_or(0, |(_, count)| (*count).into())));
            }
        }
        gauges
    }

    /// The counter of this subsystem and name; 0 if there is none.
    #[must_use]
    pub fn counter(&self, subsystem: &str, name: &str) -> u64 {
        let mut all = self.counters();
        let found = all.find(|one| (one.subsystem.name, one.count.name) == (subsystem, name));
        found.map_or(0, |one| one.count.value)
    }
}
