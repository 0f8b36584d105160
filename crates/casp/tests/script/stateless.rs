//! Delivery without state: RECORD_ROUTE along the flow, ROUTE back.

use std::net::SocketAddr;

use signalbox_casp::engine::{Arrival, Config, Mechanism, Refused, Request, SendRequest, Transport, Verdict};
use signalbox_casp::wire::route::{Hop, MAX_ENTRIES, Route, Routing};
use signalbox_casp::wire::{Body, Class, ClientType, ErrorCode, Flags, ONLY, Objects, Signaling, write};
use signalbox_wire::Writer;

use crate::net::{Net, address, flow_to as flow_in_net};
use crate::rig::*;

/// The octets of entries with these addresses, over TCP.
fn entries(all: &[&str]) -> Vec<u8> {
    let mut octets = Vec::new();
    for address in all {
        let hop = Hop { transport: 6, address: SocketAddr::new(ip(address), 50003) };
        hop.encode(&mut Writer::new(&mut octets));
    }
    octets
}

/// A message of a client without state, along the flow.
fn record(client: ClientType, entries: &[u8]) -> Signaling<'_> {
    Signaling { timeout: None, route: Some(Routing::Record(entries)), ..data(client) }
}

/// An answer.
fn back(entries: &[u8]) -> Signaling<'_> {
    let route = Some(Routing::Route(entries));
    flags(Signaling { timeout: None, route, ..data(CLIENT) }, Flags::REVERSE)
}

/// A client with the number of [`CLIENT`] takes messages without state, another one does not.
fn stateless() -> Config {
    Config { stateless_clients: [CLIENT.0].into(), ..config() }
}

fn rig() -> Rig {
    Rig::with(stateless())
}

fn asked() -> SendRequest<'static> {
    SendRequest { tag: 5, record_route: true, ..SendRequest::new(None, flow(), b"hello") }
}

fn received(rig: &mut Rig) -> Vec<(Box<Arrival<'static>>, Vec<u8>)> {
    let all = rig.take_indicated().into_iter().filter_map(|indicated| match indicated {
        Indicated::Received(arrival, data) => Some((arrival, data)),
        _ => None,
    });
    all.collect()
}

/// CASP-G-33: along a chain of nodes that keep nothing a message arrives with the list of them, and the answer goes back over these
/// nodes, whatever routing says.
#[test]
fn an_answer_returns_over_nodes_without_state() {
    let mut net = Net::row(5, &[], |_, config| config.stateless_clients = [CLIENT.0].into());
    net.request(0, SendRequest { record_route: true, ..SendRequest::new(None, flow_in_net(4), b"x") });
    assert_eq!(net.counts(), [0; 5]);
    let (session, route) = arrived(&net, 4);
    let hops: Vec<_> = Route::parse(&route).unwrap().iter().collect();
    assert_eq!(
        hops.iter().map(|hop| hop.address.ip()).collect::<Vec<_>>(),
        (0..4).map(address).collect::<Vec<_>>()
    );
    assert!(hops.iter().all(|hop| (hop.transport, hop.address.port()) == (6, 50003)));
    assert_eq!(nodes(&mut net), [(1, false), (2, false), (3, false), (4, false)]);

    net.routes.insert((4, 0), 0);
    let send = SendRequest::new(Some(session), flow_in_net(4), &b"y"[..]);
    net.request(4, SendRequest { reverse: true, route: Some(&route), ..send });
    assert_eq!(nodes(&mut net), [(3, true), (2, true), (1, true), (0, true)]);
    assert_eq!(net.counts(), [0; 5]);
    let sent = net.sent.len();
    assert_eq!(sent, 8);
    net.wait(seconds(300.0));
    assert_eq!(net.sent.len(), sent, "nothing is refreshed");
}

/// CASP-G-33: a node that does not know the classes keeps state and passes the objects on. Nodes behind it keep state too; the
/// nodes before it need none, and the answer passes all of them.
#[test]
fn nodes_that_keep_state_may_be_on_the_way() {
    let mut net = Net::row(5, &[], |node, config| {
        config.stateless_clients = [CLIENT.0].into();
        config.stateless = node != 2;
    });
    net.request(0, SendRequest { record_route: true, ..SendRequest::new(None, flow_in_net(4), b"x") });
    assert_eq!(net.counts(), [0, 0, 1, 1, 1]);
    let (session, route) = arrived(&net, 4);
    assert_eq!(Route::parse(&route).unwrap().len(), 2);
    nodes(&mut net);
    let send = SendRequest::new(Some(session), flow_in_net(4), &b"y"[..]);
    net.request(4, SendRequest { reverse: true, route: Some(&route), ..send });
    assert_eq!(nodes(&mut net), [(3, true), (2, true), (1, true), (0, true)]);
    net.wait(seconds(300.0));
    assert_eq!(net.counts(), [0; 5], "without refreshes the state expires");
}

