//! Branches: changes of routes, and messages of nodes that are no hop of their session.

use signalbox_casp::clients::qos::{Config, QosEvent, Range};
use signalbox_casp::engine::Indication;
use signalbox_casp::wire::qos::{QosErrorCode, QosFlags, QosMessage, QosType, QosVersion};
use signalbox_core::SessionId;

use crate::rig::{Packet, Rig, between, flow, mbit, to_port, with_rate};

const SESSION: SessionId = SessionId([2; 16]);

/// A reservation over 0, 1, 2, 3, of which node 2 then gets the Reserve by another branch.
fn rerouted(config: Config, remove: bool) -> Rig {
    let mut rig = Rig::with(4, config);
    let request = rig.request(Range::only(mbit(2.0)));
    rig.reserve(0, 1, &request);
    let mut reserve = rig.last(2, QosType::RESERVE);
    rig.clear();
    if remove {
        reserve.data[4] |= QosFlags::BRANCH.octet();
    }
    rig.inject(Packet { branch: 1, from: 0, ..reserve });
    rig
}

fn merging() -> Config {
    Config { merge_unauthenticated: true, ..Config::default() }
}

/// CASPQOS-7-01, CASPQOS-7-02, CASPQOS-7-03, CASPQOS-7-08: where the branches meet, the session is known and nothing is
/// reserved twice. Without B the old branch stays until it expires.
#[test]
fn nothing_is_reserved_twice_where_branches_meet() {
    let rig = rerouted(merging(), false);
    assert_eq!((rig.booked(2), rig.given(2)), (2.0, 2.0));
    assert_eq!(rig.nodes[2].client.sessions(), 1);
    assert_eq!(rig.nodes[2].kept, 1);
    assert!(!rig.kinds(1).contains(&QosType::RELEASE));
}

/// CASPQOS-7-06, CASPQOS-7-07: with B the node where they meet releases the old branch.
#[test]
fn the_old_branch_is_released_on_demand() {
    let rig = rerouted(merging(), true);
    let release = rig.last(1, QosType::RELEASE);
    assert!(release.reverse);
    assert_eq!(rig.nodes[2].kept, 0);
    assert_eq!((rig.booked(1), rig.booked(2), rig.given(2)), (0.0, 2.0, 2.0));
}

/// CASPQOS-8-04: a further previous hop that is not authenticated is refused, if the configuration does not allow it.
#[test]
fn a_further_hop_must_be_authenticated() {
    let rig = rerouted(Config::default(), false);
    let error = rig.last(1, QosType::ERROR);
    assert_eq!(error.message().error, Some((QosErrorCode::NOT_OWNER, 0)));
    assert_eq!((rig.booked(2), rig.nodes[2].kept), (2.0, 0));
    assert_eq!(rig.kinds(3), []);
}

/// CASPQOS-7-01: the node with a new next hop sends both requests there at once, the Reserve first, so that the new branch has
/// what was reserved and what was committed before a refresh is due.
#[test]
fn a_new_branch_gets_both_requests() {
    let mut rig = Rig::new(4);
    let request = rig.request(Range::only(mbit(2.0)));
    rig.reserve(0, 1, &request);
    let ages = |rig: &Rig| [QosType::RESERVE, QosType::COMMIT].map(|kind| rig.last(2, kind).message().age);
    let before = ages(&rig);
    rig.clear();
    let (session, flow) = (SESSION, flow(4));
    rig.indicate(1, &Indication::Branch { session, flow, previous: false, id: 1, ended: false });
    assert_eq!(rig.kinds(2)[..2], [QosType::RESERVE, QosType::COMMIT]);
    assert_eq!(ages(&rig), before);
    assert!(rig.last(2, QosType::RESERVE).message().flags.contains(QosFlags::BRANCH));
    assert_eq!((rig.booked(3), rig.given(3), rig.events(0)), (0.0, 0.0, vec![]));
}

