//! O18: what waits to be sent for a reservation dies with the reservation.

use std::time::Duration;

use signalbox_core::SessionId;
use signalbox_qos::engine::{
    Command, Config, Flow, Input, QosEvent, QosRequest, ReserveRequest, StateKeeping,
};
use signalbox_qos::wire::{
    BindingCode, BoundSession, Carried, Info, Message, MessageFlags, MessageId, MessageType, RsnList,
    SessionIds,
};
use signalbox_wire::Writer;

use crate::rig::{BEFORE, BEHIND, EPOCH, OTHER, Rig, SESSION, Sent, addr, flow, octets, qspec, reserve};

fn tear(rsn: u32, rii: Option<u32>) -> Message<'static> {
    Message { flags: MessageFlags::TEAR, rii, ..reserve(rsn, &[]) }
}

fn kinds(sent: &[Sent]) -> Vec<MessageType> {
    sent.iter().map(|sent| sent.message().kind).collect()
}

/// Nothing is held, and nothing is sent by itself later.
fn nothing(rig: &mut Rig) {
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
    assert_eq!(rig.until(rig.now + Duration::from_secs(600)), []);
    assert_eq!(rig.qos.next_deadline(), None);
}

fn command(rig: &mut Rig, rate: u64) -> Vec<Sent> {
    let to = Flow { src: Some(addr("10.0.2.1")), ..Flow::to(addr("203.0.113.9")) };
    let command = Command::Reserve(Box::new(ReserveRequest::new(to, QosRequest::rate(rate))));
    rig.input(Input::Command { id: 1, command })
}

/// A user releases what is not reserved yet, because the route is looked up.
#[test]
fn a_request_that_waits_for_its_route_ends_with_its_release() {
    for many in [false, true] {
        let mut rig = Rig::new();
        rig.slow_routes = true;
        assert_eq!(command(&mut rig, 10_000), []);
        let release = if many { Command::ReleaseMany(vec![1]) } else { Command::Release };
        assert_eq!(rig.input(Input::Command { id: 1, command: release }), []);
        assert_eq!(rig.routed(), []);
        assert_eq!(rig.events, [QosEvent::Released]);
        nothing(&mut rig);
    }
}

/// A change that waits for its route does not begin another reservation after the release.
#[test]
fn a_change_that_waits_for_its_route_ends_with_its_reservation() {
    let mut rig = Rig::with(Config { repeat_tear: false, ..Config::default() });
    let [first] = <[Sent; 1]>::try_from(command(&mut rig, 10_000)).unwrap();
    rig.sent(&first);
    let answer = Message {
        rii: first.message().rii,
        info: Some(Info::RESERVED.into()),
        ..Message::new(MessageType::RESPONSE)
    };
    rig.receive_octets(BEHIND, first.mri.inverted(), first.session, &octets(&answer));
    rig.slow_routes = true;
    assert_eq!(command(&mut rig, 20_000), []);
    let sent = rig.input(Input::Command { id: 1, command: Command::Release });
    assert!(sent.iter().all(|sent| sent.message().is_tear()) && sent.len() == 1);
    assert_eq!(rig.routed(), []);
    assert_eq!(rig.events.iter().filter(|event| **event == QosEvent::Released).count(), 1);
    nothing(&mut rig);
}

/// A RESERVE that waits for the message it is bound to (RFC 5974 §4.6) ends with the tear of its session, alone or in a list. The
/// tear is confirmed.
#[test]
fn a_bound_reserve_that_waits_ends_with_its_tear() {
    let id = Some(MessageId { bidirectional: false, id: [5; 16] });
    let (some, waiting, other) = (qspec(1_000), SessionId([1; 16]), SessionId([2; 16]));
    for (peer, rsn, listed, ends) in [
        (BEFORE, 4, false, true),
        (BEFORE, 3, false, true),
        (BEFORE, 2, false, false),
        (OTHER, 4, false, false),
        (BEFORE, 4, true, true),
    ] {
        let mut rig = Rig::new();
        rig.end = true;
        rig.receive(&reserve(0, &some));
        let bound = Message { bound_msg_id: id, rii: Some(1), ..reserve(3, &some) };
        assert_eq!(rig.receive_octets(BEFORE, flow(), waiting, &octets(&bound)), []);
        let numbers = u32::to_be_bytes(rsn);
        let sent = if listed {
            let list = Message {
                session_ids: SessionIds::from_octets(&waiting.0),
                rsns: RsnList::from_octets(EPOCH, &numbers),
                ..tear(9, None)
            };
            rig.receive_octets(peer, flow(), SESSION, &octets(&list))
        } else {
            rig.receive_octets(peer, flow(), waiting, &octets(&tear(rsn, Some(7))))
        };
        let infos: Vec<_> = sent.iter().map(|sent| (sent.message().rii, sent.info())).collect();
        let confirmed = if ends && !listed { vec![(Some(7), Info::TORN_DOWN)] } else { vec![] };
        assert_eq!(infos, confirmed, "{peer:?} {rsn}");
        // The message that it waited for.
        let trigger = Message { msg_id: id, rii: Some(2), ..reserve(0, &some) };
        let sent = rig.receive_octets(BEFORE, flow(), other, &octets(&trigger));
        let answered: Vec<_> = sent.iter().map(|sent| sent.session).collect();
        assert_eq!(answered, if ends { vec![other] } else { vec![other, waiting] });
        assert_eq!(rig.qos.view_of(rig.now, waiting).is_none(), ends);
    }
}

