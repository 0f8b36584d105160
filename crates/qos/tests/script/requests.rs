//! Requests that begin at a node, and messages that wait for each other.

use std::time::Duration;

use signalbox_core::{SessionId, Time};
use signalbox_qos::engine::{
    CONFLICT, Command, Config, Flow, Input, Priority, QosEvent, QosRequest, QueryRequest, Refusal,
    ReserveRequest,
};
use signalbox_qos::qspec::{self as rules, Offer, Supported, Wish, pass, respond};
use signalbox_qos::wire::qspec::{
    Excess as ExcessParameter, ExcessTreatment, Flags, ParameterId, Procedure, Qspec, Tmod, Value,
};
use signalbox_qos::wire::{Carried, Info, Message, MessageId, MessageType, Rsn};

use crate::rig::{BEFORE, BEHIND, OTHER, Rig, SESSION, Sent, addr, flow, octets, qspec, reserve};

fn request() -> Command {
    let to = Flow { src: Some(addr("10.0.2.1")), ..Flow::to(addr("203.0.113.9")) };
    Command::Reserve(Box::new(ReserveRequest::new(to, QosRequest::rate(10_000))))
}

fn begin(rig: &mut Rig, command: Command) -> Sent {
    let sent = rig.input(Input::Command { id: 1, command });
    let [sent] = <[Sent; 1]>::try_from(sent).unwrap();
    rig.sent(&sent);
    sent
}

/// A second request with the identifier of one whose route is still looked up does not disturb it.
#[test]
fn an_identifier_has_one_reservation() {
    let mut rig = Rig::new();
    let Command::Reserve(mut wanted) = request() else { panic!() };
    wanted.receiver_initiated = true;
    let now = rig.now;
    let first = Input::Command { id: 1, command: Command::Reserve(wanted.clone()) };
    rig.qos.handle(now, first, &mut rig.resources);
    let sent = rig.input(Input::Command { id: 1, command: Command::Reserve(wanted) });
    assert_eq!(sent.iter().map(|sent| sent.message().kind).collect::<Vec<_>>(), [MessageType::QUERY]);
    assert_eq!(rig.events.last(), Some(&QosEvent::Refused(Refusal::IdInUse)));
    rig.input(Input::Command { id: 1, command: Command::Release });
    rig.until(now + Duration::from_secs(600));
    assert_eq!(
        (rig.qos.sessions(), rig.qos.next_deadline()),
        (0, None),
        "no session without a timer is left"
    );
}

/// QOS-5.2.4-01, QOS-5.2.4-02, QOS-5.2.4-03, QOS-5.2.4-04, QOS-5.2.4-05, QOS-5.3.2-03, QOS-5.3.2-04
#[test]
fn a_request_is_repeated_as_it_was_until_time_is_over() {
    let mut rig = Rig::new();
    let first = begin(&mut rig, request());
    let start = rig.now;
    let sent = rig.until(start + Duration::from_secs(31));
    let again: Vec<_> = sent.iter().take_while(|(_, s)| !s.message().is_tear()).collect();
    let at: Vec<_> = again.iter().map(|(at, _)| at.since(start).as_secs_f64().round()).collect();
    assert_eq!(at, [2.0, 6.0, 14.0], "2, 4 and 8 s after each other; the next would be at 30 s");
    assert!(again.iter().all(|(_, s)| s.octets == first.octets));
    assert!(sent.iter().all(|(_, s)| s.message().kind == MessageType::RESERVE), "no other message");
    assert!(matches!(rig.events.last(), Some(QosEvent::Failed(failure)) if failure.class == 0));
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
}

fn kept(session: SessionId) -> Command {
    let Command::Reserve(mut wanted) = request() else { panic!() };
    wanted.session = Some(session);
    Command::Reserve(wanted)
}

/// What a lost reservation left on the path is replaced by the next one of the same user: the session is the same, and its RSN is
/// newer than any before.
#[test]
fn a_session_that_is_kept_goes_on_with_a_newer_rsn() {
    let mut rig = Rig::new();
    let first = begin(&mut rig, kept(SESSION));
    assert_eq!(first.session, SESSION);
    rig.input(Input::Command { id: 1, command: Command::Release });
    let now = rig.now;
    rig.until(now + Duration::from_secs(40));
    let second = begin(&mut rig, kept(SESSION));
    assert_eq!(second.session, SESSION);
    let number = |sent: &Sent| sent.message().rsn.unwrap().number;
    assert!(Rsn::newer(number(&second), number(&first)), "{} after {}", number(&second), number(&first));
}

