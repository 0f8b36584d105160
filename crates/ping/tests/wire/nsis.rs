//! The format of the NSIS Ping tool: the worked example of `docs/wire/nsis-ping.md`, sizes, and messages that are wrong.

use std::fs;
use std::path::Path;

use signalbox_ping::error::NsisDecodeError;
use signalbox_ping::wire::nsis::{MAX_OCTETS, Message, Object, ObjectType, Record, Stamp};
use signalbox_wire::{Writer, parse_hex};

const HEADERS: &str = "00010010 00020008";
/// The records of the worked example, in order.
const RECORDS: [&str; 5] = [
    "00000000 00000000 0000ffff c0000201 43b71b80 00000064",
    "00000000 00000000 0000ffff c0000202 43b71b80 00000190",
    "00000000 00000000 0000ffff c0000203 43b71b80 00000384",
    "00000000 00000000 0000ffff c0000202 43b71b80 00000514",
    "00000000 00000000 0000ffff c0000201 43b71b80 000006a4",
];
const SECOND: u64 = 0x43b7_1b80 * 1_000_000;

fn octets(text: &str) -> Vec<u8> {
    parse_hex(text).unwrap()
}

fn stamp(address: &str, time_us: u64) -> Stamp {
    Stamp { address: address.parse().unwrap(), time_us }
}

fn compose(message: &Message<'_>, add: Option<Stamp>) -> Vec<u8> {
    let mut buf = Vec::new();
    message.encode(add, &mut Writer::new(&mut buf));
    buf
}

/// The message after the next node of the path.
fn next(octets: &[u8], add: Stamp) -> Vec<u8> {
    let mut message = Message::parse(octets).unwrap();
    message.hops += 1;
    compose(&message, Some(add))
}

/// A message with one object header for each pair of type and length.
fn with_objects(objects: &[(u16, u16)]) -> Vec<u8> {
    let count = u8::try_from(objects.len()).unwrap();
    let mut octets = vec![1, 0, 8 + 4 * count, count, 0, 0, 0, 9];
    for (kind, length) in objects {
        octets.extend(kind.to_be_bytes());
        octets.extend(length.to_be_bytes());
    }
    octets
}

/// NSISPING-2.1-01, NSISPING-2.1-02, NSISPING-2.1-03, NSISPING-2.1-04, NSISPING-2.1.1.1-01, NSISPING-2.1.1.2-01,
/// NSISPING-X-02, NSISPING-X-03, NSISPING-X-05: the octets at each stage of the path, of which each node appends one record,
/// without and with the second record of the initiator.
#[test]
fn the_worked_example() {
    let first = compose(&Message::request(7), Some(stamp("192.0.2.1", SECOND + 100)));
    let after = |first_word: &str, records: usize| {
        octets(&format!("{first_word} 00000007 {HEADERS} {}", RECORDS[..records].concat()))
    };
    assert_eq!((first.len(), &first), (40, &after("01002802", 1)));
    let forwarder = next(&first, stamp("192.0.2.2", SECOND + 400));
    assert_eq!(forwarder, after("01014002", 2));
    let receiver = next(&forwarder, stamp("192.0.2.3", SECOND + 900));
    assert_eq!(receiver, after("01025802", 3));
    let back = next(&receiver, stamp("192.0.2.2", SECOND + 1_300));
    assert_eq!(back, after("01037002", 4));
    let mine = compose(&Message::parse(&back).unwrap(), Some(stamp("192.0.2.1", SECOND + 1_700)));
    assert_eq!(mine, after("01038802", 5));

    assert_eq!(Message::parse(&back).unwrap().count(), 4);
    let message = Message::parse(&mine).unwrap();
    assert_eq!((message.hops, message.sequence, message.octets(), message.count()), (3, 7, 136, 5));
    let objects: Vec<_> = message.objects().collect();
    let object = |kind, octets| Object { kind, octets };
    assert_eq!(objects, [object(ObjectType::ADDRESS, 16), object(ObjectType::TIMESTAMP, 8)]);
    let records: Vec<_> = message.records().collect();
    let record = |Stamp { address, time_us }| Record { address: Some(address), time_us: Some(time_us) };
    assert_eq!(records[0], record(stamp("192.0.2.1", SECOND + 100)));
    assert_eq!(records[4], record(stamp("192.0.2.1", SECOND + 1_700)));
    let large = compose(&Message::request(u32::MAX), None);
    assert_eq!(large[4..8], [0xff; 4]);
}

