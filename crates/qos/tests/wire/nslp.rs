//! Messages of RFC 5974, written by hand from its drawings.

use std::net::IpAddr;

use signalbox_core::mri::PathCoupled;
use signalbox_core::{Mri, SessionId};
use signalbox_qos::fuzz;
use signalbox_qos::wire::{
    AGGREGATION_LEVELS, BindingCode, BoundSession, Carried, Classifier, Diagnosis, EncodeError,
    Extensibility, GenericFlags, Info, InfoClass, InfoSpec, Message, MessageFlags, MessageId, MessageType,
    ObjectType, Rsn, RsnList, SessionIds, Source, identify, router_alert_value,
};
use signalbox_wire::{Writer, parse_hex};

/// A RESERVE with all objects except a second list; R, S, P and B are set.
const RESERVE: &str = "01 01 000b
    0002 0002 00000005 aabbccdd
    0001 0001 12345678
    0003 0001 00007530
    0004 0005 00000002 000102030405060708090a0b0c0d0e0f
    0007 0008 101112131415161718191a1b1c1d1e1f 20202020202020202020202020202020
    0008 0003 aabbccdd 00000007 00000008
    0009 0005 00000001 ffeeddccbbaa99887766554433221100
    0005 0001 e3000000
    000b 0002 deadbeef 01020304";
/// A QUERY with RESERVE-INIT, two QSPECs, a classifier and an INFO-SPEC.
const QUERY: &str = "02 01 0000
    0001 0001 00000009
    0005 0001 c0000000
    0006 0001 00041000
    000b 0001 11111111
    000b 0001 22222222";
/// A RESPONSE with an RII, an INFO-SPEC of 192.0.2.1 and a QSPEC.
const RESPONSE: &str = "03 00 0000
    0001 0001 00000009
    0006 0002 0001 21 01 c0000201
    000b 0001 33333333";
/// A NOTIFY: reservation preempted, from "qne.example" padded.
const NOTIFY: &str = "04 00 0008
    0006 0004 0006 43 03 716e652e6578616d706c6500";

fn octets(text: &str) -> Vec<u8> {
    parse_hex(text).unwrap()
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(&mut Writer::new(&mut octets)).unwrap();
    octets
}

fn error(text: &str) -> Info {
    Message::parse(&octets(text)).unwrap_err().info
}

/// QOS-5.1.1-01, QOS-5.1.1-03, QOS-5.1.2.1-01, QOS-5.1.2.1-06, QOS-5.1.3-01, QOS-5.1.3.1-01, QOS-5.1.3.2-01,
/// QOS-5.1.3.3-01, QOS-5.1.3.4-01, QOS-5.1.3.5-01, QOS-5.1.3.7-01, QOS-5.1.3.8-01, QOS-5.1.3.9-01,
/// QOS-5.1.3.11-01, QOS-5.1-01, QOS-5.1.3-07, QOS-5.1.3-08
#[test]
fn a_reserve_is_as_drawn() {
    let octets = octets(RESERVE);
    let message = Message::parse(&octets).unwrap();
    assert_eq!((message.kind, message.flags), (MessageType::RESERVE, MessageFlags::REPLACE));
    assert_eq!(message.generic, GenericFlags::SCOPING.with(GenericFlags::PROXY).with(GenericFlags::BREAK));
    assert_eq!(message.rsn, Some(Rsn { number: 5, epoch: 0xaabb_ccdd }));
    assert_eq!((message.rii, message.refresh_period), (Some(0x1234_5678), Some(30_000)));
    let bound: Vec<_> = message.bound_sessions.sessions().collect();
    let id = SessionId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(bound, [BoundSession { code: BindingCode::BIDIRECTIONAL, session: id }]);
    let listed: Vec<_> = message.session_ids.unwrap().iter().collect();
    let first = SessionId(core::array::from_fn(|at| 0x10 + u8::try_from(at).unwrap()));
    assert_eq!(listed, [first, SessionId([0x20; 16])]);
    let rsns = message.rsns.unwrap();
    assert_eq!((rsns.epoch, rsns.iter().collect::<Vec<_>>()), (0xaabb_ccdd, vec![7, 8]));
    let msg_id = message.msg_id.unwrap();
    assert!(msg_id.bidirectional && msg_id.id[0] == 0xff && msg_id.id[15] == 0);
    let classifier = message.classifier.unwrap();
    assert_eq!(format!("{classifier:?}"), "Classifier(XYPAB)");
    assert_eq!(message.qspec, Some(&[0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4][..]));
    assert_eq!(encoded(&message), octets, "in the order of the grammar");
    // A message carries BOUND-SESSION-ID objects as octets; this one is composed.
    let mut composed = Vec::new();
    bound[0].write(&mut Writer::new(&mut composed)).unwrap();
    assert!(octets.windows(composed.len()).any(|part| part == composed) && composed.len() == 24);
    // Here the type and the flags differ from those above.
    let tear = Message { flags: MessageFlags::TEAR, ..message };
    assert_eq!(encoded(&tear)[..2], [1, 2]);
}

