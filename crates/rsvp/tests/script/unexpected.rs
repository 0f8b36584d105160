//! Path state of one multicast sender from several interfaces: each is handled by itself (RFC 2205 §3.1.3, §3.1.5).

use std::time::Duration;

use signalbox_rsvp::engine::{Command, Input, RsvpEvent};
use signalbox_rsvp::wire::{ListedId, MessageType, RsvpHop};

use crate::rig::{B, Path, Resv, Rig, all, at, compose, group, kinds, load, one, sender, tspec};

/// Data of sender 1 come by eth1 and leave by eth3; Paths come by eth2 as well. A neighbor at eth3 has a reservation.
fn both() -> Rig {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3]));
    for iif in [1, 2] {
        rig.path(&Path::of(group(), 1, iif));
    }
    rig.resv(&Resv::ff(&[(load(B), 1)]).from(3, 9, group()));
    assert_eq!((rig.rsvp.senders(), rig.reservations()), (1, 1));
    rig
}

/// The tear of the state in use is forwarded and does not end the stored state, which is used when routing changes.
#[test]
fn unexpected_state_outlives_the_tear_of_the_state_in_use() {
    let mut rig = both();
    let sent = rig.path_tear(&Path::of(group(), 1, 1));
    assert_eq!(kinds(&sent), [(MessageType::PATH_TEAR, group().dest)]);
    assert_eq!((rig.rsvp.senders(), rig.reservations()), (1, 0));
    // State from eth2 is not expected: it is not forwarded.
    assert_eq!(kinds(&rig.wait(Duration::from_secs(40))), []);
    let mut sent = rig.tree(group(), 1, 2, &[3]);
    sent.extend(rig.wait(Duration::from_secs(3)));
    assert_eq!(one(&sent, MessageType::PATH).oif, 3);
    let sent = rig.resv(&Resv::ff(&[(load(B), 1)]).from(3, 9, group()));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(2, 9))]);
    // It ends by its own tear only.
    assert_eq!(kinds(&rig.path_tear(&Path::of(group(), 1, 1))), []);
    assert_eq!(rig.rsvp.senders(), 1);
    let sent = rig.path_tear(&Path::of(group(), 1, 2));
    assert_eq!(kinds(&sent), [(MessageType::PATH_TEAR, group().dest)]);
    assert!(rig.rsvp.senders() == 0 && rig.rsvp.holds_nothing());
}

/// The same by expiry.
#[test]
fn unexpected_state_outlives_the_end_of_the_state_in_use() {
    let mut rig = both();
    for _ in 0..5 {
        rig.wait(Duration::from_secs(30));
        rig.path(&Path::of(group(), 1, 2));
    }
    let sent = rig.wait(Duration::from_secs(20));
    assert_eq!(all(&sent, MessageType::PATH_TEAR).len(), 1);
    assert_eq!((rig.rsvp.senders(), rig.reservations()), (1, 0));
    let sent = rig.wait(Duration::from_secs(200));
    assert!(all(&sent, MessageType::PATH_TEAR).is_empty(), "it went nowhere");
    assert!(rig.rsvp.holds_nothing());
}

/// The link of the state in use is lost, so that its Path is held back. Routing changes to stored state, whose Path goes out. When that
/// state expires too, the next hop gets the PathTear.
#[test]
fn stored_state_has_its_path_sent_and_torn_down_after_a_lost_link() {
    let mut rig = both();
    rig.interfaces[0].up = false;
    let list = rig.interfaces.clone();
    rig.input(Input::Interfaces(&list));
    let sent = rig.wait(Duration::from_secs(50));
    assert!(all(&sent, MessageType::PATH).is_empty(), "{:?}", kinds(&sent));
    rig.path(&Path::of(group(), 1, 2));
    let sent = rig.tree(group(), 1, 2, &[3]);
    assert_eq!(one(&sent, MessageType::PATH).oif, 3);
    let sent = rig.wait(Duration::from_secs(170));
    assert_eq!(one(&sent, MessageType::PATH_TEAR).oif, 3);
    assert_eq!(rig.rsvp.senders(), 0);
}

