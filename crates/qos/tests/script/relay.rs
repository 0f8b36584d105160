//! A node in the middle of the path.

use std::time::Duration;

use signalbox_core::service::SendError;
use signalbox_core::{SessionId, Time};
use signalbox_qos::engine::Config;
use signalbox_qos::wire::{
    BindingCode, BoundSession, Carried, Classifier, GenericFlags, Info, Message, MessageFlags, MessageType,
    Rsn, RsnList, SessionIds,
};
use signalbox_wire::{Writer, parse_hex};

use crate::rig::{BEFORE, BEHIND, EPOCH, OTHER, Rig, SESSION, Sent, flow, octets, qspec, reserve};

fn one(sent: Vec<Sent>) -> Sent {
    match <[Sent; 1]>::try_from(sent) {
        Ok([sent]) => sent,
        Err(other) => panic!("one message expected: {other:?}"),
    }
}

fn response(info: Info) -> Message<'static> {
    Message { info: Some(info.into()), ..Message::new(MessageType::RESPONSE) }
}

/// QOS-5.3.1-01, QOS-3.1-03, QOS-5.3.1-05, QOS-5.3.1-06, QOS-5.3.1-08, QOS-5.4.1-24
#[test]
fn sequence_numbers_decide_what_a_reserve_does() {
    let mut rig = Rig::new();
    let onward = rig.reserved(5, 10_000);
    assert_eq!(onward.message().rsn.unwrap().number, 0, "our own starts at 0");
    assert_eq!(rig.held(), 10_000);
    // Repetitions of the message change nothing and are not forwarded without an RII.
    let same = qspec(10_000);
    for _ in 0..3 {
        assert_eq!(rig.receive(&reserve(5, &same)), []);
    }
    assert_eq!((rig.held(), rig.qos.sessions()), (10_000, 1));
    // They refresh it: it outlives the first message.
    rig.until(Time::from_secs(100));
    assert_eq!(rig.receive(&reserve(5, &same)), []);
    rig.until(Time::from_secs(200));
    assert_eq!(rig.held(), 10_000);
    // A newer RSN changes the reservation, and the node's own RSN.
    let more = qspec(20_000);
    let onward = one(rig.receive(&reserve(6, &more)));
    assert_eq!((onward.message().rsn.unwrap().number, rig.held()), (1, 20_000));
    // An older RSN is dropped.
    assert_eq!(rig.receive(&reserve(5, &same)), []);
    assert_eq!((rig.held(), rig.qos.counters().old_rsn), (20_000, 1));
    // The newer RESERVE prolonged the reservation too.
    rig.until(Time::from_secs(300));
    assert_eq!(rig.held(), 20_000);
}

/// QOS-5.3.1-04
#[test]
fn a_peer_that_restarted_may_count_from_the_beginning() {
    let mut rig = Rig::new();
    rig.reserved(5, 10_000);
    let less = qspec(5_000);
    let fresh = Message { rsn: Some(Rsn { number: 0, epoch: EPOCH + 1 }), ..reserve(0, &less) };
    one(rig.receive(&fresh));
    assert_eq!(rig.held(), 5_000);
    // The new epoch counts from now on.
    assert_eq!(rig.receive(&reserve(9, &less)).len(), 1, "again another epoch");
}

/// QOS-5.3.1-07, QOS-3.2.5-01
/// QOS-5.4.1-23
#[test]
fn a_newer_number_without_qspec_wants_one() {
    let mut rig = Rig::new();
    rig.reserved(5, 10_000);
    let answer = one(rig.receive(&reserve(6, &[])));
    assert_eq!(answer.info(), Info::FULL_QSPEC_REQUIRED);
    assert_eq!(answer.message().rsn, Some(Rsn { number: 6, epoch: EPOCH }));
    assert_eq!(answer.mri, flow().inverted());

    let mut rig = Rig::with(Config { reduced_refresh: false, ..Config::default() });
    rig.reserved(5, 10_000);
    assert_eq!(one(rig.receive(&reserve(5, &[]))).info(), Info::NO_REDUCED_REFRESH);
}

