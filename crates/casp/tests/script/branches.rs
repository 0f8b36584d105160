//! Route changes: branches of the previous and of the next hops, and mobility.

use signalbox_casp::engine::{Config, Input, Request, SendRequest, Transport};
use signalbox_casp::wire::{Body, ErrorCode, Flags, Proof, Signaling};
use signalbox_core::IfIndex;
use signalbox_core::node::Prefix;

use crate::rig::*;

fn previous(rig: &Rig) -> Vec<(Option<std::net::IpAddr>, u16, bool)> {
    rig.state().previous.iter().map(|one| (one.peer, one.id, one.newest)).collect()
}

fn next(rig: &Rig) -> Vec<(Option<std::net::IpAddr>, u16, bool)> {
    rig.state().next.iter().map(|one| (one.peer, one.id, one.newest)).collect()
}

/// CASP-6.1-02, CASP-3-06, CASP-6.1-05, CASP-6.1-04, CASP-6.1-08: another previous node gets a branch with a new number, and
/// is the most recent one; the client is informed.
#[test]
fn another_previous_node_is_another_branch() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    rig.say(up, &data(CLIENT));
    rig.take_indicated();
    let other = rig.accept(OTHER);
    let outputs = rig.say(other, &message());
    assert_eq!(previous(&rig), [(Some(ip(OTHER)), 1, true), (Some(ip(UP)), 0, false)]);
    assert_eq!(rig.take_indicated(), [Indicated::Branch { previous: true, id: 1, ended: false }]);
    // The other side is as before.
    assert_eq!(next(&rig), [(Some(ip(DOWN)), 0, true)]);
    let down = rig.stream_to(DOWN);
    let sent = only(&outputs, down);
    assert_eq!((sent.message().session, sent.message().flow), (session(1), flow()));
    let outputs = rig.say(down, &flags(data(UNKNOWN), Flags::REVERSE));
    assert_eq!(only(&outputs, other).message().body, data(UNKNOWN).body);
}

/// CASP-G-19: without D a message only refreshes its own branch; with D it makes an older one the most recent.
#[test]
fn a_message_with_d_makes_its_branch_the_most_recent() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    let other = rig.accept(OTHER);
    rig.say(other, &flags(message(), Flags::DISCOVER));
    rig.say(up, &message());
    assert_eq!(previous(&rig)[0], (Some(ip(OTHER)), 1, true));
    rig.wait(seconds(6.0));
    rig.say(up, &flags(message(), Flags::DISCOVER));
    assert_eq!(previous(&rig)[0], (Some(ip(UP)), 2, true));
    let outputs = rig.say(down, &flags(message(), Flags::REVERSE));
    assert_eq!(outputs.iter().map(|one| one.stream).collect::<Vec<_>>(), [Some(up)]);
}

/// CASP-G-41: an unprotected branch does not displace a protected one. Nor does its tear-down end the session.
#[test]
fn an_unprotected_branch_does_not_displace_a_protected_one() {
    let mut rig =
        Rig::with(Config { transports: vec![(Prefix::host(ip(DOWN)), Transport::Tls)], ..config() });
    let owner = rig.accept_by(UP, Transport::Tls, identity(1));
    rig.say(owner, &message());
    let down = rig.stream_to(DOWN);
    let stranger = rig.accept(OTHER);
    for _ in 0..3 {
        rig.say(stranger, &flags(message(), Flags::DISCOVER));
    }
    assert_eq!(previous(&rig)[0].0, Some(ip(UP)));
    let outputs = rig.say(down, &flags(data(UNKNOWN), Flags::REVERSE));
    assert_eq!(outputs.iter().map(|one| one.stream).collect::<Vec<_>>(), [Some(owner)]);
    rig.say(stranger, &flags(message(), Flags::TEAR_DOWN));
    assert_eq!(previous(&rig), [(Some(ip(UP)), 0, true)]);
    let outputs = rig.say(owner, &flags(message(), Flags::TEAR_DOWN));
    assert_eq!((rig.node.session_count(), outputs.len()), (0, 1));
}

