//! The contract between the messaging layer and its clients.

use signalbox_casp::engine::{Config, Refused, Request, SendRequest, Verdict};
use signalbox_casp::wire::{Body, ClientType, ErrorCode, Flags, FlowId, Signaling};

use crate::rig::*;

fn refused(rig: &mut Rig, send: SendRequest<'_>) -> Refused {
    rig.take_indicated();
    let outputs = rig.request(CLIENT, Request::Send(SendRequest { tag: 5, ..send }));
    assert!(outputs.is_empty());
    match rig.take_indicated()[..] {
        [Indicated::Refused(5, why)] => why,
        ref other => panic!("{other:?}"),
    }
}

/// CASP-4.4-17, CASP-4.4-11, CASP-9.2-07, CASP-9.2-04: each client gets its own messages, with who sent them.
#[test]
fn messages_go_to_their_client() {
    let mut rig = Rig::new();
    let up = rig.accept_by(UP, signalbox_casp::engine::Transport::Tls, identity(3));
    rig.say(up, &Signaling { ttd: 60, hops: 4, ..data(CLIENT) });
    rig.say(up, &data(ClientType(79)));
    rig.say(up, &data(UNKNOWN));
    assert_eq!(rig.indicated.iter().map(|(client, _)| client.0).collect::<Vec<_>>(), [77, 79]);
    let Indicated::Received(arrival, octets) = &rig.indicated[0].1 else { panic!("{:?}", rig.indicated) };
    assert_eq!((octets.as_slice(), arrival.session, arrival.flow), (&b"hello"[..], session(1), flow()));
    assert_eq!((arrival.ttd, arrival.hops, arrival.branch, arrival.timeout), (60, 4, 0, 90));
    assert_eq!((arrival.peer, arrival.identity.clone()), (ip(UP), identity(3)));
    assert!(!arrival.reverse && !arrival.tear_down && !arrival.unsecure && !arrival.last);
}

/// CASP-G-16: forward, forward with other octets, consume, and no verdict in a second.
#[test]
fn the_verdict_decides() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    let outputs = rig.say(up, &data(CLIENT));
    assert_eq!(only(&outputs, down).message().body, data(CLIENT).body);
    rig.verdict = Some(Verdict::Replace(b"other"));
    let outputs = rig.say(up, &data(CLIENT));
    assert_eq!(only(&outputs, down).message().body, Body::Client { client: CLIENT, data: b"other" });
    rig.verdict = Some(Verdict::Consume);
    let before = rig.state().previous[0].until;
    rig.wait(seconds(1.0));
    assert!(rig.say(up, &data(CLIENT)).is_empty());
    assert!(rig.state().previous[0].until > before, "state is refreshed anyway");
}

/// CASP-G-16, CASP-P-21: a silent client does not hold its message longer than a second, nor other messages at all.
#[test]
fn a_silent_client_blocks_nothing() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    rig.verdict = None;
    assert!(rig.say(up, &data(CLIENT)).is_empty());
    let outputs = rig.say(up, &data(UNKNOWN));
    assert_eq!(only(&outputs, down).message().body, data(UNKNOWN).body);
    assert!(rig.wait(seconds(0.9)).is_empty());
    let outputs = rig.wait(seconds(0.2));
    assert_eq!(only(&outputs, down).message().body, data(CLIENT).body);
    let id = match &rig.indicated[0].1 {
        Indicated::Received(arrival, _) => arrival.id,
        other => panic!("{other:?}"),
    };
    let late = Request::Verdict { id, verdict: Verdict::Replace(b"late") };
    assert!(rig.request(CLIENT, late).is_empty());
}

/// A client decides about its own messages only: the identifiers of others can be guessed.
#[test]
fn a_verdict_of_another_client_changes_nothing() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    rig.verdict = None;
    rig.say(up, &data(CLIENT));
    let id = match &rig.indicated[0].1 {
        Indicated::Received(arrival, _) => arrival.id,
        other => panic!("{other:?}"),
    };
    for verdict in [Verdict::Consume, Verdict::Replace(b"other")] {
        assert!(rig.request(ClientType(79), Request::Verdict { id, verdict }).is_empty());
    }
    let outputs = rig.request(CLIENT, Request::Verdict { id, verdict: Verdict::Forward });
    assert_eq!(only(&outputs, down).message().body, data(CLIENT).body);
}

/// CASP-G-16: if too many messages are held, the next ones go on at once; those of another node have places.
#[test]
fn held_messages_are_bounded() {
    let mut rig = Rig::with(Config { max_held: 10, ..config() });
    let (up, _) = rig.chain();
    rig.verdict = None;
    let went = (0..30).filter(|_| !rig.say(up, &data(CLIENT)).is_empty()).count();
    assert_eq!((went, rig.node.counters().held_full), (22, 22), "a quarter is for others");
    let other = rig.accept(OTHER);
    rig.say(other, &Signaling { session: session(9), ..data(CLIENT) });
    assert_eq!(rig.node.counters().held_full, 22);
    rig.wait(seconds(2.0));
    rig.say(up, &data(CLIENT));
    assert_eq!(rig.node.counters().held_full, 22, "all places are free again");
}