/// QOS-5.1.3.6-05, QOS-3.2.5-02, QOS-5.4.1-32
#[test]
fn a_next_peer_that_wants_full_refreshes_gets_them() {
    let mut rig = Rig::new();
    let onward = rig.reserved(0, 10_000);
    rig.back(&Message { rii: onward.message().rii, ..response(Info::RESERVED) });
    let reduced = rig.until(Time::from_secs(56));
    assert!(reduced.iter().all(|(_, sent)| sent.message().qspec.is_none()) && !reduced.is_empty());
    let answer = Message { rsn: onward.message().rsn, ..response(Info::NO_REDUCED_REFRESH) };
    let full = one(rig.back(&answer));
    assert!(full.message().qspec.is_some());
    let later = rig.until(Time::from_secs(150));
    assert!(later.iter().all(|(_, sent)| sent.message().qspec.is_some()) && !later.is_empty());
}

/// QOS-5.1.2.1-11, QOS-5.1.3.6-17
#[test]
fn a_reserve_from_the_other_direction_is_refused() {
    let mut rig = Rig::new();
    rig.reserved(0, 10_000);
    let more = qspec(20_000);
    let answer = one(rig.back(&Message { rii: Some(3), ..reserve(0, &more) }));
    assert_eq!(answer.info(), Info::WRONG_DIRECTION);
    assert_eq!((answer.mri, answer.message().rii), (flow(), Some(3)));
    assert_eq!(rig.held(), 10_000);
}

/// QOS-5.1.3.6-24
#[test]
fn a_reserve_against_the_flow_needs_a_query_before() {
    let mut rig = Rig::new();
    let some = qspec(10_000);
    assert_eq!(one(rig.back(&reserve(0, &some))).info(), Info::NO_PATH_STATE);
    assert_eq!(rig.qos.sessions(), 0);
}

/// QOS-5.1.3.6-23
#[test]
fn a_way_that_gist_does_not_know_is_reported() {
    let mut rig = Rig::new();
    let some = qspec(10_000);
    let confined = Message { generic: GenericFlags::PROXY, rii: Some(4), ..reserve(0, &some) };
    let onward = one(rig.back(&confined));
    assert_eq!(onward.mri, flow().inverted());
    let answer = one(rig.failed(&onward, SendError::NoStateUpstream));
    assert_eq!((answer.info(), answer.mri), (Info::NO_REVERSE_STATE, flow()));
    assert_eq!(rig.held(), 0);
}

/// QOS-5.1.3.6-09, QOS-5.1.3.6-10, QOS-5.1.3.6-11, QOS-5.1.3.6-13, QOS-5.1.3.6-14, QOS-5.1.3.6-15, QOS-5.1.3.6-16,
/// QOS-5.1.3.6-18, QOS-5.1.3.6-19, QOS-5.1.3.6-22, QOS-5.2.3-01, QOS-5.1.3-02, QOS-5.3.5-08, QOS-5.4-01,
/// QOS-5.4.1-03, QOS-5.3.7-03, QOS-5.4.3-02
/// QOS-7-02
#[test]
fn faulty_messages_are_answered_as_the_rules_and_the_operator_want() {
    let rsn = "00020002 0000000500000001";
    let must = [
        ("01010000 00010001 00000001".to_owned(), Info::MISSING_OBJECT),
        (format!("01010000 {rsn} 00010001 00000001 01f40001 00000000"), Info::UNKNOWN_OBJECT),
    ];
    let may = [
        ("09010000 00010001 00000001".to_owned(), Info::ILLEGAL_MESSAGE_TYPE),
        (format!("01010000 {rsn} 00010001"), Info::MESSAGE_LENGTH),
        (format!("01010004 {rsn} 00010001 00000001"), Info::GENERIC_FLAGS),
        (format!("01010000 {rsn} 00050001 80000000"), Info::ILLEGAL_OBJECT),
        (format!("02000000 {rsn} 000b0001 00000000"), Info::ILLEGAL_OBJECT),
        (format!("01010000 {rsn} 00030001 00000000"), Info::BAD_VALUE),
        (format!("01010000 {rsn} 00010002 0000000000000000"), Info::OBJECT_LENGTH),
        (format!("01010000 {rsn} 00040005 000000c8 {}", "00".repeat(16)), Info::UNKNOWN_VALUE),
        (format!("01010000 {rsn} 00010001 00000001 00010001 00000002"), Info::DUPLICATE_OBJECT),
        (format!("01010000 {rsn} 00070008 {} 00080002 0000000100000002", "00".repeat(32)), Info::BAD_VALUE),
    ];
    for (answer_faults, authenticated) in [(false, false), (true, false), (false, true)] {
        let mut rig = Rig::with(Config { answer_faults, ..Config::default() });
        rig.authenticated = authenticated;
        for (at, (text, info)) in must.iter().chain(&may).enumerate() {
            let sent = rig.receive_octets(BEFORE, flow(), SESSION, &parse_hex(text).unwrap());
            if at < must.len() || answer_faults || authenticated {
                let answer = one(sent);
                assert_eq!((answer.info(), answer.message().kind), (*info, MessageType::RESPONSE), "{text}");
                assert_eq!(answer.mri, flow().inverted());
            } else {
                assert_eq!(sent, [], "{text}");
            }
        }
        assert_eq!((rig.qos.sessions(), rig.qos.counters().malformed), (0, 12));
    }
    let mut rig = Rig::new();
    let text = format!("01010000 {rsn} 00010001 00000009 01f40001 00000000");
    let answer = one(rig.receive_octets(BEFORE, flow(), SESSION, &parse_hex(&text).unwrap()));
    let message = answer.message();
    assert_eq!((message.rii, message.rsn), (Some(9), Some(Rsn { number: 5, epoch: 1 })));
}

