//! Limits of links: grants, and refusals with their text.

use std::time::Duration;

use signalbox_core::IfIndex;
use signalbox_core::traffic::{ServiceClass, TrafficSpec};
use signalbox_resources::config::ServiceConfig;
use signalbox_resources::intserv::{ErrorTerms, RSpec};
use signalbox_resources::request::GuaranteedRequest;
use signalbox_resources::units::Share;
use signalbox_resources::{Cause, Config, GrantRequest, Rate};

use crate::support::*;

/// The link is full after 8 of 10 Mbit/s; a release makes room. RSVPIS-2211-4-01.
#[test]
fn a_link_gives_its_share_and_no_more() {
    let mut config = config();
    config.links[0].reservable = Share::percent(80);
    let mut resources = start(config);
    let first = admit(&mut resources, &request_of(1, 5));
    admit(&mut resources, &request_of(2, 3));
    let refused = resources.admit(NOW, &request_of(3, 1)).unwrap_err();
    assert_eq!(refused.to_string(), "eth1: share: 8 of 8 Mbit/s in use, 1 Mbit/s asked");
    assert_eq!((refused.cause(), refused.available), (Cause::Bandwidth, 0));
    resources.release(first.grant);
    resources.release(first.grant);
    let refused = resources.admit(NOW, &request_of(3, 6)).unwrap_err();
    assert_eq!(refused.available, 5 * MBIT);
    admit(&mut resources, &request_of(3, 5));
    assert_eq!(reserved(&resources), 8 * MBIT);
    let counters = resources.counters();
    assert_eq!((counters.admitted, counters.released, counters.refused_resources), (3, 1, 2));
}

#[test]
fn what_cannot_be_asked_is_refused_in_words() {
    let mut resources = start(config());
    let good = request_of(1, 1);
    let wide = TrafficSpec { max_packet: 1501, ..good.traffic };
    let cases: [(GrantRequest, &str, Cause); 12] = [
        (GrantRequest { ifindex: IfIndex(9), ..good.clone() }, "if9: no such interface", Cause::Interface),
        (
            GrantRequest { ifindex: ETH2, ..good.clone() },
            "eth2: capacity neither declared nor measured",
            Cause::Interface,
        ),
        (
            GrantRequest { filters: vec![], ..good.clone() },
            "request: no filter that says which packets",
            Cause::BadRequest,
        ),
        (
            GrantRequest { filters: (0..65).map(flow).collect(), ..good.clone() },
            "max_filters: all 64 in use",
            Cause::Full,
        ),
        (
            GrantRequest { traffic: TrafficSpec { rate: 0, ..good.traffic }, ..good.clone() },
            "request: token rate r: not a number from 1 to 40e12 octets a second",
            Cause::BadRequest,
        ),
        (
            GrantRequest { traffic: TrafficSpec { rate: u64::MAX, ..good.traffic }, ..good.clone() },
            "request: token rate r: not a number from 1 to 40e12 octets a second",
            Cause::BadRequest,
        ),
        (
            GrantRequest { traffic: wide, ..good.clone() },
            "eth1: mtu: packets of 1501 octets over 1500",
            Cause::Mtu,
        ),
        (
            GrantRequest { service: ServiceClass::Dscp(64), ..good.clone() },
            "request: a code point over 63",
            Cause::BadRequest,
        ),
        (
            GrantRequest { mark_dscp: Some(64), ..good.clone() },
            "request: a code point over 63",
            Cause::BadRequest,
        ),
        (
            at_priority(2, 1, good.clone()),
            "request: the setup priority is over the defending priority",
            Cause::BadRequest,
        ),
        (
            GrantRequest { service: ServiceClass::ControlledLoad, ..guaranteed(good.clone(), 1, 0) },
            "request: a service rate without guaranteed service",
            Cause::BadRequest,
        ),
        (
            guaranteed(request_of(1, 2), 1, 0),
            "request: service rate R: less than the token rate r",
            Cause::BadRequest,
        ),
    ];
    for (request, words, cause) in cases {
        let refused = resources.admit(NOW, &request).unwrap_err();
        assert_eq!((refused.to_string().as_str(), refused.cause()), (words, cause));
    }
    assert_eq!((reserved(&resources), resources.len()), (0, 0));
    assert!(resources.poll().is_none());
}

