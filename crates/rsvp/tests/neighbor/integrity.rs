//! Integrity (RFC 2747, 3097): keys, digests, sequence numbers.

use std::net::IpAddr;
use std::time::Duration;

use ring::hmac;
use signalbox_core::{IfIndex, Time};
use signalbox_rsvp::engine::neighbor::{
    Algorithm, AssociationView, AuthenticationFailure, Config, Envelope, IntegrityConfig, KeyConfig, KeyUse,
    Upcall, Verdict,
};
use signalbox_rsvp::wire::{Message, MessageType, checksum};

use super::rig::{ETH, Got, Kind, Node, Packet, To, addr, config, exchange, ms, prompt, took};

pub(super) const PATH: MessageType = MessageType::PATH;

pub(super) fn key(id: u64) -> KeyConfig {
    KeyConfig {
        id,
        algorithm: Algorithm::HmacSha256,
        secret: format!("secret {id}").into_bytes(),
        usage: KeyUse::Both,
        interface: None,
        neighbor: None,
        from: Time::ZERO,
        until: None,
    }
}

/// Seconds since 1970 at the start of the nodes' clocks.
const START: u32 = 1_000_000;

/// The time after this number of seconds, by the calendar.
fn calendar(seconds: u64) -> Time {
    Time::from_secs(u64::from(START) + seconds)
}

pub(super) fn secured(handshake: bool) -> Config {
    let mut config = config(prompt());
    config.interface.integrity = IntegrityConfig {
        sending: true,
        receiving: true,
        handshake,
        without_handshake: !handshake,
        ..IntegrityConfig::default()
    };
    config.real_time = START;
    config
}

pub(super) fn node(last: u8, config: Config, keys: &[KeyConfig]) -> Node {
    let mut node = Node::new(last, config);
    node.layer.set_keys(keys).unwrap();
    node
}

/// Two nodes that share key 7; no handshake.
fn two() -> (Node, Node) {
    (node(1, secured(false), &[key(7)]), node(2, secured(false), &[key(7)]))
}

pub(super) fn path(node: &mut Node, now: Time, port: u16) -> Packet {
    node.path(now, Kind::Trigger, port, To::Unknown);
    let [packet] = &node.drain()[..] else { panic!("one packet") };
    packet.clone()
}

/// Computes checksum and digest again, with the key.
pub(super) fn signed_again(packet: &Packet, id: u64) -> Packet {
    let mut packet = packet.clone();
    let at = packet.message().integrity.unwrap().digest_offset;
    let octets = &mut packet.payload;
    octets[2..4].copy_from_slice(&[0, 0]);
    octets[at..at + 32].fill(0);
    let key = hmac::Key::new(hmac::HMAC_SHA256, format!("secret {id}").as_bytes());
    let digest = hmac::sign(&key, octets);
    octets[at..at + 32].copy_from_slice(digest.as_ref());
    let sum = checksum(octets).to_be_bytes();
    octets[2..4].copy_from_slice(&sum);
    packet
}

pub(super) fn without_checksum(packet: &Packet) -> Packet {
    let mut packet = packet.clone();
    packet.payload[2..4].copy_from_slice(&[0, 0]);
    packet
}

/// Proves RSVPINT-2747-4.1-01, RSVPINT-2747-2.1-06, RSVPINT-2747-2.1-03 and RSVPINT-2747-1-03: another implementation
/// computes the same digests over the message with digest and checksum zero; the rest is readable.
#[test]
fn digests_are_those_of_another_implementation() {
    for (algorithm, octets, handshake) in [(Algorithm::HmacSha256, 32, true), (Algorithm::HmacMd5, 16, false)]
    {
        let mut a = node(1, secured(handshake), &[KeyConfig { algorithm, ..key(7) }]);
        let packet = path(&mut a, ms(0), 5000);
        let message = packet.message();
        let integrity = message.integrity.unwrap();
        assert_eq!((integrity.key_id, integrity.digest.len()), (7, octets));
        assert_eq!(packet.payload[8..12], [0, u8::try_from(20 + octets).unwrap(), 4, 1]);
        assert_eq!(packet.payload[12..14], [if handshake { 0x80 } else { 0 }, 0]);
        assert_eq!(message.session.unwrap().port, 5000);
        if algorithm == Algorithm::HmacSha256 {
            assert_eq!(signed_again(&packet, 7), packet);
            assert_ne!(signed_again(&packet, 8), packet);
        }
    }
}

