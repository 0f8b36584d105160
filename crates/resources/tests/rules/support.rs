//! Short forms of requests, and a simulated kernel that checks the share of each link.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use signalbox_core::node::{Interface, Prefix};
use signalbox_core::traffic::{FlowFilter, Reservation, ReservationId, ServiceClass, TrafficSpec};
use signalbox_core::{IfIndex, ReserverId, Time};
use signalbox_resources::config::LinkConfig;
use signalbox_resources::intserv::{ErrorTerms, RSpec};
use signalbox_resources::{
    Admitted, Config, GrantId, GrantRequest, LostWhy, Owner, Priority, Rate, Requester, ResourceOutput,
    Resources,
};

/// A rate of one Mbit/s in octets a second.
pub(crate) const MBIT: u64 = 125_000;
pub(crate) const ETH1: IfIndex = IfIndex(2);
pub(crate) const ETH2: IfIndex = IfIndex(3);
pub(crate) const NOW: Time = Time::from_secs(1);

pub(crate) fn interface(ifindex: IfIndex, name: &str) -> Interface {
    Interface { ifindex, name: name.to_owned(), up: true, mtu: 1500, tunnel: false, addresses: Vec::new() }
}

/// A link that can be reserved completely.
pub(crate) fn link(name: &str, mbit: u64) -> LinkConfig {
    LinkConfig { reservable: "100%".parse().unwrap(), ..LinkConfig::new(name, Some(Rate(mbit * MBIT))) }
}

/// A configuration with `eth1` of 10 Mbit/s, all of it reservable.
pub(crate) fn config() -> Config {
    Config { links: vec![link("eth1", 10)], ..Config::default() }
}

pub(crate) fn start(config: Config) -> Resources {
    let mut resources = Resources::new(config, 0, [7; 32]).unwrap();
    resources.interfaces(&[interface(ETH1, "eth1"), interface(ETH2, "eth2")]);
    resources
}

pub(crate) fn flow(port: u16) -> FlowFilter {
    let host = |last| Prefix::host(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
    FlowFilter { protocol: Some(17), dst_port: Some(port), ..FlowFilter::between(host(1), host(2)) }
}

pub(crate) fn traffic(rate: u64) -> TrafficSpec {
    TrafficSpec { rate, burst: 10_000, peak: None, min_policed: 100, max_packet: 1500 }
}

/// A request for controlled load with a rate in Mbit/s, for the flow to this port, which is the owner's key too.
pub(crate) fn request_of(port: u16, mbit: u64) -> GrantRequest {
    let owner = Owner { protocol: ReserverId(240), key: u64::from(port) };
    let requester = Requester::at(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    GrantRequest::new(owner, requester, ETH1, flow(port), traffic(mbit * MBIT))
}

pub(crate) fn at_priority(setup: u16, defending: u16, request: GrantRequest) -> GrantRequest {
    GrantRequest { priority: Priority { setup, defending }, ..request }
}

/// Guaranteed service with this rate (Mbit/s) and slack (µs), directly after the sender.
pub(crate) fn guaranteed(request: GrantRequest, mbit: u64, slack: u32) -> GrantRequest {
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let rspec = RSpec::new((mbit * MBIT) as f32, slack).unwrap();
    let terms = ErrorTerms::default();
    GrantRequest {
        service: ServiceClass::Guaranteed,
        guaranteed: Some(signalbox_resources::request::GuaranteedRequest { rspec, terms }),
        ..request
    }
}

/// The text of the refusal of a request.
pub(crate) fn refusal(resources: &mut Resources, request: &GrantRequest) -> String {
    resources.admit(NOW, request).unwrap_err().to_string()
}

pub(crate) fn admit(resources: &mut Resources, request: &GrantRequest) -> Admitted {
    resources.admit(NOW, request).unwrap_or_else(|refusal| panic!("{refusal}"))
}

pub(crate) fn reserved(resources: &Resources) -> u64 {
    resources.links().find(|link| link.ifindex == ETH1).unwrap().reserved
}

/// Reports to owners, as `(key, grant, why)`.
pub(crate) type Lost = (u64, GrantId, LostWhy);

/// Carries out all outputs in order.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) installed: BTreeMap<ReservationId, Reservation>,
    /// Reservations whose answer is still missing.
    pub(crate) owed: Vec<ReservationId>,
    /// Reservations that were reduced, as `(key, remaining rate)`.
    pub(crate) reduced: Vec<(u64, u64)>,
}

impl Kernel {
    /// Carries out one output. The result is `None` if there is no output; the inner option is a loss.
    pub(crate) fn step(&mut self, resources: &mut Resources) -> Option<Option<Lost>> {
        match resources.poll()? {
            ResourceOutput::Install { id, reservation } => {
                assert!(!reservation.filters.is_empty());
                self.installed.insert(id, reservation.clone());
                self.owed.push(id);
                Some(None)
            }
            ResourceOutput::Remove { id } => {
                assert!(self.installed.remove(&id).is_some(), "{id} was never installed");
                Some(None)
            }
            ResourceOutput::Reduced { owner, rate, .. } => {
                self.reduced.push((owner.key, rate));
                Some(None)
            }
            ResourceOutput::Lost { owner, grant, why } => Some(Some((owner.key, grant, why))),
        }
    }

    /// Carries out all outputs. Returns the losses.
    pub(crate) fn drain(&mut self, resources: &mut Resources) -> Vec<Lost> {
        let mut lost = Vec::new();
        while let Some(one) = self.step(resources) {
            lost.extend(one);
        }
        lost
    }

    pub(crate) fn answer_all(&mut self, resources: &mut Resources) {
        for id in self.owed.drain(..) {
            resources.installed(id, Ok(()));
        }
    }

    /// The sum of rates at an interface, octets a second.
    pub(crate) fn sum(&self, ifindex: IfIndex) -> u64 {
        let here = self.installed.values().filter(|reservation| reservation.ifindex == ifindex);
        here.map(Reservation::rate).sum()
    }
}
