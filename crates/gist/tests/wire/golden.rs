//! Every message type, octet by octet.

use signalbox_core::{Direction, NslpId};
use signalbox_gist::wire::{
    Encapsulation, Header, Info, Infos, List, MAGIC, MaOptions, MaProtocolId, Message, MessageType, PORT,
    Profile, StackConfiguration, StackProposal, strip_magic,
};
use signalbox_gist::wire::{ErrorObject, GistError, ObjectType};
use signalbox_wire::Writer;

use crate::support::*;

/// GIST-A.1-01 GIST-A.1-02 GIST-A.1-03 GIST-9-02 GIST-A-03: each field of the common header is at its place in the
/// drawing.
#[test]
fn common_header() {
    let octets = octets("01 1e 0102 7fc0 83 e0");
    let header = Header::parse(&octets).unwrap();
    assert_eq!((header.hops, header.length_words, header.nslp), (30, 0x0102, NslpId(32704)));
    assert_eq!(header.kind, MessageType::DATA);
    assert!(header.c && header.s && header.r && header.e);
    assert_eq!(header.octets()[..], octets);
    assert_eq!(
        Header::new(MessageType::QUERY, NslpId::PING, 1).octets(),
        [1, 1, 0, 0, 0x7f, 0xc0, 0x80, 0x40]
    );
    let data = Header { c: true, e: true, ..Header::new(MessageType::DATA, NslpId::NONE, 9) };
    assert_eq!(data.octets(), [1, 9, 0, 0, 0, 0, 0x83, 0xa0]);
    for (flags, s, r, e) in
        [(0x80, true, false, false), (0x40, false, true, false), (0x20, false, false, true)]
    {
        let one = Header { s, r, e, ..data };
        assert_eq!(one.octets()[7], flags);
        assert_eq!(Header::parse(&one.octets()), Ok(one));
    }
}

/// GIST-5.1-01 GIST-5.1-02 GIST-5.1-09 GIST-A.3.2-01: a Query with all objects but NAT-Traversal.
#[test]
fn query_message() {
    let mut m = composed(MessageType::QUERY, Direction::Downstream);
    m.query_cookie = Some(&[0x13, 0x94, 0x71, 0x23, 0x94, 0x71, 0x92, 0x35]);
    m.stack_proposal = Some(proposal());
    m.stack_configuration = Some(configuration());
    m.nslp_data = Some(&[0xde, 0xad, 0xbe, 0xef]);
    both_ways(&query(), Encapsulation::QMode, &m);
}

/// GIST-5.1-01 GIST-5.1-02 GIST-5.1-13 GIST-A.3.1.1-12: a Response with all objects but NAT-Traversal, D inverted.
#[test]
fn response_message() {
    let vector = message(
        RESPONSE_HEADER,
        &[MRI_UP, SID, NLI, QUERY_COOKIE, RESPONDER_COOKIE, PROPOSAL, CONFIGURATION, DATA],
    );
    let mut m = composed(MessageType::RESPONSE, Direction::Upstream);
    m.header.r = true;
    m.query_cookie = Some(&[0x13, 0x94, 0x71, 0x23, 0x94, 0x71, 0x92, 0x35]);
    m.responder_cookie = Some(&[0xac, 0xde, 0xfe, 0xdc]);
    m.stack_proposal = Some(proposal());
    m.stack_configuration = Some(configuration());
    m.nslp_data = Some(&[0xde, 0xad, 0xbe, 0xef]);
    both_ways(&vector, Encapsulation::Normal, &m);
}

/// GIST-5.1-01 GIST-5.1-02 GIST-5.1-15 GIST-A.3.5-02: the first Confirm on an association, with its abbreviated
/// Stack-Configuration-Data.
#[test]
fn confirm_message() {
    let objects = [MRI, SID, NLI, RESPONDER_COOKIE, PROPOSAL, "0004 0002 00 000000 00007530", DATA];
    let mut m = composed(MessageType::CONFIRM, Direction::Downstream);
    m.responder_cookie = Some(&[0xac, 0xde, 0xfe, 0xdc]);
    m.stack_proposal = Some(proposal());
    m.stack_configuration = Some(StackConfiguration { hold_time_ms: 30_000, options: List::EMPTY });
    m.nslp_data = Some(&[0xde, 0xad, 0xbe, 0xef]);
    both_ways(&message(CONFIRM_HEADER, &objects), Encapsulation::Association, &m);
}

