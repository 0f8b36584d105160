//! Tear-down.

use signalbox_casp::engine::{Config, Input, Request, SendRequest, Transport};
use signalbox_casp::wire::{Body, Flags, Signaling};
use signalbox_core::SessionId;

use crate::rig::*;

const TEAR: Flags = Flags::TEAR_DOWN;

/// CASP-4.2-05, CASP-G-17: the client first, then the next hop, then the state goes. CASP-4.2-10: without D.
#[test]
fn a_tear_down_removes_state_along_the_chain() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    rig.say(up, &data(CLIENT));
    rig.take_indicated();
    let outputs = rig.say(up, &flags(data(CLIENT), TEAR.with(Flags::DISCOVER)));
    let sent = only(&outputs, down);
    assert_eq!((sent.message().flags, sent.message().ttd), (TEAR.with(Flags::UNSECURE), 63));
    assert_eq!(sent.message().body, data(CLIENT).body);
    assert!(scouts(&outputs).is_empty());
    let indicated = rig.take_indicated();
    assert!(matches!(&indicated[0], Indicated::Received(arrival, _) if arrival.tear_down && arrival.id == 0));
    assert_eq!(indicated[1..], [Indicated::Ended { flow: flow(), torn_down: true }]);
    assert_eq!(rig.node.session_count(), 0);
}

/// CASP-G-04, CASP-G-17: T of a node that is no hop of the session changes nothing.
#[test]
fn strangers_do_not_tear_down() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    let stranger = rig.accept("10.0.0.66");
    for (stream, with) in
        [(stranger, TEAR), (stranger, TEAR.with(Flags::REVERSE)), (up, TEAR.with(Flags::REVERSE))]
    {
        assert!(rig.say(stream, &flags(message(), with)).is_empty());
    }
    assert_eq!((rig.node.session_count(), rig.node.counters().strangers), (1, 3));
    // A tear-down of the next hop along the flow is a loop.
    assert!(rig.say(down, &flags(message(), TEAR)).is_empty());
    assert_eq!(rig.node.session_count(), 1);
    // A datagram with the address of the previous hop is not from its connection.
    assert!(rig.datagram(UP, NEAR, &flags(message(), TEAR)).is_empty());
    assert_eq!((rig.node.session_count(), rig.node.counters().strangers), (1, 4));
}

/// CASP-G-18: T of an older previous hop ends that branch and goes no further; R and T of an older next hop likewise.
#[test]
fn a_tear_down_of_an_old_branch_ends_that_branch() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    let other = rig.accept(OTHER);
    rig.say(other, &message());
    assert!(rig.say(up, &flags(message(), TEAR)).is_empty());
    assert_eq!(rig.state().previous.iter().map(|one| one.peer).collect::<Vec<_>>(), [Some(ip(OTHER))]);
    rig.answering = vec![ip(DOWN2)];
    rig.wait(seconds(6.0));
    rig.say(other, &flags(message(), Flags::DISCOVER));
    assert_eq!(rig.state().next.len(), 2);
    assert!(rig.say(down, &flags(message(), TEAR.with(Flags::REVERSE))).is_empty());
    assert_eq!(rig.state().next.iter().map(|one| one.peer).collect::<Vec<_>>(), [Some(ip(DOWN2))]);
    let new = rig.stream_to(DOWN2);
    let outputs = rig.say(new, &flags(message(), TEAR.with(Flags::REVERSE)));
    assert_eq!(only(&outputs, other).message().flags, TEAR.with(Flags::REVERSE).with(Flags::UNSECURE));
    assert_eq!(rig.node.session_count(), 0);
}

/// The path comes back to a hop. What this hop sent when the path left it arrives after that, because the link was lost: a message
/// to the client, and a tear-down of the former branch.
#[test]
fn a_tear_down_from_before_a_hop_came_back_ends_nothing() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    let turn = |rig: &mut Rig, to| {
        rig.answering = vec![ip(to)];
        rig.wait(seconds(6.0));
        rig.say(up, &flags(message(), Flags::DISCOVER));
    };
    turn(&mut rig, DOWN2);
    let other = rig.stream_to(DOWN2);
    // Its answer has the former hop torn down.
    rig.say(other, &flags(message(), Flags::REVERSE));
    assert_eq!(rig.state().next.len(), 1);
    turn(&mut rig, DOWN);
    assert_eq!(rig.state().next.len(), 2);
    rig.say(down, &flags(message(), Flags::REVERSE));
    assert!(rig.say(down, &flags(message(), TEAR.with(Flags::REVERSE))).is_empty());
    assert_eq!(rig.node.session_count(), 1);
    // Once the branch stands it is the end.
    rig.say(down, &flags(message(), Flags::REVERSE));
    let outputs = rig.say(down, &flags(message(), TEAR.with(Flags::REVERSE)));
    assert!(only(&outputs, up).message().flags.contains(TEAR.with(Flags::REVERSE)));
    assert_eq!(rig.node.session_count(), 0);
}

