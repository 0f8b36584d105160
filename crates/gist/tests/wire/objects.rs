//! Contents of the other objects (RFC 5971 A.3.3 to A.3.10).

use core::net::IpAddr;

use signalbox_core::{Direction, Mri};
use signalbox_gist::wire::{
    Encapsulation, List, MaProtocolId, Message, MessageType, NatTraversal, Nli, ObjectType, Profile,
    Replaced, Translated,
};
use signalbox_wire::hex;

use crate::support::*;

/// GIST-9-05 GIST-9-06 GIST-9-08 GIST-9-10: the registered numbers.
#[test]
fn code_points() {
    use MessageType as M;
    use ObjectType as O;
    let kinds = [M::QUERY, M::RESPONSE, M::CONFIRM, M::DATA, M::ERROR, M::MA_HELLO];
    assert!(kinds.iter().map(|m| m.0).eq(0..6));
    let objects = [
        O::MRI,
        O::SESSION_ID,
        O::NLI,
        O::STACK_PROPOSAL,
        O::STACK_CONFIGURATION,
        O::QUERY_COOKIE,
        O::RESPONDER_COOKIE,
        O::NAT_TRAVERSAL,
        O::NSLP_DATA,
        O::ERROR,
        O::HELLO_ID,
    ];
    assert!(objects.iter().map(|o| o.0).eq(0..11));
    assert_eq!((MaProtocolId::FORWARDS_TCP.0, MaProtocolId::FORWARDS_TLS.0), (1, 2));
    assert_eq!(MaProtocolId(0).name(), None);
}

/// GIST-A.3.3-01: peer identities of 0, 4, 5 and 16 octets, padded; both IP versions; padding and reserved bits of
/// received objects are ignored.
#[test]
fn nli_padding() {
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    let v4: IpAddr = [192, 0, 2, 1].into();
    let six = "20010db8000000000000000000000001";
    for (identity, interface, vector) in [
        (&b""[..], v4, "0002 0003 00 40 40 00 00007530 c0000201".to_owned()),
        (b"abcd", v4, "0002 0004 04 40 40 00 00007530 61626364 c0000201".to_owned()),
        (b"abcde", v6, format!("0002 0008 05 40 60 00 00007530 6162636465 000000 {six}")),
        (
            b"abcdefghijklmnop",
            v6,
            format!("0002 000a 10 40 60 00 00007530 {} {six}", hex(b"abcdefghijklmnop")),
        ),
    ] {
        let mut m = composed(MessageType::DATA, Direction::Downstream);
        m.nli = Some(Nli { peer_identity: identity, interface, ..nli() });
        m.nslp_data = Some(&[0xde, 0xad, 0xbe, 0xef]);
        both_ways(&message(DATA_HEADER, &[MRI, SID, &vector, DATA]), Encapsulation::Normal, &m);
    }
    let sloppy = "0002 0005 05 40 4f ff 00007530 6162636465 aabbcc c0000201";
    let octets = message(DATA_HEADER, &[MRI, SID, sloppy, DATA]);
    let m = Message::parse(&octets, Encapsulation::Normal).unwrap();
    assert_eq!(m.nli.map(|n| (n.peer_identity, n.interface)), Some((&b"abcde"[..], v4)));
}

/// GIST-A.3.4-01 GIST-A.3.4-04: profiles of 1 to 5 protocols; padding of any value is ignored.
#[test]
fn stack_proposal_profiles() {
    let proposal =
        "0003 0007 05 112233 01 01 ff ff 02 02 01 ff 03 78 02 01 04 79 78 02 01 aa bb cc 01 02 00 00";
    let objects = [MRI_UP, SID, NLI, QUERY_COOKIE, RESPONDER_COOKIE, proposal, CONFIGURATION];
    let all = message(RESPONSE_HEADER, &objects);
    let m = Message::parse(&all, Encapsulation::Normal).unwrap();
    let profiles = [
        Profile(&[1]),
        Profile(&[2, 1]),
        Profile(&[0x78, 2, 1]),
        Profile(&[0x79, 0x78, 2, 1]),
        Profile(&[2]),
    ];
    assert_eq!(m.stack_proposal.unwrap().profiles, List::of(&profiles));
    let canonical = "05 000000 01 01 00 00 02 02 01 00 03 78 02 01 04 79 78 02 01 00 00 00 01 02 00 00";
    assert!(hex(&encode(&m).unwrap()).contains(&hex(&octets(canonical))));
}

