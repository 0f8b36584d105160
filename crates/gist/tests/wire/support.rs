//! Vectors and small helpers of the tests.

use signalbox_core::{Direction, Mri, NslpId, PathCoupled, SessionId};
use signalbox_gist::wire::{
    Encapsulation, EncodeError, Item as _, List, MaOptions, MaProtocolId, Message, MessageType, Nli, Profile,
    StackConfiguration, StackProposal,
};
use signalbox_wire::{Writer, parse_hex};

/// Octets of a vector: hexadecimal, with `#` comments to the end of the line.
pub(crate) fn octets(text: &str) -> Vec<u8> {
    let bare: String = text.lines().map(|line| line.split('#').next().unwrap_or("")).collect();
    parse_hex(&bare).unwrap()
}

pub(crate) fn encode(message: &Message<'_>) -> Result<Vec<u8>, EncodeError> {
    let mut octets = Vec::new();
    message.encode(&mut Writer::new(&mut octets)).map(|()| octets)
}

/// A message from header and objects in hexadecimal; the length in the header is corrected.
pub(crate) fn message(header: &str, objects: &[&str]) -> Vec<u8> {
    let mut all = octets(header);
    objects.iter().for_each(|object| all.extend(octets(object)));
    fix_length(&mut all);
    all
}

/// Makes the header's length fit the octets.
pub(crate) fn fix_length(message: &mut [u8]) {
    let words = u16::try_from(message.len() / 4 - 2).unwrap();
    message[2..4].copy_from_slice(&words.to_be_bytes());
}

pub(crate) const MRI: &str = "
    0000 0005       # MRI, 5 words
    00 00 48 c0     # path-coupled, N=0, IPv4, P=1, A=1, B=1, D=0
    c0000201        # 192.0.2.1
    c6336407        # 198.51.100.7
    20 20 11 00     # prefixes 32 and 32, UDP, no DSCP
    1388 1389       # ports 5000 and 5001";
/// The same flow with D=1.
pub(crate) const MRI_UP: &str = "0000 0005 00 00 48 e0 c0000201 c6336407 20 20 11 00 1388 1389";
pub(crate) const SID: &str = "0001 0004 000102030405060708090a0b0c0d0e0f";
pub(crate) const NLI: &str = "
    0002 0004       # NLI, 4 words
    04 40 40 00     # PI-Length 4, IP-TTL 64, IPv4
    00007530        # 30 s
    0a000001        # peer identity
    c0000201        # 192.0.2.1";
pub(crate) const QUERY_COOKIE: &str = "0005 0002 1394712394719235";
pub(crate) const RESPONDER_COOKIE: &str = "0006 0001 acdefedc";
pub(crate) const PROPOSAL: &str = "
    0003 0003
    02 000000       # 2 profiles
    02 02 01 00     # TLS over TCP
    01 01 00 00     # TCP";
pub(crate) const CONFIGURATION: &str = "
    0004 0003
    01 000000       # 1 MA-protocol-options
    00007530        # 30 s
    01 00 00 00     # TCP, all profiles, no data";
pub(crate) const DATA: &str = "0008 0001 deadbeef";

pub(crate) const QUERY_HEADER: &str = "01 1e 0000 7fc0 80 40";
pub(crate) const RESPONSE_HEADER: &str = "01 1e 0000 7fc0 01 c0";
pub(crate) const CONFIRM_HEADER: &str = "01 1e 0000 7fc0 02 80";
pub(crate) const DATA_HEADER: &str = "01 1e 0000 7fc0 03 80";
pub(crate) const ERROR_HEADER: &str = "01 1e 0000 0000 04 80";
pub(crate) const HELLO_HEADER: &str = "01 01 0000 0000 05 80";

/// A Query with everything but NAT-Traversal.
pub(crate) fn query() -> Vec<u8> {
    message(QUERY_HEADER, &[MRI, SID, NLI, QUERY_COOKIE, PROPOSAL, CONFIGURATION, DATA])
}

pub(crate) fn data() -> Vec<u8> {
    message(DATA_HEADER, &[MRI, SID, NLI, DATA])
}