/// CASP-G-40: over channels without protection, the most recent of two branches removes only itself.
#[test]
fn a_tear_down_of_one_of_two_unprotected_branches_removes_that_one() {
    let mut rig = Rig::new();
    let (up, _) = rig.chain();
    let stranger = rig.accept(OTHER);
    rig.say(stranger, &message());
    let outputs = rig.say(stranger, &flags(message(), Flags::TEAR_DOWN));
    assert!(outputs.is_empty());
    assert_eq!(previous(&rig), [(Some(ip(UP)), 0, true)]);
    rig.say(up, &flags(message(), Flags::TEAR_DOWN));
    assert_eq!(rig.node.session_count(), 0);
}

/// CASP-G-36: the old branch is torn down when the new one has proved itself and is protected, or by configuration.
#[test]
fn a_dead_branch_is_torn_down_by_the_merge_point() {
    for (secure, switch, removed) in [(true, false, true), (false, false, false), (false, true, true)] {
        let mut rig = Rig::with(Config { remove_unsecure: switch, ..config() });
        let old = rig.accept_by(UP, Transport::Tls, identity(1));
        rig.say(old, &message());
        let new = if secure { rig.accept_by(OTHER, Transport::Tls, identity(2)) } else { rig.accept(OTHER) };
        if !secure {
            // Only between equals does the new branch become the most recent one.
            rig.say(old, &flags(message(), Flags::TEAR_DOWN));
            let old = rig.accept("10.0.0.9");
            rig.say(old, &message());
        }
        let outputs = rig.say(new, &flags(message(), Flags::DISCOVER));
        assert!(outputs.iter().all(|one| one.is_scout() || !one.message().flags.is_reverse()), "at once");
        rig.wait(seconds(6.0));
        let outputs = rig.say(new, &message());
        let tear = outputs.iter().find(|one| {
            !one.is_scout() && one.message().flags.contains(Flags::REVERSE.with(Flags::TEAR_DOWN))
        });
        assert_eq!(tear.is_some(), removed, "{secure} {switch}");
        assert_eq!(rig.state().previous.len(), if removed { 1 } else { 2 });
        assert_eq!(previous(&rig)[0].0, Some(ip(OTHER)));
    }
}

/// CASP-G-36: a client may keep the old branch.
#[test]
fn a_client_keeps_the_old_branch() {
    let mut rig = Rig::new();
    let old = rig.accept_by(UP, Transport::Tls, identity(1));
    rig.say(old, &data(CLIENT));
    rig.request(CLIENT, Request::KeepBranches { session: session(1), flow: flow() });
    let new = rig.accept_by(OTHER, Transport::Tls, identity(2));
    rig.say(new, &message());
    rig.say(new, &message());
    assert_eq!(rig.state().previous.len(), 2);
}

/// CASP-G-36: a branch that was answered has proved itself too.
#[test]
fn an_answer_proves_the_new_branch() {
    let mut rig = Rig::with(Config { remove_unsecure: true, ..config() });
    let (_, down) = rig.chain();
    let new = rig.accept(OTHER);
    rig.say(new, &message());
    rig.say(down, &flags(message(), Flags::REVERSE));
    assert_eq!(previous(&rig), [(Some(ip(OTHER)), 1, true)]);
}

