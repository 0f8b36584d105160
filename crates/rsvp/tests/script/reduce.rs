//! Bandwidth reduction (RFC 4495). Reservations have 937 500 octets a second of each link; the stronger flow requests
//! 800 000.

use std::time::Duration;

use signalbox_resources::Config as Links;
use signalbox_rsvp::engine::{Command, Config, FlowRequest, ReserveRequest, RsvpEvent};
use signalbox_rsvp::wire::{ErrorCode, ErrorFlags, FlowSpec, MessageType, PolicyValue, Session, Style};

use crate::policy::priority;
use crate::rig::{
    B, Path, Resv, Rig, Sent, all, at, guaranteed, kinds, load, one_to, sender, session, to, tspec,
};

const LEFT: f32 = 137_500.0;

fn node(change: impl FnOnce(&mut Config)) -> Rig {
    let mut config = Config::default();
    config.neighbors.interface.reduction.reliable = false;
    change(&mut config);
    let links = Links { preemption: true, ..Links::of_link("*", "10mbit".parse().unwrap()) };
    let mut rig = Rig::with_all(config, links);
    for session in [session(), strong()] {
        rig.path(&Path { tspec: tspec(90.0 * B), ..Path::of(session, 1, 1) });
    }
    rig
}

fn strong() -> Session {
    to("10.9.0.2")
}

fn weak(flowspec: FlowSpec) -> Resv {
    Resv { extra: priority(100, 100), ..Resv::ff(&[(flowspec, 1)]) }
}

/// The weaker flow reserves, then the stronger one.
fn reduce(rig: &mut Rig, flowspec: FlowSpec) -> Vec<Sent> {
    rig.resv(&weak(flowspec));
    rig.resv(&Resv { extra: priority(300, 300), ..Resv::ff(&[(load(80.0 * B), 1)]).from(2, 8, strong()) })
}

/// RSVPX-4495-5-01, RSVPX-4495-5-02: the weaker reservation is reduced by what is needed, and its next
/// hop gets a report of the rest.
#[test]
fn no_more_is_taken_than_is_needed() {
    let mut rig = node(|_| {});
    let sent = reduce(&mut rig, load(80.0 * B));
    assert_eq!(all(&sent, MessageType::RESV_TEAR).len(), 0);
    assert_eq!(one_to(&sent, MessageType::RESV, at(1, 9)).rates(), [(80.0 * B, 1)]);
    let report = one_to(&sent, MessageType::RESV_ERR, at(2, 9));
    let error = report.error();
    assert_eq!((error.code, error.value), (ErrorCode::POLICY, PolicyValue::PARTIAL_PREEMPT.0));
    assert_eq!((error.value, error.flags, error.node), (102, ErrorFlags::IN_PLACE, at(2, 1)));
    assert_eq!(report.flows(), [(Some(load(LEFT)), Some(sender(1)))]);
    // Its own priority with the error code for preemption.
    let mut policy = priority(100, 100);
    policy[14] = 1;
    assert_eq!(report.message().policy().next().unwrap().octets(), policy);
    assert_eq!((rig.reservations(), rig.reserved(2)), (2, 937_500));
    assert_eq!(rig.rsvp.counters().reduced, 1);
    // Guaranteed service loses R, and r with it.
    let mut rig = node(|_| {});
    let sent = reduce(&mut rig, guaranteed(10.0 * B, 80.0 * B, 0));
    let report = one_to(&sent, MessageType::RESV_ERR, at(2, 9));
    assert_eq!(report.flows()[0].0, Some(guaranteed(10.0 * B, LEFT, 0)));
}

/// RSVPX-4495-5-04: a next hop that still requests more gets the same report and loses nothing; a
/// smaller request is granted and goes upstream.
#[test]
fn what_is_left_is_absolute() {
    let mut rig = node(|_| {});
    reduce(&mut rig, load(80.0 * B));
    for _ in 0..3 {
        let sent = rig.resv(&weak(load(80.0 * B)));
        assert_eq!(kinds(&sent), [(MessageType::RESV_ERR, at(2, 9))]);
        assert_eq!(sent[0].flows(), [(Some(load(LEFT)), Some(sender(1)))]);
        assert_eq!(rig.reserved(2), 937_500);
    }
    let sent = rig.resv(&weak(load(LEFT)));
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    assert_eq!(sent[0].rates(), [(LEFT, 1)]);
    assert_eq!(kinds(&rig.resv(&weak(load(LEFT)))), []);
    assert_eq!(rig.reserved(2), 937_500);
}

/// A receiver of this node, and the ResvErr that reaches it.
fn receiver(change: impl FnOnce(&mut Config)) -> (Rig, Vec<u8>) {
    let here = Session { dest: at(3, 1), ..session() };
    let mut rig = node(change);
    rig.command(1, Command::Session(here));
    rig.path(&Path::of(here, 1, 1));
    let flows = vec![FlowRequest { flowspec: load(8.0 * B), senders: vec![sender(1)] }];
    let policy = Box::default();
    rig.command(1, Command::Reserve(ReserveRequest { style: Style::Ff, flows, confirm: false, policy }));
    rig.take_events(1);
    let left = Resv { session: here, ..Resv::ff(&[(load(3.0 * B), 1)]) };
    let error = left.error_octets(1, ErrorCode::POLICY, PolicyValue::PARTIAL_PREEMPT.0, true);
    (rig, error)
}

/// RSVPX-4495-5-03, RSVPX-4495-5-04: a receiver requests what is left; a repeated report changes nothing.
#[test]
fn a_receiver_comes_back_with_less() {
    let (mut rig, error) = receiver(|_| {});
    let sent = rig.neighborly(1, at(1, 9), &error);
    assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))]);
    assert_eq!(sent[0].rates(), [(3.0 * B, 1)]);
    assert!(
        matches!(&rig.take_events(1)[..], [RsvpEvent::ResvError { flowspec: Some(left), .. }] if *left == load(3.0 * B))
    );
    assert_eq!(kinds(&rig.neighborly(1, at(1, 9), &error)), []);
    let sent = rig.wait(Duration::from_secs(45));
    assert!(all(&sent, MessageType::RESV).iter().all(|resv| resv.rates() == [(3.0 * B, 1)]));
}

/// RSVPX-4495-5-06: without the extension the whole reservation is preempted and torn upstream; a receiver handles a
/// report of a reduction like any error.
#[test]
fn without_reduction_all_is_as_ever() {
    let mut rig = node(|config| config.reduction = false);
    let sent = reduce(&mut rig, load(80.0 * B));
    assert_eq!(one_to(&sent, MessageType::RESV_ERR, at(2, 9)).error().code, ErrorCode::PREEMPTED);
    assert_eq!(all(&sent, MessageType::RESV_TEAR).len(), 1);
    assert_eq!((rig.reservations(), rig.reserved(2)), (1, 800_000));
    let (mut rig, error) = receiver(|config| config.reduction = false);
    assert_eq!(kinds(&rig.neighborly(1, at(1, 9), &error)), []);
    assert!(matches!(&rig.take_events(1)[..], [RsvpEvent::ResvError { .. }]));
}

/// RSVPX-4495-5-05: with refresh reduction the report has a MESSAGE_ID with ACK_Desired.
#[test]
fn the_report_is_sent_reliably() {
    let mut rig = node(|config| config.neighbors.interface.reduction.reliable = true);
    crate::capable::shown(&mut rig, 2, 9);
    let sent = reduce(&mut rig, load(80.0 * B));
    assert!(one_to(&sent, MessageType::RESV_ERR, at(2, 9)).message().message_id.is_some());
}
