//! O09: requests that come again with their session, where a crash or a lost link has left something under it.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::{Mri, PathCoupled, SessionId};
use signalbox_qos::engine::{
    Command, Config, Flow, Input, QosEvent, QosRequest, ReserveRequest, ReverseDirection,
};
use signalbox_qos::qspec::reserve_for;
use signalbox_qos::wire::{
    BindingCode, BoundSession, Carried, Info, Message, MessageFlags, MessageType, Rsn,
};
use signalbox_wire::Writer;

use crate::relay::{one, response};
use crate::rig::{BEFORE, BEHIND, EPOCH, Rig, SESSION, Sent, addr, flow, init_qspec, octets, qspec, reserve};

/// The reverse direction of the bidirectional reservation with [`SESSION`].
const BACK: SessionId = SessionId([0x87, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);

fn wanted(rate: u64) -> ReserveRequest {
    let to = Flow { src: Some(addr("10.0.2.1")), ..Flow::to(addr("203.0.113.9")) };
    ReserveRequest { session: Some(SESSION), ..ReserveRequest::new(to, QosRequest::rate(rate)) }
}

/// A command of a user whose packets leave this node; afterwards messages end here.
fn asks(rig: &mut Rig, request: ReserveRequest) -> Sent {
    rig.end = false;
    let sent = one(rig.input(Input::Command { id: 1, command: Command::Reserve(Box::new(request)) }));
    rig.sent(&sent);
    rig.end = true;
    sent
}

fn by_receiver(rate: u64) -> ReserveRequest {
    ReserveRequest { receiver_initiated: true, ..wanted(rate) }
}

fn query(init: &[u8]) -> Message<'_> {
    Message { flags: MessageFlags::RESERVE_INIT, qspec: Some(init), ..Message::new(MessageType::QUERY) }
}

fn number(sent: &Sent) -> u32 {
    sent.message().rsn.unwrap().number
}

fn kinds(sent: &[Sent]) -> Vec<(SessionId, MessageType)> {
    sent.iter().map(|sent| (sent.session, sent.message().kind)).collect()
}

fn is_granted(rig: &Rig, rate: u64) -> bool {
    matches!(rig.events.last(), Some(QosEvent::Granted(granted)) if granted.quality.rate == Some(rate))
}

/// The user at the flow's source releases what the receiver reserved, or loses it, and asks again.
#[test]
fn a_request_for_the_receiver_keeps_its_session() {
    let mut rig = Rig::new();
    for rsn in [0, 70_000] {
        let asked = asks(&mut rig, by_receiver(10_000));
        assert!(asked.session == SESSION && asked.message().is_reserve_init());
        let mut answer = Vec::new();
        reserve_for(asked.message().qspec.unwrap(), &mut answer).unwrap();
        let message = octets(&Message { rii: Some(5), ..reserve(rsn, &answer) });
        let sent = one(rig.receive_octets(BEHIND, asked.mri.inverted(), SESSION, &message));
        assert!(sent.info() == Info::RESERVED && is_granted(&rig, 10_000));
        let sent = one(rig.input(Input::Command { id: 1, command: Command::Release }));
        assert_eq!(
            (sent.message().kind, rig.events.last()),
            (MessageType::NOTIFY, Some(&QosEvent::Released))
        );
    }
}

/// A node that still has an earlier request of the user answers the QUERY first. The user gets the grant of what was asked for or, if
/// nothing else comes, of what stands.
#[test]
fn a_user_is_not_granted_what_an_earlier_request_asked_for() {
    for comes in [true, false] {
        let mut rig = Rig::new();
        let asked = asks(&mut rig, by_receiver(20_000));
        let mut answer = Vec::new();
        reserve_for(asked.message().qspec.unwrap(), &mut answer).unwrap();
        let receive = |rig: &mut Rig, rsn, qspec: &[u8]| {
            let message = octets(&Message { rii: Some(5 + rsn), ..reserve(rsn, qspec) });
            one(rig.receive_octets(BEHIND, asked.mri.inverted(), SESSION, &message)).info()
        };
        let earlier = init_qspec(10_000);
        assert_eq!(receive(&mut rig, 1, &earlier), Info::RESERVED);
        assert!(matches!(rig.events[..], [QosEvent::Started { .. }]), "{:?}", rig.events);
        if comes {
            assert_eq!(receive(&mut rig, 2, &answer), Info::RESERVED);
            assert!(is_granted(&rig, 20_000));
        }
        rig.until(rig.now + Duration::from_secs(60));
        let granted = if comes { 20_000 } else { 10_000 };
        assert!(is_granted(&rig, granted) && rig.events.len() == 2, "{:?}", rig.events);
    }
}