/// Proves RSVPINT-2747-4.2-01, RSVPINT-2747-4.2-02, RSVPINT-2747-1-01 and RSVPINT-2747-4.1-02: any altered octet is
/// detected, with a right checksum or without; changes of the IP header are not.
#[test]
fn any_altered_octet_is_detected() {
    let (mut a, mut b) = two();
    let packet = path(&mut a, ms(0), 5000);
    for at in 0..packet.payload.len() {
        let altered = packet.altered(at);
        assert!(b.take(ms(0), &altered).iter().all(|got| *got == Got::Malformed), "octet {at}: checksum");
        let got = b.take(ms(0), &without_checksum(&altered));
        // Octet 5 is reserved, and signed too.
        assert!(got.is_empty() || got == [Got::Malformed] || (2..4).contains(&at), "octet {at}: {got:?}");
        b = node(2, secured(false), &[key(7)]);
    }
    let farther = Packet { ttl: packet.ttl - 3, ..packet.clone() };
    let non_rsvp = Got::Message { kind: PATH, port: 5000, verdict: Verdict::Process, non_rsvp: true };
    assert_eq!(b.take(ms(0), &farther), [non_rsvp], "the IP header is not covered");
    let next = path(&mut a, ms(1), 5001);
    assert_eq!(b.take(ms(1), &without_checksum(&next)), [took(PATH, 5001, Verdict::Process)]);
}

/// Proves RSVP-2.8-01, RSVPINT-2747-4-02 and RSVPINT-2747-4-03: all messages are signed; unsigned ones are dropped.
#[test]
fn everything_is_signed() {
    let (mut a, mut b) = two();
    a.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    a.resv(ms(0), Kind::Trigger, 5001, 2);
    a.say(ms(0), MessageType::PATH_TEAR, Kind::Once, 5002, To::Unknown);
    a.say(ms(0), MessageType::RESV_TEAR, Kind::Once, 5003, To::Next(2));
    let packets = a.drain();
    assert_eq!(packets.len(), 4);
    for packet in &packets {
        assert!(packet.message().integrity.is_some());
        assert_eq!(b.take(ms(0), packet).len(), 1);
    }
    let acks = b.packets_until(ms(0));
    assert!(acks.iter().all(|packet| packet.message().integrity.is_some()));
    acks.iter().for_each(|packet| _ = a.take(ms(0), packet));
    assert_eq!(a.layer.counters().acks_received, 4);
    // Each message of a Bundle, and an Srefresh.
    a.resv(ms(10), Kind::Trigger, 5001, 2);
    a.resv(ms(10), Kind::Trigger, 5005, 2);
    let bundle = &a.drain()[0];
    assert_eq!(bundle.kind(), MessageType::BUNDLE);
    assert_eq!(b.take(ms(10), bundle).len(), 2);
    exchange(ms(10), &mut a, &mut b);
    assert!(a.summarise(ms(20), 5001, 2));
    let srefresh = &a.packets_until(ms(100))[0];
    assert!(srefresh.message().integrity.is_some());
    assert_eq!(b.take(ms(100), srefresh), [Got::Refreshed(5001)]);

    let mut plain = Node::plain(3);
    assert_eq!(b.take(ms(100), &path(&mut plain, ms(100), 5000)), []);
    assert_eq!(b.layer.counters().integrity_missing, 1);
}

/// Proves RSVPRR-2961-3.4-03: a wrong digest in a Bundle drops one message.
#[test]
fn a_wrong_digest_in_a_bundle() {
    let (mut a, mut b) = two();
    let (one, two) = (path(&mut a, ms(0), 5000), path(&mut a, ms(0), 5001));
    let mut forged = one.altered(71);
    forged.payload[2..4].copy_from_slice(&[0, 0]);
    let inside = [&forged.payload[..], &two.payload].concat();
    let length = u16::try_from(inside.len() + 8).unwrap().to_be_bytes();
    let payload = [&[0x11, 12, 0, 0, 255, 0][..], &length, &inside].concat();
    let bundle = Packet { src: addr(1), dst: addr(2), ttl: 255, router_alert: false, payload };
    assert_eq!(b.take(ms(0), &bundle), [took(PATH, 5001, Verdict::Process)]);
    assert_eq!(b.layer.counters().digest_wrong, 1);
}

