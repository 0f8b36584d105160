//! A planned restart: what a node leaves, and what the next one does with it.

use std::time::Duration;

use signalbox_core::handover::Entries;
use signalbox_core::node::Interface;
use signalbox_rsvp::engine::{Command, Config, Input, SenderRequest};
use signalbox_rsvp::wire::{Filter, Message, MessageType};

use crate::rig::{B, Path, Resv, Rig, all, at, group, kinds, load, one, sender, session, tspec};

fn left(rig: &Rig) -> Entries {
    let mut entries = Entries::default();
    rig.rsvp.hand_over(rig.now, &mut entries);
    entries
}

/// The senders with their previous hops, as they are shown.
fn senders(rig: &Rig) -> String {
    let mut all: Vec<_> = rig
        .rsvp
        .view()
        .flat_map(|one| one.senders.into_iter().map(move |sender| (one.session, sender)))
        .map(|(session, one)| {
            format!("{session} {} {:?} {} {:?}", one.sender, one.previous_hop, one.ifindex.0, one.tspec)
        })
        .collect();
    all.sort();
    all.join("\n")
}

/// The next node has the path state of the node before it and sends its own Paths at once, whose handle is another
/// one; a next hop answers such a Path by a Resv at once. The state ends when it would have ended without the restart.
#[test]
fn path_state_is_there_again() {
    let policy = vec![0, 12, 14, 1, 0, 4, 0, 0, 1, 2, 3, 4];
    for path in [
        Path::new(),
        Path { extra: policy, e_police: true, ..Path::new() },
        // A node without RSVP lies before this one.
        Path { send_ttl: 63, ..Path::new() },
    ] {
        let mut before = Rig::distant();
        let first = one(&before.path(&path), MessageType::PATH);
        before.wait(Duration::from_secs(100));
        let entries = left(&before);

        let mut rig = Rig::distant();
        let sent = rig.input(Input::Handover(entries));
        let again = one(&sent, MessageType::PATH);
        assert_eq!(again.octets, first.octets);
        assert_eq!(senders(&rig), senders(&before));
        assert_eq!(rig.rsvp.counters().paths_restored, 1);
        // The Resv of the next hop reserves, and goes on to the previous hop with its handle.
        let resv = one(&rig.resv(&Resv::ff(&[(load(B), 1)])), MessageType::RESV);
        assert_eq!((resv.dst, resv.message().hop.unwrap().lih), (at(1, 9), 77));
        assert_eq!(rig.reserved(2), before.reserved(2) + 10_000);
        // Of 157.5 seconds 57.5 are left.
        rig.wait(Duration::from_secs(57));
        assert_eq!(rig.rsvp.senders(), 1);
        rig.wait(Duration::from_secs(1));
        assert_eq!(rig.rsvp.senders(), 0);
    }
}

/// A Path that arrived meanwhile is newer; interfaces and previous hops that do not fit any more, and damaged entries, are left
/// out.
#[test]
fn what_does_not_hold_any_more_is_left_out() {
    let mut before = Rig::new();
    before.path(&Path::new());
    let entries = left(&before);

    let mut rig = Rig::new();
    let newer = Path { tspec: tspec(3.0 * B), ..Path::new() };
    rig.path(&newer);
    let state = senders(&rig);
    assert_eq!(kinds(&rig.input(Input::Handover(entries.clone()))), []);
    assert_eq!(senders(&rig), state);

    let mut off = Config::default();
    off.interface.enabled = false;
    let mut rig = Rig::with(off);
    assert_eq!(kinds(&rig.input(Input::Handover(entries.clone()))), []);
    assert_eq!(rig.rsvp.senders(), 0);

    let mut rig = Rig::new();
    let none: &[Interface] = &[];
    rig.input(Input::Interfaces(none));
    rig.input(Input::Handover(entries.clone()));
    assert_eq!(rig.rsvp.senders(), 0);

    let whole = entries.clone().take().unwrap().to_vec();
    for end in 0..whole.len() {
        let mut damaged = Entries::default();
        assert!(damaged.push(&whole[..end]));
        let mut rig = Rig::new();
        assert_eq!(kinds(&rig.input(Input::Handover(damaged))), []);
        assert_eq!(rig.rsvp.senders(), 0);
    }
}

/// The Paths of an application of this node are not handed over: the application ends with the node.
#[test]
fn own_senders_are_not_handed_over() {
    let mut rig = Rig::new();
    rig.command(1, Command::Session(session()));
    rig.command(
        1,
        Command::Sender(SenderRequest {
            ttl: 20,
            ..SenderRequest::new(Filter { src: at(1, 1), ..sender(1) }, tspec(B))
        }),
    );
    assert_eq!(rig.rsvp.senders(), 1);
    assert!(left(&rig).is_empty());
}

/// Many Paths are handled in parts: other messages are handled between them.
#[test]
fn many_paths_are_handled_in_parts() {
    let mut before = Rig::new();
    for n in 1..=200 {
        before.path(&Path::of(session(), n, 1));
    }
    before.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    before.path(&Path::of(group(), 1, 1));
    let entries = left(&before);
    let mut rig = Rig::new();
    rig.trees = before.trees.clone();
    let first = rig.input(Input::Handover(entries));
    assert!((1..=40).contains(&all(&first, MessageType::PATH).len()));
    assert_eq!(rig.rsvp.next_deadline(), Some(rig.now));
    let rest = rig.wait(Duration::from_millis(100));
    assert_eq!(all(&first, MessageType::PATH).len() + all(&rest, MessageType::PATH).len(), 202);
    assert_eq!(senders(&rig), senders(&before));
    assert!(all(&rest, MessageType::PATH).iter().all(|sent| Message::parse(&sent.octets).is_ok()));
}
