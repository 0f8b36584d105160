//! Guaranteed service at a link: the service rate of its queue, the conforming traffic, and the delay bound.

use proptest::prelude::*;
use signalbox_core::node::Interface;
use signalbox_core::traffic::{Reservation, ServiceClass};
use signalbox_resources::config::{ANY_LINK, ServiceConfig};
use signalbox_resources::intserv::{ErrorTerms, Latency, LocalTerms, RSpec, SpecError, TSpec};
use signalbox_resources::request::GuaranteedRequest;
use signalbox_resources::units::Span;
use signalbox_resources::{Config, GrantRequest, Policing};

use crate::support::*;

/// The reservation that is installed for a request.
fn installed(request: &GrantRequest) -> Reservation {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    admit(&mut resources, request);
    kernel.drain(&mut resources);
    kernel.installed.into_values().next().unwrap()
}

/// A request for one Mbit/s served at two, behind a path with these error terms.
fn behind(terms: ErrorTerms, policing: Policing) -> GrantRequest {
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let rspec = RSpec::new((2 * MBIT) as f32, 0).unwrap();
    let guaranteed = Some(GuaranteedRequest { rspec, terms });
    GrantRequest { service: ServiceClass::Guaranteed, guaranteed, policing, ..request_of(1, 1) }
}

const TERMS: ErrorTerms = ErrorTerms { c_tot: 9000, d_tot: 90_000, c_sum: 3000, d_sum: 40_000 };
const EDGE: Policing = Policing { entry: true, merge: false, branch: false };
const INSIDE: Policing = Policing { entry: false, ..EDGE };

/// RSVPIS-2212-DataHandling-01: the queue is guaranteed R, for any r; nevertheless r decides the conforming traffic.
#[test]
fn a_queue_is_served_at_the_service_rate() {
    let reservation = installed(&behind(ErrorTerms::default(), EDGE));
    assert_eq!((reservation.served, reservation.rate()), (Some(2 * MBIT), 2 * MBIT));
    assert_eq!(reservation.traffic, traffic(MBIT));
    let equal = GrantRequest { guaranteed: None, ..behind(ErrorTerms::default(), EDGE) };
    assert_eq!((installed(&equal).served, installed(&equal).rate()), (None, MBIT));
    assert_eq!(installed(&request_of(1, 1)).served, None);
}

/// RSVPIS-2212-Policing-01, RSVPIS-2212-Policing-03, RSVPIS-2212-Policing-04: the token bucket itself applies at the
/// edge only. Everywhere else, also where flows merge and branch, the bucket covers the bursts that queues on the path
/// cause, b + Csum + Dsum·r, and only traffic beyond it is not conforming.
#[test]
fn inside_the_network_queues_are_allowed_for() {
    let pushed = 10_000 + 3000 + 5000; // b, Csum, and 40 ms of 125 000 octets a second
    let edge = installed(&behind(TERMS, EDGE)).traffic;
    assert_eq!((edge.burst, edge.rate), (10_000, MBIT));
    for policing in [INSIDE, Policing { merge: true, ..INSIDE }, Policing { branch: true, ..INSIDE }] {
        let inside = installed(&behind(TERMS, policing)).traffic;
        assert_eq!((inside.burst, inside.rate), (pushed, MBIT), "{policing:?}");
    }
    // Queues hide the peak rate; without queues it applies.
    let mut fast = behind(TERMS, INSIDE);
    fast.traffic.peak = Some(3 * MBIT);
    assert_eq!(installed(&fast).traffic.peak, None);
    assert_eq!(installed(&GrantRequest { policing: EDGE, ..fast.clone() }).traffic.peak, Some(3 * MBIT));
    fast.guaranteed =
        fast.guaranteed.map(|asked| GuaranteedRequest { terms: ErrorTerms::default(), ..asked });
    assert_eq!(installed(&fast).traffic.peak, Some(3 * MBIT));
    // Values beyond the maximum count as the maximum.
    let endless = ErrorTerms { c_sum: u32::MAX, d_sum: u32::MAX, ..TERMS };
    assert_eq!(installed(&behind(endless, INSIDE)).traffic.burst, u32::MAX);
}

/// RSVPIS-2211-7-04: each node polices controlled load for itself, at any position on the path.
#[test]
fn controlled_load_is_policed_everywhere() {
    let inside = installed(&GrantRequest { policing: INSIDE, ..request_of(1, 1) });
    assert_eq!(inside.traffic, traffic(MBIT));
}

/// A flow that moves from the edge to the inside, or back, gets other policing; all else stays the same.
#[test]
fn where_a_flow_is_policed_can_change() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let grant = admit(&mut resources, &behind(TERMS, EDGE)).grant;
    resources.modify(NOW, grant, &behind(TERMS, INSIDE)).unwrap();
    kernel.drain(&mut resources);
    let view = resources.reservation(grant).unwrap();
    assert_eq!((view.policing, view.charged), (INSIDE, 2 * MBIT));
    assert_eq!(kernel.installed.values().next().unwrap().traffic.burst, 18_000);
}

/// RSVPIS-2210-2.3.2-05, RSVPIS-2215-3.5-01: a service may accept smaller packets than its link, never larger ones.
#[test]
fn a_service_may_take_smaller_packets_than_its_link() {
    let mut link = link("eth1", 10);
    link.guaranteed = ServiceConfig { max_packet: Some(1000), ..link.guaranteed };
    link.controlled_load = ServiceConfig { max_packet: Some(9000), ..link.controlled_load };
    let mut resources = start(Config { links: vec![link], ..Config::default() });
    let mtu = |service| {
        let available = resources.available(ETH1, service).unwrap();
        (available.mtu, available.link_mtu)
    };
    assert_eq!(mtu(ServiceClass::Guaranteed), (1000, 1500));
    assert_eq!(mtu(ServiceClass::ControlledLoad), (1500, 1500));
    let mut large = behind(ErrorTerms::default(), EDGE);
    large.traffic.max_packet = 1001;
    assert_eq!(refusal(&mut resources, &large), "eth1: mtu: packets of 1001 octets over 1000");
    large.traffic.max_packet = 1000;
    admit(&mut resources, &large);
    let mut larger = request_of(2, 1);
    larger.traffic.max_packet = 1501;
    assert_eq!(refusal(&mut resources, &larger), "eth1: mtu: packets of 1501 octets over 1500");
}

