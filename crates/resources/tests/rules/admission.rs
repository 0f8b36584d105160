//! Limits of links: grants, refusals with their text, and unchanged reservations.

use std::time::Duration;

use signalbox_core::traffic::{Excess, ReserveError, ServiceClass, TrafficSpec, Treatment};
use signalbox_core::{IfIndex, Key, ReserverId};
use signalbox_resources::config::{LinkConfig, Queue, ServiceConfig};
use signalbox_resources::intserv::{ErrorTerms, RSpec};
use signalbox_resources::request::{GuaranteedRequest, Session};
use signalbox_resources::units::Share;
use signalbox_resources::{Cause, Config, GrantRequest, LostWhy, Rate, ResourceOutput};

use crate::support::*;

/// The link is full after 8 of 10 Mbit/s; a release makes room. RSVPIS-2211-4-01.
#[test]
fn a_link_gives_its_share_and_no_more() {
    let mut config = config();
    config.links[0].reservable = Share::percent(80);
    let mut resources = start(config);
    let first = admit(&mut resources, &ask(1, 5));
    admit(&mut resources, &ask(2, 3));
    let refused = resources.admit(NOW, &ask(3, 1)).unwrap_err();
    assert_eq!(refused.to_string(), "eth1: share: 8 of 8 Mbit/s in use, 1 Mbit/s asked");
    assert_eq!((refused.cause(), refused.available), (Cause::Bandwidth, 0));
    resources.release(first.grant);
    resources.release(first.grant);
    let refused = resources.admit(NOW, &ask(3, 6)).unwrap_err();
    assert_eq!(refused.available, 5 * MBIT);
    admit(&mut resources, &ask(3, 5));
    assert_eq!(reserved(&resources), 8 * MBIT);
    let counters = resources.counters();
    assert_eq!((counters.admitted, counters.released, counters.refused_resources), (3, 1, 2));
}

#[test]
fn what_cannot_be_asked_is_refused_in_words() {
    let mut resources = start(config());
    let good = ask(1, 1);
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
            guaranteed(ask(1, 2), 1, 0),
            "request: service rate R: less than the token rate r",
            Cause::BadRequest,
        ),
    ];
    for (ask, words, cause) in cases {
        let refused = resources.admit(NOW, &ask).unwrap_err();
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
    assert_eq!(refusal(&mut resources, &GrantRequest { traffic: long, ..ask(1, 1) }), words);
    assert_eq!(
        refusal(&mut resources, &guaranteed(GrantRequest { traffic: long, ..ask(1, 1) }, 1, 0)),
        words
    );
    let bad = [
        TrafficSpec { rate: 50_000_000_000_000, ..traffic(MBIT) },
        TrafficSpec { burst: 0, ..traffic(MBIT) },
        TrafficSpec { min_policed: 1501, ..traffic(MBIT) },
        TrafficSpec { peak: Some(0), ..traffic(MBIT) },
    ];
    for traffic in bad {
        for ask in
            [GrantRequest { traffic, ..ask(1, 1) }, guaranteed(GrantRequest { traffic, ..ask(1, 1) }, 1, 0)]
        {
            assert_eq!(resources.admit(NOW, &ask).unwrap_err().cause(), Cause::BadRequest, "{traffic:?}");
        }
    }
    let slow_peak = TrafficSpec { peak: Some(1), ..traffic(MBIT) };
    let refused =
        refusal(&mut resources, &guaranteed(GrantRequest { traffic: slow_peak, ..ask(1, 1) }, 1, 0));
    assert_eq!(refused, "request: peak rate p: less than the token rate r");
    // Controlled load ignores the peak rate.
    admit(&mut resources, &GrantRequest { traffic: slow_peak, ..ask(1, 1) });
}

