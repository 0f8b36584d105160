//! Bundles (RFC 2961 §3) and the capability bit (§2).

use signalbox_rsvp::engine::neighbor::{Interface, Reduction, Verdict};
use signalbox_rsvp::wire::{HeaderFlags, MessageType, Writer};

use super::rig::{ETH, Got, Kind, Node, Packet, To, acquainted, addr, config, exchange, ms, prompt, took};

const PATH: MessageType = MessageType::PATH;
const RESV: MessageType = MessageType::RESV;

fn kinds(packets: &[Packet]) -> Vec<MessageType> {
    packets.iter().map(Packet::kind).collect()
}

fn bundle(of: &[&Packet], ttl: u8) -> Packet {
    let mut payload = Vec::new();
    let mut w = Writer::new(&mut payload, MessageType::BUNDLE, HeaderFlags::REFRESH_REDUCTION, ttl);
    for packet in of {
        w.body(&packet.payload);
    }
    w.finish().unwrap();
    Packet { src: addr(1), dst: addr(2), ttl: 255, router_alert: false, payload }
}

/// Proves RSVPRR-2961-3.3-03, RSVPRR-2961-3.3-04, RSVPRR-2961-3.3-10 and RSVPRR-2961-3.3-06: messages to one neighbor
/// share a packet: refreshes after a short time, trigger messages at once.
#[test]
fn messages_to_one_neighbor_share_a_packet() {
    let (mut a, mut b) = acquainted(5000..5003);
    for port in 5000..5003 {
        a.path(ms(1000), Kind::Refresh, port, To::Next(2));
    }
    assert_eq!(a.drain().len(), 0, "they wait");
    let packets = a.until(ms(2000));
    assert_eq!(packets.len(), 1);
    let (time, packet) = &packets[0];
    assert_eq!((*time, packet.kind()), (ms(1100), MessageType::BUNDLE));
    assert_eq!((packet.src, packet.dst, packet.router_alert), (addr(1), addr(2), false));
    assert_eq!(packet.message().sub_messages().count(), 3);
    let got = b.take(ms(1100), packet);
    assert_eq!(got, [5000, 5001, 5002].map(|port| took(PATH, port, Verdict::Refresh)));
    // Resvs and Paths together, and at once.
    a.path(ms(2000), Kind::Trigger, 5000, To::Next(2));
    a.resv(ms(2000), Kind::Trigger, 6000, 2);
    let packets = a.drain();
    assert_eq!(kinds(&packets), [MessageType::BUNDLE]);
    assert_eq!(
        b.take(ms(2000), &packets[0]),
        [took(PATH, 5000, Verdict::Process), took(RESV, 6000, Verdict::Process)]
    );
}

/// Proves RSVPRR-2961-3.3-07: waiting refreshes leave with a trigger message, before it.
#[test]
fn order_is_kept() {
    let (mut a, mut b) = acquainted(5000..5002);
    a.path(ms(1000), Kind::Refresh, 5001, To::Next(2));
    a.path(ms(1000), Kind::Refresh, 5000, To::Next(2));
    a.say(ms(1010), MessageType::PATH_TEAR, Kind::Once, 5000, To::Next(2));
    let packets = a.drain();
    assert_eq!(kinds(&packets), [MessageType::BUNDLE]);
    let got = b.take(ms(1010), &packets[0]);
    let tear = took(MessageType::PATH_TEAR, 5000, Verdict::Process);
    assert_eq!(got, [took(PATH, 5001, Verdict::Refresh), took(PATH, 5000, Verdict::Refresh), tear]);
    assert_eq!(
        a.until(ms(1200)).iter().filter(|(_, packet)| packet.kind() == MessageType::BUNDLE).count(),
        0
    );
}