/// QOS-5.1.2.2-01, QOS-5.1.2.2-03, QOS-5.1.2.3-01, QOS-5.1.2.3-03, QOS-5.1.2.4-01, QOS-5.1.3.6-01, QOS-5.1.3.6-31,
/// QOS-5.1.2.3-02, QOS-5.1.2.4-02
#[test]
fn the_other_messages_are_as_drawn() {
    let text = octets(QUERY);
    let query = Message::parse(&text).unwrap();
    assert!(query.is_reserve_init() && query.rii == Some(9));
    assert_eq!((query.qspec, query.second_qspec), (Some(&[0x11; 4][..]), Some(&[0x22; 4][..])));
    assert_eq!(encoded(&query), text);

    let text = octets(RESPONSE);
    let response = Message::parse(&text).unwrap();
    let info = response.info.unwrap();
    assert_eq!((info.info, info.source), (Info::RESERVED, Source::Address("192.0.2.1".parse().unwrap())));
    assert_eq!(encoded(&response), text);

    let text = octets(NOTIFY);
    let notify = Message::parse(&text).unwrap();
    let info = notify.info.unwrap();
    assert_eq!((info.info, info.source), (Info::PREEMPTED, Source::Name("qne.example")));
    assert_eq!(encoded(&notify), text);

    let mut v6 = Message::new(MessageType::NOTIFY);
    v6.info = Some(InfoSpec {
        source: Source::Address("2001:db8::1".parse().unwrap()),
        ..InfoSpec::from(Info::CONGESTION)
    });
    let text = octets("04000000 00060005 00041204 20010db8000000000000000000000001");
    assert_eq!(encoded(&v6), text);
    assert_eq!(Message::parse(&text), Ok(v6));
    v6.info = Some(Info::CONGESTION.into());
    assert_eq!(encoded(&v6), octets("04000000 00060001 00041000"), "no identifier: type and length 0");
    assert_eq!(error("03000000 00010001 00000009"), Info::MISSING_OBJECT);
    assert_eq!(error("04000000"), Info::MISSING_OBJECT);
    assert_eq!(error("04000000 00010001 00000009 00060001 00041000"), Info::ILLEGAL_OBJECT);
}