/// CASPQOS-7-02, CASPQOS-7-05, CASP-6.2-04: a session whose flow changes is known by its identifier; all nodes take the new flow, and
/// one reservation stands.
#[test]
fn a_new_flow_goes_to_the_end() {
    let mut rig = Rig::standing(4, Range::only(mbit(2.0)));
    rig.wait(core::time::Duration::from_secs(60));
    let reserve = rig.last(1, QosType::RESERVE);
    rig.clear();
    let moved = |sequence| {
        let mut message = reserve.message();
        message.sequence = Some(sequence);
        let mut data = Vec::new();
        message.encode(&mut data).unwrap();
        Packet { flow: to_port(4, 700), data, ..reserve.clone() }
    };
    // A request that is older than the last one is about a flow that the source has left.
    rig.inject(moved(1));
    assert_eq!(rig.kinds(3), []);
    rig.inject(moved(100));
    assert_eq!(rig.kinds(3), [QosType::RESERVE]);
    for n in 1..3 {
        let installed = rig.nodes[n].installed.values().next().unwrap();
        assert_eq!(installed.filters[0].dst_port, Some(700), "node {n}");
        assert_eq!((rig.booked(n), rig.given(n)), (2.0, 2.0));
    }
}

/// A request that comes round to the source of its session, for a flow that the source has left, changes nothing there.
#[test]
fn a_request_that_comes_round_is_dropped() {
    let mut rig = Rig::standing(4, Range::only(mbit(2.0)));
    rig.wait(core::time::Duration::from_secs(60));
    let reserve = rig.last(1, QosType::RESERVE);
    rig.clear();
    rig.inject(Packet { flow: to_port(4, 700), to: 0, from: 1, ..reserve });
    rig.wait(core::time::Duration::from_secs(60));
    assert_eq!(rig.last(1, QosType::RESERVE).flow, flow(4));
    let installed = rig.nodes[0].installed.values().next().unwrap();
    assert_eq!(installed.filters[0].dst_port, Some(600));
}

/// CASPQOS-7-09: the Release of an old branch ends where another branch leads to, and removes nothing there.
#[test]
fn a_release_of_an_old_branch_ends_where_another_one_leads() {
    let mut rig = rerouted(merging(), false);
    let mut release = QosMessage::new(QosType::RELEASE, flow(4));
    (release.sequence, release.flags) = (Some(50), QosFlags::REMOVE);
    let packet = rig.packet(2, 1, SESSION, &release);
    rig.clear();
    rig.inject(packet);
    assert_eq!((rig.booked(2), rig.given(2)), (2.0, 2.0));
    assert_eq!(rig.kinds(3), []);
    // By the newest branch it is the end.
    let packet = rig.packet(2, 0, SESSION, &release);
    rig.inject(Packet { branch: 1, ..packet });
    assert_eq!(rig.booked(2), 0.0);
    assert_eq!(rig.kinds(3), [QosType::RELEASE]);
}

/// The path comes back to a hop. The Release that this hop sent when the path left it arrives after that, because the link was lost:
/// it is about what the hop held before.
#[test]
fn a_release_from_before_a_hop_came_back_ends_nothing() {
    let mut rig = Rig::new(4);
    let request = rig.request(Range::only(mbit(2.0)));
    rig.reserve(0, 1, &request);
    let mut release = QosMessage::new(QosType::RELEASE, flow(4));
    (release.sequence, release.flags) = (Some(50), QosFlags::REMOVE);
    let late = Packet { branch: 1, ..rig.packet(1, 2, SESSION, &release) };
    let sent = rig.last(1, QosType::COMMIT);
    rig.clear();
    let (session, flow) = (SESSION, flow(4));
    rig.deaf = Some(2);
    rig.indicate(1, &Indication::Branch { session, flow, previous: false, id: 1, ended: false });
    rig.inject(late.clone());
    assert_eq!((rig.booked(1), rig.given(1), rig.kinds(0)), (2.0, 2.0, vec![]));
    // After its answer it ends the session.
    let mut success = QosMessage::new(QosType::SUCCESS, flow);
    (success.echo, success.age) = (sent.message().sequence, sent.message().age);
    success.version = Some(QosVersion::BANDWIDTH);
    let answer = Packet { branch: 1, ..rig.packet(1, 2, SESSION, &success) };
    rig.inject(answer);
    rig.inject(late);
    assert_eq!((rig.booked(1), rig.kinds(0)), (0.0, vec![QosType::SUCCESS, QosType::RELEASE]));
}