/// QOS-5.3.5-02, QOS-5.4.1-08
#[test]
fn a_tear_with_a_fault_is_not_answered() {
    let mut rig = Rig::with(Config { answer_faults: true, ..Config::default() });
    let text = "01030000 00020002 0000000500000001 01f40001 00000000";
    assert_eq!(rig.receive_octets(BEFORE, flow(), SESSION, &parse_hex(text).unwrap()), []);
    let tear = Message { flags: MessageFlags::TEAR, ..reserve(3, &[]) };
    assert_eq!(rig.receive(&tear), [], "nor one of an unknown session");
}

/// QOS-5.1.3.6-21
#[test]
fn a_method_without_classifier_is_unknown() {
    let mut rig = Rig::new();
    let some = qspec(10_000);
    let loose = signalbox_core::Mri::LooseEnd(signalbox_core::LooseEnd {
        src: flow().src(),
        dst: flow().dst(),
        direction: signalbox_core::Direction::Downstream,
    });
    let answer = one(rig.receive_octets(BEFORE, loose, SESSION, &octets(&reserve(0, &some))));
    assert_eq!(answer.info(), Info::UNKNOWN_MRI);
}

/// QOS-5.1.3.6-20
#[test]
fn a_bad_qspec_is_distinguished_from_one_too_new() {
    let mut rig = Rig::new();
    let good = qspec(10_000);
    let mut newer = good.clone();
    newer[0] |= 0x10;
    assert_eq!(one(rig.receive(&reserve(0, &newer))).info(), Info::INCOMPATIBLE_QSPEC);
    assert_eq!(one(rig.receive(&reserve(0, &good[..4]))).info(), Info::MALFORMED_QSPEC);
    assert_eq!((rig.qos.sessions(), rig.held()), (0, 0));
}

/// QOS-5.1.3-03, QOS-5.1.3-04, QOS-5.1.3-05
#[test]
fn unknown_objects_go_on_or_stay_with_the_session() {
    let mut rig = Rig::new();
    let some = qspec(10_000);
    let mut text = octets(&reserve(0, &some));
    text.extend(parse_hex("41f40001 aaaaaaaa 81f50001 bbbbbbbb c1f60001 cccccccc").unwrap());
    let onward = one(rig.receive_octets(BEFORE, flow(), SESSION, &text));
    rig.sent(&onward);
    let message = onward.message();
    assert_eq!(message.forwarded.iter().map(|o| o.value.to_vec()).collect::<Vec<_>>(), [[0xbb; 4]]);
    assert_eq!(message.refreshed.iter().map(|o| o.value.to_vec()).collect::<Vec<_>>(), [[0xcc; 4]]);
    let refreshes = rig.until(Time::from_secs(100));
    assert!(!refreshes.is_empty());
    for (_, refresh) in &refreshes {
        assert!(refresh.message().forwarded.is_empty(), "not stored");
        assert_eq!(refresh.message().refreshed.len(), 1, "repeated");
    }
}