/// NSISPING-2.1.1-01: each object alone. NSISPING-2.1-05, NSISPING-2.1-06, NSISPING-3-01: an object of unknown type, and one
/// of another length than its type has (NSISPING-X-07), is zeros of the announced length, and the others are right.
#[test]
fn records_have_what_the_headers_announce() {
    let at = stamp("2001:db8::7", 5_000_003);
    let address = octets("20010db8 00000000 00000000 00000007");
    let time = octets("00000005 00000003");
    for (objects, record) in [
        (&[(1, 16)][..], address.clone()),
        (&[(2, 8)], time.clone()),
        (&[(2, 8), (99, 12), (1, 16)], [time.clone(), vec![0; 12], address].concat()),
        (&[(1, 4), (2, 8)], [vec![0; 4], time].concat()),
    ] {
        let before = with_objects(objects);
        let after = next(&before, at);
        assert_eq!(after[before.len()..], record, "{objects:?}");
        assert_eq!(usize::from(after[2]), before.len() + record.len());
        assert_eq!(after[4..before.len()], before[4..], "the rest is unchanged");
        let read = Message::parse(&after).unwrap().records().next().unwrap();
        let whole = |kind, octets| objects.contains(&(kind, octets));
        assert_eq!(read.address, whole(1, 16).then_some(at.address));
        assert_eq!(read.time_us, whole(2, 8).then_some(at.time_us));
    }
}

/// NSISPING-X-06: GIST carries whole words, so zeros follow a message of another length, which the length does not count.
#[test]
fn odd_records_are_filled_up_to_words() {
    let first = next(&with_objects(&[(200, 5)]), stamp("192.0.2.1", 1));
    assert_eq!((first.len(), first[2]), (20, 17));
    let second = next(&first, stamp("192.0.2.2", 2));
    assert_eq!((second.len(), second[2]), (24, 22));
    assert_eq!(Message::parse(&second).unwrap().count(), 2);
}

/// NSISPING-X-05.
#[test]
fn addresses_are_read_in_each_form_that_the_draft_allows() {
    for (text, address) in [
        ("00000000 00000000 0000ffff c0000201", Some("192.0.2.1")),
        ("00000000 00000000 00000000 c0000201", Some("192.0.2.1")),
        ("c0000201 00000000 00000000 00000000", Some("192.0.2.1")),
        ("00000000 00000000 00000000 00000001", Some("::1")),
        ("20010db8 00000000 00000000 00000009", Some("2001:db8::9")),
        ("00000000 00000000 00000000 00000000", None),
    ] {
        let mut message = with_objects(&[(1, 16)]);
        message.extend(octets(text));
        message[2] += 16;
        let record = Message::parse(&message).unwrap().records().next().unwrap();
        assert_eq!(record.address.map(|a| a.to_string()).as_deref(), address, "{text}");
    }
}

/// NSISPING-X-01, NSISPING-X-12: the length has 8 bits: the tenth record of 24 octets has no room, and the message stays as it is.
#[test]
fn a_message_ends_at_255_octets() {
    let mut message = compose(&Message::request(1), None);
    for n in 1_u8..20 {
        message = next(&message, stamp("192.0.2.1", 1));
        let read = Message::parse(&message).unwrap();
        assert_eq!((read.hops, read.count()), (n, usize::from(n.min(9))));
        assert!(read.octets() <= MAX_OCTETS);
    }
    let huge = with_objects(&[(7, u16::MAX), (8, u16::MAX)]);
    assert_eq!(next(&huge, stamp("192.0.2.1", 1)).len(), huge.len(), "no amplification");
}

/// NSISPING-X-08. NSISPING-X-17: a message of version -01 of the draft, whose octet 3 is its sequence number, is no message.
#[test]
fn what_contradicts_itself_is_refused() {
    let whole = compose(&Message::request(7), Some(stamp("192.0.2.1", SECOND)));
    let wrong = |at: usize, octet: u8| {
        let mut octets = whole.clone();
        octets[at] = octet;
        Message::parse(&octets).map(|m| m.count()).unwrap_err()
    };
    assert_eq!(wrong(0, 2), NsisDecodeError::Version { found: 2 });
    assert_eq!(wrong(2, 41), NsisDecodeError::Length { found: 41, payload: 40 });
    assert_eq!(wrong(2, 39), NsisDecodeError::Records { octets: 23, each: 24 });
    assert!(matches!(wrong(2, 15), NsisDecodeError::Short { field: "object headers", .. }));
    assert!(matches!(wrong(2, 7), NsisDecodeError::Short { field: "sequence number", .. }));
    assert!(matches!(wrong(3, 9), NsisDecodeError::Short { .. }));
    assert_eq!(wrong(3, 0), NsisDecodeError::Records { octets: 32, each: 0 });
    for length in 0..whole.len() {
        assert!(Message::parse(&whole[..length]).is_err(), "{length} octets");
    }
    let draft_01 = [&[1, 1, 28, 7][..], &[0; 24]].concat();
    assert!(Message::parse(&draft_01).is_err());
    let mut padded = whole.clone();
    padded.extend([0; 4]);
    assert_eq!(Message::parse(&padded), Message::parse(&whole));
}

/// What fuzzing starts from is tried each time the tests run.
#[test]
fn the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ping_nsis");
    let files: Vec<_> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.iter().for_each(|path| signalbox_ping::fuzz::nsis_message(&fs::read(path).unwrap()));
    assert!(files.len() >= 5, "{} files in {}", files.len(), corpus.display());
}