/// The limits: M above the MTU for either service; r and b in range but not supported. RSVPIS-2211-5-01,
/// RSVPIS-2211-5-02.
#[test]
fn packets_and_buckets_that_a_link_cannot_take_are_refused() {
    let mut resources = start(config());
    let long = TrafficSpec { max_packet: 9000, ..traffic(MBIT) };
    let words = "eth1: mtu: packets of 9000 octets over 1500";
    assert_eq!(refusal(&mut resources, &GrantRequest { traffic: long, ..request_of(1, 1) }), words);
    assert_eq!(
        refusal(&mut resources, &guaranteed(GrantRequest { traffic: long, ..request_of(1, 1) }, 1, 0)),
        words
    );
    let bad = [
        TrafficSpec { rate: 50_000_000_000_000, ..traffic(MBIT) },
        TrafficSpec { burst: 0, ..traffic(MBIT) },
        TrafficSpec { min_policed: 1501, ..traffic(MBIT) },
        TrafficSpec { peak: Some(0), ..traffic(MBIT) },
    ];
    for traffic in bad {
        for request in [
            GrantRequest { traffic, ..request_of(1, 1) },
            guaranteed(GrantRequest { traffic, ..request_of(1, 1) }, 1, 0),
        ] {
            assert_eq!(resources.admit(NOW, &request).unwrap_err().cause(), Cause::BadRequest, "{traffic:?}");
        }
    }
    let slow_peak = TrafficSpec { peak: Some(1), ..traffic(MBIT) };
    let refused =
        refusal(&mut resources, &guaranteed(GrantRequest { traffic: slow_peak, ..request_of(1, 1) }, 1, 0));
    assert_eq!(refused, "request: peak rate p: less than the token rate r");
    // Controlled load ignores the peak rate.
    admit(&mut resources, &GrantRequest { traffic: slow_peak, ..request_of(1, 1) });
}

/// With p = r and with p unknown, controlled load costs the same. RSVPIS-2211-5-04.
#[test]
fn controlled_load_costs_its_token_rate() {
    let mut resources = start(config());
    admit(&mut resources, &request_of(1, 4));
    let peak = TrafficSpec { peak: Some(4 * MBIT), ..traffic(4 * MBIT) };
    admit(&mut resources, &GrantRequest { traffic: peak, ..request_of(2, 4) });
    assert_eq!(reserved(&resources), 8 * MBIT);
}

/// Limits of rate, buffer and number of reservations. RSVPIS-2211-4-01.
#[test]
fn each_limit_of_a_service_counts() {
    let mut config = config();
    let link = &mut config.links[0];
    link.controlled_load.max_share = Some(Share::percent(50));
    link.controlled_load.max_each = Some(Rate(3 * MBIT));
    link.guaranteed = ServiceConfig { offered: false, ..link.guaranteed };
    link.buffer = Some(35_000);
    link.max_reservations = Some(3);
    let mut resources = start(config);
    assert_eq!(
        refusal(&mut resources, &request_of(1, 4)),
        "eth1: controlled-load: rate 4 Mbit/s over 3 Mbit/s for each"
    );
    admit(&mut resources, &request_of(1, 3));
    assert_eq!(
        refusal(&mut resources, &request_of(2, 3)),
        "eth1: controlled-load: 3 of 5 Mbit/s in use, 3 Mbit/s asked"
    );
    assert_eq!(refusal(&mut resources, &guaranteed(request_of(2, 1), 1, 0)), "eth1: guaranteed: not offered");
    let best = GrantRequest { service: ServiceClass::Dscp(46), ..request_of(2, 2) };
    let large = TrafficSpec { burst: 30_000, ..best.traffic };
    assert_eq!(
        refusal(&mut resources, &GrantRequest { traffic: large, ..best.clone() }),
        "eth1: buffer: 10000 of 35000 octets in use, 30000 asked"
    );
    admit(&mut resources, &best);
    admit(&mut resources, &request_of(3, 1));
    let small = TrafficSpec { burst: 1_500, ..traffic(MBIT) };
    assert_eq!(
        refusal(&mut resources, &GrantRequest { traffic: small, ..request_of(4, 1) }),
        "eth1: max_reservations: all 3 in use"
    );
    let available = resources.available(ETH1, ServiceClass::ControlledLoad).unwrap();
    assert_eq!((available.rate, available.buffer, available.mtu), (MBIT, Some(5_000), 1500));
    assert_eq!(available.terms.d, 1200);
    assert!(resources.available(ETH1, ServiceClass::Guaranteed).is_none());
    assert!(resources.available(ETH2, ServiceClass::ControlledLoad).is_none());
}

#[test]
fn a_full_table_refuses() {
    let mut resources = start(Config { max_reservations: 2, ..config() });
    admit(&mut resources, &request_of(1, 1));
    let second = admit(&mut resources, &request_of(2, 1));
    assert_eq!(refusal(&mut resources, &request_of(3, 1)), "max_reservations: all 2 in use");
    // A change of a reservation needs no further entry.
    resources.modify(NOW, second.grant, &request_of(3, 1)).unwrap();
    assert_eq!(resources.counters().refused_full, 1);
}

/// Headers of 14 octets on packets of 100 make 10 Mbit/s of payload 11.4. RSVPIS-2212-Guidelines-02.
#[test]
fn link_headers_count() {
    let mut config = config();
    config.links[0].overhead = 14;
    let mut resources = start(config);
    assert_eq!(
        refusal(&mut resources, &request_of(1, 10)),
        "eth1: share: 0 of 10 Mbit/s in use, 11.4 Mbit/s asked"
    );
    admit(&mut resources, &request_of(1, 5));
    assert_eq!(reserved(&resources), 5 * MBIT + 5 * MBIT * 14 / 100);
    // The kernel serves and polices the payload.
    let mut kernel = Kernel::default();
    kernel.drain(&mut resources);
    assert_eq!(kernel.sum(ETH1), 5 * MBIT);
}