/// Proves RSVPINT-2747-4-01: secured for sending, receiving, both or neither.
#[test]
fn signing_and_verifying_are_set_by_direction() {
    for (sending, receiving) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut one = secured(false);
        one.interface.integrity.sending = sending;
        one.interface.integrity.receiving = receiving;
        let mut a = node(1, one, &[key(7)]);
        assert_eq!(path(&mut a, ms(0), 5000).message().integrity.is_some(), sending);
        let mut plain = Node::plain(2);
        assert_eq!(a.take(ms(0), &path(&mut plain, ms(0), 5000)).len(), usize::from(!receiving));
    }
}

/// Proves RSVPINT-2747-4-08, RSVPINT-2747-4-09 and RSVPINT-2747-2.1-04: the key of a Path is found by its RSVP_HOP,
/// that of an acknowledgment by its IP source; equal identifiers of two senders are two keys.
#[test]
fn a_key_is_found_by_the_hop_or_the_source() {
    let of = |last: u8, secret: &str| KeyConfig {
        neighbor: Some(addr(last)),
        usage: KeyUse::Receive,
        secret: secret.into(),
        ..key(7)
    };
    let own = |secret: &str| KeyConfig { usage: KeyUse::Send, secret: secret.into(), ..key(7) };
    let mut a = node(1, secured(false), &[own("one"), of(2, "mine")]);
    let mut c = node(3, secured(false), &[own("three")]);
    let mut b = node(2, secured(false), &[own("mine"), of(1, "one"), of(3, "three")]);
    let from_a = path(&mut a, ms(0), 5000);
    assert_ne!(from_a.src, addr(1));
    assert_eq!(b.take(ms(0), &from_a), [took(PATH, 5000, Verdict::Process)]);
    assert_eq!(b.take(ms(0), &path(&mut c, ms(0), 5001)), [took(PATH, 5001, Verdict::Process)]);
    let ack = b.packets_until(ms(0)).into_iter().find(|packet| packet.dst == addr(1)).unwrap();
    a.take(ms(0), &ack);
    assert_eq!(a.layer.counters().acks_received, 1);
    // An acknowledgment with the address of another node.
    let stolen = Packet { src: addr(3), ..ack };
    a.take(ms(0), &stolen);
    assert_eq!(a.layer.counters().key_unknown, 1);
    let mut stranger = node(4, secured(false), &[own("mine")]);
    assert_eq!(b.take(ms(0), &path(&mut stranger, ms(0), 5002)), []);
    assert_eq!(b.layer.counters().key_unknown, 1);
}

/// Proves RSVPINT-2747-4-07: one key for all on a link, each sender with its own numbers.
#[test]
fn one_key_for_a_link() {
    let mut nodes: Vec<Node> = (1..=4).map(|last| node(last, secured(false), &[key(7)])).collect();
    for sender in 0..4 {
        for round in 0..3 {
            let packet = path(&mut nodes[sender], ms(round), 5000 + u16::try_from(sender).unwrap());
            for (receiver, node) in nodes.iter_mut().enumerate() {
                if receiver != sender {
                    assert_eq!(node.take(ms(round), &packet).len(), 1, "{sender} to {receiver}");
                }
            }
        }
    }
}

/// O14: a node that starts again with its clock a day behind is not accepted until the clock is right. Both nodes know the reason.
#[test]
fn a_clock_that_is_behind_is_named() {
    let at = |start: u32| Config { real_time: start, ..secured(false) };
    let (today, yesterday) = (1_700_000_000, 1_700_000_000 - 86_400);
    let mut b = node(2, at(today), &[key(7)]);
    let mut before = node(1, at(today), &[key(7)]);
    let first = path(&mut before, ms(0), 5000);
    assert_eq!(b.take(ms(1), &first).len(), 1);
    assert_eq!(b.layer.other_clock(ms(1)), None);
    let mut after = node(1, at(yesterday), &[key(7)]);
    let second = path(&mut after, ms(2), 5000);
    assert_eq!(b.take(ms(3), &second), [], "the numbers are old");
    let other = b.layer.other_clock(ms(3)).unwrap();
    assert_eq!((other.peer, other.ahead_s), (addr(1), -86_400));
    assert_eq!((b.layer.counters().clock_differs, b.layer.counters().replayed), (1, 1));
    // The node that is behind learns it from the messages of its neighbor.
    let answer = path(&mut b, ms(4), 6000);
    after.take(ms(5), &answer);
    assert_eq!(after.layer.other_clock(ms(5)).unwrap().ahead_s, 86_400);
    assert_eq!(after.layer.other_clock(ms(5) + Duration::from_secs(300)), None, "it is over");
}

