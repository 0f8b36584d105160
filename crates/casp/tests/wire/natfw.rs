//! Octets of the client for firewalls and NATs.

use std::net::IpAddr;

use signalbox_casp::fuzz;
use signalbox_casp::wire::natfw::{
    IdentityKind, NatfwFault, NatfwFilter, NatfwIdentity, NatfwMessage, NatfwObject, NatfwStatus, NatfwType,
    NatfwValue, REACHED, Tlvs, TokenAlgorithm,
};
use signalbox_core::node::Prefix;

use crate::support::hex;

const V1: &str = "
    00020013 001d0003 01020304 05060708 00170003 c2e01234 80000000 001b0002 0000005a 00190008 04202000 0a010005
    110c1705 01010100 11000000 04b004b0 02580258 00130002 00040000";
const V2: &str = "
    0004000d 0018000c 00008002 01020304 05060708 001a0008 04202000 8b17cb17 110c1705 01010100 11000000 13881388
    02580258";
const V3: &str = "
    0004000e 0018000d 00010002 01020304 05060708 001e0005 000c0500 46573240 4e657477 6f726b42 001f0004 00087a11
    22334455 66780000";
const V4: &str = "00030006 001d0003 01020304 05060708 00130002 00040000";
/// An object alone.
const V5: &str = "
    0014001c 0000002a 000d0300 7064702e 622e6578 616d706c 65000000 00000000 00030500 626f6200 00000000 00040100
    110c1705 c2e01234 80000000 0213b710 c82039d6 8f47cabb 19d0adab a6d4a9ac a4000000 00190007 04002000 00000000
    110c1705 01000100 11000000 02580258";
const V6: &str = "
    00060013 001d0003 01020304 05060708 00190008 04202000 8b17cb1e 110c1705 01010100 11000000 1f401f40 02580258
    001c0007 00020011 6e657477 6f726b2d 622e6578 616d706c 65000000";
/// An object alone.
const V7: &str = "
    0019000f 06804080 20010db8 00010000 00000000 00000001 20010db8 00020000 00000000 00000000 00012345 01000002
    32000000 00001000 deadbeef";

const MSG_ID: &str = "001d0003 01020304 05060708";

fn values(octets: &[u8]) -> Vec<NatfwValue<'_>> {
    NatfwMessage::parse(octets).unwrap().values().collect()
}

/// A message of this type with these objects.
fn with(kind: u16, objects: &[&str]) -> Vec<u8> {
    let mut octets = [kind.to_be_bytes(), [0, 0]].concat();
    objects.iter().for_each(|object| octets.extend(hex(object)));
    let words = u16::try_from(octets.len() / 4).unwrap();
    octets[2..4].copy_from_slice(&words.to_be_bytes());
    octets
}

fn fault(octets: &[u8]) -> (Option<u64>, u16, usize) {
    let NatfwFault { msg_id, status, offset } = NatfwMessage::parse(octets).unwrap_err();
    (msg_id, status.0, offset)
}

fn value(object: &str) -> Option<NatfwValue<'static>> {
    let octets: &'static [u8] = hex(object).leak();
    let tlv = Tlvs::of(octets).iter().next()?;
    NatfwValue::of(&tlv)
}

const ID: u64 = 0x0102_0304_0506_0708;

fn filter(src: &str, dst: &str, src_port: u16) -> NatfwFilter {
    let host = |text: &str| Prefix::host(text.parse().unwrap());
    NatfwFilter {
        src: host(src),
        dst: host(dst),
        flow_label: None,
        protocols: vec![17],
        src_ports: vec![(src_port, src_port)],
        dst_ports: vec![(600, 600)],
        spis: Vec::new(),
    }
}