/// QOS-5.1.1-02, QOS-5.1.3.6-02, QOS-5.1.3.4-02, QOS-6.6-01
#[test]
fn code_points_are_those_of_the_registries() {
    let types = [MessageType::RESERVE, MessageType::QUERY, MessageType::RESPONSE, MessageType::NOTIFY];
    assert_eq!(types.map(|t| t.0), [1, 2, 3, 4]);
    let classes = [
        InfoClass::INFORMATIONAL,
        InfoClass::SUCCESS,
        InfoClass::PROTOCOL_ERROR,
        InfoClass::TRANSIENT_FAILURE,
        InfoClass::PERMANENT_FAILURE,
        InfoClass::QOS_MODEL_ERROR,
        InfoClass::SESSION_FAILURE,
    ];
    assert_eq!(classes.map(|c| c.0), [1, 2, 3, 4, 5, 6, 7]);
    let codes =
        |class: InfoClass| Info::CATALOGUE.iter().filter(|i| i.class == class).map(|i| i.code).collect();
    let upto = |n: u8| (1..=n).collect::<Vec<_>>();
    let found: [Vec<u8>; 5] = [classes[0], classes[1], classes[2], classes[3], classes[4]].map(codes);
    assert_eq!(found, [upto(6), upto(4), upto(15), upto(8), upto(2)]);
    for code in 0..=255 {
        let known = matches!(code, 1..=5 | 128..=159);
        assert_eq!(BindingCode(code).is_known(), known, "{code}");
    }
    let levels: Vec<_> =
        (0..AGGREGATION_LEVELS).map(|level| router_alert_value(level, false).unwrap()).collect();
    assert_eq!(levels, (33..=64).collect::<Vec<_>>());
    assert_eq!((router_alert_value(0, true), router_alert_value(31, true)), (Some(36), Some(67)));
    assert_eq!(router_alert_value(32, true), None);
}

/// QOS-5.1-02
#[test]
fn objects_are_accepted_in_any_order() {
    let sorted = octets("01010000 00020002 0000000500000001 00010001 00000009 000b0001 deadbeef");
    let shuffled = octets("01010000 000b0001 deadbeef 00010001 00000009 00020002 0000000500000001");
    let (a, b) = (Message::parse(&sorted).unwrap(), Message::parse(&shuffled).unwrap());
    assert_eq!(a, b);
    assert_eq!(encoded(&b), sorted);
}

/// QOS-5.1.1-04, QOS-5.1.3-06
#[test]
fn reserved_bits_are_ignored_and_sent_as_zero() {
    let plain = octets("01010000 00020002 0000000500000001 000b0001 deadbeef");
    let noisy = octets("01fdfff0 3002f002 0000000500000001 300bf001 deadbeef");
    let message = Message::parse(&noisy).unwrap();
    assert_eq!(message, Message::parse(&plain).unwrap());
    assert_eq!(encoded(&message), plain);
    let noisy = Message { flags: MessageFlags(0xfd), generic: GenericFlags(0xfff0), ..message };
    assert_eq!(encoded(&noisy), plain);
}

/// QOS-5.1.1-05, QOS-5.4.1-35, QOS-5.1.3.5-03, QOS-5.1.2.1-05
#[test]
fn what_must_not_be_sent_is_not() {
    let refused = |message: Message<'_>| {
        let mut octets = vec![7];
        let error = message.encode(&mut Writer::new(&mut octets)).unwrap_err();
        assert_eq!(octets, [7], "nothing is appended");
        error
    };
    let reserve = Message { rsn: Some(Rsn::default()), ..Message::new(MessageType::RESERVE) };
    let ack = GenericFlags::ACK_REQ;
    assert_eq!(refused(Message { generic: ack, rii: Some(1), ..reserve }), EncodeError::AckWithRii);
    let notify = Message { info: Some(Info::CONGESTION.into()), ..Message::new(MessageType::NOTIFY) };
    assert_eq!(refused(Message { generic: ack, ..notify }), EncodeError::AckReq);
    assert_eq!(refused(Message { classifier: Some(Classifier::X), ..reserve }), EncodeError::ClassifierAlone);
    let id = Some(MessageId { bidirectional: false, id: [1; 16] });
    assert_eq!(refused(Message { msg_id: id, bound_msg_id: id, ..reserve }), EncodeError::TwoMessageIds);
    assert!(matches!(refused(Message::new(MessageType::RESERVE)), EncodeError::Missing { .. }));
    assert!(matches!(refused(Message::new(MessageType::QUERY)), EncodeError::Missing { .. }));
    let sessions = SessionIds::from_octets(&[1; 32]);
    let rsns = RsnList::from_octets(1, &[0; 4]);
    assert!(matches!(
        refused(Message { session_ids: sessions, rsns, ..reserve }),
        EncodeError::ListLengths { sessions: 2, rsns: 1 }
    ));
    assert!(matches!(refused(Message { rii: Some(1), ..notify }), EncodeError::NotAllowed { .. }));

    let host = |text: &str| text.parse::<IpAddr>().unwrap();
    let flow = PathCoupled::between(host("10.0.0.1"), host("10.0.0.2"));
    assert!(Classifier(Classifier::X.0 | Classifier::Y.0).fits(&Mri::PathCoupled(flow)));
    for flag in [Classifier::P, Classifier::T, Classifier::F, Classifier::S, Classifier::A, Classifier::B] {
        assert!(!flag.fits(&Mri::PathCoupled(flow)), "{flag:?}");
    }
    let full = PathCoupled { protocol: Some(17), dst_port: Some(5), ..flow };
    assert!(Classifier(Classifier::P.0 | Classifier::B.0).fits(&Mri::PathCoupled(full)));
}

