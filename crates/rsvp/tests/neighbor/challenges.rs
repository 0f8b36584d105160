//! The integrity handshake (RFC 2747 §4.3): challenges and their answers.

use std::net::IpAddr;

use signalbox_rsvp::engine::neighbor::Verdict;
use signalbox_rsvp::wire::MessageType;

use super::integrity::{PATH, key, node, path, secured, signed_again, without_checksum};
use super::rig::{Node, Packet, addr, exchange, ms, took};

const CHALLENGE: MessageType = MessageType::INTEGRITY_CHALLENGE;
const RESPONSE: MessageType = MessageType::INTEGRITY_RESPONSE;

/// Proves RSVPINT-2747-4.3-03, RSVPINT-2747-4.3-05, RSVPINT-2747-4.3-06, RSVPINT-2747-4.3-11, RSVPINT-2747-4.3-07 and
/// RSVPINT-2747-10-01: a handshake at the first message signed with a key, also in both directions at once.
#[test]
fn the_first_message_with_a_key_begins_a_handshake() {
    let (mut a, mut b) = (node(1, secured(true), &[key(7)]), node(2, secured(true), &[key(7)]));
    let first = path(&mut a, ms(0), 5000);
    assert_eq!(b.take(ms(0), &first), [], "not yet");
    let asked = b.drain();
    let challenge = &asked[0];
    assert_eq!(
        (asked.len(), challenge.kind(), challenge.dst, challenge.src),
        (1, CHALLENGE, addr(1), addr(2))
    );
    assert_eq!(challenge.message().integrity, None);
    assert_eq!(b.take(ms(0), &first), [], "nothing while it waits");
    assert_eq!(a.take(ms(1), challenge), []);
    let answered = a.drain();
    let response = &answered[0];
    assert_eq!((answered.len(), response.kind(), response.dst), (1, RESPONSE, addr(2)));
    let message = response.message();
    assert_eq!(message.challenge, challenge.message().challenge);
    assert_eq!(message.integrity.unwrap().key_id, 7);
    assert_eq!(b.take(ms(1), response), []);
    assert_eq!(b.layer.counters().responses_taken, 1);
    assert_eq!(b.take(ms(2), &first), [], "it was sent before: a replay for all that is known");
    let again = &a.packets_until(ms(500))[0];
    assert_eq!(b.take(ms(500), again), [took(PATH, 5000, Verdict::Process)]);
    // The other direction is another association, in which the first acknowledgment was dropped.
    exchange(ms(600), &mut a, &mut b);
    exchange(ms(1500), &mut a, &mut b);
    assert_eq!((a.layer.counters().responses_taken, b.layer.counters().responses_taken), (1, 1));
    assert_eq!(a.layer.counters().acks_received, 1, "the next one was taken");
}

/// Proves RSVPINT-2747-4.3-08 and RSVPINT-2747-4.3-07: a challenge is repeated until the right cookie returns; later
/// answers are ignored.
#[test]
fn challenges_are_repeated() {
    let (mut a, mut b) = (node(1, secured(true), &[key(7)]), node(2, secured(true), &[key(7)]));
    b.take(ms(0), &path(&mut a, ms(0), 5000));
    let first = b.drain();
    let repeated = b.until(ms(40_000));
    let times: Vec<u64> = repeated.iter().map(|(time, _)| time.as_micros() / 1_000_000).collect();
    assert_eq!(times, [1, 3, 7, 15, 31]);
    assert!(repeated.iter().all(|(_, packet)| *packet == first[0]));
    assert_eq!(b.until(ms(1_000_000)).len(), 0, "until its next message");
    b.take(ms(1_000_000), &path(&mut a, ms(1_000_000), 5000));
    let asked = b.drain();
    assert_eq!(asked.len(), 1);

    // Wrong cookies, signed with the key.
    a.take(ms(1_000_001), &asked[0]);
    let response = a.drain().remove(0);
    let mut wrong = response.clone();
    *wrong.payload.last_mut().unwrap() ^= 1;
    assert_eq!(b.take(ms(1_000_001), &signed_again(&without_checksum(&wrong), 7)), []);
    assert_eq!(b.layer.counters().responses_ignored, 1);
    b.take(ms(1_000_001), &response);
    b.take(ms(1_000_001), &response);
    assert_eq!((b.layer.counters().responses_taken, b.layer.counters().responses_ignored), (1, 2));
    assert_eq!(
        b.take(ms(1_000_002), &path(&mut a, ms(1_000_002), 5001)),
        [took(PATH, 5001, Verdict::Process)]
    );
    assert_eq!(b.until(ms(2_000_000)).iter().filter(|(_, packet)| packet.kind() == CHALLENGE).count(), 0);
}