/// A reservation that stands keeps its session: another request of its user has another one.
#[test]
fn a_session_in_use_is_not_taken() {
    let mut rig = Rig::new();
    begin(&mut rig, kept(SESSION));
    let Command::Reserve(mut wanted) = kept(SESSION) else { panic!() };
    wanted.flow.dst = addr("203.0.113.10");
    let other = rig.input(Input::Command { id: 2, command: Command::Reserve(wanted) });
    let other = other.first().unwrap();
    assert_eq!(other.message().kind, MessageType::RESERVE);
    assert_ne!(other.session, SESSION);
}

/// A flow that another reservation has is a conflict, in words that programs can rely on, and says nothing about the link.
#[test]
fn a_flow_that_is_taken_is_a_conflict() {
    let mut rig = Rig::new();
    begin(&mut rig, request());
    let sent = rig.input(Input::Command { id: 2, command: request() });
    assert!(sent.iter().all(|sent| sent.message().is_tear()), "{sent:?}");
    let Some(QosEvent::Failed(failure)) = rig.events.last() else { panic!("{:?}", rig.events) };
    let note = failure.rule.as_deref().unwrap();
    assert!(note.starts_with(CONFLICT) && note.ends_with("has a reservation already"), "{note}");
    assert_eq!(failure.available, None);
}

/// O04: a request without a size of packets is for what the path carries: it is repeated for the MTU that a refusal names.
#[test]
fn a_request_without_a_size_follows_the_path() {
    let size = |sent: &Sent| {
        let qspec = Qspec::parse(sent.message().qspec.unwrap()).unwrap();
        let Some(Value::Tmod1(tmod)) = qspec.desired().unwrap().value(ParameterId::TMOD_1) else { panic!() };
        tmod.max_packet
    };
    for fixed_packet in [false, true] {
        let mut rig = Rig::new();
        let Command::Reserve(mut wanted) = request() else { panic!() };
        wanted.qos.fixed_packet = fixed_packet;
        let first = begin(&mut rig, Command::Reserve(wanted));
        assert_eq!(size(&first), 1500);
        let note =
            "eth2 has an MTU of 1420 octets: ask for packets of at most 1420 octets (--max-packet 1420)";
        let refusal = Message {
            rii: first.message().rii,
            rsn: first.message().rsn,
            info: Some(Info::RESERVATION_FAILURE.into()),
            note: Some(note),
            ..Message::new(MessageType::RESPONSE)
        };
        let sent = rig.receive_octets(BEHIND, first.mri.inverted(), first.session, &octets(&refusal));
        let sizes: Vec<_> = sent
            .iter()
            .filter(|sent| !sent.message().is_tear())
            .map(|sent| (sent.session, size(sent)))
            .collect();
        if fixed_packet {
            assert_eq!(sizes, []);
            assert!(
                matches!(rig.events.last(), Some(QosEvent::Failed(failure)) if failure.rule.as_deref() == Some(note))
            );
        } else {
            assert_eq!(sizes, [(first.session, 1420)]);
            assert!(!rig.events.iter().any(|event| matches!(event, QosEvent::Failed(_))));
        }
    }
}

/// Each refusal names an MTU that is one octet smaller. After eight requests for smaller packets the user gets the refusal.
#[test]
fn a_request_is_repeated_for_few_sizes() {
    let mut rig = Rig::new();
    let mut last = begin(&mut rig, request());
    for mtu in (1200..1500).rev() {
        let note = format!("eth2 has an MTU of {mtu} octets");
        let refusal = Message {
            rii: last.message().rii,
            rsn: last.message().rsn,
            info: Some(Info::RESERVATION_FAILURE.into()),
            note: Some(&note),
            ..Message::new(MessageType::RESPONSE)
        };
        let sent = rig.receive_octets(BEHIND, last.mri.inverted(), last.session, &octets(&refusal));
        match sent.into_iter().find(|sent| !sent.message().is_tear()) {
            Some(next) => last = next,
            None => {
                let Some(QosEvent::Failed(failure)) = rig.events.last() else { panic!("{:?}", rig.events) };
                assert_eq!((failure.rule.as_deref(), mtu), (Some(note.as_str()), 1500 - 9));
                return;
            }
        }
    }
    panic!("it is repeated for each size");
}