/// With p = r and with p unknown, controlled load costs the same. RSVPIS-2211-5-04.
#[test]
fn controlled_load_costs_its_token_rate() {
    let mut resources = start(config());
    admit(&mut resources, &ask(1, 4));
    let peak = TrafficSpec { peak: Some(4 * MBIT), ..traffic(4 * MBIT) };
    admit(&mut resources, &GrantRequest { traffic: peak, ..ask(2, 4) });
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
        refusal(&mut resources, &ask(1, 4)),
        "eth1: controlled-load: rate 4 Mbit/s over 3 Mbit/s for each"
    );
    admit(&mut resources, &ask(1, 3));
    assert_eq!(
        refusal(&mut resources, &ask(2, 3)),
        "eth1: controlled-load: 3 of 5 Mbit/s in use, 3 Mbit/s asked"
    );
    assert_eq!(refusal(&mut resources, &guaranteed(ask(2, 1), 1, 0)), "eth1: guaranteed: not offered");
    let best = GrantRequest { service: ServiceClass::Dscp(46), ..ask(2, 2) };
    let large = TrafficSpec { burst: 30_000, ..best.traffic };
    assert_eq!(
        refusal(&mut resources, &GrantRequest { traffic: large, ..best.clone() }),
        "eth1: buffer: 10000 of 35000 octets in use, 30000 asked"
    );
    admit(&mut resources, &best);
    admit(&mut resources, &ask(3, 1));
    let small = TrafficSpec { burst: 1_500, ..traffic(MBIT) };
    assert_eq!(
        refusal(&mut resources, &GrantRequest { traffic: small, ..ask(4, 1) }),
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
    admit(&mut resources, &ask(1, 1));
    let second = admit(&mut resources, &ask(2, 1));
    assert_eq!(refusal(&mut resources, &ask(3, 1)), "max_reservations: all 2 in use");
    // A change of a reservation needs no further entry.
    resources.modify(NOW, second.grant, &ask(3, 1)).unwrap();
    assert_eq!(resources.counters().refused_full, 1);
}

/// Headers of 14 octets on packets of 100 make 10 Mbit/s of payload 11.4. RSVPIS-2212-Guidelines-02.
#[test]
fn link_headers_count() {
    let mut config = config();
    config.links[0].overhead = 14;
    let mut resources = start(config);
    assert_eq!(refusal(&mut resources, &ask(1, 10)), "eth1: share: 0 of 10 Mbit/s in use, 11.4 Mbit/s asked");
    admit(&mut resources, &ask(1, 5));
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
    let ask = guaranteed(ask(1, 2), 4, 0);
    let admitted = admit(&mut resources, &ask);
    assert_eq!(admitted.rspec, Some(ask.guaranteed.unwrap().rspec));
    assert_eq!(reserved(&resources), 4 * MBIT);
    let mut kernel = Kernel::default();
    kernel.drain(&mut resources);
    assert_eq!(kernel.sum(ETH1), 4 * MBIT);
    config.links[0].buffer = Some(12_099);
    assert_eq!(refusal(&mut start(config), &ask), "eth1: buffer: 0 of 12099 octets in use, 12100 asked");
}

/// The link has 6 of 10 Mbit/s left; R = 8 is granted with the slack only. The refresh gets the same grant, though the
/// link is empty by then. RSVPIS-2212-Ordering-04, RSVPIS-2212-Ordering-05.
#[test]
fn slack_makes_room_and_is_kept() {
    let mut resources = start(config());
    let first = admit(&mut resources, &ask(1, 4));
    // b + Ctot = 11,500 octets: from 1,000,000 to 750,000 octets a second takes 3,834 µs.
    let tight = guaranteed(ask(2, 2), 8, 3_833);
    assert!(resources.admit(NOW, &tight).is_err());
    let enough = guaranteed(ask(2, 2), 8, 4_000);
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
    let first = admit(&mut resources, &guaranteed(ask(1, 2), 4, 1_000));
    assert_eq!(first.rspec, Some(RSpec::new(500_000.0, 1_000).unwrap()));
    let changed = resources.modify(NOW, first.grant, &guaranteed(ask(1, 2), 4, 2_000)).unwrap();
    assert_eq!(changed.rspec, Some(RSpec::new(500_000.0, 2_000).unwrap()));
}

/// RSVPIS-2211-5-03, RSVPIS-2212-Invocation-04: a smaller request is never refused, even if no new request would be
/// granted now.
#[test]
fn less_is_never_refused() {
    let mut resources = start(config());
    let load = admit(&mut resources, &ask(1, 4));
    let sure = admit(&mut resources, &guaranteed(ask(2, 2), 6, 0));
    resources.interfaces(&[signalbox_core::node::Interface { up: false, ..interface(ETH1, "eth1") }]);
    assert_eq!(refusal(&mut resources, &ask(3, 1)), "eth1: down");
    assert!(resources.modify(NOW, load.grant, &ask(1, 5)).is_err());
    resources.modify(NOW, load.grant, &ask(1, 3)).unwrap();
    resources.modify(NOW, sure.grant, &guaranteed(ask(2, 2), 5, 10)).unwrap();
    assert_eq!(reserved(&resources), 8 * MBIT);
}

