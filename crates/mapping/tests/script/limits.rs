//! Shares of hosts.

use core::time::Duration;

use crate::rig::*;

fn ask_of(host: u8, port: u16) -> (core::net::SocketAddr, Vec<u8>) {
    let from = place(&format!("192.168.1.{host}:40000"));
    (from, Ask::default().of(from.ip()).port(port).octets())
}

/// PCP-11.3-18: a host has so many mappings, and can still renew them.
#[test]
fn mappings_of_a_host() {
    let mut rig = Rig::new(Config { max_of_host: 3, ..config() });
    for port in 1..=3 {
        let (from, octets) = ask_of(20, port);
        let (id, _) = rig.asked(from, &octets);
        rig.opened(id, Ok("203.0.113.1:50000"));
    }
    let (from, octets) = ask_of(20, 4);
    assert_eq!(rig.result(from, &octets), (ResultCode::USER_EX_QUOTA, 30));
    let (from, octets) = ask_of(20, 1);
    assert_eq!(rig.result(from, &octets), (ResultCode::SUCCESS, 3_600));
    let (from, octets) = ask_of(21, 1);
    rig.asked(from, &octets);
}

/// Requests of a host that wait for the path are few, so that one host does not flood the path.
#[test]
fn requests_that_wait() {
    let mut rig = Rig::new(config());
    for port in 1..=4 {
        let (from, octets) = ask_of(20, port);
        rig.asked(from, &octets);
    }
    let (from, octets) = ask_of(20, 5);
    assert_eq!(rig.result(from, &octets), (ResultCode::USER_EX_QUOTA, 30));
}

/// A table that few hosts fill has places for others.
#[test]
fn a_full_table_has_places_for_hosts_with_few() {
    let mut rig = Rig::new(Config {
        max_mappings: 256,
        max_of_host: 256,
        max_waiting: 256,
        open_rate: 0,
        host_open_rate: 0,
        ..config()
    });
    let mut refused = 0;
    for port in 1..=256 {
        let (from, octets) = ask_of(20, port);
        match &rig.datagram(from, &octets)[..] {
            [Seen::Open(..)] => {}
            [Seen::Datagram { octets, .. }] => {
                assert_eq!(ResultCode(octets[3]), ResultCode::NO_RESOURCES);
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
        rig.wait(Duration::from_millis(20));
    }
    assert!(refused >= 64, "{refused}");
    let (from, octets) = ask_of(21, 1);
    rig.asked(from, &octets);
}

/// PCP-8.2-09: a host that floods is not answered, and an honest one is.
#[test]
fn a_flood_of_one_host() {
    let mut rig = Rig::new(config());
    let (from, octets) = ask_of(20, 1);
    let mut answered = 0;
    for _ in 0..10_000 {
        answered += rig.datagram(from, &octets).len();
    }
    assert!(answered <= 26, "{answered}");
    assert!(rig.counters().rate >= 9_900);
    let (from, octets) = ask_of(21, 1);
    rig.asked(from, &octets);
}

/// PCP-13.2-06: PREFER_FAILURE cannot be used to try all ports.
#[test]
fn trying_all_ports() {
    let mut rig = Rig::new(config());
    let mut asked = 0;
    for port in 1..1_000 {
        let ask = Ask::default().port(port).wish(&format!("203.0.113.1:{port}")).option(Known::PreferFailure);
        for seen in rig.datagram(host(), &ask.octets()) {
            let Seen::Open(id, _) = seen else { continue };
            asked += 1;
            rig.opened(id, Err(Failure::Taken));
        }
        rig.wait(Duration::from_millis(10));
    }
    assert!((8..=90).contains(&asked), "{asked} in 10 s");
}

/// A host that makes and deletes mappings does not flood the path.
#[test]
fn mappings_that_come_and_go() {
    let mut rig = Rig::new(config());
    let mut asked = 0;
    for _ in 0..500 {
        for ask in [Ask::default(), Ask::default().lifetime(0)] {
            asked += rig
                .datagram(host(), &ask.octets())
                .iter()
                .filter(|seen| matches!(seen, Seen::Open(..)))
                .count();
        }
        rig.wait(Duration::from_millis(20));
    }
    assert!((100..=210).contains(&asked), "asked {asked} times in 10 s");
}