/// CASP-G-16: held messages take their octets of the share of the node that made the session.
#[test]
fn octets_of_held_messages_are_bounded() {
    let mut rig = Rig::with(Config { max_waiting: 100_000, ..config() });
    let (up, _) = rig.chain();
    rig.verdict = None;
    let large = vec![1; 5000];
    let body = Body::Client { client: CLIENT, data: &large };
    let before = rig.node.tables()[4].size;
    let held = (0..30).filter(|_| rig.say(up, &Signaling { body, ..data(CLIENT) }).is_empty()).count();
    assert_eq!(held, 14, "three quarters of the octets");
    assert!(rig.node.tables()[4].size <= 75_000);
    rig.wait(seconds(2.0));
    assert_eq!(rig.node.tables()[4].size, before);
}

/// CASP-3-04, CASP-4.2-17, CASP-P-23: identifiers of new sessions are random, all bits of them. CASP-3-02: a client gets the
/// answer.
#[test]
fn new_sessions_have_random_identifiers() {
    let mut rig = Rig::with(Config { rediscover: false, ..config() });
    let (mut seen, mut ones) = (std::collections::BTreeSet::new(), [0u32; 128]);
    for n in 0..2000u32 {
        let flow = flow_to(DST, u16::try_from(n).unwrap());
        rig.request(CLIENT, Request::Send(SendRequest { tag: 1, ..SendRequest::new(None, flow, b"x") }));
        let Some(Indicated::Opened(1, id)) = rig.take_indicated().into_iter().next() else { panic!() };
        for (bit, count) in ones.iter_mut().enumerate() {
            *count += u32::from(id.0[bit / 8] >> (bit % 8) & 1);
        }
        seen.insert(id);
    }
    assert_eq!(seen.len(), 2000);
    assert!(ones.iter().all(|count| (850..1150).contains(count)), "{ones:?}");
    let id = *seen.first().unwrap();
    let flow = rig.node.sessions().find(|one| one.session == id).unwrap().flow;
    let down = rig.stream_to(DOWN);
    rig.say(down, &Signaling { session: id, flow, ..flags(data(CLIENT), Flags::REVERSE) });
    assert!(
        matches!(&rig.indicated[0].1, Indicated::Received(arrival, _) if arrival.reverse && arrival.last)
    );
}

/// CASP-A.1-05, CASP-4.3-07: the octets of the flow are the client's. CASP-4.1-01: a stream has the Length Header.
#[test]
fn the_first_message_of_an_initiator() {
    let mut rig = Rig::new();
    rig.open(false);
    let outputs = rig.sent.clone();
    let sent = only(&outputs, rig.stream_to(DOWN));
    let sent = sent.message();
    assert_eq!((sent.ttd, sent.hops, sent.flow, sent.timeout), (64, 0, flow(), Some(90)));
    assert_eq!(sent.body, Body::Client { client: CLIENT, data: b"hello" });
    assert_eq!(sent.flags, Flags::UNSECURE);
}

/// CASP-4.2-09, CASP-A.1-06, CASP-10-03, CASP-G-31, CASP-A.3-01: what a client must not ask for is refused.
#[test]
fn wrong_requests_are_refused() {
    let mut rig = Rig::new();
    let id = rig.open(true);
    let (src, dst) = ("10.9.0.1".parse().unwrap(), DST.parse().unwrap());
    let send = SendRequest::new(Some(id), flow(), b"x");
    let both = SendRequest { reverse: true, discover: true, ..send };
    assert_eq!(refused(&mut rig, both), Refused::ReverseDiscovery);
    assert_eq!(refused(&mut rig, SendRequest { reverse: true, ..send }), Refused::NoHop);
    assert_eq!(refused(&mut rig, SendRequest { session: None, reverse: true, ..send }), Refused::NoSession);
    assert_eq!(refused(&mut rig, SendRequest { session: None, tear_down: true, ..send }), Refused::NoSession);
    assert_eq!(refused(&mut rig, SendRequest { branch: Some(7), ..send }), Refused::NoHop);
    let spi = FlowId::V4Spi { src, dst, spi: 1, protocol: 17 };
    assert_eq!(refused(&mut rig, SendRequest { flow: spi, ..send }), Refused::Flow);
    assert_eq!(refused(&mut rig, SendRequest { flow: flow_to("232.1.1.1", 1), ..send }), Refused::Multicast);
    let (src, dst) = ("2001:db8:9::1".parse().unwrap(), "2001:db8:8::1".parse().unwrap());
    let private = FlowId::V6Ports { src, dst, src_port: 1, dst_port: 2, protocol: 17 };
    assert_eq!(refused(&mut rig, SendRequest { flow: private, ..send }), Refused::Flow);
    let long = vec![0; 65_532];
    assert_eq!(refused(&mut rig, SendRequest { data: Some(&long), ..send }), Refused::TooLong);
    assert_eq!(rig.node.session_count(), 1);
    let fits = SendRequest { data: Some(&long[1..]), ..send };
    assert_eq!(rig.request(CLIENT, Request::Send(fits)).len(), 1);
}