/// After a refused change, the reservation stays as it was.
#[test]
fn a_refused_change_changes_nothing() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &ask(1, 6));
    admit(&mut resources, &ask(2, 4));
    kernel.drain(&mut resources);
    let before = (kernel.installed.clone(), reserved(&resources));
    let view = resources.reservation(first.grant).map(|view| format!("{view:?}"));
    let asks = [
        ask(1, 7),
        ask(2, 1),
        GrantRequest { filters: vec![], ..ask(1, 1) },
        GrantRequest { ifindex: ETH2, ..ask(1, 1) },
        GrantRequest { session: Session::of(Key::from_u64(5)), ..ask(1, 1) },
        guaranteed(ask(1, 7), 6, 0),
    ];
    for change in asks {
        resources.modify(NOW, first.grant, &change).unwrap_err();
        kernel.drain(&mut resources);
        assert_eq!((kernel.installed.clone(), reserved(&resources)), before);
        assert_eq!(resources.reservation(first.grant).map(|view| format!("{view:?}")), view);
    }
    resources.release(first.grant);
    assert_eq!(resources.modify(NOW, first.grant, &ask(1, 1)).unwrap_err().cause(), Cause::NoGrant);
}

#[test]
fn a_change_goes_to_the_kernel_once() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &ask(1, 6));
    kernel.drain(&mut resources);
    resources.modify(NOW, first.grant, &ask(1, 6)).unwrap();
    assert!(resources.poll().is_none(), "nothing has changed for the kernel");
    resources.modify(NOW, first.grant, &ask(7, 8)).unwrap();
    kernel.drain(&mut resources);
    let installed: Vec<_> = kernel.installed.values().collect();
    assert_eq!((installed.len(), installed[0].filters[0], installed[0].traffic.rate), (1, flow(7), 8 * MBIT));
    // The old flow is free again, the new one is reserved.
    admit(&mut resources, &ask(1, 1));
    assert!(resources.admit(NOW, &ask(7, 1)).is_err());
}

/// A reservation that moves to another interface leaves the first.
#[test]
fn a_reservation_can_change_its_interface() {
    let mut resources = start(Config { links: vec![link("eth1", 10), link("eth2", 10)], ..config() });
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &ask(1, 6));
    kernel.drain(&mut resources);
    let moved = resources.modify(NOW, first.grant, &GrantRequest { ifindex: ETH2, ..ask(1, 7) }).unwrap();
    kernel.drain(&mut resources);
    assert_eq!(moved.grant, first.grant);
    assert_eq!((kernel.sum(ETH1), kernel.sum(ETH2)), (0, 7 * MBIT));
    assert_eq!((reserved(&resources), resources.len()), (0, 1));
    resources.release(moved.grant);
    kernel.drain(&mut resources);
    assert!(kernel.installed.is_empty());
}

#[test]
fn one_flow_has_one_reservation() {
    let mut resources = start(config());
    let first = admit(&mut resources, &ask(1, 1));
    let twice = GrantRequest { filters: vec![flow(2), flow(1)], ..ask(9, 1) };
    let refused = resources.admit(NOW, &twice).unwrap_err();
    let words = "eth1: flow 10.0.0.1 > 10.0.0.2 port 1 proto 17 has a reservation already";
    assert_eq!((refused.to_string().as_str(), refused.cause()), (words, Cause::Conflict));
    resources.release(first.grant);
    admit(&mut resources, &twice);
}

