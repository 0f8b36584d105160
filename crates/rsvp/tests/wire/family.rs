//! The family: refresh reduction (RFC 2961), integrity (2747, 3097), Hello (3209), policy data (2750).

use std::net::IpAddr;

use signalbox_rsvp::wire::{
    Challenge, Fault, HeaderFlags, Hello, ListedId, Message, MessageId, MessageType, Writer,
};

use super::support::{
    ACK, CONTROLLED, FF, FILTER, HOP, INTEGRITY, MESSAGE_ID, POLICY, SESSION, TEMPLATE, TIME, TSPEC, accepts,
    error, fault, hex, message, unsummed, written,
};

const PATH: [&str; 5] = [SESSION, HOP, TIME, TEMPLATE, TSPEC];
const LIST: &str = "00101901 00abcdef 00000005 00000006";
const V6: &str = "20010db8 00000000 00000000 000000aa";

fn v6() -> IpAddr {
    "2001:db8::aa".parse().unwrap()
}

fn id(ack_desired: bool, id: u32) -> MessageId {
    MessageId { ack_desired, epoch: 0x00ab_cdef, id }
}

/// Proves RSVPRR-2961-4.2-01 and RSVPRR-2961-4.3-01.
#[test]
fn message_id_and_acknowledgments() {
    assert_eq!(written(MessageType::PATH, |w| _ = w.message_id(&id(true, 6)))[8..], hex(MESSAGE_ID));
    assert_eq!(
        written(MessageType::PATH, |w| _ = w.message_id(&id(false, 6)))[8..],
        hex("000c1701 00abcdef 00000006")
    );
    assert_eq!(
        written(MessageType::PATH, |w| _ = w.ack(&id(true, 5), false))[8..],
        hex(ACK),
        "no flags in ACKs"
    );
    assert_eq!(
        written(MessageType::PATH, |w| _ = w.ack(&id(true, 5), true))[8..],
        hex("000c1802 00abcdef 00000005")
    );
    let octets = message(1, &[&[ACK, "000c1802 ffabcdef 00000007", MESSAGE_ID][..], &PATH].concat());
    let read = Message::parse(&octets).unwrap();
    assert_eq!(read.message_id, Some(id(true, 6)));
    let acks: Vec<_> = read.acks().collect();
    assert_eq!(acks, [(id(false, 5), false), (id(false, 7), true)], "flags of ACKs are ignored");
    assert_eq!(fault(13, &["00081801 00abcdef"]), Fault::ObjectLength);
}

/// Proves RSVPRR-2961-4.4-01 and RSVPRR-2961-4.4-02.
#[test]
fn ack_message() {
    let by_hand = message(13, &[ACK, "000c1802 00abcdef 00000007"]);
    let ours = written(MessageType::ACK, |w| _ = w.ack(&id(false, 5), false).ack(&id(false, 7), true));
    assert_eq!(unsummed(ours), by_hand);
    assert_eq!(Message::parse(&by_hand).unwrap().acks().count(), 2);
    assert!(accepts(13, &[INTEGRITY, ACK]));
    assert_eq!(fault(13, &[]), Fault::Missing);
    assert_eq!(fault(13, &[ACK, MESSAGE_ID]), Fault::NotAllowed);
    assert_eq!(fault(13, &[ACK, SESSION]), Fault::NotAllowed);
}

