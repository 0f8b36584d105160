//! MAP requests of PCP.

use core::time::Duration;

use crate::rig::*;

/// PCP-11.3-19, PCP-8.2-13, PCP-8.2-12, PCP-11.1-05: nothing is answered before the whole path has granted; the answer leaves from the address
/// to which the request came, repeats nonce, protocol and port, and has the place outside.
#[test]
fn a_mapping_is_answered_when_the_path_has_granted_it() {
    let mut rig = Rig::new(config());
    let (id, wanted) = rig.asked(host(), &Ask::default().wish("0.0.0.0:6881").octets());
    let inside = Inside { client: host().ip(), protocol: 6, port: 22_000 };
    assert_eq!((wanted.inside, wanted.exactly, wanted.ifindex), (inside, false, INSIDE));
    assert_eq!((wanted.wish, wanted.filters.len()), (place("0.0.0.0:6881"), 0));
    let result = Ok(place("203.0.113.1:6881"));
    let seen = rig.handle(Input::Opened { id, result });
    let [Seen::Datagram { to, from, ifindex, octets }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((*to, *from, *ifindex), (host(), place("192.168.1.1:5351"), Some(INSIDE)));
    let response = Response::parse(octets).unwrap();
    assert_eq!((response.result, response.lifetime), (ResultCode::SUCCESS, 3_600));
    let map = Map { nonce: NONCE, protocol: 6, internal_port: 22_000, external: place("203.0.113.1:6881") };
    assert_eq!(response.body, Body::Map(map));
    assert_eq!(rig.counters().opened, 1);
}

/// PCP-6-01, PCP-11.3-11: a renewal is the same packet; it gets the place of before, whatever it suggests, and a new lifetime at once.
#[test]
fn a_renewal_is_answered_from_the_table() {
    let mut rig = Rig::new(config());
    rig.standing();
    rig.wait(Duration::from_secs(1_800));
    for (wish, lifetime) in [("0.0.0.0:0", 3_600), ("203.0.113.1:1234", 7_200)] {
        let octets = rig.answer(host(), &Ask::default().lifetime(lifetime).wish(wish).octets());
        let response = Response::parse(&octets).unwrap();
        let Body::Map(map) = response.body else { panic!("{response:?}") };
        assert_eq!((map.external, response.lifetime), (place("203.0.113.1:50000"), lifetime));
    }
    assert!(rig.wait(Duration::from_secs(7_199)).is_empty(), "it stands for its lifetime");
    assert_eq!(rig.wait(Duration::from_secs(2)).len(), 1, "then it is closed");
    assert_eq!((rig.counters().expired, rig.mapper.len()), (1, 0));
}

/// PCP-15-01, PCP-15-02: lifetimes between 120 s and 24 h.
#[test]
fn lifetimes_have_limits() {
    let mut rig = Rig::new(config());
    for (port, asked, granted) in
        [(1, 1, 120), (2, 119, 120), (3, 500, 500), (4, 86_401, 86_400), (5, u32::MAX, 86_400)]
    {
        let (id, _) = rig.asked(host(), &Ask::default().port(port).lifetime(asked).octets());
        let answer = rig.opened(id, Ok("203.0.113.1:50000"));
        assert_eq!(Response::parse(&answer).unwrap().lifetime, granted, "{asked} s");
    }
}

/// PCP-15.1-01, PCP-15.1-03, PCP-15.1-05: lifetime 0 deletes at once; suggestions are copied; deletion of nothing is a success.
#[test]
fn a_deletion_closes_at_once() {
    let mut rig = Rig::new(config());
    let id = rig.standing();
    let deletion = Ask::default().lifetime(0).wish("198.51.100.9:9").octets();
    let seen = rig.datagram(host(), &deletion);
    let [Seen::Close(closed), Seen::Datagram { octets, .. }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((*closed, rig.mapper.len()), (id, 0));
    let response = Response::parse(octets).unwrap();
    let Body::Map(map) = response.body else { panic!("{response:?}") };
    assert_eq!((response.result, response.lifetime), (ResultCode::SUCCESS, 0));
    assert_eq!(map.external, place("198.51.100.9:9"));
    assert_eq!(rig.result(host(), &deletion), (ResultCode::SUCCESS, 0));
    assert_eq!(rig.counters().deleted, 1);
}

/// PCP-11.3-05, PCP-15.1-02: another nonce neither renews nor deletes; the error lasts as long as the mapping.
#[test]
fn another_nonce_is_not_authorized() {
    let mut rig = Rig::new(config());
    rig.standing();
    rig.wait(Duration::from_secs(600));
    let other = Ask::default().nonce([8; 12]);
    for lifetime in [3_600, 0] {
        let refused = rig.result(host(), &other.clone().lifetime(lifetime).octets());
        assert_eq!(refused, (ResultCode::NOT_AUTHORIZED, 3_000));
    }
    assert_eq!(rig.mapper.len(), 1);
}

/// PCP-13.2-04, PCP-11.3-16, PCP-11.3-09: exactly the suggested place, or an error and nothing on the path.
#[test]
fn prefer_failure() {
    let mut rig = Rig::new(config());
    let exactly = |wish: &str| Ask::default().wish(wish).option(Known::PreferFailure);
    let (id, wanted) = rig.asked(host(), &exactly("203.0.113.1:80").octets());
    assert!(wanted.exactly);
    let answer = rig.opened(id, Err(Failure::Taken));
    assert_eq!((answer[3], rig.mapper.len()), (ResultCode::CANNOT_PROVIDE_EXTERNAL.0, 0));

    let (id, _) = rig.asked(host(), &exactly("203.0.113.1:80").octets());
    let seen = rig.handle(Input::Opened { id, result: Ok(place("203.0.113.1:81")) });
    let [Seen::Close(_), Seen::Datagram { octets, .. }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(octets[3], ResultCode::CANNOT_PROVIDE_EXTERNAL.0);

    rig.wait(Duration::from_secs(60));
    rig.standing();
    let refused = rig.result(host(), &exactly("203.0.113.1:80").octets());
    assert_eq!(refused, (ResultCode::CANNOT_PROVIDE_EXTERNAL, 3_600));
    let same = rig.result(host(), &exactly("203.0.113.1:50000").octets());
    assert_eq!(same, (ResultCode::SUCCESS, 3_600));
}

/// PCP-13.3-04, PCP-13.3-05, PCP-7.3-03, PCP-7.3-11, PCP-13.3-08: filters of a request and of the mapping add up; prefix 0 removes those that came
/// before it; a success repeats the options that were processed.
#[test]
fn filters() {
    let mut rig = Rig::new(config());
    let near = filter("198.51.100.0/24", 0);
    let far = filter("192.0.2.1/32", 443);
    let none = Known::Filter(Filter { prefix: None, port: 0, address: address("0.0.0.0") });
    let ask = Ask::default().option(far).option(none).option(near).raw("c8000000");
    let (id, wanted) = rig.asked(host(), &ask.octets());
    let as_filter = |known: Known<'static>| {
        let Known::Filter(filter) = known else { unreachable!() };
        filter
    };
    assert_eq!(wanted.filters, [as_filter(near)]);
    let answer = rig.opened(id, Ok("203.0.113.1:50000"));
    let codes: Vec<_> = Response::parse(&answer).unwrap().options.iter().map(|one| one.code.0).collect();
    assert_eq!(codes, [3, 3, 3], "without the option that nobody knows");

    let (id, wanted) = rig.asked(host(), &Ask::default().option(far).octets());
    assert_eq!(wanted.filters, [as_filter(near), as_filter(far)]);
    let answer = rig.opened(id, Ok("203.0.113.1:50000"));
    assert_eq!(answer[3], 0);
    assert_eq!(
        rig.result(host(), &Ask::default().option(near).octets()).0,
        ResultCode::SUCCESS,
        "it has this one"
    );

    let (id, wanted) = rig.asked(host(), &Ask::default().option(none).octets());
    assert!(wanted.filters.is_empty());
    assert_eq!(rig.opened(id, Ok("203.0.113.1:50000"))[3], 0);
    assert_eq!(rig.mapper.len(), 1);
}

/// PCP-7.3-04, PCP-13.3-07: a change that is refused leaves the filters of before.
#[test]
fn filters_that_are_refused_change_nothing() {
    let mut rig = Rig::new(config());
    let near = filter("198.51.100.0/24", 0);
    let (id, _) = rig.asked(host(), &Ask::default().option(near).octets());
    rig.opened(id, Ok("203.0.113.1:50000"));
    let many = (1..=8).fold(Ask::default(), |ask, port| ask.option(filter("192.0.2.1/32", port)));
    let refused = rig.result(host(), &many.octets());
    assert_eq!(refused, (ResultCode::EXCESSIVE_REMOTE_PEERS, 1_800));

    let (id, _) = rig.asked(host(), &Ask::default().option(filter("192.0.2.1/32", 1)).octets());
    let seen = rig.handle(Input::Opened { id, result: Err(Failure::Filters) });
    let [Seen::Datagram { octets, .. }, Seen::Open(_, wanted)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(octets[3], ResultCode::EXCESSIVE_REMOTE_PEERS.0);
    assert_eq!((wanted.filters.len(), wanted.wish), (1, place("203.0.113.1:50000")), "as it was");
    assert!(rig.handle(Input::Opened { id, result: Ok(place("203.0.113.1:50000")) }).is_empty());
}

/// PCP-7220-02: a description is kept, cut at a border of characters, returned as kept, and erased by an empty one.
#[test]
fn a_description() {
    let mut rig = Rig::new(config());
    let long = "ä".repeat(100);
    let (id, _) = rig.asked(host(), &Ask::default().option(Known::Description(long.as_bytes())).octets());
    let answer = rig.opened(id, Ok("203.0.113.1:50000"));
    let option = Response::parse(&answer).unwrap().options.iter().next().unwrap();
    assert_eq!(option.known(), Ok(Some(Known::Description("ä".repeat(64).as_bytes()))));
    assert_eq!(rig.mapper.mappings().next().unwrap().description, Some("ä".repeat(64).as_str()));
    let octets = rig.answer(host(), &Ask::default().option(Known::Description(&[0xff, 0xfe])).octets());
    let options = Response::parse(&octets).unwrap().options;
    assert_eq!(options.iter().next().map(|option| option.data.len()), Some(128), "the kept one");
    rig.answer(host(), &Ask::default().option(Known::Description(b"")).octets());
    assert_eq!(rig.mapper.mappings().next().unwrap().description, None);
}

/// A retransmission starts nothing, and the answer goes to where the newest request came from.
#[test]
fn a_retransmission_finds_the_request_that_waits() {
    let mut rig = Rig::new(config());
    let (id, _) = rig.asked(host(), &Ask::default().octets());
    let newest = place("192.168.1.20:41000");
    assert!(rig.datagram(newest, &Ask::default().octets()).is_empty());
    let seen = rig.handle(Input::Opened { id, result: Ok(place("203.0.113.1:50000")) });
    let [Seen::Datagram { to, .. }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(*to, newest);
}

/// PCP-11.3-17, PCP-11.3-01, PCP-11.3-02, PCP-11.3-03, PCP-11.3-04, PCP-14.1-02, PCP-12-01, PCP-7652-01: what a NAT does not map.
#[test]
fn protocols_and_opcodes_that_are_not_served() {
    let mut rig = Rig::new(config());
    for (protocol, port, code) in [
        (47, 1, ResultCode::UNSUPP_PROTOCOL),
        (6, 0, ResultCode::UNSUPP_PROTOCOL),
        (0, 0, ResultCode::UNSUPP_PROTOCOL),
        (0, 1, ResultCode::MALFORMED_REQUEST),
    ] {
        let refused = rig.result(host(), &Ask::default().protocol(protocol).port(port).octets());
        assert_eq!(refused, (code, 1_800), "protocol {protocol} port {port}");
    }
    let malformed = rig.result(host(), &Ask::default().protocol(0).port(1).lifetime(0).octets());
    assert_eq!(malformed.0, ResultCode::MALFORMED_REQUEST);
    for opcode in [2, 3] {
        let mut octets = [Ask::default().octets(), vec![0; 20]].concat();
        octets[1] = opcode;
        assert_eq!(rig.result(host(), &octets), (ResultCode::UNSUPP_OPCODE, 1_800));
    }
    let mut announce = Ask::default().octets();
    announce.truncate(24);
    announce[1] = 0;
    assert_eq!(rig.result(host(), &announce), (ResultCode::SUCCESS, 0));
    assert_eq!(rig.mapper.len(), 0);
}

/// A firewall of IPv6 may map all ports, if it is configured so.
#[test]
fn a_firewall_maps_other_protocols() {
    let client = place("[2001:db8:1::20]:40000");
    let ask = Ask::default().of(client.ip()).wish("[::]:0");
    let mut rig = Rig::new(config());
    let (_, wanted) = rig.asked(client, &ask.clone().protocol(47).port(9).octets());
    assert_eq!(wanted.inside.protocol, 47);
    assert_eq!(rig.result(client, &ask.clone().port(0).octets()).0, ResultCode::UNSUPP_PROTOCOL);
    let mut rig = Rig::new(Config { wildcards: true, ..config() });
    let (_, wanted) = rig.asked(client, &ask.clone().port(0).octets());
    assert_eq!((wanted.inside.protocol, wanted.inside.port), (6, 0));
}

/// PCP-7.3-06, PCP-7.3-09, PCP-7.3-10, PCP-11.3-07, PCP-13.1-03, PCP-13.1-04, PCP-13.2-03, PCP-13.3-06, PCP-10-02, PCP-13-01, PCP-7.4-04: options that a
/// request cannot have.
#[test]
fn options_that_are_refused() {
    let mut rig = Rig::new(config());
    let ask = || Ask::default().wish("203.0.113.1:80");
    let third = Known::ThirdParty(address("192.168.1.30"));
    let malformed = ResultCode::MALFORMED_OPTION;
    for (ask, code) in [
        (ask().option(third), ResultCode::UNSUPP_OPTION),
        (ask().raw("3c000000"), ResultCode::UNSUPP_OPTION),
        (ask().option(Known::PreferFailure).option(Known::PreferFailure), malformed),
        (ask().lifetime(0).option(Known::PreferFailure), malformed),
        (Ask::default().option(Known::PreferFailure), malformed),
        (ask().lifetime(0).option(filter("192.0.2.1/32", 0)), malformed),
        (ask().option(filter("2001:db8::/32", 0)), malformed),
    ] {
        assert_eq!(rig.result(host(), &ask.octets()), (code, 1_800), "{ask:?}");
    }
    let mut announce = Ask::default().octets();
    announce.truncate(24);
    announce[1] = 0;
    announce.extend([2, 0, 0, 0]);
    assert_eq!(rig.result(host(), &announce), (malformed, 1_800));
    assert_eq!(rig.mapper.len(), 0);
    rig.asked(host(), &ask().raw("c8000003 01020300").octets());
}

/// PCP-8.5-01: the epoch goes up by one each second, in successes and errors.
#[test]
fn the_epoch_is_time() {
    let mut rig = Rig::new(config());
    let epoch = |octets: Vec<u8>| u32::from_be_bytes(octets[8..12].try_into().unwrap());
    let first = epoch(rig.answer(host(), &Ask::default().protocol(47).octets()));
    rig.wait(Duration::from_secs(10));
    let second = epoch(rig.answer(host(), &Ask::default().lifetime(0).octets()));
    assert_eq!(second - first, 10);
}

/// A user of the node ends a mapping.
#[test]
fn a_mapping_is_cleared() {
    let mut rig = Rig::new(config());
    let id = rig.standing();
    let inside = Inside { client: host().ip(), protocol: 6, port: 22_000 };
    let clear = |number| Input::Command { id: number, command: Command::Clear(inside) };
    assert_eq!(rig.handle(clear(1)), [Seen::Close(id), Seen::Event(1, Event::Cleared)]);
    assert_eq!(rig.handle(clear(2)), [Seen::Event(2, Event::Unknown)]);
}

/// PCP-7.3-06: DESCRIPTION may be there once. The answer is no longer than a message.
#[test]
fn a_description_that_is_there_twice() {
    let mut rig = Rig::new(config());
    rig.standing();
    let many = (0..200).fold(Ask::default(), |ask, _| ask.raw("80000000"));
    let refused = rig.result(host(), &many.option(Known::Description(&[b'a'; 128])).octets());
    assert_eq!(refused, (ResultCode::MALFORMED_OPTION, 1_800));
    rig.answer(host(), &Ask::default().option(Known::Description(&[b'a'; 128])).octets());
    let long =
        (0..43).fold(Ask::default(), |ask, _| ask.raw("03000014 00600000 00000000000000000000ffff00000000"));
    let long = Ask {
        options: [long.options[..1_032 - 24].to_vec(), vec![0x80, 0, 0, 1, 0xff, 0, 0, 0]].concat(),
        ..long
    };
    let (id, _) = rig.asked(host(), &long.octets());
    let answer = rig.opened(id, Ok("203.0.113.1:50000"));
    assert!(answer.len() <= 1_100, "{} octets", answer.len());
}

/// PCP-11.3-19: a repetition of a request with filters is not answered before the path has granted them.
#[test]
fn filters_that_wait_are_not_granted_twice() {
    let mut rig = Rig::new(config());
    rig.standing();
    let ask = Ask::default().option(filter("192.0.2.1/32", 1)).octets();
    let (id, _) = rig.asked(host(), &ask);
    assert!(rig.datagram(place("192.168.1.20:41000"), &ask).is_empty());
    let seen = rig.handle(Input::Opened { id, result: Ok(place("203.0.113.1:50000")) });
    let [Seen::Datagram { to, .. }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(*to, place("192.168.1.20:41000"));
}

/// PCP with filters takes over a mapping of NAT-PMP, too.
#[test]
fn filters_take_over_a_mapping_of_nat_pmp() {
    let mut rig = Rig::new(config());
    let (id, _) = rig.asked(host(), &nat_pmp(Transport::Tcp, 80, 0, 600));
    rig.opened(id, Ok("203.0.113.1:7000"));
    let (id, _) = rig.asked(host(), &Ask::default().port(80).option(filter("192.0.2.1/32", 1)).octets());
    rig.opened(id, Ok("203.0.113.1:7000"));
    let answer = rig.answer(host(), &nat_pmp(Transport::Tcp, 80, 0, 0));
    let NatPmpResponse::Map { result, .. } = NatPmpResponse::parse(&answer).unwrap() else {
        panic!("{answer:?}")
    };
    assert_eq!(result, NatPmpResult::NOT_AUTHORIZED);
}
