//! Requests of strangers and faults.

use crate::rig::*;

/// PCP-8.2-01, PCP-17-01, NATPMP-3.3-08: a request by another interface, to an address of another node, or from a source that is no host, is not
/// answered and asks the path for nothing.
#[test]
fn who_is_not_answered() {
    let mut rig = Rig::new(config());
    let request = Ask::default().octets();
    let pmp = nat_pmp(Transport::Tcp, 80, 0, 600);
    for (ifindex, from, to) in [
        (OUTSIDE, "198.51.100.7:4000", "203.0.113.1"),
        (OUTSIDE, "192.168.1.20:4000", "192.168.1.1"),
        (INSIDE, "192.168.1.20:4000", "192.168.1.99"),
        (INSIDE, "192.168.1.20:4000", "203.0.113.1"),
        (INSIDE, "192.168.1.1:4000", "192.168.1.1"),
        (INSIDE, "203.0.113.1:4000", "192.168.1.1"),
        (INSIDE, "0.0.0.0:4000", "192.168.1.1"),
        (INSIDE, "127.0.0.1:4000", "192.168.1.1"),
        (INSIDE, "224.0.0.1:4000", "192.168.1.1"),
        (INSIDE, "255.255.255.255:4000", "192.168.1.1"),
        (INSIDE, "169.254.1.1:4000", "192.168.1.1"),
        (INSIDE, "240.0.0.1:4000", "192.168.1.1"),
        (INSIDE, "192.168.1.20:0", "192.168.1.1"),
        (INSIDE, "[fe80::9]:4000", "fe80::1"),
    ] {
        for octets in [&request, &pmp] {
            let seen = rig.datagram_by(ifindex, place(from), to, octets);
            assert!(seen.is_empty(), "{from} to {to}: {seen:?}");
        }
    }
    assert_eq!(rig.counters().foreign, 28);
    let from = vec![signalbox_core::node::Prefix { addr: address("192.168.1.0"), len: 28 }];
    let mut rig = Rig::new(Config { from, ..config() });
    assert!(rig.datagram(host(), &request).is_empty(), "not one of those that may ask");
    rig.asked(place("192.168.1.9:4000"), &Ask::default().of(address("192.168.1.9")).octets());
}

/// PCP-8.2-07, PCP-14.1-03: the client address is compared for each opcode, also for one that is unknown.
#[test]
fn another_client_address() {
    let mut rig = Rig::new(config());
    for (opcode, length) in [(0, 24), (1, 60), (2, 80), (3, 60)] {
        let mut octets = Ask::default().of(address("192.168.1.21")).octets();
        octets.resize(length, 0);
        octets[1] = opcode;
        assert_eq!(rig.result(host(), &octets), (ResultCode::ADDRESS_MISMATCH, 1_800), "opcode {opcode}");
    }
    assert_eq!(rig.mapper.len(), 0);
}

/// PCP-8.2-14, PCP-8.2-10: whatever is not to be discarded draws one answer, and nothing of it reaches the path.
#[test]
fn every_fault_draws_one_answer() {
    let mut rig = Rig::new(config());
    let plain = Ask::default().octets();
    let with = |at: usize, value: u8| {
        let mut octets = plain.clone();
        octets[at] = value;
        octets
    };
    for (octets, code) in [
        (with(0, 9), ResultCode::UNSUPP_VERSION),
        (with(1, 9), ResultCode::UNSUPP_OPCODE),
        ([plain.clone(), vec![0]].concat(), ResultCode::MALFORMED_REQUEST),
        (plain[..56].to_vec(), ResultCode::MALFORMED_REQUEST),
        ([plain.clone(), vec![0; 1_044]].concat(), ResultCode::MALFORMED_REQUEST),
        (Ask::default().raw("0300ffff").octets(), ResultCode::MALFORMED_OPTION),
    ] {
        assert_eq!(rig.result(host(), &octets).0, code);
    }
    assert_eq!(rig.mapper.len(), 0);
    assert_eq!(rig.counters().errors_sent, 6);
}

/// PCP-7.4-07: of several errors the most specific one.
#[test]
fn the_most_specific_error() {
    let mut rig = Rig::new(Config { max_of_host: 1, ..config() });
    rig.standing();
    let both = Ask::default().port(1).raw("03000004 00000000").octets();
    assert_eq!(rig.result(host(), &both).0, ResultCode::MALFORMED_OPTION);
}

/// The path answers for mappings that have ended, or were never asked for.
#[test]
fn answers_about_nothing() {
    let mut rig = Rig::new(config());
    let id = rig.standing();
    assert!(rig.handle(Input::Opened { id, result: Err(Failure::NoPath) }).is_empty(), "nothing was asked");
    let inside = Inside { client: host().ip(), protocol: 6, port: 22_000 };
    rig.handle(Input::Command { id: 1, command: Command::Clear(inside) });
    for id in [id, MappingId(u64::MAX)] {
        assert!(rig.handle(Input::Opened { id, result: Ok(place("203.0.113.1:1")) }).is_empty());
        assert!(rig.handle(Input::Changed { id, change: Change::Lost }).is_empty());
    }
    assert_eq!(rig.mapper.len(), 0);
}

/// PCP-8.2-01: a host behind another served interface does not speak for a host of this one.
#[test]
fn a_host_behind_another_interface() {
    let mut rig = Rig::new(Config { interfaces: vec!["lan".to_owned(), "wan".to_owned()], ..config() });
    let (id, _) = rig.asked(host(), &nat_pmp(Transport::Tcp, 80, 0, 600));
    rig.opened(id, Ok("203.0.113.1:7000"));
    rig.standing();
    for octets in [
        nat_pmp(Transport::Tcp, 80, 0, 0),
        nat_pmp(Transport::Tcp, 80, 0, 600),
        Ask::default().octets(),
        Ask::default().lifetime(0).octets(),
    ] {
        assert!(rig.datagram_by(OUTSIDE, host(), "203.0.113.1", &octets).is_empty());
    }
    assert_eq!(rig.datagram_by(OUTSIDE, host(), "203.0.113.1", &nat_pmp(Transport::Tcp, 0, 0, 0)).len(), 1);
    assert_eq!(rig.mapper.len(), 2);
}
