//! NAT-PMP.

use core::net::Ipv4Addr;
use core::time::Duration;

use crate::rig::*;

fn response(octets: &[u8]) -> NatPmpResponse {
    NatPmpResponse::parse(octets).unwrap()
}

/// Result, external port and lifetime of an answer about a mapping.
fn mapped(octets: &[u8]) -> (NatPmpResult, u16, u32) {
    match response(octets) {
        NatPmpResponse::Map { result, external_port, lifetime, .. } => (result, external_port, lifetime),
        other => panic!("{other:?}"),
    }
}

/// NATPMP-3.2-03, NATPMP-3.2-04: the address is that of the outermost NAT, or an error without an address.
#[test]
fn the_external_address() {
    let mut rig = Rig::new(config());
    let NatPmpResponse::Address { result, address, .. } = response(&rig.answer(host(), &[0, 0])) else {
        panic!()
    };
    assert_eq!((result, address), (NatPmpResult::SUCCESS, Ipv4Addr::new(203, 0, 113, 1)));
    rig.handle(Input::Outside(None));
    let NatPmpResponse::Address { result, address, .. } = response(&rig.answer(host(), &[0, 0])) else {
        panic!()
    };
    assert_eq!((result, address), (NatPmpResult::NETWORK_FAILURE, Ipv4Addr::UNSPECIFIED));
}

/// NATPMP-3.3-03, NATPMP-3.3-05, NATPMP-3.3-06, NATPMP-3.3-09: a mapping for one transport, with the port that the path gave.
#[test]
fn a_mapping() {
    let mut rig = Rig::new(config());
    let (id, wanted) = rig.asked(host(), &nat_pmp(Transport::Udp, 5_000, 6_000, 7_200));
    assert_eq!(wanted.inside, Inside { client: host().ip(), protocol: 17, port: 5_000 });
    assert_eq!((wanted.wish, wanted.exactly), (place("0.0.0.0:6000"), false));
    let answer = rig.opened(id, Ok("203.0.113.1:6001"));
    assert_eq!(mapped(&answer), (NatPmpResult::SUCCESS, 6_001, 7_200));
    let (id, _) = rig.asked(host(), &nat_pmp(Transport::Tcp, 5_000, 0, 1));
    assert_eq!(mapped(&rig.opened(id, Ok("203.0.113.1:7000"))), (NatPmpResult::SUCCESS, 7_000, 1));
    assert_eq!(rig.wait(Duration::from_secs(2)).len(), 1, "closed after a second");
    let (id, _) = rig.asked(host(), &nat_pmp(Transport::Tcp, 5_000, 0, u32::MAX));
    assert_eq!(mapped(&rig.opened(id, Ok("203.0.113.1:7000"))).2, 86_400);
}

/// NATPMP-3.5-05, NATPMP-3.4-04: an error has external port and lifetime 0, and repeats the internal port.
#[test]
fn errors() {
    let mut rig = Rig::new(config());
    for (failure, result) in [
        (Failure::NotAllowed, NatPmpResult::NOT_AUTHORIZED),
        (Failure::NoPath, NatPmpResult::NETWORK_FAILURE),
        (Failure::Quota, NatPmpResult::OUT_OF_RESOURCES),
        (Failure::NoResources, NatPmpResult::OUT_OF_RESOURCES),
    ] {
        let (id, _) = rig.asked(host(), &nat_pmp(Transport::Udp, 5_000, 0, 60));
        let answer = rig.opened(id, Err(failure));
        assert_eq!(mapped(&answer), (result, 0, 0));
        assert_eq!(answer[8..10], 5_000_u16.to_be_bytes());
    }
}

/// NATPMP-3.3-07: a mapping that exists is returned, whatever is suggested.
#[test]
fn a_mapping_that_exists_is_returned() {
    let mut rig = Rig::new(config());
    let (id, _) = rig.asked(host(), &nat_pmp(Transport::Tcp, 80, 0, 600));
    rig.opened(id, Ok("203.0.113.1:7000"));
    let answer = rig.answer(host(), &nat_pmp(Transport::Tcp, 80, 1234, 900));
    assert_eq!(mapped(&answer), (NatPmpResult::SUCCESS, 7_000, 900));
}

