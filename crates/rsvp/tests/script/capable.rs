//! Neighbors with and without refresh reduction (RFC 2961), as a node gets to know them.

use std::time::Duration;

use signalbox_rsvp::engine::neighbor::HelloConfig;
use signalbox_rsvp::engine::{Command, Config, RsvpEvent};
use signalbox_rsvp::wire::{Class, ErrorCode, MessageId, MessageType};

use super::rig::*;

fn node() -> Rig {
    Rig::with_neighbors(Config::default(), "10mbit")
}

/// Neighbor `k` at interface `n` acknowledges something, by which it shows that it has MESSAGE_IDs.
pub(crate) fn shown(rig: &mut Rig, n: u32, k: u32) {
    let unknown = MessageId { ack_desired: false, epoch: 1, id: 1 };
    rig.neighborly(n, at(n, k), &compose(MessageType::ACK, 255, |w| _ = w.ack(&unknown, false)));
}

/// The message with the refresh-reduction-capable bit.
fn capable(mut octets: Vec<u8>) -> Vec<u8> {
    octets[0] |= 1;
    octets[2..4].fill(0);
    octets
}

/// A Path whose sender has the refresh-reduction-capable bit.
fn capable_path(rig: &mut Rig, path: &Path) -> Vec<Sent> {
    rig.packet(path.iif, path.sender.src, path.session.dest, path.ttl, &capable(path.octets()))
}

/// Whether each message of this type has a MESSAGE_ID.
fn named(sent: &[Sent], kind: MessageType) -> Vec<bool> {
    all(sent, kind).iter().map(|one| one.message().message_id.is_some()).collect()
}

/// A Path to the `n`-th destination, all by the same next router.
fn path(n: u32) -> Path {
    Path::of(to(&format!("10.9.{}.{}", n / 200, n % 200 + 1)), 1, 1)
}

/// Acknowledges messages, as the neighbor at eth2.
fn acknowledge(rig: &mut Rig, sent: &[Sent]) -> Vec<Sent> {
    let names: Vec<_> = sent.iter().filter_map(|one| one.message().message_id).collect();
    let ack = compose(MessageType::ACK, 255, |w| {
        for name in &names {
            w.ack(name, false);
        }
    });
    rig.neighborly(2, at(2, 9), &ack)
}

/// A ResvErr of the previous hop that refuses the class MESSAGE_ID (RFC 2961 §4.8).
fn refusal(resv: &Resv) -> Vec<u8> {
    resv.error_octets(1, ErrorCode::UNKNOWN_CLASS, u16::from(Class::MESSAGE_ID.0) << 8 | 1, false)
}

/// A node with a Path of a neighbor that offers refresh reduction, and an application that receives.
fn offered() -> Rig {
    let mut rig = node();
    capable_path(&mut rig, &Path::new());
    rig
}

#[test]
fn a_resv_that_is_refused_for_its_message_id_goes_again_without_one_at_once() {
    for confirm in [None, Some(addr("10.5.5.5"))] {
        let mut rig = offered();
        let resv = Resv { confirm, ..Resv::ff(&[(load(B), 1)]) };
        let sent = rig.resv(&resv);
        assert_eq!(named(&sent, MessageType::RESV), [true], "{confirm:?}");
        let sent = rig.neighborly(1, at(1, 9), &refusal(&resv));
        assert_eq!(kinds(&sent), [(MessageType::RESV, at(1, 9))], "no error goes on");
        let again = one(&sent, MessageType::RESV);
        assert_eq!((again.message().message_id, again.message().confirm), (None, confirm));
        // Not once more, whatever is repeated.
        assert_eq!(kinds(&rig.neighborly(1, at(1, 9), &refusal(&resv))), []);
        let sent = rig.wait(Duration::from_secs(10));
        assert_eq!(named(&sent, MessageType::RESV), [false; 0]);
    }
}

/// An administrator has the node forget that a neighbor refused MESSAGE_IDs, for example because it is another router now.
#[test]
fn a_neighbor_that_is_forgotten_is_tried_again() {
    let mut rig = offered();
    let resv = Resv::ff(&[(load(B), 1)]);
    rig.resv(&resv);
    let sent = rig.neighborly(1, at(1, 9), &refusal(&resv));
    assert_eq!(named(&sent, MessageType::RESV), [false]);
    let forget = Command::ForgetNeighbor { neighbor: at(1, 9), ifindex: None };
    let sent = rig.command(1, forget);
    assert_eq!(named(&sent, MessageType::RESV), [true]);
    assert_eq!(rig.take_events(1), [RsvpEvent::NeighborForgotten { interfaces: 1 }]);
    assert_eq!((rig.reservations(), rig.rsvp.senders()), (1, 1));
}

