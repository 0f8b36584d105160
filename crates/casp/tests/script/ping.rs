//! The Ping client at an initiator, on the way, and at a responder.

use std::time::Duration;

use signalbox_casp::clients::ping::{PingClient, PingEvent, PingOutput};
use signalbox_casp::engine::{Arrival, Indication, Refused, Request, SendRequest, Verdict};
use signalbox_casp::wire::ErrorCode;
use signalbox_casp::wire::ping::{Entry, MAX_ENTRIES, Ping, PingError, PingType};
use signalbox_core::node::Interface;
use signalbox_core::{IfIndex, SessionId, Time};

use crate::rig::{NEAR, flow, ip, session};

fn client(address: &str) -> PingClient {
    let mut client = PingClient::new([1; 32]);
    client.interfaces(&[Interface {
        ifindex: IfIndex(1),
        name: "eth1".to_owned(),
        up: true,
        mtu: 1500,
        tunnel: false,
        addresses: vec![ip("127.0.0.1"), ip(address)],
    }]);
    client
}

/// What a client asks for, with owned octets.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Send { session: Option<SessionId>, reverse: bool, tear_down: bool, data: Option<Vec<u8>> },
    Forward(u64),
    Replace(u64, Vec<u8>),
    Consume(u64),
    Event(u64, PingEvent),
}

fn asked(client: &mut PingClient) -> Vec<Asked> {
    let mut all = Vec::new();
    while let Some(output) = client.poll() {
        all.push(match output {
            PingOutput::Event { id, event } => Asked::Event(id, event),
            PingOutput::Request(Request::Send(send)) => {
                let SendRequest { session, reverse, tear_down, data, .. } = send;
                Asked::Send { session, reverse, tear_down, data: data.map(<[u8]>::to_vec) }
            }
            PingOutput::Request(Request::Verdict { id, verdict }) => match verdict {
                Verdict::Forward => Asked::Forward(id),
                Verdict::Replace(data) => Asked::Replace(id, data.to_vec()),
                Verdict::Consume => Asked::Consume(id),
            },
            PingOutput::Request(other) => panic!("{other:?}"),
        });
    }
    all
}

fn arrival(data: &[u8], reverse: bool, last: bool, hops: u8) -> Indication<'_> {
    Indication::Received(Arrival {
        id: 7,
        session: session(1),
        flow: flow(),
        reverse,
        tear_down: false,
        unsecure: true,
        ttd: 60,
        hops,
        peer: ip(NEAR),
        ifindex: IfIndex::NONE,
        answered: true,
        identity: None,
        branch: 0,
        last,
        timeout: 90,
        stateless: false,
        refresh: false,
        route: &[],
        data,
    })
}

fn opened() -> Indication<'static> {
    Indication::Opened { tag: 1, session: session(1), flow: flow(), hold: false }
}

fn octets(ping: &Ping) -> Vec<u8> {
    let mut octets = Vec::new();
    ping.encode(&mut octets);
    octets
}

/// CASP-P-20: a request is answered with all nodes that it reached; only the initiator keeps something.
#[test]
fn each_node_adds_itself() {
    let (now, later) = (Time::from_secs(5), Time::from_secs(6));
    let (mut first, mut middle, mut last) = (client("10.0.0.1"), client("10.0.1.1"), client("10.0.2.1"));
    first.ping(now, 42, flow(), false);
    let [Asked::Send { session: None, reverse: false, tear_down: false, data: Some(sent) }] =
        &asked(&mut first)[..]
    else {
        panic!()
    };
    first.indication(now, &opened());
    middle.indication(now, &arrival(sent, false, false, 0));
    let [Asked::Replace(7, sent)] = &asked(&mut middle)[..] else { panic!() };
    last.indication(later, &arrival(sent, false, true, 1));
    let [Asked::Consume(7), Asked::Send { session: to, reverse: true, tear_down: false, data: Some(reply) }] =
        &asked(&mut last)[..]
    else {
        panic!()
    };
    assert_eq!(*to, Some(session(1)));
    middle.indication(later, &arrival(reply, true, false, 0));
    assert_eq!(asked(&mut middle), [Asked::Forward(7)]);
    first.indication(later, &arrival(reply, true, true, 1));
    let nodes = vec![
        Entry { address: ip("10.0.1.1"), hops: 0, time_us: now.as_micros() },
        Entry { address: ip("10.0.2.1"), hops: 1, time_us: later.as_micros() },
    ];
    let done = Asked::Send { session: Some(session(1)), reverse: false, tear_down: true, data: None };
    assert_eq!(
        asked(&mut first),
        [Asked::Consume(7), done, Asked::Event(42, PingEvent::Reply { nodes, time: Duration::from_secs(1) })]
    );
    assert_eq!([first, middle, last].map(|client| client.next_deadline()), [None, None, None]);
}