/// GIST-5.1-01 GIST-5.1-02 GIST-5.1-18 GIST-5.2.1-01: Data in all three encapsulations; C only in Q-mode.
#[test]
fn data_message() {
    let mut m = composed(MessageType::DATA, Direction::Downstream);
    m.nslp_data = Some(&[0xde, 0xad, 0xbe, 0xef]);
    both_ways(&data(), Encapsulation::Normal, &m);
    m.header.c = true;
    m.header.s = false;
    both_ways(&message("01 1e 0000 7fc0 83 00", &[MRI, SID, NLI, DATA]), Encapsulation::QMode, &m);
    m.header.c = false;
    m.header.s = true;
    m.nli = None;
    both_ways(&message(DATA_HEADER, &[MRI, SID, DATA]), Encapsulation::Association, &m);
}

/// GIST-5.1-01 GIST-5.1-20 GIST-A.4.1-01 GIST-A.4.1-02 GIST-A.4.1-03 GIST-A.4.1-08 GIST-A.4.2-02 GIST-A.4.2-04:
/// an Error with every part that an Error object can have, in the order of A.4.1.
#[test]
fn error_message() {
    let error = "
        0009 0013
        02 000a 01                          # Protocol-Error, 10/1
        f8 00 05 02                         # S M C D Q, MRI of 5 words, 2 infos
        01 1d 001d 7fc0 80 40               # the original common header
        000102030405060708090a0b0c0d0e0f    # its session
        00 00 48 c0 c0000201 c6336407 20 20 11 00 1388 1389
        0001 0001 001d 0000                 # Message Length Info
        0003 0001 0002 0000                 # Object Type Info
        6f6f7073 00000000                   # comment of 4 octets";
    let mri = octets("00 00 48 c0 c0000201 c6336407 20 20 11 00 1388 1389");
    let mut m = Message::new(MessageType::ERROR, NslpId::NONE, 30);
    m.nli = Some(nli());
    m.error = Some(ErrorObject {
        error: GistError::VALUE_NOT_SUPPORTED,
        d_mode: true,
        q_mode: true,
        header: [1, 29, 0, 29, 0x7f, 0xc0, 0x80, 0x40],
        session: Some(SESSION),
        mri_octets: Some(&mri),
        infos: Infos::some(Some(Info::MessageLength(29)), Some(Info::ObjectType(ObjectType::NLI))),
        comment: Some("oops"),
    });
    both_ways(&message(ERROR_HEADER, &[NLI, error]), Encapsulation::Normal, &m);
    let parsed = m.error.unwrap();
    assert_eq!(parsed.mri(), Some(flow(Direction::Downstream)));
    assert_eq!(parsed.original().map(|h| h.nslp), Some(NslpId::PING));
}

/// GIST-5.1-01 GIST-5.1-22 GIST-A.3.8-01: MA-Hello with request flag and without.
#[test]
fn ma_hello_message() {
    let mut m = Message::new(MessageType::MA_HELLO, NslpId::NONE, 1);
    m.hello_id = Some(7);
    let id = "000a 0001 00000007";
    both_ways(&message(HELLO_HEADER, &[id]), Encapsulation::Association, &m);
    m.header.r = true;
    both_ways(&message("01 01 0000 0000 05 c0", &[id]), Encapsulation::Association, &m);
    m.header.r = false;
    m.hello_id = Some(0);
    both_ways(&message(HELLO_HEADER, &["000a 0001 00000000"]), Encapsulation::Association, &m);
}

/// GIST-5.2.1-03 GIST-5.3.1-03 GIST-5.4-04 GIST-9-01: the magic number precedes the message in a datagram. It is not
/// part of the message, not counted in its length, and absent in a stream.
#[test]
fn magic_number() {
    let mut m = composed(MessageType::DATA, Direction::Downstream);
    m.nslp_data = Some(&[0xde, 0xad, 0xbe, 0xef]);
    let mut payload = Vec::new();
    m.encode_datagram(&mut Writer::new(&mut payload)).unwrap();
    assert_eq!(payload[..4], [0x4e, 0x04, 0xbd, 0xa5]);
    assert_eq!(MAGIC, [0x4e, 0x04, 0xbd, 0xa5]);
    assert_eq!(strip_magic(&payload).unwrap(), data());
    assert_eq!(encode(&m).unwrap(), data());
    assert_eq!(usize::from(Header::parse(&data()).unwrap().length_words) * 4 + 8, data().len());
    assert_eq!(strip_magic(&data()), None);
    assert_eq!(strip_magic(&payload[..3]), None);
    assert_eq!(PORT, 270);
}