/// Make before break: the new branch of a session is not counted on top of the old one.
#[test]
fn a_session_is_counted_once() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let of_session = |port, mbit| GrantRequest { session: Session::of(Key::from_u64(5)), ..ask(port, mbit) };
    let old = admit(&mut resources, &of_session(1, 7));
    let new = admit(&mut resources, &of_session(2, 8));
    assert_eq!((old.reservation, reserved(&resources)), (new.reservation, 8 * MBIT));
    kernel.drain(&mut resources);
    let both = &kernel.installed[&old.reservation];
    assert_eq!((both.filters.as_slice(), both.traffic.rate), ([flow(1), flow(2)].as_slice(), 8 * MBIT));
    assert!(resources.admit(NOW, &ask(3, 3)).is_err());
    // The end of the old branch does not affect the new one.
    resources.release(new.grant);
    kernel.drain(&mut resources);
    let left = &kernel.installed[&old.reservation];
    assert_eq!((left.filters.as_slice(), left.traffic.rate), ([flow(1)].as_slice(), 7 * MBIT));
    admit(&mut resources, &ask(2, 3));
    resources.release(old.grant);
    kernel.drain(&mut resources);
    assert_eq!((kernel.installed.len(), reserved(&resources)), (1, 3 * MBIT));
    // The session is removed with its last grant.
    let fresh = admit(&mut resources, &of_session(4, 1));
    assert_ne!(fresh.reservation, old.reservation);
}

#[test]
fn a_session_has_one_service_and_so_many_sharers() {
    let mut resources = start(Config { max_sharers: 2, ..config() });
    let of_session = |port, mbit| GrantRequest { session: Session::of(Key::from_u64(5)), ..ask(port, mbit) };
    let first = admit(&mut resources, &of_session(1, 1));
    let sure = guaranteed(of_session(2, 1), 1, 0);
    assert_eq!(refusal(&mut resources, &sure), "eth1: the session has controlled-load here");
    admit(&mut resources, &of_session(2, 1));
    assert_eq!(refusal(&mut resources, &of_session(3, 1)), "eth1: max_sharers: all 2 in use");
    let conflict = guaranteed(of_session(1, 1), 1, 0);
    assert!(resources.modify(NOW, first.grant, &conflict).is_err());
    // A session of another engine with the same number is a different session.
    let mut foreign = of_session(9, 1);
    foreign.owner.protocol = ReserverId(241);
    assert_ne!(admit(&mut resources, &foreign).reservation, first.reservation);
}

#[test]
fn queues_are_given_as_configured() {
    let mut config = config();
    let link = &mut config.links[0];
    link.own_queues = 1;
    link.diffserv = ServiceConfig { queue: Queue::Own, ..link.diffserv };
    let mut resources = start(config);
    let queue = |resources: &mut signalbox_resources::Resources, ask: &GrantRequest| {
        let grant = admit(resources, ask).grant;
        let view = resources.reservation(grant).unwrap();
        (view.treatment, grant)
    };
    let (own, first) = queue(&mut resources, &ask(1, 1));
    assert_eq!(own, Treatment::OwnQueue);
    assert_eq!(queue(&mut resources, &ask(2, 1)).0, Treatment::Aggregate(ServiceClass::ControlledLoad));
    let sure = guaranteed(ask(3, 1), 1, 0);
    assert_eq!(refusal(&mut resources, &sure), "eth1: per_flow_queues: all 1 in use");
    assert!(resources.admit(NOW, &GrantRequest { service: ServiceClass::Dscp(10), ..ask(3, 1) }).is_err());
    resources.release(first);
    assert_eq!(queue(&mut resources, &sure).0, Treatment::OwnQueue);
    let asked = GrantRequest { treatment: Some(Treatment::Aggregate(ServiceClass::Dscp(46))), ..ask(4, 1) };
    assert_eq!(queue(&mut resources, &asked).0, Treatment::Aggregate(ServiceClass::Dscp(46)));
}

/// Excess traffic is best effort by default; configuration or request can change that, and marking is passed on.
#[test]
fn excess_and_marks_reach_the_kernel() {
    let mut config = config();
    config.links[0].diffserv.excess = signalbox_resources::config::ExcessAction::Drop;
    let mut resources = start(config);
    let mut seen = |ask: GrantRequest| {
        admit(&mut resources, &ask);
        let mut kernel = Kernel::default();
        kernel.drain(&mut resources);
        let reservation = kernel.installed.into_values().next().unwrap();
        (reservation.excess, reservation.mark_dscp)
    };
    assert_eq!(seen(ask(1, 1)), (Excess::BestEffort, None));
    assert_eq!(seen(GrantRequest { excess: Some(Excess::Drop), ..ask(2, 1) }), (Excess::Drop, None));
    let marked = GrantRequest { service: ServiceClass::Dscp(46), mark_dscp: Some(46), ..ask(3, 1) };
    assert_eq!(seen(marked), (Excess::Drop, Some(46)));
}

