//! Requests and responses of PCP.

use core::net::{IpAddr, SocketAddr};

use signalbox_mapping::wire::{
    Body, Header, MAX_OCTETS, Map, Opcode, Options, Request, Response, ResultCode, refusal,
};
use signalbox_mapping::{Answer, DecodeError};

use crate::support::*;

fn refused(octets: &[u8]) -> Answer {
    Request::parse(octets).unwrap_err().answer()
}

fn client() -> IpAddr {
    "192.0.2.1".parse().unwrap()
}

/// PCP-5-02, PCP-7.1-01, PCP-11.1-01, PCP-11.1-03: a MAP request as RFC 6887 draws it, read and composed.
#[test]
fn a_map_request() {
    let octets = map();
    assert_eq!(octets.len(), 60);
    let request = Request::parse(&octets).unwrap();
    assert_eq!((request.lifetime, request.client), (3_600, client()));
    let map = Map {
        nonce: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        protocol: 6,
        internal_port: 80,
        external: "203.0.113.9:8080".parse().unwrap(),
    };
    assert_eq!(request.body, Body::Map(map));
    assert!(request.options.is_empty());
    assert_eq!(composed(|w| request.encode(w)), octets);
}

/// PCP-12.1-01: PEER has 80 octets, the remote peer behind the part of MAP.
#[test]
fn a_peer_request_and_its_response() {
    let octets = [header(2, 60), hex(MAP), hex(REMOTE)].concat();
    assert_eq!(octets.len(), 80);
    let request = Request::parse(&octets).unwrap();
    let Body::Peer(peer) = request.body else { panic!("{:?}", request.body) };
    assert_eq!(peer.remote, "198.51.100.7:443".parse().unwrap());
    assert_eq!((peer.map.internal_port, peer.map.protocol), (80, 6));
    assert_eq!(composed(|w| request.encode(w)), octets);

    let options = Options::default();
    let response =
        Response { result: ResultCode::SUCCESS, lifetime: 60, epoch: 5, body: request.body, options };
    let answer = composed(|w| response.encode(w));
    assert_eq!(answer[24..], octets[24..], "protocol, ports, addresses and nonce are those of the request");
    assert_eq!(answer[..12], hex("02820000 0000003c 00000005"));
    assert_eq!(Response::parse(&answer), Ok(response));
}

/// PCP-14.1-01, PCP-7.2-01, PCP-7.2-02, PCP-7.2-03: ANNOUNCE is the header alone; a response has version 2, the bit of responses, the
/// opcode, and zeros in its reserved octets.
#[test]
fn an_announcement() {
    let request = Request::parse(&hex("02000000 00000000 00000000 00000000 0000ffff c0000201"))
        .map(|request| request.body);
    assert_eq!(request, Ok(Body::Announce));
    let options = Options::default();
    let response = Response {
        result: ResultCode::SUCCESS,
        lifetime: 0,
        epoch: 0x0102_0304,
        body: Body::Announce,
        options,
    };
    let octets = composed(|w| response.encode(w));
    assert_eq!(octets, hex("02800000 00000000 01020304 000000000000000000000000"));
    assert_eq!(Response::parse(&octets), Ok(response));
}

/// PCP-11.1-02, PCP-7.2-05, PCP-7.2-06: the response to a MAP has the assigned place where the request has its wish, and the lifetime of
/// the mapping and the epoch in the header, in error responses, too.
#[test]
fn a_map_response() {
    let Body::Map(map) = Request::parse(&map()).unwrap().body else { unreachable!() };
    let external: SocketAddr = "203.0.113.1:40000".parse().unwrap();
    for (result, lifetime) in [(ResultCode::SUCCESS, 120), (ResultCode::NO_RESOURCES, 30)] {
        let body = Body::Map(Map { external, ..map });
        let response = Response { result, lifetime, epoch: 7, body, options: Options::default() };
        let octets = composed(|w| response.encode(w));
        let head = format!("028100{:02x} {lifetime:08x} 00000007 000000000000000000000000", result.0);
        let rest = "0102030405060708090a0b0c 06000000 0050 9c40 00000000000000000000ffffcb007101";
        assert_eq!(octets, hex(&format!("{head}{rest}")));
        assert_eq!(Response::parse(&octets), Ok(response));
    }
}

