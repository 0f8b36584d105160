//! Faulty messages and refused requests at a node in the middle of the path: who gets which INFO_SPEC.

use signalbox_core::service::{SendError, Transports};
use signalbox_core::{SessionId, Time};
use signalbox_qos::engine::Config;
use signalbox_qos::wire::{GenericFlags, Info, Message, MessageFlags, MessageType, Rsn};
use signalbox_wire::parse_hex;

use crate::relay::{one, response};
use crate::rig::{BEFORE, EPOCH, Rig, SESSION, flow, octets, qspec, query_qspec, reserve};

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
    assert!(answer.message().available.is_some());
    assert_eq!((rig.held(), rig.qos.sessions()), (50_000, 1));
}

/// What GIST does not send is answered at once, with its reason, and nothing is held.
#[test]
fn a_request_that_gist_refuses_is_answered_at_once() {
    let tcp = Transports { tcp: true, ..Transports::default() };
    let refusals = [
        (SendError::Overload, Info::RESERVATION_FAILURE, "a queue or table of GIST at this node is full"),
        (SendError::Unreached(tcp), Info::RESERVATION_FAILURE, "answered, but could not be reached by tcp"),
        (SendError::Peer { code: 9, subcode: 4 }, Info::RESERVATION_FAILURE, "refused it with error 9/4"),
        (SendError::TooLarge { max: 400 }, Info::INTERNAL, "at most 400 fit"),
    ];
    for (error, info, text) in refusals {
        let mut rig = Rig::new();
        let some = qspec(10_000);
        let onward = one(rig.receive(&Message { rii: Some(4), ..reserve(0, &some) }));
        let answer = one(rig.failed(&onward, error));
        assert_eq!((answer.info(), answer.mri, answer.message().rii), (info, flow().inverted(), Some(4)));
        let note = answer.message().note.unwrap();
        assert!(note.contains(text), "{note}");
        assert_eq!(rig.held(), 0);
    }
}

/// P11: the hop count of a request is used up: it is answered, and nothing is held.
#[test]
fn a_request_whose_hop_count_is_used_up_is_answered() {
    let mut rig = Rig::new();
    rig.hops = 1;
    let some = qspec(10_000);
    let answer = one(rig.receive(&Message { rii: Some(4), ..reserve(0, &some) }));
    assert_eq!((answer.info(), answer.message().rii), (Info::RESERVATION_FAILURE, Some(4)));
    assert_eq!(answer.message().note, Some("the GIST hop count is used up"));
    let query = query_qspec(10_000);
    let asked = Message { rii: Some(5), qspec: Some(&query), ..Message::new(MessageType::QUERY) };
    let answer = one(rig.receive(&asked));
    assert_eq!((answer.info(), answer.message().rii), (Info::RESERVATION_FAILURE, Some(5)));
    assert_eq!((rig.held(), rig.qos.sessions(), rig.qos.counters().hop_limit), (0, 0, 2));
}