/// QOS-5.3.3-01, QOS-5.3.3-02, QOS-5.1.3.6-03, QOS-5.3.5-05
#[test]
fn bindings_are_kept_copied_and_followed() {
    let mut rig = Rig::new();
    let some = qspec(10_000);
    let mut bound = Vec::new();
    for (code, id) in [(BindingCode::BIDIRECTIONAL, 8), (BindingCode::DEPENDENT, 9)] {
        BoundSession { code, session: SessionId([id; 16]) }.write(&mut Writer::new(&mut bound)).unwrap();
    }
    let message = Message { bound_sessions: Carried::bound_sessions(&bound), ..reserve(0, &some) };
    let sent = rig.receive(&message);
    let [notify, onward] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((notify.message().kind, notify.info()), (MessageType::NOTIFY, Info::UNKNOWN_BOUND_SESSION));
    assert_eq!(onward.message().bound_sessions.len(), 2);
    assert_eq!(rig.qos.view_of(rig.now, SESSION).unwrap().bound.len(), 2);
}

/// QOS-3.2.8-01, QOS-3.2.8-02, QOS-5.1.3.4-03, QOS-5.4.1-16
#[test]
fn a_dependent_session_ends_with_the_other() {
    let mut rig = Rig::new();
    let some = qspec(10_000);
    let other = SessionId([9; 16]);
    rig.receive_octets(BEFORE, flow(), other, &octets(&reserve(0, &some)));
    let mut bound = Vec::new();
    BoundSession { code: BindingCode::DEPENDENT, session: other }
        .write(&mut Writer::new(&mut bound))
        .unwrap();
    let mri =
        signalbox_core::Mri::PathCoupled(signalbox_core::PathCoupled::between(flow().src(), flow().dst()));
    let message = Message { bound_sessions: Carried::bound_sessions(&bound), ..reserve(0, &some) };
    rig.receive_octets(BEFORE, mri, SESSION, &octets(&message));
    assert_eq!((rig.held(), rig.qos.sessions()), (20_000, 2));
    let tear = octets(&Message { flags: MessageFlags::TEAR, ..reserve(1, &[]) });
    let sent = rig.receive_octets(BEFORE, flow(), other, &tear);
    let kinds: Vec<_> = sent.iter().map(|s| (s.session, s.message().kind)).collect();
    assert!(kinds.contains(&(SESSION, MessageType::NOTIFY)), "{kinds:?}");
    assert!(kinds.contains(&(SESSION, MessageType::RESERVE)), "{kinds:?}");
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
}

/// QOS-5.1.3.5-02, QOS-5.1.2.1-04
#[test]
fn a_classifier_leaves_the_fields_that_it_flags() {
    for (classifier, text) in [
        (None, "192.0.2.1 > 203.0.113.9 port 5004 proto 17"),
        (Some(Classifier(Classifier::X.0)), "192.0.2.1 > 0.0.0.0/0"),
        (Some(Classifier(Classifier::Y.0 | Classifier::P.0)), "0.0.0.0/0 > 203.0.113.9 proto 17"),
    ] {
        let mut rig = Rig::new();
        let some = qspec(10_000);
        rig.receive(&Message { classifier, ..reserve(0, &some) });
        let held: Vec<_> = rig.resources.reservations().map(|r| r.filters[0].to_string()).collect();
        assert_eq!(held, [text]);
    }
    let mut rig = Rig::new();
    let some = qspec(10_000);
    let wrong = Message { classifier: Some(Classifier::S), ..reserve(0, &some) };
    assert_eq!(one(rig.receive(&wrong)).info(), Info::BAD_VALUE);
}

/// QOS-5.1.2.1-07, QOS-5.4.1-18, QOS-5.4.1-19, QOS-5.4.1-25
#[test]
fn another_flow_replaces_the_old_one_unless_asked_not_to() {
    for (flags, held) in [(MessageFlags::REPLACE, 20_000), (MessageFlags(0), 30_000)] {
        let mut rig = Rig::new();
        rig.reserved(0, 10_000);
        let more = qspec(20_000);
        let signalbox_core::Mri::PathCoupled(mut moved) = flow() else { panic!() };
        moved.src = crate::rig::addr("192.0.2.77");
        let message = octets(&Message { flags, ..reserve(1, &more) });
        let sent = rig.receive_octets(BEFORE, signalbox_core::Mri::PathCoupled(moved), SESSION, &message);
        assert_eq!(one(sent).message().flags, flags, "REPLACE goes on as it came");
        // Flows of one session share a link: the larger one counts, and both are in the kernel.
        let filters = rig.resources.reservations().count();
        assert_eq!(filters, if held == 20_000 { 1 } else { 2 });
        assert_eq!(rig.qos.sessions(), 1);
        // Both end with the session.
        rig.until(Time::from_secs(400));
        assert_eq!((rig.qos.sessions(), rig.resources.reservations().count()), (0, 0));
    }
}

