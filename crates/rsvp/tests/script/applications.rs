//! Several applications of this node in one session. Each is a next hop; their requests are merged upstream (RFC 2205
//! §1.4, §3.11.1; RSBs of the local API in RFC 2209).

use signalbox_resources::RequestedBy;
use signalbox_rsvp::engine::{Command, FlowRequest, Refused, ReserveRequest, RsvpEvent, SenderRequest};
use signalbox_rsvp::wire::{
    ErrorCode, ErrorFlags, ErrorSpec, Filter, FlowSpec, MessageType, Selector, Session, Style, UserError,
};

use crate::rig::{
    B, Path, Resv, Rig, addr, all, at, compose, group, kinds, load, one, one_to, sender, session, tspec,
};

/// A session whose receiver is this node.
fn here() -> Session {
    Session { dest: at(3, 1), ..session() }
}

fn reserve(style: Style, flows: &[(FlowSpec, &[u32])], confirm: bool) -> Command {
    let flows = flows.iter().map(|(flowspec, senders)| FlowRequest {
        flowspec: *flowspec,
        senders: senders.iter().map(|n| sender(*n)).collect(),
    });
    Command::Reserve(ReserveRequest { style, flows: flows.collect(), confirm, policy: Box::default() })
}

fn ff(rate: f32, confirm: bool) -> Command {
    reserve(Style::Ff, &[(load(rate * B), &[1])], confirm)
}

/// Applications 1 and 2 in a session of this node, whose senders 1 and 2 come by eth1.
fn two() -> Rig {
    let mut rig = Rig::new();
    for n in [1, 2] {
        rig.path(&Path { session: here(), ..Path::of(here(), n, 1) });
    }
    for id in [1, 2] {
        assert_eq!(kinds(&rig.command(id, Command::Session(here()))), []);
        assert_eq!(rig.take_events(id).len(), 2, "the senders that are there");
    }
    rig
}

/// The rate of sender 1 that a command sends upstream, if it sends any.
fn sent_rate(rig: &mut Rig, id: u64, command: Command) -> Option<f32> {
    let sent = rig.command(id, command);
    let resv = sent.first()?;
    assert_eq!((kinds(&sent).len(), resv.kind(), resv.dst), (1, MessageType::RESV, at(1, 9)));
    Some(resv.rates()[0].0)
}

/// RSVP-2.3-04: the merged requests of the applications go upstream; a request that does not change the merge is not
/// sent.
#[test]
fn requests_of_applications_are_merged() {
    let mut rig = two();
    assert_eq!(sent_rate(&mut rig, 1, ff(4.0, false)), Some(4.0 * B));
    assert_eq!(sent_rate(&mut rig, 2, ff(2.0, false)), None);
    assert_eq!(sent_rate(&mut rig, 2, ff(5.0, false)), Some(5.0 * B));
    assert_eq!(sent_rate(&mut rig, 1, ff(1.0, false)), None);
    assert_eq!(sent_rate(&mut rig, 2, Command::ReleaseReservation), Some(B));
    assert_eq!(sent_rate(&mut rig, 2, ff(1.0, false)), None);
    assert_eq!(kinds(&rig.command(1, Command::Close)), []);
    let sent = rig.command(2, Command::Close);
    assert_eq!(kinds(&sent), [(MessageType::RESV_TEAR, at(1, 9))]);
    assert!(rig.rsvp.view().all(|one| one.reservations.is_empty()));
    for n in [1, 2] {
        rig.path_tear(&Path::of(here(), n, 1));
    }
    assert!(rig.rsvp.holds_nothing());
}

#[test]
fn senders_of_shared_explicit_requests_are_united() {
    let mut rig = two();
    let se = |rate: f32, senders| reserve(Style::Se, &[(load(rate * B), senders)], false);
    assert_eq!(one(&rig.command(1, se(4.0, &[1])), MessageType::RESV).rates(), [(4.0 * B, 1)]);
    let sent = rig.command(2, se(2.0, &[2]));
    let mut rates = one(&sent, MessageType::RESV).rates();
    rates.sort_by_key(|(_, n)| *n);
    assert_eq!(rates.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 2]);
    // No application requests sender 1 any more; one still requests sender 2.
    let sent = rig.command(1, Command::ReleaseReservation);
    assert_eq!(one(&sent, MessageType::RESV_TEAR).rates(), [(0.0, 1)]);
    assert_eq!(one(&sent, MessageType::RESV).rates(), [(2.0 * B, 2)]);
}

