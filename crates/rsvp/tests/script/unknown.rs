//! Objects of unknown classes and types (RFC 2205 §3.10), and handles.

use std::time::Duration;

use signalbox_rsvp::engine::{Command, FlowRequest, ReserveRequest, RsvpEvent};
use signalbox_rsvp::wire::{Class, ErrorCode, ErrorFlags, ErrorSpec, MessageType, RsvpHop, Session, Style};

use crate::rig::{
    B, Path, Resv, Rig, Sent, addr, all, at, compose, group, kinds, load, one, sender, session, tspec,
};

/// An object of eight octets, of an unknown class.
fn object(class: u8, content: [u8; 4]) -> Vec<u8> {
    [&[0, 8, class, 7][..], &content].concat()
}

/// An object to be forwarded.
fn kept(content: u8) -> Vec<u8> {
    object(250, [content; 4])
}

/// Those of class 11bbbbbb in a message.
fn carried(sent: &Sent) -> Vec<Vec<u8>> {
    sent.message().kept().map(|object| object.octets.to_vec()).collect()
}

/// A PathErr or ResvErr with one of each.
fn error() -> ErrorSpec {
    ErrorSpec { node: addr("10.7.7.7"), flags: ErrorFlags::default(), code: ErrorCode::POLICY, value: 0 }
}

/// RSVP-3.10-04: in tears and errors they are forwarded at once, those of class 10bbbbbb are not.
#[test]
fn tears_and_errors_take_them_along() {
    let mut rig = Rig::new();
    let extra = [kept(1), object(130, [9; 4])].concat();
    let with = |path: Path| Path { extra: extra.clone(), ..path };
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    let path_err = compose(MessageType::PATH_ERR, 255, |w| {
        w.session(&session(), false).error_spec(&error()).body(&extra);
        w.sender_template(&sender(1)).sender_tspec(&tspec(B));
    });
    let sent = rig.neighborly(2, at(2, 9), &path_err);
    assert_eq!(carried(&one(&sent, MessageType::PATH_ERR)), [kept(1)]);
    let resv = Resv { extra: extra.clone(), ..Resv::ff(&[(load(B), 1)]) };
    let sent = rig.neighborly(1, at(1, 9), &resv.error_octets(1, ErrorCode::POLICY, 0, false));
    assert_eq!(carried(&one(&sent, MessageType::RESV_ERR)), [kept(1)]);
    let sent = rig.resv_tear(&resv);
    assert_eq!(carried(&one(&sent, MessageType::RESV_TEAR)), [kept(1)]);
    let sent = rig.path_tear(&with(Path::new()));
    let tear = one(&sent, MessageType::PATH_TEAR);
    assert_eq!(carried(&tear), [kept(1)]);
    assert!(tear.message().objects().all(|object| object.kind.class != Class(130)));
}

/// RSVP-3.10-05: those of Paths and Resvs are stored with the state, and leave in every refresh.
#[test]
fn refreshes_have_them() {
    let mut rig = Rig::new();
    let path = Path { extra: kept(1), ..Path::new() };
    let resv = Resv { extra: kept(2), ..Resv::ff(&[(load(B), 1)]) };
    let mut sent = rig.path(&path);
    sent.extend(rig.resv(&resv));
    for _ in 0..10 {
        sent.extend(rig.wait(Duration::from_secs(20)));
        sent.extend(rig.path(&path));
        sent.extend(rig.resv(&resv));
    }
    for (kind, expected) in [(MessageType::PATH, kept(1)), (MessageType::RESV, kept(2))] {
        let of = all(&sent, kind);
        assert!(of.len() >= 4 && of.iter().all(|one| carried(one) == [expected.clone()]));
    }
    // The objects of the last message.
    let sent = rig.path(&Path { extra: kept(3), ..Path::new() });
    assert_eq!(carried(&one(&sent, MessageType::PATH)), [kept(3)]);
}

/// RSVP-3.10-06: a merged Resv has the objects of all its requests, each once; RSVP-3.10-07: before STYLE, behind which
/// only flow descriptors are legal.
#[test]
fn a_merged_resv_has_those_of_all() {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    // Received behind the sender descriptor, sent before it.
    let mut path = Path::of(group(), 1, 1);
    path.adspec = kept(9);
    let sent = all(&rig.path(&path), MessageType::PATH);
    for one in &sent {
        let classes: Vec<Class> = one.message().objects().map(|object| object.kind.class).collect();
        let at = |class| classes.iter().position(|one| *one == class).unwrap();
        assert!(at(Class(250)) < at(Class::SENDER_TEMPLATE));
        assert_eq!(at(Class::SENDER_TEMPLATE) + 1, at(Class::SENDER_TSPEC));
    }
    let ask = |n, k, rate, extra: Vec<u8>| Resv { extra, ..Resv::ff(&[(load(rate), 1)]).from(n, k, group()) };
    rig.resv(&ask(3, 9, B, [kept(1), kept(2)].concat()));
    rig.resv(&ask(3, 8, B, kept(2)));
    let sent = rig.resv(&ask(4, 9, 2.0 * B, [kept(3), kept(1)].concat()));
    let resv = one(&sent, MessageType::RESV);
    let mut all = carried(&resv);
    all.sort();
    assert_eq!(all, [kept(1), kept(2), kept(3)]);
    let classes: Vec<Class> = resv.message().objects().map(|object| object.kind.class).collect();
    assert_eq!(classes[classes.len() - 3..], [Class::STYLE, Class::FLOWSPEC, Class::FILTER_SPEC]);
}