/// QOS-4.6-01, QOS-5.1.2.1-02, QOS-5.1.2.2-02
#[test]
fn each_fault_has_its_code() {
    let rsn = "00020002 0000000500000001";
    for (text, info) in [
        ("0101".to_owned(), Info::MESSAGE_LENGTH),
        ("09010000".to_owned(), Info::ILLEGAL_MESSAGE_TYPE),
        ("01010000 00020002 00000005".to_owned(), Info::MESSAGE_LENGTH),
        (format!("01010004 {rsn} 00010001 00000001"), Info::GENERIC_FLAGS),
        ("01010000 00010001 00000001".to_owned(), Info::MISSING_OBJECT),
        ("02000000 00010001 00000001".to_owned(), Info::MISSING_OBJECT),
        (format!("01010000 {rsn} 00050001 80000000"), Info::ILLEGAL_OBJECT),
        (format!("02000000 {rsn} 000b0001 00000000"), Info::ILLEGAL_OBJECT),
        (format!("01010000 {rsn} 01f40001 00000000"), Info::UNKNOWN_OBJECT),
        (format!("01010000 {rsn} 00010002 0000000000000000"), Info::OBJECT_LENGTH),
        (format!("01010000 {rsn} 00040005 000000c8 {}", "00".repeat(16)), Info::UNKNOWN_VALUE),
        (format!("01010000 {rsn} 00010001 00000001 00010001 00000002"), Info::DUPLICATE_OBJECT),
        (format!("01010000 {rsn} 00070008 {} 00080002 0000000100000002", "00".repeat(32)), Info::BAD_VALUE),
        (format!("01010000 {rsn} 00030001 00000000"), Info::BAD_VALUE),
        (
            format!("01010000 {rsn} 00090005 00000000 {0} 000a0005 00000000 {0}", "01".repeat(16)),
            Info::ILLEGAL_OBJECT,
        ),
    ] {
        assert_eq!(error(&text), info, "{text}");
    }
}

/// QOS-5.1.3-03
#[test]
fn unknown_objects_are_dealt_with_by_their_flags() {
    let text = "01010000 00020002 0000000500000001 41f40001 aaaaaaaa 81f50001 bbbbbbbb c1f60001 cccccccc";
    let octets = octets(text);
    let message = Message::parse(&octets).unwrap();
    assert_eq!(message.forwarded.iter().map(|o| o.kind).collect::<Vec<_>>(), [ObjectType(0x1f5)]);
    assert_eq!(message.refreshed.iter().map(|o| o.kind).collect::<Vec<_>>(), [ObjectType(0x1f6)]);
    assert!(message.refreshed.iter().all(|o| o.extensibility == Extensibility::Refresh));
    let again = encoded(&message);
    assert_eq!(
        again,
        parse_hex("01010000 00020002 0000000500000001 81f50001 bbbbbbbb c1f60001 cccccccc").unwrap()
    );
}