/// A mapping of PCP is returned as it is, and NAT-PMP cannot end or shorten it; PCP takes over one of NAT-PMP.
#[test]
fn a_nonce_is_not_passed_by() {
    let mut rig = Rig::new(config());
    rig.standing();
    rig.wait(Duration::from_secs(600));
    let answer = rig.answer(host(), &nat_pmp(Transport::Tcp, 22_000, 0, 10));
    assert_eq!(mapped(&answer), (NatPmpResult::SUCCESS, 50_000, 3_000));
    let answer = rig.answer(host(), &nat_pmp(Transport::Tcp, 22_000, 0, 0));
    assert_eq!(mapped(&answer), (NatPmpResult::NOT_AUTHORIZED, 0, 0));

    let (id, _) = rig.asked(host(), &nat_pmp(Transport::Tcp, 80, 0, 600));
    rig.opened(id, Ok("203.0.113.1:7000"));
    assert_eq!(rig.result(host(), &Ask::default().port(80).octets()), (ResultCode::SUCCESS, 3_600));
    let answer = rig.answer(host(), &nat_pmp(Transport::Tcp, 80, 0, 0));
    assert_eq!(mapped(&answer).0, NatPmpResult::NOT_AUTHORIZED);
}

/// NATPMP-3.4-02, NATPMP-3.4-03, NATPMP-3.4-05, NATPMP-3.4-06: one mapping, nothing, and all of a host and transport are deleted; those of other
/// hosts stay.
#[test]
fn deletions() {
    let mut rig = Rig::new(config());
    let other = place("192.168.1.30:40000");
    for (from, transport, port) in [
        (host(), Transport::Tcp, 1),
        (host(), Transport::Tcp, 2),
        (host(), Transport::Udp, 3),
        (other, Transport::Tcp, 1),
    ] {
        let (id, _) = rig.asked(from, &nat_pmp(transport, port, 0, 600));
        rig.opened(id, Ok("203.0.113.1:7000"));
    }
    let seen = rig.datagram(host(), &nat_pmp(Transport::Tcp, 1, 99, 0));
    let [Seen::Close(_), Seen::Datagram { octets, .. }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(mapped(octets), (NatPmpResult::SUCCESS, 0, 0));
    assert_eq!(mapped(&rig.answer(host(), &nat_pmp(Transport::Tcp, 1, 0, 0))), (NatPmpResult::SUCCESS, 0, 0));

    rig.wait(Duration::from_secs(1));
    rig.standing();
    let seen = rig.datagram(host(), &nat_pmp(Transport::Tcp, 0, 0, 0));
    let [Seen::Close(_), Seen::Datagram { octets, .. }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(mapped(octets), (NatPmpResult::NOT_AUTHORIZED, 0, 0), "that of PCP is left");
    let mut left: Vec<_> = rig.mapper.mappings().map(|one| (one.inside.client, one.inside.port)).collect();
    left.sort();
    assert_eq!(left, [(host().ip(), 3), (host().ip(), 22_000), (other.ip(), 1)]);
}

/// NATPMP-3.5-04: an unknown opcode. NATPMP-3.5-03, NATPMP-3.5-06: what is discarded.
#[test]
fn opcodes() {
    let mut rig = Rig::new(config());
    assert_eq!(rig.answer(host(), &[0, 3, 0, 0, 9, 9]), [0, 131, 0, 5, 9, 9]);
    for octets in [&[0, 128][..], &[0, 255, 0, 0], &[0, 1, 0, 0, 1, 1, 1, 1], &[0]] {
        assert!(rig.datagram(host(), octets).is_empty(), "{octets:?}");
    }
    assert_eq!(rig.counters().malformed, 4);
}

/// NATPMP-3.8-01, NATPMP-3.8-02, PCP-9-02, NATPMP-3.5-02, NATPMP-5-01, PCP-11-01: a node that translates nothing has no NAT-PMP, not even an error of it; where
/// one protocol is off, the other one says so.
#[test]
fn a_protocol_that_is_off() {
    let request = nat_pmp(Transport::Tcp, 80, 0, 600);
    for config in [Config { translates: false, ..config() }, Config { nat_pmp: false, ..config() }] {
        let mut rig = Rig::new(config);
        let answer = rig.answer(host(), &request);
        assert_eq!(answer[..4], [2, 0x82, 0, 1], "UNSUPP_VERSION of PCP");
    }
    let mut rig = Rig::new(Config { translates: false, pcp: false, ..config() });
    assert!(rig.datagram(host(), &request).is_empty());
    let mut rig = Rig::new(Config { pcp: false, ..config() });
    let answer = rig.answer(host(), &Ask::default().octets());
    assert_eq!((answer.len(), &answer[..4]), (8, &[0, 0, 0, 1][..]));
}
