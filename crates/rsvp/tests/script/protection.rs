//! Protected reservations: a standby copy of the Path goes along the backup route, and both ways are reserved.

use std::time::Duration;

use signalbox_core::IfIndex;
use signalbox_rsvp::engine::{Config, Input};
use signalbox_rsvp::wire::attribute::{protecting, protection, unprotected};
use signalbox_rsvp::wire::{ErrorCode, MessageType, RsvpHop};

use crate::rig::{B, Path, Resv, Rig, all, at, kinds, load, one, one_to, session};

/// A Path whose sender desires protection.
fn protected() -> Path {
    Path { extra: protecting().to_vec(), ..Path::new() }
}

/// A standby copy of it, from neighbor 9 at eth3.
fn standby() -> Path {
    Path {
        extra: unprotected(&protecting()),
        hop: RsvpHop { addr: at(3, 9), lih: 73 },
        iif: 3,
        ..Path::new()
    }
}

/// What a Path says about protection.
fn says(sent: &crate::rig::Sent) -> Option<bool> {
    sent.message().kept().find_map(|object| protection(object.octets))
}

/// Interfaces where reservations are in force.
fn reserved(rig: &Rig) -> Vec<u32> {
    let mut all: Vec<u32> = rig.installed.values().map(|one| one.ifindex.0).collect();
    all.sort_unstable();
    all
}

/// Data leave by eth2; without it they would leave by eth3.
fn forked() -> Rig {
    let mut rig = Rig::new();
    rig.backup = 3;
    rig
}

/// The backup route gets a Path without the flag, at once. Both ways are reserved, and when the link in use is lost the
/// reservation on the other one stays as it is: nothing is sent.
#[test]
fn a_lost_link_costs_a_protected_reservation_nothing() {
    let mut rig = forked();
    let paths = all(&rig.path(&protected()), MessageType::PATH);
    let ways: Vec<_> = paths.iter().map(|path| (path.oif, says(path))).collect();
    assert_eq!(ways, [(2, Some(true)), (3, Some(false))]);
    for n in [2, 3] {
        rig.resv(&Resv::ff(&[(load(B), 1)]).from(n, 9, session()));
    }
    assert_eq!(reserved(&rig), [2, 3]);
    let at_eth3 = |rig: &Rig| rig.installed.iter().find(|(_, one)| one.ifindex.0 == 3).map(|(id, _)| *id);
    let before = at_eth3(&rig);
    // The kernel has no other route then.
    rig.backup = 0;
    rig.routes.retain(|(prefix, _)| !prefix.contains(session().dest));
    let sent = rig.route("10.9.0.0", 16, 3);
    assert_eq!(kinds(&sent), []);
    assert_eq!((reserved(&rig), at_eth3(&rig)), (vec![3], before));
    // With the next refresh the way is the one in use.
    let sent = rig.wait(Duration::from_secs(45));
    let paths = all(&sent, MessageType::PATH);
    assert!(!paths.is_empty() && paths.iter().all(|path| (path.oif, says(path)) == (3, Some(true))));
}

/// Only a Path that desires protection leaves by two interfaces: neither an ordinary one nor a standby copy does.
#[test]
fn others_take_one_way() {
    for path in [Path::new(), Path { hop: Path::new().hop, iif: 1, ..standby() }] {
        let mut rig = forked();
        let sent = rig.path(&path);
        assert_eq!(one(&sent, MessageType::PATH).oif, 2);
        assert_eq!(says(&sent[0]), protection(&path.extra));
    }
}

/// Where the only other route is the one by which the data came, there is no second way.
#[test]
fn data_do_not_go_back() {
    let mut rig = forked();
    rig.backup = 1;
    assert_eq!(one(&rig.path(&protected()), MessageType::PATH).oif, 2);
}