/// The session and the route of the message that came to a node.
fn arrived(net: &Net, node: usize) -> (signalbox_core::SessionId, Vec<u8>) {
    let found = net.indicated.iter().find_map(|(at, indicated)| match indicated {
        Indicated::Received(arrival, _) if *at == node => {
            Some((arrival.session, net.routes_seen[&node].clone()))
        }
        _ => None,
    });
    found.unwrap()
}

/// The nodes whose client had a message, in their order, and its direction.
fn nodes(net: &mut Net) -> Vec<(usize, bool)> {
    let all =
        core::mem::take(&mut net.indicated).into_iter().filter_map(|(node, indicated)| match indicated {
            Indicated::Received(arrival, _) => Some((node, arrival.reverse)),
            _ => None,
        });
    all.collect()
}

/// CASP-G-33: the octets that a node sends on, with its own entry at the end.
#[test]
fn a_node_appends_itself() {
    let mut rig = rig();
    let up = rig.accept(UP);
    let outputs = rig.say(up, &record(UNKNOWN, &entries(&[UP])));
    let down = rig.stream_to(DOWN);
    let sent = only(&outputs, down);
    let message = sent.message();
    assert_eq!(message.route, Some(Routing::Record(&entries(&[UP, FAR]))));
    assert_eq!((message.ttd, message.hops, message.timeout), (63, 1, None));
    assert_eq!(message.body, data(UNKNOWN).body);
    assert_eq!(cookie_of(&sent), Some(COOKIE), "the next hop was discovered");
    assert_eq!((rig.node.session_count(), rig.node.counters().stateless_forwarded), (0, 1));
    // The next one is discovered again, and leaves over the connection that stands.
    let outputs = rig.say(up, &record(UNKNOWN, &entries(&[UP])));
    assert_eq!((scouts(&outputs).len(), signaling(&outputs).len(), rig.opened.len()), (1, 1, 1));
    assert!(rig.wait(seconds(300.0)).is_empty());
    assert_eq!(rig.node.tables()[7].size, 0);
}

/// CASP-G-33: a node removes itself from a ROUTE and sends the message to the node before, over its connection.
#[test]
fn a_node_removes_itself() {
    let mut rig = rig();
    let (up, other) = (rig.accept(UP), rig.accept(OTHER));
    let down = rig.accept(DOWN);
    let outputs = rig.say(down, &back(&entries(&[OTHER, UP, FAR])));
    assert_eq!(only(&outputs, up).message().route, Some(Routing::Route(&entries(&[OTHER, UP]))));
    assert_eq!((only(&outputs, up).message().ttd, outputs.len()), (63, 1));
    let outputs = rig.say(down, &back(&entries(&[OTHER, NEAR])));
    assert_eq!(only(&outputs, other).message().route, Some(Routing::Route(&entries(&[OTHER]))));
    assert!(
        received(&mut rig).iter().all(|(arrival, _)| arrival.stateless && arrival.reverse && !arrival.last)
    );
    // The first entry is that of the initiator.
    assert!(rig.say(down, &back(&entries(&[FAR]))).is_empty());
    let all = received(&mut rig);
    assert!(all[0].0.last && all[0].0.stateless && all[0].1 == b"hello");
    assert_eq!((rig.node.counters().stateless_returned, rig.node.session_count()), (2, 0));
}

/// A node sends a message with ROUTE only to nodes to which it has a connection.
#[test]
fn a_route_leads_to_no_strangers() {
    let mut rig = rig();
    let down = rig.accept(DOWN);
    for stranger in [OTHER, "203.0.113.9", "224.0.0.5", "255.255.255.255", "127.0.0.1", "2001:db8::9"] {
        assert!(rig.say(down, &back(&entries(&[stranger, FAR]))).is_empty(), "{stranger}");
    }
    assert!(rig.opened.is_empty());
    assert_eq!(rig.node.counters().route_refused, 6);
    // A datagram of a node that is no neighbor.
    rig.accept(UP);
    assert!(rig.datagram(DOWN2, FAR, &back(&entries(&[UP, FAR]))).is_empty());
    assert!(rig.datagram(UP, NEAR, &record(CLIENT, &entries(&[UP]))).is_empty());
    assert_eq!((rig.node.counters().unproved, rig.node.session_count()), (2, 0));
}