/// QOS-5.4.1-05, QOS-5.4.1-06, QOS-5.4.1-13, QOS-5.4.1-14, QOS-5.1.2.1-15
#[test]
fn a_tear_ends_the_reservation_and_refreshes_with_it() {
    let mut rig = Rig::new();
    rig.reserved(4, 10_000);
    let tear = |rsn, rii| Message { flags: MessageFlags::TEAR, rii, ..reserve(rsn, &[]) };
    assert_eq!(rig.receive(&tear(3, None)), [], "an old number");
    assert_eq!(rig.held(), 10_000);
    let onward = one(rig.receive(&tear(5, Some(1))));
    assert!(onward.message().is_tear() && onward.message().rii == Some(1));
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 1));
    let some = qspec(10_000);
    assert_eq!(rig.receive(&reserve(5, &some)), [], "a refresh after the tear");
    assert_eq!((rig.held(), rig.qos.counters().after_tear), (0, 1));
    assert!(one(rig.receive(&tear(5, Some(2)))).message().is_tear(), "a second tear goes on");
    assert_eq!(rig.until(Time::from_secs(39)), [], "no refresh");
    let gone = Message { rii: Some(2), ..response(Info::TORN_DOWN) };
    assert_eq!(one(rig.back(&gone)).info(), Info::TORN_DOWN);
    rig.until(Time::from_secs(41));
    assert_eq!(rig.qos.sessions(), 0, "operation state ends after one refresh interval");
    // Without an RII nothing is kept.
    let mut rig = Rig::new();
    rig.reserved(4, 10_000);
    assert!(one(rig.receive(&tear(5, None))).message().is_tear());
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
}

#[test]
fn a_tear_does_not_overtake_a_reserve_that_waits_for_its_route() {
    let mut rig = Rig::new();
    let qspec = qspec(10_000);
    let tear = Message { flags: MessageFlags::REPLACE.with_if(MessageFlags::TEAR, true), ..reserve(1, &[]) };
    let sent = rig.receive_at_once(&[reserve(0, &qspec), tear]);
    let tears: Vec<_> = sent.iter().map(|sent| sent.message().is_tear()).collect();
    assert_eq!(tears, [false, true], "both go on, in their order");
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
}

/// QOS-5.3.2-05, QOS-5.3.2-06, QOS-5.4.3-04
#[test]
fn an_rii_of_somebody_else_goes_through_unchanged_and_so_does_its_answer() {
    let mut rig = Rig::new();
    let onward = rig.reserved(0, 10_000);
    assert_eq!(onward.message().rii, Some(500));
    let quiet = rig.until(Time::from_secs(24));
    assert_eq!(quiet, [], "no retransmission by this node");
    let back = one(rig.back(&Message { rii: Some(500), ..response(Info::RESERVED) }));
    assert_eq!((back.message().rii, back.mri), (Some(500), flow().inverted()));
    assert_eq!(rig.back(&Message { rii: Some(501), ..response(Info::RESERVED) }), [], "without a request");
    assert_eq!(rig.qos.counters().stray_responses, 1);
}