/// The receiver still tears down the earlier reservation when the sender asks again. Nodes that remember it know the RSN of that tear.
#[test]
fn a_receiver_begins_again_with_a_newer_rsn() {
    let mut rig = Rig::new();
    rig.end = true;
    let init = init_qspec(10_000);
    let first = one(rig.receive(&query(&init)));
    assert_eq!(first.message().kind, MessageType::RESERVE);
    rig.sent(&first);
    rig.receive(&Message { rii: first.message().rii, ..response(Info::RESERVED) });
    let released =
        Message { info: Some(Info::RESERVATION_FAILURE.into()), ..Message::new(MessageType::NOTIFY) };
    let tear = one(rig.receive(&released));
    assert!(tear.message().is_tear() && rig.qos.sessions() == 1, "it waits for its confirmation");
    rig.now = rig.now + Duration::from_secs(1);
    let again = one(rig.receive(&query(&init)));
    assert!(!again.message().is_tear() && again.message().qspec.is_some());
    assert!(Rsn::newer(number(&again), number(&tear)), "{} after {}", number(&again), number(&tear));
    // And after its record has gone.
    rig.sent(&again);
    rig.receive(&Message { rii: again.message().rii, ..response(Info::RESERVED) });
    let tear = one(rig.receive(&released));
    rig.receive(&Message { rii: tear.message().rii, ..response(Info::TORN_DOWN) });
    assert_eq!(rig.qos.sessions(), 0);
    rig.now = rig.now + Duration::from_secs(1);
    let again = one(rig.receive(&query(&init)));
    assert!(Rsn::newer(number(&again), number(&tear)), "{} after {}", number(&again), number(&tear));
}

/// A relay with a reservation of a receiver that both ends have confirmed.
fn relay() -> Rig {
    relay_beside(None)
}

/// The same, whose neighbors have this address.
fn relay_beside(address: Option<IpAddr>) -> Rig {
    let mut rig = Rig::new();
    rig.peer_address = address;
    let init = init_qspec(10_000);
    let asked = one(rig.receive(&query(&init)));
    rig.sent(&asked);
    let onward = one(rig.back(&Message { rii: Some(60), ..reserve(3, &init) }));
    rig.sent(&onward);
    assert_eq!(rig.receive(&Message { rii: Some(60), ..response(Info::RESERVED) }).len(), 1);
    rig
}

/// The daemon of the sender has crashed, and is the same peer for GIST: its QUERY is answered by the node that has the reservation.
/// A request for something else goes on to the receiver.
#[test]
fn a_sender_that_lost_the_reservation_gets_it_from_its_neighbor() {
    let mut rig = relay();
    let (init, other) = (init_qspec(10_000), init_qspec(20_000));
    let back = one(rig.receive(&query(&init)));
    assert_eq!((back.message().kind, back.mri), (MessageType::RESERVE, flow().inverted()));
    assert!(back.message().qspec.is_some());
    rig.sent(&back);
    assert_eq!(rig.receive(&query(&init)), [], "it is sent again by itself");
    assert_eq!(rig.receive(&Message { rii: back.message().rii, ..response(Info::RESERVED) }), []);
    for _ in 0..2 {
        let onward = one(rig.receive(&query(&other)));
        assert!(onward.message().is_reserve_init() && onward.mri == flow() && onward.session == SESSION);
        assert_eq!(onward.message().qspec, Some(&other[..]));
    }
    assert_eq!(rig.held(), 10_000);
    let onward = one(rig.back(&Message { rii: Some(61), ..reserve(4, &other) }));
    assert_eq!((onward.message().rii, rig.held()), (Some(61), 20_000));
    rig.receive(&Message { rii: Some(61), ..response(Info::RESERVED) });
    assert_eq!(one(rig.receive(&query(&other))).message().kind, MessageType::RESERVE, "this stands now");
}

/// The receiver reserves what the sender asks for now.
#[test]
fn a_receiver_reserves_what_the_sender_asks_for_now() {
    let mut rig = Rig::new();
    rig.end = true;
    let (init, other) = (init_qspec(10_000), init_qspec(20_000));
    let first = one(rig.receive(&query(&init)));
    rig.sent(&first);
    rig.receive(&Message { rii: first.message().rii, ..response(Info::RESERVED) });
    let second = one(rig.receive(&query(&other)));
    assert_eq!((second.message().qspec, number(&second)), (Some(&other[..]), number(&first) + 1));
}