/// A parameter that a node on the path cannot interpret is returned with the N flag. The policy of the QNI decides
/// whether it accepts the reservation.
///
/// QSPEC-4.2.2-03
#[test]
fn the_initiator_keeps_or_tears_down_what_a_node_does_not_support() {
    for accept_not_supported in [true, false] {
        let mut rig = Rig::with(Config { accept_not_supported, ..Config::default() });
        let Command::Reserve(mut wanted) = request() else { panic!() };
        wanted.priority = Some(Priority { preemption: 1, defending: 2 });
        let first = begin(&mut rig, Command::Reserve(wanted));
        let poor = Offer { supported: Supported::NOTHING, ..Offer::of(Offer::UNLIMITED) };
        let (mut passed, mut qspec) = (Vec::new(), Vec::new());
        let result =
            pass(first.message().qspec.unwrap(), rules::Message::Reserve, &poor, &mut passed).unwrap();
        assert!(result.not_supported && !result.failed);
        respond(&passed, rules::Message::Reserve, &mut qspec).unwrap();
        let response = Message {
            rii: first.message().rii,
            info: Some(Info::RESERVED.into()),
            qspec: Some(&qspec),
            ..Message::new(MessageType::RESPONSE)
        };
        let sent = rig.receive_octets(BEHIND, first.mri.inverted(), first.session, &octets(&response));
        if accept_not_supported {
            assert!(sent.is_empty() && rig.held() == 10_000);
            assert!(matches!(rig.events.last(), Some(QosEvent::Granted(_))));
            continue;
        }
        let [tear] = &sent[..] else { panic!("{sent:?}") };
        assert!(tear.message().is_tear());
        assert_eq!(rig.held(), 0);
        let Some(QosEvent::Failed(failure)) = rig.events.last() else { panic!("{:?}", rig.events) };
        assert!(failure.rule.as_ref().is_some_and(|rule| rule.contains("Preemption")), "{failure}");
    }
}

/// Excess traffic is treated as Excess Treatment has it: "drop" reaches the kernel's driver. A treatment that this node does
/// not provide is marked as not supported and, where it is mandatory, refused. Without the parameter the node's own
/// setting applies.
///
/// QSPEC-5.2.11-02
#[test]
fn excess_traffic_is_treated_as_the_qspec_says() {
    use signalbox_core::traffic::Excess;
    let cases = [
        (None, Flags::default(), Some(Excess::BestEffort)),
        (Some(ExcessTreatment::DROP), Flags::default(), Some(Excess::Drop)),
        (Some(ExcessTreatment::DROP), Flags::MANDATORY, Some(Excess::Drop)),
        (Some(ExcessTreatment::NO_METERING), Flags::default(), Some(Excess::BestEffort)),
        (Some(ExcessTreatment::NO_METERING), Flags::MANDATORY, None),
        (Some(ExcessTreatment::SHAPE), Flags::MANDATORY, None),
    ];
    for (treatment, flags, expected) in cases {
        let mut rig = Rig::new();
        let tmod =
            Tmod { rate: 1000.0, bucket: 3000.0, peak: f32::INFINITY, min_policed: 64, max_packet: 1500 };
        let mut desired = vec![(Flags::MANDATORY, Value::Tmod1(tmod))];
        let excess = |treatment| Value::Excess(ExcessParameter { treatment, remark: None });
        desired.extend(treatment.map(|treatment| (flags, excess(treatment))));
        let mut octets = Vec::new();
        Wish::of(Procedure::DESIRED, &desired).compose(&mut octets).unwrap();
        let sent = rig.receive(&Message { rii: Some(1), ..reserve(0, &octets) });
        assert_eq!(rig.installed.first().map(|one| one.excess), expected, "{treatment:?} {flags:?}");
        let [sent] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(sent.message().kind == MessageType::RESERVE, expected.is_some());
        let qspec = Qspec::parse(sent.message().qspec.unwrap()).unwrap();
        let parameter = qspec.objects().find_map(|o| o.parameter(ParameterId::EXCESS_TREATMENT));
        let provided = treatment == Some(ExcessTreatment::DROP);
        assert_eq!(parameter.map(|p| p.flags.not_supported), treatment.map(|_| !provided));
    }
}

