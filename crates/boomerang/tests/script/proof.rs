//! The proof that the initiating node receives replies: a number in an option, or the whole KEY.

use signalbox_boomerang::engine::{Config, Reason};
use signalbox_boomerang::wire::{OF_REPLY, Pass};

use crate::rig::*;

fn demanding(provers: u8) -> Config {
    Config { prove: true, provers, ..Config::default() }
}

fn proving() -> Rig {
    Rig::with(demanding(1))
}

fn refused(sent: &Sent) -> Option<Reason> {
    let message = sent.message();
    message.is_refused().then(|| Reason::of(message.body.unwrap().options.refusal().unwrap().cause))
}

/// The KEY that confirms the flow of `fields`.
fn confirmation(rig: &mut Rig, fields: &Fields) -> u64 {
    let out = rig.pass(fields);
    assert!(!out.message().is_refused());
    out.message().key
}

/// BOOM-3.2.1-10, BOOM-3.2.1-11, BOOM-G10-01, BOOM-F5.4-01: the first message makes no state and gets a number of 64 bits.
/// BOOM-3.2.1-14, BOOM-G10-04: the confirmation reserves, and its KEY does not change again.
#[test]
fn a_reservation_waits_for_its_confirmation() {
    let mut rig = proving();
    let keys: Vec<u64> = (1..50).map(|port| confirmation(&mut rig, &request(port))).collect();
    assert!(keys.iter().all(|key| *key > 1 << 32) && keys.iter().any(|key| *key > 1 << 62));
    assert_eq!((rig.node.flow_count(), rig.resources.len()), (0, 0));
    let key = keys[0];
    let out = rig.pass(&Fields { key, ..request(1) });
    assert_eq!((out.message().key, rig.node.flow_count()), (key, 1));
    assert!(rig.node.flows().all(|flow| flow.proved));
}

/// The number is an option of 16 octets for an initiating node that has it; then the KEY stays 1.
#[test]
fn a_number_travels_in_an_option() {
    for provers in 1..=4 {
        let mut rig = Rig::with(demanding(provers));
        let sent = rig.pass(&returning(1));
        assert_eq!((sent.message().key, sent.octets.len()), (1, request(1).octets().len() + 16));
        assert_eq!((sent.proofs().len(), rig.node.flow_count(), rig.resources.len()), (1, 0, 0));
        let confirmed = returning(1).confirming(&sent);
        let out = rig.pass(&confirmed);
        assert_eq!((out.octets, rig.node.flow_count()), (confirmed.octets(), 1));
        assert!(rig.node.flows().all(|flow| flow.proved));
    }
}

/// A part of a KEY can be guessed: with several routers that demand proofs the option is needed.
#[test]
fn a_host_without_the_option_is_refused_where_several_routers_demand_proofs() {
    for provers in 2..=4 {
        let mut rig = Rig::with(demanding(provers));
        assert_eq!(refused(&rig.pass(&request(1))), Some(Reason::NoProof));
        assert_eq!(rig.node.flow_count(), 0);
    }
}

/// BOOM-3.2.1-14, BOOM-G10-03: a wrong KEY confirms nothing.
#[test]
fn a_wrong_key_confirms_nothing() {
    let mut rig = proving();
    let key = confirmation(&mut rig, &request(1));
    for wrong in [1, 0, key - 2, key ^ 1 << 63, confirmation(&mut rig, &request(2))] {
        rig.pass(&Fields { key: wrong, ..request(1) });
        assert_eq!(rig.node.flow_count(), 0, "{wrong}");
    }
    let mut other = Fields { key, ..request(1) };
    other.ends.src = ip("192.0.2.9");
    rig.pass(&other);
    assert_eq!(rig.node.flow_count(), 0, "the KEY is that of another initiating node");
    let fields = Fields { key, ..request(1) };
    rig.octets(3, &fields, &fields.octets());
    assert_eq!(rig.node.flow_count(), 0, "the KEY is that of another interface");
    rig.wait(seconds(180.0));
    rig.pass(&fields);
    assert_eq!(rig.node.flow_count(), 0, "the KEY is too old");
}

/// BOOM-G11-02: a forged release or refresh without the KEY changes nothing.
#[test]
fn a_proved_reservation_obeys_its_key_only() {
    let mut rig = proving();
    let key = confirmation(&mut rig, &request(1));
    rig.pass(&Fields { key, ..request(1) });
    let expires = rig.expires();
    rig.wait(seconds(3.0));
    rig.pass(&Fields { rates: vec![rates(0, 0)], ..request(1) });
    rig.pass(&request(1));
    assert_eq!((rig.node.flow_count(), rig.expires()), (1, expires));
    // As long as it stands, its number is right.
    for _ in 0..9 {
        rig.wait(seconds(60.0));
        rig.pass(&Fields { key, ..request(1) });
    }
    assert_eq!(rig.node.flow_count(), 1);
    rig.pass(&Fields { key, rates: vec![rates(0, 0)], ..request(1) });
    assert_eq!(rig.node.flow_count(), 0);
}

