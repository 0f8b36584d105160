//! A sender that has lost its passage, in a crash for example, asks again for the same flow in the same session.

use std::time::Duration;

use signalbox_casp::clients::natfw::{Config, NatfwEvent, NatfwRequest, Role};
use signalbox_casp::engine::Indication;
use signalbox_casp::wire::FlowId;
use signalbox_casp::wire::natfw::{
    NatfwMessage, NatfwResult, NatfwStatus, NatfwType, NatfwValue, REMOVED, Tlvs,
};
use signalbox_core::SessionId;

use crate::rig::{FIRST, Packet, Rig, flow, wants_response};

const KEPT: SessionId = SessionId([77; 16]);

fn ask(rig: &mut Rig, id: u64, by_receiver: bool, kept: Option<SessionId>) {
    let request = NatfwRequest { kept, ..rig.request(by_receiver) };
    rig.nodes[0].client.open(rig.now, id, &request);
    rig.run();
}

/// Each firewall has one rule for the packets, also after the time in which one that is not refreshed expires. The receiver is informed
/// of no end before the passage ends.
#[test]
fn what_a_crash_left_on_the_path_is_replaced() {
    for by_receiver in [false, true] {
        let mut rig = if by_receiver { Rig::new(4) } else { Rig::open(4) };
        rig.accept();
        for round in 0..3 {
            ask(&mut rig, 1, by_receiver, Some(KEPT));
            let events = rig.events(0);
            assert_eq!(events.first(), Some(&NatfwEvent::Named { session: KEPT }), "{round}");
            assert!(matches!(events.last(), Some(NatfwEvent::Opened { .. })), "{events:?}");
            assert_eq!([1, 2].map(|n| rig.passes(n).len()), [1, 1], "{round}");
            rig.wait(Duration::from_secs(1));
            if round < 2 {
                rig.restart(0);
            }
        }
        rig.wait(Duration::from_secs(400));
        assert_eq!([1, 2].map(|n| rig.passes(n).len()), [1, 1]);
        let ended = |rig: &Rig| rig.events(3).iter().any(|event| matches!(event, NatfwEvent::Ended { .. }));
        assert!(!ended(&rig));
        rig.close();
        assert_eq!([1, 2].map(|n| rig.passes(n).len()), [0, 0]);
        assert_eq!(ended(&rig), by_receiver);
        assert_eq!(rig.nodes[0].client.sessions(), 0);
    }
}

/// A session of its own leaves the former rule until it expires.
#[test]
fn another_session_stands_beside_the_former_one() {
    let mut rig = Rig::open(4);
    ask(&mut rig, 1, false, Some(KEPT));
    rig.restart(0);
    ask(&mut rig, 1, false, None);
    assert_eq!([1, 2].map(|n| rig.passes(n).len()), [2, 2]);
}

/// One user twice: the session is that of the first request, and is free again after its end.
#[test]
fn a_session_in_use_is_not_given_to_another_request() {
    let mut rig = Rig::open(3);
    ask(&mut rig, 1, false, Some(KEPT));
    ask(&mut rig, 2, false, Some(KEPT));
    let names = |rig: &Rig| -> Vec<_> {
        let name = |event: &NatfwEvent| {
            if let NatfwEvent::Named { session } = event { Some(*session) } else { None }
        };
        rig.events(0).iter().filter_map(name).collect()
    };
    assert_eq!((names(&rig).len(), names(&rig)[0]), (2, KEPT));
    assert_ne!(names(&rig)[1], KEPT);
    rig.close();
    assert!(rig.kinds(1).contains(&NatfwType::RELEASE));
    rig.clear();
    rig.restart(0);
    ask(&mut rig, 3, false, Some(KEPT));
    assert_eq!(names(&rig), [KEPT]);
}

/// A node holds the session with as many flows as one has: who has learned its name may have made them. The request goes on in a session
/// of its own.
#[test]
fn a_session_that_others_fill_is_not_taken() {
    let mut rig = Rig::open(4);
    ask(&mut rig, 1, false, Some(KEPT));
    let create = rig.last(1, NatfwType::CREATE);
    rig.close();
    rig.wait(Duration::from_secs(400));
    let FlowId::V4Ports { src, dst, src_port, protocol, .. } = create.flow else { unreachable!() };
    for dst_port in 1..=4 {
        let flow = FlowId::V4Ports { src, dst, src_port, dst_port, protocol };
        let values = [NatfwValue::MsgId(dst_port.into()), NatfwValue::Age(dst_port.into()), wants_response()];
        let mut data = Vec::new();
        NatfwMessage::compose(NatfwType::CREATE, &values, &mut data).unwrap();
        rig.carry(Packet { to: 2, from: 1, flow, data, ..create.clone() });
    }
    rig.restart(0);
    rig.clear();
    ask(&mut rig, 1, false, Some(KEPT));
    let events = rig.events(0);
    let named = |event: &&NatfwEvent| matches!(event, NatfwEvent::Named { .. });
    assert_eq!(events.iter().filter(named).count(), 2, "{events:?}");
    assert!(matches!(events.last(), Some(NatfwEvent::Opened { .. })), "{events:?}");
}