/// CASPMID-A-01, CASPMID-A-02: all vectors are composed as they were read.
#[test]
fn vectors_are_composed_as_they_were_read() {
    for vector in [V1, V2, V3, V4, V6] {
        let octets = hex(vector);
        let message = NatfwMessage::parse(&octets).unwrap();
        let values: Vec<_> = message.values().collect();
        let mut again = Vec::new();
        NatfwMessage::compose(message.kind, &values, &mut again).unwrap();
        assert_eq!(again, octets);
    }
    for object in [V5, V7] {
        let mut again = Vec::new();
        value(object).unwrap().encode(&mut again).unwrap();
        assert_eq!(again, hex(object));
    }
}

/// CASPMID-A-11, CASPMID-9.3-01, CASPMID-9.7-04: each object of a CREATE.
#[test]
fn a_create_object_by_object() {
    let octets = hex(V1);
    assert_eq!(NatfwMessage::parse(&octets).unwrap().kind, NatfwType::CREATE);
    assert_eq!(
        values(&octets),
        [
            NatfwValue::MsgId(ID),
            NatfwValue::Age(0xc2e0_1234_8000_0000),
            NatfwValue::Lifetime(90),
            NatfwValue::Filter(filter("10.1.0.5", "17.12.23.5", 1200)),
            NatfwValue::Next(NatfwType::RESPONSE, Tlvs::of(&[])),
        ]
        .map(|wanted| match wanted {
            // The objects of a NEXT know their place in the message.
            NatfwValue::Next(kind, _) => values(&octets)
                .into_iter()
                .find(|value| matches!(value, NatfwValue::Next(found, nested) if *found == kind && nested.iter().count() == 0))
                .unwrap(),
            other => other,
        })
    );
}

/// CASPMID-6-08, CASPMID-9.8-01, CASPMID-10.4-01, CASPMID-8-03: results, with the objects nested in them.
#[test]
fn results_have_nested_objects() {
    let octets = hex(V2);
    let [NatfwValue::Status(result)] = &values(&octets)[..] else { panic!() };
    assert_eq!(
        (result.status, result.flags, result.request, result.msg_id),
        (NatfwStatus::DONE, REACHED, 2, ID)
    );
    let nested: Vec<_> = result.nested.iter().map(|tlv| NatfwValue::of(&tlv).unwrap()).collect();
    assert_eq!(nested, [NatfwValue::Nat(Some(filter("139.23.203.23", "17.12.23.5", 5000)))]);
    let octets = hex(V3);
    let [NatfwValue::Status(result)] = &values(&octets)[..] else { panic!() };
    assert_eq!(result.status, NatfwStatus::AUTHENTICATION_REQUIRED);
    let nested: Vec<_> = result.nested.iter().map(|tlv| NatfwValue::of(&tlv).unwrap()).collect();
    let node = NatfwIdentity { kind: IdentityKind::ASCII, value: b"FW2@NetworkB" };
    let challenge = [0x7a, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x78];
    assert_eq!(nested, [NatfwValue::Node(node), NatfwValue::Challenge(&challenge)]);
}

/// CASPMID-9.4-01, CASPMID-A-07, CASPMID-A-08, CASPMID-A-09: each field of a token, and the octets that its HMAC covers.
#[test]
fn a_token_field_by_field() {
    let Some(NatfwValue::Token(token)) = value(V5) else { panic!() };
    assert_eq!((token.id, token.algorithm, token.stamp), (42, TokenAlgorithm::SHA1, 0xc2e0_1234_8000_0000));
    assert_eq!(token.creator, NatfwIdentity { kind: IdentityKind::FQDN, value: b"pdp.b.example" });
    assert_eq!(token.user, NatfwIdentity { kind: IdentityKind::ASCII, value: b"bob" });
    assert_eq!((token.requestor, token.src), (NatfwIdentity::OMITTED, NatfwIdentity::OMITTED));
    assert_eq!(token.dst, NatfwIdentity { kind: IdentityKind::IPV4, value: &[17, 12, 23, 5] });
    let filter = token.filter.as_ref().unwrap();
    assert_eq!((filter.src.len, filter.dst_ports.as_slice()), (0, &[(600, 600)][..]));
    let contents = hex(V5).split_off(4);
    let covered = token.authenticated();
    let differing: Vec<usize> = (0..contents.len()).filter(|at| contents[*at] != covered[*at]).collect();
    assert!(differing.iter().all(|at| (57..77).contains(at)) && covered[57..77] == [0; 20], "{differing:?}");
    // Without a filter, and with an object that is not a filter.
    let mut short = hex(V5);
    short.truncate(short.len() - 28);
    short[3] -= 7;
    assert!(value(&signalbox_wire::hex(&short)).is_some());
    let mut other = hex(V5);
    let at = other.len() - 28;
    other[at + 1] = 0x1a;
    assert_eq!(value(&signalbox_wire::hex(&other)), None);
}