#[test]
fn a_route_may_lead_to_a_neighbor_without_connection() {
    let neighbors = [ip(UP), ip(OTHER)].into();
    let transports = vec![(signalbox_core::node::Prefix::host(ip(UP)), Transport::Udp)];
    let mut rig = Rig::with(Config { neighbors, transports, ..stateless() });
    let down = rig.accept(DOWN);
    let outputs = rig.say(down, &back(&entries(&[OTHER, FAR])));
    assert_eq!(
        only(&outputs, rig.stream_to(OTHER)).message().route,
        Some(Routing::Route(&entries(&[OTHER])))
    );
    let outputs = rig.say(down, &back(&entries(&[UP, FAR])));
    assert_eq!(outputs[0].dst, Some(SocketAddr::new(ip(UP), 50003)));
    assert_eq!((outputs.len(), rig.opened.len()), (1, 1));
    // One that does not accept the connection.
    let mut rig = Rig::with(Config { neighbors: [ip(OTHER)].into(), ..stateless() });
    rig.accepting = false;
    let down = rig.accept(DOWN);
    assert!(rig.say(down, &back(&entries(&[OTHER, FAR]))).is_empty());
    assert!(rig.wait(seconds(20.0)).is_empty());
    assert_eq!((rig.node.counters().no_connection, rig.node.tables()[7].size), (1, 0));
}

/// Lists that are too long, that cannot be read, that are there twice, and those with an address of this node.
#[test]
fn wrong_routes_go_nowhere() {
    let mut rig = rig();
    let (up, down) = (rig.accept(UP), rig.accept(DOWN));
    let many = |count: usize, last: &str| {
        let mut all: Vec<String> = (1..count).map(|n| format!("10.7.0.{n}")).collect();
        all.push(last.to_owned());
        entries(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let full = many(MAX_ENTRIES, UP);
    let long = many(MAX_ENTRIES + 1, UP);
    let unread = [entries(&[UP]), vec![5, 6, 0, 0]].concat();
    let own = entries(&[NEAR, UP]);
    for contents in [&full, &long, &unread, &own] {
        assert!(rig.say(up, &record(UNKNOWN, contents)).is_empty());
    }
    let counters = rig.node.counters();
    assert_eq!((counters.route_full, counters.malformed, counters.loops), (1, 2, 1));
    // The last place is that of this node.
    let last = many(MAX_ENTRIES - 1, UP);
    assert_eq!(signaling(&rig.say(up, &record(UNKNOWN, &last))).len(), 1);
    assert!(rig.say(down, &back(&entries(&[UP, FAR, UP, FAR]))).is_empty());
    assert_eq!(rig.node.counters().loops, 2);

    let contents = entries(&[UP]);
    let mut objects = Vec::new();
    for class in [Class::RECORD_ROUTE, Class::ROUTE] {
        write(&mut Writer::new(&mut objects), class, ONLY, |w| w.bytes(&contents)).unwrap();
    }
    let objects = Objects::of(&objects);
    assert!(rig.say(up, &Signaling { objects, ..data(UNKNOWN) }).is_empty());
    assert_eq!((rig.node.counters().malformed, rig.node.session_count()), (3, 0));
}

/// A message whose last entry is another node comes from one that keeps state: so does this node. T and ERROR are about state.
#[test]
fn a_message_of_a_node_with_state_makes_state() {
    let mut rig = rig();
    let up = rig.accept(UP);
    let contents = entries(&[OTHER]);
    let outputs = rig.say(up, &record(UNKNOWN, &contents));
    let sent = only(&outputs, rig.stream_to(DOWN));
    assert_eq!((sent.message().route, rig.node.session_count()), (Some(Routing::Record(&contents)), 1));
    let contents = entries(&[UP]);
    let in_session = |n, message| Signaling { session: session(n), ..message };
    rig.say(up, &in_session(2, flags(record(UNKNOWN, &contents), Flags::TEAR_DOWN)));
    rig.say(
        up,
        &in_session(3, Signaling { body: Body::Error(ErrorCode::UNKNOWN), ..record(UNKNOWN, &contents) }),
    );
    assert_eq!((rig.node.counters().no_state, rig.node.session_count()), (2, 1));
    // Switched off, all classes of a suite that is not known pass with state.
    let mut rig = Rig::with(Config { stateless: false, ..stateless() });
    let up = rig.accept(UP);
    let outputs = rig.say(up, &record(CLIENT, &contents));
    let sent = only(&outputs, rig.stream_to(DOWN));
    assert_eq!((sent.message().route, rig.node.session_count()), (Some(Routing::Record(&contents)), 1));
    assert!(received(&mut rig).iter().all(|(arrival, _)| !arrival.stateless));
}

/// An ERROR with a list of nodes, which goes back along it.
fn error(entries: &[u8], code: ErrorCode) -> Signaling<'_> {
    Signaling { body: Body::Error(code), ..back(entries) }
}

/// With private codes the initiator learns that a message without state does not arrive: there is no next node, TTD is over, or the
/// client needs state. The ERROR goes back along the list, in at most as many octets.
#[test]
fn what_cannot_be_sent_on_is_reported() {
    let contents = entries(&[OTHER, UP]);
    for private_errors in [true, false] {
        let mut rig = Rig::with(Config { private_errors, ..stateless() });
        rig.answering.clear();
        let up = rig.accept(UP);
        let mut reported = |message: &Signaling<'_>, code| {
            let mut outputs = rig.say(up, message);
            outputs.extend(rig.wait(seconds(16.0)));
            let sent = signaling(&outputs);
            if private_errors {
                assert_eq!(sent.len(), 1, "{code}");
                let answer = sent[0].message();
                assert_eq!((answer.body, answer.route), (Body::Error(code), Some(Routing::Route(&contents))));
                assert_eq!((answer.flags.is_reverse(), answer.session), (true, message.session));
            } else {
                assert!(sent.is_empty(), "{code}");
            }
        };
        reported(&record(UNKNOWN, &contents), ErrorCode::NO_NEXT_PEER);
        reported(&Signaling { ttd: 1, ..record(UNKNOWN, &contents) }, ErrorCode::TTD_EXCEEDED);
        reported(&record(ClientType(79), &contents), ErrorCode::NO_CLIENT);
        assert_eq!(
            (rig.node.counters().errors_sent, rig.node.session_count()),
            (3 * u64::from(private_errors), 0)
        );
    }
}

