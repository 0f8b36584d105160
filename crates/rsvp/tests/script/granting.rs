//! The list of the nodes that granted a reservation, in an object of our own.

use signalbox_core::hops::{self, Hop, Part};
use signalbox_rsvp::engine::{Command, FlowRequest, ReserveRequest, RsvpEvent, SenderRequest};
use signalbox_rsvp::wire::{Filter, MessageType, Selector, Session, Style};

use crate::rig::{B, Path, Resv, Rig, Sent, addr, at, load, one, sender, session, tspec};

/// [`B`] in whole octets a second.
const RATE: u64 = 10_000;
const LAST: u8 = 2;
const GAP: u8 = 1;

/// The object: length, class 252, type 1, the enterprise number 32473, and entries.
fn object(entries: &[&[u8]]) -> Vec<u8> {
    let entries = entries.concat();
    let mut octets = vec![0, 8 + u8::try_from(entries.len()).unwrap(), 252, 1, 0, 0, 0x7e, 0xd9];
    octets.extend(entries);
    octets
}

/// The end of the flow.
fn end(host: u8) -> [u8; 8] {
    [4, LAST, 0, 1, 10, 0, 2, host]
}

/// A node that holds [`RATE`].
fn holds(flags: u8, address: [u8; 4]) -> Vec<u8> {
    [&[4, flags, 0, 0][..], &address, &RATE.to_be_bytes()].concat()
}

fn kept(sent: &Sent) -> Vec<Vec<u8>> {
    sent.message().kept().map(|object| object.octets.to_vec()).collect()
}

/// What this router sends to the previous hop when the next one sends a Resv with these objects.
fn passed_on(path: &[u8], resv: Vec<u8>) -> Vec<Vec<u8>> {
    let mut rig = Rig::new();
    let sent = rig.path(&Path { extra: path.to_vec(), ..Path::new() });
    assert_eq!(kept(&one(&sent, MessageType::PATH)).concat(), path);
    kept(&one(&rig.resv(&Resv { extra: resv, ..Resv::ff(&[(load(B), 1)]) }), MessageType::RESV))
}

/// A router adds itself to the list, and says where nodes are missing in it.
#[test]
fn a_router_adds_itself_if_the_sender_asks() {
    let own = [10, 0, 1, 1];
    assert_eq!(at(1, 1), addr("10.0.1.1"));
    let asking = object(&[]);
    assert_eq!(passed_on(&asking, object(&[&end(9)])), [object(&[&end(9), &holds(0, own)])]);
    // The node that sent the Resv has passed the list on, but is not in it.
    assert_eq!(passed_on(&asking, object(&[&end(7)])), [object(&[&end(7), &holds(GAP, own)])]);
    // It has none: this node is the first that is known.
    assert_eq!(passed_on(&asking, Vec::new()), [object(&[&holds(0, own)])]);
    // Many lists of one node do not fill the Resv.
    let many = object(&[&end(9)]).repeat(9);
    assert_eq!(passed_on(&asking, many), [object(&[&end(9), &holds(0, own)])]);
    // An object of another enterprise is passed on as it came.
    let other = vec![0, 8, 252, 1, 0, 0, 0, 9];
    assert_eq!(passed_on(&asking, other.clone()), [other, object(&[&holds(0, own)])]);
    assert_eq!(passed_on(&[], Vec::new()), Vec::<Vec<u8>>::new());
}

/// A list that is full does not grow.
#[test]
fn a_list_has_a_greatest_length() {
    let full = object(&vec![&end(9)[..]; hops::MAX_HOPS_OCTETS / 8]);
    assert_eq!(passed_on(&object(&[]), full.clone()), [full]);
}

/// The node of the receiver is the end of the flow.
#[test]
fn the_node_of_the_receiver_begins_the_list() {
    let mut rig = Rig::new();
    let here = Session { dest: at(3, 1), ..session() };
    rig.command(1, Command::Session(here));
    rig.path(&Path { session: here, extra: object(&[]), ..Path::new() });
    let flows = vec![FlowRequest { flowspec: load(B), senders: vec![sender(1)] }];
    let reserve = ReserveRequest { style: Style::Ff, flows, confirm: false, policy: Box::default() };
    let sent = rig.command(1, Command::Reserve(reserve));
    assert_eq!(kept(&one(&sent, MessageType::RESV)), [object(&[&[4, LAST, 0, 1, 10, 0, 1, 1]])]);
}

/// The sender's user gets the list in the order of the path, its own node first.
#[test]
fn the_user_of_the_sender_gets_the_path() {
    let mut rig = Rig::new();
    rig.command(1, Command::Session(session()));
    let template = Filter { src: at(1, 1), selector: Selector::Port(4000) };
    let announce = SenderRequest {
        adspec: false,
        ttl: 9,
        name_nodes: true,
        ..SenderRequest::new(template, tspec(9.0 * B))
    };
    let sent = rig.command(1, Command::Sender(announce));
    assert_eq!(kept(&one(&sent, MessageType::PATH)), [object(&[])]);
    let list = object(&[&end(7), &holds(GAP, [10, 0, 2, 9])]);
    let flows = vec![(Some(load(B)), vec![template])];
    rig.resv(&Resv { flows, extra: list, ..Resv::ff(&[]) });
    let [RsvpEvent::Resv { path, .. }] = &rig.take_events(1)[..] else { panic!("it is reserved") };
    let router = Hop { after_gap: true, ..Hop::new(at(2, 9), Part::Rate(RATE)) };
    let receiver = Hop { answered: true, ..Hop::new(at(2, 7), Part::End) };
    assert_eq!(path.hops, [Hop::new(at(1, 1), Part::Rate(RATE)), router, receiver]);
    assert_eq!((path.gaps, path.far_end), (true, Some(true)));
}
