//! Applications on nodes with several interfaces (RFC 2205 §3.9).

use std::time::Duration;

use signalbox_rsvp::engine::{Command, FlowRequest, Refused, ReserveRequest, RsvpEvent, SenderRequest};
use signalbox_rsvp::wire::{Filter, MessageType, Selector, Style};

use crate::rig::{B, Path, Resv, Rig, addr, all, at, group, kinds, load, one, sender, session, tspec};

fn reserve(style: Style, rate: f32) -> Command {
    let senders = if style == Style::Wf { vec![] } else { vec![sender(1)] };
    let flows = vec![FlowRequest { flowspec: load(rate), senders }];
    Command::Reserve(ReserveRequest { style, flows, confirm: false, policy: Box::default() })
}

/// RSVP-3.9-01: Paths of a sender leave by the interface of its address, whatever the route of the group is.
#[test]
fn paths_leave_by_the_interface_that_the_sender_names() {
    for (n, routed) in [(3, vec![2]), (4, vec![2, 3]), (2, vec![])] {
        let mut rig = Rig::new();
        let template = Filter { src: at(n, 1), selector: Selector::Port(4000) };
        rig.trees.insert((group().dest, template.src), (0, routed));
        rig.command(1, Command::Session(group()));
        let policy = Box::default();
        let request =
            SenderRequest { adspec: false, ttl: 9, policy, ..SenderRequest::new(template, tspec(B)) };
        let mut sent = rig.command(1, Command::Sender(request));
        sent.extend(rig.wait(Duration::from_secs(100)));
        assert!(all(&sent, MessageType::PATH).len() > 2);
        assert!(sent.iter().all(|one| (one.oif, one.src) == (n, at(n, 1))));
    }
}

/// RSVP-3.9-02: on a host a Resv leaves by the interface where the group was joined, or by that of the first Path.
#[test]
fn resvs_leave_by_the_interface_that_the_receiver_names() {
    for (named, expected) in [(None, 1), (Some(2), 2), (Some(1), 1)] {
        for style in [Style::Ff, Style::Wf, Style::Se] {
            let mut rig = Rig::new();
            rig.command(1, Command::Session(group()));
            if let Some(n) = named {
                rig.command(1, Command::ReceiveAt(at(n, 1)));
            }
            for iif in [1, 2] {
                rig.path(&Path::of(group(), 1, iif));
            }
            let mut sent = rig.command(1, reserve(style, B));
            assert_eq!(kinds(&sent), [(MessageType::RESV, at(expected, 9))]);
            sent.extend(rig.wait(Duration::from_secs(100)));
            let resvs = all(&sent, MessageType::RESV);
            assert!(resvs.len() > 2 && resvs.iter().all(|one| one.dst == at(expected, 9)));
        }
    }
    let mut rig = Rig::new();
    rig.command(1, Command::Session(group()));
    rig.command(1, Command::ReceiveAt(addr("10.77.1.1")));
    assert_eq!(rig.take_events(1), [RsvpEvent::Refused(Refused::BadReceiver)]);
    // In a unicast session the destination gives the interface.
    rig.command(2, Command::Session(session()));
    rig.command(2, Command::ReceiveAt(at(2, 1)));
    assert_eq!(rig.take_events(2), []);
}

/// A router whose application receives by eth2; data of sender 1 come by eth1 and go out by these interfaces.
fn router(oifs: &[u32]) -> Rig {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, oifs.to_vec()));
    rig.command(1, Command::Session(group()));
    rig.command(1, Command::ReceiveAt(at(2, 1)));
    rig
}

