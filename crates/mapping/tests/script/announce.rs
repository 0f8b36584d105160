//! Announcements to all hosts.

use core::net::Ipv4Addr;
use core::time::Duration;

use crate::rig::*;

/// Destination, octets and interface of datagrams.
fn datagrams(seen: impl IntoIterator<Item = Seen>) -> Vec<(String, Vec<u8>)> {
    let one = |seen| match seen {
        Seen::Datagram { to, octets, ifindex, .. } => {
            assert_eq!(ifindex, Some(INSIDE), "PCP-14.1.3-04, NATPMP-3.2.1-03: at no other interface");
            (to.to_string(), octets)
        }
        other => panic!("{other:?}"),
    };
    seen.into_iter().map(one).collect()
}

/// PCP-14.1.3-01, PCP-14.1.3-02, PCP-14.1.3-03, PCP-14.1.3-04, PCP-14-01, PCP-14.1-04, NATPMP-3.2.1-01, NATPMP-3.2.1-02, PCP-8.5-02: ten packets from a moment after a start on, 250 ms and
/// then twice as long apart, with the epoch of their time, by each IP version.
#[test]
fn ten_packets_after_a_start() {
    let mut rig = Rig { mapper: Mapper::new(config(), [1; 32]), now: signalbox_core::Time::from_secs(5_000) };
    let lan = interface(INSIDE, "lan", &["192.168.1.1", "2001:db8:1::1", "fe80::1"]);
    let wan = interface(OUTSIDE, "wan", &["203.0.113.1"]);
    let start = rig.now;
    assert_eq!(rig.handle(Input::Interfaces(&[lan, wan])), [], "its predecessor may have left its mappings");
    rig.now = rig.now + Duration::from_millis(250);
    let first = datagrams(rig.handle(Input::Timer));
    let ends: Vec<_> = first.iter().map(|(to, octets)| (to.as_str(), octets[..4].to_vec())).collect();
    let announce = vec![2, 0x80, 0, 0];
    assert_eq!(ends, [("224.0.0.1:5350", announce.clone()), ("[ff02::1]:5350", announce)]);
    // The address outside is known a moment later: the announcement begins again with it.
    let again = datagrams(rig.handle(Input::Outside(Some(Ipv4Addr::new(203, 0, 113, 1)))));
    assert_eq!(again.len(), 3);
    assert_eq!(again[1].0, "224.0.0.1:5350");
    assert_eq!(again[1].1, [0, 128, 0, 0, 0, 0, 0, 0, 203, 0, 113, 1]);
    let rest = rig.wait(Duration::from_secs(1_000));
    let mut times: Vec<_> = rest.iter().map(|(at, _)| at.since(start).as_millis()).collect();
    times.dedup();
    assert_eq!(times, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000]);
    for (at, one) in &rest {
        let Seen::Datagram { octets, .. } = one else { panic!("{one:?}") };
        let epoch = if octets[0] == 2 { &octets[8..12] } else { &octets[4..8] };
        let seconds = u32::try_from(at.since(start).as_secs()).unwrap();
        assert_eq!(epoch, seconds.to_be_bytes());
    }
}

/// PCP-8.5-03, NATPMP-3.2.1-01: another address outside resets the epoch and is announced; the same one again is not.
#[test]
fn another_address_outside() {
    let mut rig = Rig::new(config());
    let address = |last| Input::Outside(Some(Ipv4Addr::new(203, 0, 113, last)));
    assert!(rig.handle(Input::Outside(None)).is_empty());
    assert!(rig.handle(address(1)).is_empty(), "as before");
    let seen = datagrams(rig.handle(address(9)));
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().any(|(_, octets)| octets[..] == [0, 128, 0, 0, 0, 0, 0, 0, 203, 0, 113, 9]));
}

/// NATPMP-3.2.1-03, NATPMP-3.8-01: a node that translates nothing announces nothing of NAT-PMP; what is off announces nothing.
#[test]
fn what_is_off_announces_nothing() {
    let mut rig = Rig::silent(Config { translates: false, ..config() });
    let outside = || Input::Outside(Some(Ipv4Addr::new(203, 0, 113, 1)));
    assert_eq!(rig.handle(outside()), [], "it is announced with the start");
    let seen = rig.wait(Duration::from_millis(250)).into_iter().map(|(_, seen)| seen);
    let seen = datagrams(seen);
    assert!(!seen.is_empty() && seen.iter().all(|(_, octets)| octets[0] == 2));
    let mut rig = Rig::silent(Config { pcp: false, ..config() });
    rig.handle(outside());
    let seen = datagrams(rig.wait(Duration::from_millis(250)).into_iter().map(|(_, seen)| seen));
    assert_eq!(seen.len(), 1);
}