/// Proves RSVPRR-2961-4.5-01: all messages but Ack and Bundle may have a MESSAGE_ID.
#[test]
fn who_may_have_a_name() {
    let error = "000c0601 0a000101 00010000";
    let resv = [SESSION, HOP, TIME, FF, CONTROLLED, FILTER];
    let bodies: [(u8, &[&str]); 7] = [
        (1, &[SESSION, HOP, TIME, TEMPLATE, TSPEC]),
        (2, &resv),
        (3, &[SESSION, error, TEMPLATE, TSPEC]),
        (4, &[SESSION, HOP, error, FF, CONTROLLED, FILTER]),
        (5, &[SESSION, HOP, TEMPLATE, TSPEC]),
        (6, &[SESSION, HOP, FF, FILTER]),
        (7, &[SESSION, error, "00080f01 0a000109", FF, CONTROLLED, FILTER]),
    ];
    for (kind, body) in bodies {
        let octets = message(kind, &[&[MESSAGE_ID], body].concat());
        let name = Message::parse(&octets).unwrap().message_id;
        assert_eq!(name.map(|name| name.id), Some(6), "message type {kind}");
        let late = [body, &[MESSAGE_ID]].concat();
        assert_eq!(fault(kind, &late), Fault::Order, "message type {kind}");
    }
    // A Bundle has none; its messages may.
    let path = message(1, &[&[MESSAGE_ID], bodies[0].1].concat());
    let bundle = |parts: &[&[u8]]| {
        let mut octets = message(12, &[]);
        parts.iter().for_each(|part| octets.extend_from_slice(part));
        let length = u16::try_from(octets.len()).unwrap().to_be_bytes();
        octets[6..8].copy_from_slice(&length);
        octets[2..4].fill(0);
        octets
    };
    let octets = bundle(&[&path]);
    let inner = Message::parse(&octets).unwrap().sub_messages().next().unwrap();
    assert!(Message::parse(inner).unwrap().message_id.is_some());
    assert!(Message::parse(&bundle(&[&hex(MESSAGE_ID), &path])).is_err());
    assert!(accepts(15, &[MESSAGE_ID, LIST]));
    assert!(accepts(20, &[MESSAGE_ID, "000c1601 00000001 00000000"]));
    assert_eq!(fault(13, &[MESSAGE_ID]), Fault::NotAllowed);
}

/// Proves RSVPRR-2961-5.1-01, RSVPRR-2961-5.1-02 and RSVPRR-2961-5.1-03.
#[test]
fn lists() {
    let v4 = |last: u8| IpAddr::from([10, 0, 0, last]);
    let group4 = IpAddr::from([224, 1, 1, 1]);
    let group6: IpAddr = "ff05::1".parse().unwrap();
    let listed = |id, source, group| ListedId { id, source, group };
    let all: [(&str, Vec<ListedId>); 5] = [
        (LIST, vec![listed(5, None, None), listed(6, None, None)]),
        (
            "00181902 00abcdef 00000005 0a000001 00000006 0a000002",
            vec![listed(5, Some(v4(1)), None), listed(6, Some(v4(2)), None)],
        ),
        (&format!("001c1903 00abcdef 00000005 {V6}"), vec![listed(5, Some(v6()), None)]),
        ("00141904 00abcdef 00000005 0a000001 e0010101", vec![listed(5, Some(v4(1)), Some(group4))]),
        (
            &format!("002c1905 00abcdef 00000005 {V6} ff050000 00000000 00000000 00000001"),
            vec![listed(5, Some(v6()), Some(group6))],
        ),
    ];
    for (octets, ids) in all {
        let ours = written(MessageType::SREFRESH, |w| _ = w.id_list(0x00ab_cdef, &ids));
        assert_eq!(ours[8..], hex(octets), "{octets}");
        let read = message(15, &[octets]);
        let list = Message::parse(&read).unwrap().lists().next().unwrap();
        assert_eq!((list.epoch, list.ids().collect::<Vec<_>>()), (0x00ab_cdef, ids));
    }
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets, MessageType::SREFRESH, HeaderFlags::default(), 1);
    w.id_list(1, &[listed(1, None, None), listed(2, Some(v4(1)), None)]);
    assert!(w.finish().is_err(), "lists of two kinds in one object");
    for wrong in
        ["00081901 00abcdef", "00101902 00abcdef 00000005 0a000001 ", "00101904 00abcdef 00000005 0a000001"]
    {
        let accepted = wrong.starts_with("00101902");
        assert_eq!(accepts(15, &[wrong]), accepted, "{wrong}");
    }
    assert_eq!(fault(15, &["00141902 00abcdef 00000005 0a000001 00000006"]), Fault::ObjectLength);
}