/// CASP-6.1-01, CASP-6.1-07, CASP-4.2-07, CASP-6.1-03: discovery finds another node: it is the most recent next hop, and its
/// first message has D. Nothing else of the message changes.
#[test]
fn another_next_node_is_another_branch() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    rig.say(up, &data(CLIENT));
    rig.take_indicated();
    rig.answering = vec![ip(DOWN2)];
    rig.wait(seconds(6.0));
    let outputs = rig.say(up, &flags(message(), Flags::DISCOVER));
    assert_eq!(scouts(&outputs).len(), 1);
    assert_eq!(next(&rig), [(Some(ip(DOWN2)), 1, true), (Some(ip(DOWN)), 0, false)]);
    let sent = only(&outputs, rig.stream_to(DOWN2));
    let sent = sent.message();
    assert_eq!(
        (sent.session, sent.flow, sent.flags),
        (session(1), flow(), Flags::DISCOVER.with(Flags::UNSECURE))
    );
    assert_eq!(sent.proof, Some(Proof::Cookie(COOKIE)));
    assert_eq!(rig.take_indicated(), [Indicated::Branch { previous: false, id: 1, ended: false }]);
    // The old branch is used no more, and ends after one lifetime.
    for _ in 0..5 {
        rig.wait(seconds(20.0));
        rig.say(up, &message());
    }
    assert_eq!(next(&rig), [(Some(ip(DOWN2)), 1, true)]);
}

/// A session over DOWN whose next hop is DOWN2 since a moment ago. The results are the streams to UP, DOWN and DOWN2.
fn moved(rig: &mut Rig) -> [signalbox_core::node::StreamId; 3] {
    let (up, down) = rig.chain();
    rig.say(up, &data(CLIENT));
    rig.take_indicated();
    over(rig, up, DOWN2);
    [up, down, rig.stream_to(DOWN2)]
}

/// Discovery finds another next hop.
fn over(rig: &mut Rig, up: signalbox_core::node::StreamId, to: &str) {
    rig.answering = vec![ip(to)];
    rig.wait(seconds(6.0));
    rig.say(up, &flags(message(), Flags::DISCOVER));
    rig.take_indicated();
}

/// The old next hop is informed as soon as the new one has answered, and not before: an error, and what the old one says, prove
/// nothing. The tear-down has U, so that it ends one branch only where both ways meet.
#[test]
fn an_old_next_hop_is_informed_when_the_new_one_has_answered() {
    let mut rig = Rig::new();
    let [up, down, new] = moved(&mut rig);
    let error = Signaling { body: Body::Error(ErrorCode::UNKNOWN), ..message() };
    for (stream, answer) in [(new, flags(error, Flags::REVERSE)), (down, flags(message(), Flags::REVERSE))] {
        let outputs = rig.say(stream, &answer);
        assert!(outputs.iter().all(|one| one.stream == Some(up)), "{outputs:?}");
    }
    assert_eq!(next(&rig), [(Some(ip(DOWN2)), 1, true), (Some(ip(DOWN)), 0, false)]);
    rig.take_indicated();
    let outputs = rig.say(new, &flags(data(UNKNOWN), Flags::REVERSE));
    let tear = only(&outputs, down).message().flags;
    assert_eq!(tear, Flags::TEAR_DOWN.with(Flags::UNSECURE));
    assert_eq!(next(&rig), [(Some(ip(DOWN2)), 1, true)]);
    assert_eq!(rig.take_indicated(), [Indicated::Branch { previous: false, id: 0, ended: true }]);
    assert_eq!(only(&outputs, up).message().body, data(UNKNOWN).body);
}

/// After a route has changed twice, the hop that is left is the second one; the first one, which is in use again, is never torn
/// down, not even by an answer that was on its way.
#[test]
fn a_flapping_route_does_not_end_the_branch_in_use() {
    let mut rig = Rig::new();
    let [up, down, new] = moved(&mut rig);
    over(&mut rig, up, DOWN);
    assert_eq!(next(&rig), [(Some(ip(DOWN)), 2, true), (Some(ip(DOWN2)), 1, false)]);
    let late = rig.say(new, &flags(message(), Flags::REVERSE));
    assert!(late.iter().all(|one| one.stream == Some(up)), "{late:?}");
    let outputs = rig.say(down, &flags(message(), Flags::REVERSE));
    assert!(only(&outputs, new).message().flags.contains(Flags::TEAR_DOWN));
    assert!(outputs.iter().all(|one| one.stream != Some(down)), "{outputs:?}");
    assert_eq!(next(&rig), [(Some(ip(DOWN)), 2, true)]);
    // And once more: what was torn down is another branch, with another number.
    over(&mut rig, up, DOWN2);
    assert_eq!(next(&rig), [(Some(ip(DOWN2)), 3, true), (Some(ip(DOWN)), 2, false)]);
}

