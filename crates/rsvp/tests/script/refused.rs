//! What the node that refused adds to its ResvErr (RFC 5284).

use signalbox_resources::config::{Action, RuleConfig};
use signalbox_rsvp::engine::{Command, FlowRequest, ReserveRequest, RsvpEvent};
use signalbox_rsvp::wire::{ErrorCode, MessageType, Session, Style, UserError};

use crate::rig::{B, Path, Resv, Rig, Sent, at, handle, load, one, sender, session, tspec};

const RULE: &str = "rule 1 'nobody': denied";

/// A node with these rules for a link of 10 Mbit/s.
fn with(rules: Vec<RuleConfig>, report_rule: bool) -> Rig {
    let links = signalbox_resources::Config::of_link("*", "10mbit".parse().unwrap());
    let mut rig = Rig::with_resources(signalbox_resources::Config { rules, report_rule, ..links });
    rig.path(&Path { tspec: tspec(200.0 * B), ..Path::new() });
    rig
}

fn told(sent: &[Sent]) -> (ErrorCode, Option<UserError>) {
    let error = one(sent, MessageType::RESV_ERR);
    (error.error().code, UserError::among(error.message().kept()))
}

#[test]
fn a_rule_is_named_if_it_may() {
    let deny = || vec![RuleConfig::new("nobody", Action::Deny)];
    let rule = Some(UserError { available: None, note: Some(RULE.to_owned()) });
    for (report_rule, expected) in [(false, None), (true, rule)] {
        let mut rig = with(deny(), report_rule);
        let sent = rig.resv(&Resv::ff(&[(load(B), 1)]));
        assert_eq!(told(&sent), (ErrorCode::POLICY, expected));
    }
}

/// What the link has left is always in the error.
#[test]
fn the_rate_that_is_left_is_given() {
    let mut rig = with(Vec::new(), false);
    let (code, told) = told(&rig.resv(&Resv::ff(&[(load(150.0 * B), 1)])));
    assert_eq!(code, ErrorCode::ADMISSION);
    let UserError { available, note } = told.unwrap();
    assert_eq!((available, note), (Some(937_500), None));
}

/// The nodes between forward the object, and an application of the receiver gets its contents.
#[test]
fn the_receiver_gets_what_the_node_adds() {
    let said = UserError { available: Some(5), note: Some(RULE.to_owned()) };
    let error = |of: &Resv| {
        let mut octets = of.error_octets(1, ErrorCode::ADMISSION, 2, false);
        octets.extend(said.object());
        let length = u16::try_from(octets.len()).unwrap().to_be_bytes();
        octets[6..8].copy_from_slice(&length);
        octets[2..4].fill(0);
        let sum = signalbox_rsvp::wire::checksum(&octets);
        octets[2..4].copy_from_slice(&sum.to_be_bytes());
        octets
    };
    let mut rig = with(Vec::new(), false);
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    let sent = rig.neighborly(1, at(1, 9), &error(&Resv::ff(&[(load(B), 1)])));
    assert_eq!(told(&sent), (ErrorCode::ADMISSION, Some(said.clone())));

    let here = Session { dest: at(3, 1), ..session() };
    let mut rig = Rig::new();
    rig.command(1, Command::Session(here));
    rig.path(&Path {
        session: here,
        hop: signalbox_rsvp::wire::RsvpHop { addr: at(1, 9), lih: handle(1) },
        ..Path::new()
    });
    let flows = vec![FlowRequest { flowspec: load(B), senders: vec![sender(1)] }];
    let reserve = ReserveRequest { style: Style::Ff, flows, confirm: false, policy: Box::default() };
    rig.command(1, Command::Reserve(reserve));
    rig.take_events(1);
    let failed = Resv { session: here, ..Resv::ff(&[(load(B), 1)]) };
    rig.neighborly(1, at(1, 9), &error(&failed));
    let events = rig.take_events(1);
    let [RsvpEvent::ResvError { told, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(*told, said);
}