/// Where both ways meet, each previous hop gets the Resv, its refreshes and the ResvTear; the Path in use alone goes
/// on. The order in which the Paths come makes no difference.
#[test]
fn both_previous_hops_get_the_reservation() {
    for order in [[protected(), standby()], [standby(), protected()]] {
        let mut rig = Rig::new();
        let [first, second] = order;
        rig.path(&first);
        let sent = rig.resv(&Resv::ff(&[(load(B), 1)]));
        assert_eq!(kinds(&sent), [(MessageType::RESV, first.hop.addr)]);
        let sent = rig.path(&second);
        let resv = one_to(&sent, MessageType::RESV, second.hop.addr);
        assert_eq!(resv.message().hop.unwrap().lih, second.hop.lih);
        let two = [protected().hop.addr, standby().hop.addr];
        let sent = rig.resv(&Resv::ff(&[(load(2.0 * B), 1)]));
        assert_eq!(all(&sent, MessageType::RESV).iter().map(|one| one.dst).collect::<Vec<_>>(), two);
        let sent = rig.wait(Duration::from_secs(46));
        let resvs = all(&sent, MessageType::RESV);
        assert!(two.iter().all(|hop| resvs.iter().any(|resv| resv.dst == *hop)), "{:?}", kinds(&sent));
        let paths = all(&sent, MessageType::PATH);
        assert!(!paths.is_empty() && paths.iter().all(|path| says(path) == Some(true)));
        let sent = rig.resv_tear(&Resv::ff(&[(load(2.0 * B), 1)]));
        assert_eq!(all(&sent, MessageType::RESV_TEAR).iter().map(|one| one.dst).collect::<Vec<_>>(), two);
    }
}

/// A standby copy ends by its own PathTear or without refreshes, and the reservation stands.
#[test]
fn a_standby_copy_ends_alone() {
    for torn in [true, false] {
        let mut rig = Rig::new();
        rig.path(&protected());
        rig.resv(&Resv::ff(&[(load(B), 1)]));
        rig.path(&standby());
        if torn {
            assert_eq!(kinds(&rig.path_tear(&standby())), []);
        } else {
            for _ in 0..6 {
                rig.wait(Duration::from_secs(30));
                rig.path(&protected());
                rig.resv(&Resv::ff(&[(load(B), 1)]));
            }
        }
        let sent = rig.resv(&Resv::ff(&[(load(2.0 * B), 1)]));
        assert_eq!(kinds(&sent), [(MessageType::RESV, protected().hop.addr)]);
        assert_eq!(reserved(&rig), [2]);
        // The Path ends with everything.
        rig.path(&standby());
        rig.path_tear(&protected());
        assert!(rig.rsvp.holds_nothing() || rig.rsvp.senders() == 0);
    }
}

/// Errors of the backup route concern no user: the reservation in use has none.
#[test]
fn errors_of_the_backup_route_go_no_farther() {
    let mut rig = Rig::new();
    rig.path(&protected());
    let resv = Resv::ff(&[(load(B), 1)]);
    rig.resv(&resv);
    rig.path(&standby());
    let error = resv.error_octets(3, ErrorCode::ADMISSION, 2, false);
    assert_eq!(kinds(&rig.neighborly(3, at(3, 9), &error)), []);
    let error = resv.error_octets(1, ErrorCode::ADMISSION, 2, false);
    assert_eq!(one(&rig.neighborly(1, at(1, 9), &error), MessageType::RESV_ERR).oif, 2);
}

/// A backup route that leads back to this node is not used: its copy of the Path is dropped.
#[test]
fn a_copy_that_returns_is_dropped() {
    let mut rig = forked();
    rig.path(&protected());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    assert_eq!(kinds(&rig.path(&standby())), []);
    assert_eq!(rig.rsvp.counters().standby_returned, 1);
}