/// An old next hop that cannot be reached at once expires, and a client may keep it.
#[test]
fn an_old_next_hop_may_stay() {
    for kept in [true, false] {
        let mut rig = Rig::new();
        let [_, down, new] = moved(&mut rig);
        if kept {
            rig.request(CLIENT, Request::KeepBranches { session: session(1), flow: flow() });
        } else {
            rig.input(Input::Closed { stream: down });
        }
        let opened = rig.opened.len();
        rig.say(new, &flags(message(), Flags::REVERSE));
        assert_eq!((rig.state().next.len(), rig.opened.len()), (2, opened), "{kept}");
    }
}

/// CASP-6.1-01: the first message over another next hop has D, so that the rest of the chain discovers as well.
#[test]
fn the_first_message_over_another_hop_has_d() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    rig.wait(seconds(6.0));
    rig.input(Input::Closed { stream: down });
    rig.accepting = false;
    rig.say(up, &data(UNKNOWN));
    rig.answering = vec![ip(DOWN2)];
    rig.accepting = true;
    let stream = rig.stream_to(DOWN);
    rig.sent.clear();
    rig.input(Input::Closed { stream });
    let sent = only(&rig.sent, rig.stream_to(DOWN2));
    assert_eq!(sent.message().flags, Flags::DISCOVER.with(Flags::UNSECURE));
    assert_eq!(sent.message().body, data(UNKNOWN).body);
    let outputs = rig.say(up, &data(UNKNOWN));
    assert_eq!(only(&outputs, rig.stream_to(DOWN2)).message().flags, Flags::UNSECURE);
}

/// CASP-4.2-08, CASP-5.1-01: without D the known next hop is used.
#[test]
fn without_d_nothing_is_discovered() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    for _ in 0..10 {
        let outputs = rig.say(up, &message());
        assert_eq!((outputs.len(), outputs[0].stream), (1, Some(down)));
    }
    assert_eq!(rig.lookups, 1);
}

/// CASP-G-39: messages with D start one discovery in 5 s.
#[test]
fn discovery_by_messages_is_limited() {
    let mut rig = Rig::new();
    let (up, _) = rig.chain();
    rig.wait(seconds(6.0));
    let mut requests = 0;
    for _ in 0..100 {
        requests += scouts(&rig.say(up, &flags(message(), Flags::DISCOVER))).len();
        rig.wait(seconds(0.01));
    }
    assert_eq!((requests, rig.node.counters().discovery_limited), (1, 99));
    rig.wait(seconds(5.0));
    assert_eq!(scouts(&rig.say(up, &flags(message(), Flags::DISCOVER))).len(), 1);
}

/// CASP-00-07: the new next hop cannot be connected to: the old one stays.
#[test]
fn the_old_hop_stays_until_the_new_one_stands() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    rig.wait(seconds(6.0));
    rig.answering = vec![ip(DOWN2)];
    rig.accepting = false;
    let outputs = rig.say(up, &flags(data(UNKNOWN), Flags::DISCOVER));
    assert!(signaling(&outputs).is_empty());
    // Messages without D do not wait for it.
    let outputs = rig.say(up, &message());
    assert_eq!(only(&outputs, down).message().body, Body::Empty);
    let stream = rig.stream_to(DOWN2);
    rig.sent.clear();
    rig.input(Input::Closed { stream });
    assert_eq!(only(&rig.sent, down).message().body, data(UNKNOWN).body);
    assert_eq!(next(&rig), [(Some(ip(DOWN)), 0, true)]);
}