/// RSVP-1.3-04: all requests of a session have one style, those that wait for their senders too.
#[test]
fn applications_of_a_session_have_one_style() {
    let mut rig = Rig::new();
    for id in [1, 2] {
        rig.command(id, Command::Session(here()));
    }
    rig.command(1, ff(1.0, false));
    rig.command(2, reserve(Style::Wf, &[(load(B), &[])], false));
    assert_eq!(rig.take_events(2), [RsvpEvent::Refused(Refused::ConflictingStyle)]);
    // A single application may change the style.
    rig.path(&Path::of(here(), 1, 1));
    let sent = rig.command(1, reserve(Style::Wf, &[(load(2.0 * B), &[])], false));
    assert_eq!(all(&sent, MessageType::RESV)[0].message().style, Some(Style::Wf));
    rig.take_events(2);
    rig.command(2, reserve(Style::Wf, &[(load(B), &[])], false));
    assert_eq!(rig.take_events(2), []);
    rig.command(1, ff(1.0, false));
    assert!(matches!(&rig.take_events(1)[..], [.., RsvpEvent::Refused(Refused::ConflictingStyle)]));
}

/// RSVP-3.1.8-09, RSVP-2209-RERR-04: an error reaches all applications whose request shares a sender with it, with
/// style, flow descriptor and error, and with NotGuilty for smaller requests.
#[test]
fn an_error_reaches_each_application() {
    let mut rig = two();
    rig.command(1, ff(4.0, false));
    rig.command(2, ff(2.0, false));
    let failed = Resv { session: here(), ..Resv::ff(&[(load(4.0 * B), 1)]) };
    rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::PREEMPTED, 3, true));
    for (id, flags) in [(1, ErrorFlags::IN_PLACE), (2, ErrorFlags::IN_PLACE.with(ErrorFlags::NOT_GUILTY))] {
        let error = ErrorSpec { node: addr("10.7.7.7"), flags, code: ErrorCode::PREEMPTED, value: 3 };
        let expected = RsvpEvent::ResvError {
            error,
            told: UserError::default(),
            style: Style::Ff,
            flowspec: Some(load(4.0 * B)),
            senders: vec![sender(1)],
            policy: Box::default(),
        };
        assert_eq!(rig.take_events(id), [expected]);
    }
}

/// RSVP-2.5-03, RSVP-2209-RERR-03: a request of one application that is too large does not block a request of another.
#[test]
fn each_application_is_blockaded_by_itself() {
    let mut rig = two();
    rig.command(1, ff(4.0, false));
    rig.command(2, ff(2.0, false));
    let failed = Resv { session: here(), ..Resv::ff(&[(load(4.0 * B), 1)]) };
    let sent = rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::ADMISSION, 2, true));
    assert_eq!(one_to(&sent, MessageType::RESV, at(1, 9)).rates(), [(2.0 * B, 1)]);
    assert!(matches!(&rig.take_events(1)[..], [RsvpEvent::ResvError { .. }]));
    assert_eq!(rig.take_events(2), [], "it is not to blame");
}