/// The end of the earlier reservation is remembered until the RESERVE for the next one has come.
#[test]
fn a_session_whose_end_is_remembered_waits_for_its_next_reserve() {
    let mut rig = relay();
    let init = init_qspec(10_000);
    let tear = Message { flags: MessageFlags::TEAR, rii: Some(61), ..reserve(4, &[]) };
    assert!(one(rig.back(&tear)).message().is_tear());
    one(rig.receive(&Message { rii: Some(61), ..response(Info::TORN_DOWN) }));
    rig.until(rig.now + Duration::from_secs(3));
    assert!(one(rig.receive(&query(&init))).message().is_reserve_init());
    rig.until(rig.now + Duration::from_secs(3));
    let onward = one(rig.back(&Message { rii: Some(62), ..reserve(70_000, &init) }));
    assert_eq!((onward.message().kind, rig.held()), (MessageType::RESERVE, 10_000));
}

/// A bidirectional request has the same two sessions each time.
#[test]
fn a_bidirectional_request_keeps_its_sessions() {
    let mut rig = Rig::new();
    let mut last = None;
    for _ in 0..2 {
        let there = asks(&mut rig, ReserveRequest { bidirectional: true, ..wanted(10_000) });
        let bound: Vec<_> = there.message().bound_sessions.sessions().map(|bound| bound.session).collect();
        assert_eq!((there.session, bound), (SESSION, vec![BACK]));
        assert!(last.is_none_or(|last| Rsn::newer(number(&there), last)));
        last = Some(number(&there));
        rig.input(Input::Command { id: 1, command: Command::Release });
        rig.until(rig.now + Duration::from_secs(40));
    }
}

/// The initiator of a bidirectional reservation has crashed, and asks again: it needs the reverse direction, too.
#[test]
fn the_reverse_direction_is_reserved_anew_with_the_forward_one() {
    let mut bound = Vec::new();
    let binding = BoundSession { code: BindingCode::BIDIRECTIONAL, session: BACK };
    binding.write(&mut Writer::new(&mut bound)).unwrap();
    let some = qspec(10_000);
    let mut rig = Rig::new();
    rig.end = true;
    let both = |rig: &mut Rig, rsn: Rsn, rii| {
        let bound_sessions = Carried::bound_sessions(&bound);
        let message = Message { rsn: Some(rsn), rii: Some(rii), bound_sessions, ..reserve(0, &some) };
        let sent = rig.receive(&message);
        let [answer, back] = <[Sent; 2]>::try_from(sent).unwrap();
        assert_eq!(
            kinds(&[answer, back.clone()]),
            [(SESSION, MessageType::RESPONSE), (BACK, MessageType::RESERVE)]
        );
        rig.sent(&back);
        let confirms = octets(&Message { rii: back.message().rii, ..response(Info::RESERVED) });
        rig.receive_octets(BEFORE, back.mri.inverted(), BACK, &confirms);
        back
    };
    let first = both(&mut rig, Rsn { number: 0, epoch: EPOCH }, 1);
    let Mri::PathCoupled(there) = flow() else { panic!() };
    assert_eq!((first.mri.src(), first.mri.dst()), (there.dst, there.src));
    rig.now = rig.now + Duration::from_secs(1);
    let second = both(&mut rig, Rsn { number: 0, epoch: EPOCH + 1 }, 2);
    assert!(Rsn::newer(number(&second), number(&first)), "{} after {}", number(&second), number(&first));
    // A refresh asks for nothing.
    let refresh =
        Message { rsn: Some(Rsn { number: 0, epoch: EPOCH + 1 }), rii: Some(3), ..reserve(0, &some) };
    assert_eq!(kinds(&rig.receive(&refresh)), [(SESSION, MessageType::RESPONSE)]);
    // It releases both, and asks again while the tear of the reverse direction waits for its confirmation.
    let tear = Rsn { number: 1, epoch: EPOCH + 1 };
    let tear = Message { rsn: Some(tear), flags: MessageFlags::TEAR, rii: Some(4), ..reserve(1, &[]) };
    let sent = rig.receive(&tear);
    let torn = sent.iter().find(|sent| sent.session == BACK && sent.message().is_tear()).unwrap();
    rig.now = rig.now + Duration::from_secs(1);
    let third = both(&mut rig, Rsn { number: 2, epoch: EPOCH + 1 }, 5);
    assert!(Rsn::newer(number(&third), number(torn)), "{} after {}", number(&third), number(torn));
}