/// QOS-4.2-01, QOS-5.3.5-09, QOS-5.4.3-06, QOS-5.4.3-07, QOS-5.4.3-08, QOS-5.4.3-10
/// QOS-5.4.3-05, QOS-5.4.3-09
#[test]
fn an_error_goes_on_with_the_number_of_the_peer_before() {
    let mut rig = Rig::new();
    let some = qspec(10_000);
    let onward = one(rig.receive(&reserve(41, &some)));
    let rsn = onward.message().rsn;
    assert_eq!(rsn.unwrap().number, 0);
    assert_eq!(rig.back(&response(Info::RESERVATION_FAILURE)), [], "neither RII nor RSN");
    assert_eq!(rig.back(&Message { rsn, ..response(Info::RESERVED) }), [], "no error");
    let mut rig = Rig::new();
    let onward = one(rig.receive(&reserve(41, &some)));
    let rsn = onward.message().rsn;
    let wrong = rsn.map(|rsn| Rsn { number: rsn.number + 1, ..rsn });
    assert_eq!(rig.back(&Message { rsn: wrong, ..response(Info::RESERVATION_FAILURE) }), []);
    assert_eq!(rig.held(), 10_000);
    let back = one(rig.back(&Message { rsn, ..response(Info::RESERVATION_FAILURE) }));
    assert_eq!(back.message().rsn, Some(Rsn { number: 41, epoch: EPOCH }));
    assert_eq!(rig.held(), 0, "what is not confirmed is given back");
}

/// QOS-5.3.6-01, QOS-5.3.6-04, QOS-5.3.7-02, QOS-5.3.7-05, QOS-5.3.7-06, QOS-5.3.7-04, QOS-5.1.3.6-07, QOS-3.2.6-02
#[test]
fn listed_sessions_are_judged_one_by_one() {
    let mut rig = Rig::new();
    let some = qspec(1_000);
    let id = |n: u8| SessionId([n; 16]);
    for n in 1..=4u8 {
        let signalbox_core::Mri::PathCoupled(mut mri) = flow() else { panic!() };
        mri.dst_port = Some(n.into());
        rig.receive_octets(BEFORE, signalbox_core::Mri::PathCoupled(mri), id(n), &octets(&reserve(7, &some)));
    }
    rig.now = Time::from_secs(110);
    let ids: Vec<u8> = [2u8, 3, 99].iter().flat_map(|n| [*n; 16]).collect();
    let rsns: Vec<u8> = [7u32, 8, 7].iter().flat_map(|n| n.to_be_bytes()).collect();
    let with_lists = |message: Message<'static>| {
        let message = Message {
            session_ids: SessionIds::from_octets(&ids),
            rsns: RsnList::from_octets(EPOCH, &rsns),
            ..message
        };
        octets(&message)
    };
    let refresh = with_lists(reserve(7, &[]));
    // With an unknown primary session no session is refreshed.
    let sent = rig.receive_octets(BEFORE, flow(), id(50), &refresh);
    assert_eq!(one(sent).info(), Info::FULL_QSPEC_REQUIRED);
    let left = |rig: &Rig, n: u8| rig.qos.view_of(rig.now, id(n)).unwrap().expires_in.unwrap();
    assert!(left(&rig, 2) < Duration::from_secs(60));
    let signalbox_core::Mri::PathCoupled(mut mri) = flow() else { panic!() };
    mri.dst_port = Some(1);
    let mri = signalbox_core::Mri::PathCoupled(mri);
    let sent = rig.receive_octets(BEFORE, mri, id(1), &refresh);
    let [unknown, mismatched] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(unknown.info(), Info::UNKNOWN_LISTED_SESSION);
    assert_eq!(unknown.message().session_ids.unwrap().iter().collect::<Vec<_>>(), [id(99)]);
    assert_eq!(mismatched.info(), Info::LISTED_RSN_MISMATCH);
    assert_eq!(mismatched.message().session_ids.unwrap().iter().collect::<Vec<_>>(), [id(3)]);
    assert_eq!(mismatched.message().rsns.unwrap().iter().collect::<Vec<_>>(), [8]);
    for (n, fresh) in [(1, true), (2, true), (3, false), (4, false)] {
        assert_eq!(left(&rig, n) > Duration::from_secs(150), fresh, "{n}");
    }
    // A tear with an old RSN, or of an unknown session, is ignored without an answer.
    let ids: Vec<u8> = [2u8, 3, 99].iter().flat_map(|n| [*n; 16]).collect();
    let rsns: Vec<u8> = [6u32, 8, 8].iter().flat_map(|n| n.to_be_bytes()).collect();
    let tear = Message {
        flags: MessageFlags::TEAR,
        session_ids: SessionIds::from_octets(&ids),
        rsns: RsnList::from_octets(EPOCH, &rsns),
        ..reserve(8, &[])
    };
    let sent = rig.receive_octets(BEFORE, mri, id(1), &octets(&tear));
    assert!(sent.iter().all(|s| s.message().is_tear()));
    let stand: Vec<_> = (1..=4).map(|n| rig.qos.view_of(rig.now, id(n)).is_some()).collect();
    assert_eq!(stand, [false, true, false, true]);
}

