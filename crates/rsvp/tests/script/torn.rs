//! PathTears while routes change (RFC 2205 §3.1.5, §3.6): they leave only along routes along which a Path went.

use std::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_rsvp::engine::{Command, Input, SenderRequest};
use signalbox_rsvp::wire::attribute::protecting;
use signalbox_rsvp::wire::{Filter, MessageType};

use crate::rig::{Path, Rig, Sent, addr, all, at, group, kinds, sender, session, tspec};

/// Time until a Path follows a new route (W), and a little more.
const W: Duration = Duration::from_millis(2100);

/// The interfaces by which PathTears left.
fn torn(sent: &[Sent]) -> Vec<u32> {
    let mut ways: Vec<u32> = all(sent, MessageType::PATH_TEAR).iter().map(|one| one.oif).collect();
    ways.sort_unstable();
    ways
}

/// Ways in which path state ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Tear,
    Command,
    Expiry,
}

const ENDS: [End; 3] = [End::Tear, End::Command, End::Expiry];

/// A node with path state that has a second left if it is to expire.
fn aged(end: End, mut rig: Rig, path: &Path) -> Rig {
    rig.path(path);
    if matches!(end, End::Expiry) {
        rig.wait(Duration::from_millis(156_500));
    }
    assert_eq!(rig.rsvp.senders(), 1);
    rig
}

/// Ends the path state. Returns the interfaces by which PathTears left.
fn ended(end: End, rig: &mut Rig, path: &Path) -> Vec<u32> {
    let sent = match end {
        End::Tear => rig.path_tear(path),
        End::Command => rig.command(9, Command::EndSenders { session: path.session, source: None }),
        End::Expiry => rig.wait(Duration::from_millis(1200)),
    };
    assert_eq!(rig.rsvp.senders(), 0, "{end:?}");
    torn(&sent)
}

/// RSVP-3.1.5-07, RSVP-3.1.5-08: the next hop of a new route has had no Path before W. It may be the one where the Paths of another way arrive.
#[test]
fn before_w_no_path_tear_takes_the_new_route() {
    for end in ENDS {
        let path = Path::new();
        let mut rig = aged(end, Rig::new(), &path);
        rig.route("10.9.0.0", 24, 3);
        assert_eq!(ended(end, &mut rig, &path), [0; 0], "{end:?}");
        // Another router at the same link.
        let mut rig = aged(end, Rig::new(), &path);
        rig.gateway = 8;
        rig.route("10.9.0.0", 24, 2);
        assert_eq!(ended(end, &mut rig, &path), [0; 0], "{end:?}");
        // A route that stays.
        let mut rig = aged(end, Rig::new(), &path);
        rig.route("10.9.0.0", 24, 2);
        assert_eq!(ended(end, &mut rig, &path), [2], "{end:?}");
    }
    // After W.
    for end in [End::Tear, End::Command] {
        let mut rig = aged(end, Rig::new(), &Path::new());
        rig.route("10.9.0.0", 24, 3);
        rig.wait(W);
        assert_eq!(ended(end, &mut rig, &Path::new()), [3], "{end:?}");
    }
    // A Path that changes goes out before W.
    let mut rig = aged(End::Tear, Rig::new(), &Path::new());
    rig.route("10.9.0.0", 24, 3);
    rig.path(&Path { tspec: tspec(1000.0), ..Path::new() });
    assert_eq!(ended(End::Tear, &mut rig, &Path::new()), [3]);
}

/// RSVP-3.1.5-08: a route that comes back before W has had no Path elsewhere. Its next hop has the Paths of before, and the
/// end goes there.
#[test]
fn a_way_that_comes_back_before_w_is_torn_down() {
    const FORMER: u32 = 9;
    for end in ENDS {
        let path = Path::new();
        let start = || aged(end, Rig::new(), &path);
        let change = |rig: &mut Rig, gateway: u32, oif: u32| {
            rig.gateway = gateway;
            rig.route("10.9.0.0", 24, oif);
        };
        let mut rig = start();
        change(&mut rig, FORMER, 3);
        change(&mut rig, FORMER, 2);
        assert_eq!(ended(end, &mut rig, &path), [2], "{end:?}: another link");
        let mut rig = start();
        change(&mut rig, 8, 2);
        change(&mut rig, FORMER, 2);
        assert_eq!(ended(end, &mut rig, &path), [2], "{end:?}: another router at the same link");
        let mut rig = start();
        change(&mut rig, FORMER, 3);
        change(&mut rig, 8, 2);
        assert_eq!(ended(end, &mut rig, &path), [0; 0], "{end:?}: the link comes back with another router");
        let path = Path::of(group(), 1, 1);
        let mut rig = Rig::new();
        rig.tree(group(), 1, 1, &[2, 3]);
        let mut rig = aged(end, rig, &path);
        rig.tree(group(), 1, 1, &[3]);
        rig.tree(group(), 1, 1, &[4, 3, 2]);
        assert_eq!(ended(end, &mut rig, &path), [2, 3], "{end:?}: a branch");
    }
    // After W the Paths have gone another way.
    let path = Path::new();
    let mut rig = aged(End::Tear, Rig::new(), &path);
    rig.route("10.9.0.0", 24, 3);
    rig.wait(W);
    rig.route("10.9.0.0", 24, 2);
    assert_eq!(ended(End::Tear, &mut rig, &path), [0; 0]);
}

