//! The error codes of RFC 2205 Appendix B: each is caused once, and reported as the table requires.

use signalbox_core::traffic::ReserveError;
use signalbox_resources::config::{Action, RuleConfig};
use signalbox_resources::{Config as Links, LostWhy};
use signalbox_rsvp::engine::{Command, Config, FlowRequest, Refused, ReserveRequest, RsvpEvent};
use signalbox_rsvp::wire::{
    Class, ErrorCode as C, ErrorFlags, Filter, FlowSpec, Message, MessageType, Objects, Selector, Session,
    Style,
};

use crate::rig::{
    B, Path, Resv, Rig, Sent, addr, at, group, guaranteed, kinds, load, sender, session, to, tspec,
};

/// A message with other octets at a place of an object.
fn altered(mut octets: Vec<u8>, class: Class, at: usize, new: &[u8]) -> Vec<u8> {
    let start = Message::parse(&octets).unwrap().object(class).unwrap().offset + at;
    octets[start..start + new.len()].copy_from_slice(new);
    octets[2..4].fill(0); // no checksum
    octets
}

fn links() -> Links {
    Links::of_link("*", "10mbit".parse().unwrap())
}

/// With path state of sender 1 and 2, of more than a link carries.
fn with_paths(mut rig: Rig) -> Rig {
    for n in [1, 2] {
        rig.path(&Path { sender: sender(n), tspec: tspec(200.0 * B), ..Path::new() });
    }
    rig
}

fn ready() -> Rig {
    with_paths(Rig::new())
}

/// A Path that is given as octets.
fn give_path(rig: &mut Rig, octets: &[u8]) -> Vec<Sent> {
    rig.packet(1, sender(1).src, session().dest, 60, octets)
}

fn give_resv(rig: &mut Rig, octets: &[u8]) -> Vec<Sent> {
    rig.neighborly(2, at(2, 9), octets)
}

fn ff(rate: f32) -> Resv {
    Resv::ff(&[(load(rate), 1)])
}

/// An object of class 0bbbbbbb, type 3.
const STRANGE: [u8; 8] = [0, 8, 100, 3, 0, 0, 0, 0];

/// Where a style is in place, a Resv of another one.
fn conflict(first: &Resv, second: &Resv) -> Vec<Sent> {
    let mut rig = ready();
    rig.resv(first);
    rig.resv(second)
}

/// Flags, code and value of the ERROR_SPEC.
fn reported(sent: &Sent) -> Option<(u8, u8, u16)> {
    let mut objects = Objects::at(&sent.octets[8..], 8).map_while(Result::ok);
    let error = objects.find(|object| object.kind.class == Class::ERROR_SPEC)?;
    let [.., flags, code, v1, v0] = *error.octets else { return None };
    Some((flags, code, u16::from_be_bytes([v1, v0])))
}