/// O08: a firewall that has restarted sends a refresh on, which is no request, and informs the host, which asks again at once. Its user
/// notices nothing.
#[test]
fn a_firewall_that_has_lost_a_passage_lets_its_host_ask_again() {
    for by_receiver in [true, false] {
        let mut rig = Rig::standing(4, by_receiver);
        let inside = vec!["left".to_owned()];
        rig.restart_as(1, Config { role: Role::Firewall, inside, ..Config::default() });
        assert!(rig.refresh(FIRST));
        rig.wait(Duration::from_millis(500));
        assert_eq!((rig.status(0), rig.passes(1)), (NatfwStatus::NO_STATE, Vec::new()));
        rig.wait(Duration::from_secs(1));
        assert_eq!((rig.passes(1), rig.events(0)), (vec![flow(4).filter()], Vec::new()));
        assert_eq!(rig.nodes[1].client.counters().unknown, 1);
    }
}

/// After a change of the route, the request of the host follows the refresh. There is nothing to report then: a report would come back
/// over the new branch like an answer, before the branch stands.
#[test]
fn a_firewall_whose_request_follows_reports_nothing() {
    let mut rig = Rig::standing(4, false);
    let inside = vec!["left".to_owned()];
    rig.restart_as(1, Config { role: Role::Firewall, inside, ..Config::default() });
    assert!(rig.refresh(FIRST));
    let (session, flow) = (FIRST, flow(4));
    rig.indicate(0, &Indication::Branch { session, flow, previous: false, id: 1, ended: false });
    rig.wait(Duration::from_secs(2));
    assert_eq!((rig.passes(1), rig.status(0)), (vec![flow.filter()], NatfwStatus::DONE));
    assert_eq!(rig.nodes[1].client.counters().unknown, 0);
}

fn answers(rig: &Rig) -> usize {
    rig.kinds(0).iter().filter(|kind| **kind == NatfwType::RESPONSE).count()
}

/// A session that is refreshed again and again is reported once in half a second, and not for each refresh.
#[test]
fn refreshes_of_one_unknown_session_have_one_answer() {
    let mut rig = Rig::open(4);
    for _ in 0..100 {
        assert!(rig.refresh(FIRST));
    }
    rig.wait(Duration::from_millis(500));
    assert_eq!((answers(&rig), rig.nodes[1].client.counters().unknown), (1, 1));
    assert!(rig.refresh(FIRST));
    rig.wait(Duration::from_millis(500));
    assert_eq!(answers(&rig), 2);
}

/// One hop gets ten reports a second at most. It gets all, one after the other, as far as they find a place; what finds none is counted.
#[test]
fn reports_of_unknown_sessions_are_limited() {
    let mut rig = Rig::open(4);
    for n in 0..60u128 {
        assert!(rig.refresh(SessionId((n + 1000).to_be_bytes())));
    }
    rig.wait(Duration::from_millis(500));
    assert!((1..=5).contains(&answers(&rig)), "{}", answers(&rig));
    rig.wait(Duration::from_secs(3));
    assert!((10..=35).contains(&answers(&rig)), "{}", answers(&rig));
    rig.wait(Duration::from_secs(10));
    let counters = rig.nodes[1].client.counters();
    assert_eq!((answers(&rig), counters.unknown, counters.errors_limited), (60, 60, 0));
    rig.clear();
    for n in 0..1100u128 {
        assert!(rig.refresh(SessionId((n + 2000).to_be_bytes())));
    }
    let limited = usize::try_from(rig.nodes[1].client.counters().errors_limited).unwrap();
    assert!((1..=5).contains(&answers(&rig)), "{}", answers(&rig));
    assert_eq!(answers(&rig) + limited, 1100 - 768);
    // What waits for another hop waits as before.
    let before = answers(&rig);
    for n in 0..4u128 {
        assert!(rig.refresh_of(SessionId((n + 4000).to_be_bytes()), 7));
    }
    assert_eq!(answers(&rig), before, "reported before a request could follow");
    rig.wait(Duration::from_millis(500));
    let of = |n: u128| {
        let session = SessionId((n + 4000).to_be_bytes());
        rig.seen.iter().any(|one| one.to == 0 && one.session == session)
    };
    assert!((0..4).filter(|n| of(*n)).count() >= 2);
}

/// A next hop that reports after each answer that it has no passage does not make the host send requests without end.
#[test]
fn a_node_that_always_reports_gets_few_requests() {
    let mut rig = Rig::standing(4, false);
    let requests = |rig: &Rig| rig.kinds(1).iter().filter(|kind| **kind == NatfwType::CREATE).count();
    for msg_id in 0..200 {
        let (status, flags, nested) = (NatfwStatus::NO_STATE, REMOVED, Tlvs::of(&[]));
        let result = NatfwResult { status, flags, request: 0, msg_id, nested };
        rig.inject(1, 0, NatfwType::RESPONSE, &[NatfwValue::Status(result)]);
        rig.wait(Duration::from_millis(100));
    }
    assert_eq!((requests(&rig), rig.events(0)), (4, Vec::new()));
}