/// GIST-A.3.5-01 GIST-A.3.5-04 GIST-5.7.2-03 GIST-5.7.2-04: options of Forwards-TCP in Query and Response; the length
/// may include the padding.
#[test]
fn tcp_options() {
    let query = options(&[1, 0, 0, 0]);
    assert_eq!((query.protocol, query.profile, query.port()), (MaProtocolId::FORWARDS_TCP, 0, None));
    let exact = options(&[1, 1, 2, 0, 0x17, 0xeb, 0, 0]);
    let padded = options(&[1, 1, 4, 0, 0x17, 0xeb, 0, 0]);
    assert_eq!((exact.port(), padded.port()), (Some(6123), Some(6123)));
    assert_eq!(exact.data, [0x17, 0xeb]);
    assert!(options(&[1, 1, 0, 0x80]).disabled);
    for length in ["02", "04"] {
        let configuration = format!("0004 0004 01 000000 00007530 01 00 {length} 00 17eb 0000");
        let octets = message(
            RESPONSE_HEADER,
            &[MRI_UP, SID, NLI, QUERY_COOKIE, RESPONDER_COOKIE, PROPOSAL, &configuration],
        );
        let m = Message::parse(&octets, Encapsulation::Normal).unwrap();
        assert_eq!(m.stack_configuration.unwrap().options.iter().next().unwrap().port(), Some(6123));
        assert_eq!(encode(&m).unwrap(), octets);
    }
}

/// GIST-A.3.6-01 GIST-A.3.7-01: cookies of 1 to 64 words are parsed as they were composed.
#[test]
fn cookies() {
    let cookie: Vec<u8> = (0..=255).collect();
    for words in 1..=64 {
        let mut m = composed(MessageType::RESPONSE, Direction::Upstream);
        m.header.r = true;
        m.query_cookie = Some(&cookie[..words * 4]);
        m.responder_cookie = Some(&cookie[256 - words * 4..]);
        let octets = encode(&m).unwrap();
        assert_eq!(Message::parse(&octets, Encapsulation::Normal), Ok(m));
    }
}

/// GIST-A.2-01 GIST-A.2-03: a value of 4095 words, and an empty one.
#[test]
fn largest_and_smallest_value() {
    let large = vec![0x5a; 4095 * 4];
    let mut m = composed(MessageType::DATA, Direction::Downstream);
    m.nslp_data = Some(&large);
    let octets = encode(&m).unwrap();
    assert_eq!(octets[octets.len() - large.len() - 4..][..4], [0, 8, 0x0f, 0xff]);
    assert_eq!(Message::parse(&octets, Encapsulation::Normal), Ok(m));
    m.nslp_data = Some(&[]);
    let octets = encode(&m).unwrap();
    assert_eq!(octets[octets.len() - 4..], [0, 8, 0, 0]);
    assert_eq!(Message::parse(&octets, Encapsulation::Normal), Ok(m));
}

/// GIST-A.3.9-01 GIST-A.3.9-02 GIST-A.3.9-03: 1, 2 and 3 translated types, opaque fields of 0, 2, 3 and 6 octets.
#[test]
fn nat_traversal() {
    let mri = octets("01 00 40 00 c0000201 c6336407");
    let kinds = [Translated(0), Translated(2), Translated(0x8004)];
    let replaced = [&b""[..], b"ab", b"abc", b"abcdef"].map(Replaced);
    let opaque = "0000 0000  0002 6162  0003 616263 000000  0006 616263646566";
    for (count, types, words) in
        [(1, "0000 0000", "000b"), (2, "0000 0002", "000b"), (3, "0000 0002 8004 0000", "000c")]
    {
        let vector = format!("0007 {words} 03 0{count} 04 00 {} {types} {opaque}", hex(&mri));
        let mut m = composed(MessageType::DATA, Direction::Downstream);
        m.nat_traversal = Some(NatTraversal {
            octets: &[],
            original_mri: &mri,
            translated: List::of(&kinds[..count]),
            replaced: List::of(&replaced),
        });
        m.nslp_data = Some(&[0xde, 0xad, 0xbe, 0xef]);
        both_ways(&message(DATA_HEADER, &[&vector, MRI, SID, NLI, DATA]), Encapsulation::Normal, &m);
        assert!(matches!(m.nat_traversal.unwrap().mri(), Some(Mri::LooseEnd(_))));
    }
    assert_eq!(kinds[2].kind(), ObjectType::STACK_CONFIGURATION);
    assert_eq!(kinds[2].extensibility(), signalbox_gist::wire::Extensibility::Forward);
}