/// RSVP-2209-RACK-01: a confirmation reaches the application that requested it: from this node if another one requests
/// as much, else from upstream.
#[test]
fn a_confirmation_is_for_who_asked() {
    let mut rig = two();
    rig.command(1, ff(4.0, false));
    let sent = rig.command(2, ff(4.0, true));
    let confirmed = |node| RsvpEvent::Confirmed {
        node,
        style: Style::Ff,
        flowspec: Some(load(4.0 * B)),
        senders: vec![sender(1)],
    };
    assert_eq!((kinds(&sent), rig.take_events(1)), (vec![], vec![]));
    let events = rig.take_events(2);
    let [RsvpEvent::Confirmed { node, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(events, [confirmed(*node)]);
    assert!((1..=4).any(|n| *node == at(n, 1)));
    let sent = rig.command(2, ff(5.0, true));
    assert_eq!(one(&sent, MessageType::RESV).message().confirm, Some(here().dest));
    assert_eq!(rig.take_events(2), []);
    let octets = |style, of: &Session| {
        compose(MessageType::RESV_CONF, 60, |w| {
            let (flags, code) = (ErrorFlags::default(), ErrorCode::CONFIRMATION);
            w.session(of, false).error_spec(&ErrorSpec { node: addr("10.7.7.7"), flags, code, value: 0 });
            w.resv_confirm(here().dest).style(style).flowspec(&load(4.0 * B)).filter_spec(&sender(1));
        })
    };
    let sent = rig.packet(1, at(1, 9), here().dest, 60, &octets(Style::Ff, &here()));
    assert_eq!((kinds(&sent), rig.take_events(1)), (vec![], vec![]));
    assert_eq!(rig.take_events(2), [confirmed(addr("10.7.7.7"))]);
    // A confirmation for another style or session reaches no application.
    for octets in [octets(Style::Se, &here()), octets(Style::Ff, &Session { port: 1, ..here() })] {
        assert_eq!(kinds(&rig.packet(1, at(1, 9), here().dest, 60, &octets)), []);
    }
    assert_eq!((rig.take_events(1), rig.take_events(2), rig.rsvp.counters().unmatched), (vec![], vec![], 2));
}

/// Receivers of a group: two on this node and one behind it.
#[test]
fn applications_and_next_hops_are_merged() {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3]));
    rig.path(&Path::of(group(), 1, 1));
    for id in [1, 2] {
        rig.command(id, Command::Session(group()));
    }
    let wf = |rate: f32| reserve(Style::Wf, &[(load(rate * B), &[])], false);
    assert_eq!(sent_rate(&mut rig, 1, wf(2.0)), Some(2.0 * B));
    let behind = Resv::wf(load(4.0 * B)).from(3, 9, group());
    assert_eq!(one(&rig.resv(&behind), MessageType::RESV).rates(), [(4.0 * B, 0)]);
    assert_eq!(sent_rate(&mut rig, 2, wf(3.0)), None);
    assert_eq!(rig.reserved(3), 40_000);
    assert_eq!(one(&rig.resv_tear(&behind), MessageType::RESV).rates(), [(3.0 * B, 0)]);
    assert_eq!(sent_rate(&mut rig, 2, Command::Close), Some(2.0 * B));
    assert_eq!(kinds(&rig.command(1, Command::Close)), [(MessageType::RESV_TEAR, at(1, 9))]);
}

/// RSVP-3.1.3-12: an application gets reports of the sender of another application, not of its own.
#[test]
fn a_sender_gets_no_report_of_itself() {
    let mut rig = Rig::new();
    let own = Filter { src: at(1, 1), selector: Selector::Port(4000) };
    let announce =
        Command::Sender(SenderRequest { adspec: false, ttl: 20, ..SenderRequest::new(own, tspec(B)) });
    rig.trees.insert((group().dest, own.src), (0, vec![3]));
    rig.command(1, Command::Session(group()));
    let sent = rig.command(1, announce);
    assert_eq!(one(&sent, MessageType::PATH).oif, 1);
    rig.command(1, reserve(Style::Wf, &[(load(B), &[])], false));
    assert_eq!(rig.take_events(1), [], "neither of its Path nor of a reservation for it");
    rig.command(2, Command::Session(group()));
    assert_eq!(rig.take_events(1), []);
    let events = rig.take_events(2);
    assert!(matches!(&events[..], [RsvpEvent::Path { sender, .. }] if *sender == own), "{events:?}");
    // The sender's application gets a report of the other one's reservation, not of its own.
    rig.command(2, reserve(Style::Wf, &[(load(B), &[])], false));
    assert!(matches!(&rig.take_events(1)[..], [RsvpEvent::Resv { style: Style::Wf, .. }]));
    rig.command(2, Command::Close);
    assert!(matches!(&rig.take_events(1)[..], [RsvpEvent::ResvGone { sender }] if *sender == own));
    // What is granted to a receiver further on is a request of the application that announced the sender.
    rig.resources.record_decisions(true);
    rig.resv(&Resv::wf(load(B)).from(1, 9, group()));
    let granted = rig.resources.next_decision().unwrap();
    assert_eq!(granted.requester.requested_by, RequestedBy::LocalUser(Some(1)));
}

/// RSVP-2.10-01: a missing path upstream is reported to the application and ends nothing: its request stays and is sent
/// again.
#[test]
fn an_application_may_ignore_that_there_is_no_path() {
    let mut rig = two();
    rig.command(1, ff(4.0, false));
    let resv = Resv { session: here(), ..Resv::ff(&[(load(4.0 * B), 1)]) };
    rig.neighborly(1, at(1, 9), &resv.error_octets(1, ErrorCode::NO_PATH, 0, false));
    let events = rig.take_events(1);
    let [RsvpEvent::ResvError { error, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(error.code, ErrorCode::NO_PATH);
    let sent = rig.wait(std::time::Duration::from_secs(45));
    assert!(all(&sent, MessageType::RESV).iter().any(|one| one.rates() == [(4.0 * B, 1)]));
}
