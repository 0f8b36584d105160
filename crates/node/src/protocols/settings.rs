//! The settings of the protocols of the suite.

#[cfg(feature = "test-protocol")]
use super::beacon;
use super::{ProtocolId, boomerang, casp, gist, gist_nat, mapping, natfw, ping, qos, rsvp};
use crate::config::{Member, Members};
use crate::protocol::Composed;

/// Settings of a node. A protocol without settings does not run.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Config {
    /// Microseconds since 1970 at [`Time::ZERO`](signalbox_core::Time::ZERO), the driver's start.
    pub wall_clock_us: u64,
    /// Settings of GIST with its messaging associations (RFC 5971).
    pub gist: Option<gist::Config>,
    /// Settings of the Ping application.
    pub ping: Option<ping::Config>,
    /// Settings of the QoS application (RFC 5974).
    pub qos: Option<qos::Config>,
    /// Settings of RSVP (RFC 2205).
    pub rsvp: Option<rsvp::Config>,
    /// Settings of Boomerang (draft-bergkvist-boomerang-spec-00).
    pub boomerang: Option<boomerang::Config>,
    /// Settings of the NATFW application (RFC 5973).
    pub natfw: Option<natfw::Config>,
    /// Settings of the GIST-aware NAT gateway (RFC 5971 section 7.2).
    pub gist_nat: Option<gist_nat::Config>,
    /// Settings of CASP (draft-schulzrinne-nsis-casp-01).
    pub casp: Option<casp::Config>,
    /// Settings of the front end for hosts that ask by PCP (RFC 6887) and NAT-PMP (RFC 6886).
    #[cfg_attr(feature = "serde", serde(default))]
    pub mapping: Option<mapping::Config>,
    /// Settings of the test protocol.
    #[cfg(feature = "test-protocol")]
    pub beacon: Option<beacon::Config>,
    /// The shares of links that can be reserved here, and the policy.
    pub resources: signalbox_resources::Config,
}

/// A protocol, if it has settings.
fn member<P: Composed>(id: ProtocolId, config: Option<&P::Config>) -> Option<Member> {
    config.map(|config| Member::new::<P>(id.place(), config))
}

impl Config {
    /// A node that runs no protocol, started in 1970.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            wall_clock_us: 0,
            gist: None,
            ping: None,
            qos: None,
            rsvp: None,
            boomerang: None,
            natfw: None,
            gist_nat: None,
            casp: None,
            mapping: None,
            #[cfg(feature = "test-protocol")]
            beacon: None,
            resources: signalbox_resources::Config::default(),
        }
    }

    /// The settings that a node with the settings `old` takes when these come into force: protocols whose settings stay
    /// are left out. `None`: all settings stay.
    #[must_use]
    pub fn changed_from(self, old: &Self) -> Option<Self> {
        fn changed<C: PartialEq>(new: Option<C>, old: Option<&C>) -> Option<C> {
            new.filter(|new| old != Some(new))
        }
        let changes = self != *old;
        changes.then(|| Self {
            wall_clock_us: self.wall_clock_us,
            gist: changed(self.gist, old.gist.as_ref()),
            ping: changed(self.ping, old.ping.as_ref()),
            qos: changed(self.qos, old.qos.as_ref()),
            rsvp: changed(self.rsvp, old.rsvp.as_ref()),
            boomerang: changed(self.boomerang, old.boomerang.as_ref()),
            natfw: changed(self.natfw, old.natfw.as_ref()),
            gist_nat: changed(self.gist_nat, old.gist_nat.as_ref()),
            casp: changed(self.casp, old.casp.as_ref()),
            mapping: changed(self.mapping, old.mapping.as_ref()),
            #[cfg(feature = "test-protocol")]
            beacon: changed(self.beacon, old.beacon.as_ref()),
            resources: self.resources,
        })
    }

    /// The protocols that a node with these settings runs.
    #[must_use]
    pub fn protocols(&self) -> Vec<ProtocolId> {
        self.members().places().filter_map(ProtocolId::at).collect()
    }

    /// The protocols that a node with these settings runs, with what they need.
    pub(crate) fn members(&self) -> Members {
        let Self {
            wall_clock_us: _,
            resources: _,
            gist,
            ping,
            qos,
            rsvp,
            boomerang,
            natfw,
            gist_nat,
            casp,
            mapping,
            #[cfg(feature = "test-protocol")]
            beacon,
        } = self;
        let all: [Option<Member>; ProtocolId::ALL.len()] = [
            member::<gist::Instance>(ProtocolId::Gist, gist.as_ref()),
            member::<ping::Instance>(ProtocolId::Ping, ping.as_ref()),
            member::<qos::Instance>(ProtocolId::Qos, qos.as_ref()),
            member::<rsvp::Instance>(ProtocolId::Rsvp, rsvp.as_ref()),
            member::<boomerang::Instance>(ProtocolId::Boomerang, boomerang.as_ref()),
            member::<natfw::Instance>(ProtocolId::Natfw, natfw.as_ref()),
            member::<gist_nat::Instance>(ProtocolId::GistNat, gist_nat.as_ref()),
            member::<casp::Instance>(ProtocolId::Casp, casp.as_ref()),
            member::<mapping::Instance>(ProtocolId::Mapping, mapping.as_ref()),
            #[cfg(feature = "test-protocol")]
            member::<beacon::Instance>(ProtocolId::Beacon, beacon.as_ref()),
        ];
        all.into_iter().flatten().collect()
    }
}
