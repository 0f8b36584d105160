//! Routes and previous hops that change (RFC 2205 §3.6).

use std::time::Duration;

use signalbox_core::Time;
use signalbox_rsvp::engine::Config;
use signalbox_rsvp::wire::{MessageType, RsvpHop};

use crate::rig::{B, Path, Resv, Rig, all, at, group, kinds, load, one, sender, session};

/// RSVP-3.6-01, RSVP-3.6-02, RSVP-2209-LREP-01, RSVP-3.11.4-02
#[test]
fn a_path_follows_its_route_after_w() {
    let mut rig = Rig::new();
    for n in 1..=3 {
        rig.path(&Path { sender: sender(n), ..Path::new() });
    }
    let other = signalbox_rsvp::wire::Session { port: 6000, ..session() };
    rig.path(&Path { session: other, ..Path::new() });
    rig.path(&Path { session: crate::rig::to("10.9.128.1"), ..Path::new() });
    let lookups = rig.lookups;
    assert_eq!(kinds(&rig.route("10.9.0.0", 24, 3)), []);
    assert_eq!(rig.lookups, lookups + 4, "one destination is not concerned");
    let changed = rig.now;
    let sent = rig.wait(Duration::from_millis(2100));
    assert!(sent.iter().all(|one| one.kind() == MessageType::PATH));
    let moved: Vec<_> = sent.iter().filter(|one| one.oif == 3).collect();
    assert_eq!(moved.len(), 4);
    assert!(moved.iter().all(|one| one.at >= changed + Duration::from_secs(2)));
    assert!(moved.iter().all(|one| one.at <= changed + Duration::from_millis(2020)));
    assert_eq!(rig.rsvp.counters().repairs, 4);
}

/// RSVP-3.6-02: W is configurable. If it is 0, the Path leaves with the answer about its route, once, and not by a timer, whose
/// ticks have 10 ms.
#[test]
fn without_w_a_path_follows_its_route_at_once() {
    let mut config = Config::default();
    config.interface.repair_delay = Duration::ZERO;
    let mut rig = Rig::with(config);
    rig.path(&Path::new());
    rig.wait(Duration::from_millis(3));
    let sent = rig.route("10.9.0.0", 24, 3);
    assert_eq!((sent.len(), one(&sent, MessageType::PATH).oif), (1, 3));
    assert_eq!(rig.rsvp.counters().repairs, 1);
    assert_eq!(kinds(&rig.wait(Duration::from_millis(100))), []);
    // It goes on by the new route.
    let sent = rig.wait(Duration::from_secs(45));
    assert!(!sent.is_empty() && sent.iter().all(|one| one.oif == 3));
}

/// RSVP-3.6-03, RSVP-3.1.5-05
#[test]
fn another_previous_hop_gets_the_resv_at_once() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    let moved = Path { hop: RsvpHop { addr: at(4, 9), lih: 5 }, iif: 4, ..Path::new() };
    let sent = rig.path(&moved);
    one(&sent, MessageType::PATH);
    let resv = one(&sent, MessageType::RESV);
    assert_eq!((resv.dst, resv.src), (at(4, 9), at(4, 1)));
    assert_eq!(resv.message().hop, Some(RsvpHop { addr: at(4, 1), lih: 5 }));
    assert_eq!(kinds(&rig.path_tear(&Path::new())), [], "the old hop is not asked any more");
    let sent = rig.wait(Duration::from_secs(45));
    assert!(all(&sent, MessageType::RESV).iter().all(|one| one.dst == at(4, 9)));
    assert_eq!(rig.rsvp.counters().hop_changes, 1);
    // The same if both hops are neighbors at one interface.
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.path(&Path { hop: RsvpHop { addr: at(1, 8), lih: 5 }, ..Path::new() });
    assert_eq!((kinds(&rig.path_tear(&Path::new())), rig.rsvp.senders()), (vec![], 1));
}

/// RSVP-3.1.3-15: Paths of one sender from two previous hops in turn. The last one gets the Resv; no state of either is
/// left after they are silent.
#[test]
fn two_previous_hops_in_turn() {
    let mut rig = Rig::new();
    let hops = [(1, 77), (4, 5)].map(|(n, lih)| Path {
        hop: RsvpHop { addr: at(n, 9), lih },
        iif: n,
        ..Path::new()
    });
    rig.path(&hops[0]);
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    for turn in 1..10 {
        let last = &hops[turn % 2];
        let resv = one(&rig.path(last), MessageType::RESV);
        assert_eq!((resv.dst, resv.message().hop.unwrap().lih), (last.hop.addr, last.hop.lih));
        assert_eq!((rig.rsvp.senders(), rig.reservations()), (1, 1));
        rig.resv(&Resv::ff(&[(load(B), 1)]));
        let sent = rig.wait(Duration::from_secs(20));
        assert!(all(&sent, MessageType::RESV).iter().all(|one| one.dst == last.hop.addr));
    }
    assert_eq!(rig.rsvp.counters().hop_changes, 9);
    rig.wait(Duration::from_secs(160));
    assert_eq!((rig.rsvp.senders(), rig.reservations(), rig.rsvp.sessions()), (0, 0, 0));
    assert!(rig.rsvp.holds_nothing());
}

/// The reservation follows the route with the receiver's next request; upstream nothing is torn meanwhile.
#[test]
fn a_reservation_moves_with_its_route() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    rig.route("10.9.0.0", 24, 3);
    let sent = rig.wait(Duration::from_secs(3));
    assert_eq!(all(&sent, MessageType::RESV_TEAR).len(), 0);
    rig.resv(&Resv::ff(&[(load(B), 1)]).from(3, 9, session()));
    assert_eq!(rig.reserved(3), 10_000);
    for _ in 0..12 {
        rig.path(&Path::new());
        rig.resv(&Resv::ff(&[(load(B), 1)]).from(3, 9, session()));
        let sent = rig.wait(Duration::from_secs(15));
        assert_eq!(all(&sent, MessageType::RESV_TEAR).len(), 0);
    }
    assert_eq!((rig.reserved(2), rig.reserved(3)), (0, 10_000));
}

/// RSVP-3.1.3-13, RSVP-3.1.3-14, RSVP-2209-PATH-07, RSVP-2209-1-02, RSVP-3.1.5-06
#[test]
fn multicast_path_state_that_routing_does_not_expect_is_not_forwarded() {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3]));
    assert_eq!(all(&rig.path(&Path::of(group(), 1, 1)), MessageType::PATH).len(), 1);
    assert_eq!(kinds(&rig.path(&Path::of(group(), 1, 2))), []);
    rig.resv(&Resv::ff(&[(load(B), 1)]).from(3, 9, group()));
    let sent = rig.tree(group(), 1, 2, &[3]);
    assert!(all(&sent, MessageType::RESV_TEAR).is_empty());
    let sent = rig.wait(Duration::from_secs(45));
    let resvs = all(&sent, MessageType::RESV);
    assert!(!resvs.is_empty() && resvs.iter().all(|one| one.dst == at(2, 9)));
    // RSVP-3.1.5-06
    assert_eq!(kinds(&rig.path_tear(&Path::of(group(), 1, 1))), []);
    let sent = rig.path_tear(&Path::of(group(), 1, 2));
    assert_eq!(one(&sent, MessageType::PATH_TEAR).oif, 3);
    assert!(rig.now > Time::ZERO && rig.reservations() == 0);
}