/// QOS-5.4.1-04, QOS-5.3.5-13, QOS-5.1.3.6-30
/// QOS-5.3.5-01
#[test]
fn a_refused_peer_gets_the_reason_and_changes_nothing() {
    use signalbox_resources::config::Action;
    let mut rig = Rig::new();
    let config = signalbox_resources::Config {
        default: Action::Deny,
        ..signalbox_resources::Config::of_link("eth2", "1mbit".parse().unwrap())
    };
    rig.resources = signalbox_resources::Resources::new(config, 0, [1; 32]).unwrap();
    rig.resources.interfaces(&rig.interfaces);
    let some = qspec(10_000);
    assert_eq!(one(rig.receive(&reserve(0, &some))).info(), Info::AUTHORISATION);
    assert_eq!((rig.qos.sessions(), rig.held()), (0, 0));
}

/// QOS-5.3.5-11, QOS-5.3.8-01
#[test]
fn too_much_is_refused_and_what_stood_stands() {
    let mut rig = Rig::new();
    rig.reserved(0, 50_000);
    let much = qspec(60_000);
    let mut huge = Rig::new();
    let more = qspec(65_000);
    assert!(huge.receive(&reserve(0, &more)).len() == 1);
    let other = SessionId([8; 16]);
    let mri =
        signalbox_core::Mri::PathCoupled(signalbox_core::PathCoupled::between(flow().src(), flow().dst()));
    let answer = one(rig.receive_octets(BEFORE, mri, other, &octets(&reserve(0, &much))));
    assert_eq!(answer.info(), Info::RESERVATION_FAILURE);
    assert!(answer.message().qspec.is_some() && answer.message().note.is_some());
    assert_eq!((rig.held(), rig.qos.sessions()), (50_000, 1));
}

/// QOS-5.4.1-36
#[test]
fn a_refresh_is_acknowledged_if_the_peer_wants_it() {
    let mut rig = Rig::new();
    rig.reserved(0, 10_000);
    let refresh = Message { generic: GenericFlags::ACK_REQ, ..reserve(0, &[]) };
    let answer = one(rig.receive(&refresh));
    assert_eq!(answer.info(), Info::ACKNOWLEDGED);
    assert_eq!(answer.message().rsn, Some(Rsn { number: 0, epoch: EPOCH }));
}

/// QOS-5.4.1-34, QOS-5.4.1-37, QOS-5.1.3.6-29, QOS-5.2.4-01
#[test]
fn a_next_peer_that_acknowledges_nothing_is_reported_to_the_one_before() {
    let mut rig = Rig::with(Config { acknowledged_refresh: true, ..Config::default() });
    let onward = rig.reserved(0, 10_000);
    rig.back(&Message { rii: onward.message().rii, ..response(Info::RESERVED) });
    let sent = rig.until(Time::from_secs(90));
    let first = sent.iter().find(|(_, s)| s.message().generic.contains(GenericFlags::ACK_REQ)).unwrap();
    let again: Vec<_> = sent.iter().filter(|(_, s)| s.octets == first.1.octets).map(|(at, _)| *at).collect();
    let apart: Vec<_> = again.windows(2).map(|w| w[1].since(w[0]).as_secs_f64().round()).collect();
    assert_eq!(apart[..3], [2.0, 4.0, 8.0]);
    let (at, notify) = sent.iter().find(|(_, s)| s.message().kind == MessageType::NOTIFY).unwrap();
    assert_eq!((notify.info(), notify.mri), (Info::PATH_TRUNCATED, flow().inverted()));
    assert!((29.9..30.2).contains(&at.since(first.0).as_secs_f64()));
    let _ = (OTHER, BEHIND);
}

/// QOS-5.1.2.1-12, QOS-7-01
#[test]
fn a_refresh_with_an_rii_goes_the_whole_way_but_not_too_often() {
    let mut rig = Rig::new();
    rig.reserved(0, 10_000);
    let some = qspec(10_000);
    let forced = |rii| Message { rii: Some(rii), ..reserve(0, &some) };
    assert_eq!(one(rig.receive(&forced(1))).message().rii, Some(1));
    for rii in 2..50 {
        assert_eq!(rig.receive(&forced(rii)), []);
    }
    assert_eq!(rig.qos.counters().rate_limited, 48);
    rig.now = rig.now + Duration::from_secs(1);
    assert_eq!(one(rig.receive(&forced(50))).message().rii, Some(50));
}