/// RSVP-3.9-03, RSVP-3.9-05: a branch for the application alone has its reservation and no other, and is not forwarded.
#[test]
fn local_only_path_state_is_for_the_application() {
    for style in [Style::Ff, Style::Wf, Style::Se] {
        let mut rig = router(&[3]);
        // In either order.
        let first = if style == Style::Ff { 1 } else { 2 };
        let mut sent = rig.path(&Path::of(group(), 1, first));
        sent.extend(rig.path(&Path::of(group(), 1, 3 - first)));
        assert!(all(&sent, MessageType::PATH).iter().all(|one| one.oif == 3));
        rig.take_events(1);
        // RSVP-3.9-04: the application's Resv goes to the previous hop of its data.
        let sent = rig.command(1, reserve(style, 2.0 * B));
        assert_eq!(kinds(&sent), [(MessageType::RESV, at(2, 9))]);
        let foreign = match style {
            Style::Ff => Resv::ff(&[(load(4.0 * B), 1)]),
            Style::Wf => Resv::wf(load(4.0 * B)),
            Style::Se => Resv::se(load(4.0 * B), &[1]),
        };
        let foreign = foreign.from(3, 9, group());
        assert_eq!(kinds(&rig.resv(&foreign)), [(MessageType::RESV, at(1, 9))]);
        let mut sent = Vec::new();
        for _ in 0..20 {
            sent.extend(rig.wait(Duration::from_secs(10)));
            for iif in [1, 2] {
                sent.extend(rig.path(&Path::of(group(), 1, iif)));
            }
            sent.extend(rig.resv(&foreign));
        }
        for resv in all(&sent, MessageType::RESV) {
            let rate = if resv.dst == at(1, 9) { 4.0 * B } else { 2.0 * B };
            assert_eq!((resv.rates()[0].0, resv.oif), (rate, if resv.dst == at(1, 9) { 1 } else { 2 }));
        }
        let to = |n| sent.iter().filter(|one| one.kind() == MessageType::RESV && one.dst == at(n, 9)).count();
        assert!(to(1) >= 4 && to(2) >= 4, "{} {}", to(1), to(2));
        assert!(all(&sent, MessageType::PATH).iter().all(|one| one.oif == 3));
        // Its end is not forwarded; the application then uses the other branch.
        let sent = rig.path_tear(&Path::of(group(), 1, 2));
        assert!(all(&sent, MessageType::PATH_TEAR).is_empty());
        let tear = rig.path_tear(&Path::of(group(), 1, 1));
        assert_eq!(one(&tear, MessageType::PATH_TEAR).oif, 3);
        assert_eq!((rig.rsvp.senders(), rig.reservations()), (0, 0));
        rig.command(1, Command::Close);
        assert!(rig.rsvp.holds_nothing());
    }
}

/// RSVP-3.9-04: where routing forwards the data to the application's interface, the Resv goes to their previous hop.
#[test]
fn a_resv_follows_the_data_into_the_router() {
    let mut rig = router(&[2, 3]);
    rig.path(&Path::of(group(), 1, 1));
    rig.path(&Path::of(group(), 1, 2));
    let sent = rig.command(1, reserve(Style::Ff, B));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    // Routing makes a separate branch, and removes it again.
    let sent = rig.tree(group(), 1, 1, &[3]);
    assert_eq!(one(&sent, MessageType::RESV).dst, at(2, 9));
    assert_eq!(one(&sent, MessageType::RESV_TEAR).dst, at(1, 9));
    let sent = rig.tree(group(), 1, 1, &[2, 3]);
    assert_eq!(one(&sent, MessageType::RESV).dst, at(1, 9));
    assert_eq!(one(&sent, MessageType::RESV_TEAR).dst, at(2, 9));
    rig.command(1, Command::Close);
    for iif in [1, 2] {
        rig.path_tear(&Path::of(group(), 1, iif));
    }
    assert!(rig.rsvp.holds_nothing());
}

/// An application that closes leaves no state.
#[test]
fn local_only_state_ends_with_its_application() {
    let mut rig = router(&[3]);
    for iif in [1, 2] {
        rig.path(&Path::of(group(), 1, iif));
    }
    rig.command(1, reserve(Style::Ff, B));
    assert_eq!(rig.rsvp.senders(), 2);
    let sent = rig.command(1, Command::Close);
    assert_eq!(kinds(&sent), [(MessageType::RESV_TEAR, at(2, 9))]);
    assert_eq!(rig.rsvp.senders(), 1);
    rig.wait(Duration::from_secs(200));
    assert!(rig.rsvp.holds_nothing());
}
