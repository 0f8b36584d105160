//! Messages that are malformed.

use signalbox_casp::wire::natfw::{NatfwMessage, NatfwObject, NatfwStatus, NatfwType, NatfwValue};

use crate::rig::{Rig, filter, wants_response};

fn create() -> Vec<u8> {
    let mut data = Vec::new();
    let values = [NatfwValue::MsgId(5), NatfwValue::Age(1), NatfwValue::Filter(filter(3)), wants_response()];
    NatfwMessage::compose(NatfwType::CREATE, &values, &mut data).unwrap();
    data
}

/// CASPMID-A-18: a message whose number cannot be read is neither answered nor sent on. CASPMID-A-03: others are answered by
/// 15, wherever they are cut.
#[test]
fn a_cut_message_opens_nothing() {
    let whole = create();
    for length in 0..whole.len() {
        let mut rig = Rig::open(3);
        rig.inject_octets(0, 1, whole[..length].to_vec());
        assert!(rig.seen.iter().all(|one| one.to != 2), "{length}");
        assert!(rig.passes(1).is_empty());
        let answers = rig.seen.iter().filter(|one| one.to == 0).count();
        if length < 16 {
            assert_eq!((answers, rig.nodes[1].client.counters().unreadable), (0, 1), "{length}");
        } else {
            assert_eq!((answers, rig.status(0)), (1, NatfwStatus::MALFORMED), "{length}");
        }
    }
}

/// CASPMID-7-36: a message of unknown type ends at the first node with the client. CASPMID-7-31: so does one with a NEXT that
/// may not follow.
#[test]
fn unknown_types_end_here() {
    let mut rig = Rig::open(3);
    rig.inject(0, 1, NatfwType(99), &[NatfwValue::MsgId(5)]);
    assert_eq!(rig.status(0), NatfwStatus::TYPE);
    assert!(rig.seen.iter().all(|one| one.to != 2));
    let next = NatfwValue::Next(NatfwType::CREATE, signalbox_casp::wire::natfw::Tlvs::of(&[]));
    let mut rig = Rig::open(3);
    rig.inject(0, 1, NatfwType::QUERY, &[NatfwValue::MsgId(5), next]);
    assert_eq!(rig.status(0), NatfwStatus::NEXT);
    assert!(rig.seen.iter().all(|one| one.to != 2));
}

/// CASPMID-A-04: objects of unknown types go on as they are. CASPMID-9.5-02: so do credentials.
#[test]
fn unknown_objects_go_on() {
    let mut rig = Rig::open(3);
    let unknown = NatfwValue::Unknown(NatfwObject(0x7f), &[1, 2, 3, 4]);
    let values = [
        NatfwValue::MsgId(5),
        NatfwValue::Age(1),
        NatfwValue::Lifetime(4_000),
        unknown.clone(),
        NatfwValue::Cms(&[9; 8]),
    ];
    rig.inject(0, 1, NatfwType::CREATE, &values);
    let arrived = rig.last(2, NatfwType::CREATE);
    assert!(arrived.values().contains(&unknown));
    assert!(arrived.values().contains(&NatfwValue::Cms(&[9; 8])));
}

/// Random runs of requests, messages, pauses and refusals of the kernel: each message gets one verdict, no more is open than
/// policy allows, and nothing stays.
#[test]
fn random_runs_leave_nothing() {
    let mut rng = signalbox_core::Random::from_number(5971);
    for _ in 0..300 {
        let mut octets = vec![0; 801];
        rng.fill(&mut octets);
        signalbox_casp::fuzz::casp_natfw_client(&octets);
    }
}
