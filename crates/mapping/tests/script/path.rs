//! What becomes of mappings on the path.

use core::time::Duration;

use crate::rig::*;

fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn datagrams(seen: &[(signalbox_core::Time, Seen)]) -> Vec<(signalbox_core::Time, Vec<u8>)> {
    let octets = |one: &(signalbox_core::Time, Seen)| match &one.1 {
        Seen::Datagram { octets, .. } => Some((one.0, octets.clone())),
        Seen::Open(..) | Seen::Close(_) | Seen::Event(..) => None,
    };
    seen.iter().filter_map(octets).collect()
}

/// PCP-7.4-05, PCP-7.4-03: each failure of the path has its code; a plain MAP never gets CANNOT_PROVIDE_EXTERNAL from this node.
#[test]
fn failures_of_the_path() {
    let mut rig = Rig::new(config());
    for (failure, code, lifetime) in [
        (Failure::NoResources, ResultCode::NO_RESOURCES, 30),
        (Failure::Quota, ResultCode::USER_EX_QUOTA, 30),
        (Failure::NotAllowed, ResultCode::NOT_AUTHORIZED, 1_800),
        (Failure::NoPath, ResultCode::NETWORK_FAILURE, 30),
        (Failure::Protocol, ResultCode::UNSUPP_PROTOCOL, 1_800),
        (Failure::Filters, ResultCode::EXCESSIVE_REMOTE_PEERS, 1_800),
    ] {
        let request = Ask::default().octets();
        let (id, _) = rig.asked(host(), &request);
        let answer = rig.opened(id, Err(failure));
        assert_eq!(
            (ResultCode(answer[3]), answer[4..8].to_vec()),
            (code, u32::to_be_bytes(lifetime).to_vec())
        );
        assert_eq!(answer[24..], request[24..], "a copy of the request");
        assert_eq!(rig.mapper.len(), 0);
        rig.wait(second(1));
    }
    assert_eq!(rig.counters().refused, 6);
}

/// A path that does not answer: NETWORK_FAILURE after 10 s, and nothing stays open.
#[test]
fn a_path_that_does_not_answer() {
    let mut rig = Rig::new(config());
    let (id, _) = rig.asked(host(), &Ask::default().octets());
    let seen = rig.wait(second(11));
    let [(_, Seen::Close(closed)), (at, Seen::Datagram { octets, .. })] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!((*closed, ResultCode(octets[3])), (id, ResultCode::NETWORK_FAILURE));
    assert_eq!(rig.now.since(*at), second(1));
    assert!(rig.handle(Input::Opened { id, result: Ok(place("203.0.113.1:1")) }).is_empty(), "too late");
}