#[test]
fn what_the_kernel_refuses_is_lost() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &ask(1, 6));
    kernel.drain(&mut resources);
    assert!(!resources.reservation(first.grant).unwrap().in_kernel);
    resources.installed(first.reservation, Ok(()));
    assert!(resources.reservation(first.grant).unwrap().in_kernel);
    // Of two pending changes only the last answer counts.
    resources.modify(NOW, first.grant, &ask(1, 7)).unwrap();
    kernel.drain(&mut resources);
    resources.modify(NOW, first.grant, &ask(1, 8)).unwrap();
    kernel.drain(&mut resources);
    resources.installed(first.reservation, Err(ReserveError::Failed));
    assert_eq!(resources.len(), 1);
    resources.installed(first.reservation, Err(ReserveError::Full));
    assert_eq!((resources.len(), reserved(&resources)), (0, 0));
    let lost = kernel.drain(&mut resources);
    assert_eq!(lost, [(1, first.grant, LostWhy::KernelRefused(ReserveError::Full))]);
    assert!(kernel.installed.is_empty());
    resources.installed(first.reservation, Ok(()));
    let counters = resources.counters();
    assert_eq!((counters.kernel_refused, counters.answers_ignored), (1, 1));
}

/// A reservation that ends before its installation is polled is not reported to the kernel.
#[test]
fn what_was_never_installed_is_not_removed() {
    let mut resources = start(config());
    let first = admit(&mut resources, &ask(1, 6));
    resources.modify(NOW, first.grant, &ask(1, 7)).unwrap();
    resources.release(first.grant);
    assert!(resources.poll().is_none());
}

/// Changes keep their order and content until they are polled: the sum never exceeds the share.
#[test]
fn what_is_queued_keeps_its_content() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &ask(1, 2));
    let second = admit(&mut resources, &ask(2, 8));
    kernel.drain(&mut resources);
    // The first reservation may have 7 only after the second has 3: the change that is queued for it before has 1, not
    // 7.
    resources.modify(NOW, first.grant, &ask(1, 1)).unwrap();
    resources.modify(NOW, second.grant, &ask(2, 3)).unwrap();
    resources.modify(NOW, first.grant, &ask(1, 7)).unwrap();
    let mut steps = Vec::new();
    while kernel.step(&mut resources).is_some() {
        steps.push(kernel.sum(ETH1) / MBIT);
    }
    assert_eq!(steps, [9, 4, 10]);
    // Resources are free only after the end of the reservation.
    resources.modify(NOW, first.grant, &ask(1, 1)).unwrap();
    admit(&mut resources, &ask(3, 6));
    resources.release(first.grant);
    while kernel.step(&mut resources).is_some() {
        assert!(kernel.sum(ETH1) <= 10 * MBIT);
    }
    assert_eq!(kernel.sum(ETH1), 9 * MBIT);
}

#[test]
fn interfaces_come_and_go() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &ask(1, 6));
    kernel.drain(&mut resources);
    // The interface goes down and up again: no reservation is lost.
    let down = signalbox_core::node::Interface { up: false, ..interface(ETH1, "eth1") };
    resources.interfaces(&[down]);
    assert_eq!(refusal(&mut resources, &ask(2, 1)), "eth1: down");
    resources.interfaces(&[interface(ETH1, "eth1")]);
    assert!(kernel.drain(&mut resources).is_empty());
    admit(&mut resources, &ask(2, 1));
    kernel.drain(&mut resources);
    // The number now belongs to another interface: all reservations are lost, and the new interface has its own
    // settings.
    resources.interfaces(&[interface(ETH1, "wlan0")]);
    let lost = kernel.drain(&mut resources);
    assert_eq!(lost.len(), 2);
    assert_eq!(lost[0], (1, first.grant, LostWhy::InterfaceGone));
    assert!(kernel.installed.is_empty());
    assert_eq!(refusal(&mut resources, &ask(1, 1)), "wlan0: capacity neither declared nor measured");
    assert_eq!((resources.len(), resources.counters().interface_lost), (0, 2));
}

