//! The address by which hosts outside reach mappings, which programs ask for before they ask for a port.
//!
//! It is that of the outermost NAT. This node learns it by a request of its own that opens nothing: a reservation for the discard port of
//! its address inside.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::node::Interface;
use signalbox_core::{IfIndex, Time};
use signalbox_natfw::engine::{HostEvent, HostRequest};
use signalbox_natfw::wire::Wish;

use super::Config;

/// The identifier of the probe. No mapping has it.
pub(super) const ID: u64 = u64::MAX;

const UDP: u8 = 17;
const DISCARD: u16 = 9;

/// How long an answer is waited for, and the time after a refusal until the path is asked again.
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// There is no address to ask for.
    #[default]
    Idle,
    /// It is asked for at this time.
    Due(Time),
    /// The answer has time until then.
    Asked(Time),
    Standing,
}

/// The probe of the path outward.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// The address of this node inside, and its interface.
    from: Option<(IpAddr, IfIndex)>,
    stage: Stage,
}

/// Where a probe comes from: the first IPv4 address of the first interface of these names.
pub(super) fn place(interfaces: &[Interface], names: &[String]) -> Option<(IpAddr, IfIndex)> {
    let served = interfaces.iter().filter(|one| one.up && names.contains(&one.name));
    served
        .flat_map(|one| one.addresses.iter().map(|address| (*address, one.ifindex)))
        .find(|(address, _)| address.is_ipv4())
}

impl Probe {
    /// Whether it asked from another place before.
    pub(super) fn is_elsewhere(&self, from: Option<(IpAddr, IfIndex)>) -> bool {
        self.from.is_some() && self.from != from
    }

    /// Asks from this place at once, unless it does. The result is what is known of the address outside, if that changes.
    pub(super) fn start(&mut self, from: Option<(IpAddr, IfIndex)>) -> Option<Option<Ipv4Addr>> {
        if self.from == from {
            return None;
        }
        let stood = self.stage == Stage::Standing;
        self.from = from;
        self.stage = if from.is_some() { Stage::Due(Time::ZERO) } else { Stage::Idle };
        stood.then_some(None)
    }

    /// The request that is due.
    pub(super) fn ask(&mut self, now: Time, config: &Config) -> Option<HostRequest> {
        let ((host, ifindex), Stage::Due(at)) = (self.from?, self.stage) else { return None };
        if at > now {
            return None;
        }
        self.stage = Stage::Asked(now + PATIENCE);
        let (protocol, port, wish) = (UDP, DISCARD, Wish::default());
        Some(HostRequest { host, protocol, port, ifindex, towards: config.towards(host), wish })
    }

    /// Takes what became of the request. The result is what is known of the address outside.
    pub(super) fn answered(&mut self, now: Time, event: &HostEvent) -> Option<Option<Ipv4Addr>> {
        match event {
            HostEvent::Granted(place) => {
                self.stage = Stage::Standing;
                match place.ip() {
                    IpAddr::V4(v4) => Some(Some(v4)),
                    IpAddr::V6(_) => Some(None),
                }
            }
            HostEvent::Refused { failure, .. } => {
                tracing::debug!(reason = %failure, "no address outside is known");
                self.stage = Stage::Due(now + AGAIN);
                Some(None)
            }
            HostEvent::Lost => {
                self.stage = Stage::Due(now);
                Some(None)
            }
        }
    }

    /// Asks again where no answer came.
    pub(super) fn timer(&mut self, now: Time) -> Option<Option<Ipv4Addr>> {
        let Stage::Asked(until) = self.stage else { return None };
        if until > now {
            return None;
        }
        self.stage = Stage::Due(now);
        Some(None)
    }

    pub(super) const fn next_deadline(&self) -> Option<Time> {
        match self.stage {
            Stage::Idle | Stage::Standing => None,
            Stage::Due(at) | Stage::Asked(at) => Some(at),
        }
    }
}
