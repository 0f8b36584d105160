//! Connections and datagrams.

use signalbox_casp::engine::{Config, Input, Request, SendRequest, Transport};
use signalbox_casp::wire::{Body, ErrorCode, Flags, Message, Proof, Signaling, framed};
use signalbox_core::node::Prefix;

use crate::rig::*;

/// CASP-3-10, CASP-9.2-03: all sessions of two nodes share one connection, whoever opened it.
#[test]
fn connections_are_shared() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    for n in 1..=100 {
        rig.say(up, &Signaling { session: session(n), ..message() });
    }
    assert_eq!(rig.opened.len(), 1);
    // The next hop has connected to this node before.
    let mut rig = Rig::new();
    let down = rig.accept(DOWN);
    let up = rig.accept(UP);
    let outputs = rig.say(up, &message());
    assert_eq!((rig.opened.len(), only(&outputs, down).message().session), (0, session(1)));
}

/// CASP-9.2-03: the same with TLS.
#[test]
fn one_tls_association_serves_all_sessions() {
    let mut rig = Rig::with(Config { transport: Transport::Tls, ..config() });
    let up = rig.accept_by(UP, Transport::Tls, identity(1));
    for n in 1..=50 {
        rig.say(up, &Signaling { session: session(n), ..message() });
    }
    assert_eq!(rig.opened.len(), 1);
    assert_eq!(rig.opened[0].3.port(), 50005);
}

/// CASP-3-11: a connection that ended is opened again, and the message is delivered.
#[test]
fn a_lost_connection_is_opened_again() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    rig.input(Input::Closed { stream: down });
    let outputs = rig.say(up, &data(UNKNOWN));
    let again = rig.stream_to(DOWN);
    assert_ne!(again, down);
    assert_eq!(only(&outputs, again).message().body, data(UNKNOWN).body);
    assert!(scouts(&outputs).is_empty());
}

/// O08: the node of a connection that failed may have restarted, and has no sessions then: they are refreshed some seconds later.
/// Another connection with it, or a previous hop that has gone, changes nothing.
#[test]
fn sessions_are_refreshed_soon_after_their_connection_failed() {
    let mut rig = Rig::new();
    let (_, down) = rig.chain();
    rig.input(Input::Closed { stream: down });
    assert!(rig.wait(seconds(2.4)).is_empty());
    let outputs = rig.wait(seconds(1.1));
    assert_eq!(only(&outputs, rig.stream_to(DOWN)).message().body, Body::Empty);

    let mut rig = Rig::new();
    let (_, down) = rig.chain();
    rig.accept(DOWN);
    rig.input(Input::Closed { stream: down });
    assert!(rig.wait(seconds(10.0)).is_empty());
    let mut rig = Rig::new();
    let (up, _) = rig.chain();
    rig.input(Input::Closed { stream: up });
    assert!(rig.wait(seconds(10.0)).is_empty());
}

/// A node that needs longer for its start is tried some times more, and then with the next refresh as before.
#[test]
fn a_node_that_is_not_there_yet_is_tried_again() {
    let mut rig = Rig::new();
    let (_, down) = rig.chain();
    rig.accepting = false;
    rig.answering.clear();
    rig.input(Input::Closed { stream: down });
    let (mut tried, mut last) = (Vec::new(), down);
    for second in 0..35 {
        rig.wait(seconds(1.0));
        let stream = rig.stream_to(DOWN);
        if stream != last {
            tried.push(second);
            rig.input(Input::Closed { stream });
            last = rig.stream_to(DOWN);
        }
    }
    // The first one, three more, and then one with each refresh of the session.
    let soon = tried.iter().filter(|second| **second < 15).count();
    assert!((3..=5).contains(&soon) && tried.len() < 10, "{tried:?}");
}

/// A node that breaks its connections again and again brings the refreshes forward once in 5 s at most.
#[test]
fn refreshes_are_brought_forward_once_in_a_while() {
    let mut rig = Rig::new();
    rig.chain();
    let mut refreshes = 0;
    for _ in 0..100 {
        let down = rig.stream_to(DOWN);
        if !rig.closed.contains(&down) {
            rig.input(Input::Closed { stream: down });
        }
        refreshes += signaling(&rig.wait(seconds(0.2))).len();
    }
    assert!((1..=4).contains(&refreshes), "{refreshes}");
}