/// Proves RSVPINT-2747-4.2-03, RSVPINT-2747-4.2-06, RSVPINT-2747-4.2-07 and RSVPINT-2747-4.1-03: replays are dropped,
/// late messages accepted once; a forged number changes nothing; retransmissions have new numbers.
#[test]
fn replays_are_dropped_and_late_messages_accepted_once() {
    let (mut a, mut b) = two();
    let packets: Vec<Packet> = (0..8).map(|n| path(&mut a, ms(u64::from(n)), 5000 + n)).collect();
    assert_eq!(b.take(ms(10), &packets[0]).len(), 1);
    assert_eq!(b.take(ms(10), &packets[5]).len(), 1);
    assert_eq!(b.take(ms(10), &packets[2]).len(), 1, "late by three");
    for replayed in [0, 2, 5] {
        assert_eq!(b.take(ms(11), &packets[replayed]), []);
    }
    assert_eq!(b.layer.counters().replayed, 3);
    // Numbers far ahead, more than the window has places, whose digests are wrong.
    let mut forged = without_checksum(&packets[6]);
    forged.payload[20] = 0x7f;
    for number in 0..40 {
        forged.payload[27] = number;
        assert_eq!(b.take(ms(12), &forged), []);
    }
    assert_eq!(b.take(ms(12), &packets[6]).len(), 1);
    let again = a.packets_until(ms(600));
    assert!(again.len() >= 8);
    let number = |packet: &Packet| packet.message().integrity.unwrap().sequence;
    let mut numbers: Vec<u64> = packets.iter().chain(&again).map(number).collect();
    assert!(numbers.is_sorted());
    numbers.dedup();
    assert_eq!(numbers.len(), packets.len() + again.len());
}

/// Proves RSVPINT-2747-4.2-04: a window of one requires strict order.
#[test]
fn a_window_of_one_requires_strict_order() {
    let mut strict = secured(false);
    strict.interface.integrity.window = 1;
    let (mut a, mut b) = (node(1, secured(false), &[key(7)]), node(2, strict, &[key(7)]));
    let (one, two, three) = (path(&mut a, ms(0), 5000), path(&mut a, ms(0), 5001), path(&mut a, ms(0), 5002));
    assert_eq!(b.take(ms(0), &one).len(), 1);
    assert_eq!(b.take(ms(0), &three).len(), 1);
    assert_eq!(b.take(ms(0), &two), []);
}

/// Proves RSVPINT-2747-3-01, RSVPINT-2747-3-02 and RSVPINT-2747-3-03: seconds in the high half, a counter in the low
/// one; after a restart the numbers are larger than before.
#[test]
fn sequence_numbers_grow_over_a_restart() {
    let number = |packet: &Packet| packet.message().integrity.unwrap().sequence;
    let (mut a, _b) = two();
    let numbers: Vec<u64> = (0..1000).map(|n| number(&path(&mut a, ms(2000), 5000 + n))).collect();
    assert_eq!(numbers[0], 1_000_002 << 32);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
    assert_eq!(number(&path(&mut a, ms(3000), 5000)), 1_000_003 << 32, "the counter begins anew");
    let mut later = secured(false);
    later.real_time += 4;
    let mut again = node(1, later, &[key(7)]);
    assert!(number(&path(&mut again, ms(0), 5000)) > 1_000_003 << 32);
}

