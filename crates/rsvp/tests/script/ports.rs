//! Ports, and sessions and senders without ports (RFC 2205 §3.2).

use signalbox_core::traffic::FlowFilter;
use signalbox_rsvp::wire::{ErrorCode, Filter, MessageType, Selector, Session, SessionKind};

use crate::rig::{B, Path, Resv, Rig, addr, at, kinds, load, one, sender, session};

fn from_port(port: u16) -> Filter {
    Filter { selector: Selector::Port(port), ..sender(1) }
}

/// A session of any protocol and port.
fn of(protocol: u8, port: u16) -> Session {
    Session { protocol, port, ..session() }
}

/// RSVP-3.2-01, RSVP-3.2-02: the classifier gets ports, and none where they are zero; sessions may have any protocol.
#[test]
fn packets_are_classified_by_the_ports_that_are_given() {
    for (protocol, port, source) in
        [(17, 5004, 4000), (6, 80, 4000), (17, 5004, 0), (47, 0, 0), (1, 0, 0), (255, 0, 0), (132, 9, 8)]
    {
        let mut rig = Rig::new();
        let (session, template) = (of(protocol, port), from_port(source));
        let sent = rig.path(&Path { session, sender: template, ..Path::new() });
        assert_eq!(one(&sent, MessageType::PATH).message().session, Some(session));
        let resv = Resv { flows: vec![(Some(load(B)), vec![template])], ..Resv::ff(&[]) };
        rig.resv(&resv.from(2, 9, session));
        let filters: Vec<FlowFilter> = rig.resources.reservations().flat_map(|one| one.filters).collect();
        let [filter] = &filters[..] else { panic!("{filters:?}") };
        assert_eq!((filter.src.addr, filter.src.len), (sender(1).src, 32));
        assert_eq!((filter.dst.addr, filter.dst.len), (session.dest, 32));
        let some = |port: u16| Some(port).filter(|port| *port != 0);
        assert_eq!(
            (filter.protocol, filter.dst_port, filter.src_port),
            (Some(protocol), some(port), some(source))
        );
    }
}

/// RSVP-3.2-03, RSVP-2209-PATH-01: the sessions of one destination and protocol all have ports, or none has.
#[test]
fn destination_ports_are_all_zero_or_none() {
    for (first, second, source) in [(5004, 0, 0), (0, 5004, 4000)] {
        let mut rig = Rig::new();
        let standing = Path { session: of(17, first), sender: from_port(0), ..Path::new() };
        rig.path(&standing);
        let other = of(17, second);
        let sent = rig.path(&Path { session: other, sender: from_port(source), ..Path::new() });
        let error = one(&sent, MessageType::PATH_ERR);
        assert_eq!((error.dst, error.error().code), (at(1, 9), ErrorCode::CONFLICTING_DEST_PORTS));
        assert_eq!((error.error().value, error.error().node, sent.len()), (0, at(1, 1), 1));
        let resv = Resv { flows: vec![(Some(load(B)), vec![from_port(source)])], ..Resv::ff(&[]) };
        let sent = rig.resv(&resv.from(2, 9, other));
        assert_eq!(one(&sent, MessageType::RESV_ERR).error().code, ErrorCode::CONFLICTING_DEST_PORTS);
        assert_eq!((rig.rsvp.sessions(), rig.rsvp.senders(), rig.reservations()), (1, 1, 0));
        // Another protocol, another destination, and another port beside a port do not conflict.
        let fine = [of(6, second), Session { dest: addr("10.9.0.2"), ..other }];
        for session in fine.into_iter().chain((first != 0).then(|| of(17, first + 2))) {
            let path = Path { session, sender: from_port(0), ..Path::new() };
            one(&rig.path(&path), MessageType::PATH);
        }
        // The former session is still refreshed.
        assert_eq!(kinds(&rig.path(&standing)), []);
    }
}

/// RSVP-3.2-05, RSVP-2209-PATH-02: a sender host has source ports in a session, or has none.
#[test]
fn source_ports_of_a_host_are_all_zero_or_none() {
    for (first, second) in [(0, 4000), (4000, 0)] {
        let mut rig = Rig::new();
        rig.path(&Path { sender: from_port(first), ..Path::new() });
        let sent = rig.path(&Path { sender: from_port(second), ..Path::new() });
        let error = one(&sent, MessageType::PATH_ERR);
        assert_eq!((error.dst, error.error().code), (at(1, 9), ErrorCode::CONFLICTING_SENDER_PORTS));
        assert_eq!((error.message().sender, sent.len()), (Some(from_port(second)), 1));
        assert_eq!(rig.rsvp.senders(), 1);
        // Another host may differ, and so may this one in another session.
        let other = Filter { src: sender(2).src, ..from_port(second) };
        one(&rig.path(&Path { sender: other, ..Path::new() }), MessageType::PATH);
        let path = Path { session: of(17, 6000), sender: from_port(second), ..Path::new() };
        one(&rig.path(&path), MessageType::PATH);
        assert_eq!(rig.rsvp.senders(), 3);
    }
}

/// RSVP-3.2-06: zero is no wildcard when filters are compared with senders.
#[test]
fn port_zero_matches_port_zero_alone() {
    for (announced, asked) in [(4000, 0), (0, 4000), (4000, 4001)] {
        let mut rig = Rig::new();
        rig.path(&Path { sender: from_port(announced), ..Path::new() });
        for resv in [Resv::ff(&[]), Resv::se(load(B), &[])] {
            let flows = vec![(Some(load(B)), vec![from_port(asked)])];
            let sent = rig.resv(&Resv { flows, ..resv });
            assert_eq!(kinds(&sent), [(MessageType::RESV_ERR, at(2, 9))]);
            assert_eq!(sent[0].error().code, ErrorCode::NO_SENDER);
        }
        assert_eq!(rig.reservations(), 0);
        // A tear of a sender with the other port is not for this one either.
        let tear = Path { sender: from_port(asked), ..Path::new() };
        assert_eq!((kinds(&rig.path_tear(&tear)), rig.rsvp.senders()), (vec![], 1));
    }
}

/// A message with a source port in a session without a port is dropped without an answer.
#[test]
fn a_source_port_without_a_destination_port_has_no_error() {
    let mut rig = Rig::new();
    assert_eq!(kinds(&rig.path(&Path { session: of(17, 0), ..Path::new() })), []);
    let resv = Resv::ff(&[(load(B), 1)]).from(2, 9, of(17, 0));
    assert_eq!(kinds(&rig.resv(&resv)), []);
    assert_eq!((rig.rsvp.counters().bad_source_port, rig.rsvp.sessions()), (2, 0));
    assert_eq!(SessionKind::Ports, session().kind);
}