/// Proves RSVPRR-2961-3.3-05: no Bundle is larger than configured, no message is lost.
#[test]
fn no_bundle_is_larger_than_configured() {
    let (mut a, mut b) = acquainted(5000..5100);
    for port in 5000..5100 {
        a.path(ms(1000), Kind::Refresh, port, To::Next(2));
    }
    let mut packets = a.drain();
    packets.extend(a.packets_until(ms(2000)));
    assert!(packets.len() > 5 && packets.iter().all(|packet| packet.payload.len() <= 1400));
    let got: Vec<Got> = packets.iter().flat_map(|packet| b.take(ms(1100), packet)).collect();
    let expected: Vec<Got> = (5000..5100).map(|port| took(PATH, port, Verdict::Refresh)).collect();
    assert_eq!(got, expected);
}

/// Proves RSVPRR-2961-3.3-02, RSVPRR-2961-2-05, RSVPRR-2961-2-02 and RSVPRR-2961-3.3-01: a neighbor without the
/// capability bit gets no Bundle; the bit is of one hop, whatever other nodes send.
#[test]
fn neighbors_without_the_capability_get_no_bundle() {
    let mut a = Node::plain(1);
    let mut reliable_only = Node::new(2, config(Reduction { summary: false, ..prompt() }));
    for port in 5000..5003 {
        a.path(ms(0), Kind::Trigger, port, To::Next(2));
    }
    assert_eq!(kinds(&a.drain()), [PATH; 3], "not acknowledged yet");
    reliable_only.resv(ms(1), Kind::Trigger, 6000, 1);
    let resv = reliable_only.drain();
    assert_eq!(resv[0].payload[0], 0x10, "no bit");
    assert!(resv[0].message().message_id.is_some());
    a.take(ms(1), &resv[0]);
    a.packets_until(ms(1));
    for port in 5000..5003 {
        a.path(ms(2), Kind::Trigger, port, To::Next(2));
    }
    let packets = a.drain();
    assert_eq!(kinds(&packets), [PATH; 3]);
    assert!(packets.iter().all(|packet| packet.payload[0] == 0x11), "ours is set all the same");
    for packet in &packets {
        assert_eq!(reliable_only.take(ms(2), packet).len(), 1);
    }
}

/// Proves RSVPRR-2961-2-03 and RSVPRR-2961-2-04: the bit of each message counts.
#[test]
fn a_neighbor_that_changes_its_mind() {
    let (mut a, mut b) = acquainted(5000..5002);
    b.layer.set_interface(
        ETH,
        Interface { reduction: Reduction { summary: false, ..prompt() }, ..Interface::default() },
    );
    b.resv(ms(500), Kind::Trigger, 6000, 1);
    b.drain().iter().for_each(|packet| _ = a.take(ms(500), packet));
    a.packets_until(ms(500));
    assert!(!a.summarise(ms(1000), 5000, 2));
    a.path(ms(1000), Kind::Refresh, 5000, To::Next(2));
    a.path(ms(1000), Kind::Refresh, 5001, To::Next(2));
    assert_eq!(kinds(&a.drain()), [PATH, PATH]);
    b.layer.set_interface(ETH, Interface { reduction: prompt(), ..Interface::default() });
    b.resv(ms(1500), Kind::Trigger, 6000, 1);
    b.drain().iter().for_each(|packet| _ = a.take(ms(1500), packet));
    assert!(a.summarise(ms(2000), 5000, 2));
}

/// Proves RSVPRR-2961-3.3-09: to a group. Also if the next node is unknown or without RSVP.
#[test]
fn paths_that_go_alone() {
    let (mut a, _b) = acquainted(5000..5003);
    a.path(ms(1000), Kind::Trigger, 5000, To::Unknown);
    a.path(ms(1000), Kind::Trigger, 5001, To::Next(77));
    a.path(ms(1000), Kind::Trigger, 5002, To::Group);
    a.path(ms(1000), Kind::Trigger, 5003, To::Group);
    let packets = a.drain();
    assert_eq!(kinds(&packets), [PATH; 4]);
    assert!(packets.iter().all(|packet| packet.router_alert));
}