/// A mapping that the path lost is asked for with its old place. If it comes back there, its host is told nothing.
#[test]
fn a_lost_mapping_is_repaired_in_silence() {
    let mut rig = Rig::new(config());
    let id = rig.standing();
    let seen = rig.handle(Input::Changed { id, change: Change::Lost });
    let [Seen::Open(again, wanted)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((*again, wanted.wish, wanted.exactly), (id, place("203.0.113.1:50000"), false));
    assert_eq!(rig.mapper.mappings().next().unwrap().state, State::Repairing);
    assert!(rig.handle(Input::Changed { id, change: Change::Lost }).is_empty(), "one question at a time");
    assert!(rig.handle(Input::Opened { id, result: Ok(place("203.0.113.1:50000")) }).is_empty());
    assert_eq!(rig.counters().repaired, 1);
    assert_eq!(rig.mapper.mappings().next().unwrap().state, State::Standing);
}

/// PCP-14.2-01, PCP-14.2-02, PCP-14.2-04: another place: three Mapping Updates, 250 and 500 ms apart, to where the last answer went, with the
/// filters.
#[test]
fn another_place_is_told() {
    let mut rig = Rig::new(config());
    let (id, _) = rig.asked(host(), &Ask::default().option(filter("192.0.2.0/24", 9)).octets());
    rig.opened(id, Ok("203.0.113.1:50000"));
    rig.handle(Input::Changed { id, change: Change::Lost });
    let start = rig.now;
    let first = rig.handle(Input::Opened { id, result: Ok(place("203.0.113.9:50001")) });
    let [Seen::Datagram { to, octets, .. }] = &first[..] else { panic!("{first:?}") };
    assert_eq!(*to, host());
    let response = Response::parse(octets).unwrap();
    let Body::Map(map) = response.body else { panic!("{response:?}") };
    assert_eq!((map.external, map.nonce, response.lifetime), (place("203.0.113.9:50001"), NONCE, 3_600));
    assert_eq!(response.options.iter().count(), 1);
    let more = datagrams(&rig.wait(second(60)));
    let times: Vec<_> = more.iter().map(|(at, _)| at.since(start).as_millis()).collect();
    assert_eq!(times, [250, 750]);
    assert!(more.iter().all(|(_, octets)| octets[24..] == response_octets(&first)[24..]));
    assert_eq!(rig.counters().updates_sent, 3);
}

fn response_octets(seen: &[Seen]) -> &[u8] {
    match &seen[0] {
        Seen::Datagram { octets, .. } => octets,
        other => panic!("{other:?}"),
    }
}

/// PCP-14.2-04: the updates end when the host has renewed.
#[test]
fn a_renewal_ends_the_updates() {
    let mut rig = Rig::new(config());
    let id = rig.standing();
    assert_eq!(rig.handle(Input::Changed { id, change: Change::Moved(place("203.0.113.9:1")) }).len(), 1);
    let octets = rig.answer(host(), &Ask::default().octets());
    let Body::Map(map) = Response::parse(&octets).unwrap().body else { panic!() };
    assert_eq!(map.external, place("203.0.113.9:1"));
    assert!(rig.wait(second(60)).is_empty());
}

/// PCP-14.2-03: after PREFER_FAILURE another place is an error, and the mapping ends.
#[test]
fn another_place_after_prefer_failure() {
    let mut rig = Rig::new(config());
    let ask = Ask::default().wish("203.0.113.1:80").option(Known::PreferFailure);
    let (id, _) = rig.asked(host(), &ask.octets());
    rig.opened(id, Ok("203.0.113.1:80"));
    let seen = rig.handle(Input::Changed { id, change: Change::Moved(place("203.0.113.1:81")) });
    let [Seen::Datagram { octets, .. }, Seen::Close(_)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(ResultCode(octets[3]), ResultCode::CANNOT_PROVIDE_EXTERNAL);
    assert_eq!(rig.mapper.len(), 0);
}

/// A mapping that the path does not give again: it is asked for each 5 s, and its host is told after 30 s.
#[test]
fn a_mapping_that_is_lost_for_good() {
    let mut rig = Rig::new(config());
    let id = rig.standing();
    rig.handle(Input::Changed { id, change: Change::Lost });
    let start = rig.now;
    let mut asked = 1;
    while !rig.mapper.is_empty() && rig.now.since(start) < second(40) {
        rig.handle(Input::Opened { id, result: Err(Failure::NoPath) });
        let seen = rig.wait(second(5));
        for (at, one) in seen {
            match one {
                Seen::Open(..) => asked += 1,
                Seen::Datagram { octets, .. } => {
                    assert_eq!(at.since(start), second(30));
                    assert_eq!(
                        (ResultCode(octets[3]), &octets[4..8]),
                        (ResultCode::NETWORK_FAILURE, &[0, 0, 0, 30][..])
                    );
                }
                Seen::Close(closed) => assert_eq!(closed, id),
                Seen::Event(..) => unreachable!(),
            }
        }
    }
    assert_eq!((rig.mapper.len(), rig.counters().lost), (0, 1));
    assert!((6..=7).contains(&asked), "asked {asked} times");
}

/// NATPMP-3.6-01: a host of NAT-PMP learns of a loss by the epoch.
#[test]
fn nat_pmp_learns_of_a_move_by_the_epoch() {
    let mut rig = Rig::new(config());
    let (id, _) = rig.asked(host(), &nat_pmp(Transport::Udp, 5_000, 0, 7_200));
    rig.opened(id, Ok("203.0.113.1:6001"));
    rig.wait(second(100));
    let seen = rig.handle(Input::Changed { id, change: Change::Moved(place("203.0.113.1:6002")) });
    assert!(!seen.is_empty(), "announcements");
    let NatPmpResponse::Address { epoch, .. } = NatPmpResponse::parse(&rig.answer(host(), &[0, 0])).unwrap()
    else {
        panic!()
    };
    assert_eq!(epoch, 0);
    let pcp = rig.answer(host(), &Ask::default().lifetime(0).octets());
    assert_eq!(pcp[8..12], [0; 4], "both protocols have one epoch");
}

/// PCP-7.3-04: a change that the path answers too late has changed nothing.
#[test]
fn a_change_that_is_answered_too_late() {
    for late in [Err(Failure::Filters), Ok(place("203.0.113.1:50000"))] {
        let mut rig = Rig::new(config());
        rig.standing();
        let (id, _) = rig.asked(host(), &Ask::default().option(filter("192.0.2.1/32", 1)).octets());
        let told = datagrams(&rig.wait(second(11)));
        assert_eq!(told.len(), 1);
        assert_eq!(ResultCode(told[0].1[3]), ResultCode::NETWORK_FAILURE);
        let seen = rig.handle(Input::Opened { id, result: late });
        let [Seen::Open(_, wanted)] = &seen[..] else { panic!("{seen:?}") };
        assert!(wanted.filters.is_empty(), "as it was before");
        assert!(rig.handle(Input::Opened { id, result: Ok(place("203.0.113.1:50000")) }).is_empty());
        assert_eq!(rig.mapper.mappings().next().unwrap().state, State::Standing);
    }
}

/// A path that loses a mapping again and again does not set the pace.
#[test]
fn a_path_that_loses_a_mapping_again_and_again() {
    let mut rig = Rig::new(config());
    let id = rig.standing();
    let mut asked = 0;
    for _ in 0..1_000 {
        for seen in rig.handle(Input::Changed { id, change: Change::Lost }) {
            assert!(matches!(seen, Seen::Open(..)), "{seen:?}");
            asked += 1;
            rig.handle(Input::Opened { id, result: Ok(place("203.0.113.1:50000")) });
        }
        let more = rig.wait(Duration::from_millis(10));
        asked += more.len();
        if !more.is_empty() {
            rig.handle(Input::Opened { id, result: Ok(place("203.0.113.1:50000")) });
        }
    }
    assert!((2..=4).contains(&asked), "asked {asked} times in 10 s");
}

/// Many mappings of NAT-PMP that move together are one announcement, and those that move a moment later are not hidden by the epoch.
#[test]
fn moves_of_many_mappings_are_one_announcement() {
    let mut rig = Rig::new(Config { host_open_rate: 0, ..config() });
    let mut ids = Vec::new();
    for port in 1..=8 {
        let (id, _) = rig.asked(host(), &nat_pmp(Transport::Udp, port, 0, 7_200));
        rig.opened(id, Ok("203.0.113.1:6001"));
        ids.push(id);
    }
    rig.wait(second(100));
    let mut sent = 0;
    for id in ids {
        sent += rig.handle(Input::Changed { id, change: Change::Moved(place("203.0.113.1:6002")) }).len();
    }
    assert_eq!(sent, 3, "one of each kind");
    rig.wait(second(5));
    let NatPmpResponse::Address { epoch, .. } = NatPmpResponse::parse(&rig.answer(host(), &[0, 0])).unwrap()
    else {
        panic!()
    };
    assert_eq!(epoch, 1, "it began anew once more after 4 s");
}