/// QOS-5.2.5.4-01
#[test]
fn the_old_peer_does_not_count_again_while_it_goes_on_refreshing() {
    let mut rig = Rig::new();
    rig.reserved(3, 10_000);
    let some = qspec(10_000);
    let new = Message { rsn: Some(Rsn { number: 9, epoch: 5 }), rii: Some(1), ..reserve(9, &some) };
    assert_eq!(rig.receive_octets(OTHER, flow(), SESSION, &octets(&new)).len(), 1);
    assert_eq!(rig.receive(&reserve(3, &some)), [], "a refresh of the old peer");
    assert_eq!(rig.receive(&Message { flags: MessageFlags::TEAR, ..reserve(4, &[]) }), [], "nor its tear");
    assert_eq!((rig.qos.counters().old_peer, rig.held()), (2, 10_000));
}

/// QOS-5.3.4-02, QOS-5.1.2.1-08
#[test]
fn state_lives_as_long_as_the_peers_period_says() {
    for (period, life) in [(None, 157_500), (Some(10_000), 52_500)] {
        let mut rig = Rig::new();
        let some = qspec(10_000);
        rig.receive(&Message { refresh_period: period, ..reserve(0, &some) });
        let start = rig.now;
        rig.until(start + Duration::from_millis(life - 10));
        assert_eq!(rig.held(), 10_000);
        rig.until(start + Duration::from_millis(life + 10));
        assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
    }
}

/// QOS-3.3-01
#[test]
fn a_session_is_known_by_its_identifier_alone() {
    let mut rig = Rig::new();
    rig.reserved(0, 10_000);
    let some = qspec(10_000);
    let mri =
        signalbox_core::Mri::PathCoupled(signalbox_core::PathCoupled::between(flow().src(), flow().dst()));
    rig.receive_octets(BEFORE, mri, SESSION, &octets(&reserve(1, &some)));
    assert_eq!(rig.qos.sessions(), 1);
}

/// QOS-5.4.1-10, QOS-5.4.1-12
#[test]
fn a_qspec_in_a_tear_does_no_harm() {
    let mut rig = Rig::new();
    rig.reserved(0, 10_000);
    let some = qspec(10_000);
    let tear = Message { flags: MessageFlags::TEAR, ..reserve(1, &some) };
    assert!(one(rig.receive(&tear)).message().is_tear());
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
}

/// QOS-5.4.1-26
#[test]
fn a_merge_point_tears_nothing_down_if_asked_to_keep() {
    let mut rig = Rig::new();
    rig.reserved(0, 10_000);
    let some = qspec(10_000);
    let rsn = Some(Rsn { number: 0, epoch: EPOCH + 1 });
    let keep = Message { flags: MessageFlags(0), rsn, rii: Some(2), ..reserve(0, &some) };
    let sent = rig.receive_octets(OTHER, flow(), SESSION, &octets(&keep));
    assert!(!one(sent).message().is_tear());
    let later = rig.until(Time::from_secs(100));
    assert!(!later.is_empty() && later.iter().all(|(_, sent)| !sent.message().is_tear()));
    assert_eq!(rig.held(), 10_000);
}

/// QOS-3.1-01
#[test]
fn only_a_reserve_reserves() {
    let mut rig = Rig::new();
    let some = qspec(10_000);
    assert_eq!(rig.back(&Message { rii: Some(1), qspec: Some(&some), ..response(Info::RESERVED) }), []);
    let notify = Message { info: Some(Info::CONGESTION.into()), ..Message::new(MessageType::NOTIFY) };
    assert_eq!(rig.receive(&notify), []);
    let query = crate::rig::query_qspec(10_000);
    rig.receive(&Message { rii: Some(1), qspec: Some(&query), ..Message::new(MessageType::QUERY) });
    assert_eq!((rig.held(), rig.resources.reservations().count()), (0, 0));
    assert!(!rig.qos.view_of(rig.now, SESSION).unwrap().reserved);
}