/// Proves RSVPINT-2747-5.1-02, RSVPINT-2747-5.1-04 and RSVPINT-2747-6-02: keys change during operation and no message
/// is lost; the new key has a handshake of its own.
#[test]
fn keys_change_without_a_lost_message() {
    let old = KeyConfig { until: Some(calendar(100)), ..key(1) };
    let new = KeyConfig { from: calendar(80), ..key(2) };
    for handshake in [false, true] {
        // One node changes its key some seconds after the other: meanwhile both keys are accepted.
        let longer = KeyConfig { until: Some(calendar(110)), ..old.clone() };
        let (mut a, mut b) = (
            node(1, secured(handshake), &[longer, new.clone()]),
            node(2, secured(handshake), &[old.clone(), new.clone()]),
        );
        let mut taken = 0;
        let mut ids = Vec::new();
        for second in 1..200 {
            let now = Time::from_secs(second);
            let packet = path(&mut a, now, 5000);
            ids.push(packet.message().integrity.unwrap().key_id);
            taken += b.take(now, &packet).len();
            // Messages that were dropped for a challenge are retransmitted.
            exchange(now, &mut a, &mut b);
            let later = now + Duration::from_millis(600);
            for packet in a.packets_until(later) {
                taken += b
                    .take(later, &packet)
                    .iter()
                    .filter(|got| matches!(got, Got::Message { verdict: Verdict::Process, .. }))
                    .count();
            }
            exchange(later, &mut a, &mut b);
        }
        ids.dedup();
        assert_eq!((taken, ids), (199, vec![1, 2]), "handshake {handshake}");
        assert_eq!(b.layer.counters().key_unknown, 0);
        assert_eq!(b.layer.counters().responses_taken, if handshake { 2 } else { 0 });
    }
}

/// Proves RSVPINT-2747-5.3-01 and RSVPINT-2747-5.3-02: the last key stays in use, and its expiry is reported.
#[test]
fn the_last_key_stays_in_use_after_its_end() {
    let short = KeyConfig { until: Some(calendar(1)), ..key(7) };
    let (mut a, mut b) =
        (node(1, secured(false), std::slice::from_ref(&short)), node(2, secured(false), &[short]));
    let packet = path(&mut a, ms(5000), 5000);
    assert_eq!(packet.message().integrity.unwrap().key_id, 7);
    assert_eq!(a.upcalls, [Upcall::LastKeyExpired { id: 7, ifindex: ETH }]);
    assert_eq!(b.take(ms(5000), &packet).len(), 1);
}

/// Proves RSVPINT-2747-5.2-06: a deleted key is not accepted; without a key nothing is sent.
#[test]
fn deleted_keys_are_not_accepted() {
    let (mut a, mut b) = two();
    assert_eq!(b.take(ms(0), &path(&mut a, ms(0), 5000)).len(), 1);
    b.layer.set_keys(&[key(8)]).unwrap();
    assert_eq!(b.take(ms(1), &path(&mut a, ms(1), 5001)), []);
    a.layer.set_keys(&[KeyConfig { interface: Some(IfIndex(3)), ..key(7) }]).unwrap();
    a.path(ms(2), Kind::Trigger, 5002, To::Unknown);
    assert_eq!(a.drain().len(), 0, "a key of another interface");
    assert!(a.layer.counters().no_key > 0);
}

/// Proves RSVPINT-2747-4-06: one neighbor behind two interfaces uses a key of its own at each, and numbers each by
/// itself. Neither key counts at the other interface.
#[test]
fn each_interface_has_its_own_association() {
    let other = IfIndex(3);
    let at = |ifindex, id| KeyConfig { interface: Some(ifindex), ..key(id) };
    let mut b = node(2, secured(false), &[at(ETH, 7), at(other, 8)]);
    // Two senders of one address stand for the neighbor's interfaces; the second one's numbers lag behind.
    let mut at_eth = node(1, secured(false), &[key(7)]);
    let mut at_other = node(1, Config { real_time: START - 500, ..secured(false) }, &[key(8)]);
    for turn in 0..3 {
        let now = ms(1000 * u64::from(turn));
        let (here, there) = (path(&mut at_eth, now, 5000 + turn), path(&mut at_other, now, 5000 + turn));
        assert_eq!(b.take_at(now, ETH, &there), [], "key 8 is not for the first interface");
        assert_eq!(b.take_at(now, other, &here), [], "key 7 is not for the second interface");
        assert_eq!(b.take_at(now, ETH, &here).len(), 1, "key 7, turn {turn}");
        assert_eq!(b.take_at(now, other, &there).len(), 1, "key 8, turn {turn}");
        assert_eq!(b.take_at(now, other, &there), [], "replayed");
    }
    // Messages to that neighbor are signed with the key of their interface.
    let mut a = node(1, secured(false), &[at(ETH, 7), at(other, 8)]);
    assert_eq!(path(&mut a, ms(0), 5000).message().integrity.unwrap().key_id, 7);
    a.layer.set_addresses(other, Some(addr(1)), None);
    let octets = path(&mut Node::plain(1), ms(0), 5000).payload;
    let envelope = Envelope {
        src: addr(1),
        dst: addr(2),
        ifindex: other,
        routed: false,
        ttl: 63,
        tos: 0,
        router_alert: true,
        towards: 0,
        through: false,
        gateway: None,
    };
    a.layer.send_alone(envelope, &octets);
    let packet = a.layer.poll().unwrap();
    assert_eq!(packet.ifindex, Some(other));
    assert_eq!(Message::parse(packet.payload).unwrap().integrity.unwrap().key_id, 8);
}