/// A message with another C-Type in the object of this class.
fn retyped(mut octets: Vec<u8>, class: Class, c_type: u8) -> Vec<u8> {
    let message = signalbox_rsvp::wire::Message::parse(&octets).unwrap();
    let at = message.object(class).unwrap().offset;
    octets[at + 3] = c_type;
    octets[2..4].fill(0);
    octets
}

/// RSVP-3.10-10, RSVP-3.10-08: C-Types that traffic control does not know are rejected with their number; those of
/// POLICY_DATA are for policy control.
#[test]
fn traffic_control_judges_its_types() {
    let mut rig = Rig::new();
    let mut adspec = Vec::new();
    adspec.extend([0, 12, 13, 2, 0, 0, 0, 1, 1, 0, 0, 0]);
    let path = Path { adspec, ..Path::new() };
    for (class, c_type) in [(Class::ADSPEC, 1), (Class::SENDER_TSPEC, 1)] {
        let octets = retyped(path.octets(), class, c_type);
        let sent = rig.packet(1, sender(1).src, session().dest, 60, &octets);
        let error = one(&sent, MessageType::PATH_ERR).error();
        let value = u16::from(class.0) << 8 | u16::from(c_type);
        assert_eq!((error.code, error.value), (ErrorCode::UNKNOWN_C_TYPE, value));
    }
    assert_eq!(rig.rsvp.senders(), 0);
    let policy = |c_type| vec![0, 12, Class::POLICY_DATA.0, c_type, 0, 8, 0, 0, 0, 4, 0, 1];
    rig.path(&Path { extra: policy(77), ..Path::new() });
    assert_eq!(rig.rsvp.senders(), 1);
    let resv = Resv { extra: policy(78), ..Resv::ff(&[(load(B), 1)]) };
    let sent = rig.neighborly(2, at(2, 9), &retyped(resv.octets(), Class::FLOWSPEC, 1));
    let answer = one(&sent, MessageType::RESV_ERR);
    assert_eq!((answer.error().code, answer.error().value), (ErrorCode::UNKNOWN_C_TYPE, 0x0901));
    // The answer has the rejected object.
    assert_eq!(answer.message().object(Class::FLOWSPEC).unwrap().kind.c_type, 1);
    assert_eq!(rig.reservations(), 0);
    assert_eq!(kinds(&rig.resv(&resv)), [(MessageType::RESV, at(1, 9))]);
}

/// RSVP-3.10-11: an application gets the rejected type, and may try another.
#[test]
fn an_application_is_informed_of_a_type_that_is_not_known() {
    let mut rig = Rig::new();
    let here = Session { dest: at(3, 1), ..session() };
    rig.command(1, Command::Session(here));
    rig.path(&Path { session: here, ..Path::new() });
    let flows = vec![FlowRequest { flowspec: load(B), senders: vec![sender(1)] }];
    let reserve = ReserveRequest { style: Style::Ff, flows, confirm: false, policy: Box::default() };
    rig.command(1, Command::Reserve(reserve));
    rig.take_events(1);
    let failed = Resv { session: here, ..Resv::ff(&[(load(B), 1)]) };
    rig.neighborly(1, at(1, 9), &failed.error_octets(1, ErrorCode::UNKNOWN_C_TYPE, 0x0902, false));
    let events = rig.take_events(1);
    let [RsvpEvent::ResvError { error, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((error.code, error.value), (ErrorCode::UNKNOWN_C_TYPE, 0x0902));
}

/// RSVP-A.2-02: the handle in a neighbor's Path is returned, zero too.
#[test]
fn handles_are_returned_as_they_came() {
    for lih in [0, 1, u32::MAX] {
        let mut rig = Rig::new();
        rig.path(&Path { hop: RsvpHop { addr: at(1, 9), lih }, ..Path::new() });
        let resv = Resv::ff(&[(load(B), 1)]);
        let mut sent = rig.resv(&resv);
        sent.extend(rig.resv_tear(&resv));
        let hops: Vec<_> = sent.iter().map(|one| one.message().hop).collect();
        assert_eq!(hops, [Some(RsvpHop { addr: at(1, 1), lih }); 2]);
    }
}