/// Proves RSVPRR-2961-5.2-01, RSVPRR-2961-5.1-04: several objects, of one kind.
#[test]
fn srefresh() {
    let sources = "00101902 00abcdef 00000005 0a000001";
    let groups = "00141904 00abcdef 00000005 0a000001 e0010101";
    assert!(accepts(15, &[INTEGRITY, ACK, MESSAGE_ID, LIST, "000c1901 00000001 00000005", groups]));
    assert!(accepts(15, &[sources, sources]));
    assert_eq!(fault(15, &[LIST, sources]), Fault::MixedTypes);
    assert_eq!(fault(15, &[sources, groups]), Fault::MixedTypes);
    assert_eq!(fault(15, &[]), Fault::Missing);
    assert_eq!(fault(15, &[LIST, MESSAGE_ID]), Fault::Order);
    assert_eq!(fault(15, &["000c1906 00abcdef 00000005"]), Fault::UnknownCType);
}

/// Proves RSVPRR-2961-2-01: the flag, its place, and the bundle's own number.
#[test]
fn capability() {
    let mut octets = Vec::new();
    Writer::new(&mut octets, MessageType::ACK, HeaderFlags::REFRESH_REDUCTION, 1).finish().unwrap();
    assert_eq!(octets[0], 0x11);
}

/// Proves RSVPRR-2961-3.1-01, RSVPRR-2961-3.1-02, RSVPRR-2961-3.2-01 and RSVPRR-2961-3.2-02.
#[test]
fn bundles() {
    let (path, tear) = (message(1, &PATH), message(6, &[SESSION, HOP, FF, FILTER]));
    let bundle = |inside: &[u8]| {
        let length = u16::try_from(inside.len() + 8).unwrap().to_be_bytes();
        [&[0x11, 12, 0, 0, 63, 0], &length[..], inside].concat()
    };
    let by_hand = bundle(&[&path[..], &tear].concat());
    let read = Message::parse(&by_hand).unwrap();
    assert_eq!(read.sub_messages().collect::<Vec<_>>(), [&path[..], &tear]);
    let mut ours = Vec::new();
    let mut w = Writer::new(&mut ours, MessageType::BUNDLE, HeaderFlags::REFRESH_REDUCTION, 63);
    w.body(&path).body(&tear);
    w.finish_without_checksum().unwrap();
    assert_eq!(ours, by_hand);
    let mut summed = Vec::new();
    let mut w = Writer::new(&mut summed, MessageType::BUNDLE, HeaderFlags::REFRESH_REDUCTION, 63);
    w.body(&path).body(&tear);
    w.finish().unwrap();
    assert!(summed[2..4] != [0, 0] && Message::parse(&summed).is_ok());
    assert_eq!(Message::parse(&path).unwrap().sub_messages().count(), 0);

    assert_eq!(error(&bundle(&[])).fault, Fault::Bundle);
    assert_eq!(error(&bundle(&by_hand)).fault, Fault::Bundle, "nested");
    assert_eq!(error(&bundle(&[&path[..], &by_hand].concat())).fault, Fault::Bundle, "nested behind another");
    for cut in 1..tear.len() / 4 {
        let short = [&path[..], &tear[..tear.len() - cut * 4]].concat();
        assert_eq!(error(&bundle(&short)).fault, Fault::MessageLength, "{cut} words short");
    }
    for length in [0, 4, 7, 255] {
        let mut wrong = tear.clone();
        wrong[7] = length;
        assert_eq!(error(&bundle(&wrong)).fault, Fault::MessageLength, "{length}");
    }
    // A fault inside a message concerns that message only.
    let mut odd = tear.clone();
    odd[1] = 99;
    assert!(Message::parse(&bundle(&[&odd[..], &path].concat())).is_ok());
}

