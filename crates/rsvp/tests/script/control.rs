//! Requests to traffic control (RFC 2205 §3.11.2) and to routing (§3.11.4).

use std::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::traffic::{FlowFilter, TrafficSpec};
use signalbox_core::{IfIndex, ReserverId};
use signalbox_resources::request::Priority;
use signalbox_resources::view::ReservationView;
use signalbox_resources::{Config as Links, GrantRequest, Owner, Requester};
use signalbox_rsvp::engine::{Config, Input, InterfaceConfig};
use signalbox_rsvp::wire::{ErrorCode, FlowSpec, MessageType};

use crate::rig::{
    B, Path, Resv, Rig, addr, all, at, group, guaranteed, kinds, load, one, one_to, sender, session, tspec,
};

/// Senders 1 and 2 come by eth1 and go out by eth3 and eth4.
fn tree() -> Rig {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.trees.insert((group().dest, sender(n).src), (1, vec![3, 4]));
        rig.path(&Path::of(group(), n, 1));
    }
    rig
}

/// The reservation at interface `n`.
fn at_interface(rig: &Rig, n: u32) -> ReservationView<'_> {
    let mut here = rig.resources.reservations().filter(|one| one.ifindex == IfIndex(n));
    let found = here.next().unwrap();
    assert!(here.next().is_none());
    found
}

/// RSVP-3.11.2-01: next hops at one interface share a grant; interfaces are merged upstream only.
#[test]
fn merging_depends_on_where_packets_are_copied() {
    let mut rig = tree();
    let ff = |n, k, rate| Resv::ff(&[(load(rate), 1)]).from(n, k, group());
    rig.resv(&ff(3, 8, 2.0 * B));
    rig.resv(&ff(3, 9, 3.0 * B));
    let sent = rig.resv(&ff(4, 9, 4.0 * B));
    assert_eq!((rig.reserved(3), rig.reserved(4), rig.reservations()), (30_000, 40_000, 2));
    assert_eq!(one(&sent, MessageType::RESV).rates(), [(4.0 * B, 1)]);
}

/// RSVP-3.11.2-02: the least upper bound of the requests, limited by the sum of the senders.
#[test]
fn what_is_asked_for_is_the_bound_of_all_next_hops() {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.trees.insert((group().dest, sender(n).src), (1, vec![3]));
        rig.path(&Path { tspec: tspec(4.0 * B), ..Path::of(group(), n, 1) });
    }
    let deep = signalbox_resources::intserv::TSpec::new(B, 9000.0, f32::INFINITY, 64, 1500).unwrap();
    rig.resv(&Resv::se(load(3.0 * B), &[1]).from(3, 9, group()));
    rig.resv(&Resv::se(FlowSpec { tspec: deep, rspec: None }, &[1]).from(3, 8, group()));
    let traffic = at_interface(&rig, 3).traffic;
    // The lesser rate, but the deeper of two buckets that have no order (RFC 2212).
    assert_eq!((traffic.rate, traffic.burst, traffic.max_packet), (30_000, 9000, 1500));
    rig.resv(&Resv::se(load(9.0 * B), &[1]).from(3, 9, group()));
    assert_eq!(at_interface(&rig, 3).traffic.rate, 40_000);
    rig.resv(&Resv::se(load(9.0 * B), &[2]).from(3, 9, group()));
    let traffic = at_interface(&rig, 3).traffic;
    assert_eq!((traffic.rate, traffic.burst), (80_000, 6000), "the sum of both");
    rig.resv(&Resv::se(load(5.0 * B), &[1, 2]).from(3, 9, group()));
    assert_eq!(at_interface(&rig, 3).traffic.rate, 50_000);
}

/// RSVP-3.11.2-03: after a refusal the former grant stays, with its filters.
#[test]
fn a_refused_change_changes_nothing() {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.path(&Path { sender: sender(n), tspec: tspec(200.0 * B), ..Path::new() });
    }
    rig.resv(&Resv::se(load(B), &[1]));
    let (grant, traffic, filters) = {
        let one = at_interface(&rig, 2);
        (one.grant, one.traffic, one.filters)
    };
    let sent = rig.resv(&Resv::se(load(200.0 * B), &[1, 2]));
    assert_eq!(one(&sent, MessageType::RESV_ERR).error().code, ErrorCode::ADMISSION);
    assert_eq!(sent.len(), 1);
    let after = at_interface(&rig, 2);
    assert_eq!((after.grant, after.traffic, after.filters), (grant, traffic, filters));
}

/// RSVP-3.11.2-04, RSVP-3.11.2-05: filters are added to and removed from a reservation, and end with it.
#[test]
fn filters_are_added_and_removed_one_by_one() {
    let mut rig = tree();
    let se = |k, senders: &[u32]| Resv::se(load(B), senders).from(3, k, group());
    rig.resv(&se(9, &[1]));
    let grant = at_interface(&rig, 3).grant;
    let sources = |rig: &Rig| -> Vec<_> {
        let view = at_interface(rig, 3);
        assert_eq!(view.grant, grant);
        view.filters.iter().map(|filter| filter.src.addr).collect()
    };
    rig.resv(&se(8, &[2]));
    let mut both = sources(&rig);
    both.sort();
    assert_eq!(both, [sender(1).src, sender(2).src]);
    rig.resv_tear(&se(9, &[1]));
    assert_eq!(sources(&rig), [sender(2).src]);
    rig.resv(&se(8, &[1, 2]));
    rig.resv_tear(&se(8, &[1, 2]));
    assert_eq!((rig.reservations(), rig.reserved(3)), (0, 0));
    // A refused reservation has no filter.
    rig.path(&Path { tspec: tspec(200.0 * B), ..Path::of(group(), 1, 1) });
    rig.resv(&Resv::se(load(200.0 * B), &[1]).from(3, 9, group()));
    assert_eq!(rig.reservations(), 0);
}

