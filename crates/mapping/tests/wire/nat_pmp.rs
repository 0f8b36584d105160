//! NAT-PMP.

use signalbox_mapping::NatPmpError;
use signalbox_mapping::wire::{
    NatPmpMessage, NatPmpOpcode, NatPmpRequest, NatPmpResponse, NatPmpResult, Transport, Version,
};

use crate::support::*;

fn request(octets: &str) -> Result<NatPmpRequest, NatPmpError> {
    NatPmpRequest::parse(&hex(octets))
}

/// NATPMP-3-01, NATPMP-3.2-01, NATPMP-3.3-01: the requests as RFC 6886 draws them.
#[test]
fn requests() {
    assert_eq!(request("0000"), Ok(NatPmpRequest::Address));
    for (transport, opcode, protocol) in [(Transport::Udp, "01", 17), (Transport::Tcp, "02", 6)] {
        let octets = format!("00{opcode}0000 55f0 1f90 00001c20");
        let map =
            NatPmpRequest::Map { transport, internal_port: 22_000, external_port: 8_080, lifetime: 7_200 };
        assert_eq!(request(&octets), Ok(map));
        assert_eq!(composed(|w| map.encode(w)), hex(&octets));
        assert_eq!(transport.protocol(), protocol);
    }
    assert_eq!(composed(|w| NatPmpRequest::Address.encode(w)), hex("0000"));
}

/// NATPMP-3-02, NATPMP-3.2-02, NATPMP-3.3-02, NATPMP-3.5-02: the responses as RFC 6886 draws them.
#[test]
fn responses() {
    let address = "203.0.113.1".parse().unwrap();
    let result = NatPmpResult::SUCCESS;
    let map = |transport| NatPmpResponse::Map {
        transport,
        result: NatPmpResult::OUT_OF_RESOURCES,
        epoch: 258,
        internal_port: 80,
        external_port: 0,
        lifetime: 0,
    };
    for (response, octets) in [
        (NatPmpResponse::Address { result, epoch: 258, address }, "00800000 00000102 cb007101"),
        (map(Transport::Udp), "00810004 00000102 00500000 00000000"),
        (map(Transport::Tcp), "00820004 00000102 00500000 00000000"),
        (NatPmpResponse::UnsupportedVersion { epoch: 258 }, "00000001 00000102"),
    ] {
        assert_eq!(composed(|w| response.encode(w)), hex(octets));
        assert_eq!(NatPmpMessage::parse(&hex(octets)), Ok(NatPmpMessage::Response(response)));
    }
    let asked = NatPmpMessage::parse(&hex("0000"));
    assert_eq!(asked, Ok(NatPmpMessage::Request(NatPmpRequest::Address)));
}

/// NATPMP-3.5-03, NATPMP-3.5-06: responses and requests that end too early are no requests.
#[test]
fn what_is_discarded() {
    for octets in ["0080", "00ff0000 00500000 00000000"] {
        assert_eq!(request(octets), Err(NatPmpError::Direction { response: true }), "{octets}");
    }
    for octets in ["", "00", "00010000 00500000", "00020000 00500000 000000"] {
        assert!(matches!(request(octets), Err(NatPmpError::Short { .. })), "{octets}");
    }
}

/// NATPMP-3.5-04: an unknown opcode is answered by the request with the bit of responses and result 5.
#[test]
fn an_unknown_opcode() {
    let octets = hex("00030000 00500000 00001c20");
    assert_eq!(NatPmpRequest::parse(&octets), Err(NatPmpError::Opcode { found: NatPmpOpcode(3) }));
    let answer = composed(|w| NatPmpResponse::unsupported_opcode(&octets, w));
    assert_eq!(answer, hex("00830005 00500000 00001c20"));
    assert_eq!(composed(|w| NatPmpResponse::unsupported_opcode(&hex("0003"), w)), hex("00830005"));
}

/// NATPMP-3.5-01: the numbers of the results.
#[test]
fn results() {
    let all = (0..6).map(|code| NatPmpResult(code).to_string()).collect::<Vec<_>>();
    let words = [
        "success",
        "unsupported version",
        "not authorized",
        "network failure",
        "out of resources",
        "unsupported opcode",
    ];
    assert_eq!(all, words);
}

/// PCP-9-02, NATPMP-1.1-01: the first octet decides between the protocols.
#[test]
fn the_first_octet_decides() {
    assert_eq!(Version::of(&[]), None);
    assert_eq!(Version::of(&[0, 0]), Some(Version::NatPmp));
    assert!([1, 2, 3, 255].iter().all(|first| Version::of(&[*first, 0]) == Some(Version::Pcp)));
    assert_eq!(request("0200"), Err(NatPmpError::Version { found: 2 }));
}