/// RSVP-2.4-01, RSVP-3.11.1-05: an application of this node ends its sender before W.
#[test]
fn a_sender_of_this_node_is_torn_down_where_it_was_announced() {
    for (wait, ways) in [(Duration::ZERO, vec![]), (W, vec![3])] {
        let mut rig = Rig::new();
        let own = Filter { src: at(1, 1), ..sender(1) };
        rig.command(1, Command::Session(session()));
        let sent = rig.command(1, Command::Sender(SenderRequest::new(own, tspec(1000.0))));
        assert_eq!(kinds(&sent), [(MessageType::PATH, session().dest)]);
        rig.route("10.9.0.0", 24, 3);
        rig.wait(wait);
        assert_eq!(torn(&rig.command(1, Command::ReleaseSender)), ways, "{wait:?}");
    }
}

/// RSVP-2209-PTEAR-01: of the branches of a group those are torn down that have had a Path, in whatever order they came.
#[test]
fn before_w_the_former_branches_of_a_group_are_torn_down() {
    for end in ENDS {
        for (first, then, ways) in [
            (vec![2], vec![2, 3], vec![2]),
            (vec![3], vec![2, 3], vec![3]),
            (vec![2, 3], vec![2, 3, 4], vec![2, 3]),
            (vec![2, 3], vec![4, 3], vec![3]),
            (vec![2, 3], vec![3], vec![3]),
        ] {
            let path = Path::of(group(), 1, 1);
            let mut rig = Rig::new();
            rig.tree(group(), 1, 1, &first);
            let mut rig = aged(end, rig, &path);
            rig.tree(group(), 1, 1, &then);
            assert_eq!(ended(end, &mut rig, &path), ways, "{end:?}: {first:?} {then:?}");
        }
    }
    // A branch that comes and goes before W leaves the others as they are.
    let path = Path::of(group(), 1, 1);
    let mut rig = Rig::new();
    rig.tree(group(), 1, 1, &[3]);
    let mut rig = aged(End::Tear, rig, &path);
    rig.tree(group(), 1, 1, &[2, 3]);
    rig.tree(group(), 1, 1, &[3]);
    assert_eq!(ended(End::Tear, &mut rig, &path), [3]);
    // All of them after W.
    let mut rig = Rig::new();
    rig.tree(group(), 1, 1, &[2]);
    let mut rig = aged(End::Tear, rig, &path);
    rig.tree(group(), 1, 1, &[2, 3, 4]);
    rig.wait(W);
    assert_eq!(ended(End::Tear, &mut rig, &path), [2, 3, 4]);
}

/// RSVP-2209-PTEAR-01: a Path to a new branch was held back, because the incoming link was down. The branch that stays has had one.
#[test]
fn a_branch_without_a_path_is_not_torn_down_beside_one_that_has_had_one() {
    let path = Path::of(group(), 1, 1);
    let mut rig = Rig::new();
    rig.tree(group(), 1, 1, &[2]);
    rig.path(&path);
    rig.interfaces[0].up = false;
    let list = rig.interfaces.clone();
    rig.resources.interfaces(&list);
    rig.input(Input::Interfaces(&list));
    rig.tree(group(), 1, 1, &[2, 3]);
    rig.wait(W);
    let sent = rig.wait(Duration::from_secs(160));
    assert_eq!((torn(&sent), rig.rsvp.senders()), (vec![2], 0), "{:?}", kinds(&sent));
}

/// The standby copy of a protected sender goes out at once, the Path along the new route after W.
#[test]
fn a_new_backup_route_does_not_take_the_place_of_the_new_route() {
    let path = Path { extra: protecting().to_vec(), ..Path::new() };
    let start = || {
        let mut rig = Rig::new();
        rig.backup = 3;
        rig.path(&path);
        rig.backup = 2;
        let sent = rig.route("10.9.0.0", 24, 4);
        let paths = all(&sent, MessageType::PATH);
        assert_eq!(paths.iter().map(|one| one.oif).collect::<Vec<_>>(), [2], "{:?}", kinds(&sent));
        rig
    };
    assert_eq!(torn(&start().path_tear(&path)), [2]);
    let mut rig = start();
    let paths = all(&rig.wait(W), MessageType::PATH);
    assert_eq!(paths.iter().filter(|one| one.oif == 4).count(), 1, "W is over");
    assert_eq!(torn(&rig.path_tear(&path)), [2, 4]);
}

/// RSVP-3.11.4-03: a route that was lost: no Path and no PathTear goes anywhere.
#[test]
fn without_a_route_nothing_is_torn_down() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.routes.clear();
    rig.input(Input::RouteChanged(Prefix { addr: addr("10.9.0.0"), len: 24 }));
    assert_eq!(kinds(&rig.path_tear(&Path::new())), []);
}