/// PCP-5-01, PCP-5-03, PCP-5-04: an IPv6 address stands as it is, all 96 bits decide whether an address is IPv4-mapped, and no wish has a form
/// in each IP version.
#[test]
fn addresses_have_sixteen_octets() {
    let read = |address: &str| {
        let mut octets = map();
        octets.splice(44.., hex(address));
        let request = Request::parse(&octets).unwrap();
        let again = composed(|w| request.encode(w));
        assert_eq!(again, octets, "{address}");
        let Body::Map(map) = request.body else { unreachable!() };
        map.external.ip().to_string()
    };
    assert_eq!(read("20010db8 00000000 00000000 00000001"), "2001:db8::1");
    assert_eq!(read("00000000 00000000 0000ffff c0000201"), "192.0.2.1");
    assert_eq!(read("00000000 00010000 0000ffff c0000201"), "::1:0:0:ffff:c000:201");
    assert_eq!(read("00000000 00000000 00000000 00000000"), "::");
    assert_eq!(read("00000000 00000000 0000ffff 00000000"), "0.0.0.0");
}

/// PCP-7.1-02: reserved octets of a request say nothing.
#[test]
fn reserved_octets_are_ignored() {
    let plain = map();
    let mut octets = map();
    octets[2..4].copy_from_slice(&[0xff, 0xff]);
    octets[37..40].copy_from_slice(&[0xff, 0xff, 0xff]);
    assert_eq!(Request::parse(&octets), Request::parse(&plain));
    let mut peer = [header(2, 60), hex(MAP), hex(REMOTE)].concat();
    let before = Request::parse(&peer).unwrap().body;
    peer[62..64].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(Request::parse(&peer).unwrap().body, before);
}

/// PCP-8.2-02, PCP-8.2-03, PCP-8.2-05: what is discarded: less than two octets, responses, and version 2 with less than a header.
#[test]
fn what_a_server_discards() {
    for length in [0, 1] {
        assert_eq!(refused(&map()[..length]), Answer::Discard, "{length} octets");
        assert_eq!(refused(&[9; 2][..length]), Answer::Discard, "{length} octets of another version");
    }
    for length in 2..24 {
        assert_eq!(refused(&map()[..length]), Answer::Discard, "{length} octets");
    }
    for opcode in [0, 1, 2, 3, 127] {
        let mut octets = map();
        octets[1] = opcode | 0x80;
        assert_eq!(refused(&octets), Answer::Discard, "a response of opcode {opcode}");
        octets[0] = 9;
        assert_eq!(refused(&octets), Answer::Discard, "a response of version 9");
    }
}

/// PCP-8.2-04, PCP-9-01, PCP-9-03: another version is looked at before the length, and the answer has version 2.
#[test]
fn another_version_is_refused() {
    for version in [1, 3, 9, 255] {
        for length in [2, 24, 60, 61] {
            let mut octets = map();
            octets.push(0);
            octets[0] = version;
            octets.truncate(length);
            assert_eq!(
                refused(&octets),
                Answer::Refuse(ResultCode::UNSUPP_VERSION),
                "version {version}, {length} octets"
            );
            let answer = composed(|w| refusal(&octets, false, ResultCode::UNSUPP_VERSION, 1_800, 3, w));
            assert_eq!(answer.len(), length.next_multiple_of(4).max(24));
            assert_eq!(answer[..4], [2, 0x81, 0, 1]);
        }
    }
}