#[test]
fn an_administrator_ends_one_reservation() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let (first, second) = (admit(&mut resources, &ask(1, 2)), admit(&mut resources, &ask(2, 1)));
    kernel.drain(&mut resources);
    resources.delete(first.grant);
    assert_eq!(kernel.drain(&mut resources), [(1, first.grant, LostWhy::Deleted)]);
    assert_eq!((kernel.sum(ETH1), reserved(&resources)), (MBIT, MBIT));
    // It is gone: deleting it again does nothing, and the other one stays.
    resources.delete(first.grant);
    assert_eq!(kernel.drain(&mut resources), []);
    assert!(resources.reservation(second.grant).is_some());
    assert_eq!((resources.len(), resources.counters().deleted), (1, 1));
}

/// The weakest reservations are removed first, then the largest; the remaining ones fit.
#[test]
fn a_link_that_shrinks_loses_the_weakest() {
    let any = LinkConfig { reservable: Share::percent(100), ..LinkConfig::new("*", None) };
    let mut resources = start(Config { links: vec![any], ..config() });
    assert_eq!(refusal(&mut resources, &ask(1, 1)), "eth1: capacity neither declared nor measured");
    resources.measured(ETH1, Some(10 * MBIT));
    resources.measured(IfIndex(9), Some(1));
    for (port, mbit, strength) in [(1, 4, 5), (2, 2, 0), (3, 1, 0), (4, 3, 9)] {
        admit(&mut resources, &at_priority(0, strength, ask(port, mbit)));
    }
    let mut kernel = Kernel::default();
    kernel.drain(&mut resources);
    resources.measured(ETH1, Some(8 * MBIT));
    let keys = |lost: Vec<Lost>| lost.into_iter().map(|(key, _, why)| (key, why)).collect::<Vec<_>>();
    assert_eq!(keys(kernel.drain(&mut resources)), [(2, LostWhy::CapacityReduced)]);
    resources.measured(ETH1, Some(3 * MBIT));
    let lost = keys(kernel.drain(&mut resources));
    assert_eq!(lost, [(3, LostWhy::CapacityReduced), (1, LostWhy::CapacityReduced)]);
    assert_eq!((kernel.sum(ETH1), reserved(&resources)), (3 * MBIT, 3 * MBIT));
    let view = resources.links().find(|link| link.ifindex == ETH1).unwrap();
    assert_eq!((view.capacity, view.measured, view.most_reserved), (Some(3 * MBIT), true, 10 * MBIT));
    resources.measured(ETH1, None);
    assert_eq!(keys(kernel.drain(&mut resources)).len(), 1);
}

#[test]
fn a_dry_run_changes_nothing_and_explains() {
    let mut resources = start(config());
    let good = resources.dry_run(NOW, &ask(1, 6));
    assert!(good.rule.is_none() && good.result.unwrap().victims.is_empty());
    assert!(resources.is_empty() && resources.poll().is_none());
    let first = admit(&mut resources, &ask(1, 6));
    let refused = resources.dry_run(NOW, &ask(2, 6)).result.unwrap_err();
    assert_eq!(refused.to_string(), "eth1: share: 6 of 10 Mbit/s in use, 6 Mbit/s asked");
    assert!(resources.dry_modify(NOW, first.grant, &ask(1, 10)).result.is_ok());
    assert_eq!(resources.counters().refused_resources, 0);
}

#[test]
fn views_say_what_stands() {
    let mut resources = start(config());
    let mut request = guaranteed(ask(1, 2), 4, 7);
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

#[test]
fn outputs_are_polled_in_the_order_of_their_causes() {
    let mut resources = start(config());
    let first = admit(&mut resources, &ask(1, 6));
    assert!(matches!(resources.poll(), Some(ResourceOutput::Install { id, .. }) if id == first.reservation));
    resources.release(first.grant);
    let second = admit(&mut resources, &ask(1, 10));
    assert_eq!(resources.poll(), Some(ResourceOutput::Remove { id: first.reservation }));
    assert!(matches!(resources.poll(), Some(ResourceOutput::Install { id, .. }) if id == second.reservation));
}