/// A backup route that is there later, or not any more, is followed with the next report about the destination.
#[test]
fn the_backup_route_is_followed() {
    let mut rig = Rig::new();
    assert_eq!(one(&rig.path(&protected()), MessageType::PATH).oif, 2);
    rig.backup = 3;
    let prefix = rig.routes[0].0;
    let sent = rig.input(Input::RouteChanged(prefix));
    assert_eq!((one(&sent, MessageType::PATH).oif, says(&sent[0])), (3, Some(false)));
    for n in [2, 3] {
        rig.resv(&Resv::ff(&[(load(B), 1)]).from(n, 9, session()));
    }
    rig.backup = 0;
    rig.input(Input::RouteChanged(prefix));
    assert_eq!(reserved(&rig), [2]);
}

/// Another router at the interface of the backup route gets a copy at once, and one at that of the route the Path after W.
#[test]
fn a_backup_route_that_turns_to_another_router_has_a_copy_at_once() {
    let mut rig = forked();
    rig.path(&protected());
    rig.gateway = 8;
    let prefix = rig.routes[0].0;
    let sent = rig.input(Input::RouteChanged(prefix));
    assert_eq!((one(&sent, MessageType::PATH).oif, says(&sent[0])), (3, Some(false)));
    let paths = all(&rig.wait(Duration::from_millis(2100)), MessageType::PATH);
    assert_eq!(paths.iter().map(|path| path.oif).collect::<Vec<_>>(), [2, 3]);
    // Without a change of either nothing is sent.
    assert_eq!(kinds(&rig.input(Input::RouteChanged(prefix))), []);
}

/// The address of neighbor `k` at interface `n` moves to another router, and no route changes (VRRP).
fn moved(rig: &mut Rig, n: u32, k: u32) -> Vec<(u32, Option<bool>)> {
    let input = Input::NeighborMoved { ifindex: IfIndex(n), address: at(n, k) };
    let mut sent = rig.input(input);
    sent.extend(rig.wait(Duration::from_millis(50)));
    sent.iter().filter(|one| one.kind() == MessageType::PATH).map(|path| (path.oif, says(path))).collect()
}

/// A router that takes the place of the next router of the backup route gets the standby copy at once, whole.
#[test]
fn a_copy_goes_to_a_router_that_takes_the_place_of_its_next_router() {
    for reliable in [false, true] {
        let mut config = Config::default();
        config.neighbors.interface.reduction.reliable = reliable;
        let mut rig = Rig::with_neighbors(config, "10mbit");
        rig.backup = 3;
        rig.path(&protected());
        rig.wait(Duration::from_millis(50));
        for (n, k) in [(3, 8), (4, 9), (1, 9)] {
            assert_eq!(moved(&mut rig, n, k), [], "{n} {k}");
        }
        assert_eq!(moved(&mut rig, 3, 9), [(3, Some(false))]);
        assert_eq!(moved(&mut rig, 2, 9), [(2, Some(true))]);
        assert_eq!(rig.rsvp.counters().neighbors_followed, 2);
        // A sender without a backup route has no copy.
        rig.backup = 0;
        let prefix = rig.routes[0].0;
        rig.input(Input::RouteChanged(prefix));
        assert_eq!(moved(&mut rig, 3, 9), []);
        rig.path_tear(&protected());
        rig.wait(Duration::from_secs(60));
        assert!(rig.rsvp.holds_nothing());
    }
}

/// Copies of many senders go in parts.
#[test]
fn many_copies_go_in_parts() {
    let mut rig = forked();
    for n in 1..=200 {
        rig.path(&Path { extra: protecting().to_vec(), ..Path::of(session(), n, 1) });
    }
    let input = Input::NeighborMoved { ifindex: IfIndex(3), address: at(3, 9) };
    let first = rig.input(input);
    assert_eq!(first.len(), 64);
    let rest = rig.wait(Duration::from_millis(100));
    let mut senders: Vec<_> = first.iter().chain(&rest).map(|one| (one.oif, one.src)).collect();
    senders.sort_unstable();
    senders.dedup();
    assert_eq!(senders.len(), 200);
    assert!(senders.iter().all(|(oif, _)| *oif == 3));
    assert_eq!(rig.wait(Duration::from_millis(100)).len(), 0, "nothing is left to send");
}