/// QOS-5.3.2-01, QOS-5.3.2-02, QOS-5.1.3.1-02
#[test]
fn the_answer_to_an_own_request_is_kept() {
    let mut rig = Rig::new();
    let first = begin(&mut rig, request());
    let answer = Message {
        rii: first.message().rii,
        info: Some(Info::RESERVED.into()),
        ..Message::new(MessageType::RESPONSE)
    };
    let sent = rig.receive_octets(BEHIND, first.mri.inverted(), first.session, &octets(&answer));
    assert_eq!(sent, []);
    assert!(matches!(rig.events.last(), Some(QosEvent::Granted(_))));
    let mut riis = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        rig.input(Input::Command { id: 1, command: Command::Release });
        riis.insert(begin(&mut rig, request()).message().rii);
    }
    assert_eq!(riis.len(), 1000);
}

/// Requests a reservation, which is granted.
fn granted(rig: &mut Rig, confirm_release: bool) -> Sent {
    let Command::Reserve(mut wanted) = request() else { panic!() };
    wanted.confirm_release = confirm_release;
    let first = begin(rig, Command::Reserve(wanted));
    answer(rig, &first, Info::RESERVED);
    assert!(matches!(rig.events.last(), Some(QosEvent::Granted(_))));
    first
}

fn answer(rig: &mut Rig, to: &Sent, info: Info) {
    let rii = to.message().rii;
    let answer = Message { rii, info: Some(info.into()), ..Message::new(MessageType::RESPONSE) };
    let sent = rig.receive_octets(BEHIND, to.mri.inverted(), to.session, &octets(&answer));
    assert_eq!(sent, []);
}

/// A tear is sent once: over reliable transport always, and over any transport if so configured: QOS-5.1.2.1-13,
/// QOS-5.1.2.1-14.
#[test]
fn a_tear_is_sent_once() {
    let once = Config { repeat_tear: false, ..Config::default() };
    let reliable = Config { reliable: true, ..Config::default() };
    for (config, confirm) in
        [(once.clone(), true), (once, false), (reliable.clone(), true), (reliable, false)]
    {
        let reliable = config.reliable;
        let mut rig = Rig::with(config);
        granted(&mut rig, confirm);
        let tear = begin(&mut rig, Command::Release);
        assert!(tear.message().is_tear());
        assert_eq!(tear.reliable, reliable);
        assert_eq!(tear.message().rii.is_some(), confirm);
        let end = rig.now + Duration::from_secs(40);
        assert_eq!(rig.until(end), []);
        assert_eq!((rig.qos.sessions(), rig.events.last()), (0, Some(&QosEvent::Released)));
    }
}

/// Over datagrams a node's own tear requests a RESPONSE, with the retransmission of any request (QOS-5.2.4-02,
/// QOS-5.2.4-03); no refresh is sent meanwhile (QOS-5.1.2.1-15).
#[test]
fn a_tear_is_repeated_until_it_is_answered() {
    for (answered, confirm) in [(false, false), (true, false), (true, true)] {
        let mut rig = Rig::new();
        granted(&mut rig, confirm);
        let tear = begin(&mut rig, Command::Release);
        assert!(tear.message().is_tear() && tear.message().rii.is_some());
        assert_eq!(rig.events.last() == Some(&QosEvent::Released), !confirm, "it is up to the user");
        // The user may use the same identifier again.
        assert_eq!(rig.held(), 0);
        let start = rig.now;
        let mut sent = rig.until(start + Duration::from_secs(7));
        if answered {
            answer(&mut rig, &tear, Info::TORN_DOWN);
            assert_eq!(rig.qos.sessions(), 0);
        }
        sent.extend(rig.until(start + Duration::from_secs(40)));
        let at: Vec<_> = sent.iter().map(|(at, _)| at.since(start).as_secs_f64().round()).collect();
        assert_eq!(at, if answered { vec![2.0, 6.0] } else { vec![2.0, 6.0, 14.0] });
        assert!(sent.iter().all(|(_, again)| again.octets == tear.octets));
        assert_eq!((rig.qos.sessions(), rig.qos.counters().retransmissions), (0, at.len() as u64));
        let released = rig.events.iter().filter(|event| **event == QosEvent::Released);
        assert_eq!(released.count(), 1, "it is reported once");
    }
}