/// Proves RSVPRR-2961-3.4-01: if Bundles are off, they are dropped without an answer.
#[test]
fn dropped_where_they_are_not_taken() {
    let (mut a, mut b) = acquainted(5000..5002);
    a.path(ms(1000), Kind::Trigger, 5000, To::Next(2));
    a.path(ms(1000), Kind::Trigger, 5001, To::Next(2));
    let packets = a.drain();
    b.layer.set_interface(
        ETH,
        Interface { reduction: Reduction { summary: false, ..prompt() }, ..Interface::default() },
    );
    assert_eq!(b.take(ms(1000), &packets[0]), []);
    assert_eq!((b.until(ms(2000)).len(), b.layer.counters().bundles_refused), (0, 1));
}

/// Proves RSVPRR-2961-3.4-02 and RSVPRR-2961-3.4-03: the Bundle's TTL shows nodes without RSVP, for all its messages; a
/// wrong checksum of the Bundle drops all of it, one of a message that message.
#[test]
fn how_a_bundle_is_read() {
    let (mut a, mut b) = (Node::plain(1), Node::plain(2));
    a.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    a.path(ms(0), Kind::Trigger, 5001, To::Unknown);
    let paths = a.drain();
    let came = |non_rsvp| {
        [5000, 5001]
            .map(|port| Got::Message { kind: PATH, port, verdict: Verdict::Process, non_rsvp })
            .to_vec()
    };
    assert_eq!(
        b.take(ms(0), &bundle(&[&paths[0], &paths[1]], 255)),
        came(false),
        "though their own TTL is 63"
    );
    let mut c = Node::distant(2);
    assert_eq!(c.take(ms(0), &bundle(&[&paths[0], &paths[1]], 254)), came(true));
    let mut near = Node::plain(2);
    assert_eq!(near.take(ms(0), &bundle(&[&paths[0], &paths[1]], 254)), []);
    let mut d = Node::plain(2);
    assert_eq!(d.take(ms(0), &bundle(&[&paths[0], &paths[1]], 255).altered(30)), [Got::Malformed]);
    assert_eq!(
        d.take(ms(0), &bundle(&[&paths[0].altered(30), &paths[1]], 255)),
        [Got::Malformed, came(false)[1].clone()]
    );
}

/// A Bundle with an Srefresh and acknowledgments among other messages.
#[test]
fn all_kinds_in_one() {
    let (mut a, mut b) = acquainted(5000..5002);
    assert!(a.summarise(ms(1000), 5000, 2) && a.summarise(ms(1000), 5001, 2));
    let srefresh = &a.packets_until(ms(1100))[0];
    a.path(ms(1100), Kind::Trigger, 5001, To::Next(2));
    let path = &a.drain()[0];
    let got = b.take(ms(1100), &bundle(&[path, srefresh, path], 255));
    assert_eq!(
        got,
        [took(PATH, 5001, Verdict::Process), Got::Refreshed(5000), took(PATH, 5001, Verdict::Refresh),]
    );
    let answers = b.packets_until(ms(1100));
    assert_eq!(
        answers[0].message().acks().filter(|(_, negative)| *negative).count(),
        1,
        "the old name of 5001"
    );
    assert!(exchange(ms(1200), &mut a, &mut b).is_empty());
}

/// Proves RSVPRR-2961-3.3-08 and RSVPRR-2961-5.6-01: past nodes without RSVP no Bundle and no Srefresh is sent.
#[test]
fn no_bundle_is_sent_past_nodes_without_rsvp() {
    let (mut a, mut b) = acquainted(5000..5003);
    let mut settings = *a.layer.config().of(ETH);
    settings.trust.distant_hops = true;
    a.layer.set_interface(ETH, settings);
    b.resv(ms(500), Kind::Trigger, 6000, 1);
    let farther: Vec<Packet> = b.drain().into_iter().map(|packet| Packet { ttl: 253, ..packet }).collect();
    farther.iter().for_each(|packet| _ = a.take(ms(500), packet));
    a.packets_until(ms(500));
    a.path(ms(1000), Kind::Trigger, 5000, To::Next(2));
    a.path(ms(1000), Kind::Refresh, 5001, To::Next(2));
    assert_eq!(kinds(&a.drain()), [PATH; 2]);
    assert!(!a.summarise(ms(1000), 5002, 2));
}