/// The far end has asked for the reverse direction with another rate. The node that would reserve it refuses: the initiator of the forward
/// direction, whose user waits, is informed at once and once, and the question ends.
#[test]
fn another_rate_of_the_reverse_direction_that_is_refused_is_reported() {
    let mut bound = Vec::new();
    let binding = BoundSession { code: BindingCode::BIDIRECTIONAL, session: BACK };
    binding.write(&mut Writer::new(&mut bound)).unwrap();
    let mut rig = Rig::with(Config { way_back: ReverseDirection::Ask, ..Config::default() });
    rig.end = true;
    let forward = |rig: &mut Rig, epoch, rate| {
        let (some, bound_sessions) = (qspec(rate), Carried::bound_sessions(&bound));
        let rsn = Some(Rsn { number: 0, epoch });
        let sent = rig.receive(&Message { rsn, rii: Some(epoch), bound_sessions, ..reserve(0, &some) });
        let [answer, asked] = <[Sent; 2]>::try_from(sent).unwrap();
        let expected = [(SESSION, MessageType::RESPONSE), (BACK, MessageType::QUERY)];
        assert_eq!(kinds(&[answer, asked.clone()]), expected);
        rig.sent(&asked);
        asked
    };
    let first = forward(&mut rig, EPOCH, 10_000);
    let mut answer = Vec::new();
    reserve_for(first.message().qspec.unwrap(), &mut answer).unwrap();
    let message = octets(&Message { rii: Some(9), ..reserve(0, &answer) });
    let stands = one(rig.receive_octets(BEFORE, first.mri.inverted(), BACK, &message));
    assert_eq!((stands.session, stands.info()), (BACK, Info::RESERVED));
    let second = forward(&mut rig, EPOCH + 1, 20_000);
    assert_eq!(second.message().qspec, Some(&init_qspec(20_000)[..]));
    let refusal = Message {
        info: Some(Info::RESERVATION_FAILURE.into()),
        note: Some("share: too little is left"),
        ..Message::new(MessageType::NOTIFY)
    };
    let told = one(rig.receive_octets(BEFORE, second.mri.inverted(), BACK, &octets(&refusal)));
    assert_eq!(
        (told.session, told.message().kind, told.mri),
        (SESSION, MessageType::NOTIFY, flow().inverted())
    );
    assert_eq!(told.info(), Info::RESERVATION_FAILURE);
    assert!(told.message().note.is_some_and(|note| note.contains("share")), "{:?}", told.message().note);
    let later = rig.until(rig.now + Duration::from_secs(29));
    let again = |sent: &Sent| matches!(sent.message().kind, MessageType::QUERY | MessageType::NOTIFY);
    assert!(!later.iter().any(|(_, sent)| again(sent)), "{later:?}");
}

/// The far end asks for the reverse direction, and the initiator has crashed. The node next to it has that direction still: it asks for it
/// again when the initiator reserves the forward one. A RESERVE of another node shows nothing, nor does one of a node that did not
/// begin anew.
#[test]
fn an_initiator_that_began_anew_is_asked_for_the_reverse_direction() {
    let (initiator, other) = (addr("10.0.1.2"), addr("10.0.1.3"));
    let Mri::PathCoupled(back) = flow() else { panic!() };
    let there = Mri::PathCoupled(PathCoupled { src: back.dst, dst: back.src, ..back });
    for (from, epoch, asks) in
        [(initiator, EPOCH + 1, true), (initiator, EPOCH, false), (other, EPOCH + 1, false)]
    {
        let mut rig = relay_beside(Some(initiator));
        let mut bound = Vec::new();
        let binding = BoundSession { code: BindingCode::BIDIRECTIONAL, session: SESSION };
        binding.write(&mut Writer::new(&mut bound)).unwrap();
        let (some, bound_sessions) = (qspec(10_000), Carried::bound_sessions(&bound));
        let rsn = Some(Rsn { number: 0, epoch });
        let message = octets(&Message { rsn, rii: Some(9), bound_sessions, ..reserve(0, &some) });
        rig.peer_address = Some(from);
        let sent = rig.receive_octets(BEHIND, there, SessionId([6; 16]), &message);
        let (asked, onward): (Vec<_>, Vec<_>) = sent.into_iter().partition(|sent| sent.session == SESSION);
        assert_eq!(one(onward).message().kind, MessageType::RESERVE);
        assert_eq!(asked.len(), usize::from(asks), "{from} {epoch}");
        for asked in asked {
            assert!(asked.message().is_reserve_init() && asked.mri == flow());
            assert_eq!(asked.message().qspec, Some(&init_qspec(10_000)[..]));
        }
    }
}
