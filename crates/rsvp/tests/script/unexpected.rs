//! Path state of one sender of a group that comes by several interfaces: each is by itself (RFC 2205 §3.1.3, §3.1.5).

use std::time::Duration;

use signalbox_rsvp::engine::{Command, RsvpEvent};
use signalbox_rsvp::wire::{ListedId, MessageType, RsvpHop};

use crate::rig::{B, Path, Resv, Rig, all, at, compose, group, kinds, load, one, sender, tspec};

/// Data of sender 1 come by eth1 and go out by eth3; Paths come by eth2 as well. What the neighbour at eth3 wants is
/// reserved.
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

/// The tear of what counts goes on and leaves what waits aside; routing that turns to it finds it.
#[test]
fn what_waits_aside_outlives_the_tear_of_what_counts() {
    let mut rig = both();
    let sent = rig.path_tear(&Path::of(group(), 1, 1));
    assert_eq!(kinds(&sent), [(MessageType::PATH_TEAR, group().dest)]);
    assert_eq!((rig.rsvp.senders(), rig.reservations()), (1, 0));
    // It is not expected by eth2: it goes nowhere.
    assert_eq!(kinds(&rig.wait(Duration::from_secs(40))), []);
    let mut sent = rig.tree(group(), 1, 2, &[3]);
    sent.extend(rig.wait(Duration::from_secs(3)));
    assert_eq!(one(&sent, MessageType::PATH).oif, 3);
    let sent = rig.resv(&Resv::ff(&[(load(B), 1)]).from(3, 9, group()));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(2, 9))]);
    // It ends by its own tear, and nobody else's.
    assert_eq!(kinds(&rig.path_tear(&Path::of(group(), 1, 1))), []);
    assert_eq!(rig.rsvp.senders(), 1);
    let sent = rig.path_tear(&Path::of(group(), 1, 2));
    assert_eq!(kinds(&sent), [(MessageType::PATH_TEAR, group().dest)]);
    assert!(rig.rsvp.senders() == 0 && rig.rsvp.is_forgotten());
}

/// As by a tear, so by its time.
#[test]
fn what_waits_aside_outlives_the_end_of_what_counts() {
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
    assert!(rig.rsvp.is_forgotten());
}

/// RSVP-3.1.5-02, RSVP-3.1.5-03: of what waits aside, too, only its own previous hop can say that it is over.
#[test]
fn a_tear_of_what_waits_aside_names_its_previous_hop() {
    let mut rig = both();
    let other = Path { hop: RsvpHop { addr: at(2, 8), lih: 72 }, ..Path::of(group(), 1, 2) };
    let unmatched = rig.rsvp.counters().unmatched;
    assert_eq!(kinds(&rig.path_tear(&other)), []);
    assert_eq!(rig.rsvp.counters().unmatched, unmatched + 1);
    rig.path_tear(&Path::of(group(), 1, 1));
    assert_eq!(rig.rsvp.senders(), 1, "it is still there");
}

/// Routing turns to what waited aside: an application hears what that says of the sender, once.
#[test]
fn applications_hear_what_routing_turns_to() {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3]));
    rig.command(1, Command::Session(group()));
    for (iif, rate) in [(1, 2.0), (2, 3.0), (4, 3.0)] {
        rig.path(&Path { tspec: tspec(rate * B), ..Path::of(group(), 1, iif) });
    }
    let rates = |rig: &mut Rig| {
        let heard = rig.heard(1).into_iter();
        heard
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

/// An application that receives by an interface of its own keeps hearing of the sender there.
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
    rig.heard(1);
    let sent = rig.path_tear(&Path::of(group(), 1, 1));
    assert_eq!(kinds(&sent), [(MessageType::PATH_TEAR, group().dest)]);
    assert_eq!(rig.rsvp.senders(), 1);
    assert_eq!(rig.heard(1), []);
    // Paths by either interface find it as they did.
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
    assert_eq!(rig.heard(1).last(), Some(&RsvpEvent::PathGone { sender: sender(1) }));
    rig.command(1, Command::Close);
    assert!(rig.rsvp.is_forgotten());
}

/// A name that the former previous hop gave its Path keeps nothing alive that another one tells now.
#[test]
fn the_name_of_a_path_goes_with_its_previous_hop() {
    let mut rig = Rig::with_neighbours(signalbox_rsvp::engine::Config::default(), "10mbit");
    let path = Path::of(crate::rig::session(), 1, 1);
    let octets = crate::named::named(path.octets(), 5);
    rig.packet(1, path.sender.src, path.session.dest, path.ttl, &octets);
    rig.path(&Path::of(crate::rig::session(), 1, 4));
    for _ in 0..8 {
        rig.wait(Duration::from_secs(25));
        let ids = [ListedId { id: 5, source: None, group: None }];
        let refresh = compose(MessageType::SREFRESH, 255, |w| _ = w.id_list(crate::named::EPOCH, &ids));
        rig.neighbourly(1, at(1, 9), &refresh);
    }
    assert_eq!(rig.rsvp.senders(), 0);
}
