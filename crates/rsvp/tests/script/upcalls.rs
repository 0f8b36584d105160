//! Events of applications (RFC 2205 §3.11.1), and Router Alert over IPv6 (RFC 2711).

use std::time::Duration;

use signalbox_core::hops;
use signalbox_rsvp::engine::{Command, Config, FlowRequest, ReserveRequest, RsvpEvent, SenderRequest};
use signalbox_rsvp::wire::{
    ErrorCode, ErrorFlags, ErrorSpec, Filter, MessageId, MessageType, RsvpHop, Selector, Session, Style,
    UserError,
};

use crate::rig::{B, Path, Resv, Rig, addr, at, compose, group, handle, load, one, sender, session, tspec};

/// RSVP-3.11.1-07: a Resv with two flow descriptors is two upcalls, each with the reservation for its sender; a refresh
/// makes no upcall, a change makes one.
#[test]
fn each_sender_gets_reports_of_its_reservation() {
    let mut rig = Rig::new();
    let own = [1, 2].map(|n| Filter { src: at(1, 1), selector: Selector::Port(4000 + n) });
    for (id, template) in (1..).zip(own) {
        rig.command(id, Command::Session(session()));
        let policy = Box::default();
        rig.command(
            id,
            Command::Sender(SenderRequest {
                adspec: false,
                ttl: 9,
                policy,
                ..SenderRequest::new(template, tspec(9.0 * B))
            }),
        );
    }
    let ff = |rates: [f32; 2]| {
        let flows = rates.into_iter().zip(own).map(|(rate, filter)| (Some(load(rate)), vec![filter]));
        Resv { flows: flows.collect(), ..Resv::ff(&[]) }
    };
    let reserved = |n: usize, rate| RsvpEvent::Resv {
        style: Style::Ff,
        flowspec: load(rate),
        senders: vec![own[n]],
        policy: Box::default(),
        path: hops::Path::default(),
    };
    rig.resv(&ff([B, 2.0 * B]));
    assert_eq!((rig.take_events(1), rig.take_events(2)), (vec![reserved(0, B)], vec![reserved(1, 2.0 * B)]));
    rig.resv(&ff([B, 2.0 * B]));
    assert_eq!((rig.take_events(1), rig.take_events(2)), (vec![], vec![]));
    // The effective flowspec is the merge of all next hops.
    rig.resv(&Resv { hop: RsvpHop { addr: at(2, 8), lih: handle(2) }, ..ff([B, 3.0 * B]) });
    assert_eq!((rig.take_events(1), rig.take_events(2)), (vec![], vec![reserved(1, 3.0 * B)]));
}

/// RSVP-3.11.1-09, RSVP-3.11.1-10, RSVP-A.5-02: an application with a strictly smaller request gets NotGuilty, whatever
/// the message has; messages never have it.
#[test]
fn a_smaller_request_of_an_application_is_not_guilty() {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3]));
    rig.command(1, Command::Session(group()));
    rig.path(&Path::of(group(), 1, 1));
    let flows = vec![FlowRequest { flowspec: load(2.0 * B), senders: vec![sender(1)] }];
    let reserve = ReserveRequest { style: Style::Ff, flows, confirm: false, policy: Box::default() };
    rig.command(1, Command::Reserve(reserve));
    rig.resv(&Resv::ff(&[(load(2.0 * B), 1)]).from(3, 9, group()));
    rig.take_events(1);
    for (failed, said, expected) in [
        (3.0 * B, ErrorFlags::default(), ErrorFlags::NOT_GUILTY),
        (3.0 * B, ErrorFlags::IN_PLACE, ErrorFlags::IN_PLACE.with(ErrorFlags::NOT_GUILTY)),
        (2.0 * B, ErrorFlags::NOT_GUILTY, ErrorFlags::default()),
        (B, ErrorFlags::IN_PLACE, ErrorFlags::IN_PLACE),
    ] {
        let node = addr("10.7.7.7");
        let error = ErrorSpec { node, flags: said, code: ErrorCode::PREEMPTED, value: 7 };
        let octets = compose(MessageType::RESV_ERR, 255, |w| {
            w.session(&group(), false).hop(&RsvpHop { addr: at(1, 9), lih: 0 }).error_spec(&error);
            w.style(Style::Ff).flowspec(&load(failed)).filter_spec(&sender(1));
        });
        let sent = rig.neighborly(1, at(1, 9), &octets);
        let in_place = ErrorFlags(said.0 & ErrorFlags::IN_PLACE.0);
        assert_eq!(one(&sent, MessageType::RESV_ERR).error(), ErrorSpec { flags: in_place, ..error });
        let policy = Box::default();
        let expected = RsvpEvent::ResvError {
            error: ErrorSpec { flags: expected, ..error },
            told: UserError::default(),
            style: Style::Ff,
            flowspec: Some(load(failed)),
            senders: vec![sender(1)],
            policy,
        };
        assert_eq!(rig.take_events(1), [expected]);
    }
}

/// RSVP-RAO-04: every message over IPv6 has a Router Alert, acknowledgments too.
#[test]
fn all_messages_over_ipv6_alert_routers() {
    let mut rig = Rig::with_neighbors(Config::default(), "10mbit");
    let session = Session { dest: addr("fd09::1"), ..session() };
    let filter = Filter { src: addr("fd08::1"), selector: Selector::Port(4000) };
    let hop = |n: u32| RsvpHop { addr: addr(&format!("fd00:{n}::9")), lih: handle(n) };
    let name = MessageId { ack_desired: true, epoch: 5, id: 1 };
    let mut path = Path { session, sender: filter, hop: hop(1), tspec: tspec(200.0 * B), ..Path::new() };
    let named = compose(MessageType::PATH, 60, |w| {
        w.message_id(&name).session(&session, false).hop(&path.hop).time_values(30_000);
        w.sender_template(&filter).sender_tspec(&path.tspec);
    });
    let mut sent = rig.packet(1, filter.src, session.dest, 60, &named);
    sent.extend(rig.wait(Duration::from_secs(2)));
    let ff =
        |rate| Resv { session, hop: hop(2), flows: vec![(Some(load(rate)), vec![filter])], ..Resv::ff(&[]) };
    sent.extend(rig.resv(&ff(2.0 * B)));
    sent.extend(rig.resv(&ff(200.0 * B)));
    sent.extend(
        rig.resv(
            &Resv { hop: RsvpHop { addr: addr("fd00:2::8"), lih: handle(2) }, ..ff(B) }
                .confirmed(addr("fd05::5")),
        ),
    );
    path.extra = vec![0, 8, 100, 1, 0, 0, 0, 0];
    sent.extend(rig.path(&path));
    path.extra.clear();
    sent.extend(rig.wait(Duration::from_secs(60)));
    sent.extend(rig.resv_tear(&ff(2.0 * B)));
    sent.extend(rig.path_tear(&path));
    sent.extend(rig.wait(Duration::from_secs(5)));
    assert!(sent.iter().all(|one| one.dst.is_ipv6() && one.router_alert));
    let kinds: std::collections::BTreeSet<u8> = sent.iter().map(|one| one.octets[1]).collect();
    let expected = [1, 2, 3, 4, 5, 7, 13]; // Path, Resv, PathErr, ResvErr, PathTear, ResvConf, Ack
    assert!(expected.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
}