/// Messages about a session that is being torn down have no effect, and its identifier is free.
#[test]
fn a_tear_that_waits_is_not_disturbed() {
    let mut rig = Rig::new();
    granted(&mut rig, false);
    let tear = begin(&mut rig, Command::Release);
    let events = rig.events.len();
    let error = Message {
        rsn: tear.message().rsn,
        info: Some(Info::RESERVATION_FAILURE.into()),
        ..Message::new(MessageType::RESPONSE)
    };
    let sent = rig.receive_octets(BEHIND, tear.mri.inverted(), tear.session, &octets(&error));
    assert_eq!((sent, rig.events.len()), (Vec::new(), events));
    let again = begin(&mut rig, request());
    assert!(again.session != tear.session && !again.message().is_tear());
    answer(&mut rig, &again, Info::RESERVED);
    assert_eq!(rig.qos.sessions(), 2);
    answer(&mut rig, &tear, Info::TORN_DOWN);
    assert_eq!((rig.qos.sessions(), rig.events.len()), (1, events + 2));
}

/// A receiver that does not get the NOTIFY of the flow's sender, and reserves again, gets an error: otherwise no user
/// could release the reservation.
#[test]
fn a_released_reservation_of_a_sender_is_not_reserved_again() {
    let mut rig = Rig::new();
    let to = Flow { src: Some(addr("10.0.2.1")), ..Flow::to(addr("203.0.113.9")) };
    let request = ReserveRequest::new(to, QosRequest::rate(10_000));
    let request = ReserveRequest { receiver_initiated: true, ..request };
    let query = begin(&mut rig, Command::Reserve(Box::new(request)));
    assert!(query.message().is_reserve_init());
    // The flow begins here: a message against the flow ends here.
    rig.end = true;
    let qspec = qspec(10_000);
    let answer = |rig: &mut Rig, from, number| {
        let message = Message { rii: Some(500 + number), ..reserve(number, &qspec) };
        let sent = rig.receive_octets(from, query.mri.inverted(), query.session, &octets(&message));
        let [answer] = <[Sent; 1]>::try_from(sent).unwrap();
        assert_eq!(answer.message().rii, message.rii);
        answer.info()
    };
    assert_eq!(answer(&mut rig, BEHIND, 0), Info::RESERVED);
    let sent = rig.input(Input::Command { id: 1, command: Command::Release });
    assert!(matches!(sent.as_slice(), [notify] if notify.message().kind == MessageType::NOTIFY));
    assert_eq!(rig.events.last(), Some(&QosEvent::Released));
    for (from, number) in [(BEHIND, 1), (OTHER, 2)] {
        assert_eq!(answer(&mut rig, from, number), Info::NO_PATH_STATE);
        assert!(rig.qos.view(rig.now).all(|session| !session.reserved));
    }
    rig.until(rig.now + Duration::from_secs(200));
    assert_eq!(rig.qos.sessions(), 0);
}

/// QOS-5.1.3.6-25, QOS-5.3.2-08
#[test]
fn an_rii_of_an_own_request_conflicts() {
    let mut rig = Rig::new();
    let to = Flow { src: Some(addr("10.0.2.1")), ..Flow::to(addr("203.0.113.9")) };
    let query = QueryRequest::new(to, QosRequest::rate(10_000));
    let first = begin(&mut rig, Command::Query(Box::new(query)));
    let sent = rig.receive_octets(BEHIND, first.mri, first.session, &first.octets);
    let [answer] = <[Sent; 1]>::try_from(sent).unwrap();
    assert_eq!(answer.info(), Info::RII_CONFLICT);
}

fn bound(rig: &mut Rig, id: Option<MessageId>, bound: Option<MessageId>, session: u8) -> Vec<Sent> {
    let some = qspec(1_000);
    let message = Message { msg_id: id, bound_msg_id: bound, rii: Some(1), ..reserve(0, &some) };
    let session = SessionId([session; 16]);
    rig.receive_octets(BEFORE, flow(), session, &octets(&message))
}