/// CASP-G-28: messages of a session come over any connection of its node; each side sends over the older one.
#[test]
fn any_connection_of_the_node_counts() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    let second = rig.accept(UP);
    let outputs = rig.say(second, &data(UNKNOWN));
    assert_eq!(only(&outputs, down).message().body, data(UNKNOWN).body);
    assert_eq!(rig.state().previous.len(), 1);
    assert_eq!(only(&rig.say(down, &flags(message(), Flags::REVERSE)), up).stream, Some(up));
    rig.input(Input::Closed { stream: up });
    assert_eq!(only(&rig.say(down, &flags(message(), Flags::REVERSE)), second).stream, Some(second));
}

/// CASP-P-10: a peer that sends nothing on the connection that it accepted.
#[test]
fn a_connection_may_be_used_one_way() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    let from_down = rig.accept(DOWN);
    let outputs = rig.say(from_down, &flags(data(UNKNOWN), Flags::REVERSE));
    assert_eq!(only(&outputs, up).message().body, data(UNKNOWN).body);
    assert_eq!(only(&rig.say(up, &message()), down).stream, Some(down));
}

/// CASP-4.1-04, CASP-P-22: a stream is split by the Length Header: in single octets, and three messages at once.
#[test]
fn pieces_of_a_stream_have_any_size() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let mut octets = Vec::new();
    for n in 1..=3 {
        let sent = Signaling { session: session(n), ..data(UNKNOWN) };
        framed(&mut octets, |octets| sent.encode(octets)).unwrap();
    }
    for octet in &octets[..octets.len() / 3] {
        assert_eq!(rig.node.session_count(), 0);
        rig.octets(up, &[*octet]);
    }
    assert_eq!(rig.node.session_count(), 1);
    let outputs = rig.octets(up, &octets);
    assert_eq!((rig.node.session_count(), signaling(&outputs).len()), (3, 3));
    let (head, tail) = octets.split_at(100);
    rig.octets(up, head);
    let outputs = rig.octets(up, tail);
    assert!(!outputs.is_empty() && rig.node.counters().malformed == 0);
    assert_eq!(rig.node.counters().signaling_received, 7);
}

/// CASP-G-02: a Length Header that no message has ends the connection, and no other one.
#[test]
fn wrong_framing_closes_the_connection() {
    for length in [23u32, 26, 70_004] {
        let mut rig = Rig::new();
        let (up, other) = (rig.accept(UP), rig.accept(OTHER));
        rig.octets(up, &length.to_be_bytes());
        assert_eq!((rig.closed.clone(), rig.node.counters().framing), (vec![up], 1));
        rig.say(other, &message());
        assert_eq!(rig.node.session_count(), 1);
    }
}

/// CASP-4.1-02: over SCTP one message is one CASP message, without Length Header.
#[test]
fn sctp_has_no_length_header() {
    let mut rig = Rig::new();
    let up = rig.accept_by(UP, Transport::Sctp, None);
    let mut octets = Vec::new();
    message().encode(&mut octets).unwrap();
    rig.octets(up, &octets);
    assert_eq!(rig.node.session_count(), 1);
    let mut rig = Rig::with(Config { transport: Transport::Sctp, ..config() });
    let up = rig.accept(UP);
    let mut octets = Vec::new();
    framed(&mut octets, |octets| message().encode(octets)).unwrap();
    rig.node.handle(rig.now, Input::Octets { stream: up, octets: &octets });
    let mut written = Vec::new();
    for _ in 0..10 {
        while let Some(output) = rig.node.poll() {
            match output {
                signalbox_casp::engine::Output::RouteLookup { id, .. } => {
                    let route = signalbox_core::node::Route {
                        ifindex: signalbox_core::IfIndex(2),
                        src: ip(FAR),
                        gateway: None,
                        mtu: 1500,
                        local: false,
                    };
                    rig.node.handle(rig.now, Input::Route { id, result: Ok(route) });
                }
                signalbox_casp::engine::Output::Send(packet) => {
                    let Ok(Message::ScoutRequest(cookie)) = Message::parse(packet.payload) else { panic!() };
                    rig.response(cookie, COOKIE, ip(DOWN), ip(FAR), 50004);
                }
                signalbox_casp::engine::Output::Open { stream, transport, .. } => {
                    assert_eq!(transport, Transport::Sctp);
                    rig.node.handle(rig.now, Input::Connected { stream, identity: None });
                }
                signalbox_casp::engine::Output::Write { octets, .. } => written.push(octets.to_vec()),
                other => panic!("{other:?}"),
            }
        }
    }
    let [octets] = &written[..] else { panic!("{written:?}") };
    assert!(matches!(Message::parse(octets), Ok(Message::Signaling(sent)) if sent.session == session(1)));
}

