//! The proof that the initiating node receives replies: the prime in the KEY.

use signalbox_boomerang::engine::Config;

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
    assert!(full.message().is_refused());
}

/// Each direction has its own prime; the reply is proved by the next request as well.
#[test]
fn both_directions_are_proved() {
    let mut rig = proving();
    let once = confirmation(&mut rig, &request(1));
    let twice = confirmation(&mut rig, &Fields { key: once, ..reply(1) });
    assert_ne!(once * once, twice);
    rig.pass(&Fields { key: twice, ..request(1) });
    rig.pass(&Fields { key: twice, ..reply(1) });
    assert_eq!(rig.node.flow_count(), 2);
}
