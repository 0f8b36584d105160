//! Common headers that must be refused (RFC 5971 A.1, A.4.4.1, §5.5).

use signalbox_gist::wire::{DecodeError, Encapsulation, Header, Message, MessageType, Problem};

use crate::support::*;

fn parse(octets: &[u8], encapsulation: Encapsulation) -> DecodeError {
    Message::parse(octets, encapsulation).unwrap_err()
}

fn code(error: &DecodeError) -> (u16, u8) {
    let e = error.gist_error().unwrap();
    (e.code.0, e.subcode)
}

/// GIST-A.4.4.1-03 GIST-A.1-07: another version is 1/0, with any following octets.
#[test]
fn unknown_version() {
    for version in [0, 2, 255] {
        let mut octets = query();
        octets[0] = version;
        octets[6] = 0x7f;
        let error = parse(&octets, Encapsulation::QMode);
        assert_eq!(code(&error), (1, 0));
        assert_eq!((error.field, error.offset, error.value), ("Version", 0, version.into()));
    }
}

/// GIST-A.4.4.1-04 GIST-9-05: the types without a meaning are 1/1.
#[test]
fn unknown_type() {
    for kind in 6..=127 {
        let mut octets = query();
        octets[6] = 0x80 | kind;
        let error = parse(&octets, Encapsulation::QMode);
        assert_eq!(code(&error), (1, 1));
        assert_eq!((error.field, error.offset, error.value), ("Type", 6, kind.into()));
    }
}

/// GIST-A.4.4.1-05: R must be set in a Query and in a Response with a Responder-Cookie, never in Confirm, Data and
/// Error; it is free in other Responses and in MA-Hello.
#[test]
fn r_flag() {
    for (encapsulation, mut octets) in all() {
        octets[7] ^= 0x40;
        let kind = MessageType(octets[6] & 0x7f);
        let result = Message::parse(&octets, encapsulation);
        if kind == MessageType::MA_HELLO {
            result.unwrap();
            continue;
        }
        let error = result.unwrap_err();
        assert_eq!(code(&error), (1, 2), "{kind}");
        assert_eq!((error.field, error.offset), ("R-flag", 7));
    }
    for flags in ["80", "c0"] {
        let header = format!("01 1e 0000 7fc0 01 {flags}");
        let octets = message(&header, &[MRI_UP, SID, NLI, QUERY_COOKIE]);
        Message::parse(&octets, Encapsulation::Normal).unwrap();
    }
}

/// GIST-A.4.4.1-06 GIST-A.1-07: one word more or less than the length in the header is 1/3, with the length that the
/// objects add up to.
#[test]
fn message_length() {
    for (encapsulation, octets) in all() {
        let words = Header::parse(&octets).unwrap().length_words;
        for wrong in [words - 1, words + 1, 0, 0xffff] {
            let mut octets = octets.clone();
            octets[2..4].copy_from_slice(&wrong.to_be_bytes());
            let error = parse(&octets, encapsulation);
            assert_eq!(code(&error), (1, 3));
            assert_eq!(error.problem, Problem::MessageLength { calculated: words });
            assert_eq!((error.field, error.offset, error.value), ("Message Length", 2, wrong.into()));
        }
    }
}

/// GIST-A.4.4.1-06: an object that reaches beyond the message is 1/3 as well; the calculated length includes it.
#[test]
fn last_object_beyond_the_message() {
    let mut octets = data();
    let at = octets.len() - 5;
    octets[at] = 3;
    let words = Header::parse(&octets).unwrap().length_words;
    let error = parse(&octets, Encapsulation::Normal);
    assert_eq!(error.problem, Problem::MessageLength { calculated: words + 2 });
}

/// GIST-4.3.1-02: a second message behind the first makes the datagram malformed.
#[test]
fn two_messages_in_a_datagram() {
    let both = [data(), data()].concat();
    assert_eq!(code(&parse(&both, Encapsulation::Normal)), (1, 3));
}

/// GIST-A.4.4.1-07: E is allowed in Data only.
#[test]
fn e_flag() {
    for (encapsulation, mut octets) in all() {
        octets[7] |= 0x20;
        let result = Message::parse(&octets, encapsulation);
        if octets[6] & 0x7f == MessageType::DATA.0 {
            assert!(result.unwrap().header.e);
        } else {
            assert_eq!(code(&result.unwrap_err()), (1, 4));
        }
    }
}

/// GIST-A.4.4.1-08: C is allowed in a Query and in Q-mode Data only.
#[test]
fn c_flag() {
    for (encapsulation, mut octets) in all() {
        octets[6] ^= 0x80;
        let error = parse(&octets, encapsulation);
        assert_eq!(code(&error), (1, 5));
        assert_eq!((error.field, error.offset), ("C-flag", 6));
    }
}

/// The table of §5.5: the types that each encapsulation may carry are accepted, others are refused with code 3. (The
/// engine checks that a Confirm is not a datagram if there is an association.)
#[test]
fn encapsulation() {
    use Encapsulation::{Association, Normal, QMode};
    let header = |text: &str| Header::parse(&octets(text)).unwrap();
    for (text, allowed) in [
        (QUERY_HEADER, &[QMode][..]),
        (RESPONSE_HEADER, &[Normal, Association]),
        (CONFIRM_HEADER, &[Normal, Association]),
        (DATA_HEADER, &[Normal, Association]),
        ("01 1e 0000 7fc0 83 80", &[QMode]),
        (ERROR_HEADER, &[Normal, Association]),
        (HELLO_HEADER, &[Association]),
    ] {
        for encapsulation in [Normal, QMode, Association] {
            let result = header(text).check(encapsulation);
            assert_eq!(result.is_ok(), allowed.contains(&encapsulation), "{text} {encapsulation:?}");
            // The C-flag shows a wrong encapsulation of Data already.
            let expected = if header(text).kind == MessageType::DATA { (1, 5) } else { (3, 0) };
            assert_eq!(result.err().map_or(expected, |e| code(&e)), expected);
        }
    }
}

/// Octets shorter than a common header cannot be answered; flags are checked before the rest of the message.
#[test]
fn short_header() {
    for length in 0..8 {
        let error = parse(&query()[..length], Encapsulation::QMode);
        assert_eq!(error.problem, Problem::ShortHeader);
        assert_eq!(error.gist_error(), None);
        assert_eq!(Header::parse(&query()[..length]), Err(error));
    }
    Header::parse(&query()[..8]).unwrap();
}