/// CASP-4.2-05, CASP-G-17: a client tears its session down, with a last message.
#[test]
fn a_client_tears_its_session_down() {
    let mut rig = Rig::new();
    let id = rig.open(true);
    rig.take_indicated();
    let send = SendRequest { tear_down: true, ..SendRequest::new(Some(id), flow(), b"bye") };
    let outputs = rig.request(CLIENT, Request::Send(send));
    let sent = only(&outputs, rig.stream_to(DOWN));
    assert_eq!(sent.message().body, Body::Client { client: CLIENT, data: b"bye" });
    assert!(sent.message().flags.contains(TEAR));
    assert_eq!(rig.take_indicated(), [Indicated::Ended { flow: flow(), torn_down: true }]);
    assert_eq!((rig.node.session_count(), rig.node.next_deadline().is_some()), (0, true));
    // A responder does it against the flow.
    let up = rig.accept(UP);
    let own = flow_to(NEAR, 1);
    rig.say(up, &Signaling { flow: own, ..data(CLIENT) });
    let send =
        SendRequest { tear_down: true, reverse: true, ..SendRequest::new(Some(session(1)), own, b"bye") };
    let outputs = rig.request(CLIENT, Request::Send(send));
    assert!(only(&outputs, up).message().flags.contains(TEAR.with(Flags::REVERSE)));
}

/// CASP-G-17: a tear-down while messages wait leaves nothing behind.
#[test]
fn nothing_is_left_of_a_session_that_waited() {
    let mut rig = Rig::new();
    rig.answering.clear();
    let up = rig.accept(UP);
    for _ in 0..5 {
        rig.say(up, &data(UNKNOWN));
    }
    assert!(rig.node.tables()[4].size > 0);
    rig.say(up, &flags(message(), TEAR));
    assert_eq!((rig.node.session_count(), rig.node.tables()[4].size), (0, 0));
    rig.wait(seconds(40.0));
    rig.input(Input::Closed { stream: up });
    assert_eq!(rig.node.peer_count(), 0);
    assert_eq!(rig.node.next_deadline(), None);
}

/// A tear-down waits for a connection that is not established, because no node repeats it. It leaves before all other messages.
#[test]
fn a_tear_down_waits_for_the_connection() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    rig.accepting = false;
    rig.input(Input::Closed { stream: down });
    assert!(signaling(&rig.say(up, &flags(message(), TEAR))).is_empty());
    assert_eq!(rig.node.session_count(), 0);
    rig.say(up, &Signaling { session: session(2), ..message() });
    let again = rig.stream_to(DOWN);
    rig.sent.clear();
    rig.input(Input::Connected { stream: again, identity: None });
    let outputs: Vec<_> = signaling(&rig.sent).iter().map(|one| one.message().session).collect();
    assert_eq!(outputs, [session(1), session(2)]);
    assert_eq!(rig.sent[0].message().flags, TEAR.with(Flags::UNSECURE));
}

/// A tear-down that waits is dropped if its session goes over that node again.
#[test]
fn a_tear_down_does_not_end_a_new_session() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    rig.accepting = false;
    rig.input(Input::Closed { stream: down });
    rig.say(up, &flags(message(), TEAR));
    let again = rig.stream_to(DOWN);
    // The other node connects first, and the session begins once more.
    let other = rig.accept(DOWN);
    let outputs = rig.say(up, &message());
    assert_eq!(only(&outputs, other).message().flags, Flags::UNSECURE);
    rig.sent.clear();
    rig.input(Input::Connected { stream: again, identity: None });
    assert!(rig.sent.is_empty(), "{:?}", rig.sent);
    assert_eq!(rig.node.session_count(), 1);
}

/// The tear-downs that wait are bounded, and a connection that fails leaves none of them behind.
#[test]
fn tear_downs_that_wait_are_bounded() {
    let in_session = |n: u128| Signaling { session: SessionId(n.to_be_bytes()), ..message() };
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    for n in 1..=300 {
        rig.say(up, &in_session(n));
    }
    rig.accepting = false;
    let down = rig.stream_to(DOWN);
    rig.input(Input::Closed { stream: down });
    for n in 1..=300 {
        rig.say(up, &flags(in_session(n), TEAR));
    }
    assert_eq!((rig.node.session_count(), rig.node.counters().waiting_full), (0, 300 - 256));
    assert!(rig.node.tables()[4].size > 0);
    let again = rig.stream_to(DOWN);
    rig.input(Input::Closed { stream: again });
    assert_eq!((rig.node.tables()[4].size, rig.node.counters().no_connection), (0, 256));
}

/// O18: a message that is too long for a datagram waits in a connection. The tear-down follows it there: as a datagram it would come
/// first, and the message would make the session again.
#[test]
fn a_tear_down_follows_long_messages() {
    let next = signalbox_core::node::Prefix { addr: ip("10.0.1.0"), len: 24 };
    let mut rig = Rig::with(Config { transports: vec![(next, Transport::Udp)], ..config() });
    let up = rig.accept(UP);
    assert_eq!(signaling(&rig.say(up, &message()))[0].stream, None, "a datagram");
    let long = Signaling { body: Body::Client { client: UNKNOWN, data: &[7; 600] }, ..message() };
    let stream = rig.say(up, &long)[0].stream;
    assert!(stream.is_some());
    let outputs = signaling(&rig.say(up, &flags(message(), TEAR)));
    assert_eq!(outputs.iter().map(|sent| sent.stream).collect::<Vec<_>>(), [stream]);
    assert!(outputs[0].message().flags.contains(TEAR));
    assert_eq!(rig.node.session_count(), 0);
}
