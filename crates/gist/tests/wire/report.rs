//! The Error object that reports an error (RFC 5971 A.4.1, A.4.4).

use signalbox_core::Direction;
use signalbox_gist::wire::{
    Encapsulation, ErrorObject, GistError, Info, Infos, MAX_INFO_OBJECT, Message, MessageType, ObjectType,
    error_object_for, find_object, object_value_info,
};
use signalbox_wire::hex;

use crate::support::*;

fn report(octets: &[u8], encapsulation: Encapsulation) -> ErrorObject<'_> {
    let error = Message::parse(octets, encapsulation).unwrap_err();
    error_object_for(&error, octets, encapsulation).unwrap()
}

/// GIST-A.4.1-05 GIST-A.4.1-06 GIST-A.4.4.10-01 GIST-A.4.2-05: a bad NLI: the original header, session and MRI are in the
/// report, and one Object Value Info with the object and the octet at fault in it.
#[test]
fn header_session_and_mri() {
    let bad = "0002 0004 04 40 50 00 00007530 0a000001 c0000201";
    let octets = message(QUERY_HEADER, &[MRI, SID, bad, QUERY_COOKIE]);
    let object = report(&octets, Encapsulation::QMode);
    assert_eq!(object.error, GistError::VALUE_NOT_SUPPORTED);
    assert_eq!(object.header[..], octets[..8]);
    assert_eq!(object.session, Some(SESSION));
    assert_eq!(object.mri(), Some(flow(Direction::Downstream)));
    assert_eq!(object.mri_octets, Some(&octets[12..32]));
    assert!(object.d_mode && object.q_mode);
    let nli = crate::support::octets(bad);
    assert!(object.infos.iter().eq([Info::ObjectValue { offset: 6, object: &nli }]));
}

/// GIST-A.4.1-06: an MRI or session that could not be decoded is left out.
#[test]
fn undecodable_mri_and_session() {
    let mri = "0000 0005 63 00 48 c0 c0000201 c6336407 20 20 11 00 1388 1389";
    let octets = message(QUERY_HEADER, &[mri, SID, NLI, QUERY_COOKIE]);
    let object = report(&octets, Encapsulation::QMode);
    assert_eq!((object.mri_octets, object.session), (None, Some(SESSION)));
    let octets = message(QUERY_HEADER, &[MRI, "0001 0001 00000000", NLI, QUERY_COOKIE]);
    let object = report(&octets, Encapsulation::QMode);
    assert_eq!((object.mri(), object.session), (Some(flow(Direction::Downstream)), None));
}

/// GIST-A.4.1-04: D and Q are the encapsulation of the original message.
#[test]
fn encapsulations() {
    for (header, encapsulation, d, q) in [
        ("01 1e 0000 7fc0 83 80", Encapsulation::QMode, true, true),
        (DATA_HEADER, Encapsulation::Normal, true, false),
        (DATA_HEADER, Encapsulation::Association, false, false),
    ] {
        let octets = message(header, &[MRI, SID]);
        let object = report(&octets, encapsulation);
        assert_eq!((object.d_mode, object.q_mode), (d, q));
    }
}

/// GIST-A.4.4.1-01 GIST-A.4.4.1-02 GIST-A.4.4-01: code 1 has neither session nor MRI, and Message Length Info for subcode 3
/// only.
#[test]
fn code_1() {
    let change = |at: usize, flip: u8| {
        let mut octets = query();
        octets[at] ^= flip;
        octets
    };
    let words = u16::try_from(query().len() / 4 - 2).unwrap();
    for (octets, subcode, infos) in [
        (change(0, 2), 0, vec![]),
        (change(6, 0x40), 1, vec![]),
        (change(7, 0x40), 2, vec![]),
        (change(3, 1), 3, vec![Info::MessageLength(words)]),
        (change(7, 0x20), 4, vec![]),
        (change(6, 0x80), 5, vec![]),
    ] {
        let object = report(&octets, Encapsulation::QMode);
        assert_eq!((object.error.class.0, object.error.code.0, object.error.subcode), (2, 1, subcode));
        assert_eq!((object.session, object.mri_octets), (None, None));
        assert!(object.infos.iter().eq(infos));
        assert_eq!(object.header[..], octets[..8]);
    }
}

/// GIST-A.4.4.10-07 GIST-A.4.2-06 GIST-5.7.1-02: the report of a contradiction between the stack objects has both, the
/// Stack-Proposal first.
#[test]
fn stack_mismatch() {
    let configuration = "0004 0003 01 000000 00007530 01 09 00 00";
    let octets = message(QUERY_HEADER, &[MRI, SID, NLI, QUERY_COOKIE, PROPOSAL, configuration]);
    let object = report(&octets, Encapsulation::QMode);
    assert_eq!(object.error, GistError::STACK_MISMATCH);
    let (first, second) = (crate::support::octets(PROPOSAL), crate::support::octets(configuration));
    assert!(object.infos.iter().eq([
        Info::ObjectValue { offset: 0, object: &first },
        Info::ObjectValue { offset: 12, object: &second },
    ]));
}

/// Code 3 has no additional information; session and MRI are there.
#[test]
fn incorrect_encapsulation() {
    let octets = query();
    let object = report(&octets, Encapsulation::Association);
    assert_eq!(object.error, GistError::INCORRECT_ENCAPSULATION);
    assert!(object.infos.is_empty());
    assert_eq!(object.session, Some(SESSION));
}