#[test]
fn a_receiver_of_this_host_is_told_no_error_about_a_message_id() {
    use signalbox_rsvp::engine::{FlowRequest, ReserveRequest};
    use signalbox_rsvp::wire::Style;
    let here = to("10.0.2.1");
    let mut rig = node();
    rig.command(1, Command::Session(here));
    capable_path(&mut rig, &Path::of(here, 1, 1));
    let flows = vec![FlowRequest { flowspec: load(B), senders: vec![sender(1)] }];
    let request = ReserveRequest { style: Style::Ff, flows, confirm: true, policy: Box::default() };
    let sent = rig.command(1, Command::Reserve(request));
    assert_eq!(named(&sent, MessageType::RESV), [true]);
    let resv = Resv { session: here, ..Resv::ff(&[(load(B), 1)]) };
    let sent = rig.neighborly(1, at(1, 9), &refusal(&resv));
    assert_eq!(named(&sent, MessageType::RESV), [false]);
    let events = rig.take_events(1);
    assert!(!events.iter().any(|event| matches!(event, RsvpEvent::ResvError { .. })), "{events:?}");
}

/// RFC 2961 §2: the bit says whether a node has refresh reduction, and the neighbor of a Resv is always known.
#[test]
fn a_neighbor_that_says_that_it_cannot_gets_no_message_ids() {
    let mut rig = node();
    rig.path(&Path::new());
    rig.wait(Duration::from_secs(1));
    let sent = rig.resv(&Resv::ff(&[(load(B), 1)]));
    assert_eq!(named(&sent, MessageType::RESV), [false]);
    // The next hop said so with its Resv: Paths go there without one.
    let sent = rig.path(&path(1));
    assert_eq!(named(&sent, MessageType::PATH), [false]);
    // Nothing is sent again.
    let sent = rig.wait(Duration::from_secs(10));
    assert_eq!(named(&sent, MessageType::PATH), [false; 0]);
}

/// A node that uses MESSAGE_IDs without the bit, as this one does without `summary`.
#[test]
fn a_neighbor_that_sends_message_ids_gets_some() {
    let mut rig = node();
    let path = Path::new();
    let octets = super::named::named(path.octets(), 5);
    rig.packet(path.iif, path.sender.src, path.session.dest, path.ttl, &octets);
    assert_eq!(named(&rig.resv(&Resv::ff(&[(load(B), 1)])), MessageType::RESV), [true]);
}

#[test]
fn an_ignored_message_id_costs_one_retransmission() {
    let mut rig = node();
    let sent = rig.path(&path(0));
    assert_eq!(named(&sent, MessageType::PATH), [true]);
    let start = rig.now;
    let sent = rig.wait(Duration::from_secs(10));
    assert_eq!(named(&sent, MessageType::PATH), [false]);
    assert_eq!(sent[0].at.since(start), Duration::from_millis(500));
    // Whatever goes there now has none, and is sent once.
    let sent = rig.path(&path(1));
    assert_eq!(named(&sent, MessageType::PATH), [false]);
    let sent = rig.wait(Duration::from_secs(10));
    assert!(all(&sent, MessageType::PATH).iter().all(|one| one.dst != path(1).session.dest));
}

/// A neighbor that offers refresh reduction and acknowledges nothing.
#[test]
fn the_last_try_to_a_silent_neighbor_has_no_message_id() {
    let mut rig = node();
    shown(&mut rig, 2, 9);
    let mut sent = rig.path(&path(0));
    sent.extend(rig.wait(Duration::from_secs(10)));
    assert_eq!(named(&sent, MessageType::PATH), [true, true, true, false]);
}

#[test]
fn a_few_states_try_a_neighbor_and_the_others_follow_when_it_answers() {
    let mut rig = node();
    let mut sent = Vec::new();
    for n in 0..100 {
        sent.extend(rig.path(&path(n)));
    }
    let first = named(&sent, MessageType::PATH);
    assert_eq!(first.len(), 100);
    assert_eq!(first.iter().filter(|named| **named).count(), 4, "{first:?}");
    assert!(first.starts_with(&[true; 4]));
    let mut sent = acknowledge(&mut rig, &sent);
    sent.extend(rig.wait(Duration::from_millis(100)));
    assert_eq!(named(&sent, MessageType::PATH), [true; 96], "each once");
    // From now on all have one.
    assert_eq!(named(&rig.path(&path(100)), MessageType::PATH), [true]);
}

#[test]
fn beside_a_plain_neighbor_no_more_is_stored_than_without_refresh_reduction() {
    let mut rig = node();
    for n in 0..100 {
        rig.path(&path(n));
    }
    rig.wait(Duration::from_secs(1));
    let mut sent = Vec::new();
    for n in 100..200 {
        sent.extend(rig.path(&path(n)));
    }
    assert_eq!(named(&sent, MessageType::PATH), [false; 100]);
    assert_eq!(rig.rsvp.neighbors().counters().retransmissions, 0);
    assert_eq!(rig.rsvp.neighbors().counters().names_ignored, 4);
}