/// Another host that receives replies at its own address does not take a reservation over, nor release it, with a number of its own
/// from before or after.
#[test]
fn a_proof_of_another_host_does_not_take_a_reservation() {
    let mut rig = proving();
    let other = |rates| {
        let mut fields = Fields { rates: vec![rates], ..returning(1) };
        fields.ends.src = ip("192.0.2.9");
        fields
    };
    let early = rig.pass(&other(rates(64_000, 0)));
    let mine = rig.pass(&returning(1));
    let mine = returning(1).confirming(&mine);
    rig.pass(&mine);
    assert_eq!(rig.node.flow_count(), 1);
    for challenge in [early, rig.pass(&other(rates(64_000, 0)))] {
        for wanted in [rates(0, 0), rates(8, 0)] {
            assert_eq!(refused(&rig.pass(&other(wanted).confirming(&challenge))), Some(Reason::Conflict));
        }
        assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000)]);
    }
    // The first host forgot its number, and proves again that it is the one.
    rig.wait(seconds(70.0));
    let again = rig.pass(&returning(1));
    let again = returning(1).confirming(&again);
    assert_ne!(again.options, mine.options);
    rig.pass(&Fields { rates: vec![rates(0, 0)], ..again });
    assert_eq!(rig.node.flow_count(), 0);
}

/// The reservations of local users do not obey messages that come in.
#[test]
fn a_reservation_of_a_local_user_is_not_that_of_a_message() {
    let mut rig = proving();
    rig.be(IN);
    let sent = rig.command(1, signalbox_boomerang::engine::Command::Open(wish())).remove(0);
    assert_eq!(rig.node.flow_count(), 1);
    let flow = sent.message().body.unwrap().flow;
    for wanted in [rates(0, 0), rates(8, 8)] {
        let forged = Fields { flow, rates: vec![wanted], ..returning(1) };
        assert_eq!(refused(&rig.octets(1, &forged, &forged.octets())[0]), Some(Reason::Conflict));
    }
    assert_eq!(rig.reserved(), [(Pass::Request, 2, 64_000)]);
}

/// BOOM-3.2.1-16: the options of four nodes, each for both directions, fit. BOOM-G10-02: a ninth one is refused, as is a second
/// number in the KEY.
#[test]
fn the_numbers_of_four_nodes_fit() {
    let mut last = Rig::behind(demanding(4));
    let mut full = returning(1);
    for flags in [0, OF_REPLY] {
        for node in 1..=4 {
            let proof = signalbox_boomerang::wire::ReturnProof { node, number: 7 };
            let mut octets = Vec::new();
            signalbox_boomerang::wire::Known::ReturnProof(proof)
                .encode(flags, &mut signalbox_wire::Writer::new(&mut octets));
            full.options.extend(octets);
        }
    }
    let room = Fields { options: full.options[16..].to_vec(), ..full.clone() };
    assert_eq!(last.pass(&room).proofs().len(), 8);
    assert_eq!(refused(&last.pass(&full)), Some(Reason::KeyFull));
    let mut second = Rig::behind(demanding(1));
    assert_eq!(refused(&second.pass(&Fields { key: 1 << 50, ..request(1) })), Some(Reason::KeyFull));
    // Nothing is put behind an option of unknown type.
    let unknown = Fields { options: vec![0x70, 0, 0, 0, 1, 2, 3, 4], ..returning(1) };
    assert!(second.pass(&unknown).message().is_refused());
    // The MTU is the limit.
    second.mtu(2, 110);
    assert!(second.pass(&returning(2)).message().is_refused());
}

/// On a path whose way back is another one, each direction has its own number; the next request proves both.
#[test]
fn both_directions_are_proved() {
    let mut rig = proving();
    let once = rig.pass(&returning(1));
    let back = Fields { flags: RETURNS, ..reply(1) };
    let twice = rig.pass(&back);
    assert_eq!((once.proofs()[0].0, twice.proofs()[0].0), (0, OF_REPLY));
    let mut both = returning(1).confirming(&once);
    both.options.extend(back.confirming(&twice).options);
    rig.pass(&both);
    rig.pass(&Fields { options: both.options, ..back });
    assert_eq!(rig.node.flow_count(), 2);
}

/// On a symmetric path one number of a node proves both directions, by option and by KEY.
#[test]
fn one_number_is_enough_where_both_ways_are_one() {
    for (flags, routers) in [(RETURNS, 4_u8), (0, 1)] {
        let mut nodes = vec![Rig::with(demanding(1))];
        nodes.extend((1..routers).map(|n| Rig::behind_others(demanding(4), 10 + n)));
        let mut fields = Fields { flags, ..request(1) };
        for (held, changes) in [(0, true), (2, false)] {
            let before = (fields.key, fields.options.clone());
            for back in [false, true] {
                let order: Vec<u8> = if back { (0..routers).rev().collect() } else { (0..routers).collect() };
                for at in order.into_iter().map(usize::from) {
                    let sent = if back {
                        Fields { flags, key: fields.key, options: fields.options.clone(), ..reply(1) }
                    } else {
                        fields.clone()
                    };
                    let out = nodes[at].pass(&sent);
                    assert!(!out.message().is_refused());
                    fields = fields.confirming(&out);
                }
            }
            assert_eq!((fields.key, fields.options.clone()) != before, changes);
            for node in &nodes {
                assert_eq!(node.node.flow_count(), held);
            }
        }
        assert_eq!(fields.options.len(), if flags == RETURNS { usize::from(routers) * 16 } else { 0 });
    }
}

/// The reply of a request that took another way has a number of its own, although the message has that of an earlier request.
#[test]
fn a_reply_without_its_request_proves_itself() {
    let mut rig = proving();
    let sent = rig.pass(&returning(1));
    let back = Fields { flags: RETURNS, ..reply(1) }.confirming(&sent);
    assert_eq!(rig.pass(&back).proofs(), sent.proofs(), "the reply of this loop");
    assert_eq!(rig.pass(&back).proofs().len(), 2);
}