fn udp() -> Config {
    let next = Prefix { addr: ip("10.0.1.0"), len: 24 };
    Config { transports: vec![(next, Transport::Udp)], ..config() }
}

/// CASP-3-14, CASP-4.1-02, CASP-P-19, CASP-G-21: messages over UDP where it is configured, without Length Header.
#[test]
fn messages_may_use_udp() {
    let mut rig = Rig::with(udp());
    let up = rig.accept(UP);
    let outputs = signaling(&rig.say(up, &message()));
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].dst.unwrap().to_string(), format!("{DOWN}:50003"));
    assert_eq!(cookie_of(&outputs[0]), Some(COOKIE));
    assert_eq!(outputs[0].src.map(|src| src.ip()), Some(ip(FAR)));
    let outputs = rig.datagram(DOWN, FAR, &flags(data(UNKNOWN), Flags::REVERSE));
    assert_eq!(only(&outputs, up).message().body, data(UNKNOWN).body);
}

/// CASP-3-12: a message of more than 512 octets uses a connection.
#[test]
fn long_messages_do_not_use_udp() {
    let mut rig = Rig::with(udp());
    let up = rig.accept(UP);
    rig.say(up, &message());
    let long = [7; 512];
    for (length, opened) in [(460, 0), (461, 1), (500, 1)] {
        let sent = Signaling { body: Body::Client { client: UNKNOWN, data: &long[..length] }, ..message() };
        let outputs = rig.say(up, &sent);
        assert_eq!(outputs[0].stream.is_some(), opened > 0, "{length}");
        assert!(opened > 0 || outputs[0].octets.len() <= 512);
        assert_eq!(rig.opened.len(), opened);
        assert_eq!(outputs[0].message().body, sent.body);
    }
}

/// CASP-3-13, CASP-G-29: 20 messages at once and 10 a second use UDP, the rest a connection.
#[test]
fn the_rate_over_udp_is_limited() {
    let mut rig = Rig::with(udp());
    let up = rig.accept(UP);
    let mut datagrams = 0;
    let mut streams = 0;
    for _ in 0..100 {
        for one in signaling(&rig.say(up, &data(UNKNOWN))) {
            if one.stream.is_some() { streams += 1 } else { datagrams += 1 }
        }
    }
    assert_eq!((datagrams, streams), (20, 80));
    rig.wait(seconds(1.0));
    let more = (0..100).filter(|_| rig.say(up, &data(UNKNOWN))[0].stream.is_none()).count();
    assert_eq!(more, 10);
}

/// CASP-G-27: over UDP new state, and a new previous hop, need a cookie or a configured neighbor.
#[test]
fn datagrams_of_strangers_make_no_state() {
    let mut rig = Rig::new();
    rig.datagram(UP, NEAR, &message());
    assert_eq!((rig.node.session_count(), rig.node.counters().unproved), (0, 1));
    let mut rig = Rig::with(Config { neighbors: [ip(UP)].into(), ..config() });
    rig.datagram(UP, NEAR, &message());
    assert_eq!(rig.node.session_count(), 1);
    rig.datagram(OTHER, NEAR, &message());
    assert_eq!((rig.state().previous.len(), rig.node.peer_count()), (1, 2));
    // A previous hop that uses datagrams is answered by one.
    let down = rig.stream_to(DOWN);
    let outputs = rig.say(down, &flags(message(), Flags::REVERSE));
    assert_eq!(outputs[0].dst.map(|dst| dst.to_string()), Some(format!("{UP}:50003")));
}

/// CASP-4.4-08, CASP-G-12: a bad cookie is answered with COOKIE_ERROR on the same way, and nothing else happens.
#[test]
fn a_bad_cookie_is_refused() {
    let bad = Signaling { proof: Some(Proof::Cookie([1; 8])), ..data(CLIENT) };
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let outputs = rig.say(up, &bad);
    let error = only(&outputs, up);
    let error = error.message();
    assert_eq!(
        (error.body, error.session, error.flow),
        (Body::Error(ErrorCode::COOKIE_ERROR), session(1), flow())
    );
    assert_eq!(error.flags, Flags::REVERSE.with(Flags::UNSECURE));
    let outputs = rig.datagram(UP, NEAR, &bad);
    assert_eq!(outputs.len(), 1);
    assert_eq!((outputs[0].dst.unwrap().to_string(), outputs[0].octets.len()), (format!("{UP}:50003"), 48));
    assert_eq!((rig.node.session_count(), rig.indicated.len(), rig.lookups), (0, 0, 0));
    // An error is never answered with an error.
    let error = Signaling { body: Body::Error(ErrorCode::UNKNOWN), ..bad };
    assert!(rig.say(up, &error).is_empty());
}