/// An ERROR about a message without state passes nodes as an answer does, is never answered, and goes to the clients that send such
/// messages. It changes no session with state.
#[test]
fn an_error_goes_back_without_state() {
    let mut rig = Rig::with(Config { private_errors: true, ..stateless() });
    let (up, down) = (rig.accept(UP), rig.accept(DOWN));
    let code = ErrorCode::NO_NEXT_PEER;
    let outputs = rig.say(down, &error(&entries(&[OTHER, UP, FAR]), code));
    assert_eq!(only(&outputs, up).message().route, Some(Routing::Route(&entries(&[OTHER, UP]))));
    assert_eq!((only(&outputs, up).message().body, rig.take_indicated().len()), (Body::Error(code), 0));
    // The node before cannot be reached.
    assert!(rig.say(down, &error(&entries(&[OTHER, FAR]), code)).is_empty());
    assert!(rig.say(down, &error(&entries(&[FAR]), code)).is_empty());
    assert_eq!(rig.take_indicated(), [Indicated::Error(code)]);
    rig.say(up, &message());
    rig.take_indicated();
    assert!(rig.say(down, &error(&entries(&[FAR]), code)).is_empty());
    assert_eq!((rig.take_indicated(), rig.node.counters().strangers), (vec![], 1));
}

/// Reports because of the messages of one node are limited.
#[test]
fn reports_are_limited() {
    let mut rig =
        Rig::with(Config { private_errors: true, stateless_rate: 0, answer_rate: 40, ..stateless() });
    let up = rig.accept(UP);
    let contents = entries(&[UP]);
    for _ in 0..100 {
        rig.say(up, &record(ClientType(79), &contents));
    }
    assert_eq!((rig.node.counters().errors_sent, rig.node.counters().errors_limited), (10, 90));
}