/// CASP-G-13: an error follows the state towards the initiator, and reaches every client of the session; one a second.
#[test]
fn errors_reach_every_client_of_the_session() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    rig.say(up, &data(CLIENT));
    rig.say(up, &data(ClientType(79)));
    rig.indicated.clear();
    let error = Signaling { body: Body::Error(ErrorCode(0x8000_0003)), ..flags(message(), Flags::REVERSE) };
    let outputs = rig.say(down, &error);
    assert_eq!(only(&outputs, up).message().body, error.body);
    assert_eq!(rig.indicated.iter().map(|(client, _)| client.0).collect::<Vec<_>>(), [77, 79]);
    for _ in 0..50 {
        assert!(rig.say(down, &error).is_empty());
    }
    rig.wait(seconds(1.1));
    assert_eq!(rig.say(down, &error).len(), 1);
    assert_eq!(rig.node.counters().errors_sent, 0);
}

/// CASP-G-31: private errors are sent only if they are switched on.
#[test]
fn private_errors_need_their_switch() {
    for on in [false, true] {
        let mut rig = Rig::with(Config { private_errors: on, ..config() });
        rig.answering.clear();
        let up = rig.accept(UP);
        rig.say(up, &data(UNKNOWN));
        let outputs = signaling(&rig.wait(seconds(16.0)));
        assert_eq!(outputs.len(), usize::from(on));
        if let [one] = &outputs[..] {
            assert_eq!(one.message().body, Body::Error(ErrorCode::NO_NEXT_PEER));
            assert!(one.message().flags.is_reverse());
        }
    }
}

/// CASP-P-13, CASP-P-15: up to 254 clients are served.
#[test]
fn there_may_be_254_clients() {
    let mut rig = Rig::with(Config { clients: (1..=254).collect(), ..config() });
    let up = rig.accept(UP);
    for client in 1..=254 {
        rig.say(up, &data(ClientType(client)));
    }
    assert_eq!(
        rig.indicated.iter().map(|(client, _)| client.0).collect::<Vec<_>>(),
        (1..=254).collect::<Vec<u8>>()
    );
}

/// CASP-00-05: a client that no longer needs a session does not end its state.
#[test]
fn state_outlives_the_need_of_a_client() {
    let mut rig = Rig::new();
    let id = rig.open(true);
    rig.request(CLIENT, Request::Hold { session: id, flow: flow(), on: false });
    rig.wait(seconds(60.0));
    assert_eq!(rig.node.session_count(), 1);
}

/// CASP-G-11: a client limits how many nodes its message reaches.
#[test]
fn a_client_may_set_the_ttd() {
    let mut rig = Rig::new();
    let send = SendRequest { ttd: Some(3), ..SendRequest::new(None, flow(), b"x") };
    let outputs = rig.request(CLIENT, Request::Send(send));
    assert_eq!(only(&outputs, rig.stream_to(DOWN)).message().ttd, 3);
}

/// Each user of the node sees the identifiers of all sessions. A client uses a session only if it opened it, or got a message of it.
#[test]
fn a_client_uses_its_own_sessions_only() {
    const STRANGER: ClientType = ClientType(79);
    let mut rig = Rig::new();
    let session = rig.open(true);
    let before = rig.state();
    let send = SendRequest { tag: 5, ..SendRequest::new(Some(session), flow(), b"x") };
    let moved = flow_to(DST, 9);
    for request in [
        Request::Send(SendRequest { tear_down: true, ..send }),
        Request::Send(send),
        Request::Hold { session, flow: flow(), on: false },
        Request::Move { session, from: flow(), to: moved },
        Request::KeepBranches { session, flow: flow() },
    ] {
        rig.indicated.clear();
        assert_eq!(rig.request(STRANGER, request), []);
        assert!(
            rig.indicated.iter().all(|(client, indicated)| *client == STRANGER
                && matches!(indicated, Indicated::Refused(_, Refused::NoSession))),
            "{:?}",
            rig.indicated
        );
    }
    assert_eq!(rig.state().next.len(), before.next.len());
    rig.wait(seconds(300.0));
    assert_eq!(rig.state().session, session, "its client holds it");
    // With a message of the session the client takes part in it.
    let down = rig.stream_to(DOWN);
    rig.say(down, &Signaling { session, ..flags(data(STRANGER), Flags::REVERSE) });
    rig.request(STRANGER, Request::Send(SendRequest { tear_down: true, ..send }));
    assert_eq!(rig.node.session_count(), 0);
}

/// A session that passes by belongs to no client of this node.
#[test]
fn no_client_ends_a_session_that_passes_by() {
    let mut rig = Rig::new();
    rig.chain();
    let send = SendRequest { tag: 5, tear_down: true, ..SendRequest::new(Some(session(1)), flow(), b"x") };
    assert_eq!(refused(&mut rig, send), Refused::NoSession);
    assert_eq!(rig.node.session_count(), 1);
}