/// Proves RSVPINT-2747-2.1-01, RSVPINT-2747-2.1-02 and RSVPINT-2747-2.1-05.
#[test]
fn integrity() {
    let octets = "00240401 80000123 456789ab 01020304 05060708 00112233 44556677 8899aabb ccddeeff";
    let read = message(1, &[&[octets][..], &PATH].concat());
    let integrity = Message::parse(&read).unwrap().integrity.unwrap();
    assert_eq!((integrity.handshake, integrity.key_id), (true, 0x0123_4567_89ab));
    assert_eq!(integrity.sequence, 0x0102_0304_0506_0708);
    assert_eq!(integrity.digest, &hex("00112233 44556677 8899aabb ccddeeff"));
    assert_eq!(read[integrity.digest_offset..][..16], integrity.digest[..]);
    assert_eq!(integrity.digest_offset, 28);

    let mut ours = Vec::new();
    let mut w = Writer::new(&mut ours, MessageType::PATH, HeaderFlags::default(), 63);
    let at = w.integrity(false, 0xffff_0123_4567_89ab, 0x0102_0304_0506_0708, 16);
    w.body(&PATH.map(hex).concat());
    w.finish_without_checksum().unwrap();
    ours[at..at + 16].copy_from_slice(integrity.digest);
    let mut expected = read.clone();
    expected[12] = 0;
    assert_eq!(ours, expected, "no more than 48 bits of the key identifier");

    for (octets, fits) in [
        (
            "00380401 00000000 00000001 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
            true,
        ),
        ("00140401 00000000 00000001 00000000 00000001", false),
        ("00100401 00000000 00000001 00000000", false),
    ] {
        let octets = message(1, &[&[octets][..], &PATH].concat());
        assert_eq!(Message::parse(&octets).is_ok(), fits);
    }
    // A digest of 18 octets; the message is whole all the same.
    let odd = "00260401 00000000 00000001 00000000 00000001 00000000 00000000 00000000 00000000 0000";
    let octets = message(1, &[&[odd][..], &PATH, &["0000"]].concat());
    let found = error(&octets);
    assert_eq!((found.fault, found.offset), (Fault::ObjectLength, 8));
}

/// Proves RSVPINT-2747-4.3-01, RSVPINT-2747-4.3-02, RSVPINT-3097-2-01 and RSVPINT-3097-2-02.
#[test]
fn challenge_and_response() {
    let octets = "00144001 00000123 456789ab 01020304 05060708";
    let challenge = Challenge { key_id: 0x0123_4567_89ab, cookie: 0x0102_0304_0506_0708 };
    let by_hand = message(25, &[octets]);
    assert_eq!(unsummed(written(MessageType::INTEGRITY_CHALLENGE, |w| _ = w.challenge(&challenge))), by_hand);
    assert_eq!(Message::parse(&by_hand).unwrap().challenge, Some(challenge));
    let response = message(26, &[INTEGRITY, octets]);
    let read = Message::parse(&response).unwrap();
    assert_eq!((read.kind, read.challenge), (MessageType::INTEGRITY_RESPONSE, Some(challenge)));
    assert_eq!(fault(26, &[octets]), Fault::Missing);
    assert_eq!(fault(25, &[INTEGRITY, octets]), Fault::NotAllowed);
    assert_eq!(fault(25, &[]), Fault::Missing);
    assert_eq!(fault(25, &["00104001 00000123 456789ab 01020304"]), Fault::ObjectLength);
    // 11 is not used any more, 12 is a Bundle.
    assert_eq!(fault(11, &[octets]), Fault::MessageType);
    assert_eq!(fault(12, &[octets]), Fault::MessageLength);
}

/// Proves RSVPX-3209-5.1-01 and RSVPX-3209-5.2-01 for the format.
#[test]
fn hello() {
    let hello = Hello { ack: false, src_instance: 0x0102_0304, dst_instance: 0x0506_0708 };
    let by_hand = message(20, &["000c1601 01020304 05060708"]);
    assert_eq!(unsummed(written(MessageType::HELLO, |w| _ = w.hello(&hello))), by_hand);
    assert_eq!(Message::parse(&by_hand).unwrap().hello, Some(hello));
    let by_hand = message(20, &["000c1602 01020304 05060708"]);
    let hello = Hello { ack: true, ..hello };
    assert_eq!(unsummed(written(MessageType::HELLO, |w| _ = w.hello(&hello))), by_hand);
    assert_eq!(Message::parse(&by_hand).unwrap().hello, Some(hello));
    assert!(accepts(20, &[INTEGRITY, "000c1601 01020304 05060708"]));
    assert_eq!(fault(20, &[]), Fault::Missing);
    assert_eq!(fault(20, &["000c1603 01020304 05060708"]), Fault::UnknownCType);
}