/// CASP-G-15: a SCOUT_COOKIE_R of unknown C-Type is a bad cookie.
#[test]
fn a_cookie_of_unknown_type_is_bad() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let mut octets = Vec::new();
    message().encode(&mut octets).unwrap();
    octets.extend([0, 8, 6, 9, 0, 0, 0, 1]);
    let framed = [u32::try_from(octets.len() + 4).unwrap().to_be_bytes().to_vec(), octets].concat();
    let outputs = rig.octets(up, &framed);
    assert_eq!(only(&outputs, up).message().body, Body::Error(ErrorCode::COOKIE_ERROR));
    assert_eq!(rig.node.session_count(), 0);
}

/// CASP-G-12, CASP-G-13: the node that inserted the cookie discovers once more and does not pass the error on; the second
/// refusal ends it.
#[test]
fn a_refused_cookie_makes_the_node_discover_once_more() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    rig.say(up, &data(CLIENT));
    let down = rig.stream_to(DOWN);
    rig.take_indicated();
    let error = Signaling { body: Body::Error(ErrorCode::COOKIE_ERROR), ..flags(message(), Flags::REVERSE) };
    let outputs = rig.say(down, &error);
    assert_eq!((scouts(&outputs).len(), outputs.iter().filter(|one| one.stream == Some(up)).count()), (1, 0));
    let again = only(&outputs, down);
    assert_eq!((again.message().body, cookie_of(&again)), (data(CLIENT).body, Some(COOKIE)));
    let outputs = rig.say(down, &error);
    assert!(outputs.is_empty(), "{outputs:?}");
    assert_eq!(rig.take_indicated(), [Indicated::Undelivered(flow())]);
    // A cookie error that answers nothing is ignored.
    let mut rig = Rig::new();
    let (_, down) = rig.chain();
    rig.say(down, &flags(message(), Flags::REVERSE));
    assert!(rig.say(down, &error).is_empty());
    assert_eq!(rig.state().next.len(), 1);
}

/// Clients that had messages of a next hop learn that it ended, because the next one has another branch number.
#[test]
fn a_known_hop_that_refuses_a_cookie_ends() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    rig.say(up, &data(CLIENT));
    let down = rig.stream_to(DOWN);
    rig.say(down, &flags(data(CLIENT), Flags::REVERSE));
    rig.wait(seconds(6.0));
    rig.say(up, &flags(data(CLIENT), Flags::DISCOVER));
    rig.take_indicated();
    rig.say(
        down,
        &Signaling { body: Body::Error(ErrorCode::COOKIE_ERROR), ..flags(message(), Flags::REVERSE) },
    );
    assert_eq!(rig.take_indicated(), [Indicated::Branch { previous: false, id: 0, ended: true }]);
    assert_eq!(rig.state().next.iter().map(|hop| hop.id).collect::<Vec<_>>(), [1]);
}

/// CASP-00-08: an idle connection is closed after its time; one that is used stays.
#[test]
fn idle_connections_are_closed() {
    let mut rig = Rig::new();
    let (up, other) = (rig.accept(UP), rig.accept(OTHER));
    for _ in 0..7 {
        rig.wait(seconds(90.0));
        rig.say(up, &flags(message(), Flags::REVERSE));
    }
    assert_eq!(rig.closed, [other]);
    rig.wait(seconds(599.0));
    assert_eq!(rig.closed, [other]);
    rig.wait(seconds(2.0));
    assert_eq!(rig.closed, [other, up]);
    assert_eq!(rig.node.peer_count(), 0);
}

/// CASP-9.2-05: connections of nodes outside of the domain are refused.
#[test]
fn only_known_peers_may_connect() {
    let peers = vec![Prefix { addr: ip("10.0.0.0"), len: 24 }];
    let mut rig = Rig::with(Config { peers, ..config() });
    let stranger = rig.accept("172.16.0.1");
    rig.accept(UP);
    assert_eq!((rig.closed.clone(), rig.node.counters().refused_peers), (vec![stranger], 1));
}