/// The cause of each code and value.
fn provoked() -> Vec<(MessageType, C, u16, Vec<Sent>)> {
    let (path_err, resv_err) = (MessageType::PATH_ERR, MessageType::RESV_ERR);
    let mut rig = ready();
    rig.resv(&ff(2.0 * B));
    let smaller = Resv::ff(&[(load(B), 1)]).from(2, 8, session()).confirmed(addr("10.5.5.5"));
    let confirmed = rig.resv(&smaller);
    let jumbo = signalbox_resources::intserv::TSpec::new(B, 9000.0, f32::INFINITY, 64, 4000).unwrap();
    let deny = RuleConfig { interface: vec!["eth2".to_owned()], ..RuleConfig::new("no", Action::Deny) };
    let mut denying = with_paths(Rig::with_resources(Links { rules: vec![deny], ..links() }));
    let portless = Session { port: 0, ..session() };
    let mut kernel = ready();
    kernel.resv(&ff(B));
    let mut preempted = ready();
    preempted.resv(&ff(B));
    let mut deleted = ready();
    deleted.resv(&ff(B));
    let mut full = Rig::with(Config { max_senders: 1, max_reservations: 1, ..Config::default() });
    full.path(&Path::new());
    let no_sender = full.path(&Path { sender: sender(2), ..Path::new() });
    full.resv(&ff(B));
    full.trees.insert((group().dest, sender(1).src), (1, vec![3]));
    let mut cramped = Rig::with(Config { max_reservations: 1, ..Config::default() });
    let mut cramped = with_paths(core::mem::replace(&mut cramped, Rig::new()));
    cramped.resv(&ff(B));
    let mut mixed = ready();
    mixed.resv(&ff(4.0 * B));
    let mut no_guarantees = links();
    for link in &mut no_guarantees.links {
        link.guaranteed.offered = false;
    }
    let gs = Resv::ff(&[(guaranteed(B, B, 0), 1)]);
    let of_port_zero = Filter { selector: Selector::Port(0), ..sender(1) };
    let nan = f32::NAN.to_bits().to_be_bytes();
    vec![
        (MessageType::RESV_CONF, C::CONFIRMATION, 0, confirmed),
        (resv_err, C::ADMISSION, 2, ready().resv(&ff(200.0 * B))),
        (resv_err, C::ADMISSION, 3, {
            let mut rig = Rig::new();
            rig.path(&Path { tspec: jumbo, ..Path::new() });
            rig.resv(&Resv::ff(&[(FlowSpec { tspec: jumbo, rspec: None }, 1)]))
        }),
        (resv_err, C::POLICY, 3, denying.resv(&ff(B))),
        (resv_err, C::NO_PATH, 0, Rig::new().resv(&ff(B))),
        (resv_err, C::NO_SENDER, 0, ready().resv(&Resv::ff(&[(load(B), 3)]))),
        (resv_err, C::CONFLICTING_STYLE, 0x0011, conflict(&Resv::wf(load(B)), &ff(B))),
        (resv_err, C::CONFLICTING_STYLE, 0x000a, conflict(&ff(B), &Resv::se(load(B), &[1]))),
        (resv_err, C::CONFLICTING_STYLE, 0x0012, conflict(&Resv::se(load(B), &[1]), &Resv::wf(load(B)))),
        (resv_err, C::UNKNOWN_STYLE, 0, {
            let octets = altered(ff(B).octets(), Class::STYLE, 7, &[0b01001]);
            give_resv(&mut ready(), &octets)
        }),
        (path_err, C::CONFLICTING_DEST_PORTS, 0, {
            ready().path(&Path { session: portless, sender: of_port_zero, ..Path::new() })
        }),
        (resv_err, C::CONFLICTING_DEST_PORTS, 0, {
            let flows = vec![(Some(load(B)), vec![of_port_zero])];
            ready().resv(&Resv { session: portless, flows, ..ff(B) })
        }),
        (path_err, C::CONFLICTING_SENDER_PORTS, 0, {
            ready().path(&Path { sender: of_port_zero, ..Path::new() })
        }),
        (resv_err, C::PREEMPTED, 0, preempted.lose(2, LostWhy::Preempted)),
        (resv_err, C::POLICY, 0, deleted.lose(2, LostWhy::Deleted)),
        (
            path_err,
            C::UNKNOWN_CLASS,
            0x6403,
            Rig::new().path(&Path { extra: STRANGE.to_vec(), ..Path::new() }),
        ),
        (resv_err, C::UNKNOWN_CLASS, 0x6403, ready().resv(&Resv { extra: STRANGE.to_vec(), ..ff(B) })),
        (path_err, C::UNKNOWN_C_TYPE, 0x0b4d, {
            give_path(&mut Rig::new(), &altered(Path::new().octets(), Class::SENDER_TEMPLATE, 3, &[0x4d]))
        }),
        (resv_err, C::UNKNOWN_C_TYPE, 0x0a4d, {
            give_resv(&mut ready(), &altered(ff(B).octets(), Class::FILTER_SPEC, 3, &[0x4d]))
        }),
        (resv_err, C::TRAFFIC_CONTROL, 1, mixed.resv(&gs.clone().from(2, 8, session()))),
        (resv_err, C::TRAFFIC_CONTROL, 2, with_paths(Rig::with_resources(no_guarantees)).resv(&gs)),
        (resv_err, C::TRAFFIC_CONTROL, 2, {
            give_resv(&mut ready(), &altered(ff(B).octets(), Class::FLOWSPEC, 8, &[99]))
        }),
        (resv_err, C::TRAFFIC_CONTROL, 3, {
            give_resv(&mut ready(), &altered(ff(B).octets(), Class::FLOWSPEC, 16, &nan))
        }),
        (path_err, C::TRAFFIC_CONTROL, 4, {
            give_path(&mut Rig::new(), &altered(Path::new().octets(), Class::SENDER_TSPEC, 16, &nan))
        }),
        (
            resv_err,
            C::TRAFFIC_CONTROL_SYSTEM,
            0,
            kernel.lose(2, LostWhy::KernelRefused(ReserveError::Failed)),
        ),
        (path_err, C::RSVP_SYSTEM, 0, no_sender),
        (resv_err, C::RSVP_SYSTEM, 0, cramped.resv(&Resv::ff(&[(load(B), 2)]))),
    ]
}