/// QOS-4.6-02, QOS-4.6-03, QOS-4.6-04, QOS-4.6-05, QOS-4.6-06, QOS-4.6-07, QOS-5.1.3.6-27
#[test]
fn bound_messages_wait_for_each_other() {
    let id = |bidirectional| Some(MessageId { bidirectional, id: [5; 16] });
    let at_end = || {
        let mut rig = Rig::with(Config::default());
        rig.end = true;
        rig
    };
    // The bound message first: it waits, a retransmission restarts the timer, and it is discarded after 2 s.
    let mut rig = at_end();
    assert_eq!(bound(&mut rig, None, id(false), 1), []);
    assert_eq!(rig.until(Time::from_secs(11)), []);
    assert_eq!(bound(&mut rig, None, id(false), 1), []);
    assert_eq!(rig.until(Time::from_millis(12_900)), [], "2 s from the repetition");
    let sent = rig.until(Time::from_millis(13_100));
    assert_eq!(sent.iter().map(|(_, s)| s.info()).collect::<Vec<_>>(), [Info::SYNCHRONISATION]);
    assert_eq!(rig.qos.sessions(), 0);
    // The trigger arrives in time: both are answered.
    let mut rig = at_end();
    assert_eq!(bound(&mut rig, None, id(false), 1), []);
    let sent = bound(&mut rig, id(false), None, 2);
    let sessions: Vec<_> = sent.iter().map(|s| (s.session.0[0], s.info())).collect();
    assert_eq!(sessions, [(2, Info::RESERVED), (1, Info::RESERVED)]);
    // The triggering message first, unidirectional: it is answered at once, and the bound message does not wait.
    let mut rig = at_end();
    assert_eq!(bound(&mut rig, id(false), None, 2).len(), 1);
    assert_eq!(bound(&mut rig, None, id(false), 1).len(), 1);
    // Bidirectional: the triggering message waits too.
    let mut rig = at_end();
    assert_eq!(bound(&mut rig, id(true), None, 2), []);
    assert_eq!(bound(&mut rig, None, id(true), 1).len(), 2);
    let _ = SESSION;
}

/// QOS-4.6-02: messages of one peer that wait for messages which do not come leave places to other peers, and to messages that
/// wait for their route.
#[test]
fn messages_that_wait_for_others_leave_places() {
    let mut rig = Rig::with(Config { max_parked: 64, ..Config::default() });
    rig.end = true;
    let id = |n: u8| Some(MessageId { bidirectional: false, id: [n; 16] });
    let waits = |rig: &mut Rig, n: u8| {
        let before = rig.qos.counters().overload;
        assert_eq!(bound(rig, None, id(n), n), []);
        rig.qos.counters().overload == before
    };
    assert_eq!((1..=100).filter(|n| waits(&mut rig, *n)).count(), 36, "three quarters of three quarters");
    // Requests that wait for nothing but their route are served.
    assert_eq!(bound(&mut rig, None, None, 101).iter().map(Sent::info).collect::<Vec<_>>(), [Info::RESERVED]);
    // Another peer gets its place.
    rig.peer_address = Some(addr("10.0.1.77"));
    assert!(waits(&mut rig, 102));
    // The time of all is over: their places are free again.
    rig.until(rig.now + Duration::from_secs(3));
    assert!(waits(&mut rig, 103) && waits(&mut rig, 104));
}

/// Long messages that wait for others leave room to those of another peer.
#[test]
fn long_messages_that_wait_leave_room() {
    let mut rig = Rig::with(Config { max_contents: 1 << 20, ..Config::default() });
    rig.end = true;
    let mut object = vec![0xc1, 0xf6, 0x07, 0xff];
    object.resize(8192, 0xcc);
    let (some, refreshed) = (qspec(1), Carried::refreshed(&object));
    let waits = |rig: &mut Rig, n: u8| {
        let bound_msg_id = Some(MessageId { bidirectional: false, id: [n; 16] });
        let message = Message { rii: Some(1), bound_msg_id, refreshed, ..reserve(1, &some) };
        let before = rig.qos.counters().contents_full;
        assert_eq!(rig.receive_octets(BEFORE, flow(), SessionId([n; 16]), &octets(&message)), []);
        rig.qos.counters().contents_full == before
    };
    assert_eq!((1..=200).filter(|n| waits(&mut rig, *n)).count(), 101);
    assert_eq!(bound(&mut rig, None, None, 201).iter().map(Sent::info).collect::<Vec<_>>(), [Info::RESERVED]);
    // The time of all is over: their octets are free again.
    rig.until(rig.now + Duration::from_secs(3));
    assert!(waits(&mut rig, 202));
}