/// Another make may use the types of the range for private use for something else (§6.2).
#[test]
fn a_private_object_of_another_content_is_left_out_alone() {
    let reserve = "01010000 00020002 0000000500000001";
    let hop = "04000003 c0000201";
    for foreign in [
        "87d00001 04000003".to_owned(),
        "87d00002 05000003 c0000201".to_owned(),
        format!("87d00026 {}", hop.repeat(19)),
        "87d10001 ff000000".to_owned(),
        "87d30001 00000000".to_owned(),
    ] {
        let octets = octets(&format!("{reserve} {foreign}"));
        let message = Message::parse(&octets).unwrap();
        assert!(message.foreign && message.hops.is_none() && message.note.is_none(), "{foreign}");
        assert_eq!(encoded(&message), parse_hex(reserve).unwrap(), "{foreign}");
    }
    let twice = octets(&format!("{reserve} 87d00002 {hop} 87d00000"));
    let message = Message::parse(&twice).unwrap();
    assert!(message.foreign && message.hops.unwrap().iter().count() == 1);
}

/// QOS-5.1.3.6-34
#[test]
fn diagnosis_names_the_object() {
    let write = |diagnosis: Diagnosis<'_>| {
        let mut octets = Vec::new();
        diagnosis.write(&mut Writer::new(&mut octets));
        octets
    };
    let kind = Diagnosis::Type(ObjectType(500));
    assert_eq!(write(kind), parse_hex("01f40000").unwrap());
    assert_eq!(Diagnosis::parse(&write(kind)), Some(kind));
    let object = [0, 1, 0, 2, 9, 9, 9, 9];
    let value = Diagnosis::Value { length: 8, offset: 0, object: &object };
    assert_eq!(write(value), parse_hex("00080000 0001000209090909").unwrap());
    assert_eq!(Diagnosis::parse(&write(value)), Some(value));
}

/// QOS-5.3.1-02
#[test]
fn sequence_numbers_wrap() {
    for (newer, older) in [(1, 0), (0, u32::MAX), (5, u32::MAX - 5), (1 << 31, 1)] {
        assert!(Rsn::newer(newer, older) && !Rsn::newer(older, newer), "{newer} {older}");
    }
    assert!(!Rsn::newer(7, 7));
    assert!(!Rsn::newer(1 << 31, 0) && !Rsn::newer(0, 1 << 31), "not ordered");
}

#[test]
fn whatever_is_cut_or_changed_is_survived() {
    for text in [RESERVE, QUERY, RESPONSE, NOTIFY] {
        let whole = octets(text);
        for length in 0..whole.len() {
            fuzz::nslp_message(&whole[..length]);
        }
        for at in 0..whole.len() {
            for change in 1..=255u8 {
                let mut changed = whole.clone();
                changed[at] ^= change;
                fuzz::nslp_message(&changed);
            }
        }
    }
}

#[test]
fn a_faulty_message_still_names_its_request() {
    let text = octets("01010000 00020002 0000000500000001 00010001 00000009 01f40001 00000000");
    assert_eq!(identify(&text), (Some(9), Some(Rsn { number: 5, epoch: 1 })));
    assert_eq!(identify(&text[..10]), (None, None));
    assert_eq!(Carried::auth(&[]).len(), 0);
}

proptest::proptest! {
    #[test]
    fn anything_is_survived(octets in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        fuzz::nslp_message(&octets);
    }
}

/// The fuzz corpus, replayed in each run of the tests.
#[test]
fn the_corpus_is_survived() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/qos_message");
    let mut files = 0;
    for entry in std::fs::read_dir(&corpus).unwrap() {
        fuzz::nslp_message(&std::fs::read(entry.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 4, "{files} files in {}", corpus.display());
}