/// A client decides about a message without state as about others; one that needs state does not get it.
#[test]
fn clients_decide_about_messages_without_state() {
    let mut rig = rig();
    let up = rig.accept(UP);
    let contents = entries(&[UP]);
    rig.verdict = Some(Verdict::Replace(b"other"));
    let outputs = rig.say(up, &record(CLIENT, &contents));
    let down = rig.stream_to(DOWN);
    assert_eq!(only(&outputs, down).message().body, Body::Client { client: CLIENT, data: b"other" });
    let all = received(&mut rig);
    let arrival = &all[0].0;
    assert!(arrival.stateless && !arrival.last && arrival.id != 0);
    assert_eq!((arrival.peer, arrival.timeout, arrival.hops), (ip(UP), 0, 0));
    rig.verdict = Some(Verdict::Consume);
    assert!(rig.say(up, &record(CLIENT, &contents)).is_empty());
    rig.verdict = None;
    assert!(rig.say(up, &record(CLIENT, &contents)).is_empty());
    assert_eq!(signaling(&rig.wait(seconds(1.1))).len(), 1, "it goes on after a second");
    rig.take_indicated();
    assert!(rig.say(up, &record(ClientType(79), &contents)).is_empty());
    assert_eq!((rig.node.counters().needs_state, rig.take_indicated().len()), (1, 0));
}

/// TTD counts nodes without state too, and no message goes to a node that it has passed.
#[test]
fn messages_without_state_end() {
    let mut rig = rig();
    let up = rig.accept(UP);
    let contents = entries(&[UP]);
    assert!(rig.say(up, &Signaling { ttd: 1, ..record(CLIENT, &contents) }).is_empty());
    assert_eq!((rig.node.counters().ttd_exceeded, received(&mut rig).len()), (1, 1));
    rig.answering = vec![ip(UP)];
    assert!(signaling(&rig.say(up, &record(UNKNOWN, &contents))).is_empty());
    assert_eq!(rig.node.counters().loops, 1);
    // At the end of the flow nothing is sent on.
    let here = Signaling { flow: flow_to(FAR, 5006), ..record(CLIENT, &contents) };
    assert!(rig.say(up, &here).is_empty());
    assert!(received(&mut rig)[0].0.last);
}

/// CASP-G-33: a client of this node sends without state, and answers without state.
#[test]
fn a_client_sends_without_state() {
    let mut rig = rig();
    let outputs = rig.request(CLIENT, Request::Send(asked()));
    let down = rig.stream_to(DOWN);
    let sent = only(&outputs, down);
    assert_eq!(sent.message().route, Some(Routing::Record(&entries(&[FAR]))));
    assert_eq!((sent.message().ttd, sent.message().hops), (64, 0));
    let [Indicated::Opened(5, id)] = rig.take_indicated()[..] else { panic!() };
    assert_eq!((sent.message().session, rig.node.session_count()), (id, 0));
    // The answer ends here.
    rig.say(down, &back(&entries(&[FAR])));
    assert!(received(&mut rig)[0].0.last);

    let up = rig.accept(UP);
    let contents = entries(&[OTHER, UP]);
    let answer = SendRequest::new(Some(session(1)), flow(), &b"yes"[..]);
    let answer = SendRequest { reverse: true, route: Some(&contents), ..answer };
    let outputs = rig.request(CLIENT, Request::Send(answer));
    let sent = only(&outputs, up);
    assert_eq!(sent.message().route, Some(Routing::Route(&contents)));
    assert_eq!(
        (sent.message().body, sent.message().hops),
        (Body::Client { client: CLIENT, data: b"yes" }, 0)
    );
    // No node answers: this one is the last.
    rig.answering.clear();
    rig.request(CLIENT, Request::Send(asked()));
    rig.wait(seconds(16.0));
    assert_eq!(rig.take_indicated().last(), Some(&Indicated::Undelivered(flow())));
    assert_eq!(rig.node.tables()[7].size, 0);
}

#[test]
fn requests_that_need_state_are_refused() {
    let mut rig = rig();
    let up = rig.accept(UP);
    rig.say(up, &data(CLIENT));
    let (own, unread) = (entries(&[UP]), [4, 6]);
    let answer = SendRequest { reverse: true, ..SendRequest::new(Some(session(7)), flow(), &b""[..]) };
    for send in [
        SendRequest { hold: true, ..asked() },
        SendRequest { discover: true, ..asked() },
        SendRequest { tear_down: true, ..asked() },
        SendRequest { branch: Some(0), ..asked() },
        SendRequest { reverse: true, ..asked() },
        SendRequest { session: Some(session(1)), ..asked() },
        SendRequest { route: Some(&own), ..asked() },
        SendRequest { route: Some(&unread), ..answer },
        SendRequest { route: Some(&[]), ..answer },
        SendRequest { route: Some(&own), reverse: false, ..answer },
    ] {
        assert!(refused(&mut rig, CLIENT, send), "{send:?}");
    }
    assert!(refused(&mut rig, ClientType(79), asked()), "it does not take such messages");
    assert!(refused(&mut Rig::with(Config { stateless: false, ..stateless() }), CLIENT, asked()));
}