/// CASPMID-A-08: identities of each kind, and values that are not valid for their kind.
#[test]
fn identities_have_kinds() {
    for good in ["001e0003 00040100 c0000201", "001e0003 00030600 c3a46200", "001e0002 00000000"] {
        assert!(matches!(value(good), Some(NatfwValue::Node(_))), "{good}");
    }
    for wrong in [
        "001e0003 00030100 c0000200",
        "001e0003 00020600 c3280000",
        "001e0003 00010000 41000000",
        "001e0003 00020500 c3a40000",
        "001e0002 00000500",
        "001e0003 00090500 41414141",
    ] {
        assert_eq!(value(wrong), None, "{wrong}");
    }
}

/// CASPMID-8-01, CASPMID-A-06: IPv6 with prefixes, flow label, ESP and SPIs of four octets.
#[test]
fn a_filter_field_by_field() {
    let Some(NatfwValue::Filter(filter)) = value(V7) else { panic!() };
    assert_eq!((filter.src.len, filter.dst.len, filter.flow_label), (128, 64, Some(0x12345)));
    assert_eq!(filter.src.addr, "2001:db8:1::1".parse::<IpAddr>().unwrap());
    assert_eq!(
        (filter.protocols.as_slice(), filter.spis.as_slice()),
        (&[50][..], &[0x1000, 0xdead_beef][..])
    );
    let lists = "00190009 04101000 0a010000 110c0000 02020100 06110000 00010064 04b004b0 02580258";
    let Some(NatfwValue::Filter(filter)) = value(lists) else { panic!() };
    assert_eq!((filter.protocols, filter.src_ports), (vec![6, 17], vec![(1, 100), (1200, 1200)]));
}

/// CASPMID-8-12: filters that contradict themselves.
#[test]
fn filters_are_consistent() {
    for wrong in [
        // A range from high to low, ports without a protocol, ports with ESP, an SPI with UDP, a prefix of 33.
        "00190007 04202000 0a010005 110c1705 01010000 11000000 02580257",
        "00190006 04202000 0a010005 110c1705 00010000 02580258",
        "00190007 04202000 0a010005 110c1705 01010000 32000000 02580258",
        "00190007 04202000 0a010005 110c1705 01000001 11000000 00001000",
        "00190005 04212000 0a010005 110c1705 00000000",
        // Another version, and a word too many.
        "00190005 05202000 0a010005 110c1705 00000000",
        "00190006 04202000 0a010005 110c1705 00000000 00000000",
    ] {
        assert_eq!(value(wrong), None, "{wrong}");
    }
    assert!(value("00190005 04202000 0a010005 110c1705 00000000").is_some());
    let create =
        with(2, &[MSG_ID, "00170003 00000000 00000001", "00190005 04212000 0a010005 110c1705 00000000"]);
    assert_eq!(fault(&create), (Some(ID), 15, 28));
}