/// CASP-P-08, CASP-6.1-08: a change of routes makes the node discover at once, and informs the clients.
#[test]
fn a_change_of_routes_is_repaired_at_once() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    rig.say(up, &data(CLIENT));
    rig.take_indicated();
    rig.wait(seconds(6.0));
    rig.answering = vec![ip(DOWN2)];
    rig.sent.clear();
    rig.input(Input::RouteChanged(Prefix { addr: ip("10.7.0.0"), len: 16 }));
    assert!(rig.sent.is_empty(), "another destination");
    rig.input(Input::RouteChanged(Prefix { addr: ip("10.8.0.0"), len: 16 }));
    let sent = only(&rig.sent, rig.stream_to(DOWN2));
    assert!(sent.message().flags.contains(Flags::DISCOVER));
    assert_eq!(rig.take_indicated(), [Indicated::Branch { previous: false, id: 1, ended: false }]);
}

/// Another router takes over the address of the gateway: sessions whose data go there discover at once, others do not. Who forges that all
/// the time makes them discover once in an interval, and ends nothing.
#[test]
fn a_gateway_whose_place_another_router_has_is_asked_at_once() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    rig.say(up, &data(CLIENT));
    rig.take_indicated();
    rig.wait(seconds(6.0));
    rig.answering = vec![ip(DOWN2)];
    rig.sent.clear();
    let moved = |n, address| Input::NeighborMoved { ifindex: IfIndex(n), address: ip(address) };
    let gateway = || moved(2, "10.0.1.254");
    for other in [moved(1, "10.0.1.254"), moved(2, "10.0.1.253"), moved(2, DST)] {
        rig.input(other);
    }
    assert!(rig.sent.is_empty());
    rig.input(gateway());
    let sent = only(&rig.sent, rig.stream_to(DOWN2));
    assert!(sent.message().flags.contains(Flags::DISCOVER));
    assert_eq!(rig.take_indicated(), [Indicated::Branch { previous: false, id: 1, ended: false }]);
    assert_eq!(rig.node.counters().neighbors_followed, 1);
    let mut outputs = Vec::new();
    for _ in 0..60 {
        outputs.extend(rig.wait(seconds(0.1)));
        rig.sent.clear();
        rig.input(gateway());
        outputs.append(&mut rig.sent);
    }
    // One that waited for the interval, and one more after it.
    assert_eq!(scouts(&outputs).len(), 2, "{outputs:?}");
    assert_eq!((rig.node.session_count(), rig.take_indicated()), (1, vec![]));
}

/// A router of which the link to the previous hop is lost may be on the path no longer. If its next hop stays, it asks for no place
/// on the path: D would make the next hop send answers to it, instead of to the router on the new path.
#[test]
fn a_router_whose_next_hop_stays_claims_no_place_on_the_path() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    rig.say(up, &data(CLIENT));
    let changed = || Input::RouteChanged(Prefix { addr: ip("10.8.0.0"), len: 16 });
    let mut outputs = Vec::new();
    for _ in 0..3 {
        outputs.extend(rig.wait(seconds(6.0)));
        rig.sent.clear();
        rig.input(changed());
        // The second one waits for the interval of discoveries.
        rig.input(changed());
        outputs.append(&mut rig.sent);
    }
    outputs.extend(rig.wait(seconds(6.0)));
    assert!(scouts(&outputs).len() >= 4, "{outputs:?}");
    let sent = signaling(&outputs);
    assert!(
        sent.len() >= 4 && sent.iter().all(|one| !one.message().flags.contains(Flags::DISCOVER)),
        "{sent:?}"
    );
}