#[test]
fn a_ping_ends_in_one_way() {
    let now = Time::from_secs(5);
    let mut one = client("10.0.0.1");
    one.ping(now, 1, flow(), false);
    one.indication(now, &Indication::Refused { tag: 1, why: Refused::Full });
    assert_eq!(asked(&mut one).last(), Some(&Asked::Event(1, PingEvent::Refused)));
    for (indication, event) in [
        (Indication::Undelivered { session: session(1), flow: flow() }, PingEvent::NoNext),
        (Indication::Ended { session: session(1), flow: flow(), torn_down: true }, PingEvent::Unanswered),
    ] {
        let mut one = client("10.0.0.1");
        one.ping(now, 1, flow(), false);
        one.indication(now, &opened());
        one.indication(now, &indication);
        one.indication(now, &indication);
        let events = asked(&mut one).into_iter().filter(|asked| matches!(asked, Asked::Event(..)));
        assert_eq!(events.collect::<Vec<_>>(), [Asked::Event(1, event)]);
    }
    // An error ends one without state. With state the answer can still come.
    let error = Indication::Error { session: session(1), flow: flow(), code: ErrorCode::NO_NEXT_PEER };
    for stateless in [true, false] {
        let mut one = client("10.0.0.1");
        one.ping(now, 1, flow(), stateless);
        one.indication(now, &opened());
        asked(&mut one);
        one.indication(now, &error);
        let reported = stateless.then_some(Asked::Event(1, PingEvent::Reported));
        assert_eq!(asked(&mut one), Vec::from_iter(reported));
    }
    let mut one = client("10.0.0.1");
    one.ping(now, 1, flow(), false);
    one.indication(now, &opened());
    one.timer(Time::from_secs(24));
    assert_eq!(asked(&mut one).len(), 1);
    assert_eq!(one.next_deadline(), Some(Time::from_secs(25)));
    one.timer(Time::from_secs(25));
    assert_eq!(asked(&mut one).last(), Some(&Asked::Event(1, PingEvent::Unanswered)));
}

/// A reply with another token, and what is no Ping message, change nothing.
#[test]
fn foreign_octets_change_nothing() {
    let now = Time::from_secs(5);
    let mut one = client("10.0.0.1");
    one.ping(now, 1, flow(), false);
    one.indication(now, &opened());
    asked(&mut one);
    let forged = octets(&Ping { kind: PingType::REPLY, token: 9, entries: Vec::new() });
    one.indication(now, &arrival(&forged, true, true, 0));
    assert_eq!(asked(&mut one), [Asked::Consume(7)]);
    one.indication(now, &arrival(&forged, false, true, 0));
    one.indication(now, &arrival(b"hello", false, true, 0));
    assert_eq!(asked(&mut one), [Asked::Forward(7), Asked::Forward(7)]);
    assert!(one.next_deadline().is_some());
}

#[test]
fn pings_are_bounded() {
    let mut one = client("10.0.0.1");
    for id in 0..2000 {
        one.ping(Time::from_secs(1), id, flow(), false);
    }
    let refused =
        asked(&mut one).into_iter().filter(|asked| matches!(asked, Asked::Event(_, PingEvent::Refused)));
    assert_eq!(refused.count(), 2000 - 1024);
}

#[test]
fn the_octets_of_a_ping() {
    let entries = vec![
        Entry { address: ip("192.0.2.1"), hops: 3, time_us: 4 },
        Entry { address: ip("2001:db8::1"), hops: 5, time_us: 6 },
    ];
    let ping = Ping { kind: PingType::REPLY, token: 0x0102_0304_0506_0708, entries };
    let octets = octets(&ping);
    let hex = "02020000 01020304 05060708 04030000 00000000 00000004 c0000201 \
        06050000 00000000 00000006 20010db8 00000000 00000000 00000001";
    assert_eq!(signalbox_wire::hex(&octets), hex.replace(' ', ""));
    assert_eq!(Ping::parse(&octets), Ok(ping.clone()));
    for length in 0..octets.len() {
        assert!(matches!(Ping::parse(&octets[..length]), Err(PingError::Short(_))), "{length}");
    }
    assert_eq!(Ping::parse(&[&octets[..], &[0]].concat()), Err(PingError::Behind(1)));
    for (at, value) in [(0, 3), (12, 5)] {
        let mut octets = octets.clone();
        octets[at] = value;
        assert!(Ping::parse(&octets).is_err());
    }
    let many = Ping { entries: vec![ping.entries[0]; 100], ..ping };
    let octets = self::octets(&many);
    assert_eq!(Ping::parse(&octets).map(|ping| ping.entries.len()), Ok(MAX_ENTRIES));
}