/// CASPMID-7-01, CASPMID-A-05, CASPMID-7-17: the numbers.
#[test]
fn code_points_are_those_of_the_specification() {
    let names = ["PATH", "CREATE", "RELEASE", "RESPONSE", "QUERY", "TRIGGER"];
    for (kind, name) in (1..).zip(names) {
        assert_eq!(NatfwType(kind).name(), Some(name));
    }
    let names = [
        "LOGGING_ACTION",
        "APPLICATION_ID",
        "NEXT",
        "AUTH_TOKEN",
        "CMS_CREDENTIAL",
        "TIME",
        "AGE",
        "STATUS",
        "PACKET_FILTER",
        "NAT_OBJECT",
        "LIFETIME",
        "SCOPE",
        "MSG_ID",
        "NODE_ID",
        "CHALLENGE",
    ];
    for (kind, name) in (0x11..).zip(names) {
        assert_eq!(NatfwObject(kind).name(), Some(name));
    }
    let codes = [
        NatfwStatus::DONE,
        NatfwStatus::AUTHENTICATION_REQUIRED,
        NatfwStatus::POLICY,
        NatfwStatus::APPLICATION_ID_REQUIRED,
        NatfwStatus::FILTER,
        NatfwStatus::GRANULARITY,
        NatfwStatus::NOT_DELIVERED,
        NatfwStatus::TOKEN_REQUIRED,
        NatfwStatus::TOKEN,
        NatfwStatus::CREDENTIALS,
        NatfwStatus::TRAFFIC,
        NatfwStatus::NO_STATE,
        NatfwStatus::NOT_OWNER,
        NatfwStatus::BINDING,
        NatfwStatus::RESOURCES,
        NatfwStatus::MALFORMED,
        NatfwStatus::TYPE,
        NatfwStatus::TIME,
        NatfwStatus::SCOPE,
        NatfwStatus::LOGGING,
        NatfwStatus::NEXT,
        NatfwStatus::ADMINISTRATOR,
        NatfwStatus::RECEIVER,
    ];
    for (number, code) in (0..).zip(codes) {
        assert_eq!(code, NatfwStatus(number));
    }
    assert_eq!(NatfwStatus(23).name(), None);
}

/// CASPMID-7-25, CASPMID-7-26, CASPMID-7-27, CASPMID-7-28, CASPMID-7-29, CASPMID-7-30, CASPMID-7-31: what may be asked for by
/// NEXT.
#[test]
fn next_asks_for_what_may_follow() {
    let (age, filter) = ("00170003 00000000 00000001", "00190005 04202000 0a010005 110c1705 00000000");
    for (kind, allowed) in [(1, vec![2, 4]), (2, vec![1, 2, 4]), (3, vec![4]), (5, vec![4]), (6, vec![1, 2])]
    {
        for next in 0..=8u16 {
            let asked = format!("00130002 {next:04x}0000");
            let octets = with(kind, &[MSG_ID, age, filter, &asked]);
            let result = NatfwMessage::parse(&octets);
            assert_eq!(result.is_ok(), allowed.contains(&next), "{kind} then {next}");
            if result.is_err() {
                assert_eq!(fault(&octets).1, 20);
            }
        }
    }
    let response = with(4, &["00180004 00000002 01020304 05060708", "00130002 00020000"]);
    assert!(NatfwMessage::parse(&response).is_ok(), "ignored in a RESPONSE");
}

/// CASPMID-7-36: an unknown type.
#[test]
fn unknown_types_have_a_status() {
    assert_eq!(fault(&with(99, &[MSG_ID])), (Some(ID), 16, 0));
}

/// CASPMID-A-03: a length of 0, beyond the enclosing object, or with words left over.
#[test]
fn wrong_lengths_are_malformed() {
    for wrong in ["00170000", "00170009 00000000 00000001", "001b0003 00000000 00000001", "00170002 00000001"]
    {
        let (id, status, offset) = fault(&with(3, &[MSG_ID, wrong]));
        assert_eq!((id, status, offset), (Some(ID), 15, 16), "{wrong}");
    }
    let mut octets = hex(V4);
    octets[3] = 7;
    assert_eq!(fault(&octets), (Some(ID), 15, 0));
    let octets = hex(V1);
    for length in 0..octets.len() {
        let (id, status, _) = fault(&octets[..length]);
        assert_eq!((id, status), ((length >= 16).then_some(ID), 15), "{length}");
    }
}

