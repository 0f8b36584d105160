//! Changes: of a granted request, of the reservations of a session, of a link.

use signalbox_core::{IfIndex, Key, ReserverId};
use signalbox_resources::config::LinkConfig;
use signalbox_resources::request::Session;
use signalbox_resources::units::Share;
use signalbox_resources::{Cause, Config, GrantRequest, LostWhy};

use crate::support::*;

/// RSVPIS-2211-5-03, RSVPIS-2212-Invocation-04: a smaller request is never refused, even if no new request would be
/// granted now.
#[test]
fn less_is_never_refused() {
    let mut resources = start(config());
    let load = admit(&mut resources, &request_of(1, 4));
    let sure = admit(&mut resources, &guaranteed(request_of(2, 2), 6, 0));
    resources.interfaces(&[signalbox_core::node::Interface { up: false, ..interface(ETH1, "eth1") }]);
    assert_eq!(refusal(&mut resources, &request_of(3, 1)), "eth1: down");
    assert!(resources.modify(NOW, load.grant, &request_of(1, 5)).is_err());
    resources.modify(NOW, load.grant, &request_of(1, 3)).unwrap();
    resources.modify(NOW, sure.grant, &guaranteed(request_of(2, 2), 5, 10)).unwrap();
    assert_eq!(reserved(&resources), 8 * MBIT);
}

/// After a refused change, the reservation stays as it was.
#[test]
fn a_refused_change_changes_nothing() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &request_of(1, 6));
    admit(&mut resources, &request_of(2, 4));
    kernel.drain(&mut resources);
    let before = (kernel.installed.clone(), reserved(&resources));
    let view = resources.reservation(first.grant).map(|view| format!("{view:?}"));
    let changes = [
        request_of(1, 7),
        request_of(2, 1),
        GrantRequest { filters: vec![], ..request_of(1, 1) },
        GrantRequest { ifindex: ETH2, ..request_of(1, 1) },
        GrantRequest { session: Session::of(Key::from_u64(5)), ..request_of(1, 1) },
        guaranteed(request_of(1, 7), 6, 0),
    ];
    for change in changes {
        resources.modify(NOW, first.grant, &change).unwrap_err();
        kernel.drain(&mut resources);
        assert_eq!((kernel.installed.clone(), reserved(&resources)), before);
        assert_eq!(resources.reservation(first.grant).map(|view| format!("{view:?}")), view);
    }
    resources.release(first.grant);
    assert_eq!(resources.modify(NOW, first.grant, &request_of(1, 1)).unwrap_err().cause(), Cause::NoGrant);
}

/// A reservation that moves to another interface leaves the first.
#[test]
fn a_reservation_can_change_its_interface() {
    let mut resources = start(Config { links: vec![link("eth1", 10), link("eth2", 10)], ..config() });
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &request_of(1, 6));
    kernel.drain(&mut resources);
    let moved =
        resources.modify(NOW, first.grant, &GrantRequest { ifindex: ETH2, ..request_of(1, 7) }).unwrap();
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
    let first = admit(&mut resources, &request_of(1, 1));
    let twice = GrantRequest { filters: vec![flow(2), flow(1)], ..request_of(9, 1) };
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
    let of_session =
        |port, mbit| GrantRequest { session: Session::of(Key::from_u64(5)), ..request_of(port, mbit) };
    let old = admit(&mut resources, &of_session(1, 7));
    let new = admit(&mut resources, &of_session(2, 8));
    assert_eq!((old.reservation, reserved(&resources)), (new.reservation, 8 * MBIT));
    kernel.drain(&mut resources);
    let both = &kernel.installed[&old.reservation];
    assert_eq!((both.filters.as_slice(), both.traffic.rate), ([flow(1), flow(2)].as_slice(), 8 * MBIT));
    assert!(resources.admit(NOW, &request_of(3, 3)).is_err());
    // The end of the old branch does not affect the new one.
    resources.release(new.grant);
    kernel.drain(&mut resources);
    let left = &kernel.installed[&old.reservation];
    assert_eq!((left.filters.as_slice(), left.traffic.rate), ([flow(1)].as_slice(), 7 * MBIT));
    admit(&mut resources, &request_of(2, 3));
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
    let of_session =
        |port, mbit| GrantRequest { session: Session::of(Key::from_u64(5)), ..request_of(port, mbit) };
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
fn interfaces_come_and_go() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &request_of(1, 6));
    kernel.drain(&mut resources);
    // The interface goes down and up again: no reservation is lost.
    let down = signalbox_core::node::Interface { up: false, ..interface(ETH1, "eth1") };
    resources.interfaces(&[down]);
    assert_eq!(refusal(&mut resources, &request_of(2, 1)), "eth1: down");
    resources.interfaces(&[interface(ETH1, "eth1")]);
    assert!(kernel.drain(&mut resources).is_empty());
    admit(&mut resources, &request_of(2, 1));
    kernel.drain(&mut resources);
    // The number now belongs to another interface: all reservations are lost, and the new interface has its own
    // settings.
    resources.interfaces(&[interface(ETH1, "wlan0")]);
    let lost = kernel.drain(&mut resources);
    assert_eq!(lost.len(), 2);
    assert_eq!(lost[0], (1, first.grant, LostWhy::InterfaceGone));
    assert!(kernel.installed.is_empty());
    assert_eq!(refusal(&mut resources, &request_of(1, 1)), "wlan0: capacity neither declared nor measured");
    assert_eq!((resources.len(), resources.counters().interface_lost), (0, 2));
}

#[test]
fn an_administrator_ends_one_reservation() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let (first, second) =
        (admit(&mut resources, &request_of(1, 2)), admit(&mut resources, &request_of(2, 1)));
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
    assert_eq!(refusal(&mut resources, &request_of(1, 1)), "eth1: capacity neither declared nor measured");
    resources.measured(ETH1, Some(10 * MBIT));
    resources.measured(IfIndex(9), Some(1));
    for (port, mbit, strength) in [(1, 4, 5), (2, 2, 0), (3, 1, 0), (4, 3, 9)] {
        admit(&mut resources, &at_priority(0, strength, request_of(port, mbit)));
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