/// CASPQOS-8-05, CASPQOS-2-36: Release and Error count only from a hop of the session, and an answer to nothing changes
/// nothing.
#[test]
fn strangers_end_nothing() {
    let mut rig = Rig::standing(4, Range::only(mbit(2.0)));
    let mut release = QosMessage::new(QosType::RELEASE, flow(4));
    (release.sequence, release.flags) = (Some(50), QosFlags::REMOVE);
    let mut error = QosMessage::new(QosType::ERROR, flow(4));
    (error.echo, error.flags, error.version) = (Some(1), QosFlags::REMOVE, Some(QosVersion::BANDWIDTH));
    error.partial = Some(Default::default());
    error.error_node = Some(crate::rig::at(3));
    for (message, from) in [(release, 0), (error, 2)] {
        let packet = rig.packet(1, from, SESSION, &message);
        rig.inject(Packet { branch: 9, ..packet });
    }
    assert_eq!((rig.booked(1), rig.given(1)), (2.0, 2.0));
    assert_eq!(rig.nodes[1].client.counters().strangers, 2);
    // An Error without R, and a Success, for a number that no request has.
    let mut success = QosMessage::new(QosType::SUCCESS, flow(4));
    (success.echo, success.version) = (Some(77), Some(QosVersion::BANDWIDTH));
    let harmless = QosMessage { flags: QosFlags::NONE, echo: Some(77), ..error };
    for message in [success, harmless] {
        let packet = rig.packet(1, 2, SESSION, &message);
        rig.inject(packet);
    }
    assert_eq!((rig.booked(0), rig.given(0), rig.given(1)), (2.0, 2.0, 2.0));
    assert_eq!(rig.events(0), []);
}

/// CASPQOS-2-36: a Success of a node that is no hop of the session neither lowers what is reserved nor goes on. Of a hop, it has to
/// answer the last request.
#[test]
fn a_stranger_lowers_nothing() {
    let mut rig = Rig::new(4);
    let request = rig.request(between(0.5, 2.0));
    rig.reserve(0, 1, &request);
    let asked = rig.last(1, QosType::COMMIT);
    let mut success = QosMessage::new(QosType::SUCCESS, flow(4));
    (success.echo, success.age) = (asked.message().sequence, asked.message().age);
    with_rate(&mut success, 1.0);
    let packet = rig.packet(1, 2, SESSION, &success);
    rig.clear();
    rig.inject(Packet { branch: 9, ..packet.clone() });
    assert_eq!((rig.booked(1), rig.given(1), rig.kinds(0)), (2.0, 2.0, vec![]));
    assert_eq!(rig.nodes[1].client.counters().strangers, 1);
    success.echo = Some(77);
    let other = rig.packet(1, 2, SESSION, &success);
    rig.inject(other);
    assert_eq!((rig.booked(0), rig.booked(1), rig.given(1)), (2.0, 2.0, 2.0));
    rig.inject(packet);
    assert_eq!((rig.booked(1), rig.given(1)), (1.0, 1.0));
}

/// A session without a reservation, whose Query was answered, gets another next hop: the answers of that one count too.
#[test]
fn a_new_hop_answers_after_a_query() {
    let mut rig = Rig::new(3);
    let request = rig.request(Range::only(mbit(2.0)));
    rig.query(0, 1, &request);
    let (session, flow) = (SESSION, flow(3));
    for n in [0, 1] {
        rig.indicate(n, &Indication::Branch { session, flow, previous: false, id: 1, ended: false });
    }
    rig.branch = 1;
    rig.change(0, 1, Range::only(mbit(2.0)));
    assert!(matches!(rig.events(0).last(), Some(QosEvent::Committed { .. })), "{:?}", rig.events(0));
}