/// A RESERVE that waits for its route ends with a tear that is processed before it: the route of the tear was found first, or there
/// was no place for the tear to wait.
#[test]
fn a_reserve_that_waits_ends_with_a_tear_that_passes_it() {
    let some = qspec(10_000);
    for places in [1, 64] {
        let mut rig = Rig::with(Config { max_parked: places, ..Config::default() });
        rig.slow_routes = true;
        assert_eq!(rig.receive(&reserve(0, &some)), []);
        let mut sent = rig.receive(&tear(1, Some(9)));
        sent.extend(rig.routed());
        assert_eq!(sent.iter().map(Sent::info).collect::<Vec<_>>(), [Info::TORN_DOWN], "{places}");
        nothing(&mut rig);
    }
}

/// A node without state passes a tear on at once. The RESERVE before it, which waits for its route, does not follow.
#[test]
fn a_node_without_state_sends_no_reserve_after_its_tear() {
    let some = qspec(10_000);
    for state in [StateKeeping::Stateless, StateKeeping::Reduced] {
        let mut rig = Rig::with(Config { state, ..Config::default() });
        rig.slow_routes = true;
        assert_eq!(rig.receive(&reserve(0, &some)), []);
        let mut sent = rig.receive(&tear(1, None));
        sent.extend(rig.routed());
        assert!(sent.len() == 1 && sent[0].message().is_tear(), "{:?}", kinds(&sent));
    }
}

/// The reverse direction of a bidirectional reservation does not begin after the end of the forward one.
#[test]
fn a_reverse_direction_that_waits_ends_with_the_forward_one() {
    let mut bound = Vec::new();
    let binding = BoundSession { code: BindingCode::BIDIRECTIONAL, session: SessionId([8; 16]) };
    binding.write(&mut Writer::new(&mut bound)).unwrap();
    let some = qspec(10_000);
    let request =
        Message { rii: Some(1), bound_sessions: Carried::bound_sessions(&bound), ..reserve(0, &some) };
    for rii in [None, Some(2)] {
        let mut rig = Rig::new();
        rig.end = true;
        rig.slow_routes = true;
        assert_eq!(rig.receive(&request), []);
        let first = rig.lookups.remove(0);
        let answered = rig.routed_one(first);
        assert_eq!((answered.len(), rig.lookups.len()), (1, 1), "the other direction waits");
        let lookup = rig.lookups.remove(0);
        rig.slow_routes = false;
        rig.receive(&tear(1, rii));
        assert_eq!(rig.routed_one(lookup), []);
        assert_eq!(rig.held(), 0);
        rig.until(rig.now + Duration::from_secs(600));
        assert_eq!(rig.qos.sessions(), 0);
    }
}

/// A request of this node for a reservation that it lost is not repeated.
#[test]
fn a_repair_is_not_repeated_after_the_reservation_was_lost() {
    let mut rig = Rig::new();
    let onward = rig.reserved(0, 10_000);
    rig.back(&Message {
        rii: onward.message().rii,
        info: Some(Info::RESERVED.into()),
        ..Message::new(MessageType::RESPONSE)
    });
    // The next peer has lost the state: this node sends it whole when its previous peer has answered.
    let rsn = onward.message().rsn;
    let lost =
        Message { rsn, info: Some(Info::FULL_QSPEC_REQUIRED.into()), ..Message::new(MessageType::RESPONSE) };
    rig.back(&lost);
    let sent = rig.receive(&reserve(0, &qspec(10_000)));
    assert_eq!(kinds(&sent), [MessageType::RESERVE]);
    sent.iter().for_each(|sent| rig.sent(sent));
    let grant = rig.qos.view_of(rig.now, SESSION).unwrap().grant.unwrap();
    rig.resources.delete(grant);
    assert_eq!(kinds(&rig.input(Input::Timer)), [MessageType::NOTIFY]);
    let later = rig.until(rig.now + Duration::from_secs(60));
    let reserves = later.iter().filter(|(_, sent)| sent.message().kind == MessageType::RESERVE).count();
    assert_eq!(reserves, 0);
}