/// Proves RSVPINT-2747-1-02: each hop signs with its own key.
#[test]
fn each_hop_signs_with_its_own_key() {
    let (mut a, mut b) = (
        node(1, secured(false), &[key(1)]),
        node(
            2,
            secured(false),
            &[key(1), KeyConfig { neighbor: Some(IpAddr::from([10, 0, 9, 9])), ..key(2) }],
        ),
    );
    assert_eq!(b.take(ms(0), &path(&mut a, ms(0), 5000)).len(), 1);
    b.path(ms(0), Kind::Trigger, 5000, To::Unknown);
    let forwarded = b.drain().into_iter().find(|packet| packet.kind() == PATH).unwrap();
    assert_eq!(forwarded.message().integrity.unwrap().key_id, 2);
    let mut c = node(3, secured(false), &[key(2)]);
    assert_eq!(c.take(ms(0), &forwarded).len(), 1);
}

/// The number of associations is limited.
#[test]
fn associations_are_limited() {
    let mut few = secured(false);
    few.max_associations = 3;
    let mut b = node(2, few, &[key(7)]);
    let taken = (10..20).filter(|last| {
        let mut a = node(*last, secured(false), &[key(7)]);
        !b.take(ms(0), &path(&mut a, ms(0), 5000)).is_empty()
    });
    assert_eq!(taken.count(), 3);
    assert_eq!(b.layer.counters().overload, 7);
}

/// Operators see authentication failures with their reasons, beside neighbors. Proves RSVPINT-2747-2.2-01: an
/// association has the key, the sender and the last sequence number received.
#[test]
fn failures_are_listed_with_their_reasons() {
    let mut b = node(2, secured(true), &[key(7), KeyConfig { neighbor: Some(addr(4)), ..key(9) }]);
    let mut a = node(1, secured(true), &[key(7)]);
    let first = path(&mut a, ms(0), 5000);
    b.take(ms(0), &first);
    let view = |b: &Node, last: u8| {
        let all = b.layer.view(ms(500));
        all.into_iter().find(|view| view.address == addr(last)).unwrap()
    };
    let before = view(&b, 1);
    assert_eq!(before.associations, [AssociationView { key_id: 7, sequence: None, asked: 1 }]);
    assert_eq!((before.last_message, before.signs_with), (None, Some(7)));
    exchange(ms(1), &mut a, &mut b);
    let second = path(&mut a, ms(2), 5001);
    assert_eq!(b.take(ms(2), &second).len(), 1);
    b.take(ms(3), &second);
    b.take(ms(4), &without_checksum(&second.altered(71)));
    let mut plain = Node::plain(3);
    b.take(ms(5), &path(&mut plain, ms(5), 5000));
    let mut stranger = node(4, secured(true), &[key(8)]);
    b.take(ms(6), &path(&mut stranger, ms(6), 5000));

    let after = view(&b, 1);
    let sequence = second.message().integrity.unwrap().sequence;
    assert_eq!(after.associations, [AssociationView { key_id: 7, sequence: Some(sequence), asked: 0 }]);
    assert_eq!((after.last_message, after.capable, after.far), (Some(ms(2)), true, false));
    let failures = after.failures.unwrap();
    let counts = AuthenticationFailure::ALL.map(|why| failures.count(why));
    assert_eq!(counts, [0, 0, 1, 1, 1, 0]);
    assert_eq!((failures.last, failures.at), (AuthenticationFailure::WrongDigest, ms(4)));
    assert_eq!(view(&b, 3).failures.unwrap().last, AuthenticationFailure::Unsigned);
    let stranger = view(&b, 4);
    assert_eq!((stranger.last_message, stranger.signs_with), (None, Some(9)));
    assert_eq!(stranger.failures.unwrap().count(AuthenticationFailure::UnknownKey), 1);
}
