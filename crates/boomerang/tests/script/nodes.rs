//! The list of the nodes that granted a request.

use std::net::IpAddr;

use signalbox_boomerang::engine::{BoomerangEvent as Event, Command, Request};
use signalbox_boomerang::wire::{Ends, Nodes, edit};
use signalbox_core::hops::{Hop, Part, Path};

use crate::rig::*;

/// The address of the node in [`Rig`] towards far ends.
const OWN: &str = "198.51.100.1";

/// The option as octets: type, flags, count, TTL, gaps and eight places.
fn option(count: u8, ttl: u8, gaps: u16, places: &[&str]) -> Vec<u8> {
    let [g1, g0] = gaps.to_be_bytes();
    let mut octets = vec![0x80, 5, 0, 0, count, ttl, g1, g0];
    for place in places {
        let IpAddr::V4(place) = ip(place) else { panic!("{place}") };
        octets.extend(place.octets());
    }
    octets.resize(40, 0);
    octets
}

fn list(sent: &Sent) -> Option<(u16, Nodes)> {
    sent.message().body.unwrap().options.nodes().map(|(placed, nodes)| (placed.flags, nodes))
}

/// Count, TTL, gaps, and the places that are in use.
fn read(sent: &Sent) -> (u8, u8, u16, Vec<IpAddr>) {
    let (_, nodes) = list(sent).unwrap();
    let places = nodes.places.into_iter().filter(|place| !place.is_unspecified()).collect();
    (nodes.count, nodes.ttl, nodes.gaps, places)
}

fn asking() -> (Rig, Sent) {
    let mut rig = Rig::new();
    let sent = rig.command(1, Command::Open(Request { name_nodes: true, ..wish() }));
    (rig, sent[0].clone())
}

/// What a node makes of a request with this list that comes with this TTL.
fn passed(options: Vec<u8>, ttl: u8) -> Sent {
    Rig::new().pass(&Fields { options, ttl, ..request(1) })
}

/// The initiating node leaves room in the messages of a set-up, and is the first.
#[test]
fn the_initiating_node_asks() {
    let (mut rig, first) = asking();
    assert_eq!(read(&first), (1, 64, 0, vec![ip(OWN)]));
    rig.echo(&first, |_| {});
    let own = Hop::new(ip(OWN), Part::Rate(8000));
    let path = Path { hops: vec![own], gaps: true, far_end: Some(true) };
    let expected = Event::Reserved { rates: rates(64_000, 32_000), refresh: 30, loops: 1, path };
    assert_eq!(*rig.last_event(), expected, "a far end without Boomerang does not name itself");
    assert_eq!(list(&rig.wait(seconds(30.0))[0]), None, "a refresh does not ask");
}

/// A node that grants adds itself. It sees routers before it by the TTL.
#[test]
fn a_node_on_the_path_adds_itself() {
    let both = || vec![ip(IN), ip(NODE)];
    assert_eq!(read(&passed(option(1, 64, 0, &[IN]), 64)), (2, 63, 0, both()));
    assert_eq!(read(&passed(option(1, 64, 0, &[IN]), 61)), (2, 60, 0x4000, both()));
    // The initiating node has left room, but is not in the list.
    assert_eq!(read(&passed(option(0, 0, 0, &[]), 64)), (1, 63, 0x8000, vec![ip(NODE)]));
    let full = option(8, 60, 0, &[IN; 8]);
    assert_eq!(read(&passed(full, 60)), (9, 59, 0, vec![ip(IN); 8]), "it is counted");
    let large = Fields { options: option(1, 64, 0, &[IN]), rates: vec![rates(900_000, 0)], ..request(1) };
    let refused = Rig::new().pass(&large);
    assert!(refused.message().is_refused());
    assert_eq!(read(&refused), (1, 64, 0, vec![ip(IN)]));
}

/// A far end that has Boomerang says that it is the end.
#[test]
fn the_far_end_ends_the_list() {
    let mut rig = Rig::new();
    let mut fields = Fields { options: option(1, 64, 0, &[IN]), ..request(1) };
    fields.ends = Ends { src: ip(IN), dst: ip(NODE) };
    fields.flow.classifier.dst = ip(NODE);
    let sent = rig.octets(1, &fields, &fields.octets());
    assert_eq!(list(&sent[0]).unwrap().0, Nodes::END);
    assert_eq!(read(&sent[0]), (2, 63, 0, vec![ip(IN), ip(NODE)]));
}

/// The user gets the nodes with what is missing between them.
#[test]
fn the_user_gets_the_path() {
    let (mut rig, first) = asking();
    let at = first.octets.len() - 40;
    rig.echo(&first, |octets| {
        let mut full = option(3, 60, 0x2000, &[OWN, NODE, FEN]);
        full[3] = 1;
        octets.truncate(at);
        octets.extend(full);
    });
    let Event::Reserved { path, .. } = rig.last_event() else { panic!("{:?}", rig.events) };
    let router = Hop::new(ip(NODE), Part::Rate(8000));
    let end = Hop { after_gap: true, answered: true, ..Hop::new(ip(FEN), Part::End) };
    assert_eq!(path.hops, [Hop::new(ip(OWN), Part::Rate(8000)), router, end]);
    assert!(path.gaps);
}

/// A node that does not know the option has no room for its own behind it, and refuses: the request goes again without it.
#[test]
fn a_node_without_the_option_is_asked_again() {
    let (mut rig, first) = asking();
    let sent = rig.echo(&first, |octets| {
        octets[19] |= 1;
        edit::set_key(octets, 0);
        let at = octets.len() - 40;
        octets.splice(at..at, [0x80, 1, 0, 0, 203, 0, 113, 9, 8, 0, 0, 0]);
    });
    assert_eq!((sent.len(), list(&sent[0])), (1, None));
    rig.echo(&sent[0], |_| {});
    let Event::Reserved { path, .. } = rig.last_event() else { panic!("{:?}", rig.events) };
    assert_eq!(*path, Path::default());
}

/// A refusal of a change, and a proof that is outdated, are not about the list: the set-ups that follow ask for it again.
#[test]
fn another_refusal_does_not_end_the_list() {
    let (mut rig, first) = asking();
    rig.echo(&first, |_| {});
    let changed = rig.command(1, Command::Change(rates(96_000, 0)));
    assert!(list(&changed[0]).is_some());
    let back = rig.echo(&changed[0], |octets| edit::refuse(octets, Default::default()));
    assert!(matches!(rig.last_event(), Event::ChangeRefused(_)));
    assert_eq!(list(&back[0]), None, "what stood is sent as a refresh");
    rig.echo(&back[0], |_| {});
    let changed = rig.command(1, Command::Change(rates(80_000, 0)));
    assert!(list(&changed[0]).is_some());
    rig.echo(&changed[0], |_| {});
    let Event::Reserved { path, .. } = rig.last_event() else { panic!("{:?}", rig.events) };
    assert_eq!(path.hops, [Hop::new(ip(OWN), Part::Rate(10_000))]);
    // The router has a number with the first answer, and then starts again: it refuses the number.
    let (mut rig, first) = asking();
    let sent = rig.echo(&first, |octets| edit::set_key(octets, 7));
    let sent = rig.echo(&sent[0], |octets| {
        octets[19] |= 1;
        edit::set_key(octets, 0);
        let at = octets.len() - 40;
        octets.splice(at..at, [0x80, 1, 0, 0, 203, 0, 113, 9, 10, 0, 0, 0]);
    });
    assert_eq!((sent.len(), list(&sent[0]).is_some()), (1, true));
}