fn refused(rig: &mut Rig, client: ClientType, send: SendRequest<'_>) -> bool {
    rig.take_indicated();
    let outputs = rig.request(client, Request::Send(send));
    outputs.is_empty() && matches!(rig.take_indicated()[..], [Indicated::Refused(_, Refused::Stateless)])
}

/// CASP-G-33: over UDP only between neighbors, and 512 octets at most. All else goes over a connection.
#[test]
fn datagrams_pass_between_neighbors() {
    let udp = Config {
        transport: Transport::Udp,
        mechanisms: vec![Mechanism::Routing, Mechanism::Scout],
        neighbors: [ip(UP), ip(DOWN)].into(),
        ..stateless()
    };
    let mut rig = Rig::with(udp.clone());
    rig.gateway = Ok(Some(ip(DOWN)));
    let contents = entries(&[UP]);
    let outputs = rig.datagram(UP, NEAR, &record(UNKNOWN, &contents));
    let sent = signaling(&outputs);
    assert_eq!(
        (sent[0].src, sent[0].dst),
        (Some(SocketAddr::new(ip(FAR), 50003)), Some(SocketAddr::new(ip(DOWN), 50003)))
    );
    let mut expected = contents.clone();
    let own = Hop { transport: 17, address: SocketAddr::new(ip(FAR), 50003) };
    own.encode(&mut Writer::new(&mut expected));
    assert_eq!(sent[0].message().route, Some(Routing::Record(&expected)));
    let large = [7; 470];
    let body = Body::Client { client: UNKNOWN, data: &large };
    rig.datagram(UP, NEAR, &Signaling { body, ..record(UNKNOWN, &contents) });
    assert_eq!(rig.opened.last().map(|opened| opened.1), Some(Transport::Tcp));
    // A node that is no neighbor could not send the answer by a datagram.
    let mut rig = Rig::with(Config { neighbors: [ip(UP)].into(), ..udp });
    let outputs = rig.datagram(UP, NEAR, &record(UNKNOWN, &contents));
    assert!(only(&outputs, rig.stream_to(DOWN)).message().route.is_some());
}

/// The place of a node that cannot be reached is taken by the other one that answered scout, once.
#[test]
fn another_node_is_tried_once() {
    let mut rig = rig();
    rig.answering = vec![ip(DOWN), ip(DOWN2)];
    rig.accepting = false;
    let up = rig.accept(UP);
    rig.say(up, &record(UNKNOWN, &entries(&[UP])));
    assert_eq!(rig.opened.len(), 1);
    rig.wait(seconds(11.0));
    assert_eq!(rig.opened.iter().map(|opened| opened.3.ip()).collect::<Vec<_>>(), [ip(DOWN), ip(DOWN2)]);
    rig.wait(seconds(60.0));
    assert_eq!((rig.opened.len(), rig.node.counters().no_connection, rig.node.tables()[7].size), (2, 1, 0));
}

/// Messages without state of a node are limited, and their places are shared: another node finds its own.
#[test]
fn a_node_that_floods_without_state_leaves_places_to_others() {
    let mut rig = Rig::with(Config { stateless_rate: 40, ..stateless() });
    let (up, other) = (rig.accept(UP), rig.accept(OTHER));
    let (own, others) = (entries(&[UP]), entries(&[OTHER]));
    for _ in 0..100 {
        rig.say(up, &record(UNKNOWN, &own));
    }
    assert_eq!((rig.node.counters().stateless_forwarded, rig.node.counters().stateless_limited), (10, 90));
    rig.say(other, &record(UNKNOWN, &others));
    assert_eq!(rig.node.counters().stateless_forwarded, 11);

    let mut rig = Rig::with(Config { stateless_rate: 0, max_searches: 64, ..stateless() });
    rig.answering.clear();
    let (up, other) = (rig.accept(UP), rig.accept(OTHER));
    for _ in 0..100 {
        rig.say(up, &record(UNKNOWN, &own));
    }
    assert_eq!((rig.node.tables()[7].size, rig.node.counters().stateless_full), (48, 52));
    rig.say(other, &record(UNKNOWN, &others));
    assert_eq!(rig.node.tables()[7].size, 49);
    rig.wait(seconds(60.0));
    assert_eq!((rig.node.tables()[7].size, rig.node.tables()[4].size), (0, 0));
}
