//! Applications of this node (RFC 2205 §3.11.1).

use std::time::Duration;

use signalbox_core::hops;
use signalbox_rsvp::engine::{Command, FlowRequest, Refused, ReserveRequest, RsvpEvent, SenderRequest};
use signalbox_rsvp::wire::{
    ErrorCode, ErrorFlags, ErrorSpec, Filter, FlowSpec, MessageType, RsvpHop, Selector, Session, Style,
};

use crate::rig::{B, Path, Resv, Rig, addr, all, at, compose, kinds, load, one, sender, session, to, tspec};

fn local_sender() -> Filter {
    Filter { src: at(1, 1), selector: Selector::Port(4000) }
}

fn announce(rate: f32) -> Command {
    Command::Sender(SenderRequest { ttl: 20, ..SenderRequest::new(local_sender(), tspec(rate)) })
}

fn reserve(style: Style, flows: &[(FlowSpec, &[u32])], confirm: bool) -> Command {
    let flows = flows.iter().map(|(flowspec, senders)| FlowRequest {
        flowspec: *flowspec,
        senders: senders.iter().map(|n| sender(*n)).collect(),
    });
    Command::Reserve(ReserveRequest { style, flows: flows.collect(), confirm, policy: Box::default() })
}

/// A session whose receiver is this node.
fn here() -> Session {
    Session { dest: at(3, 1), ..session() }
}

/// RSVP-3.11.1-01, RSVP-3.11.1-02, RSVP-3.11.1-03, RSVP-3.1.3-03, RSVP-3.11.1-07, RSVP-2209-RREF-03,
/// RSVP-2.1-03, RSVP-2.4-01, RSVP-3.11.1-05
#[test]
fn a_sender_of_this_node_is_announced() {
    let mut rig = Rig::new();
    assert_eq!(kinds(&rig.command(1, announce(B))), []);
    assert_eq!(rig.take_events(1), [RsvpEvent::Refused(Refused::NoSession)]);
    assert_eq!(kinds(&rig.command(1, Command::Session(session()))), []);
    let path = one(&rig.command(1, announce(B)), MessageType::PATH);
    assert_eq!((path.src, path.dst, path.oif, path.ttl), (at(1, 1), session().dest, 2, 20));
    let adspec = path.message().adspec.unwrap().read().unwrap();
    assert_eq!((adspec.general.hops, adspec.general.broken, adspec.general.mtu), (1, false, 1500));
    let path = one(&rig.command(1, announce(2.0 * B)), MessageType::PATH);
    assert_eq!(path.message().sender_tspec.unwrap().read().unwrap(), tspec(2.0 * B));
    let sent = rig.wait(Duration::from_secs(600));
    assert!(sent.len() >= 13 && sent.iter().all(|one| one.kind() == MessageType::PATH));

    // RSVP-3.11.1-07, RSVP-2209-RREF-03, RSVP-2.1-03
    let flow = (Some(load(B)), vec![local_sender()]);
    let resv = Resv { flows: vec![flow], ..Resv::ff(&[]) }.confirmed(addr("10.5.5.5"));
    let sent = rig.resv(&resv);
    assert_eq!(kinds(&sent), [(MessageType::RESV_CONF, addr("10.5.5.5"))]);
    assert_eq!(rig.reserved(2), 10_000);
    let senders = vec![local_sender()];
    let expected = RsvpEvent::Resv {
        style: Style::Ff,
        flowspec: load(B),
        senders,
        policy: Box::default(),
        path: hops::Path::default(),
    };
    assert_eq!(rig.take_events(1), [expected]);

    // RSVP-2.4-01, RSVP-3.11.1-05
    let sent = rig.command(1, Command::Close);
    assert_eq!(kinds(&sent), [(MessageType::PATH_TEAR, session().dest)]);
    assert_eq!(rig.reservations(), 0);
    // The neighbor is removed after a time of silence.
    rig.wait(Duration::from_secs(120));
    assert_eq!(rig.rsvp.next_deadline(), None);
}

