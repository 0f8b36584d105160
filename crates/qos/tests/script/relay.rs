//! A node in the middle of the path.

use std::time::Duration;

use signalbox_core::{SessionId, Time};
use signalbox_qos::engine::Config;
use signalbox_qos::wire::{
    BindingCode, BoundSession, Carried, Classifier, GenericFlags, Info, Message, MessageFlags, MessageType,
    Rsn, RsnList, SessionIds,
};
use signalbox_wire::Writer;

use crate::rig::{BEFORE, BEHIND, EPOCH, OTHER, Rig, SESSION, Sent, flow, octets, qspec, reserve};

pub(crate) fn one(sent: Vec<Sent>) -> Sent {
    match <[Sent; 1]>::try_from(sent) {
        Ok([sent]) => sent,
        Err(other) => panic!("one message expected: {other:?}"),
    }
}

pub(crate) fn response(info: Info) -> Message<'static> {
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

/// The tear of a reservation was lost behind this node, and its requester asks again with the same session: the next node has it still,
/// and compares the numbers of this node.
#[test]
fn a_session_that_begins_again_is_newer_for_the_next_node() {
    let number = |sent: &Sent| sent.message().rsn.unwrap().number;
    let mut rig = Rig::new();
    rig.until(Time::from_secs(1));
    let onward = rig.reserved(0, 10_000);
    assert_eq!(number(&onward), 0);
    let more = qspec(20_000);
    let stored = number(&one(rig.receive(&reserve(1, &more))));
    let tear = Message { flags: MessageFlags::TEAR, ..reserve(2, &[]) };
    let lost = rig.receive(&tear);
    assert_eq!((lost.len(), rig.held()), (1, 0));
    rig.until(Time::from_secs(2));
    let again = rig.reserved(70_000, 10_000);
    assert!(number(&again) > stored, "{} is dropped after {stored}", number(&again));
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
    let sent = rig.receive_octets(OTHER, flow(), SESSION, &octets(&new));
    let kinds: Vec<_> = sent.iter().map(|one| (one.sii, one.message().kind)).collect();
    assert_eq!(kinds, [(Some(BEFORE), MessageType::NOTIFY), (None, MessageType::RESERVE)]);
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