/// GIST-A.4.4.12-01: errors of the engine have the MRI with the offset of the wrong octet; GIST-A.4.4.1-02 applies to
/// them too.
#[test]
fn errors_of_the_engine() {
    let octets = query();
    let info = object_value_info(&octets, ObjectType::MRI, 17);
    let about =
        |error| ErrorObject::about(error, &octets, Encapsulation::QMode, Infos::some(info, None)).unwrap();
    let object = about(GistError::MRI_TOO_WILD);
    assert!(object.infos.iter().eq([Info::ObjectValue { offset: 17, object: &octets[8..32] }]));
    assert_eq!(object.session, Some(SESSION));
    assert_eq!(about(GistError::UNKNOWN_VERSION).session, None);
    assert_eq!(object_value_info(&octets, ObjectType::HELLO_ID, 0), None);
}

/// An MRI that cannot be parsed is copied unchanged into a report of another error.
#[test]
fn uninterpreted_mri() {
    let mri = "0000 0002 63 00 00 00 01020304";
    let octets = message(QUERY_HEADER, &[mri, SID, NLI, QUERY_COOKIE]);
    let object =
        ErrorObject::about(GistError::ENDPOINT_FOUND, &octets, Encapsulation::QMode, Infos::NONE).unwrap();
    assert_eq!(object.mri_octets, Some(&octets[12..20]));
    assert_eq!(object.mri(), None);
}

/// No Error is sent about an Error message, nor about octets shorter than a header.
#[test]
fn silence() {
    let octets = message(ERROR_HEADER, &[NLI]);
    let error = Message::parse(&octets, Encapsulation::Normal).unwrap_err();
    assert_eq!(error_object_for(&error, &octets, Encapsulation::Normal), None);
    let error = Message::parse(&octets[..7], Encapsulation::Normal).unwrap_err();
    assert_eq!(error_object_for(&error, &octets[..7], Encapsulation::Normal), None);
}

/// GIST-A.4.2-05: a very long object is reported in part; the Error message stays below 512 octets and can be parsed.
#[test]
fn long_objects_are_cut() {
    let long = format!("0000 0fff 00 00 48 c0 {}", hex(&vec![0xee; 4094 * 4]));
    let octets = message(QUERY_HEADER, &[&long, SID, NLI, QUERY_COOKIE]);
    let object = report(&octets, Encapsulation::QMode);
    let Some(Info::ObjectValue { object: quoted, .. }) = object.infos.iter().next() else { panic!() };
    assert_eq!(quoted.len(), MAX_INFO_OBJECT);
    assert_eq!(find_object(&octets, ObjectType::MRI).unwrap().octets[..MAX_INFO_OBJECT], *quoted);
    let mut m = Message::new(MessageType::ERROR, signalbox_core::NslpId::NONE, 30);
    m.nli = Some(nli());
    m.error = Some(object);
    let sent = encode(&m).unwrap();
    assert!(sent.len() < 512);
    assert_eq!(Message::parse(&sent, Encapsulation::Normal), Ok(m));
}

/// GIST-A.4.1-07 GIST-A.4.4-01: for every error that octets can raise, the kinds of additional information are those of
/// the catalogue: length for 1/3, type for 9, value for 10 (two for 10/5), no other information.
#[test]
fn additional_information_of_each_error() {
    let with = |nli, proposal, configuration| {
        message(QUERY_HEADER, &[MRI, SID, nli, QUERY_COOKIE, proposal, configuration])
    };
    let bad_nli = |nli| with(nli, PROPOSAL, CONFIGURATION);
    let flags = "0000 0005 00 00 40 c0 c0000201 c6336407 20 20 11 00 1388 1389";
    let header = |header| message(header, &[MRI, SID, NLI, QUERY_COOKIE]);
    let mut long = query();
    long[3] += 1;
    for (octets, subcodes, kinds) in [
        (header("02 1e 0000 7fc0 80 40"), (1, 0), &[][..]),
        (header("01 1e 0000 7fc0 87 40"), (1, 1), &[]),
        (header("01 1e 0000 7fc0 80 00"), (1, 2), &[]),
        (long, (1, 3), &[1]),
        (header("01 1e 0000 7fc0 80 60"), (1, 4), &[]),
        (header("01 1e 0000 7fc0 00 40"), (1, 5), &[]),
        (header("01 1e 0000 7fc0 01 40"), (3, 0), &[]),
        (message(QUERY_HEADER, &[MRI, MRI]), (9, 0), &[3]),
        (message(QUERY_HEADER, &["01f4 0000"]), (9, 1), &[3]),
        (message(QUERY_HEADER, &[MRI]), (9, 2), &[3]),
        (message(QUERY_HEADER, &[MRI, SID, NLI, RESPONDER_COOKIE]), (9, 3), &[3]),
        (message(QUERY_HEADER, &["c000 0000"]), (9, 5), &[3]),
        (bad_nli("0002 0000"), (10, 0), &[4]),
        (bad_nli("0002 0004 04 40 50 00 00007530 0a000001 c0000201"), (10, 1), &[4]),
        (message(QUERY_HEADER, &[flags, SID, NLI, QUERY_COOKIE]), (10, 2), &[4]),
        (with(NLI, "0003 0002 01 000000 00000000", CONFIGURATION), (10, 3), &[4]),
        (with(NLI, PROPOSAL, "0004 0002 00 000000 00007530"), (10, 5), &[4, 4]),
    ] {
        let object = report(&octets, Encapsulation::QMode);
        assert_eq!((object.error.code.0, object.error.subcode), subcodes);
        let found: Vec<_> = object.infos.iter().map(|info| info.kind().0).collect();
        assert_eq!(found, kinds, "{}", object.error);
    }
}