/// Messages of all types and encapsulations, which together have every object.
pub(crate) fn all() -> Vec<(Encapsulation, Vec<u8>)> {
    use Encapsulation::{Association, Normal, QMode};
    let nat =
        "0007 0008 05 01 01 00  00 00 48 c0 c0000201 c6336407 20 20 11 00 1388 1389 0002 0000 0001 aa 00";
    let mri6 = "0000 000d 00 00 6f e0 20010db8000000000000000000000001 20010db8000000000000000000000002
                40 80 32 b8 000fffff 00000007 0000 0050";
    let nli6 = "0002 0008 05 00 60 00 00007530 6162636465 000000 20010db8000000000000000000000001";
    let error = "0009 000d 02 000a 00 f8 00 05 02 01 1e 0014 7fc0 80 40 000102030405060708090a0b0c0d0e0f
                 00 00 48 c0 c0000201 c6336407 20 20 11 00 1388 1389";
    let infos = "0003 0001 0002 0000 0004 0003 0002 0006 0002 0001 04404000 6f6f7073 00000000";
    let mut error = octets(error);
    error.extend(octets(infos));
    let words = u8::try_from(error.len() / 4 - 1).unwrap();
    error[3] = words;
    error[9] = 0xf8;
    let error = signalbox_wire::hex(&error);
    let loose = "0000 0003 01 00 40 00 c0000201 c6336407";
    vec![
        (QMode, query()),
        (QMode, message(QUERY_HEADER, &[nat, mri6, SID, nli6, QUERY_COOKIE])),
        (QMode, message("01 1e 0000 7fc0 83 00", &[loose, SID, NLI, DATA])),
        (
            Normal,
            message(
                RESPONSE_HEADER,
                &[nat, MRI_UP, SID, NLI, QUERY_COOKIE, RESPONDER_COOKIE, PROPOSAL, CONFIGURATION, DATA],
            ),
        ),
        (Normal, message(CONFIRM_HEADER, &[MRI, SID, NLI, RESPONDER_COOKIE, DATA])),
        (
            Association,
            message(
                CONFIRM_HEADER,
                &[MRI, SID, NLI, RESPONDER_COOKIE, PROPOSAL, "0004 0002 00000000 00007530"],
            ),
        ),
        (Normal, data()),
        (Association, message(DATA_HEADER, &[MRI_UP, SID, DATA])),
        (Normal, message(ERROR_HEADER, &[NLI, &error])),
        (Association, message(ERROR_HEADER, &[nat, NLI, &error])),
        (Association, message(HELLO_HEADER, &["000a 0001 00000007"])),
        (Normal, message(DATA_HEADER, &[MRI, "81f4 0001 00000001", SID, NLI, "41f4 0000", DATA])),
    ]
}

pub(crate) const SESSION: SessionId = SessionId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

/// The flow of [`MRI`].
pub(crate) fn flow(direction: Direction) -> Mri {
    Mri::PathCoupled(PathCoupled {
        protocol: Some(17),
        src_port: Some(5000),
        dst_port: Some(5001),
        direction,
        ..PathCoupled::between([192, 0, 2, 1].into(), [198, 51, 100, 7].into())
    })
}

pub(crate) fn nli() -> Nli<'static> {
    Nli { peer_identity: &[10, 0, 0, 1], ip_ttl: 64, validity_ms: 30_000, interface: [192, 0, 2, 1].into() }
}

pub(crate) fn proposal() -> StackProposal<'static> {
    StackProposal { profiles: List::of(&[Profile(&[2, 1]), Profile(&[1])]) }
}

pub(crate) fn configuration() -> StackConfiguration<'static> {
    const TCP: MaOptions<'_> =
        MaOptions { protocol: MaProtocolId::FORWARDS_TCP, profile: 0, disabled: false, data: &[] };
    StackConfiguration { hold_time_ms: 30_000, options: List::of(&[TCP]) }
}

/// A message about [`flow`] with the common objects, composed.
pub(crate) fn composed(kind: MessageType, direction: Direction) -> Message<'static> {
    let mut m = Message::new(kind, NslpId::PING, 30);
    m.mri = Some(flow(direction).into());
    m.session = Some(SESSION);
    m.nli = Some(nli());
    m
}

/// Checks both directions: `vector` parses to `expected`, and `expected` encodes to `vector`.
pub(crate) fn both_ways(vector: &[u8], encapsulation: Encapsulation, expected: &Message<'_>) {
    let parsed = Message::parse(vector, encapsulation).unwrap();
    assert_eq!(&parsed, expected);
    assert_eq!(signalbox_wire::hex(&encode(expected).unwrap()), signalbox_wire::hex(vector));
    assert_eq!(signalbox_wire::hex(&encode(&parsed).unwrap()), signalbox_wire::hex(vector));
}

/// Reads one list entry, as the decoder does within objects.
pub(crate) fn options(octets: &[u8]) -> MaOptions<'_> {
    MaOptions::read(&mut signalbox_wire::Reader::new(octets)).unwrap()
}
