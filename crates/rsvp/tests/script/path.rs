//! Paths: state, forwarding, refreshes.

use std::time::Duration;

use signalbox_rsvp::engine::{Command, RsvpEvent};
use signalbox_rsvp::wire::{MessageType, RsvpHop};

use crate::rig::{B, Path, R, Resv, Rig, addr, at, handle, kinds, load, one, sender, session, tspec};

/// RSVP-2209-PATH-03, RSVP-3.1.3-04, RSVP-3.1.3-05, RSVP-3.1.3-06, RSVP-2209-PREF-01, RSVP-3.3-06
#[test]
fn a_new_path_goes_on_at_once() {
    let mut rig = Rig::new();
    let sent = rig.path(&Path::new());
    let path = one(&sent, MessageType::PATH);
    assert_eq!((path.src, path.dst, path.oif), (sender(1).src, session().dest, 2));
    assert_eq!((path.ttl, path.message().send_ttl, path.router_alert), (59, 59, true));
    let message = path.message();
    assert_eq!(message.hop, Some(RsvpHop { addr: at(2, 1), lih: handle(2) }));
    assert_eq!((message.session, message.sender), (Some(session()), Some(sender(1))));
    assert_eq!(message.sender_tspec.unwrap().read().unwrap(), Path::new().tspec);
    assert_eq!(message.refresh_period, Some(R));
}

/// RSVP-2209-PATH-05: an unchanged Path is not forwarded; RSVP-2209-PATH-04, RSVP-3.3-06: another previous hop or Tspec
/// is, at once.
#[test]
fn a_refresh_goes_nowhere_and_a_change_does() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    assert_eq!(kinds(&rig.path(&Path::new())), []);
    let changed = Path { tspec: tspec(500.0), ..Path::new() };
    let path = one(&rig.path(&changed), MessageType::PATH);
    assert_eq!(path.message().sender_tspec.unwrap().read().unwrap(), tspec(500.0));
    let moved = Path { hop: RsvpHop { addr: at(1, 8), lih: 1 }, ..changed };
    one(&rig.path(&moved), MessageType::PATH);
}

/// RSVP-2.3-01, RSVP-2.3-07, RSVP-3.7-03, RSVP-3.1.5-08, RSVP-2.4-02, RSVP-2.4-05
#[test]
fn a_sender_that_is_not_refreshed_is_torn_down() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    rig.wait(Duration::from_secs(100));
    rig.path(&Path::new()); // it lives longer
    let paths = rig.wait(Duration::from_millis(157_400));
    assert!(paths.iter().all(|one| one.kind() == MessageType::PATH));
    assert!((3..=10).contains(&paths.len()), "{}", paths.len());
    let sent = rig.wait(Duration::from_millis(200));
    let tear = one(&sent, MessageType::PATH_TEAR);
    assert_eq!((tear.src, tear.dst, tear.router_alert), (sender(1).src, session().dest, true));
    assert_eq!(kinds(&rig.wait(Duration::from_secs(600))), []);
    assert_eq!(rig.rsvp.next_deadline(), None);
}

/// RSVP-3.1.5-02, RSVP-3.1.5-04, RSVP-3.1.5-07, RSVP-2.4-03
#[test]
fn a_path_tear_counts_only_from_the_previous_hop() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let other = Path { hop: RsvpHop { addr: at(1, 8), lih: 77 }, ..Path::new() };
    assert_eq!(kinds(&rig.path_tear(&other)), []);
    let sent = rig.path_tear(&Path::new());
    let tear = one(&sent, MessageType::PATH_TEAR);
    assert_eq!((tear.src, tear.dst, tear.router_alert), (sender(1).src, session().dest, true));
    assert_eq!(kinds(&rig.path_tear(&Path::new())), []);
    assert_eq!(kinds(&rig.wait(Duration::from_secs(300))), []);
}

/// An administrator ends path state: the nodes behind this one are informed, what is reserved for it ends, and the next Path makes it
/// again. The senders of an application of this node are its own.
#[test]
fn an_administrator_ends_path_state() {
    let end = |source| Command::EndSenders { session: session(), source };
    let mut rig = Rig::new();
    for n in 1..4 {
        rig.path(&Path { sender: sender(n), ..Path::new() });
    }
    rig.resv(&Resv::ff(&[(load(B), 2)]));
    assert_eq!(rig.reserved(2), 10_000);
    let sent = rig.command(5, end(Some(sender(2).src)));
    assert_eq!(kinds(&sent), [(MessageType::PATH_TEAR, session().dest)]);
    assert_eq!(sent[0].src, sender(2).src);
    assert_eq!(rig.reserved(2), 0);
    assert_eq!(rig.take_events(5), [RsvpEvent::SendersEnded { senders: 1, more: false }]);
    assert_eq!(
        kinds(&rig.path(&Path { sender: sender(2), ..Path::new() })).len(),
        1,
        "a Path makes it again"
    );
    rig.command(6, end(None));
    assert_eq!(rig.take_events(6), [RsvpEvent::SendersEnded { senders: 3, more: false }]);
    rig.command(7, end(None));
    assert_eq!(rig.take_events(7), [RsvpEvent::SendersEnded { senders: 0, more: false }]);
    for n in 1..=200 {
        rig.path(&Path { sender: sender(n), ..Path::new() });
    }
    let mut parts = Vec::new();
    loop {
        rig.command(8, end(None));
        let [RsvpEvent::SendersEnded { senders, more }] = rig.take_events(8)[..] else { panic!() };
        parts.push(senders);
        if !more {
            break;
        }
    }
    assert_eq!(parts, [64, 64, 64, 8], "a part of them at a time");
}

/// RSVP-3.11.4-03, RSVP-3.1.3-10
#[test]
fn a_path_without_a_route_is_kept() {
    let mut rig = Rig::new();
    let path = Path { session: crate::rig::to("10.77.0.1"), ..Path::new() };
    assert_eq!(kinds(&rig.path(&path)), []);
    let sent = rig.route("10.77.0.0", 16, 3);
    assert_eq!(one(&sent, MessageType::PATH).oif, 3);
    assert_eq!(addr("10.77.0.1"), sent[0].dst);
}