/// CASPMID-A-02, CASPMID-9.2-01: strings of one to five octets, padded to words.
#[test]
fn strings_are_padded_to_words() {
    for octets in 0..=5 {
        let text = &b"abcde"[..octets];
        let mut composed = Vec::new();
        NatfwValue::ApplicationId(text).encode(&mut composed).unwrap();
        assert_eq!(composed.len(), 4 + (2 + octets).next_multiple_of(4));
        assert_eq!(composed[4..6], u16::try_from(octets).unwrap().to_be_bytes());
        let tlv = Tlvs::of(&composed).iter().next().unwrap();
        assert_eq!(NatfwValue::of(&tlv), Some(NatfwValue::ApplicationId(text)));
    }
}

/// CASPMID-9.1-01: which filters are logged; none named: all.
#[test]
fn logging_names_filters() {
    assert_eq!(value("00110002 00010001"), Some(NatfwValue::Logging(vec![1])));
    assert_eq!(value("00110003 00020000 00020000"), Some(NatfwValue::Logging(vec![0, 2])));
    assert_eq!(value("00110002 00000000"), Some(NatfwValue::Logging(Vec::new())));
    assert_eq!(value("00110002 00030001"), None);
}

/// CASPMID-10.6-03: scopes, of which only a domain has a name.
#[test]
fn scopes_are_of_three_kinds() {
    let octets = hex(V6);
    assert_eq!(values(&octets).last(), Some(&NatfwValue::Scope(2, b"network-b.example")));
    assert_eq!(value("001c0002 00010000"), Some(NatfwValue::Scope(1, b"")));
    for wrong in ["001c0002 00020000", "001c0003 00010001 41000000", "001c0002 00030000"] {
        assert_eq!(value(wrong), None, "{wrong}");
    }
}

/// CASPMID-9.5-01: DER of any length.
#[test]
fn a_credential_is_opaque() {
    let der = [0x30, 3, 2, 1, 5];
    let mut composed = Vec::new();
    NatfwValue::Cms(&der).encode(&mut composed).unwrap();
    assert_eq!(composed, hex("00150004 00000005 30030201 05000000"));
    assert_eq!(value("00150004 00000005 30030201 05000000"), Some(NatfwValue::Cms(&der)));
    assert_eq!(value("00150003 00000005 30030201"), None);
}

/// Unknown objects are kept; second objects of a kind that stands once, and missing ones, are malformed.
#[test]
fn objects_stand_once_unless_several_are_allowed() {
    let unknown = "00700003 01020304 05060708";
    let octets = with(3, &[MSG_ID, unknown]);
    assert_eq!(values(&octets)[1], NatfwValue::Unknown(NatfwObject(0x70), &[1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(fault(&with(3, &[MSG_ID, MSG_ID])), (Some(ID), 15, 16));
    assert_eq!(fault(&with(3, &["001b0002 00000001"])), (None, 15, 12));
    assert_eq!(fault(&with(2, &[MSG_ID])).1, 15, "a CREATE without AGE");
    assert_eq!(fault(&with(4, &[])).1, 15, "a RESPONSE without STATUS");
    let filter = "00190005 04202000 0a010005 110c1705 00000000";
    assert_eq!(values(&with(6, &[MSG_ID, filter, filter]).leak().to_vec().leak()[..]).len(), 3);
}

#[test]
fn damaged_messages_are_survived() {
    let [token, filter] = [V5, V7].map(|object| with(3, &[MSG_ID, object]));
    for octets in [hex(V1), hex(V2), hex(V3), hex(V4), hex(V6), token, filter] {
        for at in 0..octets.len() {
            fuzz::natfw(&octets[..at]);
            for change in 1..=255u8 {
                let mut changed = octets.clone();
                changed[at] ^= change;
                fuzz::natfw(&changed);
            }
        }
    }
}