/// RSVP-B-01, RSVP-B-02, RSVP-B-05, RSVP-B-06, RSVP-B-07, RSVP-B-08, RSVP-B-09, RSVP-B-10, RSVP-B-11, RSVP-B-13,
/// RSVP-B-14, RSVP-B-15, RSVP-B-17, RSVP-B-18, RSVP-B-19: value, message type and destination of each error; the
/// message that caused it goes no further. A bad ADSPEC (21, 5) is no error here: it loses its bad part.
#[test]
fn each_code_is_sent_where_it_belongs() {
    for (kind, code, value, sent) in provoked() {
        let what = format!("{code} {value:#06x}: {:?}", kinds(&sent));
        let of: Vec<&Sent> = sent.iter().filter(|one| one.kind() == kind).collect();
        assert_eq!(of.len(), 1, "{what}");
        assert_eq!(reported(of[0]).map(|(_, code, value)| (code, value)), Some((code.0, value)), "{what}");
        let to = match kind {
            MessageType::PATH_ERR => at(1, 9),
            MessageType::RESV_CONF => addr("10.5.5.5"),
            _ if value == 1 && code == C::TRAFFIC_CONTROL => at(2, 8),
            _ => at(2, 9),
        };
        assert_eq!(of[0].dst, to, "{what}");
        let gone = |one: &&Sent| matches!(one.kind(), MessageType::RESV_TEAR);
        assert_eq!(sent.len() - sent.iter().filter(gone).count(), 1, "{what}");
    }
}

/// RSVP-B-12, RSVP-B-16: no error has a reserved code or that of the API; RSVP-A.5-02: no message has NotGuilty.
#[test]
fn reserved_codes_are_not_sent() {
    let mut seen = std::collections::BTreeSet::new();
    for sent in provoked().into_iter().flat_map(|(.., sent)| sent) {
        if let Some((flags, code, _)) = reported(&sent) {
            seen.insert(code);
            assert_eq!(flags & ErrorFlags::NOT_GUILTY.0, 0);
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 21, 22, 23]);
}

fn reserve(style: Style, senders: &[u32]) -> Command {
    let senders = senders.iter().map(|n| sender(*n)).collect();
    let flows = vec![FlowRequest { flowspec: load(B), senders }];
    Command::Reserve(ReserveRequest { style, flows, confirm: false, policy: Box::default() })
}

/// RSVP-B-16: errors of an application are reported by upcall to it alone.
#[test]
fn faults_of_applications_are_reported_to_them_alone() {
    let mut rig = Rig::new();
    let here = Session { dest: at(3, 1), ..session() };
    let mut quiet = |id, command| {
        assert_eq!(kinds(&rig.command(id, command)), []);
        rig.take_events(id)
    };
    assert_eq!(quiet(1, reserve(Style::Ff, &[1])), [RsvpEvent::Refused(Refused::NoSession)]);
    assert_eq!(quiet(1, Command::Session(here)), []);
    let portless = Command::Session(Session { port: 0, ..here });
    assert_eq!(quiet(2, portless), [RsvpEvent::Refused(Refused::ConflictingPorts)]);
    assert_eq!(quiet(1, reserve(Style::Wf, &[1])), [RsvpEvent::Refused(Refused::BadFlows)]);
    // It waits for its sender; meanwhile another style is reserved.
    assert_eq!(quiet(1, reserve(Style::Ff, &[2])), []);
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3]));
    rig.trees.insert((group().dest, sender(2).src), (1, vec![3]));
    rig.command(1, Command::Session(group()));
    rig.command(1, reserve(Style::Ff, &[2]));
    rig.path(&Path::of(group(), 1, 1));
    rig.resv(&Resv::wf(load(B)).from(3, 9, group()));
    rig.take_events(1);
    let sent = rig.path(&Path::of(group(), 2, 1));
    assert!(sent.iter().all(|one| one.kind() != MessageType::RESV_ERR));
    let events = rig.take_events(1);
    let Some(RsvpEvent::ResvError { error, senders, .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!((error.code, error.value, &senders[..]), (C::CONFLICTING_STYLE, 0x0011, &[sender(2)][..]));
    assert_eq!(to("10.9.0.1"), session());
}