/// PCP-8.2-06, PCP-8.2-10: sizes that no message has, an opcode without its octets, and an unknown opcode.
#[test]
fn sizes_and_opcodes_that_are_refused() {
    let malformed = Answer::Refuse(ResultCode::MALFORMED_REQUEST);
    for length in [56, 61, 25] {
        let octets = [map(), vec![0; 8]].concat();
        assert_eq!(refused(&octets[..length]), malformed, "MAP with {length} octets");
    }
    let mut long = map();
    long.resize(MAX_OCTETS + 4, 0);
    assert_eq!(refused(&long), malformed, "1,104 octets");
    let peer = [header(2, 60), hex(MAP), hex(REMOTE)].concat();
    assert_eq!(refused(&peer[..76]), malformed, "PEER with 76 octets");
    let unknown = [header(3, 0), vec![7; 40]].concat();
    assert_eq!(refused(&unknown), Answer::Refuse(ResultCode::UNSUPP_OPCODE));
    assert_eq!(
        Header::parse(&unknown).unwrap().opcode,
        Opcode(3),
        "the header is there for the check of the address"
    );
}

/// PCP-8.2-08: of two faults the one that comes first in the order of RFC 6887 §8.2 is named.
#[test]
fn faults_have_an_order() {
    let mut octets = map();
    octets.push(0);
    octets[1] = 3;
    assert_eq!(refused(&octets), Answer::Refuse(ResultCode::MALFORMED_REQUEST), "size before opcode");
    octets[0] = 3;
    assert_eq!(refused(&octets), Answer::Refuse(ResultCode::UNSUPP_VERSION), "version before size");
    octets[1] |= 0x80;
    assert_eq!(refused(&octets), Answer::Discard, "direction before version");
    let mut octets = map_with("03000013 00");
    octets.extend([0; 3]);
    octets[1] = 3;
    assert_eq!(refused(&octets), Answer::Refuse(ResultCode::UNSUPP_OPCODE), "opcode before options");
}

/// PCP-7.2-04, PCP-8.2-11, PCP-7.3-05: an error response is a copy of the request behind its header, whole words, at most 1,100 octets;
/// what could not be parsed keeps 12 octets of the client address.
#[test]
fn an_error_response_is_a_copy_of_the_request() {
    let short = &map()[..40];
    let answer = composed(|w| refusal(short, false, ResultCode::MALFORMED_REQUEST, 1_800, 9, w));
    assert_eq!(answer[..12], hex("02810003 00000708 00000009"));
    assert_eq!(answer[12..], short[12..]);
    let odd = [map(), vec![0xee]].concat();
    let answer = composed(|w| refusal(&odd, false, ResultCode::MALFORMED_REQUEST, 1_800, 9, w));
    assert_eq!((answer.len(), &answer[60..]), (64, &[0xee, 0, 0, 0][..]));
    let long = [map(), vec![0xdd; 2_000]].concat();
    let answer = composed(|w| refusal(&long, false, ResultCode::MALFORMED_REQUEST, 1_800, 9, w));
    assert_eq!(answer.len(), MAX_OCTETS);
    assert_eq!(answer[24..], long[24..MAX_OCTETS]);
    let whole = map_with("c8000001 aa000000");
    let answer = composed(|w| refusal(&whole, true, ResultCode::NO_RESOURCES, 30, 9, w));
    assert_eq!(answer[12..24], [0; 12], "the request could be read");
    assert_eq!(answer[24..], whole[24..]);
}

/// PCP-7.4-01, PCP-7.4-02, PCP-7.4-03, PCP-7.4-06: the numbers of the codes, and how long errors last.
#[test]
fn result_codes() {
    let short = [ResultCode::NETWORK_FAILURE, ResultCode::NO_RESOURCES, ResultCode::USER_EX_QUOTA];
    assert_eq!(short.map(|code| code.0), [7, 8, 10]);
    assert!(short.iter().all(|code| code.usual_lifetime() == 30));
    for code in [1, 2, 3, 4, 5, 6, 9, 12, 13] {
        assert!(ResultCode(code).name().is_some(), "{code}");
        assert_eq!(ResultCode(code).usual_lifetime(), 1_800, "{code}");
    }
    assert_eq!(ResultCode::SUCCESS.0, 0);
    let unknown = hex("028000c8 00000708 00000001 000000000000000000000000");
    assert_eq!(
        Response::parse(&unknown).map(|response| response.result),
        Ok(ResultCode(200)),
        "an error too"
    );
}

#[test]
fn a_request_is_no_response() {
    assert_eq!(Response::parse(&map()), Err(DecodeError::Direction { response: false }));
}