/// Proves RSVPX-2750-3.1-01, RSVPX-2750-3.2-01, RSVPX-2750-3.2-02 and RSVP-A.13-01.
#[test]
fn policy_data() {
    let resv = |policy: &str| message(2, &[SESSION, HOP, TIME, policy, FF, CONTROLLED, FILTER]);
    let octets = resv(POLICY);
    let policy = Message::parse(&octets).unwrap().policy().next().unwrap();
    let elements: Vec<_> = policy.elements().unwrap().map(|element| (element.p_type, element.data)).collect();
    assert_eq!(elements, [(1, &hex("cafe0000")[..])]);
    let options = policy.options().unwrap();
    assert_eq!((options.origin, options.filters().count(), options.refreshes(30_000)), (None, 0, 1));

    let second = "000c0301 0a000109 00000000";
    // Offset 0x5c: 8 octets, two hops, a filter, 36 of INTEGRITY, 8 of TIME_VALUES.
    let full = format!(
        "00640e01 00580000 {HOP} {second} {FILTER} {INTEGRITY} 00080501 000186a0 00080002 11223344 00040003"
    );
    let octets = resv(&full);
    let read = Message::parse(&octets).unwrap();
    let policy = read.policy().next().unwrap();
    let options = policy.options().unwrap();
    assert_eq!(options.origin.unwrap().addr, IpAddr::from([10, 0, 1, 1]));
    assert_eq!(options.destination.unwrap().addr, IpAddr::from([10, 0, 1, 9]));
    assert_eq!(
        (options.filters().count(), options.refresh, options.refreshes(30_000)),
        (1, Some(100_000), 3)
    );
    assert_eq!(options.refreshes(200_000), 1, "less than R counts as R");
    assert_eq!(options.integrity.unwrap().key_id, 7);
    let elements: Vec<_> = policy.elements().unwrap().map(|element| (element.p_type, element.data)).collect();
    assert_eq!(elements, [(2, &hex("11223344")[..]), (3, &[][..])]);
    assert!(policy.is_for(IpAddr::from([10, 0, 1, 9])).unwrap());
    assert!(!policy.is_for(IpAddr::from([10, 0, 1, 8])).unwrap());

    let read = |policy: &str| {
        let octets = resv(policy);
        let read = Message::parse(&octets).unwrap();
        let policy = read.policy().next().unwrap();
        (
            policy.options().map(|_| ()).map_err(|e| e.fault),
            policy.elements().map(|_| ()).map_err(|e| e.fault),
        )
    };
    assert_eq!(read("00080e01 00040000"), (Err(Fault::Value), Err(Fault::Value)), "offset inside the header");
    assert_eq!(read("00080e01 000c0000"), (Err(Fault::Value), Err(Fault::Value)), "offset beyond the end");
    assert_eq!(read("00080e01 00080000"), (Ok(()), Ok(())));
    assert_eq!(read("00080e02 00080000").0, Ok(()), "policy control judges the C-Type");
    let both = format!("00200e01 00200000 {FILTER} 000c0701 0a000001 0a000002");
    assert_eq!(read(&both).0, Err(Fault::MixedTypes));
    assert_eq!(read(&format!("00140e01 00140000 {SESSION}")).0, Err(Fault::NotAllowed));
    assert_eq!(read("000c0e01 00080000 000c0001").1, Err(Fault::ObjectLength));
    assert_eq!(read("000c0e01 00080000 00000001").1, Err(Fault::ObjectLength));
}