/// RSVP-3.1.5-02, RSVP-3.1.5-03: only its own previous hop can tear stored state.
#[test]
fn a_tear_of_unexpected_state_names_its_previous_hop() {
    let mut rig = both();
    let other = Path { hop: RsvpHop { addr: at(2, 8), lih: 72 }, ..Path::of(group(), 1, 2) };
    let unmatched = rig.rsvp.counters().unmatched;
    assert_eq!(kinds(&rig.path_tear(&other)), []);
    assert_eq!(rig.rsvp.counters().unmatched, unmatched + 1);
    // The previous hop of the state in use, by the interface of the other state.
    let stray = Path { iif: 2, ..Path::of(group(), 1, 1) };
    assert_eq!(kinds(&rig.path_tear(&stray)), []);
    assert_eq!((rig.rsvp.counters().unmatched, rig.reservations()), (unmatched + 2, 1));
    rig.path_tear(&Path::of(group(), 1, 1));
    assert_eq!(rig.rsvp.senders(), 1, "it is still there");
}

/// Routing changes to stored state: an application gets one report of its contents.
#[test]
fn applications_get_the_state_to_which_routing_changes() {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3]));
    rig.command(1, Command::Session(group()));
    for (iif, rate) in [(1, 2.0), (2, 3.0), (4, 3.0)] {
        rig.path(&Path { tspec: tspec(rate * B), ..Path::of(group(), 1, iif) });
    }
    let rates = |rig: &mut Rig| {
        let events = rig.take_events(1).into_iter();
        events
            .map(|event| match event {
                RsvpEvent::Path { tspec, .. } => tspec.rate(),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(rates(&mut rig), [2.0 * B]);
    rig.tree(group(), 1, 2, &[3]);
    assert_eq!(rates(&mut rig), [3.0 * B]);
    rig.tree(group(), 1, 4, &[3]);
    assert_eq!(rates(&mut rig), []);
}

/// An application that receives by its own interface still gets the reports of that interface.
#[test]
fn what_is_for_an_application_alone_outlives_the_tear_of_what_is_forwarded() {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3]));
    rig.command(1, Command::Session(group()));
    rig.command(1, Command::ReceiveAt(at(2, 1)));
    for iif in [1, 2, 4] {
        rig.path(&Path::of(group(), 1, iif));
    }
    assert_eq!(rig.rsvp.senders(), 2);
    rig.take_events(1);
    let sent = rig.path_tear(&Path::of(group(), 1, 1));
    assert_eq!(kinds(&sent), [(MessageType::PATH_TEAR, group().dest)]);
    assert_eq!(rig.rsvp.senders(), 1);
    assert_eq!(rig.take_events(1), []);
    // Paths from either interface find their state.
    rig.path(&Path::of(group(), 1, 2));
    rig.path(&Path::of(group(), 1, 4));
    assert_eq!(rig.rsvp.senders(), 1);
    rig.path(&Path::of(group(), 1, 1));
    for iif in [4, 1] {
        rig.path_tear(&Path::of(group(), 1, iif));
    }
    assert_eq!(rig.rsvp.senders(), 1);
    rig.path_tear(&Path::of(group(), 1, 2));
    assert_eq!(rig.rsvp.senders(), 0);
    assert_eq!(rig.take_events(1).last(), Some(&RsvpEvent::PathGone { sender: sender(1) }));
    rig.command(1, Command::Close);
    assert!(rig.rsvp.holds_nothing());
}

/// The MESSAGE_ID of the former previous hop does not refresh the state of the new one.
#[test]
fn the_name_of_a_path_goes_with_its_previous_hop() {
    let mut rig = Rig::with_neighbors(signalbox_rsvp::engine::Config::default(), "10mbit");
    let path = Path::of(crate::rig::session(), 1, 1);
    let octets = crate::named::named(path.octets(), 5);
    rig.packet(1, path.sender.src, path.session.dest, path.ttl, &octets);
    rig.path(&Path::of(crate::rig::session(), 1, 4));
    for _ in 0..8 {
        rig.wait(Duration::from_secs(25));
        let ids = [ListedId { id: 5, source: None, group: None }];
        let refresh = compose(MessageType::SREFRESH, 255, |w| _ = w.id_list(crate::named::EPOCH, &ids));
        rig.neighborly(1, at(1, 9), &refresh);
    }
    assert_eq!(rig.rsvp.senders(), 0);
}