const SCTP: MaProtocolId = MaProtocolId(3);

/// GIST-D-01 GIST-D-03 GIST-D-04 GIST-5.7.3-12: the handshake of figure 12: directions, flags, TCP twice with different
/// ports in the Response, the responder's proposal and only a hold time in the Confirm; TLS has no options.
#[test]
fn the_handshake_of_appendix_d() {
    let any = |protocol| MaOptions { protocol, profile: 0, disabled: false, data: &[] };
    let offered = [Profile(&[2, 1]), Profile(&[2, 3]), Profile(&[1])];
    let options = [any(MaProtocolId::FORWARDS_TCP), any(SCTP)];
    let mut query = composed(MessageType::QUERY, Direction::Downstream);
    query.query_cookie = Some(&[0x13, 0x94, 0x71, 0x23, 0x94, 0x71, 0x92, 0x35]);
    query.stack_proposal = Some(StackProposal { profiles: List::of(&offered) });
    query.stack_configuration =
        Some(StackConfiguration { hold_time_ms: 300_000, options: List::of(&options) });
    let vector = message(
        QUERY_HEADER,
        &[
            MRI,
            SID,
            NLI,
            QUERY_COOKIE,
            "0003 0004 03 000000 02 02 01 00 02 02 03 00 01 01 00 00",
            "0004 0004 02 000000 000493e0 01 00 00 00 03 00 00 00",
        ],
    );
    both_ways(&vector, Encapsulation::QMode, &query);
    assert_eq!(vector[6..8], [0x80, 0x40]);

    let answered = [Profile(&[1]), Profile(&[3]), Profile(&[2, 1])];
    let port = |protocol, profile, data| MaOptions { protocol, profile, disabled: false, data };
    let tcp = MaProtocolId::FORWARDS_TCP;
    let options = [port(tcp, 3, &[0x17, 0xeb]), port(tcp, 1, &[0x15, 0x3e]), port(SCTP, 0, &[0x0d, 0x05])];
    let mut response = composed(MessageType::RESPONSE, Direction::Upstream);
    response.header.r = true;
    response.query_cookie = query.query_cookie;
    response.responder_cookie = Some(&[0xac, 0xde, 0xfe, 0xdc]);
    response.stack_proposal = Some(StackProposal { profiles: List::of(&answered) });
    response.stack_configuration =
        Some(StackConfiguration { hold_time_ms: 200_000, options: List::of(&options) });
    let repeated = "0003 0004 03 000000 01 01 00 00 01 03 00 00 02 02 01 00";
    let vector = message(
        RESPONSE_HEADER,
        &[
            MRI_UP,
            SID,
            NLI,
            QUERY_COOKIE,
            RESPONDER_COOKIE,
            repeated,
            "0004 0008 03 000000 00030d40 01 03 02 00 17eb 0000 01 01 02 00 153e 0000 03 00 02 00 0d05 0000",
        ],
    );
    both_ways(&vector, Encapsulation::Normal, &response);
    assert_eq!(vector[6..8], [0x01, 0xc0]);
    let chosen = options.iter().find(|o| o.protocol == tcp && o.profile == 3);
    assert_eq!(chosen.and_then(MaOptions::port), Some(6123));

    let mut confirm = composed(MessageType::CONFIRM, Direction::Downstream);
    confirm.responder_cookie = response.responder_cookie;
    confirm.stack_proposal = response.stack_proposal;
    confirm.stack_configuration = Some(StackConfiguration { hold_time_ms: 300_000, options: List::EMPTY });
    let vector =
        message(CONFIRM_HEADER, &[MRI, SID, NLI, RESPONDER_COOKIE, repeated, "0004 0002 00 000000 000493e0"]);
    both_ways(&vector, Encapsulation::Association, &confirm);
    assert_eq!(vector[6..8], [0x02, 0x80]);
}