/// After 30 s a few states try again, then after twice as long.
#[test]
fn a_plain_neighbor_is_tried_again_later() {
    let mut rig = node();
    let mut tried = 0;
    for n in 0..20 {
        rig.path(&path(n));
    }
    for _ in 0..40 {
        for n in 0..20 {
            rig.path(&path(n));
        }
        let sent = rig.wait(Duration::from_secs(15));
        tried += named(&sent, MessageType::PATH).iter().filter(|named| **named).count();
    }
    assert!((3..=16).contains(&tried), "{tried} in ten minutes");
}

/// A Path that is sent again says nothing about what the previous hop has: it gets no Resv for a repair that changes nothing.
#[test]
fn a_path_that_is_sent_again_changes_nothing_for_the_previous_hop() {
    let mut rig = offered();
    let acked = rig.resv(&Resv::ff(&[(load(B), 1)]));
    assert_eq!(named(&acked, MessageType::RESV), [true]);
    rig.wait(Duration::from_secs(5));
    // The data leave by another interface, whose neighbor is not known yet.
    let mut sent = rig.route("10.9.0.0", 24, 3);
    sent.extend(rig.wait(Duration::from_secs(2)));
    let name = all(&sent, MessageType::PATH).iter().find_map(|one| one.message().message_id).unwrap();
    // It asks for the whole Path.
    let nack = compose(MessageType::ACK, 255, |w| _ = w.ack(&name, true));
    let sent = rig.neighborly(3, at(3, 9), &nack);
    assert_eq!(all(&sent, MessageType::PATH).len(), 1);
    let sent = rig.resv(&Resv::ff(&[(load(B), 1)]).from(3, 9, session()));
    assert_eq!(all(&sent, MessageType::RESV), []);
}

/// All messages count at their interface and for their neighbor, those in Bundles too.
#[test]
fn messages_count_by_type_interface_and_neighbor() {
    use signalbox_core::IfIndex;
    use signalbox_rsvp::engine::neighbor::TYPES;
    let mut rig = node();
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    let error = Resv::ff(&[(load(B), 1)]).error_octets(1, ErrorCode::ADMISSION, 2, false);
    rig.neighborly(1, at(1, 9), &error);
    rig.neighborly(1, at(1, 9), &error[..20]);
    let layer = rig.rsvp.neighbors();
    let count = |n: u32, kind: MessageType| {
        let traffic = layer.traffic(IfIndex(n));
        let place = TYPES.iter().position(|one| *one == kind).unwrap();
        (traffic.received[place], traffic.sent[place])
    };
    assert_eq!((count(1, MessageType::PATH), count(2, MessageType::PATH)), ((1, 0), (0, 1)));
    assert_eq!((count(1, MessageType::RESV), count(2, MessageType::RESV)), ((0, 1), (1, 0)));
    assert_eq!((count(1, MessageType::RESV_ERR), count(2, MessageType::RESV_ERR)), ((1, 0), (0, 1)));
    assert_eq!(layer.traffic(IfIndex(1)).errors_received, 1);
    let up = layer.traffic_of(at(1, 9), IfIndex(1));
    assert_eq!((up.received, up.sent, up.errors_received), (2, 1, 1));
    let down = layer.traffic_of(at(2, 9), IfIndex(2));
    assert_eq!((down.received, down.sent, down.errors_received), (1, 1, 0));
    let counters = layer.counters();
    assert_eq!((counters.paths_received, counters.resvs_received, counters.resv_errors_received), (1, 1, 1));
    assert_eq!(rig.rsvp.counters().admission_errors, 1);
    let interfaces: Vec<_> =
        rig.rsvp.interface_views(0).map(|(_, one)| (one.name.to_owned(), one.neighbors)).collect();
    assert_eq!(interfaces[..2], [("eth1".to_owned(), 1), ("eth2".to_owned(), 1)]);
    assert_eq!(rig.rsvp.interface_views(3).count(), 1);
}

/// With Hello the list of what was sent stays: a neighbor of plain RFC 2205 that is lost gets all of it again.
#[test]
fn a_plain_neighbor_with_hello_that_restarts_gets_its_state_again() {
    use signalbox_rsvp::wire::Hello;
    let mut config = Config::default();
    config.neighbors.interface.hello =
        Some(HelloConfig { interval: Duration::from_secs(1), ..HelloConfig::default() });
    let mut rig = Rig::with_neighbors(config, "10mbit");
    rig.path(&Path::new());
    rig.resv(&Resv::ff(&[(load(B), 1)]));
    rig.wait(Duration::from_secs(2));
    let say = |rig: &mut Rig, src_instance: u32| {
        let hello = Hello { ack: false, src_instance, dst_instance: 0 };
        let octets = compose(MessageType::HELLO, 1, |w| _ = w.hello(&hello));
        rig.packet(2, at(2, 9), at(2, 1), 1, &octets)
    };
    say(&mut rig, 5);
    let mut sent = say(&mut rig, 6);
    sent.extend(rig.wait(Duration::from_millis(50)));
    assert_eq!(named(&sent, MessageType::PATH), [false]);
}