/// RSVPIS-2215-1-01: the latency is configured, otherwise it is indeterminate.
#[test]
fn latency_is_what_was_configured_or_indeterminate() {
    let latency = |text: Option<&str>| {
        let mut link = link("eth1", 10);
        link.latency = text.map(|text| text.parse().unwrap());
        start(Config { links: vec![link], ..Config::default() })
            .available(ETH1, ServiceClass::ControlledLoad)
            .unwrap()
            .latency
    };
    assert_eq!(latency(None), Latency::INDETERMINATE);
    assert_eq!((latency(Some("250us")), latency(Some("5ms"))), (Latency(250), Latency(5000)));
    for wrong in ["0us", "269s"] {
        let mut link = link("eth1", 10);
        link.latency = Some(wrong.parse::<Span>().unwrap());
        let error = Config { links: vec![link], ..Config::default() }.validated().unwrap_err();
        assert_eq!(error.field, "link[1] 'eth1'.latency");
    }
}

/// RSVPIS-2215-3.1-01: the services of a tunnel are unknown, so it grants no reservation unless the configuration names
/// it.
#[test]
fn a_tunnel_gives_nothing_unless_it_is_named() {
    let tunnel = Interface { tunnel: true, ..interface(ETH1, "tun0") };
    for (name, gives) in [(ANY_LINK, false), ("tun0", true)] {
        let mut resources = start(Config { links: vec![link(name, 10)], ..Config::default() });
        resources.interfaces(std::slice::from_ref(&tunnel));
        let available = resources.available(ETH1, ServiceClass::ControlledLoad);
        assert_eq!(available.is_some(), gives, "{name}");
        assert_eq!(resources.admit(NOW, &request_of(1, 1)).is_ok(), gives, "{name}");
    }
}

/// RSVPIS-2212-Invocation-01: each value that guaranteed service refuses.
#[test]
fn what_cannot_be_asked_for_is_refused() {
    let tspec = |r, b, p, m, max| TSpec::new(r, b, p, m, max);
    assert_eq!(tspec(0.0, 1.0, 1.0, 1, 1), Err(SpecError::Rate));
    assert_eq!(tspec(1.0, 0.0, 1.0, 1, 1), Err(SpecError::Bucket));
    assert!(tspec(1.0, 1.0, 1.0, 0, 1).is_ok());
    assert_eq!(tspec(1.0, 1.0, 1.0, 0, 0), Err(SpecError::MaxPacket));
    assert_eq!(tspec(1.0, 1.0, 1.0, 1, 0), Err(SpecError::MaxPacket));
    assert_eq!(tspec(1.0, 1.0, 1.0, 2, 1), Err(SpecError::MaxPacket));
    assert_eq!(tspec(-1.0, 1.0, 1.0, 1, 1), Err(SpecError::Rate));
    assert_eq!(RSpec::new(0.0, 0), Err(SpecError::ServiceRate));
    let slow = tspec(2.0, 1.0, 1.0, 1, 1).unwrap();
    assert_eq!(RSpec::new(2.0, 0).unwrap().checked(&slow), Err(SpecError::PeakBelowRate));
    let plain = tspec(2.0, 1.0, 2.0, 1, 1).unwrap();
    assert_eq!(RSpec::new(1.0, 0).unwrap().checked(&plain), Err(SpecError::ServiceBelowRate));
    let mut large = behind(ErrorTerms::default(), EDGE);
    large.traffic.max_packet = 1501;
    assert!(refusal(&mut start(config()), &large).starts_with("eth1: mtu"));
}

proptest! {
    /// RSVPIS-2212-DataHandling-01: a queue that is served packet by packet at R, at a link that has always just begun
    /// to send the largest packet of another flow, delays no packet of a conforming flow by more than b/R + C/R + D,
    /// with the C and D that the link exports.
    #[test]
    fn no_conforming_packet_waits_longer_than_the_bound(
        packets in prop::collection::vec((64u32..=1500, 0u32..3), 1..200),
        rate in 2_000u32..1_000_000,
        over in 1u32..4,
        bucket in 1500u32..40_000,
    ) {
        const CAPACITY: u64 = 10 * MBIT;
        const MTU: u32 = 1500;
        let (r, b) = (f64::from(rate), f64::from(bucket));
        let service = (r * f64::from(over)).min(10.0 * 125_000.0);
        let terms = LocalTerms::fair_queue(CAPACITY, MTU);
        let bound = b / service + f64::from(terms.c) / service + f64::from(terms.d) / 1e6;
        let (mut now, mut tokens, mut free) = (0.0_f64, b, 0.0_f64);
        for (octets, pause) in packets {
            // The packet is sent as soon as the bucket allows it, or later.
            let wait = ((f64::from(octets) - tokens).max(0.0)) / r + f64::from(pause) * 700.0 / r;
            now += wait;
            tokens = (tokens + wait * r).min(b) - f64::from(octets);
            free = now.max(free) + f64::from(octets) / service;
            let delay = free - now + f64::from(MTU) / (CAPACITY as f64);
            prop_assert!(delay <= bound + 1e-9, "{delay} s over {bound} s");
        }
    }
}