/// Proves RSVPINT-2747-4.3-04: cookies are distinct, and differ between nodes.
#[test]
fn cookies_are_distinct_and_differ_between_nodes() {
    let mut cookies = Vec::new();
    for seed in 0..10 {
        let mut b = Node::seeded(2, secured(true), 100 + seed);
        b.layer.set_keys(&[key(7)]).unwrap();
        for last in 10..20 {
            let mut a = node(last, secured(true), &[key(7)]);
            b.take(ms(0), &path(&mut a, ms(0), 5000));
            cookies.push(b.drain()[0].message().challenge.unwrap().cookie);
        }
    }
    cookies.sort_unstable();
    cookies.dedup();
    assert_eq!(cookies.len(), 100);
    assert!(
        cookies.iter().any(|cookie| *cookie > u64::MAX / 2)
            && cookies.iter().any(|cookie| *cookie < u64::MAX / 2)
    );
}

/// Proves RSVPINT-2747-4.3-09 and RSVPINT-2747-4.3-10: a sender that does not answer challenges gets none, and is
/// accepted or not, as configured.
#[test]
fn senders_without_handshake_are_accepted_as_configured() {
    for accept in [false, true] {
        let mut one = secured(true);
        one.interface.integrity.without_handshake = accept;
        let (mut a, mut b) = (node(1, secured(false), &[key(7)]), node(2, one, &[key(7)]));
        assert_eq!(b.take(ms(0), &path(&mut a, ms(0), 5000)).len(), usize::from(accept));
        assert_eq!(b.drain().iter().filter(|packet| packet.kind() == CHALLENGE).count(), 0);
        assert_eq!(b.layer.counters().handshake_refused, u64::from(!accept));
    }
    // A node that answers no challenge.
    let (mut a, mut b) = (node(1, secured(false), &[key(7)]), node(2, secured(true), &[key(7)]));
    let mut willing = node(1, secured(true), &[key(7)]);
    b.take(ms(0), &path(&mut willing, ms(0), 5000));
    let challenge = b.drain().remove(0);
    a.take(ms(0), &challenge);
    assert_eq!(a.drain().len(), 0);
}

/// Proves RSVPINT-2747-10-01: the number of answers to challenges is limited.
#[test]
fn a_flood_of_challenges() {
    let (mut a, mut b) = (node(1, secured(true), &[key(7)]), node(2, secured(true), &[key(7)]));
    b.take(ms(0), &path(&mut a, ms(0), 5000));
    let challenge = b.drain().remove(0);
    for _ in 0..1000 {
        a.take(ms(10), &challenge);
    }
    // Three quarters of a burst, and the part of the interface.
    assert_eq!(a.drain().len(), 9);
    a.take(ms(1010), &challenge);
    assert_eq!(a.drain().len(), 1);
}

/// Challenges are not signed. Forged ones use up the rate of answers, but that of a neighbor which has restarted is answered: without
/// that it would accept no message of this node.
#[test]
fn forged_challenges_leave_an_answer_to_a_neighbor() {
    let (mut a, mut b) = (node(1, secured(true), &[key(7)]), node(2, secured(true), &[key(7)]));
    a.take(ms(0), &path(&mut b, ms(0), 5000));
    exchange(ms(0), &mut a, &mut b);
    exchange(ms(2000), &mut a, &mut b);
    let mut restarted = node(2, secured(true), &[key(7)]);
    restarted.take(ms(3000), &path(&mut a, ms(3000), 5000));
    let challenge = restarted.drain().remove(0);
    a.drain();
    for number in 0..1000u32 {
        let src = IpAddr::from((0x0a63_0000 + number).to_be_bytes());
        let payload = challenge.payload.clone();
        a.take(ms(3010), &Packet { src, payload, ..challenge });
    }
    assert!(a.drain().len() < 10);
    a.take(ms(3010), &challenge);
    assert_eq!(a.drain().iter().map(Packet::kind).collect::<Vec<_>>(), [RESPONSE]);
}