/// CASP-P-08: a discovery of a refresh a moment ago does not make the repair wait, and routes that change all the time
/// make no more than one discovery each interval.
#[test]
fn a_repair_does_not_wait_for_the_interval_of_discoveries() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    rig.say(up, &flags(data(CLIENT), Flags::DISCOVER));
    let changed = || Input::RouteChanged(Prefix { addr: ip("10.8.0.0"), len: 16 });
    rig.wait(seconds(0.5));
    rig.answering = vec![ip(DOWN2)];
    rig.sent.clear();
    rig.input(changed());
    assert!(only(&rig.sent, rig.stream_to(DOWN2)).message().flags.contains(Flags::DISCOVER));
    // One more discovery would find this node.
    rig.answering = vec![ip(DOWN)];
    rig.sent.clear();
    for _ in 0..10 {
        rig.wait(seconds(0.1));
        rig.input(changed());
    }
    assert!(signaling(&rig.sent).is_empty(), "the second change of routes waits");
    rig.wait(seconds(5.0));
    assert_eq!(rig.node.sessions().next().and_then(|one| one.next[0].peer), Some(ip(DOWN)));
}

/// CASP-P-08: many sessions are repaired in parts, and many changes at once are one.
#[test]
fn many_sessions_are_repaired_in_parts() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    for port in 0..1500 {
        rig.say(up, &Signaling { flow: flow_to(DST, port), ..message() });
    }
    rig.wait(seconds(6.0));
    rig.answering = vec![ip(DOWN2)];
    rig.sent.clear();
    for n in 0..100 {
        rig.node.handle(rig.now, Input::RouteChanged(Prefix { addr: ip(&format!("10.{n}.0.0")), len: 16 }));
    }
    rig.wait(seconds(1.0));
    let moved = rig.node.sessions().filter(|one| one.next[0].peer == Some(ip(DOWN2))).count();
    assert_eq!(moved, 1500);
}

/// CASP-6.2-01, CASP-6.2-02: a host that moves keeps its session, with another flow, and tears the old branch down.
#[test]
fn a_host_that_moves_keeps_its_session() {
    let mut rig = Rig::new();
    let id = rig.open(true);
    let down = rig.stream_to(DOWN);
    let to = flow_to(DST, 6000);
    let outputs = rig.request(CLIENT, Request::Move { session: id, from: flow(), to });
    let sent = signaling(&outputs);
    assert_eq!(sent.iter().map(|one| one.stream).collect::<Vec<_>>(), [Some(down), Some(down)]);
    let (new, old) = (sent[0].message(), sent[1].message());
    assert_eq!((new.session, new.flow, new.flags), (id, to, Flags::UNSECURE));
    assert_eq!((old.session, old.flow, old.flags), (id, flow(), Flags::UNSECURE.with(Flags::TEAR_DOWN)));
    assert_eq!((rig.state().flow, rig.state().own), (to, true));
    rig.wait(seconds(200.0));
    assert_eq!(rig.node.session_count(), 1, "it is held like the one before");
}

/// CASP-6.2-03: messages against the flow of both flows go their own way.
#[test]
fn the_flow_selects_the_previous_hop() {
    let mut rig = Rig::new();
    let (up, down) = rig.chain();
    let other = rig.accept(OTHER);
    let moved = Signaling { flow: flow_to(DST, 7000), ..message() };
    rig.say(other, &moved);
    for (sent, stream) in [(message(), up), (moved, other)] {
        let outputs = rig.say(down, &flags(sent, Flags::REVERSE));
        assert_eq!(outputs.iter().map(|one| one.stream).collect::<Vec<_>>(), [Some(stream)]);
    }
}

/// CASP-6.1-10: a client reaches an old branch by its number.
#[test]
fn a_client_sends_over_an_old_branch() {
    let mut rig = Rig::new();
    let (up, _) = rig.chain();
    let other = rig.accept(OTHER);
    rig.say(other, &data(CLIENT));
    let send = SendRequest {
        reverse: true,
        branch: Some(0),
        ..SendRequest::new(Some(session(1)), flow(), b"release")
    };
    let outputs = rig.request(CLIENT, Request::Send(send));
    assert_eq!(only(&outputs, up).message().body, Body::Client { client: CLIENT, data: b"release" });
}