/// RSVP-3.11.2-06: slack that this node used is not forwarded upstream.
#[test]
fn what_traffic_control_left_goes_on() {
    let mut rig = Rig::new();
    rig.path(&Path { sender: sender(2), tspec: tspec(60.0 * B), ..Path::new() });
    rig.resv(&Resv::ff(&[(load(60.0 * B), 2)]));
    rig.path(&Path::new());
    let asked = guaranteed(10.0 * B, 60.0 * B, 1_000_000);
    let sent = rig.resv(&Resv::ff(&[(asked, 1)]).from(2, 8, session()));
    let given = rig.resources.reservations().find_map(|one| one.rspec).unwrap();
    let (asked, said) = (asked.rspec.unwrap(), one(&sent, MessageType::RESV).flows()[0].0.unwrap());
    assert_eq!(said.rspec, Some(given));
    assert!(given.rate() < asked.rate() && given.slack() < asked.slack(), "{given:?}");
    assert_eq!(said.tspec, tspec(10.0 * B));
}

/// RSVP-3.11.2-08, RSVP-B-13: another request preempts the reservation: the next hop gets an error, and upstream it
/// ends.
#[test]
fn what_is_preempted_is_reported_and_removed() {
    let links = Links { preemption: true, ..Links::of_link("*", "10mbit".parse().unwrap()) };
    let mut rig = Rig::with_resources(links);
    rig.path(&Path { tspec: tspec(60.0 * B), ..Path::new() });
    rig.resv(&Resv::ff(&[(load(60.0 * B), 1)]));
    let host = |text| Prefix::host(addr(text));
    // The whole capacity of the link: no part is left.
    let traffic = TrafficSpec { rate: 937_500, burst: 3000, peak: None, min_policed: 64, max_packet: 1500 };
    let strong = GrantRequest {
        priority: Priority { setup: 1, defending: 1 },
        ..GrantRequest::new(
            Owner { protocol: ReserverId(240), key: 1 },
            Requester::at(addr("10.1.1.1")),
            IfIndex(2),
            FlowFilter::between(host("10.1.1.1"), host("10.1.1.2")),
            traffic,
        )
    };
    rig.resources.admit(rig.now, &strong).unwrap();
    let sent = rig.input(Input::Timer);
    let error = one_to(&sent, MessageType::RESV_ERR, at(2, 9));
    assert_eq!((error.error().code, error.error().node), (ErrorCode::PREEMPTED, at(2, 1)));
    assert_eq!((error.error().flags.0, error.rates()), (0, vec![(60.0 * B, 1)]));
    one_to(&sent, MessageType::RESV_TEAR, at(1, 9));
    assert_eq!((sent.len(), rig.rsvp.reservations(), rig.reservations()), (2, 0, 1));
}

/// RSVP-3.11.4-01: the route lookup has a packet of the flow.
#[test]
fn routing_is_asked_about_the_flow() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let query = rig.asked.0.unwrap();
    assert_eq!((query.src, query.dst), (Some(sender(1).src), session().dest));
    assert_eq!((query.protocol, query.src_port, query.dst_port), (Some(17), Some(4000), Some(5004)));
    assert_eq!(rig.asked.1, None);
    rig.trees.insert((group().dest, sender(2).src), (1, vec![3, 4]));
    let sent = rig.path(&Path::of(group(), 2, 1));
    assert_eq!(rig.asked.1, Some((group().dest, sender(2).src)));
    assert_eq!(sent.iter().map(|one| one.oif).collect::<Vec<_>>(), [3, 4]);
}

/// RSVP-3.11.4-04: at a disabled interface nothing is sent or received.
#[test]
fn rsvp_can_be_switched_off_at_an_interface() {
    let off = InterfaceConfig { enabled: false, ..InterfaceConfig::default() };
    let interfaces = ["eth2", "eth4"].map(|name| (name.to_owned(), off)).into();
    let mut rig = Rig::with(Config { interfaces, ..Config::default() });
    assert_eq!(kinds(&rig.path(&Path::new())), [], "its way is by eth2");
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    let sent = rig.path(&Path::of(group(), 1, 1));
    assert_eq!(one(&sent, MessageType::PATH).oif, 3);
    let sent = rig.wait(Duration::from_secs(100));
    assert!(!sent.is_empty() && sent.iter().all(|one| one.kind() == MessageType::PATH && one.oif == 3));
    for octets in [Resv::ff(&[(load(B), 1)]).octets(), Path::new().octets(), vec![1, 2, 3]] {
        assert_eq!(kinds(&rig.neighborly(2, at(2, 9), &octets)), []);
    }
    assert_eq!(kinds(&rig.path(&Path::of(group(), 2, 4))), []);
    assert_eq!((rig.rsvp.counters().disabled, rig.rsvp.senders(), rig.rsvp.reservations()), (4, 2, 0));
    assert_eq!(all(&rig.path_tear(&Path::of(group(), 1, 1)), MessageType::PATH_TEAR).len(), 1);
}
