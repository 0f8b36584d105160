//! The proof that the initiating node receives replies: the prime in the KEY.

use signalbox_boomerang::engine::{Config, Reason};

use crate::rig::*;

fn proving() -> Rig {
    Rig::with(Config { prove: true, ..Config::default() })
}

/// The KEY that confirms the flow of `fields`.
fn confirmation(rig: &mut Rig, fields: &Fields) -> u64 {
    let out = rig.pass(fields);
    assert!(!out.message().is_refused());
    out.message().key
}

/// BOOM-3.2.1-10, BOOM-3.2.1-11, BOOM-G10-01, BOOM-F5.4-01: the first message makes no state and gets a prime.
/// BOOM-3.2.1-14, BOOM-G10-04: the confirmation reserves, and its KEY is not multiplied again.
#[test]
fn a_reservation_waits_for_its_confirmation() {
    let mut rig = proving();
    let key = confirmation(&mut rig, &request(1));
    assert!((1 << 30..1 << 31).contains(&key));
    assert_eq!((rig.node.flow_count(), rig.resources.len()), (0, 0));
    let out = rig.pass(&Fields { key, ..request(1) });
    assert_eq!((out.message().key, rig.node.flow_count()), (key, 1));
    assert!(rig.node.flows().all(|flow| flow.proved));
}

/// BOOM-3.2.1-14: a wrong KEY confirms nothing.
#[test]
fn a_wrong_key_confirms_nothing() {
    let mut rig = proving();
    let key = confirmation(&mut rig, &request(1));
    for wrong in [1, 0, key - 2, confirmation(&mut rig, &request(2))] {
        rig.pass(&Fields { key: wrong, ..request(1) });
        assert_eq!(rig.node.flow_count(), 0, "{wrong}");
    }
    let mut other = Fields { key, ..request(1) };
    other.ends.src = ip("192.0.2.9");
    rig.pass(&other);
    assert_eq!(rig.node.flow_count(), 0, "the KEY is that of another initiating node");
}

/// BOOM-G11-02: a forged release or refresh without the KEY changes nothing.
#[test]
fn a_proved_reservation_obeys_its_key_only() {
    let mut rig = proving();
    let key = confirmation(&mut rig, &request(1));
    rig.pass(&Fields { key, ..request(1) });
    let expires = rig.expires();
    rig.wait(seconds(3.0));
    let forged = Fields { rates: vec![rates(0, 0)], ..request(1) };
    assert_eq!(rig.pass(&forged).message().key, key, "the answer is its prime");
    rig.pass(&request(1));
    assert_eq!((rig.node.flow_count(), rig.expires()), (1, expires));
    rig.pass(&Fields { key, rates: vec![rates(0, 0)], ..request(1) });
    assert_eq!(rig.node.flow_count(), 0);
}

/// BOOM-3.2.1-16, BOOM-G10-02: two nodes that demand a proof fit in the KEY; the third one refuses.
#[test]
fn primes_of_several_nodes_multiply() {
    let mut rig = proving();
    let own = confirmation(&mut rig, &request(1));
    let theirs = (1 << 30) + 3;
    let both = confirmation(&mut rig, &Fields { key: theirs, ..request(1) });
    assert_eq!(both, own * theirs);
    rig.pass(&Fields { key: both, ..request(1) });
    assert_eq!(rig.node.flow_count(), 1);
    let full = rig.pass(&Fields { key: theirs * theirs, ..request(2) });
    let by = full.message().body.unwrap().options.refusal().unwrap();
    assert_eq!(Reason::of(by.cause), Reason::KeyFull);
}

/// On a path whose way back is another one, each direction has its own prime; the next request proves both.
#[test]
fn both_directions_are_proved() {
    let mut rig = proving();
    let once = confirmation(&mut rig, &request(1));
    let twice = confirmation(&mut rig, &reply(1));
    assert_ne!(once, twice);
    rig.pass(&Fields { key: once * twice, ..request(1) });
    rig.pass(&Fields { key: once * twice, ..reply(1) });
    assert_eq!(rig.node.flow_count(), 2);
}

/// On a symmetric path one prime of a node proves both directions, so that a KEY has room for two nodes.
#[test]
fn one_prime_is_enough_where_both_ways_are_one() {
    let (mut first, mut second) = (proving(), Rig::behind(Config { prove: true, ..Config::default() }));
    let mut key = 1;
    for (held, changes) in [(0, true), (4, false)] {
        let sent = key;
        for (fields, back) in [(request(1), false), (reply(1), true)] {
            let nodes = if back { [&mut second, &mut first] } else { [&mut first, &mut second] };
            for node in nodes {
                let out = node.pass(&Fields { key, ..fields.clone() });
                assert!(!out.message().is_refused());
                key = out.message().key;
            }
        }
        assert_eq!(key != sent, changes);
        assert_eq!(first.node.flow_count() + second.node.flow_count(), held);
    }
}

/// The reply of a request that took another way has a prime of its own, although the KEY has the prime of an earlier request.
#[test]
fn a_reply_without_its_request_proves_itself() {
    let mut rig = proving();
    let key = confirmation(&mut rig, &request(1));
    assert_eq!(confirmation(&mut rig, &Fields { key, ..reply(1) }), key, "the reply of this loop");
    assert_ne!(confirmation(&mut rig, &Fields { key, ..reply(1) }), key);
}

/// With smaller primes a KEY has room for three or four nodes.
#[test]
fn a_key_has_room_for_as_many_nodes_as_configured() {
    for (primes, bits) in [(2, 31), (3, 21), (4, 16)] {
        let mut rig = Rig::with(Config { prove: true, primes, ..Config::default() });
        // The largest primes of other nodes.
        let others = ((1_u64 << bits) - 1).pow(u32::from(primes) - 1);
        let key = confirmation(&mut rig, &Fields { key: others, ..request(1) });
        assert_eq!(64 - (key / others).leading_zeros(), bits, "{primes}");
        assert_eq!(key % others, 0);
        let full = rig.pass(&Fields { key, ..request(2) });
        assert!(full.message().is_refused());
    }
}