/// RSVP-3.11.1-04, RSVP-3.11.1-06, RSVP-3.11.1-12, RSVP-2.10-02, RSVP-2.6-01, RSVP-3.11.1-11,
/// RSVP-3.11.1-09, RSVP-3.11.1-10, RSVP-2209-RERR-04, RSVP-2.6-04
#[test]
fn a_receiver_of_this_node_reserves() {
    let mut rig = Rig::new();
    rig.command(1, Command::Session(here()));
    assert_eq!(kinds(&rig.command(1, reserve(Style::Ff, &[(load(B), &[1])], true))), []);
    let path = Path { session: here(), ..Path::new() };
    let sent = rig.path(&path);
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    assert_eq!(sent[0].message().confirm, Some(at(3, 1)));
    assert_eq!(sent[0].message().hop, Some(RsvpHop { addr: at(1, 1), lih: 77 }));
    let events = rig.take_events(1);
    assert!(matches!(&events[..], [RsvpEvent::Path { sender: of, .. }] if *of == sender(1)), "{events:?}");
    // RSVP-2.10-02: another one registers after the Path.
    rig.command(2, Command::Session(here()));
    let events = rig.take_events(2);
    assert!(matches!(&events[..], [RsvpEvent::Path { sender: of, .. }] if *of == sender(1)), "{events:?}");
    rig.command(2, Command::Close);
    for _ in 0..10 {
        rig.path(&path);
        let sent = rig.wait(Duration::from_secs(15));
        assert!(all(&sent, MessageType::RESV).iter().all(|one| one.message().confirm.is_none()));
    }
    assert_eq!(rig.take_events(1), [], "refreshes are not reported");
    let sent = rig.command(1, reserve(Style::Ff, &[(load(2.0 * B), &[1])], false));
    assert_eq!(one(&sent, MessageType::RESV).rates(), [(2.0 * B, 1)]);

    // RSVP-3.11.1-11
    let confirmation = compose(MessageType::RESV_CONF, 60, |w| {
        let node = addr("10.7.7.7");
        let code = ErrorCode::CONFIRMATION;
        w.session(&here(), false).error_spec(&ErrorSpec {
            node,
            flags: ErrorFlags::default(),
            code,
            value: 0,
        });
        w.resv_confirm(at(3, 1)).style(Style::Ff).flowspec(&load(B)).filter_spec(&sender(1));
    });
    rig.packet(1, at(1, 9), at(3, 1), 60, &confirmation);
    let flowspec = Some(load(B));
    let senders = vec![sender(1)];
    let expected = RsvpEvent::Confirmed { node: addr("10.7.7.7"), style: Style::Ff, flowspec, senders };
    assert_eq!(rig.take_events(1), [expected]);

    // RSVP-3.11.1-09, RSVP-3.11.1-10, RSVP-2209-RERR-04, RSVP-2.6-04
    let failed = Resv { session: here(), ..Resv::ff(&[(load(5.0 * B), 1)]) };
    rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::PREEMPTED, 0, false));
    let events = rig.take_events(1);
    let [RsvpEvent::ResvError { error, flowspec, senders, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((error.flags, error.node), (ErrorFlags::NOT_GUILTY, addr("10.7.7.7")));
    assert_eq!((*flowspec, &senders[..]), (Some(load(5.0 * B)), &[sender(1)][..]));

    let sent = rig.command(1, Command::ReleaseReservation);
    assert_eq!(kinds(&sent), [(MessageType::RESV_TEAR, at(1, 9))]);
    assert_eq!(kinds(&rig.path_tear(&path)), []);
    assert_eq!(rig.take_events(1), [RsvpEvent::PathGone { sender: sender(1) }]);
}

/// RSVP-3.11.1-08, RSVP-2.5-01, RSVP-3.1.7-03, RSVP-2209-PERR-01
#[test]
fn an_error_of_a_path_reaches_its_application() {
    let mut rig = Rig::new();
    rig.command(1, Command::Session(session()));
    rig.command(1, announce(B));
    let error = ErrorSpec {
        node: addr("10.7.7.7"),
        flags: ErrorFlags::default(),
        code: ErrorCode::CONFLICTING_DEST_PORTS,
        value: 0,
    };
    let octets = |of: &Filter| {
        compose(MessageType::PATH_ERR, 255, |w| {
            w.session(&session(), false).error_spec(&error).sender_template(of).sender_tspec(&tspec(B));
        })
    };
    assert_eq!(kinds(&rig.neighborly(2, at(2, 9), &octets(&local_sender()))), []);
    let policy = Box::default();
    assert_eq!(rig.take_events(1), [RsvpEvent::PathError { error, sender: local_sender(), policy }]);
    assert_eq!(kinds(&rig.neighborly(2, at(2, 9), &octets(&sender(1)))), []);
    rig.path(&Path::new());
    let sent = rig.neighborly(2, at(2, 9), &octets(&sender(1)));
    assert_eq!(kinds(&sent), [(MessageType::PATH_ERR, at(1, 9))]);
    assert_eq!(sent[0].error(), error);
    assert_eq!(rig.take_events(1), []);
}

#[test]
fn commands_that_cannot_be_are_refused() {
    let mut rig = Rig::new();
    let mut refused = |id, command| {
        rig.command(id, command);
        match rig.take_events(id).pop() {
            Some(RsvpEvent::Refused(why)) => Some(why),
            None => None,
            Some(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(1, Command::Session(Session { protocol: 0, ..session() })), Some(Refused::BadSession));
    assert_eq!(refused(1, Command::Session(session())), None);
    assert_eq!(refused(1, Command::Session(to("10.9.0.2"))), Some(Refused::NameTaken));
    let portless = Session { port: 0, ..session() };
    assert_eq!(refused(2, Command::Session(portless)), Some(Refused::ConflictingPorts));
    assert_eq!(refused(1, Command::ReleaseSender), Some(Refused::NothingToRelease));
    assert_eq!(refused(1, reserve(Style::Wf, &[(load(B), &[1])], false)), Some(Refused::BadFlows));
    assert_eq!(refused(1, reserve(Style::Ff, &[(load(B), &[])], false)), Some(Refused::BadFlows));
    let foreign =
        Command::Sender(SenderRequest { adspec: false, ttl: 1, ..SenderRequest::new(sender(1), tspec(B)) });
    assert_eq!(refused(1, foreign), Some(Refused::BadSource));
    assert_eq!(refused(1, Command::Close), None);
    assert_eq!(refused(1, Command::Close), Some(Refused::NoSession));
}