/// CASP-9.2-04, CASP-9.2-06: over TLS a node is its certificate: the same address without it is another node.
#[test]
fn a_peer_is_its_identity() {
    let mut rig = Rig::new();
    let owner = rig.accept_by(UP, Transport::Tls, identity(1));
    rig.say(owner, &message());
    let plain = rig.accept(UP);
    assert!(rig.say(plain, &flags(message(), Flags::TEAR_DOWN)).is_empty());
    let thief = rig.accept_by(UP, Transport::Tls, identity(2));
    assert!(rig.say(thief, &flags(message(), Flags::TEAR_DOWN)).is_empty());
    assert_eq!((rig.node.session_count(), rig.node.counters().strangers), (1, 2));
    let again = rig.accept_by(UP, Transport::Tls, identity(1));
    rig.say(again, &flags(message(), Flags::TEAR_DOWN));
    assert_eq!(rig.node.session_count(), 0);
}

/// A previous hop that proved a key is reached by TLS again, whatever the transport of new next hops is. If another node answers at its
/// address, what waits is given up, and later messages try again.
#[test]
fn a_previous_hop_with_a_key_is_reached_by_tls_again() {
    let mut rig = Rig::new();
    let up = rig.accept_by(UP, Transport::Tls, identity(9));
    rig.say(up, &message());
    let down = rig.stream_to(DOWN);
    rig.input(Input::Closed { stream: up });
    let outputs = rig.say(down, &flags(data(UNKNOWN), Flags::REVERSE));
    assert_eq!(rig.opened.last().map(|(_, transport, ..)| *transport), Some(Transport::Tls));
    assert_eq!(only(&outputs, rig.stream_to(UP)).message().body, data(UNKNOWN).body);

    let mut rig = Rig::new();
    let up = rig.accept_by(UP, Transport::Tls, identity(1));
    rig.say(up, &message());
    let down = rig.stream_to(DOWN);
    rig.input(Input::Closed { stream: up });
    assert!(rig.say(down, &flags(data(UNKNOWN), Flags::REVERSE)).is_empty());
    assert_eq!((rig.state().waiting, rig.node.counters().no_connection), (0, 1));
    let again = rig.accept_by(UP, Transport::Tls, identity(1));
    let outputs = rig.say(down, &flags(data(UNKNOWN), Flags::REVERSE));
    assert_eq!(only(&outputs, again).message().body, data(UNKNOWN).body);
}

/// CASP-3-11: a peer that does not read gets no more than a bounded number of octets.
#[test]
fn a_peer_that_does_not_read_is_not_waited_for() {
    let mut rig = Rig::with(Config { max_unsent: 10_000, ..config() });
    let (up, _) = rig.chain();
    rig.reading = false;
    let sent = (0..1000).filter(|_| !rig.say(up, &data(UNKNOWN)).is_empty()).count();
    assert!((100..250).contains(&sent), "{sent}");
    assert!(rig.node.counters().peer_blocked > 700);
    rig.reading = true;
    let down = rig.stream_to(DOWN);
    rig.input(Input::Drained { stream: down, unsent: 0 });
    assert_eq!(rig.say(up, &data(UNKNOWN)).len(), 1);
}

/// Where TLS is needed, a connection of the node without TLS does not keep messages waiting.
#[test]
fn a_connection_without_tls_does_not_stand_in_its_way() {
    let mut rig = Rig::with(Config { transport: Transport::Tls, ..config() });
    rig.accept(DOWN);
    let up = rig.accept(UP);
    let outputs = rig.say(up, &data(UNKNOWN));
    assert_eq!(rig.opened.iter().map(|opened| opened.1).collect::<Vec<_>>(), [Transport::Tls]);
    assert_eq!(only(&outputs, rig.stream_to(DOWN)).message().body, data(UNKNOWN).body);
}

/// CASP-3-11: a connection that is not established in time fails, and its messages are given up.
#[test]
fn a_connection_has_its_time() {
    let mut rig = Rig::new();
    rig.accepting = false;
    rig.answering = vec![ip(DOWN)];
    let send = SendRequest::new(None, flow(), b"x");
    rig.request(CLIENT, Request::Send(send));
    rig.take_indicated();
    rig.wait(seconds(9.9));
    assert_eq!(rig.take_indicated(), []);
    rig.answering.clear();
    rig.wait(seconds(20.0));
    assert_eq!(rig.take_indicated(), [Indicated::Undelivered(flow())]);
    assert_eq!(rig.closed.len(), 1);
}