/// Guaranteed service costs R, and a buffer of b + Csum + Dsum·R: 10,000 + 1,500 + 1,200 µs of 4 Mbit/s = 600.
#[test]
fn guaranteed_service_costs_its_service_rate_and_buffer() {
    let mut config = config();
    config.links[0].buffer = Some(12_100);
    let mut resources = start(config.clone());
    let request = guaranteed(request_of(1, 2), 4, 0);
    let admitted = admit(&mut resources, &request);
    assert_eq!(admitted.rspec, Some(request.guaranteed.unwrap().rspec));
    assert_eq!(reserved(&resources), 4 * MBIT);
    let mut kernel = Kernel::default();
    kernel.drain(&mut resources);
    assert_eq!(kernel.sum(ETH1), 4 * MBIT);
    config.links[0].buffer = Some(12_099);
    assert_eq!(refusal(&mut start(config), &request), "eth1: buffer: 0 of 12099 octets in use, 12100 asked");
}

/// The link has 6 of 10 Mbit/s left; R = 8 is granted with the slack only. The refresh gets the same grant, though the
/// link is empty by then. RSVPIS-2212-Ordering-04, RSVPIS-2212-Ordering-05.
#[test]
fn slack_makes_room_and_is_kept() {
    let mut resources = start(config());
    let first = admit(&mut resources, &request_of(1, 4));
    // b + Ctot = 11,500 octets: from 1,000,000 to 750,000 octets a second takes 3,834 µs.
    let tight = guaranteed(request_of(2, 2), 8, 3_833);
    assert!(resources.admit(NOW, &tight).is_err());
    let enough = guaranteed(request_of(2, 2), 8, 4_000);
    let admitted = admit(&mut resources, &enough);
    let given = RSpec::new(750_000.0, 166).unwrap();
    assert_eq!(admitted.rspec, Some(given));
    assert_eq!((reserved(&resources), resources.counters().slack_used), (10 * MBIT, 1));
    resources.release(first.grant);
    let again = resources.modify(NOW, admitted.grant, &enough).unwrap();
    assert_eq!((again.rspec, reserved(&resources)), (Some(given), 6 * MBIT));
}

/// The node passes on unused slack, also when the request changes.
#[test]
fn slack_that_was_not_used_is_passed_on() {
    let mut resources = start(config());
    let first = admit(&mut resources, &guaranteed(request_of(1, 2), 4, 1_000));
    assert_eq!(first.rspec, Some(RSpec::new(500_000.0, 1_000).unwrap()));
    let changed = resources.modify(NOW, first.grant, &guaranteed(request_of(1, 2), 4, 2_000)).unwrap();
    assert_eq!(changed.rspec, Some(RSpec::new(500_000.0, 2_000).unwrap()));
}

#[test]
fn a_dry_run_changes_nothing_and_explains() {
    let mut resources = start(config());
    let good = resources.dry_run(NOW, &request_of(1, 6));
    assert!(good.rule.is_none() && good.result.unwrap().victims.is_empty());
    assert!(resources.is_empty() && resources.poll().is_none());
    let first = admit(&mut resources, &request_of(1, 6));
    let refused = resources.dry_run(NOW, &request_of(2, 6)).result.unwrap_err();
    assert_eq!(refused.to_string(), "eth1: share: 6 of 10 Mbit/s in use, 6 Mbit/s asked");
    assert!(resources.dry_modify(NOW, first.grant, &request_of(1, 10)).result.is_ok());
    assert_eq!(resources.counters().refused_resources, 0);
}

#[test]
fn views_say_what_stands() {
    let mut resources = start(config());
    let mut request = guaranteed(request_of(1, 2), 4, 7);
    request.lifetime = Some(Duration::from_secs(30));
    request.guaranteed =
        Some(GuaranteedRequest { terms: ErrorTerms::default(), ..request.guaranteed.unwrap() });
    let grant = admit(&mut resources, &request).grant;
    let all: Vec<_> = resources.reservations().collect();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].grant, all[0].owner, all[0].interface), (grant, request.owner, "eth1"));
    assert_eq!((all[0].charged, all[0].traffic, all[0].since), (4 * MBIT, request.traffic, NOW));
    assert_eq!(all[0].rspec, Some(request.guaranteed.unwrap().rspec));
    assert_eq!(all[0].filters, [flow(1)]);
    let links: Vec<_> = resources.links().collect();
    assert_eq!((links.len(), links[0].name, links[0].reservations, links[0].own_queues), (2, "eth1", 1, 1));
    assert_eq!(links[0].services[0].reserved, 4 * MBIT);
    assert_eq!((links[1].capacity, links[1].share), (None, 0));
}
